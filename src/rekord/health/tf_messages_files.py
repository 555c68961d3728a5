"""What TensorFlow says of damaged files, and of bytes that it cannot decode."""

from __future__ import annotations

from rekord.health.tf_known import Facts, Known, looks_like

_SALVAGE = "rekord salvage IN OUT      (every intact record, with the list of gaps)"
_CHECK = "rekord check PATH      (names the file, the record and the byte: TensorFlow does not)"
_WRONG_COMPRESSION = (
    'tf.data.TFRecordDataset(files, compression_type="GZIP"), "ZLIB" or "": as rekord check says'
)
_BEGINS = {
    "0x89 0x50": "a PNG",
    "0x47 0x49": "a GIF",
    "0x42 0x4d": "a BMP",
    "0x52 0x49": "a WebP",
    "0xff 0xd8": "a JPEG",
}


def _offset(facts: Facts) -> Facts:
    at = int(facts["at"])
    return {"offset": f"{at:,}", "start": f"{max(0, at - 12):,}"}


def _ratio(facts: Facts) -> Facts:
    found, wanted = int(facts["found"]), int(facts["wanted"])
    slip = "The shape is another one than that of the data."
    for size, dtypes in ((4, "float32 or int32"), (8, "float64 or int64"), (2, "uint16 or float16")):
        if wanted and found == size * wanted:
            slip = f"{found:,} is {size} times {wanted:,}: the bytes are probably {dtypes}, decoded as uint8."
        elif found and wanted == size * found:
            slip = f"{wanted:,} is {size} times {found:,}: the bytes are probably uint8, decoded as {dtypes}."
    return {"slip": slip}


def _picture(facts: Facts) -> Facts:
    begins = f"{facts['first']} {facts['second']}".lower()
    return {"begins": begins, "picture": _BEGINS.get(begins, "something else")}


def _inflated(facts: Facts) -> Facts:
    why = facts.get("why", "no reason given")
    if "header check" in why:
        return {
            "code": "H701",
            "why": why,
            "meant": "the file is not compressed as the reader was told",
            "cause": "A plain file read with compression_type, or ZLIB read as GZIP or the other way round.",
            "act": _WRONG_COMPRESSION,
        }
    return {
        "code": "C204" if "data check" in why else "C201",
        "why": why,
        "meant": "the compressed stream is damaged",
        "cause": "Bytes of the file changed after writing: a bad copy, a text-mode transfer, a failing disk.",
        "act": _SALVAGE,
    }


FILE_MESSAGES = (
    Known(
        pattern=looks_like("truncated record at {at:n}' failed with EOF reached"),
        code="C202",
        title="the compressed file ends early, inside the record at byte {offset}",
        says="Decompressed, the stream ends before the record that begins at byte {offset} does.",
        how="A copy or an upload that broke off, or a writer that was never closed.",
        do=(_CHECK, _SALVAGE, "or fetch the file again"),
        refine=_offset,
    ),
    Known(
        pattern=looks_like("truncated record at {at:n}"),
        code="F104",
        title="the file ends inside the record at byte {offset}",
        says="The record that begins at byte {offset} is longer than the rest of the file.",
        how="A copy or an upload that broke off, a full disk, or a writer that was never closed.",
        do=(_CHECK, _SALVAGE, "or fetch the file again"),
        refine=_offset,
    ),
    Known(
        pattern=looks_like("corrupted record at 0 (Is this even a TFRecord file?)"),
        code="F120",
        title="the file does not begin with a record",
        says="The first bytes are no length with its checksum, which every TFRecord file begins with.",
        how=(
            "A compressed file read without compression_type (the most common), a Git LFS pointer, a web page "
            "saved under the name, another format, or a glob that matches other files."
        ),
        do=("rekord check PATH      (says what the file is)", _WRONG_COMPRESSION),
    ),
    Known(
        pattern=looks_like("corrupted record at {at:n}"),
        code="F102",
        title="a record is damaged at byte {offset}",
        says=(
            "A checksum does not match: that of the length of a record at byte {offset}, or that of the payload "
            "of the record at byte {start} (TensorFlow counts 12 bytes further then). The rest of the file is "
            "dropped, also with ignore_errors."
        ),
        how="Bytes changed after writing: a bad copy, a text-mode transfer, a failing disk, two writers.",
        do=(_CHECK, _SALVAGE),
        refine=_offset,
    ),
    Known(
        pattern=looks_like("inflate() failed with error {number:n}", "(: {why:rest})?"),
        code="C201",
        title="decompressing failed: {meant}",
        says="zlib gave up with error {number}: {why}.",
        how="{cause}",
        do=(_CHECK, "{act}"),
        refine=_inflated,
    ),
    Known(
        pattern=looks_like(
            "Input to reshape is a tensor with {found:n} values, but the requested shape has {wanted:n}"
        ),
        code="D406",
        title="{found} values cannot be reshaped to {wanted}",
        says="A tensor of {found} values is brought into a shape of {wanted}.",
        how="{slip}",
        do=(
            "decode with the dtype that was written: tf.io.decode_raw(x, tf.uint8) or tf.float32",
            "rekord doctor PATH      (says what the lengths fit)",
        ),
        refine=_ratio,
    ),
    Known(
        pattern=looks_like(
            "Input to reshape is a tensor with {found:n} values, ",
            "but the requested shape requires a multiple of {wanted:n}",
        ),
        code="D406",
        title="{found} values do not fill rows of {wanted}",
        says="A tensor of {found} values is cut into rows of {wanted}; UniformRowLength does that too.",
        how="The shape is another one than that of the data, or values are missing.",
        do=("rekord doctor PATH      (says what the lengths fit)",),
    ),
    Known(
        pattern=looks_like("Input to DecodeRaw has length {found:n} that is not a multiple of {wanted:n}"),
        code="D406",
        title="{found} bytes do not make whole values of {wanted} bytes",
        says="decode_raw was given {found} bytes for a dtype of {wanted} bytes a value.",
        how="The bytes are of another dtype (uint8, perhaps), or an encoded picture, or cut off.",
        do=(
            "decode with the dtype that was written: tf.io.decode_raw(x, tf.uint8)",
            "for JPEG and PNG bytes: tf.io.decode_image(x)",
            "rekord doctor PATH      (says what the lengths fit)",
        ),
    ),
    Known(
        pattern=looks_like("DecodeRaw requires input strings to all be the same size"),
        code="D406",
        title="a batch of raw bytes of different lengths",
        says="decode_raw of a batch needs strings of one length.",
        how="The arrays have different shapes, or one of them another dtype.",
        do=("decode each record before it is batched", "rekord doctor PATH      (says what the lengths fit)"),
    ),
    Known(
        pattern=looks_like("Expects raw label data length {wanted:n}, gets {found:n}"),
        code="D406",
        title="a raw label has {found} bytes, not {wanted}",
        says="DeepLab2 reads raw labels as height × width int32 values, little-endian.",
        how="The label was written in another dtype, or its height and width are of another picture.",
        do=("write labels as int32, or say format `png` and write a PNG", "rekord doctor PATH"),
    ),
    Known(
        pattern=looks_like("Not a JPEG file: starts with {first:word} {second:word}"),
        code="H764",
        title="the picture is no JPEG: it begins with {begins}, as {picture} does",
        says="decode_jpeg was given {picture}.",
        how="A PNG named .jpg is the usual case; raw pixels and cut files look so as well.",
        do=("tf.io.decode_image(x, expand_animations=False), which takes all", "rekord check PATH"),
        refine=_picture,
    ),
    Known(
        pattern=looks_like("Invalid JPEG data or crop window"),
        code="H762",
        title="a JPEG is damaged or cut off",
        says="The bytes begin as a JPEG, and cannot be decoded to the end.",
        how="The source file was cut off or damaged before it was written to the record.",
        do=("rekord check PATH      (names the record)", "write the dataset again without that picture"),
    ),
    Known(
        pattern=looks_like("Invalid PNG"),
        code="H762",
        title="a PNG is damaged or cut off",
        says="The bytes begin as a PNG, and cannot be decoded to the end.",
        how="The source file was cut off or damaged before it was written to the record.",
        do=("rekord check PATH      (names the record)", "write the dataset again without that picture"),
    ),
    Known(
        pattern=looks_like("Trying to decode {format:word} format using"),
        code="H764",
        title="the picture is a {format}, and another decoder was called",
        says="The bytes are a whole {format}; the decoder that was called does not take it.",
        how="A file whose name says another format than its bytes.",
        do=("tf.io.decode_image(x, expand_animations=False), which takes all", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("Unknown image file format"),
        code="H763",
        title="the bytes are no picture",
        says="The first bytes are those of none of JPEG, PNG, GIF, BMP or WebP.",
        how="Raw pixels, a path in place of the file's content, or a picture that was encoded twice.",
        do=("for raw pixels: tf.io.decode_raw(x, tf.uint8)", "rekord show PATH", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("Unable to decode bytes as JPEG, PNG, GIF, or BMP"),
        code="H763",
        title="the bytes are no picture",
        says="The first bytes are those of none of JPEG, PNG, GIF or BMP.",
        how="Raw pixels, a path in place of the file's content, or a picture that was encoded twice.",
        do=("for raw pixels: tf.io.decode_raw(x, tf.uint8)", "rekord show PATH", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("Input is empty."),
        code="H760",
        title="a picture is empty",
        says="A decoder was given no bytes at all.",
        how="The default of a missing feature is often an empty string; or an empty file was written.",
        do=("rekord show PATH      (says which keys are there)", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("Type mismatch between parsed tensor ({stored:word}) and dtype ({read:word})"),
        code="D406",
        title="a serialized tensor is {stored}, and read as {read}",
        says="tf.io.parse_tensor was given a tensor of {stored}, with out_type {read}.",
        how="The writer serialized another dtype than the reader expects.",
        do=("tf.io.parse_tensor(x, out_type=tf.{stored}), then tf.cast",),
    ),
    Known(
        pattern=looks_like("Could not parse `serialized` as TensorProto"),
        code="D406",
        title="the bytes are no serialized tensor",
        says="tf.io.parse_tensor reads what tf.io.serialize_tensor wrote, and these bytes are something else.",
        how="Raw bytes (`array.tobytes()`) or an encoded picture.",
        do=("for raw bytes: tf.io.decode_raw(x, DTYPE); for pictures: tf.io.decode_image(x)",),
    ),
    Known(
        pattern=looks_like("StringToNumberOp could not correctly convert string: ", "({text:rest})?"),
        code="D403",
        title="a text is no number",
        says="tf.strings.to_number met a text that is no number.",
        how="Class names where numbers were expected, an empty text, or a decimal comma.",
        do=("rekord stats PATH      (lists the texts that there are)", "store labels as int64"),
    ),
    Known(
        pattern=looks_like(
            "Received a label value of {found:n} which is outside the valid range of [{low:n}, {high:n})"
        ),
        code="H752",
        title="label {found} is outside {low}…{high}",
        says="The loss knows classes from {low} on, below {high}; a record has label {found}.",
        how="Labels that count from 1, a class too many, or 255 for `ignore` in a mask.",
        do=("rekord stats PATH      (counts every label)", "rekord doctor PATH"),
    ),
    Known(
        pattern=looks_like("labels", "(`)?", " out of bound"),
        code="H767",
        title="a mask has values that are no class ids",
        says="The evaluation met a label that is neither below the number of classes nor the one to ignore.",
        how="Palette or RGB masks decoded to grey, or 255 that is not declared as ignore.",
        do=("rekord doctor PATH", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("; No such file or directory"),
        code="X501",
        title="a file is not there",
        says="TensorFlow was given a path that does not exist.",
        how="A wrong folder, a shard that was not copied, or a pattern where a path is expected.",
        do=("tf.data.Dataset.list_files(PATTERN) for patterns", "rekord check PATH"),
    ),
    Known(
        pattern=looks_like("; Is a directory"),
        code="X503",
        title="a folder was given in place of a file",
        says="TensorFlow reads files, and this path is a folder.",
        how="TFRecordDataset takes the files of a folder, not the folder.",
        do=("tf.data.TFRecordDataset(tf.io.gfile.glob(FOLDER + '/*.tfrecord'))",),
    ),
    Known(
        pattern=looks_like("End of sequence"),
        code="H703",
        title="the dataset has no more elements",
        says="An iterator was asked for more than there is.",
        how="Fewer records than expected, an empty or cut file, a filter that drops all, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat() for training"),
    ),
    Known(
        pattern=looks_like("ran out of data"),
        code="H703",
        title="the dataset ended before the epoch did",
        says="steps_per_epoch asks for more batches than the dataset has.",
        how="Fewer records than expected, an empty or cut file, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat(), or fewer steps_per_epoch"),
    ),
)

"""Messages of TensorFlow and protobuf, recognised in any text that holds them."""

from __future__ import annotations

import re

from rekord.health.tensorflow.message_patterns import (
    Explanation,
    KnownMessage,
    MessageFacts,
    to_list_name,
    to_tf_dtype,
)
from rekord.health.tensorflow.pipeline_messages import PIPELINE_MESSAGES

_FITTING = "rekord doctor PATH      (finds the dtype and shape that match the lengths)"
_SHOW = "rekord show PATH      (shows what is stored)"
_PAYLOADS = "rekord check PATH      (identifies the payloads)"
_KEYS = "rekord show PATH      (lists the keys)"
_NAMES_RECORD = "rekord check PATH      (names the record)"
_ANY_IMAGE = "tf.io.decode_image(x, expand_animations=False), which decodes every format"
_SALVAGE = "rekord salvage IN OUT      (copies every intact record and lists the gaps)"
_CHECK = "rekord check PATH      (names the file, record and byte, which TensorFlow does not)"
_WRONG_COMPRESSION = (
    'tf.data.TFRecordDataset(files, compression_type="GZIP"), "ZLIB" or "", as reported by rekord check'
)
_NO_IMAGE_HOW = "Raw pixels, a path instead of the file content, or an image that was encoded twice."
_NO_IMAGE_DO = ("for raw pixels: tf.io.decode_raw(x, tf.uint8)", "rekord show PATH", "rekord check PATH")
_TRUNCATED_DO = (_CHECK, _SALVAGE, "or fetch the file again")
_FILE_SIGNATURES = {
    "0x89 0x50": "a PNG",
    "0x47 0x49": "a GIF",
    "0x42 0x4d": "a BMP",
    "0x52 0x49": "a WebP",
    "0xff 0xd8": "a JPEG",
}


def _refine_offset(facts: MessageFacts) -> MessageFacts:
    at = int(facts["at"])
    return {"offset": f"{at:,}", "start": f"{max(0, at - 12):,}"}


def _refine_ratio(facts: MessageFacts) -> MessageFacts:
    found, wanted = int(facts["found"]), int(facts["wanted"])
    slip = "The shape does not match the data."
    for size, dtypes in ((4, "float32 or int32"), (8, "float64 or int64"), (2, "uint16 or float16")):
        if wanted and found == size * wanted:
            slip = f"{found:,} is {size} times {wanted:,}: the bytes are probably {dtypes}, decoded as uint8."
        elif found and wanted == size * found:
            slip = f"{wanted:,} is {size} times {found:,}: the bytes are probably uint8, decoded as {dtypes}."
    return {"slip": slip}


def _refine_image(facts: MessageFacts) -> MessageFacts:
    begins = f"{facts['first']} {facts['second']}".lower()
    return {"begins": begins, "image": _FILE_SIGNATURES.get(begins, "something else")}


def _refine_inflated(facts: MessageFacts) -> MessageFacts:
    why = facts.get("why", "no reason given")
    if "header check" in why:
        return {
            "code": "H701",
            "why": why,
            "meant": "the file does not have the compression the reader was given",
            "cause": "An uncompressed file read with compression_type, or ZLIB read as GZIP or vice versa.",
            "act": _WRONG_COMPRESSION,
        }
    return {
        "code": "C204" if "data check" in why else "C201",
        "why": why,
        "meant": "the compressed stream is corrupt",
        "cause": "Bytes of the file changed after writing: a bad copy, a text-mode transfer, a failing disk.",
        "act": _SALVAGE,
    }


FILE_MESSAGES = (
    KnownMessage(
        pattern="truncated record at {at:n}' failed with EOF reached",
        code="C202",
        title="compressed file is truncated inside the record at byte {offset}",
        says="The decompressed stream ends before the record that starts at byte {offset}.",
        how="An interrupted copy or upload, or a writer that was never closed.",
        do=_TRUNCATED_DO,
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="truncated record at {at:n}",
        code="F104",
        title="file is truncated inside the record at byte {offset}",
        says="The record that starts at byte {offset} is longer than the rest of the file.",
        how="An interrupted copy or upload, a full disk, or a writer that was never closed.",
        do=_TRUNCATED_DO,
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="corrupted record at 0 (Is this even a TFRecord file?)",
        code="F120",
        title="file does not start with a record",
        says="Every TFRecord file starts with a length and its checksum; the first bytes are neither.",
        how=(
            "A compressed file read without compression_type (most common), a Git LFS pointer, a saved web page, "
            "another format, or a glob that matches other files."
        ),
        do=("rekord check PATH      (identifies the file)", _WRONG_COMPRESSION),
    ),
    KnownMessage(  # as older versions put it
        pattern="corrupted record at {at:zero}",
        code="F120",
        title="file does not start with a record, or its first record is corrupt",
        says="The length and the checksum at the beginning of the file do not match.",
        how=(
            "A compressed file read without compression_type (most common), a Git LFS pointer, another format, an "
            "interrupted download, or a glob that matches other files."
        ),
        do=("rekord check PATH      (identifies the file)", _WRONG_COMPRESSION),
    ),
    KnownMessage(
        pattern="corrupted record at {at:n}",
        code="F102",
        title="record is corrupt at byte {offset}",
        says=(
            "A checksum does not match: of the length of the record at byte {offset}, or of the payload of the "
            "record at byte {start} (TensorFlow then reports a position 12 bytes later). The rest of the file is "
            "dropped, even with ignore_errors."
        ),
        how="Bytes changed after writing: a bad copy, a text-mode transfer, a failing disk, two writers.",
        do=(_CHECK, _SALVAGE),
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="inflate() failed with error {number:n}(: {why:rest})?",
        code="C201",
        title="decompression failed: {meant}",
        says="zlib failed with error {number}: {why}.",
        how="{cause}",
        do=(_CHECK, "{act}"),
        refine=_refine_inflated,
    ),
    KnownMessage(
        pattern="Input to reshape is a tensor with {found:n} values, but the requested shape has {wanted:n}",
        code="D406",
        title="{found} values cannot be reshaped to {wanted}",
        says="A tensor of {found} values is reshaped to a shape with {wanted}.",
        how="{slip}",
        do=("decode with the dtype that was written: tf.io.decode_raw(x, tf.uint8) or tf.float32", _FITTING),
        refine=_refine_ratio,
    ),
    KnownMessage(
        pattern=(
            "Input to reshape is a tensor with {found:n} values, but the requested shape requires a "
            "multiple of {wanted:n}"
        ),
        code="D406",
        title="{found} values are not a multiple of {wanted}",
        says="A tensor of {found} values is split into rows of {wanted}; UniformRowLength does this too.",
        how="The shape does not match the data, or values are missing.",
        do=(_FITTING,),
    ),
    KnownMessage(
        pattern="Input to DecodeRaw has length {found:n} that is not a multiple of {wanted:n}",
        code="D406",
        title="{found} bytes are not a multiple of {wanted} bytes",
        says="decode_raw was given {found} bytes for a dtype of {wanted} bytes per value.",
        how="The bytes have another dtype (often uint8), are an encoded image, or are truncated.",
        do=(
            "decode with the dtype that was written: tf.io.decode_raw(x, tf.uint8)",
            "for JPEG and PNG bytes: tf.io.decode_image(x)",
            _FITTING,
        ),
    ),
    KnownMessage(
        pattern="DecodeRaw requires input strings to all be the same size",
        code="D406",
        title="raw bytes in a batch differ in length",
        says="decode_raw of a batch requires strings of equal length.",
        how="The arrays differ in shape or dtype.",
        do=("decode each record before batching", _FITTING),
    ),
    KnownMessage(
        pattern="Expects raw label data length {wanted:n}, gets {found:n}",
        code="D406",
        title="raw label has {found} bytes, not {wanted}",
        says="DeepLab2 reads raw labels as height × width int32 values, little-endian.",
        how="The label was written with another dtype, or its height and width belong to another image.",
        do=("write labels as int32, or set the format to `png` and write a PNG", "rekord doctor PATH"),
    ),
    KnownMessage(
        pattern="Not a JPEG file: starts with {first:word} {second:word}",
        code="H764",
        title="image is not a JPEG: it starts with {begins}, like {image}",
        says="decode_jpeg was given {image}.",
        how="Usually a PNG named .jpg; raw pixels and truncated files look the same.",
        do=(_ANY_IMAGE, "rekord check PATH"),
        refine=_refine_image,
    ),
    KnownMessage(
        pattern="Invalid {format:decoded}",
        code="H762",
        title="{format} is corrupt or truncated",
        says="The bytes start like a {format} but cannot be decoded to the end.",
        how="The source file was truncated or corrupt before it was written to the record.",
        do=(_NAMES_RECORD, "write the dataset again without that image"),
    ),
    KnownMessage(
        pattern="Trying to decode {format:word} format using",
        code="H764",
        title="image is a {format}, but another decoder was called",
        says="The bytes are a complete {format}, which the decoder that was called does not support.",
        how="The file name does not match the format of the bytes.",
        do=(_ANY_IMAGE, "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Unknown image file format",
        code="H763",
        title="bytes are not an image",
        says="The first bytes are not those of a JPEG, PNG, GIF, BMP or WebP.",
        how=_NO_IMAGE_HOW,
        do=_NO_IMAGE_DO,
    ),
    KnownMessage(
        pattern="Unable to decode bytes as JPEG, PNG",
        code="H763",
        title="bytes are not an image",
        says="The first bytes are not those of a JPEG, PNG, GIF or BMP.",
        how=_NO_IMAGE_HOW,
        do=_NO_IMAGE_DO,
    ),
    KnownMessage(
        pattern="Input is empty.",
        code="H760",
        title="image is empty",
        says="A decoder was given zero bytes.",
        how="A missing feature often defaults to an empty string; or an empty file was written.",
        do=(_KEYS, "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Type mismatch between parsed tensor ({stored:word}) and dtype ({read:word})",
        code="D406",
        title="serialized tensor is {stored} but read as {read}",
        says="tf.io.parse_tensor was given a tensor of {stored}, with out_type {read}.",
        how="The writer serialized a different dtype than the reader expects.",
        do=("tf.io.parse_tensor(x, out_type=tf.{stored}), then tf.cast",),
    ),
    KnownMessage(
        pattern="Could not parse `serialized` as TensorProto",
        code="D406",
        title="bytes are not a serialized tensor",
        says="tf.io.parse_tensor reads only what tf.io.serialize_tensor wrote.",
        how="Raw bytes (`array.tobytes()`) or an encoded image.",
        do=("for raw bytes: tf.io.decode_raw(x, DTYPE); for images: tf.io.decode_image(x)",),
    ),
    KnownMessage(
        pattern="StringToNumberOp could not correctly convert string: ({text:rest})?",
        code="D403",
        title="text is not a number",
        says="tf.strings.to_number was given a text that is not a number.",
        how="Class names where numbers are expected, an empty text, or a decimal comma.",
        do=("rekord stats PATH      (lists the texts)", "store labels as int64"),
    ),
    KnownMessage(
        pattern="Received a label value of {found:n} which is outside the valid range of [{low:n}, {high:n})",
        code="H752",
        title="label {found} is outside {low}…{high}",
        says="The loss expects classes from {low} up to but not including {high}; a record has label {found}.",
        how="Labels that start at 1, one class too many, or 255 for `ignore` in a mask.",
        do=("rekord stats PATH      (counts every label)", "rekord doctor PATH"),
    ),
    KnownMessage(
        pattern="labels(`)? out of bound",
        code="H767",
        title="mask has values that are not class ids",
        says="The evaluation found a label that is neither a class id nor the ignored value.",
        how="Palette or RGB masks decoded to grey, or 255 not declared as ignore.",
        do=("rekord doctor PATH", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="; No such file or directory",
        code="X501",
        title="file does not exist",
        says="TensorFlow was given a path that does not exist.",
        how="The wrong folder, a shard that was not copied, or a pattern instead of a path.",
        do=("tf.data.Dataset.list_files(PATTERN) for patterns", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="; Is a directory",
        code="X503",
        title="path is a folder, not a file",
        says="TensorFlow reads files, but this path is a folder.",
        how="TFRecordDataset takes files, not the folder that contains them.",
        do=("tf.data.TFRecordDataset(tf.io.gfile.glob(FOLDER + '/*.tfrecord'))",),
    ),
    KnownMessage(
        pattern="End of sequence",
        code="H703",
        title="dataset has no more elements",
        says="An iterator was advanced past the end of the dataset.",
        how="Fewer records than expected, an empty or truncated file, a filter that drops all, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat() for training"),
    ),
    KnownMessage(
        pattern="ran out of data",
        code="H703",
        title="dataset ended before the epoch",
        says="steps_per_epoch is larger than the number of batches in the dataset.",
        how="Fewer records than expected, an empty or truncated file, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat(), or fewer steps_per_epoch"),
    ),
)


_DOCTOR = "rekord doctor PATH --spec FILE.py:NAME      (checks every feature and record)"


def _refine_types(facts: MessageFacts) -> MessageFacts:
    stored = facts.get("stored", "another type")
    turn = "tf.strings.to_number(x)" if stored == "string" else "tf.cast(x, dtype)"
    return {
        "stored": stored,
        "turn": turn,
        "stored_tf": to_tf_dtype(stored),
        "stored_list": to_list_name(stored),
        "read_tf": to_tf_dtype(facts["read"]),
    }


def _refine_counts(facts: MessageFacts) -> MessageFacts:
    shape = facts.get("shape", "the shape")
    kind = facts.get("kind", "")
    dtype = to_tf_dtype(kind.removesuffix("_list")) if kind else "tf.int64"
    return {"shape": shape, "dtype": dtype, "kind": kind, "found": facts.get("found", "another number of")}


_TYPE_HOW = "The stored type does not match the spec of the reader: often a float label, or a number stored as text."

_TYPE_DO = (
    "read the stored type: {quoted}: tf.io.FixedLenFeature([], {stored_tf}), and {turn} afterwards",
    "or write the records again with the type the reader expects",
    _DOCTOR,
)
_COUNT_HOW = (
    "The number of values in this record does not match the shape in the spec: lists of varying length read as "
    "FixedLenFeature, one value instead of a vector, or an empty list (for which no default is used)."
)
_COUNT_DO = (
    "if the number varies: {quoted}: tf.io.VarLenFeature({dtype}) or tf.io.RaggedFeature({dtype})",
    "if it is constant: give FixedLenFeature the stored shape",
    _DOCTOR,
)

PARSE_MESSAGES = (
    KnownMessage(
        pattern="{place}Data types don't match. Data type: {stored:word} but expected type: {read:word}",
        code="D403",
        title="{name} is stored as {stored} but read as {read}",
        says="The record stores {name} as {stored_list}; the FixedLenFeature in the spec reads {read_tf}.",
        how=_TYPE_HOW,
        do=_TYPE_DO,
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="{place}Data types don't match. Expected type: {read:word}, Actual type: {stored:word}",
        code="D403",
        title="{name} is stored as {stored} but read as {read}",
        says="The record stores {name} as {stored_list}; the VarLen, Ragged or SparseFeature reads {read_tf}.",
        how=_TYPE_HOW,
        do=("read the stored type: {quoted}: tf.io.VarLenFeature({stored_tf})", *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="Context feature: {key}.  Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name} in the context is not stored as {read}",
        says="The context of the SequenceExample has {name}, but not as {read_tf}; or its list is split into chunks.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="Feature list: {key}, Index: {step:n}.  Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name} at step {step} is not stored as {read}",
        says="A step of the list {name} is not {read_tf}; steps are numbered from 0.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="{place}Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name} is not stored as {read}",
        says="The record has {name}, but not as {read_tf}.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        # As much of the message as a person may have kept.
        pattern="Key: {key}(, Index: {index:n})?.  Data types don't match",
        code="D403",
        title="{name} is read with a different type than it is stored",
        says="The stored type of {name} does not match the spec. The rest of the message names both types.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
    ),
    KnownMessage(
        pattern="{place}Number of {kind:word} values != expected.  Values size: {found:n} but output shape: {shape}",
        code="D402",
        title="{name} has {found} values but is read with shape {shape}",
        says="The record has {found} {kind} values under {name}; the FixedLenFeature expects shape {shape}.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Number of values != expected.  values size: {found:n} but output shape: {shape}",
        code="D402",
        title="{name} has a step of {found} values but is read with shape {shape}",
        says="A step of {name} has {found} values; FixedLenSequenceFeature expects shape {shape} in every step.",
        how="The number of values varies between steps, or a step has none.",
        do=("if it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern=(
            "{place}Number of {kind:word} values is not a multiple of stride length. Saw {found:n} "
            "values but output shape is: {shape}"
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature splits the {found} values of {name} into rows, and the last row is incomplete.",
        how="Values are missing, or the shape of a row is wrong.",
        do=("give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern=(
            "Error while parsing feature with key {key}: number of elements should be divisible by "
            "{row:n}, found {found:n} instead"
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of {row}",
        says="FixedLenSequenceFeature splits the {found} values into rows of {row}, and the last row is incomplete.",
        how="Values are missing, or the shape of a row is wrong.",
        do=("give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Some {kind:word} slice was not parsed",
        code="D402",
        title="{name} does not have the number of values in the spec",
        says="The {kind} under {name} does not have the number of values the FixedLenFeature expects.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Parsing bytes_list failed",
        code="D402",
        title="{name} has more byte strings than the spec allows, or its list is corrupt",
        says="TensorFlow stops at the first byte string that does not fit the FixedLenFeature.",
        how="Several strings under one key, read as a scalar; rarely, bytes that are not a list.",
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", _DOCTOR),
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Parsing {kind:word} failed",
        code="W202",
        title="{kind} of {name} is corrupt",
        says="The bytes under {name} are not a valid protobuf list of numbers.",
        how="A custom writer that does not follow the format, or two encodings in one list.",
        do=("rekord check PATH      (names the record and the byte)", "write the records again"),
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example.",
        code="D402",
        title="{name} has more byte strings than the spec allows, or its list is corrupt",
        says="TensorFlow could not parse the list under {name}; it gives no further detail.",
        how=(
            "Nearly always several strings under one key that a FixedLenFeature reads as one; "
            "rarely, bytes that are not a list."
        ),
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", "rekord check PATH", _DOCTOR),
    ),
    KnownMessage(
        pattern="Feature: {key} (data type: {kind:word}) is required but could not be found",
        code="D401",
        title="{name} is required, but the record does not have it",
        says="The spec reads {name} as FixedLenFeature of {dtype} without a default; the record has no such key.",
        how="A different name was written (case, prefix, `image/encoded` or `image`), or a None value was omitted.",
        do=(
            _KEYS,
            "if it may be missing: {quoted}: tf.io.FixedLenFeature([], {dtype}, default_value=…)",
            _DOCTOR,
        ),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="Feature list '{key}' is required but could not be found",
        code="D401",
        title="list {name} is required, but the SequenceExample does not have it",
        says="The spec of the steps reads {name}; the record has no such list.",
        how="A different name was written, the key is in the context, or the record is a plain Example.",
        do=(
            _KEYS,
            "if it may be missing: tf.io.FixedLenSequenceFeature(…, allow_missing=True)",
        ),
    ),
    KnownMessage(
        pattern=(
            "Feature list '{key}' has an unexpected number of values.  Total values size: {found:n} "
            "is not consistent with output shape: {shape}"
        ),
        code="D402",
        title="steps of {name} have {found} values in total, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature expects the same shape in every step.",
        how="The number of values varies between steps.",
        do=("if it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="Inconsistent max number of elements for feature {key}: expected {row:n}, but found {found:n}",
        code="D402",
        title="{name} in the context has {found} values, but the spec expects {row}",
        says="The context has {found} values under {name}; 0 can also mean that the key does not exist.",
        how="The key is missing or empty, or the shape in the spec is wrong.",
        do=(_SHOW, _DOCTOR),
        refine=lambda facts: {"code": "D401"} if facts["found"] == "0" else {},
    ),
    KnownMessage(
        pattern="Unexpected number of elements in example {where:word}",
        code="D402",
        title="feature of the context does not have the number of values in the spec",
        says="A key of the context exists but has fewer values than its FixedLenFeature expects.",
        how="An empty list, for which no default is used.",
        do=(_DOCTOR,),
    ),
    KnownMessage(
        pattern="Could not parse example input, value: ",
        code="H715",
        title="payload is not a tf.train.Example",
        says="TensorFlow could not parse the record as an Example (and quotes the whole record).",
        how=(
            "The records contain something else (a SequenceExample, another message, text), or a map entry is not "
            "written the way TensorFlow's parser requires."
        ),
        do=(_PAYLOADS, "rekord show PATH"),
    ),
    KnownMessage(
        pattern="Invalid protocol message input, example id: ",
        code="H715",
        title="payload is not a tf.train.SequenceExample",
        says="TensorFlow could not parse the record as a SequenceExample.",
        how="The records contain something else, or a map entry has its value before its key.",
        do=(_PAYLOADS, "rekord show PATH"),
    ),
    KnownMessage(
        pattern="Unsupported datatype.",
        code="H725",
        title="Feature starts with an unknown field",
        says="TensorFlow's parser reads the first field of a Feature and knows only the three lists.",
        how="A custom or newer writer put an unknown field first.",
        do=("rekord check PATH      (names the record and the key)",),
    ),
    KnownMessage(
        pattern="Number of elements in indices ({left:n}) and values ({right:n}) do not match",
        code="D407",
        title="SparseFeature has {left} indices and {right} values",
        says="The two keys of a SparseFeature must have the same number of values.",
        how="One of the keys is missing, or was written for another row.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Dimensions {left:n} and {right:n} are not compatible",
        code="D407",
        title="related lists have {left} and {right} values",
        says="During parsing, this means a SparseFeature with {left} indices and {right} values.",
        how="One of the keys is missing, or was written for another row.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Arguments to {call:word} do not form a valid R",
        code="D407",
        title="partitions of a RaggedFeature do not match its values",
        says="The row lengths, splits or starts do not add up to the number of values.",
        how="The two keys were written for different rows, or one of them is missing.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Unsupported: FixedLenSequenceFeature requires allow_missing to be True",
        code="S120",
        title="FixedLenSequenceFeature requires allow_missing=True here",
        says="TensorFlow requires it for an Example; only a SequenceExample may go without.",
        how="The default is False.",
        do=("tf.io.FixedLenSequenceFeature(shape, dtype, allow_missing=True)",),
    ),
)


_REKORD_WRITE = "rekord write SOURCE OUT      (reports the row, column and value)"
_NONE_HINT = "omit the key if there is no value, or set a default"
_NONE_FACTS = {
    "code": "E301",
    "act": _NONE_HINT,
    "cause": "The row has None in this column, for example a missing label.",
}


def _refine_bytes(facts: MessageFacts) -> MessageFacts:
    kind = facts["kind"]
    if kind == "NoneType":
        return {"code": "E301", "act": _NONE_HINT, "cause": "The row has None in this column."}
    if kind == "str":
        return {"code": "E302", "act": 'value.encode("utf-8")', "cause": "str is not bytes in Python 3."}
    act = "array.tobytes() for raw bytes, tf.io.serialize_tensor(x).numpy(), or another list for numbers"
    if kind == "int":
        cause = "Bytes were passed as `value=b` instead of a list, `value=[b]`; or numbers were passed."
        return {"code": "E305", "act": "BytesList(value=[b]), with the brackets", "cause": cause}
    return {"code": "E302", "act": act, "cause": f"The value is a {kind}."}


def _refine_integers(facts: MessageFacts) -> MessageFacts:
    kind = facts["kind"].rsplit(".", 1)[-1]
    if kind == "NoneType":
        return _NONE_FACTS
    if kind.startswith("float"):
        cause = "A float where integers are stored, for example a label that pandas converted to float."
        return {"code": "E304", "act": "int(value) if it is integral; or FloatList", "cause": cause}
    if kind in ("str", "bytes"):
        cause = "Text, such as a class name, where a number is stored."
        return {"code": "E303", "act": "map names to ids first, or use BytesList", "cause": cause}
    return {"code": "E302", "act": "array.ravel().tolist() for arrays", "cause": f"The value is a {kind}."}


def _refine_floats(facts: MessageFacts) -> MessageFacts:
    return {
        **_refine_integers(facts),
        "act": _NONE_HINT if facts["kind"] == "NoneType" else "float(value), or another list",
    }


def _refine_type(facts: MessageFacts) -> MessageFacts:
    wanted, kind = facts["wanted"], facts["kind"]
    if kind == "NoneType":
        return _NONE_FACTS
    if kind in ("list", "ndarray", "tuple"):
        act = "array.ravel().tolist(), and the shape under a separate key"
        return {"code": "E306", "act": act, "cause": "A nested list: records store only flat lists."}
    if "bytes" in wanted:
        return _refine_bytes(facts)
    return _refine_integers(facts) if "int" in wanted else _refine_floats(facts)


WRITE_MESSAGES = (
    KnownMessage(
        pattern="expected bytes, {kind:word} found",
        code="E302",
        title="BytesList was given a {kind}",
        says="tf.train.BytesList takes a list of bytes.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_bytes,
    ),
    KnownMessage(
        pattern="'{kind:word}' object cannot be interpreted as an integer",
        code="E302",
        title="Int64List was given a {kind}",
        says="tf.train.Int64List takes a list of integers.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_integers,
    ),
    KnownMessage(
        pattern="must be real number, not {kind:word}",
        code="E302",
        title="FloatList was given a {kind}",
        says="tf.train.FloatList takes a list of numbers.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_floats,
    ),
    KnownMessage(
        pattern=(
            " has type <class '{kind:word}'>, but expected one of: ((<class '{wanted:word}'>",
            " has type {kind:word}, but expected one of: {wanted:word}",
        ),
        code="E302",
        title="list of {wanted} was given a {kind}",
        says="protobuf accepts only {wanted} here.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_type,
    ),
    KnownMessage(
        pattern="must assign iterable",
        code="E306",
        title="bare value was given where a list is expected",
        says="The lists of an Example take a list: `value=[x]`, not `value=x`.",
        how="The brackets around a scalar were omitted.",
        do=("tf.train.Int64List(value=[x])", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="only integer scalar arrays can be converted to a scalar index",
        code="E306",
        title="Int64List was given a multidimensional array",
        says="Records store only flat lists.",
        how="A matrix was passed without flattening.",
        do=("array.ravel().tolist(), and the shape under a separate key", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Value out of range: {found:n}",
        code="E310",
        title="{found} does not fit int64",
        says="Records store signed 64-bit integers.",
        how="An unsigned 64-bit id or hash.",
        do=("store it as bytes, or as a signed integer with the same bits (NumPy: x.view('int64'))", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Parameter to initialize message field must be dict or instance of",
        code="E302",
        title="Feature was given a bare list",
        says="tf.train.Feature takes an Int64List, FloatList or BytesList.",
        how="`Feature(int64_list=[1])` instead of `Feature(int64_list=tf.train.Int64List(value=[1]))`.",
        do=("tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Error parsing message",
        code="W202",
        title="payload cannot be parsed as this message",
        says="protobuf could not parse the payload.",
        how="A truncated or corrupt payload, or a record that is not an Example.",
        do=(_PAYLOADS, "rekord show PATH"),
    ),
)


MESSAGES = (*PARSE_MESSAGES, *FILE_MESSAGES, *WRITE_MESSAGES, *PIPELINE_MESSAGES)

_MAX_TEXT_CHARACTERS = 30_000
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What mail, Markdown and the frames of tracebacks put around a line.
_LINE_FRAME = re.compile(r"^[ \t]*(?:[>│┃|#*]+[ \t]?)+|[ \t]*[│┃|][ \t]*$", re.MULTILINE)


def explain_message(text: str) -> Explanation | None:
    """The explanation of the first known message in a text, such as a traceback; None without one.

    Of a very long text only the end is searched, where the message is. The text may be coloured, quoted, or wrapped
    between or inside words.
    """
    plain = _ESCAPE_SEQUENCE.sub("", text[-_MAX_TEXT_CHARACTERS:].replace("\r", ""))
    lines = _LINE_FRAME.sub("", plain)
    forms = (lines, lines.replace("\n", " "), lines.replace("\n", ""))
    # The first messages are the most specific ones, so they are searched for in every form first.
    for known in MESSAGES:
        for form in forms:
            explanation = known.explain(form)
            if explanation is not None:
                return explanation
    return None

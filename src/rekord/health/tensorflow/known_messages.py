"""Messages of TensorFlow and protobuf, recognised in any text that holds them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

_MAX_SHOWN_CHARACTERS = 60

MessageFacts: TypeAlias = dict[str, str]
"""What a message says, by name: cleaned and cut, so that it may stand in a sentence."""

# The parts of a message that differ each time. Each is bounded: the text may come from anywhere.
_PART_PATTERNS = {
    "key": r"[^\n]{1,120}?",
    "rest": r"[^\n\[]{1,80}",  # up to the end of the line, or to `[Op:`
    "word": r"[\w.<>]{1,60}",
    "n": r"-?\d{1,20}",
    "shape": r"\[[^\]\n]{0,80}\]",
}
# `Key: label, Index: 0.  `, of which all or the index may lack.
_PLACE_PATTERN = r"(?:Key:\s+(?P<key>[^\n]{1,120}?)(?:,\s+Index:\s+\d{1,20})?\.\s+)?"
# `{name:part}` stands for what differs, `(…)?` for what may lack.
_SYNTAX = re.compile(r"\{(\w+)(?::(\w+))?\}|\(([^()]*)\)\?")

TF_DTYPES = {"float": "tf.float32", "int64": "tf.int64", "string": "tf.string", "bytes": "tf.string"}
LIST_NAMES = {"float": "float_list", "int64": "int64_list", "string": "bytes_list", "bytes": "bytes_list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A message of TensorFlow or protobuf, explained: what it says, how that comes about, what to do."""

    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """One message: how it looks, and sentences with `{names}` of what it holds.

    `refine` adds facts that follow from those in the message; a fact `code` replaces the code.
    """

    pattern: str
    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]
    refine: Callable[[MessageFacts], MessageFacts] | None = None

    def explain(self, text: str) -> Explanation | None:
        """The explanation of this message, where the text holds it."""
        match = compile_message_pattern(self.pattern).search(text)
        if match is None:
            return None
        facts = {name: _sanitize_text(value) for name, value in match.groupdict().items() if value is not None}
        facts["name"] = f"`{facts['key']}`" if "key" in facts else "a feature"
        facts["quoted"] = f'"{facts["key"]}"' if "key" in facts else "KEY"
        if self.refine is not None:
            facts.update(self.refine(facts))
        return Explanation(
            code=facts.get("code", self.code),
            title=self.title.format_map(facts),
            says=self.says.format_map(facts),
            how=self.how.format_map(facts),
            do=tuple([line.format_map(facts) for line in self.do]),
        )


@cache
def compile_message_pattern(text: str) -> re.Pattern[str]:
    """The pattern of a message, in which `{place}` stands for the key and the index of a record.

    Any white space stands for any other, since shells, terminals and tracebacks wrap lines.
    """
    return re.compile(_compile_part(text))


def _compile_part(text: str) -> str:
    pieces, at = [], 0
    for found in _SYNTAX.finditer(text):
        pieces.append(_escape_literal(text[at : found.start()]))
        if found[3] is not None:
            pieces.append(f"(?:{_compile_part(found[3])})?")
        elif found[1] == "place":
            pieces.append(_PLACE_PATTERN)
        else:
            pieces.append(f"(?P<{found[1]}>{_PART_PATTERNS[found[2] or found[1]]})")
        at = found.end()
    return "".join([*pieces, _escape_literal(text[at:])])


def _escape_literal(text: str) -> str:
    return re.sub(r"(?:\\ )+", r"\\s+", re.escape(text))


def _sanitize_text(text: str) -> str:
    """Nothing that steers a terminal, no backtick that would end a quotation, and not too long."""
    clean = "".join([letter if letter.isprintable() and letter != "`" else "?" for letter in text.strip()])
    return clean if len(clean) <= _MAX_SHOWN_CHARACTERS else clean[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def to_tf_dtype(word: str) -> str:
    """`tf.float32` for `float`."""
    return TF_DTYPES.get(word, f"tf.{word}")


def to_list_name(word: str) -> str:
    """`float_list` for `float`."""
    return LIST_NAMES.get(word, word)


_FITTING = "rekord doctor PATH      (says what the lengths fit)"
_SHOW = "rekord show PATH      (says what is stored)"
_PAYLOADS = "rekord check PATH      (says what the payloads are)"
_NAMES_RECORD = "rekord check PATH      (names the record)"
_ANY_IMAGE = "tf.io.decode_image(x, expand_animations=False), which takes all"
_SALVAGE = "rekord salvage IN OUT      (every intact record, with the list of gaps)"
_CHECK = "rekord check PATH      (names the file, the record and the byte: TensorFlow does not)"
_WRONG_COMPRESSION = 'tf.data.TFRecordDataset(files, compression_type="GZIP"), "ZLIB" or "": as rekord check says'
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
    slip = "The shape is another one than that of the data."
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
    KnownMessage(
        pattern="truncated record at {at:n}' failed with EOF reached",
        code="C202",
        title="the compressed file ends early, inside the record at byte {offset}",
        says="Decompressed, the stream ends before the record that begins at byte {offset} does.",
        how="A copy or an upload that broke off, or a writer that was never closed.",
        do=(_CHECK, _SALVAGE, "or fetch the file again"),
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="truncated record at {at:n}",
        code="F104",
        title="the file ends inside the record at byte {offset}",
        says="The record that begins at byte {offset} is longer than the rest of the file.",
        how="A copy or an upload that broke off, a full disk, or a writer that was never closed.",
        do=(_CHECK, _SALVAGE, "or fetch the file again"),
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="corrupted record at 0 (Is this even a TFRecord file?)",
        code="F120",
        title="the file does not begin with a record",
        says="The first bytes are no length with its checksum, which every TFRecord file begins with.",
        how=(
            "A compressed file read without compression_type (the most common), a Git LFS pointer, a web page "
            "saved under the name, another format, or a glob that matches other files."
        ),
        do=("rekord check PATH      (says what the file is)", _WRONG_COMPRESSION),
    ),
    KnownMessage(
        pattern="corrupted record at {at:n}",
        code="F102",
        title="a record is damaged at byte {offset}",
        says=(
            "A checksum does not match: that of the length of a record at byte {offset}, or that of the payload "
            "of the record at byte {start} (TensorFlow counts 12 bytes further then). The rest of the file is "
            "dropped, also with ignore_errors."
        ),
        how="Bytes changed after writing: a bad copy, a text-mode transfer, a failing disk, two writers.",
        do=(_CHECK, _SALVAGE),
        refine=_refine_offset,
    ),
    KnownMessage(
        pattern="inflate() failed with error {number:n}(: {why:rest})?",
        code="C201",
        title="decompressing failed: {meant}",
        says="zlib gave up with error {number}: {why}.",
        how="{cause}",
        do=(_CHECK, "{act}"),
        refine=_refine_inflated,
    ),
    KnownMessage(
        pattern="Input to reshape is a tensor with {found:n} values, but the requested shape has {wanted:n}",
        code="D406",
        title="{found} values cannot be reshaped to {wanted}",
        says="A tensor of {found} values is brought into a shape of {wanted}.",
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
        title="{found} values do not fill rows of {wanted}",
        says="A tensor of {found} values is cut into rows of {wanted}; UniformRowLength does that too.",
        how="The shape is another one than that of the data, or values are missing.",
        do=(_FITTING,),
    ),
    KnownMessage(
        pattern="Input to DecodeRaw has length {found:n} that is not a multiple of {wanted:n}",
        code="D406",
        title="{found} bytes do not make whole values of {wanted} bytes",
        says="decode_raw was given {found} bytes for a dtype of {wanted} bytes a value.",
        how="The bytes are of another dtype (uint8, perhaps), or an encoded image, or cut off.",
        do=(
            "decode with the dtype that was written: tf.io.decode_raw(x, tf.uint8)",
            "for JPEG and PNG bytes: tf.io.decode_image(x)",
            _FITTING,
        ),
    ),
    KnownMessage(
        pattern="DecodeRaw requires input strings to all be the same size",
        code="D406",
        title="a batch of raw bytes of different lengths",
        says="decode_raw of a batch needs strings of one length.",
        how="The arrays have different shapes, or one of them another dtype.",
        do=("decode each record before it is batched", _FITTING),
    ),
    KnownMessage(
        pattern="Expects raw label data length {wanted:n}, gets {found:n}",
        code="D406",
        title="a raw label has {found} bytes, not {wanted}",
        says="DeepLab2 reads raw labels as height × width int32 values, little-endian.",
        how="The label was written in another dtype, or its height and width are of another image.",
        do=("write labels as int32, or say format `png` and write a PNG", "rekord doctor PATH"),
    ),
    KnownMessage(
        pattern="Not a JPEG file: starts with {first:word} {second:word}",
        code="H764",
        title="the image is no JPEG: it begins with {begins}, as {image} does",
        says="decode_jpeg was given {image}.",
        how="A PNG named .jpg is the usual case; raw pixels and cut files look so as well.",
        do=(_ANY_IMAGE, "rekord check PATH"),
        refine=_refine_image,
    ),
    KnownMessage(
        pattern="Invalid JPEG data or crop window",
        code="H762",
        title="a JPEG is damaged or cut off",
        says="The bytes begin as a JPEG, and cannot be decoded to the end.",
        how="The source file was cut off or damaged before it was written to the record.",
        do=(_NAMES_RECORD, "write the dataset again without that image"),
    ),
    KnownMessage(
        pattern="Invalid PNG",
        code="H762",
        title="a PNG is damaged or cut off",
        says="The bytes begin as a PNG, and cannot be decoded to the end.",
        how="The source file was cut off or damaged before it was written to the record.",
        do=(_NAMES_RECORD, "write the dataset again without that image"),
    ),
    KnownMessage(
        pattern="Trying to decode {format:word} format using",
        code="H764",
        title="the image is a {format}, and another decoder was called",
        says="The bytes are a whole {format}; the decoder that was called does not take it.",
        how="A file whose name says another format than its bytes.",
        do=(_ANY_IMAGE, "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Unknown image file format",
        code="H763",
        title="the bytes are no image",
        says="The first bytes are those of none of JPEG, PNG, GIF, BMP or WebP.",
        how="Raw pixels, a path in place of the file's content, or an image that was encoded twice.",
        do=("for raw pixels: tf.io.decode_raw(x, tf.uint8)", "rekord show PATH", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Unable to decode bytes as JPEG, PNG, GIF, or BMP",
        code="H763",
        title="the bytes are no image",
        says="The first bytes are those of none of JPEG, PNG, GIF or BMP.",
        how="Raw pixels, a path in place of the file's content, or an image that was encoded twice.",
        do=("for raw pixels: tf.io.decode_raw(x, tf.uint8)", "rekord show PATH", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Input is empty.",
        code="H760",
        title="an image is empty",
        says="A decoder was given no bytes at all.",
        how="The default of a missing feature is often an empty string; or an empty file was written.",
        do=("rekord show PATH      (says which keys are there)", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="Type mismatch between parsed tensor ({stored:word}) and dtype ({read:word})",
        code="D406",
        title="a serialized tensor is {stored}, and read as {read}",
        says="tf.io.parse_tensor was given a tensor of {stored}, with out_type {read}.",
        how="The writer serialized another dtype than the reader expects.",
        do=("tf.io.parse_tensor(x, out_type=tf.{stored}), then tf.cast",),
    ),
    KnownMessage(
        pattern="Could not parse `serialized` as TensorProto",
        code="D406",
        title="the bytes are no serialized tensor",
        says="tf.io.parse_tensor reads what tf.io.serialize_tensor wrote, and these bytes are something else.",
        how="Raw bytes (`array.tobytes()`) or an encoded image.",
        do=("for raw bytes: tf.io.decode_raw(x, DTYPE); for images: tf.io.decode_image(x)",),
    ),
    KnownMessage(
        pattern="StringToNumberOp could not correctly convert string: ({text:rest})?",
        code="D403",
        title="a text is no number",
        says="tf.strings.to_number met a text that is no number.",
        how="Class names where numbers were expected, an empty text, or a decimal comma.",
        do=("rekord stats PATH      (lists the texts that there are)", "store labels as int64"),
    ),
    KnownMessage(
        pattern="Received a label value of {found:n} which is outside the valid range of [{low:n}, {high:n})",
        code="H752",
        title="label {found} is outside {low}…{high}",
        says="The loss knows classes from {low} on, below {high}; a record has label {found}.",
        how="Labels that count from 1, a class too many, or 255 for `ignore` in a mask.",
        do=("rekord stats PATH      (counts every label)", "rekord doctor PATH"),
    ),
    KnownMessage(
        pattern="labels(`)? out of bound",
        code="H767",
        title="a mask has values that are no class ids",
        says="The evaluation met a label that is neither below the number of classes nor the one to ignore.",
        how="Palette or RGB masks decoded to grey, or 255 that is not declared as ignore.",
        do=("rekord doctor PATH", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="; No such file or directory",
        code="X501",
        title="a file is not there",
        says="TensorFlow was given a path that does not exist.",
        how="A wrong folder, a shard that was not copied, or a pattern where a path is expected.",
        do=("tf.data.Dataset.list_files(PATTERN) for patterns", "rekord check PATH"),
    ),
    KnownMessage(
        pattern="; Is a directory",
        code="X503",
        title="a folder was given in place of a file",
        says="TensorFlow reads files, and this path is a folder.",
        how="TFRecordDataset takes the files of a folder, not the folder.",
        do=("tf.data.TFRecordDataset(tf.io.gfile.glob(FOLDER + '/*.tfrecord'))",),
    ),
    KnownMessage(
        pattern="End of sequence",
        code="H703",
        title="the dataset has no more elements",
        says="An iterator was asked for more than there is.",
        how="Fewer records than expected, an empty or cut file, a filter that drops all, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat() for training"),
    ),
    KnownMessage(
        pattern="ran out of data",
        code="H703",
        title="the dataset ended before the epoch did",
        says="steps_per_epoch asks for more batches than the dataset has.",
        how="Fewer records than expected, an empty or cut file, or no repeat().",
        do=("rekord check PATH      (counts the records)", "dataset.repeat(), or fewer steps_per_epoch"),
    ),
)


_DOCTOR = "rekord doctor PATH --spec FILE.py:NAME      (says it for every feature and record)"


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


_TYPE_HOW = "The writer stored other values than the reader's spec says: often a float label, a number as text."

_TYPE_DO = (
    "read it as it is stored: {quoted}: tf.io.FixedLenFeature([], {stored_tf}), and {turn} afterwards",
    "or write the records again with the type that the reader expects",
    _DOCTOR,
)
_COUNT_HOW = (
    "The spec says a shape, and this record has another number of values: lists of varying length read as "
    "FixedLenFeature, one value against a vector, or an empty list (for which no default is used)."
)
_COUNT_DO = (
    "where the number varies: {quoted}: tf.io.VarLenFeature({dtype}) or tf.io.RaggedFeature({dtype})",
    "where it is always the same: give FixedLenFeature the shape that is stored",
    _DOCTOR,
)

PARSE_MESSAGES = (
    KnownMessage(
        pattern="{place}Data types don't match. Data type: {stored:word} but expected type: {read:word}",
        code="D403",
        title="{name} is stored as {stored}, and read as {read}",
        says="The record holds {name} as {stored_list}; the FixedLenFeature in the spec reads {read_tf}.",
        how=_TYPE_HOW,
        do=_TYPE_DO,
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="{place}Data types don't match. Expected type: {read:word}, Actual type: {stored:word}",
        code="D403",
        title="{name} is stored as {stored}, and read as {read}",
        says="The record holds {name} as {stored_list}; the VarLen, Ragged or SparseFeature reads {read_tf}.",
        how=_TYPE_HOW,
        do=("read it as it is stored: {quoted}: tf.io.VarLenFeature({stored_tf})", *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="Context feature: {key}.  Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name}, in the context, is stored as another type than {read}",
        says="The SequenceExample's context holds {name}, not as {read_tf}; or its list is in pieces.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="Feature list: {key}, Index: {step:n}.  Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name}, at step {step}, is stored as another type than {read}",
        says="A step of the list {name} holds something else than {read_tf}; steps count from 0.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        pattern="{place}Data types don't match. Expected type: {read:word}",
        code="D403",
        title="{name} is stored as another type than {read}",
        says="The record holds {name}, but not as {read_tf}.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
        refine=_refine_types,
    ),
    KnownMessage(
        # As much of it as a person may have kept.
        pattern="Key: {key}(, Index: {index:n})?.  Data types don't match",
        code="D403",
        title="{name} is stored as another type than it is read as",
        says="The record holds {name}, and not as the type that the spec reads. Which two types these are, the rest "
        "of the message says.",
        how=_TYPE_HOW,
        do=(_SHOW, *_TYPE_DO[1:]),
    ),
    KnownMessage(
        pattern="{place}Number of {kind:word} values != expected.  Values size: {found:n} but output shape: {shape}",
        code="D402",
        title="{name} has {found} values, and is read as shape {shape}",
        says="The record holds {found} {kind} values under {name}; the FixedLenFeature asks for shape {shape}.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Number of values != expected.  values size: {found:n} but output shape: {shape}",
        code="D402",
        title="{name} has a step of {found} values, and is read as shape {shape}",
        says="A step of {name} holds {found} values; FixedLenSequenceFeature asks for shape {shape} in every step.",
        how="The number of values differs from step to step, or a step has none.",
        do=("where it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern=(
            "{place}Number of {kind:word} values is not a multiple of stride length. Saw {found:n} "
            "values but output shape is: {shape}"
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature cuts the {found} values of {name} into rows, and the last is not full.",
        how="Values are missing, or the shape of a row is another one.",
        do=(
            "give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})",
            _DOCTOR,
        ),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern=(
            "Error while parsing feature with key {key}: number of elements should be divisible by "
            "{row:n}, found {found:n} instead"
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of {row}",
        says="FixedLenSequenceFeature cuts the {found} values into rows of {row}, and the last is not full.",
        how="Values are missing, or the shape of a row is another one.",
        do=(
            "give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})",
            _DOCTOR,
        ),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Some {kind:word} slice was not parsed",
        code="D402",
        title="{name} has another number of values than the spec says",
        says="The {kind} under {name} does not have the number of values that the FixedLenFeature asks for.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Parsing bytes_list failed",
        code="D402",
        title="{name} has more byte strings than the spec says, or its list is damaged",
        says="TensorFlow stops at the first byte string that the FixedLenFeature has no room for.",
        how="Several strings under one key, read as a scalar; more rarely, bytes that are no list at all.",
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", _DOCTOR),
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example: Parsing {kind:word} failed",
        code="W202",
        title="the {kind} of {name} is damaged",
        says="The bytes under {name} are not a list of numbers as protobuf writes it.",
        how="A writer of its own that does not follow the format, or two forms in one list.",
        do=("rekord check PATH      (names the record and the byte)", "write the records again"),
    ),
    KnownMessage(
        pattern="{place}Can't parse serialized Example.",
        code="D402",
        title="{name} has more byte strings than the spec says, or its list is damaged",
        says="TensorFlow could not take the list under {name}: it says no more than that.",
        how=(
            "Nearly always several strings under one key that a FixedLenFeature reads as one; "
            "more rarely, bytes that are no list at all."
        ),
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", "rekord check PATH", _DOCTOR),
    ),
    KnownMessage(
        pattern="Feature: {key} (data type: {kind:word}) is required but could not be found",
        code="D401",
        title="{name} is required, and the record does not have it",
        says="The spec reads {name} as FixedLenFeature of {dtype} without a default; the record has no such key.",
        how="Another name was written (case, prefix, `image/encoded` against `image`), or None was left out.",
        do=(
            "rekord show PATH      (lists the keys that are there)",
            "where it may be missing: {quoted}: tf.io.FixedLenFeature([], {dtype}, default_value=…)",
            _DOCTOR,
        ),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="Feature list '{key}' is required but could not be found",
        code="D401",
        title="the list {name} is required, and the SequenceExample does not have it",
        says="The spec of the steps reads {name}; the record has no such list.",
        how="Another name was written, it stands in the context, or the record is a plain Example.",
        do=(
            "rekord show PATH      (lists what is there)",
            "where it may be missing: tf.io.FixedLenSequenceFeature(…, allow_missing=True)",
        ),
    ),
    KnownMessage(
        pattern=(
            "Feature list '{key}' has an unexpected number of values.  Total values size: {found:n} "
            "is not consistent with output shape: {shape}"
        ),
        code="D402",
        title="the steps of {name} hold {found} values in all, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature asks for the same shape in every step.",
        how="The number of values differs from step to step.",
        do=("where it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_refine_counts,
    ),
    KnownMessage(
        pattern="Inconsistent max number of elements for feature {key}: expected {row:n}, but found {found:n}",
        code="D402",
        title="{name}, in the context, has {found} values, and the spec says {row}",
        says="The context holds {found} values under {name}; 0 means as well that there is no such key.",
        how="The key is missing or empty, or the shape in the spec is another one.",
        do=(_SHOW, _DOCTOR),
        refine=lambda facts: {"code": "D401"} if facts["found"] == "0" else {},
    ),
    KnownMessage(
        pattern="Unexpected number of elements in example {where:word}",
        code="D402",
        title="a feature of a context has another number of values than the spec says",
        says="A key of the context is there, with fewer values than its FixedLenFeature asks for.",
        how="An empty list, for which no default is used.",
        do=(_DOCTOR,),
    ),
    KnownMessage(
        pattern="Could not parse example input, value: ",
        code="H715",
        title="the payload is no tf.train.Example",
        says="TensorFlow could not parse the record as an Example at all (it quotes the whole record).",
        how=(
            "The records hold something else (a SequenceExample, another proto, text), or a map entry is not "
            "written as TensorFlow's parser wants it."
        ),
        do=(_PAYLOADS, "rekord show PATH"),
    ),
    KnownMessage(
        pattern="Invalid protocol message input, example id: ",
        code="H715",
        title="the payload is no tf.train.SequenceExample",
        says="TensorFlow could not parse the record as a SequenceExample at all.",
        how="The records hold something else, or a map entry has its value before its key.",
        do=(_PAYLOADS, "rekord show PATH"),
    ),
    KnownMessage(
        pattern="Unsupported datatype.",
        code="H725",
        title="a Feature begins with a field that Features do not have",
        says="TensorFlow's parser looks at the first field of a Feature, and knows only the three lists.",
        how="A writer of its own, or a newer one, put an unknown field first.",
        do=("rekord check PATH      (names the record and the key)",),
    ),
    KnownMessage(
        pattern="Number of elements in indices ({left:n}) and values ({right:n}) do not match",
        code="D407",
        title="a SparseFeature has {left} indices and {right} values",
        says="The two keys of a SparseFeature must hold the same number of values.",
        how="One of the keys is missing, or was written for another row.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Dimensions {left:n} and {right:n} are not compatible",
        code="D407",
        title="two lists that belong together have {left} and {right} values",
        says="While parsing, this means a SparseFeature with {left} indices and {right} values.",
        how="One of the keys is missing, or was written for another row.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Arguments to {call:word} do not form a valid R",
        code="D407",
        title="the partitions of a RaggedFeature do not fit its values",
        says="The lengths, splits or starts that cut the values into rows do not add up to them.",
        how="The two keys were written for different rows, or one of them is missing.",
        do=(_SHOW, _DOCTOR),
    ),
    KnownMessage(
        pattern="Unsupported: FixedLenSequenceFeature requires allow_missing to be True",
        code="S120",
        title="FixedLenSequenceFeature needs allow_missing=True here",
        says="For an Example TensorFlow takes a FixedLenSequenceFeature only so; without it is for SequenceExamples.",
        how="The default is False.",
        do=("tf.io.FixedLenSequenceFeature(shape, dtype, allow_missing=True)",),
    ),
)


_REKORD_WRITE = "rekord write SOURCE OUT      (says the row, the column and the value)"
_NONE_HINT = "leave the key out where there is no value, or give a default"
_NONE_FACTS = {
    "code": "E301",
    "act": _NONE_HINT,
    "cause": "The row has None in this column, such as a label.",
}


def _refine_bytes(facts: MessageFacts) -> MessageFacts:
    kind = facts["kind"]
    if kind == "NoneType":
        return {"code": "E301", "act": _NONE_HINT, "cause": "The row has None in this column."}
    if kind == "str":
        return {"code": "E302", "act": 'value.encode("utf-8")', "cause": "A text is no bytes in Python 3."}
    act = "array.tobytes() for raw bytes, tf.io.serialize_tensor(x).numpy(), or another list for numbers"
    if kind == "int":
        cause = "Bytes were given bare, `value=b`, where a list is expected: `value=[b]`; or numbers were given."
        return {"code": "E305", "act": "BytesList(value=[b]), with the brackets", "cause": cause}
    return {"code": "E302", "act": act, "cause": f"The value is a {kind}."}


def _refine_integers(facts: MessageFacts) -> MessageFacts:
    kind = facts["kind"].rsplit(".", 1)[-1]
    if kind == "NoneType":
        return _NONE_FACTS
    if kind.startswith("float"):
        cause = "A float where whole numbers are stored: a label that pandas made a float, for one."
        return {"code": "E304", "act": "int(value), where it is whole; or FloatList", "cause": cause}
    if kind in ("str", "bytes"):
        cause = "A text, such as a class name, where a number is stored."
        return {"code": "E303", "act": "map names to numbers first, or use BytesList", "cause": cause}
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
        act = "array.ravel().tolist(), and the shape under a key of its own"
        return {"code": "E306", "act": act, "cause": "A list inside a list: records hold flat lists only."}
    if "bytes" in wanted:
        return _refine_bytes(facts)
    return _refine_integers(facts) if "int" in wanted else _refine_floats(facts)


WRITE_MESSAGES = (
    KnownMessage(
        pattern="expected bytes, {kind:word} found",
        code="E302",
        title="a BytesList was given a {kind}",
        says="tf.train.BytesList takes a list of bytes.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_bytes,
    ),
    KnownMessage(
        pattern="'{kind:word}' object cannot be interpreted as an integer",
        code="E302",
        title="an Int64List was given a {kind}",
        says="tf.train.Int64List takes a list of whole numbers.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_integers,
    ),
    KnownMessage(
        pattern="must be real number, not {kind:word}",
        code="E302",
        title="a FloatList was given a {kind}",
        says="tf.train.FloatList takes a list of numbers.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_floats,
    ),
    KnownMessage(
        pattern=" has type {kind:word}, but expected one of: {wanted:word}",
        code="E302",
        title="a list of {wanted} was given a {kind}",
        says="protobuf takes only {wanted} there.",
        how="{cause}",
        do=("{act}", _REKORD_WRITE),
        refine=_refine_type,
    ),
    KnownMessage(
        pattern="must assign iterable",
        code="E306",
        title="a bare value was given where a list is expected",
        says="The lists of an Example take a list: `value=[x]`, not `value=x`.",
        how="The brackets were left out for a scalar.",
        do=("tf.train.Int64List(value=[x])", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="only integer scalar arrays can be converted to a scalar index",
        code="E306",
        title="an array of several dimensions was given to an Int64List",
        says="Records hold flat lists only.",
        how="A matrix was passed as it is.",
        do=("array.ravel().tolist(), and the shape under a key of its own", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Value out of range: {found:n}",
        code="E310",
        title="{found} does not fit int64",
        says="Records hold whole numbers of 64 bits with a sign.",
        how="An unsigned id or hash of 64 bits.",
        do=("store it as bytes, or as the same bits with a sign (numpy: x.view('int64'))", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Parameter to initialize message field must be dict or instance of",
        code="E302",
        title="a Feature was given a bare list",
        says="tf.train.Feature takes an Int64List, FloatList or BytesList.",
        how="`Feature(int64_list=[1])` in place of `Feature(int64_list=tf.train.Int64List(value=[1]))`.",
        do=("tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))", _REKORD_WRITE),
    ),
    KnownMessage(
        pattern="Error parsing message",
        code="W202",
        title="the bytes are not the message that they are read as",
        says="protobuf could not parse the payload.",
        how="A payload that is cut or damaged, or a record that is no Example.",
        do=(_PAYLOADS, "rekord show PATH"),
    ),
)


MESSAGES = (*PARSE_MESSAGES, *FILE_MESSAGES, *WRITE_MESSAGES)

_MAX_TEXT_CHARACTERS = 30_000


def explain_message(text: str) -> Explanation | None:
    """What the first message that is known says; None where there is none.

    The text may be a whole traceback; of a very long one the end counts, where the message stands.
    """
    text = text[-_MAX_TEXT_CHARACTERS:]
    for known in MESSAGES:
        explanation = known.explain(text)
        if explanation is not None:
            return explanation
    return None

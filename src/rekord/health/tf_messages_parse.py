"""What TensorFlow's parsers of Examples and SequenceExamples say."""

from __future__ import annotations

from rekord.health.tf_known import PLACE, Facts, Known, as_list, as_tf, looks_like

_DOCTOR = "rekord doctor PATH --spec FILE.py:NAME      (says it for every feature and record)"


def _types(facts: Facts) -> Facts:
    stored = facts.get("stored", "another type")
    turn = "tf.strings.to_number(x)" if stored == "string" else "tf.cast(x, dtype)"
    return {
        "stored": stored,
        "turn": turn,
        "stored_tf": as_tf(stored),
        "stored_list": as_list(stored),
        "read_tf": as_tf(facts["read"]),
    }


def _counted(facts: Facts) -> Facts:
    shape = facts.get("shape", "the shape")
    kind = facts.get("kind", "")
    dtype = as_tf(kind.removesuffix("_list")) if kind else "tf.int64"
    return {"shape": shape, "dtype": dtype, "kind": kind, "found": facts.get("found", "another number of")}


_ANOTHER_TYPE = (
    "The writer stored other values than the reader's spec says: often a float label, a number as text."
)

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
    Known(
        pattern=looks_like(
            PLACE, "Data types don't match. Data type: {stored:word} but expected type: {read:word}"
        ),
        code="D403",
        title="{name} is stored as {stored}, and read as {read}",
        says="The record holds {name} as {stored_list}; the FixedLenFeature in the spec reads {read_tf}.",
        how=_ANOTHER_TYPE,
        do=_TYPE_DO,
        refine=_types,
    ),
    Known(
        pattern=looks_like(
            PLACE, "Data types don't match. Expected type: {read:word}, Actual type: {stored:word}"
        ),
        code="D403",
        title="{name} is stored as {stored}, and read as {read}",
        says="The record holds {name} as {stored_list}; the VarLen, Ragged or SparseFeature reads {read_tf}.",
        how=_ANOTHER_TYPE,
        do=("read it as it is stored: {quoted}: tf.io.VarLenFeature({stored_tf})", *_TYPE_DO[1:]),
        refine=_types,
    ),
    Known(
        pattern=looks_like("Context feature: {key}.  Data types don't match. Expected type: {read:word}"),
        code="D403",
        title="{name}, in the context, is stored as another type than {read}",
        says="The SequenceExample's context holds {name}, not as {read_tf}; or its list is in pieces.",
        how=_ANOTHER_TYPE,
        do=("rekord show PATH      (says what is stored)", *_TYPE_DO[1:]),
        refine=_types,
    ),
    Known(
        pattern=looks_like(
            "Feature list: {key}, Index: {step:n}.  Data types don't match. Expected type: {read:word}"
        ),
        code="D403",
        title="{name}, at step {step}, is stored as another type than {read}",
        says="A step of the list {name} holds something else than {read_tf}; steps count from 0.",
        how=_ANOTHER_TYPE,
        do=("rekord show PATH      (says what is stored)", *_TYPE_DO[1:]),
        refine=_types,
    ),
    Known(
        pattern=looks_like(PLACE, "Data types don't match. Expected type: {read:word}"),
        code="D403",
        title="{name} is stored as another type than {read}",
        says="The record holds {name}, but not as {read_tf}.",
        how=_ANOTHER_TYPE,
        do=("rekord show PATH      (says what is stored)", *_TYPE_DO[1:]),
        refine=_types,
    ),
    Known(
        # As much of it as a person may have kept.
        pattern=looks_like("Key: {key}", "(, Index: {index:n})?", ".  Data types don't match"),
        code="D403",
        title="{name} is stored as another type than it is read as",
        says="The record holds {name}, and not as the type that the spec reads. Which two types these are, the rest "
        "of the message says.",
        how=_ANOTHER_TYPE,
        do=("rekord show PATH      (says what is stored)", *_TYPE_DO[1:]),
    ),
    Known(
        pattern=looks_like(
            PLACE,
            "Number of {kind:word} values != expected.  ",
            "Values size: {found:n} but output shape: {shape}",
        ),
        code="D402",
        title="{name} has {found} values, and is read as shape {shape}",
        says="The record holds {found} {kind} values under {name}; the FixedLenFeature asks for shape {shape}.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_counted,
    ),
    Known(
        pattern=looks_like(
            PLACE,
            "Number of values != expected.  values size: {found:n} but output shape: {shape}",
        ),
        code="D402",
        title="{name} has a step of {found} values, and is read as shape {shape}",
        says="A step of {name} holds {found} values; FixedLenSequenceFeature asks for shape {shape} in every step.",
        how="The number of values differs from step to step, or a step has none.",
        do=("where it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_counted,
    ),
    Known(
        pattern=looks_like(
            PLACE,
            "Number of {kind:word} values is not a multiple of stride length. ",
            "Saw {found:n} values but output shape is: {shape}",
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature cuts the {found} values of {name} into rows, and the last is not full.",
        how="Values are missing, or the shape of a row is another one.",
        do=(
            "give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})",
            _DOCTOR,
        ),
        refine=_counted,
    ),
    Known(
        pattern=looks_like(
            "Error while parsing feature with key {key}: ",
            "number of elements should be divisible by {row:n}, found {found:n} instead",
        ),
        code="D402",
        title="{name} has {found} values, which do not fill rows of {row}",
        says="FixedLenSequenceFeature cuts the {found} values into rows of {row}, and the last is not full.",
        how="Values are missing, or the shape of a row is another one.",
        do=(
            "give FixedLenSequenceFeature the shape of one row, or read tf.io.VarLenFeature({dtype})",
            _DOCTOR,
        ),
        refine=_counted,
    ),
    Known(
        pattern=looks_like(PLACE, "Can't parse serialized Example: Some {kind:word} slice was not parsed"),
        code="D402",
        title="{name} has another number of values than the spec says",
        says="The {kind} under {name} does not have the number of values that the FixedLenFeature asks for.",
        how=_COUNT_HOW,
        do=_COUNT_DO,
        refine=_counted,
    ),
    Known(
        pattern=looks_like(PLACE, "Can't parse serialized Example: Parsing bytes_list failed"),
        code="D402",
        title="{name} has more byte strings than the spec says, or its list is damaged",
        says="TensorFlow stops at the first byte string that the FixedLenFeature has no room for.",
        how="Several strings under one key, read as a scalar; more rarely, bytes that are no list at all.",
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", _DOCTOR),
    ),
    Known(
        pattern=looks_like(PLACE, "Can't parse serialized Example: Parsing {kind:word} failed"),
        code="W202",
        title="the {kind} of {name} is damaged",
        says="The bytes under {name} are not a list of numbers as protobuf writes it.",
        how="A writer of its own that does not follow the format, or two forms in one list.",
        do=("rekord check PATH      (names the record and the byte)", "write the records again"),
    ),
    Known(
        pattern=looks_like(PLACE, "Can't parse serialized Example."),
        code="D402",
        title="{name} has more byte strings than the spec says, or its list is damaged",
        says="TensorFlow could not take the list under {name}: it says no more than that.",
        how=(
            "Nearly always several strings under one key that a FixedLenFeature reads as one; "
            "more rarely, bytes that are no list at all."
        ),
        do=("{quoted}: tf.io.VarLenFeature(tf.string)", "rekord check PATH", _DOCTOR),
    ),
    Known(
        pattern=looks_like("Feature: {key} (data type: {kind:word}) is required but could not be found"),
        code="D401",
        title="{name} is required, and the record does not have it",
        says="The spec reads {name} as FixedLenFeature of {dtype} without a default; the record has no such key.",
        how="Another name was written (case, prefix, `image/encoded` against `image`), or None was left out.",
        do=(
            "rekord show PATH      (lists the keys that are there)",
            "where it may be missing: {quoted}: tf.io.FixedLenFeature([], {dtype}, default_value=…)",
            _DOCTOR,
        ),
        refine=_counted,
    ),
    Known(
        pattern=looks_like("Feature list '{key}' is required but could not be found"),
        code="D401",
        title="the list {name} is required, and the SequenceExample does not have it",
        says="The spec of the steps reads {name}; the record has no such list.",
        how="Another name was written, it stands in the context, or the record is a plain Example.",
        do=(
            "rekord show PATH      (lists what is there)",
            "where it may be missing: tf.io.FixedLenSequenceFeature(…, allow_missing=True)",
        ),
    ),
    Known(
        pattern=looks_like(
            "Feature list '{key}' has an unexpected number of values.  Total values size: {found:n} ",
            "is not consistent with output shape: {shape}",
        ),
        code="D402",
        title="the steps of {name} hold {found} values in all, which do not fill rows of shape {shape}",
        says="FixedLenSequenceFeature asks for the same shape in every step.",
        how="The number of values differs from step to step.",
        do=("where it varies: {quoted}: tf.io.RaggedFeature({dtype})", _DOCTOR),
        refine=_counted,
    ),
    Known(
        pattern=looks_like(
            "Inconsistent max number of elements for feature {key}: expected {row:n}, but found {found:n}"
        ),
        code="D402",
        title="{name}, in the context, has {found} values, and the spec says {row}",
        says="The context holds {found} values under {name}; 0 means as well that there is no such key.",
        how="The key is missing or empty, or the shape in the spec is another one.",
        do=("rekord show PATH      (says what is stored)", _DOCTOR),
        refine=lambda facts: {"code": "D401"} if facts["found"] == "0" else {},
    ),
    Known(
        pattern=looks_like("Unexpected number of elements in example {where:word}"),
        code="D402",
        title="a feature of a context has another number of values than the spec says",
        says="A key of the context is there, with fewer values than its FixedLenFeature asks for.",
        how="An empty list, for which no default is used.",
        do=(_DOCTOR,),
    ),
    Known(
        pattern=looks_like("Could not parse example input, value: "),
        code="H715",
        title="the payload is no tf.train.Example",
        says="TensorFlow could not parse the record as an Example at all (it quotes the whole record).",
        how=(
            "The records hold something else (a SequenceExample, another proto, text), or a map entry is not "
            "written as TensorFlow's parser wants it."
        ),
        do=("rekord check PATH      (says what the payloads are)", "rekord show PATH"),
    ),
    Known(
        pattern=looks_like("Invalid protocol message input, example id: "),
        code="H715",
        title="the payload is no tf.train.SequenceExample",
        says="TensorFlow could not parse the record as a SequenceExample at all.",
        how="The records hold something else, or a map entry has its value before its key.",
        do=("rekord check PATH      (says what the payloads are)", "rekord show PATH"),
    ),
    Known(
        pattern=looks_like("Unsupported datatype."),
        code="H725",
        title="a Feature begins with a field that Features do not have",
        says="TensorFlow's parser looks at the first field of a Feature, and knows only the three lists.",
        how="A writer of its own, or a newer one, put an unknown field first.",
        do=("rekord check PATH      (names the record and the key)",),
    ),
    Known(
        pattern=looks_like("Number of elements in indices ({left:n}) and values ({right:n}) do not match"),
        code="D407",
        title="a SparseFeature has {left} indices and {right} values",
        says="The two keys of a SparseFeature must hold the same number of values.",
        how="One of the keys is missing, or was written for another row.",
        do=("rekord show PATH      (says what is stored)", _DOCTOR),
    ),
    Known(
        pattern=looks_like("Dimensions {left:n} and {right:n} are not compatible"),
        code="D407",
        title="two lists that belong together have {left} and {right} values",
        says="While parsing, this means a SparseFeature with {left} indices and {right} values.",
        how="One of the keys is missing, or was written for another row.",
        do=("rekord show PATH      (says what is stored)", _DOCTOR),
    ),
    Known(
        pattern=looks_like("Arguments to {call:word} do not form a valid R"),
        code="D407",
        title="the partitions of a RaggedFeature do not fit its values",
        says="The lengths, splits or starts that cut the values into rows do not add up to them.",
        how="The two keys were written for different rows, or one of them is missing.",
        do=("rekord show PATH      (says what is stored)", _DOCTOR),
    ),
    Known(
        pattern=looks_like("Unsupported: FixedLenSequenceFeature requires allow_missing to be True"),
        code="S120",
        title="FixedLenSequenceFeature needs allow_missing=True here",
        says="For an Example TensorFlow takes a FixedLenSequenceFeature only so; without it is for SequenceExamples.",
        how="The default is False.",
        do=("tf.io.FixedLenSequenceFeature(shape, dtype, allow_missing=True)",),
    ),
)

"""Reader code for a dataset: short programs that match its files, keys, shapes, compression and classes.

Names and paths may contain anything: they appear in the code only as Python literals, not even in comments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from typing import Any

from rekord.arguments import one_of
from rekord.dataset.dataset import Dataset
from rekord.dataset.external_index import find_index_root
from rekord.dataset.shard_index import detect_file_compression
from rekord.errors import RekordError, error
from rekord.feeds.tensorflow.ops import TF_COMPRESSION
from rekord.location import Location
from rekord.schema import Feature, Image, Mask, Schema, Tensor
from rekord.schema.base import dtype_name
from rekord.schema.interop.tf_spec import (
    FixedLenSequenceSpec,
    FixedLenSpec,
    SequenceSpec,
    Spec,
    SpecFeature,
    VarLenSpec,
    record_keys,
    spec_from_schema,
    to_source,
)

FRAMEWORKS = ("tensorflow", "torch", "jax", "dali", "spark")

_MAX_LISTED_FILES = 8
_MAX_CLASS_NAMES = 1000
_SHARD_NUMBER = re.compile(r"\d{5}(?=-of-\d{5})")
_DALI_TYPES = {
    "bool": "BOOL",
    "float16": "FLOAT16",
    "float32": "FLOAT",
    "float64": "FLOAT64",
    **{f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_RAW_DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
)


def generate_reader_code(dataset: Dataset, path: str, framework: str) -> str:
    """A Python program that reads a dataset; `path` is the path it was opened by."""
    one_of("framework", framework, FRAMEWORKS)
    writers: dict[str, Callable[[Dataset, str], Iterable[str]]] = {
        "tensorflow": _tensorflow_lines,
        "dali": _dali_lines,
        "spark": _spark_lines,
    }
    write = writers.get(framework) or partial(_rekord_lines, framework=framework)
    return "\n".join(write(dataset, path)) + "\n"


def _tensorflow_lines(dataset: Dataset, path: str) -> Iterable[str]:
    schema = dataset.schema
    spec = _build_spec(schema)
    compression = {name: TF_COMPRESSION[kind] for name, kind in _detect_compressions(dataset).items()}
    yield "import tensorflow as tf"
    yield ""
    yield from _file_lines(dataset)
    yield f"COMPRESSION = {compression!r}"
    yield from _class_name_lines(schema)
    if isinstance(spec, SequenceSpec):
        yield f"CONTEXT, STEPS = {to_source(spec)}"
    else:
        yield f"SPEC = {to_source(spec)}"
    yield ""
    yield ""
    yield "def parse(records):"
    if isinstance(spec, SequenceSpec):
        yield "    context, steps, _ = tf.io.parse_sequence_example(records, CONTEXT, STEPS)"
        yield "    batch = {**context, **steps}"
    else:
        yield "    batch = tf.io.parse_example(records, SPEC)"
    yield from _postprocess_lines(schema)
    yield "    return batch"
    yield ""
    yield ""
    yield "def read(split, batch_size=32):"
    yield "    records = tf.data.TFRecordDataset(FILES[split], compression_type=COMPRESSION[split])"
    yield "    # To shuffle: .shuffle(10_000) here, before .batch."
    yield "    batches = records.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE)"
    yield "    return batches.prefetch(tf.data.AUTOTUNE)"
    yield from _main_lines(dataset, "read({})")


def _postprocess_lines(schema: Schema) -> Iterable[str]:
    """What TensorFlow's parser leaves to do: decode raw tensors, stack the sides of boxes, decode images."""
    for column, feature in schema.context.items():
        key = _quote_text(feature.key or column)
        if feature.storage == "parallel" and feature.sparse_size is None:
            sides = ", ".join(f"batch.pop({_quote_text(one)})" for one in feature.record_keys(column))
            yield "    # xmin, ymin, xmax, ymax of each box"
            yield f"    batch[{_quote_text(column)}] = tf.stack([{sides}], axis=-1)"
        elif _is_tensor(feature) and not feature.optional and dtype_name(feature.dtype) in _RAW_DTYPES:
            yield from _decode_raw_lines(key, dtype_name(feature.dtype), feature.shape)
        elif _has_inner_variable_dimension(feature):
            yield f"    # One value: tf.reshape(batch[{key}][i], {_reshape_sizes(feature.shape)})"
        elif feature.is_image and not feature.optional:
            channels = getattr(feature, "channels", 1) or 3
            yield f"    # One image: tf.io.decode_image(batch[{key}][i], channels={channels})"


def _decode_raw_lines(key: str, dtype: str, shape: tuple[int | None, ...]) -> Iterable[str]:
    """Raw bytes as tensors. TensorFlow decodes several at once only if all have one size."""
    sizes = _reshape_sizes(shape)
    if None not in shape:
        yield f"    batch[{key}] = tf.reshape(tf.io.decode_raw(batch[{key}], tf.{dtype}), {[-1, *sizes]})"
    elif shape[0] is None and 0 not in shape:
        yield f"    batch[{key}] = tf.map_fn("
        yield f"        lambda raw: tf.reshape(tf.io.decode_raw(raw, tf.{dtype}), {sizes}),"
        yield f"        batch[{key}],"
        yield f"        fn_output_signature=tf.RaggedTensorSpec({list(shape)}, tf.{dtype}, ragged_rank=0),"
        yield "    )"
    else:
        yield f"    # One value: tf.reshape(tf.io.decode_raw(batch[{key}][i], tf.{dtype}), {sizes})"


def _reshape_sizes(shape: tuple[int | None, ...]) -> list[int]:
    return [-1 if size is None else size for size in shape]


def _build_spec(schema: Schema) -> Spec | SequenceSpec:
    """The spec of a schema. No spec can express a variable dimension after the first: such values are flat."""
    flat = {
        column: replace(feature, shape=(None,)) if _has_inner_variable_dimension(feature) else feature  # type: ignore[call-arg]
        for column, feature in schema.context.items()
    }
    return spec_from_schema(Schema(context=flat, steps=schema.steps) if schema.is_sequence else Schema(flat))


def _has_inner_variable_dimension(feature: Feature) -> bool:
    return None in feature.stored_shape and feature.shape[0] is not None


def _is_tensor(feature: Feature) -> bool:
    return feature.storage == "blob" and feature.dtype is not None


def _rekord_lines(dataset: Dataset, path: str, framework: str) -> Iterable[str]:
    schema = dataset.schema
    yield "import rekord as rk"
    yield ""
    yield f"PATH = {_quote_text(path)}"
    yield from _class_name_lines(schema)
    yield "COLUMNS = ["
    for column, feature in schema.features.items():
        yield f"    {_quote_text(column)},  # {_describe_column(feature, in_step=column in schema.steps)}"
    yield "]"
    yield ""
    yield ""
    yield "def read(split, batch_size=32):"
    yield "    data = rk.open(PATH)[split]"
    if any(feature.is_image for feature in schema.context.values()):
        yield "    # decode=True, resize=(224, 224) decodes images into arrays of one size."
    yield "    # For several processes: rank=, world= and remainder=. To resume: state_dict() and load_state_dict()."
    yield f"    return data.to_{framework}(batch_size, columns=COLUMNS, shuffle=True, seed=0)"
    yield from _main_lines(dataset, "read({})")


def _dali_lines(dataset: Dataset, path: str) -> Iterable[str]:
    schema = dataset.schema
    spec = _build_spec(schema)
    if isinstance(spec, SequenceSpec):
        raise _unsupported_reader_error("DALI", "Examples", "SequenceExamples", path)
    if any(kind != "none" for kind in _detect_compressions(dataset).values()):
        raise _unsupported_reader_error("DALI", "uncompressed files", "compressed files", path)
    columns = {column: _build_dali_column(column, feature, spec) for column, feature in schema.context.items()}
    if not any(column.features for column in columns.values()):
        found = "only lists of strings and optional columns"
        raise _unsupported_reader_error("DALI", "a column that it can read", found, path)
    after = [line for column in columns.values() for line in column.after]
    yield "# First write the index files into the folder index-dali:  rekord index PATH --format dali"
    yield "from pathlib import Path"
    yield ""
    yield f"from nvidia.dali import fn, pipeline_def{', types' if any('types.' in line for line in after) else ''}"
    yield "from nvidia.dali import tfrecord as tfrec"
    yield ""
    root = find_index_root(path, [file for split in dataset.splits.values() for file in split.paths])
    yield f"ROOT = {_quote_text(root or '.')}"
    yield from _file_lines(dataset)
    yield from _class_name_lines(schema)
    yield "FEATURES = {"
    for column in columns.values():
        for key, written in column.features.items():
            yield f"    {_quote_text(key)}: {written},"
    yield "}"
    for reason in sorted({column.left_out for column in columns.values() if column.left_out}):
        names = [name for name, column in columns.items() if column.left_out == reason]
        yield f"# Skipped: {reason}."
        yield f"#   {', '.join(map(_quote_text, names))}"
    yield ""
    yield ""
    yield "@pipeline_def"
    yield "def reader(split):"
    yield "    files = FILES[split]"
    yield "    columns = fn.readers.tfrecord("
    yield "        path=files,"
    yield '        index_path=[f"{ROOT}/index-dali/{Path(file).relative_to(ROOT)}.idx" for file in files],'
    yield "        features=FEATURES,"
    yield "        random_shuffle=True,"
    yield '        name="reader",'
    yield "    )"
    yield from after
    yield "    return tuple(columns[key] for key in FEATURES)"
    yield ""
    yield ""
    yield 'if __name__ == "__main__":'
    yield (
        f"    pipe = reader(split={_quote_text(_first_split_name(dataset))}, batch_size=32, num_threads=2, "
        "device_id=None)"
    )
    yield "    pipe.build()"
    yield "    print(dict(zip(FEATURES, pipe.run())))"


@dataclass(frozen=True, slots=True, kw_only=True)
class _DaliColumn:
    """A column in DALI: its features by key and the lines that decode it, or why it is skipped."""

    features: dict[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    left_out: str | None = None


def _build_dali_column(column: str, feature: Feature, spec: Spec) -> _DaliColumn:
    kinds = {key: (one, dtype) for name, one in spec.items() for key, dtype in record_keys(name, one).items()}
    keys = {key: kinds[key] for key in feature.record_keys(column)}
    if feature.optional:
        return _DaliColumn(left_out="DALI does not define the value if a record lacks the key")
    if any(dtype == "string" and not _is_scalar(one) for one, dtype in keys.values()):
        return _DaliColumn(left_out="DALI does not support lists of strings")
    inner = () if feature.storage != "list" else feature.shape[1:]
    features = {
        key: _format_dali_feature(one, dtype, () if None in inner else inner) for key, (one, dtype) in keys.items()
    }
    return _DaliColumn(features=features, after=tuple(dali_lines(feature, _quote_text(feature.key or column))))


@singledispatch
def dali_lines(feature: Feature, key: str) -> Iterable[str]:
    """What DALI's reader leaves to do: images, masks, raw tensors, lists with an inner variable dimension."""
    if _has_inner_variable_dimension(feature):
        yield f"    # columns[{key}] is flat: the shape of a value is {_reshape_sizes(feature.shape)}."
    elif feature.is_text:
        yield f"    # columns[{key}]: the bytes of a string, as uint8."


@dali_lines.register(Image)
def _(feature: Image, key: str) -> Iterable[str]:
    form = {None: "RGB", 1: "GRAY", 3: "RGB"}.get(feature.channels, "ANY_DATA")
    if feature.format == "gif":
        yield f"    # columns[{key}] is encoded: DALI has no GIF decoder."
    else:
        yield from _dali_decode_lines(key, form)


@dali_lines.register(Mask)
def _(feature: Mask, key: str) -> Iterable[str]:
    if max(feature.classes - 1, feature.ignore or 0) > 255:
        yield f"    # columns[{key}] is encoded: class ids above 255 need dtype=types.UINT16 for 16-bit files."
    else:
        yield "    # height x width x 1, class ids"
        yield from _dali_decode_lines(key, "GRAY")


@dali_lines.register(Tensor)
def _(feature: Tensor, key: str) -> Iterable[str]:
    kind = _DALI_TYPES.get(dtype_name(feature.dtype))
    if kind is None or list(feature.shape).count(None) > 1 or 0 in feature.shape:
        yield f"    # columns[{key}]: raw bytes."
    else:
        sizes = _reshape_sizes(feature.shape)
        yield f"    columns[{key}] = fn.reinterpret(columns[{key}], dtype=types.{kind}, shape={sizes})"


def _dali_decode_lines(key: str, form: str) -> Iterable[str]:
    yield f"    columns[{key}] = fn.decoders.image("
    # As TensorFlow does: boxes and masks refer to the pixels as stored.
    yield f"        columns[{key}], output_type=types.{form}, adjust_orientation=False"
    yield "    )"


def _is_scalar(feature: SpecFeature) -> bool:
    return isinstance(feature, FixedLenSpec) and not feature.shape


def _format_dali_feature(feature: SpecFeature, dtype: str, inner: tuple[int | None, ...]) -> str:
    # DALI requires a value for records that lack the key. It is not used: records that rekord writes have the keys of
    # all columns that are not optional, including those with a default.
    kind, unused = f"tfrec.{dtype}", {"int64": "0", "float32": "0.0", "string": '""'}[dtype]
    if isinstance(feature, FixedLenSpec):
        return f"tfrec.FixedLenFeature({list(feature.shape)}, {kind}, {unused})"
    shape = f"{list(inner)}, " if inner else ""
    return f"tfrec.VarLenFeature({shape}{kind}, {unused})"


def _spark_lines(dataset: Dataset, path: str) -> Iterable[str]:
    schema = dataset.schema
    spec = _build_spec(schema)
    context, steps = (spec.context, spec.steps) if isinstance(spec, SequenceSpec) else (spec, {})
    fields = [*_format_spark_fields(schema.context, context, 0), *_format_spark_fields(schema.steps, steps, 1)]
    names = ["ArrayType", "BinaryType", "FloatType", "LongType", "StringType", "StructField", "StructType"]
    used = [name for name in names if name.startswith("Struct") or any(name in one for one in fields)]
    yield "# Needs the package spark-tfrecord for the Scala version of Spark: 2.13 for Spark 4."
    yield "#   spark-submit --packages com.linkedin.sparktfrecord:spark-tfrecord_2.13:0.7.0 THIS_FILE"
    yield "# Spark 3.5, which this version of the package targets, is mostly built with Scala 2.12:"
    yield "#   spark-submit --packages com.linkedin.sparktfrecord:spark-tfrecord_2.12:0.7.0 THIS_FILE"
    yield "from pyspark.sql import SparkSession"
    yield f"from pyspark.sql.types import {', '.join(used)}"
    yield ""
    yield from _file_lines(dataset)
    yield from _class_name_lines(schema)
    yield "SCHEMA = StructType(["
    for one in fields:
        yield f"    {one},"
    yield "])"
    yield ""
    yield ""
    yield "def read(spark, split):"
    yield '    reader = spark.read.format("tfrecord").schema(SCHEMA)'
    kind = "SequenceExample" if isinstance(spec, SequenceSpec) else "Example"
    if any(kind != "none" for kind in _detect_compressions(dataset).values()):
        yield "    # Hadoop detects compression by file extension: .gz, or .deflate for zlib."
    yield f'    return reader.option("recordType", "{kind}").load(FILES[split])'
    yield ""
    yield ""
    yield 'if __name__ == "__main__":'
    yield f"    read(SparkSession.builder.getOrCreate(), {_quote_text(_first_split_name(dataset))}).show()"


def _format_spark_fields(features: Mapping[str, Feature], spec: Spec, lists: int) -> list[str]:
    texts = {key for column, feature in features.items() if feature.is_text for key in feature.record_keys(column)}
    single = {
        key for column, feature in features.items() if not feature.stored_shape for key in feature.record_keys(column)
    }
    out = []
    for name, feature in spec.items():
        for key, dtype in record_keys(name, feature).items():
            kind = {"int64": "LongType()", "float32": "FloatType()"}.get(dtype, "BinaryType()")
            kind = "StringType()" if key in texts else kind
            scalar = isinstance(feature, (FixedLenSpec, FixedLenSequenceSpec, VarLenSpec)) and key in single
            for _ in range(lists + (0 if scalar else 1)):
                kind = f"ArrayType({kind})"
            out.append(f"StructField({_quote_text(key)}, {kind})")
    return out


def _file_lines(dataset: Dataset) -> Iterable[str]:
    yield "FILES = {"
    for name, split in dataset.splits.items():
        yield f"    {_quote_text(name)}: {_format_paths(split.paths)},"
    yield "}"


def _format_paths(paths: tuple[str, ...]) -> str:
    """The files one by one, or a comprehension over their shard numbers if there are many."""
    count = len(paths)
    found = list(_SHARD_NUMBER.finditer(paths[0])) if count > _MAX_LISTED_FILES else []
    if found:
        begin, end = found[-1].span()
        before, after = paths[0][:begin], paths[0][end:]
        if all(path == f"{before}{number:05d}{after}" for number, path in enumerate(paths)):
            return f'[{_quote_text(before)} + f"{{i:05d}}" + {_quote_text(after)} for i in range({count})]'
    inside = "".join(f"        {_quote_text(path)},\n" for path in paths)
    return f"[\n{inside}    ]"


def _class_name_lines(schema: Schema) -> Iterable[str]:
    named = {
        column: list(feature.class_names)
        for column, feature in schema.features.items()
        if feature.class_names is not None and len(feature.class_names) <= _MAX_CLASS_NAMES
    }
    if named:
        yield "CLASSES = {"
        for column, names in named.items():
            yield f"    {_quote_text(column)}: [{', '.join(map(_quote_text, names))}],"
        yield "}"


def _describe_column(feature: Feature, *, in_step: bool) -> str:
    """A column of a batch in a few words, with nothing but numbers from the dataset."""
    kind = type(feature).__name__
    if feature.class_count is not None:
        kind = f"class ids, {feature.class_count:,} classes"
    elif feature.is_image:
        kind = f"encoded {kind.lower()}s"
    elif feature.dtype is not None:
        kind = dtype_name(feature.dtype)
    shape = f" of shape {tuple(feature.shape)}" if feature.shape else ""
    return kind + shape + (", per step" if in_step else "") + (", optional" if feature.optional else "")


def _main_lines(dataset: Dataset, call: str) -> Iterable[str]:
    yield ""
    yield ""
    yield 'if __name__ == "__main__":'
    yield f"    for batch in {call.format(_quote_text(_first_split_name(dataset)))}:"
    yield "        print(batch)"
    yield "        break"


def _first_split_name(dataset: Dataset) -> str:
    names = list(dataset.splits)
    return "train" if "train" in names else names[0]


def _detect_compressions(dataset: Dataset) -> dict[str, str]:
    """The compression of each split, detected from its first file."""
    return {
        name: detect_file_compression(split.paths[0]) if split.paths else "none"
        for name, split in dataset.splits.items()
    }


def _quote_text(value: Any) -> str:
    """A string as a Python literal in ASCII: control characters are escaped."""
    written = ascii(value)
    # Double quotes, as formatters write them, if that changes nothing else.
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in written and "\\'" not in written else written


def _unsupported_reader_error(who: str, expected: str, found: str, path: str) -> RekordError:
    return error(
        "U605",
        f"{who} cannot read this dataset",
        location=Location(path=path),
        expected=expected,
        found=found,
        do=f"rekord reader {shlex.quote(path)} --for torch",
    )

"""Specs as plain values, and their text, are what TensorFlow's own objects are."""

from __future__ import annotations

from types import ModuleType

from hypothesis import assume, given, settings
from record_strategies import schemas

from rekord.errors import SchemaError
from rekord.schema import Schema
from rekord.schema.interop.tf_spec import (
    FixedLenSequenceSpec,
    FixedLenSpec,
    Partition,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    VarLenSpec,
    spec_from_schema,
    spec_from_tf,
    to_source,
)

SPEC = {
    "fixed": FixedLenSpec((2,), "float32"),
    "default": FixedLenSpec((), "string", b"\x00\xff'\""),
    "nan": FixedLenSpec((2,), "float32", (float("-inf"), 0.5)),
    "matrix": FixedLenSpec((2, 1), "int64", ((1,), (-(2**63),))),
    "var": VarLenSpec("int64"),
    "seq": FixedLenSequenceSpec((3,), "float32", allow_missing=True, default=-1.0),
    "bare": FixedLenSequenceSpec((), "string"),
    "sparse": SparseSpec(("i",), "v", "float32", (10,)),
    "two": SparseSpec(("i", "j"), "w", "int64", (3, 4), already_sorted=True),
    "flat": RaggedSpec("string", row_splits_dtype="int64", validate=True),
    "rows \"and\" 'quotes'\n": RaggedSpec(
        "int64",
        "v",
        (
            *(Partition(kind, key=kind) for kind in ("RowSplits", "RowLengths", "RowStarts", "RowLimits")),
            Partition("ValueRowIds", key="ids"),
            Partition("UniformRowLength", length=2),
        ),
    ),
}


def test_the_text_of_a_spec_makes_tensorflows_objects(tf: ModuleType) -> None:
    made = eval(to_source(SPEC), {"tf": tf})
    assert list(made) == list(SPEC)
    assert made["matrix"] == tf.io.FixedLenFeature([2, 1], tf.int64, [[1], [-(2**63)]])
    assert made["sparse"] == tf.io.SparseFeature("i", "v", tf.float32, 10)
    assert spec_from_tf(made) == SPEC


def test_the_text_of_a_sequence_makes_the_pair(tf: ModuleType) -> None:
    spec = SequenceSpec({"a": VarLenSpec("int64")}, {"b": FixedLenSequenceSpec((), "string")})
    made = eval(to_source(spec), {"tf": tf})
    assert made == (
        {"a": tf.io.VarLenFeature(tf.int64)},
        {"b": tf.io.FixedLenSequenceFeature([], tf.string)},
    )
    assert spec_from_tf(made) == spec
    assert eval(to_source(SequenceSpec()), {"tf": tf}) == ({}, {})


@given(schema=schemas())
@settings(max_examples=60)
def test_a_schema_has_one_spec_with_tensorflow_and_without(tf: ModuleType, schema: Schema) -> None:
    try:
        spec = spec_from_schema(schema)
    except SchemaError:
        assume(False)
    theirs = schema.to_tf_spec()
    made = eval(to_source(spec), {"tf": tf})
    assert repr(made) == repr(theirs)

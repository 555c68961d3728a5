"""The error that rekord says TensorFlow will raise is the one that TensorFlow raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import examples, ints, raw_entry

import rekord as rk
from rekord.health.tensorflow.predicted_errors import (
    predict_payload_error,
    predict_record_error,
    predict_sequence_error,
    reshape_error,
)
from rekord.schema.interop.tf_spec import (
    SPEC_DTYPES,
    FixedLenSequenceSpec,
    FixedLenSpec,
    Partition,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    Spec,
    SpecFeature,
    VarLenSpec,
    feature_to_source,
    to_source,
)
from rekord.testing import (
    bytes_list,
    entry,
    example,
    feature,
    feature_list,
    float_list,
    int64_list,
    length_delimited,
    sequence_example,
    unknown,
)

BEGIN = re.compile(r"^\{\{function_node .*?\}\} ", re.DOTALL)
END = re.compile(r" \[Op:\w+\]( name: .*)?$", re.DOTALL)
UNPARSABLE = "Could not parse example input, value: '"


def real(spec: Spec, tf: ModuleType) -> Any:
    """A spec as TensorFlow's objects, by way of the text that a person would paste."""
    return eval(to_source(spec), {"tf": tf})


def message_of(tf: ModuleType, call: Callable[[], object]) -> str | None:
    """What TensorFlow says, without what it puts around its message; None where it says nothing."""
    try:
        call()
    except (tf.errors.OpError, ValueError) as failure:
        if isinstance(failure, UnicodeDecodeError):
            return UNPARSABLE  # the message quotes the record, and making it fails
        return END.sub("", BEGIN.sub("", str(failure)))
    return None


def theirs(tf: ModuleType, spec: Spec, payload: bytes) -> str | None:
    return message_of(tf, lambda: tf.io.parse_example([payload], real(spec, tf)))


def list_of(kind: str, count: int) -> bytes:
    lists = {
        "int64": int64_list(range(count)),
        "float": float_list([0.5] * count),
        "bytes": bytes_list([b"x"] * count),
    }
    return feature((kind, lists[kind]))  # type: ignore[arg-type]


STORED: list[bytes | None] = [
    None,
    feature(),
    *(list_of(kind, count) for kind, count in product(("int64", "float", "bytes"), (0, 1, 2, 3, 4, 5))),
]

UNIFORM = Partition("UniformRowLength", length=2)


def default(dtype: str, count: int) -> tuple[Any, ...]:
    return ({"int64": 7, "float32": 0.5, "string": b"d"}[dtype],) * count


def single_key_features() -> Iterator[SpecFeature]:
    for dtype in SPEC_DTYPES:
        yield VarLenSpec(dtype)
        yield RaggedSpec(dtype)
        yield RaggedSpec(dtype, row_splits_dtype="int64", partitions=(UNIFORM,))
        yield RaggedSpec(dtype, partitions=(UNIFORM, UNIFORM))
        yield RaggedSpec(dtype, value_key="a", partitions=(Partition("UniformRowLength", length=0),))
        yield FixedLenSpec((), dtype)
        yield FixedLenSpec((), dtype, default(dtype, 1)[0])
        yield FixedLenSpec((0,), dtype)
        for count in (1, 3):
            yield FixedLenSpec((count,), dtype)
            yield FixedLenSpec((count,), dtype, default(dtype, count))
        yield FixedLenSpec((2, 2), dtype)
        yield FixedLenSpec((2, 2), dtype, (default(dtype, 2),) * 2)
        for shape in ((), (2,), (2, 2)):
            yield FixedLenSequenceSpec(shape, dtype, allow_missing=True)
            yield FixedLenSequenceSpec(shape, dtype, allow_missing=True, default=default(dtype, 1)[0])
        yield FixedLenSequenceSpec((), dtype)


@pytest.mark.parametrize("spec_feature", list(single_key_features()), ids=feature_to_source)
def test_the_message_for_every_way_in_which_a_feature_can_be_stored(
    tf: ModuleType, spec_feature: SpecFeature
) -> None:
    for stored in STORED:
        payload = example() if stored is None else example(entry("a", stored))
        said = theirs(tf, {"a": spec_feature}, payload)
        assert predict_record_error({"a": spec_feature}, rk.decode(payload)) == said
        assert predict_payload_error({"a": spec_feature}, payload) == said


PARTITIONED: list[tuple[Partition, ...]] = [
    *((Partition(kind, key="p"),) for kind in ("RowLengths", "RowSplits", "RowStarts", "RowLimits")),
    (Partition("ValueRowIds", key="p"),),
    (Partition("ValueRowIds", key="p"), UNIFORM),
    (UNIFORM, Partition("RowLengths", key="p")),
    (Partition("RowLengths", key="p"), UNIFORM),
    (Partition("RowLengths", key="q"), Partition("RowLengths", key="p")),
    (Partition("ValueRowIds", key="q"), Partition("RowLengths", key="p")),
]
NUMBERS: list[list[int] | None] = [
    None,
    [],
    [3],
    [0, 1],
    [1, 2],
    [0, 1, 3],
    [0, 1, 1],
    [2, 0, 1],
    [-1, 4],
    [0, 9, 1],
    [0, 0, 3, 3],
    [1, 1, 1, 1, -1],
]


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("partitions", PARTITIONED, ids=lambda each: "-".join([part.kind for part in each]))
def test_the_message_for_partitions_that_do_not_fit_their_values(
    tf: ModuleType, partitions: tuple[Partition, ...], validate: bool
) -> None:
    spec = {"r": RaggedSpec("float32", value_key="v", partitions=partitions, validate=validate)}
    for values, numbers in product((None, 0, 2, 3, 4), NUMBERS):
        entries = [entry("q", ints(1, 1))]
        if values is not None:
            entries.append(entry("v", list_of("float", values)))
        if numbers is not None:
            entries.append(entry("p", ints(*numbers)))
        payload = example(*entries)
        said = theirs(tf, spec, payload)
        assert predict_payload_error(spec, payload) == said
        assert predict_record_error(spec, rk.decode(payload)) == said


def test_the_message_for_sparse_indices_and_values_that_do_not_fit(tf: ModuleType) -> None:
    kinds = [None, feature(), *(list_of(kind, count) for kind in ("int64", "float") for count in (0, 1, 2))]
    vector = {"s": SparseSpec(("i",), "v", "float32", (2,))}
    matrix = {"s": SparseSpec(("i", "j"), "v", "float32", (2, 2), already_sorted=True)}
    for parts in product(kinds, kinds, (list_of("int64", 2), list_of("int64", 1))):
        named = zip(("i", "v", "j"), parts, strict=True)
        payload = example(*[entry(key, part) for key, part in named if part is not None])
        for spec in (vector, matrix):
            said = theirs(tf, spec, payload)
            assert predict_payload_error(spec, payload) == said
            assert predict_record_error(spec, rk.decode(payload)) == said


MIXED: Spec = {
    "fixed": FixedLenSpec((), "int64"),
    "also": FixedLenSpec((2,), "float32"),
    "var": VarLenSpec("string"),
    "ragged": RaggedSpec("int64", partitions=(UNIFORM,)),
    "sparse": SparseSpec(("i",), "v", "float32", (9,)),
}


@settings(max_examples=300)
@given(
    entries=st.lists(
        st.tuples(
            st.sampled_from([*MIXED, "i", "v", "other"]),
            st.sampled_from([each for each in STORED if each is not None]),
        ),
        max_size=7,
        unique_by=lambda pair: pair[0],
    )
)
def test_of_several_errors_the_first_is_the_one_that_tensorflow_meets_first(
    tf: ModuleType, entries: list[tuple[str, bytes]]
) -> None:
    payload = example(*[entry(key, stored) for key, stored in entries])
    said = theirs(tf, MIXED, payload)
    assert predict_payload_error(MIXED, payload) == said
    assert predict_record_error(MIXED, rk.decode(payload)) == said


ODD: Spec = {
    "a": VarLenSpec("int64"),
    "b": FixedLenSpec((2,), "int64"),
    "c": VarLenSpec("float32"),
    "d": FixedLenSpec((1,), "string"),
    "e": FixedLenSequenceSpec((2,), "float32", allow_missing=True),
}
KEY, VALUE = length_delimited(1, b"a"), length_delimited(2, ints(1))


def odd_payloads() -> Iterator[bytes]:
    two_kinds = feature(("float", float_list([0.5]))) + ints(2)
    for key in ("a", "b"):
        yield example(entry(key, ints(1, 2, 3, chunks=[2, 1])))
        yield example(entry(key, feature(("int64", int64_list([1]) + int64_list([2], packed=False)))))
        yield example(entry(key, feature(("int64", int64_list([1], packed=False) + int64_list([2])))))
        yield example(entry(key, two_kinds))
        yield example(entry(key, ints(1, 2)) + entry(key, feature()))
        yield example(entry(key, list_of("float", 1)) + entry(key, ints(1, 2)))
        yield example(entry(key, feature(("int64", length_delimited(1, b"\x05\xff\xff")))))
        yield example(entry(key, feature(("int64", length_delimited(1, b"\xff" * 10 + b"\x01")))))
        yield example(entry(key, b"\x1a\x7f" + int64_list([1, 2])))
        yield example(entry(key, b"\x1a\x04\x0a\x7f\x01\x02"))
        yield example(entry(key, unknown(9, 0) + ints(1)))
    for key in ("c", "e"):
        yield example(entry(key, feature(("float", length_delimited(1, bytes(6))))))
        yield example(entry(key, feature(("float", float_list([0.5, 1, 2], chunks=[2, 1])))))
        yield example(entry(key, feature(("float", float_list([0.5, 1, 2], packed=False)))))
        yield example(entry(key, b"\x12\x06\x0a\x7f\x00\x00\x00\x00"))
        yield example(entry(key, b"\x12\x05\x0d\x00\x00\x00"))
    yield example(entry("d", feature(("bytes", b"\x0a\x7fx"))))
    yield example(entry("d", feature(("bytes", b"\x12\x01x"))))
    yield example(entry("d", list_of("bytes", 2)))
    yield example(raw_entry(KEY, KEY))
    yield example(raw_entry(KEY, KEY, VALUE))
    yield example(raw_entry(VALUE, VALUE))
    yield example(entry("a", ints(1), swap=True))
    yield example(entry("a", None))
    for wire in (0, 1, 2, 3, 5):
        yield unknown(9, wire) + example(entry("a", ints(1)))
        yield example(entry("a", ints(1)) + unknown(9, wire))
    yield b"abc"
    yield b"\xff\xff"
    yield b""


def agrees(said: str | None, predicted: str | None) -> bool:
    """The same; or both quote the record, of which we give the beginning."""
    if said is not None and said.startswith(UNPARSABLE):
        return predicted is not None and predicted.startswith(UNPARSABLE)
    return said == predicted


def test_the_message_for_forms_that_tensorflow_reads_in_a_way_of_its_own(tf: ModuleType) -> None:
    for payload in odd_payloads():
        for name, one in ODD.items():
            said = theirs(tf, {name: one}, payload)
            assert agrees(said, predict_payload_error({name: one}, payload)), (payload, name)


@settings(max_examples=300)
@given(payload=examples(), cut=st.integers(0, 40), flip=st.integers(0, 400))
def test_the_message_for_payloads_of_all_sorts_and_their_damage(
    tf: ModuleType, payload: bytes, cut: int, flip: int
) -> None:
    for damaged in (payload, payload[: len(payload) - cut], flipped(payload, flip)):
        for dtype in SPEC_DTYPES:
            specs: list[Spec] = [{"a": VarLenSpec(dtype), "b": FixedLenSequenceSpec((2,), dtype, allow_missing=True)}]
            # Unpacked floats for a fixed shape are left out: TensorFlow writes past its own memory for them.
            if dtype != "float32":
                specs.append({"a": FixedLenSpec((1,), dtype, default(dtype, 1)), "b": RaggedSpec(dtype)})
            for spec in specs:
                said = theirs(tf, spec, damaged)
                assert agrees(said, predict_payload_error(spec, damaged))


def flipped(payload: bytes, at: int) -> bytes:
    changed = bytearray(payload)
    if changed:
        changed[at % len(changed)] ^= 1 << at % 8
    return bytes(changed)


def test_a_record_that_cannot_be_parsed_is_quoted_only_in_its_beginning(tf: ModuleType) -> None:
    spec = {"a": VarLenSpec("int64")}
    assert predict_payload_error(spec, b"abc") == theirs(tf, spec, b"abc") == f"{UNPARSABLE}abc'"
    long = predict_payload_error(spec, b"c" * 1000)
    assert long == f"{UNPARSABLE}{'c' * 59}…'"


def test_the_place_in_the_batch_is_named(tf: ModuleType) -> None:
    spec = {"a": FixedLenSpec((), "int64")}
    good, bad = example(entry("a", ints(1))), example(entry("a", ints(1, 2)))
    said = message_of(tf, lambda: tf.io.parse_example([good, good, bad], real(spec, tf)))
    assert predict_payload_error(spec, bad, index=2) == said
    assert predict_record_error(spec, rk.decode(bad), index=2) == said


def test_a_spec_without_features_is_refused_with_tensorflows_words(tf: ModuleType) -> None:
    assert predict_record_error({}, {}) == theirs(tf, {}, b"")


STEPS: list[list[bytes] | None] = [
    None,
    [],
    [feature()],
    [ints()],
    [ints(1)],
    [ints(1, 2)],
    [ints(1), ints(1, 2)],
    [ints(1, 2), ints(3), ints(4)],
    [ints(1, 2), ints(3, 4)],
    [ints(1), feature()],
    [ints(1), list_of("float", 1)],
    [ints(1), list_of("float", 0)],
    [list_of("bytes", 1)],
]


def sequence_message(tf: ModuleType, spec: SequenceSpec, payload: bytes) -> str | None:
    context, steps = (real(part, tf) or None for part in (spec.context, spec.steps))
    return message_of(tf, lambda: tf.io.parse_sequence_example([payload], context, steps))


@pytest.mark.parametrize(
    "one",
    [
        FixedLenSequenceSpec((), "int64"),
        FixedLenSequenceSpec((), "int64", allow_missing=True),
        FixedLenSequenceSpec((2,), "int64"),
        FixedLenSequenceSpec((1, 2), "float32"),
        VarLenSpec("int64"),
        RaggedSpec("int64"),
    ],
    ids=feature_to_source,
)
def test_the_message_for_the_steps_of_a_sequence(tf: ModuleType, one: SpecFeature) -> None:
    spec = SequenceSpec(steps={"a": one})
    for steps in STEPS:
        payload = sequence_example(b"", b"" if steps is None else entry("a", feature_list(steps)))
        predicted = predict_sequence_error(spec, rk.decode(payload, kind="sequence"))
        assert predicted == sequence_message(tf, spec, payload), steps


@pytest.mark.parametrize(
    "one",
    [
        FixedLenSpec((), "int64"),
        FixedLenSpec((), "int64", 7),
        FixedLenSpec((0,), "int64"),
        FixedLenSpec((2,), "string"),
        FixedLenSpec((2, 2), "float32", ((0.5, 0.5), (0.5, 0.5))),
        VarLenSpec("int64"),
        RaggedSpec("int64"),
    ],
    ids=feature_to_source,
)
def test_the_message_for_the_context_of_a_sequence(tf: ModuleType, one: SpecFeature) -> None:
    spec = SequenceSpec(context={"a": one})
    for stored in STORED:
        payload = sequence_example(b"" if stored is None else entry("a", stored), b"")
        predicted = predict_sequence_error(spec, rk.decode(payload, kind="sequence"))
        assert predicted == sequence_message(tf, spec, payload), stored


def test_the_message_of_reshape(tf: ModuleType) -> None:
    shapes: list[Sequence[int | None]] = [(), (3,), (2, 3), (None,), (None, 4), (2, None, 3), (0,)]
    for values, shape in product((0, 1, 6, 12, 24), shapes):
        asked = [-1 if size is None else size for size in shape]
        said = message_of(tf, lambda: tf.reshape(tf.zeros(values), asked))  # noqa: B023
        assert reshape_error(values, shape) == said, (values, shape)

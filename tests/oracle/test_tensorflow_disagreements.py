"""What `check` says of odd forms is what TensorFlow's own parsers do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example as hypothesis_example
from hypothesis import given, settings
from record_strategies import examples, ints, raw_entry, sequences

import rekord as rk
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
    varint,
)
from rekord.testing.wire import LEN

WIRES = (0, 1, 2, 3, 5)
KEYS = ("a", "b", "")

SAME, OTHER, REFUSED = "reads the same", "reads something else", "refuses"


def padded(field: int, body: bytes) -> bytes:
    """A LEN field whose tag takes two bytes."""
    return varint(field << 3 | LEN, width=2) + varint(len(body)) + body


def plain(value: object) -> object:
    """Floats as bits, so that NaN equals itself."""
    if isinstance(value, np.ndarray):
        return (value.view(np.uint32) if value.dtype == np.float32 else value).tolist()
    return value or []


def dtype_of(tf: ModuleType, values: list[Any]) -> Any:
    """The type to ask TensorFlow for: that of what is there."""
    for value in values:
        if value is not None:
            if isinstance(value, list):
                return tf.string
            return tf.int64 if value.dtype == np.int64 else tf.float32
    return tf.int64


def verdict_on_example(tf: ModuleType, payload: bytes) -> str:
    """What tf.io.parse_example does, beside what protobuf (and rk.decode) reads."""
    ours = rk.decode(payload)
    keys = sorted({*KEYS, *ours})
    spec = {key: tf.io.VarLenFeature(dtype_of(tf, [ours.get(key)])) for key in keys}
    try:
        parsed = tf.io.parse_example([payload], spec)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        # Its message quotes the record; where that is no text, making the message fails.
        return REFUSED
    theirs = {key: plain(to_values(parsed[key].values)) for key in keys}
    return SAME if theirs == {key: plain(ours.get(key)) for key in keys} else OTHER


def verdict_on_sequence(tf: ModuleType, payload: bytes) -> str:
    """The same of tf.io.parse_sequence_example."""
    ours = rk.decode(payload, kind="sequence")
    context_keys, step_keys = sorted({*KEYS, *ours.context}), sorted({*KEYS, *ours.steps})
    context = {key: tf.io.RaggedFeature(dtype_of(tf, [ours.context.get(key)])) for key in context_keys}
    lists = {key: tf.io.RaggedFeature(dtype_of(tf, ours.steps.get(key, []))) for key in step_keys}
    try:
        in_context, in_steps, _ = tf.io.parse_sequence_example([payload], context, lists)
    except tf.errors.InvalidArgumentError:
        return REFUSED
    theirs = (
        {key: plain(to_values(in_context[key].values)) for key in context_keys},
        {key: [plain(to_values(step)) for step in in_steps[key][0]] for key in step_keys},
    )
    read = (
        {key: plain(ours.context.get(key)) for key in context_keys},
        {key: [plain(step) for step in ours.steps.get(key, [])] for key in step_keys},
    )
    return SAME if theirs == read else OTHER


def to_values(tensor: Any) -> Any:
    values = tensor.numpy()
    return values.tolist() if values.dtype == object else values


def codes(report: rk.Report) -> list[str]:
    return sorted({finding.code for finding in report.findings if finding.code.startswith("H72")})


def has_form_errors(report: rk.Report) -> bool:
    """Whether the encoding of a payload is an error; random bytes that begin like an image are another matter."""
    return any(one.severity == "error" and one.code.startswith("H72") for one in report.findings)


# (name, payload, what check says, what TensorFlow does)
Row = tuple[str, bytes, list[str], str]

KEY, VALUE = length_delimited(1, b"a"), length_delimited(2, ints(1))


def odd_examples() -> Iterator[Row]:
    two = feature(("float", float_list([0.5]))) + ints(2)
    mixed = feature(("int64", int64_list([1]) + int64_list([2], packed=False)))
    late = feature(("int64", int64_list([1], packed=False) + int64_list([2])))
    yield "packed", example(entry("a", ints(1, 2))), [], SAME
    yield "unpacked", example(entry("a", ints(1, 2, packed=False))), [], SAME
    yield "kind unset", example(entry("a", feature())), [], SAME
    yield "empty list", example(entry("a", ints())), [], SAME
    yield "merged features", example(entry("a", ints(1)), entry("b", ints(2))), [], SAME
    yield (
        "padded number",
        example(entry("a", feature(("int64", length_delimited(1, b"\x81\x80\x00"))))),
        [],
        SAME,
    )
    yield "value first", example(entry("a", ints(1), swap=True)), [], SAME
    yield "two keys, no value", example(raw_entry(KEY, KEY)), [], SAME
    yield "two chunks", example(entry("a", ints(1, 2, chunks=[1, 1]))), ["H721"], OTHER
    yield "packed, then unpacked", example(entry("a", mixed)), ["H721"], OTHER
    yield "unpacked, then packed", example(entry("a", late)), ["H721"], REFUSED
    yield "two lists", example(entry("a", ints(1) + ints(2))), ["H721"], OTHER
    yield "two kinds", example(entry("a", two)), ["H722"], REFUSED  # of the type that protobuf sees
    yield "no key", example(entry(None, ints(1))), ["H723"], REFUSED
    yield "no value", example(entry("a", None)), ["H723"], REFUSED
    yield "neither", example(entry(None, None)), ["H723"], REFUSED
    yield "two keys", example(raw_entry(KEY, KEY, VALUE)), ["H723"], REFUSED
    yield "two values", example(raw_entry(KEY, VALUE, VALUE)), ["H721", "H723"], REFUSED
    yield "two values, no key", example(raw_entry(VALUE, VALUE)), ["H721", "H723"], OTHER
    yield "duplicate key", example(entry("a", ints(1)) + entry("a", ints(2))), ["H724"], SAME
    yield "duplicate key, apart", example(entry("a", ints(1)), entry("a", ints(2))), ["H724"], SAME
    yield "padded tag of features", padded(1, entry("a", ints(1))), ["H725"], OTHER
    yield "padded tag of an entry", example(padded(1, KEY + VALUE)), ["H725"], REFUSED
    yield "padded tag of a list", example(entry("a", padded(3, int64_list([1])))), ["H725"], REFUSED
    yield (
        "padded tag of values",
        example(entry("a", feature(("int64", padded(1, b"\x01"))))),
        ["H725"],
        REFUSED,
    )
    for wire in WIRES:
        stranger = unknown(9, wire)
        # A group is the one thing that TensorFlow does not even skip beside the features.
        beside = ([], SAME) if wire != 3 else (["H725"], REFUSED)
        yield f"unknown {wire} before all", stranger + example(entry("a", ints(1))), *beside
        yield f"unknown {wire} after all", example(entry("a", ints(1))) + stranger, *beside
        yield f"unknown {wire} in features", example(entry("a", ints(1)) + stranger), ["H725"], REFUSED
        yield f"unknown {wire} in entry", example(raw_entry(KEY, VALUE, stranger)), ["H725"], REFUSED
        yield f"unknown {wire} before list", example(entry("a", stranger + ints(1))), ["H725"], REFUSED
        yield f"unknown {wire} after list", example(entry("a", ints(1) + stranger)), ["H725"], SAME
        values = feature(("bytes", bytes_list([b"x"]) + stranger))
        yield f"unknown {wire} in values", example(entry("a", values)), ["H725"], REFUSED


@pytest.mark.parametrize("name", [name for name, *_ in odd_examples()])
def test_check_says_of_an_example_what_tensorflow_makes_of_it(
    tf: ModuleType, put_records: Callable[..., Path], name: str
) -> None:
    payload, said, verdict = next(row[1:] for row in odd_examples() if row[0] == name)
    assert verdict_on_example(tf, payload) == verdict
    # Beside a plain one, so that there is no doubt about what the file holds.
    report = rk.check(put_records([example(entry("z", ints(0))), payload]))
    assert codes(report) == said
    assert report.ok
    assert {finding.record for finding in report.findings} <= {1}


def odd_sequences() -> Iterator[Row]:
    steps = feature_list([ints(1), ints(2)])
    lists = length_delimited(2, steps)
    yield "plain", sequence_example(entry("c", ints(1)), entry("a", steps)), [], SAME
    yield "unset step", sequence_example(None, entry("a", feature_list([ints(1), feature()]))), [], SAME
    yield "no steps", sequence_example(None, entry("a", b"")), [], SAME
    yield "unpacked", sequence_example(None, entry("a", feature_list([ints(1, 2, packed=False)]))), [], SAME
    yield (
        "two messages",
        sequence_example(None, entry("a", steps)) + sequence_example(entry("c", ints(1))),
        [],
        SAME,
    )
    yield (
        "two chunks",
        sequence_example(None, entry("a", feature_list([ints(1, 2, chunks=[1, 1])]))),
        ["H721"],
        REFUSED,
    )
    yield (
        "two lists",
        sequence_example(None, entry("a", feature_list([ints(1) + ints(2)]))),
        ["H721"],
        REFUSED,
    )
    yield (
        "two kinds",
        sequence_example(None, entry("a", feature_list([feature(("float", float_list([0.5]))) + ints(2)]))),
        ["H722"],
        REFUSED,
    )
    yield "value first", sequence_example(None, entry("a", steps, swap=True)), ["H723"], REFUSED
    yield (
        "value first in context",
        sequence_example(entry("c", ints(1), swap=True), entry("a", steps)),
        ["H723"],
        REFUSED,
    )
    yield "no key", sequence_example(None, entry(None, steps)), ["H723"], REFUSED
    yield "no value", sequence_example(None, entry("a", None)), ["H723"], REFUSED
    yield "two keys, no value", sequence_example(None, raw_entry(KEY, KEY)), ["H723"], REFUSED
    yield "two values", sequence_example(None, raw_entry(KEY, lists, lists)), ["H723"], REFUSED
    yield "duplicate key", sequence_example(None, entry("a", steps) * 2), ["H724"], SAME
    yield "padded tag of lists", padded(2, entry("a", steps)), ["H725"], OTHER
    for wire in WIRES:
        stranger = unknown(9, wire)
        whole = sequence_example(entry("c", ints(1)), entry("a", steps))
        beside = ([], SAME) if wire != 3 else (["H725"], REFUSED)
        yield f"unknown {wire} beside", stranger + whole, *beside
        yield (
            f"unknown {wire} in lists",
            sequence_example(None, entry("a", steps) + stranger),
            ["H725"],
            REFUSED,
        )
        yield (
            f"unknown {wire} in entry",
            sequence_example(None, raw_entry(KEY, lists, stranger)),
            ["H725"],
            REFUSED,
        )
        yield (
            f"unknown {wire} in steps",
            sequence_example(None, entry("a", steps + stranger)),
            ["H725"],
            REFUSED,
        )
        step = feature_list([ints(1) + stranger])
        yield f"unknown {wire} in a step", sequence_example(None, entry("a", step)), ["H725"], REFUSED


@pytest.mark.parametrize("name", [name for name, *_ in odd_sequences()])
def test_check_says_of_a_sequence_what_tensorflow_makes_of_it(
    tf: ModuleType, put_records: Callable[..., Path], name: str
) -> None:
    payload, said, verdict = next(row[1:] for row in odd_sequences() if row[0] == name)
    assert verdict_on_sequence(tf, payload) == verdict
    normal = sequence_example(None, entry("z", feature_list([ints(0)])))
    report = rk.check(put_records([normal, payload]))
    assert codes(report) == said
    assert report.ok


def of_one_type(payload: bytes, *, unnamed: bool = False) -> bool:
    """Whether each list of steps has one type: TensorFlow cannot be asked for two.

    No column has an empty name, so that nobody reads the list under an empty key; `unnamed` looks at that one too.
    """
    steps = rk.decode(payload, kind="sequence").steps
    return all(
        len({type(v) if isinstance(v, list) else v.dtype for v in s if v is not None}) <= 1
        for key, s in steps.items()
        if key or unnamed
    )


@settings(max_examples=400)
@given(payload=examples())
@hypothesis_example(payload=bytes.fromhex("0a0c0a0a0a0012068a8080800000"))  # an odd form under an empty key
@hypothesis_example(
    payload=example(entry("a", feature(("bytes", bytes_list([b"\x89PNG\r\n\x1a\n"])))))
)  # the start of an image
def test_an_example_that_check_is_silent_about_is_read_by_tensorflow_as_it_is(
    tf: ModuleType, put_records: Callable[..., Path], payload: bytes
) -> None:
    report = rk.check(put_records([example(entry("z", ints(0)))] * 3 + [payload]))
    assert not has_form_errors(report)
    if set(codes(report)) <= {"H724"}:
        assert verdict_on_example(tf, payload) == SAME


@settings(max_examples=300)
@given(payload=sequences())
@hypothesis_example(payload=bytes.fromhex("120e0a0c0a0012080a020a000a021200"))  # two kinds under an empty key
@hypothesis_example(payload=bytes.fromhex("0a130a110a0161120c0a0a0a0889504e470d0a1a0a"))  # the start of an image
def test_a_sequence_that_check_is_silent_about_is_read_by_tensorflow_as_it_is(
    tf: ModuleType, put_records: Callable[..., Path], payload: bytes
) -> None:
    normal = sequence_example(None, entry("z", feature_list([ints(0)])))
    report = rk.check(put_records([normal] * 3 + [payload]))
    assert has_form_errors(report) != of_one_type(payload)  # no reader takes steps of several kinds
    if set(codes(report)) <= {"H724"} and of_one_type(payload, unnamed=True):
        assert verdict_on_sequence(tf, payload) == SAME

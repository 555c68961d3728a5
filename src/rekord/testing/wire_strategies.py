"""Hypothesis strategies for Examples and SequenceExamples on the wire, the odd forms included.

Every message that the strategies make is one that protobuf reads. `mutated` makes some that it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rekord.testing.wire import (
    I32,
    I64,
    LEN,
    VARINT,
    Kind,
    feature,
    group,
    int64_list,
    length_delimited,
    tag,
    varint,
)

_FIELDS: dict[Kind, int] = {"bytes": 1, "float": 2, "int64": 3}
_EDGES = [0, 1, -1, 127, 128, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63)]
# As little-endian bits: zeros, infinities, the smallest and largest numbers, NaNs with a payload.
_FLOATS = ["00000000", "00000080", "0000807f", "000080ff", "01000000", "ffff7f7f", "0100a07f", "addec0ff"]


def ints(*values: int, packed: bool = True, chunks: Sequence[int] | None = None) -> bytes:
    """A Feature of these numbers."""
    return feature(("int64", int64_list(values, packed, chunks)))


def raw_entry(*fields: bytes) -> bytes:
    """A map entry of any fields whatever, as bytes."""
    return length_delimited(1, b"".join(fields))


def keys() -> SearchStrategy[str]:
    """Feature names: few, so that they meet again, or any text."""
    return st.sampled_from(["a", "b", "a/b", "é", ""]) | st.text(max_size=8)


def int64_bytes() -> SearchStrategy[bytes]:
    """One int64 as a varint: usual, longer than needed, or with bits above the 64th."""
    number = st.sampled_from(_EDGES) | st.integers(-(1 << 63), (1 << 63) - 1)
    padded = st.builds(varint, st.integers(0, 127), st.integers(2, 10))
    overflowing = st.binary(min_size=9, max_size=9).map(lambda b: bytes(x | 0x80 for x in b) + b"\x7f")
    return number.map(varint) | padded | overflowing


def float_bytes() -> SearchStrategy[bytes]:
    """The four bytes of one float: any bits, so NaNs of every kind."""
    return st.sampled_from([bytes.fromhex(bits) for bits in _FLOATS]) | st.binary(min_size=4, max_size=4)


def unknown_fields() -> SearchStrategy[bytes]:
    """One field that none of the messages has, of any wire type, groups included."""
    numbers = st.sampled_from([4, 9, 15, 16, 2047, (1 << 29) - 1])
    flat = (
        _field(numbers, VARINT, int64_bytes())
        | _field(numbers, I64, st.binary(min_size=8, max_size=8))
        | _field(numbers, LEN, _delimited(st.binary(max_size=8)))
        | _field(numbers, I32, st.binary(min_size=4, max_size=4))
    )
    return st.recursive(flat, lambda inner: st.builds(group, numbers, _joined(inner, most=2)), max_leaves=4)


def value_lists(kind: Kind) -> SearchStrategy[bytes]:
    """A BytesList, FloatList or Int64List: in one piece or several, packed or not, with strangers between."""
    if kind == "bytes":
        usual = _field(st.just(1), LEN, _delimited(st.binary(max_size=8)))
        return _joined(
            st.one_of(usual, usual, usual, unknown_fields(), _field(st.just(1), VARINT, int64_bytes()))
        )
    one, wire = (float_bytes(), I32) if kind == "float" else (int64_bytes(), VARINT)
    packed = _field(st.just(1), LEN, _delimited(_joined(one, most=4)))
    single = _field(st.just(1), wire, one)
    # The field of a value in the wire type of another kind is an unknown field.
    stranger = _field(st.just(1), I64, st.binary(min_size=8, max_size=8))
    return _joined(st.one_of(packed, packed, single, single, unknown_fields(), stranger))


def feature_bodies() -> SearchStrategy[bytes]:
    """A Feature: no kind, one, or several."""
    whole: list[SearchStrategy[bytes]] = [
        _field(st.just(_FIELDS[kind]), LEN, _delimited(value_lists(kind))) for kind in _FIELDS
    ]
    stranger = unknown_fields() | _field(st.integers(1, 3), VARINT, int64_bytes())
    return _joined(st.one_of(*whole, *whole, stranger), most=2)


def feature_maps() -> SearchStrategy[bytes]:
    """A Features: entries in any order, twice, swapped, with a half missing or too many."""
    return _maps(feature_bodies())


def examples() -> SearchStrategy[bytes]:
    """An Example of one Features or several, with unknown fields beside them."""
    return _joined(_mostly(_field(st.just(1), LEN, _delimited(feature_maps())), unknown_fields()))


def sequences() -> SearchStrategy[bytes]:
    """A SequenceExample: contexts and lists of steps, with unknown fields at every level."""
    step = _field(st.just(1), LEN, _delimited(feature_bodies()))
    steps = _maps(_joined(_mostly(step, unknown_fields())))
    context = _field(st.just(1), LEN, _delimited(feature_maps()))
    lists = _field(st.just(2), LEN, _delimited(steps))
    return _joined(st.one_of(context, lists, lists, unknown_fields()))


@st.composite
def mutated(draw: st.DrawFn, payloads: SearchStrategy[bytes]) -> bytes:
    """A payload with some of its bytes changed, lost, added or repeated."""
    data = bytearray(draw(payloads))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(at + 6, len(data))))
        match draw(st.sampled_from(["change", "change", "cut", "drop", "insert", "repeat"])):
            case "change" if at < len(data):
                data[at] = draw(st.integers(0, 255) | st.just(data[at] ^ 1 << draw(st.integers(0, 7))))
            case "cut":
                del data[at:]
            case "drop":
                del data[at:end]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "repeat":
                data[at:at] = data[at:end]
    return bytes(data)


def _maps(values: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    key = _field(st.just(1), LEN, _delimited(keys().map(str.encode)))
    value = _field(st.just(2), LEN, _delimited(values))
    usual = st.builds(add, key, value)
    odd = _joined(st.one_of(key, value, unknown_fields()))
    entry = _field(st.just(1), LEN, _delimited(_mostly(usual, odd)))
    return _joined(_mostly(entry, unknown_fields()))


def _field(numbers: SearchStrategy[int], wire: int, value: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    tags = _mostly(
        numbers.map(lambda number: tag(number, wire)), numbers.map(lambda number: _padded(number, wire))
    )
    return st.builds(add, tags, value)


def _padded(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire, width=5)


def _delimited(body: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    # A length may be wider than it needs; nobody minds.
    return st.builds(
        lambda data, width: varint(len(data), width=width if len(data) < 128 else None) + data,
        body,
        st.sampled_from([None, None, None, None, 2, 5]),
    )


def _joined(pieces: SearchStrategy[bytes], most: int = 3) -> SearchStrategy[bytes]:
    return st.lists(pieces, max_size=most).map(b"".join)


def _mostly(usual: SearchStrategy[bytes], odd: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    return st.one_of(usual, usual, usual, usual, odd)

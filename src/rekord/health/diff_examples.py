"""A few records that differ, read once more to be shown: their places, their keys, and what changed in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.decode import SequenceExample, decode
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.external_sort import Places
from rekord.records.frame import Stretch

Change: TypeAlias = Literal["added", "removed", "changed"]

SHOWN_CHARACTERS = 60
_SHOWN_VALUES = 6
_SHOWN_BYTES = 16
_MOST_FEATURES = 8


@dataclass(frozen=True, kw_only=True)
class RecordPlace:
    """Where a record is: its file, its number in it, and where its frame begins in the decompressed stream."""

    path: str
    record: int
    offset: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"path": self.path, "record": self.record, "offset": self.offset}


@dataclass(frozen=True, kw_only=True)
class Example:
    """A record that is in one side only, or is another in B. `features` are (in A, in B), as a person reads them."""

    change: Change
    key: int | str | None = None
    a: RecordPlace | None = None
    b: RecordPlace | None = None
    features: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "change": self.change,
            "key": self.key,
            "a": None if self.a is None else self.a.to_dict(),
            "b": None if self.b is None else self.b.to_dict(),
            "features": {name: {"a": a, "b": b} for name, (a, b) in self.features.items()},
        }


Pair: TypeAlias = "tuple[Change, RecordPlace | None, RecordPlace | None]"


def places_of(places: Places, files: Sequence[str]) -> list[RecordPlace]:
    """Rows of the sort as places."""
    return [
        RecordPlace(path=files[int(row["file"])], record=int(row["record"]), offset=int(row["offset"]))
        for row in places
    ]


def examples(pairs: Sequence[Pair], keys: tuple[str | None, str | None]) -> list[Example]:
    """The records at these places. `keys` are the record keys that tell them apart in A and in B."""
    payloads = _payloads({place for _, *both in pairs for place in both if place is not None})
    found = []
    for change, a, b in pairs:
        before, after = (None if place is None else _decoded(payloads.get(place)) for place in (a, b))
        holder, key = (after, keys[1]) if before is None else (before, keys[0])
        found.append(
            Example(
                change=change,
                key=None if key is None or holder is None else _key_value(holder.get(key)),
                a=a,
                b=b,
                features=_changes(before, after) if before is not None and after is not None else {},
            )
        )
    return found


def shown_value(value: Any) -> str | None:
    """What a record has under a key, cut to be read at a glance; None where it has nothing."""
    if value is None:
        return None
    if isinstance(value, dict):  # the steps of a sequence
        return f"{value['steps']:,} steps"
    if len(value) == 1:
        return _one(value[0])
    some = ", ".join([_one(each) for each in value[:_SHOWN_VALUES]])
    more = ", …" if len(value) > _SHOWN_VALUES else ""
    text = f"[{some}{more}]"
    return text if len(text) <= SHOWN_CHARACTERS else f"{len(value):,} values"


def _one(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            text = value[: 4 * SHOWN_CHARACTERS].decode()
        except UnicodeDecodeError:
            text = ""
        if text.isprintable() and (text or not value):
            shown = f"'{text}'"
            return shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 1] + "…"
        more = "…" if len(value) > _SHOWN_BYTES else ""
        return f"{len(value):,} bytes ({value[:_SHOWN_BYTES].hex()}{more})"
    return str(value)  # float32 has as many digits as it needs


def _key_value(value: Any) -> int | str | None:
    if value is None or isinstance(value, dict) or len(value) != 1:
        return None
    return int(value[0]) if isinstance(value, np.ndarray) else _one(value[0])


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    changed: dict[str, tuple[str | None, str | None]] = {}
    for name in sorted({*before, *after}):
        a, b = before.get(name), after.get(name)
        if not _same(a, b) and len(changed) < _MOST_FEATURES:
            changed[name] = shown_value(a), shown_value(b)
    return changed


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    return bool(a == b)


def _decoded(payload: tuple[bytes, bool] | None) -> dict[str, Any] | None:
    """The features of a record; None where it cannot be read any more, or is no Example."""
    if payload is None:
        return None
    content, sequence = payload
    try:
        record = decode(content, kind="sequence" if sequence else "example")
    except RekordError:
        return None
    if not isinstance(record, SequenceExample):
        return dict(record)
    steps = {
        key: {"steps": len(values), "values": [_frozen(value) for value in values]}
        for key, values in record.steps.items()
    }
    return {**record.context, **steps}


def _frozen(value: Any) -> Any:
    return (value.dtype.kind, value.tobytes()) if isinstance(value, np.ndarray) else value


def _payloads(places: Iterable[RecordPlace]) -> dict[RecordPlace, tuple[bytes, bool]]:
    """The payloads at some places, and whether their files hold SequenceExamples."""
    by_path: defaultdict[str, list[RecordPlace]] = defaultdict(list)
    for place in places:
        by_path[place.path].append(place)
    found = {}
    for path, wanted in by_path.items():
        try:
            found.update(_read(path, sorted(wanted, key=lambda place: place.offset)))
        except RekordError:
            continue  # its damage has been told, and the places are known without it
    return found


def _read(path: str, wanted: Sequence[RecordPlace]) -> dict[RecordPlace, tuple[bytes, bool]]:
    found = {}
    sequence = _holds_sequences(path)
    for place in wanted:
        with open_frames(path) as reader:
            if not reader.start_at(offset=place.offset, record=place.record):
                break
            stretch = next(reader.stretches(), None)
            if stretch is not None:
                found[place] = _payload(stretch, 0), sequence
    left = {place.offset: place for place in wanted if place not in found}
    if left:  # compressed, so that it can only be read from the start
        with open_frames(path) as reader:
            for stretch in reader.stretches():
                for index in range(len(stretch.extents)):
                    at = left.pop(stretch.offset(index), None)
                    if at is not None:
                        found[at] = _payload(stretch, index), sequence
                if not left:
                    break
    return found


def _holds_sequences(path: str) -> bool:
    from rekord.dataset.infer import sampled_kind

    with open_frames(path) as reader:
        stretch = next(reader.stretches(), None)
        return stretch is not None and sampled_kind(stretch) == _core.PayloadKind.SEQUENCE


def _payload(stretch: Stretch, index: int) -> bytes:
    begin = stretch.extents.offset(index) + _core.HEADER_BYTES
    return bytes(stretch.buffer[begin : begin + stretch.extents.length(index)])

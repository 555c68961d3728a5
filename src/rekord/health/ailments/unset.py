"""Whether a record that has nothing under a key names it without a value, or does not name it at all."""

from __future__ import annotations

from collections.abc import Sequence

from rekord import _core
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.diagnosis import Place
from rekord.records.frame import FrameReader

_MOST_BYTES = 64 << 20


def names_without_kind(places: Sequence[Place], key: str) -> list[Place]:
    """Those of a few records that name the key and store no list under it."""
    return [place for place in places if _is_unset(place, key)]


def payload_at(place: Place) -> bytes | None:
    """The payload of a record; None where it cannot be had, or only by reading very much."""
    assert place.record is not None
    assert place.offset is not None
    try:
        with open_frames(place.path) as reader:
            started = reader.start_at(offset=place.offset, record=place.record) if place.offset else False
            if not started and place.offset > _MOST_BYTES:
                return None
            # Offsets of compressed files count decompressed bytes: such a file is read from its beginning.
            if started and reader.compression != "none":
                return None
            return _found(reader, place.offset)
    except RekordError:
        return None


def _found(reader: FrameReader, offset: int) -> bytes | None:
    for stretch in reader.stretches():
        for index in range(len(stretch.extents)):
            if stretch.offset(index) == offset:
                begin = stretch.extents.offset(index) + _core.HEADER_BYTES
                return bytes(stretch.buffer[begin : begin + stretch.extents.length(index)])
    return None


def _is_unset(place: Place, key: str) -> bool:
    payload = payload_at(place)
    if payload is None:
        return False
    example = _core.decode_example(payload)
    if isinstance(example, _core.Problem):
        return False
    return key in example and example[key] is None

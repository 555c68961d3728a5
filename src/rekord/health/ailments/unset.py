"""Whether a record that has nothing under a key names it without a value, or does not name it at all."""

from __future__ import annotations

from rekord import _core
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.diagnosis import Place
from rekord.records.frame import FrameReader

_MOST_BYTES = 16 << 20
"""So far a compressed file is read again for one record."""

_MOST_PLACES = 256


class Unset:
    """The keys that records name without a value, looked up when they are asked for."""

    def __init__(self) -> None:
        self._keys: dict[Place, frozenset[str]] = {}

    def names(self, place: Place, key: str) -> bool:
        """Whether a record names the key and stores no list under it; False where that is not known."""
        if place not in self._keys:
            if len(self._keys) >= _MOST_PLACES:
                return False
            self._keys[place] = _unset_keys(place)
        return key in self._keys[place]


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


def _unset_keys(place: Place) -> frozenset[str]:
    payload = payload_at(place)
    example = None if payload is None else _core.decode_example(payload)
    if example is None or isinstance(example, _core.Problem):
        return frozenset()
    return frozenset(key for key, value in example.items() if value is None)

"""Whatever happens to a file, every record that it left alone comes back, and nothing that was not there."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rekord as rk
from rekord.framing import deflate
from rekord.framing.deflate import FlushPoint, open_frame_sink
from rekord.health.salvage import salvage
from rekord.testing import frame, frame_offsets, frames, masked_crc32c

Byte = tuple[int, int | None]
"""A byte, and where it stood before the damage; None where it is new."""

payload_lists = st.lists(st.binary(max_size=80), min_size=1, max_size=12)
harms = st.tuples(
    st.sampled_from(["cut", "flip", "overwrite", "delete", "insert"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=60),
)
numbers = count()


def harmed(data: Sequence[Byte], harm: tuple[str, float, bytes]) -> list[Byte]:
    """The bytes after one harm. A byte that is overwritten by itself is as it was."""
    kind, share, new = harm
    at = int(share * len(data))
    given = list(data)
    if kind == "cut":
        return given[:at]
    if kind == "flip":
        value = given[at][0] ^ 1 << new[0] % 8 if given else 0
        return [*given[:at], (value, None), *given[at + 1 :]] if given else given
    if kind == "delete":
        return given[:at] + given[at + len(new) :]
    if kind == "insert":
        return [*given[:at], *((byte, None) for byte in new), *given[at:]]
    over: list[Byte] = [old if old[0] == byte else (byte, None) for old, byte in zip(given[at:], new, strict=False)]
    return given[:at] + over + given[at + len(over) :]


def untouched(data: Sequence[Byte], offsets: Sequence[int]) -> list[tuple[int, int, int]]:
    """(record, begin, end) of each frame whose bytes still stand side by side; `offsets` has the end too."""
    places = {origin: at for at, (_, origin) in enumerate(data) if origin is not None}
    found = []
    for record, (begin, end) in enumerate(pairwise(offsets)):
        at = places.get(begin)
        origins = [] if at is None else [origin for _, origin in data[at : at + end - begin]]
        if at is not None and origins == list(range(begin, end)):
            found.append((record, at, at + end - begin))
    return found


def believed(data: bytes) -> list[tuple[int, int]]:
    """Where broken frames are whose lengths are believed: a header, or the end, stands where they should end."""
    spans = []
    for at in range(len(data) - 11):
        length = int.from_bytes(data[at : at + 8], "little")
        end = at + 16 + length
        if agrees(data, at) and end <= len(data) and (end == len(data) or agrees(data, end)):
            payload, stored = data[at + 12 : end - 4], data[end - 4 : end]
            if masked_crc32c(payload).to_bytes(4, "little") != stored:
                spans.append((at, end))
    return spans


def agrees(data: bytes, at: int) -> bool:
    header = data[at : at + 12]
    return len(header) == 12 and header[8:] == masked_crc32c(header[:8]).to_bytes(4, "little")


def salvaged(data: bytes, folder: Path) -> list[bytes]:
    """The records that come back."""
    number = next(numbers)
    path, out = folder / f"{number}.tfrecord", folder / f"{number}.out"
    path.write_bytes(data)
    try:
        report = salvage(path, out)
    except (rk.FormatError, rk.DatasetError):
        assert not out.exists()
        return []
    kept = list(rk.records(out))
    assert report.kept == len(kept)
    assert report.ok or report.gaps
    return kept


def is_part_of(some: Sequence[bytes], whole: Sequence[bytes]) -> bool:
    """Whether `some` are among the `whole`, in the same order."""
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in some)


@given(payloads=payload_lists, done=st.lists(harms, min_size=1, max_size=4))
def test_every_record_that_no_harm_touched_comes_back_and_no_other(
    payloads: list[bytes], done: list[tuple[str, float, bytes]], tmp_path: Path
) -> None:
    whole = frames(payloads)
    data: list[Byte] = [(byte, at) for at, byte in enumerate(whole)]
    for harm in done:
        data = harmed(data, harm)
    left = bytes(byte for byte, _ in data)
    spans = believed(left)
    expected = [
        payloads[record]
        for record, begin, end in untouched(data, [*frame_offsets(whole), len(whole)])
        if not any(b < begin and end <= e for b, e in spans)
    ]
    kept = salvaged(left, tmp_path)
    assert is_part_of(expected, kept)
    assert is_part_of(kept, payloads)


def deflated(payloads: Sequence[bytes], compression: str) -> tuple[bytes, list[FlushPoint]]:
    file = io.BytesIO()
    sink = open_frame_sink(compression, file.write)
    sink.write(frames(payloads))
    sink.finish()
    return file.getvalue(), sink.flush_points


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deflate, "FLUSH_BYTES", 1000)


# A reference in the compressed data reaches back for 258 bytes at the most: damaged, it can repeat a frame that is
# shorter, and no checksum of a frame could tell.
def long_payloads(seed: int, records: int) -> list[bytes]:
    """Longer ones than that, some of which become shorter when they are compressed and some of which do not."""
    chance = random.Random(seed)
    letters = [bytes(range(256)), b"abc "]
    return [
        b"%d " % i + bytes(chance.choices(chance.choice(letters), k=chance.randrange(260, 500)))
        for i in range(records)
    ]


@given(
    payloads=st.builds(long_payloads, st.integers(0, 1 << 32), st.integers(4, 12)),
    compression=st.sampled_from(["gzip", "zlib"]),
    harm=harms,
)
def test_what_lies_before_the_damage_or_behind_the_next_flush_comes_back(
    payloads: list[bytes],
    compression: str,
    harm: tuple[str, float, bytes],
    tmp_path: Path,
    short_segments: None,
) -> None:
    data, points = deflated(payloads, compression)
    head = 3 if compression == "gzip" else 2  # what the first bytes cost is a test of its own
    after = bytes(byte for byte, _ in harmed([(byte, at) for at, byte in enumerate(data[head:])], harm))
    left = data[:head] + after
    kept = salvaged(left, tmp_path)
    assert is_part_of(kept, payloads)
    same = len(data) if left == data else next(i for i in range(len(left) + 1) if left[: i + 1] != data[: i + 1])
    tail = next(i for i in range(len(left) + 1) if i == len(left) or left[-i - 1] != data[-i - 1])
    offsets = frame_offsets(frames(payloads))
    before = max((point.offset for point in points if point.compressed_offset <= same), default=0)
    behind = min(
        (point.offset for point in points if point.compressed_offset - 4 >= len(data) - tail),
        default=len(frames(payloads)),
    )
    assert kept[: sum(offset < before for offset in offsets)] == payloads[: sum(o < before for o in offsets)]
    last = [payload for payload, offset in zip(payloads, offsets, strict=True) if offset >= behind]
    assert not last or kept[-len(last) :] == last


@given(payloads=payload_lists, inner=st.lists(st.binary(max_size=20), min_size=1, max_size=4))
def test_frames_inside_a_payload_come_forth_only_as_resynchronised(
    payloads: list[bytes], inner: list[bytes], tmp_path: Path
) -> None:
    holder = b"x" + frames(inner) + b"y"
    number = next(numbers)
    path = tmp_path / f"{number}.tfrecord"
    broken = bytearray(frame(holder))
    broken[0] ^= 1
    path.write_bytes(frames(payloads) + broken + frames(payloads))
    report = salvage(path, tmp_path / f"{number}.out")
    assert list(rk.records(tmp_path / f"{number}.out")) == [*payloads, *inner, *payloads]
    assert report.resynchronised == len(inner) + len(payloads)
    assert [gap.left_by for gap in report.gaps] == ["search", "search"]
    # With a length that can be trusted the payload is skipped with all that is in it.
    broken = bytearray(frame(holder))
    broken[12] ^= 1
    path.write_bytes(frames(payloads) + broken + frames(payloads))
    report = salvage(path, tmp_path / f"{number}.skipped")
    assert list(rk.records(tmp_path / f"{number}.skipped")) == payloads * 2
    assert (report.resynchronised, report.lost_records) == (0, 1)
    assert [gap.left_by for gap in report.gaps] == ["skip"]

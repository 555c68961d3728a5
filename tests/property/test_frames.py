"""Any payloads, cut into any slabs and any reads, come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from faulty_storage import FaultyStorage
from hypothesis import given
from hypothesis import strategies as st

import rekord as rk
from rekord import _core
from rekord.testing import bit_flips, frame_offsets, frames

PutFile = Callable[..., Path]
Compress = Callable[[bytes, str], bytes]
ReadOn = Callable[..., tuple[list[bytes], list[tuple[str, int | None, int | None]]]]

payload_lists = st.lists(st.binary(max_size=200), max_size=12)
compressions = st.sampled_from(["none", "gzip", "zlib"])


@given(payloads=payload_lists)
def test_the_native_frame_is_the_plain_one(payloads: list[bytes]) -> None:
    assert b"".join(map(_core.frame, payloads)) == frames(payloads)


@given(payloads=payload_lists, compression=compressions)
def test_any_payloads_are_read_back_and_counted(
    put_file: PutFile, compress: Compress, payloads: list[bytes], compression: str
) -> None:
    path = put_file(compress(frames(payloads), compression))
    assert list(rk.records(path)) == payloads
    report = rk.check(path)
    assert (report.files, report.records) == (1, len(payloads))
    assert report.payload_bytes == sum(map(len, payloads))
    assert not [finding for finding in report.findings if finding.code[0] in "FC"]


@given(
    payloads=payload_lists,
    compression=compressions,
    slab_bytes=st.integers(1, 400),
    read_bytes=st.integers(1, 100),
    sized=st.booleans(),
)
def test_how_the_bytes_arrive_changes_nothing(
    put_file: PutFile,
    compress: Compress,
    read_on: ReadOn,
    payloads: list[bytes],
    compression: str,
    slab_bytes: int,
    read_bytes: int,
    sized: bool,
) -> None:
    path = put_file(compress(frames(payloads), compression))
    storage = FaultyStorage(read_at_most_bytes=read_bytes)
    assert read_on(path, storage=storage, slab_bytes=slab_bytes, sized=sized) == (payloads, [])


@given(
    payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=8),
    slab_bytes=st.integers(1, 200),
    read_bytes=st.integers(1, 100),
    data=st.data(),
)
def test_one_flipped_bit_costs_one_record_however_the_bytes_arrive(
    put_file: PutFile,
    read_on: ReadOn,
    payloads: list[bytes],
    slab_bytes: int,
    read_bytes: int,
    data: st.DataObject,
) -> None:
    whole = frames(payloads)
    flips = dict(bit_flips(whole))
    bit = data.draw(st.integers(0, len(flips) - 1))
    offsets = frame_offsets(whole)
    record = max(i for i, offset in enumerate(offsets) if offset <= bit // 8)
    storage = FaultyStorage(read_at_most_bytes=read_bytes)
    path = put_file(flips[bit])
    found, failures = read_on(path, storage=storage, slab_bytes=slab_bytes)
    assert found == payloads[:record] + payloads[record + 1 :]
    in_header = bit // 8 - offsets[record] < 12
    if len(payloads) > 1 or not in_header:
        assert failures == [("F101" if in_header else "F102", record, offsets[record])]
    else:
        # Not one record left to say that this was a record file.
        assert failures[0][1:] == (0, 0)

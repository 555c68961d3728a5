"""`check` goes on after damage: it finds every other record, and says where each fault is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rekord as rk
from rekord import _core
from rekord.framing.frames import SLAB_BYTES
from rekord.testing import (
    claim_length,
    corrupt_length,
    corrupt_payload,
    drop_bytes,
    example_bytes,
    frame,
    frame_offsets,
    frames,
    insert_bytes,
    zero_block,
)

Told = Callable[[rk.Report], list[tuple[str, int | None, int | None]]]
PutFile = Callable[..., Path]
ReadOn = Callable[..., tuple[list[bytes], list[tuple[str, int | None, int | None]]]]

PAYLOADS = [example_bytes({"name": [b"x" * (7 * i)], "id": [i]}) for i in range(8)]
DATA = frames(PAYLOADS)
AT = frame_offsets(DATA)
LAST = len(PAYLOADS) - 1


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def without(*lost: int) -> list[bytes]:
    return [payload for i, payload in enumerate(PAYLOADS) if i not in lost]


@pytest.mark.parametrize("record", range(len(PAYLOADS)))
def test_a_bad_payload_costs_one_record(put_file: PutFile, told: Told, read_on: ReadOn, record: int) -> None:
    path = put_file(corrupt_payload(DATA, record))
    report = rk.check(path)
    assert told(report) == [("F102", record, AT[record])]
    assert report.records == LAST
    assert read_on(path)[0] == without(record)
    likely = report.findings[0].likely
    if record < LAST:
        assert likely == f"bytes changed after writing: the next frame, at byte {AT[record + 1]:,}, is intact"
    else:
        assert likely is None


@pytest.mark.parametrize("record", range(len(PAYLOADS)))
def test_a_bad_length_costs_one_record(put_file: PutFile, told: Told, read_on: ReadOn, record: int) -> None:
    path = put_file(corrupt_length(DATA, record))
    report = rk.check(path)
    assert told(report) == [("F101", record, AT[record])]
    assert report.records == LAST
    assert read_on(path)[0] == without(record)


def test_every_fault_is_told_with_its_own_record_and_offset(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    damaged = DATA
    for at in (AT[1] + 20, AT[3] + 8, AT[5] + 12, AT[7] + 7):
        damaged = changed(damaged, at)
    path = put_file(damaged)
    report = rk.check(path)
    assert told(report) == [("F102", 1, AT[1]), ("F101", 3, AT[3]), ("F102", 5, AT[5]), ("F101", 7, AT[7])]
    assert (report.ok, report.errors, report.records) == (False, 4, 4)
    assert read_on(path)[0] == without(1, 3, 5, 7)


def test_a_bad_payload_before_a_bad_header_is_one_gap(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    # Nothing proves the length of the first, so nothing proves where the second began.
    path = put_file(changed(changed(DATA, AT[1] + 20), AT[2] + 8))
    assert told(rk.check(path)) == [("F102", 1, AT[1])]
    assert read_on(path)[0] == without(1, 2)


def test_two_bad_payloads_in_a_row_are_two_findings(put_file: PutFile, told: Told) -> None:
    report = rk.check(put_file(corrupt_payload(corrupt_payload(DATA, 3), 4)))
    assert told(report) == [("F102", 3, AT[3]), ("F102", 4, AT[4])]
    assert report.records == LAST - 1


@pytest.mark.parametrize("dropped", [1, 3, 11])
def test_bytes_dropped_from_a_payload_cost_that_record(
    put_file: PutFile, told: Told, read_on: ReadOn, dropped: int
) -> None:
    damaged = drop_bytes(DATA, AT[3] + 14, AT[3] + 14 + dropped)
    path = put_file(changed(damaged, AT[5] - dropped + 20))
    assert told(rk.check(path)) == [("F102", 3, AT[3]), ("F102", 5, AT[5] - dropped)]
    assert read_on(path)[0] == without(3, 5)


def test_bytes_dropped_from_a_header_cost_that_record(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    path = put_file(drop_bytes(DATA, AT[3] + 2, AT[3] + 5))
    assert told(rk.check(path)) == [("F101", 3, AT[3])]
    assert read_on(path)[0] == without(3)


def test_bytes_dropped_across_two_records_cost_both(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    path = put_file(drop_bytes(DATA, AT[4] - 6, AT[4] + 6))
    assert told(rk.check(path)) == [("F102", 3, AT[3])]
    assert read_on(path)[0] == without(3, 4)


def test_bytes_dropped_from_the_last_record_cut_the_file(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    path = put_file(drop_bytes(DATA, AT[LAST] + 14, AT[LAST] + 16))
    assert told(rk.check(path)) == [("F104", LAST, AT[LAST])]
    assert read_on(path)[0] == without(LAST)


def test_bytes_inserted_into_a_payload_cost_that_record(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    path = put_file(insert_bytes(DATA, AT[3] + 15, b"inserted"))
    assert told(rk.check(path)) == [("F102", 3, AT[3])]
    assert read_on(path)[0] == without(3)


def test_bytes_inserted_between_records_cost_none(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    path = put_file(insert_bytes(DATA, AT[3], b"inserted, and longer than a header"))
    report = rk.check(path)
    assert told(report) == [("F101", 3, AT[3])]
    assert report.records == len(PAYLOADS)
    assert read_on(path)[0] == PAYLOADS


def test_a_zeroed_block_costs_the_records_that_it_touches(put_file: PutFile, told: Told, read_on: ReadOn) -> None:
    for begin, end, lost, code in [
        (AT[3] + 12, AT[4] - 4, [3], "F102"),  # a payload
        (AT[3], AT[3] + 12, [3], "F101"),  # a header
        (AT[3], AT[4], [3], "F101"),  # a whole record
        (AT[3], AT[6], [3, 4, 5], "F101"),  # several
        (AT[3] + 20, AT[5] + 3, [3, 4, 5], "F102"),  # from the middle of one to the middle of another
    ]:
        path = put_file(zero_block(DATA, begin, end))
        assert told(rk.check(path)) == [(code, 3, AT[3])]
        assert read_on(path)[0] == without(*lost)


def test_zeros_at_the_end_are_told_once(put_file: PutFile, told: Told) -> None:
    report = rk.check(put_file(DATA + bytes(4096)))
    assert told(report) == [("F101", len(PAYLOADS), len(DATA))]
    assert report.records == len(PAYLOADS)


@pytest.mark.parametrize("left_bytes", range(1, 12))
def test_a_header_cut_by_the_end_is_told_after_other_damage_too(
    put_file: PutFile, told: Told, left_bytes: int
) -> None:
    cut = DATA[: AT[LAST] + left_bytes]
    assert told(rk.check(put_file(cut))) == [("F103", LAST, AT[LAST])]
    damaged = corrupt_payload(DATA, 2)[: len(cut)]
    report = rk.check(put_file(damaged))
    assert told(report) == [("F102", 2, AT[2]), ("F103", LAST, AT[LAST])]
    assert report.records == LAST - 1


def test_a_payload_cut_by_the_end_is_told_after_other_damage_too(put_file: PutFile, told: Told) -> None:
    damaged = corrupt_length(DATA, 2)[:-3]
    report = rk.check(put_file(damaged))
    assert told(report) == [("F101", 2, AT[2]), ("F104", LAST, AT[LAST])]
    assert report.records == LAST - 1


def test_nothing_behind_the_end_of_the_file_is_taken_for_a_frame(put_file: PutFile, read_on: ReadOn) -> None:
    # Equal records leave equal headers behind in a buffer that is used again; a cut header at the end of
    # the file must not be completed by one of them.
    whole = frames([b"0123456789"] * 40)
    for left_bytes in range(12):
        damaged = corrupt_payload(whole, 38)[: 39 * 26 + left_bytes]
        for slab_bytes in (26, 40, 52, 64, 128, 260, 1000, 4096):
            payloads, failures = read_on(put_file(damaged), slab_bytes=slab_bytes)
            assert payloads == [b"0123456789"] * 38
            assert failures == [("F102", 38, 38 * 26)]


def test_a_search_does_not_take_a_frame_that_claims_too_much(put_file: PutFile, told: Told) -> None:
    data = frame(b"a") + b"noise" + claim_length(1 << 40) + frame(b"b")
    report = rk.check(put_file(data))
    assert told(report)[0] == ("F101", 1, 17)
    assert report.records == 2


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_damage_inside_a_compressed_file_is_passed_in_the_same_way(
    put_file: PutFile, told: Told, read_on: ReadOn, compress: Callable[[bytes, str], bytes], compression: str
) -> None:
    path = put_file(compress(corrupt_length(corrupt_payload(DATA, 2), 5), compression), "x.tfrecord.gz")
    assert told(rk.check(path)) == [("F102", 2, AT[2]), ("F101", 5, AT[5])]
    assert read_on(path)[0] == without(2, 5)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_larger_than_the_slab_are_read_and_passed_over(
    put_file: PutFile, told: Told, read_on: ReadOn, compress: Callable[[bytes, str], bytes], compression: str
) -> None:
    large = [bytes([i]) * (SLAB_BYTES + 1000 * i) for i in range(1, 4)]
    payloads = [b"small", large[0], large[1], b"small again", large[2], b"end"]
    framed = [_core.frame(payload) for payload in payloads]
    offsets = [sum(map(len, framed[:i])) for i in range(len(framed))]
    path = put_file(compress(b"".join(framed), compression), "good.tfrecord")
    assert read_on(path) == (payloads, [])

    # One large record with a bad payload, another with a bad length.
    bad_payload = changed(framed[1], SLAB_BYTES // 2)
    bad_length = changed(framed[4], 0)
    damaged = b"".join([framed[0], bad_payload, *framed[2:4], bad_length, framed[5]])
    path = put_file(compress(damaged, compression), "bad.tfrecord")
    report = rk.check(path)
    assert told(report) == [("F102", 1, offsets[1]), ("F101", 4, offsets[4])]
    assert read_on(path)[0] == [b"small", large[1], b"small again", b"end"]


DAMAGED = {
    "intact": DATA,
    "bad payloads": corrupt_payload(corrupt_payload(DATA, 1), 6),
    "bad lengths": corrupt_length(corrupt_payload(DATA, 4), 5),
    "dropped": drop_bytes(DATA, AT[3] + 14, AT[3] + 20),
    "inserted": insert_bytes(DATA, AT[3] + 3, b"inserted, and longer than a header"),
    "zeroed": zero_block(DATA, AT[3] + 20, AT[5] + 3),
    "claimed": DATA[: AT[2]] + claim_length(1 << 20) + DATA[AT[2] :],
    "cut in a header": corrupt_payload(DATA, 2)[: AT[LAST] + 7],
    "cut in a payload": corrupt_length(DATA, 1)[: AT[LAST] + 17],
}


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_where_the_slabs_end_changes_nothing(
    put_file: PutFile, read_on: ReadOn, compress: Callable[[bytes, str], bytes], damage: str, compression: str
) -> None:
    path = put_file(compress(DAMAGED[damage], compression))
    expected = read_on(path)
    assert len(expected[0]) >= LAST - 3
    for slab_bytes in (*range(1, 48), 63, 64, 65, 100, 255, 511):
        assert read_on(path, slab_bytes=slab_bytes) == expected

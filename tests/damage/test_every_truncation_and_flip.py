"""No damage, wherever it is, makes a reader give out a record that was not written."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rekord as rk
from rekord.testing import bit_flips, claim_length, frame_offsets, frames, truncations

PAYLOADS = [b"first", b"", b"\x00", bytes(range(40)), b"\x0a\x00", b"the last record of the file"]
DATA = frames(PAYLOADS)
# Where each record begins, and where the file ends: a failure after n records is at the n-th of these.
PLACES = [*frame_offsets(DATA), len(DATA)]

Read = Callable[[Path], tuple[list[bytes], rk.RekordError | None]]
PutFile = Callable[..., Path]
CheckDamage = Callable[[Path], tuple[list[bytes], rk.FormatError | None]]


@pytest.fixture
def check_damage(read: Read) -> CheckDamage:
    """Sees to what must hold of any damaged version of DATA, whatever its compression."""

    def check(path: Path) -> tuple[list[bytes], rk.FormatError | None]:
        delivered, failure = read(path)
        assert delivered == PAYLOADS[: len(delivered)]
        report = rk.check(path)
        assert report.ok is (failure is None)
        assert report.records >= len(delivered)
        if failure is None:
            return delivered, None
        assert isinstance(failure, rk.FormatError)
        where = failure.location
        assert (where.path, where.record, where.offset) == (str(path), len(delivered), PLACES[len(delivered)])
        first = next(finding for finding in report.findings if finding.severity == "error")
        assert (first.code, first.record, first.offset) == (failure.code, where.record, where.offset)
        return delivered, failure

    return check


def record_at(byte: int) -> int:
    return next(i for i, end in enumerate(PLACES[1:]) if byte < end)


def test_a_plain_file_cut_anywhere_is_a_prefix_and_says_where_it_was_cut(
    put_file: PutFile, check_damage: CheckDamage
) -> None:
    for data in truncations(DATA):
        delivered, failure = check_damage(put_file(data))
        if len(data) in PLACES:
            # Nothing in a file says how many records it should have.
            assert failure is None
            assert len(delivered) == PLACES.index(len(data))
        else:
            record = record_at(len(data))
            assert failure is not None
            assert failure.code == ("F103" if len(data) - PLACES[record] < 12 else "F104")
            assert len(delivered) == record


def test_a_plain_file_with_any_bit_flipped_says_which_record_is_damaged(
    put_file: PutFile, check_damage: CheckDamage
) -> None:
    for bit, data in bit_flips(DATA):
        delivered, failure = check_damage(put_file(data))
        record = record_at(bit // 8)
        assert failure is not None
        assert failure.code == ("F101" if bit // 8 - PLACES[record] < 12 else "F102")
        assert len(delivered) == record


def gzip_with_name(data: bytes) -> bytes:
    raw = io.BytesIO()
    with gzip.GzipFile("name", "wb", fileobj=raw, mtime=1) as file:
        file.write(data)
    return raw.getvalue()


@pytest.fixture(scope="module", params=["gzip", "gzip with a name", "two gzip members", "zlib"])
def compressed(request: pytest.FixtureRequest, compress: Callable[[bytes, str], bytes]) -> bytes:
    match request.param:
        case "gzip with a name":
            return gzip_with_name(DATA)
        case "two gzip members":
            return compress(DATA[:70], "gzip") + compress(DATA[70:], "gzip")
        case plain:
            return compress(DATA, plain)


def inflated(data: bytes) -> bytes | None:
    """What the standard library makes of it."""
    try:
        return gzip.decompress(data) if data[:1] == b"\x1f" else zlib.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


def test_a_compressed_file_cut_anywhere_is_a_prefix_and_says_where(
    put_file: PutFile, compressed: bytes, check_damage: CheckDamage
) -> None:
    assert check_damage(put_file(compressed)) == (PAYLOADS, None)
    between_members = compressed.find(b"\x1f\x8b\x08", 1)
    for data in truncations(compressed):
        delivered, failure = check_damage(put_file(data))
        if not data:
            assert (delivered, failure) == ([], None)
            continue
        assert failure is not None
        if len(data) == between_members:
            assert failure.code == "F104"  # the stream ends well, but within a record
        elif len(data) == between_members + 1:
            assert failure.code == "C203"  # one byte is not enough to be the beginning of a member
        elif len(data) < 24:
            # Too short to be told from a plain file, or from a text of one letter.
            assert failure.code in ("C202", "F103", "F118", "F120")
        else:
            assert failure.code == "C202"


def test_a_compressed_file_with_any_bit_flipped_gives_no_other_records(
    put_file: PutFile, compressed: bytes, check_damage: CheckDamage
) -> None:
    for _, data in bit_flips(compressed):
        delivered, failure = check_damage(put_file(data))
        if failure is None:
            # A time stamp, a name, the bits between the last symbol and the checksum: harmless.
            assert delivered == PAYLOADS
            assert inflated(data) == DATA


LENGTHS = [1 << 36, 1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("records_before", [0, 3])
def test_a_length_that_no_file_can_hold_is_not_believed(
    put_file: PutFile,
    compress: Callable[[bytes, str], bytes],
    length: int,
    compression: str,
    records_before: int,
    read: Read,
) -> None:
    at = PLACES[records_before]
    path = put_file(compress(DATA[:at] + claim_length(length, b"payload") + DATA[at:], compression))
    tracemalloc.start()
    try:
        delivered, failure = read(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert delivered == PAYLOADS[:records_before]
    assert failure is not None
    assert (failure.code, failure.location.record, failure.location.offset) == ("F105", records_before, at)
    assert peak_bytes < 8 << 20
    # The records behind it are found again.
    report = rk.check(path)
    assert [finding.code for finding in report.findings if finding.severity == "error"] == ["F105"]
    assert report.records == len(PAYLOADS)


def test_claimed_lengths_cost_no_memory_of_any_kind(put_file: PutFile, compress: Callable[..., bytes]) -> None:
    # In a process of its own, whose address space may grow by 64 MB and no more, native memory included.
    lengths = [1 << 31, *LENGTHS]
    paths = [
        str(put_file(compress(frames([b"good"]) + claim_length(length), compression), f"{length}.{compression}"))
        for length in lengths
        for compression in ("none", "gzip", "zlib")
    ]
    program = """
import resource, sys, rekord as rk
rk.check  # what it needs is loaded now, before there is a limit
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    finding = next(f for f in rk.check(path).findings if f.severity == "error")
    print(finding.code, finding.record, finding.offset)
"""
    if sys.platform != "linux":
        pytest.skip("needs /proc to know its own size")
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.split("\n")) == ("", ["F105 1 20"] * len(paths) + [""])

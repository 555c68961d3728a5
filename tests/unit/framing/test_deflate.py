"""Compressed record files: one stream, flushed between records, the same bytes for the same frames."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from rekord.errors import UsageError
from rekord.framing.deflate import FLUSH_BYTES, FlushPoint, open_frame_sink
from rekord.testing import frame, frame_offsets, frames

WBITS = {"gzip": 31, "zlib": 15}


def payloads(total_bytes: int, seed: int = 1) -> list[bytes]:
    """Payloads of very different lengths that compress a little."""
    chance = random.Random(seed)
    out: list[bytes] = []
    while sum(map(len, out)) < total_bytes:
        length = chance.choice([0, 1, 10, 700, 5_000, 300_000])
        out.append(chance.randbytes(length // 2) + bytes(length - length // 2))
    return out


def compressed(pieces: list[bytes], compression: str | None) -> tuple[bytes, list[FlushPoint]]:
    out = bytearray()
    sink = open_frame_sink(compression, out.extend)
    for piece in pieces:
        sink.write(piece)
    sink.finish()
    return bytes(out), sink.flush_points


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_the_stream_is_whole_for_any_reader(compression: str) -> None:
    data = frames(payloads(5 << 20))
    out, _ = compressed([data], compression)
    inflate = zlib.decompressobj(wbits=WBITS[compression])
    assert inflate.decompress(out) == data
    assert inflate.eof
    assert inflate.unused_data == b"", "one stream: TensorFlow stops at the end of the first"
    if compression == "gzip":
        assert gzip.decompress(out) == data


def test_a_gzip_header_has_no_name_and_no_time() -> None:
    out, _ = compressed([frame(b"abc")], "gzip")
    assert out[:4] == b"\x1f\x8b\x08\0"
    assert out[4:8] == bytes(4)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_flush_points_lie_between_records_and_can_be_entered(compression: str) -> None:
    data = frames(payloads(6 << 20))
    out, points = compressed([data], compression)
    starts = [*frame_offsets(data), len(data)]
    assert 3 <= len(points) <= 6
    before = 0
    for point in points:
        assert point.offset in starts
        assert point.offset - before >= FLUSH_BYTES
        # The first record that ends far enough is the one: no later one would do too.
        earlier = [start for start in starts if before < start < point.offset]
        assert not earlier or earlier[-1] - before < FLUSH_BYTES
        inflate = zlib.decompressobj(wbits=-15)
        assert inflate.decompress(out[point.compressed_offset :]) == data[point.offset :]
        before = point.offset


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("seed", range(5))
def test_the_bytes_do_not_depend_on_the_pieces(compression: str, seed: int) -> None:
    records = [frame(payload) for payload in payloads(4 << 20)]
    expected = compressed([b"".join(records)], compression)
    chance = random.Random(seed)
    pieces = []
    while records:
        count = chance.choice([0, 1, 2, 7, 40])
        pieces.append(b"".join(records[:count]))
        records = records[count:]
    assert compressed(pieces, compression) == expected


def test_one_record_longer_than_all_limits_is_one_piece() -> None:
    data = frame(bytes(3 * FLUSH_BYTES))
    _, points = compressed([data, frame(b"x")], "zlib")
    assert [point.offset for point in points] == [len(data)]


@pytest.mark.parametrize("compression", [None, "none", "gzip", "zlib"])
def test_no_records_are_an_empty_stream(compression: str | None) -> None:
    out, points = compressed([], compression)
    assert points == []
    if compression in WBITS:
        assert zlib.decompress(out, wbits=WBITS[compression]) == b""
    else:
        assert out == b""


@pytest.mark.parametrize("compression", [None, "none"])
def test_without_compression_frames_are_the_file(compression: str | None) -> None:
    data = frames([b"a", b"b"])
    assert compressed([data], compression) == (data, [])


@pytest.mark.parametrize(
    ("given", "do"),
    [("GZIP", 'compression="gzip"'), ("bz2", 'compression="gzip"'), (5, 'compression="gzip"')],
)
def test_another_compression_is_refused(given: object, do: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_frame_sink(given, print)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.do) == ("U605", do)

"""`rk.salvage`: every intact record into a new file, folder or dataset."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from faulty_storage import Crash, Fault, FaultyStorage
from pages import example

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.framing import deflate as compress_module
from rekord.framing.deflate import FlushPoint, open_frame_sink
from rekord.health.salvage import SalvageReport, salvage_into
from rekord.storage import local
from rekord.testing import (
    bit_flips,
    claim_length,
    corrupt_length,
    corrupt_payload,
    drop_bytes,
    frame,
    frame_offsets,
    frames,
    insert_bytes,
    truncations,
    zero_block,
)

PAYLOADS = [b"first", b"", b"\x00", bytes(range(40)), b"\x0a\x00", b"the last record of the file"]
DATA = frames(PAYLOADS)
PLACES = [*frame_offsets(DATA), len(DATA)]

PutFile = Callable[..., Path]


def without(*lost: int) -> list[bytes]:
    return [payload for i, payload in enumerate(PAYLOADS) if i not in lost]


def strays(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_an_intact_file_is_copied_byte_for_byte(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(DATA), tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == DATA
    assert (report.ok, report.kept, report.lost_records, report.gaps) == (True, 6, 0, [])


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_an_intact_compressed_file_is_copied_as_it_stands(
    put_file: PutFile, tmp_path: Path, compress: Callable[[bytes, str], bytes], compression: str
) -> None:
    path = put_file(compress(DATA, compression))
    report = rk.salvage(path, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == path.read_bytes()
    assert (report.ok, report.kept) == (True, 6)


def test_an_empty_file_is_whole(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(b""), tmp_path / "out")
    assert ((tmp_path / "out").read_bytes(), report.ok, report.kept) == (b"", True, 0)


def test_a_bad_payload_costs_exactly_its_record(put_file: PutFile, tmp_path: Path) -> None:
    path = put_file(corrupt_payload(DATA, 3))
    report = rk.salvage(path, tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == without(3)
    (gap,) = report.gaps
    assert (gap.path, gap.begin, gap.end, gap.code) == (str(path), PLACES[3], PLACES[4], "F102")
    assert (gap.message, gap.record, gap.left_by) == ("payload checksum does not match", 3, "skip")
    assert (report.kept, report.lost_records, report.resynchronised) == (5, 1, 0)
    document = report.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["kept"], document["lost_records"]) == (5, 1)
    assert {"path", "begin", "end", "message"} <= document["gaps"][0].keys()


def test_a_bad_length_is_left_by_search_and_marked(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(corrupt_length(DATA, 3)), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == without(3)
    (gap,) = report.gaps
    assert (gap.begin, gap.end, gap.code, gap.left_by) == (PLACES[3], PLACES[4], "F101", "search")
    assert (report.lost_records, report.resynchronised) == (None, 2)


def test_two_bad_records_side_by_side_are_two_gaps(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(corrupt_payload(corrupt_payload(DATA, 3), 4)), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == without(3, 4)
    assert [(gap.begin, gap.end) for gap in report.gaps] == [(PLACES[3], PLACES[4]), (PLACES[4], PLACES[5])]
    assert report.lost_records == 2


def test_a_record_that_moved_into_a_skipped_one_is_found(put_file: PutFile, tmp_path: Path) -> None:
    # As many bytes are missing as the next record has, so that a header stands where the broken one should end.
    data = frames([bytes(100), b"", b"last"])
    report = rk.salvage(put_file(drop_bytes(data, 50, 66)), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == [b"", b"last"]
    assert [(gap.begin, gap.end, gap.left_by) for gap in report.gaps] == [(0, 100, "search")]


def test_a_length_that_no_file_can_hold_is_a_gap(put_file: PutFile, tmp_path: Path) -> None:
    bad = claim_length(1 << 40, b"abc")
    report = rk.salvage(put_file(DATA + bad + DATA), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == PAYLOADS * 2
    assert [(gap.begin, gap.end, gap.code) for gap in report.gaps] == [(len(DATA), len(DATA) + len(bad), "F105")]


def test_a_block_of_zeros_is_no_record(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(zero_block(DATA, PLACES[1], PLACES[4])), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == without(1, 2, 3)
    assert [(gap.begin, gap.end) for gap in report.gaps] == [(PLACES[1], PLACES[4])]


def test_every_truncation_keeps_what_is_whole(put_file: PutFile, tmp_path: Path) -> None:
    for data in truncations(DATA):
        path, out = put_file(data), tmp_path / f"cut-{len(data)}"
        whole = sum(end <= len(data) for end in PLACES[1:])
        if whole == 0 and data:
            with pytest.raises(rk.RekordError) as caught:
                rk.salvage(path, out)
            assert caught.value.code in ("X540", "F118")  # a few zeros can be a text of one letter
            assert caught.value.location.path == str(path)
            assert not out.exists()
            continue
        report = rk.salvage(path, out)
        assert list(rk.records(out)) == PAYLOADS[:whole]
        assert [(gap.begin, gap.end) for gap in report.gaps] == (
            [] if len(data) in PLACES else [(PLACES[whole], len(data))]
        )
        assert report.lost_records == (0 if len(data) in PLACES else None)


@pytest.mark.slow
def test_every_flipped_bit_costs_one_record(put_file: PutFile, tmp_path: Path) -> None:
    for bit, data in bit_flips(DATA):
        out = tmp_path / f"flip-{bit}"
        report = rk.salvage(put_file(data), out)
        record = next(i for i, end in enumerate(PLACES[1:]) if bit // 8 < end)
        assert list(rk.records(out)) == without(record)
        (gap,) = report.gaps
        assert (gap.begin, gap.end) == (PLACES[record], PLACES[record + 1])
        in_header = bit // 8 - PLACES[record] < 12
        found = "search" if record < len(PAYLOADS) - 1 else None
        assert gap.left_by == (found if in_header else "skip")
        os.unlink(out)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.slow
def test_no_flipped_bit_of_a_compressed_file_brings_forth_other_records(
    put_file: PutFile, tmp_path: Path, compress: Callable[[bytes, str], bytes], compression: str
) -> None:
    for bit, data in bit_flips(compress(DATA, compression)):
        out = tmp_path / f"flip-{bit}"
        try:
            report = rk.salvage(put_file(data), out)
        except (rk.FormatError, rk.DatasetError):
            assert not out.exists()
            continue
        kept = list(rk.records(out))
        assert report.kept == len(kept)
        assert set(kept) <= set(PAYLOADS)


@pytest.mark.parametrize("payloads", [[b"abc"], []])
def test_bytes_that_look_like_another_format_hide_no_record(
    put_file: PutFile, tmp_path: Path, payloads: list[bytes]
) -> None:
    path = put_file(b"PAR1" + bytes(40) + frames(payloads))
    if payloads:
        report = rk.salvage(path, tmp_path / "out")
        assert (report.kept, [gap.code for gap in report.gaps]) == (1, ["F101"])
    else:
        with pytest.raises(rk.FrameError) as caught:
            rk.salvage(path, tmp_path / "out")
        assert (caught.value.code, caught.value.location.path) == ("F112", str(path))


def segmented(payloads: list[bytes], compression: str) -> tuple[bytes, list[FlushPoint]]:
    file = io.BytesIO()
    sink = open_frame_sink(compression, file.write)
    sink.write(frames(payloads))
    sink.finish()
    return file.getvalue(), sink.flush_points


LONG = [b"%05d " % i + hashlib.sha512(b"%d" % i).digest() * 4 for i in range(60)]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_reading_goes_on_at_the_next_flush_of_a_damaged_stream(
    put_file: PutFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(compress_module, "FLUSH_BYTES", 2000)
    data, points = segmented(LONG, compression)
    hurt, behind = points[1], points[2]
    at = hurt.compressed_offset + 40
    path = put_file(insert_bytes(drop_bytes(data, at, at + 100), at, bytes(37)))
    out = tmp_path / "out"
    report = rk.salvage(path, out)
    offsets = frame_offsets(frames(LONG))
    kept = list(rk.records(out))
    before = [LONG[i] for i, offset in enumerate(offsets) if offset < hurt.offset]
    after = [LONG[i] for i, offset in enumerate(offsets) if offset >= behind.offset]
    assert kept[: len(before)] == before
    assert kept[-len(after) :] == after
    gap = report.gaps[-1]
    assert (gap.left_by, report.lost_records) == ("search", None)
    assert gap.compressed_begin is not None
    assert gap.compressed_begin >= hurt.compressed_offset - 8
    assert gap.compressed_end == behind.compressed_offset - 63
    assert report.resynchronised >= len(after)
    assert rk.check(out).ok
    magic = {"gzip": b"\x1f\x8b", "zlib": b"\x78"}[compression]
    assert out.read_bytes().startswith(magic)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_stream_that_claims_to_end_at_a_flush_is_entered_behind_it(
    put_file: PutFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(compress_module, "FLUSH_BYTES", 2000)
    data, points = segmented(LONG, compression)
    point = points[2]
    after = [
        payload for payload, offset in zip(LONG, frame_offsets(frames(LONG)), strict=True) if offset >= point.offset
    ]
    # The bits before the mark: one of them says that this block is the last one.
    for bit in range((point.compressed_offset - 6) * 8, (point.compressed_offset - 4) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        out = tmp_path / f"out-{bit}"
        report = rk.salvage(put_file(bytes(broken)), out)
        assert list(rk.records(out))[-len(after) :] == after
        assert report.kept == len(LONG) or not report.ok  # some bits are padding


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_damage_of_the_very_first_bytes_costs_nothing(put_file: PutFile, tmp_path: Path, compression: str) -> None:
    data, _ = segmented(LONG, compression)
    for at in range(2 if compression == "zlib" else 3):
        broken = bytearray(data)
        broken[at] ^= 0x10
        out = tmp_path / f"out-{at}"
        report = rk.salvage(put_file(bytes(broken)), out)
        assert list(rk.records(out)) == LONG
        assert [(gap.begin, gap.end, gap.code) for gap in report.gaps] == [(0, 0, "C201")]


def test_the_members_behind_a_damaged_one_come_back(put_file: PutFile, tmp_path: Path) -> None:
    members = [bytearray(gzip.compress(frames(LONG[i : i + 20]), mtime=0)) for i in (0, 20, 40)]
    members[1][len(members[1]) // 2 :] = b"\xff" * 30
    path = put_file(b"".join(members))
    report = rk.salvage(path, tmp_path / "out")
    kept = list(rk.records(tmp_path / "out"))
    assert (kept[:20], kept[-20:]) == (LONG[:20], LONG[40:])
    assert report.gaps[-1].compressed_end == len(members[0]) + len(members[1])


@pytest.mark.parametrize("at", [-8, -1])
def test_a_wrong_checksum_around_good_records_costs_none(put_file: PutFile, tmp_path: Path, at: int) -> None:
    data = bytearray(gzip.compress(DATA, mtime=0))
    data[at] ^= 1
    report = rk.salvage(put_file(bytes(data)), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == PAYLOADS
    (gap,) = report.gaps
    assert (gap.code, gap.begin, gap.end, gap.lost_records) == ("C204", len(DATA), len(DATA), 0)
    assert (report.ok, report.lost_records) == (False, 0)


def test_a_stream_that_ends_early_keeps_what_came(put_file: PutFile, tmp_path: Path) -> None:
    data = gzip.compress(frames(LONG), mtime=0)
    report = rk.salvage(put_file(data[: len(data) // 2]), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == LONG[: report.kept]
    assert report.kept > 20
    (gap,) = report.gaps
    assert (gap.code, gap.left_by, gap.lost_records) == ("C202", None, None)
    assert gap.compressed_end == len(data) // 2


def test_a_bad_record_inside_intact_compression_costs_only_itself(put_file: PutFile, tmp_path: Path) -> None:
    report = rk.salvage(put_file(gzip.compress(corrupt_length(DATA, 2), mtime=0)), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == without(2)
    assert [(gap.begin, gap.end, gap.code) for gap in report.gaps] == [(PLACES[2], PLACES[3], "F101")]


def test_a_payload_that_is_a_compressed_record_file_is_not_entered(put_file: PutFile, tmp_path: Path) -> None:
    # Stored blocks: the inner file stands in the outer one as it is.
    inner = gzip.compress(frames([b"inner"] * 3), mtime=0)
    deflate = zlib.compressobj(0, wbits=31)
    outer = corrupt_length(frames([b"a", b"b", inner, b"c"]), 1)
    report = rk.salvage(put_file(deflate.compress(outer) + deflate.flush()), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == [b"a", inner, b"c"]
    assert len(report.gaps) == 1


def test_a_file_full_of_places_to_enter_costs_little(put_file: PutFile, tmp_path: Path) -> None:
    head = gzip.compress(frames([b"abc"] * 10), mtime=0)[:-8]
    for number, filling in enumerate((b"\0\0\xff\xff" * 50_000, b"\x1f\x8b\x08\0\0\0\0\0\0\xff" * 20_000)):
        storage = FaultyStorage()
        path = put_file(head + filling, f"{number}.gz")
        report = salvage_into(path, tmp_path / str(number), SalvageReport(), storage=storage)
        assert report.kept == 10
        assert storage.reads < 3_000


def test_gaps_of_many_files_are_reported_in_file_order(put_file: PutFile, tmp_path: Path) -> None:
    # The first file takes longest, so that others are finished before it.
    for number in range(8):
        many = frames([b"x" * 50_000] * (400 if number == 0 else 2))
        put_file(corrupt_payload(corrupt_payload(many, 0), 1), f"in/{number}.tfrecord")
    heard: list[str] = []
    report = salvage_into(
        tmp_path / "in", tmp_path / "out", SalvageReport(), on_gap=lambda gap: heard.append(gap.path)
    )
    expected = [f"{tmp_path}/in/{number}.tfrecord" for number in range(8) for _ in range(2)]
    assert heard == [gap.path for gap in report.gaps] == expected
    assert (report.files, report.kept, report.lost_records) == (8, 398, 16)
    assert list(rk.records(tmp_path / "out" / "0.tfrecord")) == [b"x" * 50_000] * 398


def test_a_folder_keeps_its_names(put_file: PutFile, tmp_path: Path) -> None:
    put_file(DATA, "in/a/x.tfrecord")
    bad = put_file(corrupt_payload(DATA, 1), "in/b/y.tfrecord")
    put_file(gzip.compress(DATA, mtime=0), "in/z.tfrecord.gz")
    put_file(b"no records", "in/notes.txt")
    pointer = put_file(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "in/lfs.tfrecord")
    report = rk.salvage(tmp_path / "in", tmp_path / "new" / "out")
    out = tmp_path / "new" / "out"
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert files == ["a/x.tfrecord", "b/y.tfrecord", "z.tfrecord.gz"]
    assert list(rk.records(out / "b" / "y.tfrecord")) == without(1)
    assert [(gap.path, gap.code, gap.begin) for gap in report.gaps] == [
        (str(bad), "F102", PLACES[1]),
        (str(pointer), "F110", 0),
    ]
    assert report.gaps[1].end == pointer.stat().st_size
    assert (report.files, report.kept, report.lost_records) == (4, 17, None)
    assert strays(tmp_path / "new") == []
    assert rk.check(out).ok


def test_a_pattern_becomes_a_folder(put_file: PutFile, tmp_path: Path) -> None:
    put_file(DATA, "in/train/0.tfrecord")
    put_file(DATA, "in/val/0.tfrecord")
    report = rk.salvage(str(tmp_path / "in" / "t*" / "*.tfrecord"), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["train"]
    assert (tmp_path / "out" / "train" / "0.tfrecord").read_bytes() == DATA
    assert report.kept == 6


def test_a_folder_without_one_intact_record_is_an_error(put_file: PutFile, tmp_path: Path) -> None:
    put_file(DATA[:10], "in/a.tfrecord")
    put_file(b"<html>", "in/b.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        rk.salvage(tmp_path / "in", tmp_path / "out")
    assert (caught.value.code, caught.value.location.path) == ("X540", str(tmp_path / "in"))
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("source", "out", "code"),
    [
        ("in", "in", "U631: output and input overlap"),
        ("in", "in/below", "U631: output and input overlap"),
        ("in", "link/below", "U631: output and input overlap"),
        ("in/x.tfrecord", "in/x.tfrecord", "U631: output and input overlap"),
        ("in/x.tfrecord", "in", "U631: output and input overlap"),
        ("in", "full", "U618: output already exists"),
        ("in", "empty", "U618: output already exists"),
        ("in/x.tfrecord", "full/y", "U618: output already exists"),
        ("in/x.tfrecord", "new/", "U605: output must be a file, because the input is one"),
        ("missing", "new", "X501"),
    ],
)
def test_a_place_that_is_not_new_is_refused_before_anything_is_read(
    put_file: PutFile, tmp_path: Path, source: str, out: str, code: str
) -> None:
    put_file(DATA, "in/x.tfrecord")
    put_file(b"mine", "full/y")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    storage = FaultyStorage()
    with pytest.raises(rk.RekordError) as caught:
        salvage_into(str(tmp_path / source), f"{tmp_path}/{out}", SalvageReport(), storage=storage)
    where = source if code == "X501" else out
    assert str(caught.value).startswith(code)
    assert caught.value.location.path == f"{tmp_path}/{where}"
    assert (storage.reads, storage.operations) == (0, [])
    assert (tmp_path / "full" / "y").read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == ["empty", "full", "in", "link"]


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.salvage(["a", "b"], tmp_path / "out")  # type: ignore[arg-type]
    assert caught.value.code == "U605"


SCHEMA = rk.Schema({"i": rk.Int64(), "label": rk.Label(["cat", "dog"]), "text": rk.Text()})
ROWS = [{"i": i, "label": i % 2, "text": f"row {i} " * 8} for i in range(90)]


@pytest.fixture(params=["none", "gzip", "tfds"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind = request.param
    rk.write(
        ROWS,
        tmp_path / "data",
        schema=SCHEMA,
        shards=3,
        compression="gzip" if kind == "gzip" else None,
        format="tfds" if kind == "tfds" else None,
        progress=False,
        workers=1,
    )
    return tmp_path / "data"


def shards(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if "-of-00003" in path.name)


def rows(folder: Path) -> list[int]:
    return list(rk.open(folder)["train"].to_arrow(columns=["i"])["i"].to_pylist())


def hurt(path: Path, *, record: int) -> None:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        path.write_bytes(gzip.compress(corrupt_payload(gzip.decompress(data), record), mtime=0))
    else:
        path.write_bytes(corrupt_payload(data, record))


def test_a_dataset_becomes_a_dataset_with_a_manifest_of_what_is_left(dataset: Path, tmp_path: Path) -> None:
    old = read_manifest(str(dataset))
    before = rows(dataset)
    hurt(shards(dataset)[1], record=4)
    report = rk.salvage(dataset, tmp_path / "out")
    assert (report.kept, report.lost_records, len(report.gaps)) == (89, 1, 1)
    new = read_manifest(str(tmp_path / "out"))
    assert new.parent == hashlib.sha256((dataset / "rekord.json").read_bytes()).hexdigest()
    assert new.plan != old.plan
    assert (new.schema, new.companions) == (old.schema, old.companions)
    part = new.splits["train"]
    assert (part.records, part.shards.records) == (89, [30, 29, 30])
    written = shards(tmp_path / "out")
    assert [path.name for path in written] == [path.name for path in shards(dataset)]
    assert part.shards.bytes == [path.stat().st_size for path in written]
    assert part.shards.digest == [f"blake3:{blake3(path.read_bytes()).hexdigest()}" for path in written]
    left = [i for i in before if i != before[34]]
    assert rows(tmp_path / "out") == left
    assert part.classes == {"label": {str(label): sum(ROWS[i]["label"] == label for i in left) for label in (0, 1)}}
    assert part.payload_bytes == sum(len(payload) for path in written for payload in rk.records(path))
    assert not [finding for finding in rk.check(tmp_path / "out").findings if finding.severity == "error"]
    for name in new.companions:
        same = (tmp_path / "out" / name).read_bytes() == (dataset / name).read_bytes()
        assert same is (name != "dataset_info.json")
    if "dataset_info.json" in new.companions:
        info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
        assert info["splits"][0]["shardLengths"] == ["30", "29", "30"]
        assert info["splits"][0]["numBytes"] == str(part.payload_bytes)


def test_a_shard_cut_between_records_or_gone_is_told_by_the_manifest(dataset: Path, tmp_path: Path) -> None:
    first, second, third = shards(dataset)
    data = first.read_bytes()
    if data[:2] == b"\x1f\x8b":
        inside = gzip.decompress(data)
        first.write_bytes(gzip.compress(inside[: frame_offsets(inside)[25]], mtime=0))
    else:
        first.write_bytes(data[: frame_offsets(data)[25]])
    second.unlink()
    third.write_bytes(b"<html>")
    report = rk.salvage(dataset, tmp_path / "out")
    assert [(gap.path, gap.code, gap.lost_records) for gap in report.gaps] == [
        (str(first), "X541", 5),
        (str(second), "X501", 30),
        (str(third), "F111", None),
    ]
    assert (report.kept, report.lost_records) == (25, 65)
    assert read_manifest(str(tmp_path / "out")).splits["train"].shards.records == [25, 0, 0]
    assert len(rows(tmp_path / "out")) == 25
    assert rk.check(tmp_path / "out").ok


def test_an_intact_dataset_stays_the_same_but_for_its_parent(dataset: Path, tmp_path: Path) -> None:
    report = rk.salvage(dataset, tmp_path / "out")
    assert (report.ok, report.kept) == (True, 90)
    old, new = read_manifest(str(dataset)), read_manifest(str(tmp_path / "out"))
    bare = {
        name: msgspec.structs.replace(part, blocks=None, shards=msgspec.structs.replace(part.shards, index=None))
        for name, part in old.splits.items()
    }
    assert new.splits == bare  # without the indexes, which are not salvaged
    assert rows(tmp_path / "out") == rows(dataset)


def test_a_manifest_that_cannot_be_used_is_a_gap_and_the_shards_go_by_their_names(
    dataset: Path, tmp_path: Path
) -> None:
    (dataset / "rekord.json").write_bytes(b"{")
    report = rk.salvage(dataset, tmp_path / "out")
    assert [(gap.path, gap.code, gap.lost_records) for gap in report.gaps] == [
        (str(dataset / "rekord.json"), "X515", 0)
    ]
    assert (report.kept, report.lost_records) == (90, 0)
    assert [path.name for path in shards(tmp_path / "out")] == [path.name for path in shards(dataset)]


def test_a_lost_companion_is_a_gap_and_no_longer_listed(dataset: Path, tmp_path: Path) -> None:
    (dataset / "schema.pbtxt").unlink()
    report = rk.salvage(dataset, tmp_path / "out")
    assert [(gap.path, gap.code) for gap in report.gaps] == [(str(dataset / "schema.pbtxt"), "X501")]
    assert "schema.pbtxt" not in read_manifest(str(tmp_path / "out")).companions


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("U618", "output already exists\n  where     repaired.tfrecord"),
        ("U631", "output and input overlap"),
        ("U605", "output must be a file"),
        ("X540", ""),
    ],
)
def test_the_example_on_a_page_is_what_is_said(
    code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    program, message = example(code, what)
    with pytest.raises(rk.RekordError) as caught:
        exec(program, {"rk": rk})
    assert caught.value.message == message


DEATHS: list[Fault] = ["crash", "short write then crash", "power loss"]


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("fault", [*DEATHS, "enospc", "eio"])
def test_dying_or_failing_at_any_step_leaves_all_or_nothing(
    put_file: PutFile, tmp_path: Path, kind: str, fault: Fault
) -> None:
    folder = put_file(corrupt_payload(DATA, 2), "in/a/x.tfrecord").parent.parent
    put_file(gzip.compress(corrupt_payload(DATA, 1), mtime=0), "in/y.tfrecord.gz")
    source = folder if kind == "folder" else folder / "a" / "x.tfrecord"

    def run(out: Path, storage: FaultyStorage) -> SalvageReport:
        return salvage_into(source, out, SalvageReport(), storage=storage)

    (tmp_path / "0").mkdir()
    whole = FaultyStorage()
    report = run(tmp_path / "0" / "out", whole)
    assert report.kept == (10 if kind == "folder" else 5)
    names = [operation.name for operation in whole.operations]
    assert names[-2:] == ["rename", "sync_folder"]
    for step in range(1, len(names) + 1):
        place = tmp_path / str(step)
        place.mkdir()
        storage = FaultyStorage(fail_at=step, fault=fault)
        if fault in DEATHS:
            with pytest.raises(Crash):
                run(place / "out", storage)
            assert len(storage.operations) == step, "a dead process does nothing more"
        else:
            with pytest.raises(rk.DatasetError) as caught:
                run(place / "out", storage)
            assert (caught.value.code, caught.value.found) == (
                "X504",
                os.strerror({"enospc": errno.ENOSPC, "eio": errno.EIO}[fault]),
            )
            assert str(caught.value.location.path).startswith(str(place))
            assert ".rekord" not in str(caught.value.location.path)
            assert strays(place) == []
        shown = step > len(names) - 1
        assert (place / "out").exists() is shown
        if not shown:
            assert run(place / "out", FaultyStorage()).kept == report.kept, "the next run is not in the way"
            if kind == "folder":
                assert strays(place) == []


@pytest.mark.parametrize("fault", ["crash", "enospc"])
@pytest.mark.concurrency
def test_dying_or_failing_while_a_thread_writes_leaves_all_or_nothing(
    put_file: PutFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(local, "WRITE_BYTES", 64)
    payloads = [bytes([i]) * 100 for i in range(20)]
    path = put_file(insert_bytes(frames(payloads), 116 * 4, b"between"), "in/x.tfrecord")
    whole = FaultyStorage()
    salvage_into(path, tmp_path / "whole", SalvageReport(), storage=whole)
    assert list(rk.records(tmp_path / "whole")) == payloads
    names = [operation.name for operation in whole.operations]
    assert names.count("write") > 1
    for step in range(1, len(names)):
        (tmp_path / str(step)).mkdir()
        storage = FaultyStorage(fail_at=step, fault=fault)
        with pytest.raises(Crash if fault == "crash" else rk.DatasetError):
            salvage_into(path, tmp_path / str(step) / "out", SalvageReport(), storage=storage)
        assert not (tmp_path / str(step) / "out").exists()
        if fault == "crash":
            assert len(storage.operations) == step, "a dead process does nothing more"
        else:
            assert strays(tmp_path / str(step)) == []
    assert "rekord-write-behind" not in {thread.name[:19] for thread in threading.enumerate()}


def test_a_disk_that_fails_while_reading_is_told_and_nothing_appears(put_file: PutFile, tmp_path: Path) -> None:
    put_file(corrupt_length(DATA, 1), "in/x.tfrecord")
    reads = FaultyStorage()
    salvage_into(tmp_path / "in", tmp_path / "whole", SalvageReport(), storage=reads)
    assert reads.reads > 1
    for number in range(1, reads.reads + 1):
        storage = FaultyStorage(fail_read_at=number)
        with pytest.raises(rk.DatasetError) as caught:
            salvage_into(tmp_path / "in", tmp_path / "out", SalvageReport(), storage=storage)
        assert (caught.value.code, caught.value.found) == ("X503", os.strerror(errno.EIO))
        assert sorted(os.listdir(tmp_path)) == ["in", "whole"]


def test_an_interrupt_leaves_nothing(put_file: PutFile, tmp_path: Path) -> None:
    put_file(corrupt_payload(DATA, 1), "in/x.tfrecord")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    for source in (tmp_path / "in", tmp_path / "in" / "x.tfrecord"):
        with pytest.raises(KeyboardInterrupt):
            salvage_into(source, tmp_path / "out", SalvageReport(), on_gap=interrupt)
        assert os.listdir(tmp_path) == ["in"]


def test_a_pipe_is_read_once_and_past_damage(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(corrupt_length(DATA, 2))
    report = rk.salvage(f"/dev/fd/{read_end}", tmp_path / "out")
    os.close(read_end)
    assert list(rk.records(tmp_path / "out")) == without(2)
    assert report.kept == 5


def test_frames_of_a_broken_record_are_not_taken_for_records(put_file: PutFile, tmp_path: Path) -> None:
    holder = bytearray(frame(frames([b"inner"])))
    holder[14] ^= 1
    report = rk.salvage(put_file(frames([b"a"]) + holder + frames([b"b"])), tmp_path / "out")
    assert list(rk.records(tmp_path / "out")) == [b"a", b"b"]
    assert report.lost_records == 1


def test_a_folder_is_not_salvaged_into_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    with rk.Writer(tmp_path / "in" / "a.tfrecord", rk.Schema({"x": rk.Int64()})) as writer:
        writer.write({"x": 1})
    with pytest.raises(rk.DatasetError) as caught:
        rk.salvage("in", "memory://bucket/out")
    assert (caught.value.code, caught.value.location.path) == ("X504", "memory://bucket/out")
    assert os.listdir(tmp_path) == ["in"]

"""The doctor on files whose bytes are wrong: compression, cuts, changes, and files that are something else."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

import rekord as rk
from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis
from rekord.testing import damage, wire

PAYLOADS = [wire.example_bytes({"id": [i], "name": [b"row %04d" % i]}) for i in range(300)]
GOOD = damage.frames(PAYLOADS)
OFFSETS = damage.frame_offsets(GOOD)
IS_IT = "corrupted record at 0 (Is this even a TFRecord file?)"


def seen(path: Path, data: bytes) -> Diagnoses:
    path.write_bytes(data)
    return rk.doctor(path)


def only(path: Path, data: bytes) -> Diagnosis:
    found = seen(path, data)
    assert len(found.diagnoses) == 1, found.diagnoses
    return found.diagnoses[0]


@pytest.mark.parametrize(("name", "data"), [("a.tfrecord", GOOD), ("a.tfrecord.gz", gzip.compress(GOOD))])
def test_an_intact_file_has_no_diagnosis(tmp_path: Path, name: str, data: bytes) -> None:
    found = seen(tmp_path / name, data)
    assert found.diagnoses == ()
    assert found.ok
    assert (found.files, found.records) == (1, 300)


def test_a_gzip_file_without_a_name_for_it_is_no_damage(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", gzip.compress(GOOD))
    assert (diagnosis.code, diagnosis.severity, diagnosis.records_affected) == ("H801", "note", 300)
    assert diagnosis.tensorflow_error == IS_IT
    assert 'compression_type="GZIP"' in diagnosis.do
    assert diagnosis.ruled_out == ("not damage: all records were read, and their checksums match",)


def test_a_zlib_file_asks_for_zlib(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", zlib.compress(GOOD))
    assert diagnosis.code == "H801"
    assert 'compression_type="ZLIB"' in diagnosis.do


def test_a_plain_file_that_is_named_gz_is_read_without_compression(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord.gz", GOOD)
    assert (diagnosis.code, diagnosis.severity, diagnosis.records_affected) == ("H802", "warning", 300)
    assert diagnosis.tensorflow_error == "inflate() failed with error -3: incorrect header check"
    assert 'compression_type=""' in diagnosis.do


@pytest.mark.parametrize(
    ("size", "block"), [(512, "512 bytes"), (1024 * 5, "512 bytes"), (4096, "4 KiB"), (8192, "4 KiB")]
)
def test_a_cut_at_a_whole_block_is_a_broken_copy(tmp_path: Path, size: int, block: str) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", GOOD[:size])
    assert diagnosis.code == "H803"
    assert any(f"is a multiple of {block}" in line for line in diagnosis.evidence)
    record = sum(offset < size for offset in OFFSETS) - 1
    assert diagnosis.records[0].record == record
    assert diagnosis.records[0].offset == OFFSETS[record]
    assert diagnosis.records_affected == 1
    assert "salvage" in diagnosis.do
    expected = f"truncated record at {OFFSETS[record]}' failed with Read less bytes than requested"
    assert diagnosis.tensorflow_error == (expected if size - OFFSETS[record] >= 12 else None)


@pytest.mark.parametrize("size", [1 << 16, 1 << 20])
def test_large_blocks_are_named_by_their_size(tmp_path: Path, size: int) -> None:
    data = damage.frames([wire.example_bytes({"x": [bytes([i]) * 300_000]}) for i in range(4)])
    diagnosis = only(tmp_path / "a.tfrecord", data[:size])
    assert diagnosis.code == "H803"
    assert any({1 << 16: "64 KiB", 1 << 20: "1 MiB"}[size] in line for line in diagnosis.evidence)


@pytest.mark.parametrize("record", [0, 150, 299])
@pytest.mark.parametrize("inside", [5, 15])
def test_a_cut_elsewhere_is_a_writer_that_never_finished(tmp_path: Path, record: int, inside: int) -> None:
    size = OFFSETS[record] + inside
    assert size % 512
    diagnosis = only(tmp_path / "a.tfrecord", GOOD[:size])
    if record == 0 and inside == 5:
        assert diagnosis.code in ("H805", "H808")
        return
    assert diagnosis.code == "H805"
    assert (diagnosis.records[0].record, diagnosis.records[0].offset) == (record, OFFSETS[record])
    if inside == 5:
        assert diagnosis.tensorflow_error is None
        assert "TensorFlow treats this as the end of the file, without an error" in diagnosis.evidence
    else:
        assert diagnosis.tensorflow_error is not None
        assert diagnosis.tensorflow_error.startswith(f"truncated record at {OFFSETS[record]}'")


def test_a_gzip_stream_without_its_end_was_never_closed(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord.gz", gzip.compress(GOOD)[:-5])
    assert diagnosis.code == "H805"
    assert diagnosis.tensorflow_error is None  # all records are there, and TensorFlow looks no further
    assert "300 records before it are intact" in diagnosis.evidence


def test_a_gzip_file_that_was_cut_says_what_tensorflow_says(tmp_path: Path) -> None:
    data = gzip.compress(GOOD, 1)
    diagnosis = only(tmp_path / "a.tfrecord.gz", data[: len(data) // 1024 * 512])
    assert diagnosis.code == "H803"
    place = diagnosis.records[0]
    assert place.record is not None
    assert place.offset == OFFSETS[place.record]
    assert diagnosis.tensorflow_error in (
        None,
        f"truncated record at {place.offset}' failed with EOF reached",
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("record", [0, 150, 299])
def test_a_changed_payload_is_a_change_in_place(tmp_path: Path, record: int, packed: bool) -> None:
    data = damage.corrupt_payload(GOOD, record)
    name = "a.tfrecord.gz" if packed else "a.tfrecord"
    diagnosis = only(tmp_path / name, gzip.compress(data) if packed else data)
    assert (diagnosis.code, diagnosis.records_affected) == ("H804", 1)
    assert (diagnosis.records[0].record, diagnosis.records[0].offset) == (record, OFFSETS[record])
    assert diagnosis.tensorflow_error == f"corrupted record at {OFFSETS[record] + 12}"
    if record < 299:
        assert "not truncation: intact records follow the damage" in diagnosis.ruled_out
        assert f"the next frame, at byte {OFFSETS[record + 1]:,}, is intact" in diagnosis.evidence
    if packed:
        assert any("its own checksum matches" in line for line in diagnosis.ruled_out)


@pytest.mark.parametrize("record", [0, 150])
def test_a_changed_length_is_a_change_in_place(tmp_path: Path, record: int) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", damage.corrupt_length(GOOD, record))
    assert diagnosis.code == "H804"
    assert diagnosis.records[0].offset == OFFSETS[record]
    assert diagnosis.tensorflow_error == (IS_IT if record == 0 else f"corrupted record at {OFFSETS[record]}")


def test_many_changes_are_one_diagnosis(tmp_path: Path) -> None:
    broken = bytearray(GOOD)
    for record in range(0, 300, 10):
        broken[OFFSETS[record] + 20] ^= 1
    diagnosis = only(tmp_path / "a.tfrecord", bytes(broken))
    assert (diagnosis.code, diagnosis.records_affected) == ("H804", 30)
    assert "30 places in the file, 270 records intact" in diagnosis.evidence
    assert len(diagnosis.records) == 3


def test_a_lost_block_is_seen_by_its_zeros(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", damage.zero_block(GOOD, 4096, 8192))
    assert diagnosis.code == "H804"
    assert any("is zero there, as after a lost block" in line for line in diagnosis.evidence)
    assert diagnosis.likely == "a block of the file was lost"


def test_zeros_up_to_the_end_were_reserved_and_never_written(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", GOOD + bytes(5000))
    assert (diagnosis.code, diagnosis.records[0].offset) == ("H806", len(GOOD))
    assert f"the last 5,000 bytes of {len(GOOD) + 5000:,} are zero" in diagnosis.evidence
    assert diagnosis.tensorflow_error == f"corrupted record at {len(GOOD)}"


def test_zeros_and_a_changed_record_are_two_diagnoses(tmp_path: Path) -> None:
    found = seen(tmp_path / "a.tfrecord", damage.corrupt_payload(GOOD, 7) + bytes(5000))
    assert {diagnosis.code for diagnosis in found.diagnoses} == {"H804", "H806"}


def test_a_git_lfs_pointer_is_fetched(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    diagnosis = only(tmp_path / "a.tfrecord", pointer)
    assert (diagnosis.code, diagnosis.severity, diagnosis.records_affected) == ("H807", "error", 0)
    assert diagnosis.do.startswith("git lfs pull")
    assert diagnosis.tensorflow_error == IS_IT


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"<!DOCTYPE html><html>404</html>", "an HTML page"),
        (b"PAR1" + bytes(100), "Parquet"),
        (b"PK\x03\x04" + bytes(100), "a zip archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
    ],
)
def test_another_format_is_named(tmp_path: Path, data: bytes, named: str) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", data)
    assert diagnosis.code == "H808"
    assert any(named in line for line in diagnosis.evidence)
    assert diagnosis.tensorflow_error == IS_IT


def test_random_bytes_are_no_record_file(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", bytes(range(1, 251)) * 20)
    assert (diagnosis.code, diagnosis.likely) == ("H808", None)


def test_zstd_is_a_compression_that_tensorflow_does_not_read(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord", b"\x28\xb5\x2f\xfd" + bytes(100))
    assert (diagnosis.code, diagnosis.do) == ("H810", "zstd -d FILE")


def test_a_wrong_checksum_at_the_end_of_gzip_is_damage_of_the_stream(tmp_path: Path) -> None:
    data = gzip.compress(GOOD)
    diagnosis = only(tmp_path / "a.tfrecord.gz", data[:-8] + b"abcd" + data[-4:])
    assert diagnosis.code == "H809"
    assert diagnosis.tensorflow_error == "inflate() failed with error -3: incorrect data check"


def test_bytes_behind_gzip_are_said(tmp_path: Path) -> None:
    diagnosis = only(tmp_path / "a.tfrecord.gz", gzip.compress(GOOD) + b"junk junk")
    assert diagnosis.code == "H809"
    assert diagnosis.likely == "something was appended to the file"


def test_text_payloads_are_another_message_and_no_error_unless_parsed(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    found = seen(path, damage.frames([b"the %d th line of a text" % i for i in range(20)]))
    assert [(each.code, each.severity, each.records_affected) for each in found.diagnoses] == [("H811", "note", 20)]
    assert found.ok
    wanted = rk.doctor(path, schema=rk.Schema({"label": rk.Int64()})).diagnoses
    assert (wanted[0].code, wanted[0].severity) == ("H811", "error")


@pytest.mark.parametrize("record", [0, 150, 299])
def test_payloads_that_protobuf_refuses_are_one_diagnosis(tmp_path: Path, record: int) -> None:
    payloads = list(PAYLOADS)
    payloads[record] = payloads[record][:-3]
    diagnosis = next(
        each for each in seen(tmp_path / "a.tfrecord", damage.frames(payloads)).diagnoses if each.code == "H813"
    )
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (1, record)
    assert any("so they were written like this" in line for line in diagnosis.ruled_out)


def test_joined_examples_are_read_differently(tmp_path: Path) -> None:
    twice = wire.example_bytes({"a": [1]}) + wire.example_bytes({"a": [2]})
    diagnosis = only(tmp_path / "a.tfrecord", damage.frames([twice] * 30))
    assert (diagnosis.code, diagnosis.severity, diagnosis.records_affected) == ("H812", "warning", 30)


def test_the_same_trouble_in_several_files_is_one_diagnosis(tmp_path: Path) -> None:
    for shard in range(4):
        data = GOOD[:4096] if shard != 2 else GOOD
        (tmp_path / f"train-{shard:05d}-of-00004.tfrecord").write_bytes(data)
    found = rk.doctor(tmp_path)
    assert [diagnosis.code for diagnosis in found.diagnoses] == ["H803"]
    diagnosis = found.diagnoses[0]
    assert (diagnosis.files, diagnosis.records_affected, diagnosis.path) == (3, 3, str(tmp_path))
    assert diagnosis.evidence[0] == "3 of 4 files"


def test_a_missing_shard_is_said(tmp_path: Path) -> None:
    for shard in (0, 2):
        (tmp_path / f"train-{shard:05d}-of-00003.tfrecord").write_bytes(GOOD)
    assert "X505" in {diagnosis.code for diagnosis in rk.doctor(tmp_path).diagnoses}


def test_a_shard_that_the_manifest_lists_and_is_missing_is_said(tmp_path: Path) -> None:
    rows = [{"id": i} for i in range(30)]
    rk.write(rows, tmp_path / "data", schema=rk.Schema({"id": rk.Int64()}), shards=3, progress=False)
    next((tmp_path / "data").glob("*-00001-of-*")).unlink()
    (diagnosis,) = rk.doctor(tmp_path / "data").diagnoses
    assert diagnosis.code == "X505"
    assert diagnosis.title == "only 2 of 3 shards exist"


def test_a_file_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(GOOD)
    (tmp_path / "b.tfrecord").symlink_to(tmp_path / "loop")
    (tmp_path / "loop").symlink_to(tmp_path / "b.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        rk.doctor(tmp_path / "b.tfrecord")
    assert caught.value.code in ("X501", "X503")


def test_nothing_is_written(tmp_path: Path) -> None:
    data = damage.corrupt_payload(GOOD, 3)
    seen(tmp_path / "a.tfrecord", data)
    assert (tmp_path / "a.tfrecord").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]

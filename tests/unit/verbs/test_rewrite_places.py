"""Rewriting what lies elsewhere, and the thread that writes what was lent to it."""

import random

import fsspec
import pytest
from blake3 import blake3

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.storage.local import LENT_BUFFERS, LOCAL, AsyncWriter

SCHEMA = rk.Schema({"x": rk.Int64(), "name": rk.Text()})


@pytest.fixture
def elsewhere(tmp_path):
    rk.write(
        [{"x": i, "name": str(i)} for i in range(50)],
        tmp_path / "in",
        schema=SCHEMA,
        shards=3,
        progress=False,
    )
    storage = fsspec.filesystem("memory")
    storage.put(str(tmp_path / "in"), "/rewrite/in", recursive=True)
    yield "memory://rewrite/in"
    storage.rm("/rewrite", recursive=True)


def test_a_dataset_elsewhere_is_copied_changed_and_split(elsewhere, tmp_path):
    copied = rk.rewrite(elsewhere, tmp_path / "copied", shards=2, progress=False)
    assert [row["x"] for row in copied["train"]] == list(range(50))
    changed = rk.rewrite(elsewhere, tmp_path / "changed", rename={"x": "y"}, workers=1, progress=False)
    assert [row["y"] for row in changed["train"]] == list(range(50))
    folded = rk.split(elsewhere, tmp_path / "folded", folds=2, progress=False)
    assert sorted(row["x"] for split in folded.splits.values() for row in split) == list(range(50))


def test_a_place_elsewhere_is_not_written_to(elsewhere):
    with pytest.raises(rk.DatasetError) as caught:
        rk.rewrite(elsewhere, "memory://rewrite/out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X504", "memory://rewrite/out")


def test_what_is_given_and_what_is_lent_is_written_in_its_order(tmp_path):
    chance = random.Random(7)
    expected = b""
    file = LOCAL.create(str(tmp_path / "file"))
    buffers = [bytearray(100_000) for _ in range(LENT_BUFFERS)]
    with AsyncWriter(file, hashed=True) as output:
        lent = 0
        for _ in range(200):
            data = chance.randbytes(chance.randrange(100_000))
            expected += data
            if chance.random() < 0.3:
                output.write(data)
            else:
                view = memoryview(buffers[lent % LENT_BUFFERS])[: len(data)]
                view[:] = data
                output.write_borrowed(view)
                lent += 1
        output.finish()
        file.fsync()
    file.close()
    assert (tmp_path / "file").read_bytes() == expected
    assert output.n_bytes == len(expected)
    assert output.digest == f"blake3:{blake3(expected).hexdigest()}"


def test_what_tfds_is_to_open_is_not_compressed_unless_asked_for(tmp_path):
    schema = rk.Schema({"x": rk.Int64()})
    rows = [{"x": i} for i in range(20)]
    rk.write(rows, tmp_path / "in", schema=schema, compression="gzip", progress=False)
    rk.rewrite(tmp_path / "in", tmp_path / "new", format="tfds", progress=False)
    rk.split(tmp_path / "in", tmp_path / "folds", folds=2, format="tfds", progress=False)
    for name in ("new", "folds"):
        parts = read_manifest(str(tmp_path / name)).splits.values()
        assert {part.compression for part in parts} == {"none"}
        assert sum(part.records for part in parts) == 20
    with pytest.raises(rk.UsageError) as caught:
        rk.rewrite(tmp_path / "in", tmp_path / "packed", format="tfds", compression="gzip", progress=False)
    assert (caught.value.code, caught.value.what) == ("U676", "TFDS dataset cannot be compressed")


def test_a_run_that_finished_no_shard_leaves_nothing_behind(tmp_path):
    rk.write([{"x": i, "name": str(i)} for i in range(20)], tmp_path / "in", schema=SCHEMA, progress=False)
    shard = tmp_path / "in" / "train-00000-of-00001.tfrecord"
    content = bytearray(shard.read_bytes())
    content[14] ^= 1
    shard.write_bytes(content)
    with pytest.raises(rk.FrameError) as caught:
        rk.rewrite(tmp_path / "in", tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path, caught.value.location.record) == (
        "F102",
        str(shard),
        0,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]

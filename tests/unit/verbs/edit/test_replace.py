"""Edits in place: the new dataset by the name of the old one, and nothing left of that."""

import hashlib
import os
import shutil
from contextlib import suppress

import pytest
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.storage.transaction import Transaction
from rekord.verbs.edit import common
from rekord.verbs.edit.change import delete_records
from rekord.verbs.edit.common import EditTarget
from rekord.verbs.options import DeleteOptions

SCHEMA = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog", "cow"])})


@pytest.fixture
def path(tmp_path):
    rows = [{"x": i, "label": i // 100} for i in range(300)]
    rk.write(rows, tmp_path / "in", schema=SCHEMA, shards=6, progress=False)
    return tmp_path / "in"


def delete(path, where="x = 3"):
    return rk.delete(path, where=where, replace=True, progress=False)


def numbers(dataset):
    return [int(row["x"]) for row in dataset["train"]]


def test_the_new_dataset_has_the_name_of_the_old_one_and_its_files(path, tmp_path):
    inodes = [os.stat(one).st_ino for one in rk.open(path)["train"].paths]
    parent = hashlib.sha256((path / "rekord.json").read_bytes()).hexdigest()
    elsewhere = rk.delete(path, tmp_path / "out", where="x = 3", progress=False)
    made = delete(path)
    assert [os.stat(one).st_ino for one in made["train"].paths][1:] == inodes[1:]
    assert os.stat(made["train"].paths[0]).st_ino != inodes[0]
    assert numbers(made) == numbers(elsewhere) == [i for i in range(300) if i != 3]
    assert read_tree(path) == read_tree(tmp_path / "out")
    assert read_manifest(str(path)).parent == parent
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    assert rk.check(path).findings == []


def test_edits_in_place_follow_each_other(path, tmp_path):
    delete(path)
    rk.append(path, [{"x": 1000, "label": "cow"}], replace=True, progress=False)
    made = rk.relabel(path, None, {"dog": "cat"}, replace=True, progress=False)
    assert numbers(made)[-1] == 1000
    assert made.schema["label"].names == ("cat", "cow")
    assert rk.check(path).findings == []
    assert os.listdir(tmp_path) == ["in"]


def test_where_nothing_matches_the_dataset_stays_the_very_same(path, tmp_path):
    before, inode = read_tree(path), os.stat(path).st_ino
    done = delete_records(path, EditTarget(out=None), DeleteOptions(where="x = 1000"))
    assert (done.nothing_to_do, done.counts) == (True, {"train": 0})
    assert (read_tree(path), os.stat(path).st_ino) == (before, inode)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    "name", ["notes.txt", "folder/file", ".rekord/mine", ".rekord/index/more.arrow", "train.tfrecord"]
)
def test_files_of_others_are_never_lost(path, tmp_path, name):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text("mine")
    before = read_tree(path)
    with pytest.raises(rk.UsageError) as caught:
        delete(path)
    assert (caught.value.code, caught.value.what) == (
        "U618",
        "dataset to replace contains files that rekord did not write",
    )
    assert caught.value.location.path == str(path / (name if "." in name.split("/")[0] else "folder"))
    assert read_tree(path) == before
    assert os.listdir(tmp_path) == ["in"]
    assert rk.delete(path, tmp_path / "out", where="x = 3", progress=False).records == 299


def test_a_file_that_comes_at_the_last_moment_is_kept_beside(path, tmp_path, monkeypatch):
    check, checks = common.check_owned_files, []

    def checked_and_then_added(folder, manifest, storage):
        check(folder, manifest, storage)
        checks.append(folder)
        if len(checks) == 2:  # the check before the edit, and the one before the swap
            (path / "late.txt").write_text("mine")

    monkeypatch.setattr(common, "check_owned_files", checked_and_then_added)
    done = delete_records(path, EditTarget(out=None), DeleteOptions(where="x = 3"))
    assert done.left is not None
    assert read_tree(done.left) == {"late.txt": b"mine"}
    assert os.path.basename(done.left).startswith(".in.rekord-old-")
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(done.left), "in"]
    assert "late.txt" not in os.listdir(path)


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(path, tmp_path):
    (tmp_path / "place").mkdir()
    os.symlink(path, tmp_path / "place" / "link")
    made = delete(tmp_path / "place" / "link")
    assert os.path.islink(tmp_path / "place" / "link")
    assert made.records == rk.open(path).records == 299
    assert os.listdir(tmp_path / "place") == ["link"]


def test_a_dataset_that_changes_meanwhile_is_not_replaced(path, tmp_path):
    def meddling(batch):
        manifest = path / "rekord.json"
        if not manifest.read_bytes().endswith(b"\n\n"):
            manifest.write_bytes(manifest.read_bytes() + b"\n")
        return batch["x"] == 3

    with pytest.raises(rk.DatasetError) as caught:
        delete(path, meddling)
    assert (caught.value.code, caught.value.location.path) == ("X570", str(path))
    assert rk.open(path).records == 300
    assert delete(path).records == 299
    assert os.listdir(tmp_path) == ["in"]


def test_while_somebody_writes_to_it_a_dataset_is_not_replaced(path):
    with Transaction(path).lock(), pytest.raises(rk.DatasetError) as caught:
        delete(path)
    assert (caught.value.code, caught.value.location.path) == ("X512", str(path))
    assert delete(path).records == 299


def test_two_edits_at_once_are_refused(path, tmp_path):
    refused = []

    def second(batch):
        with pytest.raises(rk.DatasetError) as caught:
            delete(path)
        refused.append((caught.value.code, caught.value.location.path))
        return batch["x"] == 3

    delete(path, second)
    assert set(refused) == {("X512", str(path))}
    assert rk.open(path).records == 299


def test_who_reads_meanwhile_gets_what_was_there_or_is_told(path):
    """What is mapped stays; what is opened later is the same file, or an error."""
    running = iter(rk.open(path)["train"].batches(10, threads=1))
    first = next(running)["x"].tolist()
    known, fresh = rk.open(path)["train"], rk.open(path)["train"]
    assert known[0]["x"] == 0
    delete(path)
    # What it had mapped before stays; where it had not come yet, it is told.
    seen = list(first)
    with suppress(rk.DatasetError):
        for batch in running:
            seen += batch["x"].tolist()
    assert seen == list(range(len(seen)))
    for split, codes in ((known, ("X548",)), (fresh, ("X516", "X548"))):
        with pytest.raises(rk.DatasetError) as caught:
            split[0]
        assert caught.value.code in codes
        assert split[299]["x"] == 299  # a shard that is linked is the one that it was
    assert rk.open(path).records == 299


def test_a_remote_dataset_is_not_replaced():
    with pytest.raises(rk.UsageError) as caught:
        delete("s3://bucket/data")
    assert (caught.value.code, caught.value.location.path) == ("U651", "s3://bucket/data")


def test_a_split_that_was_opened_before_never_reads_new_labels_by_the_old_classes(path):
    before = rk.open(path)
    split = before["train"]
    rk.relabel(path, None, {"dog": "cat"}, replace=True, progress=False)  # `cow` becomes class 1, which was `dog`
    assert before.schema["label"].names == ("cat", "dog", "cow")
    for read in (
        lambda: split[299],
        lambda: list(split.batches(50)),
        lambda: list(split.batches(50, shuffle=True)),
    ):
        with pytest.raises(rk.DatasetError) as caught:
            read()
        assert caught.value.code == "X548"
        assert caught.value.location.path in split.paths


@pytest.mark.parametrize("change", [{"drop": ["x"]}, {"shards": 2}, {"where": "x > 3"}])
def test_a_dataset_that_was_opened_before_is_not_rewritten_from_what_replaced_it(path, tmp_path, change):
    before = rk.open(path)
    rk.relabel(path, None, {"dog": "cat"}, replace=True, progress=False)
    with pytest.raises(rk.DatasetError) as caught:
        rk.rewrite(before, tmp_path / "out", progress=False, **change)
    assert caught.value.code == "X548"
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_on_the_disk_is_said_of_the_dataset_itself(path, tmp_path, monkeypatch):
    full = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr("rekord.verbs.forecast.shutil.disk_usage", lambda place: full)
    before = read_tree(path)
    with pytest.raises(rk.DatasetError) as caught:
        delete(path)
    assert (caught.value.code, caught.value.location.path) == ("X519", str(path))
    with pytest.raises(rk.DatasetError) as caught:
        rk.rewrite(path, tmp_path / "new", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X519", str(tmp_path / "new"))
    assert read_tree(path) == before
    assert [name for name in os.listdir(tmp_path) if name != path.name] == []

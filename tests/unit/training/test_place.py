"""Where a run may lie, and what is refused before a framework is loaded or a file is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.training import run
from rekord.training.checkpoint import RunFolder, get_default_run_folder, prepare_run_folder

SCHEMA = rk.Schema({"x": rk.Float32(shape=(2,)), "label": rk.Label(2)})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset, and no framework: whatever gets as far as that fails in another way."""

    def load_keras(backend: str | None) -> None:
        raise AssertionError("Keras was loaded")

    monkeypatch.setattr(run, "load_keras", load_keras)
    rows = [{"x": [i, i % 7], "label": i % 2} for i in range(12)]
    rk.write(rows, tmp_path / "data", schema=SCHEMA, progress=False, workers=1)
    return tmp_path / "data"


def refusal(data: Path, out: Path | str, **requested: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        rk.train(data, out, **requested)
    return caught.value


@pytest.mark.parametrize("requested", [{}, {"fresh": True}, {"resume": True}])
@pytest.mark.parametrize("where", ["", "model", "deep/model"])
def test_a_run_never_lies_among_its_data(data: Path, where: str, requested: dict[str, Any]) -> None:
    before = sorted(data.rglob("*"))
    failure = refusal(data, data / where, **requested)
    assert (failure.code, failure.what) == ("U631", "run folder is inside the dataset")
    assert failure.location.path == str(data / where)
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("data/flowers", "flowers-model"),
        ("data/flowers/", "flowers-model"),
        ("flowers.tfrecord.gz", "flowers-model"),
        ("data/train-*.tfrecord", "train-model"),
        ("data/*.tfrecord", "dataset-model"),
        ("mnist/3.0.1", "mnist-model"),
        ("3.0.1", "3-model"),
        (".", "dataset-model"),
        ("s3://bucket/flowers", "flowers-model"),
    ],
)
def test_a_run_is_called_as_its_data(path: str, folder: str) -> None:
    assert get_default_run_folder(path) == folder


def test_a_link_to_the_data_is_the_data(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    assert str(refusal(data, tmp_path / "link" / "model", fresh=True)).startswith(
        "U631: run folder is inside the dataset"
    )
    assert str(refusal(tmp_path / "link", data / "model")).startswith("U631: run folder is inside the dataset")


def test_a_fresh_run_takes_no_folder_that_holds_something_else(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "metrics.json").write_text("of my own")
    (mine / "thesis.txt").write_text("of my own")
    failure = refusal(data, mine, fresh=True)
    assert (failure.code, failure.what, failure.found) == (
        "U618",
        "run folder contains other files",
        "thesis.txt",
    )
    assert failure.do == "pass another folder for the run"
    assert sorted(os.listdir(mine)) == ["metrics.json", "thesis.txt"]


def test_a_fresh_run_replaces_a_run_and_leaves_notes_beside_it(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("checkpoint.tfrecord", "model.keras", "predictions.arrow", "report.html", "notes.txt"):
        (out / name).write_text("old")
    prepare_run_folder(str(out), dataset=str(data), resume=False, fresh=True)
    assert os.listdir(out) == ["notes.txt"]


def test_what_a_killed_run_left_half_written_is_in_nobodys_way(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".rekord-staged-0123456789abcdef").write_bytes(b"half")
    prepare_run_folder(str(out), dataset=str(data), resume=False, fresh=False)
    assert os.listdir(out) == []


def test_a_remote_place_is_refused_and_no_folder_of_that_name_is_made(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(data, "s3://bucket/model").code == "X504"
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize(
    ("requested", "named"),
    [
        ({"image_size": (5, 5)}, "image_size"),
        ({"threads": 0}, "threads"),
        ({"checkpoint_steps": -1}, "checkpoint_steps"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_a_run_is_not_removed_for_another_that_cannot_begin(
    data: Path, tmp_path: Path, requested: dict[str, Any], named: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "checkpoint.tfrecord").write_text("old")
    failure = refusal(data, out, fresh=True, **requested)
    assert failure.code == "U605"
    assert f"`{named}`" in failure.what
    assert os.listdir(out) == ["checkpoint.tfrecord"]


@pytest.mark.parametrize("requested", [{"balance": True}, {"class_weights": True}])
def test_numbers_have_no_classes_to_balance(tmp_path: Path, data: Path, requested: dict[str, Any]) -> None:
    schema = rk.Schema({"x": rk.Float32(), "y": rk.Float32()})
    numbers = np.arange(12, dtype=np.float32)
    rk.write({"x": numbers, "y": 12 - numbers}, tmp_path / "numbers", schema=schema, progress=False, workers=1)
    failure = refusal(tmp_path / "numbers", tmp_path / "out", label="y", **requested)
    assert (failure.code, failure.found) == ("U605", "`y`, a number")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "train", "val"),
    [
        (["test", "train"], "train", "test"),
        (["dev", "test", "train", "val"], "train", "val"),
        (["tiny-test", "tiny-train"], "tiny-train", "tiny-test"),
        (["a_training", "a_valid"], "a_training", "a_valid"),
        (["other-train", "train"], "train", None),
        (["first", "second", "val"], "first", "val"),
        (["pretraining"], "pretraining", None),
        (["test"], "test", None),
    ],
)
def test_splits_are_chosen_by_their_names(names: list[str], train: str, val: str | None) -> None:
    class Ten(list[int]):
        def __init__(self, name: str) -> None:
            super().__init__(range(10))
            self.name = name

    class Dataset(dict[str, Ten]):
        splits = names

    found = run._select_splits(Dataset({name: Ten(name) for name in names}), None, None, None)
    assert (found.train.name, None if found.val is None else found.val.name) == (train, val)


def test_a_validation_split_without_records_holds_nothing_out(data: Path, tmp_path: Path) -> None:
    rows = [{"x": [i, i % 7], "label": i % 2} for i in range(3)]
    split = {"train": 0.98, "val": 0.01, "test": 0.01}
    rk.write(rows, tmp_path / "few", schema=SCHEMA, split=split, progress=False, workers=1)
    dataset = rk.open(tmp_path / "few")
    assert [len(dataset[name]) for name in ("train", "val", "test")] == [3, 0, 0]
    assert run._select_splits(dataset, None, None, None).val is None
    failure = refusal(tmp_path / "few", tmp_path / "out", validation="val")
    assert (failure.code, failure.what) == ("U608", "validation split `val` has no records")


class _Learner:
    """Writes by name, as Keras does."""

    def save(self, path: str) -> None:
        assert path.endswith(".keras")
        Path(path).write_bytes(b"model")


def test_a_model_is_published_as_every_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = RunFolder(str(tmp_path))
    run._save_model(_Learner(), place)  # type: ignore[arg-type]
    assert Path(place.model).read_bytes() == b"model"

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.unlink(place.model)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(rk.DatasetError) as caught:
        run._save_model(_Learner(), place)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.location.path) == ("X504", place.model)
    assert os.listdir(tmp_path) == []

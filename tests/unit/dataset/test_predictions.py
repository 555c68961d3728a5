"""`predictions.arrow`: what is written is read back, by any Arrow reader too; hostile files are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import rekord as rk
from rekord.dataset import predictions
from rekord.dataset.predictions import PredictionFacts, PredictionWriter, read_digests, read_predictions
from rekord.errors import RekordError

CLASSES = ("cat", "dog", "cow")
FACTS = PredictionFacts(task="classification", target="label", classes=CLASSES)


def write(path: Path, facts: PredictionFacts = FACTS) -> Path:
    with PredictionWriter(path, "class", facts) as writer:
        writer.add("val", 0, ["cat", "dog", "dog"], ["cat", "cat", "cat"], [0.9, 0.6, 0.8], [0.0, 0.2, 0.6])
        writer.add("val", 3, ["cow"], ["cow"], [0.5], [0.0])
        writer.add("test", 0, ["dog"], ["cat"], [1.0], [1.0])
    return path


def table(**changes: object) -> pa.Table:
    columns = {
        "split": pa.array(["val", "val"]),
        "record": pa.array([0, 1]),
        "truth": pa.array(["a", "b"]),
        "prediction": pa.array(["b", "b"]),
        "confidence": pa.array([0.5, 0.75]),
        **changes,
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})


def write_arrow(path: Path, content: pa.Table, **options: object) -> Path:
    with pa.ipc.new_file(path, content.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(content)
    return path


def test_rows_are_read_back_and_counted(tmp_path):
    found = read_predictions(write(tmp_path / "p.arrow"))
    assert (len(found), found.kind, found.splits, found.classes) == (5, "class", ("test", "val"), CLASSES)
    assert found.facts == FACTS
    assert found.confusion().tolist() == [[1, 0, 0], [3, 0, 0], [0, 0, 1]]
    assert found.confusion("val").tolist() == [[1, 0, 0], [2, 0, 0], [0, 0, 1]]
    assert found.cell("dog", "cat")["record"].to_pylist() == [0, 2, 1]
    assert found.cell("dog", "cat", "val").to_pylist() == [
        {"split": "val", "record": 2, "truth": "dog", "prediction": "cat", "confidence": 0.8, "error": 0.6},
        {"split": "val", "record": 1, "truth": "dog", "prediction": "cat", "confidence": 0.6, "error": 0.2},
    ]
    assert len(found.cell("dog", "unknown")) == 0


def test_other_tools_read_the_file(tmp_path):
    path = write(tmp_path / "p.arrow")
    assert pl.read_ipc(path).columns == ["split", "record", "truth", "prediction", "confidence", "error"]
    assert pl.read_ipc(path)["confidence"].to_list() == [0.9, 0.6, 0.8, 0.5, 1.0]
    assert pa.ipc.open_file(path).read_all()["record"].to_pylist() == [0, 1, 2, 3, 0]


def test_many_rows_are_written_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "_ROWS", 4)
    with PredictionWriter(tmp_path / "p.arrow", "number", PredictionFacts()) as writer:
        for first in range(0, 30, 3):
            writer.add("val", first, [1.0] * 3, [2.0] * 3, [None] * 3, [1.0] * 3)
    assert pa.ipc.open_file(tmp_path / "p.arrow").num_record_batches == 5
    found = read_predictions(tmp_path / "p.arrow")
    assert found.table["record"].to_pylist() == list(range(30))
    assert (found.kind, found.classes, found.confusion()) == ("number", (), None)


def test_lists_of_classes_have_no_confusion_matrix(tmp_path):
    with PredictionWriter(tmp_path / "p.arrow", "classes", PredictionFacts(classes=("b",))) as writer:
        writer.add("val", 0, [["a", "b"], []], [["b"], ["c"]], [0.5, 0.5], [1.0, 1.0])
    found = read_predictions(tmp_path / "p.arrow")
    assert (found.kind, found.classes, found.confusion()) == ("classes", ("b", "a", "c"), None)
    assert len(found.cell("a", "b")) == 0


def test_a_file_without_rows_and_a_folder_of_a_run_are_read(tmp_path):
    with PredictionWriter(tmp_path / "predictions.arrow", "class", FACTS):
        pass
    found = read_predictions(tmp_path)
    assert (len(found), found.splits, found.confusion().sum()) == (0, (), 0)
    with PredictionWriter(tmp_path / "e.arrow", "classes", PredictionFacts()):
        pass
    assert read_predictions(tmp_path / "e.arrow").classes == ()


def test_nothing_appears_if_predicting_fails(tmp_path):
    writer = PredictionWriter(tmp_path / "p.arrow", "class", FACTS)
    with pytest.raises(pa.ArrowException), writer:
        writer.add("val", 0, ["cat"], [3], [1.0], [0.0])
    assert list(tmp_path.iterdir()) == []


def test_predictions_of_another_version_of_a_dataset_are_recognised(tmp_path):
    rows = [{"label": i % 2} for i in range(6)]
    rk.write(rows, tmp_path / "data", schema=rk.Schema({"label": rk.Int64()}), split="val", progress=False)
    digests = read_digests(rk.open(tmp_path / "data").splits)
    with PredictionWriter(tmp_path / "p.arrow", "class", PredictionFacts(digests=digests)) as writer:
        writer.add("val", 0, ["cat"], ["cat"], [1.0], [0.0])
    found = read_predictions(tmp_path / "p.arrow")
    assert found.is_about(rk.open(tmp_path / "data")) is True
    rk.delete(tmp_path / "data", replace=True, records=[("val", 0)], progress=False)
    assert found.is_about(rk.open(tmp_path / "data")) is False
    shutil.rmtree(tmp_path / "data")
    rk.write(rows, tmp_path / "data", schema=rk.Schema({"label": rk.Int64()}), split="train", progress=False)
    assert found.is_about(rk.open(tmp_path / "data")) is False
    assert read_predictions(write_arrow(tmp_path / "q.arrow", table())).is_about(rk.open(tmp_path / "data")) is None


def test_files_of_other_tools_need_only_four_columns(tmp_path):
    found = read_predictions(write_arrow(tmp_path / "p.arrow", table(confidence=None)))
    assert (found.classes, found.confusion().tolist()) == (("a", "b"), [[0, 1], [0, 1]])
    assert found.cell("a", "b")["record"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"truth": None}, "a column `truth`"),
        ({"record": pa.array([0, 1], pa.int32())}, "`record` as int64"),
        ({"truth": pa.array([0, 1])}, "`truth` as string, list<item: string>, double"),
        ({"truth": pa.array([0.5, 1.0])}, "`truth` and `prediction` of one type"),
        ({"truth": pa.array(["a", "b"]).dictionary_encode()}, "`truth` as string, list<item: string>, double"),
        ({"more": pa.array([1, 2])}, "split, record, truth, prediction, confidence, error"),
        ({"split": pa.array(["val", None])}, "a value of `split` in each row"),
        ({"truth": pa.array(["a", None])}, "a value of `truth` in each row"),
        (
            {"truth": pa.array([["a"], [None]]), "prediction": pa.array([["a"], []], pa.list_(pa.string()))},
            "a value of `truth` in each row",
        ),
        ({"record": pa.array([0, -1])}, "record numbers ≥ 0"),
        ({"\x1b[2J": pa.array([1, 2])}, "split, record, truth, prediction, confidence, error"),
    ],
)
def test_other_columns_are_refused(tmp_path, changes, expected):
    path = write_arrow(tmp_path / "p.arrow", table(**changes))
    with pytest.raises(RekordError) as caught:
        read_predictions(path)
    assert (caught.value.code, caught.value.location.path) == ("X574", str(path))
    assert caught.value.expected == expected


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_which_could_become_gigabytes_are_refused(tmp_path, compression):
    zeros = pa.array([0.0] * 100_000)
    many = table(
        split=pa.array(["val"] * 100_000),
        record=pa.array(range(100_000)),
        truth=zeros,
        prediction=zeros,
        confidence=zeros,
    )
    path = write_arrow(tmp_path / "p.arrow", many, compression=compression)
    with pytest.raises(RekordError) as caught:
        read_predictions(path)
    assert (caught.value.code, caught.value.expected) == ("X574", "plain record batches")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "MAX_FILE_BYTES", 1000)
    path = write(tmp_path / "p.arrow")
    with pytest.raises(RekordError) as caught:
        read_predictions(path)
    assert (caught.value.code, caught.value.location.path) == ("X503", str(path))


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        read_predictions(tmp_path)
    assert caught.value.location.path == str(tmp_path / "predictions.arrow")


def test_no_truncation_is_taken_for_a_whole_file(tmp_path):
    whole = write(tmp_path / "p.arrow").read_bytes()
    for length in range(0, len(whole), 3):
        (tmp_path / "t.arrow").write_bytes(whole[:length])
        with pytest.raises(RekordError) as caught:
            read_predictions(tmp_path / "t.arrow")
        assert caught.value.code == "X574"


@pytest.mark.slow
def test_no_damage_ends_in_anything_but_an_error_or_valid_rows(tmp_path):
    facts = PredictionFacts(classes=CLASSES, digests={"val": "0" * 64})
    whole = write(tmp_path / "p.arrow", facts).read_bytes()
    codes = set()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF if at % 2 else 1 << at % 8
        (tmp_path / "d.arrow").write_bytes(damaged)
        try:
            found = read_predictions(tmp_path / "d.arrow")
            assert min(found.table["record"].to_pylist(), default=0) >= 0
            assert found.confusion() is None or found.confusion().sum() == len(found)
        except RekordError as failure:
            codes.add(failure.code)
    assert codes == {"X574"}

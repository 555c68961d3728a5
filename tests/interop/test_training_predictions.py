"""`predictions.arrow` of a run: what the loaded model predicts for each record, and the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.dataset.predictions import Predictions, read_predictions
from rekord.errors import UsageError
from rekord.training.result import TrainingResult

RNG = np.random.default_rng(0)
CLASSES = ["red", "green", "blue"]


def write(path: Path, rows: list[dict[str, Any]], schema: rk.Schema, **options: Any) -> Path:
    rk.write(rows, path, schema=schema, progress=False, workers=1, **options)
    return path


def picture(label: int) -> Any:
    pixels = RNG.integers(0, 120, (20, 24, 3))
    pixels[:, :, label] += 60
    return pixels.astype(np.uint8)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    folder = tmp_path_factory.mktemp("images")
    rows = [{"image": picture(i % 3), "label": i % 3} for i in range(120)]
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(CLASSES)})
    data = write(folder / "data", rows, schema, split={"train": 0.6, "val": 0.25, "test": 0.15})
    return data, rk.train(data, folder / "model", epochs=2, batch_size=16, learning_rate=0.01)


def read(trained: TrainingResult) -> Predictions:
    return read_predictions(trained.out)


def predicted(data: Path, trained: TrainingResult, split: str = "val") -> list[rk.Prediction]:
    """What the loaded model predicts for the stored records."""
    model = rk.load_model(trained.out)
    rows = [{name: row[name] for name in model.inputs} for row in rk.open(data)[split]]
    return model.predict(rows, transformed=True)


def test_classes_equal_those_of_the_loaded_model(images: tuple[Path, TrainingResult]) -> None:
    data, trained = images
    found, expected = read(trained), predicted(*images)
    assert found.table["split"].to_pylist() == ["val"] * len(expected)
    assert found.table["record"].to_pylist() == list(range(len(expected)))
    assert found.table["prediction"].to_pylist() == [one.value for one in expected]
    assert found.table["confidence"].to_pylist() == pytest.approx([one.probability for one in expected], abs=1e-5)
    assert found.table["truth"].to_pylist() == [CLASSES[row["label"]] for row in rk.open(data)["val"]]
    assert trained.confusion is not None
    assert found.classes == tuple(CLASSES)
    assert found.confusion().tolist() == trained.confusion.tolist()  # type: ignore[union-attr]
    assert found.is_about(rk.open(data)) is True
    wrong = {
        record
        for record, error in zip(*(found.table[name].to_pylist() for name in ("record", "error")), strict=True)
        if error
    }
    assert {one.record for one in trained.mistakes} <= wrong


def test_other_splits_are_predicted_on_request(
    images: tuple[Path, TrainingResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, _ = images
    out = tmp_path / "model"
    options = ["--epochs", "1", "--limit", "12", "--json", "--predictions", "test,train"]
    assert run_command_line(["train", str(data), str(out), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predictions"] == str(out / "predictions.arrow")
    found = read_predictions(document["predictions"])
    assert found.table["split"].to_pylist() == ["test"] * 12 + ["train"] * 12
    assert found.table["record"].to_pylist() == [*range(12), *range(12)]
    rk.train(data, out, epochs=1, limit=12, predictions="all", resume=True)
    again = read_predictions(out)
    assert sorted(set(again.table["split"].to_pylist())) == ["test", "train", "val"]
    before = {(row["split"], row["record"]): row["prediction"] for row in found.table.to_pylist()}
    after = {(row["split"], row["record"]): row["prediction"] for row in again.table.to_pylist()}
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize("names", ["", [], ["val", ""], 3, ["val", 3]])
def test_names_of_splits_are_checked(tmp_path: Path, names: Any) -> None:
    with pytest.raises(UsageError, match="`predictions` cannot be") as caught:
        rk.train(tmp_path, predictions=names)
    assert caught.value.code == "U605"


def test_an_unknown_split_is_refused_before_training(images: tuple[Path, TrainingResult], tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="tets"):
        rk.train(images[0], tmp_path / "model", predictions=["tets"])
    assert not (tmp_path / "model").exists()


def test_several_classes_are_lists_with_the_least_certain_answer(tmp_path: Path) -> None:
    rows = [{"x": [i % 2, i % 3 == 0, i % 5 == 0], "labels": [i % 2, i % 3 == 0, 0]} for i in range(90)]
    schema = rk.Schema({"x": rk.Float32(shape=(3,)), "labels": rk.MultiLabel(CLASSES)})
    data = write(tmp_path / "data", rows, schema, split={"train": 0.7, "val": 0.3})
    trained = rk.train(data, tmp_path / "model", epochs=2, learning_rate=0.05)
    found, expected = read(trained).table, predicted(data, trained)
    truth = [[name for name, has in zip(CLASSES, row["labels"], strict=True) if has] for row in rk.open(data)["val"]]
    assert found["truth"].to_pylist() == truth
    assert found["prediction"].to_pylist() == [list(one.value) for one in expected]
    shares = [list((one.probabilities or {}).values()) for one in expected]
    certain = [min(max(share, 1 - share) for share in row) for row in shares]
    assert found["confidence"].to_pylist() == pytest.approx(certain, abs=1e-5)


def test_numbers_have_no_confidence_and_an_absolute_error(tmp_path: Path) -> None:
    rows = [{"x": [i % 7, i % 3], "price": float(i % 7)} for i in range(90)]
    schema = rk.Schema({"x": rk.Float32(shape=(2,)), "price": rk.Float32()})
    data = write(tmp_path / "data", rows, schema, split={"train": 0.7, "val": 0.3})
    trained = rk.train(data, tmp_path / "model", label="price", epochs=1)
    found, expected = read(trained).table, predicted(data, trained)
    truth, numbers = [row["price"] for row in rk.open(data)["val"]], [one.value for one in expected]
    assert found["truth"].to_pylist() == truth
    assert found["prediction"].to_pylist() == pytest.approx(numbers, abs=1e-5)
    assert found["confidence"].null_count == len(truth)
    assert found["error"].to_pylist() == pytest.approx(
        [abs(a - b) for a, b in zip(truth, numbers, strict=True)], abs=1e-5
    )


def test_masks_are_the_classes_that_occur_and_the_mean_confidence_of_pixels(tmp_path: Path) -> None:
    rows = []
    for i in range(30):
        mask = np.zeros((32, 32), np.uint8)
        mask[: 8 + i % 8, :16] = 1 + i % 2
        mask[-2:] = 255
        rows.append({"image": np.stack([mask * 90] * 3, -1).astype(np.uint8), "mask": mask})
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3, ignore=255)})
    data = write(tmp_path / "data", rows, schema, split={"train": 0.6, "val": 0.4})
    trained = rk.train(data, tmp_path / "model", epochs=2, image_size=(32, 32), learning_rate=0.01)
    found, expected = read(trained).table, predicted(data, trained)
    held = next(iter(rk.open(data)["val"].batches(100, decode=True)))
    for row, (mask, one) in enumerate(zip(np.asarray(held["mask"]), expected, strict=True)):
        assert found["truth"][row].as_py() == [str(i) for i in np.unique(mask[mask != 255])]
        assert found["prediction"][row].as_py() == [str(i) for i in np.unique(one.value)]
        assert 1 / 3 <= found["confidence"][row].as_py() <= 1
    errors = dict(zip(found["record"].to_pylist(), found["error"].to_pylist(), strict=True))
    assert all(errors[one.record] == pytest.approx(1 - one.iou) for one in trained.mistakes)


def test_without_a_validation_split_the_training_split_is_predicted(tmp_path: Path) -> None:
    rows = [{"x": [i % 7, i % 2], "label": i % 2} for i in range(40)]
    schema = rk.Schema({"x": rk.Float32(shape=(2,)), "label": rk.Label(["even", "odd"])})
    data = write(tmp_path / "data", rows, schema)
    trained = rk.train(data, tmp_path / "model", epochs=1)
    found = read(trained)
    assert found.splits == ("train",)
    assert trained.confusion is not None
    assert found.confusion().tolist() == trained.confusion.tolist()  # type: ignore[union-attr]

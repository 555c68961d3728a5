"""The numbers of a run are those that Keras would give, and a checkpoint that lies is not believed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rekord as rk
from rekord.training import checkpoint, result
from rekord.training.inputs import BatchEncoder, ImageInput, TrainingStep
from rekord.training.loop import TrainingListener
from rekord.training.model import ModelTrainer, build_model
from rekord.training.result import StepTotals
from rekord.training.statistics import compute_class_weights
from rekord.training.task import InputColumn, Task

RNG = np.random.default_rng(0)
CLASSES = 4
IMAGE = (InputColumn("image", "image"),)
MASKS = Task("segmentation", IMAGE, "mask", ("0", "1", "2", "3"), ignore=255)


def masks(shape: tuple[int, ...], ignored: float) -> Any:
    """Random ids of three of four classes; a share of them is ignored."""
    ids = RNG.choice([0, 1, 3], shape)
    return np.where(RNG.random(shape) < ignored, 255, ids).astype(np.int32)


@pytest.mark.parametrize("weights", [None, np.array([0.5, 1.0, 2.0, 7.0], np.float32)])
@pytest.mark.parametrize("ignored", [0.0, 0.3, 1.0])
def test_the_loss_of_validation_is_that_of_training(ignored: float, weights: Any) -> None:
    true = masks((2, 8, 8), ignored)
    logits = (30 * RNG.normal(size=(2, 8, 8, CLASSES))).astype(np.float32)  # sure of itself, and often wrong
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    weighed = None if weights is None else weights[np.minimum(true, CLASSES - 1)]
    loss, count = result.compute_cross_entropy(logits, true, ignore=255, weights=weights)
    assert count == int((true != 255).sum())
    assert loss / max(count, 1) == pytest.approx(float(keras_loss(true, logits, weighed)), rel=1e-5)


def test_each_pixel_that_is_learned_counts_alike_whatever_its_batch_holds() -> None:
    encoder = BatchEncoder(MASKS, {"image": ImageInput("image", 16, 16, 3)})
    learner = ModelTrainer(keras, encoder, seed=0, learning_rate=1e-3, weights=None)
    totals, losses, counts = StepTotals(MASKS), [], []
    for ignored in (0.1, 0.95, 1.0):
        y = masks((2, 16, 16), ignored)
        image = RNG.integers(0, 255, (2, 16, 16, 3), np.uint8)
        losses.append(learner.train(TrainingStep({"image": image}, y, 2), totals))
        counts.append(int((y != 255).sum()))
    assert (totals.weight, totals.rows, losses[2]) == (sum(counts), 6, 0.0)
    assert totals.mean_loss == pytest.approx(np.average(losses, weights=counts))


@pytest.mark.parametrize("ignore", [None, 255])
def test_the_mean_over_classes_is_that_of_keras(ignore: int | None) -> None:
    true = masks((4, 16, 16), 0.0 if ignore is None else 0.2)
    said = RNG.choice([0, 1], true.shape)
    metric = keras.metrics.MeanIoU(CLASSES, ignore_class=ignore)
    metric.update_state(true, said)
    mean = result.compute_mean_iou(*result.count_by_class(true, said, CLASSES, ignore=ignore))
    assert mean == pytest.approx(float(metric.result()), abs=1e-6)
    matrix = result.compute_confusion(true, said, CLASSES, ignore=ignore)
    assert mean == result.compute_mean_iou(np.diag(matrix), matrix.sum(1), matrix.sum(0))


def test_images_of_an_odd_size_are_halved_too() -> None:
    task = Task("classification", IMAGE, "label", ("a", "b"))
    model = build_model(keras, BatchEncoder(task, {"image": ImageInput("image", 45, 63, 3)}), 0)
    assert sum(isinstance(layer, keras.layers.MaxPooling2D) for layer in model.layers) == 2
    assert model.output.shape == (None, 2)


def test_the_weights_of_classes_are_balanced_over_those_that_occur(tmp_path: Path) -> None:
    rows = [{"x": float(i), "label": "b" if i % 4 else "a"} for i in range(40)]
    schema = rk.Schema({"x": rk.Float32(), "label": rk.Text()})
    rk.write(rows, tmp_path / "texts", schema=schema, progress=False, workers=1)
    split = rk.open(tmp_path / "texts")["train"]
    task = Task("classification", (InputColumn("x", "numbers"),), "label", ("a", "b"), values=("a", "b"))
    weights = compute_class_weights(split, BatchEncoder(task, {}), seed=0, batch_size=8)
    assert weights.tolist() == pytest.approx([40 / (2 * 10), 40 / (2 * 30)])


def test_masks_of_nothing_but_what_is_ignored_are_refused(tmp_path: Path) -> None:
    image, mask = np.zeros((16, 16, 3), np.uint8), np.full((16, 16), 255, np.uint8)
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3, ignore=255)})
    rows = [{"image": image, "mask": mask}] * 4
    rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1)
    with pytest.raises(rk.UsageError) as caught:
        rk.train(tmp_path / "data", tmp_path / "run", epochs=1)
    assert (caught.value.code, caught.value.location.feature) == ("U608", "mask")
    assert caught.value.what == "all pixels of `mask` are ignored"
    assert caught.value.found == "only 255, the ignored id"


class Stop(TrainingListener):
    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        if (epoch, step) == (2, 2):
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, and a run that was stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    rows = [{"x": [i % 5, i % 7], "label": i % 2} for i in range(48)]
    schema = rk.Schema({"x": rk.Float32(shape=(2,)), "label": rk.Label(2)})
    split = {"train": 0.8, "val": 0.2}
    rk.write(rows, folder / "data", schema=schema, split=split, progress=False, workers=1)
    with pytest.raises(KeyboardInterrupt):
        rk.train(folder / "data", folder / "run", batch_size=8, watch=Stop())
    return folder


def copied(stopped: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(stopped, tmp_path / "copy")
    return tmp_path / "copy/data", tmp_path / "copy/run"


@pytest.mark.parametrize(
    "lie",
    [
        {"done": []},
        {"done": "none"},
        {"done": [{"number": 1}]},
        {"epoch": 7},
        {"epoch": None},
        {"reader": [1]},
        {"totals": {}},
        {"totals": {"loss": "much"}},
        {"confusion": [[1]]},
        {"confusion": [[2**70, 0], [0, 0]]},
        {"chance": "good"},
        {"compile_seconds": None},
    ],
)
def test_a_checkpoint_that_fits_its_checksums_and_nothing_else_is_damaged(
    stopped: Path, tmp_path: Path, lie: dict[str, Any]
) -> None:
    data, out = copied(stopped, tmp_path)
    path = str(out / "checkpoint.tfrecord")
    state, *variables = list(checkpoint._iter_rows(path))
    state["data"] = json.dumps({**json.loads(state["data"]), **lie}).encode()
    with rk.Writer(path, checkpoint._SCHEMA) as writer:
        for row in (state, *variables):
            writer.write(row)
    with pytest.raises(rk.DatasetError) as caught:
        rk.train(data, out, batch_size=8, resume=True)
    assert (caught.value.code, caught.value.location.path) == ("X575", path)


def test_a_compressed_checkpoint_is_not_inflated(stopped: Path, tmp_path: Path) -> None:
    data, out = copied(stopped, tmp_path)
    path = out / "checkpoint.tfrecord"
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(rk.DatasetError) as caught:
        rk.train(data, out, batch_size=8, resume=True)
    assert (caught.value.code, caught.value.found) == ("X575", "a compressed file")


def test_a_run_does_not_go_on_with_other_data_to_validate_on(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    data = tmp_path / "plain/data"
    data.mkdir()
    for name in os.listdir(stopped / "data"):
        if name.endswith(".tfrecord"):
            shutil.copy2(stopped / "data" / name, data)
    asked: dict[str, Any] = {"label": "label", "batch_size": 8}
    with pytest.raises(KeyboardInterrupt):
        rk.train(data, tmp_path / "run", watch=Stop(), **asked)
    held_out = next(data.glob("val*"))
    os.utime(held_out, ns=(0, 10**9))
    with pytest.raises(rk.UsageError) as caught:
        rk.train(data, tmp_path / "run", resume=True, **asked)
    assert caught.value.code == "U609"
    assert caught.value.what == "run was started with another validation dataset"

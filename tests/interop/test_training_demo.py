"""On the data of the demo, baselines are far better than chance, and stopped runs of images end as whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.cli.demo_data import draw_objects, draw_scenes
from rekord.training.loop import TrainingListener
from rekord.training.result import TrainingResult

SIGNS: dict[str, Any] = {"epochs": 6}
SCENES: dict[str, Any] = {"epochs": 3, "batch_size": 8, "image_size": (64, 64)}
FEW: dict[str, Any] = {"epochs": 2, "batch_size": 8, "limit": 40}  # where no score is looked at


class Stop(TrainingListener):
    """Ends a run in the middle of its second epoch, as Ctrl-C does."""

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        if (epoch, step) == (2, 3):
            raise KeyboardInterrupt


def told(trained: TrainingResult) -> list[tuple[Any, ...]]:
    return [(e.loss, e.score, e.val_loss, e.val_score, e.records) for e in trained.epochs]


@pytest.fixture(scope="module")
def signs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of four classes."""
    folder = tmp_path_factory.mktemp("signs")
    draw_objects(str(folder / "signs"), 600)
    split = {"train": 0.8, "val": 0.2}
    rk.write(folder / "signs", folder / "data", split=split, stratify="label", shuffle=True, progress=False)
    return folder / "data"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes with masks, in DeepLab's layout."""
    folder = tmp_path_factory.mktemp("scenes")
    draw_scenes(str(folder / "scenes"), 160)
    rows = rk.sources.segmentation(folder / "scenes/images", folder / "scenes/masks")
    layout, split = rk.layouts.deeplab(classes=5), {"train": 0.8, "val": 0.2}
    rk.write(rows, folder / "data", layout=layout, split=split, shuffle=True, progress=False)
    return folder / "data"


@pytest.fixture(scope="module")
def sign_run(signs: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(signs, tmp_path_factory.mktemp("run") / "signs", **SIGNS)


@pytest.fixture(scope="module")
def scene_run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(scenes, tmp_path_factory.mktemp("run") / "scenes", **SCENES)


@pytest.fixture(scope="module")
def few_signs(signs: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(signs, tmp_path_factory.mktemp("run") / "few", **{**SIGNS, **FEW})


@pytest.fixture(scope="module")
def few_scenes(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(scenes, tmp_path_factory.mktemp("run") / "few", **{**SCENES, **FEW})


def test_a_cnn_tells_four_classes_apart(sign_run: TrainingResult) -> None:
    assert sign_run.task.kind == "classification"
    assert {one.column for one in sign_run.task.inputs} == {"image"}
    assert sign_run.chance == 0.25
    assert sign_run.score >= 0.9


def test_an_encoder_and_decoder_finds_what_is_in_a_scene(scene_run: TrainingResult) -> None:
    assert (scene_run.task.kind, scene_run.task.metric, scene_run.task.ignore) == (
        "segmentation",
        "mIoU",
        255,
    )
    assert scene_run.chance is not None
    assert scene_run.chance < 0.25
    assert scene_run.score >= 0.6


def test_pixels_that_are_ignored_are_not_counted(scenes: Path, scene_run: TrainingResult) -> None:
    val = next(iter(rk.open(scenes)["val"].batches(1000, columns=["mask"], decode=True, resize=(64, 64))))
    masks = np.asarray(val["mask"])
    assert 0 < (masks == 255).sum() < masks.size
    assert scene_run.confusion is not None
    assert int(scene_run.confusion.sum()) == int((masks != 255).sum())
    assert scene_run.confusion.sum(1).tolist() == [int((masks == kind).sum()) for kind in range(5)]


@pytest.mark.parametrize("kind", ["signs", "scenes"])
def test_a_run_over_images_that_was_stopped_ends_as_one_that_was_not(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue(kind)
    whole: TrainingResult = request.getfixturevalue(f"few_{kind}")
    asked = {**(SIGNS if kind == "signs" else SCENES), **FEW}
    with pytest.raises(KeyboardInterrupt):
        rk.train(data, tmp_path / "run", watch=Stop(), **asked)
    again = rk.train(data, tmp_path / "run", resume=True, **asked)
    assert told(again) == told(whole)
    assert np.array_equal(again.confusion, whole.confusion)


def test_classes_of_pixels_can_be_weighed(scenes: Path, few_scenes: TrainingResult, tmp_path: Path) -> None:
    even = rk.train(scenes, tmp_path / "even", balance=True, **{**SCENES, **FEW, "epochs": 1})
    assert even.last.loss > 0
    assert even.last.loss != few_scenes.epochs[0].loss

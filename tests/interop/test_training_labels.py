"""Several labels per record: a baseline learns them, and a stopped run ends as a whole one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.training.loop import TrainingListener
from rekord.training.result import TrainingResult

ASKED: dict[str, Any] = {"epochs": 4, "batch_size": 16, "learning_rate": 0.01}
NAMES = np.array(["east", "north", "up"])


class Stop(TrainingListener):
    """Ends a run in its second epoch, as Ctrl-C does."""

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        if (epoch, step) == (2, 7):
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points, with the directions in which they lie; some lie in none."""
    points = np.random.default_rng(0).normal(size=(350, 6)).astype(np.float32)
    rows = [{"point": point, "sides": NAMES[point[:3] > 0].tolist()} for point in points]
    out = tmp_path_factory.mktemp("labels") / "data"
    columns = {"point": rk.Float32((6,))}
    rk.write(rows, out, columns=columns, label="sides", split={"train": 0.8, "val": 0.2}, workers=1, progress=False)
    return out


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(data, tmp_path_factory.mktemp("run") / "whole", **ASKED)


def test_a_baseline_with_several_labels_beats_chance(run: TrainingResult, data: Path) -> None:
    assert (run.task.kind, run.task.metric, run.task.classes) == ("multilabel", "mean F1", tuple(NAMES))
    shares = next(iter(rk.open(data)["val"].batches(1000)))["sides"].mean(0)
    # Always every class: a precision of its share, and a recall of 1.
    assert run.chance == pytest.approx((2 * shares / (1 + shares)).mean())
    assert run.chance is not None
    assert run.chance < 0.75
    assert run.score >= 0.9
    assert run.last.loss < run.epochs[0].loss / 2
    assert run.last.val_loss == pytest.approx(run.last.loss, abs=0.1)
    assert run.confusion is None


def test_the_scores_of_each_class_are_those_of_the_model_that_was_saved(run: TrainingResult, data: Path) -> None:
    import keras

    model = keras.saving.load_model(Path(run.out) / "model.keras")
    val = next(iter(rk.open(data)["val"].batches(1000)))
    predicted, true = model.predict_on_batch({"numbers": val["point"]}) > 0, val["sides"].astype(bool)
    both = (predicted & true).sum(0)
    assert [one.name for one in run.label_scores] == list(NAMES)
    assert [one.records for one in run.label_scores] == true.sum(0).tolist()
    assert [one.precision for one in run.label_scores] == pytest.approx((both / predicted.sum(0)).tolist())
    assert [one.recall for one in run.label_scores] == pytest.approx((both / true.sum(0)).tolist())
    f1 = 2 * both / (predicted.sum(0) + true.sum(0))
    assert [one.f1 for one in run.label_scores] == pytest.approx(f1.tolist())
    assert run.score == pytest.approx(f1.mean())
    assert all(one.average_precision is not None and one.average_precision > 0.9 for one in run.label_scores)
    assert run.to_dict()["labels"] == [asdict(one) for one in run.label_scores]
    page = (Path(run.out) / "report.html").read_text()
    assert "average precision" in page
    assert "always every class" in page
    assert "Confusion matrix" not in page


def test_a_stopped_run_ends_with_the_same_scores(run: TrainingResult, data: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        rk.train(data, tmp_path / "run", watch=Stop(), **ASKED)
    again = rk.train(data, tmp_path / "run", resume=True, **ASKED)
    assert again.label_scores == run.label_scores
    assert [(one.loss, one.score) for one in again.epochs] == [(one.loss, one.score) for one in run.epochs]
    # Nothing is left to train: the scores come from the checkpoint.
    assert rk.train(data, tmp_path / "run", resume=True, **ASKED).label_scores == run.label_scores


def test_lists_of_class_ids_and_balance_work_without_a_validation_split(data: Path, tmp_path: Path) -> None:
    rows = [
        {"point": row["point"], "ids": np.flatnonzero(row["sides"]).tolist()}
        for row in rk.open(data)["train"].take(200)
    ]
    schema = rk.Schema({"point": rk.Float32((6,)), "ids": rk.Label(NAMES.tolist(), shape=(None,))})
    rk.write(rows, tmp_path / "ids", schema=schema, workers=1, progress=False)
    run = rk.train(tmp_path / "ids", tmp_path / "run", label="ids", balance=True, **{**ASKED, "epochs": 2})
    assert (run.task.kind, run.task.classes, run.val_split) == ("multilabel", tuple(NAMES), None)
    assert [one.records for one in run.label_scores] == [sum(i in row["ids"] for row in rows) for i in range(3)]
    assert run.chance is not None
    assert run.score > run.chance


def test_class_weights_are_refused_for_several_labels(data: Path, tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.train(data, tmp_path / "run", class_weights=True)
    assert (caught.value.code, caught.value.what) == ("U605", "`class_weights` needs one class per record")
    assert str(caught.value.do).startswith("balance=True")
    assert not (tmp_path / "run").exists()


def test_a_loaded_model_predicts_the_names_of_all_likely_classes(run: TrainingResult) -> None:
    model = rk.load_model(run.out)
    both, none = model.predict([{"point": [4, 4, -4, 0, 0, 0]}, {"point": [-4, -4, -4, 0, 0, 0]}])
    assert (both.value, none.value, both.probability) == (("east", "north"), (), None)
    assert both.probabilities is not None
    assert both.probabilities["east"] > 0.5 > both.probabilities["up"]


def test_the_report_shows_records_with_a_wrong_class_first_by_how_wrong(run: TrainingResult) -> None:
    assert run.mistakes
    shares = [one.probability for one in run.mistakes]
    assert shares == sorted(shares, reverse=True)
    assert all(one.true != one.predicted for one in run.mistakes)
    report = (Path(run.out) / "report.html").read_text()
    assert f"<td>{run.mistakes[0].true}</td>" in report
    assert "prediction.probabilities" in report

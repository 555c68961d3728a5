"""Baselines train on Keras: they learn, a stopped run ends as a whole one, and what they leave can be used."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.training.loop import TrainingListener
from rekord.training.model import ModelTrainer
from rekord.training.result import TrainingResult

NUMBERS = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01}
STEPS = 18  # of 280 records by 16

SCRIPT = """
import json, sys
import rekord as rk
from rekord.training.loop import TrainingListener

class Stop(TrainingListener):
    def step(self, epoch, step, loss, score):
        if (epoch, step) == (2, 7):
            raise KeyboardInterrupt

data, folder, backend = sys.argv[1:]
asked = dict(epochs=2, batch_size=16, learning_rate=0.01, backend=backend)
whole = rk.train(data, f"{folder}/whole", **asked)
try:
    rk.train(data, f"{folder}/stopped", watch=Stop(), **asked)
except KeyboardInterrupt:
    pass
again = rk.train(data, f"{folder}/stopped", resume=True, **asked)
print(json.dumps([whole.to_dict(), again.to_dict()]))
"""


class Stop(TrainingListener):
    """Ends a run after so many steps, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self._left = after

    def step(self, epoch: int, step: int, loss: float, score: float) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


def told(trained: TrainingResult) -> list[tuple[Any, ...]]:
    """All of a run that is no time."""
    return [(e.number, e.loss, e.score, e.val_loss, e.val_score, e.steps, e.records) for e in trained.epochs]


def stopped_and_resumed(data: Path, out: Path, after: int, **asked: Any) -> TrainingResult:
    with pytest.raises(KeyboardInterrupt):
        rk.train(data, out, watch=Stop(after), **asked)
    assert sorted(os.listdir(out)) == ["checkpoint.tfrecord"]
    return rk.train(data, out, resume=True, **asked)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points whose quadrant is their class, one of them rare."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(350, 6)).astype(np.float32)
    points[:, 1] = np.abs(points[:, 1]) * np.where(rng.random(350) < 0.2, -1, 1)
    quadrant = (points[:, 0] > 0) + 2 * (points[:, 1] < 0)
    schema = rk.Schema({"point": rk.Float32(shape=(6,)), "label": rk.Label(["a", "b", "c", "d"])})
    out = tmp_path_factory.mktemp("numbers") / "data"
    rows = {"point": points, "label": quadrant.astype(np.int64)}
    split = {"train": 0.8, "val": 0.2}
    rk.write(rows, out, schema=schema, split=split, stratify="label", workers=1, progress=False)
    return out


@pytest.fixture(scope="module")
def whole_run(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return rk.train(numbers, tmp_path_factory.mktemp("run") / "whole", **NUMBERS)


def test_an_mlp_learns_what_chance_does_not_know(whole_run: TrainingResult) -> None:
    assert whole_run.task.kind == "classification"
    assert whole_run.task.classes == ("a", "b", "c", "d")
    assert whole_run.chance is not None
    assert whole_run.chance < 0.5
    assert whole_run.score >= 0.9
    assert whole_run.last.loss < whole_run.epochs[0].loss
    assert [epoch.records for epoch in whole_run.epochs] == [whole_run.train_records] * 3
    assert whole_run.confusion is not None
    assert int(whole_run.confusion.sum()) == whole_run.val_records
    assert np.trace(whole_run.confusion) / whole_run.val_records == whole_run.score


def test_the_time_of_waiting_is_part_of_the_time(whole_run: TrainingResult) -> None:
    assert all(0 < epoch.waited_seconds < epoch.seconds for epoch in whole_run.epochs)
    assert 0 < whole_run.waited_share < 1
    assert whole_run.compile_seconds > 0
    assert whole_run.first_batch_seconds > 0


@pytest.mark.parametrize("after", [1, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS + 7, 3 * STEPS])
def test_a_run_that_was_stopped_at_any_step_ends_as_one_that_was_not(
    numbers: Path, whole_run: TrainingResult, tmp_path: Path, after: int
) -> None:
    again = stopped_and_resumed(numbers, tmp_path / "run", after, **NUMBERS)
    assert told(again) == told(whole_run)
    assert np.array_equal(again.confusion, whole_run.confusion)


def test_a_run_that_was_stopped_while_it_validated_validates_again(
    numbers: Path, whole_run: TrainingResult, tmp_path: Path
) -> None:
    class InValidation(TrainingListener):
        def validated(self, step: int) -> None:
            if step == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rk.train(numbers, tmp_path / "run", watch=InValidation(), **NUMBERS)
    again = rk.train(numbers, tmp_path / "run", resume=True, **NUMBERS)
    assert told(again) == told(whole_run)


def test_a_finished_run_can_be_given_more_epochs(numbers: Path, whole_run: TrainingResult, tmp_path: Path) -> None:
    first = rk.train(numbers, tmp_path / "run", **{**NUMBERS, "epochs": 1})
    assert told(first) == told(whole_run)[:1]
    more = rk.train(numbers, tmp_path / "run", resume=True, **NUMBERS)
    assert told(more) == told(whole_run)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_another_backend_learns_and_resumes_alike(numbers: Path, tmp_path: Path, backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:rekord", "-c", SCRIPT, numbers, tmp_path, backend],
        capture_output=True,
        text=True,
        check=True,
        # Threads that wait for each other take longer than these few numbers.
        env={
            **os.environ,
            "KERAS_BACKEND": "",
            "OMP_NUM_THREADS": "1",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        },
    )
    whole, again = json.loads(done.stdout.splitlines()[-1])
    times = {"seconds", "waited_seconds", "timed_records"}
    assert whole["backend"] == again["backend"] == backend
    assert whole["score"] >= 0.8
    for one, other in zip(whole["epochs"], again["epochs"], strict=True):
        assert {k: v for k, v in one.items() if k not in times} == {k: v for k, v in other.items() if k not in times}
    assert whole["confusion"] == again["confusion"]


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
@pytest.mark.concurrency
def test_a_process_that_is_ended_leaves_a_run_that_goes_on_to_the_same_end(
    numbers: Path, whole_run: TrainingResult, tmp_path: Path, number: signal.Signals, ends: int
) -> None:
    command = [sys.executable, "-m", "rekord", "train", numbers, tmp_path / "run", "--epochs", "3"]
    command += ["--batch-size", "16", "--learning-rate", "0.01", "--checkpoint-steps", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "run" / "checkpoint.tfrecord"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    if process.returncode != 0:  # it may have been through before it heard
        assert process.returncode == ends
        assert "Traceback" not in said
    if number is signal.SIGINT and process.returncode == ends:
        assert "--resume" in said
    again = rk.train(numbers, tmp_path / "run", resume=True, **NUMBERS)
    assert told(again) == told(whole_run)


def test_what_a_run_leaves_can_be_used_without_rekord(whole_run: TrainingResult) -> None:
    import keras

    out = Path(whole_run.out)
    assert sorted(os.listdir(out)) == sorted(
        ["checkpoint.tfrecord", "inputs.json", "metrics.json", "model.keras", "predictions.arrow", "report.html"]
    )
    model = keras.saving.load_model(out / "model.keras")
    val = next(iter(rk.open(whole_run.dataset)["val"].batches(1000)))
    said = model.predict_on_batch({"numbers": val["point"]}).argmax(-1)
    assert float((said == val["label"]).mean()) == whole_run.score
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(whole_run.to_dict()))
    assert "<html" in (out / "report.html").read_text()


def test_balance_draws_all_classes_alike_and_weights_weigh_them(numbers: Path, tmp_path: Path) -> None:
    asked = {**NUMBERS, "epochs": 1}
    plain = rk.train(numbers, tmp_path / "plain", **asked)
    even = rk.train(numbers, tmp_path / "even", balance=True, **asked)
    heavy = rk.train(numbers, tmp_path / "heavy", class_weights=True, **asked)
    assert len({each.last.loss for each in (plain, even, heavy)}) == 3
    assert even.task == plain.task


def test_a_number_is_learned_by_regression(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    price = (1000 + 200 * x[:, 0] - 50 * x[:, 1]).astype(np.float32)
    schema = rk.Schema({"x": rk.Float32(shape=(3,)), "price": rk.Float32()})
    split = {"train": 0.8, "val": 0.2}
    rk.write({"x": x, "price": price}, tmp_path / "data", schema=schema, split=split, progress=False, workers=1)
    done = rk.train(tmp_path / "data", tmp_path / "run", label="price", **{**NUMBERS, "epochs": 8})
    assert done.task.kind == "regression"
    assert done.task.classes == ()
    assert done.confusion is None
    assert done.chance is not None
    assert done.score < done.chance / 4
    assert 100 < done.chance < 250  # in the unit of the price


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"batch_size": 8}, "batch size"),
        ({"seed": 1}, "seed"),
        ({"learning_rate": 0.1}, "learning rate"),
        ({"balance": True}, "balance"),
        ({"limit": 100}, "limit"),
    ],
)
def test_a_run_does_not_go_on_with_other_options(
    numbers: Path, whole_run: TrainingResult, changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.train(numbers, whole_run.out, resume=True, **{**NUMBERS, **changed})
    assert caught.value.code == "U609"
    assert what in caught.value.what
    assert caught.value.location.path == os.path.join(whole_run.out, "checkpoint.tfrecord")


def test_a_place_with_a_run_in_it_is_not_taken_unasked(numbers: Path, whole_run: TrainingResult) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.train(numbers, whole_run.out, **NUMBERS)
    assert str(caught.value).startswith("U618: output already contains a run")
    assert caught.value.location.path == whole_run.out
    assert "resume=True" in str(caught.value.do)


def test_a_damaged_checkpoint_is_named_and_fresh_starts_over(
    numbers: Path, whole_run: TrainingResult, tmp_path: Path
) -> None:
    stopped = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        rk.train(numbers, stopped, watch=Stop(3), **NUMBERS)
    checkpoint = stopped / "checkpoint.tfrecord"
    intact = checkpoint.read_bytes()
    for damaged in (intact[:-5], intact[: len(intact) // 2], intact[:200] + b"\0" + intact[201:], b""):
        checkpoint.write_bytes(damaged)
        with pytest.raises(rk.DatasetError) as caught:
            rk.train(numbers, stopped, resume=True, **NUMBERS)
        assert (caught.value.code, caught.value.location.path) == ("X575", str(checkpoint))
    again = rk.train(numbers, stopped, fresh=True, **NUMBERS)
    assert told(again) == told(whole_run)


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 2)).astype(np.float32)
    schema = rk.Schema({"x": rk.Float32(shape=(2,)), "y": rk.Float32()})
    rk.write({"x": x, "y": x[:, 0]}, tmp_path / "data", schema=schema, progress=False, workers=1)
    with pytest.raises(rk.DatasetError) as caught:
        rk.train(tmp_path / "data", tmp_path / "run", label="y", learning_rate=1e38, batch_size=8)
    assert caught.value.code == "X576"
    assert "learning_rate=" in str(caught.value.do)


def test_a_disk_that_is_full_when_the_model_is_saved_is_named_and_the_run_goes_on_later(
    numbers: Path, whole_run: TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(learner: ModelTrainer, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(ModelTrainer, "save", save)
        with pytest.raises(rk.DatasetError) as caught:
            rk.train(numbers, tmp_path / "run", **NUMBERS)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / "run/model.keras"))
    assert os.listdir(tmp_path / "run") == ["checkpoint.tfrecord"]
    assert told(rk.train(numbers, tmp_path / "run", resume=True, **NUMBERS)) == told(whole_run)


def test_two_runs_do_not_share_a_place(numbers: Path, tmp_path: Path) -> None:
    class Second(TrainingListener):
        def step(self, epoch: int, step: int, loss: float, score: float) -> None:
            rk.train(numbers, tmp_path / "run", **NUMBERS)

    with pytest.raises(rk.DatasetError) as caught:
        rk.train(numbers, tmp_path / "run", watch=Second(), **NUMBERS)
    assert (caught.value.code, caught.value.location.path) == ("X512", str(tmp_path / "run"))


def test_without_a_validation_split_the_score_is_that_of_training(tmp_path: Path, numbers: Path) -> None:
    rk.split(numbers, tmp_path / "one", split={"train": 1.0}, progress=False)
    done = rk.train(tmp_path / "one", tmp_path / "run", **{**NUMBERS, "epochs": 1})
    assert (done.val_split, done.val_records, done.last.val_score) == (None, 0, None)
    assert done.score == done.last.score
    assert done.confusion is not None
    assert int(done.confusion.sum()) == done.train_records

"""`rekord train`: what it shows, how it ends, and what it hands on. The training itself is tested elsewhere."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rekord as rk
from rekord.cli import train as verb
from rekord.cli.main import run_command_line
from rekord.cli.train_progress import TrainingDisplay
from rekord.errors import error
from rekord.location import Location
from rekord.training import run as training
from rekord.training.loop import TrainingListener
from rekord.training.result import EpochResult, TrainingResult
from rekord.training.run import TrainOptions
from rekord.training.task import InputColumn, Task

TASK = Task(
    "classification",
    (InputColumn("image", "image"),),
    "label",
    ("cat", "dog"),
    left_out={"filename": "is a name"},
)
EPOCHS = (
    EpochResult(1, 1.2034, 0.5123, 0.9812, 0.6401, 60, 1920, 1920, 1.5, 0.045),
    EpochResult(2, 0.4001, 0.9007, 0.2503, 0.9531, 60, 1920, 1920, 1.5, 0.009),
)


def outcome(**changes: Any) -> TrainingResult:
    fields: dict[str, Any] = {
        "dataset": "flowers",
        "out": "flowers-model",
        "task": TASK,
        "backend": "tensorflow",
        "parameters": 61_892,
        "batch_size": 32,
        "train_split": "train",
        "val_split": "val",
        "train_records": 1920,
        "val_records": 64,
        "epochs": EPOCHS,
        "confusion": np.array([[30, 2], [1, 31]]),
        "chance": 0.5,
        "compile_seconds": 1.0,
        "first_batch_seconds": 0.1,
        "advice": (),
    }
    return TrainingResult(**{**fields, **changes})


Told = Callable[[TrainingListener], TrainingResult]


@pytest.fixture
def stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Told], dict[str, Any]]:
    """A dataset `flowers` in a folder of its own, and a run that only tells what a real one would."""
    monkeypatch.chdir(tmp_path)
    rk.write({"x": np.arange(4), "label": np.arange(4)}, "flowers", progress=False, workers=1)
    requested: dict[str, Any] = {}
    monkeypatch.setattr(verb, "_load_frameworks", lambda backend: requested.update(loaded=backend))

    def put(tell: Told) -> dict[str, Any]:
        def train(path: str, out: str | None, options: TrainOptions, *, watch: TrainingListener) -> TrainingResult:
            rk.open(path)
            watch.on_task(TASK)
            requested.update(path=path, out=out, **vars(options))
            watch.on_begin(TASK, "tensorflow", 61_892, 2, 60)
            return tell(watch)

        monkeypatch.setattr(training, "run_training", train)
        return requested

    return put


def whole(watch: TrainingListener) -> TrainingResult:
    for epoch in EPOCHS:
        watch.step(epoch.number, 60, epoch.loss, epoch.score)
        watch.validating(epoch.number, 2)
        watch.validated(2)
        watch.epoch(epoch)
        watch.saved("flowers-model/checkpoint.tfrecord", epoch.number + 1, 0)
    return outcome()


TABLE = """\
flowers: image → label, 2 classes · small CNN, 61,892 parameters · keras on tensorflow
left out: filename (is a name)
epoch     loss  accuracy  val loss  val accuracy  records/s  waiting
    1    1.203     0.512     0.981         0.640      1,280      3 %
    2    0.400     0.901     0.250         0.953      1,280     <1 %
"""


def test_a_run_is_a_line_an_epoch_a_score_and_where_everything_lies(stands_in, capsys) -> None:
    stands_in(whole)
    assert run_command_line(["train", "flowers"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert (
        printed.out
        == TABLE
        + """\
val accuracy 0.953 (always the most frequent class: 0.500)
waited for data 2 % of the time: the model is the bottleneck
flowers-model: model.keras, report.html, metrics.json, predictions.arrow
next: open flowers-model/report.html
"""
    )


def test_under_json_there_is_one_document_and_lines_go_to_stderr(stands_in, capsys) -> None:
    stands_in(whole)
    assert run_command_line(["train", "flowers", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == TABLE
    told = json.loads(printed.out)
    assert (told["metric"], told["score"], told["chance"]) == ("accuracy", 0.9531, 0.5)
    assert (told["model"], told["report"]) == ("flowers-model/model.keras", "flowers-model/report.html")
    assert [epoch["epoch"] for epoch in told["epochs"]] == [1, 2]
    assert told["seconds"] >= 0


def test_without_a_validation_split_the_table_has_no_place_for_it(stands_in, capsys) -> None:
    alone = EpochResult(1, 0.5, 0.75, None, None, 1, 32, 0, 0.0, 0.0)

    def tell(watch: TrainingListener) -> TrainingResult:
        watch.epoch(alone)
        return outcome(epochs=(alone,), val_split=None)

    stands_in(tell)
    assert run_command_line(["train", "flowers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == [
        "epoch     loss  accuracy  records/s  waiting",
        "    1    0.500     0.750          –        –",
        "accuracy 0.750 (always the most frequent class: 0.500)",
    ]
    assert lines[5] == "too few steps to measure the time spent waiting for data"
    assert run_command_line(["train", "flowers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waited_share"] is None


def test_where_the_input_is_the_bottleneck_it_is_said_what_to_change(stands_in, capsys) -> None:
    slow = EpochResult(1, 0.5, 0.75, 0.5, 0.75, 60, 1920, 1920, 2.0, 1.0)
    stands_in(lambda watch: outcome(epochs=(slow,), advice=("2 of 8 cores read: --threads 8",)))
    assert run_command_line(["train", "flowers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("waited for data 50 % of the time: the input is the bottleneck")
    assert lines[at + 1] == "  2 of 8 cores read: --threads 8"


def test_every_option_is_handed_on(stands_in) -> None:
    requested = stands_in(whole)
    words = "train flowers there --epochs 7 --label label --columns x,y --split train --val test --balance"
    words += " --backend jax --image-size 96x128 --batch-size 8 --learning-rate 1e-2 --seed 3"
    words += " --checkpoint-steps 10 --threads 2 --limit 100 --predictions val,test --resume"
    assert run_command_line(words.split()) == 0
    assert requested == {
        "loaded": "jax",
        "path": "flowers",
        "out": "there",
        "epochs": 7,
        "label": "label",
        "columns": ["x", "y"],
        "split": "train",
        "validation": "test",
        "balance": True,
        "class_weights": False,
        "backend": "jax",
        "image_size": (96, 128),
        "batch_size": 8,
        "learning_rate": 0.01,
        "seed": 3,
        "checkpoint_steps": 10,
        "threads": 2,
        "limit": 100,
        "predictions": ["val", "test"],
        "resume": True,
        "fresh": False,
    }
    assert run_command_line(["train", "flowers", "--image-size", "64", "--class-weights", "--fresh"]) == 0
    assert (requested["image_size"], requested["class_weights"], requested["fresh"]) == ((64, 64), True, True)


def test_an_interrupted_run_says_where_it_was_and_how_to_go_on(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        watch.epoch(EPOCHS[0])
        watch.step(2, 31, 0.5, 0.8)
        watch.saved("flowers-model/checkpoint.tfrecord", 2, 31)
        raise KeyboardInterrupt

    stands_in(tell)
    assert (
        run_command_line(["train", "flowers", "my model", "--epochs", "2", "--balance", "--learning-rate", "0.01"])
        == 130
    )
    assert capsys.readouterr().err.splitlines() == [
        "interrupted at epoch 2 of 2, step 31 of 60: resume with",
        "  rekord train flowers 'my model' --epochs 2 --balance --learning-rate 0.01 --resume",
    ]


def test_a_run_that_is_interrupted_between_epochs_says_so(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        watch.epoch(EPOCHS[0])
        watch.saved("flowers-model/checkpoint.tfrecord", 2, 0)
        raise KeyboardInterrupt

    stands_in(tell)
    assert run_command_line(["train", "flowers"]) == 130
    assert capsys.readouterr().err.startswith("interrupted at the beginning of epoch 2 of 2: resume with\n")


def test_a_run_that_is_interrupted_before_a_checkpoint_leaves_nothing_to_go_on_with(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        raise KeyboardInterrupt

    stands_in(tell)
    assert run_command_line(["train", "flowers"]) == 130
    assert capsys.readouterr().err == "interrupted before the first checkpoint: nothing was saved\n"


def test_a_run_that_is_interrupted_before_it_goes_on_is_still_there(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        raise KeyboardInterrupt

    stands_in(tell)
    assert run_command_line(["train", "flowers", "--resume"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "interrupted before resuming: resume with",
        "  rekord train flowers --resume",
    ]


def test_a_run_that_is_interrupted_after_its_last_epoch_is_in_no_epoch(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        whole(watch)
        raise KeyboardInterrupt

    stands_in(tell)
    assert run_command_line(["train", "flowers"]) == 130
    assert capsys.readouterr().err.startswith("interrupted at the end of the last epoch: resume with\n")


def test_a_run_that_was_through_says_that_nothing_is_left_to_do(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        watch.resumed(3, 0)
        return outcome()

    stands_in(tell)
    assert run_command_line(["train", "flowers", "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "2 epochs already done, and no more requested"


def test_after_damage_it_is_said_what_is_kept_and_how_to_go_on(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        watch.step(1, 31, 0.5, 0.8)
        watch.saved("flowers-model/checkpoint.tfrecord", 1, 31)
        raise error("F102", location=Location(path="flowers/train.tfrecord", record=3))

    stands_in(tell)
    assert run_command_line(["train", "flowers", "--seed", "7"]) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "saved up to epoch 1 of 2, step 31 of 60; after restoring the data, resume with",
        "  rekord train flowers --seed 7 --resume",
    ]


def test_a_run_that_goes_on_says_where(stands_in, capsys) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        watch.resumed(2, 31)
        watch.epoch(EPOCHS[1])
        return outcome()

    stands_in(tell)
    assert run_command_line(["train", "flowers", "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "resuming at epoch 2 of 2, step 31 of 60"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("X576", 1),
        ("D403", 1),
        ("U608", 2),
        ("U618", 2),
        ("X575", 3),
    ],
)
def test_a_failure_has_the_exit_code_of_its_kind(stands_in, capsys, code: str, exit_code: int) -> None:
    def tell(watch: TrainingListener) -> TrainingResult:
        raise error(code, location=Location(path="flowers"))

    stands_in(tell)
    assert run_command_line(["train", "flowers", "--json"]) == exit_code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["code"] == code
    assert f" {code}: " in printed.err


@pytest.mark.parametrize(
    ("options", "what", "do"),
    [
        (["--image-size", "96x"], "`--image-size` cannot be '96x'", "--image-size 96x96"),
        (["--image-size", "large"], "`--image-size` cannot be 'large'", "--image-size 96x96"),
        (["--learning-rate", "0"], "`--learning-rate` cannot be '0'", "--learning-rate 0.001"),
        (["--learning-rate", "nan"], "`--learning-rate` cannot be 'nan'", "--learning-rate 0.001"),
        (["--epochs", "many"], "`--epochs` cannot be 'many'", "rekord train --help"),
        (
            ["--resume", "--fresh"],
            "`--resume` and `--fresh` exclude each other",
            "leave --fresh out to resume, or --resume to start over",
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_before_anything_is_loaded(
    stands_in, capsys, options: list[str], what: str, do: str
) -> None:
    requested = stands_in(whole)
    assert run_command_line(["train", "flowers", *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == (f"UsageError U605: {what}", f"  do        {do}")
    assert requested == {}


def test_a_path_that_is_not_there_is_said_before_anything_is_loaded(stands_in, capsys) -> None:
    requested = stands_in(whole)
    assert run_command_line(["train", "flwers"]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X501: ")
    assert requested == {}


def test_names_from_the_data_cannot_steer_a_terminal(stands_in, capsys) -> None:
    odd = Task("regression", (InputColumn("a\x1b[2J", "numbers"),), "b\n", left_out={"c\r": "why\x07"})
    stands_in(lambda watch: watch.on_begin(odd, "jax", 1, 1, 1) or outcome())
    assert run_command_line(["train", "flowers"]) == 0
    shown = capsys.readouterr().out
    assert "a\\x1b[2J → b\\n · MLP" in shown
    assert "left out: c\\r (why\\x07)" in shown


def test_many_columns_that_are_left_out_are_said_in_one_line(stands_in, capsys) -> None:
    many = Task("regression", (InputColumn("a", "numbers"),), "b", left_out={f"c{i}": "is a name" for i in range(9)})
    stands_in(lambda watch: watch.on_begin(many, "jax", 1, 1, 1) or outcome())
    assert run_command_line(["train", "flowers"]) == 0
    assert "\nleft out: c0, c1, c2, c3 and 5 more (is a name)\n" in capsys.readouterr().out


def test_the_bar_says_how_far_the_epoch_is() -> None:
    loaded: list[str] = []
    show = TrainingDisplay("flowers", batch_size=32, as_json=True, load=lambda: loaded.append("keras"))
    assert (drawn(show), loaded) == ("inspecting the data", [])
    show.on_task(TASK)
    assert loaded == ["keras"]
    show.on_begin(TASK, "tensorflow", 61_892, 2, 60)
    show.on_wait(0.12)
    show.step(1, 31, 0.5, 0.8)
    assert drawn(show).startswith("epoch 1/2 ")
    assert drawn(show).endswith(" 31 of 60 · loss 0.500 · accuracy 0.800 · waiting 12 %")
    show.validating(1, 8)
    show.validated(3)
    assert drawn(show).endswith(" validation 3 of 8")


def drawn(show: TrainingDisplay) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(show._render())
    return stream.getvalue().strip()


QUIET = """
import os, sys
from rekord.cli.console import suppress_tensorflow_log
with suppress_tensorflow_log():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
    os.write(2, b"I0000 00:00:1794823305.203196    2545 port.cc:153] oneDNN custom operations are on.\\n")
    os.write(2, b"E0000 00:00:1794823305.203196    2545 port.cc:153] something is wrong\\n")
    print("UserWarning: look", file=sys.stderr)
print("after", file=sys.stderr)
"""


@pytest.mark.parametrize(("level", "lines"), [(None, 3), ("0", 5)])
def test_notes_of_a_framework_are_kept_back_and_all_else_is_said(
    level: str | None, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True, timeout=60)
    told = done.stderr.splitlines()
    assert told[-3:] == [
        "E0000 00:00:1794823305.203196    2545 port.cc:153] something is wrong",
        "UserWarning: look",
        "after",
    ]
    assert len(told) == lines

"""`rekord train`: train a small baseline model on a dataset."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rekord.cli import console as output
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, invalid_option, option_parser
from rekord.cli.exit_handling import is_data_error
from rekord.cli.options import (
    FRESH_OPTION,
    JSON_OPTION,
    PATH_ARGUMENT,
    Panel,
    argument,
    flag_option,
    integer_option,
    parsed_option,
    text_option,
    with_options,
)
from rekord.errors import RekordError, error

if TYPE_CHECKING:
    from rekord.training.result import TrainingResult
    from rekord.training.run import TrainOptions


_DO = "rekord train --help"
SOURCE, TRAINING, RUN = Panel.SOURCE, Panel.TRAINING, Panel.RUN
_LOSS_ERROR_CODE = "X576"
_CLEAR_LINE = "\x1b[2K\r"
_FILES = {
    "model": "model.keras",
    "report": "report.html",
    "metrics": "metrics.json",
    "predictions": "predictions.arrow",
}


@option_parser
def _parse_rate(text: object) -> float:
    try:
        value = float(str(text))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise invalid_option("--learning-rate", str(text), "a number above 0", "--learning-rate 0.001")
    return value


@with_options
def train(
    path: str = PATH_ARGUMENT,
    out: str | None = argument("[OUT]", "Folder of the run. Default: NAME-model.", default=None),
    epochs: int = integer_option("--epochs", "Number of epochs.", TRAINING, do=_DO, default=5),
    label: str | None = text_option("--label", "KEY", "Column to predict.", SOURCE),
    columns: str | None = text_option("--columns", "A,B", "Columns to learn from.", SOURCE),
    split: str | None = text_option("--split", "NAME", "Split to train on. Default: train.", SOURCE),
    validation: str | None = text_option(
        "--val", "NAME", "Split to validate on. Default: val, or a similar name.", SOURCE
    ),
    balance: bool = flag_option(
        "--balance", "Sample all classes equally often; for masks, weight the classes.", TRAINING
    ),
    class_weights: bool = flag_option("--class-weights", "Weight rare classes more in the loss.", TRAINING),
    backend: str | None = text_option(
        "--backend", "tensorflow|torch|jax", "Keras backend. Default: the first installed.", RUN
    ),
    image_size: str | None = text_option(
        "--image-size", "HxW", "Input size of the model: 96x128, or 96 for a square.", TRAINING
    ),
    batch_size: int = integer_option("--batch-size", "Records per step.", TRAINING, do=_DO, default=32),
    learning_rate: float = parsed_option(
        "--learning-rate", "X", "Learning rate of the Adam optimizer.", _parse_rate, TRAINING, default=0.001
    ),
    seed: int = integer_option("--seed", "Seed for shuffling and initial weights.", TRAINING, do=_DO, default=0),
    checkpoint_steps: int = integer_option(
        "--checkpoint-steps", "Steps between checkpoints; each epoch ends with one.", RUN, do=_DO, default=500
    ),
    threads: int | None = integer_option(
        "--threads", "Threads that read and decode. Default: one per core, at most 4.", RUN, do=_DO
    ),
    limit: int | None = integer_option("--limit", "Use only the first N records of each split.", SOURCE, do=_DO),
    predictions: str | None = text_option(
        "--predictions", "A,B|all", "Splits to predict after training. Default: the one for validation.", RUN
    ),
    resume: bool = flag_option("--resume", "Resume the run in OUT at its next record.", RUN),
    fresh: bool = FRESH_OPTION,
    as_json: bool = JSON_OPTION,
) -> int:
    """Train a small baseline model. It proves that the data trains, and gives a score to beat.

    The model follows from the schema: image and label, image and mask, numbers, or text. OUT gets the model, its
    metrics and an HTML report. Needs Keras 3 and TensorFlow, torch or JAX.
    """
    from rekord.cli.train_progress import TrainingDisplay
    from rekord.report.style import get_base_name
    from rekord.training.run import TrainOptions, run_training

    began = time.perf_counter()
    size = parse_image_size(image_size)
    if resume and fresh:
        raise error(
            "U605",
            "`--resume` and `--fresh` exclude each other",
            expected="one of them",
            found="both",
            do="leave --fresh out to resume, or --resume to start over",
        )
    requested = TrainOptions(
        epochs=epochs,
        batch_size=batch_size,
        label=label,
        columns=options.parse_optional_names(columns),
        split=split,
        validation=validation,
        balance=balance,
        class_weights=class_weights,
        backend=backend,
        image_size=size,
        seed=seed,
        learning_rate=learning_rate,
        checkpoint_steps=checkpoint_steps,
        threads=threads,
        limit=limit,
        predictions=options.parse_optional_names(predictions),
        resume=resume,
        fresh=fresh,
    )
    resume_command = escape_controls(format_resume_command(path, out, requested, as_json=as_json))
    show = TrainingDisplay(
        escape_controls(get_base_name(path)),
        batch_size=batch_size,
        as_json=as_json,
        load=lambda: _load_frameworks(backend),
    )
    try:
        with show:
            trained = run_training(path, out, requested, watch=show)
    except RekordError as failure:
        is_damage = is_data_error(failure)
        if not is_damage and failure.code != _LOSS_ERROR_CODE:
            raise
        output.print_error(failure, as_json=as_json)
        if is_damage and show.kept:
            output.print_message(f"saved up to {show.place()}; after restoring the data, resume with")
            output.print_message(f"  {resume_command}")
        return 1
    except KeyboardInterrupt:
        if not (show.kept or resume):
            output.print_interrupt("interrupted before the first checkpoint: nothing was saved", as_json=as_json)
            return 130
        where = f"at {show.place()}" if show.kept else "before resuming"
        output.print_interrupt(f"interrupted {where}", as_json=as_json, do=resume_command)
        return 130
    if as_json:
        output.print_json(build_document(trained, time.perf_counter() - began))
    else:
        print_outcome(trained)
    return 0


def _load_frameworks(backend: str | None) -> None:
    from rekord.cli.console import suppress_tensorflow_log
    from rekord.training.model import load_keras

    watched = output.is_terminal(sys.stderr) and output.shows_progress()
    if watched:
        sys.stderr.write("loading Keras\r")
    try:
        with suppress_tensorflow_log():
            load_keras(backend)
            # Keras imports it on every backend when it saves a model, which would log into the progress.
            with suppress(ImportError):
                import_module("tensorflow")
    finally:
        if watched:
            sys.stderr.write(_CLEAR_LINE)


def parse_image_size(text: str | None) -> tuple[int, int] | None:
    """`96x128` as height and width, `96` as both."""
    if text is None:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() and 0 < len(part) < 6 for part in parts):
        expected = "HEIGHTxWIDTH in pixels, or one number for both"
        raise invalid_option("--image-size", text, expected, "--image-size 96x96")
    return int(parts[0]), int(parts[-1])


def format_resume_command(path: str, out: str | None, requested: TrainOptions, *, as_json: bool) -> str:
    """The command that resumes a run, with the options that differ from their defaults."""
    words = ["rekord", "train", path, *([] if out is None else [out])]
    for field in fields(requested):
        value = getattr(requested, field.name)
        if value == field.default or field.name in ("resume", "fresh"):
            continue
        option = "--val" if field.name == "validation" else f"--{field.name.replace('_', '-')}"
        joined = {"columns": ",", "predictions": ",", "image_size": "x"}.get(field.name)
        text = str(value) if joined is None else joined.join(map(str, value))
        words += [option] if value is True else [option, text]
    return shlex.join([*words, *(["--json"] if as_json else []), "--resume"])


def build_document(trained: TrainingResult, seconds: float) -> dict[str, Any]:
    """The run as a JSON document."""
    files = {name: os.path.join(trained.out, file) for name, file in _FILES.items()}
    return {**trained.to_dict(), **files, "seconds": round(seconds, 3)}


def print_outcome(trained: TrainingResult) -> None:
    """Print the score, the bottleneck, and the files."""
    from rekord.training.advice import describe_bottleneck
    from rekord.training.report import describe_chance, format_score

    metric = trained.task.metric if trained.val_split is None else f"val {trained.task.metric}"
    chance = "" if trained.chance is None else f" ({describe_chance(trained.task)}: {format_score(trained.chance)})"
    output.print_line((f"{metric} {format_score(trained.score)}", "bold"), chance)
    output.print_line(describe_bottleneck(trained.waited_share))
    for line in trained.advice:
        output.print_line(f"  {escape_controls(line)}")
    output.print_line(f"{escape_controls(trained.out)}: {', '.join(_FILES.values())}")
    output.print_next(f"next: open {shlex.quote(escape_controls(os.path.join(trained.out, 'report.html')))}")

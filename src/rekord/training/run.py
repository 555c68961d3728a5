"""`rk.train`: a small baseline model for a dataset, from its schema to a report."""

from __future__ import annotations

import builtins
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from rekord.arguments import (
    check_keywords,
    height_and_width,
    integer,
    invalid,
    positive_int,
    real_number,
    seed_number,
)
from rekord.dataset.dataset import Dataset, open
from rekord.dataset.split import Split
from rekord.errors import RekordError, add_location, error
from rekord.location import Location
from rekord.storage.local import LOCAL, write_error
from rekord.storage.publication import STAGED_PREFIX
from rekord.storage.router import reject_remote_write
from rekord.storage.transaction import Transaction, publish
from rekord.training import checkpoint
from rekord.training.advice import advise, collect_input_facts
from rekord.training.checkpoint import RunFolder, check_run_folder, get_default_run_folder, prepare_run_folder
from rekord.training.choose import check_target, choose_task
from rekord.training.inputs import MAX_SIDE, MIN_SIDE, BatchEncoder
from rekord.training.loop import MAX_WORST_RECORDS, TrainingData, TrainingListener, TrainingLoop, TrainingProgress
from rekord.training.model import ModelTrainer, load_keras
from rekord.training.predict import InputPreparation
from rekord.training.predictions import write_predictions
from rekord.training.report import collect_mistakes, read_example, render_training_page
from rekord.training.result import EpochResult, LabelScore, StepTotals, TrainingResult
from rekord.training.statistics import check_class_options, compute_class_weights, fit_encoder
from rekord.training.task import Task
from rekord.verbs.options import VerbOptions

_TRAINING_SPLITS = ("train", "training")
_COPY_BYTES = 1 << 20
_PLANNED = ("batch_size", "balance", "class_weights", "image_size", "seed", "learning_rate", "limit")
_VALIDATION_SPLITS = ("val", "validation", "valid", "dev", "eval", "test")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(VerbOptions):
    """The options of `rk.train`."""

    epochs: int = 5
    batch_size: int = 32
    label: str | None = None
    columns: Sequence[str] | None = None
    split: str | None = None
    validation: str | None = None
    balance: bool = False
    class_weights: bool = False
    backend: str | None = None
    image_size: tuple[int, int] | None = None
    seed: int = 0
    learning_rate: float = 1e-3
    checkpoint_steps: int = 500
    threads: int | None = None
    limit: int | None = None
    predictions: str | Sequence[str] | None = None
    resume: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size, do="batch_size=32")
        seed_number("seed", self.seed)
        if self.image_size is not None:
            height_and_width("image_size", self.image_size, least=MIN_SIDE, most=MAX_SIDE)
        if self.limit is not None:
            positive_int("limit", self.limit)
        real_number(
            "learning_rate",
            self.learning_rate,
            expected="a number above 0",
            fits=lambda rate: 0 < rate < float("inf"),
            do="learning_rate=0.001",
        )
        if self.balance and self.class_weights:
            raise error(
                "U605",
                "`balance` and `class_weights` cannot be combined: both increase the weight of rare classes",
                expected="one of them",
                found="both",
                do="balance=True, to sample all classes equally",
            )
        integer("checkpoint_steps", self.checkpoint_steps, least=0)
        names = [self.predictions] if isinstance(self.predictions, str) else self.predictions
        if names is not None and not (isinstance(names, (list, tuple)) and names and all(map(_is_name, names))):
            raise invalid("predictions", self.predictions, "names of splits, or all", 'predictions=["val", "test"]')
        if self.threads is not None:
            positive_int("threads", self.threads)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given != ""


@check_keywords
def train(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    epochs: int = 5,
    batch_size: int = 32,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    split: str | None = None,
    validation: str | None = None,
    balance: bool = False,
    class_weights: bool = False,
    backend: str | None = None,
    image_size: tuple[int, int] | None = None,
    seed: int = 0,
    learning_rate: float = 1e-3,
    checkpoint_steps: int = 500,
    threads: int | None = None,
    limit: int | None = None,
    predictions: str | Sequence[str] | None = None,
    resume: bool = False,
    fresh: bool = False,
    watch: TrainingListener | None = None,
) -> TrainingResult:
    """Train a small model on a dataset, to check that it trains and to get a baseline for the real model.

    The schema decides the model: image and label → a small CNN, image and mask → a small encoder–decoder, numbers and
    label → an MLP, text or tokens and label → embedding and pooling; several labels per record → one sigmoid per
    class. `label` names the target and `columns` the
    inputs if the schema is ambiguous. It runs on Keras 3 with TensorFlow, torch or JAX as `backend`.

    `out` is a folder for the model, its metrics, an HTML report and a checkpoint that includes the reader's position:
    after Ctrl-C or a crash, `resume=True` continues at the next record and ends with the same metrics. `balance`
    samples all classes equally (for masks, it weights classes by their pixels); `class_weights` weights them in the
    loss instead.

    `predictions.arrow` in `out` has the truth and the prediction of each record of the validation split, or of those
    splits that `predictions` names ("all": of every split).
    """
    return run_training(path, out, TrainOptions.of(locals()), watch=watch)


def run_training(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None,
    requested: TrainOptions,
    *,
    watch: TrainingListener | None = None,
) -> TrainingResult:
    """Run `train` with validated options."""
    path, folder = os.fspath(path), get_default_run_folder(os.fspath(path)) if out is None else os.fspath(out)
    watch = watch or TrainingListener()
    dataset = open(path)
    check_run_folder(folder, dataset=path, resume=requested.resume, fresh=requested.fresh)
    splits = _select_splits(dataset, requested.split, requested.validation, requested.limit)
    task = choose_task(splits.train, label=requested.label, columns=requested.columns)
    check_class_options(task, balance=requested.balance, class_weights=requested.class_weights)
    predicted = _select_predicted(dataset, splits, requested)
    for each in {id(one): one for one in (splits.val, *predicted) if one is not None}.values():
        if each is not splits.train:
            check_target(each, task)
    watch.on_task(task)
    keras = load_keras(requested.backend)  # after all other checks: it takes seconds
    reject_remote_write(folder)
    transaction = Transaction(folder)
    LOCAL.make_folder(transaction.parent)
    with transaction.lock():
        place = prepare_run_folder(folder, dataset=path, resume=requested.resume, fresh=requested.fresh)
        return _TrainingRun(path, dataset, place, requested, splits, predicted, task, keras, watch).run()


@dataclass(frozen=True)
class _TrainSplits:
    train: Split
    val: Split | None


@dataclass(frozen=True)
class _TrainingRun:
    path: str
    dataset: Dataset
    place: RunFolder
    requested: TrainOptions
    splits: _TrainSplits
    predicted: Sequence[Split]
    task: Task
    keras: Any
    watch: TrainingListener

    def run(self) -> TrainingResult:
        requested, splits, task = self.requested, self.splits, self.task
        plan = self._plan()
        state = checkpoint.read_state(self.place.checkpoint) if requested.resume else None
        if state is None:
            encoder = fit_encoder(splits.train, task, image_size=requested.image_size)
            progress = TrainingProgress(plan)
        else:
            encoder, progress = self._restored(state, plan)
        weighs = requested.class_weights or (requested.balance and task.kind == "segmentation")
        learner = ModelTrainer(
            self.keras,
            encoder,
            seed=requested.seed,
            learning_rate=requested.learning_rate,
            weights=self._weights(encoder) if weighs else None,
        )
        if state is not None:
            checkpoint.restore_variables(self.place.checkpoint, learner.variables)
        drawn = splits.train
        if requested.balance and not weighs:
            drawn = drawn.balanced(by=task.target, target="present")
        reading = TrainingData(drawn, splits.val, requested.batch_size, requested.seed, requested.threads)
        steps = -(-len(drawn) // requested.batch_size)
        self.watch.on_begin(task, self.keras.backend.backend(), learner.parameters, requested.epochs, steps)
        if state is not None:
            self.watch.resumed(progress.epoch + 1, progress.totals.steps if progress.totals else 0)

        def save(progress: TrainingProgress) -> str:
            checkpoint.save_checkpoint(self.place.checkpoint, _progress_to_dict(progress, encoder), learner.variables)
            return self.place.checkpoint

        loop = TrainingLoop(
            learner,
            encoder,
            reading,
            progress,
            save=save,
            checkpoint_steps=requested.checkpoint_steps,
            watch=self.watch,
        )
        loop.run(requested.epochs)
        if splits.val is None:
            loop.evaluate_classes(splits.train)
        return self._finished(learner, encoder, progress)

    def _plan(self) -> dict[str, Any]:
        """What must be unchanged to resume a run; the number of epochs may grow."""
        requested, val = self.requested, self.splits.val
        plan = {
            "dataset": self.splits.train.digest(),
            "split": self.splits.train.name,
            "validation": None if val is None else val.name,
            "validation_dataset": None if val is None else val.digest(),
            "task": self.task.to_dict(),
            **{name: getattr(requested, name) for name in _PLANNED},
            "backend": self.keras.backend.backend(),
        }
        # As it is read from a checkpoint: tuples become lists.
        return dict(msgspec.json.decode(msgspec.json.encode(plan)))

    def _restored(self, state: dict[str, Any], plan: dict[str, Any]) -> tuple[BatchEncoder, TrainingProgress]:
        path = self.place.checkpoint
        saved = state.get("plan")
        for name, value in plan.items():
            was = saved.get(name) if isinstance(saved, dict) else None
            if was != value:
                raise error(
                    "U609",
                    f"run was started with another {name.replace('_', ' ')}",
                    location=Location(path=path),
                    expected=str(was)[:60],
                    found=str(value)[:60],
                    do="pass the same options again, or fresh=True to start over",
                )
        try:
            with add_location(path=path):
                return BatchEncoder.from_dict(state["encoder"], self.task), _progress_from_dict(state, self.task)
        except RekordError:  # some of them are an OSError or a ValueError too
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as failure:
            # msgspec.ValidationError is a ValueError.
            raise checkpoint.checkpoint_error(path, "the state of a run", repr(failure)[:60]) from failure

    def _weights(self, encoder: BatchEncoder) -> Any:
        requested = self.requested
        return compute_class_weights(self.splits.train, encoder, seed=requested.seed, batch_size=requested.batch_size)

    def _finished(self, learner: ModelTrainer, encoder: BatchEncoder, progress: TrainingProgress) -> TrainingResult:
        requested, splits, place = self.requested, self.splits, self.place
        shown = collect_mistakes(splits.val or splits.train, encoder, learner, progress.worst)
        known = collect_input_facts(splits.train, encoder.task, encoder.image_size)
        trained = TrainingResult(
            dataset=self.path,
            out=place.folder,
            task=encoder.task,
            backend=self.keras.backend.backend(),
            parameters=learner.parameters,
            batch_size=requested.batch_size,
            train_split=splits.train.name,
            val_split=None if splits.val is None else splits.val.name,
            train_records=len(splits.train),
            val_records=0 if splits.val is None else len(splits.val),
            epochs=progress.done,
            confusion=progress.confusion,
            label_scores=progress.label_scores,
            chance=progress.chance,
            compile_seconds=progress.compile_seconds,
            first_batch_seconds=progress.first_batch_seconds,
            advice=advise(
                known,
                path=self.path,
                epochs=progress.done,
                batch_size=requested.batch_size,
                threads=requested.threads,
            ),
            mistakes=tuple([one.mistake for one in shown]),
        )
        _save_model(learner, place)
        prepared = InputPreparation.of_dataset(self.dataset, self.path, splits.train.schema, encoder.task)
        state = {**encoder.to_dict(), **prepared.to_dict()}
        _write_file(place.inputs, msgspec.json.format(msgspec.json.encode(state), indent=2))
        _write_file(place.metrics, msgspec.json.format(msgspec.json.encode(trained.to_dict()), indent=2))
        example = read_example(splits.train, encoder) if prepared.transforms == () else None
        _write_file(place.report, render_training_page(trained, shown, example).encode())
        write_predictions(
            place.predictions,
            self.predicted,
            {one.name: self.dataset[one.name] for one in self.predicted},
            encoder,
            learner,
            batch_size=requested.batch_size,
            threads=requested.threads,
        )
        return trained


def _select_splits(dataset: Dataset, train: str | None, val: str | None, limit: int | None) -> _TrainSplits:
    """The split to train on, and the one held out for validation, if any."""
    names = list(dataset.splits)
    trained = _match_split_names(names, _TRAINING_SPLITS)
    usual = [name for name in names if name not in _match_split_names(names, _VALIDATION_SPLITS)] or names
    chosen = train or [*trained, *usual][0]
    # An empty split is not used for validation.
    held_out = val or next(
        (name for name in _match_split_names(names, _VALIDATION_SPLITS) if name != chosen and len(dataset[name])),
        None,
    )
    if held_out == chosen:
        raise error(
            "U605",
            "validation split is the training split",
            expected="another split",
            found=repr(held_out)[:60],
            do="validation=None, or another split",
        )
    first = dataset[chosen]
    second = None if held_out is None else dataset[held_out]
    if second is not None and not len(second):
        raise error(
            "U608",
            f"validation split `{second.name}` has no records",
            expected="at least one record",
            found="none",
            do="validation=None, or another split",
        )
    if limit is not None:
        first, second = first.take(limit), second if second is None else second.take(limit)
    return _TrainSplits(first, second)


def _select_predicted(dataset: Dataset, splits: _TrainSplits, requested: TrainOptions) -> list[Split]:
    """The splits to predict after training: those that were requested, or the one that the scores are about."""
    wanted, chosen = requested.predictions, [one for one in (splits.train, splits.val) if one is not None]
    if wanted is None:
        return [chosen[-1]]
    names = list(dict.fromkeys([wanted] if isinstance(wanted, str) else wanted))
    if names == ["all"] and "all" not in dataset:
        names = [name for name, one in dataset.splits.items() if len(one)]
    known = {one.name: one for one in chosen}
    others = {name: dataset[name] for name in names if name not in known}
    if requested.limit is not None:
        others = {name: one.take(requested.limit) for name, one in others.items()}
    return [{**others, **known}[name] for name in names]


def _match_split_names(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """The splits with one of these names, then those whose name contains one, such as flowers-train."""
    exact = [word for word in words if word in names]
    alike = [name for word in words for name in names if word in re.split(r"[^a-z]+", name.casefold())]
    return list(dict.fromkeys([*exact, *alike]))


def _progress_to_dict(progress: TrainingProgress, encoder: BatchEncoder) -> dict[str, Any]:
    """The progress of a run as stored in a checkpoint."""
    return {
        "rekord": 1,
        "plan": progress.plan,
        "encoder": encoder.to_dict(),
        "epoch": progress.epoch,
        "reader": progress.reader,
        "totals": None if progress.totals is None else progress.totals.to_dict(),
        "done": [asdict(epoch) for epoch in progress.done],
        "confusion": None if progress.confusion is None else progress.confusion.tolist(),
        "label_scores": [asdict(one) for one in progress.label_scores],
        "chance": progress.chance,
        "compile_seconds": progress.compile_seconds,
        "first_batch_seconds": progress.first_batch_seconds,
        "worst": list(progress.worst),
    }


def _progress_from_dict(state: dict[str, Any], task: Task) -> TrainingProgress:
    """The progress of a run restored from a checkpoint."""
    totals, confusion, classes = state["totals"], state["confusion"], len(task.classes)
    done = msgspec.convert(state["done"], tuple[EpochResult, ...])
    if state["epoch"] != len(done):
        raise ValueError("as many epochs as are done")
    return TrainingProgress(
        plan=state["plan"],
        epoch=len(done),
        reader=msgspec.convert(state["reader"], dict[str, Any] | None),
        totals=None if totals is None else StepTotals.from_dict(totals, task),
        done=done,
        confusion=None if confusion is None else np.array(confusion, np.int64).reshape(classes, classes),
        label_scores=msgspec.convert(state.get("label_scores", []), tuple[LabelScore, ...]),
        chance=msgspec.convert(state["chance"], float | None),
        compile_seconds=float(state["compile_seconds"]),
        first_batch_seconds=float(state["first_batch_seconds"]),
        # Absent in checkpoints of earlier versions.
        worst=msgspec.convert(state.get("worst", []), tuple[int, ...])[:MAX_WORST_RECORDS],
    )


def _save_model(learner: ModelTrainer, place: RunFolder) -> None:
    # Keras writes to a path that must end in .keras; the file is then published like any other.
    scratch = os.path.join(place.folder, f"{STAGED_PREFIX}model.keras")
    try:
        learner.save(scratch)
        with builtins.open(scratch, "rb") as saved, publish(place.model) as staged:
            shutil.copyfileobj(saved, staged, _COPY_BYTES)
    except RekordError:  # some of them are an OSError too
        raise
    except OSError as failure:
        raise write_error(place.model, failure) from failure
    finally:
        with suppress(OSError):
            os.unlink(scratch)


def _write_file(path: str, data: bytes) -> None:
    with publish(path) as staged:
        staged.write(data)

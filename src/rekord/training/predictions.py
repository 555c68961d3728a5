"""The predictions of a trained model for whole splits, as `predictions.arrow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.dataset.predictions import (
    PredictionFacts,
    PredictionWriter,
    ValueKind,
    read_digests,
    to_valid_text,
)
from rekord.dataset.split import Split
from rekord.training.inputs import BatchEncoder, get_step
from rekord.training.model import ModelTrainer
from rekord.training.result import compute_label_probabilities, compute_probabilities, measure_errors
from rekord.training.task import Task, TaskKind

Array: TypeAlias = "npt.NDArray[Any]"

_KINDS: Mapping[TaskKind, ValueKind] = {
    "classification": "class",
    "multilabel": "classes",
    "segmentation": "classes",
    "regression": "number",
}


@dataclass(frozen=True)
class PredictedRows:
    """The columns of some rows of the file."""

    truth: list[Any]
    prediction: list[Any]
    confidence: Sequence[float | None]


def write_predictions(
    path: str,
    splits: Sequence[Split],
    whole: Mapping[str, Split],
    encoder: BatchEncoder,
    learner: ModelTrainer,
    *,
    batch_size: int,
    threads: int | None,
) -> None:
    """Predict the records of some splits. `whole` are these splits without a limit, which identify the files."""
    task = encoder.task
    classes = to_valid_text(task.classes)
    facts = PredictionFacts(
        task=task.kind, target=to_valid_text([task.target])[0], classes=tuple(classes), digests=read_digests(whole)
    )
    with PredictionWriter(path, _KINDS[task.kind], facts) as writer:
        for split in splits:
            name, first = to_valid_text([split.name])[0], 0
            with iter(split.batches(batch_size, shuffle=False, threads=threads, **encoder.reading())) as batches:
                for batch in batches:
                    step = get_step(batch)
                    output = learner.predict(step)
                    rows = describe_predictions(task, output, step.y, classes)
                    errors = measure_errors(task, output, step.y).tolist()
                    writer.add(name, first, rows.truth, rows.prediction, rows.confidence, errors)
                    first += step.rows


def describe_predictions(task: Task, output: Array, true: Array, classes: Sequence[str]) -> PredictedRows:
    """The truth, the prediction and the confidence of each record, from the output of the model.

    The confidence is the probability of the predicted class; of several classes, that of the least certain answer; of
    a mask, the mean over its pixels.
    """
    if task.kind == "regression":
        numbers = output.reshape(-1).astype(np.float64).tolist()
        return PredictedRows(true.astype(np.float64).tolist(), numbers, [None] * len(numbers))
    if task.kind == "multilabel":
        shares = compute_label_probabilities(output)
        sure = np.maximum(shares, 1 - shares).min(-1).tolist()
        return PredictedRows(
            [_list_classes(classes, one) for one in true], [_list_classes(classes, one) for one in shares > 0.5], sure
        )
    shares = compute_probabilities(output)
    best = shares.argmax(-1)
    if task.kind == "segmentation":
        learned = np.ones(true.shape, np.bool_) if task.ignore is None else true != task.ignore
        sure = [
            float(one[kept].mean()) if kept.any() else None for one, kept in zip(shares.max(-1), learned, strict=True)
        ]
        present = [
            [classes[i] for i in np.unique(one[kept]).tolist()] for one, kept in zip(true, learned, strict=True)
        ]
        return PredictedRows(present, [[classes[i] for i in np.unique(one).tolist()] for one in best], sure)
    return PredictedRows(
        [classes[i] for i in true.tolist()], [classes[i] for i in best.tolist()], shares.max(-1).tolist()
    )


def _list_classes(classes: Sequence[str], has: Array) -> list[str]:
    return [name for name, one in zip(classes, has.tolist(), strict=True) if one]

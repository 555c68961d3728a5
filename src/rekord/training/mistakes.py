"""The worst predictions of a run, with small images or values to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.codec.columns import Column
from rekord.codec.preview import ThumbnailBudget, describe_cell, make_thumbnail, pixels_to_thumbnail
from rekord.dataset.split import Split
from rekord.errors import RekordError
from rekord.report.notebook import Thumbnail
from rekord.training.inputs import Array, BatchEncoder, TrainingStep
from rekord.training.model import ModelTrainer
from rekord.training.result import (
    Mistake,
    compute_label_probabilities,
    compute_probabilities,
    compute_record_iou,
)
from rekord.training.task import Task

_MAX_BYTES = 900_000
_MAX_PIXELS = 240_000_000
_SIDE = 192
_MAX_CELLS = 8


@dataclass(frozen=True, slots=True)
class ShownMistake:
    """A mistake as it is shown: images (for masks, the image, the truth and the prediction), or values."""

    mistake: Mistake
    images: Sequence[Thumbnail | None] = ()
    cells: Mapping[str, str] | None = None


def collect_mistakes(
    split: Split, encoder: BatchEncoder, learner: ModelTrainer, worst: Sequence[int]
) -> list[ShownMistake]:
    """Predict the worst records of a split again, one by one, and prepare them to be shown."""
    found = []
    budget = ThumbnailBudget(_MAX_PIXELS, _MAX_BYTES, _SIDE)
    try:
        for record in worst:
            stored: dict[str, Column] = dict(split[[record]])
            step = encoder(encoder.decode_images(stored, split.schema))
            found.append(_describe(record, split, stored, step, learner.predict(step), encoder, budget))
    except RekordError:
        # Records of a compressed file cannot be read by number. A finished run is not lost for that.
        return found
    return found


def _describe(
    record: int,
    split: Split,
    stored: Mapping[str, Column],
    step: TrainingStep,
    predicted: Array,
    encoder: BatchEncoder,
    budget: ThumbnailBudget,
) -> ShownMistake:
    task = encoder.task
    if task.kind == "segmentation":
        mistake = Mistake(record, None, None, iou=compute_record_iou(task, predicted[0], step.y[0]))
        overlays = [None, step.y[0], predicted[0].argmax(-1)]
        return ShownMistake(mistake, [_draw(stored, step, task, budget, ids) for ids in overlays])
    if task.kind == "regression":
        mistake = Mistake(record, float(step.y[0]), float(predicted.reshape(-1)[0]))
    elif task.kind == "multilabel":
        shares = compute_label_probabilities(predicted)[0]
        worst = float(np.abs(shares - step.y[0]).max())
        mistake = Mistake(record, _join_classes(task, step.y[0]), _join_classes(task, shares > 0.5), worst)
    else:
        shares = compute_probabilities(predicted)[0]
        best = int(shares.argmax())
        mistake = Mistake(record, task.classes[int(step.y[0])], task.classes[best], float(shares[best]))
    if "image" in task.forms:
        return ShownMistake(mistake, [_draw(stored, step, task, budget, None)])
    names = [each.column for each in task.inputs][:_MAX_CELLS]
    features = split.schema.features
    return ShownMistake(mistake, cells={name: _describe_value(stored[name][0], features[name]) for name in names})


def _join_classes(task: Task, has: Array) -> str:
    return ", ".join([name for name, one in zip(task.classes, has.tolist(), strict=True) if one]) or "none"


def _draw(
    stored: Mapping[str, Column], step: TrainingStep, task: Task, budget: ThumbnailBudget, ids: Array | None
) -> Thumbnail | None:
    column = next(each.column for each in task.inputs if each.form == "image")
    data = stored[column][0]
    if isinstance(data, bytes):
        return make_thumbnail(data, budget, ids=ids, ignore=task.ignore)
    # Stored as numbers: shown as the model sees them.
    pixels = np.asarray(step.x["image"][0], np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - min(low, 0.0)) / ((high - min(low, 0.0)) or 1.0) * 255
    return pixels_to_thumbnail(scaled[:, :, :3].astype(np.uint8), budget, ids=ids, ignore=task.ignore)


def _describe_value(value: Any, feature: Any) -> str:
    return "–" if value is None else describe_cell(value, feature)


_MAX_EXAMPLE_VALUES = 16
_MAX_EXAMPLE_CHARACTERS = 80


def read_example(split: Split, encoder: BatchEncoder) -> dict[str, Any] | None:
    """The inputs of the first record as literals, for code in the report; None if they are images or too long."""
    if "image" in encoder.task.forms:
        return None
    try:
        row = split[0]
    except RekordError:  # of a compressed file
        return None
    found = {}
    for each in encoder.task.inputs:
        value, feature = row[each.column], split.schema[each.column]
        if isinstance(value, (np.generic, np.ndarray)) and value.size <= _MAX_EXAMPLE_VALUES:
            value = value.tolist()
        names = feature.class_names
        if names is not None and isinstance(value, int) and 0 <= value < len(names):
            value = names[value]
        if isinstance(value, (str, bytes)):
            value = value[:_MAX_EXAMPLE_CHARACTERS]
        elif not isinstance(value, (int, float, list, type(None))):
            return None
        if value is not None:
            found[each.column] = value
    return found

"""What must be known of the records before a model can take them: means, vocabularies, sizes, class weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.arguments import height_and_width
from rekord.codec.columns import Strings
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.schema import Feature
from rekord.training.inputs import (
    LEAST_SIDE,
    MOST_IDS,
    MOST_LENGTH,
    MOST_SIDE,
    SPLITTING,
    Batch,
    Category,
    Encoder,
    Numbers,
    Part,
    Picture,
    Pixels,
    Step,
    TokenIds,
    WordIds,
    dense,
    side_by_side,
    token_lists,
)
from rekord.training.task import Task, as_text, first_batch, sampled, valid_rows
from rekord.transforms.vocabularies import WordCounts, Words

Weights: TypeAlias = "npt.NDArray[np.float64]"

_MASKS = 1000
"""The pixels of so many masks, chosen at random, tell how frequent the classes are."""

_MOST = 10.0
"""A class of a few pixels would otherwise weigh more than all others together."""


def refuse_numbers(task: Task) -> None:
    """A number has no classes that could be balanced."""
    if task.kind == "regression":
        raise error(
            "U605",
            "`class_weights` and `balance` need classes, and the target is a number",
            expected="a target of classes",
            found=f"`{task.target}`, a number",
            do="leave them out",
        )


def class_weights_of(split: Split, encoder: Encoder, *, seed: int, batch_size: int) -> Weights:
    """One weight a class: records (or pixels) / (classes × those of the class); 1 of a class that does not occur."""
    task = encoder.task
    if task.kind == "segmentation":
        return _of_pixels(split, encoder, seed=seed, batch_size=batch_size)
    found = split.class_weights(by=task.target)
    ids: dict[Any, int] = {value: i for i, value in enumerate(task.values or range(len(task.classes)))}
    weights = np.ones(len(task.classes))
    for value, weight in found.items():
        weights[ids[value]] = weight
    return weights


def _of_pixels(split: Split, encoder: Encoder, *, seed: int, batch_size: int) -> Weights:
    task = encoder.task
    counts = np.zeros(len(task.classes), np.int64)
    seen = 0
    loader = split.batches(
        batch_size, shuffle=True, seed=seed, map=lambda batch: {"step": encoder(batch)}, **encoder.reading()
    )
    with iter(loader) as batches:
        for batch in batches:
            step: Step = batch["step"]  # type: ignore[assignment]
            ids = step.y.reshape(-1)
            if task.ignore is not None:
                ids = ids[ids != task.ignore]
            counts += np.bincount(ids, minlength=len(counts))
            seen += step.rows
            if seen >= _MASKS:
                break
    present = counts > 0
    weights = np.ones(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return np.minimum(weights, _MOST)


Array: TypeAlias = "npt.NDArray[Any]"
Size: TypeAlias = "tuple[int, int]"
Progress: TypeAlias = "Callable[[int, int], None] | None"
"""Called with how many records are done, and of how many."""

LEARNED_RECORDS = 100_000
MOST_WORDS = 20_000
MOST_CATEGORIES = 1_000
USUAL_SIDE = 64
SEGMENTED_SIDE = 128
_SIDE_STEP = 8  # what is halved three times must be a multiple of this
_LONG_PERCENT = 95  # so many texts of a hundred are not cut

_COUNTED_WORDS = 1_000_000
_BATCH_VALUES = 1 << 22
_MOST_ROWS = 1024
_SCALES = {"uint8": 255.0, "uint16": 65535.0, "bool": 1.0}


def learn(split: Split, task: Task, *, image_size: Size | None = None, progress: Progress = None) -> Encoder:
    """The encoder for a task. At most 100,000 records are read, with equal gaps; none if nothing is learned."""
    schema = split.schema
    if image_size is not None:
        image_size = height_and_width("image_size", image_size, least=LEAST_SIDE, most=MOST_SIDE)
    learners = _learners(split, task, image_size)
    target = _Moments(task.target) if task.kind == "regression" else None
    reading = [one for one in (*learners.values(), target) if isinstance(one, _Learner)]
    columns = [name for one in reading for name in one.columns]
    if columns:
        some = sampled(split, LEARNED_RECORDS)
        most_values = max([_values_of(schema[name]) for name in columns])
        rows = max(1, min(_MOST_ROWS, _BATCH_VALUES // most_values))
        batches = iter(some.batches(rows, columns=columns))
        for batch in batches:
            for one in reading:
                one.add(batch)
            if progress is not None:
                progress(batches.consumed, len(some))
    parts = {name: one.made() if isinstance(one, _Learner) else one for name, one in learners.items()}
    if target is None:
        return Encoder(task, parts)
    mean, variance = target.mean_and_variance()
    return Encoder(task, parts, float(mean[0]), math.sqrt(float(variance[0])))


class _Learner:
    """Takes batches, and makes a part of what it has seen."""

    columns: tuple[str, ...]

    def add(self, batch: Batch) -> None:
        raise NotImplementedError

    def made(self) -> Part:
        raise NotImplementedError


class _Moments(_Learner):
    """Means and variances of numbers side by side, of those that are finite."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._count: Array = np.zeros(0)
        self._mean: Array = np.zeros(0)
        self._squares: Array = np.zeros(0)  # of the distances from the mean
        self._least: Array = np.zeros(0)
        self._most: Array = np.zeros(0)

    def add(self, batch: Batch) -> None:
        values = side_by_side(batch, self.columns).astype(np.float64)
        if not len(self._count):
            width = values.shape[1]
            self._count, self._mean, self._squares = np.zeros(width), np.zeros(width), np.zeros(width)
            self._least, self._most = np.full(width, np.inf), np.full(width, -np.inf)
        finite = np.isfinite(values)
        count = finite.sum(axis=0)
        mean = np.where(finite, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = (np.where(finite, values - mean, 0.0) ** 2).sum(axis=0)
        # Two sets of numbers as one, without the loss that sums of squares would have.
        total = np.maximum(self._count + count, 1)
        apart = mean - self._mean
        self._squares += squares + apart**2 * self._count * count / total
        self._mean += apart * count / total
        self._count += count
        self._least = np.minimum(self._least, np.where(finite, values, np.inf).min(axis=0))
        self._most = np.maximum(self._most, np.where(finite, values, -np.inf).max(axis=0))

    def mean_and_variance(self) -> tuple[Array, Array]:
        variance = self._squares / np.maximum(self._count, 1)
        bounded = np.minimum(variance, float(np.finfo(np.float32).max)).astype(np.float32)
        # What never varied is divided by 1, not by 0.
        return self._mean.astype(np.float32), np.where(bounded > 0, bounded, np.float32(1))

    def made(self) -> Part:
        mean, variance = self.mean_and_variance()
        seen = self._count > 0
        bounds = [np.where(seen, bound, 0.0).astype(np.float32) for bound in (self._least, self._most)]
        return Numbers(self.columns, mean, variance, *bounds)


class _Categories(_Learner):
    """The values of a string column that occur most often."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._counts = WordCounts(column, by_text=False)

    def add(self, batch: Batch) -> None:
        column = batch[self.columns[0]]
        assert isinstance(column, Strings)
        there = valid_rows(column).tolist()
        values = [as_text(value) for value, known in zip(column.tolist(), there, strict=True) if known]
        self._counts.counts.update(values)

    def made(self) -> Part:
        words = Words(tuple(sorted(self._counts.most_common(MOST_CATEGORIES, 1))))
        return Category(self.columns[0], words, len(words))


class _Vocabulary(_Learner):
    """The words that occur most often, and how many most texts have."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._counts = WordCounts(column, by_text=False)
        self._lengths: list[Array] = []

    def add(self, batch: Batch) -> None:
        column = batch[self.columns[0]]
        assert isinstance(column, Strings)
        texts = [SPLITTING(as_text(text)) for text in column.tolist()]
        for words in texts:
            if len(self._counts.counts) < _COUNTED_WORDS:  # rarer ones would not be among the most frequent
                self._counts.add(words)
        self._lengths.append(np.array([len(words) for words in texts], np.int64))

    def made(self) -> Part:
        words = Words(self._counts.most_common(MOST_WORDS, 1))
        return WordIds(self.columns[0], words, _usual_length(self._lengths))


class _Tokens(_Learner):
    """The largest token, and how many most lists have."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._largest = 0
        self._lengths: list[Array] = []

    def add(self, batch: Batch) -> None:
        tokens = token_lists(batch[self.columns[0]])
        self._largest = max(self._largest, int(np.asarray(tokens.values).max(initial=0)))
        self._lengths.append(tokens.lengths)

    def made(self) -> Part:
        return TokenIds(self.columns[0], self._largest, _usual_length(self._lengths))


class _Scale(_Learner):
    """The largest number in images that are stored as such numbers as say nothing of their range."""

    def __init__(self, image: Pixels) -> None:
        self.columns = (image.column,)
        self._image = image
        self._most = 0.0

    def add(self, batch: Batch) -> None:
        values = dense(batch[self.columns[0]]).astype(np.float64)
        self._most = max(self._most, float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))

    def made(self) -> Part:
        bounded = min(self._most, float(np.finfo(np.float32).max))
        image = self._image
        return Pixels(image.column, image.height, image.width, image.channels, bounded or 1.0)


def _learners(split: Split, task: Task, size: Size | None) -> dict[str, Part | _Learner]:
    """The inputs by name: parts where all is known, else who learns them."""
    found: dict[str, Part | _Learner] = {}
    numbers = [each.column for each in task.inputs if each.form == "numbers"]
    several = {"category": 0, "text": 0, "tokens": 0}
    for each in task.inputs:
        if each.form == "image":
            found["image"] = _image(split, task, each.column, size)
        elif each.form == "numbers":
            found.setdefault("numbers", _Moments(*numbers))
        else:
            found[f"{each.form}_{several[each.form]}"] = _ids(
                split.schema[each.column], each.column, each.form
            )
            several[each.form] += 1
    return found


def _ids(feature: Feature, column: str, form: str) -> Part | _Learner:
    if feature.class_count is not None:
        return Category(column, None, min(feature.class_count, MOST_IDS))
    made: dict[str, Callable[[str], _Learner]] = {
        "category": _Categories,
        "text": _Vocabulary,
        "tokens": _Tokens,
    }
    return made[form](column)


def _image(split: Split, task: Task, column: str, size: Size | None) -> Part | _Learner:
    feature = split.schema[column]
    if feature.dtype is None:
        seen = _picture_size(split, column)
        height, width = _size(task, seen, size)
        channels = getattr(feature, "channels", None) or 3
        return Picture(column, height, width, channels, is_stored=not feature.is_picture)
    shape = [length or 1 for length in feature.shape]
    height, width = _size(task, (shape[0], shape[1]), size)
    image = Pixels(column, height, width, shape[2] if len(shape) > 2 else 1, 1.0)
    if feature.dtype.name not in _SCALES:
        return _Scale(image)
    return Pixels(column, height, width, image.channels, _SCALES[feature.dtype.name])


def _picture_size(split: Split, column: str) -> Size:
    """Height and width that hold the first few pictures; what cannot be looked at says nothing."""
    sizes = [(1, 1)]
    for data in first_batch(split, [column]).get(column, []):
        facts = None if data is None else _core.look(data, False)
        if facts is not None and facts.width and facts.height:
            sizes.append((facts.height, facts.width))
    return (
        (max(size[0] for size in sizes), max(size[1] for size in sizes)) if len(sizes) > 1 else (1 << 30,) * 2
    )


def _size(task: Task, seen: Size, asked: Size | None) -> Size:
    """The size that is asked for, else a usual one, not larger than the pictures are."""
    is_segmentation = task.kind == "segmentation"
    usual = SEGMENTED_SIDE if is_segmentation else USUAL_SIDE
    height, width = asked or (min(seen[0], usual), min(seen[1], usual))
    step = _SIDE_STEP if is_segmentation else 1
    return -(-height // step) * step, -(-width // step) * step


def _usual_length(lengths: list[Array]) -> int:
    """What most lists fit into; at least one place, and not more than a small model has use for."""
    joined = np.concatenate(lengths) if lengths else np.zeros(1)
    if not len(joined):
        return 1
    return max(1, min(MOST_LENGTH, math.ceil(float(np.percentile(joined, _LONG_PERCENT)))))


def _values_of(feature: Feature) -> int:
    """How many numbers a record has in a column, about."""
    return max(1, math.prod([size or MOST_LENGTH for size in feature.shape]))

"""What is learned from the records before training: means, vocabularies, image sizes, class weights."""

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
from rekord.training import inputs
from rekord.training.inputs import MAX_IDS, MAX_LENGTH, MAX_SIDE, MIN_SIDE, WORD_SPLITTING, Batch
from rekord.training.task import Task, decode_string, find_valid_rows, read_first_batch, sample_evenly
from rekord.transforms.vocabularies import WordCounts, WordList

Weights: TypeAlias = "npt.NDArray[np.float64]"

_MAX_SAMPLED_MASKS = 1000
"""The number of randomly chosen masks whose pixels are counted for class weights."""

_MAX_WEIGHT = 10.0
"""Otherwise a class with a few pixels would outweigh all others together."""


def check_class_options(task: Task, *, balance: bool, class_weights: bool) -> None:
    """Raise if the target has no classes to balance, or several per record, which have no weight in common."""
    if class_weights and task.kind == "multilabel":
        raise error(
            "U605",
            "`class_weights` needs one class per record",
            expected="a target with one class per record",
            found=f"`{task.target}`, several labels per record",
            do="balance=True, to repeat the records with rare labels",
        )
    if task.kind == "regression" and (balance or class_weights):
        raise error(
            "U605",
            "`class_weights` and `balance` need a target with classes",
            expected="a target with classes",
            found=f"`{task.target}`, a number",
            do="balance=False, class_weights=False",
        )


def compute_class_weights(split: Split, encoder: inputs.BatchEncoder, *, seed: int, batch_size: int) -> Weights:
    """One weight per class: records (or pixels) / (classes × those of the class); 1 if a class does not occur."""
    task = encoder.task
    if task.kind == "segmentation":
        return _compute_pixel_weights(split, encoder, seed=seed, batch_size=batch_size)
    found = split.class_weights(by=task.target)
    ids: dict[Any, int] = {value: i for i, value in enumerate(task.values or range(len(task.classes)))}
    weights = np.ones(len(task.classes))
    for value, weight in found.items():
        weights[ids[value]] = weight
    return weights


def _compute_pixel_weights(split: Split, encoder: inputs.BatchEncoder, *, seed: int, batch_size: int) -> Weights:
    task = encoder.task
    counts = np.zeros(len(task.classes), np.int64)
    seen = 0
    with iter(split.batches(batch_size, shuffle=True, seed=seed, **encoder.reading())) as batches:
        for batch in batches:
            step = inputs.get_step(batch)
            ids = step.y.reshape(-1)
            if task.ignore is not None:
                ids = ids[ids != task.ignore]
            counts += np.bincount(ids, minlength=len(counts))
            seen += step.rows
            if seen >= _MAX_SAMPLED_MASKS:
                break
    present = counts > 0
    weights = np.ones(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return np.minimum(weights, _MAX_WEIGHT)


Array: TypeAlias = "npt.NDArray[Any]"
ImageSize: TypeAlias = "tuple[int, int]"
FitCallback: TypeAlias = "Callable[[int, int], None] | None"
"""Called with the number of records done, and the total."""

MAX_FIT_RECORDS = 100_000
MAX_WORDS = 20_000
MAX_CATEGORIES = 1_000
DEFAULT_SIDE = 64
DEFAULT_SEGMENTATION_SIDE = 128
_SIDE_STEP = 8  # a side that is halved three times must be a multiple of this
_LENGTH_PERCENTILE = 95  # this percentage of texts is not truncated

_MAX_COUNTED_WORDS = 1_000_000
_BATCH_VALUES = 1 << 22
_MAX_ROWS = 1024
_SCALES = {"uint8": 255.0, "uint16": 65535.0, "bool": 1.0}


def fit_encoder(
    split: Split, task: Task, *, image_size: ImageSize | None = None, progress: FitCallback = None
) -> inputs.BatchEncoder:
    """The encoder for a task. At most 100,000 evenly spaced records are read; none if nothing has to be learned."""
    schema = split.schema
    if image_size is not None:
        image_size = height_and_width("image_size", image_size, least=MIN_SIDE, most=MAX_SIDE)
    learners = _build_inputs(split, task, image_size)
    target = _NumberFitter(task.target) if task.kind == "regression" else None
    reading = [one for one in (*learners.values(), target) if isinstance(one, _InputFitter)]
    columns = [name for one in reading for name in one.columns]
    if columns:
        some = sample_evenly(split, MAX_FIT_RECORDS)
        most_values = max([_count_values(schema[name]) for name in columns])
        rows = max(1, min(_MAX_ROWS, _BATCH_VALUES // most_values))
        batches = iter(some.batches(rows, columns=columns))
        for batch in batches:
            for one in reading:
                one.add(batch)
            if progress is not None:
                progress(batches.consumed, len(some))
    parts = {name: one.made() if isinstance(one, _InputFitter) else one for name, one in learners.items()}
    if target is None:
        return inputs.BatchEncoder(task, parts)
    mean, variance = target.mean_and_variance()
    return inputs.BatchEncoder(task, parts, float(mean[0]), math.sqrt(float(variance[0])))


class _InputFitter:
    """Learns an input from batches."""

    columns: tuple[str, ...]

    def add(self, batch: Batch) -> None:
        raise NotImplementedError

    def made(self) -> inputs.InputEncoder:
        raise NotImplementedError


class _NumberFitter(_InputFitter):
    """Means and variances of concatenated numbers, without those that are not finite."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._count: Array = np.zeros(0)
        self._mean: Array = np.zeros(0)
        self._squares: Array = np.zeros(0)  # of the distances from the mean
        self._least: Array = np.zeros(0)
        self._most: Array = np.zeros(0)

    def add(self, batch: Batch) -> None:
        values = inputs.stack_columns(batch, self.columns).astype(np.float64)
        if not len(self._count):
            width = values.shape[1]
            self._count, self._mean, self._squares = np.zeros(width), np.zeros(width), np.zeros(width)
            self._least, self._most = np.full(width, np.inf), np.full(width, -np.inf)
        finite = np.isfinite(values)
        count = finite.sum(axis=0)
        mean = np.where(finite, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = (np.where(finite, values - mean, 0.0) ** 2).sum(axis=0)
        # Merges two sets of numbers without the rounding error of sums of squares.
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
        # A constant is divided by 1, not by 0.
        return self._mean.astype(np.float32), np.where(bounded > 0, bounded, np.float32(1))

    def made(self) -> inputs.InputEncoder:
        mean, variance = self.mean_and_variance()
        seen = self._count > 0
        bounds = [np.where(seen, bound, 0.0).astype(np.float32) for bound in (self._least, self._most)]
        return inputs.NumberInput(self.columns, mean, variance, *bounds)


class _CategoryFitter(_InputFitter):
    """The most frequent values of a string column."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._counts = WordCounts(column, by_text=False)

    def add(self, batch: Batch) -> None:
        column = batch[self.columns[0]]
        assert isinstance(column, Strings)
        there = find_valid_rows(column).tolist()
        values = [decode_string(value) for value, known in zip(column.tolist(), there, strict=True) if known]
        self._counts.counts.update(values)

    def made(self) -> inputs.InputEncoder:
        words = WordList(tuple(sorted(self._counts.most_common(MAX_CATEGORIES, 1))))
        return inputs.CategoryInput(self.columns[0], words, len(words))


class _VocabularyFitter(_InputFitter):
    """The most frequent words, and the length of most texts."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._counts = WordCounts(column, by_text=False)
        self._lengths: list[Array] = []

    def add(self, batch: Batch) -> None:
        column = batch[self.columns[0]]
        assert isinstance(column, Strings)
        texts = [WORD_SPLITTING(decode_string(text)) for text in column.tolist()]
        for words in texts:
            if len(self._counts.counts) < _MAX_COUNTED_WORDS:  # rarer ones would not be among the most frequent
                self._counts.add(words)
        self._lengths.append(np.array([len(words) for words in texts], np.int64))

    def made(self) -> inputs.InputEncoder:
        words = WordList(self._counts.most_common(MAX_WORDS, 1))
        return inputs.TextInput(self.columns[0], words, _choose_length(self._lengths))


class _TokenFitter(_InputFitter):
    """The largest token, and the length of most lists."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._largest = 0
        self._lengths: list[Array] = []

    def add(self, batch: Batch) -> None:
        tokens = inputs.to_token_lists(batch[self.columns[0]])
        self._largest = max(self._largest, int(np.asarray(tokens.values).max(initial=0)))
        self._lengths.append(tokens.lengths)

    def made(self) -> inputs.InputEncoder:
        return inputs.TokenInput(self.columns[0], self._largest, _choose_length(self._lengths))


class _ScaleFitter(_InputFitter):
    """The largest number in images whose dtype does not imply a range."""

    def __init__(self, image: inputs.PixelInput) -> None:
        self.columns = (image.column,)
        self._image = image
        self._most = 0.0

    def add(self, batch: Batch) -> None:
        values = inputs.to_dense(batch[self.columns[0]]).astype(np.float64)
        self._most = max(self._most, float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))

    def made(self) -> inputs.InputEncoder:
        bounded = min(self._most, float(np.finfo(np.float32).max))
        image = self._image
        return inputs.PixelInput(image.column, image.height, image.width, image.channels, bounded or 1.0)


def _build_inputs(split: Split, task: Task, size: ImageSize | None) -> dict[str, inputs.InputEncoder | _InputFitter]:
    """The inputs by name: encoders, or fitters for those that have to be learned."""
    found: dict[str, inputs.InputEncoder | _InputFitter] = {}
    numbers = [each.column for each in task.inputs if each.form == "numbers"]
    several = {"category": 0, "text": 0, "tokens": 0}
    for each in task.inputs:
        if each.form == "image":
            found["image"] = _build_image_input(split, task, each.column, size)
        elif each.form == "numbers":
            found.setdefault("numbers", _NumberFitter(*numbers))
        else:
            found[f"{each.form}_{several[each.form]}"] = _build_id_input(
                split.schema[each.column], each.column, each.form
            )
            several[each.form] += 1
    return found


def _build_id_input(feature: Feature, column: str, form: str) -> inputs.InputEncoder | _InputFitter:
    if feature.class_count is not None:
        return inputs.CategoryInput(column, None, min(feature.class_count, MAX_IDS))
    made: dict[str, Callable[[str], _InputFitter]] = {
        "category": _CategoryFitter,
        "text": _VocabularyFitter,
        "tokens": _TokenFitter,
    }
    return made[form](column)


def _build_image_input(
    split: Split, task: Task, column: str, size: ImageSize | None
) -> inputs.InputEncoder | _InputFitter:
    feature = split.schema[column]
    if feature.dtype is None:
        seen = _measure_image_size(split, column)
        height, width = _choose_image_size(task, seen, size)
        channels = getattr(feature, "channels", None) or 3
        return inputs.ImageInput(column, height, width, channels, is_stored=not feature.is_image)
    shape = [length or 1 for length in feature.shape]
    height, width = _choose_image_size(task, (shape[0], shape[1]), size)
    image = inputs.PixelInput(column, height, width, shape[2] if len(shape) > 2 else 1, 1.0)
    if feature.dtype.name not in _SCALES:
        return _ScaleFitter(image)
    return inputs.PixelInput(column, height, width, image.channels, _SCALES[feature.dtype.name])


def _measure_image_size(split: Split, column: str) -> ImageSize:
    """The largest height and width of the first images; invalid images are ignored."""
    sizes = [(1, 1)]
    for data in read_first_batch(split, [column]).get(column, []):
        facts = None if data is None else _core.inspect_image(data, False)
        if facts is not None and facts.width and facts.height:
            sizes.append((facts.height, facts.width))
    return (max(size[0] for size in sizes), max(size[1] for size in sizes)) if len(sizes) > 1 else (1 << 30,) * 2


def _choose_image_size(task: Task, seen: ImageSize, requested: ImageSize | None) -> ImageSize:
    """The requested size, or a default that is not larger than the images."""
    is_segmentation = task.kind == "segmentation"
    usual = DEFAULT_SEGMENTATION_SIDE if is_segmentation else DEFAULT_SIDE
    height, width = requested or (min(seen[0], usual), min(seen[1], usual))
    step = _SIDE_STEP if is_segmentation else 1
    return -(-height // step) * step, -(-width // step) * step


def _choose_length(lengths: list[Array]) -> int:
    """A length that most lists fit into, from 1 to MAX_LENGTH."""
    joined = np.concatenate(lengths) if lengths else np.zeros(1)
    if not len(joined):
        return 1
    return max(1, min(MAX_LENGTH, math.ceil(float(np.percentile(joined, _LENGTH_PERCENTILE)))))


def _count_values(feature: Feature) -> int:
    """The approximate number of values per record in a column."""
    return max(1, math.prod([size or MAX_LENGTH for size in feature.shape]))

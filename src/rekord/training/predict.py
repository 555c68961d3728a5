"""`rk.load_model`: a trained model, and its predictions for new files and rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.arguments import check_keywords, flag, invalid
from rekord.codec.columns import Column, Strings
from rekord.codec.encode import encode
from rekord.codec.images.decode import nearest_indices
from rekord.dataset.dataset import Dataset
from rekord.dataset.preview import decode_payloads
from rekord.errors import RekordError, add_location, error
from rekord.location import Location
from rekord.schema import Image, Schema, Text
from rekord.storage.local import LOCAL, read_file
from rekord.storage.router import ROUTED_STORAGE
from rekord.training.checkpoint import RunFolder
from rekord.training.inputs import BatchEncoder
from rekord.training.model import load_keras
from rekord.training.result import compute_label_probabilities, compute_probabilities
from rekord.training.task import InputColumn, Task
from rekord.transforms.base import Bound, ColumnTransform, Transform
from rekord.transforms.chain import Chain, deserialize_transforms, serialize_transform
from rekord.transforms.images import ImageTransform

Array: TypeAlias = "npt.NDArray[Any]"
NewItem: TypeAlias = "str | os.PathLike[str] | bytes | npt.NDArray[Any] | Mapping[str, Any]"
"""An image file, encoded bytes, pixels, a string, or a row."""

_MAX_STATE_BYTES = 64 << 20
_MAX_IMAGE_BYTES = 256 << 20
_ROWS = 32


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model predicts for one item.

    `value` is the name of a class, a tuple of names if there may be several, a number, or for masks the class id of
    each pixel of the image. Classes have `probabilities`, and `probability` is that of `value` if it is one class.
    """

    value: Any
    probability: float | None = None
    probabilities: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        if isinstance(self.value, np.ndarray):
            return f"Prediction({self.value.dtype} mask of {self.value.shape[0]} × {self.value.shape[1]} pixels)"
        sure = "" if self.probability is None else f", probability={self.probability:.3f}"
        return f"Prediction({self.value!r}{sure})"


@check_keywords
def load_model(folder: str | os.PathLike[str], *, backend: str | None = None) -> TrainedModel:
    """Load the model of a finished `rk.train` run from its folder, on any Keras backend.

    `model.predict("new.jpg")` and `model.predict({"age": 48, "city": "Rome"})` prepare a file or a row as the records
    were prepared for training: dataset transforms, resizing, normalisation, vocabularies.
    """
    place = RunFolder(os.fspath(folder))
    state = _read_state(place)
    try:
        prepared = InputPreparation.from_dict(state)
        encoder = BatchEncoder.from_dict(state, _restore_task(state))
    except RekordError:  # some of them are a ValueError too
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        raise _folder_error(place.inputs, f"{type(failure).__name__}: {failure}") from failure
    keras = load_keras(backend)
    try:
        model = keras.models.load_model(place.model, compile=False)
    except Exception as failure:  # there is no list of what Keras raises for a file that is not a model
        raise _folder_error(place.model, str(failure).split("\n", 1)[0]) from failure
    return TrainedModel(place.folder, encoder, prepared, model)


@dataclass(frozen=True, eq=False)
class InputPreparation:
    """How new rows become stored ones: the schema of the inputs, and the transforms of the dataset."""

    schema: Schema  # of the inputs, as stored
    other_columns: frozenset[str]  # of the dataset: a row may have them, and they are ignored
    transforms: tuple[Transform, ...] | None  # of the inputs; None if the recorded ones cannot be restored
    folder: str  # of the dataset, which has the vocabularies of transforms

    @classmethod
    def of_dataset(cls, dataset: Dataset, path: str, schema: Schema, task: Task) -> InputPreparation:
        """The preparation of the inputs of a task."""
        names = {each.column for each in task.inputs}
        steps = {name: feature for name, feature in schema.steps.items() if name in names}
        context = {name: feature for name, feature in schema.context.items() if name in names}
        inputs = Schema(context=context, steps=steps) if schema.steps else Schema(context)
        transforms: tuple[Transform, ...] | None = None
        with suppress(RekordError):  # custom transforms have only a name there
            transforms = _select_transforms(dataset.transforms.steps, names)
        return cls(inputs, frozenset(schema.features) - names, transforms, os.path.abspath(path))

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        steps = None if self.transforms is None else [serialize_transform(step) for step in self.transforms]
        return {
            "schema": msgspec.json.decode(self.schema.to_json(evidence=False)),
            "other_columns": sorted(self.other_columns),
            "transforms": steps,
            "dataset": self.folder,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> InputPreparation:
        """Restored from the result of `to_dict`."""
        recorded, folder = state["transforms"], str(state["dataset"])
        transforms = None if recorded is None else deserialize_transforms(recorded, folder).steps
        schema = Schema.from_json(msgspec.json.encode(state["schema"]))
        return cls(schema, frozenset(state["other_columns"]), transforms, folder)

    def encode(self, row: Mapping[str, Any], *, transformed: bool) -> bytes:
        """A row as a record with the inputs alone."""
        values = {name: value for name, value in row.items() if name not in self.other_columns}
        if self.transforms == () or transformed:
            return encode(values, self.schema)
        before, bound = self._bound
        made = bound.apply(dict(values))
        unknown = [name for name in values if name not in before]
        # An unknown column is reported as in any other row.
        return encode({name: made[name] for name in made if name in self.schema or name in unknown}, self.schema)

    @cached_property
    def _bound(self) -> tuple[Schema, Bound]:
        """The schema of rows before the transforms, as far as it can be determined, and the transforms for them."""
        steps = self.transforms or ()
        has_images = any(isinstance(step, ImageTransform) for step in steps)
        for text in (None, Text()):
            raw = dict(self.schema.features)
            for step in reversed(steps):
                if isinstance(step, ColumnTransform):
                    raw[step.column] = text or raw.pop(step.target, Text())
            before = Schema({n: Image() if has_images and _is_pixels(one) else one for n, one in raw.items()})
            with suppress(RekordError):  # such as one that needs text
                bound = Chain(steps).bind(before)
                if steps and all(name in bound.schema for name in self.schema):
                    return before, bound
        raise error(
            "U691",
            "transforms of the dataset cannot be applied to new rows",
            expected="transforms of rk.transforms, whose columns a new row has",
            found=", ".join(step.name for step in steps)[:60] or "others",
            do="apply the transforms yourself, then model.predict(row, transformed=True)",
        )


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model with everything that is needed to use it. `keras_model` is the Keras model itself."""

    folder: str
    encoder: BatchEncoder
    preparation: InputPreparation
    keras_model: Any

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes by id; empty for numbers."""
        return self.encoder.task.classes

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that a row needs."""
        return tuple([each.column for each in self.encoder.task.inputs])

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text and a row are iterable too
        self, items: NewItem, *, transformed: bool = False
    ) -> Prediction: ...
    @overload
    def predict(self, items: Iterable[NewItem], *, transformed: bool = False) -> list[Prediction]: ...
    def predict(
        self, items: NewItem | Iterable[NewItem], *, transformed: bool = False
    ) -> Prediction | list[Prediction]:
        """Predict one item, or a list of them.

        For a model with an image, an item is the path of an image file (local or remote), its bytes, or an array of
        pixels; for a model with one column of strings, it is the string. Any model takes rows: dicts with the input
        columns; other columns of the dataset are ignored. `transformed=True` is for rows read from a dataset, to
        which the dataset's transforms have been applied already.
        """
        flag("transformed", transformed)
        if isinstance(items, (str, bytes, os.PathLike, np.ndarray, Mapping)):
            return self._predict([items], transformed=transformed)[0]
        if not isinstance(items, Iterable):
            raise invalid("items", items, "an image file, a row, or a list of them", 'model.predict("new.jpg")')
        found: list[Prediction] = []
        waiting: list[Any] = []
        for item in items:
            waiting.append(item)
            if len(waiting) == _ROWS:
                found += self._predict(waiting, transformed=transformed)
                waiting = []
        return [*found, *(self._predict(waiting, transformed=transformed) if waiting else [])]

    def __repr__(self) -> str:
        task = self.encoder.task
        what = f"{len(task.classes):,} classes" if task.classes else "a number"
        return f"TrainedModel({self.folder!r}: {', '.join(self.inputs[:4])} → {task.target}, {what})"

    def _predict(self, items: list[Any], *, transformed: bool) -> list[Prediction]:
        payloads = [self._encode(item, transformed=transformed) for item in items]
        schema = self.preparation.schema
        stored: dict[str, Column] = dict(decode_payloads(payloads, schema))
        try:
            x = self.encoder.encode_inputs(self.encoder.decode_images(stored, schema))
        except RekordError as failure:
            row = failure.location.row
            named = items[row] if row is not None and row < len(items) else None
            if isinstance(named, (str, os.PathLike)):
                failure.location = failure.location.within(path=os.fspath(named))
            raise
        logits = np.asarray(self.keras_model.predict_on_batch(x))
        return self._interpret(logits, stored)

    def _encode(self, item: Any, *, transformed: bool) -> bytes:
        if isinstance(item, Mapping):
            return self.preparation.encode(item, transformed=transformed)
        task = self.encoder.task
        if len(task.inputs) == 1 and task.forms <= {"text", "category"} and isinstance(item, str):
            return self.preparation.encode({self.inputs[0]: item}, transformed=transformed)
        image = next((each.column for each in task.inputs if each.form == "image"), None)
        if image is None or len(task.inputs) > 1 or not isinstance(item, (str, bytes, os.PathLike, np.ndarray)):
            example = ", ".join(f"{name!r}: …" for name in self.inputs[:4])
            raise invalid("items", item, "a row with the columns of the model", f"model.predict({{{example}}})")
        if not isinstance(item, (str, os.PathLike)):
            return self.preparation.encode({image: item}, transformed=transformed)
        path = os.fspath(item)
        data = read_file(path, ROUTED_STORAGE, most_bytes=_MAX_IMAGE_BYTES)
        with add_location(path=path):
            return self.preparation.encode({image: data}, transformed=transformed)

    def _interpret(self, logits: Array, stored: Mapping[str, Column]) -> list[Prediction]:
        task = self.encoder.task
        if task.kind == "regression":
            return [Prediction(float(value)) for value in logits.reshape(-1)]
        if task.kind == "segmentation":
            column = stored[self.inputs[0]]
            ids = logits.argmax(-1).astype(np.uint8 if len(task.classes) <= 256 else np.uint16)
            return [Prediction(_enlarge(one, column, row)) for row, one in enumerate(ids)]
        predictions = []
        if task.kind == "multilabel":
            for shares in compute_label_probabilities(logits).tolist():
                named = dict(zip(task.classes, shares, strict=True))
                likely = tuple([name for name, share in named.items() if share > 0.5])
                predictions.append(Prediction(likely, None, named))
            return predictions
        for shares in compute_probabilities(logits):
            named = dict(zip(task.classes, shares.tolist(), strict=True))
            best = int(shares.argmax())
            predictions.append(Prediction(task.classes[best], float(shares[best]), named))
        return predictions


def _enlarge(ids: Array, column: Column, row: int) -> Array:
    """A predicted mask in the size of its image."""
    data = column[row] if isinstance(column, Strings) else None
    if not isinstance(data, bytes):
        return ids
    facts = _core.inspect_image(data, False)
    return np.asarray(ids[np.ix_(*map(nearest_indices, ids.shape, (facts.height, facts.width)))])


def _is_pixels(feature: Any) -> bool:
    return bool(feature.is_image) or (feature.dtype is not None and len(feature.shape) == 3)


def _select_transforms(steps: tuple[Transform, ...], names: set[str]) -> tuple[Transform, ...]:
    """The transforms that the inputs depend on."""
    needed, kept = set(names), []
    for step in reversed(steps):
        if isinstance(step, ColumnTransform):
            if step.target not in needed:
                continue
            needed.add(step.column)
        kept.append(step)
    return tuple(reversed(kept))


def _restore_task(state: Mapping[str, Any]) -> Task:
    target = state["target"]
    forms = state["forms"]
    inputs = tuple([InputColumn(str(column), forms[column]) for column in forms])
    return Task(target["kind"], inputs, str(target["column"]), tuple([str(name) for name in target["classes"]]))


def _read_state(place: RunFolder) -> dict[str, Any]:
    data = read_file(place.inputs, LOCAL, most_bytes=_MAX_STATE_BYTES)
    try:
        state = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _folder_error(place.inputs, str(failure)) from None
    if not isinstance(state, dict) or "schema" not in state:
        raise _folder_error(place.inputs, "another document" if isinstance(state, dict) else type(state).__name__)
    return state


def _folder_error(path: str, found: str) -> RekordError:
    return error(
        "X575",
        "model cannot be loaded",
        location=Location(path=path),
        expected="a file written by `rekord train`",
        found=found[:60],
        do="train again: rekord train PATH OUT --fresh",
    )

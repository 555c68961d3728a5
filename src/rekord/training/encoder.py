"""Batches as the steps that a model is trained with: its inputs by name, and what it is to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Strings
from rekord.schema.refuse import shown
from rekord.training.parts import Category, Numbers, Part, Spec, TokenIds, WordIds, damaged
from rekord.training.picture_parts import Picture, Pixels
from rekord.training.survey import valid_rows
from rekord.training.targets import no_class
from rekord.training.task import Task

__all__ = ["Encoder", "Spec", "Step"]

Array: TypeAlias = "npt.NDArray[Any]"

_KINDS: Mapping[str, Any] = {
    "picture": Picture,
    "pixels": Pixels,
    "numbers": Numbers,
    "category": Category,
    "words": WordIds,
    "tokens": TokenIds,
}
"""What is told under which name."""


@dataclass(frozen=True, eq=False)
class Step:
    """What a model takes at once: inputs by name, targets, and of how many records they are."""

    x: dict[str, Array]
    y: Array
    rows: int


@dataclass(frozen=True, eq=False)
class Encoder:
    """Makes steps of batches by what was learned of the training split. Can be pickled and shared by threads."""

    task: Task
    parts: Mapping[str, Part]  # by the names of the model's inputs
    target_mean: float = 0.0
    target_std: float = 1.0

    @cached_property
    def specs(self) -> Mapping[str, Spec]:
        """The inputs as the model declares them."""
        return {name: part.spec for name, part in self.parts.items()}

    @property
    def mean(self) -> Array | None:
        """Of each value of the input "numbers"; None where there is no such input."""
        numbers = self._numbers
        return None if numbers is None else numbers.mean

    @property
    def variance(self) -> Array | None:
        """Of each value of the input "numbers", nowhere 0."""
        numbers = self._numbers
        return None if numbers is None else numbers.variance

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the image, where there is one."""
        image = self.parts.get("image")
        return (image.height, image.width) if isinstance(image, (Picture, Pixels)) else None

    def reading(self) -> dict[str, Any]:
        """What `split.batches` is to be asked for."""
        columns = [column for part in self.parts.values() for column in part.columns]
        image = self.parts.get("image")
        decodes = isinstance(image, Picture) and not image.is_stored
        return {
            "columns": [*columns, self.task.target],
            "decode": decodes,
            "resize": self.image_size if decodes else None,
        }

    def __call__(self, batch: dict[str, Column]) -> Step:
        y = self._target(batch[self.task.target])
        return Step({name: part(batch) for name, part in self.parts.items()}, y, len(y))

    def to_dict(self) -> dict[str, Any]:
        """What was learned, as JSON holds it; with the classes, so that the model can be used with it alone."""
        inputs = {name: {"kind": _kind_of(part), **part.to_dict()} for name, part in self.parts.items()}
        target = {
            "column": self.task.target,
            "kind": self.task.kind,
            "classes": list(self.task.classes),
            "mean": self.target_mean,
            "std": self.target_std,
        }
        return {"inputs": inputs, "target": target}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any], task: Task) -> Encoder:
        """The encoder that `to_dict` told of, for the same task."""
        try:
            parts = {str(name): _KINDS[one["kind"]].from_dict(one) for name, one in told["inputs"].items()}
            return cls(task, parts, float(told["target"]["mean"]), float(told["target"]["std"]))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as failure:
            raise damaged(f"{type(failure).__name__}: {failure}") from None

    @property
    def _numbers(self) -> Numbers | None:
        numbers = self.parts.get("numbers")
        return numbers if isinstance(numbers, Numbers) else None

    def _target(self, column: Column) -> Array:
        missing = int((~valid_rows(column)).sum())
        if missing:
            what = f"{missing:,} of {len(column):,} records of a batch have no value in `{self.task.target}`"
            raise no_class(self.task, what, "a value in each record", "no value")
        stored = column.values if isinstance(column, Optional) else column
        if self.task.kind == "segmentation":
            return self._pixel_ids(np.asarray(stored).astype(np.int32))
        if self.task.kind == "regression":
            return self._number(np.asarray(stored))
        return self._class_ids(stored)

    def _pixel_ids(self, ids: Array) -> Array:
        strange = (ids < 0) | (ids >= len(self.task.classes))
        if self.task.ignore is not None:
            strange &= ids != self.task.ignore
        if strange.any():
            records = int(strange.any((1, 2)).sum())
            what = (
                f"`{self.task.target}` has pixels of none of the classes, in {records:,} records of a batch"
            )
            ignored = "" if self.task.ignore is None else f", or {self.task.ignore}, which is ignored"
            found = str(int(ids[strange][0]))
            raise no_class(self.task, what, f"ids below {len(self.task.classes):,}{ignored}", found)
        return ids

    def _number(self, stored: Array) -> Array:
        with np.errstate(over="ignore"):
            values = stored.astype(np.float32)
        strange = ~np.isfinite(values)
        if strange.any():
            what = f"`{self.task.target}` is no finite number in {int(strange.sum()):,} records of a batch"
            raise no_class(self.task, what, "a finite number in each record", f"{values[strange][0]}")
        return values

    def _class_ids(self, stored: Any) -> Array:
        if self.task.values is None:
            ids = np.asarray(stored)
            known = (ids >= 0) & (ids < len(self.task.classes))
        else:
            values = stored.tolist() if isinstance(stored, Strings) else np.asarray(stored).tolist()
            ids = np.array([self._ids.get(value, -1) for value in values], np.int32)
            known = ids >= 0
        if known.all():
            return ids.astype(np.int32)
        row = int(np.argmin(known))
        values = stored[row] if isinstance(stored, Strings) else np.asarray(stored)[row].item()
        raise no_class(
            self.task,
            f"`{self.task.target}` has a value that is none of the classes",
            f"one of {len(self.task.classes):,} classes",
            shown(values),
        )

    @cached_property
    def _ids(self) -> dict[Any, int]:
        return {value: number for number, value in enumerate(self.task.values or ())}


def _kind_of(part: Part) -> str:
    return next(name for name, kind in _KINDS.items() if type(part) is kind)

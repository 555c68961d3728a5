"""What a baseline learns: which columns it takes, in which form, and what it tells from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["classification", "segmentation", "regression"]
Form: TypeAlias = Literal["image", "numbers", "category", "text", "tokens"]

METRICS: Mapping[Kind, str] = {
    "classification": "accuracy",
    "segmentation": "mIoU",
    "regression": "mean absolute error",
}


@dataclass(frozen=True, slots=True)
class Input:
    """One column that the model takes, and how it takes it."""

    column: str
    form: Form


@dataclass(frozen=True, slots=True)
class Task:
    """The inputs and the target, and what was left out and why."""

    kind: Kind
    inputs: tuple[Input, ...]
    target: str
    classes: tuple[str, ...] = ()  # their names, by id; none of a number
    values: tuple[Any, ...] | None = (
        None  # what stands in the column for each class, where that is not its id
    )
    ignore: int | None = None  # the id in a mask that is not learned
    left_out: Mapping[str, str] = field(default_factory=dict)  # column: why

    @property
    def metric(self) -> str:
        """What says how good the model is."""
        return METRICS[self.kind]

    @property
    def forms(self) -> set[Form]:
        """The forms of all inputs."""
        return {each.form for each in self.inputs}

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON holds it."""
        return {
            "kind": self.kind,
            "inputs": {each.column: each.form for each in self.inputs},
            "target": self.target,
            "classes": list(self.classes),
            "metric": self.metric,
            "left_out": dict(self.left_out),
        }

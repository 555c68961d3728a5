"""Several transforms, one behind another, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from rekord.errors import error
from rekord.schema import Schema
from rekord.schema.refuse import shown
from rekord.transforms.base import Bound, Transform, apply_all
from rekord.transforms.picture_binding import PictureTransform, bind_pictures


@dataclass(frozen=True)
class Chain:
    """Transforms in the order in which they are applied."""

    steps: tuple[Transform, ...]

    @property
    def name(self) -> str:
        return "chain"

    def options(self) -> Mapping[str, Any]:
        return {"steps": [described(step) for step in self.steps]}

    def bind(self, before: Schema) -> Bound:
        bounds: list[Bound] = []
        schema = before
        sizes: dict[str, tuple[int, int]] = {}
        # Pictures are decoded once for all transforms that follow each other.
        for pictured, steps in groupby(self.steps, lambda step: isinstance(step, PictureTransform)):
            if pictured:
                bound, sizes = bind_pictures(list(steps), schema, sizes)  # type: ignore[arg-type]
                bounds.append(bound)
                schema = bound.schema
                continue
            for step in steps:
                bounds.append(step.bind(schema))
                schema = bounds[-1].schema
        if len(bounds) == 1:
            return bounds[0]
        touched = [bound.touches for bound in bounds]
        known = None if None in touched else frozenset[str]().union(*filter(None, touched))
        return Bound(schema, partial(apply_all, tuple(bounds)), known)


def chain(*steps: Transform) -> Chain:
    """Transforms, to be applied in this order."""
    for step in steps:
        if not isinstance(step, Transform):
            raise error(
                "U605",
                f"a transform cannot be {shown(step)}",
                expected="one of rk.transforms",
                found=shown(step),
                do="rk.transforms.resize(224, 224); a function of your own goes to map=",
            )
    return Chain(tuple(steps))


def described(step: Transform) -> dict[str, Any]:
    """A transform as the manifest holds it."""
    return {"name": step.name, **step.options()}


def as_chain(transforms: Transform | Sequence[Transform]) -> Chain:
    """What a person gave, a transform or several, as one chain."""
    if isinstance(transforms, Chain):
        return transforms
    if isinstance(transforms, Transform):
        return chain(transforms)
    return chain(*transforms)

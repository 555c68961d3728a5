"""Several transforms as one, and transforms restored from what a manifest records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any

import msgspec

from rekord.arguments import UnknownOption, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.schema import Schema
from rekord.transforms.base import Bound, Row, Transform, apply_all
from rekord.transforms.image_binding import ImageTransform, bind_image_transforms

_CLASSES = {
    "bucketize": "numeric.Bucketize",
    "cast": "numeric.Cast",
    "crop": "images.Crop",
    "decode": "images.Decode",
    "encode": "images.Encode",
    "grayscale": "images.Grayscale",
    "hash_into": "text_vectors.HashInto",
    "hash_words": "text_vectors.HashWords",
    "normalize": "images.Normalize",
    "one_hot": "numeric.OneHot",
    "resize": "images.Resize",
    "standardize": "numeric.Standardize",
    "tfidf": "text_vectors.Tfidf",
    "tokenize": "token_ids.Tokenize",
    "vocabulary": "vocabularies.Lookup",
}
"""The module and the class of each transform, by the name that it is recorded under."""


def deserialize_transforms(told: Any, folder: str) -> Chain:
    """The transforms of a manifest's list; `folder` is where the dataset keeps the files that they need."""
    if not isinstance(told, Sequence) or isinstance(told, (str, bytes)):
        raise _unknown_transform_error(told, "a list of transforms")
    return Chain(tuple([_deserialize_transform(one, folder) for one in told]))


def _deserialize_transform(told: Any, folder: str) -> Transform:
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(name, str) or name not in _CLASSES:
        raise _unknown_transform_error(name if isinstance(told, dict) else told, "the name of one of rk.transforms")
    module, _, made = _CLASSES[name].partition(".")
    options = {key: value for key, value in told.items() if key != "name"}
    try:
        transform: Transform = getattr(import_module(f"rekord.transforms.{module}"), made).from_options(
            options, folder
        )
    except (TypeError, ValueError, KeyError, AttributeError) as failure:
        if isinstance(failure, RekordError) and not isinstance(failure, UnknownOption):
            raise
        # A manifest may say anything; what is said of an argument that exists is checked by the transform itself.
        raise _unknown_transform_error(options, f"the options of `{name}`") from failure
    return transform


def _unknown_transform_error(found: Any, expected: str) -> RekordError:
    return error(
        "U691",
        "recorded transform cannot be restored",
        expected=expected,
        found=preview(found),
        do="make the transforms yourself, or use the version of rekord that wrote the dataset",
    )


@dataclass(frozen=True)
class Chain:
    """Transforms in the order in which they are applied."""

    steps: tuple[Transform, ...]

    @property
    def name(self) -> str:
        return "chain"

    def options(self) -> Mapping[str, Any]:
        return {"steps": [serialize_transform(step) for step in self.steps]}

    def bind(self, before: Schema) -> Bound:
        bounds: list[Bound] = []
        schema = before
        sizes: dict[str, tuple[int, int]] = {}
        # Images are decoded once for all transforms that follow each other.
        for imaged, steps in groupby(self.steps, lambda step: isinstance(step, ImageTransform)):
            if imaged:
                bound, sizes = bind_image_transforms(list(steps), schema, sizes)  # type: ignore[arg-type]
                bounds.append(bound)
                schema = bound.schema
                continue
            for step in steps:
                bounds.append(_bind_step(step, schema))
                schema = bounds[-1].schema
        if len(bounds) == 1:
            return bounds[0]
        touched = [bound.touches for bound in bounds]
        known = None if None in touched else frozenset[str]().union(*filter(None, touched))
        return Bound(schema, partial(apply_all, tuple(bounds)), known)


def _bind_step(step: Transform, schema: Schema) -> Bound:
    bound: object = step.bind(schema)
    if not isinstance(bound, Bound):
        raise error(
            "U605",
            f"`{step.name}` cannot be bound to a schema",
            expected="a rk.transforms.Bound from its bind()",
            found=preview(bound),
            do="return rk.transforms.Bound(schema, apply)",
        )
    is_ours = type(step).__module__.partition(".")[0] == __name__.partition(".")[0]
    return bound if is_ours else replace(bound, apply=_UserFunction(step.name, bound.apply))


@dataclass(frozen=True)
class _UserFunction:
    """The function of somebody's own transform, whose failures are bad rows."""

    name: str
    apply: Callable[[Row], Row]

    def __call__(self, row: Row) -> Row:
        try:
            made: object = self.apply(row)
        except RekordError:
            raise
        except Exception as failure:
            raise self._failed(f"{type(failure).__name__}: {failure}"[:60]) from failure
        if not isinstance(made, dict):
            raise self._failed(preview(made))
        return made

    def _failed(self, found: str) -> RekordError:
        return error(
            "E380",
            f"the transform `{self.name}` failed for a row",
            expected="a row of the schema that it makes, as a dict",
            found=found,
            do="fix the transform",
        )


@check_keywords
def chain(*steps: Transform) -> Chain:
    """Transforms, to be applied in this order."""
    flat: list[Transform] = []
    for step in steps:
        # A class has all that its values have, and is none of them.
        if isinstance(step, type) or not isinstance(step, Transform):
            raise error(
                "U605",
                f"a transform cannot be {preview(step)}",
                expected="one of rk.transforms",
                found=preview(step),
                do="rk.transforms.resize(224, 224); a function of your own goes to map=",
            )
        flat.extend(step.steps if isinstance(step, Chain) else [step])
    return Chain(tuple(flat))


def serialize_transform(step: Transform) -> dict[str, Any]:
    """A transform as the manifest holds it."""
    told = {"name": step.name, **step.options()}
    try:
        msgspec.json.encode(told)
    except (TypeError, ValueError) as failure:
        raise error(
            "U605",
            f"the options of `{step.name}` cannot stand in a manifest",
            expected="numbers, texts, lists and dicts, as JSON has them",
            found=str(failure)[:60],
            do="have options() return what makes the transform again",
        ) from failure
    return told


def as_chain(transforms: Transform | Iterable[Transform]) -> Chain:
    """What a person gave, a transform or several, as one chain."""
    if isinstance(transforms, Chain):
        return transforms
    several = isinstance(transforms, Iterable) and not isinstance(transforms, (Transform, str, Mapping))
    return chain(*transforms) if several else chain(transforms)  # type: ignore[misc, arg-type]

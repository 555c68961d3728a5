"""Chains of transforms, and transforms restored from a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from rekord.arguments import UnknownOption, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.schema import Schema
from rekord.transforms.audio import Mono, Resample, Spectrogram
from rekord.transforms.base import Bound, RecordedTransform, Row, Transform, apply_all
from rekord.transforms.images import (
    Crop,
    Decode,
    Encode,
    Grayscale,
    ImageTransform,
    Normalize,
    Resize,
    bind_image_transforms,
)
from rekord.transforms.numeric import Bucketize, Cast, OneHot, Standardize
from rekord.transforms.orient import Orient, StripMetadata
from rekord.transforms.text import HashInto, HashWords, Tfidf, Tokenize
from rekord.transforms.vocabularies import Lookup
from rekord.transforms.windows import Window

_RECORDED_CLASSES: tuple[type[RecordedTransform], ...] = (
    Bucketize, Cast, Crop, Decode, Encode, Grayscale, HashInto, HashWords, Lookup, Mono, Normalize, OneHot, Orient,
    Resample, Resize, Spectrogram, Standardize, StripMetadata, Tfidf, Tokenize, Window,
)  # fmt: skip
_CLASS_BY_NAME = {kind.name: kind for kind in _RECORDED_CLASSES}


def deserialize_transforms(recorded: Any, folder: str) -> Chain:
    """The transforms in a manifest's list; `folder` is where the dataset keeps the files they need."""
    if not isinstance(recorded, Sequence) or isinstance(recorded, (str, bytes)):
        raise _unknown_transform_error(recorded, "a list of transforms")
    return Chain(tuple([_deserialize_transform(one, folder) for one in recorded]))


def _deserialize_transform(recorded: Any, folder: str) -> Transform:
    name = recorded.get("name") if isinstance(recorded, dict) else None
    if not isinstance(name, str) or name not in _CLASS_BY_NAME:
        found = name if isinstance(recorded, dict) else recorded
        raise _unknown_transform_error(found, "the name of a transform in rk.transforms")
    options = {key: value for key, value in recorded.items() if key != "name"}
    try:
        return _CLASS_BY_NAME[name].from_options(options, folder)
    except (TypeError, ValueError, KeyError, AttributeError) as failure:
        if isinstance(failure, RekordError) and not isinstance(failure, UnknownOption):
            raise
        # A manifest may contain anything; the values of known arguments are checked by the transform itself.
        raise _unknown_transform_error(options, f"options of `{name}`") from failure


def _unknown_transform_error(found: Any, expected: str) -> RekordError:
    return error(
        "U691",
        "recorded transform cannot be restored",
        expected=expected,
        found=preview(found),
        do="create the transforms yourself, or use the version of rekord that wrote the dataset",
    )


@dataclass(frozen=True)
class Chain:
    """Transforms applied in this order."""

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
        # Consecutive image transforms decode an image once.
        for is_image, steps in groupby(self.steps, lambda step: isinstance(step, ImageTransform)):
            if is_image:
                bound, sizes = bind_image_transforms(list(steps), schema, sizes)  # type: ignore[arg-type]
                bounds.append(bound)
                schema = bound.schema
                continue
            for step in steps:
                sizes = {} if isinstance(step, Orient) else sizes  # turning swaps height and width
                bounds.append(_bind_step(step, schema))
                schema = bounds[-1].schema
        if len(bounds) == 1:
            return bounds[0]
        touched = [bound.touches for bound in bounds]
        known = None if None in touched else frozenset[str]().union(*filter(None, touched))
        settles = frozenset[tuple[str, str]]().union(*[bound.settles for bound in bounds])
        return Bound(schema, partial(apply_all, tuple(bounds)), known, settles)


def _bind_step(step: Transform, schema: Schema) -> Bound:
    bound: object = step.bind(schema)
    if not isinstance(bound, Bound):
        raise error(
            "U605",
            f"`{step.name}.bind` did not return a rk.transforms.Bound",
            expected="rk.transforms.Bound",
            found=preview(bound),
            do="return rk.transforms.Bound(schema, apply)",
        )
    is_ours = type(step).__module__.partition(".")[0] == __name__.partition(".")[0]
    return bound if is_ours else replace(bound, apply=_UserFunction(step.name, bound.apply))


@dataclass(frozen=True)
class _UserFunction:
    """The function of a user-defined transform; its failures are bad rows."""

    name: str
    apply: Callable[[Row], Row]

    def __call__(self, row: Row) -> Row:
        try:
            result: object = self.apply(row)
        except RekordError:
            raise
        except Exception as failure:
            raise self._failed(f"{type(failure).__name__}: {failure}"[:60]) from failure
        if not isinstance(result, dict):
            raise self._failed(preview(result))
        return result

    def _failed(self, found: str) -> RekordError:
        return error(
            "E380",
            f"transform `{self.name}` failed",
            expected="a dict with a row of the transform's schema",
            found=found,
            do="fix the transform",
        )


@check_keywords
def chain(*steps: Transform) -> Chain:
    """Transforms, applied in this order."""
    flat: list[Transform] = []
    for step in steps:
        # A class has the attributes of its instances, so it passes for a Transform.
        if isinstance(step, type) or not isinstance(step, Transform):
            raise error(
                "U605",
                f"{preview(step)} is not a transform",
                expected="a transform of rk.transforms",
                found=preview(step),
                do="rk.transforms.resize(224, 224); pass your own functions as map=",
            )
        flat.extend(step.steps if isinstance(step, Chain) else [step])
    return Chain(tuple(flat))


def serialize_transform(step: Transform) -> dict[str, Any]:
    """A transform as the manifest records it."""
    recorded = {"name": step.name, **step.options()}
    try:
        msgspec.json.encode(recorded)
    except (TypeError, ValueError) as failure:
        raise error(
            "U605",
            f"options of `{step.name}` cannot be stored in a manifest",
            expected="JSON values: numbers, strings, lists and dicts",
            found=str(failure)[:60],
            do="return JSON values from options()",
        ) from failure
    return recorded


def as_chain(transforms: Transform | Iterable[Transform]) -> Chain:
    """One or several transforms as a chain."""
    if isinstance(transforms, Chain):
        return transforms
    several = isinstance(transforms, Iterable) and not isinstance(transforms, (Transform, str, Mapping))
    return chain(*transforms) if several else chain(transforms)  # type: ignore[misc, arg-type]

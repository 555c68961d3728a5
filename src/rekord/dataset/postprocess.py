"""Postprocessing of decoded batches: missing values filled, ragged rows padded, a function applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import rekord.codec.media_columns  # noqa: F401 - registers how audio and video are decoded
from rekord.arguments import invalid
from rekord.codec.columns import Batch, Column, Optional, Ragged, SparseColumn, Strings
from rekord.codec.images.decode import ImageColumnDecoder, pad_images
from rekord.dataset.options import MapFunction, check_callable
from rekord.errors import add_location, error
from rekord.location import Location
from rekord.schema import Schema


@dataclass(frozen=True)
class Postprocessor:
    """The steps, in this order. It can be pickled if its function can."""

    fill: Mapping[str, Any]
    pad: Mapping[str, Any] | None  # None where ragged rows stay ragged
    map: MapFunction

    def __call__(self, batch: Batch) -> Batch:
        if self.fill:
            batch = _fill_missing(batch, self.fill)
        if self.pad is not None:
            batch = {name: _pad_column(name, column, self.pad.get(name)) for name, column in batch.items()}
        return batch if self.map is None else _validate_map_result(_apply_map(self.map, batch))


@dataclass(frozen=True)
class _ComposedMap:
    """One function after another. Unlike a closure it can be pickled."""

    first: Callable[[Batch], dict[str, Any]]
    last: Callable[[Batch], dict[str, Any]]

    def __call__(self, batch: Batch) -> Any:
        return self.last(_validate_map_result(self.first(batch)))


def _apply_map(function: Callable[[Batch], Any], batch: Batch) -> Any:
    try:
        return function(batch)
    except StopIteration as failure:
        # A loop would take it for the end of the epoch (PEP 479 does the same for generators).
        raise RuntimeError("the function for `map` raised StopIteration") from failure


def build_postprocessor(
    columns: tuple[str, ...],
    *,
    fill: Mapping[str, Any] | None,
    ragged: Literal["ragged", "pad"],
    pad: Mapping[str, Any] | None,
    map: MapFunction,
) -> Postprocessor | None:
    """One function for all options; None if they change nothing."""
    if ragged not in ("ragged", "pad"):
        raise invalid("ragged", ragged, '"ragged" or "pad"', 'ragged="pad"')
    _check_names("fill", fill, columns)
    _check_names("pad", pad, columns)
    if pad and ragged != "pad":
        raise error(
            "U605",
            '`pad` needs ragged="pad"',
            expected='ragged="pad"',
            found='ragged="ragged"',
            do='ragged="pad"',
        )
    check_callable(map)
    if not fill and ragged != "pad" and map is None:
        return None
    return Postprocessor(dict(fill or {}), dict(pad or {}) if ragged == "pad" else None, map)


def compose_maps(first: MapFunction, last: MapFunction) -> MapFunction:
    """Both functions, one after the other; either may be None."""
    check_callable(last)
    if first is None or last is None:
        return last if first is None else first
    return _ComposedMap(first, last)


def build_image_decoder(
    schema: Schema, columns: tuple[str, ...] | None, resize: tuple[int, int] | None
) -> ImageColumnDecoder:
    """The decoder for the images, masks, audio and video of some columns, or all; a UsageError if there are none."""
    features = {name: schema[name] for name in (schema if columns is None else columns)}
    images = {name: feature for name, feature in features.items() if feature.is_image or feature.is_media}
    if images:
        return ImageColumnDecoder(images, resize)
    stored = next((name for name, feature in features.items() if feature.kind == "bytes"), None)
    raise error(
        "U676",
        "no images to decode",
        expected="a column declared as rk.Image or rk.Mask",
        found=", ".join([f"`{name}`: {type(feature).__name__}" for name, feature in features.items()])[:60],
        do="decode=False"
        if stored is None
        else f"declare {{{stored!r}: rk.Image(), …}} in the schema, if it holds images",
    )


def _fill_missing(batch: Batch, fill: Mapping[str, Any]) -> Batch:
    out = dict(batch)
    for name, value in fill.items():
        column = out.get(name)
        if isinstance(column, Optional):
            _check_value_fits(name, column.values.dtype, value, column.values.shape[1:], "filled")
            with add_location(feature=name):
                out[name] = column.fill(value)
    return out


def _pad_column(name: str, column: Column, pad: Any) -> Column:
    if _is_image_column(column):
        _check_pad(name, column, pad)
        return pad_images(column, 0 if pad is None else pad)  # type: ignore[arg-type]
    if not isinstance(column, Ragged):
        return column
    _check_pad(name, column, pad)
    if _is_image_column(column.values):
        dense = pad_images(column.values, 0 if pad is None else pad)  # type: ignore[arg-type]
        column = Ragged(dense, column.offsets, valid=column.valid)
    return column.to_padded(pad)


def _check_pad(name: str, column: Any, pad: Any) -> None:
    while isinstance(column, (Ragged, SparseColumn)):
        column = column.values
    if pad is None or isinstance(column, Strings):
        return
    dtype = np.dtype(np.uint8) if _is_image_column(column) else column.dtype
    _check_value_fits(name, dtype, pad, (), "padded")


def _check_value_fits(name: str, dtype: np.dtype[Any], value: Any, shape: tuple[int, ...], done: str) -> None:
    """Refuse a value that a column cannot hold: NumPy would truncate 1.5 to 1, or raise a vague error."""
    try:
        given = np.broadcast_to(np.asarray(value), shape)
        with np.errstate(all="ignore"):
            same = np.where(given != given, dtype.kind in "fc", given.astype(dtype) == given).all()
    except (TypeError, ValueError, OverflowError):
        same = np.False_
    if not same:
        raise error(
            "U605",
            f"column of type {dtype} cannot be {done} with {repr(value)[:60]}",
            location=Location(feature=name),
            expected=f"a value that fits {dtype}" + (f", or values of shape {shape}" if shape else ""),
            found=repr(value)[:60],
            do=f"{'fill' if done == 'filled' else 'pad'}={{{name!r}: 0}}",
        )


def _is_image_column(column: object) -> bool:
    """Whether these are images of different sizes: nothing else decodes to an object array."""
    return isinstance(column, np.ndarray) and column.dtype == object


def _validate_map_result(made: Any) -> Batch:
    if isinstance(made, dict):
        return made
    raise error(
        "U605",
        f"function for `map` returned {type(made).__name__}",
        expected="a dict of columns",
        found=repr(made)[:60],
        do="return the batch from the function",
    )


def _check_names(option: str, given: object, columns: tuple[str, ...]) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise invalid(
            option,
            given,
            "a dict of column names to values",
            f"{option}={{{columns[0]!r}: 0}}" if columns else f"{option}=None",
        )
    for name in given:
        if name not in columns:
            raise error(
                "U605",
                f"`{option}` has unknown column {repr(name)[:60]}",
                expected="one of " + ", ".join(repr(one) for one in columns)[:60] if columns else "a column",
                found=repr(name)[:60],
                do=f"{option}={{{columns[0]!r}: 0}}" if columns else f"{option}=None",
            )

"""What becomes of a decoded batch before it is handed over: holes filled, ragged rows padded, a function applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from rekord.codec.columns import Column, Optional, Ragged
from rekord.errors import error, located

Batch: TypeAlias = "dict[str, Column]"
Finish: TypeAlias = Callable[[Batch], Batch]


def finisher(
    columns: tuple[str, ...],
    *,
    fill: Mapping[str, Any] | None,
    ragged: Literal["ragged", "pad"],
    pad: Mapping[str, Any] | None,
    map: Callable[[Batch], Any] | None,
) -> Finish | None:
    """One function for all that was asked for; None where that is nothing."""
    if ragged not in ("ragged", "pad"):
        raise error(
            "U605",
            f"`ragged` cannot be {repr(ragged)[:60]}",
            expected='"ragged" or "pad"',
            found=repr(ragged)[:60],
            do='ragged="pad"',
        )
    parts: list[Finish] = []
    if fill:
        _check_names("fill", fill, columns)
        parts.append(lambda batch: _filled(batch, fill))
    if ragged == "pad":
        padding = dict(pad or {})
        _check_names("pad", padding, columns)
        parts.append(lambda batch: _padded(batch, padding))
    elif pad:
        raise error(
            "U605",
            "`pad` says what to pad with, and nothing is padded",
            expected='ragged="pad" beside it',
            found='ragged="ragged"',
            do='ragged="pad", or leave `pad` out',
        )
    if map is not None:
        _check_callable(map)
        parts.append(lambda batch: _mapped(batch, map))
    if not parts:
        return None

    def finish(batch: Batch) -> Batch:
        for part in parts:
            batch = part(batch)
        return batch

    return finish


def _filled(batch: Batch, fill: Mapping[str, Any]) -> Batch:
    out = dict(batch)
    for name, value in fill.items():
        column = out.get(name)
        if isinstance(column, Optional):
            with located(feature=name):
                out[name] = column.fill(value)
    return out


def _padded(batch: Batch, pad: Mapping[str, Any]) -> Batch:
    return {
        name: column.to_padded(pad.get(name)) if isinstance(column, Ragged) else column
        for name, column in batch.items()
    }


def _mapped(batch: Batch, map: Callable[[Batch], Any]) -> Batch:
    made = map(batch)
    if isinstance(made, dict):
        return made
    raise error(
        "U605",
        f"the function for `map` gave {type(made).__name__}",
        expected="a dict of columns, as it was given one",
        found=repr(made)[:60],
        do="return the batch, changed or not",
    )


def _check_names(option: str, given: Mapping[str, Any], columns: tuple[str, ...]) -> None:
    for name in given:
        if name not in columns:
            raise error(
                "U605",
                f"`{option}` names a column that there is not: {repr(name)[:60]}",
                expected="one of " + ", ".join(repr(one) for one in columns)[:60] if columns else "a column",
                found=repr(name)[:60],
                do=f"{option}={{{columns[0]!r}: …}}" if columns else f"leave `{option}` out",
            )


def _check_callable(function: object) -> None:
    if not callable(function):
        raise error(
            "U605",
            f"`map` cannot be {repr(function)[:60]}",
            expected="a function from batch to batch",
            found=repr(function)[:60],
            do="map=lambda batch: batch",
        )

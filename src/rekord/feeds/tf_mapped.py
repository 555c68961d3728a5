"""The forms of columns that a function makes: no schema tells them, so it is tried out on the first records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.assemble import assemble
from rekord.codec.columns import Optional, Ragged, SparseColumn, Strings
from rekord.codec.decode import new_batch
from rekord.dataset.batches import Batches, Request
from rekord.errors import RekordError, error
from rekord.feeds.tf_forms import Dense, Form, Holes, Rows, form_of
from rekord.location import Location

_TRIED_ROWS = (1, 7)
"""Of batches of these sizes, what differs in a shape is taken for what varies."""

_NUMBERS = "biufc"


def mapped_forms(request: Request) -> dict[str, Form]:
    """The forms of what the function for `map` gives."""
    tried = [_forms(_first_batch(request, rows)) for rows in _TRIED_ROWS]
    first, second = tried
    if list(first) != list(second):
        raise _refused(
            "the function for `map` gives other columns for other batches",
            str(list(first)),
            str(list(second)),
        )
    return {name: _common(name, first[name], second[name]) for name in first}


def _first_batch(request: Request, rows: int) -> Mapping[str, Any]:
    """The first records of an epoch as the function gives them, on one thread that ends with this."""
    alone = replace(
        request,
        batch_size=rows,
        rank=0,
        world=1,
        remainder="keep",
        threads=1,
        prefetch=0,
        worker=0,
        workers=1,
    )
    batches = Batches(alone)
    try:
        for batch in batches:
            return batch
    finally:
        batches.close()
    plan = request.plan()
    empty = assemble(plan, new_batch(plan, _core.Pool(0)).take(), 0)
    return empty if request.finish is None else request.finish(empty)


def _forms(batch: Mapping[str, Any]) -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for name, column in batch.items():
        known = isinstance(column, (Strings, Ragged, Optional, SparseColumn))
        numbers = isinstance(column, np.ndarray) and column.ndim > 0 and _is_tensor(column)
        if not isinstance(name, str) or not (known or numbers):
            raise _refused(
                f"the function for `map` gives {type(column).__name__} for {repr(name)[:60]}",
                "columns by name: arrays of numbers or strings, or columns of rekord",
                repr(column)[:60],
            )
        valid = getattr(column, "valid", None)
        forms[name] = form_of(column, optional=valid is not None and not isinstance(column, Optional))
    return forms


def _is_tensor(column: np.ndarray[Any, Any]) -> bool:
    return column.dtype.kind in _NUMBERS + "OSU" or column.dtype.name == "bfloat16"


def _common(name: str, first: Form, second: Form) -> Form:
    """One form for both: sizes that differ are unknown, and holes in one are holes in all."""
    if isinstance(first, Holes) or isinstance(second, Holes):
        inner = [form.values if isinstance(form, Holes) else form for form in (first, second)]
        return Holes(_common(name, *inner))
    if isinstance(first, Rows) and isinstance(second, Rows):
        return Rows(_common(name, first.values, second.values))
    if isinstance(first, Dense) and isinstance(second, Dense) and len(first.shape) == len(second.shape):
        pairs = zip_longest(first.shape, second.shape)
        shape = tuple([one if one == other else None for one, other in pairs])
        if first.dtype == second.dtype:
            return Dense(first.dtype, shape)
    if first == second:
        return first
    raise _refused(
        f"the function for `map` gives `{name}` in another form for another batch",
        repr(first)[:60],
        repr(second)[:60],
        feature=name,
    )


def _refused(what: str, expected: str, found: str, *, feature: str | None = None) -> RekordError:
    return error(
        "U659",
        what,
        location=Location(feature=feature),
        expected=expected[:60],
        found=found[:60],
        do="let the function give the same columns for every batch, or use dataset.map with TensorFlow's functions",
    )

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
from rekord.feeds.tf_forms import Dense, Form, Holes, Inner, Rows, Sparse, form_of
from rekord.location import Location

_TRIED_ROWS = (1, 7)
"""Of batches of these sizes, what differs in a shape is taken for what varies."""

_NUMBERS = "biufc"


def mapped_forms(request: Request) -> dict[str, Form]:
    """The forms of what the function for `map` gives."""
    schema = request.plan().schema
    tried = [_forms(_first_batch(request, rows)) for rows in _TRIED_ROWS]
    forms = _common_forms(*tried)
    if not forms:
        raise _refused("the function for `map` gives no columns", "a column at least", "{}")
    for name, form in forms.items():
        # Strings and ragged rows say that some are missing only where some are: a later batch may have holes.
        if name in schema and schema[name].optional and _hides_holes(form):
            forms[name] = Holes(form)
    return forms


def check_mapped(forms: Mapping[str, Form], batch: Mapping[str, Any]) -> None:
    """Refuse a batch that is not in these forms: the graph was told them."""
    own = _forms(batch)
    for name, form in _common_forms(forms, own).items():
        if form != forms[name]:
            raise _changed(name, forms[name], own[name])
    rows = len(next(iter(batch.values()), ()))
    for name, column in batch.items():
        if len(column) != rows:
            raise _refused(
                f"`{name}` has another number of rows than the rest of its batch",
                f"{rows:,} rows",
                f"{len(column):,}",
                feature=name,
            )


def _common_forms(first: Mapping[str, Form], second: Mapping[str, Form]) -> dict[str, Form]:
    if list(first) != list(second):
        raise _refused(
            "the function for `map` gives other columns for other batches",
            str(list(first)),
            str(list(second)),
        )
    return {name: _common(name, first[name], second[name]) for name in first}


def _hides_holes(form: Form) -> bool:
    return isinstance(form, (Rows, Inner, Sparse)) or (isinstance(form, Dense) and form.dtype is None)


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
    with iter(Batches(alone)) as batches:
        for batch in batches:
            return batch
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
    raise _changed(name, first, second)


def _changed(name: str, first: Form, second: Form) -> RekordError:
    return _refused(
        f"the function for `map` gives `{name}` in another form for another batch",
        _said(first),
        _said(second),
        feature=name,
    )


def _said(form: Form) -> str:
    if isinstance(form, Holes):
        return _said(form.values) + ", some missing"
    if isinstance(form, Rows):
        return "ragged rows of " + _said(form.values)
    if isinstance(form, Dense):
        sizes = ["?" if size is None else str(size) for size in form.shape]
        return f"{'strings' if form.dtype is None else form.dtype} ({', '.join(['rows', *sizes])})"
    return type(form).__name__.lower()


def _refused(what: str, expected: str, found: str, *, feature: str | None = None) -> RekordError:
    return error(
        "U659",
        what,
        location=Location(feature=feature),
        expected=expected[:60],
        found=found[:60],
        do="let the function give the same columns for every batch, or use dataset.map with TensorFlow's functions",
    )

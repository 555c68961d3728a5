"""A wrong keyword of any public function or feature type names the function and the keyword that was meant."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rekord as rk
from rekord.schema.base import FEATURE_TYPES

ONCE_PER_RECORD = {"encode", "decode"}
"""These are called for each record: a check of keywords would take as long as encoding a small row."""


CLASSES = {"Schema", "Writer", *FEATURE_TYPES}


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in rk.__all__:
        value = getattr(rk, name)
        if inspect.ismodule(value):
            inner = [(f"{name}.{one}", getattr(value, one)) for one in value.__all__]
            yield from [(one, function) for one, function in inner if inspect.isfunction(function)]
        elif name in CLASSES or (inspect.isfunction(value) and name not in ONCE_PER_RECORD):
            yield name, value


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("name", CALLABLES)
def test_a_wrong_keyword_names_the_function_and_what_it_takes(name: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        CALLABLES[name](no_such_keyword=1)
    assert isinstance(caught.value, TypeError)
    assert (caught.value.code, caught.value.location.path) == ("U605", None)
    assert caught.value.what == f"`rk.{name}` has no option `no_such_keyword`"
    assert caught.value.do == f"help(rk.{name}) lists the options"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("name", CALLABLES)
def test_help_signatures_and_pickling_are_those_of_the_function_itself(name: str) -> None:
    value = CALLABLES[name]
    assert pickle.loads(pickle.dumps(value)) is value
    signature = inspect.signature(value)
    assert all(one.kind is not one.VAR_KEYWORD for one in signature.parameters.values())
    assert value.__doc__
    assert inspect.getsource(value).partition(value.__name__)[1]

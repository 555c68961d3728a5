"""The digest of a map function: another function is another plan, and the same one is the same in every run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from rekord.conversion.plan import digest_function

Row = dict[str, Any]


def typed_in(text: str) -> Callable[..., Any]:
    """A function as `python -c` has it: Python does not know its text."""
    names: dict[str, Any] = {}
    exec(text, names)
    made: Callable[..., Any] = names["f"]
    return made


class Scaled:
    def __init__(self, by: object) -> None:
        self.by = by

    def __call__(self, row: Row) -> Row:
        return row | {"by": self.by}

    def method(self, row: Row) -> Row:
        return self(row)


def carrying(value: object) -> Callable[[Row], Row]:
    return lambda row: row | {"value": value}


def with_default(value: object) -> Callable[..., Row]:
    def function(row: Row, *, value: object = value) -> Row:
        return row | {"value": value}

    return function


def middle(value: int) -> Any:
    array = np.zeros(5000, np.int64)
    array[2500] = value
    return array


DIFFERENT: dict[str, Callable[[int], Callable[..., Any]]] = {
    "a number in code without text": lambda n: typed_in(f"f = lambda row: {{'x': row['x'] * {n}}}"),
    "a name in code without text": lambda n: typed_in(f"f = lambda row: row['x{n}']"),
    "code inside of code without text": lambda n: typed_in(f"f = lambda row: [x * {n} for x in row]"),
    "an object": Scaled,
    "an object in an object": lambda n: Scaled(Scaled(n)),
    "the object of a method": lambda n: Scaled(n).method,
    "a default": with_default,
    "a carried value": carrying,
    "the middle of an array": lambda n: carrying(middle(n)),
    "a function that is carried": lambda n: carrying(carrying(n)),
    "an argument of a partial": lambda n: partial(with_default(0), value=n),
    "a set": lambda n: carrying({"a", "b", n}),
    "a dict": lambda n: carrying({"a": [n]}),
}


@pytest.mark.parametrize("made", DIFFERENT.values(), ids=DIFFERENT)
def test_a_function_that_does_something_else_has_another_digest(made: Callable[[int], Any]) -> None:
    assert digest_function(made(2)) == digest_function(made(2))
    assert digest_function(made(2)) != digest_function(made(3))


def test_a_function_that_carries_itself_has_a_digest() -> None:
    def function(row: Row) -> Row:
        return function(row["inner"]) if "inner" in row else row

    holder: list[Any] = [function]
    holder.append(holder)
    assert digest_function(function) == digest_function(function)
    assert digest_function(carrying(holder)) == digest_function(carrying(holder))


def test_a_digest_is_the_same_in_every_process() -> None:
    program = (
        "from rekord.conversion.plan import digest_function\n"
        "known = {'alpha', 'beta', 'gamma', 'delta'}\n"
        "make = lambda known: lambda row: row if row['x'] in known and row['y'] in {'p', 'q', 'r'} else None\n"
        "print(digest_function(make(known)))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1

"""What a transform is: it makes rows of one schema into rows of another, the same when writing as when reading.

    layout (or records) ─▶ row of a schema ─▶ transform ─▶ row of another schema ─▶ encoder (or batches)

A transform is a frozen value that knows its options and nothing else. Bound to a schema it says which schema it
makes of it, or refuses, before any row is read. What is bound is pickled to workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from rekord.schema import Schema

Row: TypeAlias = "dict[str, Any]"
"""A row as it is stored: pictures encoded, texts as str, labels as ids, numbers as NumPy or Python has them."""


@dataclass(frozen=True)
class Bound:
    """A transform for rows of one schema."""

    schema: Schema  # of the rows that it makes
    apply: Callable[[Row], Row]  # the row becomes its own; what does not fit is a DataError with the column
    touches: frozenset[str] | None = None  # the columns that it looks at or makes; None: any of them


@runtime_checkable
class Transform(Protocol):
    """One of `rk.transforms`."""

    @property
    def name(self) -> str:
        """Its name in `rk.transforms`."""

    def options(self) -> Mapping[str, Any]:
        """The arguments that make it again, as JSON holds them; they stand in the manifest."""

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema. A SchemaError where it has no meaning for them."""


@runtime_checkable
class Learning(Protocol):
    """A transform that must see all rows before it can be applied, such as one that builds a vocabulary."""

    @property
    def name(self) -> str: ...

    def begin(self, before: Schema) -> Lesson:
        """Nothing seen yet."""


class Lesson(Protocol):
    """What was seen of some rows. It is pickled between workers, so it is as small as it can be."""

    def see(self, row: Row) -> None:
        """One more row; it is not changed."""

    def merge(self, other: Lesson) -> None:
        """What another worker saw, too. The order must not matter."""

    def learned(self) -> Transform:
        """The transform that was to be learned."""


def apply_all(bounds: Sequence[Bound], row: Row) -> Row:
    """A row through all of them, in order."""
    for bound in bounds:
        row = bound.apply(row)
    return row

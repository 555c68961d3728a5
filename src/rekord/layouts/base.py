"""What a layout is: a schema, and how a canonical row becomes one of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from rekord.schema import Schema

Verify: TypeAlias = Literal["full", "headers"]
"""How closely images and masks are looked at.

full: the structure of every image to its end, and every pixel of a mask. headers: what their first bytes say.
"""


class Remark(NamedTuple):
    """Something about a row that is worth knowing and no error: a finding's code and its sentence."""

    code: str
    feature: str
    what: str


class Derived(NamedTuple):
    """A row as it is stored."""

    values: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()


class Layout(Protocol):
    """A frozen value, pickled to workers."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def looks(self) -> bool:
        """Whether rows must pass through `derive`; False where columns can be stored as they come."""

    def options(self) -> Mapping[str, Any]:
        """What was asked for, as JSON holds it."""

    def derive(self, row: Mapping[str, Any], verify: Verify) -> Derived:
        """The stored row of a canonical one. A row that does not fit is an EncodeError."""

"""A layout with transforms behind it: what it derives is transformed before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rekord.layouts.base import Derived, Layout, Verify
from rekord.schema import Schema
from rekord.transforms.base import Bound
from rekord.transforms.chain import Chain, described


@dataclass(frozen=True)
class Shaped:
    """The layout of rows that are transformed. It goes by the name of the one within."""

    layout: Layout
    chain: Chain

    @property
    def name(self) -> str:
        return self.layout.name

    @cached_property
    def _bound(self) -> Bound:
        return self.chain.bind(self.layout.schema)

    @property
    def schema(self) -> Schema:
        return self._bound.schema

    @property
    def looks(self) -> bool:
        """Always: each row is made anew."""
        return True

    @property
    def class_names(self) -> Any:
        """Those of the layout within, which may have some for its companions."""
        return getattr(self.layout, "class_names", None)

    def options(self) -> Mapping[str, Any]:
        return {**self.layout.options(), "transforms": [described(step) for step in self.chain.steps]}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> Derived:
        derived = self.layout.derive(row, verify)
        return Derived(self._bound.apply(dict(derived.values)), derived.remarks)

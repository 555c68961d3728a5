"""Some of the columns of a layout, and columns that are declared with another type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rekord.layouts.base import DerivedRow, Layout, Verify
from rekord.schema import Feature, Schema
from rekord.schema.json_form import feature_to_json


@dataclass(frozen=True)
class SelectedLayout:
    """A layout without the columns `drop`, and with the types `features`."""

    layout: Layout
    drop: frozenset[str] = frozenset()
    features: Mapping[str, Feature] = field(default_factory=dict)

    needs_derive = True

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def class_names(self) -> Any:
        """Those of the layout, which may need them for its companions."""
        return getattr(self.layout, "class_names", None)

    @cached_property
    def schema(self) -> Schema:
        own = {name: one for name, one in self.layout.schema.items() if name not in self.drop}
        return Schema({name: self.features.get(name, one) for name, one in own.items()})

    def options(self) -> Mapping[str, Any]:
        declared = {name: feature_to_json(one) for name, one in self.features.items()}
        return {**self.layout.options(), "drop": sorted(self.drop), "declared": declared}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        derived = self.layout.derive(row, verify)
        kept = {name: value for name, value in derived.values.items() if name not in self.drop}
        return DerivedRow(kept, derived.remarks)

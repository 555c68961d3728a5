"""The schema of a dataset: declared, or inferred at the first use and then kept."""

from __future__ import annotations

from collections.abc import Sequence

from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.infer import Kind, infer_files
from rekord.schema import Schema


class LazySchema:
    """One schema for all splits of a dataset."""

    def __init__(
        self,
        paths: Sequence[str],
        declared: Schema | None,
        kind: Kind | None,
        *,
        inferred: Schema | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._declared = declared
        self._kind = kind
        self._inferred = inferred

    @property
    def declared(self) -> bool:
        """Whether somebody said what records hold."""
        return self._declared is not None

    @property
    def known(self) -> bool:
        """Whether there is a schema without reading any record."""
        return self._declared is not None or self._inferred is not None

    def get(self) -> Schema:
        """The schema; the first records are read for it where none is declared."""
        if self._declared is not None:
            return self._declared
        if self._inferred is None:
            self._inferred, _ = infer_files(self._paths, kind=self._kind)
        return self._inferred

    def plan(self, columns: tuple[str, ...] | None) -> CodecPlan:
        """How records are decoded by it, or some of their columns."""
        # Under a declared schema other keys are none of its business; an inferred one claims to know them all.
        return compile_plan(self.get(), columns, strict=self._declared is None)

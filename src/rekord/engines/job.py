"""What a conversion will do: one frozen value that every task is given, and the digest that names it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from rekord.dataset.manifest import shard_name
from rekord.engines.splits import SplitRule
from rekord.layouts.base import Layout, Verify
from rekord.schema import Schema
from rekord.sources.base import Facts, Source

FORMAT = 1
"""Of the plan and the manifest; another number means other bytes."""

OnBadRow: TypeAlias = Literal["stop", "reject"]
RowFunction: TypeAlias = (
    "Callable[[Mapping[str, Any]], Mapping[str, Any] | Iterable[Mapping[str, Any]] | None]"
)
"""The user's: a row becomes another one, several, or (None) none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRule:
    """How many shards a split has: as many as `shard_bytes` of frames make, or `shards`."""

    shard_bytes: int = 128_000_000
    shards: int | None = None

    def count(self, framed_bytes: int, records: int) -> int:
        """The number of shards for a split."""
        if self.shards is not None:
            return self.shards
        # No more shards than records: a shard without any would only be in the way.
        return max(1, min(-(-framed_bytes // self.shard_bytes), records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A conversion. It is pickled once for every worker, and nothing in it changes."""

    source: Source
    layout: Layout
    splits: SplitRule
    cut: CutRule
    template: str  # of shard names: {split}, {shard:05d}, {shards:05d}
    function: RowFunction | None = None
    key: str | None = None
    index: tuple[str, ...] = ()
    select: tuple[str, ...] | None = None  # the columns of the source that the layout wants; None: all
    shuffle: bool = False
    seed: int = 0
    compression: str = "none"
    verify: Verify = "full"
    on_bad_row: OnBadRow = "stop"
    max_rejects: float = 0.01
    format: str | None = None

    @property
    def schema(self) -> Schema:
        return self.layout.schema

    def shard_name(self, split: str, shard: int, shards: int) -> str:
        return shard_name(self.template, split, shard, shards)

    def options(self) -> dict[str, Any]:
        """What was asked for, as the manifest holds it.

        What is to be done about bad rows is not among it: it decides whether there is a dataset, not what is in it.
        """
        return {
            "source": {"kind": self.source.kind, **self.source.options()},
            "layout": {"name": self.layout.name, **self.layout.options()},
            "map": None if self.function is None else function_digest(self.function),
            "split": self.splits.options(),
            "key": self.key,
            "index": list(self.index),
            "shard_bytes": None if self.cut.shards is not None else self.cut.shard_bytes,
            "shards": self.cut.shards,
            "template": self.template,
            "compression": self.compression,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "verify": self.verify,
            "format": self.format,
        }


def fingerprint(facts: Facts) -> str:
    """One digest for all files of a source, as they are now."""
    digest = hashlib.sha256()
    for file in facts.files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{file.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What identifies a conversion: the same plan makes the same bytes."""

    options: Mapping[str, Any]
    schema: Mapping[str, Any]
    source: str  # the fingerprint of its files

    @property
    def id(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        document = {"format": FORMAT, "options": self.options, "schema": self.schema, "source": self.source}
        return msgspec.json.encode(document, order="sorted")

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """What another plan's document says differently, in a few words each."""
        found = []
        if other.get("source") != self.source:
            found.append("the files of the source")
        if other.get("schema") != msgspec.json.decode(msgspec.json.encode(self.schema)):
            found.append("the schema")
        theirs = other.get("options")
        ours = msgspec.json.decode(msgspec.json.encode(self.options))
        if isinstance(theirs, dict):
            found += [f"`{name}`" for name in ours if ours[name] != theirs.get(name)]
        if other.get("format") != FORMAT:
            found.append("the version of the format")
        return found or ["something"]


def plan_of(job: Job, facts: Facts) -> Plan:
    """The plan of a job, from what its source is now."""
    # What a schema was inferred from is no part of it: other rows of the same kind have the same one.
    schema = {name: value for name, value in job.schema.to_dict().items() if name != "evidence"}
    return Plan(options=job.options(), schema=schema, source=fingerprint(facts))


def function_digest(function: Callable[..., Any]) -> str:
    """What a function does, as far as its own text and the values that it carries say."""
    digest = hashlib.sha256()
    inner = inspect.unwrap(getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    try:
        digest.update(inspect.getsource(inner).encode())
    except (OSError, TypeError):
        digest.update(code.co_code if code is not None else type(inner).__qualname__.encode())
    bound = [
        getattr(function, "args", None),
        getattr(function, "keywords", None),
        getattr(inner, "__defaults__", None),
    ]
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    for value in (*bound, *cells):
        # An address in a repr would make every run another plan.
        text = repr(value)
        digest.update(
            text.encode("utf-8", "replace") if " at 0x" not in text else type(value).__qualname__.encode()
        )
    return digest.hexdigest()[:16]

"""What a conversion will do: one frozen value passed to every task, and the digest that identifies it."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from rekord.conversion.class_ids import ColumnConversions
from rekord.conversion.splits import SplitRule
from rekord.dataset.manifest import shard_name
from rekord.layouts.base import Layout, Verify
from rekord.schema import Schema
from rekord.sources.base import Source, SourceFacts

PLAN_FORMAT = 2
"""Version of the plan and the manifest; changes whenever the bytes written change."""

_MAX_DEPTH = 6  # to which values carried by a function are followed

_SCALAR_TYPES = frozenset((str, bytes, int, float, complex, bool, type(None)))

OnBadRow: TypeAlias = Literal["stop", "reject"]
RowFunction: TypeAlias = "Callable[[Any], Mapping[str, Any] | Iterable[Mapping[str, Any]] | None]"
"""The user's function: turns a row into one row, several, or (None) none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingRule:
    """The number of shards per split: `shards`, or enough for `shard_bytes` of frames each."""

    shard_bytes: int = 128_000_000
    shards: int | None = None

    def count(self, framed_bytes: int, records: int) -> int:
        """The number of shards for a split."""
        if self.shards is not None:
            return self.shards
        # At most one shard per record: an empty shard would only be in the way.
        return max(1, min(-(-framed_bytes // self.shard_bytes), records))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionJob:
    """A conversion; immutable, and pickled once for all workers."""

    source: Source
    layout: Layout
    splits: SplitRule
    cut: ShardingRule
    template: str  # of shard names: {split}, {shard:05d}, {shards:05d}
    function: RowFunction | None = None
    inferred: bool = False  # the schema is that of the first rows, after the function
    key: str | None = None
    index: tuple[str, ...] = ()
    select: tuple[str, ...] | None = None  # the columns of the source that the layout wants; None: all
    columns: ColumnConversions | None = None  # what happens to columns before rows are encoded
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

    @property
    def is_costly_per_row(self) -> bool:
        """Whether rows pass through Python one by one: a function, or a layout that builds new rows."""
        return self.function is not None or self.layout.needs_derive

    def shard_name(self, split: str, shard: int, shards: int) -> str:
        return shard_name(self.template, split, shard, shards)

    def options(self) -> dict[str, Any]:
        """The options as the manifest stores them.

        How to treat bad rows is not among them: it decides whether there is a dataset, not what is in it.
        """
        return {
            "source": {"kind": self.source.kind, **self.source.options()},
            "layout": {"name": self.layout.name, **self.layout.options()},
            "map": None if self.function is None else digest_function(self.function),
            "columns": None if self.columns is None else self.columns.options(),
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


def fingerprint_source(facts: SourceFacts) -> str:
    """One digest for all files of a source, as they are now."""
    digest = hashlib.sha256()
    for file in facts.files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{file.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """What identifies a conversion: the same plan makes the same bytes."""

    options: Mapping[str, Any]
    schema: Mapping[str, Any]
    source: str  # the fingerprint of its files

    @property
    def id(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        fields = {"options": self.options, "schema": self.schema, "source": self.source}
        return msgspec.json.encode({"format": PLAN_FORMAT, **fields}, order="sorted")

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """How another plan's document differs, in a few words each."""
        found = []
        if other.get("source") != self.source:
            found.append("the files of the source")
        if other.get("schema") != msgspec.json.decode(msgspec.json.encode(self.schema)):
            found.append("the schema")
        theirs = other.get("options")
        ours = msgspec.json.decode(msgspec.json.encode(self.options))
        if isinstance(theirs, dict):
            found += [f"`{name}`" for name in ours if ours[name] != theirs.get(name)]
        if other.get("format") != PLAN_FORMAT:
            found.append("the version of the format")
        return found or ["something"]


def build_plan(job: ConversionJob, facts: SourceFacts) -> ConversionPlan:
    """The plan of a job, from the current state of its source."""
    # Evidence of an inferred schema is left out: other rows of the same kind have the same schema.
    schema = {name: value for name, value in job.schema.to_dict().items() if name != "evidence"}
    return ConversionPlan(options=job.options(), schema=schema, source=fingerprint_source(facts))


def digest_function(function: Callable[..., Any]) -> str:
    """A digest of a function: of its source and the values that it carries.

    For an imported function the source of the whole module counts, since functions that it calls may change too.
    For one defined in the script that runs, only its own source counts: the script around it may change.
    """
    digest = hashlib.sha256()
    name = inspect.unwrap(function).__module__ if isinstance(function, FunctionType) else "__main__"
    file = None if name == "__main__" else _get_source_text(sys.modules.get(name))
    for text in (*_describe_value(function, 0), file or ""):
        digest.update(f"{len(text)}:{text}".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]


def digest_value(value: Any) -> str:
    """A digest of a value, the same in every run."""
    digest = hashlib.sha256()
    for text in _describe_value(value, 0):
        digest.update(f"{len(text)}:{text}".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _describe_value(value: Any, depth: int) -> Iterator[str]:
    """A value as text that is the same in every run: no addresses, and sets sorted."""
    if isinstance(value, CodeType):
        yield value.co_code.hex()
        # Numbers and names are not in the code itself: `x * 2` and `x * 3` differ only here.
        yield from _describe_value((value.co_names, value.co_consts), depth)
        return
    yield type(value).__qualname__
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (set, frozenset)):
        yield from sorted(["\0".join(_describe_value(one, depth + 1)) for one in value])
    elif isinstance(value, (list, tuple, dict)):
        yield str(len(value))
        members = [*value, *value.values()] if isinstance(value, dict) else value
        if _SCALAR_TYPES.issuperset(map(type, members)):
            yield repr(value)  # immediately: it may be a long list
            return
        for one in members:
            yield from _describe_value(one, depth + 1)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # Its repr leaves out the middle.
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, partial):
        yield from _describe_value((value.func, value.args, value.keywords), depth + 1)
    elif isinstance(value, MethodType):
        yield from _describe_value((value.__func__, value.__self__), depth + 1)
    elif isinstance(value, FunctionType):
        yield from _describe_function(value, depth)
    elif " at 0x" not in (text := repr(value)):
        yield text
    elif not isinstance(value, (type, ModuleType)):
        # The repr is only an address: use the object's attributes and the source of its class.
        yield from _describe_value((_get_source_text(type(value)), getattr(value, "__dict__", None)), depth + 1)


def _describe_function(function: FunctionType, depth: int) -> Iterator[str]:
    inner = inspect.unwrap(function)
    source = _get_source_text(inner)
    yield from _describe_value(inner.__code__ if source is None else source, depth)
    cells = []
    for cell in inner.__closure__ or ():
        with suppress(ValueError):  # one that is empty yet
            cells.append(cell.cell_contents)
    carried = [one for one in cells if one is not function and one is not inner]
    yield from _describe_value((inner.__defaults__, inner.__kwdefaults__, carried), depth + 1)


def _get_source_text(thing: Any) -> str | None:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return None

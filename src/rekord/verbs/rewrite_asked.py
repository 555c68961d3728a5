"""The arguments of `rk.rewrite`, as the two ways to follow them take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.schema import RecordKind, Schema


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The arguments of `rk.rewrite`."""

    kind: RecordKind | None = None
    schema: Schema | None = None
    cast: Mapping[str, Any] | None = None
    rename: Mapping[str, str] | None = None
    drop: Sequence[str] | None = None
    keep: Sequence[str] | None = None
    fill: Mapping[str, Any] | None = None
    where: str | None = None
    transforms: Any = ()
    index: Sequence[str] = ()
    shard_size: str | int = "128MB"
    shards: int | None = None
    compression: str | None = None
    shuffle: bool = False
    seed: int = 0
    lossy: bool = False
    format: str | None = None
    workers: int | None = None
    fresh: bool = False

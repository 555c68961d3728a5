"""What a conversion is asked to do, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rekord.dataset.manifest import Manifest
from rekord.engines.job import Job, Plan
from rekord.engines.journal import Staging
from rekord.engines.publish import Companions
from rekord.storage.files import LOCAL, Storage


class Watch(Protocol):
    """Whoever wants to know how far a conversion is."""

    def phase(self, name: str, staging: Staging, total: int | None) -> None:
        """A step begins: "read" counts rows, "write" bytes; `total` of them, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a conversion ended."""

    manifest: Manifest
    rejects: str | None  # where bad rows are listed
    remarks: str | None
    resumed_shards: int
    nothing_to_do: bool = False
    left: str | None = None  # a folder with files that were in the older dataset and are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A job, and where it goes."""

    job: Job
    plan: Plan
    out: str
    version: str
    companions: Companions
    workers: int = 1
    rows: int | None = None  # how many the source has, where that is known
    source_bytes: int = 0  # of all its files
    spills: str | None = None
    fresh: bool = False
    storage: Storage = LOCAL
    parent: str | None = None  # the digest of the manifest of the dataset that the rows come from

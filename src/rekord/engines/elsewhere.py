"""The tasks of a conversion in another process: what is sent there, and what runs there."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import cloudpickle

from rekord.engines.cut import Shard
from rekord.engines.job import Job
from rekord.engines.journal import Staging
from rekord.engines.progress import Tally
from rekord.engines.shard_file import ShardDone
from rekord.engines.spill import PartDone
from rekord.engines.tasks import map_part, write_shard
from rekord.errors import error
from rekord.sources.base import Part, is_parted


def packed(job: Job) -> bytes:
    """A job as other processes get it."""
    if not is_parted(job.source):
        # They only write shards. A generator could not be sent to them, and a list need not be.
        job = replace(job, source=None, function=None)  # type: ignore[arg-type]
    try:
        packed: bytes = cloudpickle.dumps(job)
    except Exception as failure:
        raise error(
            "U605",
            "the source, the layout or the map function cannot be sent to other processes",
            expected="objects that can be pickled",
            found=f"{type(failure).__name__}: {failure}"[:60],
            do="workers=1, or make what they hold (files, locks, connections) where it is used",
        ) from failure
    return packed


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> Job:
    job: Job = cloudpickle.loads(packed)
    return job


@lru_cache(maxsize=1)
def _own_tally(folder: str) -> Tally:
    return Tally(folder)


def map_elsewhere(packed: bytes, folder: str, spills: str, number: int, part: Part) -> PartDone:
    tally = _own_tally(folder)
    done = map_part(_unpacked(packed), Staging(folder, spills=spills), number, part, tally)
    tally.next()
    return done


def shard_elsewhere(packed: bytes, folder: str, spills: str, shard: Shard) -> ShardDone:
    tally = _own_tally(folder)
    done = write_shard(_unpacked(packed), Staging(folder, spills=spills), shard, tally)
    tally.next()
    return done

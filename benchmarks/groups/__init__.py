"""All groups of the benchmark, in the order in which they are measured and reported."""

from __future__ import annotations

from groups import (
    feeding,
    health,
    objects,
    reading,
    remote_cache,
    reshaping,
    scaling,
    sources,
    training,
    viewing,
    writing,
)
from groups.compare import Measure

GROUPS: dict[str, Measure] = (
    reading.GROUPS
    | writing.GROUPS
    | feeding.GROUPS
    | training.GROUPS
    | health.GROUPS
    | reshaping.GROUPS
    | scaling.GROUPS
    | sources.GROUPS
    | viewing.GROUPS
    | objects.GROUPS
    | remote_cache.GROUPS
)

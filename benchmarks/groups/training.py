"""Training loops in PyTorch: the same data in each library's own format, read by its own loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from floors import OURS, TRAINED, TRAINERS, WORKERS
from measure import Settings
from results import Table

from groups.compare import Measure, compare_rates, contender, prepared

_BATCH = 64
_MAX_RECORDS = (
    100_000  # every loader reads a whole epoch before it is timed, some of them a few thousand rows per second
)
_PEERS = dict(
    zip(
        TRAINERS,
        (
            ("webdataset_peer", "webdataset"),
            ("litdata_peer", "litdata"),
            ("streaming_peer", "streaming"),
            ("grain_peer", "own"),
            ("huggingface_peer", "own"),
        ),
        strict=True,
    )
)


def training(settings: Settings) -> Iterator[Table]:
    # Longer passes than elsewhere: they start workers.
    limited = replace(settings.at_most(2), max_seconds=2 * settings.max_seconds)
    for name, what in TRAINED.items():
        workload = prepared(name, settings, _MAX_RECORDS)
        for workers, count in WORKERS.items():
            options = {"batch": _BATCH, "workers": workers}
            contenders = [
                contender("rekord_feed_peer", OURS, "train", **options),
                *(
                    contender(peer, label, "train", environment=environment, **options)
                    for label, (peer, environment) in _PEERS.items()
                ),
            ]
            yield compare_rates(
                f"Training loop, {what}, {count}",
                workload,
                contenders,
                limited,
                reference=OURS,
                note=f"{workload.records:,} rows, shuffled, batches of {_BATCH} as tensors, each of which the loop "
                "sums up. Each library reads its own format from local disk with the loader that its documentation "
                "recommends. An epoch includes the start of workers (Grain keeps its own), and is cut off "
                "after the time limit.",
            )


GROUPS: dict[str, Measure] = {"training": training}

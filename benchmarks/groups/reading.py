"""Reading records: framing, checksums, decoding at several batch sizes, memory; and start-up times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import ceil

from floors import AUTOTUNE, HALF, INTERLEAVE, ONE_THREAD, OURS, SWEEP, TF, TWO_THREADS, WHOLE
from generate import repeated
from measure import Contender, Settings, command_times, import_times
from results import Table
from workloads import Workload

from groups.compare import Measure, compare_memory, compare_rates, contender, prepared

_rekord = partial(contender, "rekord_peer")
_tensorflow = partial(contender, "tensorflow_peer")


def framing(settings: Settings) -> Iterator[Table]:
    contenders = [_rekord(OURS, "framing"), _tensorflow(TF, "framing")]
    for name, size in (("tabular", "750 B"), ("images", "100 KB")):
        workload = prepared(name, settings)
        yield compare_rates(f"Framing, records of {size}", workload, contenders, settings, reference=TF)


def crc(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    contenders = [_rekord(OURS, "crc32c")]
    yield compare_rates("CRC32C of 1 MiB", workload, contenders, settings, reference=None, unit="GB/s")


def start_up(settings: Settings) -> Iterator[Table]:
    results = import_times(["rekord", "tensorflow"], settings)
    results.append(command_times("rekord --help", ["-m", "rekord", "--help"], settings))
    yield Table(
        title="Start-up",
        unit="seconds",
        results=results,
        reference="import tensorflow",
        note="Imports are timed inside fresh processes, the command from start to exit. `import rekord` must load "
        "no framework.",
    )


_DECODERS = [
    _rekord(ONE_THREAD, "decode", threads=1, prefetch=0),
    _tensorflow(TF, "decode", way="one_core"),
    _rekord(TWO_THREADS, "decode", threads=2),
    _rekord("rekord, 1 thread, every batch kept", "decode", threads=1, prefetch=0, keep=True),
    _tensorflow(AUTOTUNE, "decode", way="autotune"),
    _tensorflow(INTERLEAVE, "decode", way="interleave"),
    *(
        replace(each, max_repeats=2)
        for each in (
            contender("tfrecord_peer", "tfrecord (no CRC)", "decode", environment="tfrecord"),
            contender("dali_peer", "DALI, 2 threads (no CRC)", "decode", environment="dali", threads=2),
        )
    ),
]
_DECODED = {
    "tabular": "tabular",
    "tabular_shuffled": "tabular, shuffled key order",
    "sequences": "sequences",
    "dense": "dense",
    "images": "images",
}


def decode(settings: Settings) -> Iterator[Table]:
    for name, title in _DECODED.items():
        workload = prepared(name, settings)
        contenders = list(_DECODERS)
        if name == "dense":
            contenders += [
                _rekord(f"{ONE_THREAD}, batches of 8192", "decode", threads=1, prefetch=0, batch=8192),
                _tensorflow(f"{TF}, batches of 8192", "decode", way="one_core", batch=8192),
            ]
        yield compare_rates(
            f"Decode, {title}",
            workload,
            contenders,
            settings,
            reference=TF,
            note=f"{workload.records:,} records in 2 shards, batches of 1024 unless stated.",
        )


def decode_sizes(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    for size in (*SWEEP, 8192):
        contenders = [
            _rekord(OURS, "decode", batch=size),
            _rekord(ONE_THREAD, "decode", threads=1, prefetch=0, batch=size),
            _tensorflow(TF, "decode", way="one_core", batch=size),
            _tensorflow(AUTOTUNE, "decode", way="autotune", batch=size),
        ]
        yield compare_rates(
            f"Decode, tabular, batches of {size}",
            workload,
            contenders,
            settings,
            reference=TF,
            note=f"{workload.records:,} records in 2 shards; `rekord` is `batches({size})` with its defaults.",
        )


def gzip(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular_gzip", settings)
    title = "Decode, tabular compressed with gzip"
    yield compare_rates(title, workload, _DECODERS[:2], settings, reference=TF)


_READ_BYTES = 4_000_000_000


def memory(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    once_bytes = sum(os.path.getsize(shard) for shard in workload.shards())
    half = ceil(_READ_BYTES / settings.shrink / 2 / once_bytes)
    runs: list[tuple[Workload, Contender, int]] = []
    for label, times in ((HALF, half), (WHOLE, 2 * half)):
        runs.append((workload, _rekord(label, "decode", folder=repeated(workload, times)), times * workload.records))
    note = f"`batches(1024)` with its defaults; 2 N = {runs[1][2]:,} tabular records."
    yield compare_memory("Peak memory of batches", runs, settings, note)


GROUPS: dict[str, Measure] = {
    "framing": framing,
    "crc": crc,
    "start_up": start_up,
    "decode": decode,
    "decode_sizes": decode_sizes,
    "gzip": gzip,
    "memory": memory,
}

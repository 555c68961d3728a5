"""What is measured against whom, and the floors that we hold ourselves to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil
from statistics import median
from typing import TypeAlias

from generate import prepare, repeated
from measure import Contender, Result, Settings, import_time, peak_memory, race
from report import Floor, Row, Table, rate_rows
from workloads import WORKLOADS, Workload

OURS = "rekord, 1 thread"
TF = "TensorFlow, 1 core"

Versions: TypeAlias = dict[str, str]
Group: TypeAlias = Callable[[Settings, Versions], Iterator[Table]]

_PEER_NAMES = {
    "rekord_peer": "rekord",
    "tensorflow_peer": "TensorFlow",
    "tfrecord_peer": "tfrecord",
    "dali_peer": "DALI",
    "rekord_write_peer": "rekord",
    "deeplab_peer": "TensorFlow",
    "loop_peer": "TensorFlow",
    "litdata_peer": "LitData",
    "streaming_peer": "Streaming",
    "huggingface_peer": "datasets",
    "rekord_health_peer": "rekord",
    "tfdv_peer": "TFDV",
    "rekord_feed_peer": "rekord",
    "tensorflow_feed_peer": "TensorFlow",
    "dataloader_peer": "tfrecord with torch",
    "array_record_peer": "array_record",
    "rekord_shape_peer": "rekord",
    "tensorflow_shape_peer": "TensorFlow",
}


def _rekord(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="rekord_peer", task=task, options=options)


def _tensorflow(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="tensorflow_peer", task=task, options=options)


def _race(
    name: str, contenders: list[Contender], settings: Settings, versions: Versions, reference: str = TF
) -> tuple[list[Result], Workload]:
    workload = settings.sized(WORKLOADS[name])
    prepare(workload)
    return raced(workload, contenders, settings, versions, reference), workload


def raced(
    workload: Workload, contenders: list[Contender], settings: Settings, versions: Versions, reference: str
) -> list[Result]:
    """The timings of all contenders; their versions are noted."""
    results = race(workload, contenders, settings, reference=reference)
    for contender, result in zip(contenders, results, strict=True):
        if result.version:
            versions[_PEER_NAMES[contender.peer]] = result.version
    return results


def with_floor(rows: list[Row], label: str, times: float, *, against: str) -> list[Row]:
    """The floor `times` as fast as another row, on the row with the label."""
    base = next(row for row in rows if row.label == against)
    return [_floored(row, base, times) if row.label == label else row for row in rows]


def _floored(row: Row, base: Row, times: float) -> Row:
    text = f"≥ {times:g} × {base.label}"
    if row.ratio is None or base.ratio is None:
        return replace(row, floor=Floor(text, None))
    found = row.ratio / base.ratio
    return replace(row, floor=Floor(text if base.ratio == 1 else f"{text} ({found:.2f})", found >= times))


def framing(settings: Settings, versions: Versions) -> Iterator[Table]:
    contenders = [_rekord("rekord", "framing"), _tensorflow(TF, "framing")]
    for name, size, times in (("tabular", "750 B", 5.0), ("images", "100 KB", 2.0)):
        results, _ = _race(name, contenders, settings, versions)
        rows = with_floor(rate_rows(results, TF), "rekord", times, against=TF)
        yield Table(title=f"Framing, records of {size}", unit="records/s", rows=rows)


def crc(settings: Settings, versions: Versions) -> Iterator[Table]:
    results, _ = _race("tabular", [_rekord("rekord", "crc32c")], settings, versions)
    rows = [
        replace(row, floor=Floor("≥ 15", None if row.failure else median(row.values) >= 15))
        for row in rate_rows(results, "", scale=1e-9)
    ]
    yield Table(title="CRC32C of 1 MiB", unit="GB/s", rows=rows)


def imports(settings: Settings, versions: Versions) -> Iterator[Table]:
    del versions
    results, loaded = import_time(["rekord", "tensorflow"], settings)
    rows = [
        Row(
            label=result.label,
            values=[sample.seconds for sample in result.samples],
            ratio=result.ratio(results[1]),
            cpu_ratio=result.ratio(results[1], cpu=True),
            failure=result.failure,
        )
        for result in results
    ]
    frameworks = loaded.get("rekord", [])
    met = None if rows[0].failure else median(rows[0].values) <= 0.35 and not frameworks
    rows[0] = replace(rows[0], floor=Floor("≤ 0.35, no framework loaded", met))
    note = "Frameworks that `import rekord` loads: " + (", ".join(frameworks) or "none") + "."
    yield Table(title="Import", unit="seconds", rows=rows, note=note)


_DECODERS = [
    _rekord(OURS, "decode", threads=1, prefetch=0),
    _tensorflow(TF, "decode", way="one_core"),
    _rekord("rekord, 2 threads", "decode", threads=2),
    _rekord("rekord, 1 thread, every batch kept", "decode", threads=1, prefetch=0, keep=True),
    _tensorflow("TensorFlow, AUTOTUNE", "decode", way="autotune"),
    _tensorflow("TensorFlow, interleave of 2 shards", "decode", way="interleave"),
    Contender(label="tfrecord (no CRC)", peer="tfrecord_peer", task="decode", environment="tfrecord"),
    *(
        Contender(
            label=f"DALI, {threads} thread{'s' * (threads > 1)} (no CRC)",
            peer="dali_peer",
            task="decode",
            options={"threads": threads},
            environment="dali",
        )
        for threads in (1, 2)
    ),
]


def decode(settings: Settings, versions: Versions) -> Iterator[Table]:
    floors = {"tabular": 10.0, "tabular_shuffled": 5.0, "sequences": 6.0, "dense": 3.0, "images": 2.5}
    for name, times in floors.items():
        results, workload = _race(name, _DECODERS, settings, versions)
        rows = with_floor(rate_rows(results, TF), OURS, times, against=TF)
        if name in ("tabular", "sequences"):
            rows = with_floor(rows, "rekord, 2 threads", 1.6, against=OURS)
        yield Table(
            title=f"Decode, {name}",
            unit="records/s",
            rows=rows,
            note=f"{workload.records:,} records in 2 shards, batches of 1024.",
        )


def gzip(settings: Settings, versions: Versions) -> Iterator[Table]:
    contenders = [contender for contender in _DECODERS if contender.label in (OURS, TF)]
    results, _ = _race("tabular_gzip", contenders, settings, versions)
    rows = with_floor(rate_rows(results, TF), OURS, 1.0, against=TF)
    yield Table(title="Decode, tabular compressed with gzip", unit="records/s", rows=rows)


_READ_BYTES = 4_000_000_000
_MB = 1e6


def memory(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["tabular"])
    prepare(workload)
    once_bytes = sum(os.path.getsize(shard) for shard in workload.shards())
    half_times = ceil(_READ_BYTES / settings.shrink / 2 / once_bytes)
    results = []
    for times in (half_times, 2 * half_times):
        folder, records = repeated(workload, times), times * workload.records
        contender = _rekord(f"rekord, {records:,} records", "decode", folder=folder)
        result = peak_memory(workload, contender, settings)
        if any(sample.units != records for sample in result.samples):
            result.failure = "did not read every record"
        results.append(result)
    rows = [
        Row(label=result.label, values=[peak / _MB for peak in result.peak_bytes], failure=result.failure)
        for result in results
    ]
    if any(row.failure for row in rows):
        rows[1] = replace(rows[1], floor=Floor("≤ 300, and flat", None))
    else:
        half, whole = (median(row.values) for row in rows)
        most = 1.1 * half + 16
        text = f"≤ 300, and ≤ {most:.0f} to be flat"
        rows[1] = replace(rows[1], floor=Floor(text, whole <= min(300, most)))
    yield Table(
        title="Peak anonymous memory, tabular",
        unit="MB",
        rows=rows,
        note=f"`batches(1024)` with its defaults; the longer run reads {2 * half_times * once_bytes / 1e9:.1f} GB. "
        "Flat: twice the records take at most 1.1 times the memory and 16 MB.",
    )


def encode(settings: Settings, versions: Versions) -> Iterator[Table]:
    tutorial = "TensorFlow tutorial, rows of NumPy values"
    plain = "TensorFlow tutorial, rows of Python values"
    ours, ours_rows = "rekord, NumPy columns", "rekord, one dict at a time"
    contenders = [
        _rekord(ours, "encode", arrow=False),
        _tensorflow(tutorial, "encode", plain=False),
        _tensorflow(plain, "encode", plain=True),
        _rekord("rekord, an Arrow table", "encode", arrow=True),
    ]
    for name, times in (("tabular", 100.0), ("sequences", 50.0), ("dense", 60.0)):
        taking_part = contenders
        if name == "tabular":
            taking_part = [*contenders, _rekord(ours_rows, "encode_rows")]
        results, workload = _race(name, taking_part, settings, versions)
        rows = with_floor(rate_rows(results, tutorial), ours, times, against=tutorial)
        if name == "tabular":
            rows = with_floor(rows, ours_rows, 5.0, against=plain)
        yield Table(
            title=f"Encode and write, {name}",
            unit="rows/s",
            rows=rows,
            note=f"rekord writes all {workload.records:,} rows; the others the first {2 * workload.chunk:,}, "
            "again and again. To a file in memory; making the rows or columns is not timed.",
        )


GROUPS: dict[str, Group] = {
    "framing": framing,
    "crc": crc,
    "import": imports,
    "decode": decode,
    "gzip": gzip,
    "memory": memory,
    "encode": encode,
}

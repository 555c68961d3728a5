"""Feeding training loops: into NumPy, torch and TensorFlow, in any order, by number, with images decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from environments import NotInstallableError
from generate import prepare
from generate_feed import dataset_bytes, multiplied
from groups import Group, Versions, raced, with_floor
from measure import Contender, PeerError, Process, Result, Settings, peak_memory
from report import Floor, Row, Table, flat_rows, rate_rows
from workloads import WORKLOADS, Workload

_WAYS = {
    "one_core": "TensorFlow, 1 core",
    "autotune": "TensorFlow, AUTOTUNE",
    "interleave": "TensorFlow, interleave of 2 shards",
}
_ONE_CORE, _AUTOTUNE, _INTERLEAVE = _WAYS.values()
_INLINE = {"threads": 1, "prefetch": 0}


def _rekord(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="rekord_feed_peer", task=task, options=options)


def _tensorflow(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="tensorflow_feed_peer", task=task, options=options)


def _prepared(name: str, settings: Settings) -> Workload:
    workload = settings.sized(WORKLOADS[name])
    prepare(workload)
    return workload


def _fastest(rows: Sequence[Row], labels: Sequence[str]) -> str:
    """The fastest of these; the first of them where none was measured."""
    measured = [row for row in rows if row.label in labels and row.ratio is not None]
    return max(measured, key=lambda row: row.ratio or 0.0).label if measured else labels[0]


def feed_numpy(settings: Settings, versions: Versions) -> Iterator[Table]:
    plain = Contender(label="rekord", peer="rekord_peer", task="decode")
    contenders = [
        plain,
        replace(plain, label="rekord, 1 thread", options=_INLINE),
        _rekord("rekord, strings as objects too", "numpy_objects"),
        *(_tensorflow(label, "numpy", way=way) for way, label in _WAYS.items()),
    ]
    for name, times in (("tabular", 10.0), ("sequences", 6.0)):
        workload = _prepared(name, settings)
        results = raced(workload, contenders, settings, versions, reference=_ONE_CORE)
        rows = rate_rows(results, _ONE_CORE)
        rows = with_floor(rows, "rekord", times, against=_fastest(rows, [_AUTOTUNE, _INTERLEAVE]))
        rows = with_floor(rows, "rekord, 1 thread", times, against=_ONE_CORE)
        yield Table(
            title=f"Feed NumPy, {name}",
            unit="records/s",
            rows=rows,
            note=f"{workload.records:,} records, batches of 1024 into a Python loop: `batches` with its usual "
            "threads, and with nothing in the background, against `as_numpy_iterator` over parse_example. rekord's "
            "strings are `rk.Strings`, TensorFlow's objects of Python; one row makes objects of ours too. Floors: "
            "all cores against the fastest of TensorFlow on all cores, 1 thread against 1 core.",
        )


def feed_torch(settings: Settings, versions: Versions) -> Iterator[Table]:
    loader = Contender(
        label="DataLoader and tfrecord (no CRC)",
        peer="dataloader_peer",
        task="decode",
        options={"workers": 0},
        environment="tfrecord_torch",
    )
    forked = replace(loader, label="DataLoader and tfrecord, 2 workers (no CRC)", options={"workers": 2})
    contenders = [
        _rekord("rekord", "torch"),
        _rekord("rekord, 1 thread", "torch", **_INLINE),
        loader,
        forked,
    ]
    workload = _prepared("tabular", settings)
    results = raced(workload, contenders, settings, versions, reference=loader.label)
    rows = rate_rows(results, loader.label)
    yield Table(
        title="Feed torch, tabular",
        unit="records/s",
        rows=with_floor(rows, "rekord", 50.0, against=_fastest(rows, [loader.label, forked.label])),
        against="DataLoader",
        note=f"{workload.records:,} records, batches of 1024 into a Python loop: `to_torch(1024)`. Numbers are "
        "tensors; strings are `rk.Strings` with rekord, lists of bytes with the DataLoader. The workers share each "
        "file by its index; the floor is against the faster of the two, which are cut off when their time is up.",
    )


def feed_tensorflow(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = _prepared("tabular", settings)
    numbers = [column.name for column in workload.columns if not column.is_string]
    for title, columns, times in (("tabular", None, 1.8), ("numbers only", numbers, 3.0)):
        chosen: dict[str, Any] = {} if columns is None else {"columns": columns}
        contenders = [
            _rekord("rekord", "tensorflow", graph=False, **chosen),
            *(
                _tensorflow(label, "parse", way=way, graph=False, **chosen)
                for way, label in _WAYS.items()
                if way != "one_core"
            ),
            _rekord("rekord, in a graph", "tensorflow", graph=True, **chosen),
            _tensorflow(f"{_AUTOTUNE}, in a graph", "parse", way="autotune", graph=True, **chosen),
        ]
        results = raced(workload, contenders, settings, versions, reference=_AUTOTUNE)
        rows = rate_rows(results, _AUTOTUNE)
        yield Table(
            title=f"Feed TensorFlow, {title}",
            unit="records/s",
            rows=with_floor(rows, "rekord", times, against=_fastest(rows, [_AUTOTUNE, _INTERLEAVE])),
            note=f"{workload.records:,} records, {len(columns or workload.columns)} columns, batches of 1024 into a "
            "Python loop, which is how both are used eagerly: `to_tensorflow(1024)` against TFRecordDataset with "
            "parse_example, each on all cores; the floor is against the fastest of TensorFlow. In a graph: `reduce`, "
            "so that no tensor is handed to Python.",
        )


def shuffle(settings: Settings, versions: Versions) -> Iterator[Table]:
    for name, size, times in (("tabular", "750 B", 0.5), ("vectors", "16 KB", 0.8)):
        workload = _prepared(name, settings)
        contenders = [
            _rekord(f"{label}{threads}", "order", shuffle=order, **options)
            for threads, options in (("", {}), (", 1 thread", _INLINE))
            for label, order in (("in order", False), ("shuffled", "exact"))
        ]
        results = raced(workload, contenders, settings, versions, reference="in order")
        rows = rate_rows(results, "in order")
        for threads in ("", ", 1 thread"):
            rows = with_floor(rows, f"shuffled{threads}", times, against=f"in order{threads}")
        yield Table(
            title=f"Exact shuffle, records of {size}",
            unit="records/s",
            rows=rows,
            against="in order",
            note=f"{workload.records:,} records of files in the page cache whose index is known, batches of 1024: "
            "`batches` with its usual threads, and with nothing in the background. The sums of a whole epoch must be "
            "the same.",
        )


_ARRAY_RECORD = "ArrayRecord, group_size:1,uncompressed"


def random(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = _prepared("tabular", settings)
    theirs = [
        Contender(label=label, peer="array_record_peer", task="random", options={"writer": label.split(", ")[1]})
        for label in (_ARRAY_RECORD, "ArrayRecord, group_size:1")
    ]
    results = raced(workload, [_rekord("rekord", "random"), *theirs], settings, versions, reference=_ARRAY_RECORD)
    rows = rate_rows(results, _ARRAY_RECORD)
    fastest = _fastest(rows, [contender.label for contender in theirs])
    yield Table(
        title="Random records of 750 B",
        unit="records/s",
        rows=with_floor(rows, "rekord", 5.0, against=fastest),
        against="ArrayRecord",
        note=f"2,000 of {workload.records:,} records at a time: `split[[…]]`, which verifies and decodes all 40 "
        "columns, against `__getitems__` of an ArrayRecordDataSource, which gives payloads. Its files are written "
        "with the options that their labels name: TensorFlow Datasets writes group_size:1, which compresses. The "
        "floor is against the faster of the two.",
    )


_IMAGES = {"side": 224, "batch": 64}


def images(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = _prepared("photos", settings)
    contenders, pairs = [], []
    for threads in (1, 2):
        count = f"{threads} thread{'s' * (threads > 1)}"
        options = {**_IMAGES, "threads": threads}
        pairs.append((f"rekord, {count}", f"TensorFlow, {count}"))
        contenders += [
            _rekord(pairs[-1][0], "images", **options),
            _tensorflow(pairs[-1][1], "images", antialias=False, **options),
            _tensorflow(f"{pairs[-1][1]}, antialiased", "images", antialias=True, **options),
        ]
    reference = pairs[0][1]
    results = raced(workload, contenders, settings, versions, reference=reference)
    rows = rate_rows(results, reference)
    for ours, theirs in pairs:
        rows = with_floor(rows, ours, 1.0, against=theirs)
    yield Table(
        title="Images, JPEG 640 × 480 decoded and resized to 224 × 224",
        unit="images/s",
        rows=rows,
        note=f"{workload.records:,} JPEGs, batches of {_IMAGES['batch']}: `batches(…, decode=True, resize=(224, "
        "224))`, whose resize is antialiased, against parse_single_example, decode_jpeg and tf.image.resize "
        "(bilinear, which is not unless asked) in a map of so many calls at a time. rekord gives uint8, TensorFlow "
        "float32.",
    )


_SMALL_RECORDS = 260_000  # about 200 MB, two shards of the usual size
_TIMES = 50
_MOST_SECONDS = 0.5
_ONE_PASS = {"min_seconds": 1e-9, "max_seconds": 60.0}


def _small(settings: Settings) -> Workload:
    workload = WORKLOADS["tabular"]
    return workload.scaled(_SMALL_RECORDS // settings.shrink)


def first_batch(settings: Settings, versions: Versions) -> Iterator[Table]:
    del versions
    workload = _small(settings)
    folder = multiplied(workload, _TIMES)
    result = _fresh(workload, _rekord("rekord", "first_batch", folder=folder), settings)
    seconds = [sample.seconds for sample in result.samples]
    met = None if result.failure else median(seconds) < _MOST_SECONDS
    row = Row(label=result.label, values=seconds, failure=result.failure, floor=Floor(f"< {_MOST_SECONDS}", met))
    yield Table(
        title="First batch of a shuffled epoch",
        unit="seconds",
        rows=[row],
        note=f"{_TIMES * workload.records:,} records, {dataset_bytes(folder) / 1e9:.1f} GB by its manifest, with an "
        "index; its shards are links to the same few files, which are in the page cache. From `rk.open` to the first "
        "batch of 1024, in a fresh process each time, `import rekord` not counted.",
    )


def _fresh(workload: Workload, contender: Contender, settings: Settings) -> Result:
    """One pass in a process of its own, again and again."""
    result = Result(contender.label)
    for _ in range(settings.repeats):
        try:
            process = Process(contender, workload)
        except (PeerError, NotInstallableError) as failure:
            result.failure = str(failure)
            break
        try:
            result.samples.append(process.run(_ONE_PASS))
        except PeerError as failure:
            result.failure = str(failure)
            break
        finally:
            process.close()
    return result


_HALF_TIMES = 10


def memory(settings: Settings, versions: Versions) -> Iterator[Table]:
    del versions
    few = replace(settings, repeats=min(settings.repeats, 2))
    workload = _small(settings)
    results = []
    for times in (_HALF_TIMES, 2 * _HALF_TIMES):
        records = times * workload.records
        contender = _rekord(f"rekord, {records:,} records", "epoch", folder=multiplied(workload, times))
        result = peak_memory(workload, contender, few)
        if result.failure is None and any(sample.units != records for sample in result.samples):
            result.failure = "did not read every record"
        results.append(result)
    yield Table(
        title="Peak anonymous memory of a shuffled epoch, tabular",
        unit="MB",
        rows=flat_rows(results),
        note='`batches(1024, shuffle="exact")` of a dataset with an index. Flat: twice the records take at most 1.1 '
        "times the memory and 16 MB.",
    )


GROUPS: dict[str, Group] = {
    "feed_numpy": feed_numpy,
    "feed_torch": feed_torch,
    "feed_tensorflow": feed_tensorflow,
    "shuffle": shuffle,
    "random": random,
    "images": images,
    "first_batch": first_batch,
    "feed_memory": memory,
}

"""Feeding training loops: NumPy, torch, TensorFlow and Keras; shuffled, by number, with images decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from floors import AUTOTUNE, HALF, INTERLEAVE, ONE_THREAD, OURS, SWEEP, TF, WHOLE
from measure import Settings, fresh_processes
from rekord_datasets import dataset_bytes, multiplied
from results import Table
from workloads import WORKLOADS, Workload

from groups.compare import Measure, compare_memory, compare_rates, contender, prepared

_WAYS = {"one_core": TF, "autotune": AUTOTUNE, "interleave": INTERLEAVE}
_INLINE: dict[str, Any] = {"threads": 1, "prefetch": 0}

_rekord = partial(contender, "rekord_feed_peer")
_tensorflow = partial(contender, "tensorflow_feed_peer")


def feed_numpy(settings: Settings) -> Iterator[Table]:
    contenders = [
        contender("rekord_peer", OURS, "decode"),
        contender("rekord_peer", ONE_THREAD, "decode", **_INLINE),
        _rekord("rekord, strings as objects", "numpy_objects"),
        *(_tensorflow(label, "numpy", way=way) for way, label in _WAYS.items()),
    ]
    for name in ("tabular", "sequences"):
        workload = prepared(name, settings)
        yield compare_rates(
            f"Feed NumPy, {name}",
            workload,
            contenders,
            settings,
            reference=TF,
            note=f"{workload.records:,} records, batches of 1024 into a Python loop: `batches(1024)` against "
            "`as_numpy_iterator` over `parse_example`. Strings are `rk.Strings` with rekord and Python objects with "
            "TensorFlow; one row converts rekord's to objects as well.",
        )


def feed_torch(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    loader = contender(
        "dataloader_peer", "DataLoader and tfrecord (no CRC)", "decode", environment="tfrecord_torch", workers=0
    )
    contenders = [
        _rekord(OURS, "torch"),
        _rekord(ONE_THREAD, "torch", **_INLINE),
        loader,
        replace(loader, label="DataLoader and tfrecord, 2 workers (no CRC)", options={"workers": 2}),
    ]
    yield compare_rates(
        "Feed torch, tabular",
        workload,
        contenders,
        settings,
        reference=loader.label,
        note=f"{workload.records:,} records, batches of 1024 into a Python loop: `to_torch(1024)`. Numbers are "
        "tensors; strings are `rk.Strings` with rekord and lists of bytes with the DataLoader, whose workers share "
        "each file by its index. The DataLoader is cut off after the time limit.",
    )


def feed_tensorflow(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    numbers = [column.name for column in workload.columns if not column.is_string]
    brief = replace(settings, max_seconds=min(settings.max_seconds, 1.0))
    for title, columns in (("tabular", None), ("numbers only", numbers)):
        for size in (*SWEEP, 1024):
            options: dict[str, Any] = {"batch": size} if columns is None else {"batch": size, "columns": columns}
            contenders = [
                _rekord(OURS, "tensorflow", graph=False, **options),
                *(_tensorflow(label, "parse", way=way, graph=False, **options) for way, label in _WAYS.items()),
            ]
            if size == 1024:
                contenders += [
                    _rekord("rekord, in a graph", "tensorflow", graph=True, **options),
                    _tensorflow(f"{AUTOTUNE}, in a graph", "parse", way="autotune", graph=True, **options),
                ]
            yield compare_rates(
                f"Feed TensorFlow, {title}, batches of {size}",
                workload,
                contenders,
                brief,
                reference=AUTOTUNE,
                note=f"{workload.records:,} records, {len(columns or workload.columns)} columns, into an eager "
                f"Python loop: `to_tensorflow({size})` against `TFRecordDataset` with `parse_example`."
                + (" In a graph: `reduce`; no tensor reaches Python." if size == 1024 else ""),
            )


def feed_keras(settings: Settings) -> Iterator[Table]:
    workload = prepared("clicks", settings, 60_000)
    for size in (32, 128):
        contenders = [_rekord(OURS, "keras", batch=size), _tensorflow("tf.data and fit", "keras", batch=size)]
        yield compare_rates(
            f"Feed Keras, batches of {size}",
            workload,
            contenders,
            settings,
            reference="tf.data and fit",
            note=f"`model.fit` of one dense layer on {workload.records:,} records of 13 floats and a label, whole "
            f"epochs: `to_keras({size})` against `TFRecordDataset` with `parse_example` and AUTOTUNE.",
        )


def shuffle(settings: Settings) -> Iterator[Table]:
    contenders = [
        _rekord(f"{label}{threads}", "order", shuffle=order, **options)
        for threads, options in (("", {}), (", 1 thread", _INLINE))
        for label, order in (("in order", False), ("shuffled", "exact"))
    ]
    for name, size in (("tabular", "750 B"), ("vectors", "16 KB")):
        workload = prepared(name, settings)
        yield compare_rates(
            f"Exact shuffle, records of {size}",
            workload,
            contenders,
            settings,
            reference="in order",
            note=f"{workload.records:,} records with an index, batches of 1024. The sums of an epoch must be equal.",
        )


def random_access(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    contenders = [_rekord(OURS, "random")]
    for options in ("group_size:1,uncompressed", "group_size:1"):
        contenders.append(contender("grain_peer", f"ArrayRecord, {options}", "random", writer=options))
    yield compare_rates(
        "Random records of 750 B",
        workload,
        contenders,
        settings,
        reference=contenders[1].label,
        note=f"2,000 of {workload.records:,} records at a time: `split[[…]]`, which verifies and decodes 40 columns, "
        "against `__getitems__` of an ArrayRecordDataSource, which returns payloads. Labels name the writer's "
        "options; TensorFlow Datasets uses group_size:1, which compresses.",
    )


_IMAGES: dict[str, Any] = {"side": 224, "batch": 64}


def images(settings: Settings) -> Iterator[Table]:
    workload = prepared("photos", settings)
    contenders = []
    for threads, count in ((1, "1 thread"), (2, "2 threads")):
        options = {**_IMAGES, "threads": threads}
        antialiased = _tensorflow(f"TensorFlow, {count}, antialiased", "images", antialias=True, **options)
        contenders += [
            _rekord(f"rekord, {count}", "images", **options),
            _tensorflow(f"TensorFlow, {count}", "images", antialias=False, **options),
            replace(antialiased, max_repeats=2),
        ]
    yield compare_rates(
        "JPEG 640 × 480 decoded and resized to 224 × 224",
        workload,
        contenders,
        settings,
        reference="TensorFlow, 1 thread",
        unit="images/s",
        note=f"{workload.records:,} JPEGs, batches of {_IMAGES['batch']}: `batches(…, decode=True, resize=(224, "
        "224))`, which is antialiased, against `parse_single_example`, `decode_jpeg` and `tf.image.resize` "
        "(bilinear) in a parallel `map`. rekord returns uint8, TensorFlow float32.",
    )


_SMALL_RECORDS = 260_000  # about 200 MB, two shards of the default size
_TIMES = 50


def _small(settings: Settings) -> Workload:
    return WORKLOADS["tabular"].scaled(_SMALL_RECORDS // settings.shrink)


def first_batch(settings: Settings) -> Iterator[Table]:
    workload = _small(settings)
    folder = multiplied(workload, _TIMES)
    yield Table(
        title="First batch of a shuffled epoch",
        unit="seconds",
        results=[fresh_processes(workload, _rekord(OURS, "first_batch", folder=folder), settings)],
        note=f"{_TIMES * workload.records:,} records, {dataset_bytes(folder) / 1e9:.1f} GB in the manifest; "
        "the shards are links to a few files in the page cache. From `rk.open` to the first batch of 1024, in a "
        "fresh process each time, without `import rekord`.",
    )


_HALF_TIMES = 10


def shuffled_memory(settings: Settings) -> Iterator[Table]:
    workload = _small(settings)
    runs = []
    for label, times in ((HALF, _HALF_TIMES), (WHOLE, 2 * _HALF_TIMES)):
        epoch = _rekord(label, "epoch", folder=multiplied(workload, times))
        runs.append((workload, epoch, times * workload.records))
    note = f'`batches(1024, shuffle="exact")` of a dataset with an index; 2 N = {runs[1][2]:,} tabular records.'
    yield compare_memory("Peak memory of a shuffled epoch", runs, settings, note)


GROUPS: dict[str, Measure] = {
    "feed_numpy": feed_numpy,
    "feed_torch": feed_torch,
    "feed_tensorflow": feed_tensorflow,
    "feed_keras": feed_keras,
    "shuffle": shuffle,
    "random_access": random_access,
    "images": images,
    "first_batch": first_batch,
    "shuffled_memory": shuffled_memory,
}

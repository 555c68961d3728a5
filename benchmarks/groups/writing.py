"""Encoding, and whole conversions from files or pipelines to datasets, compared with scripts and other formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from floors import DEEPLAB, FULL, HEADERS, LOOP, OURS
from measure import Contender, Settings
from raw_files import prepare_pairs, prepare_tables
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_rates, contender, prepared

_rekord = partial(contender, "rekord_write_peer")


def encode(settings: Settings) -> Iterator[Table]:
    reference = "TensorFlow tutorial, rows of NumPy values"
    contenders = [
        contender("rekord_peer", "rekord, NumPy columns", "encode", arrow=False),
        contender("tensorflow_peer", reference, "encode", plain=False),
        contender("tensorflow_peer", "TensorFlow tutorial, rows of Python values", "encode", plain=True),
        contender("rekord_peer", "rekord, Arrow table", "encode", arrow=True),
    ]
    for name in ("tabular", "sequences", "dense"):
        workload = prepared(name, settings)
        rows = [contender("rekord_peer", "rekord, dicts", "encode_rows")] if name == "tabular" else []
        yield compare_rates(
            f"Encode and write, {name}",
            workload,
            [*contenders, *rows],
            settings,
            reference=reference,
            unit="rows/s",
            note=f"rekord writes all {workload.records:,} rows; the others, and dicts, the first "
            f"{2 * workload.chunk:,} repeatedly. To a file in memory; building the rows or columns is not timed.",
        )


def _formats() -> Iterator[Contender]:
    for workers, count in ((1, "1 worker"), (2, "2 workers")):
        litdata = contender("litdata_peer", f"LitData, {count}", "images", environment="litdata", workers=workers)
        label = f"MosaicML Streaming, {count}"
        yield replace(litdata, max_repeats=2)
        yield contender("streaming_peer", label, "images", environment="streaming", workers=workers)
        label = f"datasets, from a generator, {count}"
        generator = contender("huggingface_peer", label, "images", way="generator", workers=workers)
        yield replace(generator, max_repeats=2) if workers == 2 else generator
    yield contender("huggingface_peer", "datasets, from memory", "images", way="memory", workers=1)


def write_images(settings: Settings) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["pairs"])
    prepare_pairs(workload)
    contenders = [
        *(_rekord(label, "images", workers=workers, verify="full") for workers, label in FULL.items()),
        contender("deeplab_peer", DEEPLAB, "images"),
        *(_rekord(label, "images", workers=workers, verify="headers") for workers, label in HEADERS.items()),
        *_formats(),
    ]
    yield compare_rates(
        "Write, images with masks",
        workload,
        contenders,
        settings,
        reference=DEEPLAB,
        unit="pairs/s",
        note=f"{workload.records:,} JPEGs of 512 × 512 pixels with PNG masks, converted to local disk. Only rekord "
        "syncs its files. The script is cut off after the time limit. LitData, Streaming and datasets write their "
        "own formats and do not inspect the images.",
    )


def write_tables(settings: Settings) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["tables"])
    prepare_tables(workload)
    contenders = []
    for name, form in (("CSV", "csv"), ("Parquet", "parquet")):
        contenders.append(_rekord(f"rekord, {name}", "tables", form=form, workers=None))
        one = _rekord(f"rekord, {name}, 1 worker", "tables", form=form, workers=1)
        contenders.append(replace(one, max_repeats=2))
    contenders.append(contender("loop_peer", LOOP, "tables"))
    yield compare_rates(
        "Write, a table",
        workload,
        contenders,
        settings.at_most(3),
        reference=LOOP,
        unit="rows/s",
        note=f"{workload.records:,} rows of 14 numbers and 26 strings, converted to local disk with one worker per "
        "core unless stated; Parquet has row groups of 122,880. The loop reads CSV with `csv`, writes "
        "`tf.train.Example`, and is cut off after the time limit.",
    )


_PIPELINES = {
    "tabular": (50_000, [column.name for column in WORKLOADS["tabular"].columns]),
    "images": (2_000, ["image", "label"]),
}


def write_tfdata(settings: Settings) -> Iterator[Table]:
    for name, (records, columns) in _PIPELINES.items():
        workload = WORKLOADS[name].scaled(max(records // settings.shrink, 500))
        contenders = [
            _rekord(OURS, "tfdata", columns=columns),
            contender("loop_peer", LOOP, "tfdata", columns=columns),
        ]
        yield compare_rates(
            f"Write from tf.data, {name}",
            workload,
            contenders,
            settings,
            reference=LOOP,
            unit="rows/s",
            note=f"{workload.records:,} elements from tensors in memory, {len(columns)} columns, converted to local "
            "disk. The loop uses `as_numpy_iterator` and `tf.train.Example`, and is cut off after the time limit.",
        )


GROUPS: dict[str, Measure] = {
    "encode": encode,
    "write_images": write_images,
    "write_tables": write_tables,
    "write_tfdata": write_tfdata,
}

"""Floors and goals: what rekord must reach in each table, and what it aims for.

Floors are evaluated when results are rendered, so that they can change without a new measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from measure import Result
from results import Table

Verdict: TypeAlias = Literal["goal reached", "pass", "MISS", "not measured"]

TF = "TensorFlow, 1 core"
AUTOTUNE = "TensorFlow, AUTOTUNE"
INTERLEAVE = "TensorFlow, interleave of 2 shards"
OURS = "rekord"
ONE_THREAD = "rekord, 1 thread"
TWO_THREADS = "rekord, 2 threads"
DEEPLAB = "script in DeepLab's style"
FULL = {1: "rekord, 1 worker", 2: "rekord, 2 workers"}
HEADERS = {workers: f'{label}, verify="headers"' for workers, label in FULL.items()}
FORMATS = (
    *(f"{name}, {count}" for name in ("LitData", "MosaicML Streaming") for count in ("1 worker", "2 workers")),
    *(f"datasets, from {way}" for way in ("a generator, 1 worker", "a generator, 2 workers", "memory")),
)
LOOP = "a loop over rows"
OBSTORE, S3FS = "obstore", "s3fs"
CP = "cp --reflink=never and a verified scan"
HALF, WHOLE = "N records", "2 N records"
CHECKED = ("tabular", "tabular, shuffled key order", "sequences", "dense", "images")
SWEEP = (32, 128, 512)
TRAINED = {"clicks": "a table", "thumbnails": "images"}
TRAINERS = ("WebDataset", "LitData", "MosaicML Streaming", "Grain with ArrayRecord", "Hugging Face datasets")
WORKERS = {0: "no workers", 2: "2 workers"}
NOT_SLOWER = 0.97  # two contenders that do the same differ by up to 3 %
SCALED = ("write", "check", "batches", "shuffled batches", "query")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured value of a floor, by the clock and per CPU second."""

    value: float
    cpu_value: float | None = None
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One figure that rekord holds itself to."""

    work: str
    table: str
    contender: str
    limit: float
    goal: float | None = None
    at_most: bool = False  # seconds and megabytes
    unit: str = "×"
    measure: Callable[[Table, Result], Measured | None]

    def evaluate(self, tables: dict[str, Table]) -> tuple[Verdict, Measured | None]:
        table = tables.get(self.table)
        result = table.result(self.contender) if table else None
        measured = self.measure(table, result) if table and result and not result.failure else None
        if measured is None:
            return "not measured", None
        if not self._reaches(measured.value, self.limit):
            return "MISS", measured
        if self.goal is not None and self._reaches(measured.value, self.goal):
            return "goal reached", measured
        return "pass", measured

    def bound(self, value: float | None) -> str:
        """A floor or goal as text."""
        if value is None:
            return ""
        return f"{'≤' if self.at_most else '≥'} {value:g} {self.unit}"

    def _reaches(self, value: float, limit: float) -> bool:
        return value <= limit if self.at_most else value >= limit


def times(
    work: str,
    table: str,
    contender: str,
    limit: float,
    goal: float | None = None,
    *,
    against: str | Sequence[str],
) -> Floor:
    """At least `limit` times the rate of the fastest of `against`, by the clock."""
    labels = (against,) if isinstance(against, str) else tuple(against)

    def measure(measured_table: Table, result: Result) -> Measured | None:
        found = [measured_table.result(label) for label in labels]
        peers = [peer for peer in found if peer is not None and not peer.failure and peer.samples]
        if not peers:
            return None
        fastest = max(peers, key=lambda peer: median(measured_table.values(peer)))
        ratio = result.ratio(fastest)
        return None if ratio is None else Measured(ratio, result.ratio(fastest, cpu=True), fastest.label)

    return Floor(work=work, table=table, contender=contender, limit=limit, goal=goal, measure=measure)


def value(
    work: str,
    table: str,
    contender: str,
    limit: float,
    unit: str,
    *,
    at_most: bool = True,
) -> Floor:
    """The median of the values themselves: at most, or at least, a limit."""

    def measure(measured_table: Table, result: Result) -> Measured:
        return Measured(median(measured_table.values(result)))

    return Floor(
        work=work,
        table=table,
        contender=contender,
        limit=limit,
        at_most=at_most,
        unit=unit,
        measure=measure,
    )


def flat(work: str, table: str) -> Floor:
    """Peak memory on 2 N records: at most 1.1 times that on N records, after 16 MB for the rest."""

    def measure(measured_table: Table, result: Result) -> Measured | None:
        half = measured_table.result(HALF)
        if half is None or half.failure:
            return None
        whole_mb, half_mb = (median(measured_table.values(each)) for each in (result, half))
        return Measured((whole_mb - 16) / half_mb, against=HALF)

    return Floor(work=work, table=table, contender=WHOLE, limit=1.1, at_most=True, measure=measure)


def _targets() -> list[Floor]:
    tf_best = (TF, AUTOTUNE, INTERLEAVE)
    floors = [times("Decode tabular, 1 thread, batches of 1024", "Decode, tabular", ONE_THREAD, 11, 16, against=TF)]
    for size in SWEEP:
        table = f"Decode, tabular, batches of {size}"
        floors += [
            times(f"Decode tabular, default settings, batches of {size}", table, OURS, 8, 12, against=(TF, AUTOTUNE)),
            times(
                f"Decode tabular, default against 1 thread, batches of {size}",
                table,
                OURS,
                NOT_SLOWER,
                against=ONE_THREAD,
            ),
        ]
    for name in ("tabular", "sequences"):
        work = f"Decode {name}, 2 threads against 1"
        floors.append(times(work, f"Decode, {name}", TWO_THREADS, 1.7, 1.9, against=ONE_THREAD))
    large = f"{ONE_THREAD}, batches of 8192"
    floors += [
        times("Decode dense, batches of 1024", "Decode, dense", ONE_THREAD, 3.3, 4, against=TF),
        times("Decode dense, batches of 8192 against 1024", "Decode, dense", large, 0.8, against=ONE_THREAD),
        times("Decode, shuffled key order", "Decode, tabular, shuffled key order", ONE_THREAD, 7, 10, against=TF),
        times(
            "Encode NumPy columns",
            "Encode and write, tabular",
            "rekord, NumPy columns",
            130,
            200,
            against="TensorFlow tutorial, rows of NumPy values",
        ),
        times("Write image pairs, headers", "Write, images with masks", HEADERS[2], 1.1, 1.5, against=FORMATS),
        times("Write from tf.data, images", "Write from tf.data, images", OURS, 3, 5, against=LOOP),
    ]
    for what, limit, goal in (("tabular", 2, 4), ("numbers only", 3, 8)):
        for size in (*SWEEP, 1024):
            table = f"Feed TensorFlow, {what}, batches of {size}"
            floors.append(
                times(f"`to_tensorflow`, {what}, batches of {size}", table, OURS, limit, goal, against=tf_best)
            )
    for size in (32, 128):
        work, table = f"`to_keras` and `fit`, batches of {size}", f"Feed Keras, batches of {size}"
        floors.append(times(work, table, OURS, 1.2, 1.5, against="tf.data and fit"))
    jpeg = "JPEG 640 × 480 decoded and resized to 224 × 224"
    floors += [
        times("JPEG to 224 × 224, 2 threads", jpeg, TWO_THREADS, 1.8, 2.5, against="TensorFlow, 2 threads"),
        times("JPEG to 224 × 224, 1 thread", jpeg, ONE_THREAD, 1, against="TensorFlow, 1 thread"),
        times(
            "Resize and write, warm call",
            "Resize and write, images",
            "rk.write",
            1.5,
            2,
            against="the script, called",
        ),
    ]
    for name in CHECKED:
        for label in ("check", "check, with the schema"):
            floors.append(
                times(f"{label[0].upper()}{label[1:]}: {name}", f"Check, {name}", label, 0.85, 0.95, against="decode")
            )
    for name in ("tabular", "images"):
        floors.append(times(f"Salvage {name}", f"Salvage, {name}", "salvage", 0.6, 0.8, against="verified read"))
    for name in ("tabular", "images"):
        floors.append(times(f"Re-shard {name}", f"Re-shard, {name}", "rekord rewrite", 0.95, 1.2, against=CP))
    floors += [
        times("Parquet export", "Export to Parquet, tabular", OURS, 9, 12, against="tf.data and pandas"),
        times("`count(*)`, one column decoded", "Query, tabular", "rekord, decoded", 25, 40, against="tf.data scan"),
        value("`import rekord`", "Start-up", "import rekord", 0.15, "s"),
        value("`rekord --help`", "Start-up", "rekord --help", 0.25, "s"),
        value("View: address printed", "View, first rows", "address printed", 1, "s"),
        value("View: first rows of 10 GB", "View, first rows", "first rows", 1, "s"),
        value("View: jump to a record of a million", "View, a million records", "jump to a record", 0.1, "s"),
        value("View: facets of a million records", "View, a million records", "facets under a filter", 0.1, "s"),
        value("View: 60 thumbnails, cold", "View, thumbnails", "cold", 0.5, "s"),
        value("View: 60 thumbnails, cached", "View, thumbnails", "cached", 0.1, "s"),
        value("View: mosaic", "View, mosaic", OURS, 1500, "tiles/s", at_most=False),
    ]
    return floors


def _other_floors() -> list[Floor]:
    jpeg_script = "the script, from its start"
    dataloader = ("DataLoader and tfrecord (no CRC)", "DataLoader and tfrecord, 2 workers (no CRC)")
    array_record = ("ArrayRecord, group_size:1,uncompressed", "ArrayRecord, group_size:1")
    numpy_rows, python_rows = (f"TensorFlow tutorial, rows of {kind} values" for kind in ("NumPy", "Python"))
    images = "Write, images with masks"
    floors = [
        times("Framing, records of 750 B", "Framing, records of 750 B", OURS, 5, against=TF),
        times("Framing, records of 100 KB", "Framing, records of 100 KB", OURS, 2, against=TF),
        value("CRC32C", "CRC32C of 1 MiB", OURS, 15, "GB/s", at_most=False),
        times("Decode sequences", "Decode, sequences", ONE_THREAD, 6, against=TF),
        times("Decode images", "Decode, images", ONE_THREAD, 2.5, against=TF),
        times("Decode gzip", "Decode, tabular compressed with gzip", ONE_THREAD, 1, against=TF),
        times("Encode sequences", "Encode and write, sequences", "rekord, NumPy columns", 50, against=numpy_rows),
        times("Encode dense", "Encode and write, dense", "rekord, NumPy columns", 60, against=numpy_rows),
        times("Encode one dict at a time", "Encode and write, tabular", "rekord, dicts", 5, against=python_rows),
        times("Write image pairs, 1 worker", images, FULL[1], 1.8, against=DEEPLAB),
        times("Write image pairs, 2 workers", images, FULL[2], 3.3, against=DEEPLAB),
        times("Write image pairs, headers, against the script", images, HEADERS[2], 10, against=DEEPLAB),
        times("Write a table from CSV", "Write, a table", "rekord, CSV", 20, against=LOOP),
        times("Write a table from Parquet", "Write, a table", "rekord, Parquet", 20, against=LOOP),
        times("Write from tf.data, tabular", "Write from tf.data, tabular", OURS, 3, against=LOOP),
        times("Statistics", "Statistics, tabular", OURS, 5, against="TFDV"),
        times("Feed NumPy, tabular", "Feed NumPy, tabular", OURS, 10, against=(AUTOTUNE, INTERLEAVE)),
        times("Feed NumPy, tabular, 1 thread", "Feed NumPy, tabular", ONE_THREAD, 10, against=TF),
        times("Feed NumPy, sequences", "Feed NumPy, sequences", OURS, 6, against=(AUTOTUNE, INTERLEAVE)),
        times("Feed NumPy, sequences, 1 thread", "Feed NumPy, sequences", ONE_THREAD, 6, against=TF),
        times("Feed torch", "Feed torch, tabular", OURS, 50, against=dataloader),
    ]
    for size, limit in (("750 B", 0.5), ("16 KB", 0.8)):
        for threads in ("", ", 1 thread"):
            work, table = f"Exact shuffle, records of {size}{threads}", f"Exact shuffle, records of {size}"
            floors.append(times(work, table, f"shuffled{threads}", limit, against=f"in order{threads}"))
    floors += [
        times("Random records", "Random records of 750 B", OURS, 5, against=array_record),
        value("First batch of a shuffled epoch", "First batch of a shuffled epoch", OURS, 0.5, "s"),
        times("`count(*)` from the index", "Query, tabular", "rekord, from the index", 100, against="tf.data scan"),
        times("Resize and write, command", "Resize and write, images", "rekord write", 2, against=jpeg_script),
        value("Memory of `batches`", "Peak memory of batches", WHOLE, 300, "MB"),
        flat("Memory of `batches`, flat", "Peak memory of batches"),
        flat("Memory of a shuffled epoch, flat", "Peak memory of a shuffled epoch"),
        flat("Memory of `check`, flat", "Peak memory of check"),
        flat("Memory of `stats`, flat", "Peak memory of stats"),
    ]
    for what in TRAINED.values():
        for workers in WORKERS.values():
            work, table = f"Training loop on {what}, {workers}", f"Training loop, {what}, {workers}"
            floors.append(times(work, table, OURS, 1, against=TRAINERS))
    for work in SCALED:
        for factor in (4, 16):
            label = f"{factor} × the records"
            # Linear within 10 %: a record costs at most 1.1 times as much.
            floors.append(
                times(f"Scaling of {work}, {label}", f"Scaling, {work}", label, 0.909, against="1 × the records")
            )
    floors += [
        times("1,000 ranges of 1 MB of an object", "Objects, ranges", OURS, 2.5, against=S3FS),
        times("An object in file order", "Objects, file order", OURS, 0.8, against=OBSTORE),
        times("Write an object", "Objects, write", OURS, 0.8, against=OBSTORE),
    ]
    return floors


TARGETS = tuple(_targets())
OTHER_FLOORS = tuple(_other_floors())
FLOORS = TARGETS + OTHER_FLOORS

"""Whole conversions, from raw files or a pipeline to a dataset, beside the scripts and formats of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from generate_write import prepare_pairs, prepare_tables
from groups import Group, Versions, raced, with_floor
from measure import Contender, Settings
from report import Floor, Row, Table, rate_rows
from workloads import WORKLOADS

MOST_REPEATS = 3  # a pass is a whole conversion, of seconds


def _rekord(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="rekord_write_peer", task=task, options=options)


def _fewer(settings: Settings) -> Settings:
    return replace(settings, repeats=min(settings.repeats, MOST_REPEATS))


def _best(rows: list[Row], labels: list[str]) -> str:
    """The fastest of these; the first of them where none was measured."""
    measured = [row for row in rows if row.label in labels and row.ratio is not None]
    return max(measured, key=lambda row: row.ratio or 0.0).label if measured else labels[0]


def _with_both(rows: list[Row], label: str, one: tuple[float, str], other: tuple[float, str]) -> list[Row]:
    """Two floors on one row: it must hold both."""
    floors = []
    for times, against in (one, other):
        row = next(row for row in with_floor(rows, label, times, against=against) if row.label == label)
        assert row.floor is not None
        floors.append(row.floor)
    met = None if any(floor.met is None for floor in floors) else all(floor.met for floor in floors)
    both = Floor("; ".join(f"{floor.text}{'' if floor.met else ' (missed)'}" for floor in floors), met)
    return [replace(row, floor=both) if row.label == label else row for row in rows]


_DEEPLAB = "script in DeepLab's style"
_FULL = "rekord, {} worker{}"
_HEADERS = 'rekord, {} worker{}, verify="headers"'


def _formats() -> list[Contender]:
    """The others, each with one worker and with two."""
    contenders = []
    for workers in (1, 2):
        count = f"{workers} worker{'s' * (workers > 1)}"
        contenders += [
            Contender(
                label=f"LitData, {count}",
                peer="litdata_peer",
                task="images",
                options={"workers": workers},
                environment="litdata",
            ),
            Contender(
                label=f"MosaicML Streaming, {count}",
                peer="streaming_peer",
                task="images",
                options={"workers": workers},
                environment="streaming",
            ),
            Contender(
                label=f"datasets, from a generator, {count}",
                peer="huggingface_peer",
                task="images",
                options={"way": "generator", "workers": workers},
            ),
        ]
    contenders.append(
        Contender(
            label="datasets, from memory",
            peer="huggingface_peer",
            task="images",
            options={"way": "memory", "workers": 1},
        )
    )
    return contenders


def write_images(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["pairs"])
    prepare_pairs(workload)
    full, headers = [
        [
            _rekord(label.format(workers, "s" * (workers > 1)), "images", workers=workers, verify=verify)
            for workers in (1, 2)
        ]
        for label, verify in ((_FULL, "full"), (_HEADERS, "headers"))
    ]
    script = Contender(label=_DEEPLAB, peer="deeplab_peer", task="images")
    formats = _formats()
    results = raced(workload, [*full, script, *headers, *formats], _fewer(settings), versions, reference=_DEEPLAB)
    rows = rate_rows(results, _DEEPLAB)
    for contender, times in ((full[0], 1.8), (full[1], 3.3)):
        rows = with_floor(rows, contender.label, times, against=_DEEPLAB)
    best = _best(rows, [contender.label for contender in formats])
    rows = _with_both(rows, headers[1].label, (10.0, _DEEPLAB), (1.0, best))
    yield Table(
        title="Write, images with masks",
        unit="pairs/s",
        rows=rows,
        note=f"{workload.records:,} JPEGs of 512 × 512 with their PNG masks, whole conversions to the disk; rekord "
        "alone syncs what it wrote. The script is cut off when its time is up. LitData, Streaming and datasets write "
        "formats of their own, without looking at the images; the floor is against the fastest of them.",
    )


def write_tables(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["tables"])
    prepare_tables(workload)
    loop = "csv and tf.train.Example, a loop"
    ours = [
        _rekord(f"rekord, {name}{label}", "tables", form=form, workers=workers)
        for name, form in (("CSV", "csv"), ("Parquet", "parquet"))
        for label, workers in (("", None), (", 1 worker", 1))
    ]
    script = Contender(label=loop, peer="loop_peer", task="tables")
    results = raced(workload, [*ours, script], _fewer(settings), versions, reference=loop)
    rows = rate_rows(results, loop)
    for label in ("rekord, CSV", "rekord, Parquet"):
        rows = with_floor(rows, label, 20.0, against=loop)
    yield Table(
        title="Write, a table",
        unit="rows/s",
        rows=rows,
        note=f"{workload.records:,} rows of 14 numbers and 26 strings; Parquet in row groups of 122,880. Whole "
        "conversions to the disk, as many workers as cores unless said. The loop is cut off when its time is up.",
    )


_PIPELINES = {
    "tabular": (50_000, [column.name for column in WORKLOADS["tabular"].columns]),
    "images": (2_000, ["image", "label"]),
}


def write_tfdata(settings: Settings, versions: Versions) -> Iterator[Table]:
    ours, loop = "rekord", "as_numpy_iterator and tf.train.Example, a loop"
    for name, (records, columns) in _PIPELINES.items():
        workload = WORKLOADS[name].scaled(max(records // settings.shrink, 500))
        contenders = [
            _rekord(ours, "tfdata", columns=columns),
            Contender(label=loop, peer="loop_peer", task="tfdata", options={"columns": columns}),
        ]
        results = raced(workload, contenders, _fewer(settings), versions, reference=loop)
        yield Table(
            title=f"Write from tf.data, {name}",
            unit="rows/s",
            rows=with_floor(rate_rows(results, loop), ours, 3.0, against=loop),
            note=f"{workload.records:,} elements of tensors in memory, {len(columns)} columns; whole conversions "
            "to the disk. The loop is cut off when its time is up.",
        )


GROUPS: dict[str, Group] = {
    "write_images": write_images,
    "write_tables": write_tables,
    "write_tfdata": write_tfdata,
}

"""`rk.export`: records of a dataset as files that other tools read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rekord.arguments import (
    as_path,
    bytes_size,
    check_keywords,
    column_name,
    inapplicable,
    invalid,
    one_of,
    optional_names,
)
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import RecordKind, Schema
from rekord.sources.records import records as record_source
from rekord.sources.rows import rows as row_source
from rekord.storage.local import Storage
from rekord.storage.publication import exists, file_sizes, kind_at
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import Output, StagedFolder, Transaction
from rekord.verbs.export import images, tables, tars
from rekord.verbs.export.reading import ExportedRecords, Options, safe_part
from rekord.verbs.options import ExportOptions, FormatName, reject_reading_options
from rekord.verbs.write import write


def export_tfds(every: list[ExportedRecords], out: str, options: Options) -> tuple[dict[str, int], int, int]:
    """Write splits as a TFDS folder; returns the records of each split, the number of files, and their bytes."""
    schema = _get_export_schema(every[0])
    rows, split = _build_row_source(every, schema)
    try:
        dataset = write(rows, out, schema=schema, split=split, format="tfds", progress=False)
    except BaseException:
        # A conversion would resume from here; an export leaves nothing behind.
        with suppress(RekordError), Transaction(out).lock() as transaction:
            for staging in transaction.stagings():
                staging.remove()
        raise
    counts = {name: len(one) for name, one in dataset.splits.items()}
    options.on_records(sum(counts.values()))
    sizes = list(file_sizes(ROUTED_STORAGE, out))
    return counts, len(sizes), sum(sizes)


def _get_export_schema(records: ExportedRecords) -> Schema:
    whole = records.split.schema
    if whole.is_sequence:
        return whole  # TFDS has no such type, and `write` raises
    return Schema(dict(records.features))


def _build_row_source(every: list[ExportedRecords], schema: Schema) -> tuple[Any, str]:
    """Rows to write, and the splits that they go to."""
    views = [one for one in every if one.split.view.ids is not None or one.limit is not None]
    splits = {path: one.name for one in every for path in one.split.paths}
    # A concatenated split may contain a file twice.
    once = len(splits) == sum(len(one.split.paths) for one in every)
    if once and not views and not any(one.split.view.shards.remote for one in every):
        return record_source(list(splits), schema=schema, splits=splits), "source"
    if len(every) > 1:
        raise error(
            "U605",
            "tfds cannot be written from parts of several splits",
            expected="whole splits in local files, or one split",
            found=f"{len(every)} splits" + (f", the first {views[0].limit:,} records of each" if views else ""),
            do=f"split={every[0].name[:40]!r}",
        )
    return row_source(_RowIterable(every[0])), every[0].name


class _RowIterable:
    """The rows of a split; each iteration starts at the first one."""

    def __init__(self, records: ExportedRecords) -> None:
        self._records = records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch, _, rows in self._records.batches():
            for row in range(rows):
                yield {name: column[row] for name, column in batch.items()}


CheckFunction = Callable[[ExportedRecords, Options], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """One format. `extension` is that of its files; a format without one is a folder."""

    name: str
    extension: str | None = None
    labels: bool = False  # whether it can hold class names instead of ids
    maps: bool = False  # whether it can hold what a function passed to `Split.map` returns
    check: CheckFunction | None = None  # raises, before anything is read or written, for what the format cannot hold
    write_file: Callable[[ExportedRecords, Output, Options], int] | None = None  # one split to one file
    write_folder: Callable[[ExportedRecords, StagedFolder, Options, images.ExportState], int] | None = None


FORMATS = {
    one.name: one
    for one in (
        FormatSpec(name="parquet", extension=".parquet", maps=True, write_file=tables.write_parquet),
        FormatSpec(name="arrow", extension=".arrow", maps=True, write_file=tables.write_arrow),
        FormatSpec(name="arrow-stream", extension=".arrows", maps=True, write_file=tables.write_arrow_stream),
        FormatSpec(name="csv", extension=".csv", labels=True, check=tables.check_csv, write_file=tables.write_csv),
        FormatSpec(name="tsv", extension=".tsv", labels=True, check=tables.check_csv, write_file=tables.write_tsv),
        FormatSpec(
            name="jsonl", extension=".jsonl", labels=True, check=tables.check_jsonl, write_file=tables.write_jsonl
        ),
        FormatSpec(name="webdataset", extension=".tar", labels=True, check=tars.check_tar),
        FormatSpec(name="images", check=images.check_images, write_folder=images.write_images),
        FormatSpec(name="coco", check=images.check_coco, write_folder=images.write_coco),
        FormatSpec(name="voc", check=images.check_voc, write_folder=images.write_voc),
        FormatSpec(name="tfds"),
    )
}

_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow-stream",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson.gz": "jsonl",
    ".tar": "webdataset",
}


def find_format_extension(out: str) -> str | None:
    """The extension in a file name that implies a format."""
    name = out.lower()
    return next((ending for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def choose_format(out: str, requested: FormatName | None) -> tuple[FormatSpec, bool]:
    """The format of an export, and whether `out` is a single file rather than a folder."""
    ending = find_format_extension(out)
    if requested is None:
        if ending is None:
            if os.path.splitext(os.path.basename(out))[1]:
                raise _unknown_format_error(out)
            return FORMATS["images"], False
        return FORMATS[_ENDINGS[ending]], True
    format = FORMATS[one_of("format", requested, FORMATS, do='format="parquet"')]
    if (
        ending is not None
        and _ENDINGS[ending] != requested
        and {requested, _ENDINGS[ending]} != {"arrow", "arrow-stream"}
    ):
        raise error(
            "U605",
            f"output name implies {_ENDINGS[ending]}, but the format is {requested}",
            location=Location(path=out),
            expected=f"a name that ends in {format.extension}" if format.extension else "the name of a folder",
            found=f"a name that ends in {ending}",
            do=f'format="{_ENDINGS[ending]}"',
        )
    return format, format.extension is not None and ending is not None


def _unknown_format_error(out: str) -> RekordError:
    stem, ending = os.path.splitext(out)
    return error(
        "U605",
        "cannot determine the format from the name of the output",
        location=Location(path=out),
        expected="a name that ends in .parquet, .arrow, .csv, .jsonl or .tar, or the name of a folder",
        found=f"a name that ends in {ending[:20]}",
        do=f'out="{stem if len(stem) <= 120 else "data"}.parquet"',
    )


if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

_VOC_EXTRAS = ("difficult", "truncated", "occluded", "view")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote. `left_out` are the columns that the format cannot hold."""

    out: str
    format: str
    splits: dict[str, int]  # records of each
    files: int
    n_bytes: int
    left_out: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """The number of records in all splits."""
        return sum(self.splits.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return {
            "out": self.out,
            "format": self.format,
            "records": self.records,
            "splits": self.splits,
            "files": self.files,
            "bytes": self.n_bytes,
            "left_out": list(self.left_out),
        }


@check_keywords
def export(
    source: PathLike | Dataset | Split,
    out: PathLike,
    *,
    format: FormatName | None = None,
    split: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    labels: Literal["ids", "names"] = "ids",
    shard_size: str | int | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    on_records: Callable[[int], None] | None = None,
) -> ExportReport:
    """Export a dataset, a split or a view to another format.

    The extension of `out` determines the format: .parquet, .arrow (.feather), .arrows (a stream), .csv, .tsv, .jsonl
    (these three also with .gz) or .tar (WebDataset). For a folder, `format` does: "images", "coco", "voc" or "tfds",
    or one of the others with one file per split. A single file holds one split, selected by `split`.

    `columns` and `limit` (records per split) restrict what is written. `labels="names"` writes class names instead
    of ids in text formats. `shard_size` splits tars. Payloads that are not Examples are one column, `payload`;
    `kind` overrides the detected kind of payload.

    `out` appears only when it is complete: a corrupt record, a full disk or Ctrl-C leave nothing behind. `overwrite`
    replaces an existing file, never a folder.
    """
    options = ExportOptions.of(locals())
    return export_dataset(source, out, options, on_records=on_records)


def export_dataset(
    source: PathLike | Dataset | Split,
    out: PathLike,
    requested: ExportOptions,
    *,
    on_records: Callable[[int], None] | None = None,
    storage: Storage = ROUTED_STORAGE,
) -> ExportReport:
    """`export` with parsed options, on a given storage."""
    place = as_path("out", out, expected="one path", do='rk.export("data", "data.parquet")')
    chosen, one_file = choose_format(place, requested.format)
    gzipped = one_file and place.lower().endswith(".gz")
    options = _parse_options(chosen, requested, on_records, gzipped=gzipped)
    wanted = optional_names("columns", requested.columns)
    splits = _select_splits(source, requested)
    every = [ExportedRecords(one, wanted, requested.limit, requested.threads) for one in splits]
    if one_file and len(every) > 1:
        raise _multiple_splits_error(place, splits)
    for records in every:
        _check_columns(records)
        if records.split.batch_map is not None and not chosen.maps:
            raise error(
                "U605",
                f"split with a `map` function cannot be written as {chosen.name}",
                expected="a split as stored in its files",
                found="a split with .map(…)",
                do='out="data.parquet"',
            )
        if records.split.batch_map is None and chosen.check is not None:
            chosen.check(records, options)
    sharded = one_file and options.shard_bytes is not None
    inputs = [path for one in splits for path in one.paths]
    check_place(place, inputs, storage, as_folder=not one_file, sharded=sharded, overwrite=requested.overwrite)
    if chosen.name == "tfds":
        counts, files, n_bytes = export_tfds(every, place, options)
    else:
        transaction = Transaction(place, storage)
        with transaction.folder("export", as_files=one_file, overwrite=requested.overwrite) as staging:
            counts = _write_files(chosen, every, staging, options, one_file=one_file)
        files, n_bytes = staging.files, staging.n_bytes
    left_out = tuple(_list_omitted_columns(chosen, every))
    return ExportReport(out=place, format=chosen.name, splits=counts, files=files, n_bytes=n_bytes, left_out=left_out)


def _write_files(
    format: FormatSpec,
    every: list[ExportedRecords],
    staging: StagedFolder,
    options: Options,
    *,
    one_file: bool,
) -> dict[str, int]:
    if format.write_folder is not None:
        shared = images.ExportState(several=len(every) > 1)
        counts = {records.name: format.write_folder(records, staging, options, shared) for records in every}
        if format.name == "voc":
            images.finish_voc(staging, shared)
        return counts
    counts = {}
    for records in every:
        name = staging.name if one_file else f"{safe_part(records.name)}{format.extension}"
        if format.write_file is None:
            counts[records.name] = tars.write_tars(records, staging, options, name)
            continue
        output = staging.output(name)
        counts[records.name] = format.write_file(records, output, options)
        staging.finish(output)
    return counts


def _list_omitted_columns(format: FormatSpec, every: list[ExportedRecords]) -> list[str]:
    if format.write_folder is None:
        return []
    roles = images.infer_roles(every[0], format.name)
    used = {roles.image, roles.filename}
    if format.name == "images":
        used |= {roles.mask} if roles.mask is not None else {roles.label, roles.label_text}
    else:
        extras = roles.extras or {}
        theirs = ("is_crowd", "area") if format.name == "coco" else _VOC_EXTRAS
        used |= {extras[role] for role in theirs if role in extras}
        used |= {roles.labels, roles.class_names, roles.source_id if format.name == "coco" else None}
        used |= set(roles.boxes) if isinstance(roles.boxes, tuple) else {roles.boxes}
    return [name for name in every[0].features if name not in used]


def _parse_options(
    format: FormatSpec, requested: ExportOptions, on_records: Callable[[int], None] | None, *, gzipped: bool
) -> Options:
    for name, given, supported in (
        ("labels", requested.labels == "names", "csv, tsv, jsonl or webdataset" if not format.labels else None),
        ("shard_size", requested.shard_size is not None, "webdataset" if format.name != "webdataset" else None),
    ):
        if given and supported is not None:
            raise inapplicable(name, f"to {format.name}", expected=f"the format {supported}", found=format.name)
    return Options(
        labels=requested.labels,
        shard_bytes=None if requested.shard_size is None else bytes_size("shard_size", requested.shard_size),
        gzipped=gzipped,
        on_records=on_records or (lambda _: None),
    )


def _select_splits(source: object, requested: ExportOptions) -> list[Split]:
    split, schema, kind = requested.split, requested.schema, requested.kind
    reject_reading_options(source, schema, kind)
    if isinstance(source, Split):
        if split is not None:
            raise invalid("split", split, "None for an export of a single split", "leave out split=")
        return [source]
    dataset: Any = source if isinstance(source, Dataset) else open_dataset(source, schema=schema, kind=kind)  # type: ignore[arg-type]
    if split is None:
        return list(dataset.splits.values())
    names = [split] if isinstance(split, str) else list(split) if isinstance(split, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise invalid("split", split, "the name of a split, or a non-empty list of names", 'split="train"')
    return [dataset[name] for name in dict.fromkeys(names)]


def _multiple_splits_error(out: str, splits: list[Split]) -> Exception:
    names = ", ".join(one.name[:40] for one in splits[:8])
    folder = out[: -len(find_format_extension(out) or "")]
    return error(
        "U676",
        f"single file cannot hold {len(splits)} splits",
        expected=f"one of {names}, or the folder {folder[-40:]} with one file per split",
        found="no split given",
        do=f"split={splits[0].name[:40]!r}",
    )


def _check_columns(records: ExportedRecords) -> None:
    """Raise for an unknown column before anything is written."""
    if records.columns is None or records.split.batch_map is not None:
        return
    known = records.split.schema
    for name in records.columns:
        listed = "columns of the dataset: " + ", ".join(list(known)[:6])[:60]
        column_name("columns", name, known, expected=listed, do=f"columns={list(known)[:3]}"[:60])


def check_place(
    out: str, inputs: Sequence[str], storage: Storage, *, as_folder: bool, sharded: bool, overwrite: bool
) -> None:
    """Refuse an output where data would be lost, or read and written at once."""
    if not out.strip("/.") or (not as_folder and out.endswith(os.sep)):
        raise error(
            "U605",
            "`out` cannot be this path",
            location=Location(path=out or None),
            expected="the path of a new folder" if as_folder else "the path of a file",
            found="a folder" if out else "an empty path",
            do='out="data.parquet"',
        )
    target = storage.real(out)
    for path in inputs:
        source = storage.real(path)
        if source == target or source.startswith(os.path.join(target, "")):
            raise error(
                "U631",
                "export would replace the dataset that it reads",
                location=Location(path=out),
                expected="an output outside the dataset",
                found="a file of the dataset" if source == target else "a folder that contains the dataset",
                do="choose another output",
            )
    taken = Transaction(out, storage).find() if as_folder else kind_at(storage, out)
    if sharded:
        pattern = re.compile(re.escape(os.path.basename(out)[: -len(".tar")]) + r"-\d{6,}\.tar")
        folder = os.path.dirname(target)
        names = [one.name for one in storage.list(folder)] if exists(storage, folder) else []
        before = next((name for name in names if pattern.fullmatch(name)), None)
        if before is not None:
            # With fewer new shards than old ones, some old ones would stay among them.
            raise _taken(os.path.join(os.path.dirname(out), before), "file", "move these shards away first")
    elif taken is not None and not (overwrite and taken == "file" and not as_folder):
        first = "overwrite=True" if taken == "file" and not as_folder else f"move the {taken} away"
        raise _taken(out, taken, f"{first}, or choose another output")


def _taken(path: str, kind: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=path),
        expected="nothing yet",
        found={"file": "a file", "folder": "a folder"}.get(kind, "neither a file nor a folder"),
        do=do,
    )

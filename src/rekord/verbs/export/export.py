"""`rk.export`: records of a dataset as files that other tools read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rekord.arguments import as_path, bytes_size, check_keywords, column_name, invalid, one_of, optional_names
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import RecordKind, Schema
from rekord.sources.records import records as record_source
from rekord.sources.rows import rows as row_source
from rekord.storage.local import LOCAL, Storage
from rekord.storage.router import reject_remote_write
from rekord.storage.transaction import Output, StagedFolder, Transaction, exists, kind_at
from rekord.verbs.export.reading import ExportedRecords, Options, safe_part
from rekord.verbs.options import ExportOptions, FormatName
from rekord.verbs.write import write


def export_tfds(every: list[ExportedRecords], out: str, options: Options) -> tuple[dict[str, int], int, int]:
    """Splits as a TFDS folder: how many records each has, how many files there are, and how large they are."""
    schema = _get_export_schema(every[0])
    rows, split = _build_row_source(every, schema)
    try:
        dataset = write(rows, out, schema=schema, split=split, format="tfds", progress=False)
    except BaseException:
        # A conversion would go on from here; an export leaves nothing behind.
        with suppress(RekordError):
            for staging in Transaction(out).stagings():
                staging.remove()
        raise
    counts = {name: len(one) for name, one in dataset.splits.items()}
    options.on_records(sum(counts.values()))
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(out) for name in names]
    return counts, len(paths), sum(os.path.getsize(path) for path in paths)


def _get_export_schema(records: ExportedRecords) -> Schema:
    whole = records.split.schema
    if whole.is_sequence:
        return whole  # which TFDS has no like of, and `write` says so
    return Schema(dict(records.features))


def _build_row_source(every: list[ExportedRecords], schema: Schema) -> tuple[Any, str]:
    """Rows to write, and which splits they go to."""
    views = [one for one in every if one.split.view.ids is not None or one.limit is not None]
    splits = {path: one.name for one in every for path in one.split.paths}
    once = len(splits) == sum(len(one.split.paths) for one in every)  # what was joined may have a file twice
    if once and not views and not any(one.split.view.shards.remote for one in every):
        return record_source(list(splits), schema=schema, splits=splits), "source"
    if len(every) > 1:
        raise error(
            "U605",
            "a part of several splits cannot be written as tfds at once",
            expected="whole splits that are on this machine, or one split",
            found=f"{len(every)} splits" + (f", of each the first {views[0].limit:,}" if views else ""),
            do=f"--split {every[0].name[:40]}, or leave the limit out",
        )
    return row_source(_RowIterable(every[0])), every[0].name


class _RowIterable:
    """The rows of a split, from the first one each time they are asked for."""

    def __init__(self, records: ExportedRecords) -> None:
        self._records = records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch, _, rows in self._records.batches():
            for row in range(rows):
                yield {name: column[row] for name, column in batch.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatInfo:
    """One format. `extension` is that of its files; a format without one is a folder."""

    name: str
    extension: str | None = None
    labels: bool = False  # whether classes can be written by name
    maps: bool = False  # whether what a function made of the columns can be written


FORMATS = {
    one.name: one
    for one in (
        FormatInfo(name="parquet", extension=".parquet", maps=True),
        FormatInfo(name="arrow", extension=".arrow", maps=True),
        FormatInfo(name="arrow-stream", extension=".arrows", maps=True),
        FormatInfo(name="csv", extension=".csv", labels=True),
        FormatInfo(name="tsv", extension=".tsv", labels=True),
        FormatInfo(name="jsonl", extension=".jsonl", labels=True),
        FormatInfo(name="webdataset", extension=".tar", labels=True),
        FormatInfo(name="images"),
        FormatInfo(name="coco"),
        FormatInfo(name="voc"),
        FormatInfo(name="tfds"),
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
    """The ending of a name that says a format."""
    name = out.lower()
    return next((ending for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def choose_format(out: str, requested: FormatName | None) -> tuple[FormatInfo, bool]:
    """The format of an export, and whether OUT is one file of it rather than a folder."""
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
            f"the name of the output says {_ENDINGS[ending]}, and {requested} was asked for",
            location=Location(path=out),
            expected=f"a name that ends in {format.extension}" if format.extension else "the name of a folder",
            found=f"a name that ends in {ending}",
            do="leave --format out, or rename OUT",
        )
    return format, format.extension is not None and ending is not None


def _unknown_format_error(out: str) -> RekordError:
    return error(
        "U605",
        "cannot determine the format from the name of the output",
        location=Location(path=out),
        expected="a name that ends in .parquet, .arrow, .csv, .jsonl or .tar, or that of a folder",
        found=f"a name that ends in {os.path.splitext(out)[1][:20]}",
        do="choose another name, or say it: --format images|coco|voc|tfds|parquet|…",
    )


def validate_records(format: FormatInfo, records: ExportedRecords, options: Options) -> None:
    """Refuse, before anything is read or written, what a format cannot hold."""
    check: Callable[[ExportedRecords, Options], Any] | None = None
    match format.name:
        case "csv" | "tsv":
            from rekord.verbs.export.tables import check_csv as check
        case "jsonl":
            from rekord.verbs.export.tables import check_jsonl as check
        case "webdataset":
            from rekord.verbs.export.tars import check_tar as check
        case "images" | "coco" | "voc":
            from rekord.verbs.export.images import infer_box_roles, infer_roles

            if format.name == "images":
                infer_roles(records, "a folder of images")
            else:
                infer_box_roles(records, "COCO" if format.name == "coco" else "Pascal VOC")
    if check is not None:
        check(records, options)


def get_file_writer(format: FormatInfo, name: str) -> Callable[[ExportedRecords, Output, Options], int]:
    """The function that writes a split to one file of this name."""
    gzipped = name.lower().endswith(".gz")
    match format.name:
        case "parquet":
            from rekord.verbs.export.tables import write_parquet

            return write_parquet
        case "arrow":
            from rekord.verbs.export.tables import write_arrow

            return write_arrow
        case "arrow-stream":
            from rekord.verbs.export.tables import write_arrow_stream

            return write_arrow_stream
        case "jsonl":
            from rekord.verbs.export.tables import write_jsonl

            return partial(write_jsonl, gzipped=gzipped)
        case "csv" | "tsv":
            from rekord.verbs.export.tables import write_csv

            return partial(write_csv, gzipped=gzipped, delimiter="\t" if format.name == "tsv" else ",")
        case other:
            raise NotImplementedError(f"no writer of files of the format {other}")


def write_folder(
    format: FormatInfo, every: list[ExportedRecords], staging: StagedFolder, options: Options
) -> dict[str, int]:
    """Splits as a folder of images; gives how many records each has."""
    from rekord.verbs.export.images import ExportState, finish_voc, write_coco, write_images, write_voc

    shared = ExportState(several=len(every) > 1)
    write = {"images": write_images, "coco": write_coco, "voc": write_voc}[format.name]
    counts = {records.name: write(records, staging, options, shared) for records in every}
    if format.name == "voc":
        finish_voc(staging, shared)
    return counts


if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

_VOC_EXTRAS = ("difficult", "truncated", "occluded", "view")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote. `left_out` are columns that have no place in the format."""

    out: str
    format: str
    splits: dict[str, int]  # records of each
    files: int
    n_bytes: int
    left_out: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """The records of all splits."""
        return sum(self.splits.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
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
    """Write the records of a dataset, or of one of its splits or views, in a format of other tools.

    The name of `out` says the format: .parquet, .arrow (.feather), .arrows (a stream), .csv, .tsv, .jsonl (these
    three also with .gz) and .tar (WebDataset). `format` says it for a folder: "images", "coco", "voc" or "tfds", or
    one of the others with a file for each split. One file takes one split: `split` names it.

    Only `columns` are written where they are given, and of each split the first `limit` records. `labels="names"`
    writes the names of classes in the place of their ids where the format is text. `shard_size` cuts tars. Payloads
    that are no Examples are one column, `payload`; `kind` says what payloads are, where that is not to be guessed.

    `out` appears when it is complete, or not at all: a damaged record, a full disk or Ctrl-C leave nothing behind.
    A file that is there already is replaced with `overwrite`, a folder never.
    """
    options = ExportOptions.of(locals())
    return export_dataset(source, out, options, on_records=on_records)


def export_dataset(
    source: PathLike | Dataset | Split,
    out: PathLike,
    requested: ExportOptions,
    *,
    on_records: Callable[[int], None] | None = None,
    storage: Storage = LOCAL,
) -> ExportReport:
    """The same on a storage that was given."""
    place = as_path("out", out, expected="one path", do='rk.export("data", "data.parquet")')
    chosen, one_file = choose_format(place, requested.format)
    options = _parse_options(chosen, requested, on_records)
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
                f"what a function for `map` makes cannot be written as {chosen.name}",
                expected="a split as it is in its files",
                found="a split with .map(…)",
                do="export it before .map(…), or to .parquet or .arrow",
            )
        if records.split.batch_map is None:
            validate_records(chosen, records, options)
    sharded = one_file and options.shard_bytes is not None
    inputs = [path for one in splits for path in one.paths]
    check_place(place, inputs, storage, as_folder=not one_file, sharded=sharded, overwrite=requested.overwrite)
    if chosen.name == "tfds":
        return _build_report(place, chosen, *export_tfds(every, place, options))
    transaction = Transaction(place, storage)
    with transaction.folder("export", as_files=one_file, overwrite=requested.overwrite) as staging:
        counts = _write_files(chosen, every, staging, options, one_file=one_file)
    return _build_report(place, chosen, counts, staging.files, staging.n_bytes, _list_omitted_columns(chosen, every))


def _write_files(
    format: FormatInfo,
    every: list[ExportedRecords],
    staging: StagedFolder,
    options: Options,
    *,
    one_file: bool,
) -> dict[str, int]:
    if format.extension is None:
        return write_folder(format, every, staging, options)
    counts = {}
    for records in every:
        name = staging.name if one_file else safe_part(records.name) + format.extension
        if format.name == "webdataset":
            from rekord.verbs.export.tars import write_tars

            numbered = options.shard_bytes is not None
            stem = name[: -len(format.extension)]

            def name_of(shard: int, stem: str = stem, name: str = name, numbered: bool = numbered) -> str:
                return f"{stem}-{shard:06d}.tar" if numbered else name

            counts[records.name] = write_tars(records, staging, options, name_of)
            continue
        output = staging.output(name)
        counts[records.name] = get_file_writer(format, name)(records, output, options)
        staging.finish(output)
    return counts


def _build_report(
    out: str,
    format: FormatInfo,
    counts: dict[str, int],
    files: int,
    n_bytes: int,
    left_out: Sequence[str] = (),
) -> ExportReport:
    return ExportReport(
        out=out, format=format.name, splits=counts, files=files, n_bytes=n_bytes, left_out=tuple(left_out)
    )


def _list_omitted_columns(format: FormatInfo, every: list[ExportedRecords]) -> list[str]:
    if format.name not in ("images", "coco", "voc"):
        return []
    from rekord.verbs.export.images import infer_roles

    roles = infer_roles(every[0], format.name)
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


def _parse_options(format: FormatInfo, requested: ExportOptions, on_records: Callable[[int], None] | None) -> Options:
    if requested.labels == "names" and not format.labels:
        raise _unsupported_option_error("labels", format, "csv, tsv, jsonl or webdataset")
    if requested.shard_size is not None and format.name != "webdataset":
        raise _unsupported_option_error("shard_size", format, "webdataset (.tar)")
    return Options(
        labels=requested.labels,
        shard_bytes=None if requested.shard_size is None else bytes_size("shard_size", requested.shard_size),
        on_records=on_records or (lambda _: None),
    )


def _unsupported_option_error(name: str, format: FormatInfo, expected: str) -> Exception:
    return error(
        "U605",
        f"`{name}` means nothing for {format.name}",
        expected=f"the format {expected}",
        found=format.name,
        do=f"leave {name}= (--{name.replace('_', '-')}) out",
    )


def _select_splits(source: object, requested: ExportOptions) -> list[Split]:
    split, schema, kind = requested.split, requested.schema, requested.kind
    for name, given in (("schema", schema), ("kind", kind)):
        if isinstance(source, (Dataset, Split)) and given is not None:
            raise invalid(name, given, "None beside a dataset that is open", f"rk.open(path, {name}=…)")
    if isinstance(source, Split):
        if split is not None:
            raise invalid("split", split, "None beside a split", "leave split= out")
        return [source]
    dataset: Any = source if isinstance(source, Dataset) else open_dataset(source, schema=schema, kind=kind)  # type: ignore[arg-type]
    if split is None:
        return list(dataset.splits.values())
    names = [split] if isinstance(split, str) else list(split) if isinstance(split, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise invalid("split", split, "the name of a split, or a list of at least one", 'split="train"')
    return [dataset[name] for name in dict.fromkeys(names)]


def _multiple_splits_error(out: str, splits: list[Split]) -> Exception:
    names = ", ".join(one.name[:40] for one in splits[:8])
    folder = out[: -len(find_format_extension(out) or "")]
    return error(
        "U676",
        f"one file takes one split, and the dataset has {len(splits)}",
        expected=f"one of {names}",
        found="none named",
        do=f"--split {splits[0].name[:40]}, or a folder with a file for each: OUT {folder[-40:]} --format …",
    )


def _check_columns(records: ExportedRecords) -> None:
    """A column that is not there is said before anything is written."""
    if records.columns is None or records.split.batch_map is not None:
        return
    known = records.split.schema
    for name in records.columns:
        listed = "columns of the dataset: " + ", ".join(list(known)[:6])[:60]
        column_name("columns", name, known, expected=listed, do="rekord show PATH lists them")


def check_place(
    out: str, inputs: Sequence[str], storage: Storage, *, as_folder: bool, sharded: bool, overwrite: bool
) -> None:
    """Refuse a place where something would be lost, or read and written at once."""
    reject_remote_write(out)
    if not out.strip("/.") or (not as_folder and out.endswith(os.sep)):
        raise error(
            "U605",
            "`out` cannot be this path",
            location=Location(path=out or None),
            expected="the path of a new folder" if as_folder else "the path of a file",
            found="a folder" if out else "an empty path",
            do="rekord export PATH OUT.parquet",
        )
    target = storage.real(out)
    for path in inputs:
        source = os.path.realpath(path)
        if source == target or source.startswith(os.path.join(target, "")):
            raise error(
                "U631",
                "export would replace the dataset that it reads",
                location=Location(path=out),
                expected="an OUT apart from the dataset",
                found="a file of the dataset" if source == target else "a folder with the dataset in it",
                do="choose another OUT",
            )
    taken = kind_at(storage, out)
    if sharded:
        pattern = re.compile(re.escape(os.path.basename(out)[: -len(".tar")]) + r"-\d{6,}\.tar")
        folder = os.path.dirname(target)
        names = [one.name for one in storage.list(folder)] if exists(storage, folder) else []
        before = next((name for name in names if pattern.fullmatch(name)), None)
        if before is not None:
            # Of fewer new shards than old ones, some old ones would stay among them.
            raise _taken(os.path.join(os.path.dirname(out), before), "file", "move these shards away first")
    elif taken is not None and not (overwrite and taken == "file" and not as_folder):
        may = taken == "file" and not as_folder
        first = "overwrite=True (--overwrite)" if may else "move what is there away"
        raise _taken(out, taken, f"{first}, or choose another OUT")


def _taken(path: str, kind: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=path),
        expected="nothing yet",
        found={"file": "a file", "folder": "a folder"}.get(kind, "something that is no file"),
        do=do,
    )

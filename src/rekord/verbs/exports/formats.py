"""The formats that an export can have: how their names end, and who writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown
from rekord.verbs.exports.place import Output, Staging
from rekord.verbs.exports.reading import Options, Records

FormatName: TypeAlias = Literal[
    "parquet", "arrow", "arrow-stream", "csv", "tsv", "jsonl", "webdataset", "images", "coco", "voc", "tfds"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format. `extension` is that of its files; a format without one is a folder."""

    name: str
    extension: str | None = None
    labels: bool = False  # whether classes can be written by name
    maps: bool = False  # whether what a function made of the columns can be written


FORMATS = {
    one.name: one
    for one in (
        Format(name="parquet", extension=".parquet", maps=True),
        Format(name="arrow", extension=".arrow", maps=True),
        Format(name="arrow-stream", extension=".arrows", maps=True),
        Format(name="csv", extension=".csv", labels=True),
        Format(name="tsv", extension=".tsv", labels=True),
        Format(name="jsonl", extension=".jsonl", labels=True),
        Format(name="webdataset", extension=".tar", labels=True),
        Format(name="images"),
        Format(name="coco"),
        Format(name="voc"),
        Format(name="tfds"),
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


def ending_of(out: str) -> str | None:
    """The ending of a name that says a format."""
    name = out.lower()
    return next((ending for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def chosen_format(out: str, asked: object) -> tuple[Format, bool]:
    """The format of an export, and whether OUT is one file of it rather than a folder."""
    ending = ending_of(out)
    if asked is None:
        if ending is None:
            if os.path.splitext(os.path.basename(out))[1]:
                raise _not_said(out)
            return FORMATS["images"], False
        return FORMATS[_ENDINGS[ending]], True
    if not isinstance(asked, str) or asked not in FORMATS:
        near = near_miss(asked, FORMATS) if isinstance(asked, str) else None
        raise error(
            "U605",
            f"`format` cannot be {shown(asked)}",
            expected="one of " + ", ".join(FORMATS),
            found=shown(asked),
            do=f"did you mean {near!r}?" if near else 'format="parquet"',
        )
    format = FORMATS[asked]
    if (
        ending is not None
        and _ENDINGS[ending] != asked
        and {asked, _ENDINGS[ending]} != {"arrow", "arrow-stream"}
    ):
        raise error(
            "U672",
            f"the name of the output says {_ENDINGS[ending]}, and {asked} was asked for",
            location=Location(path=out),
            expected=f"a name that ends in {format.extension}"
            if format.extension
            else "the name of a folder",
            found=f"a name that ends in {ending}",
            do="leave --format out, or rename OUT",
        )
    return format, format.extension is not None and ending is not None


def _not_said(out: str) -> RekordError:
    return error(
        "U672",
        location=Location(path=out),
        expected="a name that ends in .parquet, .arrow, .csv, .jsonl or .tar, or that of a folder",
        found=f"a name that ends in {os.path.splitext(out)[1][:20]}",
        do="choose another name, or say it: --format images|coco|voc|tfds|parquet|…",
    )


def check_records(format: Format, records: Records, options: Options) -> None:
    """Refuse, before anything is read or written, what a format cannot hold."""
    check: Callable[[Records, Options], Any] | None = None
    match format.name:
        case "csv" | "tsv":
            from rekord.verbs.exports.delimited import check_csv as check
        case "jsonl":
            from rekord.verbs.exports.lines import check_jsonl as check
        case "webdataset":
            from rekord.verbs.exports.tars import check_tar as check
        case "images" | "coco" | "voc":
            from rekord.verbs.exports.boxes import box_roles
            from rekord.verbs.exports.roles import roles_of

            if format.name == "images":
                roles_of(records, "a folder of images")
            else:
                box_roles(records, "COCO" if format.name == "coco" else "Pascal VOC")
    if check is not None:
        check(records, options)


def file_writer(format: Format, name: str) -> Callable[[Records, Output, Options], int]:
    """The function that writes a split to one file of this name."""
    gzipped = name.lower().endswith(".gz")
    match format.name:
        case "parquet":
            from rekord.verbs.exports.tables import write_parquet

            return write_parquet
        case "arrow":
            from rekord.verbs.exports.tables import write_arrow

            return write_arrow
        case "arrow-stream":
            from rekord.verbs.exports.tables import write_arrow_stream

            return write_arrow_stream
        case "jsonl":
            from rekord.verbs.exports.lines import write_jsonl

            return partial(write_jsonl, gzipped=gzipped)
        case _:
            from rekord.verbs.exports.delimited import write_csv

            return partial(write_csv, gzipped=gzipped, delimiter="\t" if format.name == "tsv" else ",")


def write_folder(format: Format, every: list[Records], staging: Staging, options: Options) -> dict[str, int]:
    """Splits as a folder of pictures; gives how many records each has."""
    from rekord.verbs.exports.boxes import finish_voc, write_coco, write_voc
    from rekord.verbs.exports.pictures import Shared, write_images

    shared = Shared(several=len(every) > 1)
    write = {"images": write_images, "coco": write_coco, "voc": write_voc}[format.name]
    counts = {records.name: write(records, staging, options, shared) for records in every}
    if format.name == "voc":
        finish_voc(staging, shared)
    return counts

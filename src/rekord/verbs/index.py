"""`rekord index`: index files for record files, in the formats of several tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from rekord.arguments import one_of
from rekord.codec.columns import column_to_arrow
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.external_index import (
    encode_text_index,
    external_index_name,
    external_index_path,
    find_index_root,
    is_external_index,
)
from rekord.dataset.index import encode_index_file, encode_offsets_file, index_path
from rekord.dataset.manifest import MANIFEST_NAME, find_shard_entry, read_manifest
from rekord.dataset.read import list_record_files
from rekord.dataset.shard_index import (
    ShardIndex,
    detect_file_compression,
    index_mismatch_error,
    open_shard_index,
    rebuild_index,
)
from rekord.errors import error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike, read_up_to
from rekord.storage.publication import kind_at
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import publish

IndexFormatName: TypeAlias = Literal["rekord", "dali", "vahidk"]
_FORMATS = ("rekord", "dali", "vahidk")
_ROWS = 8192


@dataclass
class IndexReport:
    """The index files. Those in `kept` existed already and are up to date."""

    format: IndexFormatName
    files: int = 0
    records: int = 0
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return asdict(self)


def index(
    path: PathLike,
    *,
    format: IndexFormatName = "rekord",
    out: PathLike | None = None,
    on_file: Callable[[str, int, bool], object] | None = None,
) -> IndexReport:
    """Write index files for a record file, or for all record files in a folder or glob.

    rekord's own are in `.rekord/index` next to the files. Those for DALI (`x.tfrecord.idx`) and vahidk's `tfrecord`
    (`x.tfindex`) are in a folder `index-dali` or `index-vahidk` in the given folder, or in that of the file: next to
    the shards, readers of `train-*` would take them for records. `out` names another folder, or the index of a single
    file. Only record headers are read, no payloads. `on_file` is called with the path of each index, its number of
    records, and whether it was written.
    """
    one_of("format", format, _FORMATS, do='format="dali"')
    paths = list_record_files(path)
    targets = _choose_targets(os.fspath(path), paths, format, None if out is None else os.fspath(out))
    for one, target in zip(paths, targets, strict=True):
        _check_target(one, target, format)
    report = IndexReport(format)
    for one, target in zip(paths, targets, strict=True):
        records, wrote = _write_index_file(one, target, format)
        report.files += 1
        report.records += records
        (report.written if wrote else report.kept).append(target)
        if on_file is not None:
            on_file(target, records, wrote)
    return report


def _choose_targets(place: str, paths: list[str], format: IndexFormatName, out: str | None) -> list[str]:
    if format == "rekord":
        if out is not None:
            raise error(
                "U605",
                "`out` does not apply to rekord's own index, which is next to the files",
                expected='no output, or the format "dali" or "vahidk"',
                found=preview(out),
                do='format="dali"',
            )
        return [index_path(path) for path in paths]
    if out is None:
        root = find_index_root(place, paths)
        targets = [external_index_path(root, path, format) for path in paths]
    elif os.path.isfile(place) and not os.path.isdir(out) and not out.endswith(os.sep):
        return [out]
    else:
        targets = [os.path.join(out, os.path.basename(external_index_name(path, format))) for path in paths]
    seen: dict[str, str] = {}
    for path, target in zip(paths, targets, strict=True):
        other = seen.setdefault(target, path)
        if other != path:
            raise error(
                "U631",
                "two files would share one index file",
                location=Location(path=path),
                expected="different file names, for indexes in one folder",
                found=f"{os.path.basename(target)[:60]}, also for {other[-60:]}",
                do=f"rekord index {path} --format {format} -o {target}-2" if out is None else "leave out out=",
            )
    return targets


def _check_target(path: str, target: str, format: IndexFormatName) -> None:
    compression = detect_file_compression(path)
    listed = find_shard_entry(path) if format == "rekord" else None
    if compression != "none" and (listed is None or listed.expected is None):
        raise error(
            "U651",
            "compressed file cannot have this kind of index",
            location=Location(path=path),
            expected="an uncompressed file",
            found=f"a {compression} stream, whose record offsets are not file offsets",
            do=f"rekord rewrite {path[:60]} uncompressed --compression none",
        )
    if format == "rekord":
        return
    kind = "unreachable" if os.path.islink(target) else None
    kind = kind_at(ROUTED_STORAGE, target) or kind
    if kind is not None and not (kind == "file" and is_external_index(target)):
        raise error(
            "U618",
            "index would replace a file that is not an index",
            location=Location(path=target),
            expected="no file yet, or an index of this file",
            found="another file",
            do=f"rekord index {path} --format {format} -o {target}-2",
        )


def _write_index_file(path: str, target: str, format: IndexFormatName) -> tuple[int, bool]:
    """The number of records of a file, and whether its index had to be written."""
    if format == "rekord":
        existing = open_shard_index(path)
        if existing.origin == "written" and existing.has_columns(()):
            return len(existing), False
    found = rebuild_index(path)
    listed = _build_listed_index(path, found) if format == "rekord" else None
    if found.compression != "none" and listed is None:
        raise error(
            "X548",
            location=Location(path=path),
            expected="an uncompressed file, as before",
            found="a compressed file",
            do=f"rekord index {path[:60]}",
        )
    size_bytes = found.stamp[0]
    if format == "rekord":
        content = listed or encode_offsets_file(found.offsets, file_bytes=size_bytes, mtime_ns=found.stamp[1])
    else:
        content = encode_text_index(found.offsets, size_bytes)
        if _has_content(target, content):
            return len(found), False
    ROUTED_STORAGE.make_folder(os.path.dirname(target) or ".")
    with publish(target, ROUTED_STORAGE) as staged:
        staged.write(content)
    return len(found), True


def _build_listed_index(path: str, found: ShardIndex) -> bytes | None:
    """The index of a shard that its manifest lists, rebuilt from the records; None if it lists none."""
    listed = find_shard_entry(path)
    if listed is None or listed.expected is None:
        return None
    manifest = read_manifest(listed.folder)
    schema, recorded = Schema.from_dict(manifest.schema), manifest.options.get("index")
    names = [name for name in recorded if name in schema.context] if isinstance(recorded, list) else []
    tables = [
        pa.table({f"index:{name}": column_to_arrow(batch[name]) for name in names})
        for batch in open_dataset([path], schema, allow_missing=True).batches(_ROWS, columns=names)
        if names
    ]
    made = encode_index_file(
        schema,
        names,
        found.offsets.astype(np.int64),
        tables,
        () if found.compression == "none" else found.flush_points,
        str(listed.expected.digest),
    )
    if made.checksums != list(listed.expected.checksums or ()):
        raise index_mismatch_error(
            path,
            f"the index that {MANIFEST_NAME} lists",
            "a different index, rebuilt from the records",
            do=f"rekord check {listed.folder or '.'}",
        )
    return made.data


def _has_content(target: str, content: bytes) -> bool:
    if kind_at(ROUTED_STORAGE, target) != "file":
        return False
    with ROUTED_STORAGE.open_read(target) as file:
        return file.size_bytes == len(content) and read_up_to(file, len(content) + 1) == content

"""Whether the shards of a TFDS folder are what its dataset_info.json says of them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord import _core
from rekord.errors import RekordError, error
from rekord.health.finding import Finding
from rekord.health.rules.shards import missing_shards, records_text
from rekord.schema.refuse import shown
from rekord.schema.tfds import INFO_NAME, TfdsFolder
from rekord.storage.files import LOCAL, read_file

_MOST_BYTES = 64 << 20
_NUMBERED = re.compile(r"-(?P<shard>\d{5,})-of-(?P<shards>\d{5,})$")


@dataclass(frozen=True, slots=True)
class _Said:
    """What dataset_info.json says of one split."""

    shard_lengths: tuple[int, ...]
    n_bytes: int | None


def tfds_findings(
    folder: str,
    paths: Sequence[str],
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    """Where the shards in a folder are not what its dataset_info.json says; nothing where there is none.

    The two mappings leave out files that are damaged. That a set lacks some of its shards is told by the names.
    """
    place = os.path.join(folder, INFO_NAME)
    if not os.path.isfile(place):
        return
    try:
        name, splits = _read(place)
    except RekordError as failure:
        failure.location = failure.location.within(path=place)
        yield Finding.from_error(failure)
        return
    files = TfdsFolder(name, "", {split: said.shard_lengths for split, said in splits.items()}, None)
    by_split: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        inside = os.path.normpath(os.path.dirname(path) or ".") == os.path.normpath(folder)
        split = files.split_of(os.path.basename(path)) if inside else None
        if split is not None:
            by_split[split].append(path)
    for split, said in splits.items():
        if split not in by_split:
            # Where no file at all is known by its name, the names follow another template.
            finding = missing_shards(
                os.path.join(folder, f"{name}-{split}.*"),
                [(0, len(said.shard_lengths) - 1)] if said.shard_lengths else [],
                len(said.shard_lengths),
                said_by=f"{INFO_NAME} says",
            )
            if finding is not None and by_split:
                finding.severity = "warning"  # whoever fetches one split alone has what was wanted
                yield finding
            continue
        wrong = list(_shards(by_split[split], said, records_by_path))
        yield from wrong
        if not wrong:
            yield from _bytes(place, split, by_split[split], said, records_by_path, payload_bytes_by_path)


def _shards(paths: Sequence[str], said: _Said, records_by_path: Mapping[str, int]) -> Iterator[Finding]:
    lengths = said.shard_lengths
    for path in paths:
        numbered = _NUMBERED.search(path)
        assert numbered is not None, "split_of knows no other names"
        number, shards = int(numbered["shard"]), int(numbered["shards"])
        if shards != len(lengths) or number >= shards:
            yield _disagrees(
                path,
                "a set has another number of shards than dataset_info.json says",
                f"{len(lengths):,} shards",
                f"{os.path.basename(path)[-60:]}",
            )
            return
        found = records_by_path.get(path)
        if found is not None and found != lengths[number]:
            yield _disagrees(
                path,
                "a shard holds another number of records than dataset_info.json says",
                records_text(lengths[number]),
                records_text(found),
            )


def _bytes(
    place: str,
    split: str,
    paths: Sequence[str],
    said: _Said,
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    whole = len(paths) == len(said.shard_lengths) and all(
        path in records_by_path and path in payload_bytes_by_path for path in paths
    )
    if not whole or not said.n_bytes:
        return
    payload_bytes = sum(payload_bytes_by_path[path] for path in paths)
    # Some versions of TFDS count the framing, others do not.
    framed_bytes = payload_bytes + _core.FRAMING_BYTES * sum(records_by_path[path] for path in paths)
    if said.n_bytes not in (payload_bytes, framed_bytes):
        yield _disagrees(
            place,
            f"the records of split {shown(split)} have other bytes than dataset_info.json says",
            f"{said.n_bytes:,} bytes",
            f"{payload_bytes:,} bytes, or {framed_bytes:,} with their framing",
        )


def _disagrees(path: str, message: str, expected: str, found: str) -> Finding:
    return Finding.of(
        "X545",
        "error",
        path=path,
        message=message,
        expected=f"{expected}, as {INFO_NAME} says",
        found=found,
        do="fetch or prepare the dataset again: TFDS reads as many records as that file says",
    )


def _read(place: str) -> tuple[str, dict[str, _Said]]:
    content = read_file(place, LOCAL, most_bytes=_MOST_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise _damaged("JSON", str(failure)[:60]) from None
    name = document.get("name") if isinstance(document, dict) else None
    splits = document.get("splits", []) if isinstance(document, dict) else None
    if not isinstance(name, str) or not isinstance(splits, list):
        raise _damaged("a name, and a list of splits", shown(document))
    return name, dict(_split(split) for split in splits)


def _split(split: Any) -> tuple[str, _Said]:
    name = split.get("name") if isinstance(split, dict) else None
    lengths = split.get("shardLengths", []) if isinstance(split, dict) else None
    if not isinstance(name, str) or not isinstance(lengths, list):
        raise _damaged("splits with a name and shardLengths", shown(split))
    n_bytes = split.get("numBytes")
    try:
        counts = tuple(int(length) for length in lengths)
        return name, _Said(counts, None if n_bytes is None else int(n_bytes))
    except (TypeError, ValueError, OverflowError):
        raise _damaged("whole numbers in shardLengths and numBytes", shown(lengths)) from None


def _damaged(expected: str, found: str) -> RekordError:
    return error("X536", expected=expected, found=found, do="fetch the file again")

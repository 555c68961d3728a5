"""The records of an export in batches of bounded size, and safe names for exported files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings
from rekord.dataset.samplers import select_numbers
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature, Schema
from rekord.transforms.base import rebuild_schema

EXTENSIONS = {"jpeg": ".jpg", "png": ".png", "gif": ".gif", "bmp": ".bmp", "webp": ".webp", "tiff": ".tif"}
_ENDINGS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "jpeg"),
    **dict.fromkeys(("tif", "tiff"), "tiff"),
    "png": "png",
    "gif": "gif",
    "bmp": "bmp",
    "dib": "bmp",
    "webp": "webp",
}

_PATH_SEPARATORS = re.compile(r"[/\\]")
# Characters that some system does not allow in a name; no system allows lone surrogates.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\ud800-\udfff\u2028\u2029\x85]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|thumbs|ehthumbs|desktop)(\..*)?", re.IGNORECASE)
_IGNORED_FOLDERS = frozenset(("__macosx", "@eadir"))
_MAX_PART_BYTES = 180  # of one part of a path: room for a number and an extension below the usual 255
_MAX_PATH_PARTS = 8


def safe_name(name: str) -> str:
    """A relative path, separated by "/", that never leaves its folder; "" if nothing is left of the name."""
    parts = [_safe_part(part) for part in _PATH_SEPARATORS.split(name)]
    kept = [part for part in parts if part]
    if len(kept) > _MAX_PATH_PARTS:
        kept = [*kept[: _MAX_PATH_PARTS - 1], kept[-1]]
    return "/".join(kept)


def safe_part(name: str) -> str:
    """One part of a path: a class or a split as the name of a folder."""
    return _safe_part(_PATH_SEPARATORS.sub("_", name)) or "_"


def _safe_part(part: str) -> str:
    if part.strip(". ") == "":
        return ""
    safe = _UNSAFE.sub("_", part)
    if safe.startswith("."):
        safe = "_" + safe[1:]  # a hidden file would be skipped
    safe = safe.rstrip(". ").lstrip(" ")
    if _RESERVED.fullmatch(safe) or safe.lower() in _IGNORED_FOLDERS:
        safe = "_" + safe
    return _shorten(safe)


def _shorten(part: str) -> str:
    """Cut the middle out of a long part: its end may be an extension."""
    encoded = part.encode()
    if len(encoded) <= _MAX_PART_BYTES:
        return part
    head, tail = encoded[: _MAX_PART_BYTES - 24], encoded[-16:]
    return head.decode(errors="ignore") + "~" + tail.decode(errors="ignore")


def strip_image_extension(name: str) -> str:
    """A name without the extension of an image, if it has one."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and stem and not stem.endswith("/") and ending.lower() in _ENDINGS else name


def choose_extension(name: str, format: str) -> str:
    """The extension of a file of this format: that of the name if it already fits."""
    own = name[len(strip_image_extension(name)) :]
    return own if own and _ENDINGS[own[1:].lower()] == format else EXTENSIONS[format]


class UniqueNames:
    """Hands out unique names: a duplicate gets a number. Names that differ only in case are duplicates."""

    def __init__(self) -> None:
        # Digests, not the names themselves: there may be millions.
        self._files: set[int] = set()
        self._folders: set[int] = set()
        self._next: dict[int, int] = {}  # the next number to try for a duplicate name

    def take(self, stem: str, *endings: str) -> str:
        """A stem like this one that is not taken with any of these endings (or without one, if none is given)."""
        stem, endings = self._avoid_files(stem), endings or ("",)
        if self._try_take(stem, endings):
            return stem
        key = _digest_path(stem + endings[0])
        number = self._next.get(key, 2)
        while not self._try_take(f"{stem}-{number}", endings):
            number += 1
        self._next[key] = number + 1
        return f"{stem}-{number}"

    def _avoid_files(self, stem: str) -> str:
        """A file cannot be a folder too: such a part of a path is joined with the next one."""
        *folders, last = stem.split("/")
        path = begun = ""  # complete folders, and the beginning of the next part
        for part in folders:
            begun = _shorten(begun + part)
            if _digest_path(path + begun) in self._files:
                begun += "_"
            else:
                path, begun = f"{path}{begun}/", ""
        return path + (_shorten(begun + last) if begun else last)

    def _try_take(self, stem: str, endings: tuple[str, ...]) -> bool:
        own = {_digest_path(stem + ending) for ending in endings}
        if not (self._files.isdisjoint(own) and self._folders.isdisjoint(own)):
            return False
        self._files |= own
        parts = stem.split("/")
        self._folders.update(_digest_path("/".join(parts[:i])) for i in range(1, len(parts)))
        return True


def _digest_path(path: str) -> int:
    return hash(unicodedata.normalize("NFC", path).casefold())


LabelFormat: TypeAlias = Literal["ids", "names"]

BATCH_BYTES = 8 << 20
"""Approximate size of a decoded batch."""

MAX_BATCH_ROWS = 8192
_FIRST_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of an export that its writers need."""

    labels: LabelFormat = "ids"
    shard_bytes: int | None = None
    gzipped: bool = False
    on_records: Callable[[int], None] = field(default=lambda _: None)


@dataclass(frozen=True, eq=False)
class ExportedRecords:
    """The exported records of one split."""

    split: Split
    columns: tuple[str, ...] | None
    limit: int | None
    threads: int | None = None

    @property
    def name(self) -> str:
        return self.split.name

    @property
    def features(self) -> Mapping[str, Feature]:
        """The columns by name, in order."""
        features: Mapping[str, Feature] = self.split.schema.features
        return features if self.columns is None else {name: features[name] for name in self.columns}

    def schema(self) -> Schema | None:
        """The schema of the columns; None if they cannot form one, such as a mask without its image."""
        if self.split.batch_map is not None:
            return None
        whole = self.split.schema
        # A sequence keeps the order of its schema.
        kept = {name: one for name, one in whole.items() if name in self.features}
        try:
            return rebuild_schema(whole, kept if whole.is_sequence else self.features)
        except RekordError:
            return None

    def batch_rows(self) -> int:
        """The number of records per batch, estimated from the first records and the size of the files."""
        first = next(iter(self.split.batches(_FIRST_ROWS, columns=self.columns, prefetch=0, threads=1)), None)
        if first is None:
            return 1
        rows = max([len(column) for column in first.values()], default=1)
        each = sum(estimate_column_bytes(column) for column in first.values()) // max(rows, 1)
        if self.columns is None and self.split.view.shards.counted:
            files_bytes = sum(found.size_bytes for found in self.split.view.stats())
            each = max(each, files_bytes // max(len(self.split.view.shards), 1))
        chosen = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(each, 1)))
        return chosen if self.limit is None else max(1, min(chosen, self.limit))

    def batches(self, columns: tuple[str, ...] | None = None) -> Iterator[tuple[dict[str, Column], int, int]]:
        """(columns, number of the first record, number of valid rows) for each batch."""
        wanted = self.columns if columns is None else columns
        source = iter(self.split.batches(self.batch_rows(), columns=wanted, threads=self.threads))
        before = 0
        for batch in source:
            rows = source.consumed - before
            if self.limit is not None:
                rows = min(rows, self.limit - before)
            if rows:
                # A split returns columns in the order of its schema, not in the requested order.
                yield {name: batch[name] for name in wanted or batch}, before, rows
            before += rows
            if before == self.limit:
                return

    def where(self, number: int, feature: str | None = None) -> Location:
        """The location of a record, by its number in the split."""
        ids = self.split.view.ids
        try:
            at = number if ids is None else int(select_numbers(ids, np.array([number], np.int64))[0])
            place = self.split.view.shards.where(at)
        except RekordError:
            place = Location(path=self.split.paths[0] if len(self.split.paths) == 1 else None, record=number)
        return place.within(feature=feature)


def estimate_column_bytes(column: Column | Any) -> int:
    """Approximate memory of a column."""
    if isinstance(column, Ragged):
        return estimate_column_bytes(column.values) + column.offsets.nbytes
    if isinstance(column, Optional):
        return estimate_column_bytes(column.values)
    if isinstance(column, SparseColumn):
        return estimate_column_bytes(column.indices) + estimate_column_bytes(column.values)
    if isinstance(column, Strings):
        return column.nbytes + 8 * len(column)
    return int(getattr(column, "nbytes", 0))


def unwritable_value_error(
    records: ExportedRecords, number: int, feature: str, what: str, *, expected: str, found: str, do: str
) -> RekordError:
    """The error for a value that the format cannot hold."""
    return error(
        "X560",
        f"`{feature[:60]}` {what}",
        location=records.where(number, feature),
        expected=expected,
        found=found,
        do=do,
    )


def reject_columns(records: ExportedRecords, format: str, wrong: Mapping[str, str], *, holds: str) -> None:
    """Raise if a format cannot hold some columns; `wrong` describes them by name."""
    if not wrong:
        return
    name = next(iter(wrong))
    more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    listed = ", ".join(f"`{one[:40]}` ({of})" for one, of in list(wrong.items())[:4])
    others = [one for one in records.features if one not in wrong]
    raise error(
        "U676",
        f"`{name[:60]}`{more} cannot be written as {format}",
        location=Location(feature=name[:60]),
        expected=holds,
        found=listed + (", …" if len(wrong) > 4 else ""),
        do=f"columns={others}" if others and len(str(others)) <= 60 else 'out="data.parquet"',
    )

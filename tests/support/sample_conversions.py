"""Sources, conversions and manifests for tests; a few rows are enough for many parts."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from rekord.conversion import driver, encode_rows, mapped_rows, shards, spill, tasks
from rekord.conversion.driver import Conversion, ConversionResult
from rekord.dataset.manifest import Manifest, _checksum
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Label, Schema, Text
from rekord.sources.base import PART_BYTES, Chunk, ColumnChunk, SourceFacts, SourceFile, SourcePart, SourceRow
from rekord.storage.local import LOCAL, Storage
from rekord.verbs.options import WriteOptions
from rekord.verbs.write import prepare_conversion, run_conversion

SUPPORT_FOLDER = str(Path(__file__).parent)
"""For the PYTHONPATH of scripts that import this module."""

ManifestEdit = Callable[[dict[str, Any]], object]


def edit_manifest(folder: Path | str, change: ManifestEdit) -> None:
    """Change the document of a manifest, and update its checksum if possible."""
    path = Path(folder) / "rekord.json"
    document = json.loads(path.read_text())
    change(document)
    with suppress(msgspec.ValidationError, OverflowError):  # reading it reports that as well
        document["checksum"] = _checksum(msgspec.convert(document, Manifest))
    path.write_text(json.dumps(document, indent=1) + "\n")


DEFAULT_CLASSES = 4


class _LineRange(NamedTuple):
    """Some lines of a file."""

    path: str
    begin: int
    end: int
    first_line: int  # from 0


@dataclass(frozen=True, slots=True)
class NumberedFilesSource:
    """All files below a folder: a line `2 some text` is a row with a label and a text, and its line number.

    Empty lines are skipped; positions are line numbers. A line that begins with `!` is a bad row. With `columns`
    rows are read in column chunks where possible; with `folders` the first folder of a path is the row's split.
    """

    root: str
    columns: bool = False
    folders: bool = False

    @property
    def kind(self) -> str:
        return "numbered"

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> SourceFacts:
        paths = self._paths()
        stats = [os.stat(os.path.join(self.root, path)) for path in paths]
        splits = tuple(sorted({path.split("/")[0] for path in paths})) if self.folders else None
        return SourceFacts(
            layout="table",
            schema=Schema({"line": Int64(), "label": Label(DEFAULT_CLASSES), "text": Text()}),
            source_bytes=sum(stat.st_size for stat in stats),
            splits=splits,
            files=tuple(
                SourceFile(path, stat.st_size, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True)
            ),
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        parts: list[SourcePart] = []
        waiting: list[_LineRange] = []
        waiting_bytes = 0
        for path in self._paths():
            begin = end = first_line = 0
            for line, text in enumerate(self._lines(path), 1):
                end += len(text)
                if waiting_bytes + end - begin >= part_bytes:
                    waiting.append(_LineRange(path, begin, end, first_line))
                    parts.append(SourcePart(tuple(waiting), waiting_bytes + end - begin))
                    waiting, waiting_bytes, begin, first_line = [], 0, end, line
            if end > begin:
                waiting.append(_LineRange(path, begin, end, first_line))
                waiting_bytes += end - begin
        if waiting:
            parts.append(SourcePart(tuple(waiting), waiting_bytes))
        return parts

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        for stretch in part.content:
            rows = self._rows(stretch)
            yield from self._to_column_chunks(rows) if self.columns else rows

    def _paths(self) -> list[str]:
        found = []
        for folder, _, names in os.walk(self.root):
            below = os.path.relpath(folder, self.root)
            found += [name if below == "." else f"{below}/{name}".replace(os.sep, "/") for name in names]
        return sorted(found)

    def _lines(self, path: str) -> list[bytes]:
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read().splitlines(keepends=True)

    def _rows(self, stretch: _LineRange) -> Iterator[SourceRow]:
        with open(os.path.join(self.root, stretch.path), "rb") as file:
            file.seek(stretch.begin)
            lines = file.read(stretch.end - stretch.begin).decode().splitlines()
        for line, text in enumerate(lines, stretch.first_line):
            if text:
                yield SourceRow(stretch.path, line, self._values(stretch.path, line, text), line + 1)

    def _values(self, path: str, line: int, text: str) -> Mapping[str, Any] | RekordError:
        if text.startswith("!"):
            place = Location(path=os.path.join(self.root, path), row=line, line=line + 1)
            return error("E355", location=place, expected="a row", found="!", do="fix the line")
        label, _, rest = text.partition(" ")
        values = {"line": line, "label": int(label), "text": rest}
        return {**values, "split": path.split("/")[0]} if self.folders else values

    @staticmethod
    def _to_column_chunks(rows: Iterator[SourceRow]) -> Iterator[Chunk]:
        """Rows of consecutive lines as chunks, with bad rows between them."""
        together: list[SourceRow] = []
        for row in rows:
            good = not isinstance(row.values, RekordError)
            if together and not (good and row.position == together[-1].position + 1):
                yield _to_column_chunk(together)
                together = []
            if good:
                together.append(row)
            else:
                yield row
        if together:
            yield _to_column_chunk(together)


def _to_column_chunk(rows: list[SourceRow]) -> ColumnChunk:
    values: list[Any] = [row.values for row in rows]
    return ColumnChunk(
        path=rows[0].path,
        first=rows[0].position,
        values={name: [one[name] for one in values] for name in values[0]},
        rows=len(rows),
        first_line=rows[0].line,
    )


def numbered_lines(count: int, *, start: int = 0, classes: int = DEFAULT_CLASSES) -> str:
    """Lines for a file of `NumberedFilesSource`: all different, of different lengths, with imbalanced classes."""
    lines = []
    for i in range(start, start + count):
        label = (i * i + i // 3) % classes
        lines.append(f"{label} row {i} {'x' * (i * 7 % 23)}\n")
    return "".join(lines)


def read_tree(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """Every file below a folder with its bytes; an empty folder is included, without bytes."""
    found: dict[str, bytes] = {}
    for place, folders, names in os.walk(folder):
        below = os.path.relpath(place, folder)
        if not folders and not names and below != ".":
            found[f"{below}/"] = b""
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


@dataclass(frozen=True, slots=True)
class GeneratedSource:
    """Any number of rows, generated when they are read and not stored on disk."""

    rows: int
    row_bytes: int

    @property
    def kind(self) -> str:
        return "generated"

    @property
    def root(self) -> str:
        return ""

    def options(self) -> Mapping[str, Any]:
        return {"rows": self.rows, "row_bytes": self.row_bytes}

    def facts(self) -> SourceFacts:
        schema = Schema({"number": Int64(), "label": Label(DEFAULT_CLASSES), "blob": Bytes()})
        return SourceFacts(layout="table", schema=schema, rows=self.rows, source_bytes=self.rows * self.row_bytes)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        step = max(1, part_bytes // self.row_bytes)
        ranges = [(begin, min(begin + step, self.rows)) for begin in range(0, self.rows, step)]
        return [SourcePart((begin, end), (end - begin) * self.row_bytes) for begin, end in ranges]

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        begin, end = part.content
        for number in range(begin, end):
            blob = (b"%016d" % number) * (self.row_bytes // 16)
            yield SourceRow("rows", number, {"number": number, "label": number % DEFAULT_CLASSES, "blob": blob})


class PeakMemory:
    """The peak anonymous memory of a process and its children together, sampled many times per second."""

    def __init__(self, process: int | None = None) -> None:
        self.peak_bytes = 0
        self._process = process or os.getpid()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._watch.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.005):
            self.peak_bytes = max(self.peak_bytes, sum(map(_anonymous_bytes, _process_tree(self._process))))


def _process_tree(process: int) -> list[int]:
    """A process and all its descendants."""
    found = [process]
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += _process_tree(int(child))
    return found


def _anonymous_bytes(process: int) -> int:
    with suppress(OSError), open(f"/proc/{process}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


class _Patcher(Protocol):
    def setattr(self, target: Any, name: str, value: object) -> None: ...


def use_small_parts(patch: _Patcher, *, part_bytes: int = 250, run_bytes: int = 600, piece_bytes: int = 300) -> None:
    """Make parts, runs and pieces small in this process, so that a few rows fill several of each."""
    patch.setattr(driver, "PART_BYTES", part_bytes)
    patch.setattr(tasks, "PART_BYTES", part_bytes)
    patch.setattr(spill, "RUN_BYTES", run_bytes)
    patch.setattr(shards, "RUN_BYTES", run_bytes)
    patch.setattr(encode_rows, "_PIECE_BYTES", piece_bytes)
    patch.setattr(mapped_rows, "_CHUNK_SECONDS", 0.0)  # a chunk is one row


def disable_fsync(patch: _Patcher) -> None:
    """Make `fsync` a no-op. `FaultyStorage` simulates lost bytes without it."""
    patch.setattr(os, "fsync", lambda _descriptor: None)


def build_conversion(
    rows: Any, out: str | os.PathLike[str], options: Mapping[str, Any], storage: Storage = LOCAL
) -> Conversion:
    """The conversion that `rk.write(rows, out, **options)` runs; in this process, unless `workers` is given."""
    return prepare_conversion(rows, out, WriteOptions(**{"workers": 1, **options}), storage=storage)


def execute_conversion(
    rows: Any, out: str | os.PathLike[str], options: Mapping[str, Any], storage: Storage = LOCAL
) -> ConversionResult:
    """Run a conversion."""
    return run_conversion(build_conversion(rows, out, options, storage), progress=False)


def find_leftovers(out: str | os.PathLike[str]) -> list[str]:
    """Hidden files and folders next to a dataset that belong to it: stagings, locks, replaced datasets."""
    parent, name = os.path.split(os.path.abspath(out))
    return sorted(other for other in os.listdir(parent) if other.startswith(f".{name}."))

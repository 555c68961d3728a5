"""The workloads: their columns, and functions that generate their values.

Values depend only on the workload and the chunk number, so every process generates the same ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / ".data"
THUMBNAIL_SIDE = 160
VERSION = 1  # part of the names of cached files; increase it when the values change

Kind: TypeAlias = Literal["int64", "float", "bytes", "text"]


@dataclass(frozen=True, slots=True)
class Column:
    """One record key."""

    name: str
    kind: Kind
    shape: tuple[int | None, ...] = ()

    @property
    def is_string(self) -> bool:
        return self.kind in ("bytes", "text")


@dataclass(frozen=True, slots=True)
class Lists:
    """Variable-length rows: lists of tokens, or the bytes of texts."""

    values: npt.NDArray[np.generic]
    lengths: npt.NDArray[np.int64]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.lengths) - self.lengths


Values: TypeAlias = "npt.NDArray[np.generic] | Lists"
Generate: TypeAlias = Callable[[np.random.Generator, int], dict[str, Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records that every contender reads or writes."""

    name: str
    records: int
    columns: tuple[Column, ...]
    generate: Generate
    chunk: int  # rows generated at once
    min_records: int = 5_000  # in a quick run: a shard must fill a few batches
    shuffled_keys: bool = False
    compressed: bool = False

    def scaled(self, records: int) -> Workload:
        """The same workload with a different number of records."""
        return replace(self, records=records)

    @property
    def folder(self) -> Path:
        return DATA / f"{self.name}-{self.records}-v{VERSION}"

    @property
    def records_folder(self) -> Path:
        return self.folder / "records"

    def shards(self) -> list[str]:
        """The record files, sorted."""
        return sorted(str(path) for path in self.records_folder.iterdir())

    def index(self, shard: str) -> str:
        """The index file of a shard, offset and size per frame, as DALI needs it."""
        return str(self.folder / "index" / Path(shard).with_suffix(".idx").name)

    def chunks(self) -> int:
        return -(-self.records // self.chunk)

    def rows(self, chunk: int) -> dict[str, Values]:
        """The values of one chunk."""
        count = min(self.chunk, self.records - chunk * self.chunk)
        return self.generate(np.random.default_rng([VERSION, chunk]), count)

    def whole(self) -> dict[str, Values]:
        """The values of all chunks."""
        chunks = [self.rows(chunk) for chunk in range(self.chunks())]
        return {column.name: _concatenate([rows[column.name] for rows in chunks]) for column in self.columns}


def _concatenate(parts: list[Values]) -> Values:
    arrays = [part for part in parts if not isinstance(part, Lists)]
    if arrays:
        return np.concatenate(arrays)
    lists = [part for part in parts if isinstance(part, Lists)]
    return Lists(np.concatenate([part.values for part in lists]), np.concatenate([part.lengths for part in lists]))


def _log_uniform(rng: np.random.Generator, below: int, size: int) -> npt.NDArray[np.int64]:
    """As many values with one digit as with two (Zipf's law), like counts and token ids."""
    values: npt.NDArray[np.int64] = np.exp(rng.random(size) * np.log(below)).astype(np.int64)
    return values


_WORDS = np.frombuffer(b"".join(f"{n * 2654435761 % 2**32:08x}".encode() for n in range(1 << 16)), "S8")
_PROSE = np.frombuffer(b"the quick brown fox jumps over the lazy dog and runs away; " * 64, np.uint8)


def _tabular(rng: np.random.Generator, count: int) -> dict[str, Values]:
    rows: dict[str, Values] = {"label": rng.integers(0, 2, count)}
    for i in range(1, 7):
        rows[f"I{i}"] = _log_uniform(rng, 10**i, count)
    for i in range(1, 8):
        rows[f"F{i}"] = rng.random(count, np.float32)
    for i in range(1, 27):
        rows[f"C{i}"] = _WORDS[_log_uniform(rng, len(_WORDS), count)]
    return rows


def _sequences(rng: np.random.Generator, count: int) -> dict[str, Values]:
    lengths = rng.integers(1, 200, count)
    letters = rng.integers(20, 120, count)
    starts = rng.integers(0, len(_PROSE) - 120, count)
    inside = np.arange(letters.sum()) - np.repeat(np.cumsum(letters) - letters, letters)
    return {
        "tokens": Lists(_log_uniform(rng, 50_000, int(lengths.sum())), lengths),
        "vector": rng.random((count, 128), np.float32),
        "text": Lists(_PROSE[np.repeat(starts, letters) + inside], letters),
    }


def _dense(rng: np.random.Generator, count: int) -> dict[str, Values]:
    return {"label": rng.integers(0, 1000, count), "values": rng.random((count, 2048), np.float32)}


def _images(rng: np.random.Generator, count: int) -> dict[str, Values]:
    sizes = rng.integers(80_000, 120_000, count)
    return {
        "image": Lists(np.frombuffer(rng.bytes(int(sizes.sum())), np.uint8), sizes),
        "height": rng.integers(200, 2000, count),
        "width": rng.integers(200, 2000, count),
        "label": rng.integers(0, 1000, count),
        "weight": rng.random(count, np.float32),
    }


def _vectors(rng: np.random.Generator, count: int) -> dict[str, Values]:
    return {"label": rng.integers(0, 1000, count), "values": rng.random((count, 4096), np.float32)}


def _photos(rng: np.random.Generator, count: int) -> dict[str, Values]:
    """JPEGs of 640 × 480 pixels and about 60 KB, like photos of this size."""
    return _jpegs(rng, count, size=(640, 480), scales=((4, 0.5), (16, 0.25), (64, 0.15), (256, 0.08)))


def _thumbnails(rng: np.random.Generator, count: int) -> dict[str, Values]:
    """JPEGs of 160 × 160 pixels and about 7 KB."""
    return _jpegs(rng, count, size=(THUMBNAIL_SIDE, THUMBNAIL_SIDE), scales=((4, 0.5), (16, 0.25), (64, 0.15)))


def _jpegs(
    rng: np.random.Generator, count: int, *, size: tuple[int, int], scales: tuple[tuple[int, float], ...]
) -> dict[str, Values]:
    """Smooth noise of several scales with some grain."""
    from PIL import Image  # not in every peer's environment, and no peer generates images

    encoded = []
    for _ in range(count):
        light = np.zeros((size[1], size[0], 3), np.float32)
        for cells, weight in scales:
            grid = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
            light += weight * np.asarray(grid.resize(size, Image.Resampling.BICUBIC))
        light += rng.normal(0.0, 2.0, (*light.shape[:2], 1))
        file = BytesIO()
        Image.fromarray(np.clip(light, 0, 255).astype(np.uint8)).save(file, "jpeg", quality=90)
        encoded.append(file.getvalue())
    lengths = np.array([len(one) for one in encoded], np.int64)
    return {
        "image": Lists(np.frombuffer(b"".join(encoded), np.uint8), lengths),
        "label": rng.integers(0, 1000, count),
    }


def _clicks(rng: np.random.Generator, count: int) -> dict[str, Values]:
    return {
        "label": rng.integers(0, 2, count),
        "dense": rng.random((count, 13), np.float32),
        "ids": _log_uniform(rng, 1 << 20, count * 26).reshape(count, 26),
    }


def _pairs(rng: np.random.Generator, count: int) -> dict[str, Values]:
    return {"seed": rng.integers(0, 2**63, count)}


_TABULAR = (
    Column("label", "int64"),
    *(Column(f"I{i}", "int64") for i in range(1, 7)),
    *(Column(f"F{i}", "float") for i in range(1, 8)),
    *(Column(f"C{i}", "bytes") for i in range(1, 27)),
)

_ALL = (
    Workload(name="tabular", records=500_000, columns=_TABULAR, generate=_tabular, chunk=10_000),
    Workload(
        name="tabular_shuffled",
        records=500_000,
        columns=_TABULAR,
        generate=_tabular,
        chunk=10_000,
        shuffled_keys=True,
    ),
    Workload(
        name="tabular_gzip", records=500_000, columns=_TABULAR, generate=_tabular, chunk=10_000, compressed=True
    ),
    Workload(
        name="sequences",
        records=200_000,
        columns=(
            Column("tokens", "int64", (None,)),
            Column("vector", "float", (128,)),
            Column("text", "text"),
        ),
        generate=_sequences,
        chunk=5_000,
    ),
    Workload(
        name="dense",
        records=50_000,
        columns=(Column("label", "int64"), Column("values", "float", (2048,))),
        generate=_dense,
        chunk=1_000,
    ),
    Workload(
        name="images",
        records=20_000,
        columns=(
            Column("image", "bytes"),
            Column("height", "int64"),
            Column("width", "int64"),
            Column("label", "int64"),
            Column("weight", "float"),
        ),
        generate=_images,
        chunk=200,
    ),
    # Records of 16 KB, for shuffled reading.
    Workload(
        name="vectors",
        records=25_000,
        columns=(Column("label", "int64"), Column("values", "float", (4096,))),
        generate=_vectors,
        chunk=500,
    ),
    Workload(
        name="photos",
        records=1_000,
        columns=(Column("image", "bytes"), Column("label", "int64")),
        generate=_photos,
        chunk=50,
        min_records=200,
    ),
    # For training loops: every value can be a tensor.
    Workload(
        name="clicks",
        records=200_000,
        columns=(Column("label", "int64"), Column("dense", "float", (13,)), Column("ids", "int64", (26,))),
        generate=_clicks,
        chunk=5_000,
        min_records=10_000,
    ),
    Workload(
        name="thumbnails",
        records=4_000,
        columns=(Column("image", "bytes"), Column("label", "int64")),
        generate=_thumbnails,
        chunk=100,
        min_records=400,
    ),
    # The input of conversions: a table as files, and images with masks, each pair generated from a seed.
    Workload(name="tables", records=1_000_000, columns=_TABULAR, generate=_tabular, chunk=10_000),
    Workload(
        name="pairs", records=2_000, columns=(Column("seed", "int64"),), generate=_pairs, chunk=50, min_records=100
    ),
    # Files of arrays and of audio, each generated from a seed.
    Workload(
        name="scenes",
        records=120,
        columns=(Column("seed", "int64"),),
        generate=_pairs,
        chunk=60,
        min_records=30,
    ),
    Workload(
        name="recordings",
        records=2_000,
        columns=(Column("seed", "int64"),),
        generate=_pairs,
        chunk=500,
        min_records=200,
    ),
)

WORKLOADS = {workload.name: workload for workload in _ALL}


def fill_once(folder: Path, fill: Callable[[Path], object]) -> None:
    """Create a folder with `fill`, unless it exists; contenders that start together wait for each other."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_WRONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            fill(partial)
            partial.rename(folder)
    finally:
        os.close(lock)

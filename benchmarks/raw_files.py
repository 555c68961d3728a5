"""The input files of conversions, generated once: images with masks, and a table as CSV and Parquet."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pyarrow import csv
from workloads import Workload, fill_once

Pixels = npt.NDArray[np.uint8]

_PROCESSES = 2
_SIDE = 512
_QUALITY = 90
_CLASSES = 21
_IGNORE = 255
_GROUP_ROWS = 122_880  # rows per Parquet row group, DuckDB's default


def prepare_pairs(workload: Workload) -> None:
    """Generate the images and masks if they do not exist."""

    def fill(folder: Path) -> None:
        for name in ("images", "masks"):
            (folder / name).mkdir()
        with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
            for _ in pool.map(_write_pairs, *zip(*_pair_calls(workload, folder), strict=True)):
                pass

    fill_once(workload.folder, fill)


def prepare_tables(workload: Workload) -> None:
    """Generate the CSV and the Parquet file if they do not exist."""

    def fill(folder: Path) -> None:
        schema = _table(workload, 0).schema
        options = csv.WriteOptions(quoting_style="none")
        with (
            csv.CSVWriter(folder / "table.csv", schema, write_options=options) as text,
            pq.ParquetWriter(folder / "table.parquet", schema) as parquet,
        ):
            waiting: list[pa.Table] = []
            for chunk in range(workload.chunks()):
                waiting.append(_table(workload, chunk))
                text.write_table(waiting[-1])
                whole = pa.concat_tables(waiting)
                while len(whole) >= _GROUP_ROWS:
                    parquet.write_table(whole.slice(0, _GROUP_ROWS), row_group_size=_GROUP_ROWS)
                    whole = whole.slice(_GROUP_ROWS)
                waiting = [whole]
            if len(waiting[0]):
                parquet.write_table(waiting[0], row_group_size=_GROUP_ROWS)

    fill_once(workload.folder, fill)


def prepare_scenes(workload: Workload) -> None:
    """Generate TIFF files of eight bands, uncompressed and in deflated tiles, if they do not exist."""
    import tifffile

    def fill(folder: Path) -> None:
        slope = np.add.outer(np.arange(_SIDE), np.arange(_SIDE))[..., None]
        for form, options in SCENE_FORMS.items():
            (folder / form).mkdir()
            for number in range(workload.records):
                noise = np.random.default_rng(number).integers(0, 64, (_SIDE, _SIDE, 8))
                pixels = (slope + noise).astype(np.uint16)
                path = folder / form / f"{number}.tif"
                tifffile.imwrite(path, pixels, photometric="minisblack", planarconfig="contig", **options)

    fill_once(workload.folder, fill)


SCENE_FORMS: dict[str, dict[str, Any]] = {
    "uncompressed": {},
    "deflate": {"compression": "zlib", "predictor": True, "tile": (128, 128)},
}


def prepare_recordings(workload: Workload) -> None:
    """Generate WAV files of one second at 16 kHz, in ten class folders, if they do not exist."""
    import soundfile

    def fill(folder: Path) -> None:
        for number in range(workload.records):
            path = folder / str(number % 10) / f"{number}.wav"
            path.parent.mkdir(exist_ok=True)
            noise = np.random.default_rng(number).standard_normal(16_000) * 0.1
            soundfile.write(path, noise.astype(np.float32), 16_000)

    fill_once(workload.folder, fill)


def _table(workload: Workload, chunk: int) -> pa.Table:
    values: dict[str, Any] = workload.rows(chunk)
    return pa.table(
        {
            column.name: pa.array(values[column.name].astype("U8"), pa.string())
            if column.is_string
            else pa.array(values[column.name])
            for column in workload.columns
        }
    )


def _pair_calls(workload: Workload, folder: Path) -> list[tuple[Path, int, list[int]]]:
    calls = []
    for chunk in range(workload.chunks()):
        seeds: Any = workload.rows(chunk)["seed"]
        calls.append((folder, chunk * workload.chunk, seeds.tolist()))
    return calls


def _write_pairs(folder: Path, first: int, seeds: list[int]) -> None:
    for number, seed in enumerate(seeds, first):
        rng = np.random.default_rng(seed)
        name = f"{number:06d}"
        Image.fromarray(_photo(rng)).save(folder / "images" / f"{name}.jpg", quality=_QUALITY)
        Image.fromarray(_mask(rng)).save(folder / "masks" / f"{name}.png")


def _photo(rng: np.random.Generator) -> Pixels:
    """Noise of several scales; 40 to 80 KB as JPEG, like a photo of this size."""
    detail = rng.uniform(0.3, 1.0)
    scales = ((4, 0.5), (16, 0.25), (64, 0.18 * detail), (256, 0.12 * detail))
    light = sum(weight * _smooth(rng, cells, 3).astype(np.float32) for cells, weight in scales)
    grain = rng.normal(0.0, 3.0 * detail, (_SIDE, _SIDE, 1)).astype(np.float32)
    return np.clip(light + grain, 0, 255).astype(np.uint8)


def _mask(rng: np.random.Generator) -> Pixels:
    """Regions of a few classes with borders marked as ignored, as in Pascal VOC."""
    highest = np.argmax(np.stack([_smooth(rng, cells, 1) for cells in (5, 5, 6, 7, 12)]), axis=0)
    ids = np.array([0, *rng.integers(1, _CLASSES, 4)], np.uint8)
    mask: Pixels = ids[highest]
    across = highest[:, 1:] != highest[:, :-1]
    down = highest[1:] != highest[:-1]
    for edge in (mask[:, 1:], mask[:, :-1]):
        edge[across] = _IGNORE
    for edge in (mask[1:], mask[:-1]):
        edge[down] = _IGNORE
    return mask


def _smooth(rng: np.random.Generator, cells: int, channels: int) -> Pixels:
    grid = rng.integers(0, 256, (cells, cells, channels), np.uint8).squeeze()
    return np.asarray(Image.fromarray(grid).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))

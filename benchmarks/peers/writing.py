"""For writers of datasets: output folders, input files, and digests of what was written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from workloads import DATA, Workload

SAMPLE_PAIRS = 64
SAMPLE_ROWS = 2_048


class Outputs:
    """A new path on disk for every pass, removed when the process exits."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=DATA, prefix="written-")
        self._passes = 0

    def new(self) -> str:
        """A path that does not exist."""
        self._passes += 1
        return os.path.join(self._folder.name, f"pass-{self._passes}")

    def clear(self) -> None:
        """Remove all output, so that writing it back to disk does not slow others down."""
        for entry in os.scandir(self._folder.name):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.remove(entry.path)


class PairFiles(NamedTuple):
    """An image and its mask."""

    name: str
    image: str
    mask: str


def pair_files(workload: Workload) -> list[PairFiles]:
    """All pairs, by name."""
    images, masks = workload.folder / "images", workload.folder / "masks"
    names = sorted(path.stem for path in images.iterdir())
    return [PairFiles(name, str(images / f"{name}.jpg"), str(masks / f"{name}.png")) for name in names]


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def pairs_digest(written: Iterable[tuple[str, bytes, bytes]], pairs: int) -> dict[str, float]:
    """Sizes and sums of checksums of the first pairs (name, image, mask), in any order."""
    digest = {"image bytes": 0.0, "mask bytes": 0.0, "image": 0.0, "mask": 0.0}
    names = set()
    for name, image, mask in written:
        names.add(name)
        if int(name) < SAMPLE_PAIRS:
            digest["image bytes"] += len(image)
            digest["mask bytes"] += len(mask)
            digest["image"] += crc32(image)
            digest["mask"] += crc32(mask)
    if len(names) != pairs:
        raise ValueError(f"{len(names)} pairs were written, not {pairs}")
    return digest

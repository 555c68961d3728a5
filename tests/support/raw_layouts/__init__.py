"""Small raw datasets in the layouts of public ones, each with what its authors mean by it.

An entry is a function that builds a tree of tiny, valid files; its docstring says where the layout is described. Its
truth is one or more readings, a refusal, or either. Whatever else `rekord write` makes of it is silently wrong.
"""

from __future__ import annotations

import csv
import io
import json
import struct
import wave
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

BOXES = ((1, 2, 9, 8), (2, 2, 10, 8), (3, 2, 11, 8))
"""Every annotation is one of these boxes (x0, y0, x1, y1, in pixels of an image of 16 × 12 or more)."""

BINARY = frozenset({"0", "1"}), frozenset({"0", "255"})
"""Ids of a mask of background and foreground: neither of them is without a class."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a right reading of a dataset is; None where it is not part of the truth."""

    layout: str  # several that are right are separated by |
    splits: Mapping[str, int]  # records of each split
    labels: Mapping[str, int] | None = None  # records by class
    boxes: Mapping[str, int] | None = None  # boxes by class
    masks: tuple[frozenset[str], ...] | None = None  # ids of pixels that have a class: one of these sets
    columns: Mapping[str, str] | None = None  # types by name
    unused: tuple[str, ...] = ()  # parts of names that the summary lists as not used; | separates alternatives


@dataclass(frozen=True)
class RawLayout:
    """An entry of the corpus."""

    name: str
    source: str  # where the layout is described
    build: Callable[[Tree], str | None]  # returns the path to write, if not the whole tree
    readings: tuple[Reading, ...]
    refusal: bool  # whether a refusal is right
    published: bool


CORPUS: dict[str, RawLayout] = {}


def raw_layout(*readings: Reading, refusal: bool | None = None, published: bool = True) -> Callable[..., Any]:
    """Register a builder. Without readings only a refusal is right; with one, a refusal is right if allowed."""

    def register(build: Callable[[Tree], str | None]) -> Callable[[Tree], str | None]:
        name = build.__name__.strip("_").replace("_", "-")
        assert name not in CORPUS, f"two entries are named {name}"
        assert build.__doc__, f"{name} has no source"
        CORPUS[name] = RawLayout(
            name,
            " ".join(build.__doc__.split()),
            build,
            readings,
            not readings if refusal is None else refusal,
            published,
        )
        return build

    return register


def classification(splits: Mapping[str, int] | int, labels: Mapping[str, int], **more: Any) -> Reading:
    """Images with one class each."""
    return Reading(**{"layout": "classification", "splits": _splits(splits), "labels": labels, **more})


def detection(splits: Mapping[str, int] | int, boxes: Mapping[str, int], **more: Any) -> Reading:
    """Images with boxes."""
    return Reading(**{"layout": "detection", "splits": _splits(splits), "boxes": boxes, **more})


def segmentation(splits: Mapping[str, int] | int, *masks: Iterable[str] | str, **more: Any) -> Reading:
    """Images with masks."""
    sets = tuple([frozenset(ids.split() if isinstance(ids, str) else ids) for ids in masks])
    return Reading(**{"layout": "deeplab", "splits": _splits(splits), "masks": sets, **more})


def images(splits: Mapping[str, int] | int, **more: Any) -> Reading:
    """Images without labels."""
    return Reading(**{"layout": "images", "splits": _splits(splits), **more})


def table(splits: Mapping[str, int] | int, columns: Mapping[str, str] | None = None, **more: Any) -> Reading:
    """Rows with columns of these types."""
    return Reading(**{"layout": "table", "splits": _splits(splits), "columns": columns, **more})


def text(splits: Mapping[str, int] | int, **more: Any) -> Reading:
    """Texts, with or without a class."""
    return Reading(**{"layout": "text|table", "splits": _splits(splits), **more})


def _splits(splits: Mapping[str, int] | int) -> Mapping[str, int]:
    return {"train": splits} if isinstance(splits, int) else splits


class Tree:
    """A folder of tiny files. Images differ in content; those with the same number have the same size."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, content: str | bytes = "") -> None:
        """A file with this content."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def lines(self, path: str, lines: Iterable[str]) -> None:
        """A text file."""
        self.put(path, "".join([f"{line}\n" for line in lines]))

    def folder(self, path: str) -> None:
        """An empty folder."""
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def json(self, path: str, document: Any) -> None:
        """A JSON file."""
        self.put(path, json.dumps(document, indent=1))

    def csv(self, path: str, rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
        """A CSV file."""
        made = io.StringIO()
        csv.writer(made, delimiter=delimiter, lineterminator="\n").writerows(rows)
        self.put(path, made.getvalue())

    def image(self, path: str, number: int = 0, mode: str = "RGB", *, side: int | None = None) -> None:
        """An image of noise: (16 + number) × (12 + number) pixels, or square."""
        width, height = (side, side) if side else (16 + number, 12 + number)
        noise = np.random.default_rng(zlib.crc32(path.encode())).integers(0, 255, (height, width, 3), np.uint8)
        if mode == "I;16":
            self._save(path, Image.fromarray(noise[..., 0].astype(np.uint16) * 100))
        else:
            self._save(path, Image.fromarray(noise).convert(mode))

    def images(self, pattern: str, names: Iterable[Any], mode: str = "RGB") -> None:
        """Images by a pattern, numbered 0, 1, 2, …"""
        for number, name in enumerate(names):
            self.image(pattern.format(name), number, mode)

    def mask(self, path: str, number: int = 0, ids: Sequence[Any] = (0, 1, 2), mode: str = "L") -> None:
        """A mask with these ids (or colours) in equal stripes, of the size of the image with this number."""
        stripes = np.arange(16 + number) * len(ids) // (16 + number)
        pixels = np.asarray(ids)[np.tile(stripes, (12 + number, 1))]
        if mode == "I;16":
            made = Image.fromarray(pixels.astype(np.uint16))
        else:
            made = Image.fromarray(pixels.astype(np.uint8))
            if mode == "P":
                made = made.convert("P")
                made.putdata(pixels.astype(np.uint8).ravel().tolist())
                made.putpalette([(37 * i) % 256 for i in range(768)])
            elif mode == "1":
                made = made.point(lambda value: 255 if value else 0).convert("1")
        self._save(path, made)

    def masks(self, pattern: str, names: Iterable[Any], ids: Sequence[Any] = (0, 1, 2), mode: str = "L") -> None:
        """Masks by a pattern, numbered 0, 1, 2, …"""
        for number, name in enumerate(names):
            self.mask(pattern.format(name), number, ids, mode)

    def _save(self, path: str, image: Image.Image) -> None:
        made = io.BytesIO()
        ending = path.rpartition(".")[2].lower()
        formats = {"jpg": "JPEG", "jpeg": "JPEG", "tif": "TIFF", "tiff": "TIFF", "ppm": "PPM", "pgm": "PPM"}
        image.save(made, formats.get(ending, ending.upper()))
        self.put(path, made.getvalue())

    def wav(self, path: str) -> None:
        """A tenth of a second of sound."""
        made = io.BytesIO()
        with wave.open(made, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(np.random.default_rng(zlib.crc32(path.encode())).bytes(1600))
        self.put(path, made.getvalue())

    def video(self, path: str) -> None:
        """The first bytes of an AVI or MP4 file."""
        avi = b"RIFF" + struct.pack("<I", 4) + b"AVI "
        self.put(path, avi if path.endswith(".avi") else b"\0\0\0\x18ftypisom\0\0\2\0isomiso2")

    def mat(self, path: str, values: Mapping[str, Any]) -> None:
        """A MATLAB 5 file of matrices of numbers."""
        made = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
        for name, value in values.items():
            matrix = np.atleast_2d(np.asarray(value, np.float64))
            parts = (
                (6, struct.pack("<II", 6, 0)),  # flags: an array of doubles
                (5, struct.pack(f"<{matrix.ndim}i", *matrix.shape)),
                (1, name.encode()),
                (9, matrix.tobytes("F")),
            )
            made_parts = b"".join(
                [struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8) for kind, data in parts]
            )
            made += struct.pack("<II", 14, len(made_parts)) + made_parts
        self.put(path, made)

    def idx(self, path: str, values: Any) -> None:
        """A file of unsigned bytes in the IDX format of MNIST."""
        array = np.asarray(values, np.uint8)
        head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
        self.put(path, head + array.tobytes())

    def voc_xml(self, path: str, image: str, names: Sequence[str], number: int = 0) -> None:
        """The annotation of an image in the format of PASCAL VOC, with a box for each name."""
        objects = "".join(
            [
                f"<object><name>{name}</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>"
                f"<bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>\n"
                for name, (x0, y0, x1, y1) in zip(names, BOXES, strict=False)
            ]
        )
        self.put(
            path,
            f"<annotation><folder>VOC</folder><filename>{image}</filename><size><width>{16 + number}</width>"
            f"<height>{12 + number}</height><depth>3</depth></size>\n{objects}</annotation>\n",
        )

    def coco(self, path: str, files: Sequence[str], boxes: Sequence[Sequence[str]], **more: Any) -> None:
        """A COCO file: `boxes` names the classes of the boxes of each file."""
        names = sorted({name for one in boxes for name in one})
        annotations = [
            {
                "id": 10 * (i + 1) + j,
                "image_id": i + 1,
                "category_id": names.index(name) + 1,
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": 0,
                "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
            }
            for i, one in enumerate(boxes)
            for j, (name, (x0, y0, x1, y1)) in enumerate(zip(one, BOXES, strict=False))
        ]
        document = {
            "info": {"description": "tiny", "year": 2017},
            "licenses": [{"id": 1, "name": "none", "url": ""}],
            "images": [
                {"id": i + 1, "file_name": name, "width": 16 + i, "height": 12 + i, "license": 1}
                for i, name in enumerate(files)
            ],
            "annotations": annotations,
            "categories": [{"id": i + 1, "name": name, "supercategory": "thing"} for i, name in enumerate(names)],
        }
        self.json(path, {**document, **more})


def yolo(classes: Sequence[int], number: int = 0) -> str:
    """The lines of a YOLO label file for an image of (16 + number) × (12 + number) pixels."""
    width, height = 16 + number, 12 + number
    return "".join(
        [
            f"{name} {(x0 + x1) / 2 / width:.6f} {(y0 + y1) / 2 / height:.6f} "
            f"{(x1 - x0) / width:.6f} {(y1 - y0) / height:.6f}\n"
            for name, (x0, y0, x1, y1) in zip(classes, BOXES, strict=False)
        ]
    )


# They register their entries.
from raw_layouts import box_layouts, class_layouts, kaggle_layouts, mask_layouts, table_layouts, yolo_layouts  # noqa: E402, F401

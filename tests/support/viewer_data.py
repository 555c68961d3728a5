"""Datasets for the tests of the viewer: many records, masks, rotated images, damage, leaks, hostile names."""

from __future__ import annotations

import io
import wave
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image as Pillow

import rekord as rk
from rekord.dataset.predictions import PredictionFacts, PredictionWriter
from rekord.testing import example_bytes, frames, sequence_bytes

CLASSES = ["background", "cat", "dog", "bird"]
MARKER = (255, 0, 255)
MARKER_BOX = (0.25, 0.1, 0.75, 0.6)  # ymin, xmin, ymax, xmax of the stored image
SCRIPT = "<script>document.title = 'broken'</script>"
ONERROR = "<img src=x onerror=\"document.title = 'broken'\">"
HOSTILE_KEYS = [
    SCRIPT,
    ONERROR,
    "<svg onload=\"document.title = 'broken'\">",
    "right\u202eleft",
    "nul\x00key",
    "__proto__",
]


def write_numbers(folder: Path, records: int) -> Path:
    """One file without an index: `number` is the record's own, `label` and `width` are computed from it."""
    number = np.arange(records)
    table = pa.table({"number": number, "label": number * 7 % 10, "width": (number * 13 % 1000).astype(np.float32)})
    rk.write(table, folder / "dataset", shards=1, progress=False)
    [written] = (folder / "dataset").glob("*.tfrecord")
    return written.rename(folder / "numbers.tfrecord")


def make_image(seed: int, width: int = 96, height: int = 64) -> npt.NDArray[np.uint8]:
    """A smooth image that differs from those of other seeds."""
    y, x = np.mgrid[:height, :width]
    chance = np.random.default_rng(seed)
    waves = [np.sin(x / chance.uniform(5, 30) + y / chance.uniform(5, 30) + chance.uniform(0, 6)) for _ in range(3)]
    return np.stack([127 + 100 * wave for wave in waves], axis=-1).astype(np.uint8)


def make_mask(seed: int, width: int = 96, height: int = 64) -> npt.NDArray[np.uint8]:
    """Class ids 0 to 3 in four fields that differ by seed, and a line of 255."""
    ids = np.zeros((height, width), np.uint8)
    ids[: height // 2, width // 2 :] = 1 + seed % 3
    ids[height // 2 :, : width // 3] = 1 + (seed + 1) % 3
    ids[height - 4 :] = 255
    return ids


def encode_palette(ids: npt.NDArray[np.uint8]) -> bytes:
    """A PNG with a palette, as segmentation datasets have them."""
    image = Pillow.frombytes("P", ids.shape[::-1], ids.tobytes())
    image.putpalette([value * 37 % 256 for value in range(768)])
    return _save(image, "png")


def write_masks(folder: Path, records: int = 12) -> Path:
    """Images with masks, from palette PNGs, and class labels; two shards."""
    schema = rk.Schema(
        {
            "image": rk.Image(format="png"),
            "mask": rk.Mask(classes=len(CLASSES), ignore=255),
            "label": rk.Label(CLASSES),
            "width": rk.Float32(),
            "note": rk.Text(),
        }
    )
    rows = [
        {
            "image": make_image(i),
            "mask": encode_palette(make_mask(i)),
            "label": i % 4,
            "width": i * 1.5,
            "note": f"note {i}",
        }
        for i in range(records)
    ]
    rk.write(rows, folder / "masks", schema=schema, shards=2, shuffle=False, progress=False)
    return folder / "masks"


def write_rotated(folder: Path) -> Path:
    """A JPEG with EXIF orientation 6; magenta squares are painted at the corners of a box."""
    width, height = 400, 300
    pixels = np.full((height, width, 3), 230, np.uint8)
    ymin, xmin, ymax, xmax = MARKER_BOX
    for x in (round(xmin * width), round(xmax * width)):
        for y in (round(ymin * height), round(ymax * height)):
            pixels[y - 8 : y + 8, x - 8 : x + 8] = MARKER
    image = Pillow.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6
    file = io.BytesIO()
    image.save(file, "jpeg", quality=95, exif=exif, subsampling=0)
    sides = {"ymin": ymin, "xmin": xmin, "ymax": ymax, "xmax": xmax}
    row: dict[str, list[bytes] | list[int] | list[float]] = {
        "image/encoded": [file.getvalue()],
        "image/format": [b"jpeg"],
        "image/object/class/text": [b"marker"],
        "image/object/class/label": [1],
    }
    row |= {f"image/object/bbox/{side}": [value] for side, value in sides.items()}
    twice = {key: value * 2 if "/object/" in key else value for key, value in row.items()}  # lists, not single values
    return _write_file(folder / "rotated.tfrecord", [example_bytes(row), example_bytes(twice)])


def write_damaged(folder: Path, records: int = 240, damaged: int = 100) -> Path:
    """A file in which the payloads of the records 20 to 20 + `damaged` are changed."""
    payloads = [example_bytes({"number": [i], "text": [f"record {i}".encode()]}) for i in range(records)]
    data = bytearray(frames(payloads))
    at = 0
    for i, payload in enumerate(payloads):
        if 20 <= i < 20 + damaged:
            data[at + 12 + len(payload) // 2] ^= 1
        at += 16 + len(payload)
    (folder / "damaged.tfrecord").write_bytes(data)
    return folder / "damaged.tfrecord"


def write_leak(folder: Path) -> Path:
    """A dataset in which record 3 of `validation` is record 5 of `train`."""
    seeds = {"train": list(range(12)), "validation": [100, 101, 102, 5, 104, 105]}
    (folder / "leak").mkdir()
    for split, of_split in seeds.items():
        images = [_save(Pillow.fromarray(make_image(seed)), "png") for seed in of_split]
        rows = [{"image/encoded": [image], "image/class/label": [i % 4]} for i, image in enumerate(images)]
        _write_file(folder / "leak" / f"{split}-00000-of-00001.tfrecord", [example_bytes(row) for row in rows])
    return folder / "leak"


def write_hostile(folder: Path) -> Path:
    """Keys and values that would run, reorder or cut the page if they were markup."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "broken"</script></svg>'
    row: dict[str, list[bytes] | list[int] | list[float]] = {key: [key.encode()] for key in HOSTILE_KEYS}
    row |= {"image/encoded": [svg], "image/format": [b"svg"], "page": [b"<!DOCTYPE html>" + SCRIPT.encode()]}
    row |= {"label": [1], "text": ["\u202eabc\x00\u2028".encode() + ONERROR.encode()]}
    return _write_file(folder / "hostile.tfrecord", [example_bytes(row)] * 4)


def write_media(folder: Path) -> Path:
    """SequenceExamples with a sound and a matrix in the context, and images and points as steps."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes((np.sin(np.arange(4000) / 5) * 20_000).astype("<i2").tobytes())
    images = [[_save(Pillow.fromarray(make_image(i)), "jpeg")] for i in range(3)]
    payload = sequence_bytes(
        {"sound": [sound.getvalue()], "matrix": [float(i) for i in range(12)], "text": [b"many words " * 40]},
        {"frame": images, "point": [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]},
    )
    return _write_file(folder / "media.tfrecord", [payload] * 2)


def write_bomb(folder: Path) -> Path:
    """A PNG whose header declares 40,000 x 40,000 pixels, next to a good one."""
    good = _save(Pillow.fromarray(make_image(1)), "png")
    header = b"IHDR" + (40_000).to_bytes(4, "big") * 2 + good[24:29]
    bomb = good[:12] + header + zlib.crc32(header).to_bytes(4, "big") + good[33:]
    return _write_file(folder / "bomb.tfrecord", [example_bytes({"image/encoded": [one]}) for one in (good, bomb)])


def write_predictions(folder: Path, records: int = 12) -> Path:
    """Predictions for the dataset of `write_masks`: the dogs 2 and 6, but not 10, are taken for cats."""
    truth = [CLASSES[i % 4] for i in range(records)]
    predicted = ["cat" if i in (2, 6) else name for i, name in enumerate(truth)]
    facts = PredictionFacts(task="classification", target="label", classes=tuple(CLASSES))
    with PredictionWriter(folder / "predictions.arrow", "class", facts) as out:
        out.add(
            "train",
            0,
            truth,
            predicted,
            [0.9] * records,
            [float(a != b) for a, b in zip(truth, predicted, strict=True)],
        )
    return folder / "predictions.arrow"


def _save(image: Pillow.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def _write_file(path: Path, payloads: list[bytes]) -> Path:
    path.write_bytes(frames(payloads))
    return path

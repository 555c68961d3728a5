"""What takes more room than it needs, and how much it would take: measured on a few samples."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rekord.health.ailments.case import Case
from rekord.health.ailments.look_at_bytes import begins_as_picture
from rekord.health.ailments.profile import Stored
from rekord.health.ailments.words import byte_size, count, named
from rekord.health.diagnosis import Diagnosis
from rekord.schema import Tensor

_SAMPLES = 4
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_WORTH_BYTES = 64 * 1024
_WORTH_FACTOR = 0.5
_LONG_LIST = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """How a flat run of values is a picture, and what says so."""

    height: int
    width: int
    channels: int
    says: str


def pixels_of(values: int) -> Layout | None:
    """The square picture that so many values make: one, three or four channels; None where none is likely."""
    for channels in (1, 3, 4):
        side = math.isqrt(values // channels)
        if side >= 8 and side * side * channels == values:
            says = f"{values:,} values in every record: {side} × {side}" + (
                f" × {channels}" if channels > 1 else ""
            )
            return Layout(side, side, channels, says)
    return None


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """Raw pixels that could be encoded, and lists of small numbers that could be bytes."""
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values or len(profile.kinds) > 1:
            continue
        if stored.kind == "bytes":
            yield from _raw_pixels(case, key, stored)
        elif stored.fewest >= _LONG_LIST:
            yield from _long_list(case, key, stored)


def _raw_pixels(case: Case, key: str, stored: Stored) -> Iterator[Diagnosis]:
    layout = _uint8_layout(case, key, stored)
    samples = [value for _, value in stored.samples if value]
    if layout is None or any(map(begins_as_picture, samples)) or stored.total_bytes < _WORTH_BYTES:
        return
    sizes = _png_sizes([np.frombuffer(value, np.uint8) for value in samples], layout)
    if sizes is None or sizes[1] > _WORTH_FACTOR * sizes[0]:
        return
    raw, png, looked = sizes
    yield case.diagnosis(
        "H833",
        "note",
        stored.tally,
        title=f"{named(key)} is raw pixels: encoded it would be about {raw / png:.1f} times smaller",
        feature=key,
        evidence=[
            layout.says,
            f"{byte_size(stored.total_bytes)} as stored; as PNG, which loses nothing, about "
            f"{byte_size(int(stored.total_bytes * png / raw))} "
            f"(estimated: {count(looked, 'sample')} went from {byte_size(raw)} to {byte_size(png)})",
        ],
        ruled_out=["not encoded already: the bytes begin as no picture does"],
        likely="the picture was decoded before it was written",
        do=f"store the file's own JPEG or PNG bytes in {named(key)}, and decode them when reading",
        agree=False,
    )


def _uint8_layout(case: Case, key: str, stored: Stored) -> Layout | None:
    sized = case.raw.sized.get(key)
    if sized is not None and sized.kind == "bytes" and not sized.odd and len(sized.ratios) == 1:
        ratio = next(iter(sized.ratios))
        _, shape, _ = sized.shapes[0]
        depth = shape.channels if shape.channels is not None else int(ratio)
        if (ratio == 1.0 or not sized.deep) and depth in _MODES:
            return Layout(
                shape.height,
                shape.width,
                depth,
                f"{named(sized.keys[0])} and {named(sized.keys[1])} say {shape}",
            )
    tensor = dict(case.features()).get(key)
    return _declared_layout(tensor, stored) if isinstance(tensor, Tensor) else None


def _declared_layout(tensor: Tensor, stored: Stored) -> Layout | None:
    shape = [size for size in tensor.shape if size is not None]
    if np.dtype(tensor.dtype) != np.uint8 or len(shape) != len(tensor.shape) or len(shape) not in (2, 3):
        return None
    height, width, depth = (*shape, 1)[:3]
    if depth not in _MODES or list(stored.lengths.counts or ()) != [height * width * depth]:
        return None
    return Layout(height, width, depth, f"the schema says uint8 of shape {shape}")


def encoded_estimate(stored: Stored, layout: Layout, payload_bytes: int) -> str | None:
    """The room that a list of pixels takes, and what it would take as bytes and as PNG."""
    arrays = [value for _, value in stored.samples if stored.kind != "bytes"]
    arrays = [value.astype(np.uint8) for value in arrays if len(value) == layout_size(layout)]
    sizes = _png_sizes(arrays, layout)
    if sizes is None:
        return None
    raw, png, looked = sizes
    now = min(_list_bytes(stored), payload_bytes)
    return (
        f"about {byte_size(now)} as stored; {byte_size(stored.values)} as raw bytes; as PNG, which loses nothing, "
        f"about {byte_size(int(stored.values * png / raw))} (estimated from {count(looked, 'sample')})"
    )


def layout_size(layout: Layout) -> int:
    """How many values a picture has."""
    return layout.height * layout.width * layout.channels


def _list_bytes(stored: Stored) -> int:
    """The bytes that the numbers of a key take in the records, judged by its samples."""
    if stored.kind == "float":
        return stored.values * 4
    values = [value for _, value in stored.samples]
    seen = sum(len(value) for value in values)
    # A varint has 7 bits a byte; a negative number takes 10.
    spent = sum(int(_varint_bytes(value).sum()) for value in values)
    return int(stored.values * spent / seen) if seen else stored.values


def _varint_bytes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bits = np.ceil(np.log2(np.maximum(values.astype(np.float64), 1.0) + 1.0))
    return np.where(values < 0, 10, np.maximum(np.ceil(bits / 7), 1)).astype(np.int64)


def _png_sizes(arrays: list[npt.NDArray[np.uint8]], layout: Layout) -> tuple[int, int, int] | None:
    """(raw bytes, bytes as PNG, how many) of the first few pictures."""
    from PIL import Image

    fitting = [array for array in arrays if len(array) == layout_size(layout)][:_SAMPLES]
    if not fitting:
        return None
    png = 0
    shape = (layout.height, layout.width) + ((layout.channels,) if layout.channels > 1 else ())
    for array in fitting:
        out = io.BytesIO()
        Image.fromarray(array.reshape(shape), _MODES[layout.channels]).save(out, "PNG")
        png += len(out.getvalue())
    return len(fitting) * layout_size(layout), png, len(fitting)


def _long_list(case: Case, key: str, stored: Stored) -> Iterator[Diagnosis]:
    small = stored.low >= 0 and stored.high <= 255
    if not small or not (stored.kind == "int64" or stored.all_whole):
        return
    now = _list_bytes(stored)
    if now < _WORTH_BYTES or stored.values > 0.75 * now:
        return
    yield case.diagnosis(
        "H834",
        "note",
        stored.tally,
        title=f"{named(key)} holds numbers from 0 to 255 in lists that take {now / stored.values:.1f} bytes for each",
        feature=key,
        evidence=[
            f"{count(stored.values, 'value')}, at least {stored.fewest:,} in a record",
            f"about {byte_size(now)} as stored, {byte_size(stored.values)} as one byte string a record "
            f"(estimated from {count(len(stored.samples), 'sample')})",
        ],
        likely=None,
        do=f'store np.asarray(values, "uint8").tobytes() in {named(key)}, and read tf.io.decode_raw(x, tf.uint8)',
        agree=False,
    )

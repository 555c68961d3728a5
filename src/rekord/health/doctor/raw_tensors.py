"""Pixels and tensors that are stored in another dtype, shape or form than declared, or larger than needed."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import PictureFormat
from rekord.health.doctor.diagnosis import Diagnosis, byte_size, count, joined, named, number
from rekord.health.doctor.evidence import Case, Shape, Sized, Stored, tally_of
from rekord.health.doctor.kinds import words_of
from rekord.health.tensorflow.parse_errors import reshape_error
from rekord.schema import Tensor, of_type
from rekord.schema.base import dtype_name

_LOOKED_AT_BYTES = 1 << 16
_ORDINARY = 0.98
_SMALLEST, _LARGEST = 1e-8, 1e8
_FEWEST = 8


def begins_as_picture(data: bytes) -> bool:
    """Whether bytes begin as an encoded picture does."""
    return bool(_core.look(data, False).format != PictureFormat.NONE)


def is_text(data: bytes) -> bool:
    """Whether bytes are printable ASCII throughout, as far as they are looked at."""
    head = data[:_LOOKED_AT_BYTES]
    return head.isascii() and head.decode("ascii").isprintable()


def bytes_say(data: bytes, item_bytes: int) -> str | None:
    """The dtype of `item_bytes` bytes whose numbers are of ordinary size; None where none is.

    Floats of ordinary size use few of all exponents: bytes that mean something else do not look like that.
    """
    head = data[: min(len(data), _LOOKED_AT_BYTES) // item_bytes * item_bytes]
    if len(head) < _FEWEST * item_bytes:
        return None
    if item_bytes == 1:
        return "uint8"
    if item_bytes == 2:
        return "uint16"
    floats = np.frombuffer(head, f"<f{item_bytes}")
    ints = np.frombuffer(head, f"<i{item_bytes}")
    with np.errstate(all="ignore"):
        size = np.abs(floats.astype(np.float64))
        ordinary = (size == 0) | ((size > _SMALLEST) & (size < _LARGEST))
    if ordinary.mean() >= _ORDINARY and size.any():
        return f"float{8 * item_bytes}"
    if (np.abs(ints.astype(np.float64)) < 1 << 16).mean() >= _ORDINARY and ints.any():
        return f"int{8 * item_bytes}"
    return None


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


def diagnose_bloat(case: Case) -> Iterator[Diagnosis]:
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


_PICTURE_WORDS = frozenset(
    {"image", "images", "img", "imgs", "picture", "photo", "pixels", "pixel", "frame", "raw", "digit", "x"}
)
_SIZES = {1: "uint8", 2: "uint16", 4: "float32", 8: "float64"}
_SMALLEST_PIXELS = 16


def diagnose_raw_tensors(case: Case, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """What is stored as raw bytes or as lists, and is a picture or a tensor."""
    tensors = of_type(dict(case.features()), Tensor)
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values:
            continue
        if key in tensors:
            yield from _declared(case, key, tensors[key], stored)
        elif stored.kind == "bytes":
            found = string_picture(case, key, stored) if key not in settled else None
            yield from [found] if found is not None else _raw(case, key, stored)
        elif key not in settled:
            found = list_picture(case, key, stored)
            yield from [found] if found is not None else []


def _declared(case: Case, key: str, tensor: Tensor, stored: Stored) -> Iterator[Diagnosis]:
    """Raw bytes held against the dtype and the shape that the schema declares."""
    lengths = stored.lengths.counts
    if stored.kind != "bytes" or None in tensor.shape or lengths is None:
        return
    size_bytes = np.dtype(tensor.dtype).itemsize
    shape = [size for size in tensor.shape if size is not None]
    elements = math.prod(shape)
    bad = {length: n for length, n in lengths.items() if length != elements * size_bytes}
    if not bad:
        return
    length = max(bad, key=lambda each: bad[each])
    groups = case.groups_about("D406", key)
    tally = tally_of(groups) if groups else stored.tally
    sample = next((value for _, value in stored.samples if len(value) == length), b"")
    ratio = length / elements if elements else 0.0
    says = _SIZES.get(int(ratio)) if ratio.is_integer() and int(ratio) != size_bytes else None
    name = dtype_name(tensor.dtype)
    read = reshape_error(length // size_bytes, shape)
    evidence = [
        f"{count(length, 'byte')} are stored; {name} of shape {list(shape)} takes {elements * size_bytes:,}",
        f"after decode_raw as {name} TensorFlow says: {read}" if read else None,
    ]
    if says is not None:
        dtype = bytes_say(sample, int(ratio)) or says
        yield case.diagnosis(
            "H825",
            "error",
            tally,
            title=f"{named(key)} is declared as {name}, and its bytes are {dtype}",
            feature=key,
            evidence=[
                *evidence,
                f"{int(ratio)} bytes for each of {elements:,} elements",
                _reading(sample, dtype),
            ],
            ruled_out=["not the shape: the number of elements is right for another dtype"],
            likely=f"the array was {dtype} when tobytes() was called",
            do=f'array.astype("{name}").tobytes() when writing; or declare Tensor("{dtype}", …)',
            agree=False,
        )
        return
    whole = length % size_bytes == 0
    yield case.diagnosis(
        "H826",
        "error",
        tally,
        title=f"{named(key)} has another shape than {list(shape)}",
        feature=key,
        evidence=evidence,
        ruled_out=["not another dtype: no size of 1, 2, 4 or 8 bytes gives this number of elements"],
        likely=f"{length // size_bytes:,} elements were stored" if whole else None,
        do=f"declare the shape that is stored, or resize to {list(shape)} before writing",
        agree=False,
    )


def _raw(case: Case, key: str, stored: Stored) -> Iterator[Diagnosis]:
    """Raw bytes held against the height and width beside them, or against themselves."""
    samples = [value for _, value in stored.samples if value]
    if not samples or stored.texts is not None or any(map(begins_as_picture, samples)):
        return
    sized = case.raw.sized.get(key)
    if all(map(is_text, samples)):
        yield from _base64(case, key, sized) if sized is not None else ()
        return
    if sized is not None and sized.kind == "bytes" and stored.most == 1 and (sized.ratios or sized.odd):
        yield from _beside(case, key, stored, sized)
    elif all(bytes_say(sample, 8) == "float64" and bytes_say(sample, 4) is None for sample in samples):
        yield case.diagnosis(
            "H835",
            "note",
            stored.tally,
            title=f"{named(key)} holds raw float64 bytes",
            feature=key,
            evidence=[
                f"in groups of 8 the bytes of {count(len(samples), 'sample')} are numbers of ordinary size",
                _reading(samples[0], "float64"),
                "in groups of 4 they are not",
            ],
            ruled_out=["not float32: every second number would be nonsense"],
            likely="the array was float64, which is what NumPy makes unless told otherwise",
            do='tf.io.decode_raw(x, tf.float64); or write array.astype("float32").tobytes(), which is half the size',
        )


def _base64(case: Case, key: str, sized: Sized) -> Iterator[Diagnosis]:
    """Pixels that were turned into text before they were stored."""
    fits = [
        (place, shape, size) for place, shape, size in sized.shapes if size == _as_base64(int(_pixels(shape)))
    ]
    if not fits or len(fits) < len(sized.shapes):
        return
    _, shape, size = fits[0]
    tally = sized.odd
    for each in sized.ratios.values():
        tally = max(tally, each, key=lambda one: one.records)
    yield case.diagnosis(
        "H826",
        "warning",
        tally,
        title=f"{named(key)} is text: its pixels were encoded with base64",
        feature=key,
        evidence=[
            f"{count(size, 'byte')} of letters and digits, 4 for each 3 of {shape} pixels",
            "a third more than the pixels take",
        ],
        ruled_out=["not another dtype: no pixel is outside of the letters of base64"],
        likely="the bytes were made fit for JSON, and stored like that",
        do=f"tf.io.decode_base64 when reading, or write the bytes themselves to {named(key)}",
        agree=False,
    )


def _as_base64(n_bytes: int) -> int:
    return -(-n_bytes // 3) * 4


def _beside(case: Case, key: str, stored: Stored, sized: Sized) -> Iterator[Diagnosis]:
    channels = (1,) if sized.deep else (1, 3, 4)
    sample = next((value for _, value in stored.samples), b"")
    said = joined([f"{named(each)}" for each in sized.keys], "and")
    for ratio, tally in sorted(sized.ratios.items()):
        item = _item_bytes(int(ratio), sized, sample)
        if item == 1 and ratio in channels:
            continue
        shape = next((shape for _, shape, size in sized.shapes if size == ratio * _pixels(shape)), None)
        if item is None:
            continue
        dtype = bytes_say(sample, item) or _SIZES[item]
        pixels = 0 if shape is None else _pixels(shape)
        yield case.diagnosis(
            "H825",
            "warning",
            tally,
            title=f"{named(key)} has {item} bytes for each value: its bytes are {dtype}, not uint8",
            feature=key,
            evidence=[
                f"{said} say {shape}: {int(pixels):,} values, and {int(pixels * ratio):,} bytes are stored"
                if shape
                else None,
                f"the ratio is {int(ratio)}"
                + (f" for {int(ratio) // item} channels" if ratio > item else ""),
                _reading(sample, dtype),
                _after_decoding(shape, ratio),
            ],
            ruled_out=[
                "not an encoded picture: the bytes begin as none does",
                "not a cut: every length fits",
            ],
            likely=f"the array was {dtype} when tobytes() was called",
            do=f"{_to_uint8(sample, dtype)} when writing; or tf.io.decode_raw(x, tf.{dtype})",
            agree=False,
        )
    if sized.odd and sized.odd.records * 2 > stored.tally.records and _is_picture_key(key):
        place, shape, size = sized.shapes[0]
        yield case.diagnosis(
            "H826",
            "warning",
            sized.odd,
            title=f"the bytes of {named(key)} do not fit the size that is said of them",
            feature=key,
            evidence=[f"{said} say {shape}; {count(size, 'byte')} are stored (record {place.record:,})"],
            ruled_out=[
                "not another dtype: the length is no whole multiple of the pixels",
                "not an encoded picture: the bytes begin as none does",
            ],
            likely=_other_depth(shape.channels, _pixels(shape), size),
            do=f"write {said} of the array whose bytes are stored: array.shape",
            agree=False,
        )


def _to_uint8(sample: bytes, dtype: str) -> str:
    values = np.frombuffer(sample[: len(sample) // 8 * 8], np.dtype(dtype).newbyteorder("<"))
    floats = values.dtype.kind == "f" and len(values) > 0
    # What is whole was never divided by 255: class ids, for one.
    if floats and values.min() >= 0 and values.max() <= 1 and bool((values % 1 != 0).any()):
        return '(array * 255).round().astype("uint8").tobytes()'  # a bare cast would leave zeros
    return 'array.astype("uint8").tobytes()'


def _after_decoding(shape: Shape | None, ratio: float) -> str | None:
    if shape is None:
        return None
    dims = [shape.height, shape.width] + ([shape.channels] if shape.channels else [])
    said = reshape_error(int(_pixels(shape) * ratio), dims)
    return f"read as uint8, TensorFlow says at tf.reshape: {said}" if said else None


def _other_depth(channels: int | None, pixels: float, size: int) -> str | None:
    if channels and pixels:
        for other in (1, 3, 4):
            if size * channels == pixels * other:
                return f"{count(other, 'channel')} stored, where {channels} are said"
    return None


def _pixels(shape: Shape) -> float:
    return float(shape.height * shape.width * (shape.channels or 1))


def _item_bytes(ratio: int, sized: Sized, sample: bytes) -> int | None:
    """How many bytes a value has, where there are `ratio` bytes for each pixel (and channel, if that is known)."""
    if sized.deep:
        return ratio if ratio in _SIZES else None
    if ratio == 4:  # RGBA, or one float32
        return 4 if bytes_say(sample, 4) == "float32" else 1
    by_ratio = {1: 1, 3: 1, 2: 2, 6: 2, 12: 4, 16: 4, 8: 8, 24: 8, 32: 8}
    return by_ratio.get(ratio)


def _reading(sample: bytes, dtype: str) -> str | None:
    values = np.frombuffer(sample[: len(sample) // 8 * 8][:64], np.dtype(dtype).newbyteorder("<"))[:3]
    if not len(values) or not np.isfinite(values).all():
        return None
    return f"read as {dtype} they begin {', '.join(number(float(value)) for value in values)}"


def _is_picture_key(key: str) -> bool:
    return bool(_PICTURE_WORDS & set(words_of(key)))


def list_picture(
    case: Case, key: str, stored: Stored, tensorflow_error: str | None = None
) -> Diagnosis | None:
    """A picture as a list of numbers, one for each pixel and channel; None where it is something else."""
    layout = _layout(case, key, stored)
    if layout is None or stored.low < 0 or (stored.kind == "int64" and stored.high > 255):
        return None
    is_ints = stored.kind == "int64" or (stored.all_whole and stored.high <= 255)
    listed = "ints" if stored.kind == "int64" else "floats"
    return case.diagnosis(
        "H827",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{named(key)} is an image that is stored as a list of {listed}",
        feature=key,
        evidence=[
            layout.says,
            f"values from {number(stored.low)} to {number(stored.high)}",
            encoded_estimate(stored, layout, case.profile.payload_bytes) if is_ints else None,
        ],
        ruled_out=["not ragged data: the number of values is height × width × channels"],
        likely="the array was flattened and passed to a list of numbers",
        do=f"store the file's own JPEG or PNG bytes in {named(key)}; or tf.io.encode_png(array).numpy()",
        tensorflow_error=tensorflow_error,
    )


def string_picture(
    case: Case, key: str, stored: Stored, tensorflow_error: str | None = None
) -> Diagnosis | None:
    """A picture as a list of byte strings of one byte each; None where it is something else."""
    if not stored.single_bytes or stored.most < _SMALLEST_PIXELS:
        return None
    if stored.single_bytes < stored.lists:
        return None
    layout = _layout(case, key, stored)
    stored_bytes = stored.values * 3  # tag, length and the byte
    return case.diagnosis(
        "H828",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{named(key)} is stored as one string for each byte",
        feature=key,
        evidence=[
            f"up to {count(stored.most, 'string')} of one byte in a record",
            layout.says if layout is not None else None,
            f"{byte_size(stored_bytes)} with their tags; as one string {byte_size(stored.values)}",
        ],
        ruled_out=["not text: no string has more than one byte"],
        likely="bytes were iterated: bytes_list=BytesList(value=data) instead of value=[data]",
        do=f"BytesList(value=[data]) for {named(key)}: one string in a list",
        tensorflow_error=tensorflow_error,
    )


def _layout(case: Case, key: str, stored: Stored) -> Layout | None:
    """The height, width and channels of a flat list, by the keys beside it or by its length."""
    sized = case.raw.sized.get(key)
    if sized is not None and not sized.odd and sized.ratios and sized.shapes:
        allowed = (1.0,) if sized.deep else (1.0, 3.0, 4.0)
        if set(sized.ratios) <= set(allowed):
            _, shape, _ = sized.shapes[0]
            if shape.height * shape.width >= _SMALLEST_PIXELS:
                said = joined([f"{named(each)}" for each in sized.keys], "and")
                depth = shape.channels or int(next(iter(sized.ratios)))
                says = f"{said} say {shape}, and there are as many values"
                return Layout(shape.height, shape.width, depth, says)
    if not _is_picture_key(key) or not stored.is_enough:
        return None
    return pixels_of(stored.constant or 0)

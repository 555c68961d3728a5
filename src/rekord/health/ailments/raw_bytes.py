"""Pixels and tensors that are stored in another dtype, shape or form than is said of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rekord.health.ailments.bloat import Layout, encoded_estimate, pixels_of
from rekord.health.ailments.case import Case, tally_of
from rekord.health.ailments.kinds import words_of
from rekord.health.ailments.look_at_bytes import begins_as_picture, bytes_say, is_text
from rekord.health.ailments.profile import Stored
from rekord.health.ailments.raw_shapes import Shape, Sized
from rekord.health.ailments.words import byte_size, count, joined, named, number
from rekord.health.diagnosis import Diagnosis
from rekord.health.tf_stages import reshape_error
from rekord.schema import Tensor
from rekord.schema.dtypes import dtype_name

_PICTURE_WORDS = frozenset(
    {"image", "images", "img", "imgs", "picture", "photo", "pixels", "pixel", "frame", "raw", "digit", "x"}
)
_SIZES = {1: "uint8", 2: "uint16", 4: "float32", 8: "float64"}
_SMALLEST_PIXELS = 16


def diagnose(case: Case, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """What is stored as raw bytes or as lists, and is a picture or a tensor."""
    tensors = {key: feature for key, feature in case.features() if isinstance(feature, Tensor)}
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

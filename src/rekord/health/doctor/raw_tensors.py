"""Pixels and tensors whose stored dtype, shape or form is not the declared one, or larger than needed."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import ImageFormat
from rekord.health.check.float_integers import split_key_words
from rekord.health.check.rule import format_key
from rekord.health.doctor.diagnosis import Diagnosis, format_number, join_words
from rekord.health.doctor.evidence import DoctorCase, ImageShape, KindProfile, SizedKey, tally_finding_groups
from rekord.health.tensorflow.predicted_errors import reshape_error
from rekord.report.formatting import format_byte_size, format_count
from rekord.schema import Tensor, of_type
from rekord.schema.base import dtype_name

_INSPECTED_BYTES = 1 << 16
_MIN_ORDINARY_SHARE = 0.98
_MIN_ORDINARY, _MAX_ORDINARY = 1e-8, 1e8
_MIN_VALUES = 8


def is_encoded_image(data: bytes) -> bool:
    """Whether bytes start like an encoded image."""
    return bool(_core.inspect_image(data, False).format != ImageFormat.NONE)


def is_ascii_text(data: bytes) -> bool:
    """Whether the inspected bytes are all printable ASCII."""
    head = data[:_INSPECTED_BYTES]
    return head.isascii() and head.decode("ascii").isprintable()


def guess_dtype(data: bytes, item_bytes: int) -> str | None:
    """The dtype of `item_bytes` bytes under which the numbers have ordinary size; None without one.

    Floats of ordinary size use few exponents; other data does not look like that.
    """
    head = data[: min(len(data), _INSPECTED_BYTES) // item_bytes * item_bytes]
    if len(head) < _MIN_VALUES * item_bytes:
        return None
    if item_bytes == 1:
        return "uint8"
    if item_bytes == 2:
        return "uint16"
    floats = np.frombuffer(head, f"<f{item_bytes}")
    ints = np.frombuffer(head, f"<i{item_bytes}")
    with np.errstate(all="ignore"):
        size = np.abs(floats.astype(np.float64))
        ordinary = (size == 0) | ((size > _MIN_ORDINARY) & (size < _MAX_ORDINARY))
    if ordinary.mean() >= _MIN_ORDINARY_SHARE and size.any():
        return f"float{8 * item_bytes}"
    if (np.abs(ints.astype(np.float64)) < 1 << 16).mean() >= _MIN_ORDINARY_SHARE and ints.any():
        return f"int{8 * item_bytes}"
    return None


_MAX_SAMPLES = 4
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MIN_SAVED_BYTES = 64 * 1024
_MAX_SIZE_RATIO = 0.5
_MIN_LONG_LIST = 64


@dataclass(frozen=True, slots=True)
class PixelLayout:
    """The shape of an image stored as flat values, and the evidence for it."""

    height: int
    width: int
    channels: int
    evidence: str

    @property
    def values(self) -> int:
        """The number of values of the image."""
        return self.height * self.width * self.channels


def guess_square_layout(values: int) -> PixelLayout | None:
    """The square image with this number of values and 1, 3 or 4 channels; None if unlikely."""
    for channels in (1, 3, 4):
        side = math.isqrt(values // channels)
        if side >= 8 and side * side * channels == values:
            shape = f"{side} × {side}" + (f" × {channels}" if channels > 1 else "")
            return PixelLayout(side, side, channels, f"{values:,} values in every record: {shape}")
    return None


def diagnose_bloat(case: DoctorCase) -> Iterator[Diagnosis]:
    """Raw pixels that could be encoded, and lists of small numbers that could be bytes."""
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values or len(profile.kinds) > 1:
            continue
        if stored.kind == "bytes":
            yield from _diagnose_raw_pixels(case, key, stored)
        elif stored.fewest >= _MIN_LONG_LIST:
            yield from _diagnose_long_list(case, key, stored)


def _diagnose_raw_pixels(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    layout = _infer_uint8_layout(case, key, stored)
    samples = [value for _, value in stored.samples if value]
    if layout is None or any(map(is_encoded_image, samples)) or stored.total_bytes < _MIN_SAVED_BYTES:
        return
    sizes = _measure_png_sizes([np.frombuffer(value, np.uint8) for value in samples], layout)
    if sizes is None or sizes[1] > _MAX_SIZE_RATIO * sizes[0]:
        return
    raw, png, samples_used = sizes
    yield case.diagnosis(
        "H833",
        "note",
        stored.tally,
        title=f"{format_key(key)} holds raw pixels, which would be about {raw / png:.1f} times smaller encoded",
        feature=key,
        evidence=[
            layout.evidence,
            f"{format_byte_size(stored.total_bytes)} as stored; as PNG (lossless) about "
            f"{format_byte_size(int(stored.total_bytes * png / raw))} (estimate: "
            f"{format_count(samples_used, 'sample')} went from {format_byte_size(raw)} to {format_byte_size(png)})",
        ],
        ruled_out=["not encoded already: the bytes do not start like an image"],
        likely="the image was decoded before writing",
        do=f"store the original JPEG or PNG bytes in {format_key(key)}, and decode them when reading",
    )


def _infer_uint8_layout(case: DoctorCase, key: str, stored: KindProfile) -> PixelLayout | None:
    sized = case.raw.sized.get(key)
    if sized is not None and sized.kind == "bytes" and not sized.mismatched and len(sized.ratios) == 1:
        ratio = next(iter(sized.ratios))
        _, shape, _ = sized.shapes[0]
        depth = shape.channels if shape.channels is not None else int(ratio)
        if (ratio == 1.0 or not sized.has_channels) and depth in _MODES:
            return PixelLayout(
                shape.height,
                shape.width,
                depth,
                f"{format_key(sized.keys[0])} and {format_key(sized.keys[1])} give {shape}",
            )
    tensor = dict(case.features()).get(key)
    return _get_declared_layout(tensor, stored) if isinstance(tensor, Tensor) else None


def _get_declared_layout(tensor: Tensor, stored: KindProfile) -> PixelLayout | None:
    shape = [size for size in tensor.shape if size is not None]
    if np.dtype(tensor.dtype) != np.uint8 or len(shape) != len(tensor.shape) or len(shape) not in (2, 3):
        return None
    height, width, depth = (*shape, 1)[:3]
    if depth not in _MODES or list(stored.lengths.counts or ()) != [height * width * depth]:
        return None
    return PixelLayout(height, width, depth, f"the schema declares uint8 of shape {shape}")


def estimate_encoded_size(stored: KindProfile, layout: PixelLayout, payload_bytes: int) -> str | None:
    """The space a list of pixels takes, and what it would take as bytes and as PNG."""
    arrays = [value for _, value in stored.samples if stored.kind != "bytes"]
    arrays = [value.astype(np.uint8) for value in arrays if len(value) == layout.values]
    sizes = _measure_png_sizes(arrays, layout)
    if sizes is None:
        return None
    raw, png, samples_used = sizes
    now = min(_estimate_list_bytes(stored), payload_bytes)
    return (
        f"about {format_byte_size(now)} as stored; {format_byte_size(stored.values)} as raw bytes; "
        f"as PNG (lossless) about {format_byte_size(int(stored.values * png / raw))} "
        f"(estimated from {format_count(samples_used, 'sample')})"
    )


def _estimate_list_bytes(stored: KindProfile) -> int:
    """The bytes the numbers of a key take in the records, estimated from samples."""
    if stored.kind == "float":
        return stored.values * 4
    values = [value for _, value in stored.samples]
    seen = sum(len(value) for value in values)
    # A varint has 7 bits per byte; a negative number takes 10 bytes.
    spent = sum(int(_count_varint_bytes(value).sum()) for value in values)
    return int(stored.values * spent / seen) if seen else stored.values


def _count_varint_bytes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bits = np.ceil(np.log2(np.maximum(values.astype(np.float64), 1.0) + 1.0))
    return np.where(values < 0, 10, np.maximum(np.ceil(bits / 7), 1)).astype(np.int64)


def _measure_png_sizes(arrays: list[npt.NDArray[np.uint8]], layout: PixelLayout) -> tuple[int, int, int] | None:
    """(raw bytes, bytes as PNG, number) of the first few images."""
    from PIL import Image

    fitting = [array for array in arrays if len(array) == layout.values][:_MAX_SAMPLES]
    if not fitting:
        return None
    png = 0
    shape = (layout.height, layout.width) + ((layout.channels,) if layout.channels > 1 else ())
    for array in fitting:
        out = io.BytesIO()
        Image.fromarray(array.reshape(shape), _MODES[layout.channels]).save(out, "PNG")
        png += len(out.getvalue())
    return len(fitting) * layout.values, png, len(fitting)


def _diagnose_long_list(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    small = stored.low >= 0 and stored.high <= 255
    if not small or not (stored.kind == "int64" or stored.is_all_integers):
        return
    now = _estimate_list_bytes(stored)
    if now < _MIN_SAVED_BYTES or stored.values > 0.75 * now:
        return
    yield case.diagnosis(
        "H834",
        "note",
        stored.tally,
        title=f"{format_key(key)} holds numbers from 0 to 255 in lists that take {now / stored.values:.1f} "
        "bytes per value",
        feature=key,
        evidence=[
            f"{format_count(stored.values, 'value')}, at least {stored.fewest:,} per record",
            f"about {format_byte_size(now)} as stored, {format_byte_size(stored.values)} as byte strings "
            f"(estimated from {format_count(len(stored.samples), 'sample')})",
        ],
        do=f'store np.asarray(values, "uint8").tobytes() in {format_key(key)}, and read tf.io.decode_raw(x, '
        "tf.uint8)",
    )


_IMAGE_WORDS = frozenset(
    {"image", "images", "img", "imgs", "picture", "photo", "pixels", "pixel", "frame", "raw", "digit", "x"}
)
_NOT_ENCODED = "not an encoded image: the bytes do not start like one"
_DTYPES_BY_SIZE = {1: "uint8", 2: "uint16", 4: "float32", 8: "float64"}
_MIN_PIXELS = 16


def diagnose_raw_tensors(case: DoctorCase, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """Images and tensors stored as raw bytes or as lists."""
    tensors = of_type(dict(case.features()), Tensor)
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values:
            continue
        if key in tensors:
            yield from _diagnose_declared_tensor(case, key, tensors[key], stored)
        elif stored.kind == "bytes":
            found = diagnose_string_image(case, key, stored) if key not in settled else None
            yield from [found] if found is not None else _diagnose_raw_bytes(case, key, stored)
        elif key not in settled:
            found = diagnose_list_image(case, key, stored)
            yield from [found] if found is not None else []


def _diagnose_declared_tensor(case: DoctorCase, key: str, tensor: Tensor, stored: KindProfile) -> Iterator[Diagnosis]:
    """Raw bytes checked against the declared dtype and shape."""
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
    groups = case.find_groups("D406", key)
    tally = tally_finding_groups(groups) if groups else stored.tally
    sample = next((value for _, value in stored.samples if len(value) == length), b"")
    ratio = length / elements if elements else 0.0
    other_dtype = _DTYPES_BY_SIZE.get(int(ratio)) if ratio.is_integer() and int(ratio) != size_bytes else None
    name = dtype_name(tensor.dtype)
    read = reshape_error(length // size_bytes, shape)
    evidence = [
        f"{format_count(length, 'byte')} stored; {name} of shape {list(shape)} takes {elements * size_bytes:,}",
        f"after decode_raw as {name}, TensorFlow raises: {read}" if read else None,
    ]
    if other_dtype is not None:
        dtype = guess_dtype(sample, int(ratio)) or other_dtype
        yield case.diagnosis(
            "H825",
            "error",
            tally,
            title=f"{format_key(key)} is declared as {name}, but its bytes are {dtype}",
            feature=key,
            evidence=[
                *evidence,
                f"{int(ratio)} bytes per element, for {elements:,} elements",
                _describe_values(sample, dtype),
            ],
            ruled_out=["not the shape: the number of elements matches with another dtype"],
            likely=f"the array was {dtype} when tobytes() was called",
            do=f'array.astype("{name}").tobytes() when writing; or declare Tensor("{dtype}", …)',
        )
        return
    whole = length % size_bytes == 0
    yield case.diagnosis(
        "H826",
        "error",
        tally,
        title=f"{format_key(key)} does not have the shape {list(shape)}",
        feature=key,
        evidence=evidence,
        ruled_out=["not another dtype: no item size of 1, 2, 4 or 8 bytes gives this number of elements"],
        likely=f"{length // size_bytes:,} elements were stored" if whole else None,
        do=f"declare the stored shape, or resize to {list(shape)} before writing",
    )


def _diagnose_raw_bytes(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    """Raw bytes checked against the height and width in the record, or on their own."""
    samples = [value for _, value in stored.samples if value]
    if not samples or stored.texts is not None or any(map(is_encoded_image, samples)):
        return
    sized = case.raw.sized.get(key)
    if all(map(is_ascii_text, samples)):
        yield from _diagnose_base64(case, key, sized) if sized is not None else ()
        return
    if sized is not None and sized.kind == "bytes" and stored.most == 1 and (sized.ratios or sized.mismatched):
        yield from _diagnose_sized_bytes(case, key, stored, sized)
    elif all(guess_dtype(sample, 8) == "float64" and guess_dtype(sample, 4) is None for sample in samples):
        yield case.diagnosis(
            "H835",
            "note",
            stored.tally,
            title=f"{format_key(key)} holds raw float64 bytes",
            feature=key,
            evidence=[
                f"read as float64, the bytes of {format_count(len(samples), 'sample')} are numbers of ordinary size",
                _describe_values(samples[0], "float64"),
                "read as float32, they are not",
            ],
            ruled_out=["not float32: every second number would be meaningless"],
            likely="the array was float64, the default of NumPy",
            do='tf.io.decode_raw(x, tf.float64); or write array.astype("float32").tobytes(), half the size',
            agree=True,
        )


def _diagnose_base64(case: DoctorCase, key: str, sized: SizedKey) -> Iterator[Diagnosis]:
    """Pixels stored as base64 text."""
    fits = [
        (place, shape, size)
        for place, shape, size in sized.shapes
        if size == (-(-int(_count_pixels(shape)) // 3) * 4)
    ]
    if not fits or len(fits) < len(sized.shapes):
        return
    _, shape, size = fits[0]
    tally = sized.mismatched
    for each in sized.ratios.values():
        tally = max(tally, each, key=lambda one: one.records)
    yield case.diagnosis(
        "H826",
        "warning",
        tally,
        title=f"{format_key(key)} is text: its pixels are base64-encoded",
        feature=key,
        evidence=[
            f"{format_count(size, 'byte')} of letters and digits, 4 for every 3 of {shape} pixels",
            "a third more than the raw pixels",
        ],
        ruled_out=["not another dtype: all bytes are base64 characters"],
        likely="the bytes were encoded for JSON and stored that way",
        do=f"use tf.io.decode_base64 when reading, or write the raw bytes to {format_key(key)}",
    )


def _diagnose_sized_bytes(case: DoctorCase, key: str, stored: KindProfile, sized: SizedKey) -> Iterator[Diagnosis]:
    channels = (1,) if sized.has_channels else (1, 3, 4)
    sample = next((value for _, value in stored.samples), b"")
    sources = join_words([format_key(each) for each in sized.keys], "and")
    for ratio, tally in sorted(sized.ratios.items()):
        item = _infer_item_bytes(int(ratio), sized, sample)
        if item == 1 and ratio in channels:
            continue
        shape = next((shape for _, shape, size in sized.shapes if size == ratio * _count_pixels(shape)), None)
        if item is None:
            continue
        dtype = guess_dtype(sample, item) or _DTYPES_BY_SIZE[item]
        pixels = 0 if shape is None else _count_pixels(shape)
        yield case.diagnosis(
            "H825",
            "warning",
            tally,
            title=f"{format_key(key)} has {item} bytes per value: its bytes are {dtype}, not uint8",
            feature=key,
            evidence=[
                f"{sources} give {shape}: {int(pixels):,} values, but {int(pixels * ratio):,} bytes are stored"
                if shape
                else None,
                f"the ratio is {int(ratio)}" + (f" for {int(ratio) // item} channels" if ratio > item else ""),
                _describe_values(sample, dtype),
                _describe_decoded_shape(shape, ratio),
            ],
            ruled_out=[_NOT_ENCODED, "not truncation: every length matches"],
            likely=f"the array was {dtype} when tobytes() was called",
            do=f"{_describe_uint8_conversion(sample, dtype)} when writing; or tf.io.decode_raw(x, tf.{dtype})",
        )
    if sized.mismatched and sized.mismatched.records * 2 > stored.tally.records and _is_image_key(key):
        place, shape, size = sized.shapes[0]
        yield case.diagnosis(
            "H826",
            "warning",
            sized.mismatched,
            title=f"bytes of {format_key(key)} do not match the image size in the record",
            feature=key,
            evidence=[f"{sources} give {shape}; {format_count(size, 'byte')} stored (record {place.record:,})"],
            ruled_out=["not another dtype: the length is not a multiple of the pixels", _NOT_ENCODED],
            likely=_describe_other_depth(shape.channels, _count_pixels(shape), size),
            do=f"write {sources} from the stored array: array.shape",
        )


def _describe_uint8_conversion(sample: bytes, dtype: str) -> str:
    values = np.frombuffer(sample[: len(sample) // 8 * 8], np.dtype(dtype).newbyteorder("<"))
    floats = values.dtype.kind == "f" and len(values) > 0
    # Integers were never divided by 255: class ids, for example.
    if floats and values.min() >= 0 and values.max() <= 1 and bool((values % 1 != 0).any()):
        return '(array * 255).round().astype("uint8").tobytes()'  # a bare cast would leave zeros
    return 'array.astype("uint8").tobytes()'


def _describe_decoded_shape(shape: ImageShape | None, ratio: float) -> str | None:
    if shape is None:
        return None
    dims = [shape.height, shape.width] + ([shape.channels] if shape.channels else [])
    raised = reshape_error(int(_count_pixels(shape) * ratio), dims)
    return f"read as uint8, tf.reshape raises: {raised}" if raised else None


def _describe_other_depth(channels: int | None, pixels: float, size: int) -> str | None:
    if channels and pixels:
        for other in (1, 3, 4):
            if size * channels == pixels * other:
                return f"{format_count(other, 'channel')} stored, but the record gives {channels}"
    return None


def _count_pixels(shape: ImageShape) -> float:
    return float(shape.height * shape.width * (shape.channels or 1))


def _infer_item_bytes(ratio: int, sized: SizedKey, sample: bytes) -> int | None:
    """Bytes per value, given `ratio` bytes per pixel (and channel, if that is known)."""
    if sized.has_channels:
        return ratio if ratio in _DTYPES_BY_SIZE else None
    if ratio == 4:  # RGBA, or one float32
        return 4 if guess_dtype(sample, 4) == "float32" else 1
    by_ratio = {1: 1, 3: 1, 2: 2, 6: 2, 12: 4, 16: 4, 8: 8, 24: 8, 32: 8}
    return by_ratio.get(ratio)


def _describe_values(sample: bytes, dtype: str) -> str | None:
    values = np.frombuffer(sample[: len(sample) // 8 * 8][:64], np.dtype(dtype).newbyteorder("<"))[:3]
    if not len(values) or not np.isfinite(values).all():
        return None
    return f"read as {dtype}, they start with {', '.join(format_number(float(value)) for value in values)}"


def _is_image_key(key: str) -> bool:
    return bool(_IMAGE_WORDS & set(split_key_words(key)))


def diagnose_list_image(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis | None:
    """An image as a list of numbers, one per pixel and channel; None if it is something else."""
    layout = _infer_layout(case, key, stored)
    if layout is None or stored.low < 0 or (stored.kind == "int64" and stored.high > 255):
        return None
    is_ints = stored.kind == "int64" or (stored.is_all_integers and stored.high <= 255)
    listed = "integers" if stored.kind == "int64" else "floats"
    return case.stored_diagnosis(
        "H827",
        key,
        stored,
        tensorflow_error,
        title=f"{format_key(key)} is an image stored as a list of {listed}",
        evidence=[
            layout.evidence,
            f"values from {format_number(stored.low)} to {format_number(stored.high)}",
            estimate_encoded_size(stored, layout, case.profile.payload_bytes) if is_ints else None,
        ],
        ruled_out=["not ragged data: the number of values is height × width × channels"],
        likely="the array was flattened into a list of numbers",
        do=f"store the original JPEG or PNG bytes in {format_key(key)}; or tf.io.encode_png(array).numpy()",
    )


def diagnose_string_image(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis | None:
    """An image as a list of single-byte strings; None if it is something else."""
    if not stored.single_bytes or stored.most < _MIN_PIXELS or stored.single_bytes < stored.lists:
        return None
    layout = _infer_layout(case, key, stored)
    stored_bytes = stored.values * 3  # tag, length and the byte
    return case.stored_diagnosis(
        "H828",
        key,
        stored,
        tensorflow_error,
        title=f"{format_key(key)} is stored as one string per byte",
        evidence=[
            f"up to {format_count(stored.most, 'string')} of one byte per record",
            layout.evidence if layout is not None else None,
            f"{format_byte_size(stored_bytes)} including tags; {format_byte_size(stored.values)} as one string",
        ],
        ruled_out=["not text: no string has more than one byte"],
        likely="bytes were iterated: bytes_list=BytesList(value=data) instead of value=[data]",
        do=f"BytesList(value=[data]) for {format_key(key)}: a list with one string",
    )


def _infer_layout(case: DoctorCase, key: str, stored: KindProfile) -> PixelLayout | None:
    """The height, width and channels of a flat list, from other keys or from its length."""
    sized = case.raw.sized.get(key)
    if sized is not None and not sized.mismatched and sized.ratios and sized.shapes:
        allowed = (1.0,) if sized.has_channels else (1.0, 3.0, 4.0)
        if set(sized.ratios) <= set(allowed):
            _, shape, _ = sized.shapes[0]
            if shape.height * shape.width >= _MIN_PIXELS:
                sources = join_words([format_key(each) for each in sized.keys], "and")
                depth = shape.channels or int(next(iter(sized.ratios)))
                evidence = f"{sources} give {shape}, which matches the number of values"
                return PixelLayout(shape.height, shape.width, depth, evidence)
    if not _is_image_key(key) or not stored.has_enough_records:
        return None
    return guess_square_layout(stored.constant or 0)

"""The records, bytes and shards that a conversion will write, estimated from a sample of encoded rows."""

from __future__ import annotations

import io
import math
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from rekord import _core
from rekord.codec.decode import decode
from rekord.conversion.derive import Derivation
from rekord.conversion.driver import Conversion
from rekord.conversion.encode_rows import BadRows, RowEncoding, TransformedLayout
from rekord.conversion.mapped_rows import MappedOutputs, estimate_values_bytes
from rekord.conversion.plan import ConversionJob
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError, error
from rekord.layouts.base import RowRemark
from rekord.location import Location
from rekord.report.formatting import format_byte_size, format_count
from rekord.schema import Feature, Image, Schema, of_type
from rekord.sources.base import Chunk, ColumnChunk, full_path, is_partitioned
from rekord.sources.image_folder import is_image_name
from rekord.storage import raw_files
from rekord.storage.publication import exists
from rekord.storage.router import is_remote
from rekord.storage.transaction import Transaction
from rekord.transforms.base import is_numeric, is_tensor
from rekord.transforms.chain import Chain
from rekord.transforms.images import Decode, Normalize

SAMPLE_ROWS = 64
SAMPLE_BYTES = 16 << 20
SAMPLE_PARTS = 8
"""Limits of the sample: rows, bytes, and parts of the source that it is taken from."""

COMPRESSED_SAMPLE_ROWS = 4096
"""The rows if they will be compressed and cost little: deflate finds repetitions in 32 KiB."""

_IN_MEMORY_SOURCES = ("columns", "pandas", "polars", "arrow")
_MAX_FILE_BYTES = 64 << 20
_COUNTED_VALUES = 4096
_CRC_BYTES = 4
_MAGIC = ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG", "PNG"))


@dataclass(slots=True)
class RowSample:
    """The sampled rows, encoded and measured."""

    rows: int = 0
    records: int = 0
    bad: int = 0
    first_bad: RekordError | None = None
    framed_bytes: int = 0
    key_bytes: Counter[str] = field(default_factory=Counter)  # of each record key
    payloads: list[bytes] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)  # of the same rows and of more, if they will be compressed
    image_bytes: int = 0  # of the encoded images in the rows, without masks
    image_formats: Counter[str] = field(default_factory=Counter)


def is_sampleable(job: ConversionJob) -> bool:
    """Whether sampling consumes no rows: files, and data in memory."""
    source: Any = job.source
    if getattr(source, "first", ()):
        return True
    while hasattr(source, "source"):  # without its limit
        source = source.source
    return is_partitioned(source) or hasattr(source, "root") or source.kind in _IN_MEMORY_SOURCES


def sample_rows(job: ConversionJob, known_rows: int | None) -> RowSample:
    """Rows from the beginnings of evenly spaced parts of the source. A source that fails ends the sample."""
    sample = RowSample()
    quiet = replace(job, on_bad_row="reject", verify="headers", index=(), shuffle=False)
    bad = SilentBadRows()
    try:
        measured = 0
        for chunks, rows, most_bytes, measured_rows in _iter_sample_points(job, known_rows):
            measured += measured_rows
            encoding = RowEncoding(quiet, bad)
            taken = _limit_chunks(chunks, rows, most_bytes, sample, as_bytes=job.function is None)
            for piece in encoding.pieces(taken):
                sample.records += len(piece.lengths)
                sample.framed_bytes += int(piece.lengths.sum())
                if job.compression != "none" and piece.holes is None:
                    sample.frames.append(bytes(piece.frames))
                if piece.holes is None and not job.schema.is_sequence:
                    _measure_key_bytes(sample, piece.frames, piece.lengths, measured)
            sample.rows += encoding.rows
    except RekordError as failure:
        sample.first_bad = failure
    sample.bad = bad.count
    sample.first_bad = bad.first or sample.first_bad
    return sample


class SilentBadRows(BadRows):
    """Counts bad rows and keeps the first error."""

    def __init__(self) -> None:
        super().__init__("reject")
        self.count = 0
        self.first: RekordError | None = None

    def reject(self, failure: RekordError, place: Location) -> None:
        self.count += 1
        if self.first is None:
            super().reject(failure, place)
            self.first = failure

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        pass

    def take_first(self) -> RekordError | None:
        """The first error, which is then forgotten."""
        first, self.first = self.first, None
        return first


def _iter_sample_points(
    job: ConversionJob, known_rows: int | None
) -> Iterator[tuple[Iterator[Chunk], int, int, int]]:
    """Iterators over the source, each with the number of rows and bytes to take, and of rows to measure by key."""
    source: Any = job.source
    is_cheap = job.function is None and not isinstance(job.layout, TransformedLayout)
    most_rows = COMPRESSED_SAMPLE_ROWS if job.compression != "none" and is_cheap else SAMPLE_ROWS
    if getattr(source, "first", ()):
        yield iter(source.first), most_rows, SAMPLE_BYTES, SAMPLE_ROWS  # a function is not called twice for a row
        return
    if not is_partitioned(source):
        yield source.rows(), most_rows, SAMPLE_BYTES, SAMPLE_ROWS
        return
    parts = source.parts()
    if known_rows is None or known_rows > most_rows:
        # Smaller parts give more places to sample from.
        parts = source.parts(max(1, sum(part.source_bytes for part in parts) // SAMPLE_PARTS))
    count = min(len(parts), SAMPLE_PARTS)
    chosen = [parts[i * len(parts) // count] for i in range(count)]
    for part in chosen:
        rows, measured = [max(1, most // len(chosen)) for most in (most_rows, SAMPLE_ROWS)]
        yield source.read(part), rows, SAMPLE_BYTES // len(chosen), measured


def _limit_chunks(
    chunks: Iterator[Chunk], rows: int, most_bytes: int, sample: RowSample, *, as_bytes: bool
) -> Iterator[Chunk]:
    left_rows, left_bytes = rows, most_bytes
    for chunk in chunks:
        if isinstance(chunk, ColumnChunk):
            kept = min(chunk.rows, left_rows)
            left_rows -= kept
            yield chunk.slice(0, kept)
        else:
            left_rows -= 1
            if isinstance(chunk.values, (RekordError, MappedOutputs)):
                left_bytes -= estimate_values_bytes(chunk.values)
                yield chunk
            else:
                left_bytes -= _count_images(chunk.values, sample)
                yield chunk._replace(values=load_files(chunk.values)) if as_bytes else chunk
        if left_rows <= 0 or left_bytes <= 0:
            return


def _count_images(values: Mapping[str, Any], sample: RowSample) -> int:
    """Count the encoded images of a row; returns the bytes of the row."""
    total = 0
    for name, value in values.items():
        if isinstance(value, PurePath):
            size_bytes = _get_file_bytes(value)
            format = _infer_format(value) if is_image_name(value.name) else None
        elif isinstance(value, bytes):
            size_bytes = len(value)
            format = next((kind for magic, kind in _MAGIC if value.startswith(magic)), None)
        else:
            size_bytes, format = int(getattr(value, "nbytes", 8)), None
        total += size_bytes
        if format is not None and name != "mask":
            sample.image_formats[format] += 1
            sample.image_bytes += size_bytes
    return total


def _infer_format(path: PurePath) -> str:
    ending = path.suffix[1:].upper()
    return "JPEG" if ending in ("JPG", "JPE", "JFIF") else ending


def _get_file_bytes(path: PurePath) -> int:
    try:
        return raw_files.getsize(str(path))
    except OSError:
        return 0


def load_files(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its files read, so that its frame is complete; an unreadable file stays a path."""
    read = dict(values)
    for name, value in values.items():
        if isinstance(value, PurePath) and 0 < _get_file_bytes(value) <= _MAX_FILE_BYTES:
            with suppress(OSError), raw_files.open_binary(str(value)) as file:
                read[name] = file.read(_MAX_FILE_BYTES)
    return read


def iter_payloads(frames: Any, lengths: Any) -> Iterator[bytes]:
    """The payloads of frames of these lengths."""
    view = memoryview(frames).cast("B")
    begin = 0
    for length in lengths.tolist():
        yield bytes(view[begin + _core.HEADER_BYTES : begin + length - _CRC_BYTES])
        begin += length


def _measure_key_bytes(sample: RowSample, frames: Any, lengths: Any, most: int) -> None:
    """Add up the bytes of each record key, until `most` payloads are in the sample."""
    for payload in islice(iter_payloads(frames, lengths), max(0, most - len(sample.payloads))):
        sample.payloads.append(payload)
        for key, size_bytes in _iter_key_sizes(payload):
            sample.key_bytes[key] += size_bytes


def _iter_key_sizes(payload: bytes) -> Iterator[tuple[str, int]]:
    decoded: Any = decode(payload)
    if not isinstance(decoded, dict):
        return
    for key, value in decoded.items():
        if isinstance(value, list):
            yield key, sum(len(one) for one in value)
        elif value is not None and value.dtype == np.int64:
            yield key, _sum_varint_bytes(value)
        elif value is not None:
            yield key, int(value.nbytes)


def _sum_varint_bytes(values: Any) -> int:
    some = values.ravel()[:_COUNTED_VALUES].tolist()
    each = [10 if value < 0 else max(1, -(-value.bit_length() // 7)) for value in some]
    return sum(each) * len(values) // max(1, len(some))


_MIN_REPORTED_RATIO = 1.5  # times as large


def find_size_warnings(job: ConversionJob, sample: RowSample, rows: int | None) -> Iterator[tuple[str, str]]:
    """Image columns that transforms make larger than the encoded images, each with a line that reports it."""
    layout = job.layout
    if not isinstance(layout, TransformedLayout) or not sample.payloads or job.schema.is_sequence:
        return
    columns, after = layout.layout.schema.context, job.schema.context
    raw = [name for name, one in columns.items() if one.is_image and name in after and is_tensor(after[name])]
    if raw:
        yield from _find_decoded_columns(job, layout, sample, raw, rows)
    images = list(of_type(columns, Image))
    if len(images) == 1 and images[0] in of_type(after, Image) and sample.image_formats and sample.rows:
        name = images[0]
        stored = _estimate_column_bytes(sample, name, after[name])
        given = sample.image_bytes / sample.rows
        if stored / given >= _MIN_REPORTED_RATIO:
            kind = sample.image_formats.most_common(1)[0][0]
            yield (
                name,
                f"`{name}` grows from {_format_total(given, rows)} of {kind} to {_format_total(stored, rows)} "
                f"({stored / given:.1f}×); store the original images and transform them when reading: "
                "split.transform(…)",
            )


def _find_decoded_columns(
    job: ConversionJob, layout: TransformedLayout, sample: RowSample, raw: list[str], rows: int | None
) -> Iterator[tuple[str, str]]:
    """Raw pixels, compared with the same images without the step that decodes them."""
    steps = layout.chain.steps
    last = next((step for step in steps if isinstance(step, (Decode, Normalize))), None)
    if last is None:
        return  # a custom transform: what the images would be without it is unknown
    encoded = Chain(tuple([step for step in steps if not isinstance(step, (Decode, Normalize))]))
    other = replace(job, layout=TransformedLayout(layout.layout, encoded), index=())
    compared = sample_rows(other, rows)
    if not compared.payloads:
        return
    for name in raw:
        feature = job.schema.context[name]
        stored = _estimate_column_bytes(sample, name, feature)
        packed = _estimate_column_bytes(compared, name, other.schema.context[name])
        if not packed or stored / packed < _MIN_REPORTED_RATIO:
            continue
        kind = _find_common_format(compared, other.schema, name)
        yield (
            name,
            f"`{name}`: raw {feature.dtype} pixels take {_format_total(stored, rows)}, {kind} would take "
            f"{_format_total(packed, rows)} ({stored / packed:.1f}×); store {kind} and apply `{last.name}` when "
            "reading: split.transform(…)",
        )


def _estimate_column_bytes(sample: RowSample, name: str, feature: Feature) -> float:
    """Average bytes of a column per record."""
    return sample.key_bytes[feature.key or name] / max(1, len(sample.payloads))


def _find_common_format(sample: RowSample, schema: Schema, name: str) -> str:
    """The most common format of the encoded images."""
    from rekord.codec.images.inspect import format_display_name
    from rekord.codec.images.store import detect_image_format

    formats = [detect_image_format(decode(payload, schema)[name] or b"") for payload in sample.payloads[:4]]
    most = Counter([one for one in formats if one is not None]).most_common(1)
    return format_display_name(most[0][0]) if most else "images"


def _format_total(each: float, rows: int | None) -> str:
    """The bytes of all rows, or per record if the number of rows is unknown."""
    if rows is None:
        return f"{format_byte_size(round(each))} per record"
    return f"about {format_byte_size(round(each * rows))}"


_SAME_SIZE_SOURCES = ("webdataset", "records")  # records will be about as large as these files
_MIN_RAW_VALUES = 1024
_MIN_IMAGE_SIDE = 8
_MIN_FLAT_RAW_VALUES = 16_384
_COMPARED_PAYLOADS = 4
_COMPRESSED_BYTES = 4 << 20
_PACKED_BYTES = 1 << 20
_UNPACKED_BYTES = 8 << 20
_KEY_BYTES = 12  # overhead of a key and its list


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The estimates. None stands for what is unknown without reading everything."""

    records: int | None
    exact: bool  # whether every row gives one record, and their number is known
    framed_bytes: int | None
    file_bytes: int | None  # the same, after compression
    shards: Mapping[str, int]  # of each split; empty if the source determines the splits
    shares: tuple[tuple[str, float], ...]  # of the record keys in the bytes, largest first
    advice: tuple[str, ...]
    sampled_rows: int
    bad_rows: int  # among them
    first_bad: RekordError | None
    free_bytes: int | None
    splits: tuple[str, ...] = ()

    @property
    def needed_bytes(self) -> int | None:
        """The shards, and the staged frames that they are assembled from."""
        return None if self.file_bytes is None or self.framed_bytes is None else self.file_bytes + self.framed_bytes

    def lines(self) -> Iterator[str]:
        """The forecast as lines of text."""
        parts = ["unknown number of records"]
        if self.records is not None:
            parts = [("" if self.exact else "about ") + format_count(self.records, "record")]
        if self.file_bytes is not None:
            parts.append(f"about {format_byte_size(self.file_bytes)}")
        if self.shards:
            total = sum(self.shards.values())
            each = ", ".join(f"{name} {number:,}" for name, number in self.shards.items())
            parts.append(format_count(total, "shard") + (f" ({each})" if len(self.shards) > 1 else ""))
        elif self.splits:
            parts.append(f"splits of the source: {', '.join(self.splits)}")
        yield "forecast: " + " · ".join(parts)
        largest = [f"{key} {share:.0%}" for key, share in self.shares[:3] if share >= 0.01]
        if largest and len(self.shares) > 1:
            yield f"  largest keys: {', '.join(largest)}"
        for line in self.advice:
            yield f"  {line}"
        if self.bad_rows:
            code = f", first error {self.first_bad.code}" if self.first_bad is not None else ""
            yield f"  bad rows: {self.bad_rows:,} of {self.sampled_rows:,} sampled{code}"
        needed = self.needed_bytes
        if needed is not None and self.free_bytes is not None and needed > self.free_bytes:
            free = format_byte_size(self.free_bytes)
            yield f"  disk space may run out: up to {format_byte_size(needed)} needed while writing, {free} free"

    def to_dict(self) -> dict[str, Any]:
        """The estimates as a JSON document."""
        return {
            "records": self.records,
            "bytes": self.file_bytes,
            "shards": dict(self.shards) or None,
            "shares": {key: round(share, 4) for key, share in self.shares},
            "advice": list(self.advice),
            "sampled_rows": self.sampled_rows,
            "bad_rows": self.bad_rows,
            "free_bytes": self.free_bytes,
        }


def forecast(conversion: Conversion) -> Forecast:
    """Estimate from a sample of rows. Nothing is written, and no row is consumed."""
    job = conversion.job
    sample = sample_rows(job, conversion.rows) if is_sampleable(job) else RowSample()
    each_bytes = sample.framed_bytes / sample.records if sample.records else _compute_fixed_bytes(job.schema)
    records = _estimate_records(conversion, sample, each_bytes)
    framed = None if records is None or each_bytes is None else round(records * each_bytes)
    total = sum(sample.key_bytes.values())
    warnings = dict(find_size_warnings(job, sample, records))
    return Forecast(
        records=records,
        exact=records is not None and records == conversion.rows,
        framed_bytes=framed,
        file_bytes=None if framed is None else round(framed * _measure_compression(job, sample)),
        shards=_estimate_shards(job, records, framed),
        shares=tuple([(key, size / total) for key, size in sample.key_bytes.most_common() if total]),
        advice=(*warnings.values(), *_suggest_image_encoding(job, sample, warnings)),
        sampled_rows=sample.rows,
        bad_rows=sample.bad,
        first_bad=sample.first_bad,
        free_bytes=get_free_bytes(conversion.out),
        splits=job.splits.names if job.splits.from_source else (),
    )


def is_complete(wanted: Conversion | Derivation) -> bool:
    """Whether exactly this dataset exists already."""
    try:
        return read_manifest(wanted.out, wanted.storage).plan == wanted.plan.id
    except RekordError:
        return False


def has_staging(wanted: Conversion | Derivation) -> bool:
    """Whether an earlier run left files to resume from."""
    staging = Transaction(wanted.out, wanted.storage).staging(wanted.plan.id)
    return exists(wanted.storage, staging.folder)


def check_free_space(conversion: Conversion, expected: Forecast) -> None:
    """Refuse what the disk certainly cannot hold. An unfinished conversion already occupies its space."""
    if expected.file_bytes is None or expected.free_bytes is None or expected.needed_bytes is None:
        return
    if expected.needed_bytes <= 2 * expected.free_bytes or has_staging(conversion):
        return
    size = format_byte_size(expected.file_bytes)
    failure = disk_space_error(f"about {size} for the shards, and as much again while writing", expected.free_bytes)
    failure.location = Location(path=conversion.out)
    raise failure


def disk_space_error(expected: str, free_bytes: int) -> RekordError:
    """The error for an output that the disk cannot hold."""
    found = f"{format_byte_size(free_bytes)} free"
    return error("X519", expected=expected, found=found, do="write to another disk, or free some space")


def _estimate_records(conversion: Conversion, sample: RowSample, each_bytes: float | None) -> int | None:
    if conversion.rows is not None:
        if sample.rows and not sample.records:
            return None  # no sampled row can be written, which says nothing about the rest
        return round(conversion.rows * (sample.records / sample.rows if sample.rows else 1.0))
    source: Any = conversion.job.source
    if source.kind == "text":
        rows = _estimate_lines(source)
        return rows if rows is None else min(rows, getattr(source, "limit", rows))
    if source.kind in _SAME_SIZE_SOURCES and is_partitioned(source) and each_bytes:
        unpacked_bytes = _estimate_unpacked_bytes(source)
        return None if unpacked_bytes is None else max(1, round(unpacked_bytes / each_bytes))
    return None


def _estimate_lines(source: Any) -> int | None:
    """The number of lines of compressed texts, from the beginning of the largest file."""
    files = source.facts().files
    largest = max(files, key=lambda file: file.size_bytes)
    head = _read_unpacked_head(full_path(source, largest.path))
    if head is None or not head.data:
        return None
    rows = sum(1 for line in head.data.splitlines() if line)
    packed_bytes: int = sum(file.size_bytes for file in files)
    return max(1, round(packed_bytes * rows / head.packed_bytes))


def _estimate_unpacked_bytes(source: Any) -> float | None:
    """The size of all files after decompression; None if it cannot be estimated."""
    total = 0.0
    ratio = None
    for file in sorted(source.facts().files, key=lambda file: -file.size_bytes):
        if file.path.endswith((".bz2", ".xz")):
            return None
        if file.path.endswith((".gz", ".tgz", ".zz")):
            head = _read_unpacked_head(full_path(source, file.path)) if ratio is None else None
            if ratio is None and head is None:
                return None
            ratio = ratio if head is None else len(head.data) / head.packed_bytes
            total += file.size_bytes * (ratio or 1.0)
        else:
            total += file.size_bytes
    return total


class _UnpackedHead(NamedTuple):
    """The beginning of a compressed file: its bytes, and how many the file has for them."""

    data: bytes
    packed_bytes: int


def _read_unpacked_head(path: str) -> _UnpackedHead | None:
    """The beginning of a gzip or zlib file; None if it cannot be read."""
    try:
        with raw_files.open_binary(path) as file:
            packed = file.read(_PACKED_BYTES)
        reader = zlib.decompressobj(32 + zlib.MAX_WBITS)
        data = reader.decompress(packed, _UNPACKED_BYTES)
    except (OSError, zlib.error):
        return None
    used = len(packed) - len(reader.unconsumed_tail) - len(reader.unused_data)
    return _UnpackedHead(data, used) if used > 0 else None


def _estimate_shards(job: ConversionJob, records: int | None, framed_bytes: int | None) -> dict[str, int]:
    rule = job.splits
    if rule.from_source:
        return {}
    if job.cut.shards is not None:
        return dict.fromkeys(rule.names, job.cut.shards)
    if records is None or framed_bytes is None:
        return {}
    ratios = rule.ratios or (1.0,)
    return {
        name: job.cut.count(round(framed_bytes * ratio), max(1, round(records * ratio)))
        for name, ratio in zip(rule.names, ratios, strict=True)
    }


def _compute_fixed_bytes(schema: Schema) -> float | None:
    """The size of a record if all columns have a fixed one; None otherwise."""
    if schema.is_sequence:
        return None
    total = float(_core.FRAMING_BYTES)
    for name, feature in schema.context.items():
        if not _holds_measurements(feature) or None in feature.shape:
            return None
        width = np.dtype(feature.dtype).itemsize if is_tensor(feature) else 4
        total += math.prod(size or 0 for size in feature.shape) * width + len(feature.key or name) + _KEY_BYTES
    return total


def _holds_measurements(feature: Feature) -> bool:
    """Whether values are numbers other than class ids: pixels may be among them."""
    return is_numeric(feature) and feature.class_count is None


def _measure_compression(job: ConversionJob, sample: RowSample) -> float:
    """The compressed size as a fraction of the original, measured on the sample."""
    if job.compression == "none" or not sample.frames:
        return 1.0
    data = b"".join(sample.frames)[:_COMPRESSED_BYTES]
    return len(zlib.compress(data)) / len(data) if data else 1.0


def get_free_bytes(out: str) -> int | None:
    """The free space on the disk of a path that may not exist yet; None if unknown."""
    if is_remote(out):
        return None
    place = os.path.abspath(out)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def _suggest_image_encoding(job: ConversionJob, sample: RowSample, reported: Collection[str]) -> Iterator[str]:
    """Advice about pixels that are stored raw, unless they are `reported` already."""
    if job.schema.is_sequence:
        return
    columns = {name: one for name, one in job.schema.context.items() if _holds_measurements(one)}
    rows = [decode(payload, job.schema) for payload in sample.payloads[:_COMPARED_PAYLOADS] if columns]
    imaged = sample.image_bytes / sample.rows if sample.image_formats else 0.0
    for name in [name for name in columns if name not in reported] if rows else ():
        arrays = [np.asarray(row[name]) for row in rows if row.get(name) is not None]
        if not arrays or not all(_is_raw(array) for array in arrays):
            continue
        kind = f"raw {arrays[0].dtype.name} {'pixels' if arrays[0].ndim > 1 else 'values'}"
        stored = _estimate_column_bytes(sample, name, columns[name])
        if imaged and stored / imaged >= _MIN_REPORTED_RATIO:
            format = sample.image_formats.most_common(1)[0][0]
            times = f"{stored / imaged:.1f}×"
            yield f"`{name}`: {kind} are {times} the size of the {format}s; store the {format}s instead"
            continue
        if not is_tensor(columns[name]) or not all(_may_be_image(array) for array in arrays):
            continue
        as_png = [_measure_png_bytes(array) for array in arrays]
        if all(as_png):
            ratio = stored / (sum(filter(None, as_png)) / len(as_png))
            if ratio >= _MIN_REPORTED_RATIO:
                yield f'`{name}`: {kind} are {ratio:.1f}× the size of PNG; declare rk.Image(format="png")'


def _is_raw(array: Any) -> bool:
    return bool(array.size >= (_MIN_RAW_VALUES if array.ndim >= 2 else _MIN_FLAT_RAW_VALUES))


def _may_be_image(array: Any) -> bool:
    """Whether an array can be pixels, and not a list of vectors or of token ids."""
    is_pixel_type = array.dtype.kind == "f" or array.dtype.name in ("uint8", "uint16")
    return is_pixel_type and array.ndim > 1 and min(array.shape[:2]) >= _MIN_IMAGE_SIDE


def _measure_png_bytes(array: Any) -> int | None:
    """The size of the pixels as PNG; None if they are not an image, or PNG would change them."""
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4):
        return None
    for scale in (1, 255):
        scaled = array.astype(np.float64) * scale
        pixels = np.rint(scaled)
        if pixels.min() >= 0 and pixels.max() <= 255 and np.allclose(scaled, pixels, rtol=0, atol=1e-4):
            return _measure_encoded_bytes(pixels.astype(np.uint8), channels)
    return None


def _measure_encoded_bytes(pixels: Any, channels: int) -> int:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and channels == 1 else pixels).save(file, "PNG")
    return len(file.getvalue())

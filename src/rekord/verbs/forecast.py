"""What a conversion is going to write, from a sample of encoded rows: records, bytes, shards."""

from __future__ import annotations

import io
import math
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.decode import decode
from rekord.conversion.driver import Conversion
from rekord.conversion.encode_rows import BadRows, RowEncoding, TransformedLayout
from rekord.conversion.plan import ConversionJob
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError, error
from rekord.layouts.base import RowRemark
from rekord.location import Location
from rekord.report.formatting import format_byte_size, format_count
from rekord.schema import Feature, Float32, Image, Int64, Schema, Tensor, of_type
from rekord.sources.base import Chunk, ColumnChunk, is_partitioned
from rekord.sources.image_folder import is_image_name
from rekord.storage.transaction import Transaction, exists
from rekord.transforms.chain import Chain
from rekord.transforms.images import Decode, Normalize

SAMPLE_ROWS = 64
SAMPLE_BYTES = 16 << 20
SAMPLE_PARTS = 8
"""So many rows are looked at, and no more than so many bytes of them, from so many places."""

_IN_MEMORY_SOURCES = ("columns", "pandas", "polars", "arrow")
_MAX_FILE_BYTES = 64 << 20
_COUNTED_VALUES = 4096
_MAGIC = ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG", "PNG"))


@dataclass(slots=True)
class RowSample:
    """What the rows that were looked at came to."""

    rows: int = 0
    records: int = 0
    bad: int = 0
    first_bad: RekordError | None = None
    framed_bytes: int = 0
    key_bytes: Counter[str] = field(default_factory=Counter)  # of each record key
    payloads: list[bytes] = field(default_factory=list)
    image_bytes: int = 0  # of the encoded images that rows had, masks aside
    pictures: Counter[str] = field(default_factory=Counter)  # by format


def is_sampleable(job: ConversionJob) -> bool:
    """Whether looking at rows takes none away: files, and what lies in memory."""
    source: Any = job.source
    return is_partitioned(source) or bool(getattr(source, "root", "")) or source.kind in _IN_MEMORY_SOURCES


def sample_rows(job: ConversionJob, known_rows: int | None) -> RowSample:
    """Some rows from the beginnings of parts that lie evenly in the source; a source that fails is left to fail."""
    sample = RowSample()
    quiet = replace(job, on_bad_row="reject", verify="headers", index=(), shuffle=False)
    bad = _FirstBadRow()
    try:
        for chunks, rows, most_bytes in _iter_sample_points(job, known_rows):
            encoding = RowEncoding(quiet, bad)
            taken = _limit_chunks(chunks, rows, most_bytes, sample, as_bytes=job.function is None)
            for piece in encoding.pieces(taken):
                sample.records += len(piece.lengths)
                sample.framed_bytes += int(piece.lengths.sum())
                if piece.holes is None and not job.schema.is_sequence:
                    _measure_key_bytes(sample, piece.frames, piece.lengths)
            sample.rows += encoding.rows
    except RekordError as failure:
        sample.first_bad = failure
    sample.bad = bad.rejected
    sample.first_bad = bad.first or sample.first_bad
    return sample


class _FirstBadRow(BadRows):
    """Bad rows are kept in mind, and nothing is said."""

    def __init__(self) -> None:
        super().__init__("reject")
        self.first: RekordError | None = None

    def reject(self, failure: RekordError, place: Location) -> None:
        super().reject(failure, place)
        self.first = self.first or failure

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        pass


def _iter_sample_points(job: ConversionJob, known_rows: int | None) -> Iterator[tuple[Iterator[Chunk], int, int]]:
    """Iterators over the source, with how many rows and bytes to take from each."""
    source: Any = job.source
    if not is_partitioned(source):
        yield source.rows(), SAMPLE_ROWS, SAMPLE_BYTES
        return
    parts = source.parts()
    if known_rows is None or known_rows > SAMPLE_ROWS:
        # Smaller parts begin in more places.
        parts = source.parts(max(1, sum(part.source_bytes for part in parts) // SAMPLE_PARTS))
    chosen = (
        parts if len(parts) <= SAMPLE_PARTS else [parts[i * len(parts) // SAMPLE_PARTS] for i in range(SAMPLE_PARTS)]
    )
    for part in chosen:
        yield source.read(part), max(1, SAMPLE_ROWS // len(chosen)), SAMPLE_BYTES // len(chosen)


def _limit_chunks(
    chunks: Iterator[Chunk], rows: int, most_bytes: int, sample: RowSample, *, as_bytes: bool
) -> Iterator[Chunk]:
    left_rows, left_bytes = rows, most_bytes
    for chunk in chunks:
        if isinstance(chunk, ColumnChunk):
            kept = min(chunk.rows, left_rows)
            left_rows -= kept
            yield _take_first_rows(chunk, kept)
        else:
            left_rows -= 1
            if isinstance(chunk.values, RekordError):
                yield chunk
            else:
                left_bytes -= _count_images(chunk.values, sample)
                yield chunk._replace(values=_load_files(chunk.values)) if as_bytes else chunk
        if left_rows <= 0 or left_bytes <= 0:
            return


def _take_first_rows(chunk: ColumnChunk, rows: int) -> ColumnChunk:
    values = chunk.values
    if isinstance(values, pa.RecordBatch):
        return replace(chunk, values=values.slice(0, rows), rows=rows)
    return replace(chunk, values={name: column[:rows] for name, column in values.items()}, rows=rows)


def _count_images(values: Mapping[str, Any], sample: RowSample) -> int:
    """Note the encoded images of a row; how many bytes the row has."""
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
            sample.pictures[format] += 1
            sample.image_bytes += size_bytes
    return total


def _infer_format(path: PurePath) -> str:
    ending = path.suffix[1:].upper()
    return "JPEG" if ending in ("JPG", "JPE", "JFIF") else ending


def _get_file_bytes(path: PurePath) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _load_files(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row whose files are read, so that its frame holds all of it; what cannot be read stays a path."""
    read = {}
    for name, value in values.items():
        read[name] = value
        if isinstance(value, PurePath) and 0 < _get_file_bytes(value) <= _MAX_FILE_BYTES:
            try:
                with open(value, "rb") as file:
                    read[name] = file.read(_MAX_FILE_BYTES)
            except OSError:
                pass
    return read


def _measure_key_bytes(sample: RowSample, frames: Any, lengths: Any) -> None:
    """Note how the bytes of records are shared by their keys."""
    view = memoryview(frames).cast("B")
    begin = 0
    for length in lengths.tolist():
        payload = bytes(view[begin + _core.HEADER_BYTES : begin + length - 4])
        begin += length
        if len(sample.payloads) < SAMPLE_ROWS:
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


MIN_REPORTED_RATIO = 1.5  # times as large


class SizeWarning(NamedTuple):
    """A column that takes more space than it has to, and the line that says so."""

    column: str
    line: str


def find_size_warnings(job: ConversionJob, sample: RowSample, rows: int | None) -> Iterator[SizeWarning]:
    """The columns of images that transforms make larger than the encoded images are."""
    layout = job.layout
    if not isinstance(layout, TransformedLayout) or not sample.payloads or job.schema.is_sequence:
        return
    columns = layout.layout.schema.context
    before = list(of_type(columns, Image))
    pictures = [name for name, one in columns.items() if one.is_image]
    raw = [name for name in pictures if isinstance(job.schema.context.get(name), Tensor)]
    if raw:
        yield from _find_decoded_columns(job, layout, sample, raw, rows)
    kept = [name for name in before if isinstance(job.schema.context.get(name), Image)]
    if len(before) == len(kept) == 1 and sample.pictures and sample.rows:
        stored = _estimate_column_bytes(sample, kept[0], job.schema.context[kept[0]])
        given = sample.image_bytes / sample.rows
        if stored / given >= MIN_REPORTED_RATIO:
            kind = sample.pictures.most_common(1)[0][0]
            yield SizeWarning(
                kept[0],
                f"`{kept[0]}`: {_format_total(given, rows)} of {kind} become {_format_total(stored, rows)} "
                f"({stored / given:.1f} × as much); store the images as they are, and transform them when "
                "reading: split.transform(…)",
            )


def _find_decoded_columns(
    job: ConversionJob, layout: TransformedLayout, sample: RowSample, raw: list[str], rows: int | None
) -> Iterator[SizeWarning]:
    """Raw pixels beside the same images without the step that decodes them."""
    steps = layout.chain.steps
    last = next((step for step in steps if isinstance(step, (Decode, Normalize))), None)
    if last is None:
        return  # somebody's own transform: what there would be without it nobody knows
    encoded = Chain(tuple([step for step in steps if not isinstance(step, (Decode, Normalize))]))
    other = replace(job, layout=TransformedLayout(layout.layout, encoded), index=())
    compared = sample_rows(other, rows)
    if not compared.payloads:
        return
    for name in raw:
        feature = job.schema.context[name]
        stored = _estimate_column_bytes(sample, name, feature)
        packed = _estimate_column_bytes(compared, name, other.schema.context[name])
        if not packed or stored / packed < MIN_REPORTED_RATIO:
            continue
        kind = _find_common_format(compared, other.schema, name)
        yield SizeWarning(
            name,
            f"`{name}`: raw {feature.dtype} pixels take {_format_total(stored, rows)}, the same as {kind} "
            f"{_format_total(packed, rows)} ({stored / packed:.1f} × as much); store those, and leave "
            f"`{last.name}` to reading: split.transform(…)",
        )


def _estimate_column_bytes(sample: RowSample, name: str, feature: Feature) -> float:
    """The bytes of a column in a record."""
    return sample.key_bytes[feature.key or name] / max(1, len(sample.payloads))


def _find_common_format(sample: RowSample, schema: Schema, name: str) -> str:
    """The format of the encoded images, as most of them have it."""
    from rekord.codec.decode import decode
    from rekord.codec.images.inspect import format_display_name
    from rekord.codec.images.store import detect_image_format

    formats = [detect_image_format(decode(payload, schema)[name] or b"") for payload in sample.payloads[:4]]
    most = Counter([one for one in formats if one is not None]).most_common(1)
    return format_display_name(most[0][0]) if most else "images"


def _format_total(each: float, rows: int | None) -> str:
    """The bytes of all rows, or of one where nobody knows how many there are."""
    return (
        f"{format_byte_size(round(each))} a record"
        if rows is None
        else f"about {format_byte_size(round(each * rows))}"
    )


_SAME_SIZE_SOURCES = ("webdataset", "records")  # what their files hold is what records will hold
_MIN_RAW_VALUES = 1024
_MIN_FLAT_RAW_VALUES = 16_384
_MIN_REPORTED_PNG_RATIO = 1.5  # times as large
_COMPARED_PAYLOADS = 4
_COMPRESSED_BYTES = 4 << 20
_KEY_BYTES = 12  # of a key and its lists around the values


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The figures. None is what cannot be known without reading everything."""

    records: int | None
    exact: bool  # whether every row makes one record, and their number is known
    framed_bytes: int | None
    file_bytes: int | None  # the same, compressed where that is asked for
    shards: Mapping[str, int]  # of each split; empty where the source says the splits
    shares: tuple[tuple[str, float], ...]  # of record keys in the bytes, the largest first
    advice: tuple[str, ...]
    sampled_rows: int
    bad_rows: int  # among them
    first_bad: RekordError | None
    free_bytes: int | None
    splits: tuple[str, ...] = ()

    @property
    def needed_bytes(self) -> int | None:
        """The shards, and the frames that wait to be gathered into them."""
        return None if self.file_bytes is None or self.framed_bytes is None else self.file_bytes + self.framed_bytes

    def lines(self) -> Iterator[str]:
        """The forecast as a person reads it."""
        told = ["an unknown number of records"]
        if self.records is not None:
            told = [("" if self.exact else "about ") + format_count(self.records, "record")]
        if self.file_bytes is not None:
            told.append(f"about {format_byte_size(self.file_bytes)}")
        if self.shards:
            total = sum(self.shards.values())
            each = ", ".join(f"{name} {number:,}" for name, number in self.shards.items())
            told.append(format_count(total, "shard") + (f" ({each})" if len(self.shards) > 1 else ""))
        elif self.splits:
            told.append(f"splits as the source has them: {', '.join(self.splits)}")
        yield "forecast: " + " · ".join(told)
        largest = [f"{key} {share:.0%}" for key, share in self.shares[:3] if share >= 0.01]
        if largest and len(self.shares) > 1:
            yield f"  of it: {', '.join(largest)}"
        for line in self.advice:
            yield f"  {line}"
        if self.bad_rows:
            code = f", the first with {self.first_bad.code}" if self.first_bad is not None else ""
            yield f"  bad among the {format_count(self.sampled_rows, 'row')} looked at: {self.bad_rows:,}{code}"
        needed = self.needed_bytes
        if needed is not None and self.free_bytes is not None and needed > self.free_bytes:
            free = format_byte_size(self.free_bytes)
            yield f"  the disk may not do: {format_byte_size(needed)} are needed on the way, and {free} are free"

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON holds them."""
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
    """Look at a few rows, and reckon. Nothing is written, and no row is lost."""
    job = conversion.job
    sample = sample_rows(job, conversion.rows) if is_sampleable(job) else RowSample()
    each_bytes = sample.framed_bytes / sample.records if sample.records else _compute_fixed_bytes(job.schema)
    records = _estimate_records(conversion, sample, each_bytes)
    framed = None if records is None or each_bytes is None else round(records * each_bytes)
    total = sum(sample.key_bytes.values())
    grown = tuple(find_size_warnings(job, sample, records))
    told = frozenset([one.column for one in grown])
    return Forecast(
        records=records,
        exact=records is not None and records == conversion.rows,
        framed_bytes=framed,
        file_bytes=None if framed is None else round(framed * _measure_compression(job, sample)),
        shards=_estimate_shards(job, records, framed),
        shares=tuple([(key, size / total) for key, size in sample.key_bytes.most_common() if total]),
        advice=(*[one.line for one in grown], *_suggest_image_encoding(job, sample, told)),
        sampled_rows=sample.rows,
        bad_rows=sample.bad,
        first_bad=sample.first_bad,
        free_bytes=_get_free_bytes(conversion.out),
        splits=job.splits.names if job.splits.from_source else (),
    )


def is_complete(conversion: Conversion) -> bool:
    """Whether the very dataset is there already, so that there is nothing to expect."""
    try:
        return read_manifest(conversion.out, conversion.storage).plan == conversion.plan.id
    except RekordError:
        return False


def check_free_space(conversion: Conversion, expected: Forecast) -> None:
    """Refuse what the disk certainly cannot hold. An unfinished conversion has taken its space already."""
    if expected.file_bytes is None or expected.free_bytes is None or expected.needed_bytes is None:
        return
    staging = Transaction(conversion.out, conversion.storage).staging(conversion.plan.id)
    if expected.needed_bytes <= 2 * expected.free_bytes or exists(conversion.storage, staging.folder):
        return
    raise error(
        "X519",
        location=Location(path=conversion.out),
        expected=f"about {format_byte_size(expected.file_bytes)} for the shards, and as much again on the way",
        found=f"{format_byte_size(expected.free_bytes)} free",
        do="write to another disk, or free some space",
    )


def _estimate_records(conversion: Conversion, sample: RowSample, each_bytes: float | None) -> int | None:
    if conversion.rows is not None:
        if sample.rows and not sample.records:
            return None  # nothing that was looked at can be written, which says nothing of the rest
        return round(conversion.rows * (sample.records / sample.rows if sample.rows else 1.0))
    source: Any = conversion.job.source
    if source.kind in _SAME_SIZE_SOURCES and is_partitioned(source) and each_bytes:
        packed = any(file.path.endswith((".gz", ".tgz", ".zz", ".bz2", ".xz")) for file in source.facts().files)
        return None if packed else max(1, round(sum(part.source_bytes for part in source.parts()) / each_bytes))
    return None


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
    """The size of a record where every column says its own; None where one does not."""
    if schema.is_sequence:
        return None
    total = float(_core.FRAMING_BYTES)
    for name, feature in schema.context.items():
        shape = getattr(feature, "shape", None)
        if not isinstance(feature, (Float32, Int64, Tensor)) or shape is None or None in shape:
            return None
        width = np.dtype(feature.dtype).itemsize if isinstance(feature, Tensor) else 4
        total += math.prod(shape) * width + len(feature.key or name) + _KEY_BYTES
    return total


def _measure_compression(job: ConversionJob, sample: RowSample) -> float:
    """How much smaller compression makes it, tried on the sample."""
    if job.compression == "none" or not sample.payloads:
        return 1.0
    data = b"".join(sample.payloads)[:_COMPRESSED_BYTES]
    return len(zlib.compress(data)) / len(data) if data else 1.0


def _get_free_bytes(out: str) -> int | None:
    place = os.path.abspath(out)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


# Pixels that are stored raw.


def _suggest_image_encoding(job: ConversionJob, sample: RowSample, told: frozenset[str]) -> Iterator[str]:
    if job.schema.is_sequence:
        return
    payloads = sample.payloads[:_COMPARED_PAYLOADS]
    wide = [
        name
        for name, feature in job.schema.context.items()
        if isinstance(feature, (Float32, Int64, Tensor)) and name not in told
    ]
    if not payloads or not wide:
        return
    rows = [decode(payload, job.schema) for payload in payloads]
    imaged = sample.image_bytes / sample.rows if sample.pictures else 0.0
    for name in wide:
        arrays = [np.asarray(row[name]) for row in rows if row.get(name) is not None]
        if not arrays or not all(_is_raw(array) for array in arrays):
            continue
        feature = job.schema.context[name]
        kind = f"raw {arrays[0].dtype.name} pixels" if arrays[0].ndim > 1 else f"raw {arrays[0].dtype.name} values"
        stored = sample.key_bytes[feature.key or name] / max(1, len(sample.payloads))
        if imaged and stored / imaged >= _MIN_REPORTED_PNG_RATIO:
            format = sample.pictures.most_common(1)[0][0]
            yield f"`{name}`: {kind}: {stored / imaged:.1f} × the {format}s; pass them through"
            continue
        as_png = [_measure_png_bytes(array) for array in arrays]
        if all(as_png):
            ratio = stored / (sum(filter(None, as_png)) / len(as_png))
            if ratio >= _MIN_REPORTED_PNG_RATIO:
                yield f'`{name}`: {kind}: {ratio:.1f} × the same as PNG; declare rk.Image(format="png")'


def _is_raw(array: Any) -> bool:
    return bool(array.size >= (_MIN_RAW_VALUES if array.ndim >= 2 else _MIN_FLAT_RAW_VALUES))


def _measure_png_bytes(array: Any) -> int | None:
    """How large the pixels are as PNG; None where they are no image, or would not be the same."""
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

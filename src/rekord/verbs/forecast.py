"""What a conversion is going to write, before it does: records, bytes, shards, and what makes it large."""

from __future__ import annotations

import io
import math
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.decode import decode
from rekord.dataset.manifest import read_manifest
from rekord.engines.conversion import Conversion
from rekord.engines.job import Job
from rekord.engines.journal import open_staging
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Float32, Int64, Schema, Tensor
from rekord.sources.base import is_parted
from rekord.verbs.figures import byte_size, count
from rekord.verbs.forecast_transforms import larger
from rekord.verbs.sample import Sample, can_be_sampled, sample_of

_AS_LARGE_AS_WRITTEN = ("webdataset", "records")  # what their files hold is what records will hold
_RAW_VALUES = 1024
_RAW_VALUES_FLAT = 16_384
_WORTH_SAYING = 1.5  # times as large
_COMPARED = 4
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
        return (
            None
            if self.file_bytes is None or self.framed_bytes is None
            else self.file_bytes + self.framed_bytes
        )

    def lines(self) -> Iterator[str]:
        """The forecast as a person reads it."""
        told = ["an unknown number of records"]
        if self.records is not None:
            told = [("" if self.exact else "about ") + count(self.records, "record")]
        if self.file_bytes is not None:
            told.append(f"about {byte_size(self.file_bytes)}")
        if self.shards:
            total = sum(self.shards.values())
            each = ", ".join(f"{name} {number:,}" for name, number in self.shards.items())
            told.append(count(total, "shard") + (f" ({each})" if len(self.shards) > 1 else ""))
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
            yield f"  bad among the {count(self.sampled_rows, 'row')} looked at: {self.bad_rows:,}{code}"
        needed = self.needed_bytes
        if needed is not None and self.free_bytes is not None and needed > self.free_bytes:
            free = byte_size(self.free_bytes)
            yield f"  the disk may not do: {byte_size(needed)} are needed on the way, and {free} are free"

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
    sample = sample_of(job, conversion.rows) if can_be_sampled(job) else Sample()
    each_bytes = sample.framed_bytes / sample.records if sample.records else _fixed_bytes(job.schema)
    records = _records(conversion, sample, each_bytes)
    framed = None if records is None or each_bytes is None else round(records * each_bytes)
    total = sum(sample.key_bytes.values())
    grown = tuple(larger(job, sample, records))
    told = frozenset([one.column for one in grown])
    return Forecast(
        records=records,
        exact=records is not None and records == conversion.rows,
        framed_bytes=framed,
        file_bytes=None if framed is None else round(framed * _compressed(job, sample)),
        shards=_shards(job, records, framed),
        shares=tuple([(key, size / total) for key, size in sample.key_bytes.most_common() if total]),
        advice=(*[one.line for one in grown], *_raw_pixels(job, sample, told)),
        sampled_rows=sample.rows,
        bad_rows=sample.bad,
        first_bad=sample.first_bad,
        free_bytes=_free_bytes(conversion.out),
        splits=job.splits.names if job.splits.from_source else (),
    )


def is_complete(conversion: Conversion) -> bool:
    """Whether the very dataset is there already, so that there is nothing to expect."""
    try:
        return read_manifest(conversion.out, conversion.storage).plan == conversion.plan.id
    except RekordError:
        return False


def check_space(conversion: Conversion, expected: Forecast) -> None:
    """Refuse what the disk certainly cannot hold. An unfinished conversion has taken its space already."""
    if expected.file_bytes is None or expected.free_bytes is None or expected.needed_bytes is None:
        return
    staging = open_staging(conversion.out, conversion.plan.id, conversion.storage, spills=conversion.spills)
    if expected.needed_bytes <= 2 * expected.free_bytes or os.path.isdir(staging.folder):
        return
    raise error(
        "X519",
        location=Location(path=conversion.out),
        expected=f"about {byte_size(expected.file_bytes)} for the shards, and as much again on the way",
        found=f"{byte_size(expected.free_bytes)} free",
        do="write to another disk, or free some space",
    )


def _records(conversion: Conversion, sample: Sample, each_bytes: float | None) -> int | None:
    if conversion.rows is not None:
        if sample.rows and not sample.records:
            return None  # nothing that was looked at can be written, which says nothing of the rest
        return round(conversion.rows * (sample.records / sample.rows if sample.rows else 1.0))
    source: Any = conversion.job.source
    if source.kind in _AS_LARGE_AS_WRITTEN and is_parted(source) and each_bytes:
        packed = any(
            file.path.endswith((".gz", ".tgz", ".zz", ".bz2", ".xz")) for file in source.facts().files
        )
        return (
            None if packed else max(1, round(sum(part.source_bytes for part in source.parts()) / each_bytes))
        )
    return None


def _shards(job: Job, records: int | None, framed_bytes: int | None) -> dict[str, int]:
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


def _fixed_bytes(schema: Schema) -> float | None:
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


def _compressed(job: Job, sample: Sample) -> float:
    """How much smaller compression makes it, tried on the sample."""
    if job.compression == "none" or not sample.payloads:
        return 1.0
    data = b"".join(sample.payloads)[:_COMPRESSED_BYTES]
    return len(zlib.compress(data)) / len(data) if data else 1.0


def _free_bytes(out: str) -> int | None:
    place = os.path.abspath(out)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


# Pixels that are stored raw.


def _raw_pixels(job: Job, sample: Sample, told: frozenset[str]) -> Iterator[str]:
    if job.schema.is_sequence:
        return
    payloads = sample.payloads[:_COMPARED]
    wide = [
        name
        for name, feature in job.schema.context.items()
        if isinstance(feature, (Float32, Int64, Tensor)) and name not in told
    ]
    if not payloads or not wide:
        return
    rows = [decode(payload, job.schema) for payload in payloads]
    pictured = sample.picture_bytes / sample.rows if sample.pictures else 0.0
    for name in wide:
        arrays = [np.asarray(row[name]) for row in rows if row.get(name) is not None]
        if not arrays or not all(_is_raw(array) for array in arrays):
            continue
        feature = job.schema.context[name]
        kind = (
            f"raw {arrays[0].dtype.name} pixels"
            if arrays[0].ndim > 1
            else f"raw {arrays[0].dtype.name} values"
        )
        stored = sample.key_bytes[feature.key or name] / max(1, len(sample.payloads))
        if pictured and stored / pictured >= _WORTH_SAYING:
            format = sample.pictures.most_common(1)[0][0]
            yield f"`{name}`: {kind}: {stored / pictured:.1f} × the {format}s; pass them through"
            continue
        as_png = [_png_bytes(array) for array in arrays]
        if all(as_png):
            ratio = stored / (sum(filter(None, as_png)) / len(as_png))
            if ratio >= _WORTH_SAYING:
                yield f'`{name}`: {kind}: {ratio:.1f} × the same as PNG; declare rk.Image(format="png")'


def _is_raw(array: Any) -> bool:
    return bool(array.size >= (_RAW_VALUES if array.ndim >= 2 else _RAW_VALUES_FLAT))


def _png_bytes(array: Any) -> int | None:
    """How large the pixels are as PNG; None where they are no picture, or would not be the same."""
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4):
        return None
    for scale in (1, 255):
        scaled = array.astype(np.float64) * scale
        pixels = np.rint(scaled)
        if pixels.min() >= 0 and pixels.max() <= 255 and np.allclose(scaled, pixels, rtol=0, atol=1e-4):
            return _encoded_bytes(pixels.astype(np.uint8), channels)
    return None


def _encoded_bytes(pixels: Any, channels: int) -> int:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and channels == 1 else pixels).save(file, "PNG")
    return len(file.getvalue())

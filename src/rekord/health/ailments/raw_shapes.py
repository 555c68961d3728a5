"""How the size of pixels compares with the height and width that a record gives for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rekord.health.ailments.profile import MOST_KEYS, MOST_SAMPLES, Tally, packed, place_of
from rekord.health.diagnosis import Place
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.schema.base import Kind

HEIGHTS = ("height", "rows", "h")
WIDTHS = ("width", "cols", "columns", "w")
CHANNELS = ("channels", "depth", "channel", "c")
_MOST_RATIOS = 8
_MOST_PIXELS = 1 << 40

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Shape:
    """Height, width and channels (None where no key says) of one record."""

    height: int
    width: int
    channels: int | None

    def __str__(self) -> str:
        deep = "" if self.channels is None else f" × {self.channels}"
        return f"{self.height:,} × {self.width:,}{deep}"


@dataclass(slots=True)
class Sized:
    """One key whose records also say a height and a width."""

    kind: Kind
    keys: tuple[str, ...]  # of height, width and, where there is one, channels
    ratios: dict[float, Tally] = field(default_factory=dict)  # values or bytes for each pixel and channel
    shapes: list[tuple[Place, Shape, int]] = field(default_factory=list)  # of the first few: size is the last
    odd: Tally = field(default_factory=Tally)  # records whose size no whole ratio explains

    @property
    def deep(self) -> bool:
        """Whether a key says the number of channels."""
        return len(self.keys) == 3


class RawShapes:
    """Every key that holds as much as pixels would: byte strings, and lists of numbers."""

    def __init__(self) -> None:
        self.sized: dict[str, Sized] = {}

    def see(self, batch: KeyedBatch) -> None:
        """Compare the sizes in a batch with the heights and widths in it."""
        if not any(key.endswith(HEIGHTS) for key in batch.context):
            return
        for key, column in batch.context.items():
            keys = dims_of(key, batch.context)
            if keys is None or key in keys:
                continue
            dims = [_scalar(batch.context[each]) for each in keys]
            sizes = _sizes(column)
            if sizes is None or any(dim is None for dim in dims):
                continue
            known = self.sized.get(key)
            if known is None and len(self.sized) >= MOST_KEYS:
                continue
            if known is None or known.kind != column.kind:
                known = self.sized[key] = Sized(column.kind, keys)
            self._compare(known, batch, sizes, [dim for dim in dims if dim is not None])

    @staticmethod
    def _compare(known: Sized, batch: KeyedBatch, sizes: Floats, dims: list[Floats]) -> None:
        with np.errstate(all="ignore"):
            pixels = np.prod(dims, axis=0)
            sound = np.all([(dim >= 1) & (dim == np.rint(dim)) for dim in dims], axis=0)
        usable = sound & (pixels < _MOST_PIXELS) & (sizes > 0)
        ratios = np.divide(sizes, pixels, out=np.full(len(batch), -1.0), where=usable)
        whole = usable & (ratios == np.rint(ratios)) & (ratios <= 64)
        for ratio in np.unique(ratios[whole])[:_MOST_RATIOS].tolist():
            if ratio in known.ratios or len(known.ratios) < _MOST_RATIOS:
                known.ratios.setdefault(ratio, Tally()).add(batch, whole & (ratios == ratio))
        known.odd.add(batch, usable & ~whole)
        for row in np.flatnonzero(usable)[: MOST_SAMPLES - len(known.shapes)].tolist():
            size = [int(dim[row]) for dim in dims]
            shape = Shape(size[0], size[1], size[2] if len(size) == 3 else None)
            known.shapes.append((place_of(batch, row), shape, int(sizes[row])))


def dims_of(key: str, keys: object) -> tuple[str, ...] | None:
    """The keys that give the height, the width and, where there is one, the channels of what `key` holds."""
    assert hasattr(keys, "__contains__")
    stem = key
    while True:
        stem, mark, _ = stem.rpartition("/")
        for prefix in (f"{stem}/",) if mark else ("", "image_", "image/", f"{key}_", f"{key}/", "img_"):
            height = _first(prefix, HEIGHTS, keys)
            width = _first(prefix, WIDTHS, keys)
            if height is not None and width is not None:
                channels = _first(prefix, CHANNELS, keys)
                return (height, width) if channels is None else (height, width, channels)
        if not mark:
            return None


def _first(prefix: str, names: tuple[str, ...], keys: object) -> str | None:
    return next((f"{prefix}{name}" for name in names if f"{prefix}{name}" in keys), None)  # type: ignore[operator]


def _scalar(column: KeyColumn) -> Floats | None:
    """One number a row, 0 where there is none; None where the column holds something else."""
    if column.kind == "bytes" or not len(column):
        return None
    if column.offsets is None:
        values = column.values.astype(np.float64)
        return values if column.valid is None else np.where(column.valid, values, 0.0)
    one = column.counts == 1
    values = np.zeros(len(column))
    values[one] = column.values[column.offsets[:-1][one]]
    return np.where(np.isfinite(values), values, 0.0)


def _sizes(column: KeyColumn) -> Floats | None:
    """Bytes of the only byte string, or the number of values, of each row; 0 where there is none."""
    if column.kind != "bytes":
        return column.counts.astype(np.float64) if column.offsets is not None else None
    lengths = np.diff(packed(column.values)[0])
    if column.offsets is None:
        return np.where(column.counts == 1, lengths, 0).astype(np.float64)
    sizes = np.zeros(len(column))
    one = column.counts == 1
    sizes[one] = lengths[column.offsets[:-1][one]]
    several = column.counts > 1
    if several.any():
        sizes[several] = column.counts[several]  # one-byte strings are counted, not measured
    return sizes

"""The split of a row: by the hash of its key, by its class, or by the split in its source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.arguments import invalid
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location

HashArray: TypeAlias = "npt.NDArray[np.uint64]"
Salt: TypeAlias = Literal["order", "split"]

HASH_BITS = 64
_GOLDEN_RATIO_64 = np.uint64(0x9E3779B97F4A7C15)
_COPY_MULTIPLIER = np.uint64(0xD1B54A32D192ED03)


def hash_text(seed: int, salt: Salt, text: bytes) -> int:
    """The 64-bit hash of a text: a path, or a value that rows are grouped by."""
    keyed = hashlib.blake2b(text, digest_size=8, key=seed.to_bytes(16, "little", signed=True), person=salt.encode())
    return int.from_bytes(keyed.digest(), "little")


def hash_rows(bases: HashArray, positions: npt.NDArray[np.int64], copies: npt.NDArray[np.int64] | None) -> HashArray:
    """The hashes of rows, from the `hash_text` of each one's path, its position and its copy number."""
    with np.errstate(over="ignore"):
        mixed = bases + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN_RATIO_64
        if copies is not None:
            mixed = mixed + copies.astype(np.uint64) * _COPY_MULTIPLIER
    return _mix_bits(mixed)


def _mix_bits(x: HashArray) -> HashArray:
    """The finaliser of splitmix64: each bit of the input changes half of the output's."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scattered: HashArray = x ^ (x >> np.uint64(31))
    return scattered


def encode_value(value: Any) -> bytes:
    """A value as bytes to hash: equal values give equal bytes, and "1" differs from 1."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, int)):
        return b"i%d" % int(value)
    return b"o" + repr(value).encode("utf-8", "surrogatepass")


SPLIT_COLUMN = "split"
"""The column that holds the split in sources that have splits."""


def select_split_column(values: Any, name: str, names: set[str]) -> Any:
    if name not in names:
        raise _missing_column_error(name, sorted(names))
    column = values.column(name) if isinstance(values, pa.RecordBatch) else values[name]
    try:
        column = column if isinstance(column, pa.Array) else pa.array(column)
    except (pa.ArrowException, TypeError, ValueError):
        raise _multiple_values_error(name) from None
    if pa.types.is_nested(column.type):
        raise _multiple_values_error(name)
    return column


def hash_values(seed: int, column: Any) -> HashArray:
    encoded = column.dictionary_encode()
    if encoded.null_count:
        raise _missing_value_error(next(i for i, valid in enumerate(column.is_valid().to_pylist()) if not valid))
    known = [hash_text(seed, "split", encode_value(value)) for value in encoded.dictionary.to_pylist()]
    hashes: HashArray = np.array(known, np.uint64)[encoded.indices.to_numpy()]
    return hashes


def parse_split_column(column: Any, names: tuple[str, ...]) -> Any:
    numbers = {name: i for i, name in enumerate(names)}
    splits = column.to_pylist()
    for row, name in enumerate(splits):
        if name not in numbers:
            raise _unknown_split_error(name, names, row)
    return np.array([numbers[name] for name in splits], np.uint8)


def parse_split_value(values: Mapping[str, Any], names: tuple[str, ...]) -> str:
    split = values.get(SPLIT_COLUMN)
    if split not in names:
        raise _unknown_split_error(split, names, None)
    return str(split)


def select_split_value(values: Mapping[str, Any], name: str) -> bytes:
    if name not in values:
        raise _missing_column_error(name, sorted(values))
    value = values[name]
    if value is None:
        raise _missing_value_error(None, name)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (str, bytes)):
        return encode_value(value)
    # A repr with an address in it differs in the next run.
    if isinstance(value, (Mapping, list, tuple, np.ndarray)) or " at 0x" in repr(value):
        raise _multiple_values_error(name)
    return encode_value(value)


def _missing_column_error(name: str, names: list[str]) -> RekordError:
    near = closest_match(name, names)
    return error(
        "E381",
        f"row has no column `{name}` to split by",
        location=Location(feature=name),
        expected="one of " + ", ".join(f"`{one}`" for one in names[:8]),
        found="no such column",
        do=f"did you mean `{near}`?" if near else "split by a column that every row has",
    )


def _missing_value_error(row: int | None, name: str | None = None) -> RekordError:
    return error(
        "E381",
        "row has no value in the column to split by",
        location=Location(feature=name, row=row),
        expected="a value in every row",
        found="None",
        do="fill in the value, or split by another column",
    )


def _multiple_values_error(name: str) -> RekordError:
    return error(
        "E381",
        f"`{name}` does not hold single values to split by",
        location=Location(feature=name),
        expected="a string, a number or bytes in every row",
        found="a list, an array or an object",
        do="split by another column",
    )


def _unknown_split_error(split: Any, names: tuple[str, ...], row: int | None) -> RekordError:
    return error(
        "E382",
        f"row has unknown split {preview(split)}",
        location=Location(feature=SPLIT_COLUMN, row=row),
        expected="one of " + ", ".join(names),
        found=preview(split),
        do="fix the `split` of the row, or split by ratios: " + _EXAMPLE,
    )


_MAX_SPLITS = 255
_EXAMPLE = 'split={"train": 0.9, "val": 0.1}'
_FORBIDDEN = frozenset("/\\\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """The names of the splits, and how rows are assigned to them.

    `ends` cut the range of a 64-bit hash: split i takes the hashes below `ends[i]` that no earlier split takes. The
    hash is that of the row's identity, or of the column `by`. With `stratify` each class is cut separately, by the
    ranks of its rows' hashes. With `from_source` each row names its split.
    """

    names: tuple[str, ...]
    ratios: tuple[float, ...] = ()
    by: str | None = None
    stratify: str | None = None
    from_source: bool = False

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple([round(end * (1 << HASH_BITS)) for end in self._sums()])

    def assign_splits(self, hashes: HashArray) -> npt.NDArray[np.uint8]:
        """The number of each row's split."""
        if len(self.names) == 1:
            return np.zeros(len(hashes), np.uint8)
        inner = np.array(self.ends[:-1], np.uint64)
        return np.searchsorted(inner, hashes, side="right").astype(np.uint8)

    def shares(self, rows: int) -> list[int]:
        """The number of rows of a class that each split gets: within one of its ratio."""
        ends = [int(end * rows + Fraction(1, 2)) for end in self._sums()]
        return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _sums(self) -> list[Fraction]:
        if len(self.names) == 1:
            return [Fraction(1)]
        parts = [Fraction(ratio).limit_denominator(10**12) for ratio in self.ratios]
        whole = sum(parts, Fraction(0))
        sums, so_far = [], Fraction(0)
        for part in parts:
            so_far += part
            sums.append(so_far / whole)
        return sums

    def options(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {
            "names": list(self.names),
            "ratios": list(self.ratios),
            "by": self.by,
            "stratify": self.stratify,
            "from_source": self.from_source,
        }


def parse_split_rule(
    split: object, *, by: str | None, stratify: str | None, known: Sequence[str] | None
) -> SplitRule:
    """The rule for `split=`, `split_by=` and `stratify=`; `known` are the source's own splits."""
    if by is not None and stratify is not None:
        raise invalid("split_by", by, "either split_by= or stratify=", "omit one of them", found="both")
    if isinstance(split, str) and split == "source":
        if not known:
            raise invalid("split", split, "a source with splits", _EXAMPLE, found="a source without splits")
        _reject_split_options(by, stratify, "the splits come from the source")
        return SplitRule(names=_validate_names(tuple(known)), from_source=True)
    if split is None or isinstance(split, str):
        _reject_split_options(by, stratify, "there is only one split")
        return SplitRule(names=_validate_names(("train" if split is None else split,)))
    if not isinstance(split, Mapping) or not split:
        raise invalid("split", split, 'ratios by name, one name, "source" or None', _EXAMPLE)
    ratios = []
    for name, ratio in split.items():
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
            found = f"{preview(name)}: {preview(ratio)}"
            raise invalid("split", split, "a ratio above 0 and at most 1 for each name", _EXAMPLE, found=found)
        ratios.append(float(ratio))
    if abs(sum(ratios) - 1) > 1e-6:
        terms = " + ".join([f"{ratio:g}" for ratio in ratios])
        found = terms if len(ratios) == 1 else f"{terms} = {sum(ratios):g}"
        raise invalid("split", split, "ratios that add up to 1", _EXAMPLE, found=found)
    names = _validate_names(tuple(split))
    if len(names) == 1:
        _reject_split_options(by, stratify, "there is only one split")
    return SplitRule(names=names, ratios=tuple(ratios), by=by, stratify=stratify)


def _validate_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    for name in names:
        if (
            not isinstance(name, str)
            or not name
            or name.startswith(".")
            or _FORBIDDEN & set(name)
            or len(name.encode("utf-8", "surrogatepass")) > 100
            or not name.isprintable()
        ):
            raise invalid("split", name, "names that a file name can start with", 'split="train"')
    if len(set(names)) < len(names) or len(names) > _MAX_SPLITS:
        expected = f"up to {_MAX_SPLITS} different names"
        raise invalid("split", names, expected, "use fewer splits, without duplicates", found=f"{len(names)}")
    return names


def _reject_split_options(by: str | None, stratify: str | None, why: str) -> None:
    for name, value in (("split_by", by), ("stratify", stratify)):
        if value is not None:
            raise invalid(name, value, f"no {name}=, since {why}", f"omit {name}=, or pass ratios: {_EXAMPLE}")

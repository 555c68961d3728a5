"""`split.balanced` and `split.class_weights`: epochs in which every class has its share, through a class index."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count as count_from_0
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rekord import _core
from rekord.codec.columns import column_to_arrow
from rekord.dataset.index import CHUNK_RECORDS
from rekord.dataset.options import ClassKey, ClassShares
from rekord.dataset.read_transforms import reject_transformed_column
from rekord.dataset.samplers import (
    UINT64_RANGE,
    Ids,
    QuotaSampler,
    Sampler,
    Sampling,
    Selection,
    allocate_quotas,
    digest_selection,
    expand_selection,
    parse_share,
    select_numbers,
)
from rekord.dataset.shard_index import index_mismatch_error
from rekord.dataset.shards import Shards
from rekord.dataset.split import LazySchema, RecordView, Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature

_READ_ROWS = 8192


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """The class of each record is `classes[codes[i]]`; the code -1 means no class.

    In a column with several classes per record, those of record i are `codes[offsets[i]:offsets[i + 1]]`.
    """

    classes: tuple[Any, ...]
    codes: npt.NDArray[np.int32]
    offsets: Ids | None = None

    def counts(self) -> Ids:
        """Number of occurrences of each class."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes)).astype(np.int64)

    def pairs(self) -> tuple[Ids, Ids]:
        """Pairs of record and class in a list column, without duplicates."""
        assert self.offsets is not None
        records = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return np.divmod(np.unique(records * len(self.classes) + self.codes), max(len(self.classes), 1))

    def of(self, ids: Ids) -> ClassCodes:
        """The classes of some records."""
        if self.offsets is None:
            return ClassCodes(self.classes, self.codes[ids])
        lengths = np.diff(self.offsets)[ids]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        return ClassCodes(self.classes, self.codes[np.repeat(self.offsets[ids], lengths) + inside], offsets)


class ClassIndex:
    """The records of some shards by class. Pickled with the classes that are not in the index."""

    def __init__(self, shards: Shards, schema: LazySchema, by: str, ids: Selection | None) -> None:
        self.feature = _validate_class_feature(schema, by)
        self.by = by
        self.shards = shards
        self.ids = ids
        self._schema = schema
        self._from_index = False
        self._coded: ClassCodes | None = None
        self._order: Ids | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether a record may have several classes."""
        return bool(self.feature.shape)

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.shards) if self.ids is None else len(self.ids)

    @property
    def class_codes(self) -> ClassCodes:
        """The class of each record."""
        if self._coded is None:
            self._coded = self.load()
            self._check()
        return self._coded

    @property
    def order(self) -> Ids:
        """The numbers of the records, sorted by class, in file order within a class."""
        if self._order is None:
            codes = self.class_codes.codes
            # NumPy sorts 16-bit integers by radix, without comparisons.
            small = codes.astype(np.uint16) if len(self.class_codes.classes) < 1 << 16 else codes
            places = np.argsort(small, kind="stable").astype(np.int64)
            self._order = places if self.ids is None else select_numbers(self.ids, places)
        return self._order

    def __getstate__(self) -> dict[str, Any]:
        kept = dict(self.__dict__)
        kept["_order"] = None
        if self._from_index:
            kept["_coded"] = None
        return kept

    def load(self) -> ClassCodes:
        """The class of each record, unchecked: a record may have none."""
        kept = _class_codes_cache.setdefault(self.shards, {})
        if self.by not in kept:
            columns = _iter_index_columns(self.shards, self.by)
            if columns is None and self.ids is not None:
                return self._encode(self._read(self.ids))
            found = self._encode(columns if columns is not None else self._read(None))
            kept[self.by] = found, columns is not None
        found, self._from_index = kept[self.by]
        return found if self.ids is None else found.of(expand_selection(self.ids))

    def _encode(self, arrays: Iterator[Any]) -> ClassCodes:
        return _encode_classes(map(_list_hot_classes, arrays) if self.feature.is_multi_hot else arrays)

    def _read(self, ids: Selection | None) -> Iterator[Any]:
        split = Split("", RecordView(self.shards, ids), self._schema)
        for batch in split.batches(_READ_ROWS, columns=[self.by]):
            yield column_to_arrow(batch[self.by])

    def _check(self) -> None:
        """Raise if a record has no class, or one that is not declared."""
        coded = self._coded
        assert coded is not None
        bad = coded.codes < 0
        count = self.feature.label_count
        if count is not None:
            known = np.array([0 <= value < count for value in coded.classes] or [True])
            bad |= ~known[coded.codes]
        if not bad.any():
            return
        self._coded = None
        first = int(np.argmax(bad))
        code = int(coded.codes[first])
        record = first if coded.offsets is None else int(np.searchsorted(coded.offsets, first, side="right")) - 1
        number = record if self.ids is None else int(self.ids[record])
        where = self.shards.where(number)
        value = f"row[{self.by!r}]"
        keep = f"{value} is not None" if code < 0 else f"{value} in range({count})"
        if coded.offsets is not None:
            keep = f"all(one in range({count}) for one in {value})"
        raise error(
            "X552",
            f"{int(bad.sum()):,} of {self.records:,} records have no class in `{self.by}`"
            if coded.offsets is None
            else f"{int(bad.sum()):,} values of `{self.by}` are not class ids",
            location=Location(path=where.path, record=where.record, offset=where.offset, feature=self.by),
            expected="a value in each record" if count is None else f"a class id from 0 to {count - 1}",
            found="no value" if code < 0 else f"{coded.classes[code]!r}"[:60],
            do=f"split.filter(lambda row: {keep}, columns=[{self.by!r}])",
        )


_class_codes_cache: WeakKeyDictionary[Shards, dict[str, tuple[ClassCodes, bool]]] = WeakKeyDictionary()
"""The classes of whole splits, and whether they came from an index, while the shards are in use."""


def read_indexed_class_counts(shards: Shards, by: str) -> dict[int, int] | None:
    """The number of records of each class of a Label from the shard indexes; None if one lacks it."""
    counts: dict[int, int] = {}
    for shard, records in enumerate(shards.counts.tolist()):
        if not records:
            continue
        found = shards.index(shard).classes.get(by)
        if found is None or sum(found.values()) != records:
            return None  # some records have no class: reading them shows which
        for name, count in found.items():
            counts[int(name)] = counts.get(int(name), 0) + count
    return counts


def _iter_index_columns(shards: Shards, by: str) -> Iterator[Any] | None:
    """The column of each shard, chunk by chunk, if the indexes of all of them have it."""
    # An index without records has no columns, since their types are unknown.
    used = [shard for shard, records in enumerate(shards.counts.tolist()) if records]
    if not all(shards.index(shard).has_columns([by]) for shard in used):
        return None

    def iter_chunks() -> Iterator[Any]:
        for shard in used:
            index = shards.index(shard)
            for number in range(-(-len(index) // CHUNK_RECORDS)):
                if not index.keeps([by]):  # another index than before
                    raise index_mismatch_error(index.path, f"`{by}` in the index, as before", "an index without it")
                yield index.columns(number, [by]).column(0)

    return iter_chunks()


def _encode_classes(arrays: Iterator[Any]) -> ClassCodes:
    """Arrow arrays of classes as codes, numbered in the order of the classes."""
    numbers: dict[Any, int] = {}
    codes: list[npt.NDArray[np.int32]] = []
    lengths: list[Ids] = []
    for array in arrays:
        values = array
        if pa.types.is_nested(array.type):
            counted = pc.fill_null(pc.list_value_length(array), 0)
            lengths.append(counted.to_numpy(zero_copy_only=False).astype(np.int64))
            values = array.flatten()
        encoded = values.dictionary_encode()
        # One more entry, for the code -1.
        here = np.full(len(encoded.dictionary) + 1, -1, np.int32)
        for place, value in enumerate(encoded.dictionary.to_pylist()):
            here[place] = numbers.setdefault(value, len(numbers))
        codes.append(here[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    classes = sorted(numbers)
    renumbered = np.full(len(classes) + 1, -1, np.int32)
    for place, value in enumerate(classes):
        renumbered[numbers[value]] = place
    joined = renumbered[np.concatenate(codes)] if codes else np.zeros(0, np.int32)
    if not lengths:
        return ClassCodes(tuple(classes), joined)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return ClassCodes(tuple(classes), joined, offsets)


def _list_hot_classes(array: Any) -> Any:
    """Multi-hot vectors as lists of class ids; a missing one has none."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    hot = np.flatnonzero(array.flatten().to_numpy(zero_copy_only=False))
    rows = np.searchsorted(starts, hot, side="right") - 1
    offsets = np.searchsorted(hot, starts).astype(np.int64)
    return pa.LargeListArray.from_arrays(offsets, hot - starts[rows])


def _validate_class_feature(schema: LazySchema, by: object) -> Feature:
    declared = schema.get()
    if not isinstance(by, str):
        raise _class_column_error(repr(by)[:60], "the name of a column", type(by).__name__)
    feature: Feature = declared[by]
    whole = feature.value_kind in ("int", "bytes", "str") and by in declared.context
    if not whole or len(feature.shape) > 1 or len(feature.record_keys(by)) > 1:
        shape = f" of shape {feature.shape}" if feature.shape else ""
        where = "" if by in declared.context else " in each step"
        found = f"{type(feature).__name__}{shape}{where}"
        raise _class_column_error(
            f"`{by}`", "a Label, Int64, Bytes or Text with one value or a list of values per record", found
        )
    return feature


def _class_column_error(what: str, expected: str, found: str) -> RekordError:
    return error(
        "U667",
        f"{what} is not a column of classes",
        expected=expected,
        found=found,
        do='by="label"',
    )


_GOLDEN_RATIO_64 = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: multiples of it, modulo 2^64, fill the circle evenly."""


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """The classes of a column as groups."""

    by_class: ClassIndex

    @cached_property
    def _starts(self) -> Ids:
        return np.concatenate([[0], np.cumsum(self.by_class.class_codes.counts())]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.by_class.class_codes.classes)

    def size(self, part: int) -> int:
        return int(self._starts[part + 1] - self._starts[part])

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        if shuffled:
            key = _core.order_key([seed, part, round % UINT64_RANGE])
            numbers = _core.permute(numbers, self.size(part), key)  # type: ignore[assignment]
        found: Ids = self.by_class.order[self._starts[part] + numbers]
        return found


@dataclass(frozen=True, eq=False)
class _BalancedPlan:
    """A sampling of as many records as there are, by the classes of a column."""

    by_class: ClassIndex

    @property
    def description(self) -> str:
        return f"balanced by `{self.by_class.by}`"

    @property
    def size(self) -> int:
        return self.by_class.records

    @cached_property
    def _state(self) -> dict[str, Any]:
        """What identifies the classes in a saved state."""
        state: dict[str, Any] = {"balanced": self.by_class.by}
        if self.by_class.ids is not None:
            state["selected"] = digest_selection(self.by_class.ids)
        classes = msgspec.json.encode([repr(one) for one in self.by_class.class_codes.classes])
        return {**state, "classes": hashlib.sha256(classes).hexdigest()[:16]}


@dataclass(frozen=True, eq=False)
class ClassQuotaPlan(_BalancedPlan):
    """One class per record: the quotas are met exactly."""

    quotas: Ids

    @property
    def achieved(self) -> dict[Any, float]:
        shares = self.quotas / max(self.size, 1)
        return dict(zip(self.by_class.class_codes.classes, shares.tolist(), strict=True))

    def sampler(self, *, shuffled: bool, seed: int) -> QuotaSampler:
        return QuotaSampler(ClassGroups(self.by_class), self.quotas, shuffled, seed, self._state)


@dataclass(frozen=True, eq=False)
class RepeatFactorPlan(_BalancedPlan):
    """Several classes per record: each record has a factor, and comes that often, up to rounding."""

    factors: npt.NDArray[np.float64]

    @property
    def achieved(self) -> dict[Any, float]:
        """The expected share of an epoch's records that have the class."""
        coded = self.by_class.class_codes
        records, codes = coded.pairs()
        parts = np.bincount(codes, self.factors[records], minlength=len(coded.classes))
        total = float(self.factors.sum())
        return dict(zip(coded.classes, (parts / total).tolist(), strict=True))

    def sampler(self, *, shuffled: bool, seed: int) -> RepeatFactorSampler:
        state = {**self._state, "factors": hashlib.sha256(self.factors.tobytes()).hexdigest()[:16]}
        return RepeatFactorSampler(self.by_class.ids, np.cumsum(self.factors), shuffled, seed, state)


@dataclass(frozen=True, eq=False)
class RepeatFactorSampler(Sampler):
    """A sampler in which each record comes as often as its factor, rounded up or down from epoch to epoch.

    The factors lie end to end on a line with n evenly spaced points: a record is sampled once per point that falls on
    it. The first point differs from epoch to epoch.
    """

    ids: Selection | None
    ends: npt.NDArray[np.float64]
    shuffled: bool
    seed: int
    extra: Mapping[str, Any]

    @property
    def size(self) -> int:
        return len(self.ends)

    def records(self, epoch: int, positions: Ids) -> Ids:
        if not len(positions):
            return positions
        points = positions
        if self.shuffled:
            key = _core.order_key([self.seed, epoch])
            points = _core.permute(positions, self.size, key)  # type: ignore[assignment]
        start = (_core.order_key([self.seed]) + epoch * _GOLDEN_RATIO_64) % UINT64_RANGE / UINT64_RANGE
        gap = float(self.ends[-1]) / self.size
        found = np.searchsorted(self.ends, (points + start) * gap, side="right")
        numbers = np.minimum(found, self.size - 1).astype(np.int64)
        return numbers if self.ids is None else select_numbers(self.ids, numbers)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "exact" if self.shuffled else "sequential", "seed": self.seed, **self.extra}


def balanced_sampling(split: Split, by: str, target: ClassShares | Literal["present"] | None) -> Sampling:
    """A sampling in which the classes of a column have equal shares, or those of `target`."""
    reject_transformed_column(split, by, "balanced")
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    if not by_class.records:
        raise _balance_error(by, "split has no records", "at least one record", "none", "balance another split")
    shares = _compute_class_shares(by_class, target)
    if by_class.is_multi_label:
        return RepeatFactorPlan(by_class, _compute_repeat_factors(by_class, shares))
    return ClassQuotaPlan(by_class, allocate_quotas(by_class.records, shares))


def class_weights(split: Split, by: str, *, names: bool) -> dict[ClassKey, float] | dict[str, float]:
    """n / (k · count) for each of the k classes that have records."""
    reject_transformed_column(split, by, "class_weights")
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    feature = by_class.feature
    counts: Mapping[Any, int] | None = None
    if feature.class_count is not None and not feature.shape and split.view.ids is None:
        counts = split.view.shards.class_counts(by) or read_indexed_class_counts(split.view.shards, by)
    if counts is None:
        counts = dict(zip(by_class.class_codes.classes, by_class.class_codes.counts().tolist(), strict=True))
    present = {one: count for one, count in sorted(counts.items()) if count}
    n = sum(present.values())
    weights = {one: n / (len(present) * count) for one, count in present.items()}
    if not names:
        return weights
    class_names = feature.label_names
    if class_names is None:
        raise error(
            "U605",
            f"`names` needs class names, and `{by}` has none",
            expected="a Label with names",
            found=repr(feature)[:60],
            do="names=False",
        )
    return {class_names[one]: weight for one, weight in weights.items()}


def make_label_command(split: Split, column: str) -> str:
    """The command that writes the records of a split again, with a text column as a label whose classes it learns."""
    paths = split.paths
    single = len(paths) == 1 and "-of-" not in paths[0]
    source = (paths[0] if single else paths[0].rpartition("/")[0] or ".") if paths else "IN"
    return f"rekord write {shlex.quote(source)} OUT --label {shlex.quote(column)}, and use OUT"


def _compute_class_shares(by_class: ClassIndex, target: object) -> list[Fraction]:
    """The share of each class that occurs."""
    by, feature, classes = by_class.by, by_class.feature, by_class.class_codes.classes
    counts = by_class.class_codes.counts()
    if target is None or target == "present":
        declared = feature.label_count
        lacking = 0 if declared is None else declared - int((counts > 0).sum())
        if target is None and lacking:
            raise _balance_error(
                by,
                f"{lacking:,} of {declared:,} classes have no records",
                "records of every declared class",
                f"no records of {_describe_first_missing_class(by_class)}",
                'target="present"      (balances the classes that have records)',
            )
        return [Fraction(int(count > 0)) for count in counts.tolist()]
    if not isinstance(target, Mapping) or not target:
        raise _balance_error(
            by,
            "`target` does not map classes to shares",
            '{class: share, …}, "present" or None',
            repr(target)[:60],
            "target={0: 0.5, 1: 0.5}",
        )
    requested: dict[Any, Fraction] = {}
    for name, share in target.items():
        one = _resolve_class(by_class, name)
        checked = parse_share(f"{name!r}"[:60], share)
        if one in requested:
            raise _balance_error(
                by,
                "`target` has a duplicate class",
                "each class once",
                repr(name)[:60],
                "remove one of the two",
            )
        if checked and one not in classes:
            raise _balance_error(
                by,
                f"class {name!r:.60} of `target` has no records",
                "shares of classes that have records",
                f"{len(classes):,} classes: {', '.join(map(repr, classes[:5]))}"[:60],
                f"remove {name!r:.60} from `target`",
            )
        requested[one] = checked
    for one, count in zip(classes, counts.tolist(), strict=True):
        if count and one not in requested:
            raise _balance_error(
                by,
                f"`target` lacks class {one!r:.60}",
                "a share for every class that has records",
                f"{count:,} records of this class",
                f"add {one!r:.60}: 0 to `target` to skip them",
            )
    if not sum(requested.values()):
        raise _balance_error(by, "all shares of `target` are 0", "a share above 0", "0", "target=None")
    return [requested.get(one, Fraction(0)) for one in classes]


def _resolve_class(by_class: ClassIndex, name: Any) -> Any:
    """A class by its name or its value."""
    if isinstance(name, np.generic):
        name = name.item()
    if by_class.feature.label_count is not None and isinstance(name, str):
        names = by_class.feature.label_names or ()
        number = names.index(name) if name in names else None
        if number is None:
            raise _balance_error(
                by_class.by,
                f"`target` has unknown class {name!r:.60}",
                "a class of the schema",
                repr(name)[:60],
                "use a class name of the schema, or a class id",
            )
        return number
    try:
        hash(name)
    except TypeError:
        raise _balance_error(
            by_class.by,
            "`target` has a key that is not a class",
            "a class",
            repr(name)[:60],
            "target={0: 0.5, 1: 0.5}",
        ) from None
    return name


def _compute_repeat_factors(by_class: ClassIndex, shares: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    """The repeat factor of each record: that of the rarest of its classes; the most common class has 1."""
    coded = by_class.class_codes
    assert coded.offsets is not None
    counts = np.maximum(np.bincount(coded.pairs()[1], minlength=len(coded.classes)), 1)
    wanted = np.array([float(share) for share in shares]) / counts
    least = wanted[wanted > 0].min() if (wanted > 0).any() else 1.0
    of_class = wanted / least
    # A record without a class comes as often as the commonest class.
    factors = np.ones(by_class.records)
    some = np.flatnonzero(np.diff(coded.offsets))
    if len(some):
        factors[some] = np.maximum.reduceat(of_class[coded.codes], coded.offsets[some])
    return factors


def _describe_first_missing_class(by_class: ClassIndex) -> str:
    codes = by_class.class_codes
    present = {one for one, count in zip(codes.classes, codes.counts().tolist(), strict=True) if count}
    first = next(number for number in count_from_0() if number not in present)
    names = by_class.feature.label_names
    return f"class {first}" + (f", {names[first]!r:.40}" if names is not None else "")


def _balance_error(by: str, what: str, expected: str, found: str, do: str) -> RekordError:
    return error("U667", f"`{by}` cannot be balanced: {what}", expected=expected, found=found, do=do)

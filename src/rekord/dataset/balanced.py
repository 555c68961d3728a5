"""`split.balanced` and `split.class_weights`: epochs in which every class has its share, through a class index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
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
from rekord.dataset.order import Ids
from rekord.dataset.read_transforms import reject_transformed_column
from rekord.dataset.samplers import (
    UINT64_RANGE,
    QuotaSampler,
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
from rekord.schema import Feature, Label

_READ_ROWS = 8192


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """The class of each record, `classes[codes[i]]`; a code of -1 says that it has none.

    Where a record may have several classes, those of record i are `codes[offsets[i]:offsets[i + 1]]`.
    """

    classes: tuple[Any, ...]
    codes: npt.NDArray[np.int32]
    offsets: Ids | None = None

    def counts(self) -> Ids:
        """How often each class occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes)).astype(np.int64)

    def pairs(self) -> tuple[Ids, Ids]:
        """Of a list column, records and a class of each: a class that a record names twice is one that it has."""
        assert self.offsets is not None
        records = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return np.divmod(np.unique(records * len(self.classes) + self.codes), max(len(self.classes), 1))

    def of(self, ids: Ids) -> ClassCodes:
        """The same of some records."""
        if self.offsets is None:
            return ClassCodes(self.classes, self.codes[ids])
        lengths = np.diff(self.offsets)[ids]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        return ClassCodes(self.classes, self.codes[np.repeat(self.offsets[ids], lengths) + inside], offsets)


class ClassIndex:
    """The records of some shards by class. What was not in the index goes along when this is pickled."""

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
        """How many records there are."""
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
        """The numbers of the records, sorted by class, those of a class as they come."""
        if self._order is None:
            codes = self.class_codes.codes
            # Small numbers are sorted digit by digit, which takes no comparisons.
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
        """The class of each record, or none: whether every record has one is not checked."""
        kept = _class_codes_cache.setdefault(self.shards, {})
        if self.by not in kept:
            columns = _iter_index_columns(self.shards, self.by)
            if columns is None and self.ids is not None:
                return _encode_classes(self._read(self.ids))
            found = _encode_classes(columns if columns is not None else self._read(None))
            kept[self.by] = found, columns is not None
        found, self._from_index = kept[self.by]
        return found if self.ids is None else found.of(expand_selection(self.ids))

    def _read(self, ids: Selection | None) -> Iterator[Any]:
        split = Split("", RecordView(self.shards, ids), self._schema)
        for batch in split.batches(_READ_ROWS, columns=[self.by]):
            yield column_to_arrow(batch[self.by])

    def _check(self) -> None:
        """Every record has a class, and a class that is declared."""
        coded = self._coded
        assert coded is not None
        bad = coded.codes < 0
        count = self.feature.class_count
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
        raise error(
            "X552",
            f"{int(bad.sum()):,} of {self.records:,} records have no class in `{self.by}`"
            if coded.offsets is None
            else f"`{self.by}` has {int(bad.sum()):,} values that are no class",
            location=Location(path=where.path, record=where.record, offset=where.offset, feature=self.by),
            expected=_describe_expected_classes(self.feature),
            found="no value" if code < 0 else f"{coded.classes[code]!r}"[:60],
            do=f"split.filter(lambda row: row[{self.by!r}] …, columns=[{self.by!r}]) first, to leave them out",
        )


_class_codes_cache: WeakKeyDictionary[Shards, dict[str, tuple[ClassCodes, bool]]] = WeakKeyDictionary()
"""What was read of whole splits, and whether an index has it too, for as long as one of them is in use."""


def read_indexed_class_counts(shards: Shards, by: str) -> dict[int, int] | None:
    """The records of each class of a Label as the indexes of all shards say; None where one does not."""
    counts: dict[int, int] = {}
    for shard, records in enumerate(shards.counts.tolist()):
        if not records:
            continue
        found = shards.index(shard).classes.get(by)
        if found is None or sum(found.values()) != records:
            return None  # some records have no class: which ones is worth a look
        for name, count in found.items():
            counts[int(name)] = counts.get(int(name), 0) + count
    return counts


def _iter_index_columns(shards: Shards, by: str) -> Iterator[Any] | None:
    """The column of each shard, chunk by chunk, where the indexes of all of them have it."""
    # An index without records has no columns, since nothing says their types.
    used = [shard for shard, records in enumerate(shards.counts.tolist()) if records]
    if not all(shards.index(shard).has_columns([by]) for shard in used):
        return None
    return _iter_chunks(shards, used, by)


def _iter_chunks(shards: Shards, used: Sequence[int], by: str) -> Iterator[Any]:
    for shard in used:
        index = shards.index(shard)
        for number in range(-(-len(index) // CHUNK_RECORDS)):
            if not index.keeps([by]):  # of another index than before
                raise index_mismatch_error(index.path, f"`{by}` in the index, as before", "an index without it")
            yield index.columns(number, [by]).column(0)


def _encode_classes(arrays: Iterator[Any]) -> ClassCodes:
    """Arrow arrays of classes as codes, numbered by the order of the classes themselves."""
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
        # One more place, which a code of -1 leads to.
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
            f"`{by}`", "a Label, Int64, Bytes or Text of one value, or of a list of them", found
        )
    return feature


def _class_column_error(what: str, expected: str, found: str) -> RekordError:
    return error(
        "U667",
        f"records cannot be told apart by {what}",
        expected=expected,
        found=found,
        do='by="label", or another column of whole numbers, bytes or texts',
    )


def _describe_expected_classes(feature: Feature) -> str:
    count = feature.class_count
    return "a value in each record" if count is None else f"a class from 0 to {count - 1}"


_GOLDEN_RATIO_64 = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: multiples of it, modulo 2^64, fill the circle evenly."""


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """The classes of a column as parts."""

    by_class: ClassIndex

    @cached_property
    def _starts(self) -> Ids:
        return np.concatenate([[0], np.cumsum(self.by_class.class_codes.counts())]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.by_class.class_codes.classes)

    def size(self, part: int) -> int:
        """How many records the class has."""
        return int(self._starts[part + 1] - self._starts[part])

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        """Those of the class, in an order of the round."""
        if shuffled:
            key = _core.order_key([seed, part, round % UINT64_RANGE])
            numbers = _core.permute(numbers, self.size(part), key)  # type: ignore[assignment]
        found: Ids = self.by_class.order[self._starts[part] + numbers]
        return found


@dataclass(frozen=True, eq=False)
class ClassQuotaPlan:
    """One class a record: quotas that are kept exactly."""

    by_class: ClassIndex
    quotas: Ids

    @property
    def description(self) -> str:
        """Balanced by which column."""
        return f"balanced by `{self.by_class.by}`"

    @property
    def size(self) -> int:
        """As many as there are records."""
        return self.by_class.records

    @property
    def achieved(self) -> dict[Any, float]:
        """Exactly the quotas."""
        quotas = self.quotas.tolist()
        return {
            one: quota / max(self.size, 1)
            for one, quota in zip(self.by_class.class_codes.classes, quotas, strict=True)
        }

    def sampler(self, *, shuffled: bool, seed: int) -> QuotaSampler:
        """Drawn class by class."""
        return QuotaSampler(ClassGroups(self.by_class), self.quotas, shuffled, seed, self._state)

    @cached_property
    def _state(self) -> dict[str, Any]:
        return _identify_classes(self.by_class)


@dataclass(frozen=True, eq=False)
class RepeatFactorPlan:
    """Several classes a record: each record has a factor, and comes as often as that says, up to rounding."""

    by_class: ClassIndex
    factors: npt.NDArray[np.float64]

    @property
    def description(self) -> str:
        """Balanced by which column."""
        return f"balanced by `{self.by_class.by}`"

    @property
    def size(self) -> int:
        """As many as there are records."""
        return self.by_class.records

    @property
    def achieved(self) -> dict[Any, float]:
        """The part of an epoch's records that have the class, as the factors say."""
        coded = self.by_class.class_codes
        records, codes = coded.pairs()
        parts = np.bincount(codes, self.factors[records], minlength=len(coded.classes))
        total = float(self.factors.sum())
        return dict(zip(coded.classes, (parts / total).tolist(), strict=True))

    def sampler(self, *, shuffled: bool, seed: int) -> RepeatFactorSampler:
        """Drawn by the factors."""
        ends = np.cumsum(self.factors)
        return RepeatFactorSampler(self.by_class.ids, ends, shuffled, seed, self._state)

    @cached_property
    def _state(self) -> dict[str, Any]:
        factors = hashlib.sha256(self.factors.tobytes()).hexdigest()
        return {**_identify_classes(self.by_class), "factors": factors[:16]}


@dataclass(frozen=True, eq=False)
class RepeatFactorSampler:
    """A sampler in which each record comes as often as its factor says, rounded up or down from epoch to epoch.

    The factors lie end to end on a line, and n points with equal gaps lie on it: a record has those that fall on it.
    Where the first point lies differs from epoch to epoch.
    """

    ids: Selection | None
    ends: npt.NDArray[np.float64]
    shuffled: bool
    seed: int
    extra: Mapping[str, Any]

    @property
    def size(self) -> int:
        """As many as there are records."""
        return len(self.ends)

    @property
    def is_file_order(self) -> bool:
        """Never."""
        return False

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The records that the points of these positions fall on."""
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
        """The order, and what tells these factors from others."""
        order = "exact" if self.shuffled else "sequential"
        return {"kind": order, "seed": self.seed, **self.extra}

    def resume(self, told: Mapping[str, Any]) -> RepeatFactorSampler:
        """The same."""
        return self


def balanced_sampling(split: Split, by: str, target: ClassShares | Literal["present"] | None) -> Sampling:
    """A sampling in which the classes of a column have equal shares, or those of `target`."""
    reject_transformed_column(split, by, "balanced")
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    if not by_class.records:
        raise _balance_error(by, "there is no record", "at least one record", "none", "balance another split")
    shares = _compute_class_shares(by_class, target)
    if by_class.is_multi_label:
        return RepeatFactorPlan(by_class, _compute_repeat_factors(by_class, shares))
    return ClassQuotaPlan(by_class, allocate_quotas(by_class.records, shares))


def class_weights(split: Split, by: str, *, names: bool) -> dict[ClassKey, float] | dict[str, float]:
    """n / (k · count) of each of k classes that there are."""
    reject_transformed_column(split, by, "class_weights")
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    feature = by_class.feature
    counts: Mapping[Any, int] | None = None
    if feature.class_count is not None and not feature.shape and split.view.ids is None:
        counts = read_indexed_class_counts(split.view.shards, by)
    if counts is None:
        counts = dict(zip(by_class.class_codes.classes, by_class.class_codes.counts().tolist(), strict=True))
    there = {one: count for one, count in sorted(counts.items()) if count}
    n = sum(there.values())
    weights = {one: n / (len(there) * count) for one, count in there.items()}
    if not names:
        return weights
    if feature.class_names is None:
        raise error(
            "U605",
            f"`names` means nothing for `{by}`, whose classes have none",
            expected="a Label with names",
            found=repr(feature)[:60],
            do="leave `names` out",
        )
    return {feature.class_names[one]: weight for one, weight in weights.items()}


def _compute_class_shares(by_class: ClassIndex, target: object) -> list[Fraction]:
    """The share of each class that there is."""
    by, feature, classes = by_class.by, by_class.feature, by_class.class_codes.classes
    counts = by_class.class_codes.counts()
    if target is None or target == "present":
        lacking = 0 if feature.class_count is None else feature.class_count - int((counts > 0).sum())
        if target is None and lacking:
            raise _balance_error(
                by,
                f"{lacking:,} of {feature.class_count:,} classes have no records",
                "records of every class that is declared",
                f"none of {_describe_first_missing_class(by_class)}",
                'target="present" balances the classes that there are',
            )
        return [Fraction(int(count > 0)) for count in counts.tolist()]
    if not isinstance(target, Mapping) or not target:
        raise _balance_error(
            by,
            "`target` is no mapping from classes to shares",
            '{class: share, …}, "present" or None',
            repr(target)[:60],
            "target={0: 0.5, 1: 0.5}",
        )
    asked: dict[Any, Fraction] = {}
    for name, share in target.items():
        one = _resolve_class(by_class, name)
        checked = parse_share(f"{name!r}"[:60], share)
        if one in asked:
            raise _balance_error(
                by, "`target` names a class twice", "each class once", repr(name)[:60], "leave one out"
            )
        if checked and one not in classes:
            raise _balance_error(
                by,
                f"`target` asks for class {name!r:.60}, which has no records",
                "shares of classes that have records",
                f"{len(classes):,} classes: {', '.join(map(repr, classes[:5]))}"[:60],
                f"leave {name!r:.60} out of `target`",
            )
        asked[one] = checked
    for one, count in zip(classes, counts.tolist(), strict=True):
        if count and one not in asked:
            raise _balance_error(
                by,
                f"`target` says nothing of class {one!r:.60}",
                "a share of every class that has records",
                f"{count:,} records of it",
                f"{one!r:.60}: 0 in `target` leaves them out",
            )
    if not sum(asked.values()):
        raise _balance_error(by, "all shares of `target` are 0", "a share above 0", "0", "target=None")
    return [asked.get(one, Fraction(0)) for one in classes]


def _resolve_class(by_class: ClassIndex, name: Any) -> Any:
    """A class by its name or its value."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(by_class.feature, Label) and isinstance(name, str):
        number = by_class.feature.id_of(name)
        if number is None:
            raise _balance_error(
                by_class.by,
                f"`target` names a class that there is not: {name!r:.60}",
                "a class of the schema",
                repr(name)[:60],
                "name a class as the schema does, or by its id",
            )
        return number
    try:
        hash(name)
    except TypeError:
        raise _balance_error(
            by_class.by, "`target` has a key that is no class", "a value", repr(name)[:60], "{0: 0.5, 1: 0.5}"
        ) from None
    return name


def _compute_repeat_factors(by_class: ClassIndex, shares: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    """How often each record is wanted: as often as the rarest of its classes, the commonest one being 1."""
    coded = by_class.class_codes
    assert coded.offsets is not None
    counts = np.maximum(np.bincount(coded.pairs()[1], minlength=len(coded.classes)), 1)
    wanted = np.array([float(share) for share in shares]) / counts
    least = wanted[wanted > 0].min() if (wanted > 0).any() else 1.0
    of_class = wanted / least
    # A record without a class comes as often as the commonest.
    factors = np.ones(by_class.records)
    some = np.flatnonzero(np.diff(coded.offsets))
    if len(some):
        factors[some] = np.maximum.reduceat(of_class[coded.codes], coded.offsets[some])
    return factors


def _describe_first_missing_class(by_class: ClassIndex) -> str:
    feature = by_class.feature
    assert isinstance(feature, Label)
    there = {
        one
        for one, count in zip(by_class.class_codes.classes, by_class.class_codes.counts().tolist(), strict=True)
        if count
    }
    first = next(number for number in range(feature.count) if number not in there)
    return f"class {first}" + (f", {feature.names[first]!r:.40}" if feature.names is not None else "")


def _identify_classes(by_class: ClassIndex) -> dict[str, Any]:
    told: dict[str, Any] = {"balanced": by_class.by}
    if by_class.ids is not None:
        told["selected"] = digest_selection(by_class.ids)
    classes = msgspec.json.encode([repr(one) for one in by_class.class_codes.classes])
    return {**told, "classes": hashlib.sha256(classes).hexdigest()[:16]}


def _balance_error(by: str, what: str, expected: str, found: str, do: str) -> RekordError:
    return error("U667", f"`{by}` cannot be balanced: {what}", expected=expected, found=found, do=do)

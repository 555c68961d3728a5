"""Which records a balanced split has: those that stay, and those of which there are to be more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.by_class import ByClass
from rekord.dataset.order import Ids
from rekord.dataset.selection import all_numbers
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Feature, Int64, Label
from rekord.verbs.balance_targets import Classes, Counts


@dataclass(frozen=True, eq=False)
class Labelled:
    """The records of a split and their classes. A code of -1 is a record without a class."""

    split: Split
    by: str
    feature: Feature
    values: tuple[Any, ...]  # of the classes, in their order
    codes: npt.NDArray[np.int32]

    @cached_property
    def numbers(self) -> Ids:
        """The records, by their numbers in the shards."""
        return all_numbers(self.split._all_ids())

    @cached_property
    def counts(self) -> Counts:
        """Of the classes that have records."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).tolist()
        return {value: count for value, count in zip(self.values, found, strict=True) if count}

    @property
    def without(self) -> int:
        """How many records have no class."""
        return int((self.codes < 0).sum())

    @property
    def classes(self) -> Classes:
        """As a strategy is given them."""
        return Classes(
            split=self.split.name,
            by=self.by,
            counts=self.counts,
            class_of=self._class_of,
            name_of=self.name_of,
        )

    def values_of_records(self) -> Any:
        """The class of each record that has one."""
        # Texts and bytes as they are: NumPy's own would lose zeros at the end.
        whole = all(isinstance(value, int) for value in self.values)
        return np.array(self.values, None if whole else object)[self.codes[self.codes >= 0]]

    def named(self, counts: Mapping[Any, int]) -> dict[str, int]:
        """Counts as a report holds them."""
        return {self.name_of(one): count for one, count in counts.items()}

    def name_of(self, value: Any) -> str:
        """How a class is called."""
        if isinstance(self.feature, Label) and self.feature.names is not None:
            return str(self.feature.names[value])
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    def places(self, value: Any) -> Ids:
        """Where the records of a class stand among all, as they come."""
        order, sorted_codes = self._by_code
        begin, end = np.searchsorted(sorted_codes, [self.code(value), self.code(value) + 1])
        return order[begin:end]

    def code(self, value: Any) -> int:
        """The place of a class in their order."""
        return self._code_of[value]

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def _value_of(self) -> dict[str, Any]:
        return {self.name_of(value): value for value in self.values}

    @cached_property
    def _by_code(self) -> tuple[Ids, Any]:
        order = np.argsort(self.codes, kind="stable").astype(np.int64)
        return order, self.codes[order]

    def _class_of(self, given: Any) -> Any:
        if isinstance(given, np.generic):
            given = given.item()
        if not isinstance(given, str):
            return given
        # A command line has only texts: the names of classes, or ids beside them.
        if given in self._value_of:
            return self._value_of[given]
        numeric = isinstance(self.feature, (Int64, Label))
        is_number = given.removeprefix("-").isdecimal() and len(given) < 20
        return int(given) if numeric and is_number else given


@dataclass(frozen=True, eq=False)
class Draw:
    """The records of a balanced split: those that stay in their order, and behind them those that are added."""

    labelled: Labelled
    after: Counts
    kept: Ids
    added: Ids  # the records that they are copies of
    copies: npt.NDArray[np.int32]  # which copy of its record each one is, from 1 on

    @cached_property
    def ids(self) -> Ids:
        """All of them."""
        return np.concatenate([self.kept, self.added])

    @property
    def removed(self) -> int:
        """How many are not there any more."""
        return len(self.labelled.codes) - len(self.kept)


def labelled(split: Split, by: str) -> Labelled:
    """The classes of the records of a split, from the index or read once."""
    by_class = ByClass(split._shards, split._schema, by, split._ids)
    if by_class.is_several:
        raise error(
            "U637",
            f"a record may have several classes in `{by}`: copies of it would change all of them",
            location=Location(feature=by),
            expected="a column with one class a record",
            found=f"a list, shape {by_class.feature.shape}",
            do=f'split.balanced(by="{by}") draws such records by repeat factors while it reads',
        )
    coded = by_class._load()  # without the check that every record has a class: here it need not
    if isinstance(by_class.feature, Label):
        _check_declared(by_class, by_class.feature, coded.classes, coded.codes)
    return Labelled(split, by, by_class.feature, coded.classes, coded.codes)


def _check_declared(by_class: ByClass, feature: Label, values: tuple[Any, ...], codes: Any) -> None:
    strange = [code for code, value in enumerate(values) if not 0 <= value < feature.count]
    bad = np.isin(codes, strange)
    if not bad.any():
        return
    first = int(np.argmax(bad))
    where = by_class.shards.where(first if by_class.ids is None else int(by_class.ids[first]))
    raise error(
        "X552",
        f"{int(bad.sum()):,} of {len(codes):,} records have a class in `{by_class.by}` that is not declared",
        location=Location(path=where.path, record=where.record, offset=where.offset, feature=by_class.by),
        expected=f"a class from 0 to {feature.count - 1}",
        found=f"{values[int(codes[first])]!r}"[:60],
        do=f'rekord rewrite IN NEW --where "{by_class.by} >= 0 and {by_class.by} < {feature.count}" first',
    )


def fewer(records: Labelled, after: Counts, seed: int) -> Draw:
    """So many of each class, chosen by a keyed permutation. Records without a class all stay."""
    stays = np.ones(len(records.codes), np.bool_)
    for value, count in records.counts.items():
        if after[value] == count:
            continue
        places, code = records.places(value), records.code(value)
        stays[places] = False
        stays[places[_permuted(np.arange(after[value]), count, [seed, code, 0])]] = True
    none = np.zeros(0, np.int64)
    return Draw(records, after, records.numbers[stays], none, none.astype(np.int32))


def more(records: Labelled, after: Counts, seed: int) -> Draw:
    """All records, and copies: within a class no record has two copies more than another."""
    added: list[Any] = [np.zeros(0, np.int64)]
    copies: list[Any] = [np.zeros(0, np.int64)]
    for value, count in records.counts.items():
        wanted = after[value] - count
        if not wanted:
            continue
        members, code = records.numbers[records.places(value)], records.code(value)
        rounds, rest = divmod(wanted, count)
        chosen = np.sort(_permuted(np.arange(rest), count, [seed, code, 0]))
        added += [np.tile(members, rounds), members[chosen]]
        copies += [np.repeat(np.arange(1, rounds + 1), count), np.full(rest, rounds + 1)]
    return Draw(
        records, after, records.numbers, np.concatenate(added), np.concatenate(copies).astype(np.int32)
    )


def _permuted(places: Ids, size: int, words: list[int]) -> Ids:
    made: Ids = _core.permute(places.astype(np.int64), size, _core.order_key(words))  # type: ignore[assignment]
    return made

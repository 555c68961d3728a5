"""How many records each class gets, and which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.balanced import ClassIndex
from rekord.dataset.samplers import Ids, expand_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema import Feature, Label

CountsByClass: TypeAlias = "dict[Any, int]"
"""Records by class."""

Strategy: TypeAlias = "str | float | Mapping[Any, int] | Callable[[Any], Mapping[Any, int]]"

_MAX_RECORDS = 1 << 30
"""Of a balanced split. Their numbers are in memory, and a number that is mistyped shall not fill it."""

STRATEGY_NAMES = ("auto", "minority", "majority", "not minority", "not majority", "all")


@dataclass(frozen=True, kw_only=True)
class ClassSummary:
    """The classes that records have, in their order, and how they are called."""

    split: str
    by: str
    counts: Mapping[Any, int]
    class_of: Callable[[Any], Any]  # by its value or its name; what was given where there is none of that name
    name_of: Callable[[Any], str]


def compute_targets(
    strategy: object, classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    """The number of records that each class is to have; `values` gives the class of each record to a function.

    `grow`: classes get more records, and none loses any. Else it is the other way round.
    """
    if len(classes.counts) < 2:
        raise _strategy_error(
            classes,
            f"there {'is one class' if classes.counts else 'is no class'}",
            "records of two classes at least",
            ", ".join([classes.name_of(one) for one in classes.counts])[:60] or "none",
            "balance another column, or another split",
        )
    if isinstance(strategy, str):
        asked = _compute_named_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Mapping):
        asked = _compute_class_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Real) and not isinstance(strategy, bool):
        asked = _compute_ratio_targets(float(strategy), classes, grow=grow)
    elif callable(strategy):
        asked = _call_target_function(strategy, classes, values, grow=grow)
    else:
        raise _unknown_strategy_error(classes, strategy)
    after = {one: asked.get(one, count) for one, count in classes.counts.items()}
    if grow and sum(after.values()) > max(_MAX_RECORDS, sum(classes.counts.values())):
        most = max(after, key=after.__getitem__)
        raise _strategy_error(
            classes,
            "that would be more records than a split may get",
            f"at most {_MAX_RECORDS:,} records in all",
            f"{sum(after.values()):,}, of them {after[most]:,} of class {classes.name_of(most)[:60]}",
            "ask for fewer",
        )
    return after


def _compute_named_targets(word: str, classes: ClassSummary, *, grow: bool) -> CountsByClass:
    if word not in STRATEGY_NAMES:
        raise _unknown_strategy_error(classes, word)
    if word == ("majority" if grow else "minority"):
        raise _strategy_error(
            classes,
            f'"{word}" means nothing here',
            "classes that can get more records" if grow else "classes that can lose records",
            f"the {'largest' if grow else 'smallest'} class alone",
            'sampling_strategy="auto"',
        )
    counts = classes.counts
    # Of several that are as large, the first is meant: so does imbalanced-learn.
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if word == "auto":
        word = "not majority" if grow else "not minority"
    chosen = {
        "minority": [smallest],
        "majority": [largest],
        "not minority": [one for one in counts if one != smallest],
        "not majority": [one for one in counts if one != largest],
        "all": list(counts),
    }[word]
    return dict.fromkeys(chosen, counts[largest] if grow else counts[smallest])


def _compute_ratio_targets(ratio: float, classes: ClassSummary, *, grow: bool) -> CountsByClass:
    counts = classes.counts
    if not isfinite(ratio) or not 0 < ratio <= 1:
        raise _strategy_error(
            classes,
            f"a ratio cannot be {ratio:g}",
            "smaller class / larger class: above 0, at most 1",
            f"{ratio:g}",
            "sampling_strategy=0.5",
        )
    if len(counts) != 2:
        example = ", ".join(f"{_format_class_key(classes, one)}: …" for one in list(counts)[:3])
        raise _strategy_error(
            classes,
            f"a ratio is for two classes, and there are {len(counts):,}",
            "a number of records for each class",
            f"{ratio:g}",
            f"sampling_strategy={{{example}}}",
        )
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    one = next(name for name in counts if name != (largest if grow else smallest))
    if grow:
        more = int(counts[largest] * ratio - counts[one])
        wanted = counts[one] + more
        possible = more > 0
    else:
        share = counts[smallest] / ratio  # infinite for a ratio next to 0
        possible = share < counts[one] + 1
        wanted = int(share) if possible else 0
    if not possible:
        raise _strategy_error(
            classes,
            f"at a ratio of {ratio:g} class {classes.name_of(one)} would {'gain' if grow else 'lose'} nothing",
            f"a ratio above {counts[smallest] / counts[largest]:.3g}, which it is now",
            f"{ratio:g}",
            "a larger ratio",
        )
    return {one: wanted}


def _compute_class_targets(asked: Mapping[Any, Any], classes: ClassSummary, *, grow: bool) -> CountsByClass:
    made: CountsByClass = {}
    for name, number in asked.items():
        one = classes.class_of(name)
        try:
            count = classes.counts.get(one)
        except TypeError:  # what cannot be a key is no class
            count = None
        if count is None:
            near = closest_match(str(name), [classes.name_of(known) for known in classes.counts])
            raise _strategy_error(
                classes,
                f"there are no records of class {preview(name)}",
                "classes that have records",
                f"{len(classes.counts):,} classes: {', '.join(map(classes.name_of, classes.counts))}"[:60],
                f"did you mean {near!r}?" if near else "name a class that has records",
            )
        whole = hasattr(number, "__index__") and not isinstance(number, bool)
        wanted = number.__index__() if whole else -1
        if wanted < 0 or one in made:
            raise _strategy_error(
                classes,
                f"class {preview(name)} {'is named twice' if wanted >= 0 else 'has no number'}",
                "a whole number of records for each class, from 0 on",
                preview(number),
                f"sampling_strategy={{{_format_class_key(classes, one)}: {count}}}",
            )
        if wanted < count if grow else wanted > count:
            raise _strategy_error(
                classes,
                f"class {classes.name_of(one)} cannot {'shrink' if grow else 'grow'} by this method",
                f"{'at least' if grow else 'at most'} {count:,} records, which it has",
                f"{wanted:,}",
                'method="undersample"' if grow else 'method="oversample"',
            )
        made[one] = int(wanted)
    return made


def _call_target_function(
    function: Callable[[Any], Any], classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    try:
        asked = function(values())
    except Exception as failure:
        raise _strategy_error(
            classes,
            "the function of `sampling_strategy` failed",
            "a function of the classes of all records",
            f"{type(failure).__name__}: {failure}"[:60],
            "look at the function",
        ) from failure
    if not isinstance(asked, Mapping):
        raise _strategy_error(
            classes,
            "the function of `sampling_strategy` gave no number for each class",
            "{class: number of records}",
            preview(asked),
            "let it return a dict",
        )
    return _compute_class_targets(asked, classes, grow=grow)


def _format_class_key(classes: ClassSummary, one: Any) -> str:
    """A class as one would write it in a dict."""
    name = classes.name_of(one)
    return repr(one) if name == repr(one) else repr(name)


def _unknown_strategy_error(classes: ClassSummary, strategy: object) -> RekordError:
    near = closest_match(strategy, STRATEGY_NAMES) if isinstance(strategy, str) else None
    return _strategy_error(
        classes,
        f"a strategy cannot be {preview(strategy)}",
        "one of " + ", ".join(STRATEGY_NAMES) + ", a ratio, or {class: records}",
        preview(strategy),
        f'sampling_strategy="{near or "auto"}"',
    )


def _strategy_error(classes: ClassSummary, what: str, expected: str, found: str, do: str) -> RekordError:
    return error(
        "U667",
        f"`{classes.by}` of {classes.split} cannot be balanced so: {what}",
        location=Location(feature=classes.by),
        expected=expected,
        found=found,
        do=do,
    )


@dataclass(frozen=True, eq=False)
class LabelledRecords:
    """The records of a split and their classes. A code of -1 is a record without a class."""

    split: Split
    by: str
    feature: Feature
    values: tuple[Any, ...]  # of the classes, in their order
    codes: npt.NDArray[np.int32]

    @cached_property
    def numbers(self) -> Ids:
        """The records, by their numbers in the shards."""
        return expand_selection(self.split.view.all_ids)

    @cached_property
    def counts(self) -> CountsByClass:
        """Of the classes that have records."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).tolist()
        return {value: count for value, count in zip(self.values, found, strict=True) if count}

    @property
    def without(self) -> int:
        """How many records have no class."""
        return int((self.codes < 0).sum())

    @property
    def classes(self) -> ClassSummary:
        """As a strategy is given them."""
        return ClassSummary(
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
        names = self.feature.class_names
        if names is not None:
            return str(names[value])
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
        numeric = self.feature.value_kind == "int"
        is_number = given.removeprefix("-").isdecimal() and len(given) < 20
        return int(given) if numeric and is_number else given


@dataclass(frozen=True, eq=False)
class SampledRecords:
    """The records of a balanced split: those that stay in their order, and behind them those that are added."""

    labelled: LabelledRecords
    after: CountsByClass
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


def read_record_labels(split: Split, by: str) -> LabelledRecords:
    """The classes of the records of a split, from the index or read once."""
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    if by_class.is_multi_label:
        raise error(
            "U667",
            f"a record may have several classes in `{by}`: copies of it would change all of them",
            location=Location(feature=by),
            expected="a column with one class a record",
            found=f"a list, shape {by_class.feature.shape}",
            do=f'split.balanced(by="{by}") draws such records by repeat factors while it reads',
        )
    coded = by_class.load()  # without the check that every record has a class: here it need not
    if isinstance(by_class.feature, Label):
        _check_declared(by_class, by_class.feature, coded.classes, coded.codes)
    return LabelledRecords(split, by, by_class.feature, coded.classes, coded.codes)


def _check_declared(by_class: ClassIndex, feature: Label, values: tuple[Any, ...], codes: Any) -> None:
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


def undersample(records: LabelledRecords, after: CountsByClass, seed: int) -> SampledRecords:
    """So many of each class, chosen by a keyed permutation. Records without a class all stay."""
    stays = np.ones(len(records.codes), np.bool_)
    for value, count in records.counts.items():
        if after[value] == count:
            continue
        places, code = records.places(value), records.code(value)
        stays[places] = False
        stays[places[_permute(np.arange(after[value]), count, [seed, code, 0])]] = True
    none = np.zeros(0, np.int64)
    return SampledRecords(records, after, records.numbers[stays], none, none.astype(np.int32))


def oversample(records: LabelledRecords, after: CountsByClass, seed: int) -> SampledRecords:
    """All records, and copies: within a class no record has two copies more than another."""
    added: list[Any] = [np.zeros(0, np.int64)]
    copies: list[Any] = [np.zeros(0, np.int64)]
    for value, count in records.counts.items():
        wanted = after[value] - count
        if not wanted:
            continue
        members, code = records.numbers[records.places(value)], records.code(value)
        rounds, rest = divmod(wanted, count)
        chosen = np.sort(_permute(np.arange(rest), count, [seed, code, 0]))
        added += [np.tile(members, rounds), members[chosen]]
        copies += [np.repeat(np.arange(1, rounds + 1), count), np.full(rest, rounds + 1)]
    return SampledRecords(
        records, after, records.numbers, np.concatenate(added), np.concatenate(copies).astype(np.int32)
    )


def _permute(places: Ids, size: int, words: list[int]) -> Ids:
    made: Ids = _core.permute(places.astype(np.int64), size, _core.order_key(words))  # type: ignore[assignment]
    return made

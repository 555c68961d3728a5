"""The number of records that each class gets, and which records they are."""

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
"""Of a balanced split. Their numbers are in memory, which a typo must not fill."""

STRATEGY_NAMES = ("auto", "minority", "majority", "not minority", "not majority", "all")


@dataclass(frozen=True, kw_only=True)
class ClassSummary:
    """The classes of records, in order, and their names."""

    split: str
    by: str
    counts: Mapping[Any, int]
    class_of: Callable[[Any], Any]  # by value or name; an unknown name is returned unchanged
    name_of: Callable[[Any], str]


def compute_targets(
    strategy: object, classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    """The target number of records of each class; `values` returns the class of each record, for a function.

    With `grow`, classes only gain records; without, they only lose some.
    """
    if len(classes.counts) < 2:
        raise _strategy_error(
            classes,
            f"it has {'one class' if classes.counts else 'no class'}",
            "records of at least two classes",
            ", ".join([classes.name_of(one) for one in classes.counts])[:60] or "none",
            "balance another column (by=) or split (splits=)",
        )
    if isinstance(strategy, str):
        targets = _compute_named_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Mapping):
        targets = _compute_class_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Real) and not isinstance(strategy, bool):
        targets = _compute_ratio_targets(float(strategy), classes, grow=grow)
    elif callable(strategy):
        targets = _call_target_function(strategy, classes, values, grow=grow)
    else:
        raise _unknown_strategy_error(classes, strategy)
    after = {one: targets.get(one, count) for one, count in classes.counts.items()}
    if grow and sum(after.values()) > max(_MAX_RECORDS, sum(classes.counts.values())):
        most = max(after, key=after.__getitem__)
        raise _strategy_error(
            classes,
            "the result would have too many records",
            f"at most {_MAX_RECORDS:,} records in total",
            f"{sum(after.values()):,}, including {after[most]:,} of class {classes.name_of(most)[:60]}",
            'sampling_strategy="auto"',
        )
    return after


def _compute_named_targets(word: str, classes: ClassSummary, *, grow: bool) -> CountsByClass:
    if word not in STRATEGY_NAMES:
        raise _unknown_strategy_error(classes, word)
    if word == ("majority" if grow else "minority"):
        raise _strategy_error(
            classes,
            f'"{word}" does not apply to this method',
            "classes that can gain records" if grow else "classes that can lose records",
            f"only the {'largest' if grow else 'smallest'} class",
            'sampling_strategy="auto"',
        )
    counts = classes.counts
    # Of several equally large classes, the first counts, as in imbalanced-learn.
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
            f"{ratio:g} is not a valid ratio",
            "smaller class / larger class: above 0, at most 1",
            f"{ratio:g}",
            "sampling_strategy=0.5",
        )
    if len(counts) != 2:
        example = ", ".join(f"{_format_class_key(classes, one)}: …" for one in list(counts)[:3])
        raise _strategy_error(
            classes,
            f"a ratio needs two classes, and there are {len(counts):,}",
            "a number of records per class",
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
            f"class {classes.name_of(one)} would {'gain' if grow else 'lose'} no records at a ratio of {ratio:g}",
            f"a ratio above the current {counts[smallest] / counts[largest]:.3g}",
            f"{ratio:g}",
            "sampling_strategy=1.0",
        )
    return {one: wanted}


def _compute_class_targets(requested: Mapping[Any, Any], classes: ClassSummary, *, grow: bool) -> CountsByClass:
    made: CountsByClass = {}
    for name, number in requested.items():
        one = classes.class_of(name)
        try:
            count = classes.counts.get(one)
        except TypeError:  # an unhashable value is not a class
            count = None
        if count is None:
            near = closest_match(str(name), [classes.name_of(known) for known in classes.counts])
            raise _strategy_error(
                classes,
                f"class {preview(name)} has no records",
                f"one of {len(classes.counts):,} classes: {', '.join(map(classes.name_of, classes.counts))}"[:60],
                preview(name),
                f"did you mean {near!r}?" if near else 'sampling_strategy="auto"',
            )
        is_integer = hasattr(number, "__index__") and not isinstance(number, bool)
        wanted = number.__index__() if is_integer else -1
        if wanted < 0 or one in made:
            raise _strategy_error(
                classes,
                f"class {preview(name)} {'is a duplicate' if wanted >= 0 else 'has no valid number of records'}",
                "an integer ≥ 0 for each class",
                preview(number),
                f"sampling_strategy={{{_format_class_key(classes, one)}: {count}}}",
            )
        if wanted < count if grow else wanted > count:
            raise _strategy_error(
                classes,
                f"class {classes.name_of(one)} cannot {'lose' if grow else 'gain'} records by this method",
                f"{'at least' if grow else 'at most'} the current {count:,} records",
                f"{wanted:,}",
                'method="undersample"' if grow else 'method="oversample"',
            )
        made[one] = int(wanted)
    return made


def _call_target_function(
    function: Callable[[Any], Any], classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    try:
        targets = function(values())
    except Exception as failure:
        raise _strategy_error(
            classes,
            "the function `sampling_strategy` failed",
            "a function of the classes of all records",
            f"{type(failure).__name__}: {failure}"[:60],
            "fix the function",
        ) from failure
    if not isinstance(targets, Mapping):
        raise _strategy_error(
            classes,
            "the function `sampling_strategy` did not return a dict",
            "{class: number of records}",
            preview(targets),
            "return a dict from the function",
        )
    return _compute_class_targets(targets, classes, grow=grow)


def _format_class_key(classes: ClassSummary, one: Any) -> str:
    """A class as the key of a dict in source code."""
    name = classes.name_of(one)
    return repr(one) if name == repr(one) else repr(name)


def _unknown_strategy_error(classes: ClassSummary, strategy: object) -> RekordError:
    near = closest_match(strategy, STRATEGY_NAMES) if isinstance(strategy, str) else None
    return _strategy_error(
        classes,
        f"{preview(strategy)} is not a valid strategy",
        "one of " + ", ".join(STRATEGY_NAMES) + ", a ratio, or {class: records}",
        preview(strategy),
        f'sampling_strategy="{near or "auto"}"',
    )


def _strategy_error(classes: ClassSummary, what: str, expected: str, found: str, do: str) -> RekordError:
    return error(
        "U667",
        f"`{classes.by}` of {classes.split} cannot be balanced: {what}",
        location=Location(feature=classes.by),
        expected=expected,
        found=found,
        do=do,
    )


@dataclass(frozen=True, eq=False)
class LabelledRecords:
    """The records of a split and their classes. Code -1 means that a record has no class."""

    split: Split
    by: str
    feature: Feature
    values: tuple[Any, ...]  # of the classes, in their order
    codes: npt.NDArray[np.int32]

    @cached_property
    def numbers(self) -> Ids:
        """The records, by number in the shards."""
        return expand_selection(self.split.view.all_ids)

    @cached_property
    def counts(self) -> CountsByClass:
        """Records by class, for classes with records."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).tolist()
        return {value: count for value, count in zip(self.values, found, strict=True) if count}

    @property
    def without(self) -> int:
        """The number of records without a class."""
        return int((self.codes < 0).sum())

    @property
    def classes(self) -> ClassSummary:
        """The classes as input of a strategy."""
        return ClassSummary(
            split=self.split.name,
            by=self.by,
            counts=self.counts,
            class_of=self._class_of,
            name_of=self.name_of,
        )

    def values_of_records(self) -> Any:
        """The class of each record that has one."""
        # Strings and bytes as objects: NumPy's own types lose trailing zeros.
        integers = all(isinstance(value, int) for value in self.values)
        return np.array(self.values, None if integers else object)[self.codes[self.codes >= 0]]

    def named(self, counts: Mapping[Any, int]) -> dict[str, int]:
        """Counts by class name."""
        return {self.name_of(one): count for one, count in counts.items()}

    def name_of(self, value: Any) -> str:
        """The name of a class."""
        names = self.feature.class_names
        if names is not None:
            return str(names[value])
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    def places(self, value: Any) -> Ids:
        """The positions of the records of a class, in order."""
        order, sorted_codes = self._by_code
        begin, end = np.searchsorted(sorted_codes, [self.code(value), self.code(value) + 1])
        return order[begin:end]

    def code(self, value: Any) -> int:
        """The position of a class in the order of classes."""
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
        # The command line has only strings: class names, or ids.
        if given in self._value_of:
            return self._value_of[given]
        numeric = self.feature.value_kind == "int"
        is_number = given.removeprefix("-").isdecimal() and len(given) < 20
        return int(given) if numeric and is_number else given


@dataclass(frozen=True, eq=False)
class SampledRecords:
    """The records of a balanced split: the kept ones in order, followed by the added ones."""

    labelled: LabelledRecords
    after: CountsByClass
    kept: Ids
    added: Ids  # the originals of the added records
    copies: npt.NDArray[np.int32]  # the number of each copy of its original, from 1

    @cached_property
    def ids(self) -> Ids:
        """All records."""
        return np.concatenate([self.kept, self.added])

    @property
    def removed(self) -> int:
        """The number of dropped records."""
        return len(self.labelled.codes) - len(self.kept)


def read_record_labels(split: Split, by: str) -> LabelledRecords:
    """The classes of the records of a split, from the index or from the records."""
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    if by_class.is_multi_label:
        raise error(
            "U667",
            f"`{by}` holds several classes per record, which copies would change together",
            location=Location(feature=by),
            expected="a column with one class per record",
            found=f"a list of shape {by_class.feature.shape}",
            do=f'sample when reading instead: split.balanced(by="{by}")',
        )
    coded = by_class.load()  # records without a class are allowed here
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
        f"{int(bad.sum()):,} of {len(codes):,} records have an undeclared class in `{by_class.by}`",
        location=Location(path=where.path, record=where.record, offset=where.offset, feature=by_class.by),
        expected=f"a class from 0 to {feature.count - 1}",
        found=f"{values[int(codes[first])]!r}"[:60],
        do=f'rekord rewrite IN OUT --where "{by_class.by} >= 0 and {by_class.by} < {feature.count}"',
    )


def undersample(records: LabelledRecords, after: CountsByClass, seed: int) -> SampledRecords:
    """Keep the target number of each class, chosen by a keyed permutation, and all records without a class."""
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
    """All records, and copies: within a class, the number of copies per record differs by at most one."""
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

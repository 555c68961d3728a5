"""How many records each class is to have: `sampling_strategy`, as imbalanced-learn defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, TypeAlias

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown

Counts: TypeAlias = "dict[Any, int]"
"""Records by class."""

Strategy: TypeAlias = "str | float | Mapping[Any, int] | Callable[[Any], Mapping[Any, int]]"

_MOST_RECORDS = 1 << 30
"""Of a balanced split. Their numbers are in memory, and a number that is mistyped shall not fill it."""

WORDS = ("auto", "minority", "majority", "not minority", "not majority", "all")


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes that records have, in their order, and how they are called."""

    split: str
    by: str
    counts: Mapping[Any, int]
    class_of: Callable[
        [Any], Any
    ]  # by its value or its name; what was given where there is none of that name
    name_of: Callable[[Any], str]


def targets(strategy: object, classes: Classes, values: Callable[[], Any], *, grow: bool) -> Counts:
    """The number of records that each class is to have; `values` gives the class of each record to a function.

    `grow`: classes get more records, and none loses any. Else it is the other way round.
    """
    if len(classes.counts) < 2:
        raise _refused(
            classes,
            f"there {'is one class' if classes.counts else 'is no class'}",
            "records of two classes at least",
            ", ".join([classes.name_of(one) for one in classes.counts])[:60] or "none",
            "balance another column, or another split",
        )
    if isinstance(strategy, str):
        asked = _by_word(strategy, classes, grow=grow)
    elif isinstance(strategy, Mapping):
        asked = _by_class(strategy, classes, grow=grow)
    elif isinstance(strategy, Real) and not isinstance(strategy, bool):
        asked = _by_ratio(float(strategy), classes, grow=grow)
    elif callable(strategy):
        asked = _by_function(strategy, classes, values, grow=grow)
    else:
        raise _unknown(classes, strategy)
    after = {one: asked.get(one, count) for one, count in classes.counts.items()}
    if grow and sum(after.values()) > max(_MOST_RECORDS, sum(classes.counts.values())):
        most = max(after, key=after.__getitem__)
        raise _refused(
            classes,
            "that would be more records than a split may get",
            f"at most {_MOST_RECORDS:,} records in all",
            f"{sum(after.values()):,}, of them {after[most]:,} of class {classes.name_of(most)[:60]}",
            "ask for fewer",
        )
    return after


def _by_word(word: str, classes: Classes, *, grow: bool) -> Counts:
    if word not in WORDS:
        raise _unknown(classes, word)
    if word == ("majority" if grow else "minority"):
        raise _refused(
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


def _by_ratio(ratio: float, classes: Classes, *, grow: bool) -> Counts:
    counts = classes.counts
    if not isfinite(ratio) or not 0 < ratio <= 1:
        raise _refused(
            classes,
            f"a ratio cannot be {ratio:g}",
            "smaller class / larger class: above 0, at most 1",
            f"{ratio:g}",
            "sampling_strategy=0.5",
        )
    if len(counts) != 2:
        raise _refused(
            classes,
            f"a ratio is for two classes, and there are {len(counts):,}",
            "a number of records for each class",
            f"{ratio:g}",
            f"sampling_strategy={{{', '.join([f'{_shown_key(classes, one)}: …' for one in list(counts)[:3]])}}}",
        )
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    one = next(name for name in counts if name != (largest if grow else smallest))
    if grow:
        more = int(counts[largest] * ratio - counts[one])
        wanted = counts[one] + more
        possible = more > 0
    else:
        wanted = int(counts[smallest] / ratio)
        possible = wanted <= counts[one]
    if not possible:
        raise _refused(
            classes,
            f"at a ratio of {ratio:g} class {classes.name_of(one)} would {'gain' if grow else 'lose'} nothing",
            f"a ratio above {counts[smallest] / counts[largest]:.3g}, which it is now",
            f"{ratio:g}",
            "a larger ratio",
        )
    return {one: wanted}


def _by_class(asked: Mapping[Any, Any], classes: Classes, *, grow: bool) -> Counts:
    made: Counts = {}
    for name, number in asked.items():
        one = classes.class_of(name)
        try:
            count = classes.counts.get(one)
        except TypeError:  # what cannot be a key is no class
            count = None
        if count is None:
            near = near_miss(str(name), [classes.name_of(known) for known in classes.counts])
            raise _refused(
                classes,
                f"there are no records of class {shown(name)}",
                "classes that have records",
                f"{len(classes.counts):,} classes: {', '.join(map(classes.name_of, classes.counts))}"[:60],
                f"did you mean {near!r}?" if near else "name a class that has records",
            )
        whole = hasattr(number, "__index__") and not isinstance(number, bool)
        wanted = number.__index__() if whole else -1
        if wanted < 0 or one in made:
            raise _refused(
                classes,
                f"class {shown(name)} {'is named twice' if wanted >= 0 else 'has no number'}",
                "a whole number of records for each class, from 0 on",
                shown(number),
                f"sampling_strategy={{{_shown_key(classes, one)}: {count}}}",
            )
        if wanted < count if grow else wanted > count:
            raise _refused(
                classes,
                f"class {classes.name_of(one)} cannot {'shrink' if grow else 'grow'} by this method",
                f"{'at least' if grow else 'at most'} {count:,} records, which it has",
                f"{wanted:,}",
                'method="undersample"' if grow else 'method="oversample"',
            )
        made[one] = int(wanted)
    return made


def _by_function(
    function: Callable[[Any], Any], classes: Classes, values: Callable[[], Any], *, grow: bool
) -> Counts:
    try:
        asked = function(values())
    except Exception as failure:
        raise _refused(
            classes,
            "the function of `sampling_strategy` failed",
            "a function of the classes of all records",
            f"{type(failure).__name__}: {failure}"[:60],
            "look at the function",
        ) from failure
    if not isinstance(asked, Mapping):
        raise _refused(
            classes,
            "the function of `sampling_strategy` gave no number for each class",
            "{class: number of records}",
            shown(asked),
            "let it return a dict",
        )
    return _by_class(asked, classes, grow=grow)


def _shown_key(classes: Classes, one: Any) -> str:
    """A class as one would write it in a dict."""
    name = classes.name_of(one)
    return repr(one) if name == repr(one) else repr(name)


def _unknown(classes: Classes, strategy: object) -> RekordError:
    near = near_miss(strategy, WORDS) if isinstance(strategy, str) else None
    return _refused(
        classes,
        f"a strategy cannot be {shown(strategy)}",
        "one of " + ", ".join(WORDS) + ", a ratio, or {class: records}",
        shown(strategy),
        f'sampling_strategy="{near or "auto"}"',
    )


def _refused(classes: Classes, what: str, expected: str, found: str, do: str) -> RekordError:
    return error(
        "U638",
        f"`{classes.by}` of {classes.split} cannot be balanced so: {what}",
        location=Location(feature=classes.by),
        expected=expected,
        found=found,
        do=do,
    )

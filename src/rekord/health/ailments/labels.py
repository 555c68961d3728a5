"""Classes that are counted, named or marked in another way than their readers take them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekord.health.ailments.case import Case, tally_of
from rekord.health.ailments.kinds import words_of
from rekord.health.ailments.profile import MOST_PLACES, Stored, Tally
from rekord.health.ailments.words import count, named, number, some
from rekord.health.diagnosis import Diagnosis
from rekord.schema import Label, Mask

_TFOD_LABEL = "image/object/class/label"
_CLASS_WORDS = frozenset({"label", "labels", "class", "classes", "category", "categories", "cls"})
_IGNORE = 255


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """Labels held against their classes, and the names of classes against each other."""
    declared = dict(case.features())
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values:
            continue
        feature = declared.get(key)
        if isinstance(feature, Label) and stored.kind == "int64":
            yield from _against_classes(case, key, feature.count, stored)
        elif key == _TFOD_LABEL and stored.kind == "int64" and stored.low == 0:
            yield _from_zero(case, key, stored)
        if stored.kind == "bytes" and stored.texts and _CLASS_WORDS & set(words_of(key)):
            yield from _names(case, key, stored)
    for key, feature in declared.items():
        if isinstance(feature, Mask) and feature.ignore is None:
            yield from _ignore_in_masks(case, key, feature)


def _against_classes(case: Case, key: str, classes: int, stored: Stored) -> Iterator[Diagnosis]:
    low, high = int(stored.low), int(stored.high)
    found = stored.distinct.counts
    if low >= 1 and high == classes and stored.is_enough:
        yield case.diagnosis(
            "H830",
            "error",
            stored.tally,
            title=f"{named(key)} counts its classes from 1, and the schema from 0",
            feature=key,
            evidence=[
                f"values from {low:,} to {high:,}, and classes from 0 to {classes - 1:,}",
                f"{count(found[classes], 'value')} would be no class, and the others the wrong one"
                if found
                else None,
                "no value is 0",
            ],
            ruled_out=["not one class too many: the lowest id is missing where the highest is too high"],
            likely="the ids come from a label map, in which 0 is the background",
            do=f"write id - 1 to {named(key)}; or declare {classes + 1:,} classes, the first of them `background`",
            agree=False,
        )
    elif found is not None and found.get(_IGNORE) and classes <= _IGNORE:
        rest = [value for value in found if value != _IGNORE]
        if all(0 <= value < classes for value in rest):
            yield case.diagnosis(
                "H831",
                "error",
                _of_findings(case, "H752", key) or stored.tally,
                title=f"{named(key)} has the value 255, and the schema has no class 255",
                feature=key,
                evidence=[
                    f"{count(found[_IGNORE], 'value')} are 255; all others are from 0 to {max(rest, default=0):,}"
                ],
                ruled_out=["not labels of other classes: 255 is the only one beyond the schema"],
                likely="255 marks what is not to be counted, as in masks",
                do=f"leave these records out of the loss, or write {named(key)} without them",
                agree=False,
            )


def _from_zero(case: Case, key: str, stored: Stored) -> Diagnosis:
    zeros = 0 if stored.distinct.counts is None else stored.distinct.counts[0]
    return case.diagnosis(
        "H830",
        "warning",
        _of_findings(case, "H774", key) or stored.tally,
        title=f"{named(key)} counts its classes from 0, and TFOD from 1",
        feature=key,
        evidence=[
            f"values from 0 to {number(stored.high)}"
            + (f"; 0 occurs in {count(zeros, 'place')}" if zeros else "")
        ],
        ruled_out=["not missing labels: every box has one"],
        likely="the ids are places in a list of names; a label map gives 0 to the background",
        do=f"write id + 1 to {named(key)}, and ids from 1 in label_map.pbtxt",
        agree=False,
    )


def _of_findings(case: Case, code: str, key: str) -> Tally | None:
    groups = case.groups_about(code, key)
    return tally_of(groups) if groups else None


def _folded(name: str) -> str:
    return re.sub(r"\s+", " ", name).strip().casefold()


def _names(case: Case, key: str, stored: Stored) -> Iterator[Diagnosis]:
    assert stored.texts is not None
    alike: dict[str, list[str]] = {}
    for name in stored.texts:
        alike.setdefault(_folded(name), []).append(name)
    twice = [names for names in alike.values() if len(names) > 1]
    padded = [name for name in stored.texts if name != name.strip()]
    if not twice and not padded:
        return
    # The most frequent way to write a class is the one that is meant.
    odd = {name for names in twice for name in names if name != max(names, key=stored.texts.__getitem__)}
    odd |= set(padded)
    places = [stored.text_places[name] for name in stored.texts if name in odd]
    tally = Tally(records=sum(stored.texts[name] for name in odd))
    tally.names = list(dict.fromkeys(place.path for place in places))[:MOST_PLACES]
    tally.files, tally.places = len({place.path for place in places}), places[:MOST_PLACES]
    pair = twice[0] if twice else padded[:1]
    yield case.diagnosis(
        "H832",
        "warning",
        tally,
        title=f"names in {named(key)} differ only by white space or case"
        if twice
        else f"names in {named(key)} begin or end with white space",
        feature=key,
        evidence=[
            f"{some(pair)}" + (" would be different classes" if twice else " is not what a label map says"),
            f"{count(len(stored.texts), 'spelling')} of {count(len(alike), 'name')}",
        ],
        ruled_out=["not different classes: folded, the names are equal"] if twice else [],
        likely="the names come from lines of a text file or from people's typing",
        do=f"write name.strip() to {named(key)}" + (", in one case" if any(map(_by_case, twice)) else ""),
        agree=False,
    )


def _by_case(names: list[str]) -> bool:
    return len({re.sub(r"\s+", " ", name).strip() for name in names}) > 1


def _ignore_in_masks(case: Case, key: str, mask: Mask) -> Iterator[Diagnosis]:
    groups = [
        group
        for group in case.groups_about("H767", key)
        if any(re.search(r"\b255\b", each.found or "") for each in group.first)
    ]
    if not groups or mask.classes > _IGNORE:
        return
    tally = tally_of(groups)
    yield case.diagnosis(
        "H831",
        "error",
        tally,
        title=f"{named(key)} has pixels of 255, and 255 is not declared as ignore",
        feature=key,
        evidence=[
            f"{groups[0].first[0].found}",
            f"the schema says classes 0 to {mask.classes - 1:,} and no ignore",
        ],
        ruled_out=["not a picture of colours: the masks have one channel of ids"],
        likely="255 marks borders and what is not labelled, as in Pascal VOC and Cityscapes",
        do=f"declare Mask(classes={mask.classes}, ignore=255), and give ignore_label=255 to the loss",
        agree=False,
    )

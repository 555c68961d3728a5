"""Features that are stored as another kind than they mean, and classes counted or named in unusual ways."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekord.codec.values import EXACT_FLOAT32_LIMIT
from rekord.health.doctor.diagnosis import (
    Diagnosis,
    format_key,
    format_number,
    format_some,
    join_remedies,
    join_words,
)
from rekord.health.doctor.evidence import (
    CHANNELS,
    HEIGHTS,
    MAX_AFFECTED_RECORDS,
    WIDTHS,
    DoctorCase,
    KeyProfile,
    KindProfile,
    RecordTally,
    tally_finding_groups,
)
from rekord.report.formatting import format_count
from rekord.schema import Mask, of_type

LIST_NAMES = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}

_LABEL_WORDS = frozenset({"label", "labels", "class", "classes", "category", "categories", "cls"})
_NAME_WORDS = frozenset(
    {"id", "ids", "uid", "uuid", "key", "name", "filename", "file", "path", "url", "source", "version"}
    | {"zip", "zipcode", "postcode", "postal", "phone", "code", "sku", "isbn", "hash", "sha256", "md5"}
    | {"date", "time", "timestamp", "year", "text", "synset"}
)
"""What is written in digits and is still a name: nobody adds two of them up."""
_IMAGE_WORDS = frozenset({"image", "img", "mask", "frame"})
_DIMENSION_WORDS = frozenset({*HEIGHTS, *WIDTHS, *CHANNELS} - {"h", "w", "c", "rows", "columns", "depth"})


def split_key_words(key: str) -> list[str]:
    """The words of a key, `image/object_ID` as image, object, id."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", key)
    return [word for word in re.split(r"[^0-9a-z]+", spaced.lower()) if word]


def is_label_key(key: str) -> bool:
    """Whether the last words of a key say that it holds classes."""
    return bool(_LABEL_WORDS & set(split_key_words(key)[-2:])) and "text" not in split_key_words(key)[-1:]


def is_dimension_key(key: str) -> bool:
    """Whether a key gives a height, a width or a number of channels."""
    return split_key_words(key)[-1:] != [] and split_key_words(key)[-1] in _DIMENSION_WORDS


def diagnose_kinds(case: DoctorCase, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """What can be said of the kinds without a spec; keys that are `settled` have been judged against one."""
    for profile in (*case.profile.keys.values(), *case.profile.steps.values()):
        if profile.key in settled:
            continue
        if len(profile.kinds) > 1:
            yield diagnose_mixed_kinds(case, profile)
            continue
        stored = profile.main
        if stored is not None and stored.kind == "float" and stored.is_all_integers:
            if is_dimension_key(profile.key):
                # A height alone may be that of a person.
                if stored.has_enough_records or _IMAGE_WORDS & set(split_key_words(profile.key)):
                    yield diagnose_float_dimensions(case, profile.key, stored)
            elif (
                is_label_key(profile.key)
                and stored.has_enough_records
                and not _has_float_targets(profile.key, stored)
            ):
                yield diagnose_float_labels(case, profile.key, stored)
        if stored is not None and stored.kind == "bytes" and stored.values:
            yield from _diagnose_text_labels(case, profile.key, stored)
        if profile.holes and not profile.step:
            yield from diagnose_missing_kind(case, profile)


def _has_float_targets(key: str, stored: KindProfile) -> bool:
    """Whether floats under a label's key are meant as floats: a relevance for each item, or a vector of 0 and 1."""
    return stored.most > 1 and "class" not in split_key_words(key)


def _diagnose_text_labels(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    if stored.numeric:
        if stored.has_enough_records and not _NAME_WORDS & set(split_key_words(key)):
            yield diagnose_number_texts(case, key, stored)
    elif stored.texts and split_key_words(key)[-1:] and split_key_words(key)[-1] in _LABEL_WORDS:
        yield diagnose_text_for_numbers(case, key, stored, "most models read an int", None)


def diagnose_mixed_kinds(case: DoctorCase, profile: KeyProfile, tensorflow_error: str | None = None) -> Diagnosis:
    """One key, several kinds: the fewer records are the odd ones."""
    declared = case.declared_kinds().get(profile.key)
    main = (declared and profile.kinds.get(declared)) or profile.main  # a schema outvotes any number of records
    assert main is not None
    odd = [stored for stored in profile.kinds.values() if stored is not main]
    tally = odd[0].tally if len(odd) == 1 else _merge_tallies([stored.tally for stored in odd])
    whole = odd[0].is_all_integers and main.kind == "int64"
    numeric = odd[0].kind == "bytes" and odd[0].numeric and main.kind != "bytes"
    kind, castable = _choose_common_kind(main, odd, declared)
    how = {"int64": "int(value)", "float": "float(value)", "bytes": "bytes"}[kind]
    cast = case.format_rewrite_command("cast", profile.key, "int64" if kind == "int64" else "float32")
    by_file = len(case.files) > 1 and tally.files < len(case.files)
    return case.diagnosis(
        "H820",
        "error",
        tally,
        title=f"{format_key(profile.key)} is stored as "
        f"{join_words([LIST_NAMES[stored.kind] for stored in odd])} in some records "
        f"and as {LIST_NAMES[main.kind]} in the others",
        feature=profile.key,
        evidence=[
            f"{LIST_NAMES[main.kind]} in {format_count(main.tally.records, 'record')}, "
            + ", ".join(f"{LIST_NAMES[each.kind]} in {each.tally.records:,}" for each in odd),
            "the floats are all whole numbers" if whole else None,
            f"the texts are all numbers: {format_some(_format_texts(odd[0]))}" if numeric else None,
        ],
        ruled_out=["not damage: the checksums of these records agree, so they were written like this"],
        likely="these files came from another pipeline than the others"
        if by_file
        else "the writer took the kind from each value instead of from a schema",
        do=(f"{cast}; and " if castable and cast and not profile.step else "")
        + f"write {format_key(profile.key)} as {LIST_NAMES[kind]} in every record: {how}",
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def _choose_common_kind(main: KindProfile, odd: list[KindProfile], declared: str | None) -> tuple[str, bool]:
    """The kind that a key should have in every record, and whether a cast gets there without loss."""
    if len(odd) > 1:
        return main.kind, False
    other = odd[0]
    if {main.kind, other.kind} == {"int64", "float"}:
        floats = main if main.kind == "float" else other
        if main.kind == "int64" and not floats.is_all_integers and declared == "int64":
            return "int64", False
        return ("int64" if main.kind == "int64" and floats.is_all_integers else "float"), True
    if main.kind == "int64":
        return main.kind, bool(other.texts) and all(text.lstrip("+-").isdigit() for text in other.texts or ())
    return main.kind, main.kind == "float" and other.numeric


def diagnose_float_labels(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis:
    """Whole numbers in a float_list."""
    return case.diagnosis(
        "H814",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{format_key(key)} holds whole numbers and is stored as floats",
        feature=key,
        evidence=[
            f"float_list; every one of {format_count(stored.values, 'value')} is whole, "
            f"from {format_number(stored.low)} to {format_number(stored.high)}"
        ],
        ruled_out=["no sign of a regression target: no value has a fraction"] if is_label_key(key) else [],
        likely="the column was float when it was written, as pandas makes of ints beside missing values",
        do=join_remedies(
            case.format_rewrite_command("cast", key, "int64"),
            "read tf.float32 and cast with tf.cast(x, tf.int64)",
        ),
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def diagnose_float_dimensions(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis:
    """A height of 480.0."""
    return case.diagnosis(
        "H815",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{format_key(key)} is a size and is stored as a float",
        feature=key,
        evidence=[f"float_list; values such as {stored.low:.1f}, all whole"],
        likely="height and width went through a float, as after a division or in a data frame",
        do=join_remedies(
            case.format_rewrite_command("cast", key, "int64"),
            "read tf.float32 and cast with tf.cast(x, tf.int64)",
        ),
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def diagnose_number_texts(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis:
    """`b"3"` where 3 is meant."""
    return case.diagnosis(
        "H817",
        # A header or a field of a log is text by nature; a class is not.
        "error" if tensorflow_error is not None else "warning" if is_label_key(key) else "note",
        stored.tally,
        title=f"{format_key(key)} holds numbers that are stored as text",
        feature=key,
        evidence=[
            f"bytes_list; every one of {format_count(stored.values, 'value')} is a number: "
            f"{format_some(_format_texts(stored))}"
        ],
        ruled_out=["not raw bytes: all of them are digits that people read"],
        likely="the values were read from a CSV or a JSON file and not converted",
        do=f"write int(value) or float(value) to {format_key(key)}; or read tf.string and use tf.strings.to_number",
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def diagnose_text_for_numbers(
    case: DoctorCase, key: str, stored: KindProfile, wanted: str, tensorflow_error: str | None
) -> Diagnosis:
    """Class names where ids are read; without an error nobody is known to read them so."""
    names = _format_texts(stored)
    return case.diagnosis(
        "H818",
        "note" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{format_key(key)} is stored as text, and {wanted}",
        feature=key,
        evidence=[
            f"bytes_list: {format_some(names)}" if names else f"bytes_list of {format_count(stored.values, 'value')}",
            f"{format_count(len(names), 'different text')}" if stored.texts is not None else None,
        ],
        ruled_out=["not numbers written as text: some values are no numbers"],
        likely="the label was written by its name, not by its number" if is_label_key(key) else None,
        do=f"write the number of the class to {format_key(key)}, or read tf.string and look the number up",
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def diagnose_ints_for_floats(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None
) -> Diagnosis:
    """An int64_list that is read as tf.float32."""
    return case.diagnosis(
        "H816",
        "error",
        stored.tally,
        title=f"{format_key(key)} is stored as ints, and floats are read",
        feature=key,
        evidence=[
            f"int64_list; {format_count(stored.values, 'value')} from {format_number(stored.low)} to "
            f"{format_number(stored.high)}"
            if stored.values
            else "int64_list"
        ],
        ruled_out=["not damage: the lists are whole, and TensorFlow converts no kinds"],
        likely="the values happened to be whole when the writer looked at their type",
        do=join_remedies(
            case.format_rewrite_command("cast", key, "float32")
            if max(-stored.low, stored.high) <= EXACT_FLOAT32_LIMIT or not stored.values
            else None,
            f"read {format_key(key)} as tf.int64 and cast with tf.cast(x, tf.float32)",
        ),
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def diagnose_missing_kind(
    case: DoctorCase, profile: KeyProfile, tensorflow_error: str | None = None
) -> Iterator[Diagnosis]:
    """A key that is named, and holds nothing: what None becomes."""
    unset = [place for place in profile.holes.places if case.unset.names(place, profile.key)]
    if not unset:
        return
    records = profile.records + profile.holes.records
    yield case.diagnosis(
        "H819",
        # Some writers mark every hole so, and mean it; a label without a value is a slip.
        "error" if tensorflow_error is not None else "warning" if is_label_key(profile.key) else "note",
        profile.holes,
        title=f"{format_key(profile.key)} is written without a value",
        feature=profile.key,
        evidence=[
            f"record {unset[0].record:,} names the key and stores no list under it: neither ints, floats nor bytes",
            f"no value under the key in {profile.holes.records:,} of {format_count(records, 'record')}",
        ],
        ruled_out=[
            "not an empty list: that would have a kind",
            "not damage: the checksum of the record agrees",
        ],
        likely="the value was None when the Feature was made",
        do=f"leave {format_key(profile.key)} out where it has no value, and read it with a default_value",
        tensorflow_error=tensorflow_error,
    )


def _format_texts(stored: KindProfile) -> list[str]:
    if stored.texts:
        return list(stored.texts)
    return [value.decode("ascii") for _, value in stored.samples if value.isascii() and len(value) <= 32]


def _merge_tallies(tallies: list[RecordTally]) -> RecordTally:
    joined_up = RecordTally()
    for tally in tallies:
        joined_up.records += tally.records
        joined_up.names = list(dict.fromkeys([*joined_up.names, *tally.names]))[:3]
        joined_up.places = [*joined_up.places, *tally.places][:3]
        # Files that both have are counted once only where there is one of each.
        joined_up.files = max(joined_up.files, tally.files, len(joined_up.names))
    return joined_up


_TFOD_LABEL = "image/object/class/label"
_IGNORE_ID = 255


def diagnose_labels(case: DoctorCase) -> Iterator[Diagnosis]:
    """Labels held against their classes, and the names of classes against each other."""
    declared = dict(case.features())
    for key, profile in case.profile.keys.items():
        stored = profile.main
        if stored is None or not stored.values:
            continue
        feature = declared.get(key)
        classes = None if feature is None else feature.class_count
        if classes is not None and stored.kind == "int64":
            yield from _compare_with_classes(case, key, classes, stored)
        elif key == _TFOD_LABEL and stored.kind == "int64" and stored.low == 0:
            yield _diagnose_zero_labels(case, key, stored)
        if stored.kind == "bytes" and stored.texts and _LABEL_WORDS & set(split_key_words(key)):
            yield from _diagnose_class_names(case, key, stored)
    for key, mask in of_type(declared, Mask).items():
        if mask.ignore is None:
            yield from _diagnose_ignored_pixels(case, key, mask)


def _compare_with_classes(case: DoctorCase, key: str, classes: int, stored: KindProfile) -> Iterator[Diagnosis]:
    low, high = int(stored.low), int(stored.high)
    found = stored.distinct.counts
    if low >= 1 and high == classes and stored.has_enough_records:
        yield case.diagnosis(
            "H830",
            "error",
            stored.tally,
            title=f"{format_key(key)} counts its classes from 1, and the schema from 0",
            feature=key,
            evidence=[
                f"values from {low:,} to {high:,}, and classes from 0 to {classes - 1:,}",
                f"{format_count(found[classes], 'value')} would be no class, and the others the wrong one"
                if found
                else None,
                "no value is 0",
            ],
            ruled_out=["not one class too many: the lowest id is missing where the highest is too high"],
            likely="the ids come from a label map, in which 0 is the background",
            do=f"write id - 1 to {format_key(key)}; or declare {classes + 1:,} classes, the first of them "
            "`background`",
        )
    elif found is not None and found.get(_IGNORE_ID) and classes <= _IGNORE_ID:
        rest = [value for value in found if value != _IGNORE_ID]
        if all(0 <= value < classes for value in rest):
            yield case.diagnosis(
                "H831",
                "error",
                _tally_findings(case, "H752", key) or stored.tally,
                title=f"{format_key(key)} has the value 255, and the schema has no class 255",
                feature=key,
                evidence=[
                    f"{format_count(found[_IGNORE_ID], 'value')} are 255; all others are from 0 to "
                    f"{max(rest, default=0):,}"
                ],
                ruled_out=["not labels of other classes: 255 is the only one beyond the schema"],
                likely="255 marks what is not to be counted, as in masks",
                do=f"leave these records out of the loss, or write {format_key(key)} without them",
            )


def _diagnose_zero_labels(case: DoctorCase, key: str, stored: KindProfile) -> Diagnosis:
    zeros = 0 if stored.distinct.counts is None else stored.distinct.counts[0]
    return case.diagnosis(
        "H830",
        "warning",
        _tally_findings(case, "H774", key) or stored.tally,
        title=f"{format_key(key)} counts its classes from 0, and TFOD from 1",
        feature=key,
        evidence=[
            f"values from 0 to {format_number(stored.high)}"
            + (f"; 0 occurs in {format_count(zeros, 'place')}" if zeros else "")
        ],
        ruled_out=["not missing labels: every box has one"],
        likely="the ids are places in a list of names; a label map gives 0 to the background",
        do=f"write id + 1 to {format_key(key)}, and ids from 1 in label_map.pbtxt",
    )


def _tally_findings(case: DoctorCase, code: str, key: str) -> RecordTally | None:
    groups = case.find_groups(code, key)
    return tally_finding_groups(groups) if groups else None


def _diagnose_class_names(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    assert stored.texts is not None
    alike: dict[str, list[str]] = {}
    for name in stored.texts:
        alike.setdefault(re.sub(r"\s+", " ", name).strip().casefold(), []).append(name)
    twice = [names for names in alike.values() if len(names) > 1]
    padded = [name for name in stored.texts if name != name.strip()]
    if not twice and not padded:
        return
    # The most frequent way to write a class is the one that is meant.
    odd = {name for names in twice for name in names if name != max(names, key=stored.texts.__getitem__)}
    odd |= set(padded)
    places = [stored.text_places[name] for name in stored.texts if name in odd]
    tally = RecordTally(records=sum(stored.texts[name] for name in odd))
    tally.names = list(dict.fromkeys(place.path for place in places))[:MAX_AFFECTED_RECORDS]
    tally.files, tally.places = len({place.path for place in places}), places[:MAX_AFFECTED_RECORDS]
    pair = twice[0] if twice else padded[:1]
    yield case.diagnosis(
        "H832",
        "warning",
        tally,
        title=f"names in {format_key(key)} differ only by white space or case"
        if twice
        else f"names in {format_key(key)} begin or end with white space",
        feature=key,
        evidence=[
            f"{format_some(pair)}" + (" would be different classes" if twice else " is not what a label map says"),
            f"{format_count(len(stored.texts), 'spelling')} of {format_count(len(alike), 'name')}",
        ],
        ruled_out=["not different classes: folded, the names are equal"] if twice else [],
        likely="the names come from lines of a text file or from people's typing",
        do=f"write name.strip() to {format_key(key)}"
        + (", in one case" if any(map(_is_case_variant, twice)) else ""),
    )


def _is_case_variant(names: list[str]) -> bool:
    return len({re.sub(r"\s+", " ", name).strip() for name in names}) > 1


def _diagnose_ignored_pixels(case: DoctorCase, key: str, mask: Mask) -> Iterator[Diagnosis]:
    groups = [
        group
        for group in case.find_groups("H767", key)
        if any(re.search(r"\b255\b", each.found or "") for each in group.first)
    ]
    if not groups or mask.classes > _IGNORE_ID:
        return
    tally = tally_finding_groups(groups)
    yield case.diagnosis(
        "H831",
        "error",
        tally,
        title=f"{format_key(key)} has pixels of 255, and 255 is not declared as ignore",
        feature=key,
        evidence=[
            f"{groups[0].first[0].found}",
            f"the schema says classes 0 to {mask.classes - 1:,} and no ignore",
        ],
        ruled_out=["not an image of colours: the masks have one channel of ids"],
        likely="255 marks borders and what is not labelled, as in Pascal VOC and Cityscapes",
        do=f"declare Mask(classes={mask.classes}, ignore=255), and give ignore_label=255 to the loss",
    )

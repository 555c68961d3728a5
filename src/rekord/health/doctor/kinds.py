"""Features stored as the wrong kind, and unusual class ids and class names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekord.codec.values import EXACT_FLOAT32_LIMIT
from rekord.health.check.float_integers import (
    LABEL_WORDS,
    is_dimension_key,
    is_label_key,
    should_be_integers,
    split_key_words,
)
from rekord.health.check.rule import LIST_NAMES, format_key
from rekord.health.doctor.diagnosis import Diagnosis, format_number, format_some, join_remedies, join_words
from rekord.health.doctor.evidence import (
    MAX_AFFECTED_RECORDS,
    WRITTEN_LIKE_THIS,
    DoctorCase,
    KeyProfile,
    KindProfile,
    RecordTally,
    tally_finding_groups,
)
from rekord.report.formatting import format_count
from rekord.schema import Mask, of_type

_NAME_WORDS = frozenset(
    {"id", "ids", "uid", "uuid", "key", "name", "filename", "file", "path", "url", "source", "version"}
    | {"zip", "zipcode", "postcode", "postal", "phone", "code", "sku", "isbn", "hash", "sha256", "md5"}
    | {"date", "time", "timestamp", "year", "text", "synset"}
)
"""Values under these names are identifiers, even if they consist of digits."""


def diagnose_kinds(case: DoctorCase, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """Diagnoses of kinds without a spec; `settled` keys were checked against one."""
    for profile in (*case.profile.keys.values(), *case.profile.steps.values()):
        if profile.key in settled:
            continue
        if len(profile.kinds) > 1:
            yield diagnose_mixed_kinds(case, profile)
            continue
        stored = profile.main
        if (
            stored is not None
            and stored.is_all_integers
            and should_be_integers(profile.key, records=stored.tally.records, most_values=stored.most)
        ):
            yield diagnose_float_integers(case, profile.key, stored)
        if stored is not None and stored.kind == "bytes" and stored.values:
            yield from _diagnose_text_labels(case, profile.key, stored)
        if profile.holes and not profile.step:
            yield from diagnose_missing_kind(case, profile)


def _diagnose_text_labels(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    if stored.numeric:
        if stored.has_enough_records and not _NAME_WORDS & set(split_key_words(key)):
            yield diagnose_number_texts(case, key, stored)
    elif stored.texts and split_key_words(key)[-1:] and split_key_words(key)[-1] in LABEL_WORDS:
        yield diagnose_text_for_numbers(case, key, stored, "most models read an integer", None)


def diagnose_mixed_kinds(case: DoctorCase, profile: KeyProfile, tensorflow_error: str | None = None) -> Diagnosis:
    """One key stored as several kinds: those of fewer records are the odd ones."""
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
            "all floats are integers" if whole else None,
            f"all texts are numbers: {format_some(_format_texts(odd[0]))}" if numeric else None,
        ],
        ruled_out=[WRITTEN_LIKE_THIS],
        likely="these files come from a different pipeline"
        if by_file
        else "the writer inferred the kind from each value instead of using a schema",
        do=(f"{cast}; and " if castable and cast and not profile.step else "")
        + f"write {format_key(profile.key)} as {LIST_NAMES[kind]} in every record: {how}",
        tensorflow_error=tensorflow_error,
        agree=True,
    )


def _choose_common_kind(main: KindProfile, odd: list[KindProfile], declared: str | None) -> tuple[str, bool]:
    """The kind a key should have in every record, and whether a lossless cast produces it."""
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


def diagnose_float_integers(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis:
    """Integers in a float_list: labels, or a height of 480.0."""
    is_dimension = is_dimension_key(key)
    return case.stored_diagnosis(
        "H815" if is_dimension else "H814",
        key,
        stored,
        tensorflow_error,
        title=f"{format_key(key)} is an image dimension stored as a float"
        if is_dimension
        else f"{format_key(key)} holds integers stored as floats",
        evidence=[
            f"float_list; values such as {stored.low:.1f}, all integers"
            if is_dimension
            else f"float_list; all {format_count(stored.values, 'value')} are integers, "
            f"from {format_number(stored.low)} to {format_number(stored.high)}"
        ],
        ruled_out=["not a regression target: no value has a fraction"]
        if is_label_key(key) and not is_dimension
        else [],
        likely="height and width became floats, as after a division or in a data frame"
        if is_dimension
        else "the column was float when written, as pandas converts integers with missing values",
        do=join_remedies(
            case.format_rewrite_command("cast", key, "int64"),
            "read tf.float32 and cast with tf.cast(x, tf.int64)",
        ),
    )


def diagnose_number_texts(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None = None
) -> Diagnosis:
    """`b"3"` where 3 is meant."""
    return case.stored_diagnosis(
        "H817",
        key,
        stored,
        tensorflow_error,
        # A header or a log field is text by nature; a class is not.
        severity="warning" if is_label_key(key) else "note",
        title=f"{format_key(key)} holds numbers stored as text",
        evidence=[
            f"bytes_list; all {format_count(stored.values, 'value')} are numbers: "
            f"{format_some(_format_texts(stored))}"
        ],
        ruled_out=["not raw bytes: all values are readable digits"],
        likely="the values were read from a CSV or JSON file without conversion",
        do=f"write int(value) or float(value) to {format_key(key)}; or read tf.string and use tf.strings.to_number",
    )


def diagnose_text_for_numbers(
    case: DoctorCase, key: str, stored: KindProfile, wanted: str, tensorflow_error: str | None
) -> Diagnosis:
    """Class names where ids are read; a note unless an error shows that numbers are read."""
    names = _format_texts(stored)
    return case.stored_diagnosis(
        "H818",
        key,
        stored,
        tensorflow_error,
        severity="note",
        title=f"{format_key(key)} is stored as text, but {wanted}",
        evidence=[
            f"bytes_list: {format_some(names)}" if names else f"bytes_list of {format_count(stored.values, 'value')}",
            f"{format_count(len(names), 'distinct text')}" if stored.texts is not None else None,
        ],
        ruled_out=["not numbers written as text: some values are not numbers"],
        likely="the class name was written instead of the class id" if is_label_key(key) else None,
        do=f"write the class id to {format_key(key)}; or read tf.string and look the id up",
    )


def diagnose_ints_for_floats(
    case: DoctorCase, key: str, stored: KindProfile, tensorflow_error: str | None
) -> Diagnosis:
    """An int64_list that is read as tf.float32."""
    exact = max(-stored.low, stored.high) <= EXACT_FLOAT32_LIMIT or not stored.values
    return case.stored_diagnosis(
        "H816",
        key,
        stored,
        tensorflow_error,
        severity="error",
        title=f"{format_key(key)} is stored as integers, but floats are read",
        evidence=[
            f"int64_list; {format_count(stored.values, 'value')} from {format_number(stored.low)} to "
            f"{format_number(stored.high)}"
            if stored.values
            else "int64_list"
        ],
        ruled_out=["not damage: the lists are intact, and TensorFlow does not convert kinds"],
        likely="the values happened to be integers when the writer inferred their type",
        do=join_remedies(
            case.format_rewrite_command("cast", key, "float32") if exact else None,
            f"read {format_key(key)} as tf.int64 and cast with tf.cast(x, tf.float32)",
        ),
    )


def diagnose_missing_kind(
    case: DoctorCase, profile: KeyProfile, tensorflow_error: str | None = None
) -> Iterator[Diagnosis]:
    """A key without a list: what None becomes."""
    unset = [place for place in profile.holes.places if case.unset.names(place, profile.key)]
    if not unset:
        return
    records = profile.records + profile.holes.records
    yield case.diagnosis(
        "H819",
        # Some writers mark every missing value this way; a label without a value is a mistake.
        "error" if tensorflow_error is not None else "warning" if is_label_key(profile.key) else "note",
        profile.holes,
        title=f"{format_key(profile.key)} is written without a value",
        feature=profile.key,
        evidence=[
            f"record {unset[0].record:,} has the key but no list under it: no integers, floats or bytes",
            f"no value in {profile.holes.records:,} of {format_count(records, 'record')}",
        ],
        ruled_out=[
            "not an empty list: an empty list has a kind",
            "not damage: the checksum of the record matches",
        ],
        likely="the value was None when the Feature was created",
        do=f"omit {format_key(profile.key)} if it has no value, and read it with a default_value",
        tensorflow_error=tensorflow_error,
    )


def _format_texts(stored: KindProfile) -> list[str]:
    if stored.texts:
        return list(stored.texts)
    return [value.decode("ascii") for _, value in stored.samples if value.isascii() and len(value) <= 32]


def _merge_tallies(tallies: list[RecordTally]) -> RecordTally:
    merged = RecordTally()
    for tally in tallies:
        merged.records += tally.records
        merged.names = list(dict.fromkeys([*merged.names, *tally.names]))[:MAX_AFFECTED_RECORDS]
        merged.places = [*merged.places, *tally.places][:MAX_AFFECTED_RECORDS]
        merged.files = max(merged.files, tally.files, len(merged.names))  # shared files are counted once
    return merged


_TFOD_LABEL = "image/object/class/label"
_IGNORE_ID = 255


def diagnose_labels(case: DoctorCase) -> Iterator[Diagnosis]:
    """Labels checked against their classes, and class names against each other."""
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
        if stored.kind == "bytes" and stored.texts and LABEL_WORDS & set(split_key_words(key)):
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
            title=f"class ids in {format_key(key)} start at 1, but at 0 in the schema",
            feature=key,
            evidence=[
                f"values from {low:,} to {high:,}, classes from 0 to {classes - 1:,}",
                f"{format_count(found[classes], 'value')} would not be a class, all others the wrong class"
                if found
                else None,
                "no value is 0",
            ],
            ruled_out=["not one class too many: the lowest id is missing while the highest is too high"],
            likely="the ids come from a label map, where 0 is the background",
            do=f"write id - 1 to {format_key(key)}; or declare {classes + 1:,} classes, starting with `background`",
        )
    elif found is not None and found.get(_IGNORE_ID) and classes <= _IGNORE_ID:
        rest = [value for value in found if value != _IGNORE_ID]
        if all(0 <= value < classes for value in rest):
            yield case.diagnosis(
                "H831",
                "error",
                _tally_findings(case, "H752", key) or stored.tally,
                title=f"{format_key(key)} has the value 255, but the schema has no class 255",
                feature=key,
                evidence=[
                    f"{format_count(found[_IGNORE_ID], 'value')} equal to 255; all others from 0 to "
                    f"{max(rest, default=0):,}"
                ],
                ruled_out=["not other classes: 255 is the only value outside the schema"],
                likely="255 marks ignored examples, as in masks",
                do=f"exclude these records from the loss, or write {format_key(key)} without them",
            )


def _diagnose_zero_labels(case: DoctorCase, key: str, stored: KindProfile) -> Diagnosis:
    zeros = 0 if stored.distinct.counts is None else stored.distinct.counts[0]
    return case.diagnosis(
        "H830",
        "warning",
        _tally_findings(case, "H774", key) or stored.tally,
        title=f"class ids in {format_key(key)} start at 0, but at 1 in TFOD",
        feature=key,
        evidence=[
            f"values from 0 to {format_number(stored.high)}"
            + (f"; 0 occurs {format_count(zeros, 'time')}" if zeros else "")
        ],
        ruled_out=["not missing labels: every box has one"],
        likely="the ids are indices into a list of names; a label map reserves 0 for the background",
        do=f"write id + 1 to {format_key(key)}, and use ids from 1 in label_map.pbtxt",
    )


def _tally_findings(case: DoctorCase, code: str, key: str) -> RecordTally | None:
    groups = case.find_groups(code, key)
    return tally_finding_groups(groups) if groups else None


def _diagnose_class_names(case: DoctorCase, key: str, stored: KindProfile) -> Iterator[Diagnosis]:
    assert stored.texts is not None
    alike: dict[str, list[str]] = {}
    for name in stored.texts:
        alike.setdefault(re.sub(r"\s+", " ", name).strip().casefold(), []).append(name)
    variants = [names for names in alike.values() if len(names) > 1]
    padded = [name for name in stored.texts if name != name.strip()]
    if not variants and not padded:
        return
    # The most frequent spelling of a class is taken as the intended one.
    odd = {name for names in variants for name in names if name != max(names, key=stored.texts.__getitem__)}
    odd |= set(padded)
    places = [stored.text_places[name] for name in stored.texts if name in odd]
    tally = RecordTally(records=sum(stored.texts[name] for name in odd))
    tally.names = list(dict.fromkeys(place.path for place in places))[:MAX_AFFECTED_RECORDS]
    tally.files, tally.places = len({place.path for place in places}), places[:MAX_AFFECTED_RECORDS]
    pair = variants[0] if variants else padded[:1]
    yield case.diagnosis(
        "H832",
        "warning",
        tally,
        title=f"names in {format_key(key)} differ only in whitespace or case"
        if variants
        else f"names in {format_key(key)} start or end with whitespace",
        feature=key,
        evidence=[
            f"{format_some(pair)}" + (" would be different classes" if variants else " does not match a label map"),
            f"{format_count(len(stored.texts), 'spelling')} of {format_count(len(alike), 'name')}",
        ],
        ruled_out=["not different classes: the normalised names are equal"] if variants else [],
        likely="the names come from lines of a text file or were typed by hand",
        do=f"write name.strip() to {format_key(key)}"
        + (", in one case" if any(map(_is_case_variant, variants)) else ""),
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
        title=f"{format_key(key)} has pixels of 255, but 255 is not declared as ignore",
        feature=key,
        evidence=[
            f"{groups[0].first[0].found}",
            f"the schema declares classes 0 to {mask.classes - 1:,} and no ignore value",
        ],
        ruled_out=["not a colour image: the masks have one channel of ids"],
        likely="255 marks borders and unlabelled pixels, as in Pascal VOC and Cityscapes",
        do=f"declare Mask(classes={mask.classes}, ignore=255), and pass ignore_label=255 to the loss",
    )

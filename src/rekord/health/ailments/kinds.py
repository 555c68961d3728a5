"""Features that are stored as another kind than they mean: floats, ints and texts in each other's place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekord.codec.remedies import EXACT_FLOAT32
from rekord.health.ailments.case import Case
from rekord.health.ailments.profile import KeyProfile, Stored, Tally
from rekord.health.ailments.raw_shapes import CHANNELS, HEIGHTS, WIDTHS
from rekord.health.ailments.words import count, either, joined, named, number, some
from rekord.health.diagnosis import Diagnosis

LISTS = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}

_LABEL_WORDS = frozenset({"label", "labels", "class", "classes", "category", "categories", "cls"})
_NAME_WORDS = frozenset(
    {"id", "ids", "uid", "uuid", "key", "name", "filename", "file", "path", "url", "source", "version"}
    | {"zip", "zipcode", "postcode", "postal", "phone", "code", "sku", "isbn", "hash", "sha256", "md5"}
    | {"date", "time", "timestamp", "year", "text", "synset"}
)
"""What is written in digits and is still a name: nobody adds two of them up."""
_IMAGE_WORDS = frozenset({"image", "img", "mask", "frame"})
_DIMS = frozenset({*HEIGHTS, *WIDTHS, *CHANNELS} - {"h", "w", "c", "rows", "columns", "depth"})


def words_of(key: str) -> list[str]:
    """The words of a key, `image/object_ID` as image, object, id."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", key)
    return [word for word in re.split(r"[^0-9a-z]+", spaced.lower()) if word]


def means_label(key: str) -> bool:
    """Whether the last words of a key say that it holds classes."""
    return bool(_LABEL_WORDS & set(words_of(key)[-2:])) and "text" not in words_of(key)[-1:]


def means_dim(key: str) -> bool:
    """Whether a key gives a height, a width or a number of channels."""
    return words_of(key)[-1:] != [] and words_of(key)[-1] in _DIMS


def diagnose(case: Case, settled: frozenset[str]) -> Iterator[Diagnosis]:
    """What can be said of the kinds without a spec; keys that are `settled` have been judged against one."""
    for profile in (*case.profile.keys.values(), *case.profile.steps.values()):
        if profile.key in settled:
            continue
        if len(profile.kinds) > 1:
            yield mixed(case, profile)
            continue
        stored = profile.main
        if stored is not None and stored.kind == "float" and stored.all_whole:
            if means_dim(profile.key):
                # A height alone may be that of a person.
                if stored.is_enough or _IMAGE_WORDS & set(words_of(profile.key)):
                    yield float_dims(case, profile.key, stored)
            elif means_label(profile.key) and stored.is_enough and not _are_targets(profile.key, stored):
                yield float_labels(case, profile.key, stored)
        if stored is not None and stored.kind == "bytes" and stored.values:
            yield from _texts_alone(case, profile.key, stored)
        if profile.holes and not profile.step:
            yield from without_kind(case, profile)


def _are_targets(key: str, stored: Stored) -> bool:
    """Whether floats under a label's key are meant as floats: a relevance for each item, or a vector of 0 and 1."""
    return stored.most > 1 and "class" not in words_of(key)


def _texts_alone(case: Case, key: str, stored: Stored) -> Iterator[Diagnosis]:
    if stored.numeric:
        if stored.is_enough and not _NAME_WORDS & set(words_of(key)):
            yield number_texts(case, key, stored)
    elif stored.texts and words_of(key)[-1:] and words_of(key)[-1] in _LABEL_WORDS:
        yield text_for_numbers(case, key, stored, "most models read an int", None)


def mixed(case: Case, profile: KeyProfile, tensorflow_error: str | None = None) -> Diagnosis:
    """One key, several kinds: the fewer records are the odd ones."""
    declared = case.declared_kinds().get(profile.key)
    main = (
        declared and profile.kinds.get(declared)
    ) or profile.main  # a schema outvotes any number of records
    assert main is not None
    odd = [stored for stored in profile.kinds.values() if stored is not main]
    tally = odd[0].tally if len(odd) == 1 else _joined([stored.tally for stored in odd])
    whole = odd[0].all_whole and main.kind == "int64"
    numeric = odd[0].kind == "bytes" and odd[0].numeric and main.kind != "bytes"
    kind, castable = _one_kind(main, odd, declared)
    how = {"int64": "int(value)", "float": "float(value)", "bytes": "bytes"}[kind]
    cast = case.rewriting("cast", profile.key, "int64" if kind == "int64" else "float32")
    by_file = len(case.files) > 1 and tally.files < len(case.files)
    return case.diagnosis(
        "H820",
        "error",
        tally,
        title=f"{named(profile.key)} is stored as {joined([LISTS[stored.kind] for stored in odd])} in some records "
        f"and as {LISTS[main.kind]} in the others",
        feature=profile.key,
        evidence=[
            f"{LISTS[main.kind]} in {count(main.tally.records, 'record')}, "
            + ", ".join(f"{LISTS[each.kind]} in {each.tally.records:,}" for each in odd),
            "the floats are all whole numbers" if whole else None,
            f"the texts are all numbers: {some(_texts(odd[0]))}" if numeric else None,
        ],
        ruled_out=["not damage: the checksums of these records agree, so they were written like this"],
        likely="these files came from another pipeline than the others"
        if by_file
        else "the writer took the kind from each value instead of from a schema",
        do=(f"{cast}; and " if castable and cast and not profile.step else "")
        + f"write {named(profile.key)} as {LISTS[kind]} in every record: {how}",
        tensorflow_error=tensorflow_error,
    )


def _one_kind(main: Stored, odd: list[Stored], declared: str | None) -> tuple[str, bool]:
    """The kind that a key should have in every record, and whether a cast gets there without loss."""
    if len(odd) > 1:
        return main.kind, False
    other = odd[0]
    if {main.kind, other.kind} == {"int64", "float"}:
        floats = main if main.kind == "float" else other
        if main.kind == "int64" and not floats.all_whole and declared == "int64":
            return "int64", False
        return ("int64" if main.kind == "int64" and floats.all_whole else "float"), True
    if main.kind == "int64":
        return main.kind, bool(other.texts) and all(text.lstrip("+-").isdigit() for text in other.texts or ())
    return main.kind, main.kind == "float" and other.numeric


def float_labels(case: Case, key: str, stored: Stored, tensorflow_error: str | None = None) -> Diagnosis:
    """Whole numbers in a float_list."""
    return case.diagnosis(
        "H814",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{named(key)} holds whole numbers and is stored as floats",
        feature=key,
        evidence=[
            f"float_list; every one of {count(stored.values, 'value')} is whole, "
            f"from {number(stored.low)} to {number(stored.high)}",
        ],
        ruled_out=["no sign of a regression target: no value has a fraction"] if means_label(key) else [],
        likely="the column was float when it was written, as pandas makes of ints beside missing values",
        do=either(case.rewriting("cast", key, "int64"), "read tf.float32 and cast with tf.cast(x, tf.int64)"),
        tensorflow_error=tensorflow_error,
    )


def float_dims(case: Case, key: str, stored: Stored, tensorflow_error: str | None = None) -> Diagnosis:
    """A height of 480.0."""
    return case.diagnosis(
        "H815",
        "warning" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{named(key)} is a size and is stored as a float",
        feature=key,
        evidence=[f"float_list; values such as {stored.low:.1f}, all whole"],
        likely="height and width went through a float, as after a division or in a data frame",
        do=either(case.rewriting("cast", key, "int64"), "read tf.float32 and cast with tf.cast(x, tf.int64)"),
        tensorflow_error=tensorflow_error,
    )


def number_texts(case: Case, key: str, stored: Stored, tensorflow_error: str | None = None) -> Diagnosis:
    """`b"3"` where 3 is meant."""
    return case.diagnosis(
        "H817",
        # A header or a field of a log is text by nature; a class is not.
        "error" if tensorflow_error is not None else "warning" if means_label(key) else "note",
        stored.tally,
        title=f"{named(key)} holds numbers that are stored as text",
        feature=key,
        evidence=[
            f"bytes_list; every one of {count(stored.values, 'value')} is a number: {some(_texts(stored))}"
        ],
        ruled_out=["not raw bytes: all of them are digits that people read"],
        likely="the values were read from a CSV or a JSON file and not converted",
        do=f"write int(value) or float(value) to {named(key)}; or read tf.string and use tf.strings.to_number",
        tensorflow_error=tensorflow_error,
    )


def text_for_numbers(
    case: Case, key: str, stored: Stored, wanted: str, tensorflow_error: str | None
) -> Diagnosis:
    """Class names where ids are read; without an error nobody is known to read them so."""
    names = _texts(stored)
    return case.diagnosis(
        "H818",
        "note" if tensorflow_error is None else "error",
        stored.tally,
        title=f"{named(key)} is stored as text, and {wanted}",
        feature=key,
        evidence=[
            f"bytes_list: {some(names)}" if names else f"bytes_list of {count(stored.values, 'value')}",
            f"{count(len(names), 'different text')}" if stored.texts is not None else None,
        ],
        ruled_out=["not numbers written as text: some values are no numbers"],
        likely="the label was written by its name, not by its number" if means_label(key) else None,
        do=f"write the number of the class to {named(key)}, or read tf.string and look the number up",
        tensorflow_error=tensorflow_error,
    )


def ints_for_floats(case: Case, key: str, stored: Stored, tensorflow_error: str | None) -> Diagnosis:
    """An int64_list that is read as tf.float32."""
    return case.diagnosis(
        "H816",
        "error",
        stored.tally,
        title=f"{named(key)} is stored as ints, and floats are read",
        feature=key,
        evidence=[
            f"int64_list; {count(stored.values, 'value')} from {number(stored.low)} to {number(stored.high)}"
            if stored.values
            else "int64_list"
        ],
        ruled_out=["not damage: the lists are whole, and TensorFlow converts no kinds"],
        likely="the values happened to be whole when the writer looked at their type",
        do=either(
            case.rewriting("cast", key, "float32")
            if max(-stored.low, stored.high) <= EXACT_FLOAT32 or not stored.values
            else None,
            f"read {named(key)} as tf.int64 and cast with tf.cast(x, tf.float32)",
        ),
        tensorflow_error=tensorflow_error,
    )


def without_kind(case: Case, profile: KeyProfile, tensorflow_error: str | None = None) -> Iterator[Diagnosis]:
    """A key that is named, and holds nothing: what None becomes."""
    unset = [place for place in profile.holes.places if case.unset.names(place, profile.key)]
    if not unset:
        return
    records = profile.records + profile.holes.records
    yield case.diagnosis(
        "H819",
        # Some writers mark every hole so, and mean it; a label without a value is a slip.
        "error" if tensorflow_error is not None else "warning" if means_label(profile.key) else "note",
        profile.holes,
        title=f"{named(profile.key)} is written without a value",
        feature=profile.key,
        evidence=[
            f"record {unset[0].record:,} names the key and stores no list under it: neither ints, floats nor bytes",
            f"no value under the key in {profile.holes.records:,} of {count(records, 'record')}",
        ],
        ruled_out=[
            "not an empty list: that would have a kind",
            "not damage: the checksum of the record agrees",
        ],
        likely="the value was None when the Feature was made",
        do=f"leave {named(profile.key)} out where it has no value, and read it with a default_value",
        tensorflow_error=tensorflow_error,
        agree=False,
    )


def _texts(stored: Stored) -> list[str]:
    if stored.texts:
        return list(stored.texts)
    return [value.decode("ascii") for _, value in stored.samples if value.isascii() and len(value) <= 32]


def _joined(tallies: list[Tally]) -> Tally:
    joined_up = Tally()
    for tally in tallies:
        joined_up.records += tally.records
        joined_up.names = list(dict.fromkeys([*joined_up.names, *tally.names]))[:3]
        joined_up.places = [*joined_up.places, *tally.places][:3]
        # Files that both have are counted once only where there is one of each.
        joined_up.files = max(joined_up.files, tally.files, len(joined_up.names))
    return joined_up

"""Troubles inside intact frames: other messages than Examples, and forms that readers disagree on."""

from __future__ import annotations

from collections.abc import Iterator

from rekord.health.ailments.case import Case, Group, tally_of
from rekord.health.ailments.profile import Tally
from rekord.health.ailments.unset import payload_at
from rekord.health.ailments.words import count, joined, named
from rekord.health.diagnosis import Diagnosis, Place
from rekord.health.tf_parse import predicted_payload_error
from rekord.schema.spec import SequenceSpec

_KINDS = {
    "H711": "ExampleListWithContext, as tf-ranking writes",
    "H712": "tf.Event, a TensorBoard log",
    "H713": "plain text",
    "H714": "another protobuf message",
    "H715": "bytes of no known form",
    "H716": "another message than the rest of their file",
}
_READ_SO = {
    "H711": "read them with tensorflow_ranking, or parse each payload as its own message",
    "H712": "open the folder with TensorBoard; it is no training data",
    "H713": "parse each record as text: no tf.io.parse_example",
    "H714": "parse each payload with the message that the writer used",
    "H715": "ask whoever wrote the file how its payloads are to be parsed",
    "H716": "write the file again with one kind of message",
}
_FORMS = {
    "H721": "a list is stored in pieces, of which TensorFlow reads the first",
    "H722": "a feature has two kinds, of which TensorFlow reads the first and protobuf the last",
    "H723": "a map entry is not one key and one value, which TensorFlow refuses",
    "H724": "a key is stored twice, and the last one counts",
    "H725": "there are fields that these messages do not have",
}

CLAIMED = frozenset({*_KINDS, *_FORMS, *(f"W20{digit}" for digit in range(1, 8))})
"""The findings that this family explains."""


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """What the payloads are where they are no Examples, and in which forms they are written."""
    for code, name in _KINDS.items():
        groups = case.groups(code)
        if groups:
            yield _other_message(case, code, name, groups)
    yield from _refused(case)
    for code, form in _FORMS.items():
        groups = case.groups(code)
        if groups:
            yield _form(case, code, form, groups)


def _other_message(case: Case, code: str, name: str, groups: list[Group]) -> Diagnosis:
    tally = tally_of(groups)
    if code != "H716":
        # A finding stands for the whole file here.
        paths = {group.path for group in groups}
        tally.records = sum(facts.records for facts in case.files if facts.path in paths)
    found = next((finding.found for group in groups for finding in group.first if finding.found), None)
    return case.diagnosis(
        "H811",
        # Anything may be a payload; only who wants to parse it as an Example is wrong.
        "warning" if code == "H716" else "note" if case.spec is None and case.schema is None else "error",
        tally,
        title=f"the payloads are {name}, not tf.train.Example",
        evidence=[f"the first payloads have the form of {found or name}"],
        ruled_out=["not damage: the frames are intact, and so are the checksums of the payloads"],
        likely=None,
        do=_READ_SO[code],
        tensorflow_error=_parsing(case, tally),
    )


def _refused(case: Case) -> Iterator[Diagnosis]:
    groups = [group for code in sorted(CLAIMED) if code[0] == "W" for group in case.groups(code)]
    if not groups:
        return
    tally = tally_of(groups)
    first = groups[0].first[0]
    yield case.diagnosis(
        "H813",
        "error",
        tally,
        title="payloads are no valid protobuf messages",
        evidence=[f"{first.message} (first: expected {first.expected}, found {first.found})"],
        ruled_out=[
            "not damage in transit: the checksums of these payloads agree, so they were written like this"
        ],
        likely="the writer framed something else than example.SerializeToString(), or cut it",
        do="look at one with `rekord show PATH --record N`, and mend what the writer passes to its write()",
        tensorflow_error=_parsing(case, tally),
        agree=False,
    )


def _parsing(case: Case, tally: Tally) -> str | None:
    """What TensorFlow says of the first of these payloads, where somebody wants it parsed."""
    if case.spec is None or isinstance(case.spec, SequenceSpec):
        return None
    first = tally.places[0]
    payload = payload_at(Place(path=first.path, record=first.record or 0, offset=first.offset or 0))
    return None if payload is None else predicted_payload_error(case.spec, payload)


def _form(case: Case, code: str, form: str, groups: list[Group]) -> Diagnosis:
    tally = tally_of(groups)
    names = list(
        dict.fromkeys(f"{named(each.feature)}" for group in groups for each in group.first if each.feature)
    )
    return case.diagnosis(
        "H812",
        "warning",
        tally,
        title=f"readers do not agree on the records: {form}",
        feature=next((each.feature for group in groups for each in group.first if each.feature), None),
        evidence=[
            f"in {joined(names[:3], 'and')}" if names else None,
            count(tally.records, "record") + " so",
        ],
        ruled_out=["not damage: the checksums of these payloads agree, so they were written like this"],
        likely="the records were put together by hand or joined, not written by one protobuf library",
        do="parse and serialize each record once: Example.FromString(payload).SerializeToString()",
        tensorflow_error=_parsing(case, tally),
        agree=False,
    )

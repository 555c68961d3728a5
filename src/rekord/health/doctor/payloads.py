"""Problems inside intact frames: other messages than Examples, repeated content, colour masks, other findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from rekord.codes import CODES
from rekord.health.doctor import corruption as bytes_family
from rekord.health.doctor.diagnosis import (
    AffectedRecord,
    Diagnosis,
    find_worst_severity,
    format_key,
    join_words,
)
from rekord.health.doctor.evidence import (
    MAX_AFFECTED_RECORDS,
    DoctorCase,
    FindingGroup,
    RecordTally,
    read_payload,
    tally_finding_groups,
)
from rekord.health.finding import Severity
from rekord.health.tensorflow.predicted_errors import predict_payload_error
from rekord.report.formatting import format_count
from rekord.schema.interop.tf_spec import SequenceSpec

_MESSAGE_NAMES = {
    "H711": "ExampleListWithContext, as tf-ranking writes",
    "H712": "tf.Event, a TensorBoard log",
    "H713": "plain text",
    "H714": "another protobuf message",
    "H715": "bytes of no known form",
    "H716": "another message than the rest of their file",
}
_READING_HINTS = {
    "H711": "read them with tensorflow_ranking, or parse each payload as its own message",
    "H712": "open the folder with TensorBoard; it is no training data",
    "H713": "parse each record as text: no tf.io.parse_example",
    "H714": "parse each payload with the message that the writer used",
    "H715": "ask whoever wrote the file how its payloads are to be parsed",
    "H716": "write the file again with one kind of message",
}
_FORM_TITLES = {
    "H721": "a list is stored in pieces, of which TensorFlow reads the first",
    "H722": "a feature has two kinds, of which TensorFlow reads the first and protobuf the last",
    "H723": "a map entry is not one key and one value, which TensorFlow refuses",
    "H724": "a key is stored twice, and the last one counts",
    "H725": "there are fields that these messages do not have",
}

PAYLOAD_CODES = frozenset({*_MESSAGE_NAMES, *_FORM_TITLES, *(f"W20{digit}" for digit in range(1, 8))})
"""The findings that this family explains."""


def diagnose_payloads(case: DoctorCase) -> Iterator[Diagnosis]:
    """What the payloads are where they are no Examples, and in which forms they are written."""
    for code, name in _MESSAGE_NAMES.items():
        groups = case.groups(code)
        if groups:
            yield _diagnose_other_message(case, code, name, groups)
    yield from _diagnose_unparsable(case)
    for code, form in _FORM_TITLES.items():
        groups = case.groups(code)
        if groups:
            yield _diagnose_form(case, code, form, groups)


def _diagnose_other_message(case: DoctorCase, code: str, name: str, groups: list[FindingGroup]) -> Diagnosis:
    tally = tally_finding_groups(groups)
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
        do=_READING_HINTS[code],
        tensorflow_error=_predict_parse_error(case, tally),
        agree=True,
    )


def _diagnose_unparsable(case: DoctorCase) -> Iterator[Diagnosis]:
    groups = [group for code in sorted(PAYLOAD_CODES) if code[0] == "W" for group in case.groups(code)]
    if not groups:
        return
    tally = tally_finding_groups(groups)
    first = groups[0].first[0]
    yield case.diagnosis(
        "H813",
        "error",
        tally,
        title="payloads are no valid protobuf messages",
        evidence=[f"{first.message} (first: expected {first.expected}, found {first.found})"],
        ruled_out=["not damage in transit: the checksums of these payloads agree, so they were written like this"],
        likely="the writer framed something else than example.SerializeToString(), or cut it",
        do="look at one with `rekord show PATH --record N`, and fix what the writer passes to its write()",
        tensorflow_error=_predict_parse_error(case, tally),
    )


def _predict_parse_error(case: DoctorCase, tally: RecordTally) -> str | None:
    """What TensorFlow says of the first of these payloads, where somebody wants it parsed."""
    if case.spec is None or isinstance(case.spec, SequenceSpec):
        return None
    first = tally.places[0]
    payload = read_payload(AffectedRecord(path=first.path, record=first.record or 0, offset=first.offset or 0))
    return None if payload is None else predict_payload_error(case.spec, payload)


def _diagnose_form(case: DoctorCase, code: str, form: str, groups: list[FindingGroup]) -> Diagnosis:
    tally = tally_finding_groups(groups)
    names = list(
        dict.fromkeys(f"{format_key(each.feature)}" for group in groups for each in group.first if each.feature)
    )
    return case.diagnosis(
        "H812",
        "warning",
        tally,
        title=f"readers do not agree on the records: {form}",
        feature=next((each.feature for group in groups for each in group.first if each.feature), None),
        evidence=[
            f"in {join_words(names[:3], 'and')}" if names else None,
            format_count(tally.records, "record") + " so",
        ],
        ruled_out=["not damage: the checksums of these payloads agree, so they were written like this"],
        likely="the records were put together by hand or joined, not written by one protobuf library",
        do="parse and serialize each record once: Example.FromString(payload).SerializeToString()",
        tensorflow_error=_predict_parse_error(case, tally),
    )


REPEAT_CODES = frozenset({"H786", "H787", "H788", "H789"})
"""The findings that this family explains."""


def diagnose_repeats(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis for each feature that is there twice, and one for each that is in two splits.

    What repeats by nature is a note of `check`, and no trouble that wants a cure.
    """
    found: dict[tuple[str, str | None, Severity], list[FindingGroup]] = {}
    for facts in case.files:
        for about, group in facts.groups.items():
            if about[0] in REPEAT_CODES and group.severity != "note":
                found.setdefault(about, []).append(group)
    for (code, feature, _), groups in found.items():
        yield _diagnose_repeated_feature(case, code, feature, groups)


def _diagnose_repeated_feature(
    case: DoctorCase, code: str, feature: str | None, groups: list[FindingGroup]
) -> Diagnosis:
    first = groups[0].first[0]
    tally = tally_finding_groups(groups)
    told = [finding for group in groups for finding in group.first]
    # A finding that stands for many says the same, and how many.
    alike = all(finding.message.startswith(first.message) for finding in told)
    return Diagnosis(
        code=code,
        severity=groups[0].severity,
        title=first.message if alike else CODES[code],
        # The other records may be in any file: what was asked about holds them all.
        path=first.path if len(case.files) == 1 and first.path is not None else case.path,
        files=tally.files,
        feature=feature,
        records_affected=tally.records,
        records=tuple(place for place in tally.places if place.record is not None),
        evidence=(
            f"{format_count(tally.records, 'record')} in all",
            *(
                f"{os.path.basename(finding.path or '')}, record {finding.record:,}: {finding.found}"
                for finding in told[:MAX_AFFECTED_RECORDS]
                if finding.record is not None and finding.found
            ),
        ),
        do=first.do or f"rekord explain {code}",
    )


def diagnose_color_masks(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis for each mask key and each sort of image that is no image of ids."""
    sorts: dict[tuple[str, str], list[FindingGroup]] = {}
    for group in case.groups("H766"):
        first = group.first[0]
        sorts.setdefault((first.feature or "", first.found or ""), []).append(group)
    for (key, found), groups in sorts.items():
        first = groups[0].first[0]
        tally = tally_finding_groups(groups)
        colours = "palette" in found or "colours" in found
        yield case.diagnosis(
            "H829",
            "error",
            tally,
            title=f"the masks of {format_key(key)} are stored as {found}",
            feature=key,
            evidence=[first.message.partition(": ")[2] or first.message, f"expected {first.expected}"],
            ruled_out=["not damage: the images are whole"],
            likely=first.likely
            or ("the masks were coloured for people to look at, and stored so" if colours else None),
            do=first.do or "store masks as PNGs of one channel whose values are class ids",
        )


_EXPLAINED_CODES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("H814", "H815", "H816", "H817", "H818", "H820"), frozenset({"D403", "H755"})),
    "H819": frozenset({"D401", "H756"}),
    **dict.fromkeys(("H821", "H822"), frozenset({"D402", "H758"})),
    "H823": frozenset({"D401", "H756", "H757", "H754"}),
    "H824": frozenset({"D401", "D402", "D403", "H755", "H758"}),
    **dict.fromkeys(("H825", "H826"), frozenset({"D406"})),
    "H827": frozenset({"D403"}),
    "H828": frozenset({"D402"}),
    "H829": frozenset({"H766"}),
    "H830": frozenset({"H752", "H774"}),
    "H831": frozenset({"H752", "H767"}),
}
"""The findings about a feature that a diagnosis of it makes plain."""

_DIAGNOSED_CODES = bytes_family.CORRUPTION_CODES | PAYLOAD_CODES | REPEAT_CODES


_UNUSUAL_CODES = ("H755", "H756", "H757", "H758")
"""What is only unlike most records: of a key that a spec reads, the spec says whether that matters."""


def raise_severities(case: DoctorCase, known: list[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses, each at least as severe as what `check` says of the same feature."""
    found: dict[tuple[str, str | None], list[Severity]] = {}
    for facts in case.files:
        for code, feature, severity in facts.groups:
            found.setdefault((code, feature), []).append(severity)
    columns = {key: column for column, keys in case.keys_of_columns().items() for key in keys}
    return [
        replace(
            each,
            severity=find_worst_severity(
                [each.severity]
                + [
                    severity
                    for code in _EXPLAINED_CODES.get(each.code, ())
                    for feature in {each.feature, columns.get(each.feature or "", each.feature)}
                    for severity in found.get((code, feature), ())
                ]
            ),
        )
        for each in known
    ]


def diagnose_other_findings(case: DoctorCase, known: list[Diagnosis], read: frozenset[str]) -> Iterator[Diagnosis]:
    """What is left when every family has had its say: one diagnosis a code, feature and severity.

    `read` are the keys that a spec reads.
    """
    explained = {(code, each.feature) for each in known for code in _EXPLAINED_CODES.get(each.code, ())}
    explained |= {(code, key) for code in _UNUSUAL_CODES for key in read}
    by_key: dict[str | None, set[str]] = {}
    for code, key in explained:
        by_key.setdefault(key, set()).add(code)
    for column, keys in case.keys_of_columns().items():
        # Findings about a column are explained by diagnoses of all its keys.
        explained |= {(code, column) for code in set.intersection(*(by_key.get(key, set()) for key in keys))}
    left: dict[tuple[str, str | None, Severity], list[FindingGroup]] = {}
    for facts in (*case.files, *case.companion_files):
        for about, group in facts.groups.items():
            if about[0] not in _DIAGNOSED_CODES and about[:2] not in explained:
                left.setdefault(about, []).append(group)
    for (code, feature, severity), groups in left.items():
        first = groups[0].first[0]
        tally = tally_finding_groups(groups)
        # Where each file has one finding and all say the same, that is true of all records.
        alone = {(len(group.first), group.first[0].message) for group in groups} == {(1, first.message)}
        yield case.diagnosis(
            code,
            severity,
            tally,
            title=first.message if alone else CODES[code],
            feature=feature,
            evidence=[
                None if alone or first.message == CODES[code] else f"first: {first.message}",
                f"expected {first.expected}" if first.expected else None,
                f"found {first.found}" if first.found else None,
            ],
            likely=first.likely,
            do=first.do or f"rekord explain {code}",
        )

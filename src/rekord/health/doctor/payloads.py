"""Problems inside intact frames: messages other than Examples, duplicates, colour masks, other findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from rekord.codes import CODES
from rekord.health.check.rule import format_key
from rekord.health.doctor import corruption
from rekord.health.doctor.diagnosis import AffectedRecord, Diagnosis, find_worst_severity, join_words
from rekord.health.doctor.evidence import (
    MAX_AFFECTED_RECORDS,
    WRITTEN_LIKE_THIS,
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
    "H711": "ExampleListWithContext, as written by tf-ranking",
    "H712": "tf.Event, a TensorBoard log",
    "H713": "plain text",
    "H714": "another protobuf message",
    "H715": "bytes of unknown format",
    "H716": "a different message than in the rest of the file",
}
_READING_HINTS = {
    "H711": "read them with tensorflow_ranking, or parse each payload as its own message",
    "H712": "open the folder with TensorBoard; it is not training data",
    "H713": "parse each record as text, without tf.io.parse_example",
    "H714": "parse each payload with the message the writer used",
    "H715": "ask the author of the file how to parse its payloads",
    "H716": "write the file again with one kind of message",
}
_ENCODING_CODES = ("H721", "H722", "H723", "H724", "H725")

PAYLOAD_CODES = frozenset({*_MESSAGE_NAMES, *_ENCODING_CODES, *(f"W20{digit}" for digit in range(1, 8))})
"""The findings explained by this module."""


def diagnose_payloads(case: DoctorCase) -> Iterator[Diagnosis]:
    """Payloads that are not Examples, and unusual encodings."""
    for code, name in _MESSAGE_NAMES.items():
        groups = case.groups(code)
        if groups:
            yield _diagnose_other_message(case, code, name, groups)
    yield from _diagnose_unparsable(case)
    for code in _ENCODING_CODES:
        groups = case.groups(code)
        if groups:
            yield _diagnose_encoding(case, code, groups)


def _diagnose_other_message(case: DoctorCase, code: str, name: str, groups: list[FindingGroup]) -> Diagnosis:
    tally = tally_finding_groups(groups)
    if code != "H716":
        # One finding represents the whole file.
        paths = {group.path for group in groups}
        tally.records = sum(facts.records for facts in case.files if facts.path in paths)
    found = next((finding.found for group in groups for finding in group.first if finding.found), None)
    return case.diagnosis(
        "H811",
        # Any payload is legal; it is an error only if it is to be parsed as an Example.
        "warning" if code == "H716" else "note" if case.spec is None and case.schema is None else "error",
        tally,
        title=f"the payloads are {name}, not tf.train.Example",
        evidence=[f"the first payloads look like {found or name}"],
        ruled_out=["not damage: the frames are intact, and the checksums of the payloads match"],
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
        title=CODES["H813"],
        evidence=[f"{first.message} (first: expected {first.expected}, found {first.found})"],
        ruled_out=["not damage in transit: the checksums of these payloads match, so they were written like this"],
        likely="the writer wrote something other than example.SerializeToString(), or truncated it",
        do="inspect one with `rekord show PATH --record N`, and fix what the writer passes to write()",
        tensorflow_error=_predict_parse_error(case, tally),
    )


def _predict_parse_error(case: DoctorCase, tally: RecordTally) -> str | None:
    """The error TensorFlow raises for the first of these payloads, if there is a spec."""
    if case.spec is None or isinstance(case.spec, SequenceSpec):
        return None
    first = tally.places[0]
    payload = read_payload(AffectedRecord(path=first.path, record=first.record or 0, offset=first.offset or 0))
    return None if payload is None else predict_payload_error(case.spec, payload)


def _diagnose_encoding(case: DoctorCase, code: str, groups: list[FindingGroup]) -> Diagnosis:
    tally = tally_finding_groups(groups)
    names = list(
        dict.fromkeys(f"{format_key(each.feature)}" for group in groups for each in group.first if each.feature)
    )
    return case.diagnosis(
        "H812",
        "warning",
        tally,
        title=f"{CODES['H812']}: {CODES[code]}",
        feature=next((each.feature for group in groups for each in group.first if each.feature), None),
        evidence=[
            f"in {join_words(names[:3], 'and')}" if names else None,
            f"{format_count(tally.records, 'record')} affected",
        ],
        ruled_out=[WRITTEN_LIKE_THIS],
        likely="the records were assembled by hand or concatenated, not written by a protobuf library",
        do="parse and serialize each record once: Example.FromString(payload).SerializeToString()",
        tensorflow_error=_predict_parse_error(case, tally),
    )


REPEAT_CODES = frozenset({"H786", "H787", "H788", "H789"})
"""The findings explained by `diagnose_repeats`."""


def diagnose_repeats(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis per feature with duplicates, and one per feature shared by two splits.

    Values that repeat by nature are notes of `check` and need no diagnosis.
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
    findings = [finding for group in groups for finding in group.first]
    # A finding that represents many has the same message with a count.
    alike = all(finding.message.startswith(first.message) for finding in findings)
    return Diagnosis(
        code=code,
        severity=groups[0].severity,
        title=first.message if alike else CODES[code],
        # The other records may be in any file.
        path=first.path if len(case.files) == 1 and first.path is not None else case.path,
        files=tally.files,
        feature=feature,
        records_affected=tally.records,
        records=tuple(place for place in tally.places if place.record is not None),
        evidence=(
            f"{format_count(tally.records, 'record')} in total",
            *(
                f"{os.path.basename(finding.path or '')}, record {finding.record:,}: {finding.found}"
                for finding in findings[:MAX_AFFECTED_RECORDS]
                if finding.record is not None and finding.found
            ),
        ),
        do=first.do or f"rekord explain {code}",
    )


def diagnose_color_masks(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis per mask key and kind of image that does not hold class ids."""
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
            ruled_out=["not damage: the images are intact"],
            likely=first.likely or ("the masks were coloured for display and stored that way" if colours else None),
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
"""The findings about a feature that a diagnosis of it covers."""

# H836 is H814 and H815 in a check, which knows no spec.
_DIAGNOSED_CODES = corruption.CORRUPTION_CODES | PAYLOAD_CODES | REPEAT_CODES | {"H836"}


_UNUSUAL_CODES = ("H755", "H756", "H757", "H758")
"""Deviations from the majority; for a key read by a spec, the spec decides whether they matter."""


def raise_severities(case: DoctorCase, known: list[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses, each at least as severe as the findings of `check` about the same feature."""
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
    """The remaining findings: one diagnosis per code, feature and severity. `read` are the keys of the spec."""
    explained = {(code, each.feature) for each in known for code in _EXPLAINED_CODES.get(each.code, ())}
    explained |= {(code, key) for code in _UNUSUAL_CODES for key in read}
    by_key: dict[str | None, set[str]] = {}
    for code, key in explained:
        by_key.setdefault(key, set()).add(code)
    for column, keys in case.keys_of_columns().items():
        # Diagnoses of all keys of a column explain findings about the column.
        explained |= {(code, column) for code in set.intersection(*(by_key.get(key, set()) for key in keys))}
    left: dict[tuple[str, str | None, Severity], list[FindingGroup]] = {}
    for facts in (*case.files, *case.companion_files):
        for about, group in facts.groups.items():
            if about[0] not in _DIAGNOSED_CODES and about[:2] not in explained:
                left.setdefault(about, []).append(group)
    for (code, feature, severity), groups in left.items():
        first = groups[0].first[0]
        tally = tally_finding_groups(groups)
        # If each file has one finding and all messages are equal, the message applies to all records.
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

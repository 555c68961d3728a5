"""Findings that no other family explains: grouped, so that a thousand of a sort are one diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rekord.health.ailments import bytes as bytes_family
from rekord.health.ailments import payloads, repeats
from rekord.health.ailments.case import Case, Group, tally_of
from rekord.health.diagnosis import Diagnosis, titled, worst
from rekord.health.finding import Severity

_EXPLAINS: dict[str, frozenset[str]] = {
    "H814": frozenset({"D403", "H755"}),
    "H815": frozenset({"D403", "H755"}),
    "H816": frozenset({"D403", "H755"}),
    "H817": frozenset({"D403", "H755"}),
    "H818": frozenset({"D403", "H755"}),
    "H819": frozenset({"D401", "H756"}),
    "H820": frozenset({"D403", "H755"}),
    "H821": frozenset({"D402", "H758"}),
    "H822": frozenset({"D402", "H758"}),
    "H823": frozenset({"D401", "H756", "H757", "H754"}),
    "H824": frozenset({"D401", "D402", "D403", "H755", "H758"}),
    "H825": frozenset({"D406"}),
    "H826": frozenset({"D406"}),
    "H827": frozenset({"D403"}),
    "H828": frozenset({"D402"}),
    "H829": frozenset({"H766"}),
    "H830": frozenset({"H752", "H774"}),
    "H831": frozenset({"H752", "H767"}),
}
"""The findings about a feature that a diagnosis of it makes plain."""

_CLAIMED = bytes_family.CLAIMED | payloads.CLAIMED | repeats.CLAIMED


_UNUSUAL = ("H755", "H756", "H757", "H758")
"""What is only unlike most records: of a key that a spec reads, the spec says whether that matters."""


def as_severe_as_findings(case: Case, known: list[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses, each at least as severe as what `check` says of the same feature."""
    found: dict[tuple[str, str | None], list[Severity]] = {}
    for facts in case.files:
        for code, feature, severity in facts.groups:
            found.setdefault((code, feature), []).append(severity)
    columns = {key: column for column, keys in case.keys_of_columns().items() for key in keys}
    return [
        replace(
            each,
            severity=worst(
                [each.severity]
                + [
                    severity
                    for code in _EXPLAINS.get(each.code, ())
                    for feature in {each.feature, columns.get(each.feature or "", each.feature)}
                    for severity in found.get((code, feature), ())
                ]
            ),
        )
        for each in known
    ]


def diagnose(case: Case, known: list[Diagnosis], read: frozenset[str]) -> Iterator[Diagnosis]:
    """What is left when every family has had its say: one diagnosis a code, feature and severity.

    `read` are the keys that a spec reads.
    """
    explained = {(code, each.feature) for each in known for code in _EXPLAINS.get(each.code, ())}
    explained |= {(code, key) for code in _UNUSUAL for key in read}
    by_key: dict[str | None, set[str]] = {}
    for code, key in explained:
        by_key.setdefault(key, set()).add(code)
    for column, keys in case.keys_of_columns().items():
        # Findings about a column are explained by diagnoses of all its keys.
        explained |= {(code, column) for code in set.intersection(*(by_key.get(key, set()) for key in keys))}
    left: dict[tuple[str, str | None, Severity], list[Group]] = {}
    for facts in (*case.files, *case.beside):
        for about, group in facts.groups.items():
            if about[0] not in _CLAIMED and about[:2] not in explained:
                left.setdefault(about, []).append(group)
    for (code, feature, severity), groups in left.items():
        first = groups[0].first[0]
        tally = tally_of(groups)
        # Where each file has one finding and all say the same, that is true of all records.
        alone = {(len(group.first), group.first[0].message) for group in groups} == {(1, first.message)}
        yield case.diagnosis(
            code,
            severity,
            tally,
            title=first.message if alone else titled(code),
            feature=feature,
            evidence=[
                None if alone or first.message == titled(code) else f"first: {first.message}",
                f"expected {first.expected}" if first.expected else None,
                f"found {first.found}" if first.found else None,
            ],
            likely=first.likely,
            do=first.do or f"rekord explain {code}",
            agree=False,
        )

"""Content that is there more than once: in one split, or in two of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rekord.health.ailments.case import Case, Group, tally_of
from rekord.health.ailments.profile import MOST_PLACES
from rekord.health.ailments.words import count
from rekord.health.diagnosis import Diagnosis, titled
from rekord.health.finding import Severity

CLAIMED = frozenset({"H786", "H787", "H788", "H789"})
"""The findings that this family explains."""


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """One diagnosis for each feature that is there twice, and one for each that is in two splits.

    What repeats by nature is a note of `check`, and no trouble that wants a cure.
    """
    found: dict[tuple[str, str | None, Severity], list[Group]] = {}
    for facts in case.files:
        for about, group in facts.groups.items():
            if about[0] in CLAIMED and group.severity != "note":
                found.setdefault(about, []).append(group)
    for (code, feature, _), groups in found.items():
        yield _diagnosis(case, code, feature, groups)


def _diagnosis(case: Case, code: str, feature: str | None, groups: list[Group]) -> Diagnosis:
    first = groups[0].first[0]
    tally = tally_of(groups)
    told = [finding for group in groups for finding in group.first]
    # A finding that stands for many says the same, and how many.
    alike = all(finding.message.startswith(first.message) for finding in told)
    return Diagnosis(
        code=code,
        severity=groups[0].severity,
        title=first.message if alike else titled(code),
        # The other records may be in any file: what was asked about holds them all.
        path=first.path if len(case.files) == 1 and first.path is not None else case.asked,
        files=tally.files,
        feature=feature,
        records_affected=tally.records,
        records=tuple(place for place in tally.places if place.record is not None),
        evidence=(
            f"{count(tally.records, 'record')} in all",
            *(
                f"{os.path.basename(finding.path or '')}, record {finding.record:,}: {finding.found}"
                for finding in told[:MOST_PLACES]
                if finding.record is not None and finding.found
            ),
        ),
        do=first.do or f"rekord explain {code}",
    )

"""Masks that are pictures of colours instead of class ids."""

from __future__ import annotations

from collections.abc import Iterator

from rekord.health.ailments.case import Case, Group, tally_of
from rekord.health.ailments.words import named
from rekord.health.diagnosis import Diagnosis


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """One diagnosis for each mask key and each sort of picture that is no picture of ids."""
    sorts: dict[tuple[str, str], list[Group]] = {}
    for group in case.groups("H766"):
        first = group.first[0]
        sorts.setdefault((first.feature or "", first.found or ""), []).append(group)
    for (key, found), groups in sorts.items():
        first = groups[0].first[0]
        tally = tally_of(groups)
        colours = "palette" in found or "colours" in found
        yield case.diagnosis(
            "H829",
            "error",
            tally,
            title=f"the masks of {named(key)} are stored as {found}",
            feature=key,
            evidence=[first.message.partition(": ")[2] or first.message, f"expected {first.expected}"],
            ruled_out=["not damage: the pictures are whole"],
            likely=first.likely
            or ("the masks were coloured for people to look at, and stored so" if colours else None),
            do=first.do or "store masks as PNGs of one channel whose values are class ids",
            agree=False,
        )

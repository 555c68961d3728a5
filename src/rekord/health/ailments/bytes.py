"""Troubles below the records: compression, damage, and files that are something else."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rekord.dataset.names import compression_in_name
from rekord.errors import RekordError
from rekord.health.ailments.case import Case, FileFacts, tally_of
from rekord.health.ailments.cuts import damage_signs
from rekord.health.ailments.signs import NOT_EVEN, Sign, head_of, only, size_bytes
from rekord.health.ailments.words import count
from rekord.health.diagnosis import Diagnosis, worst
from rekord.health.finding import Finding
from rekord.records.compression import recognise

_FOREIGN = ("F111", "F112", "F113", "F114", "F115", "F116", "F117", "F118", "F119", "F120")
_MOST_TOLD = 3

CLAIMED = frozenset(
    {
        "F101",
        "F102",
        "F103",
        "F104",
        "F110",
        "C201",
        "C202",
        "C203",
        "C204",
        "C205",
        "H701",
        "H702",
        *_FOREIGN,
    }
)
"""The findings that this family explains."""

_TITLES = {
    "H801": "the file is compressed, and its name does not say so",
    "H802": "the name says compressed, and the file is not",
    "H803": "the copy of a file was cut off",
    "H804": "bytes were changed after writing",
    "H805": "the writer never finished the file",
    "H806": "the file ends in zeros that nobody wrote records to",
    "H807": "a Git LFS pointer stands where the file should be",
    "H808": "this is no record file",
    "H809": "the compressed data is damaged",
    "H810": "the file is compressed in a way that TensorFlow does not read",
}


def diagnose(case: Case) -> Iterator[Diagnosis]:
    """One diagnosis a cause, whatever the number of files that show it."""
    signs: dict[str, list[Sign]] = {}
    for facts in case.files:
        for sign in _signs(case, facts):
            signs.setdefault(sign.code, []).append(sign)
    for code, alike in signs.items():
        yield _told(case, code, alike)


def _told(case: Case, code: str, signs: list[Sign]) -> Diagnosis:
    first = signs[0]
    groups = [group for sign in signs for each in sign.findings if (group := sign.facts.of(each)) is not None]
    tally = tally_of(groups)
    evidence = []
    for sign in signs[:_MOST_TOLD]:
        name = f"{os.path.basename(sign.facts.path)}: " if len(signs) > 1 else ""
        evidence += [f"{name}{line}" for line in sign.evidence]
    if len(signs) > 1:
        evidence.insert(0, f"{len(signs):,} of {len(case.files):,} files")
    records = sum(sign.facts.records for sign in signs) if first.all_records else tally.records
    ruled_out = [line for line in first.ruled_out if all(line in sign.ruled_out for sign in signs)]
    likely = first.likely if all(sign.likely == first.likely for sign in signs) else None
    return Diagnosis(
        code=code,
        severity=worst(group.severity for group in groups),
        title=_TITLES[code],
        path=case.place(tally),
        files=tally.files,
        records_affected=records,
        records=tuple(place for place in tally.places if place.record is not None and not first.all_records),
        evidence=tuple(evidence),
        ruled_out=tuple(ruled_out),
        likely=likely,
        do=first.do,
        tensorflow_error=first.tensorflow_error,
    )


def _signs(case: Case, facts: FileFacts) -> Iterator[Sign]:
    codes = {code for code, *_ in facts.groups}
    if not codes & CLAIMED:
        return
    if "H701" in codes or "H702" in codes:
        yield from _misnamed(case, facts)
    if "F110" in codes:
        yield _pointer(facts)
    if "C205" in codes:
        yield _other_compression(facts, only(facts, "C205"))
    for code in _FOREIGN:
        if code in codes:
            yield _foreign(facts, only(facts, code))
    try:
        yield from damage_signs(facts, codes)
    except RekordError:
        return  # the file went away since it was read, which was reported then


def _misnamed(case: Case, facts: FileFacts) -> Iterator[Sign]:
    if facts.of("H701") is not None:
        yield Sign(
            code="H802",
            facts=facts,
            findings=("H701",),
            all_records=True,
            evidence=[
                f"the name says {compression_in_name(facts.path)}",
                "the first 12 bytes are the valid header of a plain record",
            ],
            ruled_out=["not damage: every record was read and its checksums agree"] * _undamaged(facts),
            likely="it was unpacked without being renamed, or written without compression under such a name",
            do='read it with compression_type="", or give it a name that does not say so',
            tensorflow_error="inflate() failed with error -3: incorrect header check",
        )
        return
    found = only(facts, "H702").found or "gzip"
    if case.compression.get(os.path.basename(facts.path)) == found:
        return  # the manifest beside it says so
    if not facts.records:
        return  # nothing says that records are inside
    marks = "1f 8b 08" if found == "gzip" else "a zlib header"
    yield Sign(
        code="H801",
        facts=facts,
        findings=("H702",),
        all_records=True,
        evidence=[f"the file begins with {marks}, and the bytes inside are records"],
        ruled_out=["not damage: every record was read and its checksums agree"] * _undamaged(facts),
        likely=f"it was written with {found.upper()}, and is read as plain because of its name",
        do=f'tf.data.TFRecordDataset(files, compression_type="{found.upper()}")',
        tensorflow_error=f"corrupted record at 0{NOT_EVEN}",
    )


def _undamaged(facts: FileFacts) -> bool:
    return not any(code[0] in "FC" for code, *_ in facts.groups)


def _pointer(facts: FileFacts) -> Sign:
    return Sign(
        code="H807",
        facts=facts,
        findings=("F110",),
        all_records=True,
        evidence=[
            f"{count(size_bytes(facts.path), 'byte')} of text that begin `version https://git-lfs.github.com/spec/`"
        ],
        ruled_out=["not damage: a pointer is text, and the data itself was never fetched"],
        likely="the repository was cloned without Git LFS",
        do="git lfs pull      (in the repository that the file came from)",
        tensorflow_error=f"corrupted record at 0{NOT_EVEN}",
    )


def _foreign(facts: FileFacts, finding: Finding) -> Sign:
    known = finding.code != "F120"
    begin = (
        "nothing in the file is a record" if not known else f"its first bytes are those of {finding.found}"
    )
    return Sign(
        code="H808",
        facts=facts,
        findings=(finding.code,),
        all_records=True,
        evidence=[
            begin,
            f"{finding.found}" if not known else f"{count(size_bytes(facts.path), 'byte')} in all",
        ],
        ruled_out=["not gzip or zlib: the file does not begin as they do"]
        * (recognise(head_of(facts.path)) == "none"),
        likely=f"{finding.found} was named or downloaded as a record file" if known else None,
        do=finding.do or "check which file this is",
        tensorflow_error=f"corrupted record at 0{NOT_EVEN}" if size_bytes(facts.path) >= 12 else None,
    )


def _other_compression(facts: FileFacts, finding: Finding) -> Sign:
    return Sign(
        code="H810",
        facts=facts,
        findings=("C205",),
        all_records=True,
        evidence=[f"its first bytes are those of {finding.found}"],
        likely="it was compressed as a whole after it was written",
        do=finding.do or "decompress it",
        tensorflow_error=f"corrupted record at 0{NOT_EVEN}",
    )

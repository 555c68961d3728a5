"""`rk.check`: is every byte of these record files what it should be?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rekord import _core
from rekord._core import PayloadKind
from rekord.dataset.infer import SAMPLED_RECORDS, sampled_kind
from rekord.dataset.read import open_frames, record_files
from rekord.errors import RekordError
from rekord.faults import wire_error
from rekord.health.finding import Finding, Report, Severity
from rekord.records.frame import FrameReader, Stretch

MAX_FINDINGS = 1000

_KIND_NOTES = {
    PayloadKind.LIST_WITH_CONTEXT: "H711",
    PayloadKind.EVENT: "H712",
    PayloadKind.TEXT: "H713",
    PayloadKind.PROTO: "H714",
    PayloadKind.OTHER: "H715",
}

_ODDITIES: dict[int, tuple[str, Severity]] = {
    _core.ODD_SPLIT_LIST: ("H721", "warning"),
    _core.ODD_TWO_KINDS: ("H722", "warning"),
    _core.ODD_ENTRY_FORM: ("H723", "warning"),
    _core.ODD_DUPLICATE_KEY: ("H724", "warning"),
    _core.ODD_UNKNOWN_INNER: ("H725", "warning"),
}


def check(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    max_findings: int | None = MAX_FINDINGS,
) -> Report:
    """Read every record of a file, folder or glob and report what is wrong with it.

    Lengths, checksums, compression, where files end, and what the payloads are. Reading goes on after damage
    wherever the next intact record can be found. Findings beyond `max_findings` are counted, not listed.
    """
    return check_files(record_files(path), max_findings=max_findings)


def check_files(paths: Sequence[str], *, max_findings: int | None = MAX_FINDINGS) -> Report:
    """The same for record files that have been found already."""
    report = Report()
    for finding in checked(paths, report):
        if finding.severity == "error":
            report.errors += 1
        if max_findings is None or len(report.findings) < max_findings:
            report.findings.append(finding)
        else:
            report.not_listed += 1
    return report


def checked(paths: Sequence[str], report: Report) -> Iterator[Finding]:
    """The findings of each file as they are met; what was read is counted in `report`."""
    for path in paths:
        report.files += 1
        try:
            with open_frames(path) as reader:
                yield from _FileCheck(reader, report).findings()
        except RekordError as failure:
            report.unreadable += 1
            failure.location = failure.location.within(path=path)
            yield Finding.from_error(failure)


class _FileCheck:
    """One pass over one file."""

    def __init__(self, reader: FrameReader, report: Report) -> None:
        self._reader = reader
        self._report = report
        self._kind: PayloadKind | None = None
        self._repeated: dict[tuple[str, str | None], Finding] = {}
        self._damaged = False

    def findings(self) -> Iterator[Finding]:
        before = self._report.records
        goes_on = True
        while goes_on:
            goes_on = False
            try:
                for stretch in self._reader.stretches():
                    yield from self._payloads(stretch)
            except RekordError as failure:
                self._damaged = True
                explained, goes_on = self._reader.recover(failure)
                yield Finding.from_error(explained)
        yield from self._repeated.values()
        yield from self._about_the_file(self._report.records - before)

    def _about_the_file(self, records: int) -> Iterator[Finding]:
        path, compression = self._reader.path, self._reader.compression
        named = path.lower().endswith((".gz", ".gzip", ".zz", ".zlib"))
        if records == 0 and not self._damaged:
            yield Finding.of("H703", "note", path=path)
        elif named and compression == "none" and not self._damaged:
            yield Finding.of(
                "H701",
                "note",
                path=path,
                expected="gzip or zlib, as the name says",
                found="no compression",
                do="read it without compression, or give it another name",
            )
        elif not named and compression != "none":
            yield Finding.of(
                "H702",
                "note",
                path=path,
                expected="no compression, as far as the name says",
                found=compression,
                do=f'TFRecordDataset(..., compression_type="{compression.upper()}")',
            )

    def _payloads(self, stretch: Stretch) -> Iterator[Finding]:
        self._report.records += len(stretch.extents)
        self._report.payload_bytes += stretch.extents.payload_bytes()
        strangers: dict[int, PayloadKind] = {}
        if self._kind is None:
            strangers = self._recognise(stretch)
            if self._kind is not None and self._kind in _KIND_NOTES:
                yield Finding.of(_KIND_NOTES[self._kind], "note", path=self._reader.path)
        if self._kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE):
            return
        sequence = self._kind == PayloadKind.SEQUENCE
        for index, problem, oddities in _core.survey(stretch.buffer, stretch.extents, sequence):
            record, offset = stretch.first_record + index, stretch.offset(index)
            if problem is not None:
                strangers.pop(index, None)  # refused, which says more
                failure = wire_error(problem)
                failure.location = failure.location.within(
                    path=self._reader.path, record=record, offset=offset
                )
                yield Finding.from_error(failure)
                continue
            for oddity, feature in oddities.items():
                self._note_oddity(oddity, feature, record, offset, sequence=sequence)
        for index, kind in strangers.items():
            yield Finding.of(
                "H716",
                "warning",
                path=self._reader.path,
                record=stretch.first_record + index,
                offset=stretch.offset(index),
                expected="tf.train.Example, as in most of the file",
                found=kind.name.lower().replace("_", " "),
            )

    def _recognise(self, stretch: Stretch) -> dict[int, PayloadKind]:
        """Settle what the file holds; gives the records that hold something else."""
        self._kind = sampled_kind(stretch)
        if self._kind != PayloadKind.EXAMPLE:
            return {}
        kinds = _core.recognise(stretch.buffer, stretch.extents, SAMPLED_RECORDS)
        return {i: kind for i, kind in enumerate(kinds) if kind in _KIND_NOTES and stretch.extents.length(i)}

    def _note_oddity(
        self, oddity: int, feature: str | None, record: int, offset: int, *, sequence: bool
    ) -> None:
        if oddity == _core.ODD_ENTRY_SWAPPED and sequence:
            oddity = _core.ODD_ENTRY_FORM  # only the parser of sequences insists on the order
        if oddity not in _ODDITIES:
            return
        code, severity = _ODDITIES[oddity]
        known = self._repeated.get((code, feature))
        if known is not None:
            known.count += 1
            return
        self._repeated[code, feature] = Finding.of(
            code, severity, path=self._reader.path, record=record, offset=offset, feature=feature
        )

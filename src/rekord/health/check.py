"""`rk.check`: is every byte of these record files what it should be?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rekord.dataset.read import record_files
from rekord.health.finding import Finding, Report
from rekord.health.scan import scan_file

MAX_FINDINGS = 1000


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
        for item in scan_file(path, report):
            if isinstance(item, Finding):
                yield item

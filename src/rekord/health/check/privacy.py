"""Fields that identify patients, in keys named like those of DICOM and in DICOM files stored whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from rekord.health.check.rule import Cells, CheckRule, format_key
from rekord.health.finding import Finding
from rekord.health.key_columns import KeyColumn, KeyedBatch

_PATIENT_KEY = re.compile(
    r"(^|/)patients?_?(name|id|birth_?date|birth_?time|address|other_?ids|other_?names|telephone_?numbers"
    r"|mothers_?birth_?name|comments)$"
)
_DICOM_MAGIC_OFFSET = 128
_HEAD_BYTES = 1 << 16
_PATIENT_FIELDS = ((0x10, b"PN", "PatientName"), (0x20, b"LO", "PatientID"), (0x30, b"DA", "PatientBirthDate"))


def _compile_tags() -> Iterator[tuple[re.Pattern[bytes], Literal["little", "big"], str]]:
    """The tags of the fields, of group 0x0010, each followed by its type and a length, in both byte orders."""
    orders: tuple[Literal["little", "big"], ...] = ("little", "big")
    for number, kind, name in _PATIENT_FIELDS:
        for order in orders:
            tag = (0x10).to_bytes(2, order) + number.to_bytes(2, order)
            yield re.compile(re.escape(tag + kind) + b"(..)", re.DOTALL), order, name


_PATIENT_TAGS = tuple(_compile_tags())


class PatientRule(CheckRule):
    """No record identifies a patient."""

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about these records."""
        for key in batch.context:
            cells = Cells.of(batch, key, step=False)
            if cells is None or cells.column.kind != "bytes":
                continue
            if _PATIENT_KEY.search(key.lower().replace("-", "_")):
                rows = [row for row in range(len(batch)) if any(cells.column.value(row) or ())]
                yield from self._report(batch, rows, "H845", "warning", key, _Description(format_key(key)))
                continue
            for row, found in _find_patients(cells.column).items():
                what = f"{format_key(key)} is a DICOM file with {found}"
                yield from self._report(batch, [row], "H845", "warning", key, _Description(what, dicom=True))


class _Description:
    """The details of a finding."""

    def __init__(self, what: str, *, dicom: bool = False) -> None:
        self._what = what
        self._dicom = dicom

    def __call__(self, row: int) -> dict[str, Any]:
        if self._dicom:
            return {
                "message": f"{self._what}: it identifies a patient",
                "do": "write the arrays instead: rk.sources.dicom(folder), which keeps no patient fields",
            }
        return {
            "message": f"{self._what} identifies a patient",
            "do": "rekord rewrite IN OUT --drop COLUMN, or write without this column",
        }


def _find_patients(column: KeyColumn) -> dict[int, str]:
    """The first patient field of each row with a DICOM file."""
    found: dict[int, str] = {}
    # Without a Python object for each string: few are DICOM files.
    for index in column.values.with_bytes_at(_DICOM_MAGIC_OFFSET, b"DICM"):
        name = _find_patient(column.values.bytes(index)[:_HEAD_BYTES])
        if name is not None:
            found.setdefault(int(column.owners[index]), name)
    return found


def _find_patient(head: bytes) -> str | None:
    """The first patient field of a DICOM file that is not empty."""
    for pattern, order, name in _PATIENT_TAGS:
        match = pattern.search(head)
        if match is not None and int.from_bytes(match[1], order):
            return name
    return None

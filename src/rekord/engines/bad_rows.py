"""Rows that do not fit: the end of a conversion, or a line in its rejects."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from rekord.engines.job import OnBadRow
from rekord.errors import RekordError
from rekord.layouts.base import Remark
from rekord.location import Location


class BadRows:
    """What was wrong in one part, in the order of its rows."""

    def __init__(self, on_bad_row: OnBadRow) -> None:
        self.rejecting = on_bad_row == "reject"
        self._rejects: list[bytes] = []
        self._remarks: list[bytes] = []
        self.remark_counts: Counter[str] = Counter()

    @property
    def rejected(self) -> int:
        return len(self._rejects)

    @property
    def remarked(self) -> int:
        return len(self._remarks)

    def refuse(self, failure: RekordError, place: Location) -> None:
        """Note a bad row, or raise it."""
        known = failure.location
        # An image's own file says more than the list that names it; else the place of the row is what to look at.
        if known.path is None or place.path is None or known.path == place.path:
            row = known.row if place.row is None else place.row
            line = place.line if known.line is None else known.line
            failure.location = replace(known, path=known.path or place.path, row=row, line=line)
        if not self.rejecting:
            raise failure
        self._rejects.append(_line({"origin": failure.location.to_dict(), **_said(failure)}))

    def remark(self, remark: Remark, place: Location) -> None:
        """Note something that is no error."""
        self.remark_counts[remark.code] += 1
        document = {
            "origin": {**place.to_dict(), "feature": remark.feature},
            "code": remark.code,
            "what": remark.what,
        }
        self._remarks.append(_line(document))

    def rejects_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._rejects])

    def remarks_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._remarks])


def _said(failure: RekordError) -> dict[str, Any]:
    told = failure.to_dict()
    return {name: told[name] for name in ("error", "code", "what", "expected", "found", "likely", "do")}


def _line(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_as_utf8(document))


def _as_utf8(value: Any) -> Any:
    """A document whose texts JSON can hold: a name on the disk need not be UTF-8."""
    if isinstance(value, dict):
        return {name: _as_utf8(inner) for name, inner in value.items()}
    if not isinstance(value, str):
        return value
    with suppress(UnicodeEncodeError):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value.encode("utf-8", "backslashreplace").decode()

"""What is said once a file, with the number of records that it is true of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rekord.codes import CODES
from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyedBatch

MOST_FEATURES = 100
SHOWN_CHARACTERS = 60


def found_at(
    batch: KeyedBatch, row: int, code: str, severity: Severity, feature: str | None, said: dict[str, Any]
) -> Finding:
    """The finding about one row of a batch; what is None is not said."""
    return Finding.of(
        code,
        severity,
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        **{name: text for name, text in said.items() if text is not None},
    )


class Once:
    """Findings that are told when their file ends, at the first of the records that share them."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, Severity, str | None], Finding] = {}

    def tell(
        self,
        batch: KeyedBatch,
        rows: Sequence[int],
        code: str,
        severity: Severity,
        feature: str | None,
        say: Callable[[int], dict[str, Any]],
    ) -> None:
        """The same is true of all these rows; `say` is asked about the first one only.

        Whoever made the file chose how many features there are: beyond a hundred they share one finding a code and
        severity.
        """
        if not len(rows):
            return
        if (code, severity, feature) not in self._held and len(self._held) >= MOST_FEATURES:
            feature, say = None, lambda _: {"message": f"{CODES[code]}: under more keys than are named here"}
        held = self._held.get((code, severity, feature))
        if held is not None:
            held.count += len(rows)
            return
        finding = found_at(batch, rows[0], code, severity, feature, say(rows[0]))
        finding.count = len(rows)
        self._held[code, severity, feature] = finding

    def end_file(self) -> Iterator[Finding]:
        """All that was held; then begin again."""
        told = list(self._held.values())
        self._held.clear()
        yield from told


def named(key: str) -> str:
    """A key of a record as a message shows it: whoever wrote the file chose its length."""
    return f"`{key}`" if len(key) <= SHOWN_CHARACTERS else f"`{key[: SHOWN_CHARACTERS - 1]}…`"


def of_records(count: int) -> str:
    """So many records, in words."""
    return f"{count:,} record" if count == 1 else f"{count:,} records"

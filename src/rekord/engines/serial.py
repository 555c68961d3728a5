"""Serial sources: read once, from the beginning, by the process that has them, and encoded where they are read.

Rows are cut into parts by the bytes of their frames. A source that was read before is read again from its start, and
compared part by part with what the journal says of it: nothing is written twice, and another source is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rekord.engines.bad_rows import BadRows
from rekord.engines.encoding import Encoding
from rekord.engines.job import Job
from rekord.engines.journal import Staging
from rekord.engines.progress import Tally
from rekord.engines.spill import Digest, Encoded, PartDone, SpillWriter
from rekord.engines.tasks import finish_part, new_spill
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import PART_BYTES


class _Piece:
    """Some encoded rows, and what is known of the part that they belong to."""

    def __init__(self, encoded: Encoded | None, part: int, rows: int, bad: BadRows, *, last: bool) -> None:
        self.encoded = encoded
        self.part = part
        self.rows = rows  # of the part so far
        self.bad = bad
        self.last = last  # of its part


def spill_serial(
    job: Job, staging: Staging, finished: Callable[[int], PartDone | None], tally: Tally
) -> list[PartDone]:
    """Read the whole source; parts that are finished are only compared."""
    done: list[PartDone] = []
    known: PartDone | None = None
    sink: SpillWriter | Digest | None = None
    try:
        for piece in _pieces(job, tally):
            if sink is None:
                known = finished(piece.part)
                sink = new_spill(job, staging, piece.part) if known is None else Digest()
            if piece.encoded is not None:
                sink.add(piece.encoded)
            tally.rows(piece.rows, sink.spilled_bytes, piece.bad.rejected)
            if not piece.last:
                continue
            if isinstance(sink, SpillWriter):
                done.append(finish_part(staging, piece.part, sink, piece.rows, piece.bad))
            else:
                assert known is not None
                if str(sink) != known.digest:
                    raise _changed(piece.part, known)
                done.append(known)
            sink = None
            tally.next()
    finally:
        if isinstance(sink, SpillWriter):
            sink.discard()
    return done


def serial_digests(job: Job) -> list[str]:
    """The digests of the parts that a source would make."""
    digests: list[str] = []
    digest = Digest()
    for piece in _pieces(job):
        if piece.encoded is not None:
            digest.add(piece.encoded)
        if piece.last:
            digests.append(str(digest))
            digest = Digest()
    return digests


def _pieces(job: Job, tally: Tally | None = None) -> Iterator[_Piece]:
    """The rows of the source, cut into parts of about PART_BYTES; at least one part, and its last piece says so."""
    source: Any = job.source
    encoding = Encoding(job, BadRows(job.on_bad_row))
    part = 0
    before = 0
    part_bytes = 0

    def tell() -> None:
        if tally is not None:
            tally.rows(encoding.rows - before, part_bytes, encoding.bad.rejected)

    encoding.heard = tell
    for encoded in encoding.pieces(source.rows()):
        part_bytes += int(encoded.lengths.sum())
        last = part_bytes >= PART_BYTES
        yield _Piece(encoded, part, encoding.rows - before, encoding.bad, last=last)
        if last:
            part, before, part_bytes = part + 1, encoding.rows, 0
            encoding.bad = BadRows(job.on_bad_row)
    if part_bytes or encoding.rows > before or not part:
        yield _Piece(None, part, encoding.rows - before, encoding.bad, last=True)


def _changed(part: int, known: PartDone) -> RekordError:
    return error(
        "X513",
        location=Location(),
        expected="the rows that were read when the conversion began",
        found=f"other ones in part {part + 1}, of {known.records:,} rows",
        do="run it again with --fresh (fresh=True), or give the rows in the same order",
    )

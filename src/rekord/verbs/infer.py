"""`rk.infer`: the schema and the rows that `rk.write` would store for raw data, or the schema of record files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rekord.arguments import check_keywords
from rekord.codec.decode import PayloadBytes
from rekord.conversion.driver import Conversion
from rekord.conversion.encode_rows import RowEncoding
from rekord.conversion.mapped_rows import MappedOutputs, locate_row, read_in_sequence, skip_rows
from rekord.conversion.plan import RowFunction
from rekord.dataset.infer import Kind, check_infer_arguments, collect_evidence
from rekord.dataset.infer import infer as infer_records
from rekord.dataset.read import list_record_files
from rekord.errors import RekordError
from rekord.layouts.base import Verify
from rekord.schema import Schema
from rekord.sources.base import Chunk, ColumnChunk, DetectedSource, RowsLike, SourceRow
from rekord.sources.detect import build_source, identify_source
from rekord.sources.records import RecordsSource
from rekord.storage import raw_files
from rekord.storage.remote_files import listed_once
from rekord.verbs.forecast import SilentBadRows, is_sampleable, iter_payloads, load_files
from rekord.verbs.options import WriteOptions
from rekord.verbs.write import prepare_conversion

EVIDENCE_ROWS = 1000
EVIDENCE_BYTES = 64 << 20
"""The rows of raw data that evidence is collected from, at most."""

UNWRITTEN = "unwritten"
"""The output of a conversion that is prepared and never run."""


@check_keywords
def infer(
    source_or_records: RowsLike | Iterable[PayloadBytes],
    limit: int | None = None,
    *,
    names: Sequence[str] | None = None,
    kind: Kind | None = None,
) -> Schema:
    """Propose a schema, with the evidence for it in `schema.evidence`.

    From raw data (a path or a source of `rk.sources`): the schema that `rk.write` would use, with evidence from the
    first 1,000 rows as they would be stored, and what was guessed in `schema.evidence["guesses"]`.

    From record files (a path, a folder, a glob, or a list of them) and payloads (an iterable of bytes, such as
    `rk.records`): a key that always has one value is a scalar, one that always has n values has shape `(n,)`, any
    other has `(None,)`. A key that is absent anywhere is optional. Byte strings stay Bytes. Where kinds differ, the
    first one decides. `kind` says whether payloads are Examples ("example"), SequenceExamples ("sequence") or raw
    bytes ("bytes"); None detects it. Payloads that are neither have one column, `payload`, of type Payload.

    From rows: an iterable of mappings or tuples (`names` are their columns, by default x, y and weight), a dict of
    NumPy columns, an Arrow table, a pandas or polars DataFrame.

    All records are read, or the first `limit`.
    """
    check_infer_arguments(limit, kind)
    given: Any = source_or_records
    if isinstance(given, (str, os.PathLike)) and kind is None:
        with listed_once():
            found = identify_raw_data(os.fspath(given))
            preview = None if found is None else _preview_detected(found, limit)
        if preview is not None:
            return infer_conversion(preview)
    if hasattr(given, "facts") and not isinstance(given, RecordsSource):
        return infer_conversion(prepare_preview(given, WriteOptions(limit=limit, names=names)))
    return infer_records(given, limit, names=names, kind=kind)


def _preview_detected(found: DetectedSource, limit: int | None) -> Conversion:
    return prepare_preview(build_source(found), WriteOptions(limit=limit), detected=found)


def identify_raw_data(
    path: str, *, layout: str | None = None, annotation_format: str | None = None
) -> DetectedSource | None:
    """The kind of raw data at a path; None for record files, and for files that could be nothing else."""
    try:
        found = identify_source(path, layout=layout, annotation_format=annotation_format)
    except RekordError as failure:
        if failure.code != "U621":
            return None  # opening the records reports the same
        if not raw_files.isdir(path):
            if failure.found == "a single image":
                raise
            return None
        try:
            list_record_files(path)
        except RekordError:
            raise failure from None
        return None
    return None if found.kind == "records" else found


def prepare_preview(source: Any, options: WriteOptions, **others: Any) -> Conversion:
    """The conversion that `rk.write` would run, to look at its schema and rows."""
    return prepare_conversion(source, UNWRITTEN, options, own_splits=True, **others)


def infer_conversion(conversion: Conversion) -> Schema:
    """The schema that a conversion writes, with evidence from its first rows."""
    schema = conversion.job.schema
    if not is_sampleable(conversion.job):
        return schema  # its rows can be read only once
    payloads: list[bytes] = []
    taken_bytes = bad = 0
    stored = iter_stored_rows(conversion, verify="headers")
    for row in islice(stored, EVIDENCE_ROWS):
        bad += row.problem is not None
        payloads += row.payloads
        taken_bytes += sum(map(len, row.payloads))
        if taken_bytes >= EVIDENCE_BYTES:
            break
    complete = next(stored, None) is None
    evidence = collect_evidence(payloads, "sequence" if schema.is_sequence else "example", complete)
    also = {"bad_rows": bad} if bad else {}
    guesses = [guess.to_dict() for guess in conversion.guesses]
    return schema.with_evidence({**evidence, **also, "guesses": guesses})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A row of raw data: the payloads that are stored for it, or the error if it cannot be stored."""

    path: str | None
    row: int | None  # in its file, None if the file is one row
    line: int | None
    payloads: tuple[bytes, ...] = ()
    problem: RekordError | None = None


def iter_stored_rows(conversion: Conversion, *, first: int = 0, verify: Verify | None = None) -> Iterator[StoredRow]:
    """The rows of a conversion in the order of its source, from number `first`, encoded as it would write them.

    Nothing is written; only as much is read as is taken.
    """
    job = conversion.job
    bad = SilentBadRows()
    encoding = RowEncoding(
        replace(
            job,
            function=None if job.function is None else _LoadingFunction(job.function),
            verify=verify or job.verify,
            on_bad_row="reject",
            index=(),
            shuffle=False,
        ),
        bad,
    )
    for chunk in _iter_single_rows(read_in_sequence(job.source), first):
        place = locate_row(job.source, chunk)
        if isinstance(chunk, SourceRow):
            if isinstance(chunk.values, MappedOutputs):
                chunk = chunk._replace(values=MappedOutputs(map(load_files, chunk.values)))
            elif not isinstance(chunk.values, RekordError) and job.function is None:
                chunk = chunk._replace(values=load_files(chunk.values))
        pieces = encoding.pieces([chunk])
        payloads = [payload for piece in pieces for payload in iter_payloads(piece.frames, piece.lengths)]
        problem = bad.take_first()
        yield StoredRow(path=place.path, row=place.row, line=place.line, payloads=tuple(payloads), problem=problem)


class _LoadingFunction:
    """A function of rows whose files are read, so that the frames of the rows are complete."""

    def __init__(self, function: RowFunction) -> None:
        self._function = function

    def __call__(self, row: Mapping[str, Any]) -> Any:
        made: Any = self._function(row)
        if isinstance(made, Mapping):
            return load_files(made)
        if made is None or isinstance(made, (str, bytes)) or not isinstance(made, Iterable):
            return made
        return [load_files(one) if isinstance(one, Mapping) else one for one in made]


def _iter_single_rows(chunks: Iterable[Chunk], first: int) -> Iterator[Chunk]:
    for chunk in skip_rows(chunks, first):
        if isinstance(chunk, ColumnChunk):
            yield from (chunk.slice(i, i + 1) for i in range(chunk.rows))
        else:
            yield chunk

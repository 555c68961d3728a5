"""`rk.infer`: the schema that `rk.write` would use for raw data, or the one that record files have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from rekord.arguments import check_keywords
from rekord.codec.decode import PayloadBytes
from rekord.conversion.driver import Conversion
from rekord.dataset.infer import Kind, check_infer_arguments, collect_evidence
from rekord.dataset.infer import infer as infer_records
from rekord.dataset.read import list_record_files
from rekord.errors import RekordError
from rekord.schema import Schema
from rekord.sources.base import DetectedSource, RowsLike
from rekord.sources.detect import build_source, identify_source
from rekord.sources.records import RecordsSource
from rekord.storage.router import is_remote
from rekord.verbs.forecast import is_sampleable
from rekord.verbs.options import WriteOptions
from rekord.verbs.preview import iter_stored_rows
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
        found = identify_raw_data(os.fspath(given))
        if found is not None:
            return infer_conversion(prepare_preview(build_source(found), WriteOptions(limit=limit), detected=found))
    if hasattr(given, "facts") and not isinstance(given, RecordsSource):
        return infer_conversion(prepare_preview(given, WriteOptions(limit=limit, names=names)))
    return infer_records(given, limit, names=names, kind=kind)


def identify_raw_data(path: str, *, layout: str | None = None) -> DetectedSource | None:
    """The kind of raw data at a path; None for record files, and for files that could be nothing else."""
    if is_remote(path):
        return None
    try:
        found = identify_source(path, layout=layout)
    except RekordError as failure:
        if failure.code != "U621":
            return None  # opening the records reports the same
        if not os.path.isdir(path):
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

"""`rk.infer`: a schema proposed for record files, payloads or rows."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Literal

from rekord import _core
from rekord._core import PayloadKind
from rekord.dataset.read import open_frames, record_files
from rekord.errors import RekordError, error, located
from rekord.faults import wire_error
from rekord.location import Location
from rekord.records.frame import EVIDENCE_BYTES, Stretch
from rekord.schema import Schema
from rekord.schema.infer import Evidence, KeyEvidence, schema_of
from rekord.schema.refuse import shown

OPENED_RECORDS = 10_000
OPENED_BYTES = 64 << 20
"""How much of a dataset without a schema is read before its batches begin."""

SAMPLED_RECORDS = 64
"""How many records at the front of a file say what its payloads are."""

MOST_KEYS = 100_000

Kind = Literal["example", "sequence"]

_NO_LIMIT = (1 << 63) - 1
_OTHERS = {
    PayloadKind.LIST_WITH_CONTEXT: "tensorflow.ranking's ExampleListWithContext",
    PayloadKind.EVENT: "tf.Event, a TensorBoard log",
    PayloadKind.TEXT: "plain text",
    PayloadKind.PROTO: "another protobuf message",
    PayloadKind.OTHER: "no message that is known",
}


def infer_files(
    paths: Sequence[str],
    *,
    kind: Kind | None = None,
    limit_records: int | None = OPENED_RECORDS,
    limit_bytes: int | None = OPENED_BYTES,
) -> tuple[Schema, bool]:
    """The schema of the first records of these files, and whether no record was left unread.

    Reading ends with `limit_records` records, or with the one that completes `limit_bytes` of payloads. Files
    without any record have a schema without columns. `kind` says how to read payloads; None looks at them.
    """
    gathered = _Gathered()
    complete = True
    for index, path in enumerate(paths):
        with open_frames(path) as reader:
            try:
                complete = gathered.read_file(reader.stretches(), path, kind, limit_records, limit_bytes)
            except RekordError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None
        if gathered.is_full(limit_records, limit_bytes):
            complete = complete and index == len(paths) - 1
            break
    return schema_of(gathered.evidence(complete)), complete


class _Gathered:
    """Evidence from file after file."""

    def __init__(self) -> None:
        self.payload_bytes = 0
        self._native = _core.Inference(MOST_KEYS)
        self._sequence = False
        self._starts: list[int] = []
        self._paths: list[str] = []

    @property
    def records(self) -> int:
        return self._native.records

    def is_full(self, limit_records: int | None, limit_bytes: int | None) -> bool:
        return (limit_records is not None and self.records >= limit_records) or (
            limit_bytes is not None and self.payload_bytes >= limit_bytes
        )

    def read_file(
        self,
        stretches: Iterator[Stretch],
        path: str,
        kind: Kind | None,
        limit_records: int | None,
        limit_bytes: int | None,
    ) -> bool:
        """Read a file until the limit, and say whether that was all of it."""
        self._starts.append(self.records)
        self._paths.append(path)
        sequence: bool | None = None if kind is None else kind == "sequence"
        for stretch in stretches:
            if self.is_full(limit_records, limit_bytes):
                return False
            if sequence is None:
                sequence = _is_sequence(sampled_kind(stretch), path)
            self._sequence = self._sequence or sequence
            taken, problem = self._native.feed(
                stretch.buffer,
                stretch.extents,
                sequence,
                _NO_LIMIT if limit_records is None else limit_records - self.records,
                _NO_LIMIT if limit_bytes is None else limit_bytes - self.payload_bytes,
            )
            self.payload_bytes += sum(stretch.extents.length(i) for i in range(taken))
            self._refuse_too_many_keys(Location(path=path, record=stretch.first_record + max(taken - 1, 0)))
            if problem is not None:
                with located(path=path, record=stretch.first_record + taken, offset=stretch.offset(taken)):
                    raise wire_error(problem)
            if taken < len(stretch.extents):
                return False
        return True

    def evidence(self, complete: bool) -> Evidence:
        steps = self._keys(self._native.steps()) if self._sequence else None
        return Evidence(
            records=self.records, complete=complete, context=self._keys(self._native.context()), steps=steps
        )

    def _keys(self, facts: dict[str, Any]) -> dict[str, KeyEvidence]:
        return {key: self._placed(KeyEvidence.from_facts(each)) for key, each in facts.items()}

    def _placed(self, seen: KeyEvidence) -> KeyEvidence:
        """With the record that differs counted in its own file."""
        if seen.differs is None or not self._paths:
            return seen
        file = bisect_right(self._starts, seen.differs.record) - 1
        record = seen.differs.record - self._starts[file]
        return replace(seen, differs=replace(seen.differs, record=record, path=self._paths[file]))

    def _refuse_too_many_keys(self, where: Location) -> None:
        if self._native.overflowed:
            raise error(
                "S128",
                location=where,
                expected=f"at most {MOST_KEYS:,} distinct keys, of 16 MiB in all",
                found=f"more, by the {self.records:,}th record",
                likely="the keys hold data, such as the name of a file or a word, instead of naming columns",
                do="declare a schema by hand, of the keys that name columns",
            )


def sampled_kind(stretch: Stretch) -> PayloadKind:
    """What the payloads of a file are, going by its first records."""
    kinds = _core.recognise(stretch.buffer, stretch.extents, SAMPLED_RECORDS)
    return _most_telling(kinds, [stretch.extents.length(i) for i in range(len(kinds))])


def _most_telling(kinds: Sequence[PayloadKind], lengths: Sequence[int]) -> PayloadKind:
    # An empty payload is an Example without features; beside others it says nothing.
    tally = Counter([kind for kind, length in zip(kinds, lengths, strict=True) if length] or kinds)
    if set(tally) <= {PayloadKind.EXAMPLE, PayloadKind.SEQUENCE} and PayloadKind.SEQUENCE in tally:
        return PayloadKind.SEQUENCE  # one without steps looks like an Example
    return tally.most_common(1)[0][0]


def _is_sequence(kind: PayloadKind, path: str | None) -> bool:
    if kind not in _OTHERS:
        return kind == PayloadKind.SEQUENCE
    raise error(
        "S127",
        location=Location(path=path),
        expected="tf.train.Example or tf.train.SequenceExample",
        found=_OTHERS[kind],
        do='kind="example" or kind="sequence" reads them as such, where they mislead',
    )

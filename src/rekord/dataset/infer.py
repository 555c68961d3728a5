"""The schema of record files, payloads or rows; a dataset without one infers it at first use."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from rekord import _core
from rekord._core import PayloadKind
from rekord.arguments import check_keywords, positive_int
from rekord.codec.decode import PayloadBytes
from rekord.dataset.read import list_record_files, open_frames
from rekord.errors import FormatError, RekordError, add_location, error, preview
from rekord.faults import wire_error
from rekord.framing.frames import EVIDENCE_BYTES, FrameReader, VerifiedFrames
from rekord.location import Location
from rekord.schema import Payload, RecordKind, Schema
from rekord.schema.infer import Evidence, KeyEvidence, infer_rows, schema_from_evidence
from rekord.schema.row_adapters import is_table
from rekord.schema.schema import check_kind

if TYPE_CHECKING:  # importing it would load every source
    from rekord.sources.base import RowsLike

DEFAULT_INFER_RECORDS = 10_000
"""Number of records from which a schema is inferred when a dataset is opened, unless they are large."""

DEFAULT_INFER_BYTES = 64 << 20
"""Most payload bytes from which it is inferred."""

SAMPLED_RECORDS = 64
"""Number of records at the start of a file that determine the kind of its payloads."""

MAX_KEYS = 100_000
"""More distinct keys than this are not a schema, and would fill the memory."""

Kind: TypeAlias = RecordKind
Path: TypeAlias = "str | os.PathLike[str]"

_Payload: TypeAlias = "bytes | bytearray | memoryview"

PAYLOAD_COLUMN = "payload"
"""The column of raw payloads."""

_NO_LIMIT = (1 << 63) - 1
OPAQUE_KINDS = {
    PayloadKind.LIST_WITH_CONTEXT: "ExampleListWithContext, as TensorFlow Ranking writes it",
    PayloadKind.EVENT: "tf.Event: a TensorBoard log",
    PayloadKind.TEXT: "plain text",
    PayloadKind.PROTO: "another protobuf message",
    PayloadKind.OTHER: "an unknown kind of message",
}


@check_keywords
def infer(
    source_or_records: RowsLike | Iterable[PayloadBytes],
    limit: int | None = None,
    *,
    names: Sequence[str] | None = None,
    kind: Kind | None = None,
) -> Schema:
    """The schema of record files, payloads or rows in memory: `rk.infer`, except for raw data."""
    check_infer_arguments(limit, kind)
    given: Any = source_or_records
    if hasattr(given, "only_split"):  # a dataset, which is above this module
        given = given.only_split("infer")
    if _is_path(given):
        return _infer_paths(given, limit, kind)
    if isinstance(given, Iterable) and not is_table(given):
        # The first item distinguishes paths and payloads from rows.
        items = iter(given)
        first = list(islice(items, 1))
        given = chain(first, items)
        if first and _is_path(first[0]):
            return _infer_paths(list(given), limit, kind)
        if first and isinstance(first[0], (bytes, bytearray, memoryview)):
            return _infer_payloads(given, limit, kind)
    return infer_rows(given, names=names, limit=limit)


def collect_evidence(payloads: Iterable[_Payload], kind: Kind, complete: bool) -> dict[str, Any]:
    """What some payloads show, as in `schema.evidence`."""
    gathered = _EvidenceCollector(kind, None, None)
    gathered.read_payloads(payloads)
    return dict(gathered.schema(complete).evidence)


def infer_files(
    paths: Sequence[str],
    *,
    kind: Kind | None = None,
    limit_records: int | None = DEFAULT_INFER_RECORDS,
    limit_bytes: int | None = DEFAULT_INFER_BYTES,
) -> tuple[Schema, bool]:
    """The schema of the first records of these files, and whether all records were read.

    Reading stops after `limit_records` records, or with the one that completes `limit_bytes` of payloads. Files
    without records have a schema without columns.
    """
    gathered = _EvidenceCollector(kind, limit_records, limit_bytes)
    for index, path in enumerate(paths):
        with add_location(path=path), open_frames(path) as reader:
            try:
                whole = gathered.read_file(reader)
            except FormatError as failure:
                raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None
        if gathered.is_full:
            complete = whole and index == len(paths) - 1
            return gathered.schema(complete), complete
    return gathered.schema(complete=True), True


def _infer_paths(path: Path | Iterable[Path], limit: int | None, kind: Kind | None) -> Schema:
    paths = list_record_files(path)
    schema, _ = infer_files(paths, kind=kind, limit_records=limit, limit_bytes=None)
    if not schema.evidence["records"]:
        raise error(
            "S126",
            location=Location(path=paths[0] if len(paths) == 1 else None),
            expected="at least one record",
            found="a file without records" if len(paths) == 1 else f"{len(paths):,} files without records",
            do="use a file that holds records",
        )
    return schema


def _infer_payloads(payloads: Iterable[Any], limit: int | None, kind: Kind | None) -> Schema:
    gathered = _EvidenceCollector(kind, limit, None)
    complete = gathered.read_payloads(_validate_payloads(payloads))
    return gathered.schema(complete)


def _validate_payloads(payloads: Iterable[Any]) -> Iterator[_Payload]:
    for record, payload in enumerate(payloads):
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise error(
                "S132",
                f"record {record:,} is not bytes, and the ones before it are",
                location=Location(record=record),
                expected="bytes",
                found=preview(payload),
                do="pass payloads only, or rows only",
            )
        yield payload


class _EvidenceCollector:
    """Collects evidence, file by file."""

    def __init__(self, kind: Kind | None, limit_records: int | None, limit_bytes: int | None) -> None:
        self._kind = kind
        self._limit_records = _NO_LIMIT if limit_records is None else limit_records
        self._limit_bytes = _NO_LIMIT if limit_bytes is None else limit_bytes
        self._payload_bytes = 0
        self._native = _core.Inference(MAX_KEYS)
        self._sequence = kind == "sequence"
        self._whole = _OpaquePayloadEvidence()
        self._starts: list[int] = []  # number of records before each file
        self._paths: list[str] = []

    @property
    def is_full(self) -> bool:
        """Whether enough has been read."""
        return self._records >= self._limit_records or self._payload_bytes >= self._limit_bytes

    @property
    def _records(self) -> int:
        return self._native.records + self._whole.records

    def read_file(self, reader: FrameReader) -> bool:
        """Read a file up to the limits; whether that was all of it."""
        self._starts.append(self._native.records)
        self._paths.append(reader.path)
        kind = self._kind
        stretches = reader.iter_verified_frames()
        for stretch in stretches:
            if kind is None:
                kind = self._recognised(detect_payload_kind(stretch))
            if not self._read_stretch(stretch, kind):
                return False
            if self.is_full:
                return _is_exhausted(stretches)
        return True

    def read_payloads(self, payloads: Iterable[_Payload]) -> bool:
        """Read payloads without a file up to the limits; whether those were all."""
        payloads = iter(payloads)
        sampled = list(islice(payloads, SAMPLED_RECORDS))
        kinds = [_core.recognise_payload(payload) for payload in sampled] or [PayloadKind.EXAMPLE]
        met = _pick_payload_kind(kinds, [memoryview(payload).nbytes for payload in sampled] or [0])
        kind = self._kind or self._recognised(met)
        for payload in chain(sampled, payloads):
            if self.is_full:
                return False
            self._read_payload(payload, kind)
        return True

    def schema(self, complete: bool) -> Schema:
        """The schema of what was read so far."""
        if self._kind == "bytes" or self._whole.records:
            return Schema({PAYLOAD_COLUMN: Payload()}, evidence=self._whole.evidence(complete))
        evidence = Evidence(
            records=self._native.records,
            complete=complete,
            context=self._keys(self._native.context()),
            steps=self._keys(self._native.steps()) if self._sequence else None,
        )
        return schema_from_evidence(evidence)

    def _recognised(self, met: PayloadKind) -> Kind:
        """How to read payloads, by the first ones of a file: those that are not Examples are raw bytes."""
        whole = met in OPAQUE_KINDS
        if self._records and whole != bool(self._whole.records):
            examples = "tf.train.Example or tf.train.SequenceExample"
            raise error(
                "S127",
                expected=f"{self._whole.message or examples}, as in the files before",
                found=OPAQUE_KINDS.get(met, examples),
                do='kind="bytes"      (reads all payloads as raw bytes)',
            )
        if whole:
            self._whole.message = self._whole.message or OPAQUE_KINDS[met]
            return "bytes"
        self._sequence = self._sequence or met == PayloadKind.SEQUENCE
        return "sequence" if met == PayloadKind.SEQUENCE else "example"

    def _read_payload(self, payload: _Payload, kind: Kind) -> None:
        record, size_bytes = self._native.records, memoryview(payload).nbytes
        self._payload_bytes += size_bytes
        if kind == "bytes":
            self._whole.add(size_bytes)
            return
        problem: Any = self._native.add(payload, kind == "sequence")
        with add_location(record=record):
            if problem is not None:
                raise wire_error(problem)
            self._refuse_too_many_keys()

    def _read_stretch(self, stretch: VerifiedFrames, kind: Kind) -> bool:
        """Whether all of a stretch was read."""
        extents = stretch.extents
        if kind == "bytes":
            for i in range(len(extents)):
                if self.is_full:
                    return False
                self._whole.add(extents.length(i))
                self._payload_bytes += extents.length(i)
            return True
        taken, taken_bytes, problem = self._native.feed(
            stretch.buffer,
            extents,
            kind == "sequence",
            self._limit_records - self._native.records,
            self._limit_bytes - self._payload_bytes,
        )
        last = max(taken - 1, 0)
        with add_location(record=stretch.first_record + last, offset=stretch.offset(last)):
            self._refuse_too_many_keys()
        if problem is not None:
            with add_location(record=stretch.first_record + taken, offset=stretch.offset(taken)):
                raise wire_error(problem)
        self._payload_bytes += taken_bytes
        return bool(taken == len(extents))

    def _keys(self, facts: Mapping[str, Any]) -> dict[str, KeyEvidence]:
        return {key: self._placed(KeyEvidence.from_facts(each)) for key, each in facts.items()}

    def _placed(self, seen: KeyEvidence) -> KeyEvidence:
        """With the record that differs counted in its own file."""
        if seen.differs is None or not self._paths:
            return seen
        file = bisect_right(self._starts, seen.differs.record) - 1
        record = seen.differs.record - self._starts[file]
        return replace(seen, differs=replace(seen.differs, record=record, path=self._paths[file]))

    def _refuse_too_many_keys(self) -> None:
        if self._native.overflowed:
            raise error(
                "S128",
                expected=f"at most {MAX_KEYS:,} distinct keys, of 16 MiB in total",
                found="more, up to this record",
                likely="keys hold data, such as file names or words, instead of column names",
                do="declare a schema with the keys that are columns: schema=rk.Schema({…})",
            )


@dataclass
class _OpaquePayloadEvidence:
    """What is known of raw payloads."""

    message: str | None = None  # their kind, if it was recognised
    records: int = 0
    least_bytes: int = _NO_LIMIT
    most_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.records += 1
        self.least_bytes = min(self.least_bytes, size_bytes)
        self.most_bytes = max(self.most_bytes, size_bytes)

    def evidence(self, complete: bool) -> dict[str, Any]:
        """The member `evidence` of the schema's JSON."""
        seen: dict[str, Any] = {"present": self.records, "kind": "bytes"}
        if self.records:
            seen["bytes"] = [self.least_bytes, self.most_bytes]
        if self.message is not None:
            seen["message"] = self.message
        return {"records": self.records, "complete": complete, "features": {PAYLOAD_COLUMN: seen}}


def detect_payload_kind(stretch: VerifiedFrames) -> PayloadKind:
    """The kind of the payloads of a file, by its first records."""
    kinds = _core.recognise(stretch.buffer, stretch.extents, SAMPLED_RECORDS)
    return _pick_payload_kind(kinds, [stretch.extents.length(i) for i in range(len(kinds))])


def _pick_payload_kind(kinds: Sequence[PayloadKind], lengths: Sequence[int]) -> PayloadKind:
    # An empty payload is an Example without features; among others it means nothing.
    tally = Counter([kind for kind, length in zip(kinds, lengths, strict=True) if length] or kinds)
    if set(tally) <= {PayloadKind.EXAMPLE, PayloadKind.SEQUENCE} and PayloadKind.SEQUENCE in tally:
        return PayloadKind.SEQUENCE  # one without steps looks like an Example
    return tally.most_common(1)[0][0]


def _is_exhausted(stretches: Iterator[VerifiedFrames]) -> bool:
    try:
        return next(stretches, None) is None
    except RekordError:
        return False  # damage beyond the limit is not reported here


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def check_infer_arguments(limit: object, kind: object) -> None:
    """Refuse an invalid `limit` or `kind`."""
    if limit is not None:
        positive_int("limit", limit, do="infer(source, limit=1000)")
    check_kind(kind)

"""One pass over a record file that survives damage: findings for bad bytes, columns for good ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rekord import _core
from rekord._core import PayloadKind
from rekord.dataset.infer import SAMPLED_RECORDS, detect_payload_kind
from rekord.dataset.read import FrameStorage, infer_compression, open_frames
from rekord.dataset.readers.pipeline import OrderedWork
from rekord.errors import RekordError
from rekord.faults import is_wire_fault, wire_error
from rekord.framing.frames import FrameReader, VerifiedFrames
from rekord.health.finding import Finding, Report, Severity
from rekord.health.key_columns import (
    DecodeRefusal,
    KeyedBatch,
    KeyLayout,
    KeyLayoutDecoder,
    find_mixed_steps,
    get_payload,
    infer_key_layout,
)
from rekord.storage.router import ROUTED_STORAGE

Item = TypeVar("Item")

_EXIT_SECONDS = 1.0
"""How long to wait for an abandoned thread, which may hang in a blocking read."""


class BackgroundIterator(Iterator[Item], Generic[Item]):
    """The same items in the same order, produced by another thread at most `depth` items ahead.

    An exception of the producer is raised here after all items before it. If the caller stops early or is
    interrupted, the thread ends after its current item; if that takes too long, it is abandoned.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        each = ((item,) for item in items)
        self._work: OrderedWork[tuple[Item], tuple[Item]] = OrderedWork(
            lambda: next(each, None), lambda item: item, threads=1, ahead=depth, name="rekord-ahead"
        )

    def __next__(self) -> Item:
        try:
            return next(self._work)[0]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop early."""
        self._work.close(_EXIT_SECONDS)


BATCH_ROWS = 4096
BATCH_BYTES = 8 << 20
"""A batch is emitted at this many rows or bytes, which amortises its overhead."""

_MAX_KEY_LAYOUTS = 8
_MAX_NEW_KEYS = 64
"""How often a layout is extended by new keys; beyond that, keys are data, not names."""

_MAX_KEYS = 4096
"""The most keys in a layout: each costs time in every batch."""

_IDLE_BYTES = 64 << 20

_KIND_CODES = {
    PayloadKind.LIST_WITH_CONTEXT: "H711",
    PayloadKind.EVENT: "H712",
    PayloadKind.TEXT: "H713",
    PayloadKind.PROTO: "H714",
    PayloadKind.OTHER: "H715",
}

OPAQUE_PAYLOAD_CODES = frozenset(_KIND_CODES.values())
"""The notes on files whose payloads are not inspected."""

_ODDITY_CODES: dict[int, str] = {
    _core.ODD_SPLIT_LIST: "H721",
    _core.ODD_TWO_KINDS: "H722",
    _core.ODD_ENTRY_FORM: "H723",
    _core.ODD_DUPLICATE_KEY: "H724",
    _core.ODD_UNKNOWN_INNER: "H725",
}


_PREFETCH_ITEMS = 2
"""Number of batches decoded ahead."""

_PREFETCH_SLABS = 4
"""Number of slabs that are read and verified ahead of decoding."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """The end of a file: its totals, and whether any of it was damaged."""

    path: str
    records: int
    payload_bytes: int
    damaged: bool


def scan_files(
    paths: Sequence[str], report: Report, storage: FrameStorage = ROUTED_STORAGE
) -> BackgroundIterator[Finding | KeyedBatch | FileSummary]:
    """Everything in these files, in order, and a summary of each; read and decoded by background threads."""
    return BackgroundIterator(_scan_files(paths, report, storage), _PREFETCH_ITEMS)


def _scan_files(
    paths: Sequence[str], report: Report, storage: FrameStorage
) -> Iterator[Finding | KeyedBatch | FileSummary]:
    for path in paths:
        records, payload_bytes = report.records, report.payload_bytes
        damaged = False
        for item in scan_file(path, report, read_ahead=True, storage=storage):
            damaged = damaged or (isinstance(item, Finding) and item.severity == "error")
            yield item
            del item
        yield FileSummary(path, report.records - records, report.payload_bytes - payload_bytes, damaged)


def scan_file(
    path: str,
    report: Report,
    *,
    enough: tuple[int, int] | None = None,
    read_ahead: bool = False,
    storage: FrameStorage = ROUTED_STORAGE,
) -> Iterator[Finding | KeyedBatch]:
    """Everything in one file: a KeyedBatch for each run of records, a Finding for each problem with the bytes.

    Reading continues after damage at the next intact record. `report` counts the files and records that were read.
    Payloads that are neither Examples nor SequenceExamples give a note and no batches. With `enough`, reading ends
    soon after this many records or payload bytes. With `read_ahead`, another thread reads and verifies.
    """
    report.files += 1
    try:
        with open_frames(path, storage, reuse=not read_ahead) as reader:
            # For a sample, a large file is not searched to its end.
            frames = _iter_frames(reader, None if enough is None else enough[1])
            with closing(BackgroundIterator(frames, _PREFETCH_SLABS) if read_ahead else frames) as found:
                yield from _FileScan(reader.path, reader.compression, report).items(found, enough)
    except RekordError as failure:
        report.unreadable += 1
        failure.location = failure.location.within(path=path)
        yield Finding.from_error(failure)


def _iter_frames(reader: FrameReader, within: int | None) -> Generator[VerifiedFrames | RekordError, None, None]:
    """The verified frames of a file, and an error in place of each part that is damaged."""
    resumed = True
    while resumed:
        resumed = False
        try:
            yield from reader.iter_verified_frames()
        except RekordError as failure:
            explained, resumed = reader.recover(failure, within=within)
            yield explained


class _FileScan:
    """One pass over one file."""

    def __init__(self, path: str, compression: str, report: Report) -> None:
        self._path = path
        self._compression = compression
        self._report = report
        self._kind: PayloadKind | None = None
        self._pool = _core.Pool(_IDLE_BYTES)
        self._decoders: list[KeyLayoutDecoder] = []  # the last one that accepted a record comes first
        self._widened = 0
        self._repeated: dict[tuple[str, str | None], Finding] = {}
        self._damaged = False

    def items(
        self, frames: Iterator[VerifiedFrames | RekordError], enough: tuple[int, int] | None
    ) -> Iterator[Finding | KeyedBatch]:
        before, bytes_before = self._report.records, self._report.payload_bytes
        for stretch in frames:
            if isinstance(stretch, RekordError):
                self._damaged = True
                yield Finding.from_error(stretch)
                continue
            yield from self._payloads(stretch)
            del stretch  # its memory can be read into again
            read = self._report.records - before, self._report.payload_bytes - bytes_before
            if enough is not None and (read[0] >= enough[0] or read[1] >= enough[1]):
                yield from self._emit_batches(self._decoders)
                return
        yield from self._emit_batches(self._decoders)
        yield from self._repeated.values()
        yield from self._find_file_oddities(self._report.records - before)

    def _payloads(self, stretch: VerifiedFrames) -> Iterator[Finding | KeyedBatch]:
        self._report.records += len(stretch.extents)
        self._report.payload_bytes += stretch.extents.payload_bytes()
        strangers: dict[int, PayloadKind] = {}
        if self._kind is None:
            strangers = self._recognise(stretch)
            if self._kind is not None and self._kind in _KIND_CODES:
                yield Finding.of(_KIND_CODES[self._kind], "note", path=self._path)
        if self._kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE):
            return
        at = 0
        while at < len(stretch.extents):
            taken, refusal = self._taken(stretch, at, len(stretch.extents))
            at += taken
            yield from self._emit_batches(self._full())
            if refusal is None:
                continue
            if is_wire_fault(refusal[0].fault):
                strangers.pop(at, None)  # the wire error is more specific
                yield self._refused(stretch, at, refusal[0])
            else:
                yield from self._apart(stretch, at, refusal)
            at += 1
        for index, kind in strangers.items():
            yield self._finding(
                stretch,
                index,
                "H716",
                "warning",
                expected="tf.train.Example, as in most of the file",
                found=kind.name.lower().replace("_", " "),
            )

    def _taken(self, stretch: VerifiedFrames, begin: int, end: int) -> tuple[int, DecodeRefusal]:
        """Decode what the most recent layout can."""
        if not self._decoders:
            self._decoders.append(KeyLayoutDecoder(KeyLayout({}, {} if self._sequence else None), self._pool))
        return self._feed(self._decoders[0], stretch, begin, end)

    def _feed(
        self, decoder: KeyLayoutDecoder, stretch: VerifiedFrames, begin: int, end: int
    ) -> tuple[int, DecodeRefusal]:
        taken, refusal, odd = decoder.feed(stretch, begin, end)
        for index in odd:
            self._add_oddities(stretch, index)
        return taken, refusal

    def _apart(
        self, stretch: VerifiedFrames, index: int, refusal: tuple[_core.Problem, int]
    ) -> Iterator[Finding | KeyedBatch]:
        """Decode a record that the first layout rejected."""
        first = self._decoders[0]
        for place, decoder in enumerate(self._decoders[1:], 1):
            if self._feed(decoder, stretch, index, index + 1)[0]:
                self._decoders.insert(0, self._decoders.pop(place))
                return
        own = infer_key_layout(get_payload(stretch, index), sequence=self._sequence)
        if own.keys > _MAX_KEYS:
            yield self._too_many_keys(stretch, index, own.keys)
            return
        merged = first.layout.widen(*refusal, own) or self._merged(first.layout, own)
        while merged is not None:
            # A wider layout replaces the narrower one, whose rows are emitted first.
            yield from self._emit_batches([first])
            wider = KeyLayoutDecoder(merged, self._pool)
            self._decoders[0] = wider
            taken, again = self._feed(wider, stretch, index, index + 1)
            if taken:
                return
            assert again is not None
            first, merged = wider, wider.layout.widen(*again, own) or self._merged(wider.layout, own)
        if len(self._decoders) >= _MAX_KEY_LAYOUTS:
            yield from self._emit_batches([self._decoders.pop()])
        other = KeyLayoutDecoder(own, self._pool)
        if self._feed(other, stretch, index, index + 1)[0]:
            self._decoders.insert(0, other)
        else:
            yield self._mixed(stretch, index)

    def _merged(self, first: KeyLayout, own: KeyLayout) -> KeyLayout | None:
        """The first layout with additional keys; None if the two conflict, or there are too many keys."""
        groups = [(first.context, own.context), (first.steps or {}, own.steps or {})]
        if any(a.get(key, kind) != kind for a, b in groups for key, kind in b.items()):
            return None
        if all(key in a for a, b in groups for key in b) or self._widened >= _MAX_NEW_KEYS:
            return None
        context, steps = ({**a, **b} for a, b in groups)
        if len(context) + len(steps) > _MAX_KEYS:
            return None
        self._widened += 1
        single = first.single | (own.single - first.context.keys() - (first.steps or {}).keys())
        return KeyLayout(context, steps if first.steps is not None else None, single)

    @property
    def _sequence(self) -> bool:
        return self._kind == PayloadKind.SEQUENCE

    def _full(self) -> list[KeyLayoutDecoder]:
        return [each for each in self._decoders if each.rows >= BATCH_ROWS or each.payload_bytes >= BATCH_BYTES]

    def _emit_batches(self, decoders: Sequence[KeyLayoutDecoder]) -> Iterator[KeyedBatch]:
        for decoder in decoders:
            if decoder.rows:
                yield decoder.take(self._path)

    def _recognise(self, stretch: VerifiedFrames) -> dict[int, PayloadKind]:
        """Determine the payload kind of the file; returns the records of other kinds."""
        self._kind = detect_payload_kind(stretch)
        if self._kind != PayloadKind.EXAMPLE:
            return {}
        kinds = _core.recognise(stretch.buffer, stretch.extents, SAMPLED_RECORDS)
        return {i: kind for i, kind in enumerate(kinds) if kind in _KIND_CODES and stretch.extents.length(i)}

    def _finding(self, stretch: VerifiedFrames, index: int, code: str, severity: Severity, **details: Any) -> Finding:
        record, offset = stretch.first_record + index, stretch.offset(index)
        return Finding.of(code, severity, path=self._path, record=record, offset=offset, **details)

    def _refused(self, stretch: VerifiedFrames, index: int, problem: _core.Problem) -> Finding:
        """The wire error of a payload."""
        failure = wire_error(problem)
        failure.location = failure.location.within(
            path=self._path, record=stretch.first_record + index, offset=stretch.offset(index)
        )
        return Finding.from_error(failure)

    def _too_many_keys(self, stretch: VerifiedFrames, index: int, keys: int) -> Finding:
        """A record with too many keys to decode into columns."""
        return self._finding(
            stretch,
            index,
            "H727",
            "warning",
            expected=f"at most {_MAX_KEYS:,} keys",
            found=f"{keys:,} keys",
            likely="the keys hold data, such as a file name or a word, instead of column names",
            do="store the data as values: one key for the names, one for their values",
        )

    def _mixed(self, stretch: VerifiedFrames, index: int) -> Finding:
        """A record that fits no layout, not even its own."""
        self._add_oddities(stretch, index)
        feature, kinds = find_mixed_steps(get_payload(stretch, index))
        return self._finding(
            stretch,
            index,
            "H726",
            "error",
            feature=feature,
            expected="steps of the same kind",
            found=" and ".join(kinds),
            do="write the record again with one kind for all steps",
        )

    def _add_oddities(self, stretch: VerifiedFrames, index: int) -> None:
        for _, _, oddities in _core.survey(stretch.buffer, stretch.extents, self._sequence, index, index + 1):
            for oddity, feature in oddities.items():
                self._add_oddity(oddity, feature, stretch, index)

    def _add_oddity(self, oddity: int, feature: str | None, stretch: VerifiedFrames, index: int) -> None:
        if oddity == _core.ODD_ENTRY_SWAPPED and self._sequence:
            oddity = _core.ODD_ENTRY_FORM  # only the sequence parser requires this order
        code = _ODDITY_CODES.get(oddity)
        if code is None:
            return
        if (known := self._repeated.get((code, feature))) is not None:
            known.count += 1
            return
        self._repeated[code, feature] = self._finding(stretch, index, code, "warning", feature=feature)

    def _find_file_oddities(self, records: int) -> Iterator[Finding]:
        path, compression = self._path, self._compression
        named = infer_compression(path)
        if records == 0 and not self._damaged:
            yield Finding.of("H703", "note", path=path)
        elif named is not None and compression == "none" and not self._damaged:
            yield Finding.of(
                "H701",
                "warning",
                path=path,
                expected=f"{named}, as the name indicates",
                found="no compression",
                do="read it without compression, or rename it",
            )
        elif named is None and compression != "none":
            yield Finding.of(
                "H702",
                "note",
                path=path,
                expected="no compression, as the name indicates",
                found=compression,
                do=f'tf.data.TFRecordDataset(files, compression_type="{compression.upper()}")',
            )

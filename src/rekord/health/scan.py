"""One pass over a record file that survives damage: findings where bytes are bad, columns where they are good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rekord import _core
from rekord._core import PayloadKind
from rekord.dataset.infer import SAMPLED_RECORDS, detect_payload_kind
from rekord.dataset.read import infer_compression, open_frames
from rekord.dataset.readers.pipeline import OrderedWork
from rekord.errors import RekordError
from rekord.faults import is_wire_fault, wire_error
from rekord.framing.frames import FrameReader, VerifiedFrames
from rekord.health.finding import Finding, Report, Severity
from rekord.health.key_columns import (
    KeyedBatch,
    KeyLayout,
    KeyLayoutDecoder,
    find_mixed_steps,
    infer_key_layout,
)

Item = TypeVar("Item")

_EXIT_SECONDS = 1.0
"""How long a thread is waited for that nobody wants any more: it may hang in a read that never comes back."""


class BackgroundIterator(Iterator[Item], Generic[Item]):
    """The same items in the same order, made by another thread, at most `depth` of them ahead of the caller.

    What the maker raises is raised here, after everything that it made before. When the caller stops early, or is
    interrupted, the thread ends with the item that it is at; where that takes long, it is left behind.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        each = ((item,) for item in items)
        self._work: OrderedWork[tuple[Item], tuple[Item]] = OrderedWork(
            lambda: next(each, None), _identity, threads=1, ahead=depth, name="rekord-ahead"
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


def _identity(item: tuple[Item]) -> tuple[Item]:
    return item


BATCH_ROWS = 4096
BATCH_BYTES = 8 << 20
"""A batch is given out once it has so many rows or bytes: enough to forget what each one costs."""

_MAX_KEY_LAYOUTS = 8
_MAX_NEW_KEYS = 64
"""So often a dialect is widened by keys that it lacked; beyond that keys are taken to be data, not names."""

_MAX_KEYS = 4096
"""A dialect is not widened beyond so many keys: each of them costs something in every batch."""

_IDLE_BYTES = 64 << 20

_KIND_CODES = {
    PayloadKind.LIST_WITH_CONTEXT: "H711",
    PayloadKind.EVENT: "H712",
    PayloadKind.TEXT: "H713",
    PayloadKind.PROTO: "H714",
    PayloadKind.OTHER: "H715",
}

OPAQUE_PAYLOAD_CODES = frozenset(_KIND_CODES.values())
"""The notes on files whose payloads are not looked into."""

_ODDITY_CODES: dict[int, tuple[str, Severity]] = {
    _core.ODD_SPLIT_LIST: ("H721", "warning"),
    _core.ODD_TWO_KINDS: ("H722", "warning"),
    _core.ODD_ENTRY_FORM: ("H723", "warning"),
    _core.ODD_DUPLICATE_KEY: ("H724", "warning"),
    _core.ODD_UNKNOWN_INNER: ("H725", "warning"),
}


_PREFETCH_ITEMS = 2
"""So many batches are read ahead of whoever looks at them."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """That a file has been read to its end, what it came to, and whether any of it was bad."""

    path: str
    records: int
    payload_bytes: int
    damaged: bool


def scan_files(paths: Sequence[str], report: Report) -> BackgroundIterator[Finding | KeyedBatch | FileSummary]:
    """Everything in these files, in their order, and the end of each; read by a thread of its own."""
    return BackgroundIterator(_scan_files(paths, report), _PREFETCH_ITEMS)


def _scan_files(paths: Sequence[str], report: Report) -> Iterator[Finding | KeyedBatch | FileSummary]:
    for path in paths:
        records, payload_bytes = report.records, report.payload_bytes
        damaged = False
        for item in scan_file(path, report):
            damaged = damaged or (isinstance(item, Finding) and item.severity == "error")
            yield item
            del item
        yield FileSummary(path, report.records - records, report.payload_bytes - payload_bytes, damaged)


def scan_file(path: str, report: Report, *, enough: tuple[int, int] | None = None) -> Iterator[Finding | KeyedBatch]:
    """Everything in one file: a KeyedBatch for each run of records, a Finding for whatever is wrong with the bytes.

    Reading goes on after damage wherever the next intact record can be found. Files and records that were read are
    counted in `report`. Payloads that are neither Examples nor SequenceExamples are a note and give no batches.
    With `enough`, reading ends soon after so many records or bytes of payloads.
    """
    report.files += 1
    try:
        with open_frames(path) as reader:
            yield from _FileScan(reader, report).items(enough)
    except RekordError as failure:
        report.unreadable += 1
        failure.location = failure.location.within(path=path)
        yield Finding.from_error(failure)


class _FileScan:
    """One pass over one file."""

    def __init__(self, reader: FrameReader, report: Report) -> None:
        self._reader = reader
        self._report = report
        self._kind: PayloadKind | None = None
        self._pool = _core.Pool(_IDLE_BYTES)
        self._decoders: list[KeyLayoutDecoder] = []  # the last one that took a record stands first
        self._widened = 0
        self._repeated: dict[tuple[str, str | None], Finding] = {}
        self._damaged = False

    def items(self, enough: tuple[int, int] | None) -> Iterator[Finding | KeyedBatch]:
        before, bytes_before = self._report.records, self._report.payload_bytes
        goes_on = True
        while goes_on:
            goes_on = False
            try:
                for stretch in self._reader.iter_verified_frames():
                    yield from self._payloads(stretch)
                    read = self._report.records - before, self._report.payload_bytes - bytes_before
                    if enough is not None and (read[0] >= enough[0] or read[1] >= enough[1]):
                        yield from self._emit_batches(self._decoders)
                        return
            except RekordError as failure:
                self._damaged = True
                # A sample is no reason to search a large file through to its end.
                within = None if enough is None else enough[1]
                explained, goes_on = self._reader.recover(failure, within=within)
                yield Finding.from_error(explained)
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
                yield Finding.of(_KIND_CODES[self._kind], "note", path=self._reader.path)
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
                strangers.pop(at, None)  # refused, which says more
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

    def _taken(self, stretch: VerifiedFrames, begin: int, end: int) -> tuple[int, tuple[_core.Problem, int] | None]:
        """Let the dialect that fitted last decode what it can."""
        if not self._decoders:
            self._decoders.append(KeyLayoutDecoder(KeyLayout({}, {} if self._sequence else None), self._pool))
        taken, refusal, odd = self._decoders[0].feed(stretch, begin, end)
        for index in odd:
            self._add_oddities(stretch, index)
        return taken, refusal

    def _apart(
        self, stretch: VerifiedFrames, index: int, refusal: tuple[_core.Problem, int]
    ) -> Iterator[Finding | KeyedBatch]:
        """Decode a record that the first dialect did not take."""
        first = self._decoders[0]
        for place, speaker in enumerate(self._decoders[1:], 1):
            if self._can_decode(speaker, stretch, index):
                self._decoders.insert(0, self._decoders.pop(place))
                return
        own = infer_key_layout(_get_payload(stretch, index), sequence=self._sequence)
        if own.keys > _MAX_KEYS:
            yield self._too_many_keys(stretch, index, own.keys)
            return
        merged = first.dialect.widen(*refusal, own) or self._merged(first.dialect, own)
        while merged is not None:
            # A wider dialect takes the place of the narrower one, whose rows go out first.
            yield from self._emit_batches([first])
            wider = KeyLayoutDecoder(merged, self._pool)
            self._decoders[0] = wider
            taken, again, odd = wider.feed(stretch, index, index + 1)
            for each in odd:
                self._add_oddities(stretch, each)
            if taken:
                return
            assert again is not None
            first, merged = wider, wider.dialect.widen(*again, own) or self._merged(wider.dialect, own)
        if len(self._decoders) >= _MAX_KEY_LAYOUTS:
            yield from self._emit_batches([self._decoders.pop()])
        other = KeyLayoutDecoder(own, self._pool)
        if self._can_decode(other, stretch, index):
            self._decoders.insert(0, other)
        else:
            yield self._mixed(stretch, index)

    def _can_decode(self, speaker: KeyLayoutDecoder, stretch: VerifiedFrames, index: int) -> bool:
        taken, _, odd = speaker.feed(stretch, index, index + 1)
        for each in odd:
            self._add_oddities(stretch, each)
        return bool(taken)

    def _merged(self, first: KeyLayout, own: KeyLayout) -> KeyLayout | None:
        """The first dialect with keys that it lacked; None where the two do not agree, or there are too many."""
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

    def _emit_batches(self, speakers: Sequence[KeyLayoutDecoder]) -> Iterator[KeyedBatch]:
        for speaker in speakers:
            if speaker.rows:
                yield speaker.take(self._reader.path)

    def _recognise(self, stretch: VerifiedFrames) -> dict[int, PayloadKind]:
        """Settle what the file holds; gives the records that hold something else."""
        self._kind = detect_payload_kind(stretch)
        if self._kind != PayloadKind.EXAMPLE:
            return {}
        kinds = _core.recognise(stretch.buffer, stretch.extents, SAMPLED_RECORDS)
        return {i: kind for i, kind in enumerate(kinds) if kind in _KIND_CODES and stretch.extents.length(i)}

    def _finding(self, stretch: VerifiedFrames, index: int, code: str, severity: Severity, **said: Any) -> Finding:
        record, offset = stretch.first_record + index, stretch.offset(index)
        return Finding.of(code, severity, path=self._reader.path, record=record, offset=offset, **said)

    def _refused(self, stretch: VerifiedFrames, index: int, problem: _core.Problem) -> Finding:
        """What protobuf would say of a payload."""
        failure = wire_error(problem)
        failure.location = failure.location.within(
            path=self._reader.path, record=stretch.first_record + index, offset=stretch.offset(index)
        )
        return Finding.from_error(failure)

    def _too_many_keys(self, stretch: VerifiedFrames, index: int, keys: int) -> Finding:
        """A record that would take more memory as columns than it is worth."""
        return self._finding(
            stretch,
            index,
            "H727",
            "warning",
            expected=f"at most {_MAX_KEYS:,} keys",
            found=f"{keys:,} keys",
            likely="the keys hold data, such as a file's name or a word, instead of naming columns",
            do="write such data as values: one key for the names, one for what belongs to them",
        )

    def _mixed(self, stretch: VerifiedFrames, index: int) -> Finding:
        """A record that fits no dialect, not even its own."""
        self._add_oddities(stretch, index)
        feature, kinds = find_mixed_steps(_get_payload(stretch, index))
        return self._finding(
            stretch,
            index,
            "H726",
            "error",
            feature=feature,
            expected="steps of one kind",
            found=" and ".join(kinds),
            do="write the record again with one kind for all steps",
        )

    def _add_oddities(self, stretch: VerifiedFrames, index: int) -> None:
        for _, _, oddities in _core.survey(stretch.buffer, stretch.extents, self._sequence, index, index + 1):
            for oddity, feature in oddities.items():
                self._add_oddity(oddity, feature, stretch, index)

    def _add_oddity(self, oddity: int, feature: str | None, stretch: VerifiedFrames, index: int) -> None:
        if oddity == _core.ODD_ENTRY_SWAPPED and self._sequence:
            oddity = _core.ODD_ENTRY_FORM  # only the parser of sequences insists on the order
        if oddity not in _ODDITY_CODES:
            return
        code, severity = _ODDITY_CODES[oddity]
        known = self._repeated.get((code, feature))
        if known is not None:
            known.count += 1
            return
        self._repeated[code, feature] = self._finding(stretch, index, code, severity, feature=feature)

    def _find_file_oddities(self, records: int) -> Iterator[Finding]:
        path, compression = self._reader.path, self._reader.compression
        named = infer_compression(path)
        if records == 0 and not self._damaged:
            yield Finding.of("H703", "note", path=path)
        elif named is not None and compression == "none" and not self._damaged:
            yield Finding.of(
                "H701",
                "warning",
                path=path,
                expected=f"{named}, as the name says",
                found="no compression",
                do="read it without compression, or give it another name",
            )
        elif named is None and compression != "none":
            yield Finding.of(
                "H702",
                "note",
                path=path,
                expected="no compression, as far as the name says",
                found=compression,
                do=f'TFRecordDataset(..., compression_type="{compression.upper()}")',
            )


def _get_payload(stretch: VerifiedFrames, index: int) -> bytes:
    begin = stretch.extents.offset(index) + _core.HEADER_BYTES
    return bytes(stretch.buffer[begin : begin + stretch.extents.length(index)])

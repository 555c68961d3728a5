"""Decoded records as columns by record key, their digests, and the layouts of keys in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import Fault, Problem
from rekord.framing.frames import VerifiedFrames
from rekord.schema.base import ListKind

IntArray: TypeAlias = npt.NDArray[np.int64]
ValidMask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KeyColumn:
    """The values of some rows under one key.

    `values` concatenates the values of all rows: an int64 or float32 array, or byte strings. Row i has those from
    `offsets[i]` to `offsets[i + 1]`; without offsets every row has exactly one place in `values`. `valid` is False
    for rows without the key, or with a key without a kind; None means all rows have it. The place of such a row in
    values without offsets is undefined.
    """

    kind: ListKind
    values: Any
    offsets: IntArray | None
    valid: ValidMask | None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def counts(self) -> IntArray:
        """The number of values of each row; 0 without the key."""
        if self.offsets is not None:
            counts = np.diff(self.offsets)
            return counts if self.valid is None else np.where(self.valid, counts, 0)
        if self.valid is not None:
            return self.valid.astype(np.int64)
        return np.ones(len(self.values), np.int64)

    @property
    def mask(self) -> ValidMask:
        """Which rows have the key."""
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid

    @property
    def present(self) -> int:
        """The number of rows that have the key."""
        return len(self) if self.valid is None else int(np.count_nonzero(self.valid))

    @cached_property
    def owners(self) -> IntArray:
        """The row of each value; -1 for the places of rows without the key."""
        rows = np.arange(len(self), dtype=np.int64)
        if self.offsets is not None:
            return np.repeat(rows, np.diff(self.offsets))
        return rows if self.valid is None else np.where(self.valid, rows, -1)

    def value(self, row: int) -> Any:
        """The values of a row: an array, or a list of bytes; None without the key."""
        if self.valid is not None and not self.valid[row]:
            return None
        begin, end = (row, row + 1) if self.offsets is None else map(int, self.offsets[row : row + 2])
        if isinstance(self.values, _core.StringColumn):
            return self.values.list_bytes(begin, end)
        return self.values[begin:end]


@dataclass(frozen=True, eq=False)
class StepColumn:
    """The steps of some rows under one key of the feature lists of SequenceExamples.

    `steps` has one row per step, without values if a step has no kind; row i of the batch has those from
    `offsets[i]` to `offsets[i + 1]`. `valid` is False for records without the list; None means all have it.
    """

    steps: KeyColumn
    offsets: IntArray
    valid: ValidMask | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def mask(self) -> ValidMask:
        """Which rows have the list."""
        return np.ones(len(self), np.bool_) if self.valid is None else self.valid


@dataclass(frozen=True, eq=False)
class KeyedBatch:
    """Some records of one file with consistent kinds per key. Every column has as many rows as `records`.

    Records are in file order within a batch; records of other kinds are in separate batches. The columns may be
    kept: nothing overwrites them.
    """

    path: str
    records: IntArray  # the number of each row's record in its file
    offsets: IntArray  # where its frame begins in the decompressed stream
    payload_bytes: IntArray
    context: dict[str, KeyColumn]
    steps: dict[str, StepColumn]
    sequence: bool  # SequenceExamples, whose `context` is their context; else Examples

    def __len__(self) -> int:
        return len(self.records)


KINDS: dict[int, ListKind] = {1: "bytes", 2: "float", 3: "int64"}
_KIND_NUMBERS: dict[ListKind, int] = {kind: number for number, kind in KINDS.items()}
_OPTIONAL = 1  # a key that a record lacks is a hole

DecodeRefusal: TypeAlias = "tuple[Problem, int] | None"
_MIN_WIDE_KEYS = 256


@dataclass(frozen=True)
class KeyLayout:
    """The kind of each key. `single` keys always have exactly one value."""

    context: Mapping[str, ListKind]
    steps: Mapping[str, ListKind] | None = None  # None: Examples, which have no steps
    single: frozenset[str] = field(default_factory=frozenset)

    @property
    def keys(self) -> int:
        """The number of keys, including those of steps."""
        return len(self.context) + len(self.steps or ())

    def widen(self, problem: Problem, slot: int, own: KeyLayout) -> KeyLayout | None:
        """The layout that also accepts a record with other numbers of values; None if that was not the problem.

        `own` is the layout of the record: all its keys are widened at once, since widening costs time per key.
        """
        keys = [*self.context, *(self.steps or ())]
        # A step without a kind is missing for a slot of one value, and one without values for any other.
        if problem.fault not in (Fault.WRONG_COUNT, Fault.MISSING) or keys[slot] not in self.single:
            return None
        # A name in both maps is widened in both, which is cheap and never wrong.
        several = {*own.context, *(own.steps or ())} - own.single
        return replace(self, single=self.single - several - {keys[slot]})

    def plans(self) -> list[_core.Plan]:
        """The native plans of the context and, if there are any, of the steps."""
        groups = [self.context] if self.steps is None else [self.context, self.steps]
        single = self.single
        return [
            _core.Plan([_make_slot(key, kind, key not in single) for key, kind in group.items()], True)
            for group in groups
        ]


def _make_slot(key: str, kind: ListKind, ragged: bool) -> _core.Slot:
    return _core.Slot(key, _KIND_NUMBERS[kind], 1, ragged, False, False, _OPTIONAL, None, empty_is_missing=False)


def infer_key_layout(payload: bytes, *, sequence: bool) -> KeyLayout:
    """The layout of one valid payload."""
    if not sequence:
        example = _raise_if_error(_core.decode_example(payload))
        return KeyLayout(
            _infer_kinds(example), single=_find_single_keys({key: [each] for key, each in example.items()})
        )
    context, lists = _raise_if_error(_core.decode_sequence(payload))
    steps: dict[str, ListKind] = {}
    for key, values in lists.items():
        kinds = [_infer_kind(value) for value in values if value is not None]
        if key:
            steps[key] = kinds[0] if kinds else "bytes"
    # A name in both maps is single only if it is in both.
    both = {key: [context[key], *lists.get(key, ())] for key in context}
    single = _find_single_keys({**lists, **both})
    return KeyLayout(_infer_kinds(context), steps, single)


def find_mixed_steps(payload: bytes) -> tuple[str | None, list[ListKind]]:
    """The first feature list whose steps have several kinds, and these kinds."""
    _, lists = _raise_if_error(_core.decode_sequence(payload))
    for key, values in lists.items():
        kinds = dict.fromkeys(_infer_kind(value) for value in values if value is not None)
        if len(kinds) > 1:
            return key, list(kinds)
    return None, []


def _infer_kinds(example: Mapping[str, Any]) -> dict[str, ListKind]:
    # A key without a kind is missing under any kind.
    return {key: "bytes" if value is None else _infer_kind(value) for key, value in example.items() if key}


def _find_single_keys(features: Mapping[str, Sequence[Any]]) -> frozenset[str]:
    return frozenset(
        key
        for key, values in features.items()
        if values and all(value is not None and len(value) == 1 for value in values)
    )


def _infer_kind(value: Any) -> ListKind:
    if isinstance(value, list):
        return "bytes"
    return "int64" if value.dtype == np.int64 else "float"


def _raise_if_error(result: Any) -> Any:
    assert not isinstance(result, Problem), "the core rejected a payload it accepted before"
    return result


class KeyLayoutDecoder:
    """A layout with its decoded rows that have not been emitted yet."""

    def __init__(self, layout: KeyLayout, pool: _core.Pool) -> None:
        self.layout = layout
        self._context = list(layout.context.items())
        self._steps = list((layout.steps or {}).items())
        plans = layout.plans()
        self._batch = (
            _core.ExampleBatch(plans[0], pool)
            if layout.steps is None
            else _core.SequenceBatch(plans[0], plans[1], pool)
        )
        self._places: list[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self.payload_bytes = 0

    @property
    def rows(self) -> int:
        """The number of rows not emitted yet."""
        return self._batch.rows

    def feed(self, stretch: VerifiedFrames, begin: int, end: int) -> tuple[int, DecodeRefusal, list[int]]:
        """Decode payloads from `begin` until one is rejected.

        Returns the number decoded, why the next one was rejected, and the indices of decoded payloads whose encoding
        TensorFlow may read differently.
        """
        before = self._batch.rows
        taken, refusal = self._batch.feed_payloads(stretch.slab, stretch.extents, begin, end)
        if taken:
            begins, lengths = stretch.extents.arrays(begin, begin + taken)
            self._places.append((stretch.first_record + begin, stretch.base, begins, lengths))
            self.payload_bytes += int(lengths.sum())
        odd = [begin + row - before for row in self._batch.maybe_odd if row >= before]
        return taken, refusal, odd

    def take(self, path: str) -> KeyedBatch:
        """The decoded rows as columns."""
        taken: Any = self._batch.take()
        context, lists = (taken, []) if self.layout.steps is None else taken
        places, self._places, self.payload_bytes = self._places, [], 0
        # With very many keys, those without a value in any row are dropped: if each record has its own keys, the
        # layout accumulates all of them, and visiting them for every record would take quadratic time. With few keys
        # all are kept: a key without a kind looks like a missing one.
        is_wide = len(self._context) + len(self._steps) > _MIN_WIDE_KEYS
        context_columns = {
            key: KeyColumn(kind, *column)
            for (key, kind), column in zip(self._context, context, strict=True)
            if not is_wide or column[2] is None or column[2].any()
        }
        return KeyedBatch(
            path=path,
            records=_concat_arrays([np.arange(first, first + len(begins)) for first, _, begins, _ in places]),
            offsets=_concat_arrays([base + begins for _, base, begins, _ in places]),
            payload_bytes=_concat_arrays([lengths for *_, lengths in places]),
            context=context_columns,
            steps={
                key: StepColumn(KeyColumn(kind, *column), offsets, valid)
                for (key, kind), (column, offsets, valid) in zip(self._steps, lists, strict=True)
                if not is_wide or valid is None or valid.any()
            },
            sequence=self.layout.steps is not None,
        )


def _concat_arrays(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.int64)


def get_payload(frames: VerifiedFrames, index: int) -> bytes:
    """The payload of one of some frames."""
    begin = frames.extents.offset(index) + _core.HEADER_BYTES
    return bytes(frames.buffer[begin : begin + frames.extents.length(index)])


DigestArray: TypeAlias = npt.NDArray[np.uint64]
"""Two numbers per row: the low half, then the high half."""

DigestGroup: TypeAlias = Literal["context", "steps", "payload", "key"]


def mix_column(key: str, column: KeyColumn, into: DigestArray) -> None:
    """Mix what each row has under a key into its digest."""
    _core.digest_column(
        compute_key_seed("context", column.kind, key), column.values, column.offsets, column.valid, into
    )


def mix_steps(key: str, column: StepColumn, into: DigestArray) -> None:
    """Mix the steps that each row has under a key into its digest."""
    steps = column.steps
    number = compute_key_seed("steps", steps.kind, key)
    each = np.zeros((len(steps), 2), np.uint64)
    _core.digest_column(number, steps.values, steps.offsets, steps.valid, each)
    _core.digest_column(number, each.reshape(-1), column.offsets * 2, column.valid, into)


@lru_cache(maxsize=4096)
def compute_key_seed(group: DigestGroup, kind: str, key: str) -> int:
    """A stable number for a key and its kind: the same in every run."""
    text = f"{group}\0{kind}\0{key}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

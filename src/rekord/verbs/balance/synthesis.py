"""Records that balancing adds: augmented copies, and SMOTE between records of a class."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Array, Optional
from rekord.codec.decode import decode
from rekord.codec.encode import new_row_encoder
from rekord.codec.encode_columns import written_columns
from rekord.codec.plan import compile_plan
from rekord.conversion.copy_records import BufferRing, RecordCopier, RecordRange
from rekord.conversion.derive import FramedRecords
from rekord.dataset.samplers import EpochOrder
from rekord.errors import RekordError, UsageError, closest_match, error, preview
from rekord.location import Location
from rekord.report.formatting import format_byte_size
from rekord.schema import Feature, Schema
from rekord.transforms.augment import Augmentation, seeded_random
from rekord.transforms.base import Row
from rekord.verbs.balance.sampling import LabelledRecords, SampledRecords
from rekord.verbs.columns import is_numeric, is_tensor

_MAX_MEMORY_BYTES = 4 << 30
"""Of the vectors of a split. SMOTE needs as much again, or twice as much."""

_READ_ROWS = 4096
_NUMBER_BYTES = 8
_MAX_EXACT_INTEGER = 2.0**53


@dataclass(frozen=True, kw_only=True)
class VectorColumns:
    """The columns that form the feature vector of a record, concatenated."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    categorical: tuple[bool, ...]

    @property
    def widths(self) -> list[int]:
        """The number of values in each column."""
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    @property
    def size(self) -> int:
        """The number of values in a vector."""
        return sum(self.widths)


def import_imblearn() -> Any:
    """imbalanced-learn, or an error that names the extra to install."""
    try:
        import imblearn.over_sampling as package
    except ImportError as failure:
        raise error(
            "U602",
            "SMOTE needs imbalanced-learn, which is not installed",
            expected="the packages imbalanced-learn and scikit-learn",
            found=str(failure)[:60],
            do="pip install 'rekord[balance]'",
        ) from failure
    return package


def get_package_versions() -> dict[str, str]:
    """The package versions that the synthetic values depend on."""
    import imblearn
    import sklearn

    return {"imbalanced-learn": imblearn.__version__, "scikit-learn": sklearn.__version__}


def select_vector_columns(schema: Schema, by: str, columns: Sequence[str] | None) -> VectorColumns:
    """The columns of the vectors: the given ones, or all that hold numbers."""
    names = _select_columns(schema, by, columns)
    others = [name for name in schema.features if name not in names and name != by]
    required = [name for name in others if not _is_optional(schema, name)]
    if required:
        described = ", ".join([f"`{name}`: {_describe_column(schema, name)}" for name in required])
        raise error(
            "U667",
            f"SMOTE cannot make values for {_join_names(required)}",
            location=Location(feature=required[0]),
            expected="numbers of a fixed shape in all required columns",
            found=described[:60],
            do='method="oversample"',
        )
    features = [schema.context[name] for name in names]
    categorical = tuple([_is_category(feature) for feature in features])
    if not names or all(categorical):
        raise error(
            "U667",
            "SMOTE needs a column of numbers",
            location=Location(feature=by),
            expected="a column of numbers besides the class, such as rk.Float32(shape=(128,))",
            found=f"only categories: {_join_names(names)}"[:60] if names else "no other column",
            do='method="oversample"',
        )
    shapes = tuple([tuple([int(side) for side in feature.shape]) for feature in features])  # type: ignore[arg-type]
    return VectorColumns(names=tuple(names), shapes=shapes, categorical=categorical)


def check_neighbour_counts(sample: SampledRecords, neighbours: int) -> None:
    """Refuse classes with too few neighbours."""
    records = sample.labelled
    for value, count in records.counts.items():
        if sample.after[value] > count and count <= neighbours:
            raise error(
                "U667",
                f"class {records.name_of(value)[:60]} has too few records for SMOTE",
                location=Location(feature=records.by),
                expected=f"more than k_neighbors={neighbours}",
                found=f"{count:,}",
                do=f"k_neighbors={count - 1}" if count > 1 else 'method="oversample"',
            )


def check_memory(sample: SampledRecords, vectors: VectorColumns) -> None:
    """Refuse vectors that do not fit into memory."""
    rows = len(sample.labelled.codes) + len(sample.added)
    size_bytes = rows * vectors.size * _NUMBER_BYTES
    if size_bytes > _MAX_MEMORY_BYTES:
        raise error(
            "U667",
            "feature vectors need more memory than SMOTE may use",
            expected=f"at most {format_byte_size(_MAX_MEMORY_BYTES)} of vectors",
            found=f"{format_byte_size(size_bytes)}: {rows:,} records of {vectors.size:,} numbers",
            do='method="oversample"',
        )


def synthesize_rows(sample: SampledRecords, vectors: VectorColumns, *, neighbours: int, seed: int) -> dict[str, Any]:
    """The columns of all added rows, ordered by class."""
    records = sample.labelled
    rows, dtypes = _read_vectors(sample, vectors)
    labels = records.codes[records.codes >= 0]
    wanted = {records.code(value): count for value, count in sample.after.items() if count > records.counts[value]}
    over_sampling = import_imblearn()
    options = {"sampling_strategy": wanted, "random_state": seed % 2**32, "k_neighbors": neighbours}
    if any(vectors.categorical):
        flags = np.repeat(vectors.categorical, vectors.widths)
        sampler = over_sampling.SMOTENC(categorical_features=np.flatnonzero(flags).tolist(), **options)
    else:
        sampler = over_sampling.SMOTE(**options)
    try:
        with np.errstate(all="ignore"):  # the result is checked below
            made, classes = sampler.fit_resample(rows, labels)
    except ValueError as failure:
        raise _smote_error(records.by, str(failure).split("\n", 1)[0][:60]) from failure
    made, classes = made[len(rows) :], classes[len(rows) :]
    if not np.isfinite(made).all():
        raise _smote_error(records.by, "numbers too far apart: interpolated values are not finite")
    made = made[np.argsort(classes, kind="stable")]
    added = [value for value in records.counts for _ in range(sample.after[value] - records.counts[value])]
    columns: dict[str, Any] = {records.by: added}
    at = 0
    for name, shape, width, dtype in zip(vectors.names, vectors.shapes, vectors.widths, dtypes, strict=True):
        values = made[:, at : at + width].reshape(-1, *shape)
        columns[name] = (np.rint(values) if dtype.kind in "iub" else values).astype(dtype)
        at += width
    return columns


def _smote_error(by: str, found: str) -> RekordError:
    return error(
        "U667",
        "SMOTE cannot be applied to these vectors",
        location=Location(feature=by),
        expected="distinct vectors whose differences fit into float64",
        found=found,
        do='method="oversample"',
    )


def _read_vectors(sample: SampledRecords, vectors: VectorColumns) -> tuple[Array, list[Any]]:
    """The vectors of all records with a class, and the dtype of each column."""
    records = sample.labelled
    split = records.split
    rows: Array = np.empty((len(records.codes), vectors.size), np.float64)
    dtypes: dict[str, Any] = {}
    done = 0
    for batch in split.batches(_READ_ROWS, columns=list(vectors.names)):
        count = 0
        at = 0
        for name, width in zip(vectors.names, vectors.widths, strict=True):
            column: Any = batch[name]
            values, valid = (column.values, column.valid) if isinstance(column, Optional) else (column, None)
            count = len(values)
            flat = np.asarray(values).reshape(count, width)
            dtypes[name] = flat.dtype
            part = rows[done : done + count, at : at + width]
            part[:] = flat
            _check_values(records, name, part, valid, flat.dtype, done)
            at += width
        done += count
    return rows[records.codes >= 0], [dtypes.get(name, np.dtype(np.float32)) for name in vectors.names]


def _check_values(records: LabelledRecords, name: str, part: Array, valid: Any, dtype: Any, done: int) -> None:
    sound = np.isfinite(part)
    if dtype.kind in "iu" and dtype.itemsize == _NUMBER_BYTES:
        sound &= np.abs(part) <= _MAX_EXACT_INTEGER
    if valid is not None:
        sound &= np.asarray(valid)[:, None]
    bad = np.flatnonzero(~sound.all(axis=1) & (records.codes[done : done + len(part)] >= 0))
    if not len(bad):
        return
    row = int(bad[0])
    missing = valid is not None and not valid[row]
    where = records.split.view.shards.where(int(records.numbers[done + row]))
    raise error(
        "E395",
        f"`{name}` has a value that a feature vector cannot hold",
        location=Location(feature=name).within(**where.to_dict()),
        expected="finite numbers in each record, integers within ±2^53",
        found="no value" if missing else f"{part[row][~sound[row]][0]:g}",
        do=f"rekord rewrite IN OUT --fill {name}=0" if missing else 'method="oversample"',
    )


def _select_columns(schema: Schema, by: str, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        usable = [name for name, feature in schema.context.items() if _is_vector(feature)]
        return [name for name in usable if name != by and not schema.context[name].optional]
    names = list(dict.fromkeys(columns))
    for name in names:
        feature = schema.context.get(name)
        if feature is None or name == by or not _is_vector(feature):
            near = closest_match(name, list(schema.context)) if feature is None else None
            found = "the class itself" if name == by else _describe_column(schema, name)
            raise error(
                "U667",
                f"{preview(name)} cannot be part of a feature vector",
                location=Location(feature=str(name)[:60]),
                expected="a column of numbers with a fixed shape",
                found=found,
                do=f"did you mean `{near}`?" if near else "leave it out of columns=",
            )
    return names


def _is_vector(feature: Feature) -> bool:
    if None in feature.shape or not is_numeric(feature):
        return False
    return not is_tensor(feature) or np.dtype(feature.dtype).kind in "biuf"


def _is_category(feature: Feature) -> bool:
    return feature.class_count is not None or np.dtype(feature.dtype).kind == "b"


def _is_optional(schema: Schema, name: str) -> bool:
    feature = schema.features[name]
    return name in schema.context and (feature.optional or feature.has_default)


def _describe_column(schema: Schema, name: str) -> str:
    feature = schema.get(name)
    if feature is None:
        return "no such column"
    return f"{type(feature).__name__}" + (f" of shape {feature.shape}" if feature.shape else "")


def _join_names(names: Sequence[str]) -> str:
    return ", ".join([f"`{name}`" for name in names])[:60]


_FOOTER_BYTES = 4

RowMaker: TypeAlias = "Callable[[int, Callable[[], Row]], Row]"
"""Makes the added row of this number, given a function that decodes its original record."""


@dataclass(frozen=True, eq=False)
class AddedRowFrames:
    """Frames of records in an order: the first `kept` are copied, the others made by a function."""

    order: EpochOrder
    kept: int
    make: RowMaker
    touches: frozenset[str]  # the columns that differ from the original record

    def __call__(self, stretch: RecordRange, schema: Schema, index: tuple[str, ...]) -> Iterator[FramedRecords]:
        """The frames of a stretch, with their lengths and index rows."""
        encoder = new_row_encoder(schema)  # one per shard: another thread writes another shard
        plan = compile_plan(schema, index) if self.touches.intersection(index) else None
        if plan is not None:
            encoder.keep(plan.context.reading)
        position = stretch.begin
        with RecordCopier(stretch.records, schema, index, BufferRing()) as copying:
            for frames, lengths, lines in copying.windows(stretch):
                positions = np.arange(position, position + len(lengths), dtype=np.int64)
                position += len(lengths)
                numbers = self.order.records(0, positions)
                new = np.flatnonzero(numbers >= self.kept)
                if not len(new):
                    yield frames, lengths, lines
                    continue
                made = [
                    self._made(int(numbers[at]), payload, stretch, positions[at], schema, encoder)
                    for at, payload in _iter_payloads(frames, lengths, new)
                ]
                if plan is not None:
                    columns = written_columns(plan, encoder.take_kept(), len(made))
                    lines = _replace_index_rows(lines, new, columns)
                yield *_replace_frames(frames, lengths, new, made), lines

    def _made(
        self, number: int, payload: bytes, stretch: RecordRange, position: Any, schema: Schema, encoder: Any
    ) -> bytes:
        try:
            encoder.append(self.make(number - self.kept, lambda: decode(payload, schema)))
            return bytes(encoder.take())
        except RekordError as failure:
            if isinstance(failure, UsageError) or failure.location.record is not None:
                raise  # not about a record, or it already has a location
            source = stretch.records.sampler.records(0, np.array([position], np.int64))
            where = stretch.records.shards.where(int(source[0]))
            failure.location = Location(feature=failure.location.feature).within(**where.to_dict())
            raise


def _iter_payloads(frames: Any, lengths: Any, chosen: Any) -> Iterator[tuple[int, bytes]]:
    ends = np.cumsum(lengths)
    for at in chosen.tolist():
        begin, end = int(ends[at] - lengths[at]), int(ends[at])
        yield at, bytes(frames[begin + _core.HEADER_BYTES : end - _FOOTER_BYTES])


def _replace_frames(frames: Any, lengths: Any, new: Any, made: Sequence[bytes]) -> tuple[bytes, Any]:
    """The frames, some of them replaced."""
    ends = np.cumsum(lengths)
    sizes = np.array(lengths, np.int64)
    parts: list[Any] = []
    done = 0
    for at, frame in zip(new.tolist(), made, strict=True):
        parts += [frames[done : int(ends[at] - lengths[at])], frame]
        done, sizes[at] = int(ends[at]), len(frame)
    return b"".join([*parts, frames[done:]]), sizes


def _replace_index_rows(lines: pa.Table, new: Any, columns: Mapping[str, Any]) -> pa.Table:
    """The index rows, some of them replaced."""
    replaced = pa.table({f"index:{name}": column for name, column in columns.items()})
    places = np.arange(lines.num_rows)
    places[new] = lines.num_rows + np.arange(len(new))
    return pa.concat_tables([lines, replaced], promote_options="permissive").take(pa.array(places))


@dataclass(frozen=True, eq=False)
class AugmentedRowMaker:
    """Augments the original record: each copy differently, but the same in every run."""

    augmentation: Augmentation
    seed: int
    split: str
    sources: Any  # the original record of each added row
    copies: Any  # the number of the copy

    def __call__(self, number: int, record: Callable[[], Row]) -> Row:
        """The row."""
        roll = seeded_random(self.seed, self.split, int(self.sources[number]), int(self.copies[number]))
        return self.augmentation(record(), roll)


@dataclass(frozen=True, eq=False)
class SyntheticRowMaker:
    """Rows of a function that makes all added rows at once, on first use."""

    synthesise: Callable[[], Mapping[str, Any]]  # columns of all added rows
    _lock: Any = field(default_factory=threading.Lock, init=False)
    _columns: dict[str, Any] = field(default_factory=dict, init=False)

    def __call__(self, number: int, record: Callable[[], Row]) -> Row:
        """The row."""
        with self._lock:
            if not self._columns:
                self._columns.update(self.synthesise())
        return {name: values[number] for name, values in self._columns.items()}

"""The records of a balanced split: how many each class gets, which are kept or copied, and which are synthesised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Array, Optional
from rekord.codec.decode import decode
from rekord.codec.encode import new_row_encoder
from rekord.codec.encode_columns import written_columns
from rekord.codec.plan import compile_plan
from rekord.conversion.derive import FramedRecords
from rekord.conversion.record_copier import BufferRing, RecordCopier, RecordRange
from rekord.dataset.balanced import ClassIndex
from rekord.dataset.origins import SYNTHETIC, RowOrigins
from rekord.dataset.samplers import EpochOrder, Ids, expand_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, UsageError, closest_match, error, preview
from rekord.location import Location
from rekord.report.formatting import format_byte_size
from rekord.schema import Feature, Label, Schema
from rekord.transforms.augment import Augmentation, seeded_random
from rekord.transforms.base import Row, is_numeric, is_tensor

CountsByClass: TypeAlias = "dict[Any, int]"
"""Records by class."""


_MAX_RECORDS = 1 << 30
"""Of a balanced split. Their numbers are in memory, which a typo must not fill."""

STRATEGY_NAMES = ("auto", "minority", "majority", "not minority", "not majority", "all")


@dataclass(frozen=True, kw_only=True)
class ClassSummary:
    """The classes of records, in order, and their names."""

    split: str
    by: str
    counts: Mapping[Any, int]
    class_of: Callable[[Any], Any]  # by value or name; an unknown name is returned unchanged
    name_of: Callable[[Any], str]


def compute_targets(
    strategy: object, classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    """The target number of records of each class; `values` returns the class of each record, for a function.

    With `grow`, classes only gain records; without, they only lose some.
    """
    if len(classes.counts) < 2:
        raise _strategy_error(
            classes,
            f"it has {'one class' if classes.counts else 'no class'}",
            "records of at least two classes",
            ", ".join([classes.name_of(one) for one in classes.counts])[:60] or "none",
            "balance another column (by=) or split (splits=)",
        )
    if isinstance(strategy, str):
        targets = _compute_named_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Mapping):
        targets = _compute_class_targets(strategy, classes, grow=grow)
    elif isinstance(strategy, Real) and not isinstance(strategy, bool):
        targets = _compute_ratio_targets(float(strategy), classes, grow=grow)
    elif callable(strategy):
        targets = _call_target_function(strategy, classes, values, grow=grow)
    else:
        raise _unknown_strategy_error(classes, strategy)
    after = {one: targets.get(one, count) for one, count in classes.counts.items()}
    if grow and sum(after.values()) > max(_MAX_RECORDS, sum(classes.counts.values())):
        most = max(after, key=after.__getitem__)
        raise _strategy_error(
            classes,
            "the result would have too many records",
            f"at most {_MAX_RECORDS:,} records in total",
            f"{sum(after.values()):,}, including {after[most]:,} of class {classes.name_of(most)[:60]}",
            'sampling_strategy="auto"',
        )
    return after


def _compute_named_targets(word: str, classes: ClassSummary, *, grow: bool) -> CountsByClass:
    if word not in STRATEGY_NAMES:
        raise _unknown_strategy_error(classes, word)
    if word == ("majority" if grow else "minority"):
        raise _strategy_error(
            classes,
            f'"{word}" does not apply to this method',
            "classes that can gain records" if grow else "classes that can lose records",
            f"only the {'largest' if grow else 'smallest'} class",
            'sampling_strategy="auto"',
        )
    counts = classes.counts
    # Of several equally large classes, the first counts, as in imbalanced-learn.
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if word == "auto":
        word = "not majority" if grow else "not minority"
    chosen = {
        "minority": [smallest],
        "majority": [largest],
        "not minority": [one for one in counts if one != smallest],
        "not majority": [one for one in counts if one != largest],
        "all": list(counts),
    }[word]
    return dict.fromkeys(chosen, counts[largest] if grow else counts[smallest])


def _compute_ratio_targets(ratio: float, classes: ClassSummary, *, grow: bool) -> CountsByClass:
    counts = classes.counts
    if not isfinite(ratio) or not 0 < ratio <= 1:
        raise _strategy_error(
            classes,
            f"{ratio:g} is not a valid ratio",
            "smaller class / larger class: above 0, at most 1",
            f"{ratio:g}",
            "sampling_strategy=0.5",
        )
    if len(counts) != 2:
        example = ", ".join(f"{_format_class_key(classes, one)}: …" for one in list(counts)[:3])
        raise _strategy_error(
            classes,
            f"a ratio needs two classes, and there are {len(counts):,}",
            "a number of records per class",
            f"{ratio:g}",
            f"sampling_strategy={{{example}}}",
        )
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    one = next(name for name in counts if name != (largest if grow else smallest))
    if grow:
        more = int(counts[largest] * ratio - counts[one])
        wanted = counts[one] + more
        possible = more > 0
    else:
        share = counts[smallest] / ratio  # infinite for a ratio next to 0
        possible = share < counts[one] + 1
        wanted = int(share) if possible else 0
    if not possible:
        raise _strategy_error(
            classes,
            f"class {classes.name_of(one)} would {'gain' if grow else 'lose'} no records at a ratio of {ratio:g}",
            f"a ratio above the current {counts[smallest] / counts[largest]:.3g}",
            f"{ratio:g}",
            "sampling_strategy=1.0",
        )
    return {one: wanted}


def _compute_class_targets(requested: Mapping[Any, Any], classes: ClassSummary, *, grow: bool) -> CountsByClass:
    made: CountsByClass = {}
    for name, number in requested.items():
        one = classes.class_of(name)
        try:
            count = classes.counts.get(one)
        except TypeError:  # an unhashable value is not a class
            count = None
        if count is None:
            near = closest_match(str(name), [classes.name_of(known) for known in classes.counts])
            raise _strategy_error(
                classes,
                f"class {preview(name)} has no records",
                f"one of {len(classes.counts):,} classes: {', '.join(map(classes.name_of, classes.counts))}"[:60],
                preview(name),
                f"did you mean {near!r}?" if near else 'sampling_strategy="auto"',
            )
        is_integer = hasattr(number, "__index__") and not isinstance(number, bool)
        wanted = number.__index__() if is_integer else -1
        if wanted < 0 or one in made:
            raise _strategy_error(
                classes,
                f"class {preview(name)} {'is a duplicate' if wanted >= 0 else 'has no valid number of records'}",
                "an integer ≥ 0 for each class",
                preview(number),
                f"sampling_strategy={{{_format_class_key(classes, one)}: {count}}}",
            )
        if wanted < count if grow else wanted > count:
            raise _strategy_error(
                classes,
                f"class {classes.name_of(one)} cannot {'lose' if grow else 'gain'} records by this method",
                f"{'at least' if grow else 'at most'} the current {count:,} records",
                f"{wanted:,}",
                'method="undersample"' if grow else 'method="oversample"',
            )
        made[one] = int(wanted)
    return made


def _call_target_function(
    function: Callable[[Any], Any], classes: ClassSummary, values: Callable[[], Any], *, grow: bool
) -> CountsByClass:
    try:
        targets = function(values())
    except Exception as failure:
        raise _strategy_error(
            classes,
            "the function `sampling_strategy` failed",
            "a function of the classes of all records",
            f"{type(failure).__name__}: {failure}"[:60],
            "fix the function",
        ) from failure
    if not isinstance(targets, Mapping):
        raise _strategy_error(
            classes,
            "the function `sampling_strategy` did not return a dict",
            "{class: number of records}",
            preview(targets),
            "return a dict from the function",
        )
    return _compute_class_targets(targets, classes, grow=grow)


def _format_class_key(classes: ClassSummary, one: Any) -> str:
    """A class as the key of a dict in source code."""
    name = classes.name_of(one)
    return repr(one) if name == repr(one) else repr(name)


def _unknown_strategy_error(classes: ClassSummary, strategy: object) -> RekordError:
    near = closest_match(strategy, STRATEGY_NAMES) if isinstance(strategy, str) else None
    return _strategy_error(
        classes,
        f"{preview(strategy)} is not a valid strategy",
        "one of " + ", ".join(STRATEGY_NAMES) + ", a ratio, or {class: records}",
        preview(strategy),
        f'sampling_strategy="{near or "auto"}"',
    )


def _strategy_error(classes: ClassSummary, what: str, expected: str, found: str, do: str) -> RekordError:
    return error(
        "U667",
        f"`{classes.by}` of {classes.split} cannot be balanced: {what}",
        location=Location(feature=classes.by),
        expected=expected,
        found=found,
        do=do,
    )


@dataclass(frozen=True, eq=False)
class LabelledRecords:
    """The records of a split and their classes. Code -1 means that a record has no class."""

    split: Split
    by: str
    feature: Feature
    values: tuple[Any, ...]  # of the classes, in their order
    codes: npt.NDArray[np.int32]

    @cached_property
    def numbers(self) -> Ids:
        """The records, by number in the shards."""
        return expand_selection(self.split.view.all_ids)

    @cached_property
    def counts(self) -> CountsByClass:
        """Records by class, for classes with records."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).tolist()
        return {value: count for value, count in zip(self.values, found, strict=True) if count}

    @property
    def without(self) -> int:
        """The number of records without a class."""
        return int((self.codes < 0).sum())

    @property
    def classes(self) -> ClassSummary:
        """The classes as input of a strategy."""
        return ClassSummary(
            split=self.split.name,
            by=self.by,
            counts=self.counts,
            class_of=self._class_of,
            name_of=self.name_of,
        )

    def values_of_records(self) -> Any:
        """The class of each record that has one."""
        # Strings and bytes as objects: NumPy's own types lose trailing zeros.
        integers = all(isinstance(value, int) for value in self.values)
        return np.array(self.values, None if integers else object)[self.codes[self.codes >= 0]]

    def named(self, counts: Mapping[Any, int]) -> dict[str, int]:
        """Counts by class name."""
        return {self.name_of(one): count for one, count in counts.items()}

    def name_of(self, value: Any) -> str:
        """The name of a class."""
        names = self.feature.class_names
        if names is not None:
            return str(names[value])
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    def places(self, value: Any) -> Ids:
        """The positions of the records of a class, in order."""
        order, sorted_codes = self._by_code
        begin, end = np.searchsorted(sorted_codes, [self.code(value), self.code(value) + 1])
        return order[begin:end]

    def code(self, value: Any) -> int:
        """The position of a class in the order of classes."""
        return self._code_of[value]

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def _value_of(self) -> dict[str, Any]:
        return {self.name_of(value): value for value in self.values}

    @cached_property
    def _by_code(self) -> tuple[Ids, Any]:
        order = np.argsort(self.codes, kind="stable").astype(np.int64)
        return order, self.codes[order]

    def _class_of(self, given: Any) -> Any:
        if isinstance(given, np.generic):
            given = given.item()
        if not isinstance(given, str):
            return given
        # The command line has only strings: class names, or ids.
        if given in self._value_of:
            return self._value_of[given]
        numeric = self.feature.value_kind == "int"
        is_number = given.removeprefix("-").isdecimal() and len(given) < 20
        return int(given) if numeric and is_number else given


@dataclass(frozen=True, eq=False)
class SampledRecords:
    """The records of a balanced split: the kept ones in order, followed by the added ones."""

    labelled: LabelledRecords
    after: CountsByClass
    kept: Ids
    added: Ids  # the originals of the added records
    copies: npt.NDArray[np.int32]  # the number of each copy of its original, from 1

    @cached_property
    def ids(self) -> Ids:
        """All records."""
        return np.concatenate([self.kept, self.added])

    @property
    def removed(self) -> int:
        """The number of dropped records."""
        return len(self.labelled.codes) - len(self.kept)


def read_record_labels(split: Split, by: str) -> LabelledRecords:
    """The classes of the records of a split, from the index or from the records."""
    by_class = ClassIndex(split.view.shards, split.stored_schema, by, split.view.ids)
    if by_class.is_multi_label:
        raise error(
            "U667",
            f"`{by}` holds several classes per record, which copies would change together",
            location=Location(feature=by),
            expected="a column with one class per record",
            found=f"a list of shape {by_class.feature.shape}",
            do=f'sample when reading instead: split.balanced(by="{by}")',
        )
    coded = by_class.load()  # records without a class are allowed here
    if isinstance(by_class.feature, Label):
        _check_declared(by_class, by_class.feature, coded.classes, coded.codes)
    return LabelledRecords(split, by, by_class.feature, coded.classes, coded.codes)


def _check_declared(by_class: ClassIndex, feature: Label, values: tuple[Any, ...], codes: Any) -> None:
    strange = [code for code, value in enumerate(values) if not 0 <= value < feature.count]
    bad = np.isin(codes, strange)
    if not bad.any():
        return
    first = int(np.argmax(bad))
    where = by_class.shards.where(first if by_class.ids is None else int(by_class.ids[first]))
    raise error(
        "X552",
        f"{int(bad.sum()):,} of {len(codes):,} records have an undeclared class in `{by_class.by}`",
        location=Location(path=where.path, record=where.record, offset=where.offset, feature=by_class.by),
        expected=f"a class from 0 to {feature.count - 1}",
        found=f"{values[int(codes[first])]!r}"[:60],
        do=f'rekord rewrite IN OUT --where "{by_class.by} >= 0 and {by_class.by} < {feature.count}"',
    )


def undersample(records: LabelledRecords, after: CountsByClass, seed: int) -> SampledRecords:
    """Keep the target number of each class, chosen by a keyed permutation, and all records without a class."""
    stays = np.ones(len(records.codes), np.bool_)
    for value, count in records.counts.items():
        if after[value] == count:
            continue
        places, code = records.places(value), records.code(value)
        stays[places] = False
        stays[places[_permute(np.arange(after[value]), count, [seed, code, 0])]] = True
    none = np.zeros(0, np.int64)
    return SampledRecords(records, after, records.numbers[stays], none, none.astype(np.int32))


def oversample(records: LabelledRecords, after: CountsByClass, seed: int) -> SampledRecords:
    """All records, and copies: within a class, the number of copies per record differs by at most one."""
    added: list[Any] = [np.zeros(0, np.int64)]
    copies: list[Any] = [np.zeros(0, np.int64)]
    for value, count in records.counts.items():
        wanted = after[value] - count
        if not wanted:
            continue
        members, code = records.numbers[records.places(value)], records.code(value)
        rounds, rest = divmod(wanted, count)
        chosen = np.sort(_permute(np.arange(rest), count, [seed, code, 0]))
        added += [np.tile(members, rounds), members[chosen]]
        copies += [np.repeat(np.arange(1, rounds + 1), count), np.full(rest, rounds + 1)]
    return SampledRecords(
        records, after, records.numbers, np.concatenate(added), np.concatenate(copies).astype(np.int32)
    )


def _permute(places: Ids, size: int, words: list[int]) -> Ids:
    made: Ids = _core.permute(places.astype(np.int64), size, _core.order_key(words))  # type: ignore[assignment]
    return made


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

    def adjust_origins(self, position: int, rows: RowOrigins) -> RowOrigins:
        """The origins of the records from this position on; `rows` has those of the original records."""
        numbers = self.order.records(0, np.arange(position, position + len(rows), dtype=np.int64))
        new = np.flatnonzero(numbers >= self.kept)
        copies = getattr(self.make, "copies", None)
        if copies is None:
            rows.path[new] = SYNTHETIC
            rows.position[new] = rows.line[new] = rows.copy[new] = 0
        else:
            rows.copy[new] += 1 + np.asarray(copies)[numbers[new] - self.kept].astype(np.int64)
        return rows

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

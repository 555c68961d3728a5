"""What goes wrong when TensorFlow puts parsed lists together: sparse tensors, and ragged partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rekord.health.tf_stages import reshape_error
from rekord.health.tf_wire import Stored
from rekord.schema.spec import Partition, RaggedSpec, SparseSpec, Spec

_SHOWN_ELEMENTS = 3
_DIVISION = "Integer division by zero"


def partition_keys(spec: Spec) -> set[str]:
    """The keys whose numbers matter, and not only how many there are."""
    ragged = [feature for feature in spec.values() if isinstance(feature, RaggedSpec)]
    return {part.key for feature in ragged for part in feature.partitions if part.key is not None}


def composition_error(spec: Spec, met: Mapping[str, Stored]) -> str | None:
    """The error for lists that were all parsed, and do not belong together."""
    for name in sorted(spec):
        feature = spec[name]
        wrong = None
        if isinstance(feature, SparseSpec):
            wrong = _sparse_error(feature, met)
        elif isinstance(feature, RaggedSpec):
            wrong = _ragged_error(name, feature, met)
        if wrong is not None:
            return wrong
    return None


def _sparse_error(feature: SparseSpec, met: Mapping[str, Stored]) -> str | None:
    counts = [_count(met, key) for key in feature.index_keys]
    for position, count in enumerate(counts):
        if count != counts[0]:
            return (
                "ConcatOp : Dimension 0 in both shapes must be equal: "
                f"shape[0] = [{counts[0]},1] vs. shape[{position + 1}] = [{count},1]"
            )
    values = _count(met, feature.value_key)
    # Where an index points is never looked at: one that is too large passes.
    return None if counts[0] == values else f"Dimensions {counts[0]} and {values} are not compatible"


def _count(met: Mapping[str, Stored], key: str) -> int:
    return met[key].count if key in met else 0


def _ragged_error(name: str, feature: RaggedSpec, met: Mapping[str, Stored]) -> str | None:
    rows = _count(met, feature.value_key or name)
    inner = 1  # elements in a row, as long as every partition so far is uniform
    for partition in reversed(feature.partitions):
        if partition.length is not None:
            wrong = _uniform_error(rows, inner, partition.length, validate=feature.validate)
            if wrong is not None:
                return wrong
            rows //= partition.length
            inner = inner * partition.length if inner else 0
            continue
        stored = met.get(partition.key or "")
        numbers = [_wrapped(number, feature.row_splits_dtype) for number in stored.numbers] if stored else []
        wrong = _partition_error(partition, numbers, rows, feature)
        if wrong is not None:
            return wrong
        inner = 0  # ragged from here on
        rows = _rows(partition, numbers)
    return None


def _uniform_error(rows: int, inner: int, length: int, *, validate: bool) -> str | None:
    if inner:
        shape = (None, length) if inner == 1 else (None, length, inner)
        wrong = reshape_error(rows * inner, shape)
        return wrong or (_DIVISION if length == 0 else None)
    if length == 0:
        return _DIVISION
    if validate and rows % length:
        return f"uniform_row_length={length} times nrows={rows // length} must equal nvals={rows}"
    return None


def _wrapped(number: int, dtype: str) -> int:
    bits = 64 if dtype == "int64" else 32
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _rows(partition: Partition, numbers: Sequence[int]) -> int:
    if partition.kind == "RowSplits":
        return max(0, len(numbers) - 1)
    if partition.kind == "ValueRowIds":
        return max([0, *[number + 1 for number in numbers]])
    return len(numbers)


def _partition_error(
    partition: Partition, numbers: Sequence[int], rows: int, feature: RaggedSpec
) -> str | None:
    if partition.kind == "ValueRowIds":
        return _row_ids_error(numbers, rows, feature)
    if not feature.validate:
        return None
    dtype = feature.row_splits_dtype
    if partition.kind == "RowLengths":
        where = "Arguments to from_row_lengths do not form a valid RowPartition"
        return _negative(where, numbers, dtype) or _last_error(sum(numbers), rows)
    if partition.kind == "RowStarts":
        where = "Arguments to from_row_starts do not form a valid RaggedTensor"
        if numbers and numbers[0] != 0:
            return _unequal(where, "==", numbers[0], 0)
        wrong = _negative(where, _steps(numbers), dtype)
        if wrong is None and numbers and numbers[-1] > rows:
            wrong = _unequal(where, "<=", numbers[-1], rows)
        return wrong
    limits = numbers[1:] if partition.kind == "RowSplits" else numbers
    where = "Arguments to from_row_limits do not form a valid RaggedTensor"
    wrong = _negative(where, limits[:1], dtype) or _negative(where, _steps(limits), dtype)
    return wrong or _last_error(limits[-1] if limits else 0, rows)


def _row_ids_error(numbers: Sequence[int], rows: int, feature: RaggedSpec) -> str | None:
    if feature.validate:
        where = "Arguments to from_value_rowids do not form a valid RowPartition"
        dtype = feature.row_splits_dtype
        wrong = _negative(where, numbers[:1], dtype) or _negative(where, _steps(numbers), dtype)
        if wrong is not None:
            return wrong
    elif any(number < 0 for number in numbers):
        return "Input arr must be non-negative!"
    return None if len(numbers) == rows else f"Shapes ({rows},) and ({len(numbers)},) are incompatible"


def _steps(numbers: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(numbers)]


def _negative(where: str, numbers: Sequence[int], dtype: str) -> str | None:
    if all(number >= 0 for number in numbers):
        return None
    shown = [str(number) for number in numbers[:_SHOWN_ELEMENTS]]
    if len(numbers) > _SHOWN_ELEMENTS:
        shown.append("...")
    return (
        f"{where}.  \nCondition x >= 0 did not hold element-wise:\n"
        f"x (shape=({len(numbers)},) dtype={dtype}) = \n{shown}"
    )


def _last_error(last: int, rows: int) -> str | None:
    where = "Arguments to _from_row_partition do not form a valid RaggedTensor"
    return None if last == rows else _unequal(where, "==", last, rows)


def _unequal(where: str, relation: str, left: int, right: int) -> str:
    return (
        f"{where}\nCondition x {relation} y did not hold.\n"
        f"First 1 elements of x:\n[{left}]\nFirst 1 elements of y:\n[{right}]"
    )

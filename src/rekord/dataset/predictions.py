"""Predictions for the records of a dataset: an Arrow file with one row per record.

    split       string, record  int64      the record: its split, and its number there
    truth       what the record has        a class | a list of classes | a number
    prediction  what the model predicts    the same
    confidence  float64                    how sure the model is, from 0 to 1; null for numbers
    error       float64                    how wrong the prediction is; 0 if it is right

`truth` and `prediction` are strings for one class per record, lists of strings for several classes and for masks
(the classes that occur), and float64 for numbers. The metadata has the classes in order, and digests of the files
that were predicted. `confidence` and `error` may be missing, as in a file from another tool.

A file is hostile: it is read, never mapped, its types are checked before its rows, and compressed buffers, of which a
few bytes could become gigabytes, are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rekord.dataset.dataset import Dataset
from rekord.dataset.index import IndexMismatch, check_uncompressed
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import PathLike, read_file
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import Output, StagedFile, publish

if TYPE_CHECKING:
    import pyarrow as pa

PREDICTIONS_NAME = "predictions.arrow"

ValueKind: TypeAlias = Literal["class", "classes", "number"]
Ids: TypeAlias = "npt.NDArray[np.int64]"

MAX_FILE_BYTES = 512 << 20
_MAX_BATCHES = 1 << 20
_ROWS = 8192
_MAGIC = b"ARROW1\0\0"


class PredictionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was predicted: the metadata of a file."""

    format: Literal[1] = 1
    task: str = ""  # as in the report of a run: "classification", "segmentation", …
    target: str = ""
    classes: tuple[str, ...] = ()  # in the order of their ids
    digests: dict[str, str] = {}  # of the files of each split


@dataclass(frozen=True)
class Predictions:
    """The rows of a file of predictions, in its order."""

    path: str
    kind: ValueKind
    facts: PredictionFacts
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The splits with predictions."""
        return tuple(sorted(set(self.table["split"].unique().to_pylist())))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes by id, then those that are not listed but occur."""
        if self.kind == "number":
            return ()
        found: set[str] = set()
        for name in ("truth", "prediction"):
            column = self.table[name]
            values = column if self.kind == "class" else column.combine_chunks().flatten()
            found.update(values.unique().to_pylist())
        known = tuple(dict.fromkeys(self.facts.classes))
        return (*known, *sorted(found.difference(known)))

    def is_about(self, dataset: Dataset) -> bool | None:
        """Whether the predicted records are those of this dataset, as it is now; None if the file does not say."""
        if not self.facts.digests:
            return None
        known = {name: split.digest() for name, split in dataset.splits.items() if name in self.splits}
        return all(self.facts.digests.get(name) == known.get(name) for name in self.splits)

    def confusion(self, split: str | None = None) -> npt.NDArray[np.int64] | None:
        """The number of records by true (rows) and predicted class; None unless records have one class."""
        if self.kind != "class":
            return None
        count = len(self.classes)
        rows = self._rows_of(split)
        cells = self._codes["truth"][rows] * count + self._codes["prediction"][rows]
        return np.bincount(cells, minlength=count * count).reshape(count, count)

    def cell(self, truth: str, prediction: str, split: str | None = None) -> pa.Table:
        """The rows of one cell of the confusion matrix, the most confident ones first."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind != "class" or truth not in self.classes or prediction not in self.classes:
            return self.table.slice(0, 0)
        where = self._rows_of(split)
        where &= self._codes["truth"] == self.classes.index(truth)
        where &= self._codes["prediction"] == self.classes.index(prediction)
        found = self.table.filter(pa.array(where))
        order = pc.sort_indices(found, [("confidence", "descending")]) if "confidence" in found.schema.names else None
        return found if order is None else found.take(order)

    @cached_property
    def _codes(self) -> dict[str, Ids]:
        import pyarrow as pa
        import pyarrow.compute as pc

        classes = pa.array(self.classes, pa.string())
        return {
            name: pc.index_in(self.table[name], classes).to_numpy().astype(np.int64)
            for name in ("truth", "prediction")
        }

    def _rows_of(self, split: str | None) -> npt.NDArray[np.bool_]:
        import pyarrow.compute as pc

        if split is None:
            return np.ones(len(self), np.bool_)
        return np.array(pc.equal(self.table["split"], split).to_numpy(), np.bool_)


def read_predictions(path: PathLike) -> Predictions:
    """Read `predictions.arrow`, or the one in the folder of a run."""
    place = os.fspath(path)
    if os.path.isdir(place):
        place = os.path.join(place, PREDICTIONS_NAME)
    data = read_file(place, ROUTED_STORAGE, most_bytes=MAX_FILE_BYTES)
    import pyarrow as pa

    try:
        return _decode(place, data)
    except RekordError:  # some of them are a ValueError too
        raise
    except IndexMismatch as failure:
        raise _predictions_error(place, "plain record batches", str(failure)) from failure
    except (pa.ArrowException, msgspec.MsgspecError, ValueError, OSError, RecursionError) as failure:
        raise _predictions_error(place, "an Arrow file", f"{type(failure).__name__}: {failure}") from failure


def _decode(path: str, data: bytes) -> Predictions:
    import pyarrow as pa

    if not data.startswith(_MAGIC) or not data.endswith(_MAGIC[:6]):
        found = "an empty file" if not data else data[:8].hex(" ") if data[:6] != _MAGIC[:6] else "a truncated file"
        raise _predictions_error(path, "an Arrow file", found)
    # As a stream: the footer, which repeats where everything is, could contradict it.
    reader = pa.BufferReader(pa.py_buffer(data)[len(_MAGIC) :])
    schema = pa.ipc.read_schema(pa.ipc.read_message(reader))
    kind = _check_schema(path, schema)
    recorded = (schema.metadata or {}).get(b"rekord")
    facts = PredictionFacts() if recorded is None else msgspec.json.decode(recorded, type=PredictionFacts)
    batches = []
    while (message := _next_message(reader)) is not None:
        check_uncompressed(message.metadata.to_pybytes())
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
        if len(batches) > _MAX_BATCHES:
            raise _predictions_error(path, f"at most {_MAX_BATCHES:,} record batches", "more")
    table = pa.Table.from_batches(batches, schema).replace_schema_metadata(None)
    _check_values(path, table, kind)
    return Predictions(path, kind, facts, table)


def _next_message(reader: Any) -> Any:
    """The next message; None at the end of them."""
    import pyarrow as pa

    try:
        return pa.ipc.read_message(reader)
    except EOFError:
        return None


def _check_schema(path: str, schema: pa.Schema) -> ValueKind:
    """The kind of values; only the types that predictions have are decoded."""
    import pyarrow as pa

    expected = {
        "split": [pa.string()],
        "record": [pa.int64()],
        "truth": list(_types()),
        "prediction": list(_types()),
        "confidence": [pa.float64()],
        "error": [pa.float64()],
    }
    for name in ("split", "record", "truth", "prediction"):
        if schema.names.count(name) != 1:
            raise _predictions_error(path, f"a column `{name}`", ", ".join(schema.names[:8]) or "no columns")
    for field in schema:
        if field.type not in expected.get(field.name, ()) or schema.names.count(field.name) > 1:
            allowed = ", ".join(map(str, expected[field.name])) if field.name in expected else "other columns"
            expectation = f"`{field.name[:20]}` as {allowed}" if field.name in expected else ", ".join(expected)
            raise _predictions_error(path, expectation, f"`{field.name[:20]}`: {field.type}")
    if schema.field("truth").type != schema.field("prediction").type:
        raise _predictions_error(path, "`truth` and `prediction` of one type", str(schema.field("truth").type))
    return _types()[schema.field("truth").type]


def _types() -> dict[pa.DataType, ValueKind]:
    import pyarrow as pa

    return {pa.string(): "class", pa.list_(pa.string()): "classes", pa.float64(): "number"}


def _check_values(path: str, table: pa.Table, kind: ValueKind) -> None:
    import pyarrow.compute as pc

    for name in ("split", "record", "truth", "prediction"):
        column = table[name]
        nulls = column.null_count
        if kind == "classes" and name in ("truth", "prediction"):
            nulls += column.combine_chunks().flatten().null_count
        if nulls:
            raise _predictions_error(path, f"a value of `{name}` in each row", f"{nulls:,} nulls")
    lowest = pc.min(table["record"]).as_py()
    if lowest is not None and lowest < 0:
        raise _predictions_error(path, "record numbers ≥ 0", f"{lowest:,}")


def _predictions_error(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X574",
        location=Location(path=path),
        expected=expected,
        found=" ".join(found.split())[:60],
        do="rekord train DATA OUT --fresh",
    )


class PredictionWriter:
    """Writes a file of predictions, which appears when the `with` block succeeds."""

    def __init__(self, path: PathLike, kind: ValueKind, facts: PredictionFacts) -> None:
        import pyarrow as pa

        value = next(one for one, known in _types().items() if known == kind)
        names = ("split", "record", "truth", "prediction", "confidence", "error")
        types = (pa.string(), pa.int64(), value, value, pa.float64(), pa.float64())
        metadata = {"rekord": msgspec.json.encode(facts)}
        self.schema = pa.schema(list(zip(names, types, strict=True)), metadata=metadata)
        self._staged: StagedFile = publish(path)
        self._output = Output(self._staged)
        self._writer = pa.ipc.new_file(self._output, self.schema)
        self._rows: dict[str, list[Any]] = {name: [] for name in names}

    def add(
        self,
        split: str,
        first: int,
        truth: Sequence[Any],
        prediction: Sequence[Any],
        confidence: Sequence[float | None],
        error: Sequence[float],
    ) -> None:
        """Add the records from `first` on of a split."""
        rows = self._rows
        rows["split"] += [split] * len(truth)
        rows["record"] += range(first, first + len(truth))
        for name, values in (
            ("truth", truth),
            ("prediction", prediction),
            ("confidence", confidence),
            ("error", error),
        ):
            rows[name] += values
        if len(rows["record"]) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.RecordBatch.from_pydict(self._rows, self.schema))
        self._rows = {name: [] for name in self._rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is not None:
            self._staged.abort()
            return
        try:
            if self._rows["record"]:
                self._flush()
            self._writer.close()
            self._output.put()
        except BaseException:
            self._staged.abort()
            raise
        self._staged.commit()


def to_valid_text(names: Sequence[str]) -> list[str]:
    """Names as Arrow can hold them: bytes that are not UTF-8 are escaped."""
    return [name.encode("utf-8", "backslashreplace").decode() for name in names]


def read_digests(splits: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the files of some splits, by name."""
    return {to_valid_text([name])[0]: split.digest() for name, split in splits.items()}

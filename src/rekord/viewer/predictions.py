"""What a model predicted: the file that `rekord train` writes, as a confusion matrix whose cells are records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.viewer.columns import list_columns
from rekord.viewer.session import Session

FILE_NAME = "predictions.arrow"
MAX_BYTES = 512 << 20
MAX_CLASSES = 200

_COLUMNS = ("split", "record", "truth", "prediction", "confidence")


@dataclass(frozen=True)
class CellRecords:
    """The records of one cell, the most confident first."""

    splits: npt.NDArray[Any]
    records: Ids
    confidence: npt.NDArray[np.float64]

    def numbers(self, split: str) -> Ids:
        """Their numbers in a split, in order."""
        return np.sort(self.records[self.splits == split])

    def to_dict(self, first: int, count: int) -> dict[str, Any]:
        """Some of them."""
        shown = range(first, min(first + count, len(self.records)))
        return {
            "total": len(self.records),
            "records": [
                {
                    "split": str(self.splits[i]),
                    "record": int(self.records[i]),
                    "confidence": float(self.confidence[i]) if np.isfinite(self.confidence[i]) else None,
                }
                for i in shown
            ],
        }


class Predictions:
    """The predictions of one file."""

    def __init__(self, path: str, session: Session) -> None:
        self.path = path
        table = _read_table(path)
        self._splits = np.array(table.column("split").to_pylist(), object)
        self._records = _numbers(path, table, "record")
        self._names = self._find_names(session)
        self._truth = self._ids(path, table, "truth")
        self._predicted = self._ids(path, table, "prediction")
        self._confidence = np.asarray(table.column("confidence").to_numpy(), np.float64)
        known = np.concatenate([self._truth, self._predicted])
        self._classes = min(max(int(known.max(initial=-1)) + 1, min(len(self._names), MAX_CLASSES)), MAX_CLASSES)

    def to_dict(self) -> dict[str, Any]:
        """The confusion matrix: rows are true classes, columns predicted ones."""
        n = self._classes
        inside = (self._truth < n) & (self._predicted < n) & (self._truth >= 0) & (self._predicted >= 0)
        pairs = self._truth[inside] * n + self._predicted[inside]
        matrix = np.bincount(pairs, minlength=n * n).reshape(n, n)
        return {
            "path": self.path,
            "classes": [self._names[i] if i < len(self._names) else str(i) for i in range(n)],
            "splits": sorted({str(one) for one in self._splits}),
            "matrix": matrix.tolist(),
            "records": len(self._records),
            "other": int(np.count_nonzero(~inside)),
            "accuracy": float(np.mean(self._truth == self._predicted)) if len(self._records) else None,
        }

    def cell(self, truth: int, predicted: int) -> CellRecords:
        """The records with a true class and a predicted one."""
        chosen = np.flatnonzero((self._truth == truth) & (self._predicted == predicted))
        chosen = chosen[np.argsort(-self._confidence[chosen], kind="stable")]
        return CellRecords(self._splits[chosen], self._records[chosen], self._confidence[chosen])

    def _find_names(self, session: Session) -> list[str]:
        for column in list_columns(session.sides[0].schema):
            if column.view == "class" and column.feature.class_names is not None:
                return list(column.feature.class_names)
        return []

    def _ids(self, path: str, table: Any, name: str) -> npt.NDArray[np.int64]:
        """Class ids; names are looked up, or numbered by their first occurrence."""
        import pyarrow as pa

        column = table.column(name)
        if pa.types.is_integer(column.type):
            return _numbers(path, table, name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise _file_error(path, "class ids or names", f"`{name}` of type {column.type}")
        places = {text: place for place, text in enumerate(self._names)}
        found = []
        for text in column.to_pylist():
            if text not in places:
                places[text] = len(self._names)
                self._names.append(str(text))
            found.append(places[text])
        return np.array(found, np.int64)


def find_predictions(session: Session) -> str | None:
    """The file of predictions: the given one, or the one next to the dataset."""
    if session.predictions_path is not None:
        given = session.predictions_path
        return os.path.join(given, FILE_NAME) if os.path.isdir(given) else given
    side = session.sides[0]
    if side.remote:
        return None
    folder = side.path.rstrip("/\\")
    for place in (os.path.join(folder, FILE_NAME), os.path.join(f"{folder}-model", FILE_NAME)):
        if os.path.isfile(place):
            return place
    return None


def _read_table(path: str) -> Any:
    import pyarrow as pa

    try:
        size_bytes = os.path.getsize(path)
        if size_bytes > MAX_BYTES:
            raise _file_error(path, f"at most {MAX_BYTES:,} bytes", f"{size_bytes:,} bytes")
        with pa.OSFile(path) as file:
            table = pa.ipc.open_file(file).read_all()
    except OSError as failure:
        raise _file_error(path, "an Arrow file", failure.strerror or str(failure)[:60]) from failure
    except (pa.ArrowException, ValueError) as failure:
        raise _file_error(path, "an Arrow file", str(failure)[:60]) from None
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise _file_error(path, "the columns " + ", ".join(_COLUMNS), f"no {missing[0]}")
    try:
        table.validate(full=True)
        return table.combine_chunks()
    except pa.ArrowException as failure:
        raise _file_error(path, "an Arrow file", str(failure)[:60]) from None


def _numbers(path: str, table: Any, name: str) -> npt.NDArray[np.int64]:
    import pyarrow as pa

    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise _file_error(path, f"integers in `{name}`", f"{column.type}, {column.null_count:,} missing")
    return np.asarray(column.to_numpy(), np.int64)


def _file_error(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X566",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="rekord train PATH      (writes predictions.arrow next to the model)",
    )

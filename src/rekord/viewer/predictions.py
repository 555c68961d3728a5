"""What a model predicted, as a confusion matrix whose cells open their records."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rekord.dataset.predictions import PREDICTIONS_NAME, read_predictions
from rekord.dataset.samplers import Ids
from rekord.errors import error
from rekord.viewer.session import Session

MAX_CLASSES = 200


class ShownPredictions:
    """The predictions of one file, for the dataset of a session."""

    def __init__(self, path: str, session: Session) -> None:
        self._found = read_predictions(path)
        dataset = session.sides[0].dataset
        self._is_stale = dataset is not None and self._found.is_about(dataset) is False
        self._splits = session.sides[0].splits
        self.classes = self._found.classes[:MAX_CLASSES]

    def to_dict(self) -> dict[str, Any]:
        """The confusion matrix: rows are true classes, columns predicted ones."""
        matrix = self._found.confusion()
        shown = None if matrix is None else matrix[:MAX_CLASSES, :MAX_CLASSES]
        return {
            "path": self._found.path,
            "kind": self._found.kind,
            "classes": list(self.classes),
            "splits": list(self._found.splits),
            "matrix": [] if shown is None else shown.tolist(),
            "records": len(self._found),
            "other": 0 if matrix is None or shown is None else int(matrix.sum() - shown.sum()),
            "accuracy": float(np.trace(matrix) / matrix.sum()) if matrix is not None and matrix.sum() else None,
            "note": "predictions of another version of this dataset" if self._is_stale else None,
        }

    def cell(self, truth: int, predicted: int) -> Any:
        """The rows of one cell, the most confident first; none if their records are not those that are open."""
        if max(truth, predicted) >= len(self.classes):
            raise error("U606", "there is no such cell", expected=f"classes below {len(self.classes):,}")
        found = self._found.cell(self.classes[truth], self.classes[predicted])
        return found.slice(0, 0) if self._is_stale else found

    def numbers(self, truth: int, predicted: int, split: str) -> Ids:
        """The numbers of the records of a cell in a split, in order."""
        table = self.cell(truth, predicted)
        of_split = np.array([name == split for name in table["split"].to_pylist()], np.bool_)
        return np.unique(np.asarray(table["record"].to_numpy(), np.int64)[of_split])

    def describe_cell(self, truth: int, predicted: int, first: int, count: int) -> dict[str, Any]:
        """Some records of a cell."""
        table = self.cell(truth, predicted)
        rows = table.slice(first, count).to_pylist()
        return {
            "total": table.num_rows,
            "records": [
                {"split": row["split"], "record": row["record"], "confidence": row.get("confidence")} for row in rows
            ],
        }


def find_predictions(session: Session) -> str | None:
    """The file of predictions: the given one, or the one next to the dataset."""
    if session.predictions_path is not None:
        return session.predictions_path
    side = session.sides[0]
    if side.remote:
        return None
    folder = side.path.rstrip("/\\")
    places = (os.path.join(folder, PREDICTIONS_NAME), os.path.join(f"{folder}-model", PREDICTIONS_NAME))
    return next((place for place in places if os.path.isfile(place)), None)

"""A checkpoint: all numbers of a model and its optimizer, and where the run was, in one record file.

The first record is the run's state as JSON, each other one a variable. So a checkpoint appears complete or not at
all, and every byte of it is covered by a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rekord.codec.decode import decode
from rekord.dataset.read import records
from rekord.dataset.shard_index import compression_of
from rekord.dataset.writer import Writer
from rekord.errors import DataError, FormatError, RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Schema, Text
from rekord.storage.anywhere import ANYWHERE
from rekord.training.learner import numpy_of

Array: TypeAlias = "npt.NDArray[Any]"

_SCHEMA = Schema({"name": Text(), "dtype": Text(), "shape": Int64(shape=(None,)), "data": Bytes()})
_STATE = "state"


def save(path: str, state: dict[str, Any], variables: Sequence[Any]) -> None:
    """Write the state and the variables of Keras, in place of the checkpoint before."""
    with Writer(path, _SCHEMA) as writer:
        told = msgspec.json.encode(state)
        writer.write({"name": _STATE, "dtype": "json", "shape": [len(told)], "data": told})
        for variable in variables:
            array = numpy_of(variable)
            writer.write(
                {
                    "name": variable.path,
                    "dtype": array.dtype.name,
                    "shape": list(array.shape),
                    "data": array.tobytes(),
                }
            )


def read_state(path: str) -> dict[str, Any]:
    """The state alone."""
    row = next(_rows(path), None)
    if row is None or row["name"] != _STATE:
        raise _damaged(path, "a state at its front", "none")
    try:
        state = msgspec.json.decode(row["data"])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _damaged(path, "a state as JSON", str(failure)[:60]) from None
    if not isinstance(state, dict):
        raise _damaged(path, "a state as a JSON object", type(state).__name__)
    return state


def restore(path: str, variables: Sequence[Any]) -> None:
    """Put the saved values into these variables, which must be the same ones."""
    rows = _rows(path)
    next(rows, None)
    values = []
    for variable in variables:
        row = next(rows, None)
        wanted = f"`{variable.path}` of shape {tuple(variable.shape)}"
        if row is None:
            raise _damaged(path, wanted, "the end of the file")
        shape = tuple(int(size) for size in row["shape"])
        fits = shape == tuple(variable.shape) and len(row["data"]) == _size_bytes(row["dtype"], shape)
        if not fits:
            raise _damaged(path, wanted, f"`{row['name']}` of shape {shape}"[:60])
        values.append(np.frombuffer(row["data"], row["dtype"]).reshape(shape))
    if next(rows, None) is not None:
        raise _damaged(path, f"{len(values)} variables", "more")
    # Only now: a checkpoint that does not fit leaves the model as it was.
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    if dtype not in ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64", "uint8", "bool"):
        return -1
    size = np.dtype(dtype).itemsize
    for dim in shape:
        size *= dim
    return size


def _rows(path: str) -> Iterator[dict[str, Any]]:
    if ANYWHERE.stat(path).kind != "file":  # a pipe would be waited for without end
        raise _damaged(path, "a checkpoint of `rekord train`", "no file")
    try:
        # None is ever written compressed: a few bytes could become more than there is memory.
        if compression_of(path) != "none":
            raise _damaged(path, "a checkpoint of `rekord train`", "a compressed file")
        for payload in records(path):
            yield decode(payload, _SCHEMA)
    except (FormatError, DataError) as failure:
        raise _damaged(
            path, "a checkpoint of `rekord train`", f"{failure.code}: {failure.what}"[:60]
        ) from failure


def _damaged(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X575",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="rekord train PATH OUT --fresh      (starts over)",
    )

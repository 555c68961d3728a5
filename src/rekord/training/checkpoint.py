"""The folder of a training run and its checkpoint: model, optimizer and position in one record file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rekord.codec.decode import decode
from rekord.dataset.read import records
from rekord.dataset.shard_index import detect_file_compression
from rekord.dataset.writer import Writer
from rekord.errors import DataError, FormatError, RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Schema, Text
from rekord.storage.local import LOCAL
from rekord.storage.router import ROUTED_STORAGE, reject_remote_write
from rekord.storage.transaction import STAGED_PREFIX
from rekord.training.model import variable_to_numpy

_CHECKPOINT = "checkpoint.tfrecord"
_FILES = ("model.keras", "inputs.json", "metrics.json", "report.html", _CHECKPOINT)


class RunFolder:
    """The files of a run. `inputs` is what was learned of the inputs before training: means, words."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        files = (os.path.join(folder, name) for name in _FILES)
        self.model, self.inputs, self.metrics, self.report, self.checkpoint = files


def get_default_run_folder(path: str) -> str:
    """Where the run of a dataset goes if nothing else is said: beside the reader, not beside the data."""
    parent, name = os.path.split(os.path.normpath(path))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):  # a version of TFDS, in a folder that has the name
        name = os.path.basename(parent) or name
    return f"{name.split('.')[0].split('*')[0].rstrip('-_') or 'dataset'}-model"


def check_run_folder(folder: str, *, dataset: str, resume: bool, fresh: bool) -> None:
    """A UsageError where no run may begin or go on at a place; nothing there is touched."""
    reject_remote_write(folder)
    if _is_inside_dataset(folder, dataset):
        raise error(
            "U631",
            "a run cannot lie among the data that it learns from",
            location=Location(path=folder),
            expected="a folder outside the dataset",
            found=f"{os.path.normpath(folder)!r} in {os.path.normpath(dataset)!r}"[:60],
            do="name another place for the run",
        )
    names = _list_names(folder)
    begun = _CHECKPOINT in names
    if resume and not begun:
        raise error(
            "U609",
            "there is no run to go on with",
            location=Location(path=RunFolder(folder).checkpoint),
            expected="the checkpoint of a run",
            found="none" if names else "no folder, or an empty one",
            do="leave --resume out, to begin",
        )
    # What lies beside a run is no reason against another one there; files that only have the names of ours are.
    if not resume and (names - set(_FILES) and not begun if fresh else names):
        raise _folder_in_use_error(folder, names)


def prepare_run_folder(folder: str, *, dataset: str, resume: bool, fresh: bool) -> RunFolder:
    """The folder, ready for a run that begins or goes on; whoever calls this holds the lock."""
    check_run_folder(folder, dataset=dataset, resume=resume, fresh=fresh)
    LOCAL.make_folder(folder)
    for entry in LOCAL.list(folder):
        # A run that was killed may have left a file half written.
        if (fresh and entry.name in _FILES) or entry.name.startswith(STAGED_PREFIX):
            LOCAL.remove(os.path.join(folder, entry.name))
    return RunFolder(folder)


def _is_inside_dataset(folder: str, dataset: str) -> bool:
    data = os.path.realpath(dataset)
    return os.path.isdir(data) and os.path.commonpath([data, os.path.realpath(folder)]) == data


def _list_names(folder: str) -> set[str]:
    if not os.path.lexists(folder):
        return set()
    if LOCAL.stat(folder).kind != "folder":
        raise error(
            "U618",
            "a run needs a folder, and there is a file",
            location=Location(path=folder),
            expected="a folder that is empty or not there yet",
            found="a file",
            do="name another place for the run",
        )
    names = {entry.name for entry in LOCAL.list(folder)}
    return {name for name in names if not name.startswith(STAGED_PREFIX)}


def _folder_in_use_error(folder: str, names: set[str]) -> RekordError:
    ours, others = sorted(names & set(_FILES)), sorted(names - set(_FILES))
    is_run = _CHECKPOINT in names or not others
    return error(
        "U618",
        "output already contains a run" if is_run else "the folder for the run holds something else",
        location=Location(path=folder),
        expected="a folder that is empty or not there yet",
        found=", ".join(ours if is_run else others)[:60],
        do="--resume goes on with it, --fresh starts over" if is_run else "name another place for the run",
    )


Array: TypeAlias = "npt.NDArray[Any]"

_SCHEMA = Schema({"name": Text(), "dtype": Text(), "shape": Int64(shape=(None,)), "data": Bytes()})
_STATE = "state"


def save_checkpoint(path: str, state: dict[str, Any], variables: Sequence[Any]) -> None:
    """Write the state and the variables of Keras, in place of the checkpoint before."""
    with Writer(path, _SCHEMA) as writer:
        told = msgspec.json.encode(state)
        writer.write({"name": _STATE, "dtype": "json", "shape": [len(told)], "data": told})
        for variable in variables:
            array = variable_to_numpy(variable)
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
    row = next(_iter_rows(path), None)
    if row is None or row["name"] != _STATE:
        raise _checkpoint_error(path, "a state at its front", "none")
    try:
        state = msgspec.json.decode(row["data"])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise _checkpoint_error(path, "a state as JSON", str(failure)[:60]) from None
    if not isinstance(state, dict):
        raise _checkpoint_error(path, "a state as a JSON object", type(state).__name__)
    return state


def restore_variables(path: str, variables: Sequence[Any]) -> None:
    """Put the saved values into these variables, which must be the same ones."""
    rows = _iter_rows(path)
    next(rows, None)
    values = []
    for variable in variables:
        row = next(rows, None)
        wanted = f"`{variable.path}` of shape {tuple(variable.shape)}"
        if row is None:
            raise _checkpoint_error(path, wanted, "the end of the file")
        shape = tuple(int(size) for size in row["shape"])
        fits = shape == tuple(variable.shape) and len(row["data"]) == _compute_size_bytes(row["dtype"], shape)
        if not fits:
            raise _checkpoint_error(path, wanted, f"`{row['name']}` of shape {shape}"[:60])
        values.append(np.frombuffer(row["data"], row["dtype"]).reshape(shape))
    if next(rows, None) is not None:
        raise _checkpoint_error(path, f"{len(values)} variables", "more")
    # Only now: a checkpoint that does not fit leaves the model as it was.
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _compute_size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    if dtype not in ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64", "uint8", "bool"):
        return -1
    size = np.dtype(dtype).itemsize
    for dim in shape:
        size *= dim
    return size


def _iter_rows(path: str) -> Iterator[dict[str, Any]]:
    if ROUTED_STORAGE.stat(path).kind != "file":  # a pipe would be waited for without end
        raise _checkpoint_error(path, "a checkpoint of `rekord train`", "no file")
    try:
        # None is ever written compressed: a few bytes could become more than there is memory.
        if detect_file_compression(path) != "none":
            raise _checkpoint_error(path, "a checkpoint of `rekord train`", "a compressed file")
        for payload in records(path):
            yield decode(payload, _SCHEMA)
    except (FormatError, DataError) as failure:
        raise _checkpoint_error(
            path, "a checkpoint of `rekord train`", f"{failure.code}: {failure.what}"[:60]
        ) from failure


def _checkpoint_error(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X575",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="rekord train PATH OUT --fresh      (starts over)",
    )

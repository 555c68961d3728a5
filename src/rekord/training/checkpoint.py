"""The folder of a training run, and its checkpoint: model, optimizer and position in one record file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rekord.codec.decode import decode
from rekord.dataset.predictions import PREDICTIONS_NAME
from rekord.dataset.read import records
from rekord.dataset.shard_index import detect_file_compression
from rekord.dataset.writer import Writer
from rekord.errors import DataError, FormatError, RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Schema, Text
from rekord.storage.local import LOCAL
from rekord.storage.publication import STAGED_PREFIX
from rekord.storage.router import ROUTED_STORAGE, reject_remote_write
from rekord.training.model import variable_to_numpy

_CHECKPOINT = "checkpoint.tfrecord"
_FILES = ("model.keras", "inputs.json", "metrics.json", "report.html", PREDICTIONS_NAME, _CHECKPOINT)
_EXPECTED_FOLDER = "an empty folder, or one that does not exist"
_EXPECTED_CHECKPOINT = "a checkpoint of `rekord train`"


class RunFolder:
    """The files of a run. `inputs` has what was learned about the inputs before training: means, words."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        files = (os.path.join(folder, name) for name in _FILES)
        self.model, self.inputs, self.metrics, self.report, self.predictions, self.checkpoint = files


def get_default_run_folder(path: str) -> str:
    """The default folder of a run: in the working directory, not next to the data."""
    parent, name = os.path.split(os.path.normpath(path))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):  # a version of TFDS, in a folder with the dataset's name
        name = os.path.basename(parent) or name
    return f"{name.split('.')[0].split('*')[0].rstrip('-_') or 'dataset'}-model"


def check_run_folder(folder: str, *, dataset: str, resume: bool, fresh: bool) -> None:
    """Raise a UsageError if no run may start or resume in a folder; nothing in it is changed."""
    reject_remote_write(folder)
    if _is_inside_dataset(folder, dataset):
        raise error(
            "U631",
            "run folder is inside the dataset",
            location=Location(path=folder),
            expected="a folder outside the dataset",
            found=f"{os.path.normpath(folder)!r} in {os.path.normpath(dataset)!r}"[:60],
            do="pass another folder for the run",
        )
    names = _list_names(folder)
    begun = _CHECKPOINT in names
    if resume and not begun:
        raise error(
            "U609",
            "no run to resume",
            location=Location(path=RunFolder(folder).checkpoint),
            expected="the checkpoint of a run",
            found="none" if names else "no folder, or an empty one",
            do="resume=False, to start a run",
        )
    # Other files next to a run do not matter; without a checkpoint, files with our names may not be ours.
    if not resume and (names - set(_FILES) and not begun if fresh else names):
        raise _folder_in_use_error(folder, names)


def prepare_run_folder(folder: str, *, dataset: str, resume: bool, fresh: bool) -> RunFolder:
    """Prepare the folder for a run that starts or resumes; the caller holds the lock."""
    check_run_folder(folder, dataset=dataset, resume=resume, fresh=fresh)
    LOCAL.make_folder(folder)
    for entry in LOCAL.list(folder):
        # A killed run may have left an incomplete file.
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
            "run folder is a file",
            location=Location(path=folder),
            expected=_EXPECTED_FOLDER,
            found="a file",
            do="pass another folder for the run",
        )
    names = {entry.name for entry in LOCAL.list(folder)}
    return {name for name in names if not name.startswith(STAGED_PREFIX)}


def _folder_in_use_error(folder: str, names: set[str]) -> RekordError:
    ours, others = sorted(names & set(_FILES)), sorted(names - set(_FILES))
    is_run = _CHECKPOINT in names or not others
    found = ours if is_run else others
    return error(
        "U618",
        "output already contains a run" if is_run else "run folder contains other files",
        location=Location(path=folder),
        expected=_EXPECTED_FOLDER,
        found=", ".join([*(name[:60] for name in found[:3]), *(["…"] if len(found) > 3 else [])]),
        do="resume=True to continue it, fresh=True to start over" if is_run else "pass another folder for the run",
    )


Array: TypeAlias = "npt.NDArray[Any]"

_SCHEMA = Schema({"name": Text(), "dtype": Text(), "shape": Int64(shape=(None,)), "data": Bytes()})
_STATE = "state"


def save_checkpoint(path: str, state: dict[str, Any], variables: Sequence[Any]) -> None:
    """Write the state and the Keras variables, replacing the previous checkpoint."""
    with Writer(path, _SCHEMA) as writer:
        data = msgspec.json.encode(state)
        writer.write({"name": _STATE, "dtype": "json", "shape": [len(data)], "data": data})
        for variable in variables:
            array = variable_to_numpy(variable)
            dtype, shape = array.dtype.name, list(array.shape)
            writer.write({"name": variable.path, "dtype": dtype, "shape": shape, "data": array.tobytes()})


def read_state(path: str) -> dict[str, Any]:
    """The state alone."""
    row = next(_iter_rows(path), None)
    if row is None or row["name"] != _STATE:
        raise checkpoint_error(path, "a state in the first record", "none")
    try:
        state = msgspec.json.decode(row["data"])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as failure:
        raise checkpoint_error(path, "a state as JSON", str(failure)[:60]) from None
    if not isinstance(state, dict):
        raise checkpoint_error(path, "a state as a JSON object", type(state).__name__)
    return state


def restore_variables(path: str, variables: Sequence[Any]) -> None:
    """Assign the saved values to these variables, which must be the same ones."""
    rows = _iter_rows(path)
    next(rows, None)
    values = []
    for variable in variables:
        row = next(rows, None)
        wanted = f"`{variable.path}` of shape {tuple(variable.shape)}"
        if row is None:
            raise checkpoint_error(path, wanted, "the end of the file")
        shape = tuple(int(size) for size in row["shape"])
        fits = shape == tuple(variable.shape) and len(row["data"]) == _compute_size_bytes(row["dtype"], shape)
        if not fits:
            raise checkpoint_error(path, wanted, f"`{row['name']}` of shape {shape}"[:60])
        values.append(np.frombuffer(row["data"], row["dtype"]).reshape(shape))
    if next(rows, None) is not None:
        raise checkpoint_error(path, f"{len(values)} variables", "more")
    # Only now: a checkpoint that does not match leaves the model unchanged.
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _compute_size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    if dtype not in ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64", "uint8", "bool"):
        return -1
    return math.prod(shape, start=np.dtype(dtype).itemsize)


def _iter_rows(path: str) -> Iterator[dict[str, Any]]:
    if ROUTED_STORAGE.stat(path).kind != "file":  # reading a pipe would never end
        raise checkpoint_error(path, _EXPECTED_CHECKPOINT, "not a file")
    try:
        # Checkpoints are never compressed: a few bytes could expand to more than fits in memory.
        if detect_file_compression(path) != "none":
            raise checkpoint_error(path, _EXPECTED_CHECKPOINT, "a compressed file")
        for payload in records(path):
            yield decode(payload, _SCHEMA)
    except (FormatError, DataError) as failure:
        found = f"{failure.code}: {failure.what}"[:60]
        raise checkpoint_error(path, _EXPECTED_CHECKPOINT, found) from failure


def checkpoint_error(path: str, expected: str, found: str) -> RekordError:
    """The error for a checkpoint that cannot be restored."""
    return error(
        "X575",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="fresh=True, to start over",
    )

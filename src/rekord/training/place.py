"""The folder of a training run: what is in it, and whether a run may go there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.files import LOCAL
from rekord.storage.publish import STAGED_PREFIX
from rekord.storage.remote import refuse_to_write

_CHECKPOINT = "checkpoint.tfrecord"
_FILES = ("model.keras", "inputs.json", "metrics.json", "report.html", _CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Place:
    """The files of a run."""

    folder: str

    @property
    def model(self) -> str:
        return os.path.join(self.folder, "model.keras")

    @property
    def inputs(self) -> str:
        """What was learned of the inputs before training: means, words."""
        return os.path.join(self.folder, "inputs.json")

    @property
    def metrics(self) -> str:
        return os.path.join(self.folder, "metrics.json")

    @property
    def report(self) -> str:
        return os.path.join(self.folder, "report.html")

    @property
    def checkpoint(self) -> str:
        return os.path.join(self.folder, _CHECKPOINT)


def usual_folder(path: str) -> str:
    """Where the run of a dataset goes if nothing else is said: beside the reader, not beside the data."""
    parent, name = os.path.split(os.path.normpath(path))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):  # a version of TFDS, in a folder that has the name
        name = os.path.basename(parent) or name
    return f"{name.split('.')[0].split('*')[0].rstrip('-_') or 'dataset'}-model"


def refuse_place(folder: str, *, dataset: str, resume: bool, fresh: bool) -> None:
    """A UsageError where no run may begin or go on at a place; nothing there is touched."""
    refuse_to_write(folder)
    if _is_among(folder, dataset):
        raise error(
            "U633",
            "a run cannot lie among the data that it learns from",
            location=Location(path=folder),
            expected="a folder outside the dataset",
            found=f"{os.path.normpath(folder)!r} in {os.path.normpath(dataset)!r}"[:60],
            do="name another place for the run",
        )
    names = _names(folder)
    begun = _CHECKPOINT in names
    if resume and not begun:
        raise error(
            "U609",
            "there is no run to go on with",
            location=Location(path=Place(folder).checkpoint),
            expected="the checkpoint of a run",
            found="none" if names else "no folder, or an empty one",
            do="leave --resume out, to begin",
        )
    # What lies beside a run is no reason against another one there; files that only have the names of ours are.
    if not resume and (names - set(_FILES) and not begun if fresh else names):
        raise _taken(folder, names)


def prepared(folder: str, *, dataset: str, resume: bool, fresh: bool) -> Place:
    """The folder, ready for a run that begins or goes on; whoever calls this holds the lock."""
    refuse_place(folder, dataset=dataset, resume=resume, fresh=fresh)
    LOCAL.make_folder(folder)
    for entry in LOCAL.list(folder):
        # A run that was killed may have left a file half written.
        if (fresh and entry.name in _FILES) or entry.name.startswith(STAGED_PREFIX):
            LOCAL.remove(os.path.join(folder, entry.name))
    return Place(folder)


def _is_among(folder: str, dataset: str) -> bool:
    data = os.path.realpath(dataset)
    return os.path.isdir(data) and os.path.commonpath([data, os.path.realpath(folder)]) == data


def _names(folder: str) -> set[str]:
    if not os.path.lexists(folder):
        return set()
    if LOCAL.stat(folder).kind != "folder":
        raise error(
            "U633",
            "a run needs a folder, and there is a file",
            location=Location(path=folder),
            expected="a folder that is empty or not there yet",
            found="a file",
            do="name another place for the run",
        )
    names = {entry.name for entry in LOCAL.list(folder)}
    return {name for name in names if not name.startswith(STAGED_PREFIX)}


def _taken(folder: str, names: set[str]) -> RekordError:
    ours, others = sorted(names & set(_FILES)), sorted(names - set(_FILES))
    is_run = _CHECKPOINT in names or not others
    return error(
        "U633",
        None if is_run else "the folder for the run holds something else",
        location=Location(path=folder),
        expected="a folder that is empty or not there yet",
        found=", ".join(ours if is_run else others)[:60],
        do="--resume goes on with it, --fresh starts over" if is_run else "name another place for the run",
    )

"""The folder of a training run: what is in it, and whether a run may go there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.files import LOCAL
from rekord.storage.remote import refuse_to_write

_FILES = ("model.keras", "inputs.json", "metrics.json", "report.html", "checkpoint.tfrecord")


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
        return os.path.join(self.folder, "checkpoint.tfrecord")


def usual_folder(path: str) -> str:
    """Where the run of a dataset goes if nothing else is said: beside the reader, not beside the data."""
    name = os.path.basename(os.path.normpath(path)).split(".")[0].split("*")[0].rstrip("-_") or "dataset"
    return f"{name}-model"


def prepared(folder: str, *, resume: bool, fresh: bool) -> Place:
    """The folder, ready for a run that begins or goes on; a UsageError where something else is there."""
    refuse_to_write(folder)
    place = Place(folder)
    names = _names(folder)
    begun = "checkpoint.tfrecord" in names
    if resume and not begun:
        raise error(
            "U609",
            "there is no run to go on with",
            location=Location(path=place.checkpoint),
            expected="the checkpoint of a run",
            found="none" if names else "no folder, or an empty one",
            do="leave --resume out, to begin",
        )
    if fresh:
        for name in _FILES:
            if name in names:
                LOCAL.remove(os.path.join(folder, name))
    elif names and not resume:
        raise _taken(folder, names)
    LOCAL.make_folder(folder)
    return place


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
    return {entry.name for entry in LOCAL.list(folder)}


def _taken(folder: str, names: set[str]) -> RekordError:
    ours = sorted(names & set(_FILES))
    return error(
        "U633",
        None if ours else "the folder for the run holds something else",
        location=Location(path=folder),
        expected="a folder that is empty or not there yet",
        found=", ".join(ours or sorted(names))[:60],
        do="--resume goes on with it, --fresh starts over" if ours else "name another place for the run",
    )

"""`rekord demo`: a short tour on generated data, where every number is measured."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rekord.cli import out
from rekord.cli.demo_tour import STEPS, Tour
from rekord.cli.render import clean, count, duration
from rekord.errors import error
from rekord.location import Location


def demo(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            show_default=False,
            help="Keep the data here: a new or empty folder. Default: nowhere.",
        ),
    ] = None,
    no_train: Annotated[bool, typer.Option("--no-train", help="Leave out the training at the end.")] = False,
) -> int:
    """Take a short tour on generated data. Write, check, break, find out why, mend, read, and train a model."""
    began = time.perf_counter()
    kept = (
        f"the data is in {shlex.quote(clean(folder))}"
        if folder
        else "the data is gone again; `rekord demo DIR` keeps it"
    )
    try:
        with _place(folder) as place, _inside(place):
            tour = Tour(place=place, train=not no_train)
            for step in STEPS:
                step(tour)
    except KeyboardInterrupt:
        out.tell(f"interrupted: {kept}")
        return 130
    out.say()
    out.say(f"that was all, in {duration(time.perf_counter() - began)}: {kept}")
    return 0


@contextmanager
def _place(folder: str | None) -> Iterator[str]:
    if folder is None:
        with _temporary_folder() as place:
            yield place
        return
    from rekord.storage.files import LOCAL

    if os.path.lexists(folder):
        _refuse_what_is_not_empty(folder)
    LOCAL.make_folder(folder)
    yield folder


@contextmanager
def _inside(place: str) -> Iterator[None]:
    """Work in a folder, so that commands and what they say are as short as they are for who does it."""
    try:
        before = os.getcwd()
    except OSError:  # whoever started this took the folder away
        before = os.path.abspath(os.sep)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="rekord-demo-")
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error("X504", "no temporary folder can be made", found=found, do="rekord demo DIR") from failure


def _refuse_what_is_not_empty(folder: str) -> None:
    from rekord.storage.files import LOCAL

    if LOCAL.stat(folder).kind != "folder":
        found = "something that is no folder"
    elif names := LOCAL.list(folder):
        found = f"a folder with {count(len(names), 'name')} in it"
    else:
        return
    raise error(
        "U605",
        "the demo needs a folder of its own",
        location=Location(path=folder),
        expected="a folder that is empty, or not there yet",
        found=found,
        do="rekord demo      (uses a temporary folder)",
    )

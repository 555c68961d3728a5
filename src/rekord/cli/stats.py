"""`rekord stats`: what is in the features, for a person, a program, a browser and TFX."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rekord.cli import out
from rekord.cli.render import clean
from rekord.errors import error
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.health.stats.report import Stats

WIDTH = 80


def stats(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A record file, a folder or a pattern.")],
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A schema's JSON: names the classes of labels."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a report for a browser, in one file."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="FILE",
            help="Write tensorflow_metadata statistics, as text (.pbtxt) or binary (.pb).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say what each feature holds. Ranges, distributions, classes, image sizes, and how splits differ.

    Damage is passed over and said; the exit code is then 1.
    """
    from rekord.cli.progress import Progress
    from rekord.cli.stats_table import lines
    from rekord.dataset.read import record_files
    from rekord.health.finding import Report
    from rekord.health.stats.run import stats as gather

    if metadata is not None:
        _check_extension(metadata)
    files = record_files(path)
    _check_targets(files, html, metadata)
    report = Report()
    with Progress(report, files=len(files)):
        found = gather(path, schema=schema, report=report)
    _save(found, html, metadata)
    if as_json:
        out.say_json(found.to_dict())
    else:
        for line in lines(found, _width()):
            out.say(*line)
    for target in (html, metadata):
        if target is not None:
            out.tell(f"saved in {clean(target)}")
    if found.report.unreadable:
        return 3
    return 0 if found.ok else 1


def _width() -> int:
    """The columns of the terminal, where there is one; a file has as many as a page of text."""
    return max(shutil.get_terminal_size().columns, WIDTH) if out.is_terminal(sys.stdout) else WIDTH


def _save(found: Stats, html: str | None, metadata: str | None) -> None:
    from rekord.health.stats.metadata import to_binary, to_text
    from rekord.storage.publish import publish

    if html is not None:
        with publish(html) as staged:
            staged.write(found.to_html().encode())
    if metadata is not None:
        binary = metadata.lower().endswith(".pb")
        with publish(metadata) as staged:
            staged.write(to_binary(found) if binary else to_text(found).encode())


def _check_extension(metadata: str) -> None:
    if metadata.lower().endswith((".pb", ".pbtxt")):
        return
    raise error(
        "U640",
        location=Location(path=metadata),
        expected="a name that ends in .pbtxt for text, or in .pb for binary",
        found=clean(os.path.basename(metadata))[:60] or "no name",
        do="--metadata stats.pbtxt",
    )


def _check_targets(files: list[str], html: str | None, metadata: str | None) -> None:
    """A report must not take the place of the data, nor of the other report."""
    data = {os.path.realpath(file) for file in files}
    taken = set(data)
    for option, target in (("--html", html), ("--metadata", metadata)):
        if target is None:
            continue
        place = os.path.realpath(target)
        if place in taken:
            raise error(
                "U641",
                f"`{option}` would replace a file that is in use",
                location=Location(path=target),
                expected="a place of its own",
                found="the data" if place in data else "the file of the other report",
                do=f"{option} stats.{'html' if option == '--html' else 'pbtxt'}",
            )
        taken.add(place)

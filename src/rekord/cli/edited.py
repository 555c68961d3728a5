"""What the verbs that edit a dataset share on the command line: their options, and how they say what was done."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rekord.cli import out as output
from rekord.cli.endings import resumable
from rekord.cli.render import byte_size, clean, count, duration, whole_number
from rekord.errors import error

if TYPE_CHECKING:
    from rekord.verbs.edits import Edited, Target

_ABOUT_RECORDS = ("X510", "X571", "X572")

In: TypeAlias = Annotated[
    str, typer.Argument(metavar="IN", help="A dataset that rekord wrote.", show_default=False)
]
Out: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="OUT", help="The folder to be made. None beside --replace.")
]
Replace: TypeAlias = Annotated[
    bool, typer.Option("--replace", help="Put the new dataset in the place of IN.")
]
WhereRecords: TypeAlias = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Which records: a condition over columns.")
]
RecordsFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--records", metavar="FILE", help="Which records: a file of lines such as train,3."),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="How many work at once. Default: one a core.",
        parser=whole_number("--workers", do="--workers 2"),
    ),
]


def target(verb: str, out: str | None, *, replace: bool, workers: int | None, fresh: bool) -> Target:
    """Where the new dataset goes, as the command line says."""
    from rekord.verbs.edits import target_of

    if (out is None) == (not replace):
        what = "OUT, or --replace" if out is None else "either OUT or --replace, not both"
        raise error("U601", f"`rekord {verb}` needs {what}", do=f"rekord {verb} --help")
    return target_of(out, replace=replace, workers=workers, fresh=fresh, progress=True)


def run(edit: Callable[[], Edited], done: str, *, as_json: bool) -> int:
    """Edit, and say how it ended; `done` is what was done to records."""
    began = time.perf_counter()
    left = "nothing was published, and IN is as it was"
    with resumable(_ABOUT_RECORDS, as_json=as_json, left=left):
        ended = edit()
    seconds = time.perf_counter() - began
    for note in ended.notes:
        output.tell(f"note: {clean(note)}")
    if ended.left is not None:
        output.tell(f"files that rekord did not write were kept in {clean(ended.left)}")
    if as_json:
        output.say_json({**ended.to_dict(done), "seconds": round(seconds, 3)})
    else:
        _say(ended, done, seconds)
    return 0


def _say(ended: Edited, done: str, seconds: float) -> None:
    parts = ended.manifest.splits
    records = sum(part.records for part in parts.values())
    changed = sum(ended.counts.values())
    place = clean(ended.dataset)
    if ended.nothing_to_do and not changed:
        output.say(f"nothing to do: no record of {place} is {done}")
    elif ended.nothing_to_do:
        output.say(f"nothing to do: {place} is complete already, {count(changed, 'record')} {done}")
    else:
        output.say(
            f"{place}: {count(changed, 'record')} {done}, {count(records, 'record')} in all,"
            f" in {duration(seconds)}"
        )
    rows = [
        (
            clean(name),
            count(part.records, "record"),
            count(len(part.shards.records), "shard"),
            byte_size(sum(part.shards.bytes)),
            f"{ended.counts.get(name, 0):,} {done}",
        )
        for name, part in parts.items()
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(5)] if rows else []
    for row in rows:
        output.say(
            f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}"
            f"  {row[3]:>{widths[3]}}  {row[4]:>{widths[4]}}"
        )
    if ended.linked_shards or ended.written_shards:
        output.say(
            f"{count(ended.linked_shards, 'shard')} linked, {count(ended.written_shards, 'shard')} written"
        )
    output.say(f"next: rekord check {shlex.quote(place)}")

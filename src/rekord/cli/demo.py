"""`rekord demo`: a short tour on generated data, where every number is measured."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from rekord.cli import out
from rekord.cli.render import byte_size, count, duration
from rekord.errors import error
from rekord.location import Location

PHOTOS = 120
SPLIT = "train=0.9,val=0.1"
SHARDS = 4
RECORDS_PER_SHARD = 100
_FLIPPED_SHARD, _FLIPPED_RECORD = 1, 42
_CUT_SHARD = 3


@dataclass(slots=True)
class Tour:
    """Where the tour happens, and what it has made so far."""

    photos: str
    written: str
    good: str
    broken: str
    repaired: str
    steps: int = 0

    def step(self, title: str, command: str | None = None) -> None:
        """Announce what happens next, and the command that does the same."""
        self.steps += 1
        if self.steps > 1:
            out.say()
        out.say((f"{self.steps}. {title}", "bold"))
        if command is not None:
            out.say((f"$ {command}", "cyan"))


def demo(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            show_default=False,
            help="Keep the data here: a new or empty folder. Default: nowhere.",
        ),
    ] = None,
) -> int:
    """Take a short tour on generated data. Write, check, look inside, break a copy, find out why, mend it."""
    began = time.perf_counter()
    with _place(folder) as place:
        tour = Tour(
            photos=os.path.join(place, "photos"),
            written=os.path.join(place, "dataset"),
            good=os.path.join(place, "shapes"),
            broken=os.path.join(place, "shapes-broken"),
            repaired=os.path.join(place, "shapes-repaired"),
        )
        for step in STEPS:
            step(tour)
    out.say()
    kept = (
        f"the data is in {shlex.quote(folder)}"
        if folder
        else "the data is gone again; `rekord demo DIR` keeps it"
    )
    out.say(f"that was all, in {duration(time.perf_counter() - began)}: {kept}")
    return 0


def draw_photos(tour: Tour) -> None:
    """A folder of images, as people have them: a folder for each class."""
    from rekord.cli.demo_data import CLASSES, drawn_jpeg

    tour.step(f"Draw {count(PHOTOS, 'image')}, a folder for each class")
    for index in range(PHOTOS):
        shape = CLASSES[index % len(CLASSES)]
        _write(os.path.join(tour.photos, shape, f"{index:03}.jpg"), drawn_jpeg(index))
    out.say(f"{tour.photos}: {', '.join(CLASSES)}")


def write_photos(tour: Tour) -> None:
    """The main job: raw data becomes a dataset in one command."""
    from rekord.cli.write import write

    command = f"rekord write {shlex.quote(tour.photos)} {shlex.quote(tour.written)} --split {SPLIT}"
    tour.step("Write them as a dataset", command)
    write(tour.photos, tour.written, split=SPLIT)


def check_photos(tour: Tour) -> None:
    """Every length, checksum and message is verified."""
    _check(tour, tour.written, "Check every byte of it")


def write_dataset(tour: Tour) -> None:
    """Examples with an image, a label and some numbers, in a few shards."""
    from rekord.cli.demo_data import SCHEMA, generated_row
    from rekord.dataset.writer import Writer
    from rekord.storage.files import LOCAL

    rows = [generated_row(index) for index in range(SHARDS * RECORDS_PER_SHARD)]
    tour.step(f"Rows from Python: declare a schema, and write {count(len(rows), 'row')} by it")
    out.say((f">>> schema = {SCHEMA!r}", "cyan"))
    out.say((">>> with rekord.Writer(path, schema) as writer: writer.write(row)", "cyan"))
    LOCAL.make_folder(tour.good)
    began = time.perf_counter()
    for shard in range(SHARDS):
        with Writer(_shard(tour.good, shard), SCHEMA) as writer:
            for row in rows[shard * RECORDS_PER_SHARD : (shard + 1) * RECORDS_PER_SHARD]:
                writer.write(row)
    took = duration(time.perf_counter() - began)
    written_bytes = sum(LOCAL.stat(_shard(tour.good, shard)).size_bytes for shard in range(SHARDS))
    out.say(f"{tour.good}: {count(SHARDS, 'file')}, {byte_size(written_bytes)}, in {took}")


def refuse_row(tour: Tour) -> None:
    """A row that does not fit, and what is said about it."""
    from rekord.cli.demo_data import SCHEMA, generated_row
    from rekord.codec.encode import encode
    from rekord.errors import EncodeError

    tour.step("Try to write a row that does not fit")
    out.say((">>> rekord.encode({**row, 'label': 'triangle'}, schema)", "cyan"))
    try:
        encode({**generated_row(0), "label": "triangle"}, SCHEMA)
    except EncodeError as refusal:
        out.say(refusal.message)


def describe_dataset(tour: Tour) -> None:
    """What each feature holds, how many there are of each class, and whether the splits are alike."""
    from rekord.cli.stats import stats

    tour.step("See what it holds", f"rekord stats {shlex.quote(tour.written)}")
    stats(tour.written)


def show_record(tour: Tour) -> None:
    """One record, as a person wants to see it."""
    from rekord.cli.features import lines_of
    from rekord.cli.messages import message
    from rekord.cli.show import heading, pick

    path = os.path.join(tour.written, "train-00000-of-00001.tfrecord")
    tour.step("Look inside", f"rekord show {shlex.quote(path)} -n 1")
    for picked in pick([path]):
        out.say(*heading(os.path.basename(path), picked))
        for line in lines_of(message(picked.payload)):
            out.say(*line)


def break_copy(tour: Tour) -> None:
    """Two of the things that happen to files: a bit flips, and a copy is not finished."""
    from rekord.testing.damage import frame_offsets

    tour.step("Break a copy of it")
    for shard in range(SHARDS):
        path = _shard(tour.broken, shard)
        with open(_shard(tour.good, shard), "rb") as file:
            data = bytearray(file.read())
        begins = [*frame_offsets(bytes(data)), len(data)]
        if shard == _FLIPPED_SHARD:
            at = (begins[_FLIPPED_RECORD] + begins[_FLIPPED_RECORD + 1]) // 2
            data[at] ^= 1
            out.say(f"{os.path.basename(path)}: flipped one bit of byte {at:,}")
        elif shard == _CUT_SHARD:
            lost_bytes = (begins[-1] - begins[-2]) // 2
            del data[-lost_bytes:]
            out.say(f"{os.path.basename(path)}: cut off the last {count(lost_bytes, 'byte')}")
        _write(path, bytes(data))


def check_broken_copy(tour: Tour) -> None:
    """Each damage with its file, record and byte; everything else is still good."""
    _check(tour, tour.broken, "Check the broken copy")


def explain_finding(tour: Tour) -> None:
    """The beginning of the page behind a code."""
    from rekord.cli.explain import page_of

    tour.step("Ask what a code means", "rekord explain F102")
    title, *paragraphs = page_of("F102").split("\n\n")
    told = [paragraph for paragraph in paragraphs if not paragraph.startswith("#")]
    out.say("\n\n".join([title, *told[:1]]))
    if len(told) > 1:
        out.say("…")


def read_batches(tour: Tour) -> None:
    """The same records as columns, without TensorFlow."""
    import numpy as np

    from rekord.cli.demo_data import SCHEMA
    from rekord.dataset.dataset import open as open_dataset

    tour.step("Read it in batches")
    line = f">>> for batch in rekord.open({tour.good!r}, schema).batches(128): ..."
    out.say((line, "cyan"))
    began = time.perf_counter()
    batches = list(open_dataset(tour.good, SCHEMA).batches(128))
    took = duration(time.perf_counter() - began)
    rows = sum(len(batch["id"]) for batch in batches)
    out.say(f"{count(rows, 'row')} in {len(batches)} batches, in {took}; the first one:")
    for name, column in batches[0].items():
        shown = f"{column.dtype} {column.shape}" if isinstance(column, np.ndarray) else repr(column)
        out.say(f"  {name:<10} {shown}")


def ask_the_doctor(tour: Tour) -> None:
    """Why the copy is broken, and what TensorFlow will say of it."""
    from rekord.cli.doctor import doctor

    tour.step("Ask why it is broken", f"rekord doctor {shlex.quote(tour.broken)}")
    doctor([tour.broken])


def salvage_copy(tour: Tour) -> None:
    """Everything that is intact, compared with what was written."""
    from collections import Counter

    from rekord.cli.salvage import salvage
    from rekord.dataset.read import records

    command = f"rekord salvage {shlex.quote(tour.broken)} {shlex.quote(tour.repaired)}"
    tour.step("Get every intact record back", command)
    salvage(tour.broken, tour.repaired)
    written, kept = Counter(records(tour.good)), Counter(records(tour.repaired))
    out.say(f"{(kept & written).total():,} of {kept.total():,} are byte for byte what was written")


def check_salvaged(tour: Tour) -> None:
    """What was salvaged is a sound dataset."""
    _check(tour, tour.repaired, "Check what came back")


STEPS = (
    draw_photos,
    write_photos,
    check_photos,
    describe_dataset,
    show_record,
    write_dataset,
    refuse_row,
    read_batches,
    break_copy,
    check_broken_copy,
    explain_finding,
    ask_the_doctor,
    salvage_copy,
    check_salvaged,
)


def _check(tour: Tour, folder: str, title: str) -> None:
    from rekord.cli.check import check_aloud

    tour.step(title, f"rekord check {shlex.quote(folder)}")
    check_aloud(folder)


def _shard(folder: str, number: int) -> str:
    return os.path.join(folder, f"train-{number:05}-of-{SHARDS:05}.tfrecord")


def _write(path: str, data: bytes) -> int:
    from rekord.storage.files import LOCAL

    LOCAL.make_folder(os.path.dirname(path))
    file = LOCAL.create(path)
    try:
        return file.write(data)
    finally:
        file.close()


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

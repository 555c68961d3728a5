"""`rekord demo`: a short tour on generated data; every number in it is measured."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import typer

from rekord.cli import console
from rekord.cli.console import StyledText, escape_controls
from rekord.cli.options import JSON_OPTION, argument, flag_option, with_options
from rekord.errors import UsageError, error
from rekord.location import Location
from rekord.report.formatting import format_byte_size, format_count, format_duration

SCENES, SIGNS = 240, 600
SHARDS = 4
# Folders of the tour, in the folder that is current meanwhile.
PHOTOS, DEEPLAB, SIGN_PHOTOS, SIGN_RECORDS = "scenes", "deeplab", "signs", "signs-dataset"
BROKEN, SALVAGED, REPAIRED = "broken", "salvaged", "repaired"
FLIPPED_SHARD, FLIPPED_RECORD, FLOAT_SHARD, CUT_SHARD = 1, 7, 2, 3
BATCH_SIZE, SEED, STOP_AFTER = 32, 7, 3

_TABLE_WIDTH = 80
_SHOWN_DOCTOR_LABELS = ("where", "likely", "do", "tf says")


@dataclass(slots=True)
class DemoTour:
    """The folder of the tour, and its progress."""

    place: str
    train: bool = True
    steps: list[dict[str, Any]] = field(default_factory=list, init=False)

    def step(self, title: str) -> None:
        """Print the heading of the next step."""
        self.steps.append({"title": title, "commands": []})
        if len(self.steps) > 1:
            console.print_line()
        console.print_line((f"{len(self.steps)}. {title}", "bold"))

    def show(self, *commands: str) -> None:
        """Print the commands that do the same."""
        self.steps[-1]["commands"] += commands
        for command in commands:
            console.print_line((command, "cyan"))
        console.flush_stdout()


def generate_data(tour: DemoTour) -> None:
    """Generate raw data: images with masks, and images in one folder per class."""
    from rekord.cli.demo_data import OBJECT_CLASSES, SCENE_CLASSES, draw_objects, draw_scenes

    tour.step(f"Generate {format_count(SCENES, 'landscape')} with masks, and {format_count(SIGNS, 'sign')}")
    tour.show(f"$ cd {shlex.quote(escape_controls(tour.place))}")
    began = time.perf_counter()
    scene_bytes = draw_scenes(PHOTOS, SCENES)
    console.print_line(
        f"{PHOTOS}/images, {PHOTOS}/masks: {format_byte_size(scene_bytes)}, {', '.join(SCENE_CLASSES)}"
    )
    sign_bytes = draw_objects(SIGN_PHOTOS, SIGNS)
    took = format_duration(time.perf_counter() - began)
    console.print_line(
        f"{SIGN_PHOTOS}/*: {format_byte_size(sign_bytes)}, {', '.join(OBJECT_CLASSES)}; both in {took}"
    )


def write_scenes(tour: DemoTour) -> None:
    """Convert raw data to a dataset, in one command."""
    from rekord.cli.demo_data import SCENE_CLASSES
    from rekord.cli.write import write

    classes, split = len(SCENE_CLASSES), "train=0.8,val=0.2"
    tour.step("Write the landscapes for DeepLab, in parallel; every pixel of a mask is checked")
    tour.show(
        f"$ rekord write {PHOTOS} {DEEPLAB} --layout deeplab --classes {classes} --split {split} \\",
        f"    --shuffle --shards {SHARDS} --workers 2",
    )
    _stop_on_failure(
        write(
            PHOTOS,
            DEEPLAB,
            layout="deeplab",
            classes=str(classes),
            split=split,
            shuffle=True,
            shards=SHARDS,
            workers=2,
        )
    )


def check_scenes(tour: DemoTour) -> None:
    """Verify every length, checksum, message, image and mask; then print statistics."""
    from rekord.cli.health import check_with_progress

    tour.step("Check every byte, and print statistics (a part of them)")
    tour.show(f"$ rekord check {DEEPLAB}")
    check_with_progress(DEEPLAB)
    tour.show(f"$ rekord stats {DEEPLAB}")
    heading, table, *_, alike = _stats_blocks(DEEPLAB)
    console.print_lines([*heading, *table, *alike])


def write_signs(tour: DemoTour) -> None:
    """Write a classification dataset with stratified splits."""
    from rekord.cli.write import write

    tour.step("Write the signs, one folder per class")
    split = "train=0.8,val=0.2"
    tour.show(f"$ rekord write {SIGN_PHOTOS} {SIGN_RECORDS} --split {split} --stratify label --shuffle")
    _stop_on_failure(write(SIGN_PHOTOS, SIGN_RECORDS, split=split, stratify="label", shuffle=True))
    tour.show(f"$ rekord stats {SIGN_RECORDS}")
    console.print_lines(_stats_blocks(SIGN_RECORDS)[2])


def break_copy(tour: DemoTour) -> None:
    """Damage three shards: a flipped bit, an incomplete copy, and a shard of another pipeline."""
    from rekord.cli.demo_data import write_file
    from rekord.dataset.read import list_record_files
    from rekord.testing.damage import frame_offsets

    tour.step("Copy the shards, and damage three of them")
    for path in list_record_files(DEEPLAB):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            data = bytearray(file.read())
        begins = [*frame_offsets(bytes(data)), len(data)]
        if name == _shard_path(FLIPPED_SHARD):
            at = (begins[FLIPPED_RECORD] + begins[FLIPPED_RECORD + 1]) // 2
            data[at] ^= 1
            console.print_line(f"{name}: flipped one bit of byte {at:,}")
        elif name == _shard_path(CUT_SHARD):
            lost_bytes = (begins[-1] - begins[-2]) // 2
            del data[-lost_bytes:]
            console.print_line(f"{name}: cut off the last {format_count(lost_bytes, 'byte')}")
        if name == _shard_path(FLOAT_SHARD):
            written = _write_float_heights(path, os.path.join(BROKEN, name))
            console.print_line(f"{name}: wrote the heights of its {format_count(written, 'record')} as floats")
        else:
            write_file(os.path.join(BROKEN, name), bytes(data))


def run_doctor(tour: DemoTour) -> None:
    """Diagnose the copy: why it is damaged, what to do, and what TensorFlow will report."""
    from rekord.cli.console import shorten_paths
    from rekord.cli.health import format_diagnoses
    from rekord.health.dataset_files import find_dataset_files
    from rekord.health.doctor.run import diagnose_files
    from rekord.health.finding import Report

    tour.step("Diagnose why training on it would fail (without the evidence)")
    tour.show(f"$ rekord doctor {BROKEN}")
    place, report = find_dataset_files(BROKEN), Report()
    found = diagnose_files(place, path=BROKEN, report=report)
    lines = format_diagnoses(found, shorten_paths(BROKEN, place.paths), report.payload_bytes)
    console.print_lines([line for line in lines if _is_essential(line)])


def salvage_copy(tour: DemoTour) -> None:
    """Salvage what is intact, repair it as diagnosed, and compare it with the original."""
    from rekord.cli.health import salvage
    from rekord.dataset.read import records
    from rekord.verbs.rewrite import rewrite

    tour.step("Salvage every intact record, and repair the floats")
    tour.show(f"$ rekord salvage {BROKEN} {SALVAGED}")
    salvage(BROKEN, SALVAGED)
    tour.show(f"$ rekord rewrite {SALVAGED} {REPAIRED} --cast image/height=int64")
    rewrite(SALVAGED, REPAIRED, cast={"image/height": "int64"}, progress=False)
    written, repaired = Counter(records(DEEPLAB)), Counter(records(REPAIRED))
    same = (written & repaired).total()
    console.print_line(
        f"compared with {DEEPLAB}: ",
        (f"{same:,} of {repaired.total():,} records are byte-identical to the original", "bold"),
        f", {written.total() - same:,} are lost",
    )


def iterate_batches(tour: DemoTour) -> None:
    """Shuffle each epoch differently, and save and restore the position."""
    from rekord.dataset.dataset import open as open_dataset

    options = f"{BATCH_SIZE}, shuffle=True, seed={SEED}, decode=True"
    tour.step("Read shuffled batches, stop in the middle of an epoch, and resume")
    tour.show(f'>>> batches = rekord.open("{DEEPLAB}")["train"].batches({options})')
    train = open_dataset(DEEPLAB)["train"]
    batches = train.batches(BATCH_SIZE, shuffle=True, seed=SEED, decode=True)
    epochs: list[list[str]] = []
    for number in range(2):
        began = time.perf_counter()
        names: list[str] = []
        for batch in batches:
            names += batch["filename"].tolist()
        per_second = len(names) / (time.perf_counter() - began)
        epochs.append(names)
        console.print_line(
            f"epoch {number}: {', '.join(names[:3])}, … {len(set(names)):,} different ones of {len(names):,}, "
            f"{per_second:,.0f}/s as pixels"
        )
    import numpy as np

    image, mask = np.asarray(batch["image"]), np.asarray(batch["mask"])
    console.print_line(f"  image {image.dtype} {image.shape[1:]}, mask {mask.shape[1:]}")
    tour.show(">>> state = batches.state_dict(); …; again.load_state_dict(state)")
    stopped = train.batches(BATCH_SIZE, shuffle=True, seed=SEED, columns=["filename"])
    consumed = sum(len(batch["filename"]) for batch in islice(stopped, STOP_AFTER))
    again = train.batches(BATCH_SIZE, shuffle=True, seed=SEED, columns=["filename"])
    again.load_state_dict(stopped.state_dict())
    rest = [name for batch in again for name in batch["filename"].tolist()]
    agree = sum(a == b for a, b in zip(rest, epochs[0][consumed:], strict=False))
    console.print_line(
        f"stopped after {consumed:,} records: resumed with the other {len(rest):,}, {agree:,} of them "
        "in the same order"
    )


def train_models(tour: DemoTour) -> None:
    """Train a small model on each dataset, if Keras is installed."""
    from rekord.cli.console import suppress_tensorflow_log
    from rekord.training.model import load_keras

    tour.step("Train a small model on each dataset")
    if not tour.train:
        console.print_line("left out: --no-train")
        return
    try:
        with suppress_tensorflow_log():
            load_keras()
    except UsageError as failure:
        console.print_line(f"left out: {failure.what}")
        console.print_line(f"  do        {failure.do}")
        return
    _train(tour, SIGN_RECORDS, epochs=6)
    _train(tour, DEEPLAB, epochs=4, image_size="64", batch_size=8)


STEPS = (
    generate_data,
    write_scenes,
    check_scenes,
    write_signs,
    break_copy,
    run_doctor,
    salvage_copy,
    iterate_batches,
    train_models,
)


def _train(tour: DemoTour, dataset: str, *, epochs: int, image_size: str | None = None, batch_size: int = 32) -> None:
    from rekord.cli.train import train

    options = f" --epochs {epochs}"
    options += f" --image-size {image_size} --batch-size {batch_size}" if image_size else ""
    tour.show(f"$ rekord train {dataset}{options}")
    _stop_on_failure(train(dataset, epochs=epochs, image_size=image_size, batch_size=batch_size))


def _stop_on_failure(exit_code: int) -> None:
    """End the tour if a verb failed, which has reported it, or was interrupted."""
    if exit_code == 130:
        raise KeyboardInterrupt
    if exit_code:
        raise typer.Exit(exit_code)


def _shard_path(number: int) -> str:
    return f"train-{number:05}-of-{SHARDS:05}.tfrecord"


def _write_float_heights(source: str, target: str) -> int:
    """Write a shard whose heights are floats, and return the number of its records."""
    from rekord.codec.decode import decode
    from rekord.dataset.dataset import open as open_dataset
    from rekord.dataset.read import records
    from rekord.dataset.writer import Writer
    from rekord.schema import Float32, Schema

    declared = open_dataset(DEEPLAB).schema
    other = Schema({**{name: declared[name] for name in declared}, "height": Float32(key="image/height")})
    rows = [decode(payload, declared) for payload in records(source)]
    with Writer(target, other) as writer:
        for row in rows:
            writer.write(row)
    return len(rows)


def _stats_blocks(path: str) -> list[list[list[StyledText]]]:
    """The output of `rekord stats`, split at its blank lines."""
    from rekord.cli.stats import iter_stats_lines
    from rekord.health.stats.run import stats

    blocks: list[list[list[StyledText]]] = [[]]
    for line in iter_stats_lines(stats(path), _TABLE_WIDTH):
        if line:
            blocks[-1].append(line)
        else:
            blocks.append([])
    return blocks


def _is_essential(line: list[StyledText]) -> bool:
    """Whether a line of the doctor is a title, a location, a cause, or advice."""
    label = line[1][0].strip() if len(line) > 1 and isinstance(line[1], tuple) else None
    if label is None:
        return bool(line) and not str(line[0]).startswith("next:")
    return label.startswith(_SHOWN_DOCTOR_LABELS)


@with_options
def demo(
    folder: str | None = argument(
        "[DIR]", "New or empty folder to keep the data in. Default: a temporary folder.", default=None
    ),
    no_train: bool = flag_option("--no-train", "Skip the training at the end."),
    as_json: bool = JSON_OPTION,
) -> int:
    """Take a short tour on generated data. Writes, checks, damages, diagnoses, repairs, reads, and trains a model."""
    began = time.perf_counter()
    kept = (
        f"the data is in {shlex.quote(escape_controls(folder))}"
        if folder
        else "the data was deleted; `rekord demo DIR` keeps it"
    )
    try:
        with _open_folder(folder) as place, _change_folder(place), console.narrate() if as_json else nullcontext():
            tour = DemoTour(place=place, train=not no_train)
            for step in STEPS:
                step(tour)
    except KeyboardInterrupt:
        console.print_interrupt(f"interrupted: {kept}", as_json=as_json)
        return 130
    if as_json:
        seconds = round(time.perf_counter() - began, 3)
        console.print_json({"folder": folder, "steps": tour.steps, "seconds": seconds})
        return 0
    console.print_line()
    console.print_line(f"done in {format_duration(time.perf_counter() - began)}: {kept}")
    return 0


@contextmanager
def _open_folder(folder: str | None) -> Iterator[str]:
    if folder is None:
        with _make_temporary_folder() as place:
            yield place
        return
    from rekord.storage.local import LOCAL

    if os.path.lexists(folder):
        _check_empty(folder)
    LOCAL.make_folder(folder)
    yield folder


@contextmanager
def _change_folder(place: str) -> Iterator[None]:
    """Work in a folder, so that the paths in commands and messages are short."""
    try:
        before = os.getcwd()
    except OSError:  # the working directory was deleted
        before = os.path.abspath(os.sep)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def _make_temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="rekord-demo-")
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error("X504", "cannot create a temporary folder", found=found, do="rekord demo DIR") from failure


def _check_empty(folder: str) -> None:
    from rekord.storage.local import LOCAL

    if LOCAL.stat(folder).kind != "folder":
        found = "not a folder"
    elif names := LOCAL.list(folder):
        found = f"a folder with {format_count(len(names), 'name')} in it"
    else:
        return
    raise error(
        "U605",
        "the demo needs an empty folder",
        location=Location(path=folder),
        expected="a folder that is empty or does not exist",
        found=found,
        do="rekord demo      (uses a temporary folder)",
    )

"""Whether the model waited for its data, and what is said to do about it."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames
from rekord.training.advice import (
    InputFacts,
    advise,
    collect_input_facts,
    describe_bottleneck,
    format_percent,
    is_bottleneck,
)
from rekord.training.result import EpochResult
from rekord.training.task import InputColumn, Task

IMAGES = Task("classification", (InputColumn("image", "image"),), "label", ("cat", "dog"))


def epochs(waited_share: float) -> list[EpochResult]:
    return [EpochResult(n, 1.0, 0.5, None, None, 10, 400, 400, 2.0, 2 * waited_share) for n in (1, 2)]


def advice(
    known: InputFacts, waited_share: float = 0.5, *, batch_size: int = 32, threads: int | None = None
) -> list[str]:
    given = epochs(waited_share)
    return list(advise(known, path="data/flowers", epochs=given, batch_size=batch_size, threads=threads))


def written(tmp_path: Path, *, side: int = 48, compression: str | None = None, blob_bytes: int = 10) -> Path:
    rng = np.random.default_rng(0)
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(["cat", "dog"]), "blob": rk.Bytes()})
    rows = [
        {
            "image": rng.integers(0, 256, (side, side + 16, 3)).astype(np.uint8),
            "label": i % 2,
            "blob": bytes(blob_bytes),
        }
        for i in range(20)
    ]
    path = tmp_path / "data"
    rk.write(rows, path, schema=schema, compression=compression, progress=False, workers=1)
    return path


def test_up_to_a_fifth_of_waiting_nothing_is_advised() -> None:
    slow = InputFacts(compression="gzip", remote=True, stored_size=(2000, 2000), wanted_size=(32, 32), cores=64)
    assert advice(slow, 0.2) == []
    assert len(advice(slow, 0.21)) > 0
    assert (is_bottleneck(0.2), is_bottleneck(0.21)) == (False, True)


def test_the_verdict_says_which_of_the_two_is_slower() -> None:
    assert describe_bottleneck(0.03) == "waited for data 3 % of the time: the model is the bottleneck"
    assert describe_bottleneck(0.41) == "waited for data 41 % of the time: the input is the bottleneck"


def test_of_a_run_too_short_to_be_timed_nothing_is_said() -> None:
    assert describe_bottleneck(None) == "too few steps to measure the time spent waiting for data"
    assert (is_bottleneck(None), format_percent(None)) == (False, "–")


@pytest.mark.parametrize(("share", "said"), [(0.0, "0 %"), (0.001, "<1 %"), (0.034, "3 %"), (1.0, "100 %")])
def test_a_share_is_said_in_percent_and_little_is_not_nothing(share: float, said: str) -> None:
    assert format_percent(share) == said


def test_what_helps_most_comes_first_each_with_what_to_type() -> None:
    known = InputFacts(
        compression="gzip",
        remote=True,
        stored_size=(480, 640),
        wanted_size=(96, 128),
        used_columns=("image", "label"),
        used_bytes=20_000,
        unused_bytes=80_000,
        cores=16,
    )
    told = advice(known, batch_size=4, threads=2)
    assert [line.split(":")[0] for line in told] == [
        "the data is read over the network",
        "the images have 480×640 pixels, the model uses 96×128",
        "the files are compressed with gzip, and shuffling decompresses them in blocks",
        "80 % of each record is in unused columns, which are read as well",
        "2 of 16 cores read and decode",
        "batches of 4 records have a high overhead per record",
    ]
    assert told[1].endswith(": rekord write data/flowers flowers-96x128 --resize 96x128")
    assert told[2].endswith(": rekord rewrite data/flowers flowers-plain --compression none")
    assert told[3].endswith(": rekord rewrite data/flowers flowers-used --keep image,label")
    assert "--threads 16" in told[4]
    assert told[5].endswith(": --batch-size 32")


@pytest.mark.parametrize(
    "known",
    [
        InputFacts(stored_size=(96, 96), wanted_size=(64, 64), used_bytes=5_000, unused_bytes=4_000),
        InputFacts(used_bytes=10, unused_bytes=900),
        InputFacts(stored_size=(480, 640)),
    ],
    ids=["somewhat larger", "little in all", "no size is wanted"],
)
def test_where_nothing_stands_out_the_model_is_simply_fast(known: InputFacts) -> None:
    (line,) = advice(known)
    assert line == (
        "nothing to improve in the data: a model this small is fast (400 records per second), and a larger one "
        "waits less"
    )


def test_facts_are_those_of_the_files_and_the_first_records(tmp_path: Path) -> None:
    path = written(tmp_path, compression="gzip", blob_bytes=50_000)
    found = collect_input_facts(rk.open(path)["train"], IMAGES, (16, 24))
    assert (found.compression, found.remote) == ("gzip", False)
    assert (found.stored_size, found.wanted_size) == ((48, 64), (16, 24))
    assert (found.used_columns, found.unused_bytes) == (("image", "label"), 50_000)
    assert 0 < found.used_bytes < 50_000
    assert found.cores >= 1


def test_numbers_have_no_size_of_images(tmp_path: Path) -> None:
    rk.write({"x": np.arange(6.0), "y": np.arange(6)}, tmp_path / "data", progress=False, workers=1)
    task = Task("regression", (InputColumn("x", "numbers"),), "y")
    found = collect_input_facts(rk.open(tmp_path / "data")["train"], task, None)
    assert (found.stored_size, found.wanted_size, found.unused_bytes) == (None, None, 0)


def test_what_cannot_be_read_is_not_known_and_breaks_nothing(put_file) -> None:
    data = frames([example_bytes({"image": [b"x"], "label": [i]}) for i in range(3)])
    damaged = put_file(corrupt_payload(data, 0))
    schema = rk.Schema({"image": rk.Bytes(), "label": rk.Int64()})
    found = collect_input_facts(rk.open(damaged, schema)["all"], IMAGES, (16, 16))
    assert (found.stored_size, found.used_bytes, found.compression) == (None, 0, "none")


def test_the_commands_that_are_advised_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, compression="gzip", blob_bytes=50_000)
    known = collect_input_facts(rk.open("data")["train"], IMAGES, (16, 16))
    told = advise(known, path="data", epochs=epochs(0.9), batch_size=32, threads=known.cores)
    commands = [shlex.split(line.split(": rekord ")[1]) for line in told]
    assert [words[2] for words in commands] == ["data-16x16", "data-plain", "data-used"]
    for words in commands:
        assert run_command_line([*words, "--workers", "1"]) == 0
    assert collect_input_facts(rk.open("data-16x16")["train"], IMAGES, (16, 16)).stored_size == (16, 16)
    assert collect_input_facts(rk.open("data-plain")["train"], IMAGES, None).compression == "none"
    assert collect_input_facts(rk.open("data-used")["train"], IMAGES, None).unused_bytes == 0

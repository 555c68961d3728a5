"""Folders and lists of video: files as they are, frames as steps or tensors, clips, times, and bad files."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.sources import video_frames
from rekord.sources.detect import detect_source, identify_source

pytest.importorskip("av")
from media_files import put_video, rotate_mp4, video_bytes
from PIL import Image


def rows_of(source: Any) -> list[Any]:
    """All rows, read the way a worker reads them: from a pickled source and pickled parts."""
    parts = pickle.loads(pickle.dumps(source.parts(4000)))
    far = pickle.loads(pickle.dumps(source))
    return [row for part in parts for row in far.read(part)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes; ten frames a second."""
    put_video(tmp_path / "data" / "jump" / "1.mp4", 10)
    put_video(tmp_path / "data" / "run" / "2.avi", 7)
    return tmp_path / "data"


def grey(image: Any) -> int:
    """The number of a frame, from its grey level."""
    pixels = np.asarray(Image.open(io.BytesIO(image))) if isinstance(image, bytes) else image
    return round(float(pixels.mean()) / 20)


def test_files_are_stored_unchanged(folder: Path, tmp_path: Path) -> None:
    dataset = rk.write(folder, tmp_path / "out", progress=False)
    columns = ["filename", "format", "height", "width", "frame_rate", "duration", "label"]
    assert [tuple(row[name] for name in columns) for row in dataset["train"]] == [
        ("jump/1.mp4", "mp4", 32, 48, 10.0, 1.0, 0),
        ("run/2.avi", "avi", 32, 48, 10.0, pytest.approx(0.7), 1),
    ]
    assert [row["video"] for row in dataset["train"]] == [path.read_bytes() for path in sorted(folder.glob("*/*"))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"every": 4}, [[0, 4, 8], [0, 4]]),
        ({"fps": 5}, [[0, 2, 4, 6, 8], [0, 2, 4, 6]]),
        ({"fps": 2.5}, [[0, 4, 8], [0, 4]]),
        ({"fps": 20}, [[i // 2 for i in range(19)], [i // 2 for i in range(13)]]),
        ({"clips": 4}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3], [4, 5, 6]]),
        ({"clips": 4, "remainder": "drop"}, [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]),
        ({"clips": 2, "every": 3}, [[0, 3], [6, 9], [0, 3], [6]]),
    ],
    ids=str,
)
def test_frames_are_chosen_by_number_or_by_time(
    folder: Path, tmp_path: Path, options: dict[str, Any], expected: list[list[int]]
) -> None:
    dataset = rk.write(rk.sources.video_folder(folder, frames="png", **options), tmp_path / "out", progress=False)
    rows = list(dataset["train"])
    assert [[grey(image) for image in row["image"]] for row in rows] == expected
    if "fps" not in options:
        assert [[round(time / 1e5) for time in row["timestamp"]] for row in rows] == expected
    assert dataset.schema.is_sequence
    assert {row["format"] for row in rows} == {"PNG"}


def test_times_of_a_rate_are_those_of_the_rate(folder: Path) -> None:
    first, _ = rows_of(rk.sources.video_folder(folder, fps=4))
    assert first.values["timestamp"] == [0, 250_000, 500_000, 750_000]


def test_a_variable_frame_rate_is_followed_by_time(tmp_path: Path) -> None:
    put_video(tmp_path / "1.mkv", 4, times=[0, 100, 1000, 1100], codec="ffv1")
    (every,) = rows_of(rk.sources.video_folder(tmp_path, every=1))
    assert every.values["timestamp"] == [0, 100_000, 1_000_000, 1_100_000]
    (steady,) = rows_of(rk.sources.video_folder(tmp_path, fps=2))
    assert [grey(bytes(image)) for image in steady.values["image"]] == [0, 1, 2]


def test_a_time_that_is_far_away_repeats_no_frame_for_ever(tmp_path: Path) -> None:
    put_video(tmp_path / "1.mkv", 2, times=[0, 10_000_000], codec="ffv1")
    (row,) = rows_of(rk.sources.video_folder(tmp_path, fps=2))
    assert (row.values.code, row.values.found) == ("E345", "10,000 seconds")


def test_a_tensor_has_the_size_of_the_first_video(folder: Path, tmp_path: Path) -> None:
    source = rk.sources.video_folder(folder, clips=4, remainder="drop", frames="tensor")
    dataset = rk.write(source, tmp_path / "out", progress=False)
    assert dataset.schema["video"] == rk.Tensor("uint8", (4, 32, 48, 3), key="video/frames")
    batch = dataset["train"].batches(3).peek()
    assert batch["video"].shape == (3, 4, 32, 48, 3)
    assert [[grey(frame) for frame in clip] for clip in batch["video"]] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert batch["clip"].tolist() == [0, 1, 0]
    (guess,) = source.facts().guesses
    assert "32 × 48" in guess.what
    put_video(folder / "run" / "3.mp4", 4, size=(16, 16))
    errors = [row.values for row in rows_of(source) if isinstance(row.values, RekordError)]
    assert errors == []  # frames of another video are compared with its own first
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(source, tmp_path / "other", progress=False)
    assert caught.value.location.path == str(folder / "run" / "3.mp4")
    sized = rk.sources.video_folder(folder, every=5, frames="tensor", frame_size=(8, 8))
    assert rk.write(sized, tmp_path / "sized", progress=False).records == 3


def test_frames_are_turned_and_resized(tmp_path: Path) -> None:
    (tmp_path / "1.mp4").write_bytes(rotate_mp4(video_bytes("mp4", 2), 90))
    (row,) = rows_of(rk.sources.video_folder(tmp_path, every=1, frames="png"))
    assert (row.values["height"], row.values["width"]) == (48, 32)
    assert Image.open(io.BytesIO(row.values["image"][0])).size == (32, 48)
    (row,) = rows_of(rk.sources.video_folder(tmp_path, every=1, frame_size=(10, 20)))
    assert Image.open(io.BytesIO(row.values["image"][0])).size == (20, 10)
    assert row.values["format"] == "JPEG"


def test_bad_files_are_bad_rows_after_the_clips_before_the_damage(folder: Path, tmp_path: Path) -> None:
    (folder / "run" / "3.mp4").write_bytes(video_bytes("mp4", 10)[:900])
    (folder / "run" / "4.mp4").write_bytes(b"#EXTM3U\n")
    (folder / "run" / "5.avi").write_bytes(b"")
    (folder / "run" / "6.wmv").write_bytes(b"\x30\x26\xb2\x75")
    source = rk.sources.video_folder(folder, clips=5)
    dataset = rk.write(source, tmp_path / "out", progress=False, on_bad_row="reject", max_rejects=4)
    assert dataset.records == 4
    lines = (tmp_path / "out" / ".rekord" / "rejects.jsonl").read_text().splitlines()
    found = [(os.path.basename(one["origin"]["path"]), one["code"]) for one in map(json.loads, lines)]
    assert found == [("3.mp4", "E345"), ("4.mp4", "E344"), ("5.avi", "E344"), ("6.wmv", "E344")]


def test_a_row_holds_a_bounded_number_of_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video_frames, "MAX_ROW_BYTES", 6 * 32 * 48 * 3)
    first, second = rows_of(rk.sources.video_folder(folder, every=1, frames="tensor"))
    assert first.values.code == second.values.code == "E347"
    rows = rows_of(rk.sources.video_folder(folder, clips=5, frames="tensor"))
    assert [len(row.values["video"]) for row in rows] == [5, 5, 5, 2]


def test_lists_give_classes_and_clips(folder: Path, tmp_path: Path) -> None:
    for name in ("jump/1.mp4", "run/2.avi"):
        os.replace(folder / name, folder / os.path.basename(name))
    for place in ("jump", "run"):
        os.rmdir(folder / place)
    (folder / "list.csv").write_text("video,label,split\n1.mp4,a,train\n2.avi,b,val\n")
    assert identify_source(folder).kind == "video_csv"
    source = rk.sources.video_csv(folder / "list.csv", clips=5)
    assert [
        (row.values["filename"], row.values["clip"], row.values["label"], row.line) for row in rows_of(source)
    ] == [
        ("1.mp4", 0, "a", 2),
        ("1.mp4", 1, "a", 2),
        ("2.avi", 0, "b", 3),
        ("2.avi", 1, "b", 3),
    ]
    dataset = rk.write(source, tmp_path / "out", split="source", progress=False)
    assert {name: split.records if hasattr(split, "records") else len(split) for name, split in dataset.items()} == {
        "train": 2,
        "val": 2,
    }
    plain = rk.write(folder, tmp_path / "plain", progress=False)
    assert plain.schema["label"] == rk.Label(["a", "b"], key="clip/label/index")


@pytest.mark.parametrize(
    "options",
    [
        {"every": 2, "fps": 2},
        {"every": 0},
        {"fps": 0},
        {"fps": "2"},
        {"clips": 0},
        {"frames": "png"},
        {"frame_size": (8, 8)},
        {"remainder": "drop"},
        {"every": 1, "frames": "gif"},
        {"every": 1, "frame_size": 8},
        {"every": 1, "frame_size": (0, 8)},
        {"every": 1, "quality": 101},
    ],
    ids=str,
)
def test_options_that_exclude_each_other_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.sources.video_folder(tmp_path, **options)
    assert caught.value.code == "U605"


def test_a_single_film_is_a_source(folder: Path) -> None:
    source = detect_source(folder / "jump" / "1.mp4")
    assert source.kind == "video_folder"
    (row,) = rows_of(source)
    assert (row.path, row.values["width"]) == ("1.mp4", 48)


def test_a_folder_without_video_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RekordError) as caught:
        rk.sources.video_folder(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X580", str(tmp_path))


def test_the_number_of_workers_changes_no_byte(folder: Path, tmp_path: Path) -> None:
    source = rk.sources.video_folder(folder, clips=2)
    for workers in (1, 2):
        rk.write(source, tmp_path / str(workers), progress=False, workers=workers, shuffle=True)
    name = "train-00000-of-00001.tfrecord"
    assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()

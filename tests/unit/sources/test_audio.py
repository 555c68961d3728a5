"""Folders and lists of audio: rows, classes, splits, transcripts, bad files, and what the detection says."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.sources.detect import detect_source, identify_source

pytest.importorskip("soundfile")
from media_files import audio_bytes, put_audio


def rows_of(source: Any) -> list[Any]:
    """All rows, read the way a worker reads them: from a pickled source and pickled parts."""
    parts = pickle.loads(pickle.dumps(source.parts(4000)))
    far = pickle.loads(pickle.dumps(source))
    return [row for part in parts for row in far.read(part)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, four formats."""
    put_audio(tmp_path / "data" / "cat" / "1.wav", 1600)
    put_audio(tmp_path / "data" / "cat" / "2.flac", 3200, rate=8000, channels=2)
    put_audio(tmp_path / "data" / "dog" / "3.ogg", 1600)
    put_audio(tmp_path / "data" / "dog" / "4.mp3", 1600)
    (tmp_path / "data" / "README.txt").write_text("sounds")
    return tmp_path / "data"


def test_each_file_is_a_row_with_the_facts_of_its_header(folder: Path, tmp_path: Path) -> None:
    dataset = rk.write(folder, tmp_path / "out", progress=False)
    columns = ["filename", "format", "rate", "channels", "samples", "label"]
    assert [tuple(row[name] for name in columns) for row in dataset["train"]] == [
        ("cat/1.wav", "wav", 16_000, 1, 1600, 0),
        ("cat/2.flac", "flac", 8000, 2, 3200, 0),
        ("dog/3.ogg", "ogg", 16_000, 1, 1600, 1),
        ("dog/4.mp3", "mp3", 16_000, 1, 1600, 1),
    ]
    assert [row["audio"] for row in dataset["train"]] == [path.read_bytes() for path in sorted(folder.glob("*/*"))]
    assert dataset["train"][1]["duration"] == pytest.approx(0.4)
    assert dataset.schema["label"] == rk.Label(["cat", "dog"], key="audio/class/label")
    assert dataset.schema["audio"] == rk.Audio(key="audio/encoded")
    remarks = (tmp_path / "out" / ".rekord" / "remarks.jsonl").read_text()
    assert "H847" in remarks
    assert "2.flac has 2 channels" in remarks


def test_rates_that_differ_are_reported(folder: Path) -> None:
    (guess,) = rk.sources.audio_folder(folder).facts().guesses
    assert guess.what.startswith("rates differ: 16,000 Hz in 3, 8,000 Hz in 1 of 4 files")
    assert guess.do == "transforms=rk.transforms.resample(16000)"


def test_folders_of_splits_are_splits(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a"):
        put_audio(tmp_path / place / "1.wav", 100)
    source = rk.sources.audio_folder(tmp_path)
    assert source.facts().splits == ("train", "test")
    assert [(row.values["split"], row.values["label"]) for row in rows_of(source)] == [
        ("test", "a"),
        ("train", "a"),
        ("train", "b"),
    ]


def test_a_flat_folder_and_a_single_file_have_no_labels(tmp_path: Path) -> None:
    path = put_audio(tmp_path / "1.wav", 100)
    for place in (tmp_path, path):
        source = detect_source(place)
        assert source.kind == "audio_folder"
        (row,) = rows_of(source)
        assert (row.path, "label" in row.values) == ("1.wav", False)


def test_bad_files_are_bad_rows(folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "5.wav").write_bytes(b"")
    (folder / "cat" / "6.wav").write_bytes(audio_bytes("wav", 4000)[:3000])
    (folder / "cat" / "7.wav").write_bytes(b"not audio")
    (folder / "dog" / "8.m4a").write_bytes(b"\0\0\0\x18ftypM4A " + bytes(12))
    (folder / "dog" / "9.wav").write_bytes(audio_bytes("flac", 100))
    dataset = rk.write(folder, tmp_path / "out", progress=False, on_bad_row="reject", max_rejects=4)
    assert dataset.records == 5
    rejects = (tmp_path / "out" / ".rekord" / "rejects.jsonl").read_text().splitlines()

    found = [(os.path.basename(one["origin"]["path"]), one["code"]) for one in map(json.loads, rejects)]
    assert found == [("5.wav", "E341"), ("6.wav", "E342"), ("7.wav", "E341"), ("8.m4a", "E341")]
    assert "H848" in (tmp_path / "out" / ".rekord" / "remarks.jsonl").read_text()


def test_a_folder_without_audio_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(RekordError) as caught:
        rk.sources.audio_folder(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X580", str(tmp_path))


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    for number in range(4):
        put_audio(tmp_path / "wavs" / f"{number}.wav", 100 + number)
    return tmp_path


def test_a_list_gives_classes(listed: Path, tmp_path: Path) -> None:
    path = listed / "meta.csv"
    path.write_text("file,category,fold\n0.wav,rain,1\n1.wav,rain,2\n2.wav,wind,1\n3.wav,wind,1\n")
    found = identify_source(listed)
    assert (found.kind, found.path) == ("audio_csv", str(path))
    dataset = rk.write(listed, tmp_path / "out", progress=False)
    assert [(row["filename"], row["samples"], row["label"]) for row in dataset["train"]] == [
        ("wavs/0.wav", 100, 0),
        ("wavs/1.wav", 101, 0),
        ("wavs/2.wav", 102, 1),
        ("wavs/3.wav", 103, 1),
    ]
    assert identify_source(path).kind == "audio_csv"


def test_a_list_gives_transcripts_and_names_may_lack_extensions(listed: Path) -> None:
    path = listed / "meta.tsv"
    path.write_text("id\tsentence\n0\tone word\n1\ttwo words\n")
    source = rk.sources.audio_csv(path)
    assert [(row.values["text"], row.values["samples"]) for row in rows_of(source)] == [
        ("one word", 100),
        ("two words", 101),
    ]
    assert source.facts().schema["text"] == rk.Text()


def test_bad_lines_of_a_list_are_bad_rows(listed: Path) -> None:
    (listed / "wavs" / "1.wav").write_bytes(b"text")
    path = listed / "meta.csv"
    path.write_text("audio,label\n0.wav,a\n1.wav,a\n9.wav,b\n2.wav,\n0.wav,a\n")
    found = [
        (row.values.code, row.values.location.line, row.values.location.feature)
        for row in rows_of(rk.sources.audio_csv(path))
        if isinstance(row.values, RekordError)
    ]
    assert found == [("E341", None, "audio"), ("E360", 4, "audio"), ("E361", 5, "label"), ("E362", 6, "audio")]


def test_a_list_next_to_class_folders_is_a_question(folder: Path) -> None:
    (folder / "list.csv").write_text("file,label\ncat/1.wav,loud\ndog/3.ogg,quiet\ncat/2.flac,quiet\n")
    with pytest.raises(RekordError) as caught:
        identify_source(folder)
    assert caught.value.code == "U621"
    assert "a list of audio files, and folders like classes" in str(caught.value)


def test_audio_next_to_other_data_is_a_question(folder: Path) -> None:
    for number in range(3):
        (folder / f"{number}.mp4").write_bytes(b"x")
    with pytest.raises(RekordError) as caught:
        identify_source(folder)
    assert (caught.value.code, caught.value.location.path) == ("U621", str(folder))
    assert "3 .mp4" in str(caught.value)


def test_lists_of_images_are_still_lists_of_images(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "l.csv").write_text("path,label\na.png,x\nb.png,y\n")
    assert identify_source(tmp_path / "l.csv").kind == "image_csv"


def test_paths_in_a_table_are_files_if_they_are_declared(listed: Path, tmp_path: Path) -> None:
    (listed / "t.csv").write_text("clip,score\nwavs/0.wav,0.5\nwavs/1.wav,1.5\n")
    columns = {"clip": rk.Audio(format="pcm16", rate=16_000)}
    dataset = rk.write(rk.sources.csv(listed / "t.csv"), tmp_path / "out", columns=columns, progress=False)
    assert [row["clip"].shape for row in dataset["train"]] == [(100,), (101,)]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_byte(folder: Path, tmp_path: Path, workers: int) -> None:
    for number in range(40):
        put_audio(folder / "cat" / f"more{number}.wav", 200 + number)
    rk.write(folder, tmp_path / "a", progress=False, workers=workers, shuffle=True)
    rk.write(folder, tmp_path / "b", progress=False, workers=1, shuffle=True)
    name = "train-00000-of-00001.tfrecord"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

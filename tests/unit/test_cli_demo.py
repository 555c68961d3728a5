"""`rekord demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

import rekord as rk
from rekord.cli import demo
from rekord.cli.main import run


def test_the_tour_keeps_its_data_in_a_folder_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "new" / "demo"
    assert run(["demo", str(place)]) == 0
    text = capsys.readouterr().out
    for step in range(1, len(demo.STEPS) + 1):
        assert f"{step}. " in text
    assert f"$ rekord write {place}/photos {place}/dataset --split train=0.9,val=0.1\n" in text
    assert f"{place}/dataset: 120 records, " in text
    assert f"$ rekord check {place}/dataset\nall good · 2 files · 120 records" in text
    assert f"$ rekord stats {place}/dataset\n{place}/dataset · 120 records · 9 features · 2 files" in text
    assert "compared with train: " in text
    assert f"$ rekord doctor {place}/shapes-broken\nH804  bytes were changed after writing\n" in text
    assert "\n  tf says   corrupted record at 9689\n" in text
    assert "\nH805  the writer never finished the file\n" in text
    assert f"$ rekord salvage {place}/shapes-broken {place}/shapes-repaired\nF102  " in text
    assert f"kept 398 records · lost an unknown number · 2 gaps · wrote {place}/shapes-repaired/\n" in text
    assert "398 of 398 are byte for byte what was written" in text
    assert f"$ rekord check {place}/shapes-repaired\nall good · 4 files · 398 records" in text
    assert rk.check(place / "shapes").ok
    broken = rk.check(place / "shapes-broken")
    assert [(each.code, each.record) for each in broken.findings] == [("F102", 42), ("F104", 99)]


def test_the_steps_of_the_tour_are_apart_and_nothing_else_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr()
    assert "\n\n\n" not in printed.out
    assert "\x1b" not in printed.out
    # `write` alone says on stderr what it is about to do.
    assert [line.split()[0] for line in printed.err.splitlines()] == [
        "source:",
        "forecast:",
        "of",
        "reading",
        "writing",
    ]


def test_the_data_is_always_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert run(["demo", str(tmp_path / name)]) == 0
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.tfrecord"))
    assert len(files) == 14
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


def test_without_a_folder_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["demo"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "the data is gone again" in capsys.readouterr().out


@pytest.mark.parametrize("taken", ["file", "folder"])
def test_a_place_that_is_taken_is_refused(
    taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    inside = place if taken == "file" else place / "precious"
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("mine")
    assert run(["demo", str(place)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("UsageError U605: the demo needs a folder of its own")
    assert f"where     {place}" in printed.err
    assert inside.read_text() == "mine"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert run(["demo", str(tmp_path)]) == 0


def test_a_place_that_cannot_be_made_is_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(["demo", str(tmp_path / "file" / "below")]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X504: ")

"""`rekord stats`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import messages
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames

Captured = pytest.CaptureFixture[str]


def put(folder: Path, rows: list[dict[str, Any]], name: str = "x.tfrecord") -> str:
    (folder / name).write_bytes(frames([example_bytes(row) for row in rows]))
    return str(folder / name)


def rows(number: int = 20) -> list[dict[str, Any]]:
    return [{"label": [i % 4 // 3], "score": [i / 2], "name": [b"row %d" % (i % 15)]} for i in range(number)]


def test_a_row_a_feature_and_the_classes_below(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, [*rows(), {"label": [0]}])
    assert run_command_line(["stats", path]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path} · 21 records · 3 features · 1 file · 1.1 kB",
        "",
        "feature  kind   missing  distinct  holds",
        "label    int64       0%         2  0..1",
        'name     bytes     4.8%        15  "row 0" 10%, 5 B..6 B',
        "score    float     4.8%        20  0..9.5, mean 4.75",
        "",
        "label: 2 classes, imbalance 3.2×",
        "  0  ████████████████████████           16     76%",
        "  1  ████████                            5     24%",
    ]


def test_lines_fit_eighty_columns_whatever_the_names(tmp_path: Path, capsys: Captured) -> None:
    long = "a/very/long/key/that/goes/on/and/on/for/ever"
    put(tmp_path, [{long: [i], "text": [b"w" * 90]} for i in range(9)], "train.tfrecord")
    put(tmp_path, [{long: [i + 90], "text": [b"v" * 90]} for i in range(9)], "val.tfrecord")
    assert run_command_line(["stats", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80


def test_nothing_steers_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, [{"a\x1b[31m\u202e": [b"\x1b[2J\n"]}] * 3)
    assert run_command_line(["stats", path]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_json_has_the_fields_that_were_promised(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["stats", put(tmp_path, rows()), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["records"] == 20
    label = document["features"]["label"]
    promised = [
        "kind",
        "present",
        "missing",
        "min",
        "max",
        "mean",
        "values_min",
        "values_max",
        "unique",
        "top",
    ]
    assert [label[name] for name in promised] == ["int64", 20, 0, 0, 1, 0.25, 1, 1, 2, [[0, 15], [1, 5]]]
    assert document["features"]["name"]["top"][0] == ["row 0", 2]
    assert document["damage"] == []


def test_images_have_a_summary(tmp_path: Path, capsys: Captured) -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "PNG")
    assert run_command_line(["stats", put(tmp_path, [{"image": [file.getvalue()]}] * 2)]) == 0
    out = capsys.readouterr().out
    assert "image: 2 images, png 100%\n  size      64×48 to 64×48, median 64×48\n  colours   rgb 100%\n" in out


def test_splits_that_differ_are_said_with_the_reason(tmp_path: Path, capsys: Captured) -> None:
    put(tmp_path, [{"x": [b"a"]}] * 90 + [{"x": [b"b"]}] * 10, "train.tfrecord")
    put(tmp_path, [{"x": [b"a"]}] * 20 + [{"x": [b"b"]}] * 80, "val.tfrecord")
    assert run_command_line(["stats", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "compared with train: no significant shift in 0 of 1 features",
        "  x  val  L∞ 0.700       differs  “a”: 90.0% vs 20.0%",
    ]
    assert any(line.split()[:3] == ["train", "100", "50%"] for line in lines)


def test_what_chance_explains_is_counted_and_not_listed(tmp_path: Path, capsys: Captured) -> None:
    for split in ("train", "test"):
        rows = [example_bytes({"text": [f"{split} {i}".encode()]}) for i in range(10)]
        (tmp_path / f"{split}.tfrecord").write_bytes(frames(rows))
    assert run_command_line(["stats", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "compared with train: no significant shift in 1 of 1 features"


def test_damage_is_exit_code_1_and_the_rest_is_described(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(corrupt_payload(frames([example_bytes(row) for row in rows()]), 7))
    assert run_command_line(["stats", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"{path} · 19 records" in out
    assert out.splitlines()[-3:] == [
        "damaged: 1 finding; these statistics cover what can be read",
        f"  F102  {path}, record 7: payload checksum does not match",
        f"next: rekord check {path}",
    ]
    assert run_command_line(["stats", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["damage"][0]["code"] == "F102"


def test_what_cannot_be_read_is_exit_code_3(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "text.tfrecord").write_bytes(b"this is no record file\n" * 9)
    assert run_command_line(["stats", str(tmp_path / "text.tfrecord")]) == 3
    assert capsys.readouterr().err.startswith("FrameError F118: ")
    assert run_command_line(["stats", str(tmp_path / "missing.tfrecord"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "X501"


def test_payloads_that_are_no_examples_are_said(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.tfrecord").write_bytes(frames([b"a line of text", b"and another"]))
    assert run_command_line(["stats", str(tmp_path / "x.tfrecord")]) == 0
    assert "not counted: 2 records (payloads are plain text)" in capsys.readouterr().out


def test_a_schema_names_classes(tmp_path: Path, capsys: Captured) -> None:
    rk.Schema({"label": rk.Label(["cat", "dog"])}).save(tmp_path / "schema.json")
    path = put(tmp_path, rows())
    assert run_command_line(["stats", path, "--schema", str(tmp_path / "schema.json")]) == 0
    assert "  cat  ████████████████████████           15     75%\n" in capsys.readouterr().out


def test_reports_are_written_beside_what_is_printed(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, rows())
    page, text, binary = (tmp_path / name for name in ("r.html", "s.pbtxt", "s.pb"))
    assert run_command_line(["stats", path, "--html", str(page), "--metadata", str(text)]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"saved to {page}\nsaved to {text}\n"
    assert printed.out.startswith(path)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert text.read_text().startswith("datasets {\n")
    assert run_command_line(["stats", path, "--metadata", str(binary)]) == 0
    assert 0 < len(binary.read_bytes()) < len(text.read_bytes())


def test_a_metadata_file_of_another_form_is_wrong_usage(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, rows())
    target = tmp_path / "stats.json"
    assert run_command_line(["stats", path, "--metadata", str(target)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("UsageError U605: cannot determine the format of the statistics from")
    assert f"where     {target}" in err
    assert not target.exists()


@pytest.mark.parametrize("option", ["--html", "--metadata"])
def test_a_report_never_takes_the_place_of_the_data(option: str, tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, rows(), "data.pb")
    before = Path(path).read_bytes()
    assert run_command_line(["stats", path, option, path]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"UsageError U631: `{option}` would replace a file that is in use\n")
    assert f"where     {path}" in err
    assert "found     the data\n" in err
    assert Path(path).read_bytes() == before


def test_two_reports_do_not_share_a_file(tmp_path: Path, capsys: Captured) -> None:
    target = str(tmp_path / "r.pb")
    assert run_command_line(["stats", put(tmp_path, rows()), "--html", target, "--metadata", target]) == 2
    assert "found     the file of the other report\n" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_exit_code_3(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["stats", put(tmp_path, rows()), "--html", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X504")


@pytest.mark.parametrize(("code", "options"), [("U605", "--metadata stats.json"), ("U631", "--html train.tfrecord")])
def test_the_example_on_the_page_is_what_is_said(
    code: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, rows(), "train.tfrecord")
    command = f"stats train.tfrecord {options}"
    assert run_command_line(command.split()) == 2
    assert f"$ rekord {command}\n{capsys.readouterr().err.rstrip()}" in messages(code)


def test_help_says_what_it_does(capsys: Captured) -> None:
    assert run_command_line(["stats", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: rekord stats PATH [OPTIONS]\n")


def test_the_reference_page_names_every_field(tmp_path: Path, capsys: Captured) -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "PNG")
    many = [{"x": [i], "f": [0.5], "image": [file.getvalue()], "label": [1]} for i in range(10_100)]
    assert run_command_line(["stats", put(tmp_path, many), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "stats.md").read_text(encoding="utf-8")
    fields = {name for feature in document["features"].values() for name in feature}
    assert {"top_most_missed", "images", "classes", "histogram"} <= fields
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []


def test_times_are_text_in_their_zone(tmp_path: Path, capsys: Captured) -> None:
    schema = rk.Schema({"at": rk.Timestamp("ms", tz="Europe/Berlin"), "n": rk.Int64()})
    made = [{"at": f"2026-01-{day:02d}T12:00:00Z", "n": day} for day in range(1, 12)]
    rk.write(made, tmp_path / "data", schema=schema, progress=False, workers=1)
    assert run_command_line(["stats", "--json", str(tmp_path / "data")]) == 0
    features = json.loads(capsys.readouterr().out)["features"]
    at = features["at"]
    assert (at["min"], at["mean"], at["max"]) == (
        "2026-01-01T12:00:00.000Z",
        "2026-01-06T12:00:00.000Z",
        "2026-01-11T12:00:00.000Z",
    )
    assert at["quantiles"]["0.5"] == "2026-01-06T12:00:00.000Z"
    assert ["2026-01-03T12:00:00.000Z", 1] in at["top"]
    assert (features["n"]["min"], features["n"]["mean"]) == (1, 6.0)
    page = tmp_path / "page.html"
    assert run_command_line(["stats", str(tmp_path / "data"), "--html", str(page)]) == 0
    assert "2026-01-01T12:00:00Z..2026-01-11T12:00:00Z" in capsys.readouterr().out
    ticks = int(np.datetime64("2026-01-01T12:00:00", "ms").astype(int))
    assert "2026-01-06T12:00:00Z" in page.read_text()
    assert f"{ticks:,}" not in page.read_text()
    assert f"{ticks:.4g}" not in page.read_text()

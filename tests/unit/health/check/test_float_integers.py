"""Image sizes and labels that are stored as floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.testing import example_bytes, frames, sequence_bytes


def found(folder: Path, payloads: list[bytes], schema: rk.Schema | None = None) -> list[tuple[Any, ...]]:
    path = folder / "x.tfrecord"
    path.write_bytes(frames(payloads))
    report = rk.check(path, schema)
    assert report.ok
    return [(one.feature, one.severity, one.record, one.count) for one in report.findings if one.code == "H836"]


@pytest.mark.parametrize("key", ["image/height", "image/width", "image/channels"])
def test_a_size_of_an_image_is_reported(tmp_path: Path, key: str) -> None:
    payloads = [example_bytes({key: [480.0], "x": [float(i)]}) for i in range(3)]
    assert found(tmp_path, payloads) == [(key, "warning", 0, 3)]


@pytest.mark.parametrize("key", ["label", "image/class/label", "category"])
def test_a_label_is_reported_once_there_is_evidence(tmp_path: Path, key: str) -> None:
    payloads = [example_bytes({key: [float(i % 3)], "x": [float(i)]}) for i in range(25)]
    assert found(tmp_path, payloads) == [(key, "warning", 0, 25)]
    assert found(tmp_path, payloads[:5]) == []


@pytest.mark.parametrize(
    "rows",
    [
        [{"image/height": [480]}] * 25,
        [{"image/height": [480.0]}] * 24 + [{"image/height": [480.5]}],
        [{"height": [180.0]}] * 5,  # of a person
        [{"label": [0.0, 1.0, 0.0]}] * 25,  # a vector
        [{"price": [3.0]}] * 25,
        [{"label": [float("nan")]}] * 25,
    ],
)
def test_integers_and_measurements_are_not_reported(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    payloads = [example_bytes({**row, "id": [i]}) for i, row in enumerate(rows)]
    assert found(tmp_path, payloads) == []


def test_a_declared_float_is_a_note(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Float32(), "id": rk.Int64()})
    payloads = [example_bytes({"label": [1.0], "id": [i]}) for i in range(25)]
    assert found(tmp_path, payloads, schema) == [("label", "note", 0, 25)]


def test_steps_are_checked_too(tmp_path: Path) -> None:
    payloads = [sequence_bytes({"id": [i]}, {"frame/height": [[4.0], [4.0]]}) for i in range(3)]
    assert found(tmp_path, payloads) == [("frame/height", "warning", 0, 3)]


def test_what_is_proposed_makes_them_integers(tmp_path: Path) -> None:
    payloads = [example_bytes({"image/height": [480.0], "x": [float(i)]}) for i in range(3)]
    (tmp_path / "x.tfrecord").write_bytes(frames(payloads))
    (finding,) = [one for one in rk.check(tmp_path / "x.tfrecord").findings if one.code == "H836"]
    assert finding.do == 'rk.rewrite(path, out, cast={"image/height": "int64"})'
    rk.rewrite(tmp_path / "x.tfrecord", tmp_path / "out", cast={"image/height": "int64"}, progress=False)
    assert [one for one in rk.check(tmp_path / "out").findings if one.code == "H836"] == []

"""KITTI folders: images with the boxes of their label files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.detect import identify_source

CAR = "Car 0.00 0 -1.57 4.5 2 14 8.25 1.57 1.73 4.15 1.00 1.75 13.22 -1.62"
TRAM = "Tram 0.00 3 1.85 0 0 20 10 3.0 2.5 20.0 -1.0 1.9 30.5 1.9 0.97"  # with a score
REGION = "DontCare -1 -1 -10 5 5 9 9 -1 -1 -1 -1000 -1000 -1000 -10"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As the archives of the benchmark unpack: two cameras, calibration, and test images without labels."""
    labels = {"000000": f"{CAR}\n{REGION}\n{TRAM}\n", "000001": ""}
    for folder in ("training/image_2", "training/label_2", "training/image_3", "training/calib", "testing/image_2"):
        (tmp_path / "kitti" / folder).mkdir(parents=True)
    for name, text in labels.items():
        (tmp_path / "kitti/training/label_2" / f"{name}.txt").write_text(text)
        (tmp_path / "kitti/training/calib" / f"{name}.txt").write_text("P0: 1 0 0\n")
        for folder in ("training/image_2", "training/image_3", "testing/image_2"):
            Image.new("RGB", (20, 10), "grey").save(tmp_path / "kitti" / folder / f"{name}.png")
    return tmp_path / "kitti"


def test_boxes_are_normalised_and_classes_numbered_from_1(root: Path, tmp_path: Path) -> None:
    data = rk.write(rk.sources.kitti(root), tmp_path / "out", workers=1, progress=False)
    first, second = list(data["train"])
    assert first["filename"] == "training/image_2/000000.png"
    assert first["class_names"] == ["Car", "Tram"]
    assert first["labels"].tolist() == [1, 2]
    np.testing.assert_allclose(first["boxes"], [[4.5 / 20, 0.2, 0.7, 0.825], [0, 0, 1, 1]], rtol=1e-6)
    assert second["labels"].tolist() == []
    assert data.records == 2


def test_a_folder_is_recognised_and_what_is_not_read_is_reported(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert identify_source(root).kind == "kitti"
    assert run_command_line(["write", str(root), str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["layout"] == "detection"
    assert list(document["splits"]) == ["train"]
    unused = " ".join(one["name"] for one in document["unused"])
    assert all(part in unused for part in ("training/image_3", "training/calib", "testing/image_2"))


def test_label_files_of_something_else_are_not_kitti(root: Path) -> None:
    for name in ("000000", "000001"):
        (root / "training/label_2" / f"{name}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    with pytest.raises(rk.UsageError) as refused:
        identify_source(root)
    assert refused.value.code == "U621"


def test_regions_that_are_not_objects_are_reported(root: Path) -> None:
    (guess,) = rk.sources.kitti(root).facts().guesses
    assert "DontCare" in guess.what


def test_a_label_map_gives_the_ids(root: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.pbtxt"
    names.write_text("item { id: 5 name: 'Car' } item { id: 7 name: 'Tram' }")
    data = rk.write(rk.sources.kitti(root, label_map=names), tmp_path / "out", workers=1, progress=False)
    assert data["train"][0]["labels"].tolist() == [5, 7]

"""What is said of defects in annotations that Datumaro reads: every cell of the table, and hostile files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources import annotation_scan, datumaro

sys.path.insert(0, str(Path(__file__).parent))
import layouts

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}


def cell(defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault(("datumaro", defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table: Any) -> None:
    assert defect_table("Annotations through Datumaro") == set(CELLS)


@pytest.mark.parametrize("defect", CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(defect: Any, place: Any, check_defect: Any) -> None:
    check_defect(defect[2], CELLS[defect](place))


def cvat(place: Any, **options: Any) -> Callable[[], Any]:
    layouts.cvat(place.root, **options)
    return lambda: rk.sources.datumaro(place.root, "cvat")


@cell("empty", "X590")
def _(place):
    make = cvat(place)
    return place.case(make, place.put("annotations.xml", ""))


@cell("empty", "X592")
def _(place):
    make = cvat(place)
    place.put("annotations.xml", layouts.CVAT_HEAD + '<image id="0" name="0.png"></image></annotations>')
    return place.case(make, place.root)


@cell("empty", "E330")
def _(place):
    make = cvat(place)
    return place.case(make, place.put("images/1.png", b""), feature="image", good=1)


@cell("truncated", "X590")
def _(place):
    make = cvat(place)
    return place.case(make, place.cut(place.root / "annotations.xml"))


@cell("truncated", "E331")
def _(place):
    make = cvat(place)
    return place.case(make, place.cut(place.root / "images/1.png"), feature="image", good=1)


@cell("wrong type", "X590")
def _(place):
    make = cvat(place)
    text = (place.root / "annotations.xml").read_text()
    return place.case(make, place.put("annotations.xml", text.replace('xtl="1"', 'xtl="left"')))


@cell("wrong type", "X591")
def _(place):
    make = cvat(place, head='<!DOCTYPE a [<!ENTITY a "b">]>')
    return place.case(make, place.root / "annotations.xml")


@cell("wrong type", "E321")
def _(place):
    make = cvat(place)
    return place.case(make, place.put("images/1.png", "a text"), feature="image", good=1)


@cell("missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.datumaro(place.root / "none", "cvat"), place.root / "none")


@cell("missing file", "E366")
def _(place):
    layouts.vott(place.root, "none.jpg")
    make = lambda: rk.sources.datumaro(place.root, "vott_json")  # noqa: E731
    return place.case(make, place.root / "none.jpg", good=1)


@cell("orphan", "X590")
def _(place):
    layouts.vott(place.root, "../../other/b.jpg")
    make = lambda: rk.sources.datumaro(place.root, "vott_json")  # noqa: E731
    return place.case(make, place.root / "train-export.json")


@cell("bad encoding", "X590")
def _(place):
    make = cvat(place)
    data = (place.root / "annotations.xml").read_bytes()
    return place.case(make, place.put("annotations.xml", data.replace(b">car<", b">caf\xe9<")))


@cell("unreadable", "X590")
def _(place):
    make = cvat(place)
    path = place.root / "annotations.xml"
    path.unlink()
    path.mkdir()
    return place.case(make, path)


@cell("too large", "X591")
def _(place):
    make = cvat(place)
    place.patch.setattr(annotation_scan, "MAX_JSON_BYTES", 64)
    return place.case(make, place.root / "annotations.xml")


@cell("too large", "E327")
def _(place):
    make = cvat(place)
    return place.case(make, place.huge(place.root / "images/1.png"), feature="image", good=1)


# Hostile files.


def refusal(source: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        source.facts()
    return caught.value


def test_a_pickle_that_runs_code_does_not_run_it(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    root = tmp_path / "data"
    root.mkdir()
    layouts.cifar(root)
    (root / "data_batch_1").write_bytes(pickle.dumps({"labels": [1], "filenames": ["a.png"], "data": Evil()}))
    failure = refusal(rk.sources.datumaro(root, "cifar"))
    assert (failure.code, failure.location.path) == ("X591", str(root / "data_batch_1"))
    assert not (tmp_path / "pwned").exists()


def test_plugins_in_the_data_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.label_me(tmp_path)
    for name in ("datumaro.py", "cv2.py", "plugins/evil.py", "sitecustomize.py"):
        layouts.put(tmp_path / name, f"open({str(tmp_path / 'pwned')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert rk.sources.datumaro(tmp_path).facts().rows == 1
    assert not (tmp_path / "pwned").exists()


def test_a_path_to_a_file_outside_is_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (20, 10)).save(secret)
    root = tmp_path / "data"
    layouts.vott(root, "../secret.png")
    failure = refusal(rk.sources.datumaro(root, "vott_json"))
    assert (failure.code, failure.location.path) == ("X590", str(root / "train-export.json"))
    assert "not allowed to reference the parent directory" in str(failure.found)


def test_a_mask_that_claims_a_vast_image_is_a_bad_row(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10)).save(tmp_path / "a.jpg")
    Image.new("RGB", (20, 10)).save(tmp_path / "b.jpg")
    size = [1 << 20, 1 << 20]
    annotation = {
        "id": 1,
        "bbox": [1, 1, 5, 5],
        "area": 25,
        "predicted_iou": 1.0,
        "stability_score": 1.0,
        "point_coords": [[1, 1]],
        "crop_box": [0, 0, 20, 10],
    }
    for i, (name, counts, claimed) in enumerate([("a", "PPXQ1", size), ("b", "X6", [10, 20])], 1):
        document = {
            "image": {"image_id": i, "width": 20, "height": 10, "file_name": f"{name}.jpg"},
            "annotations": [{**annotation, "segmentation": {"size": claimed, "counts": counts}}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    source = rk.sources.datumaro(tmp_path, "segment_anything", masks=True)
    source.facts()
    rows = {row.path: row.values for part in source.parts() for row in source.read(part)}
    assert rows["a.jpg"].code == "E390"


def test_the_limits_of_memory_end_in_an_error_and_not_in_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.mnist(tmp_path)
    monkeypatch.setattr(datumaro_module(), "_BASE_MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(datumaro_module(), "_MEMORY_PER_BYTE", 0)
    failure = refusal(rk.sources.datumaro(tmp_path, "mnist"))
    assert failure.code == "X590"
    assert failure.do


def datumaro_module() -> Any:
    assert datumaro is rk.sources.datumaro
    return sys.modules["rekord.sources.datumaro"]


def test_a_reader_that_is_killed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.label_me(tmp_path)
    real = subprocess.run

    def killed(command: Any, **options: Any) -> Any:
        return real([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], **options)

    monkeypatch.setattr(datumaro_module().subprocess, "run", killed)
    failure = refusal(rk.sources.datumaro(tmp_path, "label_me"))
    assert (failure.code, failure.found) == ("X590", "the process was ended by SIGKILL")


def test_names_of_formats_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layouts.label_me(tmp_path / "data")
    out = str(tmp_path / "out")
    for name in ("nonsense", "image_zip"):
        assert run_command_line(["write", str(tmp_path / "data"), out, "--annotation-format", name]) == 2
        printed = capsys.readouterr().err
        assert "Error U605" in printed
        assert "Traceback" not in printed


def test_a_failed_reading_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    layouts.cvat(tmp_path / "data")
    (tmp_path / "data/annotations.xml").write_text("<annotations>")
    assert refusal(rk.sources.datumaro(tmp_path / "data", "cvat")).code == "X590"
    assert list(place.iterdir()) == []

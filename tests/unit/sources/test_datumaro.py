"""Annotations in formats of Datumaro, where Datumaro is not installed; and what is checked before it sees a file."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources import annotation_scan
from rekord.sources.annotation_scan import scan_folder
from rekord.sources.datumaro import DatumaroSource, is_datumaro_installed
from rekord.sources.datumaro_reader import ReadingReport
from rekord.sources.detect import identify_source
from rekord.sources.image_folder import is_image_name

pytestmark = pytest.mark.skipif(is_datumaro_installed(), reason="these are the messages without Datumaro")

IMAGE = b"an image"
CVAT = '<annotations><version>1.1</version><meta></meta><image id="0" name="0.jpg"></image></annotations>'


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def cvat(tmp_path: Path) -> Path:
    root = tmp_path / "export"
    put(root / "annotations.xml", CVAT)
    (root / "images").mkdir()
    Image.new("RGB", (8, 6)).save(root / "images/0.jpg")
    return root


def refusal(call: object) -> rk.RekordError:
    assert callable(call)
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


def test_a_refusal_names_the_format_and_what_installs_its_reader(cvat: Path) -> None:
    failure = refusal(lambda: identify_source(cvat))
    assert (failure.code, failure.location.path) == ("U621", str(cvat))
    assert failure.likely == "looks like CVAT for images (annotations.xml), which rekord reads with Datumaro"
    assert failure.do == "pip install 'rekord[annotations]'"
    assert failure.readings[0] == ("reads them with Datumaro", "pip install 'rekord[annotations]'")
    assert any("--layout images" in command for _, command in failure.readings[1:]), "other readings remain"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"a.xml": "<annotation><filename>a</filename><polygon>"}, "LabelMe (XML)"),
        ({"gt/gt.txt": "1,1,1,2,3,4,1,1,1\n"}, "MOT tracking"),
        ({"wider_face_split/wider_face_train_bbx_gt.txt": "0/a.jpg\n1\n1 2 3 4 0 0 0 0 0 0\n"}, "WIDER FACE"),
        ({"train-images-idx3-ubyte.gz": b"\x1f\x8b"}, "MNIST"),
        ({"data_batch_1": b"\x80\x02", "batches.meta": b"\x80\x02"}, "CIFAR"),
        ({"train/labelTxt/a.txt": "1 2 3 4 5 6 7 8 plane 0\n"}, "DOTA"),
        ({"train-export.json": '{"assets": {"a": {"regions": []}}, "tags": []}'}, "VoTT"),
        ({"training/street/a_seg.png": IMAGE, "training/street/a_parts_1.png": IMAGE}, "ADE20K with parts"),
        ({"config_v2.0.json": '{"labels": []}', "training/v2.0/instances/0.png": IMAGE}, "Mapillary Vistas"),
        ({"RGBLeft/0.png": IMAGE, "GTLeft/0.png": IMAGE}, "SYNTHIA"),
        ({"RGB/0.png": IMAGE, "GT/LABELS/0.png": IMAGE}, "SYNTHIA"),
        ({"train/good/0.png": IMAGE, "ground_truth/broken/0_mask.png": IMAGE}, "MVTec AD"),
        ({"train/gt_img_1.txt": "1 2 3 4 word\n"}, "ICDAR text localization"),
        ({"Anno/list_attr_celeba.txt": "1\nBald\n0.jpg -1\n"}, "CelebA"),
        ({"annotations/pairs.txt": "1\t1\nAnn_Lee\t1\t2\n"}, "LFW"),
        ({"instances/labels.txt": "car\n", "instances/0.png": IMAGE}, "MOTS"),
    ],
)
def test_formats_of_datumaro_are_recognised_without_it(
    tmp_path: Path, files: dict[str, str | bytes], name: str
) -> None:
    for path, content in files.items():
        put(tmp_path / path, content)
    if name not in ("MNIST", "CIFAR"):
        (tmp_path / "images").mkdir()
        Image.new("RGB", (8, 6)).save(tmp_path / "images/0.jpg")
    failure = refusal(lambda: identify_source(tmp_path))
    assert failure.code == "U621"
    assert f"looks like {name} (" in str(failure.likely)
    assert failure.do == "pip install 'rekord[annotations]'"


EXPORTS = Path(__file__).parents[2] / "interop" / "raw_layouts"


@pytest.mark.parametrize(
    ("export", "name"),
    [
        ("cifar", "CIFAR"),
        ("coco_captions", "COCO captions"),
        ("coco_labels", "COCO classes of images"),
        ("coco_panoptic", "COCO panoptic segmentation"),
        ("cvat", "CVAT for images"),
        ("datumaro", "Datumaro"),
        ("datumaro_binary", "Datumaro"),
        ("dota", "DOTA"),
        ("icdar_text_localization", "ICDAR text localization"),
        ("icdar_text_segmentation", "ICDAR text segmentation"),
        ("kitti", "KITTI segmentation"),
        ("label_me", "LabelMe (XML)"),
        ("lfw", "LFW"),
        ("market1501", "Market-1501"),
        ("mnist", "MNIST"),
        ("mot_seq_gt", "MOT tracking"),
        ("mots_png", "MOTS"),
        ("mvtec_segmentation", "MVTec AD"),
        ("open_images", "Open Images"),
        ("segment_anything", "Segment Anything"),
        ("vgg_face2", "VGGFace2"),
        ("voc_classification", "Pascal VOC classes of images"),
        ("wider_face", "WIDER FACE"),
    ],
)
def test_what_datumaro_exports_is_recognised_without_it(tmp_path: Path, export: str, name: str) -> None:
    with zipfile.ZipFile(EXPORTS / f"{export}.zip") as archive:
        archive.extractall(tmp_path)
    failure = refusal(lambda: identify_source(tmp_path))
    assert failure.code == "U621"
    assert f"looks like {name} (" in str(failure.likely)
    assert str(failure.likely).endswith("which rekord reads with Datumaro")
    assert failure.do == "pip install 'rekord[annotations]'"


def test_other_formats_are_not_promised(tmp_path: Path) -> None:
    put(tmp_path / "annotation_train.odgt", "{}\n")
    Image.new("RGB", (8, 6)).save(tmp_path / "0.jpg")
    failure = refusal(lambda: identify_source(tmp_path))
    assert str(failure.likely).endswith("which rekord does not read")
    assert "pip" not in str(failure)


def test_the_source_and_the_flag_name_the_extra(cvat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failure = refusal(lambda: rk.sources.datumaro(cvat, "cvat").facts())
    assert (failure.code, failure.location.path) == ("U602", str(cvat))
    assert failure.do == "pip install 'rekord[annotations]'"
    assert run_command_line(["write", str(cvat), str(cvat.parent / "out"), "--annotation-format", "cvat"]) == 2
    printed = capsys.readouterr().err
    assert "U602" in printed
    assert "Traceback" not in printed
    assert not (cvat.parent / "out").exists()


def test_arguments_are_checked_before_anything_is_read(cvat: Path) -> None:
    assert refusal(lambda: rk.sources.datumaro(cvat, layout="boxes")).code == "U605"
    assert refusal(lambda: rk.sources.datumaro(cvat / "annotations.xml").facts()).code == "U605"
    assert refusal(lambda: rk.sources.datumaro(cvat / "none").facts()).code == "X501"


def test_the_reader_reports_a_missing_package_as_the_end_of_its_process(cvat: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rekord.sources.datumaro_reader", '{"path": "2f"}'],
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert b"No module named 'datumaro'" in done.stderr


def test_a_module_in_the_working_directory_is_not_imported(tmp_path: Path) -> None:
    put(tmp_path / "datumaro/__init__.py", "raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rekord.sources.datumaro_reader", '{"path": "2f"}'],
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert b"imported" not in done.stderr


# Before Datumaro.


def test_a_scan_counts_what_datumaro_will_hold(cvat: Path) -> None:
    packed = put(cvat / "labels.gz", gzip.compress(b"x" * 5000))
    scan = scan_folder(str(cvat))
    assert scan.files == 3
    assert scan.annotation_bytes == len(CVAT) + packed.stat().st_size + 5000
    before = scan.fingerprint
    put(cvat / "annotations.xml", CVAT + " ")
    assert scan_folder(str(cvat)).fingerprint != before


@pytest.mark.parametrize(
    "xml",
    [
        '<!DOCTYPE a [<!ENTITY b "c">]><annotations>&b;</annotations>',
        '<?xml version="1.0"?>\n'
        + "<!-- -->" * 20_000
        + '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a/>',
        '<!DOCTYPE a [<!ENTITY % b "c">%b;]><annotations/>',
    ],
    ids=["internal", "external, after a long comment", "parameter"],
)
def test_xml_that_declares_entities_is_refused(cvat: Path, xml: str) -> None:
    path = put(cvat / "more/a.xml", xml)
    failure = refusal(lambda: scan_folder(str(cvat)))
    assert (failure.code, failure.location.path) == ("X591", str(path))


def test_xml_without_entities_or_that_is_no_xml_is_left_to_the_parser(cvat: Path) -> None:
    put(cvat / "a.xml", '<!DOCTYPE plist PUBLIC "-//A//B" "http://example.invalid/a.dtd"><plist/>')
    put(cvat / "b.xml", "no xml")
    put(cvat / "c.xml", b"\xff\xfe<\0a\0")
    assert scan_folder(str(cvat)).files == 5


def test_links_that_form_a_cycle_are_refused(cvat: Path) -> None:
    os.symlink(cvat, cvat / "images" / "again")
    failure = refusal(lambda: scan_folder(str(cvat)))
    assert (failure.code, failure.location.path) == ("X591", str(cvat / "images/again"))


def test_pipes_are_refused_and_not_opened(cvat: Path) -> None:
    os.mkfifo(cvat / "a.xml")
    failure = refusal(lambda: scan_folder(str(cvat)))
    assert (failure.code, failure.location.path) == ("X503", str(cvat / "a.xml"))


def test_what_a_gzip_file_expands_to_is_limited(cvat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotation_scan, "MAX_INFLATED_BYTES", 10_000)
    path = put(cvat / "a-labels-idx1-ubyte.gz", gzip.compress(bytes(1 << 20)))
    failure = refusal(lambda: scan_folder(str(cvat)))
    assert (failure.code, failure.location.path) == ("X591", str(path))


def test_a_huge_file_is_refused_by_its_size(cvat: Path) -> None:
    path = put(cvat / "a.json", "{}")
    os.truncate(path, 9 << 30)
    failure = refusal(lambda: scan_folder(str(cvat)))
    assert (failure.code, failure.location.path) == ("X591", str(path))
    assert not is_image_name(str(path))


# What the reader reports, as errors.


@pytest.mark.parametrize(
    ("report", "code", "found"),
    [
        (
            {"formats": ["cvat"], "failure": ("ParseError", "no element found")},
            "X590",
            "ParseError: no element found",
        ),
        ({"formats": ["cvat"], "failure": ("EntitiesForbidden", "name='a'")}, "X591", "EntitiesForbidden: name='a'"),
        ({"formats": ["cvat"], "failure": ("MemoryError", "")}, "X590", "more memory than its size explains"),
        ({"formats": ["cvat"], "denied": ["socket.connect"]}, "X591", "socket.connect"),
        (
            {"formats": ["cvat"], "layout": "none", "media": {"ImageFromFile": 2}},
            "X592",
            "2 images without annotations",
        ),
        (
            {"formats": ["a"], "layout": "table", "media": {"PointCloud": 2}},
            "X592",
            "no images: 2 of type PointCloud",
        ),
        ({"formats": ["b"], "failure": ("ModuleNotFoundError", "No module named 'nibabel'")}, "U602", "nibabel"),
        ({"formats": [], "failure": ("UnknownFormatError", "x")}, "U605", "'x'"),
        ({"formats": []}, "U621", "none that fits"),
    ],
)
def test_reports_of_the_reader_become_errors(cvat: Path, report: dict[str, object], code: str, found: str) -> None:
    from rekord.sources.datumaro_reader import ReadingFailure

    if "failure" in report:
        report = {**report, "failure": ReadingFailure(*report["failure"])}  # type: ignore[misc]
    source = DatumaroSource(str(cvat), "x" if code == "U605" else None, None, False, None)
    failure = refusal(lambda: source._check(ReadingReport(**report)))  # type: ignore[arg-type]
    assert failure.code == code
    assert found in str(failure.found)
    assert failure.do


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ("missing:a.jpg", "E366"),
        ("duplicate:val", "E370"),
        ("outside:/etc/a.jpg", "E391"),
        ("item:ValueError: no box", "E390"),
        ("media:VideoFrame", "E390"),
    ],
)
def test_problems_of_one_image_are_bad_rows(cvat: Path, problem: str, code: str) -> None:
    source = DatumaroSource(str(cvat), None, None, False, None)
    failure = source._row_error(problem, "train/1", "images/0.jpg")
    assert (failure.code, failure.location.path) == (code, str(cvat / "images/0.jpg"))
    assert failure.do


def test_corners_and_keypoints_are_stored_as_fractions_of_their_image(tmp_path: Path) -> None:
    layout = rk.layouts.detection(classes=["plane"], has=["corners", "keypoints"])
    row = {
        "image": np.zeros((10, 20, 3), np.uint8),
        "filename": "a",
        "boxes": [[2, 3, 10, 7], [0, 0, 0, 0], [0, 0, 20, 10]],
        "labels": [1, 1, 1],
        "corners": [[2, 3, 10, 3, 10, 7, 2, 7], [0] * 8, [-2, 0, 20, 0, 20, 10, 0, 10]],
        "keypoints": [[[4, 5, 2], [6, 5, 1]], [[1, 1, 2]], []],
    }
    (stored,) = rk.write([row], tmp_path / "out", layout=layout, workers=1, progress=False)["train"]
    assert stored["boxes"].shape == (2, 4), "the box without area is skipped, with all that belongs to it"
    np.testing.assert_allclose(stored["corners"][0], [0.1, 0.3, 0.5, 0.3, 0.5, 0.7, 0.1, 0.7], rtol=1e-6)
    assert stored["corners"][1][0] == np.float32(-0.1), "a corner may be outside of the image"
    assert stored["keypoint_counts"].tolist() == [2, 0]
    np.testing.assert_allclose(stored["keypoint_x"], [0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(stored["keypoint_y"], [0.5, 0.5], rtol=1e-6)
    assert stored["keypoint_visibility"].tolist() == [2, 1]


def test_the_arrow_file_has_the_columns_that_rows_are_made_of() -> None:
    from rekord.sources.datumaro_reader import ARROW_SCHEMA

    assert [ARROW_SCHEMA.field(i).name for i in (0, 5, 6)] == ["path", "size_bytes", "mtime_ns"]
    assert pa.types.is_large_binary(ARROW_SCHEMA.field("image").type)

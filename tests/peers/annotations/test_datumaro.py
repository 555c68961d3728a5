"""What Datumaro reads becomes rows: compared with Datumaro's own values, in each of its formats that hold images."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import AnnotationType
from datumaro.components.dataset import Dataset
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.base import SourceRow
from rekord.sources.datumaro import detect_formats
from rekord.sources.detect import identify_source

sys.path.insert(0, str(Path(__file__).parent))
import layouts

EXPORTS = Path(__file__).parents[2] / "interop" / "raw_layouts"
LABEL = AnnotationType.label

EXPORTED = {
    "cifar": ("cifar", "classification"),
    "coco_captions": ("coco_captions", "table"),
    "coco_labels": ("coco_labels", "classification"),
    "coco_panoptic": ("coco_panoptic", "deeplab"),
    "cvat": ("cvat", "detection"),
    "datumaro": ("datumaro", "detection"),
    "datumaro_binary": ("datumaro_binary", "detection"),
    "icdar_text_localization": ("icdar_text_localization", "detection"),
    "icdar_word_recognition": ("icdar_word_recognition", "table"),
    "imagenet_txt": (None, "classification"),
    "kitti_segmentation": ("kitti", "deeplab"),
    "label_me": ("label_me", "detection"),
    "mnist": ("mnist", "classification"),
    "mot_seq_gt": ("mot_seq", "detection"),
    "mots_png": ("mots", "deeplab"),
    "open_images": ("open_images", "detection"),
    "segment_anything": ("segment_anything", "detection"),
    "vgg_face2": ("vgg_face2", "classification"),
    "voc_classification": ("voc", "classification"),
    "wider_face": ("wider_face", "detection"),
}
"""Exports of Datumaro: the format that it detects, and the layout."""

PUBLISHED = {
    "cvat": ("cvat", "detection", ["polyline", "points without a box", "polygon outlines"]),
    "mot": ("mot_seq", "detection", ["track_id", "visibility"]),
    "wider_face": ("wider_face", "detection", ["type label", "blur"]),
    "label_me": ("label_me", "detection", ["polygon outlines"]),
    "vott": ("vott_json", "detection", ["attribute id"]),
    "dota": ("dota", "detection", []),
    "celeba": ("align_celeba", "classification", ["type points", "Bald of images"]),
    "lfw": ("lfw", "classification", ["positive_pairs"]),
    "mnist": ("mnist", "classification", []),
    "cifar": ("cifar", "classification", []),
    "ade20k": ("ade20k2020", "deeplab", ["masks of parts", "polygon"]),
    "mapillary": ("mapillary_vistas", "deeplab", []),
    "icdar_localization": ("icdar_text_localization", "detection", ["attribute text"]),
    "synthia_sf": ("synthia_sf", "deeplab", []),
}
"""Layouts of public datasets: the format that Datumaro detects, the layout, and what is counted as not used."""

BOTH = {
    "coco_instances": ("coco", "coco_instances"),
    "voc_detection": ("voc", "voc"),
    "yolo": ("yolo", "yolo"),
    "yolo_ultralytics": ("yolo", "yolo"),
}
"""Exports that sources of rekord read too."""


def unpack(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(EXPORTS / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder


def read(source: Any) -> list[SourceRow]:
    source.facts()
    return [row for part in source.parts() for row in source.read(part)]


def by_item(path: Path, format: str) -> dict[tuple[str, str], Any]:
    """Datumaro's items, by the name of their image or else by subset and id."""

    def key(item: Any) -> tuple[str, str]:
        image = getattr(item.media, "path", None)
        if not image:
            return str(item.subset), str(item.id)
        found = Path(image) if Path(image).exists() else next(path.rglob(Path(image).name))  # of another machine
        return found.resolve().relative_to(path.resolve()).as_posix(), ""

    return {key(one): one for one in Dataset.import_from(str(path), format)}


def compare(path: Path, format: str, layout: str, **options: Any) -> list[SourceRow]:
    """Compare the rows of a folder with Datumaro's items; the rows."""
    source = rk.sources.datumaro(path, format, **options)
    facts = source.facts()
    assert facts.layout == layout
    rows = read(source)
    assert rows
    items = by_item(path, format)
    labels = Dataset.import_from(str(path), format).categories().get(LABEL, ())
    names = [one.name for one in labels]
    assert len(rows) == len(items) == facts.rows
    for row in rows:
        assert isinstance(row.values, dict), row.values
        key = (row.path, "") if row.path else tuple(row.values["filename"].split("/", 1))
        check_row(row.values, items[key], layout, names)
    return rows


def check_row(values: Any, item: Any, layout: str, names: list[str]) -> None:
    annotations = item.annotations
    if layout == "detection":
        boxes = [one for one in annotations if one.type.name in ("bbox", "rotated_bbox")]
        if not any(one.group for one in boxes):  # else polygons belong to boxes
            boxes += [one for one in annotations if one.type.name == "polygon"]
        expected = sorted(
            (*[round(float(side), 2) for side in corners(one)], name_of(one, names) or values["class_names"][0])
            for one in boxes
        )
        found = [(*map(float, box), name) for box, name in zip(values["boxes"], values["class_names"], strict=True)]
        for one, other in zip(sorted(found), expected, strict=True):
            np.testing.assert_allclose(one[:4], other[:4], atol=0.02)
            assert one[4] == other[4]
    elif layout == "classification":
        (label,) = [one.label for one in annotations if one.type.name == "label"]
        assert values["label"] == names[label]
    elif layout == "table":
        assert values["text"] == next(one.caption for one in annotations if one.type.name == "caption")
    else:
        mask = np.asarray(Image.open(io.BytesIO(values["mask"])))
        covered = np.zeros(mask.shape, bool)
        for one in annotations:
            if one.type.name == "mask" and one.z_order == 0:
                assert (mask[one.image != 0] == one.label).all()
                covered |= one.image != 0
        assert set(np.unique(mask[~covered])) <= {0, 255}


def corners(one: Any) -> Iterator[float]:
    x, y, width, height = one.get_bbox()
    return iter((x, y, x + width, y + height))


def name_of(one: Any, names: list[str]) -> str | None:
    return None if one.label is None else names[one.label]


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_an_export_has_the_values_of_datumaro(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path / "data")
    format, layout = EXPORTED[name]
    if format is None:  # rekord reads it, so it is not detected
        assert detect_formats(str(path)) == ()
        format = name
    else:
        assert detect_formats(str(path)) == (format,)
    compare(path, format, layout)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_public_layout_is_written_with_what_is_not_used(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    getattr(layouts, name)(path)
    format, layout, unused = PUBLISHED[name]
    compare(path, format, layout)
    capsys.readouterr()
    arguments = [str(path), str(tmp_path / "out"), "--annotation-format", format]
    assert run_command_line(["write", *arguments, "--json", "--workers", "1", "--no-config"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["source"], document["layout"]) == ("datumaro", layout)
    for part in unused:
        (one,) = [one for one in document["unused"] if part in one["name"] and one["kind"] == "annotation"]
        assert one["reason"].split(":")[0].isdigit(), "the count"
    assert rk.check(tmp_path / "out").ok


@pytest.mark.parametrize("name", ["cvat", "mot", "label_me"])
def test_write_detects_a_folder_that_no_other_source_reads(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    getattr(layouts, name)(path)
    found = identify_source(path)
    assert (found.kind, found.format) == ("datumaro", PUBLISHED[name][0])
    assert found.guesses[0].what == f"annotations in the format {found.format}, read with Datumaro"
    capsys.readouterr()
    assert run_command_line(["write", str(path), str(tmp_path / "out"), "--json", "--workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "datumaro"


def test_several_formats_are_refused_with_a_command_for_each(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    layouts.mvtec(path)
    formats = ("mvtec_classification", "mvtec_detection", "mvtec_segmentation")
    assert detect_formats(str(path)) == formats
    for refused in (lambda: identify_source(path), lambda: rk.sources.datumaro(path).facts()):
        with pytest.raises(rk.RekordError) as caught:
            refused()
        assert (caught.value.code, caught.value.location.path) == ("U621", str(path))
        assert "does not read" not in str(caught.value)
        commands = [command for _, command in caught.value.readings]
        assert commands[:3] == [f"rekord write {path} --annotation-format {one} OUT" for one in formats]
    assert rk.sources.datumaro(path, formats[0]).facts().classes == ("broken", "good")


@pytest.mark.parametrize("name", sorted(BOTH))
def test_sources_of_rekord_read_the_same_boxes_as_datumaro(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path / "data")
    kind, format = BOTH[name]
    assert identify_source(path).kind == kind

    def boxes(source: Any) -> dict[str, list[Any]]:
        out = tmp_path / source.kind
        data = rk.write(source, out, split="all", workers=1, progress=False)["all"]
        return {
            Path(row["filename"]).name: [
                (np.round(box, 3).tolist(), name) for box, name in zip(row["boxes"], row["class_names"], strict=True)
            ]
            for row in data
        }

    own, theirs = boxes(getattr(rk.sources, kind)(path)), boxes(rk.sources.datumaro(path, format))
    assert own.keys() == theirs.keys()
    for image, found in own.items():
        assert [one[1] for one in found] == [one[1] for one in theirs[image]]
        for (box, _), (other, _) in zip(found, theirs[image], strict=True):
            np.testing.assert_allclose(box, other, atol=1e-3)


def test_images_are_stored_as_they_are(tmp_path: Path) -> None:
    layouts.label_me(tmp_path / "data")
    data = rk.write(rk.sources.datumaro(tmp_path / "data"), tmp_path / "out", workers=1, progress=False)
    (row,) = data["train"]
    assert row["image"] == (tmp_path / "data/Images/a.jpg").read_bytes()


def test_pixels_of_a_pickle_become_png_in_their_own_colours(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    layouts.cifar(tmp_path / "data")
    rows = read(rk.sources.datumaro(tmp_path / "data"))
    pixels = np.asarray(Image.open(io.BytesIO(rows[0].values["image"])))
    assert pixels.shape == (32, 32, 3)
    assert pixels[5, 7].tolist() == [250, 100, 10]
    assert [(row.path, row.position, row.values["split"]) for row in rows] == [("", 0, "train"), ("", 1, "test")]


def test_rotated_boxes_are_stored_as_corners(tmp_path: Path) -> None:
    layouts.dota(tmp_path / "data")
    data = rk.write(rk.sources.datumaro(tmp_path / "data", "dota"), tmp_path / "out", workers=1, progress=False)
    (row,) = data["train"]
    upright, rotated = row["corners"] * np.tile([layouts.WIDTH, layouts.HEIGHT], 4)
    np.testing.assert_allclose(upright, [2, 3, 10, 3, 10, 7, 2, 7], atol=0.01)
    np.testing.assert_allclose(sorted(map(tuple, rotated.reshape(4, 2))), [(1, 5), (5, 1), (5, 9), (9, 5)], atol=0.01)
    assert row["difficult"].tolist() == [0, 1]


def test_keypoints_and_masks_of_boxes_are_features_of_their_own(tmp_path: Path) -> None:
    path = unpack("coco_person_keypoints", tmp_path / "data")
    source = rk.sources.datumaro(path, "coco_person_keypoints", masks=True)
    assert source.facts().extra["has"][-1] == "keypoints"
    data = rk.write(source, tmp_path / "out", split="all", workers=1, progress=False)
    row = next(row for row in data["all"] if row["filename"].endswith("img0.jpg"))
    x, y, width, height = 1, 2, 8, 6
    assert row["keypoint_counts"].tolist() == [2]
    np.testing.assert_allclose(row["keypoint_x"] * 16, [x, x + width], atol=0.01)
    np.testing.assert_allclose(row["keypoint_y"] * 12, [y, y + height], atol=0.01)
    assert row["keypoint_visibility"].tolist() == [2, 2]
    (mask,) = [np.asarray(Image.open(io.BytesIO(one))) for one in row["masks"]]
    assert mask.sum() == width * height
    assert mask[y, x] == 1


def test_polygons_become_masks_on_request(tmp_path: Path) -> None:
    layouts.label_me(tmp_path / "data")
    (row,) = read(rk.sources.datumaro(tmp_path / "data", layout="deeplab"))
    mask = np.asarray(Image.open(io.BytesIO(row.values["mask"])))
    assert (mask[1:9, 2:12] == 0).all()
    assert (mask != 255).sum() == 80


def test_rows_are_the_same_with_other_part_sizes_and_after_pickling(tmp_path: Path) -> None:
    import pickle

    path = unpack("open_images", tmp_path / "data")
    source = rk.sources.datumaro(path)
    source.facts()
    (part,) = source.parts()
    copy = pickle.loads(pickle.dumps(source))
    again = list(copy.read(pickle.loads(pickle.dumps(part))))
    assert [row.path for row in again] == [row.path for row in source.read(part)]
    assert [row.values["class_names"] for row in again] == [["cat"], ["dog"], ["cat"]]


def test_workers_write_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    path = unpack("cvat", tmp_path / "data")
    for workers in (1, 2):
        rk.write(rk.sources.datumaro(path), tmp_path / str(workers), split="all", workers=workers, progress=False)
    one, two = [sorted((tmp_path / str(n)).glob("*.tfrecord")) for n in (1, 2)]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_the_arrow_file_is_removed_with_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    layouts.label_me(tmp_path / "data")
    source = rk.sources.datumaro(tmp_path / "data")
    source.facts()
    source.facts()  # from the same reading
    assert len(list(place.iterdir())) == 1
    del source
    assert list(place.iterdir()) == []

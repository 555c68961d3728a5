"""Formats of annotations: those that sources read, by the first bytes of a file, and others by name."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from rekord.errors import RekordError
from rekord.framing.inflate import read_head, starts_with_record
from rekord.sources.boxes_csv import BOX_SIDES, COLUMN_ALIASES, recognize_boxes_csv
from rekord.sources.image_csv import ImageCsvReader, find_columns, recognize_image_list
from rekord.sources.image_folder import IMAGE_EXTENSIONS, is_image_name
from rekord.sources.segmentation import recognize_pair_list
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

HEAD_BYTES = 256 * 1024
_SAMPLE_ROWS = 20
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:]', re.DOTALL)
_COCO_MEMBERS = {b'"images"', b'"annotations"'}
_CONTENT_MAGIC = (
    *((0, b"PAR1", "parquet"), (0, b"ARROW1", "arrow"), (0, b"\x93NUMPY", "npy"), (0, b"Obj\x01", "avro")),
    *((0, b"SQLite format 3\0", "sqlite"), (0, b"\x89HDF\r\n\x1a\n", "hdf5"), (8, b"DUCK", "duckdb")),
)
_TAR_MAGIC_OFFSET = 257
_DICOM_MAGIC_OFFSET = 128
_IMAGE_NAME_END = re.compile("|".join(map(re.escape, sorted(IMAGE_EXTENSIONS))).encode(), re.IGNORECASE)
_IMAGE_COLUMN = re.compile(rb"[^\n]*(image|img|file|path|\bid)", re.IGNORECASE)
_VOC_ROOT = re.compile(rb"<annotation(\s[^<>]*)?/?>")


def read_file_head(path: str, most_bytes: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file; none if it cannot be read, which reading it reports."""
    if not raw_files.isfile(path):
        return b""
    try:
        with RAW_FILES.open_read(path) as file:
            return read_head(file, most_bytes)
    except RekordError:
        return b""


def detect_content_kind(path: str) -> str | None:
    """The source for a file with an unknown kind of name."""
    head = read_file_head(path)
    for offset, magic, kind in _CONTENT_MAGIC:
        if head.startswith(magic, offset):
            return kind
    if head[_DICOM_MAGIC_OFFSET : _DICOM_MAGIC_OFFSET + 4] == b"DICM":
        return "dicom"
    if head[_TAR_MAGIC_OFFSET : _TAR_MAGIC_OFFSET + 5] == b"ustar":
        return "webdataset"
    return "records" if head and starts_with_record(head) else None


def is_coco(head: bytes) -> bool:
    """Whether a JSON file is in COCO format: an object with the members `images` and `annotations`.

    One of the two is enough if the head ends before the object does.
    """
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head.startswith(b"{"):
        return False
    members: set[bytes] = set()
    depth = 0
    last: bytes | None = None
    for match in _JSON_TOKEN.finditer(head):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if not depth:
                return members >= _COCO_MEMBERS
        elif token == b":" and depth == 1 and last in _COCO_MEMBERS and head[match.end() :].lstrip()[:1] == b"[":
            members.add(last)
        last = token
    return bool(members)


def is_coco_without_boxes(head: bytes) -> bool:
    """Whether a COCO file has captions, classes or panoptic segments instead of boxes."""
    if b'"bbox"' in head:
        return False
    has_annotations = re.search(rb'"annotations"\s*:\s*\[\s*\{', head) is not None
    is_complete = len(head) < HEAD_BYTES
    return any(one in head for one in (b'"caption"', b'"segments_info"')) or (is_complete and has_annotations)


def is_image_list(path: str, head: bytes) -> bool:
    """Whether a CSV has a column of images and one of their classes."""
    if not _IMAGE_NAME_END.search(head):
        return False
    is_cut = len(head) >= HEAD_BYTES
    if is_cut:
        head = head[: head.rfind(b"\n") + 1]
    text = io.TextIOWrapper(io.BytesIO(head), "utf-8-sig", "surrogateescape", newline="")
    fields: list[list[str]] = []
    try:
        columns = find_columns(path, {"image": None, "label": None, "split": None}, ImageCsvReader(path).rows(text))
        for _, (_, row) in zip(range(_SAMPLE_ROWS), columns.rows, strict=False):
            fields.append(row)
    except RekordError:
        if not (is_cut and fields):  # else the head may end in a quoted field
            return False
    named = [row[columns.image] for row in fields if len(row) > columns.image and row[columns.image]]
    return bool(named) and all(is_image_name(name) for name in named)


def is_boxes_csv(head: bytes) -> bool:
    """Whether a CSV has images with the sides of boxes; without a header, `path,x1,y1,x2,y2,class`."""
    text = head[: 64 * 1024].decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()][:2]
    if not lines:
        return False
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(csv.reader(lines, delimiter=max(",;\t|", key=lines[0].count)))
    if not rows:
        return False
    header = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in rows[0]]
    if all(set(COLUMN_ALIASES[side].split()) & set(header) for side in BOX_SIDES):
        return len(rows) == 1 or any(is_image_name(field) for field in rows[1]) or "filename" in header
    return len(rows[0]) == 6 and is_image_name(rows[0][0]) and all(_is_number(one) for one in rows[0][1:5])


def identify_list(path: str, head: bytes) -> str | None:
    """The source for a list of images with masks, boxes, classes or texts; None for another table or text."""
    is_table = path.lower().endswith((".csv", ".tsv", ".tab"))
    has_names = _IMAGE_NAME_END.search(head)
    if is_table and not has_names and not _IMAGE_COLUMN.match(head):
        return None
    if not is_table and has_names and recognize_pair_list(path, head):
        return "segmentation"
    if (is_table and is_boxes_csv(head)) or ((is_table or has_names) and recognize_boxes_csv(path, head)):
        return "boxes_csv"
    if (is_table and is_image_list(path, head)) or recognize_image_list(path, head):
        return "image_csv"
    return None


def is_yolo_label(path: str) -> bool:
    """Whether a text file starts like the label file of an image: a class, then at least four parts of a side."""
    line = next((line for line in read_file_head(path, 4096).splitlines() if line.strip()), b"")
    words = line.decode("utf-8", "replace").split()
    if len(words) < 5 or not words[0].isdigit() or not all(_is_number(word) for word in words[1:]):
        return False
    # Pixels are not parts of a side: such a file is in another format. A little outside is a bad box.
    return all(-0.5 <= float(word) <= 1.5 for word in words[1:5])


def is_voc_annotation(path: str) -> bool:
    """Whether an XML file starts like an annotation of Pascal VOC, and not like those of LabelMe or CVAT."""
    head = read_file_head(path, 64 * 1024)
    return bool(_VOC_ROOT.search(head)) and (b"<bndbox" in head or b"<polygon" not in head)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _FormatSign(NamedTuple):
    """What a format is known by: the path of a file in lower case, and optionally its first bytes."""

    name: str
    path: re.Pattern[str]
    head: re.Pattern[bytes] | None = None


def _sign(name: str, path: str, head: bytes | None = None) -> _FormatSign:
    compiled = None if head is None else re.compile(head, re.DOTALL | re.IGNORECASE)
    return _FormatSign(name, re.compile(path), compiled)


DATUMARO_FORMATS = frozenset(
    (
        *("KITTI raw data", "WIDER FACE", "MOT tracking", "CVAT for images", "LabelMe (XML)", "Datumaro", "VoTT"),
        *("COCO panoptic segmentation", "COCO captions", "Open Images", "VGGFace2", "LFW", "CelebA", "Market-1501"),
        *("MARS", "MVTec AD", "DOTA", "ICDAR text localization", "ICDAR text recognition", "ADE20K with parts"),
        *("MNIST", "CIFAR", "Mapillary Vistas", "SYNTHIA", "Segment Anything", "Cityscapes polygons", "MOTS"),
        *("KITTI segmentation", "ICDAR text segmentation", "COCO classes of images", "Pascal VOC classes of images"),
    )
)
"""The names of formats that Datumaro reads."""


def _in_order(*parts: bytes) -> bytes:
    """A pattern of texts with anything between them. It never goes back, so a hostile head takes linear time."""
    return rb"\A" + b"".join([b"(?>.*?" + part + b")" for part in parts])


_SHAPES, _IMAGE_PATH = rb'"shapes"\s*:', rb'"imagePath"\s*:'
# In this order: the first that fits names the format. Patterns are of paths in lower case, with a leading slash.
_NUMBER = rb"-?\d+(?:\.\d+)?"
_SIGNS = (
    _sign("KITTI object detection", r"/label_\d+/[^/]*\.txt$|/label_0[0-3]/"),
    _sign("KITTI object detection", r"\.txt$", rb"\A\s*[A-Za-z]\w*(?: +" + _NUMBER + rb"){14,15}\s*(?:\n|\Z)"),
    _sign("KITTI segmentation", r"/semantic_rgb/"),
    _sign("KITTI raw data", r"/tracklet_labels\.xml$|/velodyne(_points)?/|/calib_cam_to_cam\.txt$"),
    _sign("WIDER FACE", r"/wider_face_split/|_bbx_gt\.(txt|mat)$"),
    _sign("MOT tracking", r"/gt/gt\.txt$|/det/det\.txt$|/seqinfo\.ini$"),
    _sign("MOTS", r"/instances/labels\.txt$"),
    _sign("VisDrone", r"\.txt$", rb"\A(?:\d+,){7}\d+,?\s*(?:\n|\Z)"),
    _sign("CVAT for images", r"\.xml$", rb"<annotations>.{0,2000}?<(?:version|meta|image)\b"),
    _sign("LabelMe (XML)", r"\.xml$", _in_order(rb"<annotation>", rb"<polygon>")),
    _sign("LabelMe", r"\.json$", _in_order(_SHAPES, _IMAGE_PATH) + b"|" + _in_order(_IMAGE_PATH, _SHAPES)),
    _sign("Cityscapes polygons", r"_polygons\.json$"),
    _sign("Supervisely", r"/ann/[^/]*\.json$|/meta\.json$", rb'"objects"\s*:|"classes"\s*:\s*\['),
    _sign("Datumaro", r"\.json$", _in_order(rb'"infos?"\s*:', rb'"categories"\s*:\s*\{', rb'"items"\s*:')),
    _sign(
        "VoTT",
        r"\.vott$|\.json$",
        rb'"visitedFrames"|"securityToken"|' + _in_order(rb'"assets?"\s*:', rb'"regions"\s*:'),
    ),
    _sign("VGG Image Annotator", r"\.(json|csv)$", rb'"?(?:regions"?\s*:|region_shape_attributes)'),
    _sign("BDD100K", r"\.json$", _in_order(rb'"name"\s*:\s*"[^"]+\.jpg"', rb'"labels"\s*:')),
    _sign("COCO panoptic segmentation", r"\.json$", rb'"segments_info"\s*:'),
    _sign("Segment Anything", r"\.json$", rb'"predicted_iou"\s*:'),
    _sign("Mapillary Vistas", r"/config(_v\d\.\d)?\.json$", rb'"labels"\s*:'),
    _sign("COCO captions", r"\.json$", _in_order(rb'"annotations"\s*:', rb'"caption"\s*:')),
    _sign(
        "COCO classes of images",
        r"\.json$",
        rb'\A(?!.*"(?:bbox|segmentation|segments_info|caption)")'
        + _in_order(rb'"images"\s*:', rb'"annotations"\s*:\s*\[\s*\{', rb'"category_id"\s*:'),
    ),
    _sign(
        "COCO without boxes",
        r"\.json$",
        rb'\A(?!.*"bbox")' + _in_order(rb'"images"\s*:', rb'"annotations"\s*:\s*\[\s*\{'),
    ),
    _sign("Label Studio", r"\.json$", _in_order(rb'"annotations"\s*:', rb'"from_name"\s*:')),
    _sign("CrowdHuman", r"\.odgt$"),
    _sign("Open Images", r"\.csv$", rb"\A(?:\xef\xbb\xbf)?ImageID,"),
    _sign("Datumaro", r"\.datum$"),
    _sign("Pascal VOC classes of images", r"/imagesets/main/[^/]+_(train|val|trainval|test)\.txt$"),
    _sign("VoTT", r"-export\.csv$", rb'\A(?:\xef\xbb\xbf)?"?image"?,'),
    _sign("MNIST", r"-idx[13]-ubyte(\.gz)?$"),
    _sign("CIFAR", r"/data_batch_\d$|/batches\.meta$"),
    _sign("SYNTHIA", r"/gt/labels/|/semsegcolor/|/gtleft/"),
    _sign("VGGFace2", r"/bb_landmark/"),
    _sign("LFW", r"/pairs(devtest|devtrain)?\.txt$|/people(devtest|devtrain)?\.txt$"),
    _sign("CelebA", r"/list_(attr|bbox|landmarks\w*|eval_partition)_?\w*\.(txt|csv)$|/identity_celeba\.txt$"),
    _sign("CUB-200-2011", r"/image_class_labels\.txt$|/bounding_boxes\.txt$"),
    _sign("Market-1501", r"/bounding_box_(train|test)/"),
    _sign("MARS", r"/bbox_(train|test)/"),
    _sign("MVTec AD", r"/ground_truth/([^/]+/)?[^/]+_mask\.png$"),
    _sign("DOTA", r"/labeltxt[^/]*/"),
    _sign("DOTA", r"\.txt$", rb"(?:\A|\n)(?:" + _NUMBER + rb" +){8}[A-Za-z][\w-]* +[0-2]\s*(?:\n|\Z)"),
    _sign("ICDAR text localization", r"/gt_[^/]*\.txt$"),
    _sign("ICDAR text segmentation", r"_gt\.(txt|bmp)$"),
    _sign("ICDAR text recognition", r"/gt\.txt$", rb'\A[^\n]+\.(?:png|jpg),\s*"'),
    _sign("Caltech pedestrians", r"\.vbb$|\.seq$"),
    _sign("facial landmarks", r"\.pts$"),
    _sign("optical flow", r"\.flo$"),
    _sign("ADE20K with parts", r"_(seg|parts_\d+)\.png$"),
    _sign("nuScenes", r"/sample_annotation\.json$|/sample_data\.json$"),
    _sign("Matlab annotations", r"\.mat$"),
    _sign("NumPy or HDF5 annotations", r"\.(npy|npz|h5|hdf5)$"),
    _sign("pickled Python objects", r"\.(pkl|pickle|p)$"),
)
_MAX_TRIED = 3  # files per pattern whose content is compared


def name_formats(root: str, paths: Iterable[str]) -> list[tuple[str, str]]:
    """Formats that no source reads, each with a file that looks like it. `paths` are below `root`."""
    files = list(paths)
    heads: dict[str, bytes] = {}
    found: dict[str, str] = {}
    claimed: set[str] = set()
    for sign in _SIGNS:
        matching = [path for path in files if path not in claimed and sign.path.search(f"/{path.lower()}")]
        for path in matching if sign.head is None else matching[:: max(1, len(matching) // _MAX_TRIED)]:
            if sign.head is not None:
                if path not in heads:
                    heads[path] = read_file_head(os.path.join(root, path), 64 * 1024)
                if not sign.head.search(heads[path]):
                    continue
            found.setdefault(sign.name, path)
            # A second name for files of the same kind would contradict the first.
            claimed.update([one for one in matching if os.path.dirname(one) == os.path.dirname(path)])
            break
    return list(found.items())

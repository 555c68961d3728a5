"""The source for a path, detected from names and the first bytes of a few files."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from glob import iglob
from importlib import import_module
from typing import Any, NamedTuple

from rekord.arguments import as_path
from rekord.errors import RekordError, error, preview
from rekord.framing.inflate import read_head, starts_with_record
from rekord.location import Location
from rekord.sources.base import SizeCheckedFile, Source, list_files
from rekord.sources.boxes_csv import BOX_SIDES, COLUMN_ALIASES, recognize_boxes_csv
from rekord.sources.coco import ROBOFLOW_FILE_NAME
from rekord.sources.image_csv import ImageCsvReader, find_columns, recognize_image_list
from rekord.sources.image_folder import IMAGE_EXTENSIONS, SPLIT_NAMES, is_image_name, join_path
from rekord.sources.segmentation import recognize_pair_list
from rekord.storage.find import is_record_name
from rekord.storage.local import LOCAL
from rekord.storage.router import is_remote

_HEAD_BYTES = 256 * 1024
_SAMPLE_ROWS = 20
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:]', re.DOTALL)
_COCO_MEMBERS = {b'"images"', b'"annotations"'}
_CONTENT_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\x93NUMPY", "npy"))
_TAR_MAGIC_OFFSET = 257
_IMAGE_NAME_END = re.compile("|".join(map(re.escape, sorted(IMAGE_EXTENSIONS))).encode(), re.IGNORECASE)

_IMAGE_COLUMN = re.compile(rb"[^\n]*(image|img|file|path|\bid)", re.IGNORECASE)


def detect_content_kind(path: str) -> str | None:
    """The source for a file with an unknown kind of name."""
    head = _read_head(path)
    for magic, kind in _CONTENT_MAGIC:
        if head.startswith(magic):
            return kind
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


def is_image_list(path: str, head: bytes) -> bool:
    """Whether a CSV has a column of images and one of their classes."""
    if not _IMAGE_NAME_END.search(head):
        return False
    is_cut = len(head) >= _HEAD_BYTES
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


def is_yolo_label(path: str) -> bool:
    """Whether a text file starts like the label file of an image: a class, then at least four numbers."""
    line = next((line for line in _read_head(path, 4096).splitlines() if line.strip()), b"")
    words = line.decode("utf-8", "replace").split()
    return len(words) >= 5 and words[0].isdigit() and all(_is_number(word) for word in words[1:])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_head(path: str, most_bytes: int = _HEAD_BYTES) -> bytes:
    """The first bytes of a file; none if it cannot be read, which reading it reports."""
    if not os.path.isfile(path):
        return b""
    try:
        with LOCAL.open_read(path) as file:
            return read_head(file, most_bytes)
    except RekordError:
        return b""


SOURCE_KINDS = (
    *("image_folder", "image_csv", "segmentation", "voc_segmentation", "cityscapes", "voc", "coco", "yolo"),
    *("boxes_csv", "csv", "jsonl", "parquet", "arrow", "npy", "npz", "text", "webdataset", "records"),
)

_KIND_BY_EXTENSION = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq", ".parq"), "parquet"),
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys((".txt", ".text"), "text"),
    **dict.fromkeys((".tar", ".tgz"), "webdataset"),
    **dict.fromkeys(IMAGE_EXTENSIONS, "image_folder"),
}
_WEAK_KINDS = ("jsonl", "text")  # a .json or .txt next to other data usually describes it
_IMAGE_FOLDERS = ("images", "image", "imgs", "img", "jpegimages", "photos", "rgb", "inputs", "input")
_MASK_FOLDERS = (
    *("masks", "mask", "segmentationclass", "segmentationclassaug", "labels", "label", "annotations"),
    *("annotation", "gt", "groundtruth", "segmentation", "segmentations", "targets", "target"),
)
_JSON_FOLDERS = ("annotations", "annotation", "labels", "json", "jsons", "gt")
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_HIDDEN_PREFIXES = (".", "_", "@")

_MAX_NAMES = 20_000  # inspected in all, however large a folder is
_MAX_LEVELS = 8
_MAX_TRIED = 20  # files of a kind that are opened


class DetectedSource(NamedTuple):
    """A source by its name in `rk.sources`, and its one or two paths."""

    kind: str
    path: str
    masks: str | None = None


def detect_source(path: str | os.PathLike[str], *, layout: str | None = None, encoding: str | None = None) -> Source:
    """The source for a path, given only the path and optionally the wanted layout and the encoding of texts."""
    return build_source(identify_source(path, layout=layout), SourceOverrides(encoding=encoding))


def identify_source(path: str | os.PathLike[str], *, layout: str | None = None) -> DetectedSource:
    """The kind of source of a file, a folder, or a pattern. The same names give the same answer."""
    place = as_path("path", path)
    if is_remote(place):
        raise error(
            "U604",
            "raw data cannot be read from remote storage yet",
            location=Location(path=place),
            expected="a local path",
            found=place.partition("://")[0][:30] + "://",
            do="copy the data to local storage, and write from the copy",
        )
    if not os.path.lexists(place) and _GLOB_CHARACTERS.search(place):
        kind = _kind_by_name(os.path.basename(place))
        if kind not in (None, "image_folder"):
            matched = next(iglob(place, recursive=True), None)
            return DetectedSource(str(kind if matched is None else _correct_tar_kind(kind, matched)), place)
    if LOCAL.stat(place).kind != "folder":
        return _identify_file(place, layout)
    return _identify_folder(place, layout, levels=0)


def _kind_by_name(name: str) -> str | None:
    """The kind that a file is named like, ignoring a compression suffix."""
    lower = name.lower()
    bare = re.sub(r"\.(gz|bz2|xz)$", "", lower)
    kind = _KIND_BY_EXTENSION.get(os.path.splitext(bare)[1])
    if kind is None:
        return "records" if is_record_name(lower) else None
    if bare == lower or kind == "webdataset":
        return kind
    return kind if lower.endswith(".gz") and kind in ("csv", "jsonl", "text") else None


def _correct_tar_kind(kind: str | None, path: str) -> str | None:
    """The kind of a file; a file named .tar may contain records, as those of Ray do."""
    return "records" if kind == "webdataset" and detect_content_kind(path) == "records" else kind


# A file.


def _identify_file(path: str, layout: str | None) -> DetectedSource:
    kind = _correct_tar_kind(_kind_by_name(os.path.basename(path)), path) or detect_content_kind(path)
    if kind == "csv":
        return DetectedSource(_identify_csv(path, layout), path)
    if kind == "jsonl":
        return DetectedSource(_identify_json(path, layout), path)
    if kind == "text" and layout != "text":
        return DetectedSource(_identify_text(path), path)
    if kind == "image_folder":
        folder = os.path.dirname(path) or "."
        raise _unknown_source_error(path, "a single image", f"rekord write {join_path(folder, '')} OUT")
    if kind is None:
        found = f"a file named {preview(os.path.basename(path))}"
        raise _unknown_source_error(
            path, found[:80], "rename it to end in its real extension, or read it in Python: rk.write(rows, out)"
        )
    return DetectedSource(kind, path)


def _identify_csv(path: str, layout: str | None, *, survey: bool = True) -> str:
    if layout in ("table", "text"):
        return "csv"
    if layout in ("detection", "classification"):
        return "boxes_csv" if layout == "detection" else "image_csv"

    def identify(head: bytes) -> str:
        if not (_IMAGE_NAME_END.search(head) or _IMAGE_COLUMN.match(head)):
            return "csv"
        if is_boxes_csv(head) or recognize_boxes_csv(path, head):
            return "boxes_csv"
        return "image_csv" if is_image_list(path, head) or recognize_image_list(path, head) else "csv"

    return _inspect_file(path, "csv" if survey else None, identify)


def _identify_text(path: str) -> str:
    """The kind of a text file: a list of images, masks or boxes, or lines of text."""

    def identify(head: bytes) -> str:
        has_names = _IMAGE_NAME_END.search(head)
        if has_names and recognize_pair_list(path, head):
            return "segmentation"
        if has_names and recognize_boxes_csv(path, head):
            return "boxes_csv"
        return "image_csv" if recognize_image_list(path, head) else "text"

    # Compressed files are not lists: nothing else describes the images next to them.
    return _inspect_file(path, "text", identify) if path.lower().endswith(".txt") else "text"


def _identify_json(path: str, layout: str | None) -> str:
    if layout not in (None, "auto"):
        return "coco" if layout == "detection" else "jsonl"
    return _inspect_file(path, "jsonl", lambda head: "coco" if is_coco(head) else "jsonl")


def _inspect_file(path: str, table: str | None, identify: Callable[[bytes], str]) -> str:
    """The kind of a file, by its first bytes. A table is surveyed while it is open, which caches its `facts`."""
    if not os.path.isfile(path):
        return identify(b"")
    kind = None
    # `facts` reports what is wrong with the file: it inspects it again.
    with suppress(RekordError), SizeCheckedFile(path, list_files(path, ()).files[0]) as opened:
        kind = identify(opened.read(_HEAD_BYTES))
        if kind == table:
            source: Any = build_source(DetectedSource(kind, path))
            source.facts(opened)
    return identify(b"") if kind is None else kind


# A folder.


class _FolderEntries(NamedTuple):
    """The direct entries of a folder, sorted by name, without hidden ones."""

    folders: tuple[str, ...]
    files: tuple[str, ...]

    def folder(self, *names: str) -> str | None:
        """The folder with one of these names, ignoring case; earlier names win."""
        lower = {name.lower(): name for name in reversed(self.folders)}
        return next((lower[name] for name in names if name in lower), None)


def _list_folder(folder: str) -> _FolderEntries:
    folders: list[str] = []
    files: list[str] = []
    for entry in LOCAL.list(folder):
        if not entry.name.startswith(_HIDDEN_PREFIXES):
            path = os.path.join(folder, entry.name)
            is_folder = entry.kind == "folder" or (entry.link and os.path.isdir(path))
            (folders if is_folder else files).append(entry.name)
    folders.sort(key=os.fsencode)
    files.sort(key=os.fsencode)
    return _FolderEntries(tuple(folders[:_MAX_NAMES]), tuple(files[:_MAX_NAMES]))


def _iter_files(folder: str, most: int, levels: int = _MAX_LEVELS) -> Iterator[str]:
    """Paths of at most `most` files, those nearest to the top first."""
    left = most
    level = [folder]
    for _ in range(levels):
        below: list[str] = []
        for place in level:
            entries = _list_folder(place)
            for name in entries.files:
                if not left:
                    return
                left -= 1
                yield os.path.join(place, name)
            below += [os.path.join(place, name) for name in entries.folders[: max(0, most - len(below))]]
        level = below


def _identify_folder(path: str, layout: str | None, *, levels: int) -> DetectedSource:
    entries = _list_folder(path)
    if {"rekord.json", "dataset_info.json"} & set(entries.files):
        return DetectedSource("records", path)
    if layout not in ("table", "text"):
        known = _identify_dataset(path, entries, layout)
        if known is not None:
            return known
    kinds = Counter(kind for name in entries.files if (kind := _kind_by_name(name)) not in (None, *_WEAK_KINDS))
    if len(entries.folders) == 1 and not kinds and levels < _MAX_LEVELS:
        inner = os.path.join(path, entries.folders[0])
        if _has_several_classes(inner):
            return _identify_folder(inner, layout, levels=levels + 1)
    return _identify_by_count(path, entries, layout)


def _has_several_classes(folder: str) -> bool:
    """Whether the only folder in another one is not a class: it has no images itself, or is named `images`."""
    entries = _list_folder(folder)
    has_images = any(is_image_name(name) for name in entries.files)
    return not has_images or os.path.basename(folder).lower() in _IMAGE_FOLDERS


def _identify_dataset(path: str, entries: _FolderEntries, layout: str | None) -> DetectedSource | None:
    """A folder in the layout of a well-known image dataset."""
    if {"leftImg8bit", "gtFine"} <= set(entries.folders):
        return DetectedSource("cityscapes", path)
    wants_masks = layout == "deeplab"
    if not wants_masks and _is_voc(path, entries):
        return DetectedSource("voc", path)
    wants_boxes = layout in (None, "auto", "detection")
    if wants_boxes and _is_coco(path, entries):
        return DetectedSource("coco", path)
    if wants_masks or layout in (None, "auto"):
        pair = _identify_voc_masks(path, entries) or _identify_image_mask_pair(path, entries)
        if pair is not None:
            return pair
    return DetectedSource("yolo", path) if wants_boxes and _is_yolo(path, entries) else None


def _is_voc(path: str, entries: _FolderEntries) -> bool:
    folder = entries.folder("annotations")
    if folder is not None:
        return _has_extension(os.path.join(path, folder), (".xml",), 1)
    places = ["", *[name for name in entries.folders if name.lower() in SPLIT_NAMES]]
    return any(_has_xml_next_to_images(os.path.join(path, name)) for name in places)


def _has_xml_next_to_images(folder: str) -> bool:
    names = _list_folder(folder).files
    xmls = {name[:-4] for name in names if name.lower().endswith(".xml")}
    return bool(xmls) and any(is_image_name(name) and os.path.splitext(name)[0] in xmls for name in names)


def _identify_voc_masks(path: str, entries: _FolderEntries) -> DetectedSource | None:
    if not {"JPEGImages", "SegmentationClass"} <= set(entries.folders):
        return None
    if os.path.isdir(os.path.join(path, "ImageSets", "Segmentation")):
        return DetectedSource("voc_segmentation", path)
    return DetectedSource("segmentation", os.path.join(path, "JPEGImages"), os.path.join(path, "SegmentationClass"))


def _identify_image_mask_pair(path: str, entries: _FolderEntries) -> DetectedSource | None:
    """A folder of images next to a folder of masks."""
    found = _find_image_and_mask_folders(path, entries)
    if found is not None:
        return DetectedSource("segmentation", *found)
    for split in [name for name in entries.folders if name.lower() in SPLIT_NAMES]:
        inner = os.path.join(path, split)
        found = _find_image_and_mask_folders(inner, _list_folder(inner))
        if found is not None:
            images, masks = [join_path(one, "") for one in found]
            raise _unknown_source_error(
                path,
                "folders of images and masks below each split",
                f"rekord write --images {images} --masks {masks} --split {split.lower()} OUT",
            )
    return None


def _find_image_and_mask_folders(path: str, entries: _FolderEntries) -> tuple[str, str] | None:
    images = entries.folder(*_IMAGE_FOLDERS)
    masks = entries.folder(*_MASK_FOLDERS)
    if images is None or masks is None:
        return None
    both = os.path.join(path, images), os.path.join(path, masks)
    return both if all(_has_extension(folder, tuple(IMAGE_EXTENSIONS), 4) for folder in both) else None


def _is_coco(path: str, entries: _FolderEntries) -> bool:
    if os.path.isfile(os.path.join(path, ROBOFLOW_FILE_NAME)):
        return True
    for name in entries.folders:
        inner = os.path.join(path, name)
        if name.lower() in SPLIT_NAMES and os.path.isfile(os.path.join(inner, ROBOFLOW_FILE_NAME)):
            return True
        if name.lower() in _JSON_FOLDERS and _has_coco(inner, _list_folder(inner).files):
            return True
    return _has_coco(path, entries.files)


def _has_coco(folder: str, names: Sequence[str]) -> bool:
    jsons = [name for name in names if name.lower().endswith(".json")][:_MAX_TRIED]
    return any(is_coco(_read_head(os.path.join(folder, name))) for name in jsons)


def _is_yolo(path: str, entries: _FolderEntries) -> bool:
    if entries.folder("obj_train_data") is not None:
        return True
    splits = [name for name in entries.folders if name.lower() in SPLIT_NAMES]
    for place in [path, *[os.path.join(path, name) for name in splits]]:
        here = _list_folder(place)
        labels = here.folder("labels")
        if labels is not None and _has_yolo(os.path.join(place, labels)):
            return True
        stems = {os.path.splitext(name)[0] for name in here.files if is_image_name(name)}
        beside = [name for name in here.files if name.lower().endswith(".txt") and name[:-4] in stems]
        if any(is_yolo_label(os.path.join(place, name)) for name in beside[:_MAX_TRIED]):
            return True
    images = entries.folder("images")
    return images is not None and _has_yolo(os.path.join(path, images))


def _has_yolo(folder: str) -> bool:
    texts = [name for name in _iter_files(folder, 1000, 4) if name.lower().endswith(".txt")]
    texts = [name for name in texts if os.path.basename(name).lower() != "classes.txt"]
    return any(is_yolo_label(name) for name in texts[:_MAX_TRIED])


def _has_extension(folder: str, extensions: tuple[str, ...], levels: int) -> bool:
    return any(name.lower().endswith(extensions) for name in _iter_files(folder, 2000, levels))


# Whatever there is most of.


def _identify_by_count(path: str, entries: _FolderEntries, layout: str | None) -> DetectedSource:
    seen = list(_iter_files(path, _MAX_NAMES))
    kinds: Counter[str] = Counter()
    first: dict[str, str] = {}
    for file in seen:
        kind = _kind_by_name(os.path.basename(file))
        if kind is not None and (kind == "image_folder" or _is_nonempty(file)):
            kinds[kind] += 1
            first.setdefault(kind, file)
    if layout in ("table", "text"):
        del kinds["image_folder"]
    strong = [kind for kind in kinds if kind not in _WEAK_KINDS]
    wanted = strong or list(kinds)
    if not wanted:
        return _identify_records_by_content(path, seen)
    best = max(wanted, key=lambda kind: (kinds[kind], -SOURCE_KINDS.index(kind)))
    lists = [name for name in entries.files if _kind_by_name(name) == "csv"]
    if best == "image_folder" and len(lists) == 1:
        listed = _identify_csv(os.path.join(path, lists[0]), layout, survey=False)
        if listed != "csv":
            return DetectedSource(listed, os.path.join(path, lists[0]))
    if kinds[best] < 10 * sum(kinds[kind] for kind in wanted if kind != best):
        instead = join_path(os.path.dirname(first[best]) if best == "image_folder" else first[best], "")
        raise _unknown_source_error(
            path, f"data of several kinds: {_summarize_files(seen)}", f"rekord write {instead} OUT"
        )
    if best == "image_folder":
        _reject_several_datasets(path, entries, layout)
    if best == "csv" and kinds["csv"] == 1:
        return DetectedSource(_identify_csv(first["csv"], layout), first["csv"])
    return DetectedSource(_correct_tar_kind(best, first[best]) or best, path)


def _is_nonempty(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return True  # reading it reports the cause


def _identify_records_by_content(path: str, seen: Sequence[str]) -> DetectedSource:
    """A last try: record files may have any name."""
    for file in seen[:_MAX_TRIED]:
        if is_record_name(os.path.basename(file)) is None and detect_content_kind(file) == "records":
            return DetectedSource("records", path)
    raise _unknown_source_error(
        path, _summarize_files(seen) or "no files", "pass the folder or the file that contains the data"
    )


def _reject_several_datasets(path: str, entries: _FolderEntries, layout: str | None) -> None:
    """Raise if the folders are datasets of annotated images, and not classes."""
    for name in entries.folders[:_MAX_TRIED]:
        inner = os.path.join(path, name)
        found = _identify_dataset(inner, _list_folder(inner), layout)
        if found is not None:
            raise _unknown_source_error(
                path,
                f"a folder of datasets: {preview(name)} is one (rk.sources.{found.kind})",
                f"rekord write {join_path(inner, '')} OUT",
            )


def _summarize_files(files: Sequence[str]) -> str:
    """A summary of files: `12 .pdf, 3 .docx`."""
    endings = Counter(os.path.splitext(file)[1].lower() or "without an extension" for file in files)
    counts = [f"{number:,} {preview(ending)[1:-1][:20]}" for ending, number in endings.most_common(5)]
    return ", ".join(counts) + (", …" if len(endings) > 5 else "")


def _unknown_source_error(path: str, found: str, do: str) -> RekordError:
    return error(
        "U621",
        location=Location(path=join_path(path, "")),
        expected="images in folders, images and masks, VOC, COCO, YOLO, Cityscapes, CSV, JSON lines, Parquet, Arrow, "
        "NumPy, text, tar (WebDataset) or record files",
        found=found,
        do=do,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOverrides:
    """Options of a source besides its path; None is not given."""

    classes: int | Sequence[str] | None = None
    ignore: int | None = None  # the id of pixels without a class
    label_map: str | None = None
    images: str | None = None  # the folder of the images that a list or a JSON file names
    optional_masks: bool | None = None
    encoding: str | None = None  # from here on: how text files are read
    delimiter: str | None = None
    header: bool | None = None
    na: Sequence[str] | None = None
    decimal: str | None = None
    numbers: Sequence[str] | None = None
    strip: bool | None = None


_NO_OVERRIDES = SourceOverrides()
_ACCEPTED_OVERRIDES = {
    "image_folder": ("classes",),
    "image_csv": ("classes", "images"),
    "segmentation": ("classes", "ignore", "optional_masks"),
    "voc_segmentation": ("classes", "ignore", "optional_masks"),
    "cityscapes": ("ignore", "optional_masks"),
    "voc": ("label_map",),
    "coco": ("label_map", "images"),
    "yolo": ("label_map",),
    "boxes_csv": ("label_map", "images"),
    "csv": ("encoding", "delimiter", "header", "na", "decimal", "numbers", "strip"),
    "jsonl": ("encoding",),
    "text": ("encoding",),
}
_TEXT_KINDS = ("csv", "jsonl", "text")


def takes_label_map(found: DetectedSource) -> bool:
    """Whether the source itself assigns ids by a label map: those of boxes."""
    return "label_map" in _ACCEPTED_OVERRIDES.get(found.kind, ())


def build_source(found: DetectedSource, overrides: SourceOverrides = _NO_OVERRIDES) -> Source:
    """The source. An option that it does not have is refused, not ignored."""
    accepted = _ACCEPTED_OVERRIDES.get(found.kind, ())
    for name in [field.name for field in fields(SourceOverrides)]:
        value = getattr(overrides, name)
        if value is not None and name not in accepted:
            raise _unused_override_error(found, name, value)
    classes = overrides.classes
    if isinstance(classes, int) and found.kind in ("image_folder", "image_csv"):
        raise _unused_override_error(found, "classes", classes)
    arguments = {name: getattr(overrides, name) for name in accepted}
    if found.kind in _TEXT_KINDS:
        arguments = {name: value for name, value in arguments.items() if value is not None}
    if found.kind == "segmentation":
        arguments |= {"masks": found.masks, "optional_masks": bool(overrides.optional_masks)}
    elif "classes" in arguments:
        # The number of classes is for the layout; the names are VOC's own, or those of the folder.
        arguments["classes"] = None if classes is None or isinstance(classes, int) else list(classes)
    if found.kind == "image_csv":
        arguments["root"] = arguments.pop("images")
    if found.kind in ("voc_segmentation", "cityscapes"):
        del arguments["ignore"]  # for the layout; the source has its own
    source: Source = getattr(import_module("rekord.sources"), found.kind)(found.path, **arguments)
    return source


def _unused_override_error(found: DetectedSource, name: str, value: object) -> RekordError:
    takes = _ACCEPTED_OVERRIDES.get(found.kind, ())
    expected = (
        "a file of class names, one per line"
        if name in takes
        else f"options for {found.kind}: "
        + (", ".join(f"--{one.replace('_', '-')}" for one in takes) or "none of these")
    )
    return error(
        "U605",
        f"`{name}` does not apply to source {found.kind}",
        location=Location(path=join_path(found.path, "")),
        expected=expected,
        found=f"{name} = {preview(value)}",
        do="--classes names.txt" if name in takes else f"leave {name}= out",
    )

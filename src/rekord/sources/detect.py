"""The kind of source of a path, from names and the first bytes of a few files."""

from __future__ import annotations

import lzma
import os
import re
import shlex
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from glob import iglob
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from rekord.arguments import as_path
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.annotation_formats import HEAD_BYTES, detect_content_kind, identify_list, is_coco, read_file_head
from rekord.sources.array_files import ImagesAs
from rekord.sources.audio_csv import recognize_audio_list
from rekord.sources.base import DetectedSource, SizeCheckedFile, Source, SourceGuess, list_files
from rekord.sources.converted_images import convert_images
from rekord.sources.datumaro import LAYOUTS, detect_formats, format_command
from rekord.sources.dicom import DICOM_EXTENSIONS
from rekord.sources.folder_readings import (
    PASS_ROWS,
    Reading,
    find_known_dataset,
    name_likely_formats,
    refusal,
    unknown_source_error,
    weigh_folder,
)
from rekord.sources.folder_survey import FolderSurvey, is_archive, is_container, is_documentation
from rekord.sources.image_folder import (
    IMAGE_EXTENSIONS,
    find_files,
    find_images,
    is_image_name,
    join_path,
    split_of_folder,
)
from rekord.sources.media_folder import (
    AUDIO_EXTENSIONS,
    UNREAD_AUDIO_EXTENSIONS,
    UNREAD_VIDEO_EXTENSIONS,
    VIDEO_EXTENSIONS,
)
from rekord.sources.nifti import NIFTI_EXTENSIONS
from rekord.sources.tiff import TIFF_EXTENSIONS, TiffReader
from rekord.sources.video_csv import recognize_video_list
from rekord.storage import raw_files
from rekord.storage.find import is_record_name
from rekord.storage.raw_files import RAW_FILES, is_archive_name, to_member_path
from rekord.storage.remote_files import listed_once
from rekord.storage.router import is_remote

MEDIA_KINDS = ("audio_folder", "video_folder")
SOURCE_KINDS = (
    *("image_folder", "images", "image_csv", "segmentation", "voc_segmentation", "cityscapes", "voc", "coco", "yolo"),
    "kitti",
    *("datumaro", "dicom", "nifti", "npy_folder", "tiff"),
    *("boxes_csv", "csv", "jsonl", "parquet", "arrow", "npy", "npz", "excel", "sqlite", "duckdb", "hdf5", "avro"),
    *("arff", "text_files", "text", "webdataset", "records"),
    *MEDIA_KINDS,
    *("audio_csv", "video_csv"),
)
FOLDER_KINDS = (
    *("image_folder", "images", "segmentation", "voc_segmentation", "cityscapes", "voc", "yolo", "kitti", "datumaro"),
    *MEDIA_KINDS,
)
"""Sources that read a whole folder: what they do not read in it is reported."""

KIND_BY_EXTENSION = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq", ".parq"), "parquet"),
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys(DICOM_EXTENSIONS, "dicom"),
    ".nii": "nifti",
    **dict.fromkeys((".txt", ".text"), "text"),
    **dict.fromkeys((".md", ".markdown", ".rst", ".html", ".htm", ".xhtml"), "text_files"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), "excel"),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db", ".db3", ".s3db"), "sqlite"),
    **dict.fromkeys((".duckdb", ".ddb"), "duckdb"),
    **dict.fromkeys((".h5", ".hdf5", ".hdf", ".he5"), "hdf5"),
    ".avro": "avro",
    ".arff": "arff",
    **dict.fromkeys((".tar", ".tgz"), "webdataset"),
    **dict.fromkeys(IMAGE_EXTENSIONS, "image_folder"),
    **dict.fromkeys(AUDIO_EXTENSIONS | UNREAD_AUDIO_EXTENSIONS, "audio_folder"),
    **dict.fromkeys(VIDEO_EXTENSIONS | UNREAD_VIDEO_EXTENSIONS, "video_folder"),
}
_WEAK_KINDS = ("jsonl", "text", "text_files")  # a .json or .txt next to other data usually describes it
_MEDIA_NAME = re.compile(rb"\.(?:(wave?|flac|og[ga]|opus|mp3)|mp4|m4v|mov|mkv|webm|avi)\b", re.IGNORECASE)
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_ARRAY_EXTENSIONS = {"tiff": TIFF_EXTENSIONS, "nifti": NIFTI_EXTENSIONS, "npy_folder": (".npy",)}
_TIFF_GUESS = SourceGuess("image", "TIFF files are stored as arrays", 'images_as="png" to store images')
_ABOUT = re.compile(r"(readme|licen[cs]e|copying|changelog|contributing|notice)\b", re.IGNORECASE)
_SAMPLE_EXTENSIONS = (".cls", ".cls2", ".index", ".inx", ".id")
_MAX_TAR_NAMES = 200  # that tell a WebDataset from a folder
_MASK_FOLDER = re.compile(r"(label|mask|segmentation|annotation)s?(tr|ts)?$", re.IGNORECASE)
_MAX_TRIED = 20  # files of a kind that are opened
_MAX_SHOWN = 4


def detect_source(path: str | os.PathLike[str], *, layout: str | None = None, encoding: str | None = None) -> Source:
    """The source for a path, given only the path and optionally the wanted layout and the encoding of texts."""
    return build_source(identify_source(path, layout=layout), SourceOverrides(encoding=encoding))


def identify_source(
    path: str | os.PathLike[str], *, layout: str | None = None, annotation_format: str | None = None
) -> DetectedSource:
    """The kind of source of a file, a folder, or a pattern. The same names give the same answer.

    `layout` is the one that the user asks for: where the data can be read so, it overrides every doubt.
    `annotation_format` says that the path is a folder that Datumaro reads.
    """
    with listed_once():
        return _identify(to_member_path(as_path("path", path)), layout, annotation_format)


def _identify(place: str, layout: str | None, annotation_format: str | None) -> DetectedSource:
    if annotation_format is not None:
        wanted = layout if layout in LAYOUTS else None
        return DetectedSource("datumaro", place, given=place, format=annotation_format, layout=wanted)
    is_folder_name = is_remote(place) and "." not in os.path.basename(place)
    if is_folder_name and raw_files.isfile(os.path.join(place, "rekord.json")):
        return DetectedSource("records", place, given=place)  # listing all of a large dataset takes long
    if not raw_files.lexists(place) and _GLOB_CHARACTERS.search(place):
        kind = _kind_by_name(os.path.basename(place))
        if kind not in (None, "image_folder", *MEDIA_KINDS):
            matched = _first_match(place)
            return DetectedSource(str(kind if matched is None else _correct_kind(kind, matched)), place)
    if RAW_FILES.stat(place).kind != "folder":
        if is_archive_name(place) and _is_folder_archive(place):
            return _identify_archive(place, layout)
        return _identify_file(place, layout)
    return _identify_folder(place, layout)._replace(given=place)


def _first_match(pattern: str) -> str | None:
    """A file that matches; none in an archive."""
    if not is_remote(pattern):
        return next(iglob(pattern, recursive=True), None)
    listing = list_files(pattern, ())
    return listing.full(listing.files[0])


def identify_masked(images: str, masks: str, *, layout: str | None = None) -> DetectedSource:
    """The kind of source of a folder of images and a folder of their masks."""
    found = DetectedSource("segmentation", images, masks)
    return found if layout not in (None, "auto") else _prefer_arrays(found)


def _prefer_arrays(found: DetectedSource) -> DetectedSource:
    """Folders of TIFF files, volumes or `.npy` files are stored as arrays: readers of images do not decode them."""
    if found.kind == "segmentation" and found.masks is not None and not found.folders:
        kind = _find_array_kind(found.path)
        is_same = raw_files.realpath(found.path) == raw_files.realpath(found.masks)
        if kind is None or is_same or kind != _find_array_kind(found.masks):
            return found
        if kind == "tiff" and _are_png_like(found.path):
            return found  # --images-as png, and the layout of masks
        guesses = (*found.guesses, *([_TIFF_GUESS] if kind == "tiff" else []))
        return found._replace(kind=kind, guesses=guesses, labelled=False)
    if found.kind not in ("image_folder", "images") or _find_array_kind(found.path) != "tiff":
        return found
    return found._replace(kind="tiff", guesses=(*found.guesses, _TIFF_GUESS), labelled=found.kind == "image_folder")


def _are_png_like(folder: str) -> bool:
    """Whether a PNG could hold the first TIFF file of a folder."""
    first = find_images(folder).files[0]
    try:
        form = TiffReader().inspect(os.path.join(folder, *first.path.split("/"))).form
    except RekordError:
        return True
    channels = form.shape[2:]
    return form.dtype in (np.uint8, np.uint16, np.bool_) and (not channels or channels in ((1,), (2,), (3,), (4,)))


def _find_array_kind(folder: str) -> str | None:
    """The one kind of arrays that a folder has, and no images next to them."""
    kinds: set[str | None] = set()

    def is_known(path: str) -> bool:
        lower = path.lower()
        known = [kind for kind, extensions in _ARRAY_EXTENSIONS.items() if lower.endswith(extensions)]
        if known or is_image_name(lower):
            kinds.add(known[0] if known else None)
        return False

    with suppress(RekordError):  # reading it reports the cause
        find_files(folder, is_known)
    return kinds.pop() if len(kinds) == 1 else None


def _kind_by_name(name: str) -> str | None:
    """The kind that a file is named like, ignoring a compression suffix."""
    lower = name.lower()
    bare = re.sub(r"\.(gz|bz2|xz)$", "", lower)
    kind = KIND_BY_EXTENSION.get(os.path.splitext(bare)[1])
    if kind is None:
        return "records" if is_record_name(lower) else None
    if bare == lower or kind == "webdataset":
        return kind
    return kind if lower.endswith(".gz") and kind in ("csv", "jsonl", "nifti", "text", "arff") else None


def _correct_kind(kind: str | None, path: str) -> str | None:
    """The kind of a file; a .tar may contain records, as those of Ray do, and a .db is of SQLite or DuckDB."""
    if kind not in ("webdataset", "sqlite"):
        return kind
    found = detect_content_kind(path)
    return found if (kind, found) in (("webdataset", "records"), ("sqlite", "duckdb")) else kind


# A file.


def _identify_file(path: str, layout: str | None) -> DetectedSource:
    kind = _correct_kind(_kind_by_name(os.path.basename(path)), path) or detect_content_kind(path)
    if kind == "csv":
        return DetectedSource(_identify_csv(path, layout), path)
    if kind == "jsonl":
        return DetectedSource(_identify_json(path, layout), path)
    if kind == "text" and layout != "text":
        return DetectedSource(_identify_text(path), path)
    if kind == "image_folder" and path.lower().endswith(TIFF_EXTENSIONS):
        return DetectedSource("tiff", path)
    if kind == "image_folder":
        folder = os.path.dirname(path) or "."
        raise unknown_source_error(path, "a single image", f"rekord write {join_path(folder, '')} OUT")
    if kind is None:
        found = f"a file named {preview(os.path.basename(path))}"
        raise unknown_source_error(
            path, found[:80], "rename it to end in its real extension, or read it in Python: rk.write(rows, out)"
        )
    return DetectedSource(kind, path)


def _identify_csv(path: str, layout: str | None) -> str:
    if layout in ("table", "text"):
        return "csv"
    if layout in ("detection", "classification"):
        return "boxes_csv" if layout == "detection" else "image_csv"

    def identify(head: bytes) -> str:
        return identify_list(path, head) or _identify_media_list(path, head) or "csv"

    return _inspect_file(path, "csv", identify)


def _identify_text(path: str) -> str:
    """The kind of a text file: a list of images, masks or boxes, or lines of text."""
    # Compressed files are not lists: nothing else describes the images next to them.
    is_plain = path.lower().endswith(".txt")
    if not is_plain:
        return "text"

    def identify(head: bytes) -> str:
        found = identify_list(path, head) or _identify_media_list(path, head)
        return found or ("csv" if _is_table(head) else "text")

    return _inspect_file(path, "text", identify)


def _identify_media_list(path: str, head: bytes) -> str | None:
    """The kind of a file that names audio or video files that exist. Other tables are recognised at once."""
    found = _MEDIA_NAME.search(head)
    if found is None:
        return None
    if found[1] is not None:
        return "audio_csv" if recognize_audio_list(path, head) else None
    return "video_csv" if recognize_video_list(path, head) else None


def _is_table(head: bytes) -> bool:
    """Whether lines have the same number of fields, and most of the fields are numbers."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:_MAX_TRIED] if line.strip()]
    for separator in (";", "\t", "|", ","):
        rows = [line.split(separator) for line in lines]
        if len(rows) > 1 and len(rows[0]) > 2 and {len(row) for row in rows} == {len(rows[0])}:
            numbers = [field for row in rows[1:] for field in row if re.fullmatch(r"\s*-?[\d.,:/]+\s*", field)]
            return len(numbers) * 2 > sum(len(row) for row in rows[1:])
    return False


def _identify_json(path: str, layout: str | None) -> str:
    if layout not in (None, "auto"):
        return "coco" if layout == "detection" else "jsonl"
    return _inspect_file(path, "jsonl", lambda head: "coco" if is_coco(head) else "jsonl")


def _inspect_file(path: str, table: str | None, identify: Callable[[bytes], str]) -> str:
    """The kind of a file, by its first bytes. A table is surveyed while it is open, which caches its `facts`."""
    if not raw_files.isfile(path):
        return identify(b"")
    kind = None
    # `facts` reports what is wrong with the file: it inspects it again.
    with suppress(RekordError), SizeCheckedFile(path, list_files(path, ()).files[0]) as opened:
        kind = identify(opened.read(HEAD_BYTES))
        if kind == table:
            source: Any = build_source(DetectedSource(kind, path))
            source.facts(opened)
    return identify(b"") if kind is None else kind


# An archive.


def _is_folder_archive(path: str) -> bool:
    """Whether an archive contains what a folder could, rather than the samples of a WebDataset or records."""
    if path.lower().endswith(".zip"):
        return True
    if detect_content_kind(path) == "records":
        return False
    names = [name for name in _read_tar_names(path) if not os.path.basename(name).startswith(".")]
    samples = Counter(re.sub(r"\.[^/]*$", "", name) for name in names)
    is_sample = any(name.lower().endswith(_SAMPLE_EXTENSIONS) for name in names)
    if not names or is_sample or max(samples.values()) > 1:
        return False
    return any("/" in name or not is_image_name(name) for name in names)


def _read_tar_names(path: str) -> list[str]:
    """The names of the first files in a tar file; none if it cannot be read."""
    with (
        suppress(tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError),
        raw_files.open_binary(path) as file,
        tarfile.open(fileobj=file) as tar,
    ):
        return [info.name.removeprefix("./") for info in islice(tar, _MAX_TAR_NAMES) if info.isfile()]
    return []


def _identify_archive(path: str, layout: str | None) -> DetectedSource:
    """The kind of what an archive contains: a folder, or a single file."""
    inside = f"{path}!"
    entries = RAW_FILES.list(inside)
    while len(entries) == 1 and entries[0].kind == "folder":
        inside = os.path.join(inside, entries[0].name)
        entries = RAW_FILES.list(inside)
    if len(entries) == 1:
        return _identify_file(os.path.join(inside, entries[0].name), layout)._replace(given=path)
    return _identify_folder(inside, layout)._replace(given=path)


# A folder.


def _identify_folder(path: str, layout: str | None) -> DetectedSource:
    try:
        found = _identify_by_files(path, layout)
    except RekordError as failure:
        if failure.code != "U621":
            raise
        found = _identify_annotations(path, layout, failure)
    return _prefer_arrays(found)


def _identify_by_files(path: str, layout: str | None) -> DetectedSource:
    survey = FolderSurvey(path)
    if {"rekord.json", "dataset_info.json"} & set(survey.top.others):
        return DetectedSource("records", path)
    if layout in ("table", "text"):
        return _identify_by_count(survey, layout)
    # A few images next to many records or tables illustrate them.
    strong = [group for group in survey.groups if _kind_by_name(group.names[0]) not in (None, *_WEAK_KINDS)]
    others = sum(group.file_count for group in strong)
    if survey.image_count and (layout not in (None, "auto") or survey.image_count * 10 > others):
        try:
            return weigh_folder(survey, layout)
        except RekordError as refused:
            _add_media_readings(refused, survey)
            raise
    known = None if survey.image_count else find_known_dataset(survey)
    return known or _identify_by_count(survey, layout)


def _add_media_readings(refused: RekordError, survey: FolderSurvey) -> None:
    """Name what reads audio and video that lie next to images, such as films and their thumbnails."""
    counts = Counter([_kind_by_name(os.path.basename(file)) for file in survey.iter_files()])
    found = [kind for kind in MEDIA_KINDS if counts[kind]]
    if refused.code != "U621" or len(found) != 1:
        return
    files = f"{counts[found[0]]:,} {found[0].removesuffix('_folder')} {'file' if counts[found[0]] == 1 else 'files'}"
    reading = files, shlex.join(["rekord", "write", join_path(survey.root, ""), "--layout", "table"]) + " OUT"
    is_most = counts[found[0]] > survey.image_count
    refused.readings = (reading, *refused.readings) if is_most else (*refused.readings, reading)
    refused.do = reading[1] if is_most else refused.do


def _identify_annotations(path: str, layout: str | None, refused: RekordError) -> DetectedSource:
    """The reading by Datumaro of a folder that no other source reads; else the refusal, with its readings."""
    formats = () if is_remote(path) else detect_formats(path)
    if len(formats) == 1:
        guess = SourceGuess(None, f"annotations in the format {formats[0]}, read with Datumaro")
        wanted = layout if layout in LAYOUTS else None
        return DetectedSource("datumaro", path, guesses=(guess,), format=formats[0], layout=wanted)
    place = join_path(path, "")
    several = [(f"annotations in the format {one}", format_command(place, one)) for one in formats[:_MAX_SHOWN]]
    if several:
        refused.readings = (*several, *refused.readings)
        refused.do = several[0][1]
        refused.likely = f"several formats of Datumaro fit: {', '.join(formats[:_MAX_SHOWN])}"
    raise refused


def _identify_by_count(survey: FolderSurvey, layout: str | None) -> DetectedSource:
    """Whatever there is most of."""
    path = survey.root
    seen = list(survey.iter_files())
    kinds: Counter[str] = Counter()
    first: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    unknown = []
    for file in seen:
        name = os.path.basename(file)
        kind = _kind_by_name(name)
        if kind is None:
            unknown += [] if is_documentation(name) and not is_archive(name) else [file]
        elif not is_image_name(name) and (kind in ("webdataset", "nifti") or not is_documentation(name)):
            full = os.path.join(path, file)
            if _is_nonempty(full):
                kinds[kind] += 1
                first.setdefault(kind, full)
                files.setdefault(kind, []).append(full)
    for kind, recognize in _MEDIA_LISTS.items():
        if kind in kinds and layout in (None, "auto"):
            listed = _identify_listed(survey, files, kind, recognize)
            if listed is not None:
                return listed
    strong = [kind for kind in kinds if kind not in _WEAK_KINDS]
    wanted = strong or list(kinds)
    if not wanted:
        pages = [
            file for file in seen if _kind_by_name(file) == "text_files" and not _ABOUT.match(os.path.basename(file))
        ]
        if pages and len(pages) * 2 > len(seen):
            return DetectedSource("text_files", path)
        return _identify_records_by_content(path, seen)
    best = max(wanted, key=lambda kind: (kinds[kind], -SOURCE_KINDS.index(kind)))
    if best in ("nifti", "npy", "dicom") and (masked := _identify_array_masks(path, best, files[best])) is not None:
        return masked
    readings = [
        _file_reading(path, kind, kinds[kind], first[kind]) for kind in sorted(wanted, key=lambda one: -kinds[one])
    ]
    if kinds[best] < 10 * sum(kinds[kind] for kind in wanted if kind != best):
        raise refusal(survey, readings, f"data of several kinds: {_summarize_files(seen)}")
    described = best in ("csv", *_WEAK_KINDS)  # a table or a text may describe the other files
    if described and layout not in ("table", "text") and len(unknown) * 10 > kinds[best]:
        raise refusal(survey, readings, f"files of an unknown kind: {_summarize_files(seen)}")
    if layout in (None, "auto") and not (best == "text" and _is_in_folders(files[best])):
        several = _describe_several(best, files[best])
        if several is not None:
            readings = [_split_reading(best, file) for file in files[best][:_MAX_SHOWN]]
            together = _file_reading(path, best, len(files[best]), first[best])
            raise refusal(survey, [*readings, *([] if best == "npy" else [together])], several)
    if best == "text" and layout != "text" and _is_in_folders(files["text"]):
        what = "each text file is one row, as the files are in folders of their classes"
        guess = SourceGuess(None, what, f"for a row per line: rk.sources.text({path!r})")
        return DetectedSource("text_files", path, guesses=(guess,))
    if best == "csv" and kinds["csv"] == 1:
        return DetectedSource(_identify_csv(first["csv"], layout), first["csv"])
    if best == "npy" and _is_in_folders(files[best]):
        return DetectedSource("npy_folder", path)
    return DetectedSource(_correct_kind(best, first[best]) or best, path)


def _identify_array_masks(path: str, kind: str, files: Sequence[str]) -> DetectedSource | None:
    """A folder of arrays and one of their masks; U621 if a folder is named as one of masks, and is none."""
    folders: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(raw_files.relpath(file, path))
        folders.setdefault(folder or ".", set()).add(name.partition(".")[0])
    masks = [folder for folder in folders if _MASK_FOLDER.search(folder)]
    others = [folder for folder in folders if folder not in masks]
    if not masks or not others:
        return None
    matched, images = max((len(folders[folder] & folders[masks[0]]), folder) for folder in others)
    if kind in _MASKED_KINDS and len(masks) == 1 and matched * 2 > len(folders[masks[0]]):
        rest = sorted(set(others) - {images})
        unused = f"; {', '.join(rest)} {'is' if len(rest) == 1 else 'are'} not used" if rest else ""
        guess = SourceGuess(None, f"arrays in {images} and their masks in {masks[0]}{unused}")
        image_place, mask_place = (raw_files.normpath(os.path.join(path, one)) for one in (images, masks[0]))
        return DetectedSource(_MASKED_KINDS[kind], image_place, mask_place, guesses=(guess,), labelled=False)
    found = f"arrays in {preview(others[0])}, and probably their masks in {preview(masks[0])}"
    do = f"rekord write {shlex.quote(join_path(os.path.join(path, others[0]), ''))} OUT"
    raise unknown_source_error(path, found[:100], do)


def _is_in_folders(files: Sequence[str]) -> bool:
    """Whether files are in at least two folders of classes, with several in each."""
    folders = Counter(map(os.path.dirname, files))
    return len(folders) > 1 and raw_files.commonpath(list(folders)) not in folders and min(folders.values()) > 1


_MEDIA_LISTS = {"audio_folder": recognize_audio_list, "video_folder": recognize_video_list}


def _identify_listed(
    survey: FolderSurvey, files: Mapping[str, Sequence[str]], folder: str, recognize: Callable[[str], bool]
) -> DetectedSource | None:
    """The list of a folder of audio or video; U621 if folders of classes say something else, or for several lists."""
    tables = [path for kind in ("csv", "text") for path in files.get(kind, ())][:_MAX_TRIED]
    lists = [path for path in tables if recognize(path)]
    if not lists:
        return None
    kind, name = folder.replace("_folder", "_csv"), folder.removesuffix("_folder")
    places = [raw_files.relpath(path, survey.root).split(os.sep)[:-1] for path in files[folder]]
    classes = {parts[0] for parts in places if parts and split_of_folder(parts[0]) is None}
    if len(lists) == 1 and (len(classes) < 2 or all(map(is_container, classes))):
        guess = SourceGuess(None, f"{name} files are those that {os.path.basename(lists[0])} lists")
        return DetectedSource(kind, lists[0], guesses=(guess,))
    readings = [
        Reading(f"the list {os.path.basename(path)}", DetectedSource(kind, path), (join_path(path, ""),))
        for path in lists
    ]
    what = f"several lists of {name} files" if len(lists) > 1 else f"a list of {name} files, and folders like classes"
    raise refusal(survey, readings, what)


def _describe_several(kind: str, files: Sequence[str]) -> str | None:
    """Why files of one kind are not one table: they are splits, or have different columns."""
    if len(files) < 2 or kind in ("records", "webdataset", *MEDIA_KINDS):
        return None
    splits = [split_of_file(file) for file in files]
    if len({split for split in splits if split is not None}) > 1:
        return f"a file per split, such as {preview(os.path.basename(files[0]))}"
    if kind == "npy" and not _is_in_folders(files):
        return f"{len(files):,} arrays, such as {preview(os.path.basename(files[0]))}"
    if kind == "csv":
        heads = [read_file_head(file, 64 * 1024).partition(b"\n")[0].strip() for file in files[:_MAX_TRIED]]
        counts = {len(re.split(rb"[,;\t|]", head)) for head in heads}
        named = [head for head in heads if not re.search(rb"(^|[,;\t|])\s*-?\d", head)]
        if len(counts) > 1 or len(set(named)) > 1:
            return f"{len(files):,} tables with different columns, such as {preview(os.path.basename(files[0]))}"
    return None


def split_of_file(path: str) -> str | None:
    """The split that a file is named after: `train.csv`, `ptb.valid.txt`, `fashion-mnist_test.csv`."""
    words = re.split(r"[^a-z]+", os.path.basename(path).lower())
    return next((split for word in words if (split := split_of_folder(word)) is not None), None)


def _split_reading(kind: str, path: str) -> Reading:
    split = split_of_file(path)
    arguments = (join_path(path, ""), *(() if split is None else ("--split", split)))
    return Reading(f"the file {os.path.basename(path)}", DetectedSource(kind, path), arguments)


def _file_reading(path: str, kind: str, count: int, first: str) -> Reading:
    """The files of one kind in a folder: the only one, or all in the folder of the first."""
    name = {"csv": "CSV", "jsonl": "JSON", "audio_folder": "audio", "video_folder": "video"}.get(kind, kind)
    if count == 1:
        return Reading(f"the {name} file", DetectedSource(kind, first), (join_path(first, ""),))
    if kind in MEDIA_KINDS:
        return Reading(
            f"{count:,} {name} files", DetectedSource(kind, path), (join_path(os.path.dirname(first), ""),)
        )
    pattern = os.path.join(os.path.dirname(first), f"*{os.path.splitext(first)[1]}")
    return Reading(f"{count:,} {name} files", DetectedSource(kind, path), (join_path(pattern, ""),))


def _is_nonempty(path: str) -> bool:
    try:
        return raw_files.getsize(path) > 0
    except OSError:
        return True  # reading it reports the cause


def _identify_records_by_content(path: str, seen: Sequence[str]) -> DetectedSource:
    """A last try: record files may have any name."""
    for file in seen[:_MAX_TRIED]:
        full = os.path.join(path, file)
        kind = detect_content_kind(full) if is_record_name(os.path.basename(file)) is None else None
        if kind in ("records", "dicom"):
            return DetectedSource(kind, path)
    likely, commands = name_likely_formats(path, seen)
    do = commands[0][1] if commands else PASS_ROWS
    raise unknown_source_error(path, _summarize_files(seen) or "no files", do, likely=likely, readings=commands)


def _summarize_files(files: Sequence[str]) -> str:
    """A summary of files: `12 .pdf, 3 .docx`."""
    endings = Counter(os.path.splitext(file)[1].lower() or "without an extension" for file in files)
    counts = [f"{number:,} {preview(ending)[1:-1][:20]}" for ending, number in endings.most_common(5)]
    return ", ".join(counts) + (", …" if len(endings) > 5 else "")


# The source as an object.


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
    images_as: ImagesAs | None = None  # the format of images that are neither JPEG nor PNG
    georeference: bool | None = None  # from here on: of files of arrays
    pages: bool | None = None
    rescale: bool | None = None
    metadata: Sequence[str] | None = None
    affine: bool | None = None
    text: bool | None = None  # whether a list of images has texts instead of classes
    box_format: str | None = None
    every: int | None = None  # from here on: which frames of videos are stored, and how
    fps: float | None = None
    clips: int | None = None
    remainder: str | None = None
    frames: str | None = None
    frame_size: tuple[int, int] | None = None
    sheet: str | None = None  # from here on: which table of a file
    table: str | None = None
    query: str | None = None
    group: str | None = None
    annotation_format: str | None = None  # one of Datumaro


_NO_OVERRIDES = SourceOverrides()
_FRAME_OVERRIDES = ("every", "fps", "clips", "remainder", "frames", "frame_size")
_ACCEPTED_OVERRIDES = {
    "image_folder": ("classes",),
    "images": (),
    "image_csv": ("classes", "images", "text"),
    "segmentation": ("classes", "ignore", "optional_masks"),
    "voc_segmentation": ("classes", "ignore", "optional_masks"),
    "cityscapes": ("ignore", "optional_masks"),
    "voc": ("label_map",),
    "coco": ("label_map", "images"),
    "yolo": ("label_map",),
    "kitti": ("label_map",),
    "boxes_csv": ("label_map", "images", "box_format"),
    "datumaro": ("label_map", "annotation_format"),
    "csv": ("encoding", "delimiter", "header", "na", "decimal", "numbers", "strip"),
    "jsonl": ("encoding",),
    "text": ("encoding",),
    "tiff": ("classes", "images_as", "georeference", "pages"),
    "dicom": ("classes", "images_as", "pages", "rescale", "metadata"),
    "nifti": ("classes", "affine"),
    "npy_folder": ("classes",),
    "audio_folder": ("classes",),
    "audio_csv": ("classes", "images", "text"),
    "video_csv": ("classes", "images", "text", *_FRAME_OVERRIDES),
    "video_folder": ("classes", *_FRAME_OVERRIDES),
    "text_files": ("encoding",),
    "arff": ("encoding",),
    "excel": ("sheet", "header"),
    "sqlite": ("table", "query"),
    "duckdb": ("table", "query"),
    "hdf5": ("group",),
}
_ARRAY_KINDS = ("tiff", "dicom", "nifti", "npy_folder")
_MASKED_KINDS = {"nifti": "nifti", "npy": "npy_folder"}
"""The sources of arrays with masks, by the kind of their files."""
_IMAGE_KINDS = (*FOLDER_KINDS, "coco", "image_csv", "boxes_csv")
_LIST_KINDS = ("image_csv", "audio_csv", "video_csv")
_KINDS_WITH_DEFAULTS = (
    *("csv", "jsonl", "text", "text_files", "arff", "excel", "video_folder", "video_csv"),
    *_ARRAY_KINDS,
)
"""Sources that get only the options that are given."""


def takes_label_map(found: DetectedSource) -> bool:
    """Whether the source itself assigns ids by a label map: those of boxes."""
    return "label_map" in _ACCEPTED_OVERRIDES.get(found.kind, ())


def build_source(found: DetectedSource, overrides: SourceOverrides = _NO_OVERRIDES) -> Source:
    """The source. An option that it does not have is refused, not ignored."""
    if found.kind in _ARRAY_KINDS and found.masks is not None and overrides.images_as is not None:
        found = found._replace(kind="segmentation")
    if found.kind in _IMAGE_KINDS and overrides.images_as is not None:
        inner = build_source(found, replace(overrides, images_as=None))
        return convert_images(inner, overrides.images_as)
    accepted = _ACCEPTED_OVERRIDES.get(found.kind, ())
    for name in [field.name for field in fields(SourceOverrides)]:
        value = getattr(overrides, name)
        if value is not None and name not in accepted:
            raise _unused_override_error(found, name, value)
    classes = overrides.classes
    if isinstance(classes, int) and found.kind in ("image_folder", *_LIST_KINDS, *MEDIA_KINDS, *_ARRAY_KINDS):
        raise _unused_override_error(found, "classes", classes)
    arguments = {name: getattr(overrides, name) for name in accepted}
    if found.kind in _ARRAY_KINDS and found.labelled is not None:
        arguments["labelled"] = found.labelled
    if found.kind in _ARRAY_KINDS and found.masks is not None:
        arguments["masks"] = found.masks
    if found.kind in _KINDS_WITH_DEFAULTS:
        arguments = {name: value for name, value in arguments.items() if value is not None}
    if found.kind == "segmentation":
        arguments |= {"masks": found.masks, "optional_masks": bool(overrides.optional_masks)}
        if found.folders:
            arguments["masks"] = {str(one.split): one.masks for one in found.folders}
    elif "classes" in arguments and found.kind not in _ARRAY_KINDS:
        # The number of classes is for the layout; the names are VOC's own, or those of the folder.
        arguments["classes"] = None if classes is None or isinstance(classes, int) else list(classes)
    if found.kind in _LIST_KINDS:
        arguments["root"] = arguments.pop("images", None)
    if found.kind == "datumaro":
        arguments["format"] = arguments.pop("annotation_format") or found.format
        arguments["layout"] = found.layout
    if found.kind in ("voc_segmentation", "cityscapes"):
        del arguments["ignore"]  # for the layout; the source has its own
    path: Any = {str(one.split): one.images for one in found.folders} or found.path
    source: Source = getattr(import_module("rekord.sources"), found.kind)(path, **arguments)
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

"""Annotations in the formats of Datumaro as rows: one per image, with what its layout stores."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rekord.arguments import as_path, check_keywords, one_of
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature, Float32, Image, Int64, Label, Schema, Text
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.annotation_scan import FolderScan, scan_folder, unsafe_error
from rekord.sources.base import SourceFacts, SourceFile, SourceGuess, SourcePart, SourceRow, UnusedInput
from rekord.sources.datumaro_reader import (
    FLAG_COLUMNS,
    UNREADABLE_FORMATS,
    ReadingFailure,
    ReadingReport,
    ReadingRequest,
)
from rekord.sources.detection_common import AnnotationSource
from rekord.sources.image_folder import (
    SourceListing,
    fingerprint,
    join_path,
    name_error,
    split_of_folder,
    stat_file,
    validate_folder,
)
from rekord.storage.archives import require_own_file
from rekord.storage.local import write_error

LAYOUTS = ("detection", "deeplab", "classification", "table", "images")
_UNLABELLED = "object"  # the class of boxes and masks that have none
_ONLY_CLASS = {"wider_face": "face", "icdar_text_localization": "text", "icdar_text_segmentation": "text"}
_CIFAR_BATCH = re.compile(r"data_batch_\d")
_MAX_SHOWN = 6

_BASE_MEMORY_BYTES = 4 << 30
_MEMORY_PER_BYTE = 64  # Python objects for each byte of annotations: about 20 in JSON
_BASE_CPU_SECONDS = 600
_BYTES_PER_CPU_SECOND = 10_000


@check_keywords
def datumaro(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    layout: str | None = None,
    masks: bool = False,
    label_map: str | os.PathLike[str] | None = None,
) -> DatumaroSource:
    """Annotated images in a format that Datumaro reads: CVAT, MOT, WIDER FACE, LabelMe, Open Images, DOTA and others.

    `format` is Datumaro's name of the format, such as "cvat" or "mot_seq"; by default it is detected. Requires
    `pip install 'rekord[annotations]'`. Datumaro parses the annotations in a process of its own; images are read as
    they are.

    `layout` is what the annotations become: "detection" (boxes; also those of polygons and masks), "deeplab" (masks
    of class ids, drawn from masks and polygons), "classification" (one class per image), "table" (texts and several
    classes) or "images". By default it is the first of these, in this order, that the annotations have; masks without
    boxes become "deeplab". `masks` adds the mask of each object to detection. Subsets become splits.

    Detection has `corners` if boxes are rotated, and `keypoints` if there are points. Annotations that the layout
    does not store are counted in what is not used. `label_map` gives the ids of classes by name.
    """
    if layout is not None:
        one_of("layout", layout, LAYOUTS, do='layout="detection"')
    return DatumaroSource(as_path("path", path), format, layout, bool(masks), detection.load_label_items(label_map))


def is_datumaro_installed() -> bool:
    """Whether the package is installed; it is not imported in this process."""
    try:
        return find_spec("datumaro") is not None
    except (ImportError, ValueError):
        return False


def detect_formats(path: str) -> tuple[str, ...]:
    """The formats that Datumaro detects; none if it is not installed, or the folder must not be parsed."""
    if not is_datumaro_installed():
        return ()
    try:
        scan = scan_folder(path)
        report = _run_reader(path, scan, ReadingRequest(path=""))
    except RekordError:
        return ()
    return () if report.failure is not None else tuple(report.formats)


def missing_package_error(path: str, looks_like: str | None = None) -> RekordError:
    """The error for annotations that need Datumaro, which is not installed."""
    what = "these annotations are" if looks_like is None else f"{looks_like} annotations are"
    return error(
        "U602",
        f"{what} read with Datumaro, which is not installed",
        location=Location(path=join_path(path, "")),
        expected="the package datumaro",
        found="not installed",
        do="pip install 'rekord[annotations]'",
    )


class _Context(NamedTuple):
    """What the rows of a listing need; small, as every part holds it."""

    arrow: str
    layout: str
    names: tuple[str, ...]  # of labels by Datumaro's index, and the class of objects that have none
    ids: tuple[int | None, ...]  # in the layout detection; None is not in the label map
    has: tuple[str, ...]
    masks: bool
    splits: Mapping[str, str]
    columns: tuple[str, ...]  # of the layout table
    is_single: bool  # whether every image has one caption


class _Staged:
    """The Arrow file of a listing. It is removed with the listing, or when this process ends."""

    def __init__(self) -> None:
        try:
            self.folder = tempfile.mkdtemp(prefix="rekord-annotations-")
        except OSError as failure:
            raise write_error(tempfile.gettempdir(), failure) from failure
        self.path = os.path.join(self.folder, "annotations.arrow")
        self.remove = weakref.finalize(self, _remove_own, self.folder, os.getpid())


def _remove_own(folder: str, process: int) -> None:
    if os.getpid() == process:  # not in a forked worker
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False)
class DatumaroSource(AnnotationSource):
    root: str
    format: str | None
    layout: str | None
    masks: bool
    items: tuple[LabelItem, ...] | None

    kind = "datumaro"

    def options(self) -> Mapping[str, Any]:
        try:
            version = importlib.metadata.version("datumaro")
        except importlib.metadata.PackageNotFoundError:
            version = None
        return {
            "format": self.format,
            "layout": self.layout,
            "masks": self.masks,
            "label_map": detection.label_items_to_json(self.items),
            "datumaro": version,  # which decides what the annotations mean
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_staged"}

    def _list(self) -> SourceListing:
        root = validate_folder(self.root)
        require_own_file(root, "a folder of annotations")
        if not is_datumaro_installed():
            raise missing_package_error(root)
        if self.format in UNREADABLE_FORMATS:
            raise _unreadable_format_error(root, self.format)
        scan = scan_folder(root)
        known = self.__dict__.get("_staged")
        if known is not None and known[0] == scan.fingerprint:  # Datumaro takes long
            return known[2]  # type: ignore[no-any-return]
        staged = _Staged()
        request = ReadingRequest(path="", format=self.format, layout=self.layout, masks=self.masks)
        try:
            report = _run_reader(root, scan, request, staged.path)
            self._check(report)
            listing = self._describe(report, staged.path)
        except BaseException:
            staged.remove()  # the traceback keeps it alive
            raise
        self.__dict__["_staged"] = scan.fingerprint, staged, listing
        return listing

    def _check(self, report: ReadingReport) -> None:
        """Raise if the folder was not read, or has nothing to store."""
        if report.denied:
            raise unsafe_error(
                self.root,
                "annotations that only refer to files of the folder",
                report.denied[0],
                "fix the annotations",
            )
        if report.failure is not None:
            raise _failure_error(self.root, self.format or next(iter(report.formats), None), report.failure)
        if len(report.formats) != 1:
            raise _ambiguous_error(self.root, report.formats)
        usable = sum([count for kind, count in report.media.items() if kind.startswith("Image")])
        if report.layout == "none" or not usable:
            others = ", ".join([f"{count:,} of type {kind}" for kind, count in report.media.items()])
            found = f"{usable:,} images without annotations" if usable else f"no images: {others or 'no items'}"
            raise error(
                "X592",
                location=Location(path=self.place("")),
                expected=f"images with annotations, in the format {report.formats[0]}",
                found=found,
                do='to store the images alone: layout="images"' if usable else "pass the folder of the images",
            )

    def _describe(self, report: ReadingReport, arrow: str) -> SourceListing:
        layout = str(report.layout)
        only = _ONLY_CLASS.get(report.formats[0], _UNLABELLED)
        names = (*report.names, *([only] if report.unlabelled else ()))
        ids = self._assign_ids(names, set(report.used)) if layout == "detection" else ()
        classes: Mapping[int, str] = dict(enumerate(names))
        if layout == "detection":
            by_name = {name: number for name, number in zip(names, ids, strict=True) if number is not None}
            classes = detection.class_names_by_id(by_name, self.items)
        elif layout in ("table", "images"):
            classes = {}
        splits = {split: _split_name(split) for split in report.splits if split is not None}
        has = tuple(report.has)
        schema = _table_schema(report, names) if layout == "table" else None
        context = _Context(arrow, layout, names, ids, has, self.masks, splits, tuple(schema or ()), report.is_single)
        numbers = sorted(classes)
        files = self._list_files(report, arrow)
        facts = SourceFacts(
            layout=layout,
            schema=schema,
            classes=tuple([classes[number] for number in numbers]) or None,
            class_ids=tuple(numbers) if layout == "detection" else None,
            rows=report.rows,
            source_bytes=sum([file.size_bytes for file in files]),
            splits=None if None in report.splits else detection.order_splits(splits.values()),
            files=files,
            unused=tuple([UnusedInput("annotation", what, f"{n:,}: {why}") for what, n, why in report.unused]),
            guesses=tuple(self._guesses(report, layout)),
            extra={
                "has": has,
                "masks": self.masks and layout == "detection",
                "ignore": report.ignore,
                "optional_labels": report.incomplete > 0,
                "optional_masks": report.incomplete > 0,
            },
        )
        return SourceListing(facts, list(enumerate(report.batches)), context)

    def _assign_ids(self, names: Sequence[str], used: set[int]) -> tuple[int | None, ...]:
        """Ids of boxes: those of the label map, else from 1; 0 is the background."""
        if self.items is not None:
            by_name = detection.assign_class_ids(names, self.items)
            return tuple([by_name.get(name) for name in names])
        if not used and names:  # all other classes are those of images
            return (*[None] * (len(names) - 1), 1)
        has_background = bool(names) and names[0].lower() == "background" and 0 not in used
        return tuple([i or None for i in range(len(names))] if has_background else range(1, len(names) + 1))

    def _list_files(self, report: ReadingReport, arrow: str) -> tuple[SourceFile, ...]:
        """The images, and every file that was opened for them."""
        files = []
        options = pa.ipc.IpcReadOptions(included_fields=[0, 5, 6])
        with pa.memory_map(arrow) as mapped, pa.ipc.open_file(mapped, options=options) as reader:
            for i in range(reader.num_record_batches):
                columns = reader.get_batch(i).to_pydict()
                rows = zip(columns["path"], columns["size_bytes"], columns["mtime_ns"], strict=True)
                files += [SourceFile(path, size, time) for path, size, time in rows if path]
        for path in report.files:
            facts = stat_file(os.path.join(self.root, path))
            if facts is not None:
                files.append(SourceFile(path, facts.st_size, facts.st_mtime_ns))
        return fingerprint(files)

    def _guesses(self, report: ReadingReport, layout: str) -> Iterator[SourceGuess]:
        if self.format is None:
            yield SourceGuess(None, f"annotations in the format {report.formats[0]}, detected by Datumaro")
        if report.unlabelled:
            column = {"detection": "labels", "deeplab": "mask"}.get(layout, "label")
            only = _ONLY_CLASS.get(report.formats[0], _UNLABELLED)
            yield SourceGuess(column, f"{report.unlabelled:,} annotations without a class have the class {only}")
        if report.incomplete:
            what = {"deeplab": "mask", "classification": "label"}.get(layout, "annotation")
            yield SourceGuess(what, f"{report.incomplete:,} images have no {what}: it is optional")
        yield from [SourceGuess(None, text) for text in report.guesses]

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        """The rows of a part, from the Arrow file."""
        context, numbers = part.content
        with pa.memory_map(context.arrow) as mapped, pa.ipc.open_file(mapped) as reader:
            for number in numbers:
                yield from self._read_batch(_Batch(reader.get_batch(number)), context)

    def _read_batch(self, batch: _Batch, context: _Context) -> Iterator[SourceRow]:
        problems, paths, positions = batch.list("problem"), batch.list("path"), batch.list("position")
        for i, problem in enumerate(problems):
            values: Mapping[str, Any] | RekordError
            if problem is None:
                try:
                    values = self.row((batch, i), context)
                except RekordError as failure:
                    values = failure
            else:
                values = self._row_error(problem, batch.list("source_id")[i], paths[i])
            yield SourceRow(paths[i], positions[i], values)

    def row(self, content: tuple[_Batch, int], context: _Context) -> dict[str, Any]:
        batch, i = content
        path = batch.list("path")[i]
        image: Any = Path(self.root) / path if path else batch.list("image")[i]
        split = batch.list("split")[i]
        values: dict[str, Any] = {"image": image, "filename": batch.list("filename")[i]}
        if split is not None:
            values["split"] = context.splits[split]
        if context.layout == "detection":
            self._add_objects(values, batch, i, context)
        elif context.layout == "deeplab":
            values["mask"] = batch.list("mask")[i]
        elif context.layout == "classification":
            indices = batch.values("labels", i).tolist()
            values["label"] = context.names[indices[0]] if indices else None
        elif context.layout == "table":
            captions = batch.list("captions")[i] or []
            known = json.loads(batch.list("attributes")[i] or "{}")
            known |= {"text": captions[0] if context.is_single else captions, "labels": batch.values("labels", i)}
            values |= {name: known.get(name) for name in context.columns if name not in values}
        return values

    def _add_objects(self, values: dict[str, Any], batch: _Batch, i: int, context: _Context) -> None:
        indices = batch.values("labels", i).tolist()
        ids = [context.ids[index] for index in indices]
        if None in ids:
            name = context.names[indices[ids.index(None)]]
            at = Location(path=self.place(batch.list("path")[i]))
            raise detection.unknown_class_error("box", name, "a class of the label map", at)
        values |= {
            "source_id": batch.list("source_id")[i],
            "boxes": batch.values("boxes", i).reshape(-1, 4),
            "labels": np.array(ids, np.int64),
            "class_names": [context.names[index] for index in indices],
            "box_names": [f"annotation {number}" for number in range(len(ids))],
        }
        width, height = batch.list("width")[i], batch.list("height")[i]
        if width and height:
            values |= {"width": width, "height": height}
        for name in context.has:
            if name in FLAG_COLUMNS:
                values[name] = batch.values(name, i)
        if "corners" in context.has:
            values["corners"] = batch.values("corners", i).reshape(-1, 8)
        if "keypoints" in context.has:
            counts = batch.values("keypoint_counts", i)
            points = batch.values("keypoints", i).reshape(-1, 3)
            values["keypoints"] = np.split(points, np.cumsum(counts)[:-1]) if len(counts) else []
        if context.masks:
            values["masks"] = batch.list("masks")[i] or []

    def _row_error(self, problem: str, item: str | None, path: str) -> RekordError:
        kind, _, detail = problem.partition(":")
        at = Location(path=self.place(path))
        if kind == "name":
            return name_error(self.root, path)
        if kind == "missing":
            return detection.missing_image_error(detail, self.place(""), at, named_folder=False)
        if kind == "duplicate":
            return detection.duplicate_image_error(path, f"the subset {preview(detail)}", at)
        if kind == "outside":
            return error(
                "E391",
                location=at,
                expected="a path below the folder",
                found=preview(detail),
                do="copy the image into the folder, and fix the annotation",
            )
        return error(
            "E390",
            f"annotations of {preview(item)} cannot be read",
            location=at,
            expected="an image with annotations that Datumaro reads",
            found=f"an item of type {detail}" if kind == "media" else detail,
            do="fix the annotations of this image, or remove them",
        )


class _Batch:
    """The columns of a record batch, converted once."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._lists: dict[str, list[Any]] = {}
        self._arrays: dict[str, tuple[Any, Any]] = {}

    def list(self, name: str) -> list[Any]:
        """The values of a column."""
        if name not in self._lists:
            self._lists[name] = self._batch.column(name).to_pylist()
        return self._lists[name]

    def values(self, name: str, row: int) -> np.ndarray[Any, Any]:
        """The numbers of one row of a column of lists; none for a null."""
        if name not in self._arrays:
            column = self._batch.column(name)
            self._arrays[name] = column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=False)
        offsets, values = self._arrays[name]
        found: np.ndarray[Any, Any] = values[offsets[row] : offsets[row + 1]]
        return found


def _split_name(subset: str) -> str:
    """The split that a subset is named after; CIFAR's are its files."""
    return "train" if _CIFAR_BATCH.fullmatch(subset) else split_of_folder(subset.removesuffix("_batch")) or subset


def _table_schema(report: ReadingReport, names: Sequence[str]) -> Schema:
    columns: dict[str, Feature] = {"image": Image(), "filename": Text()}
    if report.captions:
        columns["text"] = Text() if report.is_single else Text(shape=(None,))
    if report.used or report.unlabelled:
        columns["labels"] = Label(tuple(names), shape=(None,))
    kinds: dict[str, type[Feature]] = {"int": Int64, "float": Float32, "text": Text}
    columns.update({name: kinds[kind](optional=True) for name, kind in report.attributes.items()})
    return Schema(columns)


# The other process.


def _run_reader(root: str, scan: FolderScan, request: ReadingRequest, out: str | None = None) -> ReadingReport:
    """What Datumaro answers, in a process with limits that follow from the size of the annotations."""
    request.path = os.fsencode(os.path.abspath(root)).hex()
    request.out = None if out is None else os.fsencode(out).hex()
    request.memory_bytes = _BASE_MEMORY_BYTES + _MEMORY_PER_BYTE * scan.annotation_bytes
    request.cpu_seconds = _BASE_CPU_SECONDS + scan.files + scan.annotation_bytes // _BYTES_PER_CPU_SECOND
    # Without -P, a module in the working directory would be imported instead of an installed one.
    command = [sys.executable, "-P", "-m", "rekord.sources.datumaro_reader", msgspec.json.encode(request).decode()]
    limits = {"OPENCV_IO_MAX_IMAGE_PIXELS": str(1 << 28), "OPENCV_LOG_LEVEL": "SILENT", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **limits},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as failure:
        raise _ended_error(root, failure.strerror or str(failure)) from failure
    try:
        return msgspec.convert(json.loads(done.stdout), ReadingReport)
    except (ValueError, msgspec.ValidationError):
        raise _ended_error(root, _describe_end(done)) from None


def _describe_end(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        try:
            return f"the process was ended by {signal.Signals(-done.returncode).name}"
        except ValueError:
            return f"the process was ended by signal {-done.returncode}"
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return (last[0] if last else f"exit code {done.returncode}")[:200]


def _ended_error(root: str, found: str) -> RekordError:
    return error(
        "X590",
        "Datumaro ended before it had read the annotations",
        location=Location(path=join_path(root, "")),
        expected="annotations that Datumaro can read",
        found=found,
        do="check the annotations, or read them in Python: rk.write(rows, out)",
    )


_UNSAFE = ("EntitiesForbidden", "DTDForbidden", "ExternalReferenceForbidden", "UnpicklingError", "DeniedError")


def _failure_error(root: str, format: str | None, failure: ReadingFailure) -> RekordError:
    """The error for an exception of Datumaro."""
    path = join_path(root, failure.file or "")
    text = f"{failure.kind}: {failure.text}" if failure.text else failure.kind
    if failure.kind == "ModuleNotFoundError":
        return error(
            "U602",
            f"the format {format} needs a package that is not installed" if format else None,
            location=Location(path=join_path(root, "")),
            expected="the packages that Datumaro needs for this format",
            found=failure.text,
            do="pip install " + (failure.text.split("'")[1].split(".")[0] if "'" in failure.text else "datumaro"),
        )
    if failure.kind == "UnknownFormatError":
        return error(
            "U605",
            "`format` is not a format of Datumaro",
            expected="a name such as cvat, mot_seq, wider_face, label_me, open_images or dota",
            found=preview(format),
            do="rk.sources.datumaro(path) detects it",
        )
    if failure.kind in _UNSAFE:
        return unsafe_error(path, "annotations without entities and code", text[:100], "do not use this file")
    if failure.kind == "MemoryError":
        text = "more memory than its size explains"
    return error(
        "X590",
        location=Location(path=path),
        expected=f"annotations in the format {format}",
        found=text[:200] + (f" ({failure.item})" if failure.item else ""),
        do='fix the annotations, or name another format: rk.sources.datumaro(path, "cvat")',
    )


def _ambiguous_error(root: str, formats: Sequence[str]) -> RekordError:
    place = join_path(root, "")
    commands = [(f"annotations in the format {one}", format_command(place, one)) for one in formats[:_MAX_SHOWN]]
    return error(
        "U621",
        "format of the annotations cannot be determined",
        location=Location(path=place),
        expected="annotations in one of the formats of Datumaro",
        found=f"several that fit: {', '.join(formats)}" if formats else "none that fits",
        do=commands[0][1] if commands else 'name the format: rk.sources.datumaro(path, "cvat")',
        readings=commands,
    )


def format_command(path: str, format: str) -> str:
    """The command that reads a folder in a format of Datumaro."""
    import shlex

    return shlex.join(["rekord", "write", path, "--annotation-format", format]) + " OUT"


def _unreadable_format_error(root: str, format: str | None) -> RekordError:
    what = UNREADABLE_FORMATS[str(format)]
    return error(
        "U605",
        f"`format` {format!r} is {what}, which is not read with Datumaro",
        location=Location(path=join_path(root, "")),
        expected="a format of annotations",
        found=preview(format),
        do="unpack it first" if what == "an archive" else "rekord write PATH OUT",
    )

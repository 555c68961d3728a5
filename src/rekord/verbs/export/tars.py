"""WebDataset tars: the members of a record share a name up to its first dot."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from rekord.schema import Feature, Image, Mask, of_type
from rekord.storage.transaction import Output, StagedFolder
from rekord.verbs.export.images import decode_name, read_image_header
from rekord.verbs.export.reading import (
    ExportedRecords,
    Options,
    UniqueNames,
    choose_extension,
    reject_columns,
    safe_name,
    strip_image_extension,
)
from rekord.verbs.export.tables import check_class_names, check_finite, make_class_namer, to_python_values

_BLOCK_BYTES = 512
_RECORD_BYTES = 20 * _BLOCK_BYTES
_IMAGE_KEYS = ("image", "image/encoded")
_MASK_KEYS = ("mask", "image/segmentation/class/encoded")
_NAME_KEYS = ("filename", "image/filename")

MemberForm = Literal["image", "bytes", "array", "class", "text", "json", "name"]


@dataclass(frozen=True, slots=True)
class _Member:
    """How a column is stored: the form of its values, and what stands before the extension of that form."""

    form: MemberForm
    prefix: str = ""


def check_tar(records: ExportedRecords, options: Options) -> None:
    """Refuse what no member of a tar can hold."""
    check_class_names(records.features, options.labels)
    wrong = {
        name: f"a list of {type(feature).__name__}"
        for name, feature in records.features.items()
        if feature.value_kind == "bytes" and feature.shape
    }
    reject_columns("WebDataset", wrong, holds="images, bytes, arrays, numbers and texts")
    members = _plan_members(records, options)
    stored: dict[tuple[str, str], str] = {}
    twice: dict[str, str] = {}
    for name, member in members.items():
        if member.form in ("image", "bytes", "array", "class", "text"):
            other = stored.setdefault((member.form, member.prefix), name)
            if other != name:
                twice[name] = f"the member of `{other[:30]}` too"
    reject_columns("WebDataset", twice, holds="columns whose names differ as extensions")


def write_tars(
    records: ExportedRecords, staging: StagedFolder, options: Options, name_of: Callable[[int], str]
) -> int:
    """All records as tars, each below `shard_bytes` where that is given; gives the number of records."""
    tars = _TarWriter(staging, options.shard_bytes, name_of)
    members = _plan_members(records, options)
    names = UniqueNames()
    keyed = next((name for name, member in members.items() if member.form == "name"), None)
    total = 0
    for batch, first, rows in records.batches():
        in_json = {name: column for name, column in batch.items() if members[name].form == "json"}
        check_finite(records, in_json, first, rows, format="JSON")
        values = {name: _prepare_values(records, options, name, batch[name], members, first) for name in batch}
        for row in range(rows):
            number = first + row
            stem = safe_name(decode_name(values[keyed][row])) if keyed is not None else ""
            key = names.take(_make_sample_key(stem) or f"{number:09d}")
            parts = [
                (f"{key}.{extension}", data)
                for extension, data in _iter_sample_members(records, members, values, row, number, key)
            ]
            tars.add(parts)
        total += rows
        options.on_records(rows)
    tars.finish()
    return total


def _make_sample_key(name: str) -> str:
    """A name up to what could be taken for an extension: behind a folder it has no dots."""
    folder, slash, last = strip_image_extension(name).rpartition("/")
    return folder + slash + last.replace(".", "_")


def _plan_members(records: ExportedRecords, options: Options) -> dict[str, _Member]:
    features, steps = records.features, records.split.schema.steps
    images = list(of_type(features, Image))
    images = images or [name for name, one in features.items() if _has_role(name, one, ("bytes",), _IMAGE_KEYS)]
    main = images[0] if len(images) == 1 else "image"
    masks = list(of_type(features, Mask))
    masks = masks or [name for name, one in features.items() if _has_role(name, one, ("bytes",), _MASK_KEYS)]
    found: dict[str, _Member] = {}
    for name, feature in features.items():
        if name in steps:
            found[name] = _Member("json")
        elif name == main and name in images:
            found[name] = _Member("image")
        elif masks[:1] == [name]:
            found[name] = _Member("image", "seg.")
        else:
            found[name] = _plan_member(name, feature, options)
    return found


def _has_role(name: str, feature: Feature, given: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return feature.value_kind in given and feature.shape == () and (name in names or feature.key in names)


def _plan_member(name: str, feature: Feature, options: Options) -> _Member:
    prefix = re.sub(r"[^a-z0-9_.-]", "_", name.lower().replace("/", ".")).strip(".") + "."
    if _has_role(name, feature, ("str", "bytes"), _NAME_KEYS):
        return _Member("name")
    if feature.is_image:
        return _Member("image", prefix)
    if feature.value_kind == "bytes":
        return _Member("bytes", prefix)
    many = feature.storage != "list" and feature.sparse_size is None  # tensors and boxes
    fixed = _is_number(feature) and feature.shape and None not in feature.shape
    if many or fixed or _is_matrix(feature):
        return _Member("array", prefix)
    if _has_role(name, feature, ("int",), ("label",)) and options.labels == "ids":
        return _Member("class")
    if name == "text" and feature.is_text and feature.shape == ():
        return _Member("text")
    return _Member("json")


def _is_matrix(feature: Feature) -> bool:
    return _is_number(feature) and len(feature.record_keys("x")) == 1 and len(feature.shape) > 1


def _is_number(feature: Feature) -> bool:
    return feature.value_kind in ("int", "float") and feature.class_count is None


def _prepare_values(
    records: ExportedRecords,
    options: Options,
    name: str,
    column: Any,
    members: Mapping[str, _Member],
    first: int,
) -> Any:
    if members[name].form == "array":
        return column  # rows of it are arrays
    feature = records.features[name]
    values = to_python_values(column, feature)
    if options.labels == "names" and feature.class_names:
        return make_class_namer(records, name, feature, first)(values)
    return values


def _iter_sample_members(
    records: ExportedRecords,
    members: Mapping[str, _Member],
    values: Mapping[str, Any],
    row: int,
    number: int,
    key: str,
) -> Iterator[tuple[str, bytes]]:
    """The members of a record by their extensions. What is missing has none."""
    document: dict[str, Any] = {}
    for name, member in members.items():
        value = values[name][row]
        if member.form == "name" and (name != "filename" or value != key):
            document[name] = None if value is None else decode_name(value)  # the key does not lead back to it
        if value is None or member.form == "name":
            continue
        match member.form:
            case "image":
                format = read_image_header(records, number, name, value).format
                yield member.prefix + choose_extension("", format)[1:], value
            case "bytes":
                yield f"{member.prefix}bin", value
            case "array":
                yield f"{member.prefix}npy", _encode_npy(value)
            case "class":
                yield "cls", str(value).encode()
            case "text":
                yield "txt", value.encode()
            case _:
                document[name] = value
    if document or not any(values[name][row] is not None for name in members if members[name].form != "name"):
        yield "json", msgspec.json.encode(document)


def _encode_npy(value: Any) -> bytes:
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


class _TarWriter:
    """The tars that samples go to, one after another."""

    def __init__(self, staging: StagedFolder, shard_bytes: int | None, name_of: Callable[[int], str]) -> None:
        self._staging = staging
        self._shard_bytes = shard_bytes
        self._name_of = name_of
        self._shards = 0
        self._output: Output | None = None

    def add(self, members: list[tuple[str, bytes]]) -> None:
        pieces: list[bytes] = []
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            pieces += [info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"), data]
            pieces.append(bytes(-len(data) % _BLOCK_BYTES))
        output = self._room(sum(map(len, pieces)))
        for piece in pieces:
            output.write(piece)

    def finish(self) -> None:
        if self._output is None:
            self._output = self._next()  # of no records: an empty tar is one too
        self._end()

    def _room(self, size_bytes: int) -> Output:
        full = self._output is not None and self._shard_bytes is not None and self._output.n_bytes > 0
        if full and self._output is not None and self._output.n_bytes + size_bytes > (self._shard_bytes or 0):
            self._end()
        if self._output is None:
            self._output = self._next()
        return self._output

    def _next(self) -> Output:
        self._shards += 1
        return self._staging.output(self._name_of(self._shards - 1))

    def _end(self) -> None:
        assert self._output is not None
        self._output.write(bytes(2 * _BLOCK_BYTES))
        self._output.write(bytes(-self._output.n_bytes % _RECORD_BYTES))
        self._staging.finish(self._output)
        self._output = None

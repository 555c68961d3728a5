"""WebDataset tars: the members of a record share a name up to its first dot."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
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
    """How a column is stored: the form of its values, and the prefix of that form's extension."""

    form: MemberForm
    prefix: str = ""


def check_tar(records: ExportedRecords, options: Options) -> None:
    """Refuse columns that no member of a tar can hold."""
    check_class_names(records.features, options.labels)
    wrong = {
        name: f"a list of {type(feature).__name__}"
        for name, feature in records.features.items()
        if feature.value_kind == "bytes" and feature.shape
    }
    reject_columns(records, "WebDataset", wrong, holds="images, bytes, arrays, numbers and texts")
    members = _plan_members(records, options)
    stored: dict[tuple[str, str], str] = {}
    duplicates: dict[str, str] = {}
    for name, member in members.items():
        if member.form in ("image", "bytes", "array", "class", "text"):
            other = stored.setdefault((member.form, member.prefix), name)
            if other != name:
                duplicates[name] = f"same member as `{other[:30]}`"
    reject_columns(records, "WebDataset", duplicates, holds="columns whose names differ as extensions")


def write_tars(records: ExportedRecords, staging: StagedFolder, options: Options, name: str) -> int:
    """Write all records as one tar, or as numbered tars of up to `shard_bytes`; returns the number of records."""
    tars = _TarWriter(staging, options.shard_bytes, name)
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
    """A name without anything that could be taken for an extension: no dots after the last folder."""
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
    """The members of a record by extension. Missing values have none."""
    document: dict[str, Any] = {}
    for name, member in members.items():
        value = values[name][row]
        if member.form == "name" and (name != "filename" or value != key):
            document[name] = None if value is None else decode_name(value)  # the key does not preserve it
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
    """Writes samples to one tar after another."""

    def __init__(self, staging: StagedFolder, shard_bytes: int | None, name: str) -> None:
        self._staging = staging
        self._shard_bytes = shard_bytes
        self._name = name
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
        self._room(0)  # without records, an empty tar
        self._end()

    def _room(self, size_bytes: int) -> Output:
        """The tar that has room for a sample of this size."""
        if self._output is not None and self._shard_bytes is not None:
            n_bytes = self._output.n_bytes
            if n_bytes > 0 and size_bytes and n_bytes + size_bytes > self._shard_bytes:
                self._end()
        if self._output is None:
            numbered = f"{self._name.removesuffix('.tar')}-{self._shards:06d}.tar"
            self._output = self._staging.output(self._name if self._shard_bytes is None else numbered)
            self._shards += 1
        return self._output

    def _end(self) -> None:
        assert self._output is not None
        self._output.write(bytes(2 * _BLOCK_BYTES))
        self._output.write(bytes(-self._output.n_bytes % _RECORD_BYTES))
        self._staging.finish(self._output)
        self._output = None

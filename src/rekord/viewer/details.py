"""A record as JSON: the cells of a table row, and everything about one record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.decode import SequenceExample, decode
from rekord.codec.preview import describe_cell
from rekord.errors import RekordError, error
from rekord.report.formatting import format_count
from rekord.schema import Boxes, Bytes, Schema, of_type
from rekord.viewer.columns import (
    ColumnInfo,
    View,
    decode_row,
    find_box_names,
    is_text,
    list_columns,
    view_of_bytes,
)
from rekord.viewer.containers import inspect_audio, inspect_video
from rekord.viewer.media import image_facts
from rekord.viewer.records import RawRecord

MAX_CELL_CHARACTERS = 120
MAX_VALUES = 1000
MAX_CELL_BOXES = 30
MAX_TEXT_BYTES = 64 << 10
MAX_ITEMS = 100
MAX_FEATURES = 1000
MAX_STEPS = 200
MAX_HEX_BYTES = 16 << 10

_MAX_SAFE_INTEGER = 2**53
_PARTS = (("length", 8), ("length crc", 4), ("payload", None), ("payload crc", 4))


def number_to_json(value: Any) -> float | int | str | bool | None:
    """A number as the page can read it: JSON has no NaN, and the browser no exact integers above 2^53."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value) if abs(int(value)) <= _MAX_SAFE_INTEGER else str(int(value))
    if isinstance(value, (complex, np.complexfloating)):
        return str(complex(value))
    if isinstance(value, (float, np.floating)) or getattr(value, "dtype", None) is not None:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return str(value)
        if math.isfinite(number):
            # The shortest text that is the same float32: 0.1, not 0.10000000149.
            return float(str(np.float32(value))) if getattr(value, "dtype", None) == np.float32 else number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return str(value)


def describe_raw(raw: RawRecord, number: int, split: str) -> dict[str, Any]:
    """Where a record is, and whether it is intact."""
    return {
        "record": number,
        "split": split,
        "file": raw.path.rsplit("/", 1)[-1],
        "path": raw.path,
        "file_record": raw.record,
        "offset": raw.offset,
        "bytes": raw.payload_bytes,
        "state": raw.state,
        "error": None if raw.error is None else raw.error.to_dict(),
    }


def read_row(raw: RawRecord, schema: Schema, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The values of an intact record; raises if it does not match the schema."""
    return decode_row(raw.payload, schema, columns)


def with_box_names(schema: Schema, columns: list[str]) -> list[str]:
    """The columns, and those that name their boxes."""
    if not of_type({name: schema[name] for name in columns}, Boxes):
        return columns
    named = find_box_names(schema)
    return list(dict.fromkeys([*columns, *(name for name in (named.ids, named.texts) if name is not None)]))


def make_cells(row: Mapping[str, Any], columns: Sequence[ColumnInfo], schema: Schema) -> list[dict[str, Any]]:
    """The cells of a table row; boxes come with the first of them, so that tiles need no further request."""
    cells = []
    for column in columns:
        cell = make_cell(row.get(column.name), column)
        if column.view == "boxes" and not cell.get("missing"):
            cell |= list_boxes(np.asarray(row[column.name]), row, schema, MAX_CELL_BOXES)
        cells.append(cell)
    return cells


def make_cell(value: Any, column: ColumnInfo) -> dict[str, Any]:
    """One cell: a short text, and what its view needs."""
    if value is None:
        return {"text": "", "missing": True}
    if column.is_step:
        return {"text": f"{len(value):,} steps", "count": len(value)}
    view = column.view
    if isinstance(value, bytes) and view in ("image", "mask", "bytes"):
        facts = image_facts(value)
        if facts is not None:
            return {"text": f"{facts['format']} {facts['width']}×{facts['height']}", "image": facts}
        if value and not is_text(value):
            return {"text": _describe_bytes(value)}
        return {"text": _shorten(value[:1000].decode(errors="replace")) or "empty"}
    if view in ("audio", "video"):
        return {"text": f"{view}, {len(value):,} bytes"}
    if view == "class":
        return {"text": describe_class(value, column.feature), "code": number_to_json(value)}
    if view == "number":
        return {"text": _shorten(str(value)), "value": number_to_json(value)}
    if view == "boxes":
        return {"text": format_count(len(value), "box"), "count": len(value)}
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value[:1000].decode(errors="replace")
        return {"text": _shorten(text) if isinstance(value, str) or is_text(value) else _describe_bytes(value)}
    return {"text": _shorten(describe_cell(value, column.feature))}


def describe_class(value: Any, feature: Any) -> str:
    """A class id by its name."""
    names = feature.class_names
    number = int(value)
    return names[number] if names is not None and 0 <= number < len(names) else str(number)


def describe_record(raw: RawRecord, number: int, split: str, schema: Schema) -> dict[str, Any]:
    """Everything about a record."""
    document = describe_raw(raw, number, split)
    document |= {
        "frame": {
            "offset": raw.offset,
            "bytes": raw.frame_bytes,
            "length_crc": raw.header[8:12].hex(),
            "payload_crc": raw.trailer.hex(),
            "file": raw.path,
        },
        "kind": None,
        "features": [],
        "steps": None,
        "undeclared": [],
        "missing": [],
        "more_features": 0,
    }
    if raw.state != "ok":
        return document
    document["kind"] = _core.recognise_payload(raw.payload).name.lower()
    try:
        row = decode_row(raw.payload, schema)
    except RekordError as failure:
        document |= {"state": "invalid", "error": failure.to_dict()}
        row = {}
    stored = _decode_stored(raw.payload, schema)
    columns = list_columns(schema, row)
    shown = [one for one in columns if not one.is_step][:MAX_FEATURES] if row else []
    document["features"] = [describe_feature(one, row, stored[0], schema) for one in shown]
    if schema.is_sequence and row:
        document["steps"] = [_describe_steps(one, row[one.name]) for one in columns if one.is_step][:MAX_FEATURES]
    document["missing"] = [one.name for one in columns if row and row.get(one.name) is None][:MAX_FEATURES]
    declared = (
        {key for one in columns if not one.is_step for key in one.feature.record_keys(one.name)} if row else set()
    )
    declared_steps = {key for one in columns if one.is_step for key in one.feature.record_keys(one.name)}
    others = [(key, value) for key, value in sorted(stored[0].items()) if key not in declared]
    document["undeclared"] = [_describe_undeclared(key, value) for key, value in others[:MAX_FEATURES]]
    if not row:
        steps = [(key, value) for key, value in sorted(stored[1].items())]
    else:
        steps = [(key, value) for key, value in sorted(stored[1].items()) if key not in declared_steps]
    document["undeclared"] += [
        {"name": key, "key": key, "view": "list", "stored": "steps", "count": len(value), "value": {"text": ""}}
        for key, value in steps[: MAX_FEATURES - len(document["undeclared"])]
    ]
    document["more_features"] = max(len(others) + len(steps) - MAX_FEATURES, 0)
    return document


def _decode_stored(payload: bytes, schema: Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The lists of a record by key, without a schema; none for payloads that are not parsed."""
    if schema.kind == "bytes":
        return {}, {}
    try:
        if schema.is_sequence:
            sequence: SequenceExample = decode(payload, kind="sequence")
            return dict(sequence.context), dict(sequence.steps)
        return dict(decode(payload)), {}
    except RekordError:
        return {}, {}


def _count_bytes(values: Any) -> int:
    if values is None:
        return 0
    return sum(map(len, values)) if isinstance(values, list) else int(values.nbytes)


def describe_feature(
    column: ColumnInfo, row: Mapping[str, Any], stored: Mapping[str, Any], schema: Schema
) -> dict[str, Any]:
    """A column of a record with its value."""
    value = row.get(column.name)
    lists = [stored[key] for key in column.feature.record_keys(column.name) if stored.get(key) is not None]
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return {
        **column.to_dict(),
        "key": column.feature.record_keys(column.name)[0],
        "stored": column.feature.kind if lists or schema.kind == "bytes" else None,
        "count": sum(map(len, lists)) if lists else int(value is not None),
        "bytes": sum(map(_count_bytes, lists)) if lists else len(value) if isinstance(value, bytes) else 0,
        "value_shape": None if shape is None else list(shape),
        "value_dtype": None if dtype is None else str(dtype),
        "value": describe_value(value, column, row, schema),
        "error": None,
    }


def describe_value(
    value: Any, column: ColumnInfo, row: Mapping[str, Any] | None = None, schema: Schema | None = None
) -> dict[str, Any]:
    """A value with as much as the page can show of it."""
    if value is None:
        return {"text": "", "missing": True}
    view = column.view
    if view == "class" and np.ndim(value) == 0:
        return {"text": describe_class(value, column.feature), "code": number_to_json(value)}
    if isinstance(value, Mapping):
        return {"text": _shorten(str(value))}
    if isinstance(value, (bytes, str)):
        return _describe_string(value, view)
    if view == "boxes":
        return _describe_boxes(np.asarray(value), row or {}, schema)
    if isinstance(value, tuple) and len(value) == 2 and column.feature.sparse_size is not None:
        indices, values = np.asarray(value[0]), np.asarray(value[1])
        return {
            "text": f"{len(indices):,} of {column.feature.sparse_size:,} values",
            "size": column.feature.sparse_size,
            "indices": _numbers(indices),
            "values": _numbers(values),
        }
    return _describe_numbers(value, column)


def _describe_string(value: bytes | str, view: View) -> dict[str, Any]:
    if isinstance(value, str):
        data = value.encode(errors="surrogatepass")
        return {
            "text": _shorten(value),
            "string": data[:MAX_TEXT_BYTES].decode(errors="replace"),
            "truncated": len(data) > MAX_TEXT_BYTES,
        }
    facts = image_facts(value) if view in ("image", "mask", "bytes") else None
    if facts is not None:
        return {"text": f"{facts['format']} {facts['width']}×{facts['height']}", "image": facts}
    if view in ("audio", "bytes") and (audio := inspect_audio(value)) is not None:
        return {"text": f"{audio['format']}, {len(value):,} bytes", "audio": audio}
    if view in ("video", "bytes") and (video := inspect_video(value)) is not None:
        return {"text": f"{video['format']}, {len(value):,} bytes", "video": video}
    if value and is_text(value):
        text = value[:MAX_TEXT_BYTES].decode(errors="replace")
        return {"text": _shorten(text), "string": text, "truncated": len(value) > MAX_TEXT_BYTES}
    return {"text": _describe_bytes(value)}


def _describe_boxes(boxes: Any, row: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    return {"text": format_count(len(boxes), "box"), "boxes": list_boxes(boxes, row, schema, MAX_VALUES)}


def list_boxes(boxes: Any, row: Mapping[str, Any], schema: Schema | None, most: int) -> dict[str, Any]:
    """Boxes as [ymin, xmin, ymax, xmax] in fractions of the stored image, with their classes if they have any."""
    found: dict[str, Any] = {
        "count": len(boxes),
        "boxes": [[number_to_json(box[side]) for side in (1, 0, 3, 2)] for box in boxes[:most]],
        "labels": None,
        "names": None,
    }
    if schema is None:
        return found
    named = find_box_names(schema)
    ids = _to_list(None if named.ids is None else row.get(named.ids))
    if len(ids) == len(boxes):
        numbers = [int(one) for one in ids[:most]]
        found["labels"] = numbers
        if named.names is not None:
            names = named.names
            found["names"] = [names[one] if 0 <= one < len(names) else str(one) for one in numbers]
    texts = _to_list(None if named.texts is None else row.get(named.texts))
    if len(texts) == len(boxes):
        found["names"] = [
            _shorten(one.decode(errors="replace") if isinstance(one, bytes) else str(one)) for one in texts[:most]
        ]
    return found


def _to_list(value: Any) -> list[Any]:
    """The values of a column that has one per box; a single one may not be a list."""
    if value is None:
        return []
    return [value] if isinstance(value, (bytes, str)) or not np.ndim(value) else list(value)


def _describe_numbers(value: Any, column: ColumnInfo) -> dict[str, Any]:
    array: Any = None if isinstance(value, list) else np.asarray(value)
    if array is None or array.dtype == object or array.dtype.kind in "SU":
        items = list(value) if array is None or array.ndim else [value]
        shown = [make_cell(one, ColumnInfo(column.name, column.feature, "bytes")) for one in items[:MAX_ITEMS]]
        return {"text": f"{len(items):,} items", "items": len(items), "values": [one["text"] for one in shown]}
    if array.ndim == 0:
        names = column.feature.class_names
        if names is not None and array.dtype.kind in "iu":
            return {"text": describe_class(array[()], column.feature), "code": number_to_json(array[()])}
        return {"text": str(value), "value": number_to_json(array[()])}
    found: dict[str, Any] = {
        "text": _shorten(describe_cell(array, column.feature)),
        "values": _numbers(array),
        "shape": list(array.shape),
        "dtype": str(array.dtype),
    }
    if array.size and array.dtype.kind in "iufb":
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        least, most = (finite.min(), finite.max()) if finite.size else (None, None)
        found["tensor"] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "min": number_to_json(least),
            "max": number_to_json(most),
        }
    names = column.feature.label_names
    if names is not None and array.ndim == 1 and array.dtype.kind in "iu":
        found["names"] = [names[one] if 0 <= one < len(names) else str(one) for one in array[:MAX_VALUES].tolist()]
    return found


def _numbers(array: Any) -> list[Any]:
    return [number_to_json(one) for one in array.reshape(-1)[:MAX_VALUES]]


def _describe_steps(column: ColumnInfo, value: Any) -> dict[str, Any]:
    steps = [] if value is None else list(value[:MAX_STEPS]) if hasattr(value, "__getitem__") else list(value)
    view = column.view
    if steps and isinstance(steps[0], bytes) and view == "bytes":
        view = view_of_bytes(steps[0])
    shown = ColumnInfo(column.name, column.feature, view)
    return {
        **shown.to_dict(),
        "kind": column.feature.kind,
        "count": 0 if value is None else len(value),
        "values": [describe_value(one, shown) for one in steps[:MAX_STEPS]],
    }


def _describe_undeclared(key: str, value: Any) -> dict[str, Any]:
    """A key of the record that the schema does not have, or that could not be decoded by it."""
    kind = get_list_kind(value)
    count = 0 if value is None else len(value)
    shown: dict[str, Any] = {"text": ""}
    view: View = "list"
    if isinstance(value, list) and count == 1:
        view = view_of_bytes(value[0])
        shown = _describe_string(value[0], view)
    elif isinstance(value, list):
        texts = [_describe_string(one, view_of_bytes(one))["text"] for one in value[:MAX_ITEMS]]
        shown = {"text": f"{count:,} items", "items": count, "values": texts}
    elif value is not None:
        shown = {"text": _shorten(describe_cell(value, None)), "values": _numbers(value)}
    return {
        "name": key,
        "key": key,
        "view": view,
        "stored": kind,
        "count": count,
        "bytes": _count_bytes(value),
        "value": shown,
    }


def get_list_kind(value: Any) -> str | None:
    """The kind of list in a feature; None if it is unset."""
    if value is None or isinstance(value, list):
        return None if value is None else "bytes"
    return "int64" if value.dtype.kind == "i" else "float"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 1] + "…"


def _describe_bytes(data: bytes) -> str:
    more = f" …, {len(data):,} bytes" if len(data) > 16 else ""
    return f"0x {data[:16].hex(' ')}{more}"


def get_value(raw: RawRecord, schema: Schema, feature: str, step: int | None = None) -> tuple[Any, ColumnInfo]:
    """The value of a column, or of a record key as `key:NAME`; of one step, if asked for."""
    if feature.startswith("key:"):
        key = feature.removeprefix("key:")
        context, steps = _decode_stored(raw.payload, schema)
        value = context.get(key) if step is None else next(iter(steps.get(key, [])[step : step + 1]), None)
        if value is None:
            raise error("U606", f"record has no key `{key[:60]}`", expected="a key of the record")
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        view = view_of_bytes(value) if isinstance(value, bytes) else "list"
        return value, ColumnInfo(key, Bytes(), view)
    row = decode_row(raw.payload, schema, [schema_column(schema, feature)])
    column = next(one for one in list_columns(schema, row) if one.name == feature)
    value = row[feature]
    if step is not None:
        if not hasattr(value, "__len__") or not 0 <= step < len(value):
            raise error("U606", f"`{feature[:60]}` has no step {step:,}")
        value = value[step]
    if isinstance(value, bytes) and column.view == "bytes":
        column = ColumnInfo(column.name, column.feature, view_of_bytes(value), column.is_step)
    return value, column


def schema_column(schema: Schema, name: str) -> str:
    """The name, if the schema has such a column."""
    if name not in schema:
        raise error(
            "U606",
            f"dataset has no column `{name[:60]}`",
            expected="one of " + ", ".join(f"`{one[:60]}`" for one in list(schema)[:8]),
            found=f"`{name[:60]}`",
        )
    return name


def describe_hex(raw: RawRecord, first: int, count: int) -> dict[str, Any]:
    """Some bytes of a frame, and its layout."""
    count = max(0, min(count, MAX_HEX_BYTES))
    head = raw.header + raw.payload + raw.trailer
    parts, at = [], 0
    for name, size in _PARTS:
        n_bytes = raw.payload_bytes if size is None else size
        good: bool | None = None
        if name == "length crc":
            good = len(raw.header) == _core.HEADER_BYTES and _core.header_agrees(raw.header)
        elif name == "payload crc" and raw.state == "ok":
            good = True
        elif name == "payload crc" and raw.state == "damaged" and raw.frame_bytes:
            good = False
        parts.append({"name": name, "first": at, "bytes": n_bytes, "ok": good})
        at += n_bytes
    first = max(first, 0)
    return {
        "offset": raw.offset,
        "frame_bytes": raw.frame_bytes or len(head),
        "available": len(head),
        "first": first,
        "hex": head[first : first + count].hex(),
        "parts": parts,
    }


def describe_bytes_hex(data: bytes, first: int, count: int) -> dict[str, Any]:
    """Some bytes of a value."""
    first, count = max(first, 0), max(0, min(count, MAX_HEX_BYTES))
    return {"bytes": len(data), "first": first, "hex": data[first : first + count].hex(), "parts": []}


def make_grid(value: Any, number: int, rows: int, columns: int) -> dict[str, Any]:
    """A slice of a tensor as a grid for a heat map: its numbers, or means of blocks if there are more."""
    array = np.asarray(value)
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.dtype.kind not in "iufb" and array.dtype.name != "bfloat16":
        raise error("U606", "value is not a tensor of numbers", expected="numbers", found=str(array.dtype))
    shape = list(array.shape)
    dtype = str(array.dtype)
    plane = array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, *array.shape[-2:])
    slices = 1 if array.ndim < 2 else plane.shape[0]
    if array.ndim == 3 and array.shape[2] in (1, 3, 4) and array.shape[0] > 4:  # channels come last
        plane, slices = np.moveaxis(array, 2, 0), array.shape[2]
    number = min(max(number, 0), max(slices - 1, 0))
    flat = plane if array.ndim < 2 else plane[number]
    height, width = flat.shape
    rows, columns = min(max(1, min(rows, 256)), height), min(max(1, min(columns, 256)), width)
    blocks = _Blocks(flat, rows, columns)
    return {
        "shape": shape,
        "dtype": dtype,
        "slices": slices,
        "slice": number,
        "rows": rows,
        "columns": columns,
        "exact": height == rows and width == columns,
        "min": number_to_json(blocks.least),
        "max": number_to_json(blocks.most),
        "mean": number_to_json(blocks.mean),
        "grid": [[number_to_json(one) if np.isfinite(one) else None for one in line] for line in blocks.means()],
    }


class _Blocks:
    """The sums of blocks of a plane, without the values that are not finite. One band is in memory at a time."""

    def __init__(self, plane: Any, rows: int, columns: int) -> None:
        self.least: float | None = None
        self.most: float | None = None
        self._is_wide = plane.shape[1] > plane.shape[0]
        bands, across = (columns, rows) if self._is_wide else (rows, columns)
        self._sums, self._counts = np.zeros((bands, across)), np.zeros((bands, across), np.int64)
        turned = plane.T if self._is_wide else plane
        if not turned.size:
            return
        tops, lefts = (
            np.linspace(0, n, k + 1).astype(np.intp) for n, k in zip(turned.shape, (bands, across), strict=True)
        )
        for i in range(bands):
            self._add(i, np.asarray(turned[tops[i] : tops[i + 1]], np.float64), lefts[:-1])

    def _add(self, band: int, numbers: Any, lefts: Any) -> None:
        finite = np.isfinite(numbers)
        known = numbers[finite]
        if known.size:
            self.least = min(float(known.min()), math.inf if self.least is None else self.least)
            self.most = max(float(known.max()), -math.inf if self.most is None else self.most)
        with np.errstate(over="ignore"):
            self._sums[band] = np.add.reduceat(np.where(finite, numbers, 0.0).sum(axis=0), lefts)
        self._counts[band] = np.add.reduceat(finite.sum(axis=0), lefts)

    @property
    def mean(self) -> float | None:
        """The mean of all values; None without one."""
        count = int(self._counts.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self._sums.sum() / count) if count else None

    def means(self) -> Any:
        """The mean of each block; NaN without a value."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = self._sums / self._counts
        return found.T if self._is_wide else found

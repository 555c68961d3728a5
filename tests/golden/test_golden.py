"""Files that are kept for ever: they read as they always did, and are still written byte for byte.

A failure here means that yesterday's data reads differently today. The files are never made anew; a new layout
gets a new file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk

FILES = Path(__file__).parent / "files"
NAMES = ["every_layout", "sequence"]
COMPRESSIONS = {"": "none", ".gz": "gzip", ".zlib": "zlib"}


def _value(written: Any) -> Any:
    """A value as the JSON beside a file holds it: floats by their bits, bytes in hex."""
    if isinstance(written, dict):
        return bytes.fromhex(written["hex"]) if "hex" in written else float.fromhex(written["float"])
    return [_value(part) for part in written] if isinstance(written, list) else written


def _document(name: str) -> tuple[rk.Schema, list[dict[str, Any]]]:
    document = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
    rows = [{column: _value(value) for column, value in row.items()} for row in document["rows"]]
    return rk.Schema.from_dict(document["schema"]), rows


def _exact(value: Any) -> Any:
    """Plain values that are equal only if they are the same: floats by their bits."""
    if isinstance(value, np.ndarray | np.generic):
        return _exact(value.tolist())
    if isinstance(value, list | tuple):
        return [_exact(part) for part in value]
    return ("float", value.hex()) if isinstance(value, float) else value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("extension", COMPRESSIONS)
def test_a_kept_file_holds_the_records_that_it_always_held(name, extension) -> None:
    schema, rows = _document(name)
    path = FILES / f"{name}.tfrecord{extension}"
    assert list(rk.records(path)) == list(rk.records(FILES / f"{name}.tfrecord"))
    assert rk.check(path).ok
    for batch_size in (1, 2, 100):
        batches = list(rk.open(path, schema=schema).batches(batch_size))
        found = [
            {column: _exact(values[i]) for column, values in batch.items()}
            for batch in batches
            for i in range(len(next(iter(batch.values()))))
        ]
        assert found == [{column: _exact(value) for column, value in row.items()} for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_record_decodes_to_its_row(name) -> None:
    schema, rows = _document(name)
    for payload, row in zip(rk.records(FILES / f"{name}.tfrecord"), rows, strict=True):
        decoded = rk.decode(payload, schema)
        assert list(decoded) == list(schema)
        assert _exact(list(decoded.values())) == _exact([row[column] for column in schema])


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_row_is_still_written_byte_for_byte(name, tmp_path) -> None:
    schema, rows = _document(name)
    path = FILES / f"{name}.tfrecord"
    assert [rk.encode(row, schema) for row in rows] == list(rk.records(path))
    with rk.Writer(tmp_path / "again.tfrecord", schema) as writer:
        for row in rows:
            writer.write(row)
    assert (tmp_path / "again.tfrecord").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_kept_row_is_the_same_record_in_a_compressed_file(name, compression, tmp_path) -> None:
    schema, rows = _document(name)
    path = tmp_path / "again.tfrecord"
    with rk.Writer(path, schema, compression=compression) as writer:
        for row in rows:
            writer.write(row)
    assert list(rk.records(path)) == list(rk.records(FILES / f"{name}.tfrecord"))


def test_every_type_that_a_schema_can_declare_has_a_kept_column() -> None:
    kept = {type(feature).__name__ for name in NAMES for feature in _document(name)[0].values()}
    types = {"Boxes", "Bytes", "Float32", "Image", "Int64", "Label", "Sparse", "Tensor", "Text"}
    assert kept >= types

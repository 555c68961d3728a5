"""The index of a shard comes from the values that were encoded: no record is decoded while a dataset is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rekord as rk
from rekord import _core

SCHEMA = rk.Schema({"label": rk.Label(["cat", "dog"]), "name": rk.Text(), "size": rk.Int64(default=7)})
ROWS = [{"label": i % 2, "name": f"n{i}", "size": None if i % 3 else i} for i in range(50)]


def refuse(*_: Any) -> None:
    raise AssertionError("a record is decoded")


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_record_is_decoded_for_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: bool, shuffle: bool
) -> None:
    rows: Any = pa.Table.from_pylist(ROWS) if columns else ROWS
    with monkeypatch.context() as patched:
        for name in ("ExampleBatch", "SequenceBatch", "PayloadBatch"):
            patched.setattr(_core, name, refuse)
        options: Any = {"schema": SCHEMA, "index": ["name", "size"], "shuffle": shuffle}
        dataset = rk.write(rows, tmp_path / "data", progress=False, workers=1, shards=2, **options)
    found = []
    for path in dataset["train"].paths:
        index = Path(path).parent / ".rekord" / "index" / f"{Path(path).name}.arrow"
        found += pa.ipc.open_file(index).read_all().select(["label", "name", "size"]).to_pylist()
    assert found == dataset["train"].to_arrow().select(["label", "name", "size"]).to_pylist()
    filled = [{**row, "size": 7 if row["size"] is None else row["size"]} for row in ROWS]
    assert sorted(found, key=lambda row: int(row["name"][1:])) == filled

"""TensorFlow reads whole datasets: the shards with the schema's own spec, and TFX the schema."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sample_conversions import execute_conversion, use_small_parts

import rekord as rk
from rekord.schema import Bytes, Float32, Int64, Label, Schema, Text

SCHEMA = Schema(
    {
        "a": Int64(),
        "label": Label(["cat", "dog", "owl"]),
        "x": Float32(shape=(2, 2)),
        "tokens": Int64(shape=(None,)),
        "text": Text(),
        "blob": Bytes(optional=True),
    }
)
ROWS = [
    {
        "a": i - 50,
        "label": ["cat", "dog", "owl"][i % 3],
        "x": np.full((2, 2), i / 4, np.float32),
        "tokens": list(range(i % 5)),
        "text": f"row {i} é",
        "blob": None if i % 4 == 0 else bytes([i]),
    }
    for i in range(120)
]


@pytest.mark.parametrize(("compression", "type_name"), [(None, ""), ("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_tensorflow_parses_every_record_of_every_shard(
    tf: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str | None,
    type_name: str,
) -> None:
    use_small_parts(monkeypatch, part_bytes=2000, run_bytes=3000)
    options: dict[str, Any] = {
        "schema": SCHEMA,
        "shuffle": True,
        "shards": 3,
        "split": {"train": 0.7, "val": 0.3},
        "compression": compression,
    }
    execute_conversion(ROWS, tmp_path / "data", options)
    seen = []
    for split in ("train", "val"):
        # As trainers do it: by a pattern, beside which nothing else may lie.
        paths = sorted(str(path) for path in (tmp_path / "data").glob(f"{split}-*"))
        assert len(paths) == 3
        records = tf.data.TFRecordDataset(paths, compression_type=type_name)
        ours = [payload for path in paths for payload in rk.records(path)]
        assert [record.numpy() for record in records] == ours
        spec = rk.open(tmp_path / "data").schema.to_tf_spec()
        for record in records:
            parsed = tf.io.parse_single_example(record, spec)
            row = ROWS[int(parsed["a"]) + 50]
            seen.append(int(parsed["a"]) + 50)
            assert int(parsed["label"]) == ["cat", "dog", "owl"].index(row["label"])
            assert np.array_equal(parsed["x"].numpy(), row["x"])
            assert parsed["tokens"].numpy().tolist() == row["tokens"]
            assert parsed["text"].numpy().decode() == row["text"]
            blob = tf.sparse.to_dense(parsed["blob"]).numpy().tolist()
            assert blob == ([] if row["blob"] is None else [row["blob"]])
    assert sorted(seen) == list(range(120))


def test_tensorflow_metadata_parses_the_schema_beside_the_shards(tf: ModuleType, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.protobuf import text_format
        from tensorflow_metadata.proto.v0 import schema_pb2
    execute_conversion(ROWS, tmp_path / "data", {"schema": SCHEMA})
    text = (tmp_path / "data" / "schema.pbtxt").read_text()
    parsed = text_format.Parse(text, schema_pb2.Schema())
    assert sorted(feature.name for feature in parsed.feature) == sorted(SCHEMA)
    types = {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in parsed.feature}
    assert types == {
        "a": "INT",
        "label": "INT",
        "x": "FLOAT",
        "tokens": "INT",
        "text": "BYTES",
        "blob": "BYTES",
    }

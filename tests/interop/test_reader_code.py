"""The code that `rekord reader` prints, run: it reads what the dataset holds."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import layout_datasets as layouts
import numpy as np
import pytest

import rekord as rk
from rekord.feeds.codegen import generate_reader_code

SCHEMA = rk.Schema(
    {
        "label": rk.Label(["cat", "dog"]),
        "vec": rk.Float32(shape=(3,), key="features/vec"),
        "tokens": rk.Int64(shape=(None,)),
        "pairs": rk.Float32(shape=(None, 2)),
        "name": rk.Text(),
        "cube": rk.Tensor("uint16", shape=(2, 2)),
        "boxes": rk.Boxes(),
        'odd "key"\n': rk.Int64(default=4),
    }
)


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow

    return tensorflow


def row(i: int) -> dict[str, Any]:
    return {
        "label": i % 2,
        "vec": [i, 0.5, -i],
        "tokens": list(range(i)),
        "pairs": [[i, j] for j in range(i % 3)],
        "name": f"näme {i}",
        "cube": np.full((2, 2), i * 1000, np.uint16),
        "boxes": [[0.1, 0.2, 0.3, 0.4]] * (i % 2),
        'odd "key"\n': i,
    }


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    out = tmp_path / 'it\'s "data"'
    rk.write([row(i) for i in range(10)], out, schema=SCHEMA, shards=2, progress=False, workers=1)
    return str(out)


def loaded(path: str, framework: str) -> dict[str, Any]:
    """What the program defines; like `import`, this runs nothing below its __main__."""
    scope: dict[str, Any] = {"__name__": "reader"}
    exec(compile(generate_reader_code(rk.open(path), path, framework), "reader.py", "exec"), scope)
    return scope


def test_the_tensorflow_code_reads_every_value_without_rekord(dataset: str, tf: ModuleType) -> None:
    scope = loaded(dataset, "tensorflow")
    assert "rekord" not in generate_reader_code(rk.open(dataset), dataset, "tensorflow").split("FILES")[0]
    batches = list(scope["read"]("train", batch_size=4))
    assert [len(batch["label"]) for batch in batches] == [4, 4, 2]
    for i in range(10):
        batch, at = batches[i // 4], i % 4
        assert int(batch["label"][at]) == i % 2
        assert batch["features/vec"][at].numpy().tolist() == [i, 0.5, -i]
        assert batch["tokens"][at].numpy().tolist() == list(range(i))
        assert batch["pairs"][at].numpy().tolist() == [[i, j] for j in range(i % 3)]
        assert batch["name"][at].numpy().decode() == f"näme {i}"
        assert batch["cube"][at].numpy().tolist() == [[i * 1000] * 2] * 2
        boxes = batch["boxes"][at].numpy()
        assert boxes.tolist() == np.array([[0.1, 0.2, 0.3, 0.4]] * (i % 2), np.float32).tolist()
        assert int(batch['odd "key"\n'][at]) == i


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_the_tensorflow_code_reads_compressed_sequences(compression: Any, tmp_path: Path, tf: ModuleType) -> None:
    schema = rk.Schema(
        context={"id": rk.Int64(), "raw": rk.Tensor("int16", shape=(2,))},
        steps={"x": rk.Float32(shape=(2,)), "w": rk.Text(shape=(None,))},
    )
    rows = [
        {
            "id": i,
            "raw": np.array([i, -i], np.int16),
            "x": [[j, i] for j in range(i)],
            "w": [["a"] * j for j in range(i)],
        }
        for i in range(4)
    ]
    out = str(tmp_path / "data")
    rk.write(rows, out, schema=schema, compression=compression, progress=False, workers=1)
    (batch,) = list(loaded(out, "tensorflow")["read"]("train"))
    assert batch["id"].numpy().tolist() == [0, 1, 2, 3]
    assert batch["raw"].numpy().tolist() == [[i, -i] for i in range(4)]
    assert batch["x"][3].numpy().tolist() == [[0, 3], [1, 3], [2, 3]]
    assert batch["w"][3].to_list() == [[], [b"a"], [b"a", b"a"]]


def test_the_tensorflow_code_reads_tensors_and_lists_that_vary(tmp_path: Path, tf: ModuleType) -> None:
    schema = rk.Schema(
        {
            "first": rk.Tensor("int16", shape=(None, 2)),
            "inner": rk.Tensor("uint8", shape=(2, None)),
            "list": rk.Float32(shape=(2, None)),
        }
    )
    rows = [
        {
            "first": np.full((i, 2), i, np.int16),
            "inner": np.full((2, i), i, np.uint8),
            "list": np.full((2, i), i, np.float32),
        }
        for i in range(4)
    ]
    out = str(tmp_path / "data")
    rk.write(rows, out, schema=schema, progress=False, workers=1)
    (batch,) = list(loaded(out, "tensorflow")["read"]("train"))
    code = generate_reader_code(rk.open(out), out, "tensorflow")
    told = [line.split(": ", 1)[1] for line in code.splitlines() if "# One value: " in line]
    for i in range(4):
        assert batch["first"][i].numpy().tolist() == rows[i]["first"].tolist()
        inner, listed = (eval(line, {"tf": tf, "batch": batch, "i": i}) for line in told)
        if i:  # of nothing, TensorFlow cannot tell the size
            assert inner.numpy().tolist() == rows[i]["inner"].tolist()
            assert listed.numpy().tolist() == rows[i]["list"].tolist()


def test_the_tensorflow_code_reads_what_was_written_elsewhere(put_records: Any, tf: ModuleType) -> None:
    from rekord.testing import example_bytes

    path = str(put_records([example_bytes({"a": [i], "b": [b"x"] * (i + 1)}) for i in range(3)], "train.tfrecord"))
    (batch,) = list(loaded(path, "tensorflow")["read"]("train"))
    assert batch["a"].numpy().tolist() == [0, 1, 2]
    assert batch["b"].to_list() == [[b"x"], [b"x"] * 2, [b"x"] * 3]


def value(column: Any, at: int) -> Any:
    """The value of one row; rows of varying length lie end to end."""
    if hasattr(column, "offsets"):
        return column.values[int(column.offsets[at]) : int(column.offsets[at + 1])]
    return column[at]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_torch_and_jax_code_reads_every_value(framework: str, dataset: str) -> None:
    read = loaded(dataset, framework)["read"]
    seen: dict[int, dict[str, Any]] = {}
    for batch in read("train", batch_size=4):
        for at in range(len(batch["label"])):
            seen[int(batch['odd "key"\n'][at])] = {name: value(column, at) for name, column in batch.items()}
    assert sorted(seen) == list(range(10))
    for i, got in seen.items():
        assert int(got["label"]) == i % 2
        assert np.asarray(got["vec"]).tolist() == [i, 0.5, -i]
        assert np.asarray(got["tokens"]).tolist() == list(range(i))
        assert got["name"] == f"näme {i}"
        assert np.asarray(got["cube"]).tolist() == [[i * 1000] * 2] * 2


@pytest.mark.parametrize("name", layouts.NAMES)
@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_the_code_reads_every_layout(framework: str, name: str, tmp_path: Path) -> None:
    path = layouts.write_layout(name, tmp_path)
    batches = list(loaded(path, framework)["read"]("train", batch_size=4))
    schema = rk.open(path).schema
    column = next(iter(schema.features))
    key = column if framework != "tensorflow" else schema[column].key or column
    assert sorted(size(batch[key]) for batch in batches) == [2, 4]
    if framework != "tensorflow":
        assert all(list(batch) == list(schema.features) for batch in batches)


def size(column: Any) -> int:
    return len(column) if not hasattr(column, "shape") else int(column.shape[0])


@pytest.mark.parametrize("name", layouts.NAMES)
def test_the_spark_code_is_python_and_names_a_package_for_each_scala(name: str, tmp_path: Path) -> None:
    path = layouts.write_layout(name, tmp_path)
    code = generate_reader_code(rk.open(path), path, "spark")
    compile(code, "reader.py", "exec")
    for scala in ("2.12", "2.13"):
        assert f"--packages com.linkedin.sparktfrecord:spark-tfrecord_{scala}:0.7.0" in code
    for key in (key for column, feature in rk.open(path).schema.items() for key in feature.record_keys(column)):
        assert f'StructField("{key}", ' in code

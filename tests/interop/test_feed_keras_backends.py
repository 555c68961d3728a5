"""`to_keras` on every backend of the real Keras: TensorFlow is imported only where it is the backend."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk

SCRIPT = Path(__file__).parents[1] / "support" / "keras_backend.py"
ROWS = 203
ORDER: dict[str, Any] = {"shuffle": True, "seed": 3}


def encode_image(rng: np.random.Generator, height: int, width: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(out, "png")
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, out = np.random.default_rng(7), tmp_path_factory.mktemp("keras")
    label = (np.arange(ROWS) % 4 == 0).astype(np.int64)
    points = {
        "point": rng.normal(size=(ROWS, 2)).astype(np.float32),
        "extra": np.arange(ROWS, dtype=np.float32),
        "label": label,
        "weight": np.arange(ROWS, dtype=np.float32) / ROWS,
    }
    kinds = [rk.Float32((2,)), rk.Float32(), rk.Label(["below", "above"]), rk.Float32()]
    schema = rk.Schema(dict(zip(points, kinds, strict=True)))
    rk.write(points, out / "points", schema=schema, shards=3, workers=1, progress=False)
    with rk.Writer(out / "points.tfrecord.gz", schema, compression="gzip") as writer:
        writer.write_columns(points)
    tags = [["sky"], ["sea", "sky"], [], ["sand"], ["sea"], ["sand", "sea", "sky"]]
    rows = [{"image": encode_image(rng, 8 + i, 9), "tags": tags[i]} for i in range(6)]
    kinds = {"image": rk.Image(), "tags": rk.MultiLabel()}
    rk.write(rows, out / "images", columns=kinds, workers=1, progress=False)
    odd = [
        {
            "number": i,
            "text": "abc"[i],
            "image": encode_image(rng, 8 + i, 9),
            "ragged": list(range(i)),
            "maybe": None if i == 1 else i,
            "sparse": ([i], [1.0]),
            "large": i << 40,
        }
        for i in range(3)
    ]
    schema = rk.Schema(
        {
            "number": rk.Int64(),
            "text": rk.Text(),
            "image": rk.Image(),
            "ragged": rk.Int64((None,)),
            "maybe": rk.Int64(optional=True),
            "sparse": rk.Sparse("float32", size=5),
            "large": rk.Int64(),
        }
    )
    rk.write(odd, out / "odd", schema=schema, workers=1, progress=False)
    return out


_reports: dict[str, Any] = {}


ARRAYS = ["torch", "jax"]
"""The backends that train on arrays; test_feed_keras.py has the order on TensorFlow."""
TRAINING = ["tensorflow", *ARRAYS]


@pytest.fixture(params=["tensorflow", "torch", "jax", "numpy"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def report(backend: str, folder: Path) -> Any:
    """What one process per backend saw."""
    if backend not in _reports:
        done = subprocess.run(
            [sys.executable, SCRIPT, folder],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        _reports[backend] = json.loads(done.stdout)
    return _reports[backend]


@pytest.fixture(scope="module")
def columns(folder: Path) -> Any:
    return next(iter(rk.open(folder / "points").batches(1000)))


def epochs_of(folder: Path, *numbers: int) -> list[list[float]]:
    split = rk.open(folder / "points")["train"]
    return [batch["extra"].tolist() for epoch in numbers for batch in split.batches(50, epoch=epoch, **ORDER)]


def test_tensorflow_is_imported_on_its_own_backend_only(report: Any, backend: str) -> None:
    assert report["backend"] == backend
    assert report["tensorflow"] == (backend == "tensorflow")
    assert report["is_dataset"] == (backend != "tensorflow")


@pytest.mark.parametrize("backend", ARRAYS)
def test_every_epoch_of_fit_is_a_whole_one_in_the_order_of_batches(report: Any, backend: str, folder: Path) -> None:
    expected = [epochs_of(folder, 0, 1, 2), epochs_of(folder, 3), epochs_of(folder, 5, 6)]
    assert report["orders"] == dict.fromkeys(["built True", "built False", "new True", "new False"], expected)


@pytest.mark.parametrize("backend", ARRAYS)
def test_fewer_steps_than_an_epoch_read_on(report: Any, backend: str, folder: Path) -> None:
    for steps in ("1 False", "1 True", "2 False", "2 True"):
        assert report["steps"][steps] == epochs_of(folder, 0)[:4]
    assert report["steps"]["again"] == epochs_of(folder, 1)[:2]


@pytest.mark.parametrize("backend", TRAINING)
def test_weights_change_the_loss_as_computed_by_hand(report: Any, backend: str, columns: Any) -> None:
    logits = columns["point"] @ np.linspace(-1, 1, 4).reshape(2, 2)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(ROWS), columns["label"]]
    above = columns["label"] == 1
    counts = np.bincount(columns["label"])
    weights = {
        "plain": np.ones(ROWS),
        "column": columns["weight"],
        "balanced": (ROWS / (2 * counts))[columns["label"]],
        "named": np.where(above, 3.0, 1.0),
        "both": columns["weight"] * np.where(above, 3.0, 1.0),
        "of fit": np.where(above, 3.0, 1.0),
        "evaluated": columns["weight"],
    }
    assert report["losses"] == pytest.approx(
        {name: float((losses * w).mean()) for name, w in weights.items()}, rel=1e-4
    )


@pytest.mark.parametrize("backend", TRAINING)
def test_several_inputs_and_outputs_by_name_or_position(report: Any, backend: str) -> None:
    plain, weighted = report["structures"]["losses"]
    assert plain[0] == pytest.approx(plain[1])
    assert weighted[0] == pytest.approx(weighted[1])
    assert 0 < weighted[0] < plain[0]
    assert report["structures"]["steps"] == [5, 5]


@pytest.mark.parametrize("backend", TRAINING)
def test_images_are_decoded_and_several_labels_are_multi_hot(report: Any, backend: str, folder: Path) -> None:
    split = rk.open(folder / "images")["train"]
    batch = next(iter(split.batches(4, decode=True, resize=(6, 5))))
    assert report["images"]["steps"] == 2  # two epochs of one batch: the remainder is dropped
    assert report["images"]["image"] == batch["image"].tolist()
    assert report["images"]["tags"] == [[0, 0, 1], [0, 1, 1], [0, 0, 0], [1, 0, 0]]


def test_predictions_come_in_the_order_of_the_records(report: Any, columns: Any) -> None:
    expected = columns["point"] @ np.linspace(-1, 1, 4).reshape(2, 2)
    for name in ("predicted", "streamed"):  # the latter from a compressed file without an index
        np.testing.assert_allclose(report["predictions"][name], expected, rtol=1e-4, atol=1e-5)


def test_every_iteration_is_the_next_whole_epoch(report: Any, folder: Path) -> None:
    found = report["iteration"]
    assert found["peeked"] == epochs_of(folder, 0)[0]  # one batch uses no epoch up
    assert found["passes"] == [epochs_of(folder, 0), epochs_of(folder, 1)]
    assert found["broken"] == epochs_of(folder, 2)[:3]
    assert found["after"] == epochs_of(folder, 3)[0]
    assert found["rest"] == epochs_of(folder, 1)[2:]
    assert (found["length"], found["rest length"]) == (5, 3)
    assert found["dropped"] == [50] * 4
    assert found["padded"] == [50] * 5


def test_a_dataset_of_arrays_is_read_by_index_in_its_own_order(report: Any, backend: str, folder: Path) -> None:
    if backend == "tensorflow":
        assert not report["is_dataset"]
        return
    found = report["iteration"]
    first, second = epochs_of(folder, 3)[:2]
    assert found["indexed"] == [first, second, first, second]
    assert found["again"][0] == "U609"
    assert found["workers"] == found["processes"] == ["U605", None, "to_keras(…, threads=4, prefetch=4)"]
    assert found["outside"] == ["U605", None, "dataset[0]"]
    assert found["repr"] == "KerasBatches of split 'train': 5 steps of 50 rows, epoch 3"


def test_columns_that_a_backend_has_no_tensors_for_are_refused(report: Any, backend: str, folder: Path) -> None:
    found = report["refusals"]
    assert found["filled"] == [[0, 7, 2], [[0, 0], [0, 0], [0, 1]], [0, 1, 2]]
    command = f"rekord write {folder / 'odd'} OUT --label text, and use OUT"
    assert found["text as y"] == ["U676", "text", command]
    if backend == "tensorflow":
        assert found["ragged"] == found["text"] == found["ops"] == [None, None, None]
        return
    assert found["text"][:2] == ["U676", "text"]
    assert found["image"] == ["U676", "image", "decode=True, resize=(224, 224)"]
    assert found["images"] == ["U676", "image", "resize=(224, 224)"]
    assert found["ragged"] == ["U676", "ragged", 'ragged="pad"']
    assert found["maybe"] == ["U676", "maybe", "fill={'maybe': 0}"]
    assert found["sparse"][:2] == ["U676", "sparse"]
    assert found["ops"] == ["U605", None, 'mode="native"']
    assert found["large"][:2] == (["U676", "large"] if backend == "jax" else [None, None])

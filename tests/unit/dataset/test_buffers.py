"""Buffers are reused, and nobody ever sees it: what a caller keeps stays as it was (docs/decisions/0005)."""

from __future__ import annotations

import gc
import os
import random
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rekord as rk
from rekord import _core
from rekord.codec.plan import compile_plan
from rekord.dataset.readers import pipeline
from rekord.testing import example_bytes, frames

pytestmark = pytest.mark.slow

SCHEMA = rk.Schema(
    {
        "n": rk.Int64(),
        "small": rk.Int64(dtype="uint8"),
        "vec": rk.Float32(shape=(16,)),
        "tokens": rk.Int64(shape=(None,)),
        "half": rk.Float32(optional=True),
        "name": rk.Bytes(),
        "words": rk.Text(shape=(None,)),
        "cube": rk.Tensor("uint16", shape=(4, 4)),
        "image": rk.Bytes(),
    }
)
RECORDS = 600
IMAGE_BYTES = 6000  # long enough to be a view into the slab
BATCH = 8


def _row(i: int) -> dict[str, Any]:
    return {
        "n": [i],
        "small": [i % 256],
        "vec": [i + k / 16 for k in range(16)],
        "tokens": [i * k + 1 for k in range(i % 5 + 1)],
        "name": [b"name of %d" % i],
        "words": [b"word %d" % i] * (i % 3 + 1),
        "cube": [np.full(16, i % 65536, "<u2").tobytes()],
        "image": [b"%06d" % i * (IMAGE_BYTES // 6)],
        **({"half": [i / 2]} if i % 4 else {}),
    }


def _expected(name: str, rows: range) -> list[Any]:
    """What a column of these rows holds, as plain values."""
    stored = [_row(i).get(name) for i in rows]
    if name in ("n", "small", "name", "image"):
        return [values[0] for values in stored]
    if name == "half":
        return [None if values is None else values[0] for values in stored]
    if name == "cube":
        return [[[i] * 4] * 4 for i in rows]
    return [[value.decode() if isinstance(value, bytes) else value for value in values] for values in stored]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("buffers") / "x.tfrecord"
    file.write_bytes(frames(example_bytes(_row(i)) for i in range(RECORDS)))
    return file


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[_core.Pool]:
    """The pools of all iterations, with idle buffers that are overwritten at once."""
    made: list[_core.Pool] = []

    def poisoned() -> _core.Pool:
        made.append(_core.Pool(256 << 20, poison=True))
        return made[-1]

    monkeypatch.setattr(pipeline, "new_pool", poisoned)
    return made


@pytest.fixture(params=[(1, 0), (2, 2)], ids=["inline", "threads"])
def reading(request: pytest.FixtureRequest, pools: list[_core.Pool], path: Path) -> Iterator[Iterator[Any]]:
    """Batches without end: (first row, batch)."""
    threads, prefetch = request.param
    batches = rk.open(path, schema=SCHEMA).batches(BATCH, threads=threads, prefetch=prefetch)

    def endless() -> Iterator[Any]:
        while True:
            yield from enumerate(batches)

    yield ((at * BATCH, batch) for at, batch in endless())
    batches.close()


def _drop(reading: Iterator[Any], batches: int) -> None:
    for _ in range(batches):
        next(reading)


def _plain(column: Any) -> list[Any]:
    return column.tolist()


def test_every_value_is_right_while_buffers_are_used_again(reading) -> None:
    for _ in range(3 * RECORDS // BATCH):
        first, batch = next(reading)
        for name, column in batch.items():
            assert _plain(column) == _expected(name, range(first, first + BATCH)), name


def test_a_piece_of_a_column_that_is_kept_stays_as_it_was_for_a_thousand_batches(reading) -> None:
    rng = random.Random(3)
    kept: list[tuple[Any, Any]] = []
    for _ in range(1000):
        first, batch = next(reading)
        name = rng.choice(list(SCHEMA))
        column, row = batch[name], rng.randrange(BATCH)
        if isinstance(column, np.ndarray):
            piece = column[row : row + 3]
            kept.append((piece, _expected(name, range(first, first + BATCH))[row : row + 3]))
        elif name == "tokens":
            kept.append((column[row], _expected(name, range(first + row, first + row + 1))[0]))
        else:
            kept.append((column, _expected(name, range(first, first + BATCH))))
        # Most go after a while, so that buffers come and go in every order.
        if len(kept) > 40:
            piece, values = kept.pop(rng.randrange(len(kept)))
            assert _plain(piece) == values
    for piece, values in kept:
        assert _plain(piece) == values


def _torch(column: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(column)


def _jax(column: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jnp = pytest.importorskip("jax.numpy")
        return jnp.asarray(column)


def _tensorflow(column: Any) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf = pytest.importorskip("tensorflow")
    return tf.constant(column)


class _Dlpack:
    """What a consumer of DLPack holds: the producer's capsule, and no array of NumPy's."""

    def __init__(self, column: np.ndarray) -> None:
        self._array = column

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _dlpack(column: Any) -> Any:
    return np.from_dlpack(_Dlpack(column))


@pytest.mark.parametrize("hand_over", [_torch, _jax, _tensorflow, _dlpack, pa.array])
@pytest.mark.parametrize("name", ["n", "small", "vec", "cube"])
@pytest.mark.concurrency
def test_what_another_library_was_given_outlives_its_batch(hand_over, name, reading) -> None:
    if name in ("vec", "cube") and hand_over is pa.array:
        hand_over = pa.FixedShapeTensorArray.from_numpy_ndarray
    if hand_over is _jax and name == "n":
        pytest.skip("JAX has no int64 unless told, and copies")
    if hand_over is _torch and name == "cube":
        pytest.importorskip("torch")
    first, batch = next(reading)
    given = hand_over(batch[name])
    expected = _expected(name, range(first, first + BATCH))
    del batch
    gc.collect()
    _drop(reading, 100)
    back = given.to_numpy_ndarray() if isinstance(given, pa.FixedShapeTensorArray) else np.asarray(given)
    assert back.tolist() == expected


@pytest.mark.parametrize("name", list(SCHEMA))
@pytest.mark.concurrency
def test_what_arrow_was_given_outlives_its_batch(name, reading) -> None:
    from rekord.codec.columns import column_to_arrow

    first, batch = next(reading)
    given = column_to_arrow(batch[name])
    expected = _expected(name, range(first, first + BATCH))
    del batch
    gc.collect()
    _drop(reading, 100)
    given.validate(full=True)
    assert given.to_pylist() == expected


@pytest.mark.concurrency
def test_keeping_the_labels_does_not_keep_the_images(pools, path) -> None:
    batches = rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0)
    kept = [batch["n"] for batch in batches]
    del batches
    gc.collect()
    before = pools[0].idle_bytes
    assert [n for column in kept for n in column.tolist()] == list(range(RECORDS))
    columns = len(kept)
    kept.clear()
    gc.collect()
    # What comes back now is what the labels held: a buffer each, of the size that any column begins with.
    held = pools[0].idle_bytes - before
    assert 0 < held <= columns * 16 * 1024
    assert held < RECORDS * IMAGE_BYTES / 2


@pytest.mark.concurrency
def test_a_column_holds_its_own_buffer_and_no_other(pools, path) -> None:
    batches = iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0))
    batch = next(batches)
    owners = {name: weakref.ref(_owner(batch[name])) for name in ("n", "vec")}
    label = batch["n"]
    del batch
    gc.collect()
    assert owners["n"]() is not None
    assert owners["vec"]() is None
    del label
    gc.collect()
    assert owners["n"]() is None
    batches.close()


def _owner(array: np.ndarray) -> Any:
    """The array at the bottom, which holds the native owner."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.concurrency
def test_a_buffer_comes_back_with_its_last_owner_and_not_before(pools, path) -> None:
    batches = iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0))
    batch = next(batches)
    column = batch["vec"]
    piece = column[2]
    before = pools[0].idle_bytes
    del column, batch["vec"]
    gc.collect()
    assert pools[0].idle_bytes == before
    assert piece.tolist() == _expected("vec", range(2, 3))[0]
    del piece
    gc.collect()
    assert pools[0].idle_bytes > before
    batches.close()


def test_numbers_are_writable_and_nobody_elses(pools, path) -> None:
    batches = iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0))
    first, second = next(batches), next(batches)
    for name in ("n", "small", "vec", "cube"):
        assert first[name].flags.writeable
        first[name][...] = 0
        assert _plain(second[name]) == _expected(name, range(BATCH, 2 * BATCH))
        assert not np.shares_memory(first[name], second[name])
    for name in ("tokens", "half"):
        assert first[name].values.flags.writeable
    names = [name for name in SCHEMA if isinstance(first[name], np.ndarray)]
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not np.shares_memory(first[one], first[other])
    third = next(batches)
    for name in SCHEMA:
        assert _plain(third[name]) == _expected(name, range(2 * BATCH, 3 * BATCH))
    batches.close()


def test_numbers_are_aligned_for_any_vector_instruction(pools, path) -> None:
    batch = next(iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0)))
    for name in ("n", "vec", "cube"):
        assert batch[name].__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("how", ["truncated", "removed", "overwritten"])
def test_long_strings_stay_when_their_file_does_not(how, pools, tmp_path, path) -> None:
    file = tmp_path / "x.tfrecord"
    file.write_bytes(path.read_bytes())
    batches = iter(rk.open(file, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0))
    batch = next(batches)
    if how == "truncated":
        os.truncate(file, 0)
    elif how == "removed":
        file.unlink()
    else:
        file.write_bytes(bytes(file.stat().st_size))
    assert batch["image"].tolist() == _expected("image", range(BATCH))
    # Whatever comes next, more rows or a failure, it is not these bytes.
    try:
        for _ in range(20):
            next(batches)
    except (rk.RekordError, StopIteration):
        pass
    assert batch["image"].tolist() == _expected("image", range(BATCH))
    batches.close()


@pytest.mark.concurrency
def test_strings_outlive_the_iterator_and_its_pool(pools, path) -> None:
    batches = iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=2, prefetch=2))
    batch = next(batches)
    batches.close()
    del batches
    pools.clear()
    gc.collect()
    for name in SCHEMA:
        assert _plain(batch[name]) == _expected(name, range(BATCH))


@pytest.mark.concurrency
def test_a_string_that_was_taken_out_is_a_copy(pools, path) -> None:
    batches = iter(rk.open(path, schema=SCHEMA).batches(BATCH, threads=1, prefetch=0))
    image = next(batches)["image"][3]
    gc.collect()
    for _ in range(20):
        next(batches)
    assert image == _expected("image", range(3, 4))[0]
    batches.close()


def test_idle_bytes_stay_within_their_limit(monkeypatch, path) -> None:
    pool = _core.Pool(1 << 20, poison=True)
    monkeypatch.setattr(pipeline, "new_pool", lambda: pool)
    for batch in rk.open(path, schema=SCHEMA).batches(BATCH, threads=2, prefetch=2):
        assert pool.idle_bytes <= 1 << 20
        del batch
    assert pool.idle_bytes <= 1 << 20


def test_a_batch_that_ran_out_of_memory_takes_no_more() -> None:
    plan = compile_plan(rk.Schema({"a": rk.Int64((2**60,), optional=True)}))
    batch = _core.ExampleBatch(plan.context.reading, _core.Pool(0))
    with pytest.raises(MemoryError):
        batch.add(b"")
    with pytest.raises(RuntimeError, match="a call to it has failed"):
        batch.add(b"")
    with pytest.raises(RuntimeError, match="a call to it has failed"):
        batch.take()

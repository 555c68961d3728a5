"""Batches of jax arrays: values, order, states, numbers beyond 32 bits, and batches shared between devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import rekord as rk
from rekord.feeds.feed import MaskedTensors, RaggedTensors, SparseTensors
from rekord.testing import damage

ROWS = 103
SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "x": rk.Float32(shape=(3,)),
        "flag": rk.Int64(dtype="bool"),
        "half": rk.Float32(dtype="bfloat16"),
        "small": rk.Tensor("uint16", shape=(2,)),
        "double": rk.Tensor("float64", shape=(1,)),
        "tokens": rk.Int64(shape=(None,)),
        "maybe": rk.Float32(optional=True),
        "tfidf": rk.Sparse("float32", size=50),
        "name": rk.Text(),
    }
)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("jax") / "data"
    rows = [
        {
            "id": i,
            "x": [i, i / 2, -i],
            "flag": i % 2 == 0,
            "half": i / 2,
            "small": np.array([i, 65_535], np.uint16),
            "double": np.array([i / 2 if i else np.nan]),
            "tokens": range(i % 4),
            "maybe": None if i % 3 == 0 else i / 4,
            "tfidf": ([i % 50], [i / 8]),
            "name": f"row {i}",
        }
        for i in range(ROWS)
    ]
    return rk.write(rows, place, schema=SCHEMA, shards=3, progress=False)["train"]


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def test_values_are_those_of_batches(split: Any) -> None:
    for made, batch in zip(split.to_jax(32), split.batches(32), strict=True):
        assert list(made) == list(SCHEMA)
        for name in ("id", "x", "flag", "half", "small", "double"):
            assert isinstance(made[name], jax.Array), name
            np.testing.assert_array_equal(np.asarray(made[name]), batch[name])
        assert isinstance(made["tokens"], RaggedTensors)
        assert made["tokens"].values.tolist() == batch["tokens"].values.tolist()
        assert made["tokens"].offsets.tolist() == batch["tokens"].offsets.tolist()
        assert isinstance(made["maybe"], MaskedTensors)
        assert made["maybe"].valid.tolist() == batch["maybe"].valid.tolist()
        assert isinstance(made["tfidf"], SparseTensors)
        assert made["tfidf"].values.tolist() == np.asarray(batch["tfidf"].values.values).tolist()
        assert isinstance(made["name"], rk.Strings)
        assert made["name"].tolist() == batch["name"].tolist()


def test_dtypes_are_those_that_jax_has(split: Any) -> None:
    batch = next(iter(split.to_jax(4)))
    names = ("id", "x", "flag", "half", "small", "double")
    assert [str(batch[name].dtype) for name in names] == [
        "int32",
        "float32",
        "bool",
        "bfloat16",
        "uint16",
        "float32",
    ]


def test_batches_go_through_jit(split: Any) -> None:
    @jax.jit
    def total(batch: Any) -> Any:
        return jax.numpy.where(batch["maybe"].valid, batch["maybe"].values, 0).sum() + batch["x"].sum()

    feed = iter(split.to_jax(103, columns=["x", "maybe"]))
    plain = next(iter(split.batches(103, columns=["x", "maybe"])))
    wanted = plain["x"].sum() + plain["maybe"].values[plain["maybe"].valid].sum()
    assert float(total(next(feed))) == pytest.approx(float(wanted))


@pytest.mark.parametrize("shuffle", [False, True, "block"])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 3)])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_order_is_that_of_batches(
    split: Any, shuffle: Any, rank: int, world: int, remainder: Any, prefetch: int
) -> None:
    same = {"shuffle": shuffle, "seed": 5, "rank": rank, "world": world, "remainder": remainder}
    feed = split.to_jax(7, columns=["id"], prefetch=prefetch, **same)
    batches = split.batches(7, columns=["id"], **same)
    assert (len(feed), feed.padded) == (len(batches), batches.padded)
    for epoch in range(2):
        assert ids(feed) == ids(batches)
        assert feed.epoch == epoch


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_counts_what_was_delivered_at_every_step(split: Any, shuffle: bool) -> None:
    feed = split.to_jax(10, shuffle=shuffle, columns=["id"])
    batches = split.batches(10, shuffle=shuffle, columns=["id"])
    whole = ids(split.batches(10, shuffle=shuffle, columns=["id"]))
    assert feed.state_dict() == batches.state_dict()
    for step, (made, batch) in enumerate(zip(feed, batches, strict=True)):
        assert made["id"].tolist() == batch["id"].tolist()
        assert feed.state_dict() == batches.state_dict()
        other = split.to_jax(10, shuffle=shuffle, columns=["id"])
        other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
        assert ids(other) == whole[step + 1 :]
    feed.set_epoch(3)
    assert ids(feed) == ids(split.batches(10, shuffle=shuffle, columns=["id"], epoch=3))


def test_a_number_beyond_32_bits_is_not_cut_off(tmp_path: Path) -> None:
    schema = rk.Schema({"big": rk.Int64(), "id": rk.Int64()})
    rows = [{"big": 2**31 - 1 + i, "id": i} for i in range(4)]
    split = rk.write(rows, tmp_path / "data", schema=schema, progress=False)["train"]
    feed = iter(split.to_jax(1))
    assert next(feed)["big"].tolist() == [2**31 - 1]
    with pytest.raises(rk.UsageError) as caught:
        next(feed)
    assert (caught.value.code, caught.value.what, caught.value.location.feature) == (
        "U676",
        "column of int64 has values that do not fit into int32",
        "big",
    )
    assert caught.value.found == str(2**31)
    assert feed.state_dict()["consumed"] == 1
    with jax.enable_x64(True):
        assert ids(split.to_jax(4)) == [[0, 1, 2, 3]]
        assert next(iter(split.to_jax(4)))["big"].tolist() == [row["big"] for row in rows]


def test_a_double_that_would_be_rounded_is_refused(tmp_path: Path) -> None:
    schema = rk.Schema({"value": rk.Tensor("float64", shape=(1,))})
    rows = [{"value": np.array([value])} for value in (0.5, 0.1)]
    split = rk.write(rows, tmp_path / "data", schema=schema, progress=False)["train"]
    with pytest.raises(rk.UsageError) as caught:
        next(iter(split.to_jax(2)))
    assert (caught.value.code, caught.value.what, caught.value.location.feature, caught.value.found) == (
        "U676",
        "column of float64 has values that do not fit into float32",
        "value",
        "0.1",
    )


def test_a_failure_comes_after_what_was_good_before_it(split: Any, tmp_path: Path) -> None:
    bad = tmp_path / "x.tfrecord"
    bad.write_bytes(damage.corrupt_payload(Path(split.paths[0]).read_bytes(), 15))
    feed = iter(rk.open(bad, schema=rk.Schema({"id": rk.Int64()})).to_jax(10))
    assert [len(next(feed)["id"]), len(next(feed)["id"])] == [10, 5]
    assert feed.state_dict()["consumed"] == 15
    with pytest.raises(rk.FrameError) as caught:
        next(feed)
    assert (caught.value.code, caught.value.location.record) == ("F102", 15)
    with pytest.raises(StopIteration):
        next(feed)


def test_several_ranks_need_a_choice_of_the_remainder(split: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_jax(10, rank=0, world=2)
    assert (caught.value.code, caught.value.what) == ("U605", "`remainder` is required with world=2")


def test_one_process_is_rank_0_of_1_for_jax(split: Any) -> None:
    assert ids(split.to_jax(50, rank="auto", columns=["id"])) == ids(split.batches(50, columns=["id"]))
    with pytest.raises(rk.UsageError) as caught:
        split.to_jax(50, rank="auto", world=2)
    assert (caught.value.code, caught.value.what) == (
        "U605",
        "`world` does not match the process group",
    )


def test_a_device_can_be_chosen(split: Any) -> None:
    device = jax.devices()[0]
    assert next(iter(split.to_jax(4, columns=["id"], device=device)))["id"].devices() == {device}


def test_a_sharding_is_one_of_jax_and_needs_a_choice(split: Any) -> None:
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for arguments, code in (
        ({"sharding": "data"}, "U605"),
        ({"sharding": place, "device": jax.devices()[0]}, "U605"),
        ({"sharding": place}, "U605: `remainder` is required with `sharding`"),
    ):
        with pytest.raises(rk.UsageError) as caught:
            split.to_jax(10, **arguments)
        assert str(caught.value).startswith(code)


def test_without_jax_the_extra_is_named(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(rk.UsageError) as caught:
        split.to_jax(10)
    assert caught.value.code == "U602"
    assert caught.value.do == "pip install 'rekord[jax]'"


SHARDED = """
import json, sys
import grain
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import rekord as rk

devices = jax.devices()
sharding = NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))
split = rk.open(sys.argv[1])["train"]
same = {"shuffle": True, "seed": 3}
dense = ["id", "x", "flag", "maybe", "name"]
feed = split.to_jax(10, sharding=sharding, remainder="drop", columns=dense, **same)
told = {"devices": len(devices), "batches": [], "shards": [], "codes": []}
for batch in feed:
    told["batches"].append(batch["id"].tolist())
    assert batch["x"].shape == (10, 3) and batch["x"].sharding == sharding
    assert batch["maybe"].valid.sharding == sharding
    told["shards"].append([shard.data.tolist() for shard in batch["id"].addressable_shards])
def images(batch):
    batch["image"] = np.empty(len(batch["id"]), object)
    batch["image"][:] = [np.zeros((2 + 2 * (i % 2), 4, 3), np.uint8) for i in range(len(batch["id"]))]
    batch["words"] = np.array(["stays here"] * len(batch["id"]), object)
    return batch
for arguments in ({"columns": ["tokens"]}, {"columns": ["id"], "remainder": "keep"}, {"columns": ["tfidf"]},
                  {"columns": ["id"], "map": images}):
    try:
        list(split.to_jax(10, sharding=sharding, **{"remainder": "drop", **arguments}))
    except rk.UsageError as failure:
        told["codes"].append([failure.code, failure.location.feature, failure.do])
print(json.dumps(told))
"""


def test_two_devices_share_a_batch(split: Any) -> None:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHARDED, os.path.dirname(split.paths[0])],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    wanted = ids(split.batches(10, shuffle=True, seed=3, remainder="drop"))
    assert told["devices"] == 2
    assert told["batches"] == wanted
    assert told["shards"] == [[batch[:5], batch[5:]] for batch in wanted]
    assert told["codes"] == [
        ["U676", "tokens", 'pad it with map=…: batch["tokens"].to_padded(0, length)'],
        ["U676", "id", 'remainder="drop", and a batch size divisible by the number of devices'],
        ["U676", "tfidf", 'make it dense with map=…: batch["tfidf"].to_dense()'],
        ["U676", "image", "resize=(224, 224) to give all images one size"],
    ]

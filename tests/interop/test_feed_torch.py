"""Batches of torch tensors in one process: values, order, states, and map-style datasets."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import example
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

import rekord as rk
from rekord.feeds.feed import MaskedTensors, RaggedTensors, SparseTensors
from rekord.feeds.torch.cursor import MAX_WORKERS, SharedCursor
from rekord.feeds.torch.loader import array_to_tensor, batch_to_tensors

ROWS = 103
SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "x": rk.Float32(shape=(3,)),
        "flag": rk.Int64(dtype="bool"),
        "half": rk.Float32(shape=(2,), dtype="bfloat16"),
        "small": rk.Tensor("uint16", shape=(2, 2)),
        "wide": rk.Int64(dtype="uint32"),
        "tokens": rk.Int64(shape=(None,)),
        "maybe": rk.Float32(optional=True),
        "tags": rk.Text(shape=(None,)),
        "tfidf": rk.Sparse("float32", size=50),
        "name": rk.Text(),
        "blob": rk.Bytes(optional=True),
    }
)


def row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "x": [i, i / 2, -i],
        "flag": i % 2 == 0,
        "half": [i, 0.5],
        "small": np.full((2, 2), 65_535 - i, np.uint16),
        "wide": 4_000_000_000 + i,
        "tokens": list(range(i % 4)),
        "maybe": None if i % 3 == 0 else i / 4,
        "tags": ["a"] * (i % 3),
        "tfidf": ([i % 50], [i / 8]),
        "name": f"row {i}",
        "blob": None if i % 5 == 0 else b"%d" % i,
    }


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("torch") / "data"
    rows = [row(i) for i in range(ROWS)]
    return rk.write(rows, place, schema=SCHEMA, shards=3, progress=False)["train"]


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def test_values_are_those_of_batches(split: Any) -> None:
    plain = list(split.batches(32))
    for made, batch in zip(split.to_torch(32), plain, strict=True):
        assert list(made) == list(SCHEMA)
        for name in ("id", "x", "flag", "small", "wide"):
            assert torch.equal(made[name], torch.from_numpy(batch[name].copy())), name
        assert made["half"].tolist() == batch["half"].astype(np.float32).tolist()
        tokens = made["tokens"]
        assert isinstance(tokens, RaggedTensors)
        assert tokens.values.tolist() == batch["tokens"].values.tolist()
        assert tokens.offsets.tolist() == batch["tokens"].offsets.tolist()
        assert tokens.valid is None
        maybe = made["maybe"]
        assert isinstance(maybe, MaskedTensors)
        assert maybe.valid.tolist() == batch["maybe"].valid.tolist()
        assert maybe.values[maybe.valid].tolist() == [v for v in batch["maybe"].tolist() if v is not None]
        assert isinstance(made["tags"].values, rk.Strings)
        assert made["tags"].values.tolist() == batch["tags"].values.tolist()
        sparse = made["tfidf"]
        assert isinstance(sparse, SparseTensors)
        assert sparse.indices.tolist() == np.asarray(batch["tfidf"].indices.values).tolist()
        assert sparse.values.tolist() == np.asarray(batch["tfidf"].values.values).tolist()
        assert sparse.offsets.tolist() == batch["tfidf"].values.offsets.tolist()
        assert made["name"].tolist() == batch["name"].tolist()
        assert made["blob"].tolist() == batch["blob"].tolist()


def test_dtypes_are_the_declared_ones(split: Any) -> None:
    batch = next(iter(split.to_torch(4)))
    names = ("id", "x", "flag", "half", "small", "wide")
    dtypes = (torch.int64, torch.float32, torch.bool, torch.bfloat16, torch.uint16, torch.uint32)
    assert tuple(batch[name].dtype for name in names) == dtypes


def test_ragged_and_optional_columns_are_dense_on_request(split: Any) -> None:
    batch = next(
        iter(split.to_torch(6, columns=["tokens", "maybe"], ragged="pad", pad={"tokens": -1}, fill={"maybe": 9.0}))
    )
    assert batch["tokens"].tolist() == [
        [-1, -1, -1],
        [0, -1, -1],
        [0, 1, -1],
        [0, 1, 2],
        [-1, -1, -1],
        [0, -1, -1],
    ]
    assert batch["maybe"].tolist() == [9.0, 0.25, 0.5, 9.0, 1.0, 1.25]


def test_ragged_tensors_are_what_torch_nests_and_embeds(split: Any) -> None:
    tokens = next(iter(split.to_torch(6, columns=["tokens"])))["tokens"]
    nested = torch.nested.nested_tensor_from_jagged(tokens.values, tokens.offsets)
    assert [part.tolist() for part in nested.unbind()] == [list(range(i % 4)) for i in range(6)]
    sparse = next(iter(split.to_torch(6, columns=["tfidf"])))["tfidf"]
    weight = torch.eye(50)
    summed = torch.nn.functional.embedding_bag(
        sparse.indices, weight, sparse.offsets[:-1], mode="sum", per_sample_weights=sparse.values
    )
    dense = next(iter(split.batches(6, columns=["tfidf"])))["tfidf"].to_dense()
    assert summed.tolist() == dense.tolist()


def test_tensors_share_memory_with_the_arrays_of_the_batch(split: Any) -> None:
    batch = next(iter(split.batches(8)))
    made = batch_to_tensors(batch)
    for name in ("id", "x", "flag", "half", "small", "wide"):
        assert made[name].data_ptr() == batch[name].ctypes.data, name


def test_tensors_outlive_the_loader_and_can_be_written_to(split: Any) -> None:
    kept = [batch["id"] for batch in split.to_torch(10, columns=["id"])]
    kept[0] += 1000
    assert [value for part in kept for value in part.tolist()] == [*range(1000, 1010), *range(10, ROWS)]


def test_what_torch_cannot_share_is_copied() -> None:
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert array_to_tensor(frozen).tolist() == [0, 1, 2]
    assert array_to_tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert array_to_tensor(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    packed = np.array([(1, 0.5), (2, 1.5)], dtype=[("a", "i1"), ("b", "<f4")])
    assert array_to_tensor(packed["b"]).tolist() == [0.5, 1.5]


def test_what_a_function_made_passes_through(split: Any) -> None:
    own = torch.ones(2)
    names = np.array(["a", None], object)
    feed = iter(split.to_torch(4, columns=["id"], map=lambda batch: {"own": own, "names": names, "id": batch["id"]}))
    batch = next(feed)
    assert batch["own"] is own
    assert batch["names"] is names


def test_images_of_different_sizes_are_a_list_of_tensors() -> None:
    images = np.empty(2, object)
    images[:] = [np.zeros((2, 3, 3), np.uint8), np.ones((4, 1, 3), np.uint8)]
    assert [part.shape for part in batch_to_tensors({"image": images})["image"]] == [(2, 3, 3), (4, 1, 3)]


def test_a_dtype_that_torch_lacks_names_its_column(split: Any) -> None:
    feed = iter(split.to_torch(4, columns=["id"], map=lambda batch: {"id": batch["id"].astype(np.longdouble)}))
    with pytest.raises(rk.UsageError) as caught:
        next(feed)
    assert (caught.value.code, caught.value.location.feature) == ("U676", "id")
    assert caught.value.what == "`id` cannot be converted to a torch tensor"
    assert "float128" in caught.value.found or "longdouble" in caught.value.found


@pytest.mark.parametrize("shuffle", [False, True, "block"])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 3)])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_the_order_is_that_of_batches(split: Any, shuffle: Any, rank: int, world: int, remainder: Any) -> None:
    same = {"shuffle": shuffle, "seed": 5, "rank": rank, "world": world, "remainder": remainder}
    loader = split.to_torch(7, columns=["id"], **same)
    batches = split.batches(7, columns=["id"], **same)
    assert len(loader) == len(batches)
    assert loader.padded == batches.padded
    for epoch in range(2):
        assert ids(loader) == ids(batches)
        assert loader.epoch == epoch


def test_a_state_goes_to_another_feed_at_every_step(split: Any) -> None:
    loader = iter(split.to_torch(10, shuffle=True, seed=2, columns=["id"]))
    whole = ids(split.batches(10, shuffle=True, seed=2, columns=["id"]))
    for step in range(len(whole)):
        assert next(loader)["id"].tolist() == whole[step]
        state = json.loads(json.dumps(loader.state_dict()))
        other = split.to_torch(10, shuffle=True, seed=2, columns=["id"])
        other.load_state_dict(state)
        assert ids(other) == whole[step + 1 :]
        numpy = split.batches(10, shuffle=True, seed=2, columns=["id"])
        numpy.load_state_dict(state)
        assert ids(numpy) == whole[step + 1 :]


def test_set_epoch_goes_to_its_start(split: Any) -> None:
    loader = split.to_torch(10, shuffle=True, columns=["id"])
    next(iter(loader))
    loader.set_epoch(4)
    assert ids(loader) == ids(split.batches(10, shuffle=True, epoch=4, columns=["id"]))
    assert loader.epoch == 4
    with pytest.raises(rk.UsageError) as caught:
        loader.set_epoch(-1)
    assert caught.value.code == "U605"


def test_a_state_of_another_order_is_refused(split: Any) -> None:
    state = split.to_torch(10, shuffle=True, seed=1).state_dict()
    for feed in (split.to_torch(10, shuffle=True, seed=2), split.to_torch(10, seed=2, style="iterable")):
        with pytest.raises(rk.UsageError) as caught:
            feed.load_state_dict(state)
        assert str(caught.value).startswith("U609: state belongs to another order")


def test_a_loader_is_not_pickled(split: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        pickle.dumps(split.to_torch(10))
    assert caught.value.code == "U607"


def test_several_ranks_need_a_choice_of_the_remainder(split: Any) -> None:
    for style in ("loader", "iterable"):
        with pytest.raises(rk.UsageError) as caught:
            split.to_torch(10, rank=1, world=2, style=style)
        assert str(caught.value).startswith("U605: `remainder` is required with world=2")
    uneven = split.take(101)
    lengths = [len(uneven.to_torch(10, rank=rank, world=2, remainder="keep")) for rank in (0, 1)]
    assert lengths == [6, 5]


def test_ranks_are_read_from_the_process_group_on_request(split: Any, tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_torch(10, rank="auto")
    assert str(caught.value).startswith('U605: rank="auto" found no process group')
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert ids(split.to_torch(50, rank="auto", columns=["id"])) == ids(split.batches(50, columns=["id"]))
        with pytest.raises(rk.UsageError) as caught:
            split.to_torch(10, rank="auto", world=2)
        assert str(caught.value).startswith("U605: `world` does not match the process group")
        assert caught.value.expected == "world=1"
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"batch_size": 10, "style": "lodaer"}, "style"),
        ({"batch_size": None}, "batch_size"),
        ({"batch_size": 10, "workers": -1}, "workers"),
        ({"batch_size": 10, "style": "iterable", "workers": 2}, "workers"),
        ({"batch_size": 10, "style": "map"}, "batch_size"),
        ({"style": "map", "shuffle": True}, "shuffle"),
        ({"style": "map", "rank": 1, "world": 2}, "rank"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_named(split: Any, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_torch(**arguments)
    assert caught.value.code == "U605"
    assert f"`{named}`" in caught.value.what


def test_without_torch_the_extra_is_named(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(rk.UsageError) as caught:
        split.to_torch(10)
    assert caught.value.code == "U602"
    assert caught.value.do == "pip install 'rekord[torch]'"


def test_an_iterable_dataset_advances_by_an_epoch_with_each_iteration(split: Any) -> None:
    dataset = split.to_torch(10, shuffle=True, columns=["id"], style="iterable", epoch=3)
    orders = [ids(split.batches(10, shuffle=True, columns=["id"], epoch=epoch)) for epoch in range(3, 6)]
    assert isinstance(dataset, torch.utils.data.IterableDataset)
    assert len(DataLoader(dataset, batch_size=None)) == len(orders[0]) == 11
    assert ids(dataset) == orders[0]
    assert ids(DataLoader(dataset, batch_size=None)) == orders[1]
    next(iter(dataset))
    dataset.set_epoch(4)
    assert ids(dataset) == orders[1]
    assert ids(dataset) == orders[2]


def test_an_iterable_dataset_tells_its_state_after_some_batches(split: Any) -> None:
    dataset = split.to_torch(10, shuffle=True, columns=["id"], style="iterable")
    whole = ids(dataset)
    second = ids(dataset)
    state = dataset.state_after(4)
    assert (state["epoch"], state["consumed"]) == (1, 40)
    other = split.to_torch(10, shuffle=True, columns=["id"], style="iterable")
    other.load_state_dict(state)
    assert ids(other) == second[4:]
    assert other.state_after(2)["consumed"] == 60
    assert other.state_after(7)["consumed"] == ROWS
    third = ids(other)
    assert third not in (whole, second)
    beginning = other.state_after(0)
    assert {**beginning, "checksum": None} == {**state, "epoch": 2, "consumed": 0, "checksum": None}


def test_an_iterable_dataset_pickles_small(split: Any) -> None:
    dataset = split.to_torch(10, shuffle=True, columns=["id"], style="iterable")
    first = ids(dataset)
    copied = pickle.loads(pickle.dumps(dataset))
    copied.set_epoch(0)
    assert ids(copied) == first


class Workers:
    """The workers of one iterator of a DataLoader, as far as places are concerned."""

    def __init__(self, places: SharedCursor, count: int, seed: int) -> None:
        # Each worker is a process, which has a copy of everything but what is shared.
        self._places = [copy.copy(places) for _ in range(count)]
        self._seed = seed

    def begin(self, *workers: int) -> list[tuple[int, int]]:
        count = len(self._places)
        found = [self._places[worker].begin(worker, count, seed=self._seed) for worker in workers]
        return [(place.epoch, place.consumed) for place in found]


def test_workers_of_another_loader_begin_the_next_epoch_together() -> None:
    places = SharedCursor(0)
    two = Workers(places, 2, 11)
    assert two.begin(0, 1) == [(0, 0)] * 2
    assert Workers(places, 4, 12).begin(3, 1, 0, 2) == [(1, 0)] * 4
    assert two.begin(1, 0) == [(2, 0)] * 2
    places.set(7, 30, {})
    assert two.begin(0, 0) == [(7, 30), (8, 0)]
    # One worker may be slow to begin what was broken off: it counts for itself.
    assert two.begin(1, 1) == [(7, 30), (8, 0)]
    assert places.current().epoch == 8


def test_a_worker_that_is_late_begins_what_it_was_made_for_and_not_what_was_set_since() -> None:
    places = SharedCursor(0)
    workers = Workers(places, 2, 11)
    assert workers.begin(0) == [(0, 0)]
    places.set(5, 40, {})
    assert (places.current().epoch, places.current().consumed) == (5, 40)
    assert workers.begin(1) == [(0, 0)]
    assert workers.begin(1, 0) == [(5, 40)] * 2
    assert workers.begin(0, 1) == [(6, 0)] * 2


@pytest.mark.parametrize("seeds", [(11, 12), (11, 11)])
def test_workers_that_are_made_anew_begin_the_next_epoch_whatever_their_seed(seeds: tuple[int, int]) -> None:
    places = SharedCursor(0)
    assert [Workers(places, 2, seed).begin(0, 1) for seed in seeds] == [[(0, 0)] * 2, [(1, 0)] * 2]
    longer = Workers(places, 2, 13)
    assert [longer.begin(1, 0) for _ in range(3)] == [[(epoch, 0)] * 2 for epoch in (2, 3, 4)]
    assert Workers(places, 2, 13).begin(0, 1) == [(5, 0)] * 2


def test_a_worker_that_ended_before_it_began_does_not_fall_behind() -> None:
    places = SharedCursor(0)
    assert Workers(places, 2, 11).begin(0) == [(0, 0)]
    assert Workers(places, 2, 12).begin(1, 0) == [(1, 0)] * 2


def test_a_copy_of_a_dataset_has_places_of_its_own_that_workers_share(split: Any) -> None:
    dataset = split.to_torch(10, style="iterable")
    list(dataset)
    for copied in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        shared = [value for value in vars(copied._feed.places).values() if isinstance(value, torch.Tensor)]
        assert len(shared) == 3
        assert all(value.is_shared() for value in shared)
        list(copied)
        assert copied.state_after(0)["epoch"] == 1
    assert dataset.state_after(0)["epoch"] == 0


def test_more_workers_than_can_be_counted_are_refused() -> None:
    with pytest.raises(rk.UsageError) as caught:
        SharedCursor(0).begin(0, MAX_WORKERS + 1)
    assert caught.value.code == "U605"
    assert caught.value.what == "DataLoader has too many workers"


def test_a_map_style_dataset_gives_rows_of_tensors(split: Any) -> None:
    dataset = split.to_torch(style="map")
    assert isinstance(dataset, torch.utils.data.Dataset)
    assert len(dataset) == ROWS
    found = dataset[7]
    assert found["id"].tolist() == 7
    assert found["x"].tolist() == [7.0, 3.5, -7.0]
    assert (found["flag"].dtype, found["half"].dtype) == (torch.bool, torch.bfloat16)
    assert found["tokens"].tolist() == [0, 1, 2]
    assert found["name"] == "row 7"
    assert found["blob"] == b"7"
    assert [part.tolist() for part in found["tfidf"]] == [[7], [0.875]]
    assert dataset[0]["maybe"] is None
    assert dataset[-1]["id"].tolist() == ROWS - 1
    assert [made["id"].tolist() for made in dataset.__getitems__([5, 5, 2])] == [5, 5, 2]
    for numbers in ([4, 2], np.array([4, 2]), torch.tensor([4, 2])):
        batch = dataset[numbers]
        assert batch["id"].tolist() == [4, 2]
        assert isinstance(batch["tokens"], RaggedTensors)
    assert dataset[torch.tensor(4)]["id"].tolist() == 4


@pytest.mark.parametrize("number", [ROWS, -ROWS - 1, 1.5, True, "a", torch.tensor(0.5)])
def test_a_row_that_is_not_there_is_an_index_error(split: Any, number: Any) -> None:
    dataset = split.to_torch(style="map")
    for call in (lambda: dataset[number], lambda: dataset.__getitems__([0, number])):
        with pytest.raises(IndexError) as caught:
            call()
        assert caught.value.code == "U606"


def test_a_map_style_dataset_of_a_view_counts_in_the_view(split: Any) -> None:
    dataset = pickle.loads(pickle.dumps(split[10:20].to_torch(style="map", columns=["id"])))
    assert [made["id"].tolist() for made in dataset.__getitems__(range(len(dataset)))] == list(range(10, 20))


def test_samplers_of_torch_choose_the_rows(split: Any) -> None:
    dataset = split.to_torch(style="map", columns=["id", "x", "name"])
    shuffled = DataLoader(dataset, batch_size=16, sampler=RandomSampler(dataset))
    batches = list(shuffled)
    seen = [value for batch in batches for value in batch["id"].tolist()]
    assert sorted(seen) == list(range(ROWS))
    assert batches[0]["x"].shape == (16, 3)
    assert batches[0]["name"] == [f"row {i}" for i in batches[0]["id"].tolist()]
    sampler = BatchSampler(range(ROWS), batch_size=25, drop_last=False)
    stacked = list(DataLoader(dataset, batch_size=None, sampler=sampler))
    assert [len(batch["id"]) for batch in stacked] == [25, 25, 25, 25, 3]


def test_distributed_sampler_shares_a_map_style_dataset(split: Any) -> None:
    dataset = split.to_torch(style="map", columns=["id"])
    seen = []
    for rank in range(4):
        sampler: Any = DistributedSampler(dataset, num_replicas=4, rank=rank, shuffle=True, seed=1)
        sampler.set_epoch(2)
        for batch in DataLoader(dataset, batch_size=8, sampler=sampler):
            seen += batch["id"].tolist()
    assert len(seen) == 104  # DistributedSampler fills up to equal ranks
    assert set(seen) == set(range(ROWS))


@pytest.mark.parametrize("what", ["`remainder` is required", 'rank="auto" found no process group'])
def test_an_example_of_the_page_is_what_is_said(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, message = example("U605", what)
    with pytest.raises(rk.UsageError) as caught:
        exec(program, {"rk": rk})
    assert caught.value.message == message

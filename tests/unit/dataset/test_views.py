"""Views of a split, batches without columns, splits between threads and processes, datasets of one split."""

from __future__ import annotations

import os
import pickle
import threading
import tracemalloc
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.dataset.samplers import (
    Selection,
    digest_selection,
    expand_selection,
    normalize_selection,
    select_numbers,
    slice_selection,
)
from rekord.dataset.shards import Shards
from rekord.dataset.split import LazySchema, RecordView, SplitMethods
from rekord.testing import example_bytes, frames

RECORDS = 100
SCHEMA = rk.Schema({"n": rk.Int64(), "label": rk.Label(3)})
MANY = 1_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("views") / "data"
    rows = [{"n": n, "label": n % 3} for n in range(RECORDS)]
    rk.write(rows, out, schema=SCHEMA, split="train", shards=4, progress=False, workers=1)
    return out


@pytest.fixture
def split(folder: Path) -> rk.Split:
    return rk.open(folder)["train"]


def huge() -> rk.Split:
    """A split of very many records, of which nothing is read."""
    shards = Shards(["a.tfrecord", "b.tfrecord"], [MANY // 2, MANY // 2])
    return rk.Split("train", RecordView(shards, digest="d"), LazySchema(shards.paths, SCHEMA, None))


def refused(code: str, call: Any) -> rk.RekordError:
    with pytest.raises(rk.UsageError) as caught:
        call()
    assert str(caught.value).startswith(code)
    assert caught.value.do
    return caught.value


# ---- Selections ----

SLICES = [
    slice(None),
    slice(10, 20),
    slice(-5, None),
    slice(20, 10),
    slice(90, 500),
    slice(None, None, -1),
    slice(50, 3, -7),
    slice(3, 4),
    slice(-500, 2),
]


@pytest.mark.parametrize("second", SLICES)
@pytest.mark.parametrize("first", SLICES)
def test_a_slice_of_a_slice_is_what_a_list_gives(split: rk.Split, first: slice, second: slice) -> None:
    expected = list(range(RECORDS))[first][second]
    view = split[first][second]
    assert len(view) == len(expected)
    assert [n for batch in view.batches(7) for n in batch["n"].tolist()] == expected
    assert isinstance(view.view.ids, range)
    # However a view was made, its state is the same.
    state = view.batches(7, shuffle=True).state_dict()
    assert state == split.select(expected).batches(7, shuffle=True).state_dict()


@pytest.mark.parametrize(
    "ids", [[], [5], [5, 5], [3, 1, 2], [0, 2, 4], [9, 6, 3, 0], [1, 2, 4], [7, 7, 7], [0, 1, 0]]
)
def test_a_selection_is_its_numbers_whatever_holds_them(ids: list[int]) -> None:
    array = np.array(ids, np.int64)
    chosen: Selection = normalize_selection(array)
    assert list(chosen) == ids == expand_selection(chosen).tolist()
    assert select_numbers(chosen, np.arange(len(ids))).tolist() == ids
    assert list(slice_selection(chosen, slice(None, None, -1))) == ids[::-1]
    assert digest_selection(chosen) == digest_selection(
        slice_selection(slice_selection(chosen, slice(None, None, -1)), slice(None, None, -1))
    )


def test_views_of_very_many_records_take_no_memory() -> None:
    split = huge()
    tracemalloc.start()
    try:
        views = [split[10:20], split.take(10**8), split[::-3], split[5:][:-5][::2], split.take(7)]
        states = [view.batches(4, shuffle=order).state_dict() for view in views for order in (False, True)]
        pickled = [len(pickle.dumps(view)) for view in views]
        records = views[2].request(4, shuffle=True).sampler.records(3, np.arange(10, dtype=np.int64))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(view) for view in views] == [10, 10**8, 333_333_334, 499_999_995, 7]
    assert len({str(state) for state in states}) == 10
    assert max(pickled) < 2000
    assert set(((MANY - 1 - records) % 3).tolist()) == {0}
    assert 0 <= int(records.min()) < int(records.max()) < MANY
    assert peak < 1 << 20


@pytest.mark.parametrize("which", [slice("a", None), slice(None, None, 0), slice(0.5, 2)])
def test_a_slice_that_cannot_be_meant_is_refused(split: rk.Split, which: slice) -> None:
    refused("U606: split has no record ", lambda: split[which])


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, RECORDS])
def test_a_number_too_large_for_int64_is_not_taken_for_one_from_the_end(split: rk.Split, number: int) -> None:
    failure = refused("U606: split has no record ", lambda: split[np.array([0, number], np.uint64)])
    assert failure.found == str(number)
    refused("U606: split has no record ", lambda: split.select(np.array([number], np.uint64)))


# ---- Batches without columns ----


@pytest.mark.parametrize("way", [{"threads": 1, "prefetch": 0}, {"threads": 2, "prefetch": 2}])
@pytest.mark.parametrize("order", [{}, {"shuffle": True}])
def test_batches_without_columns_are_counted_all_the_same(
    split: rk.Split, way: dict[str, Any], order: dict[str, Any]
) -> None:
    for remainder, count, consumed in (("keep", 15, 100), ("drop", 14, 98)):
        batches = iter(split.batches(7, columns=[], remainder=remainder, **way, **order))  # type: ignore[arg-type]
        assert next(batches) == {}
        assert batches.state_dict()["consumed"] == batches.consumed == 7
        assert len(list(batches)) == count - 1
        assert batches.consumed == consumed


def test_rows_without_columns_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([b""] * 5))
    split = rk.open(path, schema=rk.Schema({}))["all"]
    assert list(split) == [{}] * 5
    assert len(split.filter(lambda row: True)) == 5


def test_a_filter_looks_at_no_column_where_none_is_asked_for(split: rk.Split) -> None:
    answers = iter([True, False] * RECORDS)
    kept = split.filter(lambda row: next(answers), columns=[])
    assert [row["n"] for row in kept] == list(range(0, RECORDS, 2))


def test_a_filter_of_rows_that_a_function_left_out_is_refused(split: rk.Split) -> None:
    halved = split.map(lambda batch: {"n": batch["n"][::2]})
    failure = refused("U605", lambda: halved.filter(lambda row: row["n"] > 50))
    assert failure.found == "50 rows"


# ---- Threads and processes ----


@pytest.mark.concurrency
def test_two_iterators_of_one_split_run_in_two_threads(split: rk.Split) -> None:
    found: dict[str, list[list[int]]] = {}

    def run(name: str, options: dict[str, Any]) -> None:
        batches = split.batches(3, threads=2, **options)
        found[name] = [[n for batch in batches for n in batch["n"].tolist()] for _ in range(5)]

    ways: dict[str, dict[str, Any]] = {"files": {}, "exact": {"shuffle": True}}
    together([threading.Thread(target=run, args=item) for item in ways.items()])
    for name, options in ways.items():
        for epoch, numbers in enumerate(found[name]):
            alone = split.batches(3, epoch=epoch, **options)
            assert numbers == [n for batch in alone for n in batch["n"].tolist()]


@pytest.mark.concurrency
def test_eight_threads_take_records_of_one_split(folder: Path) -> None:
    split = rk.open(folder)["train"]
    wrong: list[Any] = []

    def run(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(50):
            asked = random.integers(-RECORDS, RECORDS, 9).tolist()
            if split[asked]["n"].tolist() != [n % RECORDS for n in asked]:
                wrong.append(asked)

    together([threading.Thread(target=run, args=(seed,)) for seed in range(8)])
    assert wrong == []


def together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_split_of_a_thousand_shards_pickles_as_its_paths() -> None:
    paths = [f"data/train-{i:05d}-of-01000.tfrecord" for i in range(1000)]
    shards = Shards(paths, [12_345] * 1000)
    split = rk.Split("train", RecordView(shards, digest="d" * 64), LazySchema(paths, SCHEMA, None))
    alone = len(pickle.dumps(paths)) + 8 * len(paths)  # and a count for each
    assert len(pickle.dumps(split)) < alone + 10_000
    assert len(pickle.dumps(split[::2].map(len))) < alone + 10_000
    assert pickle.loads(pickle.dumps(split)).paths == tuple(paths)


def test_no_number_of_batches_ahead_begins_more_than_some_thousands(
    split: rk.Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekord.dataset.readers.pipeline._MAX_PREFETCH", 5)
    monkeypatch.setattr("rekord.dataset.readers.pipeline._MAX_THREADS", 2)
    batches = iter(split.batches(1, shuffle=True, threads=10**9, prefetch=10**9))
    next(batches)
    work: Any = batches._reading._work
    assert (len(work._threads), len(work._waiting)) == (2, 7 - 1)
    batches.close()


# ---- Files that change ----


@cache
def file_of(numbers: range) -> bytes:
    return frames(example_bytes({"n": [n], "label": [0]}) for n in numbers)


def put(path: Path, numbers: range) -> None:
    path.write_bytes(file_of(numbers))


@pytest.mark.parametrize("way", [{"threads": 1, "prefetch": 0}, {"threads": 2, "prefetch": 2}])
@pytest.mark.parametrize("order", [{}, {"shuffle": True}])
@pytest.mark.parametrize("how", ["replaced", "written over", "cut between records", "grown"])
def test_a_file_that_changes_between_two_epochs_is_never_read_as_the_one_before(
    tmp_path: Path, how: str, order: dict[str, Any], way: dict[str, Any], drain: Any
) -> None:
    paths = [tmp_path / f"train-0000{i}-of-00002.tfrecord" for i in range(2)]
    for i, path in enumerate(paths):
        put(path, range(50 * i, 50 * i + 50))
    split = rk.open(tmp_path, schema=SCHEMA)["train"]
    batches = split.batches(10, **order, **way)
    first = [n for batch in batches for n in batch["n"].tolist()]
    assert sorted(first) == list(range(100))
    change(paths[1], how)
    given, failure = drain(batches)
    assert failure is not None
    assert (failure.code, failure.location.path) == ("X548", str(paths[1]))
    assert all(n < 100 for batch in given for n in batch["n"].tolist())


def change(path: Path, how: str) -> None:
    if how == "replaced":
        put(path.with_suffix(".new"), range(1000, 1050))
        os.replace(path.with_suffix(".new"), path)
    elif how == "written over":
        content = frames(example_bytes({"n": [n], "label": [0]}) for n in range(1000, 1050))
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()
        os.utime(path, ns=(5, 5))
    elif how == "cut between records":
        size = path.stat().st_size
        os.truncate(path, size // 50 * 20)
    else:
        with path.open("ab") as file:
            file.write(frames([example_bytes({"n": [1000], "label": [0]})]))


@pytest.mark.parametrize("way", [{"threads": 1, "prefetch": 0}, {"threads": 2, "prefetch": 0}])
def test_a_file_that_is_written_over_while_it_is_read_is_an_error(
    tmp_path: Path, way: dict[str, Any], drain: Any
) -> None:
    path = tmp_path / "x.tfrecord"
    put(path, range(100_000, 130_000))
    size_bytes = path.stat().st_size
    batches = iter(rk.open(path, schema=SCHEMA).batches(100, **way))
    next(batches)
    put(path, range(300_000, 330_000))  # numbers of as many bytes: every frame has the place of another
    os.utime(path, ns=(5, 5))
    assert path.stat().st_size == size_bytes
    _, failure = drain(batches)
    assert failure is not None
    assert (failure.code, failure.location.path) == ("X548", str(path))


@pytest.mark.parametrize("way", [{"threads": 1, "prefetch": 0}, {"threads": 2, "prefetch": 2}])
def test_a_shard_that_lost_records_after_it_was_opened_is_not_read_as_the_one_that_it_was(
    tmp_path: Path, way: dict[str, Any], drain: Any
) -> None:
    rows = [{"n": n, "label": 0} for n in range(RECORDS)]
    data = tmp_path / "data"
    rk.write(rows, data, schema=SCHEMA, split="train", shards=2, progress=False, workers=1)
    split = rk.open(data)["train"]
    last = Path(split.paths[1])
    put(last, range(50, 90))
    given, failure = drain(split.batches(10, **way))
    assert [n for batch in given for n in batch["n"].tolist()] == list(range(50))
    assert failure is not None
    assert (failure.code, failure.location.path) == ("X548", str(last))


# ---- A dataset of one split ----

METHODS: dict[str, tuple[Any, ...]] = {
    "balanced": (),
    "batches": (4,),
    "class_weights": (),
    "digest": (),
    "filter": (bool,),
    "map": (dict,),
    "select": ([0],),
    "sql": ("select 1",),
    "take": (1,),
    "to_arrow": (),
    "to_jax": (4,),
    "to_keras": (4,),
    "to_pandas": (),
    "to_polars": (),
    "to_tensorflow": (4,),
    "to_torch": (4,),
    "transform": (),
}
"""What users call of a split, and arguments for it."""


def test_a_dataset_of_one_split_has_what_the_split_has(folder: Path) -> None:
    dataset = rk.open(folder)
    split = dataset["train"]
    shared = {name for name in vars(SplitMethods) if not name.startswith("_")}
    assert shared | {"digest"} == {*METHODS, "only_split"}
    assert (dataset.name, dataset.paths, dataset.schema) == (split.name, split.paths, split.schema)
    assert dataset.digest() == split.digest()
    for name in METHODS.keys() - {"digest"}:
        assert getattr(rk.Dataset, name) is getattr(rk.Split, name)


def test_a_dataset_of_one_split_is_used_as_that_split(folder: Path) -> None:
    dataset = rk.open(folder)
    assert dataset[5] == dataset["train"][5]
    assert dataset[[3, 1]]["n"].tolist() == [3, 1]
    assert [row["n"] for row in dataset[10:12]] == [10, 11]
    assert [row["n"] for row in dataset.take(3)] == [0, 1, 2]
    assert len(dataset.to_arrow()) == RECORDS


@pytest.fixture(scope="module")
def two_splits(tmp_path_factory: pytest.TempPathFactory) -> rk.Dataset:
    rows = [{"n": n, "label": 0} for n in range(40)]
    parts = {"train": 0.5, "val": 0.5}
    out = tmp_path_factory.mktemp("two") / "d"
    return rk.write(rows, out, schema=SCHEMA, split=parts, progress=False, workers=1)


@pytest.mark.parametrize("name", METHODS)
def test_with_several_splits_every_method_names_them(two_splits: rk.Dataset, name: str) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        getattr(two_splits, name)(*METHODS[name])
    assert (caught.value.code, caught.value.expected) == ("X507", "one of 'train', 'val'")
    assert f"`{name}`" in caught.value.what
    assert 'dataset["train"]' in (caught.value.do or "")


@pytest.mark.parametrize("name", ["name", "paths"])
def test_with_several_splits_every_property_names_them(two_splits: rk.Dataset, name: str) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        getattr(two_splits, name)
    assert (caught.value.code, caught.value.expected) == ("X507", "one of 'train', 'val'")


def test_a_dataset_is_a_mapping_of_its_splits(folder: Path, two_splits: rk.Dataset) -> None:
    one = rk.open(folder)
    assert isinstance(one, Mapping)
    assert (list(one), len(one), one.records) == (["train"], 1, RECORDS)
    assert (list(two_splits), len(two_splits), two_splits.records) == (["train", "val"], 2, 40)
    assert "train" in one
    assert 0 not in one
    assert dict(two_splits.items()) == dict(two_splits.splits)
    assert two_splits.get("test") is None
    assert one == one
    assert one != rk.open(folder)
    assert {one: 1}[one] == 1


def test_an_unknown_split_is_a_key_error_that_names_a_near_miss(two_splits: rk.Dataset) -> None:
    with pytest.raises(KeyError) as caught:
        two_splits["vall"]
    failure = caught.value
    assert isinstance(failure, rk.DatasetError)
    assert (failure.code, failure.do) == ("X506", 'dataset["val"]')
    assert str(failure).startswith("X506: dataset has no split 'vall'")
    assert failure.message.startswith("DatasetError X506")
    again = pickle.loads(pickle.dumps(failure))
    assert isinstance(again, KeyError)
    assert str(again) == str(failure)


def test_a_dataset_of_one_split_is_rows_where_rows_are_taken(
    folder: Path, two_splits: rk.Dataset, tmp_path: Path
) -> None:
    one = rk.open(folder)
    assert list(rk.infer(one)) == list(one.schema)
    made = rk.write(one, tmp_path / "out", schema=SCHEMA, progress=False, workers=1)
    assert made.records == RECORDS
    for call in (lambda: rk.infer(two_splits), lambda: rk.write(two_splits, tmp_path / "no", progress=False)):
        with pytest.raises(rk.DatasetError) as caught:
            call()
        assert caught.value.code == "X507"

"""`split.batches`: every argument, every refusal, and a state that goes on from wherever it was taken."""

from __future__ import annotations

import gc
import inspect
import json
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lifetimes import ended, threads_of

import rekord as rk
from rekord.dataset import shard_index
from rekord.dataset.batches import make_worker_request

RECORDS = 23
SCHEMA = rk.Schema(
    {
        "n": rk.Int64(),
        "vec": rk.Float32(shape=(2,)),
        "tokens": rk.Int64(shape=(None,)),
        "name": rk.Text(),
        "score": rk.Float32(optional=True),
    }
)
THREADS = [{"threads": threads, "prefetch": prefetch} for threads, prefetch in [(1, 0), (1, 2), (2, 0), (2, 2)]]
ORDERS: list[dict[str, Any]] = [
    {},
    {"remainder": "pad"},
    {"shuffle": True, "seed": 3},
    {"shuffle": "block", "seed": 3},
]
WAYS = [{**order, **threads} for order, threads in product(ORDERS, THREADS)]


def row(n: int) -> dict[str, Any]:
    return {
        "n": n,
        "vec": [n, n + 0.5],
        "tokens": list(range(n % 4)),
        "name": f"row {n}",
        "score": None if n % 3 == 0 else n / 2,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of a few small shards, with its manifest."""
    out = tmp_path_factory.mktemp("api") / "data"
    rk.write(
        [row(n) for n in range(RECORDS)],
        out,
        schema=SCHEMA,
        split={"train": 1.0},
        shards=3,
        progress=False,
        workers=1,
    )
    return out


@pytest.fixture
def split(folder: Path) -> rk.Split:
    return rk.open(folder)["train"]


def numbers(batches: Any) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def flat(batches: Any) -> list[int]:
    return [n for batch in numbers(batches) for n in batch]


def refused(call: Callable[[], Any]) -> rk.UsageError:
    with pytest.raises(rk.UsageError) as caught:
        call()
    assert caught.value.do
    return caught.value


# ---- The signature ----

PROMISED = {
    "columns": None,
    "shuffle": False,
    "seed": 0,
    "epoch": 0,
    "rank": 0,
    "world": 1,
    "nodes": 1,
    "remainder": "keep",
    "fill": None,
    "ragged": "ragged",
    "pad": None,
    "decode": False,
    "resize": None,
    "map": None,
    "prefetch": 2,
    "threads": None,
}


@pytest.mark.parametrize("method", ["batches", "request"])
def test_the_signature_is_the_promised_one(method) -> None:
    _, first, *rest = inspect.signature(getattr(rk.Split, method)).parameters.values()
    assert (first.name, first.default) == ("batch_size", inspect.Parameter.empty)
    assert {one.name: one.default for one in rest if one.name != "sampler"} == PROMISED
    assert [one.name for one in rest][: len(PROMISED)] == list(PROMISED)
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in rest)


WRONG: list[tuple[str, list[Any]]] = [
    ("batch_size", [0, -1, 1.5, "8", None, True]),
    ("columns", ["n", 3, [1], b"n"]),
    ("shuffle", [1, 0, "yes", None, []]),
    ("seed", [-1, 1.5, "a", None, True, 1 << 63]),
    ("epoch", [-1, 0.5, None, False]),
    ("rank", [-1, 1, "0", None, True]),
    ("world", [0, -1, 1.0, None, True]),
    ("remainder", ["", "keep ", None, True, 0]),
    ("fill", [3, ["score"], {"scor": 0.0}, {1: 0}]),
    ("ragged", ["padded", None, True]),
    ("pad", [0, ["tokens"], {"token": 0}]),
    ("decode", [1, None, "yes"]),
    ("map", [3, "f", [len]]),
    ("prefetch", [-1, 0.5, None, True]),
    ("threads", [0, -2, 1.5, "2", True]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG for value in values])
def test_a_value_that_cannot_be_meant_is_refused_by_name(split, name, value) -> None:
    options = {"batch_size": 4, name: value}
    if name == "pad":
        options["ragged"] = "pad"
    failure = refused(lambda: split.batches(**options))
    assert failure.code == "U605"
    assert f"`{name}`" in failure.what


def test_padding_that_pads_nothing_is_refused(split) -> None:
    assert refused(lambda: split.batches(4, pad={"tokens": 1})).code == "U605"


def test_a_column_that_is_not_there_names_a_near_miss(split) -> None:
    with pytest.raises(rk.SchemaError) as caught:
        split.batches(4, columns=["nam"])
    assert caught.value.code == "S116"
    assert "name" in str(caught.value.do)


# ---- What comes out ----


@pytest.mark.parametrize("way", THREADS)
def test_columns_come_in_the_forms_that_their_features_have(split, way) -> None:
    batch = next(iter(split.batches(5, **way)))
    assert batch["n"].tolist() == [0, 1, 2, 3, 4]
    assert batch["vec"].shape == (5, 2)
    assert isinstance(batch["tokens"], rk.Ragged)
    assert batch["tokens"].tolist() == [[], [0], [0, 1], [0, 1, 2], []]
    assert isinstance(batch["name"], rk.Strings)
    assert batch["name"].tolist() == [f"row {n}" for n in range(5)]
    assert isinstance(batch["score"], rk.Optional)
    assert batch["score"].tolist() == [None, 0.5, 1.0, None, 2.0]


def test_holes_are_filled_and_rows_padded_where_that_is_asked_for(split) -> None:
    batch = next(iter(split.batches(4, fill={"score": -1.0}, ragged="pad", pad={"tokens": 9})))
    assert batch["score"].tolist() == [-1.0, 0.5, 1.0, -1.0]
    assert batch["tokens"].tolist() == [[9, 9, 9], [0, 9, 9], [0, 1, 9], [0, 1, 2]]


def test_a_function_changes_batches_after_they_are_filled_and_padded(split) -> None:
    def last(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n": batch["n"], "sum": batch["tokens"].sum(axis=1) + batch["score"]}

    batch = next(iter(split.batches(4, fill={"score": 0.0}, ragged="pad", map=last)))
    assert list(batch) == ["n", "sum"]
    assert batch["sum"].tolist() == [0.0, 0.5, 2.0, 3.0]


class Trouble(Exception):
    """What a user's function may raise."""


@pytest.mark.parametrize("way", WAYS)
def test_what_a_function_raises_is_passed_on_unchanged(split, way) -> None:
    raised = Trouble("as it was")

    def function(batch: dict[str, Any]) -> dict[str, Any]:
        raise raised

    batches = iter(split.batches(4, map=function, **way))
    with pytest.raises(Trouble) as caught:
        next(batches)
    assert caught.value is raised


@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_rekord_from_a_function_keeps_its_place(split, way) -> None:
    def function(batch: dict[str, Any]) -> dict[str, Any]:
        rk.decode(b"\xff")
        return batch

    with pytest.raises(rk.RekordError) as caught:
        next(iter(split.batches(4, map=function, **way)))
    assert caught.value.location.path is None


@pytest.mark.parametrize("made", [None, [1], 3])
def test_a_function_must_give_a_batch(split, made) -> None:
    failure = refused(lambda: next(iter(split.batches(4, map=lambda batch: made))))
    assert (failure.code, failure.expected) == ("U605", "a dict of columns")


# ---- Length, remainder, ranks ----


@pytest.mark.parametrize("order", [*ORDERS[2:], {}])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize(("batch_size", "world"), [(1, 1), (4, 1), (4, 3), (23, 1), (30, 2), (2, 8)])
def test_ranks_share_an_epoch_and_know_how_long_theirs_is(split, order, remainder, batch_size, world) -> None:
    ranks = [
        split.batches(batch_size, rank=rank, world=world, remainder=remainder, threads=1, prefetch=0, **order)
        for rank in range(world)
    ]
    lengths = [len(one) for one in ranks]
    padded = ranks[0].padded
    taken = [numbers(one) for one in ranks]
    assert [len(one) for one in taken] == lengths
    every = sorted(n for one in taken for batch in one for n in batch)
    if remainder == "keep":
        assert every == list(range(RECORDS))
    elif remainder == "drop":
        step = batch_size * world
        assert len(every) == len(set(every)) == RECORDS // step * step
    else:
        assert len(every) == RECORDS + padded
        assert set(every) == set(range(RECORDS))
    if remainder != "keep":
        assert len(set(lengths)) == 1
        assert all(len(batch) == batch_size for one in taken for batch in one)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_loader_workers_take_turns_through_the_same_batches(split, workers) -> None:
    request = pickle.loads(pickle.dumps(split.request(4, shuffle=True, seed=5)))
    shares = [numbers(rk_batches(make_worker_request(request, worker, workers))) for worker in range(workers)]
    whole = numbers(split.batches(4, shuffle=True, seed=5))
    assert [shares[i % workers][i // workers] for i in range(len(whole))] == whole


def rk_batches(request: Any) -> Any:
    from rekord.dataset.batches import Batches

    return Batches(request)


def _doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {"n": batch["n"] * 2}


def _one_more(batch: dict[str, Any]) -> dict[str, Any]:
    return {"n": batch["n"] + 1}


def test_a_request_can_be_pickled_with_all_that_it_does(split) -> None:
    mapped = pickle.loads(pickle.dumps(split.map(_doubled)))
    request = mapped.request(4, fill={"score": 0.0}, ragged="pad", pad={"tokens": 1}, map=_one_more)
    assert flat(rk_batches(pickle.loads(pickle.dumps(request)))) == [2 * n + 1 for n in range(RECORDS)]


# ---- Epochs ----


@pytest.mark.parametrize("way", WAYS)
def test_the_next_iteration_is_the_next_epoch(split, way) -> None:
    batches = split.batches(5, **way)
    running = iter(batches)
    first = flat(running)
    assert (running.epoch, batches.epoch) == (0, 0)
    assert next(running, None) is None  # it stays at its end
    second = flat(batches)
    assert batches.epoch == 1
    assert set(first) == set(second) == set(range(RECORDS))
    assert (first != second) == ("shuffle" in way)
    assert second == flat(split.batches(5, epoch=1, **way))


def test_seeds_have_orders_of_their_own_and_one_seed_has_one(split) -> None:
    orders = [flat(split.batches(5, shuffle=True, seed=seed)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_threads_batch_size_and_world_do_not_change_an_order(split) -> None:
    expected = flat(split.batches(1, shuffle=True, seed=7, threads=1, prefetch=0))
    for batch_size, threads, prefetch in ((5, 2, 3), (23, 4, 0), (50, 1, 1)):
        found = flat(split.batches(batch_size, shuffle=True, seed=7, threads=threads, prefetch=prefetch))
        assert found == expected
    ranks = [flat(split.batches(4, shuffle=True, seed=7, rank=rank, world=3)) for rank in range(3)]
    assert [ranks[p % 3][p // 3] for p in range(RECORDS)] == expected


# ---- States ----


def views(split: rk.Split) -> dict[str, rk.Split]:
    return {
        "whole": split,
        "slice": split[3:20],
        "selected": split.select([5, 5, 1, 22, 0, 7, 8]),
        "filtered": split.filter(lambda row: row["n"] % 2 == 0, columns=["n"]),
        "mapped": split.map(_doubled),
    }


@pytest.mark.parametrize("view", ["whole", "slice", "selected", "filtered", "mapped"])
@pytest.mark.parametrize("way", WAYS)
def test_from_every_step_a_state_goes_on_with_the_rest(split, way, view) -> None:
    part = views(split)[view]
    whole = numbers(part.batches(4, **way))
    going = iter(part.batches(4, **way))
    for step in range(len(whole) + 1):
        state = json.loads(json.dumps(going.state_dict()))
        resumed = part.batches(4, **way)
        resumed.load_state_dict(state)
        assert numbers(resumed) == whole[step:]
        if step < len(whole):
            next(going)


def test_a_state_is_what_was_delivered_not_what_was_read_ahead(split) -> None:
    batches = iter(split.batches(2, shuffle=True, prefetch=8, threads=2))
    assert batches.state_dict()["consumed"] == 0
    next(batches)
    assert batches.state_dict()["consumed"] == 2


def test_a_state_goes_on_in_its_epoch_and_then_in_the_next(split) -> None:
    batches = iter(split.batches(8, shuffle=True, epoch=4))
    next(batches)
    resumed = split.batches(8, shuffle=True)
    resumed.load_state_dict(batches.state_dict())
    assert (resumed.epoch, len(resumed)) == (4, 3)
    rest = flat(resumed)
    assert rest == flat(split.batches(8, shuffle=True, epoch=4))[8:]
    assert flat(resumed) == flat(split.batches(8, shuffle=True, epoch=5))


@pytest.mark.parametrize("way", WAYS)
def test_a_state_after_the_last_batch_has_nothing_left_and_then_a_new_epoch(split, way) -> None:
    batches = split.batches(8, **way)
    running = iter(batches)
    for _ in range(len(batches)):
        next(running)
    resumed = split.batches(8, **way)
    resumed.load_state_dict(batches.state_dict())
    assert flat(resumed) == []
    assert flat(resumed) == flat(split.batches(8, epoch=1, **way))


@pytest.mark.parametrize("way", WAYS)
def test_a_state_after_the_end_is_the_start_of_the_next_epoch(split, way) -> None:
    batches = split.batches(8, **way)
    running = iter(batches)
    assert set(flat(running)) == set(range(RECORDS))
    assert running.state_dict() == batches.state_dict()
    assert (batches.state_dict()["epoch"], batches.state_dict()["consumed"]) == (1, 0)
    resumed = split.batches(8, **way)
    resumed.load_state_dict(batches.state_dict())
    assert flat(resumed) == flat(split.batches(8, epoch=1, **way))


@pytest.mark.parametrize("way", THREADS)
def test_a_state_goes_on_with_other_ranks_batches_and_columns(split, way) -> None:
    whole = flat(split.batches(1, shuffle=True))
    before = [iter(split.batches(2, shuffle=True, rank=rank, world=4, **way)) for rank in range(4)]
    seen = [n for one in before for n in next(one)["n"].tolist()]
    assert sorted(seen) == sorted(whole[:8])
    states = [one.state_dict() for one in before]
    assert all(state == states[0] for state in states)
    rest = []
    for rank in range(3):
        after = split.batches(5, shuffle=True, rank=rank, world=3, columns=["n"], **way)
        after.load_state_dict(states[rank])
        rest.append(flat(after))
    # Rank p mod 3 has position p.
    assert [rest[p % 3].pop(0) for p in range(8, RECORDS)] == whole[8:]


def test_a_state_that_is_loaded_while_an_iterator_runs_is_for_the_next_one(split) -> None:
    batches = split.batches(4, threads=2)
    running = iter(batches)
    next(running)
    state = batches.state_dict()
    second = next(running)["n"].tolist()
    batches.load_state_dict(state)
    assert next(running)["n"].tolist() == [8, 9, 10, 11]
    assert next(iter(batches))["n"].tolist() == second == [4, 5, 6, 7]


def test_a_state_of_something_else_is_refused(split, folder, tmp_path) -> None:
    other = tmp_path / "other"
    rk.write([row(n) for n in range(5)], other, schema=SCHEMA, split="train", progress=False, workers=1)
    cases = {
        "dataset": (rk.open(other)["train"], {"shuffle": True}),
        "order": (split, {"shuffle": True, "seed": 1}),
        "kind": (split, {}),
        "view": (split[:10], {"shuffle": True}),
    }
    state = split.batches(4, shuffle=True).state_dict()
    for name, (part, options) in cases.items():
        failure = refused(lambda part=part, options=options: part.batches(4, **options).load_state_dict(state))
        assert str(failure).startswith("U609: state belongs to another "), name
    renamed = {**state, "split": "val"}
    del renamed["checksum"]  # as a state of an earlier version
    failure = refused(lambda: split.batches(4, shuffle=True).load_state_dict(renamed))
    assert (failure.code, failure.what) == ("U609", "state belongs to another split")


@pytest.mark.parametrize(
    "state",
    [None, {}, [], "x", {"rekord": 2}]
    + [
        {"rekord": 1, "dataset": "d", "split": "s", "order": {}, "epoch": 0, "consumed": 0, **wrong}
        for wrong in (
            {"dataset": 1},
            {"split": None},
            {"order": []},
            {"epoch": -1},
            {"consumed": 1.5},
            {"epoch": True},
        )
    ],
)
def test_what_is_no_state_is_refused(split, state) -> None:
    failure = refused(lambda: split.batches(4).load_state_dict(state))
    assert (failure.code, failure.what) == ("U609", "not a valid loader state")


def test_a_refused_state_leaves_the_iteration_as_it_was(split) -> None:
    batches = split.batches(4)
    running = iter(batches)
    next(running)
    before = batches.state_dict()
    refused(lambda: batches.load_state_dict({}))
    assert batches.state_dict() == before
    assert next(running)["n"].tolist() == [4, 5, 6, 7]


# ---- Lifetimes ----


@pytest.mark.concurrency
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("leave", ["close", "with", "end", "fail"])
def test_an_iterator_that_ends_has_waited_for_its_threads(split, way, leave) -> None:
    def function(batch: dict[str, Any]) -> dict[str, Any]:
        if leave == "fail" and 20 in batch["n"]:
            raise Trouble
        return batch

    batches = iter(split.batches(2, map=function, **way))
    next(batches)
    threads = threads_of(batches)
    assert len(threads) == (0 if way["threads"] == 1 and way["prefetch"] == 0 else way["threads"])
    if leave == "close":
        batches.close()
        assert next(batches, None) is None
    elif leave == "with":
        with batches:
            next(batches)
    elif leave == "end":
        flat(batches)
    else:
        with pytest.raises(Trouble):
            flat(batches)
    assert [one for one in threads if one.is_alive()] == []


@pytest.mark.concurrency
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("leave", ["break", "forget", "cycle", "unused"])
def test_an_iterator_that_is_left_behind_leaves_no_thread(split, way, leave) -> None:
    batches = split.batches(2, **way)
    running = iter(batches)
    threads: list[threading.Thread] = []
    if leave != "unused":
        next(running)
        threads = threads_of(running)
    if leave == "cycle":
        cycle: list[Any] = [running]
        cycle.append(cycle)
        del cycle
    if leave == "break":
        for _ in running:
            break
    del running
    gc.collect()
    assert ended(threads)


@pytest.mark.concurrency
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.slow
def test_an_iterator_may_be_collected_by_one_of_its_own_threads(split, order) -> None:
    dropped = threading.Event()
    calls = []

    def function(batch: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        if len(calls) > 4:
            dropped.wait(60)
            gc.collect()
        return batch

    cycle: list[Any] = [iter(split.batches(2, map=function, threads=1, prefetch=6, **order))]
    cycle.append(cycle)
    next(cycle[0])
    threads = threads_of(cycle[0])
    assert len(threads) == 1
    gc.disable()  # nobody else is to find it
    try:
        del cycle
        dropped.set()
        assert ended(threads)
    finally:
        gc.enable()


@pytest.mark.parametrize("way", WAYS)
def test_a_running_iterator_cannot_be_pickled(split, way) -> None:
    batches = iter(split.batches(2, **way))
    next(batches)
    failure = refused(lambda: pickle.dumps(batches))
    assert (failure.code, failure.what) == ("U607", "batch iterator cannot be pickled")


def _in_child(batches: Any, send: Any) -> None:
    try:
        next(batches)
        send.send("went on")
    except rk.UsageError as failure:
        send.send(failure.code)
    finally:
        send.close()
        os._exit(0)


@pytest.mark.concurrency
@pytest.mark.parametrize("way", [{**order, "threads": 1, "prefetch": 0} for order in ORDERS])
def test_a_forked_child_may_not_go_on(split, way) -> None:
    batches = iter(split.batches(2, **way))
    first = next(batches)["n"].tolist()
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_in_child, args=(batches, send))
    child.start()
    assert receive.poll(60)
    assert receive.recv() == "U607"
    child.join(60)
    assert len(first) == 2
    assert len(flat(batches)) >= RECORDS - 2


# ---- The first batch ----


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 200 shards."""
    out = tmp_path_factory.mktemp("many") / "data"
    rows = ({"n": n} for n in range(1000))
    rk.write(rows, out, schema=rk.Schema({"n": rk.Int64()}), split="train", shards=200, progress=False, workers=1)
    return out


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards whose index is read, from now on."""
    seen: list[str] = []
    original = shard_index.open_index_file

    def read(path: str, *rest: Any) -> Any:
        seen.append(os.path.basename(path))
        return original(path, *rest)

    monkeypatch.setattr(shard_index, "open_index_file", read)
    return seen


@pytest.fixture
def asked_about(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards of which the file system is asked anything, from now on."""
    seen: list[str] = []
    original = os.stat

    def stat(path: Any, *rest: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str) and path.endswith(".tfrecord"):
            seen.append(path)
        return original(path, *rest, **options)

    monkeypatch.setattr(os, "stat", stat)
    return seen


def test_the_first_batch_in_file_order_needs_one_index_at_most(many, looked_at, request) -> None:
    split = rk.open(many)["train"]
    asked = request.getfixturevalue("asked_about")
    batches = split.batches(4, threads=1, prefetch=0)
    assert len(batches) == 250
    running = iter(batches)
    assert next(running)["n"].tolist() == [0, 1, 2, 3]
    assert batches.state_dict()["consumed"] == 4
    assert len(looked_at) <= 1
    assert len(set(asked)) <= 1


@pytest.mark.parametrize("shuffle", ["exact", "block"])
def test_the_first_shuffled_batch_needs_the_shards_that_it_takes_from(many, looked_at, request, shuffle) -> None:
    split = rk.open(many)["train"]
    asked = request.getfixturevalue("asked_about")
    batches = iter(split.batches(4, shuffle=shuffle, threads=1, prefetch=0))
    found = next(batches)["n"].tolist()
    touched = {n // 5 for n in found}
    assert len(set(looked_at)) <= len(touched)
    assert len(set(asked)) <= len(touched)
    assert batches.state_dict()["consumed"] == 4


def test_going_on_in_the_middle_opens_no_shard_before_it(many, looked_at) -> None:
    split = rk.open(many)["train"]
    batches = split.batches(4, threads=1, prefetch=0)
    batches.load_state_dict({**batches.state_dict(), "consumed": 500, "checksum": None})
    assert next(iter(batches))["n"].tolist() == [500, 501, 502, 503]
    assert len(looked_at) <= 1


def test_one_row_needs_one_index(many, looked_at) -> None:
    split = rk.open(many)["train"]
    assert split[777]["n"] == 777
    assert len(looked_at) == 1


def test_numbers_of_numpy_are_taken_everywhere(split) -> None:
    options = {name: np.int32(value) for name, value in {"seed": 1, "epoch": 2, "rank": 0, "world": 1}.items()}
    batches = split.batches(np.int64(4), shuffle=True, prefetch=np.int8(1), threads=np.uint8(2), **options)
    assert json.loads(json.dumps(batches.state_dict())) == batches.state_dict()
    assert sorted(flat(batches)) == list(range(RECORDS))

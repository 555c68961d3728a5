"""`rk.open`: which files are which split, and how an iterator over batches behaves from its first to its last."""

from __future__ import annotations

import contextlib
import gc
import gzip
import multiprocessing
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lifetimes import ended, threads_of

import rekord as rk
from rekord.dataset.read import infer_split_name
from rekord.testing import corrupt_length, corrupt_payload, example_bytes, frame_offsets, frames

SCHEMA = rk.Schema({"n": rk.Int64(), "name": rk.Text()})


def _payloads(begin: int, end: int) -> list[bytes]:
    return [example_bytes({"n": [i], "name": [f"row {i}"]}) for i in range(begin, end)]


def _numbers(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Writes numbered records to a file of the test's folder."""

    def written(name: str, begin: int = 0, end: int = 3) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(frames(_payloads(begin, end)))
        return path

    return written


# ---- What a path stands for ----


def test_a_file_a_folder_a_glob_and_a_list_are_opened(put, tmp_path) -> None:
    first, second = put("a.tfrecord", 0, 3), put("b.tfrecord", 3, 5)
    for place in (tmp_path, str(tmp_path), tmp_path / "*.tfrecord", [first, second], [str(second), first]):
        assert _numbers(rk.open(place, schema=SCHEMA).batches(2)) == [0, 1, 2, 3, 4]
    assert _numbers(rk.open(second, schema=SCHEMA).batches(2)) == [3, 4]


def test_a_schema_may_be_a_file(put, tmp_path) -> None:
    SCHEMA.save(tmp_path / "schema.json")
    dataset = rk.open(put("a.tfrecord"), schema=tmp_path / "schema.json")
    assert dataset.schema == SCHEMA
    assert _numbers(dataset.batches(2)) == [0, 1, 2]


def test_opening_reads_no_record(put_file) -> None:
    path = put_file(b"this is no record file")
    dataset = rk.open(path, schema=SCHEMA)
    assert list(dataset.splits) == ["all"]
    with pytest.raises(rk.FrameError) as caught:
        next(iter(dataset.batches(1)))
    assert caught.value.location.path == str(path)


@pytest.mark.parametrize(("place", "code"), [("nowhere", "X501"), ("*.tfrecord", "X502"), ("", "X502")])
def test_what_is_not_there_is_said_when_it_is_opened(place, code, tmp_path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(tmp_path / place)
    assert caught.value.code == code


# ---- Splits ----

NAMES = [
    # path below the root, and its split
    ("train-00000-of-00004.tfrecord", "train"),
    ("train-00000-of-01024", "train"),
    ("val_00000-of-00004.tfrecord", "val"),
    ("test.00000-of-00004.tfrecord", "test"),
    ("coco_train.record-00000-of-00100", "coco_train"),
    ("fruit-train.tfrecord-00000-of-00002", "fruit-train"),
    ("train.tfrecord-00000-of-00002.gz", "train"),
    ("my-own-split-00000-of-00001.tfrecord", "my-own-split"),
    ("Split-train/data_tfrecord-00000-of-00001.gz", "train"),
    ("Split-eval/x.tfrecord", "eval"),
    ("train/part-00000.tfrecord", "train"),
    ("anything/x.tfrecord", "anything"),
    ("anything/train-00000-of-00001.tfrecord", "train"),
    ("train.tfrecord", "train"),
    ("VALIDATION.tfrecord.gz", "VALIDATION"),
    ("dev.record", "dev"),
    ("valid.tfrec", "valid"),
    ("eval.tfr.zz", "eval"),
    ("test", "test"),
    ("x.tfrecord", "all"),
    ("training.tfrecord", "all"),
    ("part-00000.tfrecord", "all"),
    ("00000-of-00004.tfrecord", "all"),
]


@pytest.mark.parametrize(("name", "split"), NAMES)
def test_a_name_says_which_split_a_file_belongs_to(name, split, tmp_path) -> None:
    assert infer_split_name(str(tmp_path / name), str(tmp_path)) == split


@pytest.mark.parametrize("name", ["folder/x.tfrecord", "train/x.tfrecord"])
def test_without_a_folder_that_was_opened_a_parent_says_nothing(name, tmp_path) -> None:
    assert infer_split_name(str(tmp_path / name), None) == "all"


def test_a_dataset_lists_its_splits_and_their_files_in_order(put, tmp_path) -> None:
    put("train-00000-of-00002.tfrecord", 0, 2)
    put("train-00001-of-00002.tfrecord", 2, 4)
    put("val-00000-of-00001.tfrecord", 4, 5)
    dataset = rk.open(tmp_path, schema=SCHEMA)
    assert list(dataset.splits) == ["train", "val"]
    assert len(dataset.splits) == 2
    assert [os.path.basename(path) for path in dataset["train"].paths] == [
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]
    assert _numbers(dataset["train"].batches(3)) == [0, 1, 2, 3]
    assert _numbers(dataset["val"].batches(3)) == [4]
    assert dataset["val"].schema == SCHEMA
    assert repr(dataset).splitlines() == [
        "Dataset: 2 splits, 2 columns",
        "  train  records not counted yet  2 files",
        "  val    records not counted yet   1 file",
        "  n Int64 · name Text",
    ]


def test_a_split_that_is_not_there_is_x506_and_names_those_that_are(put, tmp_path) -> None:
    put("train.tfrecord")
    put("val.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(tmp_path, schema=SCHEMA)["tset"]
    assert caught.value.code == "X506"
    assert caught.value.what == "dataset has no split 'tset'"
    assert caught.value.expected == "one of 'train', 'val'"
    assert caught.value.found == "'tset'"
    assert caught.value.do == 'dataset["train"]'


@pytest.mark.parametrize("method", ["batches", "to_arrow"])
def test_several_splits_are_not_one_and_x507_lists_them(method, put, tmp_path) -> None:
    put("train.tfrecord")
    put("val.tfrecord")
    dataset = rk.open(tmp_path, schema=SCHEMA)
    with pytest.raises(rk.DatasetError) as caught:
        getattr(dataset, method)(*([2] if method == "batches" else []))
    assert caught.value.code == "X507"
    assert caught.value.what == f"`{method}` needs a single split, and the dataset has 2"
    assert caught.value.expected == "one of 'train', 'val'"
    assert caught.value.do == f'dataset["train"].{method}(…)'


@pytest.mark.parametrize(
    ("call", "do"),
    [
        (lambda dataset: dataset[0], 'dataset["train"][0]'),
        (lambda dataset: dataset[[1, 2]], 'dataset["train"][[1, 2]]'),
        (lambda dataset: dataset.paths, 'dataset["train"].paths'),
        (lambda dataset: dataset.take(2), 'dataset["train"].take(…)'),
        (lambda dataset: rk.concat([dataset]), 'dataset["train"]'),
    ],
)
def test_x507_suggests_a_call_that_can_be_pasted(call, do, put, tmp_path) -> None:
    put("train.tfrecord")
    put("val.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        call(rk.open(tmp_path, schema=SCHEMA))
    assert (caught.value.code, caught.value.do) == ("X507", do)


# ---- Sets of shards ----


@pytest.mark.parametrize("mark", ["-", "_", "."])
def test_an_incomplete_set_is_x505_unless_allowed(mark, put, tmp_path) -> None:
    for shard in (0, 2):
        put(f"train{mark}{shard:05d}-of-00004.tfrecord", shard, shard + 1)
    for place in (tmp_path, tmp_path / "train*"):
        with pytest.raises(rk.DatasetError) as caught:
            rk.open(place, schema=SCHEMA)
        failure = caught.value
        assert failure.code == "X505"
        assert failure.what == "2 of 4 shards are missing"
        assert failure.location.path == str(tmp_path / f"train{mark}*-of-00004.tfrecord")
        assert failure.expected == "shards 0 to 3"
        assert failure.found == f"no {tmp_path}/train{mark}00001-of-00004.tfrecord, and 1 more missing"
        assert "allow_missing=True" in (failure.do or "")
        assert _numbers(rk.open(place, schema=SCHEMA, allow_missing=True).batches(5)) == [0, 2]


def test_every_set_of_shards_is_looked_at_by_itself(put, tmp_path) -> None:
    put("a/train-00000-of-00001.tfrecord")
    put("b/train-00000-of-00002.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(tmp_path, schema=SCHEMA)
    assert caught.value.location.path == str(tmp_path / "b" / "train-*-of-00002.tfrecord")


def test_one_shard_that_is_named_is_what_was_wanted(put) -> None:
    path = put("train-00000-of-00004.tfrecord")
    assert _numbers(rk.open(path, schema=SCHEMA).batches(5)) == [0, 1, 2]


# ---- Arguments ----


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": "8"}, "batch_size"),
        ({"threads": 0}, "threads"),
        ({"threads": 1.0}, "threads"),
        ({"prefetch": -1}, "prefetch"),
        ({"prefetch": None}, "prefetch"),
        ({"columns": "n"}, "columns"),
        ({"columns": [1]}, "columns"),
        ({"columns": 5}, "columns"),
        ({"columns": [["n"]]}, "columns"),
    ],
)
def test_a_value_that_an_argument_cannot_take_is_u605_at_once(options, named, put) -> None:
    dataset = rk.open(put("a.tfrecord"), schema=SCHEMA)
    with pytest.raises(rk.UsageError) as caught:
        dataset.batches(**{"batch_size": 2, **options})
    assert caught.value.code == "U605"
    assert (caught.value.what or "").startswith(f"`{named}` cannot be")
    assert caught.value.expected
    assert caught.value.do


def test_numbers_of_numpy_are_numbers(put) -> None:
    dataset = rk.open(put("a.tfrecord"), schema=SCHEMA)
    assert _numbers(dataset.batches(np.int64(2), threads=np.uint8(1), prefetch=np.int32(0))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [("sequnce", None), (1, None), ("sequence", SCHEMA), ("example", rk.Schema(context={}))],
)
def test_a_kind_that_cannot_be_meant_is_u605(kind, schema, put) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.open(put("a.tfrecord"), schema=schema, kind=kind)
    assert caught.value.code == "U605"


def test_a_column_that_is_not_there_is_said_at_once_with_its_near_miss(put) -> None:
    dataset = rk.open(put("a.tfrecord"), schema=SCHEMA)
    with pytest.raises(rk.SchemaError) as caught:
        dataset.batches(2, columns=["n", "nmae"])
    assert (caught.value.code, caught.value.location.feature) == ("S116", "nmae")
    assert caught.value.do == "did you mean `name`?"


def test_without_a_schema_a_column_that_is_not_there_is_said_at_the_first_batch(put) -> None:
    batches = iter(rk.open(put("a.tfrecord")).batches(2, columns=["nn"]))
    with pytest.raises(rk.SchemaError) as caught:
        next(batches)
    assert caught.value.code == "S116"


@pytest.mark.parametrize("columns", [["name"], ("name",), ["name", "name"], {"name": 1}, iter(["name"])])
def test_only_the_columns_that_are_asked_for_come(columns, put) -> None:
    batches = list(rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, columns=columns))
    assert [list(batch) for batch in batches] == [["name"], ["name"]]
    assert batches[0]["name"].tolist() == ["row 0", "row 1"]


def test_no_columns_are_batches_without_any(put) -> None:
    assert list(rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, columns=[])) == [{}, {}]


# ---- An iterator, from its first batch to its last ----

WAYS = [{"threads": 1, "prefetch": 0}, {"threads": 1, "prefetch": 2}, {"threads": 3, "prefetch": 1}]


@pytest.fixture(params=WAYS, ids=lambda way: "threads={threads}, prefetch={prefetch}".format(**way))
def way(request: pytest.FixtureRequest) -> dict[str, int]:
    return request.param


def test_the_last_batch_holds_what_is_left(way, put) -> None:
    dataset = rk.open(put("a.tfrecord", 0, 10), schema=SCHEMA)
    assert [len(batch["n"]) for batch in dataset.batches(4, **way)] == [4, 4, 2]
    assert [len(batch["n"]) for batch in dataset.batches(5, **way)] == [5, 5]
    assert [len(batch["n"]) for batch in dataset.batches(100, **way)] == [10]


def test_batches_go_on_from_file_to_file(way, put, tmp_path) -> None:
    for i, (begin, end) in enumerate([(0, 3), (3, 3), (3, 4), (4, 11)]):
        put(f"part-{i}.tfrecord", begin, end)
    batches = list(rk.open(tmp_path, schema=SCHEMA).batches(4, **way))
    assert [batch["n"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_files_without_records_give_no_batches(way, put) -> None:
    batches = rk.open(put("a.tfrecord", 0, 0), schema=SCHEMA).batches(4, **way)
    assert list(batches) == []


def test_an_iterator_stays_at_its_end_and_the_next_one_is_an_epoch(way, put) -> None:
    batches = rk.open(put("a.tfrecord", 0, 5), schema=SCHEMA).batches(2, **way)
    running = iter(batches)
    assert iter(running) is running
    assert iter(batches) is not running
    assert next(running)["n"].tolist() == [0, 1]
    assert iter(running) is running  # in the middle this changes nothing
    assert _numbers(running) == [2, 3, 4]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(running)
    assert _numbers(batches) == [0, 1, 2, 3, 4]
    assert _numbers(batches) == [0, 1, 2, 3, 4]


def test_two_iterators_over_one_split_do_not_disturb_each_other(way, put) -> None:
    dataset = rk.open(put("a.tfrecord", 0, 6), schema=SCHEMA)
    one, other = iter(dataset.batches(2, **way)), iter(dataset.batches(3, **way))
    turns = [next(one), next(other), next(one), next(other), next(one)]
    assert [batch["n"].tolist() for batch in turns] == [[0, 1], [0, 1, 2], [2, 3], [3, 4, 5], [4, 5]]


@pytest.mark.concurrency
def test_nothing_runs_before_the_first_batch(put, monkeypatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread)))
    batches = iter(rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, threads=2))
    iter(batches)
    assert started == []
    next(batches)
    assert started == threads_of(batches)
    assert len(started) == 2
    batches.close()
    assert not any(one.is_alive() for one in started)


@pytest.mark.concurrency
def test_without_threads_to_spare_nothing_runs_in_the_background(put, monkeypatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", None)
    batches = iter(rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, threads=1, prefetch=0))
    next(batches)
    batches.close()


# ---- Failures in the middle ----


def test_damage_comes_after_every_good_row_and_says_where_and_why(way, put_file, drain) -> None:
    data = frames(_payloads(0, 20))
    path = put_file(corrupt_payload(data, 13))
    for batch_size in (1, 4, 13, 14, 100):
        loader = rk.open(path, schema=SCHEMA).batches(batch_size, **way)
        reading = iter(loader)
        batches, failure = drain(reading)
        assert _numbers(batches) == list(range(13))
        assert failure.code == "F102"
        assert failure.location == rk.Location(path=str(path), record=13, offset=frame_offsets(data)[13])
        assert "intact" in failure.likely
        # What has failed does not continue. The next epoch fails as well.
        with pytest.raises(StopIteration):
            next(reading)
        assert drain(loader)[1].code == "F102"


def test_a_damaged_length_is_told_like_rk_records_tells_it(way, put_file, drain) -> None:
    path = put_file(corrupt_length(frames(_payloads(0, 20)), 7))
    batches, failure = drain(rk.open(path, schema=SCHEMA).batches(4, **way))
    payloads, other = drain(rk.records(path))
    assert len(payloads) == len(_numbers(batches)) == 7
    assert failure.to_dict() == other.to_dict()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_cut_file_is_told_like_rk_records_tells_it(cut, way, put_file, drain) -> None:
    data = frames(_payloads(0, 20))
    path = put_file(data[:-cut])
    batches, failure = drain(rk.open(path, schema=SCHEMA).batches(6, **way))
    assert _numbers(batches) == list(range(19))
    assert failure.to_dict() == drain(rk.records(path))[1].to_dict()


def test_a_page_instead_of_records_is_called_a_page(way, put_file) -> None:
    path = put_file(b"<!DOCTYPE html>\n<html></html>")
    with pytest.raises(rk.FrameError) as caught:
        next(iter(rk.open(path, schema=SCHEMA).batches(6, **way)))
    assert caught.value.code == "F111"


def test_a_damaged_gzip_stream_gives_what_came_before_the_damage(way, put_file, drain) -> None:
    rng = np.random.default_rng(5)
    payloads = [example_bytes({"n": [i], "name": [rng.bytes(300).hex()]}) for i in range(400)]
    data = frames(payloads)
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[len(packed) // 2] ^= 0x55
    path = put_file(bytes(packed), "x.tfrecord.gz")
    batches, failure = drain(rk.open(path, schema=SCHEMA).batches(16, **way))
    good, other = drain(rk.records(path))
    assert 100 < len(good) < 300
    assert _numbers(batches) == list(range(len(good)))
    assert failure.code == other.code
    assert failure.location.path == str(path)
    assert failure.location.record == len(good)
    assert failure.location.offset == frame_offsets(data)[len(good)]


def test_a_gzip_stream_that_ends_early_gives_what_came_before(way, put_file, drain) -> None:
    rng = np.random.default_rng(5)
    payloads = [example_bytes({"n": [i], "name": [rng.bytes(300).hex()]}) for i in range(400)]
    packed = gzip.compress(frames(payloads), mtime=0)
    path = put_file(packed[: len(packed) * 2 // 3], "x.tfrecord.gz")
    batches, failure = drain(rk.open(path, schema=SCHEMA).batches(16, **way))
    assert _numbers(batches) == list(range(len(drain(rk.records(path))[0])))
    assert (failure.code, failure.location.path) == ("C202", str(path))


def test_a_file_that_is_gone_is_said_after_the_files_before_it(way, put, tmp_path, drain) -> None:
    put("part-0.tfrecord", 0, 5)
    gone = put("part-1.tfrecord", 5, 9)
    dataset = rk.open(tmp_path, schema=SCHEMA)
    gone.unlink()
    batches, failure = drain(dataset.batches(3, **way))
    assert _numbers(batches) == [0, 1, 2, 3, 4]
    assert (failure.code, failure.location.path) == ("X501", str(gone))


def test_a_damaged_file_that_is_gone_by_then_is_still_told_as_damaged(put_file, drain) -> None:
    path = put_file(corrupt_payload(frames(_payloads(0, 20)), 13))
    batches = iter(rk.open(path, schema=SCHEMA).batches(4, threads=1, prefetch=0))
    next(batches)
    path.unlink()
    _, failure = drain(batches)
    assert (failure.code, failure.location.record) == ("F102", 13)


# ---- Other processes ----


def test_a_running_iterator_cannot_be_pickled_and_a_dataset_can(way, put) -> None:
    dataset = rk.open(put("a.tfrecord"), schema=SCHEMA)
    batches = iter(dataset.batches(2, **way))
    for running in (False, True):
        if running:
            next(batches)
        with pytest.raises(rk.UsageError) as caught:
            pickle.dumps(batches)
        assert caught.value.code == "U607"
        assert "pickled" in caught.value.what
    assert _numbers(batches) == [2]
    again = pickle.loads(pickle.dumps(dataset))
    assert (list(again.splits), again.schema) == (["all"], SCHEMA)
    assert _numbers(again.batches(2)) == [0, 1, 2]
    split = pickle.loads(pickle.dumps(dataset["all"]))
    assert (split.name, split.paths) == ("all", dataset["all"].paths)
    assert _numbers(split.batches(2)) == [0, 1, 2]
    assert len(pickle.dumps(dataset)) < 2000


def _forked(action: Callable[[], Any]) -> Any:
    """What `action` gives in a forked child, within a minute."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def child() -> None:
        try:
            send.send(action())
        except rk.RekordError as failure:
            send.send((type(failure).__name__, failure.code))

    with warnings.catch_warnings():
        # Python warns of what this is about: threads that a child does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=child)
        process.start()
    assert receive.poll(60), "the child hangs"
    answer = receive.recv()
    process.join(60)
    assert process.exitcode == 0
    return answer


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_may_not_go_on_and_the_parent_may(way, put) -> None:
    batches = iter(rk.open(put("a.tfrecord", 0, 50), schema=SCHEMA).batches(2, **way))
    next(batches)
    assert _forked(lambda: next(batches)) == ("UsageError", "U607")
    assert _numbers(batches) == list(range(2, 50))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
@pytest.mark.concurrency
def test_a_forked_child_may_let_go_of_its_parents_iterator(way, put) -> None:
    kept = [iter(rk.open(put("a.tfrecord", 0, 5000), schema=SCHEMA).batches(2, **way))]
    next(kept[0])

    def let_go() -> str:
        kept[0].close()
        kept.clear()
        gc.collect()
        return "done"

    for _ in range(5):
        assert _forked(let_go) == "done"
    assert _numbers(kept[0]) == list(range(2, 5000))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_iterator_that_has_not_begun_may_begin_in_a_child(way, put) -> None:
    batches = rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, **way)
    assert _forked(lambda: _numbers(batches)) == [0, 1, 2]
    assert _numbers(batches) == [0, 1, 2]


# ---- Leaving early ----


def _open_files() -> set[str]:
    return {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}


@pytest.mark.concurrency
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("leave", ["close", "drop", "break", "fail"])
@pytest.mark.slow
def test_leaving_early_ends_the_threads_and_closes_the_files(leave, way, put) -> None:
    path = str(put("a.tfrecord", 0, 20_000))

    def first(batches: Iterator[Any]) -> None:
        for _ in batches:
            if leave == "fail":
                raise KeyError
            break

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = iter(rk.open(path, schema=SCHEMA).batches(2, **way))
        with contextlib.suppress(KeyError):
            first(batches)
        assert path in _open_files()
        threads = threads_of(batches)
        if leave == "close":
            batches.close()
            batches.close()  # once more does no harm
            with pytest.raises(StopIteration):
                next(batches)
            assert path not in _open_files()
            assert not any(one.is_alive() for one in threads)
        del batches
        gc.collect()
        assert ended(threads)
    assert path not in _open_files()
    assert [warning for warning in caught if warning.category is ResourceWarning] == []


def test_after_a_closed_iterator_comes_a_whole_epoch(way, put) -> None:
    batches = rk.open(put("a.tfrecord"), schema=SCHEMA).batches(2, **way)
    running = iter(batches)
    next(running)
    batches.close()
    assert _numbers(running) == []
    assert _numbers(batches) == [0, 1, 2]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_files_are_closed_at_the_end_and_after_a_failure(way, put, put_file, drain) -> None:
    good = put("a.tfrecord", 0, 20)
    bad = put_file(corrupt_payload(frames(_payloads(0, 20)), 13), "b.tfrecord")
    for path in (good, bad):
        batches = iter(rk.open(path, schema=SCHEMA).batches(3, **way))
        next(batches)
        threads = threads_of(batches)
        drain(batches)
        assert str(path) not in _open_files()
        assert not any(one.is_alive() for one in threads)


# ---- Without a schema, and as a table ----


def test_without_a_schema_the_first_records_say_what_there_is(way, put) -> None:
    dataset = rk.open(put("a.tfrecord"))
    assert dataset.schema == rk.Schema({"n": rk.Int64(), "name": rk.Bytes()})
    batches = list(dataset.batches(2, **way))
    assert [batch["name"].tolist() for batch in batches] == [[b"row 0", b"row 1"], [b"row 2"]]


def test_a_table_has_every_record_and_the_columns_that_are_asked_for(put, tmp_path) -> None:
    put("part-0.tfrecord", 0, 3)
    put("part-1.tfrecord", 3, 5)
    dataset = rk.open(tmp_path, schema=SCHEMA)
    table = dataset.to_arrow()
    assert table.column_names == ["n", "name"]
    assert table.to_pydict() == {"n": list(range(5)), "name": [f"row {i}" for i in range(5)]}
    assert dataset["all"].to_arrow(columns=["name"]).column_names == ["name"]


def test_a_file_without_records_keeps_the_types_of_its_schema(tmp_path):
    schema = rk.Schema({"a": rk.Int64(), "b": rk.Float32(shape=(None,)), "c": rk.Text(optional=True)})
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    with rk.Writer(tmp_path / "one.tfrecord", schema) as writer:
        writer.write({"a": 1, "b": [0.5], "c": "x"})
    empty = rk.open(tmp_path / "empty.tfrecord", schema).to_arrow()
    assert empty.num_rows == 0
    assert empty.schema == rk.open(tmp_path / "one.tfrecord", schema).to_arrow().schema


def test_any_number_of_threads_and_batches_ahead_is_taken(tmp_path):
    schema = rk.Schema({"a": rk.Int64()})
    with rk.Writer(tmp_path / "x.tfrecord", schema) as writer:
        for i in range(10):
            writer.write({"a": i})
    batches = rk.open(tmp_path / "x.tfrecord", schema).batches(4, threads=10**6, prefetch=10**9)
    assert [batch["a"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

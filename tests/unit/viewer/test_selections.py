"""Selections: kept between sessions, shared by viewers, bounded, and refused if their file is corrupt."""

import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rekord as rk
from rekord.errors import RekordError, UsageError
from rekord.viewer import selections
from rekord.viewer.curation import format_selection
from rekord.viewer.selections import SelectionStore, identify_dataset, save_record_list


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "selections"


def test_a_selection_with_its_tags_is_there_in_the_next_session(cache):
    store = SelectionStore("d1")
    store.select([("val", 7), ["train", 3]], tags=["blurry"])
    store.select([("train", 3), ("train", 11)], tags=["wrong label"])
    again = SelectionStore("d1").read()
    assert again.records == [("train", 3), ("train", 11), ("val", 7)]
    assert again.tags["train", 3] == ("blurry", "wrong label")
    assert again.with_tag("blurry") == [("train", 3), ("val", 7)]
    assert again.to_dict() == {
        "count": 3,
        "records": [["train", 3, ["blurry", "wrong label"]], ["train", 11, ["wrong label"]], ["val", 7, ["blurry"]]],
        "tags": {"blurry": 2, "wrong label": 2},
    }
    assert format_selection(again, "blurry") == "split,record,tags\ntrain,3,blurry;wrong label\nval,7,blurry\n"
    assert (cache.stat().st_mode & 0o777) == 0o700
    assert [name.suffix for name in cache.iterdir()] == [".json"]


def test_records_and_tags_can_be_taken_back():
    store = SelectionStore("d1")
    store.select([("train", 3), ("train", 4)], tags=["a", "b"])
    assert store.untag([("train", 3), ("train", 9)], ["a"]).tags == {("train", 3): ("b",), ("train", 4): ("a", "b")}
    assert store.deselect([("train", 4), ("train", 9)]).records == [("train", 3)]
    assert store.clear().records == store.read().records == []


def test_another_version_of_a_dataset_has_its_own_selection(tmp_path):
    schema = rk.Schema({"x": rk.Int64()})
    rk.write([{"x": i} for i in range(4)], tmp_path / "data", schema=schema, progress=False)
    before = identify_dataset(rk.open(tmp_path / "data"))
    SelectionStore(before).select([("train", 3)])
    assert SelectionStore(identify_dataset(rk.open(tmp_path / "data"))).read().records == [("train", 3)]
    rk.delete(tmp_path / "data", replace=True, records=[("train", 0)], progress=False)
    assert SelectionStore(identify_dataset(rk.open(tmp_path / "data"))).read().records == []


def test_names_of_splits_that_are_not_utf8_survive():
    store = SelectionStore("d1")
    store.select([("b\udce9b\xe9", 3), ("\ud800", 4)])
    assert SelectionStore("d1").read().records == [("b\udce9b\xe9", 3), ("\ud800", 4)]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([("train", 300)], "U606"),
        ([("other", 0)], "U606"),
        ([("train", -1)], "U605"),
        ([("train", True)], "U605"),
        ([("train", 2.0)], "U605"),
        ([("train", "3")], "U605"),
        (["train"], "U605"),
        ([{"split": "train"}], "U605"),
        ([("", 3)], "U605"),
        ([("x" * 1001, 3)], "U605"),
    ],
)
def test_records_that_cannot_be_are_refused(cache, records, code):
    with pytest.raises(UsageError) as caught:
        SelectionStore("d1", {"train": 300}).select(records)
    assert caught.value.code == code
    assert not cache.exists()


def test_records_of_a_split_that_is_not_counted_yet_are_accepted():
    assert SelectionStore("d1", {"train": None}).select([("train", 5)]).records == [("train", 5)]


@pytest.mark.parametrize("tag", ["", " a", "a ", "=1+1", "-a", "a,b", "a\x1b[2J", "x" * 41, 3, "a\nb", "a;b", "<b>"])
def test_tags_are_short_words_that_nothing_interprets(tag):
    with pytest.raises(UsageError, match="`tags` cannot be") as caught:
        SelectionStore("d1").select([("train", 1)], tags=[tag])
    assert caught.value.code == "U605"


def test_a_selection_is_bounded(monkeypatch):
    monkeypatch.setattr(selections, "MAX_SELECTED", 10)
    store = SelectionStore("d1")
    store.select([("train", i) for i in range(10)])
    for more in ([("train", 10)], [("train", i) for i in range(11)]):
        with pytest.raises(UsageError, match="selection is too large") as caught:
            store.select(more)
        assert caught.value.expected == "at most 10 selected records"
    with pytest.raises(UsageError) as caught:
        store.select([("train", 1)], tags=[f"t{i}" for i in range(17)])
    assert (caught.value.expected, caught.value.found) == ("at most 16 tags per record", "17")
    assert len(store.read().records) == 10


def test_the_oldest_selections_are_removed_if_there_are_too_many(cache, monkeypatch):
    monkeypatch.setattr(selections, "MAX_SELECTIONS", 3)
    for number in range(5):
        store = SelectionStore(f"d{number}")
        store.select([("train", number)])
        os.utime(store.path, (number, number))
        save_record_list(f"train,{number}\n", ".csv")
    left = [number for number in range(5) if SelectionStore(f"d{number}").read().records]
    assert left == [2, 3, 4]
    assert len(list(cache.glob("*.records.csv"))) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"format": 2, "dataset": "d1", "records": {}}',
        b'{"format": 1, "dataset": "d2", "records": {}}',
        b'{"format": 1, "dataset": "d1", "records": {"train": {"-1": []}}}',
        b'{"format": 1, "dataset": "d1", "records": {"train": {"1": ["\\u001b[2J"]}}}',
        b'{"format": 1, "dataset": "d1", "records": {"train": {"1": [3]}}}',
        b'{"format": 1, "dataset": "d1", "records": {"\\u4e00": {"1": []}}}',
        b'{"format": 1, "dataset": "d1", "records": {"train": {"99999999999999999999999": []}}}',
    ],
)
def test_a_corrupt_selection_is_reported_and_can_be_cleared(content):
    store = SelectionStore("d1")
    store.select([("train", 1)])
    Path(store.path).write_bytes(content)
    for read in (store.read, lambda: store.select([("train", 2)])):
        with pytest.raises(RekordError) as caught:
            read()
        assert caught.value.code == "X573"
        assert caught.value.location.path == store.path
        assert caught.value.do == f"rm {store.path}"
    assert Path(store.path).read_bytes() == content
    store.clear()
    assert store.select([("train", 2)]).records == [("train", 2)]


def test_no_bit_flip_of_a_selection_file_makes_a_record_of_another_kind():
    store = SelectionStore("d1")
    store.select([("train", 1)], tags=["a"])
    whole = Path(store.path).read_bytes()
    for at in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        Path(store.path).write_bytes(flipped)
        found: list[tuple[str, int]] = []
        code = None
        try:
            found = store.read().records
        except RekordError as failure:
            code = failure.code
        assert code in (None, "X573")
        assert all(isinstance(split, str) and record >= 0 for split, record in found)


def _select_all(dataset: str, first: int) -> None:
    store = SelectionStore(dataset)
    for number in range(first, first + 10):
        store.select([("train", number)], tags=[f"t{number % 3}"])


@pytest.mark.concurrency
def test_two_viewers_at_once_lose_no_record():
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_select_all, args=("shared", 100 * number)) for number in range(2)]
    for one in others:
        one.start()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: _select_all("shared", 100 * number), (2, 3)))
    for one in others:
        one.join()
        assert one.exitcode == 0
    expected = [("train", 100 * viewer + number) for viewer in range(4) for number in range(10)]
    assert SelectionStore("shared").read().records == expected


def test_without_a_cache_folder_a_selection_lives_as_long_as_its_viewer(monkeypatch):
    monkeypatch.delenv("REKORD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "relative")
    store = SelectionStore("d1")
    assert store.path is None
    assert store.select([("train", 1)], tags=["a"]).records == store.read().records == [("train", 1)]
    assert store.clear().records == store.read().records == []
    assert save_record_list("train,1\n", ".csv") is None


def test_a_saved_list_keeps_its_name_and_content(cache):
    path = save_record_list("split,record\ntrain,1\n", ".csv")
    assert path == save_record_list("split,record\ntrain,1\n", ".csv")
    assert Path(path).read_text() == "split,record\ntrain,1\n"
    assert path != save_record_list("split,record\ntrain,2\n", ".csv")
    assert json.loads(Path(save_record_list('[["a", 1]]', ".json")).read_text()) == [["a", 1]]

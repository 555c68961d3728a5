"""Files beside the records may hold anything: each is refused by a code and a place, or does not matter."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_conversions import disable_fsync

import rekord as rk
from rekord.conversion.shards import CompletedShard
from rekord.dataset import manifest as manifest_module
from rekord.dataset import shard_index
from rekord.dataset.index import index_path
from rekord.schema.interop.label_map import read_label_map
from rekord.storage.local import LOCAL, read_file
from rekord.storage.transaction import Staging
from rekord.training import checkpoint
from rekord.verbs.edit.common import EditSwap, EditWorkspace

SCHEMA = rk.Schema({"label": rk.Label(3), "n": rk.Int64()})
ROWS = [{"label": i % 3, "n": i} for i in range(9)]
SHARD = "train-00000-of-00001.tfrecord"

DEEP = b"[" * 200_000
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "bad UTF-8": b'{"name": "\xff\xfe"}',
    "half a surrogate": b'{"name": "\\ud800"}',
    "deep lists": DEEP,
    "deep objects": b'{"a":' * 100_000,
    "a list": b"[1, 2]",
    "a number of 400 digits": b"9" * 400,
    "a number of 5,000 digits": b"9" * 5000,
    "zeros": bytes(4096),
    "not a number": b"NaN",
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    disable_fsync(monkeypatch)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()
    manifest_module._manifest_cache.clear()
    # Only so that a reader that waits for a pipe fails, instead of the whole suite never ending.
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rk.write(ROWS, tmp_path / "data", schema=SCHEMA, progress=False, workers=1)
    return tmp_path / "data"


@pytest.fixture
def tfds(tmp_path: Path) -> Path:
    folder = tmp_path / "pets" / "1.0.0"
    rk.write(
        ROWS,
        folder,
        schema=rk.Schema({"label": rk.Label(["a", "b", "c"]), "n": rk.Int64()}),
        format="tfds",
        progress=False,
    )
    (folder / "rekord.json").unlink()
    return folder


def numbers(path: Path) -> list[int]:
    return sorted(int(row["n"]) for row in rk.open(path)["train"])


def refused(call: Callable[[], Any], path: Path | None, *codes: str) -> None:
    with pytest.raises(rk.RekordError) as caught:
        call()
    assert str(caught.value).startswith(codes), caught.value
    if path is not None:
        assert caught.value.location.path == str(path)


# Contents


@pytest.mark.parametrize("content", CONTENTS)
def test_a_manifest_of_any_content_is_refused(data: Path, content: str) -> None:
    place = data / "rekord.json"
    place.write_bytes(CONTENTS[content])
    refused(lambda: rk.open(data), place, "X515")
    assert "X515" in {finding.code for finding in rk.check(data).findings}


@pytest.mark.parametrize("content", CONTENTS)
def test_an_index_of_any_content_does_not_matter(data: Path, content: str) -> None:
    Path(index_path(str(data / SHARD))).write_bytes(CONTENTS[content])
    assert numbers(data) == list(range(9))
    assert rk.open(data)["train"].class_weights("label") == {0: 1.0, 1: 1.0, 2: 1.0}
    assert rk.open(data)["train"][8]["n"] == 8


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", ["dataset_info.json", "features.json"])
def test_tfds_files_of_any_content_are_refused(tfds: Path, name: str, content: str) -> None:
    place = tfds / name
    place.write_bytes(CONTENTS[content])
    if name == "dataset_info.json" and content in ("a list", "a number of 400 digits"):
        # Other libraries have a file of this name too, with other things in it.
        assert [len(split) for split in rk.open(tfds).splits.values()] == [9]
    else:
        refused(lambda: numbers(tfds), place, "X536", "X537")
    rk.check(tfds)


@pytest.mark.parametrize("content", CONTENTS)
def test_class_names_of_any_content_raise_nothing_else(tfds: Path, content: str) -> None:
    (tfds / "label.labels.txt").write_bytes(CONTENTS[content])
    with suppress(rk.RekordError):
        assert numbers(tfds) == list(range(9))


@pytest.mark.parametrize(
    ("lengths", "code"),
    [
        (["9" * 400], "X536"),
        ([str(2**70)], "X536"),
        ([str(2**62)], "X545"),
        ([2**62], "X545"),
        (["-1"], "X536"),
        (["x"], "X536"),
        ([[9]], "X536"),
        ([1.5], "X536"),
    ],
)
def test_shard_lengths_that_cannot_be_are_refused(tfds: Path, lengths: Any, code: str) -> None:
    place = tfds / "dataset_info.json"
    document = json.loads(place.read_text())
    document["splits"][0]["shardLengths"] = lengths
    place.write_text(json.dumps(document))
    where = place if code == "X536" else next(tfds.glob("*tfrecord-00000*"))
    refused(lambda: len(rk.open(tfds)["train"]), where, code)
    rk.check(tfds)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_schema_of_any_content_is_refused(tmp_path: Path, content: str) -> None:
    place = tmp_path / "schema.json"
    place.write_bytes(CONTENTS[content])
    refused(lambda: rk.Schema.load(place), place, "S117", "S116", "S115")
    text = CONTENTS[content].decode("utf-8", "surrogateescape")
    with suppress(rk.RekordError):
        rk.Schema.from_pbtxt(text)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.slow
def test_a_label_map_of_any_content_is_refused(data: Path, content: str) -> None:
    place = data / "label_map.pbtxt"
    place.write_bytes(CONTENTS[content])
    with pytest.raises(rk.RekordError) as caught:
        read_label_map(place)
    assert caught.value.location.path == str(place)
    rk.check(data)


def test_a_label_map_of_many_names_twice_takes_no_time(tmp_path: Path) -> None:
    place = tmp_path / "label_map.pbtxt"
    names = [f"c{i}" for i in range(20_000)] + ["c19999"]
    place.write_text("".join(f"item {{ id: {i + 1} name: '{name}' }}\n" for i, name in enumerate(names)))
    with pytest.raises(rk.RekordError) as caught:
        read_label_map(place)
    assert caught.value.found == "'c19999'"


def test_a_schema_of_many_names_twice_takes_no_time(tmp_path: Path) -> None:
    members = ",".join(f'"c{i}": 1' for i in [*range(60_000), 59_999])
    refused(lambda: rk.Schema.from_json(f'{{"rekord_schema": 1, "features": {{{members}}}}}'), None, "S117")


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("ending", [".idx", ".tfindex"])
def test_an_index_of_another_tool_of_any_content_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, ending: str
) -> None:
    monkeypatch.setattr(shard_index, "MIN_CACHED_FILE_BYTES", 0)
    with rk.Writer(tmp_path / "x.tfrecord", SCHEMA) as writer:
        for row in ROWS:
            writer.write(row)
    (tmp_path / f"x.tfrecord{ending}").write_bytes(CONTENTS[content])
    (tmp_path / f"x{ending}").write_bytes(CONTENTS[content])
    split = rk.open(tmp_path / "x.tfrecord", schema=SCHEMA)
    assert split[[8, 0]]["n"].tolist() == [8, 0]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_journal_of_any_content_is_no_journal(tmp_path: Path, content: str) -> None:
    staging = Staging(str(tmp_path))
    (tmp_path / "plan.json").write_bytes(CONTENTS[content])
    assert staging.plan() == {}
    (tmp_path / "x.done").write_bytes(CONTENTS[content])
    assert staging.read_done(str(tmp_path / "x.done"), CompletedShard) is None
    from rekord.storage.transaction import _checksum

    body = CONTENTS[content]
    (tmp_path / "x.done").write_bytes(body + f"\n{_checksum(body)}".encode())
    assert staging.read_done(str(tmp_path / "x.done"), CompletedShard) is None


@pytest.mark.parametrize("count", [2**63, 2**70, -1, 1.5, "1"])
def test_counts_of_a_journal_are_bounded(tmp_path: Path, count: Any) -> None:
    from rekord.storage.transaction import _checksum

    done: dict[str, Any] = dict.fromkeys(("records", "framed_bytes", "file_bytes"), 1) | {
        "digest": "",
        "index": [],
    }
    done |= {"classes": {}, "blocks": [], "records": count}
    body = json.dumps(done).encode()
    (tmp_path / "x.done").write_bytes(body + f"\n{_checksum(body)}".encode())
    assert Staging(str(tmp_path)).read_done(str(tmp_path / "x.done"), CompletedShard) is None


@pytest.mark.parametrize("content", CONTENTS)
def test_a_record_of_a_swap_of_any_content_is_removed(data: Path, content: str) -> None:
    place = data.parent / ".data.rekord-swap"
    place.write_bytes(CONTENTS[content])
    with EditWorkspace(str(data), LOCAL).lock_work() as work:
        assert work.recover(EditSwap) is None
    assert not place.exists()


@pytest.mark.parametrize("content", CONTENTS)
def test_a_checkpoint_of_any_content_is_refused(tmp_path: Path, content: str) -> None:
    place = tmp_path / "checkpoint.tfrecord"
    place.write_bytes(CONTENTS[content])
    refused(lambda: checkpoint.read_state(str(place)), place, "X575")
    with rk.Writer(place, checkpoint._SCHEMA) as writer:
        told = CONTENTS[content]
        writer.write({"name": "state", "dtype": "json", "shape": [len(told)], "data": told})
    refused(lambda: checkpoint.read_state(str(place)), place, "X575")


# Pipes and folders


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(data: Path, tfds: Path, tmp_path: Path) -> None:
    def pipe(place: Path) -> Path:
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place)
        return place

    pipe(Path(index_path(str(data / SHARD))))
    assert rk.open(data)["train"][[8, 0]]["n"].tolist() == [8, 0]
    assert rk.open(data)["train"].class_weights("label") == {0: 1.0, 1: 1.0, 2: 1.0}
    assert [finding.code for finding in rk.check(data).findings] == ["X547"]
    pipe(data / "label_map.pbtxt")
    assert [finding.code for finding in rk.check(data).findings] == ["X547"]
    shard = pipe(data / SHARD)
    refused(lambda: rk.open(data), shard, "X516")
    place = pipe(data / "rekord.json")
    refused(lambda: read_file(str(place), LOCAL, most_bytes=9), place, "X503")
    from rekord.dataset.manifest import read_manifest

    refused(lambda: read_manifest(str(data)), place, "X503")
    refused(lambda: checkpoint.read_state(str(pipe(tmp_path / "c.tfrecord"))), tmp_path / "c.tfrecord", "X575")
    staging = Staging(str(tmp_path / "staging"))
    pipe(tmp_path / "staging" / "plan.json")
    assert staging.plan() == {}
    done = pipe(tmp_path / "staging" / "x.done")
    assert staging.read_done(str(done), CompletedShard) is None
    pipe(tfds / "features.json")
    pipe(tfds / "label.labels.txt")
    assert numbers(tfds) == list(range(9))
    pipe(tfds / "dataset_info.json")
    rk.check(tfds)


def test_a_pipe_that_takes_the_place_of_a_shard_after_opening_is_not_waited_for(data: Path) -> None:
    split = rk.open(data)["train"]
    (data / SHARD).unlink()
    os.mkfifo(data / SHARD)
    refused(lambda: list(split.batches(4)), data / SHARD, "X516", "X548")
    refused(lambda: split[0], data / SHARD, "X503", "X516", "X548")


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "MIN_CACHED_FILE_BYTES", 0)
    with rk.Writer(tmp_path / "x.tfrecord", SCHEMA) as writer:
        for row in ROWS:
            writer.write(row)
    assert rk.open(tmp_path / "x.tfrecord", schema=SCHEMA).records == 9
    [entry] = (tmp_path / "cache" / "index").iterdir()
    entry.unlink()
    os.mkfifo(entry)
    shard_index._index_cache.clear()
    assert rk.open(tmp_path / "x.tfrecord", schema=SCHEMA).records == 9


# States of iterations


def state_of(data: Path) -> dict[str, Any]:
    batches = rk.open(data)["train"].batches(2, shuffle=True, prefetch=0, threads=1)
    next(iter(batches))
    return dict(batches.state_dict())


def rest(data: Path, state: Any) -> list[int]:
    batches = rk.open(data)["train"].batches(2, shuffle=True, prefetch=0, threads=1)
    batches.load_state_dict(state)
    return [number for batch in batches for number in batch["n"].tolist()]


def test_every_flip_and_cut_of_a_state_is_refused_or_resumes_at_the_same_record(data: Path) -> None:
    state = state_of(data)
    text = json.dumps(state).encode()
    expected = rest(data, state)
    for at in range(len(text)):
        for harmed in (text[:at] + bytes([text[at] ^ (1 << at % 8)]) + text[at + 1 :], text[:at]):
            try:
                loaded = json.loads(harmed)
            except ValueError:
                continue  # whoever reads the file says so
            with suppress(rk.UsageError):
                assert rest(data, loaded) == expected


NO_STATE = ("U609: not a valid loader state", "U609: state belongs to another ")


@pytest.mark.parametrize(
    "change",
    [
        {"consumed": 2**70},
        {"epoch": 10**400},
        {"consumed": -1},
        {"order": {}},
        {"order": {"kind": "exact", "seed": 10**400}},
        {"split": "\ud800"},
    ],
)
def test_states_that_cannot_be_are_refused(data: Path, change: dict[str, Any]) -> None:
    state = {**state_of(data), **change}
    refused(lambda: rest(data, state), None, *NO_STATE)
    refused(lambda: rest(data, {**state, "checksum": None}), None, *NO_STATE)


def test_a_deep_state_is_refused(data: Path) -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    refused(lambda: rest(data, {**state_of(data), "order": {"a": deep}}), None, NO_STATE[0])
    refused(lambda: rest(data, deep), None, NO_STATE[0])
    while isinstance(deep, list):  # taken apart by hand: to free it at once is deep too
        deep = deep.pop()


# Training checkpoints


class Variable:
    """What a checkpoint needs of a variable of Keras."""

    def __init__(self, path: str, value: Any) -> None:
        self.path = path
        self.value = value
        self.shape = value.shape

    def numpy(self) -> Any:
        return self.value

    def assign(self, value: Any) -> None:
        self.value = value


def test_every_flip_and_cut_of_a_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "variable_to_numpy", lambda variable: variable.value)
    place = tmp_path / "checkpoint.tfrecord"
    saved = {"plan": {"seed": 1}, "epoch": 3}
    checkpoint.save_checkpoint(str(place), saved, [Variable("a/b", np.arange(6, dtype=np.float32).reshape(2, 3))])
    good = place.read_bytes()
    for at in range(len(good)):
        for harmed in (good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :], good[:at]):
            place.write_bytes(harmed)
            variable = Variable("a/b", np.zeros((2, 3), np.float32))
            restored = None
            with suppress(rk.DatasetError):
                assert checkpoint.read_state(str(place)) == saved
                checkpoint.restore_variables(str(place), [variable])
                restored = variable.value.tolist()
            assert restored in (None, [[0, 1, 2], [3, 4, 5]])
            assert restored or not variable.value.any()

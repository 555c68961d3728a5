"""What the page about reading says of arguments, calls, compressed files, ranks, states and caches is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import fsspec
import pytest

import rekord as rk

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (FOLDER / "reading.md").read_text(encoding="utf-8")


def table(heading: str) -> str:
    """The lines of a table, below the line that names its columns."""
    return PAGE.split(f"\n{heading}\n|---|---|\n", 1)[1].split("\n\n", 1)[0]


def test_the_table_of_arguments_is_that_of_batches() -> None:
    told = dict(re.findall(r"`(\w+)=([^`]+)`", re.sub(r"\|[^|]*\|$", "|", table("| argument | |"), flags=re.M)))
    signature = inspect.signature(rk.Split.batches).parameters.values()
    defaults = {one.name: one.default for one in signature if one.default is not inspect.Parameter.empty}
    assert {name: eval(value) for name, value in told.items()} == defaults


def test_the_calls_and_fields_that_the_page_names_are_there() -> None:
    called = set(re.findall(r"`\.(\w+)\(", table("| call | returns |"))) | set(re.findall(r"`(to_\w+|sql)\(", PAGE))
    assert called
    assert all(hasattr(rk.Split, name) for name in called)
    for kind in (rk.Ragged, rk.Strings, rk.Optional, rk.SparseColumn):
        (named,) = re.findall(rf"\| `rk\.{kind.__name__}`: (.*) \|", PAGE)
        assert [name for name in re.findall(r"`\.(\w+)", named) if not hasattr(kind, name)] == []


def test_every_compressed_file_can_be_read_in_file_order_and_ours_in_any(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Int64()})
    rows = [{"x": i} for i in range(50)]
    ours = rk.write(rows, tmp_path / "ours", schema=schema, compression="gzip", progress=False)
    assert sorted(x for batch in ours.batches(8, shuffle=True) for x in batch["x"].tolist()) == list(range(50))
    alone = tmp_path / "alone.tfrecord.gz"
    with rk.Writer(alone, schema, compression="gzip") as writer:
        writer.write({"x": 1})
    split = rk.open(alone, schema)
    assert [x for batch in split.batches(8) for x in batch["x"].tolist()] == [1]
    for call in (lambda: split[0], lambda: split.batches(8, shuffle=True), lambda: split.batches(8, world=2)):
        with pytest.raises(rk.UsageError) as caught:
            call()
        assert (caught.value.code, caught.value.what, caught.value.location.path) == (
            "U651",
            "compressed file cannot be read in arbitrary order",
            str(alone),
        )


@pytest.mark.parametrize("shuffle", [False, "exact", "block"])
def test_another_number_of_ranks_goes_on_where_the_first_stopped_in_every_order(shuffle: Any, tmp_path: Path) -> None:
    rows = [{"x": i} for i in range(100)]
    train = rk.write(rows, tmp_path / "out", schema=rk.Schema({"x": rk.Int64()}), progress=False)
    first = [train.batches(4, shuffle=shuffle, rank=rank, world=8) for rank in range(8)]
    before = [x for batches in first for x in next(iter(batches))["x"].tolist()]
    then = [train.batches(4, shuffle=shuffle, rank=rank, world=6) for rank in range(6)]
    for batches in then:
        batches.load_state_dict(first[0].state_dict())
    after = [x for batches in then for batch in batches for x in batch["x"].tolist()]
    assert sorted(before + after) == list(range(100))


@pytest.mark.parametrize(("taken", "rest", "epoch"), [(1, [2, 3], 3), (3, [0, 3], 3), (4, [3, 3], 4)])
def test_a_state_of_the_table_gives_what_the_table_says(
    taken: int, rest: list[int], epoch: int, tmp_path: Path
) -> None:
    rows = [{"x": i} for i in range(10)]
    train = rk.write(rows, tmp_path / "out", schema=rk.Schema({"x": rk.Int64()}), progress=False)
    ended = iter(train.batches(4, shuffle=True, epoch=3))
    for _ in range(taken):  # three batches, and the end
        next(ended, None)
    batches = train.batches(4, shuffle=True)
    batches.load_state_dict(ended.state_dict())
    assert batches.epoch == epoch
    assert [len(list(batches)) for _ in range(2)] == rest
    assert batches.epoch == epoch + 1


def test_a_plain_shuffle_is_exact_here_and_one_of_blocks_elsewhere(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Int64()})
    here = rk.write([{"x": i} for i in range(10)], tmp_path / "out", schema=schema, progress=False)
    fsspec.filesystem("memory").put(str(tmp_path / "out"), "/reading-page", recursive=True)
    there = rk.open("memory://reading-page")
    kinds = [split.batches(4, shuffle=True).state_dict()["order"]["kind"] for split in (here, there)]
    assert kinds == ["exact", "block"]
    assert sorted(x for batch in there.batches(4, shuffle=True) for x in batch["x"].tolist()) == list(range(10))


@pytest.mark.parametrize("size_bytes", [100_000, 1_200_000])
def test_what_is_kept_of_foreign_files_is_in_the_cache_and_never_beside_them(
    size_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    with rk.Writer(data / "a.tfrecord", rk.Schema({"x": rk.Bytes()})) as writer:
        for _ in range(size_bytes // 1000):
            writer.write({"x": bytes(1000)})
    assert rk.open(data).records == size_bytes // 1000
    assert [path.name for path in data.iterdir()] == ["a.tfrecord"]
    kept = list((tmp_path / "cache" / "index").iterdir()) if (tmp_path / "cache").exists() else []
    assert len(kept) == (1 if size_bytes >= 1 << 20 else 0)


def test_bytes_that_are_no_utf8_are_read_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rk.Writer("train.tfrecord", rk.Schema({"name": rk.Bytes()})) as writer:
        writer.write({"name": "café".encode("latin-1")})
    names = rk.open("train.tfrecord", schema=rk.Schema({"name": rk.Bytes()})).batches(32)
    assert [name.decode("latin-1") for batch in names for name in batch["name"]] == ["café"]

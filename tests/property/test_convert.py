"""Laws of conversions: the bytes are a function of the source and the options, and the rows are all there."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import Crash, FaultyStorage
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_conversions import (
    NumberedFilesSource,
    disable_fsync,
    execute_conversion,
    find_leftovers,
    read_tree,
    use_small_parts,
)

import rekord as rk

LINE = st.builds(
    lambda label, text: f"{label} {text}",
    st.integers(0, 3),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=30),
)
FILES = st.lists(st.lists(st.one_of(LINE, st.just("")), max_size=12), min_size=1, max_size=4).filter(
    lambda files: any(line for lines in files for line in lines)
)
RATIOS = {"train": 0.6, "val": 0.4}
OPTIONS = st.fixed_dictionaries(
    {
        "shuffle": st.booleans(),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "compression": st.sampled_from([None, "gzip"]),
    },
    optional={"shards": st.integers(1, 9), "shard_size": st.integers(1, 3000), "index": st.just(["text"])},
)
SPLITS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"split": RATIOS}, {"split": RATIOS, "split_by": "label"}, {"split": RATIOS, "stratify": "label"}]
)
SIZES = st.fixed_dictionaries({name: st.integers(1, 2000) for name in ("part_bytes", "run_bytes", "piece_bytes")})


def put(folder: Path, files: list[list[str]]) -> str:
    root = folder / "source"
    root.mkdir()
    for i, lines in enumerate(files):
        (root / f"{i}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(root)


@settings(max_examples=60)
@given(FILES, OPTIONS, SPLITS, SIZES, SIZES, st.booleans())
def test_the_bytes_do_not_depend_on_how_the_work_is_cut(
    files: list[list[str]],
    options: dict[str, Any],
    split: dict[str, Any],
    sizes: dict[str, int],
    others: dict[str, int],
    columns: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        disable_fsync(patch)
        here = Path(folder)
        root = put(here, files)
        for name, cut, side_by_side in (("one", sizes, False), ("two", others, columns)):
            use_small_parts(patch, **cut)
            execute_conversion(
                NumberedFilesSource(root, columns=side_by_side), here / name / "data", {**options, **split}
            )
        assert read_tree(here / "one") == read_tree(here / "two")
        dataset = rk.open(here / "one" / "data")
        rows = Counter(
            (row["label"], row["text"]) for name in dataset.splits for row in dataset[name].to_arrow().to_pylist()
        )
        lines = [line.partition(" ") for file in files for line in file if line]
        assert rows == Counter((int(label), text) for label, _, text in lines)


@settings(max_examples=40)
@given(FILES, OPTIONS, SPLITS, SIZES, st.data())
def test_dying_twice_anywhere_changes_nothing(
    files: list[list[str]], options: dict[str, Any], split: dict[str, Any], sizes: dict[str, int], data: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        disable_fsync(patch)
        use_small_parts(patch, **sizes)
        here = Path(folder)
        source = NumberedFilesSource(put(here, files))
        storage = FaultyStorage()
        execute_conversion(source, here / "whole" / "data", {**options, **split}, storage)
        out = here / "broken" / "data"
        for fault in ("power loss", "crash"):
            step = data.draw(st.integers(1, len(storage.operations)))
            try:
                execute_conversion(source, out, {**options, **split}, FaultyStorage(fail_at=step, fault=fault))
            except Crash:
                assert not out.exists() or read_tree(out) == read_tree(here / "whole" / "data")
        execute_conversion(source, out, {**options, **split})
        assert read_tree(out) == read_tree(here / "whole" / "data")
        assert find_leftovers(out) == []
        shutil.rmtree(here / "broken")

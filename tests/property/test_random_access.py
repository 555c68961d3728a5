"""Laws of random access: any records by number are the rows that were written, however the shards are stored."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.dataset import shard_index
from rekord.framing import deflate

SCHEMA = rk.Schema({"id": rk.Int64(), "blob": rk.Bytes()})
SIZES = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 3000)), min_size=1, max_size=60)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    # Blocks of a few records, so that short shards have many.
    monkeypatch.setattr(deflate, "FLUSH_BYTES", 2000)
    monkeypatch.setattr(shard_index, "FLUSH_BYTES", 2000)


@settings(max_examples=60)
@given(
    sizes=SIZES,
    compression=st.sampled_from([None, "gzip", "zlib"]),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_records_are_the_rows_of_those_numbers(
    sizes: list[int], compression: str | None, seed: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    rows = [{"id": i, "blob": random.bytes(size)} for i, size in enumerate(sizes)]
    shards = data.draw(st.integers(1, min(3, len(rows))))
    asked = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=80))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "data"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deflate, "FLUSH_BYTES", 2000)
            rk.write(rows, out, schema=SCHEMA, compression=compression, shards=shards, workers=1, progress=False)
        split = rk.open(out)["train"]
        batch = split[asked]
        wanted = [rows[i] for i in asked]
        assert batch["id"].tolist() == [row["id"] for row in wanted]
        assert batch["blob"].tolist() == [row["blob"] for row in wanted]
        found = [
            (int(i), blob)
            for batch in split.batches(7, shuffle="exact", seed=seed)
            for i, blob in zip(batch["id"], batch["blob"].tolist(), strict=True)
        ]
        assert sorted(found) == [(row["id"], row["blob"]) for row in rows]


@settings(max_examples=20)
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), compression=st.sampled_from(["gzip", "zlib"]))
def test_an_exact_shuffle_is_the_same_over_plain_and_compressed_shards(
    sizes: list[int], seed: int, compression: str
) -> None:
    rows = [{"id": i, "blob": bytes(size)} for i, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        orders = []
        for name, kind in (("plain", None), ("packed", compression)):
            out = Path(folder) / name
            rk.write(rows, out, schema=SCHEMA, compression=kind, workers=1, progress=False)
            batches = rk.open(out)["train"].batches(5, shuffle="exact", seed=seed, prefetch=0, threads=1)
            orders.append([i for batch in batches for i in batch["id"].tolist()])
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == list(range(len(rows)))

"""100,000 shards with 10^10 records in a bucket: what opening and a first batch cost in requests."""

from __future__ import annotations

import pickle
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from object_server import ObjectServer, StoredObject

import rekord as rk
from rekord.dataset import manifest as manifest_module
from rekord.dataset.manifest import IndexChecksums, ManifestShards, read_manifest
from rekord.dataset.samplers import EpochOrder

SHARDS, RECORDS = 100_000, 100_000  # records in each
SHARD = re.compile(r"ds/(\.rekord/index/)?train-\d{5}-of-100000\.tfrecord(\.arrow)?")

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


class SameShards(dict[str, StoredObject]):
    """Objects of which all shards are the first one, and all indexes the first index."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(self._first(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._first(str(key)))

    def __getitem__(self, key: str) -> StoredObject:
        return super().__getitem__(self._first(key))

    def _first(self, key: str) -> str:
        return re.sub(r"train-\d{5}-", "train-00000-", key) if SHARD.fullmatch(key) else key


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    """The manifest of 100,000 equal shards, and the folder of one of them."""
    folder = tmp_path_factory.mktemp("one") / "ds"
    schema = rk.Schema({"label": rk.Label(4), "data": rk.Float32((40,))})
    columns = {"label": np.arange(RECORDS) % 4, "data": np.zeros((RECORDS, 40), np.float32)}
    rk.write(columns, folder, schema=schema, shards=1, progress=False, workers=1)
    one = read_manifest(str(folder))
    split, shards = one.splits["train"], one.splits["train"].shards
    assert shards.index is not None
    index = IndexChecksums(
        checksum=shards.index.checksum,
        chunk_records=shards.index.chunk_records,
        values=shards.index.values * SHARDS,
    )
    many = msgspec.structs.replace(
        split,
        records=RECORDS * SHARDS,
        payload_bytes=split.payload_bytes * SHARDS,
        blocks=None,
        classes={name: {one: n * SHARDS for one, n in counts.items()} for name, counts in split.classes.items()},
        shards=ManifestShards(
            records=shards.records * SHARDS, bytes=shards.bytes * SHARDS, digest=shards.digest * SHARDS, index=index
        ),
    )
    return msgspec.structs.replace(one, splits={"train": many}).to_json(), folder


@pytest.fixture
def server(manifest: tuple[bytes, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    content, folder = manifest
    with ObjectServer() as server, server.environment():
        name = next(iter(server.buckets))
        server.buckets[name] = SameShards()
        server.put("ds/rekord.json", content)
        server.put("ds/train-00000-of-100000.tfrecord", (folder / "train-00000-of-00001.tfrecord").read_bytes())
        index = folder / ".rekord" / "index" / "train-00000-of-00001.tfrecord.arrow"
        server.put("ds/.rekord/index/train-00000-of-100000.tfrecord.arrow", index.read_bytes())
        server.reset()
        yield server


def test_opening_counts_and_weights_take_few_requests(server: ObjectServer) -> None:
    train = rk.open(f"{server.bucket}/ds")["train"]
    assert len(train) == SHARDS * RECORDS
    assert train.class_weights("label") == dict.fromkeys(range(4), 1.0)
    assert len(pickle.dumps(train)) < 10_000
    assert server.n_requests <= 20, server.counts()


def test_a_shuffled_first_batch_takes_at_most_100_requests(server: ObjectServer) -> None:
    train = rk.open(f"{server.bucket}/ds")["train"]
    server.reset()
    batch = next(iter(train.batches(256, shuffle=True, seed=1, columns=["label"], threads=1, prefetch=0)))
    assert len(batch["label"]) == 256
    assert server.n_requests <= 100, server.counts()
    # From several shards, each of which is requested in few pieces.
    assert len({one.key for one in server.log if one.key.endswith(".tfrecord")}) >= 10


def test_an_exact_first_batch_asks_only_for_its_records(server: ObjectServer) -> None:
    train = rk.open(f"{server.bucket}/ds")["train"]
    server.reset()
    batch = next(iter(train.batches(16, shuffle="exact", seed=1, columns=["label"], threads=1, prefetch=0)))
    assert len(batch["label"]) == 16
    assert server.n_requests <= 16 * 4 + 4, server.counts()


def test_counts_and_weights_of_local_shards_come_from_sums(
    manifest: tuple[bytes, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "_manifest_cache", type(manifest_module._manifest_cache)())
    (tmp_path / "rekord.json").write_bytes(manifest[0])
    tracemalloc.start()
    try:
        train = rk.open(tmp_path)["train"]
        weights = train.class_weights("label")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # None of the shards exists.
    assert weights == dict.fromkeys(range(4), 1.0)
    assert len(train) == 10**10
    assert peak_bytes < 100 << 20


@pytest.mark.parametrize("kind", ["exact", "block"])
def test_the_plan_of_a_batch_does_not_depend_on_the_number_of_records(kind: Any) -> None:
    positions = np.arange(256, dtype=np.int64)
    tracemalloc.start()
    try:
        records = EpochOrder(kind, 10**10, 3, block=40_000).records(0, positions)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(np.unique(records)) == 256
    assert records.max() < 10**10
    assert peak_bytes < 1 << 20

"""The manifest and the index say what is in the files, and a hostile manifest says nothing at all."""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3
from sample_conversions import disable_fsync, edit_manifest, execute_conversion

import rekord as rk
from rekord.dataset import index as index_module
from rekord.dataset.manifest import read_manifest, shard_name
from rekord.errors import RekordError
from rekord.framing import deflate
from rekord.schema import Bytes, Int64, Label, Schema, Text
from rekord.testing import frame
from rekord.version import VERSION

SCHEMA = Schema({"a": Int64(), "label": Label(4), "other": Label(3, optional=True), "blob": Bytes()})
ROWS = [
    {
        "a": i,
        "label": (i * i) % 4,
        "other": None if i % 5 == 0 else i % 2,
        "blob": bytes([i % 256]) * (i % 50),
    }
    for i in range(300)
]
OPTIONS: dict[str, Any] = {"schema": SCHEMA, "shuffle": True, "shards": 3, "index": ["a"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fsync(monkeypatch)


def index_of(out: Path, shard: str) -> tuple[pa.Table, dict[str, Any]]:
    table = pa.ipc.open_file(pa.memory_map(str(out / ".rekord" / "index" / f"{shard}.arrow"))).read_all()
    return table, json.loads(table.schema.metadata[b"rekord"])


def test_counts_sizes_and_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    out = tmp_path / "data"
    execute_conversion(ROWS, out, {**OPTIONS, "split": {"train": 0.8, "val": 0.2}})
    manifest = read_manifest(str(out))
    assert (manifest.format, manifest.rekord, manifest.parent) == (2, VERSION, None)
    assert (manifest.source.kind, manifest.source.rows, manifest.source.rejected) == ("rows", 300, 0)
    assert Schema.from_dict(manifest.schema) == SCHEMA
    assert manifest.companions == ["schema.pbtxt"]
    assert sum(split.records for split in manifest.splits.values()) == 300
    listed = set()
    for name, split in manifest.splits.items():
        payloads: list[bytes] = []
        for i, shard in enumerate(split.names(name)):
            listed.add(shard)
            data = (out / shard).read_bytes()
            assert split.shards.bytes[i] == len(data)
            assert split.shards.digest[i] == f"blake3:{blake3(data).hexdigest()}"
            inside = list(rk.records(out / shard))
            assert split.shards.records[i] == len(inside)
            payloads += inside
        assert split.records == len(payloads)
        assert split.payload_bytes == sum(map(len, payloads))
        rows = [rk.decode(payload, SCHEMA) for payload in payloads]
        counts = Counter(int(row["label"]) for row in rows)
        others = Counter(int(row["other"]) for row in rows if row["other"] is not None)
        assert split.classes == {
            "label": {str(one): counts[one] for one in sorted(counts)},
            "other": {str(one): others[one] for one in sorted(others)},
        }
    assert {path.name for path in out.iterdir()} == listed | {"rekord.json", "schema.pbtxt", ".rekord"}


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_the_index_says_where_records_begin_and_what_their_labels_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    monkeypatch.setattr(deflate, "FLUSH_BYTES", 900)
    out = tmp_path / "data"
    execute_conversion(ROWS, out, {**OPTIONS, "compression": compression})
    window = {None: 0, "gzip": 31, "zlib": 15}[compression]
    split = read_manifest(str(out)).splits["train"]
    seen: Counter[str] = Counter()
    for shard in split.names("train"):
        data = (out / shard).read_bytes()
        stream = data if not window else zlib.decompress(data, window)
        payloads = list(rk.records(out / shard))
        table, told = index_of(out, shard)
        assert table.column_names == ["offset", "a", "label", "order:label", "other", "order:other"]
        assert table.schema.field("offset").type == pa.uint32()
        offsets = table["offset"].to_pylist()
        for offset, payload in zip(offsets, payloads, strict=True):
            assert stream[offset : offset + len(payload) + 16] == frame(payload)
        rows = [rk.decode(payload, SCHEMA) for payload in payloads]
        for name in ("a", "label", "other"):
            assert table[name].to_pylist() == [None if row[name] is None else int(row[name]) for row in rows]
        for name, unknown in (("label", 4), ("other", 3)):
            order = table[f"order:{name}"].to_pylist()
            assert sorted(order) == list(range(len(rows)))
            values = [unknown if rows[i][name] is None else int(rows[i][name]) for i in order]
            assert values == sorted(values)
            # Within a class in the order of the file.
            assert order == sorted(range(len(rows)), key=lambda i: (values[order.index(i)], i))
        seen.update(told["classes"]["label"])
        assert bool(told["flush_points"]) == bool(window)
        for offset, compressed_offset in told["flush_points"]:
            # Nothing before a flush point is needed to read on from it, and a record begins there.
            assert offset in offsets or offset == len(stream)
            assert zlib.decompressobj(-15).decompress(data[compressed_offset:]) == stream[offset:]
    assert dict(seen) == split.classes["label"]


def test_the_list_of_blocks_names_a_record_in_every_stretch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BLOCK_BYTES", 1000)
    out = tmp_path / "data"
    execute_conversion(ROWS, out, OPTIONS)
    blocks = pa.ipc.open_file(pa.memory_map(str(out / ".rekord" / "blocks" / "train.arrow"))).read_all()
    assert blocks.column_names == ["shard", "record", "offset"]
    expected = []
    for i, shard in enumerate(read_manifest(str(out)).splits["train"].names("train")):
        offsets = index_of(out, shard)[0]["offset"].to_pylist()
        stretches: dict[int, tuple[int, int]] = {}
        for record, offset in enumerate(offsets):
            stretches.setdefault(offset // 1000, (record, offset))
        expected += [{"shard": i, "record": record, "offset": offset} for record, offset in stretches.values()]
    assert blocks.to_pylist() == expected
    assert len(expected) > 10


def test_a_shard_without_records_is_listed_like_the_others(tmp_path: Path) -> None:
    out = tmp_path / "data"
    execute_conversion(ROWS[:2], out, {**OPTIONS, "shards": 5})
    split = read_manifest(str(out)).splits["train"]
    assert sum(split.shards.records) == 2
    assert len(split.shards.records) == 5
    assert len(rk.open(out).to_arrow()) == 2


def test_the_manifest_says_nothing_of_time_place_or_workers(tmp_path: Path) -> None:
    texts = []
    for workers, place in ((1, "one"), (2, "two/deep")):
        execute_conversion(ROWS, tmp_path / place / "data", {**OPTIONS, "workers": workers})
        texts.append((tmp_path / place / "data" / "rekord.json").read_bytes())
    assert texts[0] == texts[1]
    assert str(tmp_path).encode() not in texts[0]
    assert os.uname().nodename.encode() not in texts[0]


def test_a_hundred_thousand_shards_are_read(tmp_path: Path) -> None:
    execute_conversion([{"a": 1}], tmp_path / "data", {})
    count = 100_000

    def change(document: dict[str, Any]) -> None:
        document["splits"]["train"]["records"] = count
        document["splits"]["train"]["shards"] = {
            "records": [1] * count,
            "bytes": [20] * count,
            "digest": [f"sha256:{'0' * 64}"] * count,
            "index": None,
        }

    edit_manifest(tmp_path / "data", change)
    split = read_manifest(str(tmp_path / "data")).splits["train"]
    names = split.names("train")
    assert len(names) == count
    assert names[-1] == "train-99999-of-100000.tfrecord"


HOSTILE: dict[str, Any] = {
    "no object": [],
    "a later format": {"format": 4},
    "format 3 without names": {"format": 3},
    "names in format 2": {"names": ["x.tfrecord"]},
    "a name that leads out": {"format": 3, "names": ["../x.tfrecord"]},
    "an absolute name": {"format": 3, "names": ["/etc/passwd"]},
    "a hidden folder": {"format": 3, "names": [".git/x.tfrecord"]},
    "a name that is too deep": {"format": 3, "names": ["a/" * 9 + "x.tfrecord"]},
    "an empty name": {"format": 3, "names": [""]},
    "more names than shards": {"format": 3, "names": ["x.tfrecord", "y.tfrecord"]},
    "a name listed twice": {"format": 3, "names": ["x.tfrecord"], "copy": "val"},
    "an earlier format than there was": {"format": 0},
    "a format that is a text": {"format": "1"},
    "a template that leads out": {"template": "../{split}-{shard:05d}"},
    "a template with a folder": {"template": "x/{shard:05d}"},
    "an absolute template": {"template": "/etc/passwd"},
    "the folder itself": {"template": "."},
    "the folder above": {"template": ".."},
    "no template": {"template": ""},
    "a null in a template": {"template": "x\0{shard:05d}"},
    "a line end in a template": {"template": "x\n{shard:05d}"},
    "one name for two shards": {
        "template": "{split}",
        "records": 2,
        "shards": {"records": [1, 1], "bytes": [16, 16], "digest": ["", ""]},
    },
    "columns of several lengths": {"shards": {"records": [1], "bytes": [16, 16], "digest": [""]}},
    "counts that are texts": {"shards": {"records": ["1"], "bytes": [16], "digest": [""]}},
    "counts that are halves": {"shards": {"records": [0.5], "bytes": [16], "digest": [""]}},
    "counts below zero": {"shards": {"records": [-1], "bytes": [16], "digest": [""]}},
    "2^62 records": {"records": 2**62, "shards": {"records": [2**62], "bytes": [16], "digest": [""]}},
    "2^62 records in as many bytes": {
        "template": "x{shard:05d}",
        "records": 2**63,
        "shards": {"records": [2**59] * 16, "bytes": [2**63 - 1] * 16, "digest": [""] * 16},
    },
    "2^70 records": {"records": 2**70, "shards": {"records": [2**70], "bytes": [16], "digest": [""]}},
    "400 digits of records": {
        "records": 10**399,
        "shards": {"records": [10**399], "bytes": [10**400], "digest": [""]},
    },
    "2^70 bytes": {"shards": {"records": [1], "bytes": [2**70], "digest": [""]}},
    "a sum that is none": {"records": 5},
    "a compression that is none": {"compression": "lzma"},
    "classes that are no numbers": {"classes": {"a": {"cat": 1}}},
    "classes in other digits": {"classes": {"a": {"٣": 1}}},
    "classes of 400 digits": {"classes": {"a": {"9" * 400: 1}}},
    "as many records of a class as 2^70": {"classes": {"a": {"0": 2**70}}},
    "no checksums of an index": {"index": {"checksum": "crc32c", "chunk_records": 65536, "values": []}},
    "checksums by another algorithm": {"index": {"checksum": "md5", "chunk_records": 65536, "values": [1, 2]}},
    "chunks of no records": {"index": {"checksum": "crc32c", "chunk_records": 0, "values": [1, 2]}},
    "checksums that are none": {"index": {"checksum": "crc32c", "chunk_records": 65536, "values": [1, -2]}},
    "two splits of the same shards": {"twice": "{shard:05d}"},
    "a split that leads out": {"splits": "../../x"},
    "a companion that leads out": {"companions": ["../x"]},
    "a companion that is the folder above": {"companions": [".."]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_manifest_is_x515(tmp_path: Path, case: str) -> None:
    out = tmp_path / "data"
    execute_conversion([{"a": 1}], out, {})
    path = out / "rekord.json"
    change = HOSTILE[case]

    def harm(document: dict[str, Any]) -> None:
        split = document["splits"]["train"]
        if "names" in change:
            document["format"] = change.get("format", 2)
            split["shards"]["names"] = change["names"]
            document["splits"] |= {change["copy"]: split} if "copy" in change else {}
        elif "splits" in change:
            document["splits"] = {change["splits"]: split}
        elif "twice" in change:
            split["template"] = change["twice"]
            document["splits"]["val"] = split
        elif "index" in change:
            split["shards"].update(change)
        elif set(change) & set(split):
            split.update(change)
        else:
            document.update(change)

    if case == "no object":
        path.write_text("[]")
    else:
        edit_manifest(out, harm)
    for call in (lambda: rk.open(out), lambda: read_manifest(str(out))):
        with pytest.raises(RekordError) as caught:
            call()
        assert (caught.value.code, caught.value.location.path) == ("X515", str(path))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"null", b'{"format": 1}', b"[" * 100_000, b'{"options":' * 9999]
)
def test_bytes_that_are_no_manifest_are_x515(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "rekord.json").write_bytes(data)
    with pytest.raises(RekordError) as caught:
        rk.open(tmp_path)
    assert (caught.value.code, caught.value.location.path) == ("X515", str(tmp_path / "rekord.json"))
    assert len(str(caught.value.found)) <= 60


def test_every_cut_of_a_manifest_is_x515(tmp_path: Path) -> None:
    execute_conversion([{"a": 1}], tmp_path / "data", {})
    path = tmp_path / "data" / "rekord.json"
    data = path.read_bytes()
    for length in range(len(data.rstrip()) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(RekordError) as caught:
            rk.open(tmp_path / "data")
        assert (caught.value.code, caught.value.location.path) == ("X515", str(path))


def test_only_three_words_mean_anything_in_a_template() -> None:
    assert shard_name("{split}-{shard:05d}-of-{shards:05d}", "train", 3, 12) == "train-00003-of-00012"
    for template in ("{split:9999999999}", "{0.__class__}", "{shard!r}", "{shard:099999d}"):
        assert shard_name(template, "train", 3, 12) == template
    # A split whose name looks like a word of the template stays what it is.
    assert shard_name("{split}-{shard:05d}", "{shard:05d}", 3, 12) == "{shard:05d}-00003"


@pytest.mark.parametrize(("change", "likely"), [(-1, True), (1, False)])
def test_a_shard_of_another_size_is_x516(tmp_path: Path, change: int, likely: bool) -> None:
    out = tmp_path / "data"
    execute_conversion(ROWS, out, OPTIONS)
    path = out / "train-00001-of-00003.tfrecord"
    os.truncate(path, path.stat().st_size + change)
    with pytest.raises(RekordError) as caught:
        rk.open(out)
    assert (caught.value.code, caught.value.location.path) == ("X516", str(path))
    assert (caught.value.likely is not None) == likely


def test_a_missing_shard_is_said_unless_it_may_be_missing(tmp_path: Path) -> None:
    out = tmp_path / "data"
    execute_conversion(ROWS, out, OPTIONS)
    path = out / "train-00001-of-00003.tfrecord"
    path.unlink()
    with pytest.raises(RekordError) as caught:
        rk.open(out)
    assert (caught.value.code, caught.value.location.path) == ("X501", str(path))
    left = len(rk.open(out, allow_missing=True).to_arrow())
    assert left == 300 - read_manifest(str(out)).splits["train"].shards.records[1]


def test_a_column_of_texts_can_be_kept_in_the_index(tmp_path: Path) -> None:
    rows = [{"name": f"n{i}", "v": np.arange(i % 3)} for i in range(20)]
    schema = Schema({"name": Text(), "v": Int64(shape=(None,))})
    execute_conversion(rows, tmp_path / "data", {"schema": schema, "index": ["name", "v"], "shards": 1})
    table, _ = index_of(tmp_path / "data", "train-00000-of-00001.tfrecord")
    assert table["name"].to_pylist() == [row["name"] for row in rows]
    assert table["v"].to_pylist() == [list(range(i % 3)) for i in range(20)]


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere.json")


@pytest.mark.parametrize(
    ("replace", "code"),
    [
        (os.mkfifo, "X503"),
        (Path.mkdir, "X503"),
        (_dangling, "X501"),
        (lambda path: path.symlink_to(path), "X503"),
    ],
    ids=["pipe", "folder", "dangling link", "loop"],
)
def test_what_stands_in_the_place_of_a_manifest_is_not_ignored(
    tmp_path: Path, replace: Callable[[Path], Any], code: str
) -> None:
    rk.write([{"n": 1}], tmp_path / "data", progress=False)
    path = tmp_path / "data" / "rekord.json"
    path.unlink()
    replace(path)
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(tmp_path / "data")
    assert (caught.value.code, caught.value.location.path) == (code, str(path))
    assert [(one.code, one.path) for one in rk.check(tmp_path / "data").findings] == [(code, str(path))]

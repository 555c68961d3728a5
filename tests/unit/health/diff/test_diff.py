"""`rk.diff`."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.health import duplicates
from rekord.health.diff import match, run
from rekord.testing import (
    corrupt_payload,
    entry,
    example,
    example_bytes,
    feature,
    features,
    frame_offsets,
    frames,
    int64_list,
    sequence_bytes,
)

ROWS: list[dict[str, Any]] = [{"id": i, "name": f"row {i}", "score": float(np.float32(i / 8))} for i in range(200)]


def written(folder: Path, rows: list[dict[str, Any]], **options: Any) -> str:
    rk.write(rows, folder, progress=False, **options)
    return str(folder)


def payload(row: dict[str, Any]) -> bytes:
    return example_bytes({"id": [row["id"]], "name": [row["name"].encode()], "score": [row["score"]]})


def put(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(frames(payload(row) for row in rows))
    return str(path)


def counts(found: Any) -> tuple[int, int, int, int]:
    records = found.records
    return records.added, records.removed, records.changed, records.moved


def test_a_file_is_the_same_as_itself(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", ROWS)
    found = rk.diff(path, path)
    assert found.same
    assert found.complete
    assert counts(found) == (0, 0, 0, 0)
    assert found.remarks == []
    assert found.counts == {
        side: {"records": 200, "files": 1, "payload_bytes": found.counts["a"]["payload_bytes"]} for side in "ab"
    }


def test_records_are_a_bag_and_not_a_set(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", [ROWS[0]] * 5 + [ROWS[1]] + [ROWS[2]] * 2)
    b = put(tmp_path / "b.tfrecord", [ROWS[0]] * 2 + [ROWS[1]] * 4 + [ROWS[3]])
    found = rk.diff(a, b)
    assert not found.same
    assert counts(found) == (3 + 1, 3 + 2, 0, 0)


def test_what_is_added_and_removed_is_told_with_its_places(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:10])
    b = put(tmp_path / "b.tfrecord", [*ROWS[:3], *ROWS[4:10], ROWS[50]])
    found = rk.diff(a, b)
    removed, added = found.records.examples
    assert (removed.change, removed.a.path, removed.a.record, removed.b) == ("removed", a, 3, None)
    assert removed.a.offset == frame_offsets(Path(a).read_bytes())[3]
    assert (added.change, added.a, added.b.path, added.b.record) == ("added", None, b, 9)


def test_no_more_than_ten_of_each_are_told(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:100])
    b = put(tmp_path / "b.tfrecord", ROWS[100:])
    found = rk.diff(a, b)
    assert counts(found) == (100, 100, 0, 0)
    assert [each.change for each in found.records.examples] == ["removed"] * 10 + ["added"] * 10
    assert [each.a.record for each in found.records.examples[:10]] == list(range(10))


def test_sharding_order_and_compression_are_remarks(tmp_path: Path) -> None:
    a = written(tmp_path / "a", ROWS, shards=1)
    shuffled = random.Random(5).sample(ROWS, len(ROWS))
    b = written(tmp_path / "b", shuffled, shards=3, compression="gzip")
    found = rk.diff(a, b)
    assert found.same
    assert found.remarks == [
        "`train` has 1 file in A and 3 files in B",
        "`train` has compression none in A and gzip in B",
        "records of `train` are in a different order",
    ]


def test_the_same_order_in_other_shards_is_the_same_order(tmp_path: Path) -> None:
    a = written(tmp_path / "a", ROWS, shards=1)
    b = written(tmp_path / "b", ROWS, shards=7)
    assert rk.diff(a, b).remarks == ["`train` has 1 file in A and 7 files in B"]


def test_the_order_of_keys_inside_a_record_makes_no_difference(tmp_path: Path) -> None:
    entries = [
        entry("x", feature(("int64", int64_list([1])))),
        entry("y", feature(("int64", int64_list([2, 3])))),
    ]
    for name, order in (("a", entries), ("b", entries[::-1])):
        (tmp_path / f"{name}.tfrecord").write_bytes(frames([example(features(order))] * 3))
    found = rk.diff(tmp_path / "a.tfrecord", tmp_path / "b.tfrecord")
    assert found.same
    assert found.remarks == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"x": [1]}, {"x": [2]}),
        ({"x": [1]}, {"x": [1, 1]}),
        ({"x": [1]}, {"x": [1.0]}),
        ({"x": [1]}, {"x": [b"1"]}),
        ({"x": [1]}, {"y": [1]}),
        ({"x": [1]}, {"x": [1], "y": [1]}),
        ({"x": [0.0]}, {"x": [-0.0]}),
        ({"x": [b"ab", b"c"]}, {"x": [b"a", b"bc"]}),
        ({"x": [b""]}, {"x": [b"", b""]}),
        ({"x": [1], "y": [2]}, {"x": [2], "y": [1]}),
    ],
)
def test_any_other_content_is_another_record(tmp_path: Path, before: Any, after: Any) -> None:
    for name, content in (("a", before), ("b", after)):
        (tmp_path / name).write_bytes(frames([example_bytes({"z": [7]}), example_bytes(content)]))
    found = rk.diff(tmp_path / "a", tmp_path / "b")
    assert counts(found) == (1, 1, 0, 0)


def test_steps_of_sequences_are_compared(tmp_path: Path) -> None:
    records = [sequence_bytes({"id": [i]}, {"v": [[i], [i, i + 1]]}) for i in range(5)]
    other = [*records[:4], sequence_bytes({"id": [4]}, {"v": [[4, 4], [5]]})]
    (tmp_path / "a").write_bytes(frames(records))
    (tmp_path / "b").write_bytes(frames(other))
    assert counts(rk.diff(tmp_path / "a", tmp_path / "b")) == (1, 1, 0, 0)
    keyed = rk.diff(tmp_path / "a", tmp_path / "b", key="id")
    assert counts(keyed) == (0, 0, 1, 0)
    assert dict(keyed.records.features) == {"v": 1}
    assert keyed.records.examples[0].key == 4
    assert dict(keyed.records.examples[0].features) == {"v": ("2 steps", "2 steps")}


def test_payloads_that_are_no_examples_are_compared_byte_by_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frames([b"one line", b"two lines", b"three"]))
    (tmp_path / "b").write_bytes(frames([b"one line", b"two lines", b"four"]))
    found = rk.diff(tmp_path / "a", tmp_path / "b")
    assert counts(found) == (1, 1, 0, 0)
    assert found.remarks == [
        "files without Examples in A: 1; compared byte by byte",
        "files without Examples in B: 1; compared byte by byte",
    ]
    assert rk.diff(tmp_path / "a", tmp_path / "a").same


def test_with_a_key_changed_records_say_which_features_changed(tmp_path: Path) -> None:
    changed = [dict(row) for row in ROWS]
    changed[7]["score"] = 99.0
    changed[8]["name"] = "another"
    changed[9] |= {"score": 99.0, "name": "both"}
    a = put(tmp_path / "a.tfrecord", ROWS)
    b = put(tmp_path / "b.tfrecord", [*changed[:-1], {**ROWS[0], "id": 900}])
    found = rk.diff(a, b, key="id")
    assert counts(found) == (1, 1, 3, 0)
    assert dict(found.records.features) == {"name": 2, "score": 2}
    first = found.records.examples[0]
    assert (first.change, first.key) == ("changed", 7)
    assert first.a.record == first.b.record == 7
    assert first.a.offset == frame_offsets(Path(a).read_bytes())[7]
    assert first.b.offset == frame_offsets(Path(b).read_bytes())[7]
    assert dict(first.features) == {"score": ("0.875", "99.0")}
    rest = [(each.change, each.key) for each in found.records.examples[3:]]
    assert rest == [("removed", 199), ("added", 900)]
    (added,) = [each for each in found.records.examples if each.change == "added"]
    assert added.b.offset == frame_offsets(Path(b).read_bytes())[199]


def test_a_key_may_be_bytes(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:5])
    b = put(tmp_path / "b.tfrecord", [*ROWS[:4], {**ROWS[4], "id": -1}])
    found = rk.diff(a, b, key="name")
    assert counts(found) == (0, 0, 1, 0)
    assert found.records.examples[0].key == "'row 4'"
    assert dict(found.records.examples[0].features) == {"id": ("4", "-1")}


def test_a_feature_that_comes_or_goes_is_one_that_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frames(example_bytes({"id": [i], "x": [1]}) for i in range(3)))
    (tmp_path / "b").write_bytes(
        frames([example_bytes({"id": [0], "x": [1]}), *(example_bytes({"id": [i], "y": [b"z"]}) for i in (1, 2))])
    )
    found = rk.diff(tmp_path / "a", tmp_path / "b", key="id")
    assert counts(found) == (0, 0, 2, 0)
    assert dict(found.records.features) == {"x": 2, "y": 2}
    assert dict(found.records.examples[0].features) == {"x": ("1", None), "y": (None, "'z'")}


def test_records_of_a_key_that_is_there_twice_are_matched_by_content(tmp_path: Path) -> None:
    twice = {**ROWS[1], "name": "again"}
    a = put(tmp_path / "a.tfrecord", [*ROWS[:4], twice])
    b = put(tmp_path / "b.tfrecord", [ROWS[0], ROWS[1], {**ROWS[1], "name": "third"}, *ROWS[2:4]])
    found = rk.diff(a, b, key="id")
    assert counts(found) == (1, 1, 0, 0)
    assert found.records.repeated_keys == (1, 1)
    assert found.remarks == [
        "duplicate keys in A: 1; their records are matched by content",
        "duplicate keys in B: 1; their records are matched by content",
    ]
    assert rk.diff(a, a, key="id").same


def test_records_without_the_key_are_matched_by_content(tmp_path: Path) -> None:
    keyed = [example_bytes({"id": [i], "x": [i]}) for i in range(3)]
    (tmp_path / "a").write_bytes(frames([*keyed, example_bytes({"x": [7]})]))
    (tmp_path / "b").write_bytes(frames([*keyed, example_bytes({"x": [8]})]))
    found = rk.diff(tmp_path / "a", tmp_path / "b", key="id")
    assert counts(found) == (1, 1, 0, 0)
    assert found.records.without_key == (1, 1)
    assert "records without the key in A: 1; matched by content" in found.remarks


def test_a_key_that_no_record_has_names_its_near_miss(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", ROWS[:3])
    with pytest.raises(rk.UsageError) as caught:
        rk.diff(path, path, key="ids")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U606",
        "no record of A has the key 'ids'",
        path,
    )
    assert caught.value.expected == "one of `id`, `name`, `score`"
    assert caught.value.likely == "`id` was meant"
    assert caught.value.do == 'key="id"'


@pytest.mark.parametrize(
    ("contents", "record", "found"),
    [
        ([{"k": [1]}, {"k": [1, 2]}], 1, "2 values"),
        ([{"k": [0.5]}], 0, "floats"),
        ([{"k": [1]}, {"k": [b"one"]}], 0, "int64 here, and bytes in another record"),
    ],
)
def test_a_key_that_cannot_tell_records_apart_is_refused(
    tmp_path: Path, contents: Any, record: int, found: str
) -> None:
    data = frames(example_bytes(content) for content in contents)
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(rk.UsageError) as caught:
        rk.diff(tmp_path / "a", tmp_path / "a", key="k")
    where = caught.value.location
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U646",
        "`k` does not identify records",
        found,
    )
    assert (where.path, where.record, where.feature) == (str(tmp_path / "a"), record, "k")
    assert where.offset == frame_offsets(data)[record]


def test_more_records_than_the_sort_can_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_KEYED_RECORDS", 100)
    path = put(tmp_path / "a.tfrecord", ROWS)
    with pytest.raises(rk.UsageError) as caught:
        rk.diff(path, path, key="id")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U646",
        "too many records to match by key",
        path,
    )


@pytest.mark.parametrize("key", [7, "", b"id"])
def test_a_key_that_is_no_name_is_refused(tmp_path: Path, key: Any) -> None:
    path = put(tmp_path / "a.tfrecord", ROWS[:3])
    with pytest.raises(rk.UsageError) as caught:
        rk.diff(path, path, key=key)
    assert caught.value.code == "U605"


def test_the_key_that_both_manifests_name_is_used(tmp_path: Path) -> None:
    a = written(tmp_path / "a", ROWS, key="id")
    b = written(tmp_path / "b", [{**ROWS[0], "name": "new"}, *ROWS[1:]], key="id")
    found = rk.diff(a, b)
    assert (found.key, counts(found)) == ("id", (0, 0, 1, 0))
    assert found.remarks == ["records are matched by `id`, the key in both manifests"]
    c = written(tmp_path / "c", [{**ROWS[0], "name": "new"}, *ROWS[1:]])
    assert rk.diff(a, c).key is None
    assert counts(rk.diff(a, c)) == (1, 1, 0, 0)


def test_a_column_may_have_another_key_in_the_record(tmp_path: Path) -> None:
    columns = {"n": rk.Int64(), "x": rk.Float32()}
    rows = [{"n": i, "x": 0.5} for i in range(5)]
    a = written(tmp_path / "a", rows, schema=rk.Schema({**columns, "n": rk.Int64(key="meta/n")}))
    b = written(
        tmp_path / "b",
        [*rows[:4], {"n": 4, "x": 0.25}],
        schema=rk.Schema({**columns, "n": rk.Int64(key="meta/n")}),
    )
    found = rk.diff(a, b, key="n")
    assert counts(found) == (0, 0, 1, 0)
    assert found.records.examples[0].key == 4
    assert counts(rk.diff(a, b, key="meta/n")) == (0, 0, 1, 0)


def test_a_record_in_another_split_is_a_difference(tmp_path: Path) -> None:
    for side, cut in (("a", 10), ("b", 12)):
        put(tmp_path / side / "train.tfrecord", ROWS[:cut])
        put(tmp_path / side / "val.tfrecord", ROWS[cut:20])
    found = rk.diff(tmp_path / "a", tmp_path / "b")
    assert not found.same
    assert counts(found) == (0, 0, 0, 2)
    assert {name: (a.records, b.records) for name, (a, b) in found.splits.items()} == {
        "train": (10, 12),
        "val": (10, 8),
    }


def test_a_split_of_one_side_only_is_a_difference(tmp_path: Path) -> None:
    put(tmp_path / "a" / "train.tfrecord", ROWS[:10])
    put(tmp_path / "a" / "val.tfrecord", ROWS[10:20])
    put(tmp_path / "b" / "train.tfrecord", ROWS[:10])
    put(tmp_path / "b" / "test.tfrecord", ROWS[10:20])
    found = rk.diff(tmp_path / "a", tmp_path / "b")
    assert found.unmatched_splits == ["val", "test"]
    assert counts(found) == (0, 0, 0, 10)
    assert found.splits["val"][1] is None
    assert found.to_dict()["splits"]["test"] == {
        "a": None,
        "b": {"records": 10, "files": 1, "compression": "none"},
    }


def test_the_only_splits_belong_together_whatever_their_names(tmp_path: Path) -> None:
    a = put(tmp_path / "train.tfrecord", ROWS)
    b = put(tmp_path / "copy.tfrecord", ROWS)
    found = rk.diff(a, b)
    assert found.same
    assert found.remarks == ["the only split is named `train` in A and `all` in B"]


def test_schemas_are_compared_as_the_manifests_declare_them(tmp_path: Path) -> None:
    a = written(
        tmp_path / "a",
        [{"x": 1, "y": 2, "t": "a"}],
        schema=rk.Schema({"x": rk.Int64(), "y": rk.Int64(), "t": rk.Text()}),
    )
    b = written(
        tmp_path / "b",
        [{"x": 1, "y": [2.0], "n": 1.0}],
        schema=rk.Schema({"x": rk.Int64(optional=True), "y": rk.Float32(shape=(1,)), "n": rk.Float32()}),
    )
    schema = rk.diff(a, b).schema
    assert schema.source == "manifests"
    assert schema.added == {"n": {"type": "Float32"}}
    assert schema.removed == {"t": {"type": "Text"}}
    assert {name: change.says for name, change in schema.changed.items()} == {
        "x": ["required → optional"],
        "y": ["Int64 → Float32", "shape none → [1]"],
    }


def test_a_schema_alone_can_be_the_difference(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [{"x": 1}], schema=rk.Schema({"x": rk.Int64()}))
    b = written(tmp_path / "b", [{"x": 1}], schema=rk.Schema({"x": rk.Int64(range=(0, 5))}))
    found = rk.diff(a, b)
    assert not found.same
    assert found.records.same
    assert found.schema.changed["x"].says == ["range none → [0, 5]"]


def test_without_manifests_schemas_are_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frames([example_bytes({"x": [1], "y": [1, 2], "gone": [b"x"]})] * 2))
    (tmp_path / "b").write_bytes(
        frames([example_bytes({"x": [1.5], "y": [1], "new": [1]}), example_bytes({"y": [1, 2, 3], "new": [1]})])
    )
    schema = rk.diff(tmp_path / "a", tmp_path / "b").schema
    assert schema.source == "records"
    assert schema.added == {"new": {"type": "int64", "values": "one value"}}
    assert schema.removed == {"gone": {"type": "bytes", "values": "one value"}}
    assert {name: change.says for name, change in schema.changed.items()} == {
        "x": ["int64 → float", "required → optional"],
        "y": ["2 values → a varying number of values"],
    }


def test_features_that_moved_are_told_and_others_are_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"id": i, "name": "ab"[int(rng.random() < 0.5)], "score": float(rng.standard_normal())} for i in range(2000)
    ]
    moved = [{**row, "score": row["score"] + 2, "name": "a"} for row in rows]
    a, b = put(tmp_path / "a.tfrecord", rows), put(tmp_path / "b.tfrecord", moved)
    found = rk.diff(a, b)
    assert sorted(found.features) == ["name", "score"]
    assert found.features["score"].distances["js"] > 0.3
    assert found.features["score"].b["mean"] - found.features["score"].a["mean"] == pytest.approx(2, abs=1e-3)
    assert found.features["name"].distances["linf"] == pytest.approx(0.5, abs=0.05)


def test_a_number_far_out_is_told(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS)
    b = put(tmp_path / "b.tfrecord", [{**ROWS[0], "score": float("nan")}, {**ROWS[1], "score": -1e9}, *ROWS[2:]])
    says = rk.diff(a, b, key="id").features["score"].says
    assert "min 0 vs -1e+09" in says
    assert "0 values NaN vs 1" in says


def test_damage_is_reported_and_what_can_be_read_is_compared(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:20])
    data = corrupt_payload(Path(a).read_bytes(), 7)
    (tmp_path / "b.tfrecord").write_bytes(data)
    found = rk.diff(a, tmp_path / "b.tfrecord")
    assert not found.same
    assert not found.complete
    assert counts(found) == (0, 1, 0, 0)
    (finding,) = found.findings
    assert (finding.code, finding.path, finding.record) == ("F102", str(tmp_path / "b.tfrecord"), 7)
    assert finding.offset == frame_offsets(data)[7]


def test_records_behind_a_damaged_one_are_not_called_moved(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", ROWS)
    damaged = tmp_path / "b.tfrecord"
    damaged.write_bytes(corrupt_payload(Path(path).read_bytes(), 7))
    rk.salvage(damaged, tmp_path / "c.tfrecord")
    found = rk.diff(damaged, tmp_path / "c.tfrecord")
    assert counts(found) == (0, 0, 0, 0)
    assert found.remarks == []


def test_equal_damage_is_not_called_the_same(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:20])
    Path(a).write_bytes(corrupt_payload(Path(a).read_bytes(), 7))
    found = rk.diff(a, a)
    assert found.records.same
    assert not found.same


def test_a_missing_shard_is_a_finding(tmp_path: Path) -> None:
    a, b = (written(tmp_path / side, ROWS, shards=4) for side in "ab")
    (tmp_path / "b" / "train-00002-of-00004.tfrecord").unlink()
    found = rk.diff(a, b)
    assert counts(found) == (0, 50, 0, 0)
    assert [(each.code, each.path) for each in found.findings] == [
        ("X501", str(tmp_path / "b" / "train-00002-of-00004.tfrecord"))
    ]
    (tmp_path / "b" / "rekord.json").unlink()
    unlisted = rk.diff(a, b)
    assert counts(unlisted) == (0, 50, 0, 0)
    assert [each.code for each in unlisted.findings] == ["X505"]


def test_a_shard_of_another_length_is_a_finding_and_is_read(tmp_path: Path) -> None:
    a, b = (written(tmp_path / side, ROWS, shards=1) for side in "ab")
    shard = tmp_path / "b" / "train-00000-of-00001.tfrecord"
    data = shard.read_bytes()
    shard.write_bytes(data[: frame_offsets(data)[150]])
    found = rk.diff(a, b)
    assert counts(found) == (0, 50, 0, 0)
    assert [each.code for each in found.findings] == ["X516"]


def test_a_manifest_that_cannot_be_used_is_a_finding_and_the_shards_go_by_their_names(tmp_path: Path) -> None:
    a, b = (written(tmp_path / side, ROWS) for side in "ab")
    (tmp_path / "b" / "rekord.json").write_text("{")
    found = rk.diff(a, b)
    assert counts(found) == (0, 0, 0, 0)
    assert not found.complete
    assert [(each.code, each.path) for each in found.findings] == [("X515", str(tmp_path / "b" / "rekord.json"))]


def test_a_tfds_folder_has_the_splits_that_it_names(tmp_path: Path) -> None:
    a = written(tmp_path / "a", ROWS, split={"train": 0.5, "test": 0.5}, shards=1)
    b = tmp_path / "b"
    b.mkdir()
    splits = []
    for name, split in rk.open(a).splits.items():
        shutil.copy(tmp_path / "a" / f"{name}-00000-of-00001.tfrecord", b / f"pets-{name}.tfrecord-00000-of-00001")
        splits.append({"name": name, "shardLengths": [str(len(split))]})
    (b / "dataset_info.json").write_text(json.dumps({"name": "pets", "splits": splits}))
    found = rk.diff(a, b)
    assert (found.same, sorted(found.splits), found.findings) == (True, ["test", "train"], [])


def test_equal_manifests_are_taken_at_their_word_unless_told_to_read(tmp_path: Path) -> None:
    a = written(tmp_path / "a", ROWS)
    b = str(tmp_path / "b")
    shutil.copytree(a, b)
    found = rk.diff(a, b)
    assert found.same
    assert found.by_manifests
    assert found.remarks == [
        "nothing was read: the manifests list the same checksums, and the file sizes match; "
        "read=True compares the records"
    ]
    assert found.counts["b"]["records"] == 200
    shard = tmp_path / "b" / "train-00000-of-00001.tfrecord"
    shard.write_bytes(corrupt_payload(shard.read_bytes(), 3))
    assert rk.diff(a, b).same
    assert not rk.diff(a, b, read=True).same
    assert [each.code for each in rk.diff(a, b, read=True).findings] == ["F102"]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_full_disk_for_what_does_not_fit_into_memory_names_the_variable_that_chooses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(duplicates.ExternalSort.__init__, "__defaults__", (1,))

    class Full:
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None: ...

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full())
    with pytest.raises(rk.DatasetError) as caught:
        rk.diff(a, a, key=key)
    assert (caught.value.code, caught.value.location.path) == ("X546", str(tmp_path))
    assert caught.value.found == os.strerror(errno.ENOSPC)
    assert "TMPDIR" in (caught.value.do or "")
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_compressed_files_give_examples_too(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS)
    changed = [*ROWS[:150], {**ROWS[150], "score": 0.0}, *ROWS[151:]]
    b = tmp_path / "b.tfrecord.gz"
    b.write_bytes(gzip.compress(frames(payload(row) for row in changed)))
    found = rk.diff(a, b, key="id")
    (one,) = found.records.examples
    assert (one.key, one.b.record) == (150, 150)
    assert dict(one.features) == {"score": ("18.75", "0.0")}


@pytest.mark.parametrize("key", [None, "id"])
def test_nothing_depends_on_how_much_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS * 3)
    b = put(tmp_path / "b.tfrecord", [*ROWS[5:], *ROWS[:100], *({**row, "score": 0.0} for row in ROWS[150:])])
    whole = rk.diff(a, b, key=key).to_dict()
    usual = duplicates.ExternalSort
    monkeypatch.setattr(run, "ExternalSort", lambda: usual(4096))
    monkeypatch.setattr(match, "_PAIR_CHUNK", 7)
    assert rk.diff(a, b, key=key).to_dict() == whole


def test_keys_in_such_numbers_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "MAX_FEATURES", 4)
    rows = [{"id": [i], **{f"k{j}": [j] for j in range(10)}} for i in range(4)]
    (tmp_path / "a").write_bytes(frames(example_bytes(row) for row in rows))
    (tmp_path / "b").write_bytes(frames(example_bytes({**row, "k9": [0]}) for row in rows))
    found = rk.diff(tmp_path / "a", tmp_path / "b", key="id")
    assert counts(found) == (0, 0, 4, 0)
    assert dict(found.records.features) == {match.OTHER_KEYS: 4}


def test_an_empty_file_differs_by_its_records_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    b = put(tmp_path / "b", ROWS[:3])
    found = rk.diff(tmp_path / "a", b)
    assert counts(found) == (3, 0, 0, 0)
    assert found.schema.same
    assert rk.diff(tmp_path / "a", tmp_path / "a").same


def test_the_json_has_the_promised_members(tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.tfrecord", ROWS), put(tmp_path / "b.tfrecord", ROWS[1:])
    document = json.loads(json.dumps(rk.diff(a, b, key="id").to_dict(), allow_nan=False))
    assert list(document) == [
        "same", "complete", "by_manifests", "a", "b", "key", "schema", "counts", "splits", "features", "records",
        "remarks", "findings", "not_listed",
    ]  # fmt: skip
    assert document["records"]["removed"] == 1
    assert document["records"]["examples"][0] == {
        "change": "removed",
        "key": 0,
        "a": {"path": a, "record": 0, "offset": 0},
        "b": None,
        "features": {},
    }


def test_several_files_can_be_one_side(tmp_path: Path) -> None:
    whole = put(tmp_path / "a.tfrecord", ROWS)
    halves = [put(tmp_path / "b.tfrecord", ROWS[:90]), put(tmp_path / "c.tfrecord", ROWS[90:])]
    found = rk.diff(whole, halves)
    assert found.same
    assert found.b == ", ".join(halves)


@pytest.mark.parametrize("path", [b"a", []])
def test_what_is_no_path_is_refused(tmp_path: Path, path: Any) -> None:
    with pytest.raises(rk.RekordError) as caught:
        rk.diff(put(tmp_path / "a.tfrecord", ROWS[:1]), path)
    assert caught.value.do


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    a = put(tmp_path / "a.tfrecord", ROWS[:1])
    with pytest.raises(rk.DatasetError) as caught:
        rk.diff(a, tmp_path / "none")
    assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "none"))


def test_prints_of_rows_in_any_order_are_read_across_blocks_of_different_widths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(match, "_READ_BYTES", 64)
    found = match.FeatureFingerprints(match.FeatureNumbering())
    chance = np.random.default_rng(2)
    blocks = [chance.integers(0, 1 << 32, (rows, width), np.uint32) for rows, width in ((40, 2), (30, 4), (50, 5))]
    for block in blocks:
        found._keep(block)
    for number in range(3):
        found._features.number(f"key {number}", step=False)
    whole = np.zeros((120, 5), np.uint32)
    for first, block in zip((0, 40, 70), blocks, strict=True):
        whole[first : first + len(block), : block.shape[1]] = block
    rows = chance.permutation(np.repeat(np.arange(120), 2))[:150].astype(np.int64)
    offsets, prints = found.read(rows)
    assert np.array_equal(prints, whole[rows, 2:])
    assert np.array_equal(offsets.view(np.uint32).reshape(-1, 2), whole[rows, :2])
    found.close()

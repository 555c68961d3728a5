"""`rk.adopt`: shards of other tools become a dataset, and not a byte of them changes."""

from __future__ import annotations

import errno
import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset import shard_index
from rekord.dataset.infer import infer_files
from rekord.dataset.manifest import read_manifest
from rekord.dataset.shard_index import open_shard_index
from rekord.storage.local import LOCAL, write_error
from rekord.testing import example_bytes, frames, sequence_bytes
from rekord.verbs.adopt import AdoptOptions, adopt_shards
from rekord.verbs.index import index

NAMES = ["cat", "dog", "cow"]


def payloads(first: int, count: int, *, base: int = 0) -> list[bytes]:
    return [
        example_bytes({"id": [i], "label": [base + i % 3], "text": [b"t" * (i % 5)], "x": [i / 2, 1.0]})
        for i in range(first, first + count)
    ]


def put(path: Path, records: Sequence[bytes], pack: Any = bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(frames(records)))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shard in range(2):
        put(tmp_path / "data" / f"train-{shard:05}-of-00002.tfrecord", payloads(20 * shard, 20))
    put(tmp_path / "data" / "val-00000-of-00001.tfrecord", payloads(40, 5))
    return tmp_path / "data"


def shards_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_tree(folder).items() if ".rekord" not in name and name != "rekord.json"}


LAYOUTS: dict[str, tuple[dict[str, int], dict[str, int], int]] = {
    # files with their records: the records of each split, and the format of the manifest
    "numbered": (
        {"train-00000-of-00002": 4, "train-00001-of-00002": 3, "val-00000-of-00001": 2},
        {"train": 7, "val": 2},
        2,
    ),
    "other digits": ({"train-000-of-002.tfrecord": 4, "train-001-of-002.tfrecord": 3}, {"train": 7}, 3),
    "any names": ({"b.tfrecord": 4, "a.tfrecord": 3}, {"all": 7}, 3),
    "folders": ({"train/a.tfrecord": 4, "train/b.tfrecord": 3, "test/a.tfrecord": 2}, {"test": 2, "train": 7}, 3),
    "TFX": ({"Split-train/x-00000-of-00001": 4, "Split-eval/x-00000-of-00001": 2}, {"eval": 2, "train": 4}, 3),
    "deeper folders": ({"v1/raw/train/a.tfrecord": 4}, {"train": 4}, 3),
    "an empty shard": ({"train-00000-of-00002": 4, "train-00001-of-00002": 0}, {"train": 4}, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_found_by_name_and_no_shard_changes(tmp_path: Path, layout: str) -> None:
    files, splits, version = LAYOUTS[layout]
    folder, at = tmp_path / "data", 0
    for name, count in sorted(files.items()):
        put(folder / name, payloads(at, count))
        at += count
    expected = {name: [row["id"] for row in split] for name, split in rk.open(folder).items()}
    before = read_tree(folder)
    dataset = rk.adopt(folder, progress=False)
    assert shards_of(folder) == before
    assert {name: len(split) for name, split in dataset.items()} == splits
    assert read_manifest(str(folder)).format == version
    # Random access, in the order that the files have without a manifest.
    for name, ids in expected.items():
        assert [dataset[name][i]["id"] for i in range(len(ids))] == ids
        for path in dataset[name].paths:
            assert open_shard_index(path).origin == "written"
    assert rk.check(folder).ok
    assert {finding.code for finding in rk.check(folder).findings} <= {"H702", "H781"}


def test_everything_works_at_once_with_classes(folder: Path) -> None:
    train = rk.adopt(folder, label="label", label_map=NAMES, progress=False)["train"]
    assert train.schema["label"] == rk.Label(NAMES)
    assert Counter(train.to_arrow(columns=["label"])["label"].to_pylist()) == {0: 14, 1: 13, 2: 13}
    assert sorted(np.concatenate([batch["id"] for batch in train.batches(7, shuffle=True)])) == list(range(40))
    assert rk.query(folder, "select count(*) from records where label = 2").to_pydict() == {"count_star()": [15]}
    even = np.concatenate([batch["label"] for batch in train.balanced("label").batches(40)])
    assert sorted(Counter(even.tolist()).values()) == [13, 13, 14]
    manifest = read_manifest(str(folder))
    assert manifest.splits["train"].classes == {"label": {"0": 14, "1": 13, "2": 13}}
    assert manifest.options == {"verb": "adopt", "index": ["label"]}
    assert rk.check(folder).ok
    assert open_shard_index(train.paths[0]).has_columns(["label"])


def test_the_result_does_not_depend_on_workers_or_times(folder: Path) -> None:
    rk.adopt(folder, workers=1, progress=False)
    first = read_tree(folder)
    for path in folder.glob("*.tfrecord"):
        os.utime(path, (1, 1))
    rk.adopt(folder, workers=4, rebuild=True, progress=False)
    assert read_tree(folder) == first


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_small_compressed_shards_are_random_access_too(tmp_path: Path, pack: Any) -> None:
    put(tmp_path / "train-00000-of-00001.gz", payloads(0, 30), pack)
    train = rk.adopt(tmp_path, progress=False)["train"]
    assert [train[i]["id"] for i in (29, 0, 7)] == [29, 0, 7]
    assert rk.check(tmp_path).ok


def test_a_large_gzip_shard_of_another_tool_is_read_in_file_order_with_a_note(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(3000)
    records = [example_bytes({"id": [i], "noise": [noise]}) for i in range(1000)]
    put(tmp_path / "x.tfrecord.gz", records, lambda data: gzip.compress(data, 1))
    result = adopt_shards(tmp_path, AdoptOptions())
    (note,) = result.notes
    assert note == (
        "1 gzip shard can only be read in file order: for random access, "
        f"rekord rewrite {tmp_path} OUT --compression none"
    )
    dataset = rk.open(tmp_path)
    assert [row["id"] for row in dataset["all"]] == list(range(1000))
    with pytest.raises(rk.UsageError) as caught:
        dataset["all"][3]
    assert caught.value.code == "U651"
    assert rk.check(tmp_path).ok
    # The index can be rebuilt as it was.
    (place,) = (tmp_path / ".rekord" / "index").iterdir()
    content = place.read_bytes()
    place.unlink()
    shard_index._index_cache.clear()
    index(tmp_path)
    assert place.read_bytes() == content


def test_flush_points_of_our_own_gzip_shards_are_found_again(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(3000)
    rk.write([{"id": i, "noise": noise} for i in range(1000)], tmp_path / "data", compression="gzip", progress=False)
    (tmp_path / "data" / "rekord.json").unlink()
    train = rk.adopt(tmp_path / "data", progress=False)["train"]
    assert train[999]["id"] == 999
    assert rk.check(tmp_path / "data").ok


def test_an_inferred_schema_fits_all_records_not_only_the_first(tmp_path: Path, monkeypatch: Any) -> None:
    # The first file decides nothing: the last record has two values, and lacks a key.
    put(tmp_path / "a.tfrecord", [example_bytes({"x": [1], "y": [b"a"]})] * 50)
    put(tmp_path / "b.tfrecord", [example_bytes({"x": [1, 2]})])
    monkeypatch.setitem(infer_files.__kwdefaults__, "limit_records", 10)
    dataset = rk.adopt(tmp_path, progress=False)
    assert dataset.schema == rk.Schema({"x": rk.Int64(shape=(None,)), "y": rk.Bytes(optional=True)})
    assert rk.check(tmp_path).ok


def test_a_key_of_two_kinds_is_refused_with_its_record(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", [example_bytes({"x": [1]})] * 3 + [example_bytes({"x": [1.5]})])
    with pytest.raises(rk.DecodeError) as caught:
        rk.adopt(tmp_path, progress=False)
    where = caught.value.location
    assert (where.path, where.record, where.feature) == (str(tmp_path / "a.tfrecord"), 3, "x")
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_a_declared_schema_is_taken_and_records_must_match_it(folder: Path, tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(NAMES), "text": rk.Bytes()})
    schema.save(tmp_path / "schema.json")
    for given in (schema, tmp_path / "schema.json"):
        assert rk.adopt(folder, schema=given, rebuild=True, progress=False).schema == schema
    with pytest.raises(rk.DecodeError) as caught:
        rk.adopt(folder, schema=rk.Schema({"text": rk.Int64()}), rebuild=True, progress=False)
    assert (caught.value.location.record, caught.value.location.feature) == (0, "text")
    assert rk.open(folder).schema == schema


def test_sequences_and_opaque_payloads_are_adopted_too(tmp_path: Path) -> None:
    put(tmp_path / "seq" / "a.tfrecord", [sequence_bytes({"id": [i]}, {"x": [[1.0], [2.0]]}) for i in range(5)])
    assert rk.adopt(tmp_path / "seq", progress=False)["all"][4]["id"] == 4
    put(tmp_path / "raw" / "a.tfrecord", [b"\x00\x01 not a message"] * 3)
    assert rk.adopt(tmp_path / "raw", kind="bytes", progress=False)["all"][2] == {
        "payload": b"\x00\x01 not a message"
    }
    assert rk.check(tmp_path / "seq").ok
    assert rk.check(tmp_path / "raw").ok


# Labels


PBTXT = "".join(f"item {{ id: {i} name: '{name}' }}\n" for i, name in enumerate(NAMES, 1))


def test_class_names_come_from_a_file_a_list_or_a_mapping(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\ncow\n")
    for given in (tmp_path / "names.txt", NAMES, dict(enumerate(NAMES))):
        assert rk.adopt(folder, label_map=given, rebuild=True, progress=False).schema["label"] == rk.Label(NAMES)


def test_the_number_of_classes_follows_from_all_records(folder: Path) -> None:
    dataset = rk.adopt(folder, label="label", progress=False)
    assert dataset.schema["label"] == rk.Label(3)
    assert rk.check(folder).ok


def test_a_label_map_keeps_its_ids(tmp_path: Path) -> None:
    put(tmp_path / "data" / "a.tfrecord", payloads(0, 9, base=1))
    (tmp_path / "map.pbtxt").write_text(PBTXT)
    dataset = rk.adopt(tmp_path / "data", label_map=tmp_path / "map.pbtxt", progress=False)
    assert dataset.schema["label"] == rk.Label(["background", *NAMES])
    assert dataset["all"][0]["label"] == 1


def test_a_label_map_that_counts_otherwise_than_the_records_is_refused(folder: Path, tmp_path: Path) -> None:
    """Every class would have the name of another one."""
    (tmp_path / "map.pbtxt").write_text(PBTXT)
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(folder, label_map=tmp_path / "map.pbtxt", progress=False)
    assert (caught.value.code, caught.value.location.feature) == ("X588", "label")
    assert (caught.value.expected, caught.value.found) == ("class ids from 1 to 3", "class ids from 0 to 2")
    assert sorted(os.listdir(folder)) == sorted(shards_of(folder))


def test_a_class_id_without_a_name_is_reported_with_its_record(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", payloads(0, 9, base=1))
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(tmp_path, label_map=NAMES, progress=False)
    failure = caught.value
    assert (failure.code, failure.location.record, failure.location.feature) == ("X588", 2, "label")
    assert (failure.found, failure.likely) == ("3", "the class ids of these records start at 1")
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_lists_of_labels_are_checked_too(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", [example_bytes({"label": list(range(i))}) for i in range(1, 4)])
    assert rk.adopt(tmp_path, label_map=NAMES, progress=False).schema["label"] == rk.Label(NAMES, shape=(None,))
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(tmp_path, label_map=NAMES[:2], rebuild=True, progress=False)
    assert (caught.value.code, caught.value.location.record) == ("X588", 2)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"label": "lable"}, "U605"),
        ({"label": "text"}, "U605"),  # not integers
        ({"label_map": []}, "U605"),
        ({"label_map": ["a", "a"]}, "U605"),
        ({"label_map": {-1: "a"}}, "U605"),
        ({"index": ["nothing"]}, "U605"),
        ({"kind": "exmaple"}, "U605"),
        ({"workers": 0}, "U605"),
        ({"label": "label", "schema": rk.Schema({})}, "U605"),
        ({"label_map": "missing.txt"}, "X501"),
        ({"schema": "missing.json"}, "X501"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    folder: Path, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(rk.RekordError) as caught:
        rk.adopt(folder, progress=False, **options)
    assert caught.value.code == code
    assert sorted(os.listdir(folder)) == sorted(shards_of(folder))


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"", "an empty file"), (b"cat\n\ndog\n", "an empty line 2"), (b"cat\ncat\n", "'cat' twice")],
)
def test_a_bad_file_of_names_is_x533(folder: Path, tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(folder, label_map=tmp_path / "names.txt", progress=False)
    assert (caught.value.code, caught.value.found) == ("X533", found)


def test_a_label_map_for_one_of_several_columns_needs_its_name(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", [example_bytes({"a": [0], "b": [1]})])
    with pytest.raises(rk.UsageError) as caught:
        rk.adopt(tmp_path, label_map=NAMES, progress=False)
    assert (caught.value.code, caught.value.do) == ("U605", "label='a'")
    assert rk.adopt(tmp_path, label="b", label_map=NAMES, progress=False).schema["b"] == rk.Label(NAMES)


def test_a_note_says_how_integers_become_labels(folder: Path) -> None:
    (note,) = adopt_shards(folder, AdoptOptions()).notes
    assert note.endswith(f"rekord adopt {folder} --rebuild --label label --label-map FILE")


# Refused


@pytest.mark.parametrize("byte", [2, 30, 55])
def test_a_corrupt_shard_is_refused_with_its_place_and_the_command_to_salvage(folder: Path, byte: int) -> None:
    path = folder / "train-00001-of-00002.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + byte] ^= 4
    path.write_bytes(data)
    before = read_tree(folder)
    with pytest.raises(rk.FormatError) as caught:
        rk.adopt(folder, progress=False)
    assert caught.value.location.path == str(path)
    assert caught.value.location.record is not None
    assert caught.value.do == f"rekord salvage {folder} {folder}-repaired"
    assert read_tree(folder) == before


def test_the_first_of_several_corrupt_shards_is_reported_with_any_workers(folder: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "val-00000-of-00001"):
        path = folder / f"{name}.tfrecord"
        path.write_bytes(path.read_bytes()[:-3])
    for workers in (1, 3):
        with pytest.raises(rk.FormatError) as caught:
            rk.adopt(folder, workers=workers, progress=False)
        assert caught.value.location.path == str(folder / "train-00000-of-00002.tfrecord")


def test_an_incomplete_set_is_refused_unless_it_is_allowed(folder: Path) -> None:
    (folder / "train-00000-of-00002.tfrecord").unlink()
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(folder, progress=False)
    assert caught.value.code == "X505"
    dataset = rk.adopt(folder, allow_missing=True, progress=False)
    assert [row["id"] for row in dataset["train"]] == list(range(20, 40))


def test_an_existing_manifest_is_kept_unless_fresh(folder: Path) -> None:
    rk.adopt(folder, progress=False)
    before = read_tree(folder)
    with pytest.raises(rk.UsageError) as caught:
        rk.adopt(folder, label="label", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("U618", str(folder / "rekord.json"))
    assert read_tree(folder) == before
    assert rk.adopt(folder, label="label", rebuild=True, progress=False).schema["label"] == rk.Label(3)
    assert rk.check(folder).ok


def test_compression_that_differs_within_a_split_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", payloads(0, 3))
    put(tmp_path / "b.tfrecord", payloads(3, 3), gzip.compress)
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(tmp_path, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X589", str(tmp_path / "b.tfrecord"))
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "b.tfrecord"]
    (tmp_path / "0.tfrecord").touch()  # an empty shard has no compression
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(tmp_path, progress=False)
    assert caught.value.location.path == str(tmp_path / "b.tfrecord")
    assert (caught.value.expected, caught.value.found) == ("none, as in a.tfrecord", "gzip")


def test_a_dataset_below_the_folder_is_refused(tmp_path: Path) -> None:
    rk.write([{"x": 1}], tmp_path / "inner", progress=False)
    put(tmp_path / "a.tfrecord", payloads(0, 3))
    with pytest.raises(rk.DatasetError) as caught:
        rk.adopt(tmp_path, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X589", str(tmp_path / "inner" / "rekord.json"))


def test_files_places_and_empty_folders_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", payloads(0, 3))
    with pytest.raises(rk.UsageError) as caught:
        rk.adopt(path, progress=False)
    assert (caught.value.code, caught.value.do) == ("U605", f"rekord adopt {tmp_path}")
    for place, code in ((tmp_path / "nothing", "X501"), ("s3://bucket/data", "X504")):
        with pytest.raises(rk.RekordError) as other:
            rk.adopt(place, progress=False)
        assert other.value.code == code
    (tmp_path / "empty").mkdir()
    with pytest.raises(rk.DatasetError) as nothing:
        rk.adopt(tmp_path / "empty", progress=False)
    assert nothing.value.code == "X502"
    assert os.listdir(tmp_path / "empty") == []
    put(tmp_path / "hollow" / "a.tfrecord", [])
    with pytest.raises(rk.SchemaError) as hollow:
        rk.adopt(tmp_path / "hollow", progress=False)
    assert hollow.value.code == "S126"


class ReadOnly:
    """A storage of a file system that is mounted read-only."""

    def __getattr__(self, name: str) -> Any:
        return getattr(LOCAL, name)

    def lock(self, path: str) -> Any:
        raise write_error(path, OSError(errno.EROFS, os.strerror(errno.EROFS)))


def test_a_folder_that_cannot_be_written_is_x504_with_its_name(folder: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        adopt_shards(folder, AdoptOptions(), storage=ReadOnly())  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.location.path) == ("X504", str(folder))
    assert (caught.value.found, caught.value.expected) == (
        "Read-only file system",
        "a folder that can be written: the manifest and the indexes go next to the shards",
    )


# Edits


def test_an_adopted_dataset_can_be_edited_in_its_own_place(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("train/a", "train/b", "val/a"):
        put(folder / f"{name}.tfrecord", payloads(0, 4))
    rk.adopt(folder, label_map=NAMES, progress=False)
    rk.delete(folder, where="id = 1", replace=True, progress=False)
    assert {name: len(split) for name, split in rk.open(folder).items()} == {"train": 6, "val": 3}
    assert not (folder / "train").exists()
    assert os.listdir(tmp_path) == ["data"] or sorted(os.listdir(tmp_path)) == ["cache", "data"]
    assert rk.check(folder).ok


def test_an_edit_refuses_files_that_are_not_listed_below_an_adopted_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    put(folder / "train" / "a.tfrecord", payloads(0, 4))
    rk.adopt(folder, progress=False)
    (folder / "train" / "notes.txt").write_text("mine")
    with pytest.raises(rk.UsageError) as caught:
        rk.delete(folder, where="id = 1", replace=True, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("U618", str(folder / "train" / "notes.txt"))


@pytest.mark.parametrize("link", ["train", "train/.rekord", ".rekord"])
def test_replacing_a_dataset_removes_nothing_that_a_link_leads_to(tmp_path: Path, link: str) -> None:
    folder, victim = tmp_path / "data", tmp_path / "victim"
    put(folder / "train" / "a.tfrecord", payloads(0, 4))
    rk.adopt(folder, progress=False)
    (folder / link).mkdir(exist_ok=True)
    (folder / link).rename(victim)
    (victim / "notes.txt").write_text("mine")
    before = read_tree(victim)
    (folder / link).symlink_to(victim)
    rk.write([{"x": 1}], folder, fresh=True, progress=False)
    assert read_tree(victim) == before
    assert len(rk.open(folder)["train"]) == 1


def test_check_finds_a_shard_that_changed_or_went_after_it_was_adopted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in "ab":
        put(folder / "train" / f"{name}.tfrecord", payloads(0, 4))
    rk.adopt(folder, progress=False)
    put(folder / "train" / "a.tfrecord", payloads(1, 4))
    errors = [finding for finding in rk.check(folder).findings if finding.severity == "error"]
    assert {(finding.code, finding.path) for finding in errors} == {
        ("X516", str(folder / "train" / "a.tfrecord")),
        ("X547", str(folder / "train" / "a.tfrecord")),
    }
    (folder / "train" / "a.tfrecord").unlink()
    missing = [finding for finding in rk.check(folder).findings if finding.severity == "error"]
    assert [(finding.code, finding.path) for finding in missing] == [("X505", str(folder / "train" / "a.tfrecord"))]


def test_the_json_document_has_everything(folder: Path) -> None:
    document = adopt_shards(folder, AdoptOptions(label="label", label_map=NAMES)).to_dict()
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.tfrecord")}
    train_bytes = sizes["train-00000-of-00002.tfrecord"] + sizes["train-00001-of-00002.tfrecord"]
    assert json.loads(json.dumps(document)) == {
        "dataset": str(folder),
        "splits": {
            "train": {"records": 40, "shards": 2, "bytes": train_bytes},
            "val": {"records": 5, "shards": 1, "bytes": sizes["val-00000-of-00001.tfrecord"]},
        },
        "schema": "inferred",
        "columns": {
            "id": "Int64()",
            "label": "Label(('cat', 'dog', 'cow'))",
            "text": "Bytes()",
            "x": "Float32(shape=(2,))",
        },
        "classes": {"label": {"count": 3, "names": NAMES}},
        "index": ["label"],
        "resumed_shards": 0,
        "notes": [],
    }

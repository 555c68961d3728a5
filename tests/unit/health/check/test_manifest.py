"""A manifest, or TFDS's dataset_info.json, and the files that it is about."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_conversions import edit_manifest

import rekord as rk
from rekord import _core
from rekord.dataset.read import list_record_files
from rekord.health.check.manifest import (
    ClassCountRule,
    FileDigests,
    ManifestListing,
    find_manifest_mismatches,
    find_tfds_mismatches,
    read_manifest_listing,
)
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import scan_file

SCHEMA = rk.Schema({"id": rk.Int64(), "label": rk.Label(["cat", "dog", "owl"], key="class/label")})


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    rows = [{"id": i, "label": i % 3} for i in range(60)]
    rk.write(rows, folder, schema=SCHEMA, split={"train": 0.7, "val": 0.3}, shards=3, key="id", progress=False)
    return folder


def _counts(paths: list[str]) -> dict[str, int]:
    return {path: sum(1 for _ in rk.records(path)) for path in paths}


def _listing(folder: Path) -> ManifestListing:
    listing = read_manifest_listing(str(folder))
    assert isinstance(listing, ManifestListing)
    return listing


def _found(folder: Path, *, damaged: tuple[str, ...] = ()) -> list[Finding]:
    listing = _listing(folder)
    paths = list_record_files(folder)
    good = [path for path in paths if os.path.basename(path) not in damaged]
    with FileDigests(listing) as digests:
        return list(find_manifest_mismatches(listing, paths, _counts(good), digests))


def test_a_dataset_as_it_was_written_agrees_with_its_manifest(dataset):
    assert _found(dataset) == []


def test_a_dataset_agrees_wherever_it_is_looked_at_from(dataset, monkeypatch):
    monkeypatch.chdir(dataset)
    for folder in (".", "../pets", "../pets/"):
        assert _found(Path(folder)) == []
        listing = read_manifest_listing(folder)
        assert {listing.split_of(path) for path in list_record_files(folder)} == {"train", "val"}
        assert listing.key == "id"


def test_a_folder_without_a_manifest_has_no_listing(tmp_path):
    assert read_manifest_listing(str(tmp_path)) is None


@pytest.mark.parametrize("content", [b"{}", b"", b"\xff", b'{"format": 99}'])
def test_a_manifest_that_cannot_be_used_is_a_finding(dataset, content):
    (dataset / "rekord.json").write_bytes(content)
    finding = read_manifest_listing(str(dataset))
    assert (finding.code, finding.severity, finding.path) == ("X515", "error", str(dataset / "rekord.json"))


def test_a_manifest_with_a_schema_that_is_none_is_a_finding(dataset):
    edit_manifest(dataset, lambda manifest: manifest["schema"].update(features={"x": {"type": "Nothing"}}))
    finding = read_manifest_listing(str(dataset))
    assert (finding.code[0], finding.severity, finding.path) == ("S", "error", str(dataset / "rekord.json"))


def test_missing_shards_are_told_by_split(dataset):
    for name in ("train-00000-of-00003.tfrecord", "train-00002-of-00003.tfrecord"):
        (dataset / name).unlink()
    [finding] = _found(dataset)
    assert (finding.code, finding.severity) == ("X505", "error")
    assert finding.path == str(dataset / "train-*-of-00003.tfrecord")
    assert finding.message == "only 1 of 3 shards exist"
    assert finding.found == "missing 0, 2"


def test_a_split_of_which_nothing_is_there_is_missed(dataset):
    for path in dataset.glob("val-*"):
        path.unlink()
    [finding] = _found(dataset)
    assert (finding.code, finding.message) == ("X505", "only 0 of 3 shards exist")


def test_a_shard_that_was_cut_between_two_records_is_found_by_its_size(dataset):
    path = dataset / "train-00001-of-00003.tfrecord"
    size = path.stat().st_size
    payload = next(iter(rk.records(path)))
    os.truncate(path, len(payload) + 16)
    [finding] = _found(dataset)
    assert (finding.code, finding.severity, finding.path) == ("X516", "error", str(path))
    assert finding.expected == f"{size:,} bytes, as listed in rekord.json"


def test_another_number_of_records_in_as_many_bytes_is_found(dataset):
    path = dataset / "train-00001-of-00003.tfrecord"
    count = sum(1 for _ in rk.records(path))
    path.write_bytes(_core.frame(bytes(path.stat().st_size - 16)))
    [finding] = _found(dataset)
    assert (finding.code, finding.severity, finding.path) == ("X516", "error", str(path))
    assert finding.message == "shard does not have the number of records in the manifest"
    assert (finding.expected, finding.found) == (f"{count} records, as in rekord.json", "1 record")


def test_a_changed_record_with_good_checksums_is_found_by_the_digest(dataset):
    path = dataset / "train-00001-of-00003.tfrecord"
    payloads = list(rk.records(path))
    payloads[0], payloads[1] = payloads[1], payloads[0]
    path.write_bytes(b"".join(map(_core.frame, payloads)))
    [finding] = _found(dataset)
    assert (finding.code, finding.severity, finding.path) == ("X516", "error", str(path))
    assert finding.message == "shard does not have the checksum in the manifest"
    assert finding.likely is None
    assert _found(dataset, damaged=(path.name,)) == []  # what is damaged has been told already


def test_a_shard_that_was_copied_over_another_is_called_by_its_name(tmp_path):
    folder = tmp_path / "even"
    rk.write([{"id": i} for i in range(4)], folder, shards=2, progress=False)
    shutil.copy(folder / "train-00001-of-00002.tfrecord", folder / "train-00000-of-00002.tfrecord")
    [finding] = _found(folder)
    assert finding.path == str(folder / "train-00000-of-00002.tfrecord")
    assert finding.likely.startswith("these are the bytes of train-00001-of-00002.tfrecord")


def test_a_companion_that_is_gone_is_a_warning(dataset):
    (dataset / "schema.pbtxt").unlink()
    [finding] = _found(dataset)
    assert (finding.code, finding.severity) == ("H783", "warning")
    assert finding.path == str(dataset / "schema.pbtxt")


def test_record_files_that_are_not_listed_are_warnings(dataset):
    (dataset / "extra.tfrecord").write_bytes(_core.frame(b"abc"))
    [finding] = _found(dataset)
    assert (finding.code, finding.severity) == ("H784", "warning")
    assert finding.path == str(dataset / "extra.tfrecord")


def test_of_many_files_that_are_not_listed_the_first_are_named(dataset):
    for number in range(30):
        (dataset / f"extra{number:02d}.tfrecord").write_bytes(_core.frame(b"abc"))
    found = _found(dataset)
    assert [finding.code for finding in found] == ["H784"] * 21
    assert found[-1].message == "record file is not in the manifest, and 9 more"


def test_a_dataset_below_a_dataset_is_not_called_unlisted(dataset):
    rk.write([{"id": 1}], dataset / "more", progress=False)
    assert _found(dataset) == []


# ---- Digests ----


def test_digests_are_made_beside_and_given_when_asked_for(dataset, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    with FileDigests(_listing(dataset)) as digests:
        digests.add(str(path))
        digest = digests.digest(str(path))
        assert digest == "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
        assert digests.digest(str(tmp_path / "gone")) is None


def test_each_shard_is_hashed_by_the_algorithm_of_its_digest_in_the_manifest(dataset):
    listing = _listing(dataset)
    paths = list_record_files(dataset)
    for path in paths[::2]:
        split, number = listing.shards[path]
        sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        listing.manifest.splits[split].shards.digest[number] = f"sha256:{sha256}"
    counts = _counts(paths)
    with FileDigests(listing) as digests:
        assert list(find_manifest_mismatches(listing, paths, counts, digests)) == []
    Path(paths[0]).write_bytes(bytes(Path(paths[0]).stat().st_size))
    with FileDigests(listing) as digests:
        [finding] = find_manifest_mismatches(listing, paths, counts, digests)
    assert finding.path == paths[0]
    assert finding.expected.startswith("sha256:")
    assert finding.found.startswith("sha256:")


def test_digests_that_nobody_asks_for_do_not_hold_up_the_end(dataset, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(3 << 20))
    digests = FileDigests(_listing(dataset))
    for number in range(200):
        os.link(path, tmp_path / f"x{number}")
        digests.add(str(tmp_path / f"x{number}"))
    digests.close()
    digests.close()


# ---- Class counts ----


def _class_findings(folder: Path, *, leave_out: str = "") -> list[Finding]:
    listing = read_manifest_listing(str(folder))
    assert isinstance(listing, ManifestListing)
    rule = ClassCountRule(listing)
    found: list[Finding] = []
    for path in list_record_files(folder):
        if leave_out and leave_out in path:
            continue
        for item in scan_file(path, Report()):
            assert isinstance(item, KeyedBatch)
            found += rule.update(item)
        found += rule.end_file(path)
    return [*found, *rule.end()]


def test_classes_are_counted_as_the_manifest_says(dataset):
    assert _class_findings(dataset) == []


@pytest.mark.parametrize("name", ["1", "7"])
def test_a_class_that_is_counted_otherwise_is_an_error(dataset, name):
    def change(manifest: Any) -> None:
        classes = manifest["splits"]["val"]["classes"]["label"]
        classes[name] = classes.get(name, 0) + 5

    before = json.loads((dataset / "rekord.json").read_bytes())["splits"]["val"]["classes"]["label"].get(name, 0)
    edit_manifest(dataset, change)
    [finding] = _class_findings(dataset)
    assert (finding.code, finding.severity) == ("H785", "error")
    assert (finding.path, finding.feature) == (str(dataset / "rekord.json"), "class/label")
    assert finding.message == "class counts of `label` in the manifest do not match split 'val'"
    assert finding.expected == f"{before + 5} records of class {name}, as in rekord.json"
    assert finding.found == f"{before} records"


def test_a_class_that_the_manifest_does_not_know_is_an_error(dataset):
    edit_manifest(dataset, lambda manifest: manifest["splits"]["val"]["classes"]["label"].pop("2"))
    [finding] = _class_findings(dataset)
    assert finding.expected == "0 records of class 2, as in rekord.json"


def test_classes_of_a_split_that_was_not_read_whole_are_not_compared(dataset):
    edit_manifest(dataset, lambda manifest: manifest["splits"]["val"]["classes"]["label"].update({"1": 99}))
    assert _class_findings(dataset, leave_out="val-00001") == []


def test_labels_of_any_size_cost_no_memory(tmp_path):
    schema = rk.Schema({"label": rk.Label(2**40)})
    folder = tmp_path / "wide"
    rk.write([{"label": i * 2**38} for i in range(3)], folder, schema=schema, progress=False)
    assert _class_findings(folder) == []
    edit_manifest(folder, lambda manifest: manifest["splits"]["train"]["classes"]["label"].update({str(2**38): 4}))
    [finding] = _class_findings(folder)
    assert (finding.expected, finding.found) == (
        f"4 records of class {2**38}, as in rekord.json",
        "1 record",
    )


# ---- TFDS ----


@pytest.fixture
def tfds(tmp_path: Path) -> Path:
    folder = tmp_path / "pets" / "1.0.0"
    rows = {"id": np.arange(60), "label": np.arange(60) % 3}
    rk.write(rows, folder, schema=SCHEMA, split={"train": 0.7, "val": 0.3}, shards=3, format="tfds", progress=False)
    os.remove(folder / "rekord.json")
    return folder


def _tfds_found(folder: Path) -> list[Finding]:
    paths = list_record_files(folder)
    sizes = {path: sum(map(len, rk.records(path))) for path in paths}
    return list(find_tfds_mismatches(str(folder), paths, _counts(paths), sizes))


def _edit_info(folder: Path, change: Any) -> None:
    path = folder / "dataset_info.json"
    info = json.loads(path.read_bytes())
    change({split["name"]: split for split in info["splits"]})
    path.write_text(json.dumps(info))


def test_a_tfds_folder_as_it_was_written_agrees(tfds):
    assert (tfds / "dataset_info.json").exists()
    assert _tfds_found(tfds) == []


def test_bytes_may_be_counted_with_their_framing_as_tfds_does(tfds):
    def framed(splits: Any) -> None:
        for split in splits.values():
            split["numBytes"] = str(int(split["numBytes"]) + 16 * sum(map(int, split["shardLengths"])))

    _edit_info(tfds, framed)
    assert _tfds_found(tfds) == []


def test_a_shard_of_another_length_is_an_error(tfds):
    def change(splits: Any) -> None:
        splits["train"]["shardLengths"][1] = "5"

    _edit_info(tfds, change)
    [finding] = _tfds_found(tfds)
    assert (finding.code, finding.severity) == ("X545", "error")
    assert finding.path.endswith("train.tfrecord-00001-of-00003")
    assert finding.expected == "5 records, as in dataset_info.json"


def test_another_number_of_shards_is_an_error(tfds):
    _edit_info(tfds, lambda splits: splits["val"]["shardLengths"].append("1"))
    [finding] = _tfds_found(tfds)
    assert (finding.code, finding.expected) == ("X545", "4 shards, as in dataset_info.json")


def test_other_bytes_of_a_split_are_an_error(tfds):
    _edit_info(tfds, lambda splits: splits["val"].update(numBytes="7"))
    [finding] = _tfds_found(tfds)
    assert (finding.code, finding.path) == ("X545", str(tfds / "dataset_info.json"))
    assert finding.expected == "7 bytes, as in dataset_info.json"


def test_a_split_that_was_not_fetched_is_a_warning(tfds):
    for path in tfds.glob("*-val.*"):
        path.unlink()
    [finding] = _tfds_found(tfds)
    assert (finding.code, finding.severity) == ("X505", "warning")
    assert finding.message == "only 0 of 3 shards exist"


@pytest.mark.parametrize(
    "content",
    [b"[]", b"{", b"\xff", b'{"name": 3}', b'{"name": "x", "splits": [3]}', b'{"name": "x", "splits": "y"}'],
)
def test_a_damaged_dataset_info_is_a_finding(tfds, content):
    (tfds / "dataset_info.json").write_bytes(content)
    [finding] = _tfds_found(tfds)
    assert (finding.code, finding.severity) == ("X536", "error")
    assert finding.path == str(tfds / "dataset_info.json")


def test_a_folder_without_dataset_info_is_fine(dataset):
    assert _tfds_found(dataset) == []

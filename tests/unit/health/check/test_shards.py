"""Sets of shards, as names and sizes tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rekord.health.check.shards import find_shard_problems, format_runs, group_runs
from rekord.health.finding import Finding


def _names(split: str, numbers: Sequence[int], shards: int) -> list[str]:
    return [f"data/{split}-{number:05d}-of-{shards:05d}.tfrecord" for number in numbers]


def _found(
    paths: Sequence[str],
    sizes_bytes: Mapping[str, int] | None = None,
    records: Mapping[str, int] | None = None,
    listed: Sequence[str] = (),
) -> list[Finding]:
    sizes = dict.fromkeys(paths, 1000) if sizes_bytes is None else sizes_bytes
    counts = dict.fromkeys(paths, 10) if records is None else records
    return list(find_shard_problems(paths, sizes, counts, listed=listed))


def test_whole_sets_and_files_without_numbers_are_fine():
    assert _found([*_names("train", range(3), 3), *_names("val", [0], 1), "data/extra.tfrecord"]) == []


@pytest.mark.parametrize(
    ("present", "message", "found"),
    [
        ([0, 1, 3], "only 3 of 4 shards exist", "missing 2"),
        ([1, 2, 3], "only 3 of 4 shards exist", "missing 0"),
        ([0, 1, 2], "only 3 of 4 shards exist", "missing 3"),
        ([3], "only 1 of 4 shards exist", "missing 0–2"),
    ],
)
def test_a_set_that_lacks_shards_says_which(present, message, found):
    [finding] = _found(_names("train", present, 4))
    assert (finding.code, finding.severity) == ("X505", "error")
    assert (finding.path, finding.message) == ("data/train-*-of-00004.tfrecord", message)
    assert (finding.expected, finding.found) == ("shards 0 to 3, as listed in the file names", found)


def test_many_missing_shards_are_said_in_short():
    [finding] = _found(_names("train", range(0, 1000, 2), 1000))
    assert finding.message == "only 500 of 1,000 shards exist"
    assert finding.found.startswith("missing 1, 3, 5, 7")
    assert finding.found.endswith(", …")
    assert len(finding.found) <= 63


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1], "0, 1"), ([0, 1, 2, 5, 7, 8, 9], "0–2, 5, 7–9"), ([], "")]
)
def test_numbers_are_said_as_runs(numbers, text):
    assert format_runs(group_runs(numbers)) == text


def test_a_set_that_a_manifest_lists_is_left_to_the_manifest():
    paths = _names("train", [0, 1, 3], 4)
    assert _found(paths, listed=paths[:1]) == []


def test_a_set_of_an_earlier_run_beside_a_whole_one_is_told_as_left_over():
    paths = [*_names("train", range(12), 12), *_names("train", [1, 7], 10)]
    incomplete, beside = _found(sorted(paths))
    assert (incomplete.code, incomplete.path) == ("X505", "data/train-*-of-00010.tfrecord")
    assert (beside.code, beside.severity) == ("H780", "warning")
    assert beside.likely == "left over from an earlier run: train-*-of-00010.tfrecord is incomplete"
    assert beside.do == "move data/train-*-of-00010.tfrecord to another folder"


def test_of_two_whole_sets_nobody_knows_which_one_is_left_over():
    [beside] = _found([*_names("train", range(2), 2), *_names("train", range(3), 3), *_names("val", [0], 1)])
    assert (beside.code, beside.severity, beside.likely) == ("H780", "warning", None)
    assert beside.message == "sets of 2 and 3 shards share one name"
    assert beside.path == "data/train-*-of-00002.tfrecord"
    assert beside.found == "also train-*-of-00003.tfrecord"


def test_sets_in_two_folders_or_of_two_splits_do_not_disturb_each_other():
    elsewhere = [path.replace("data/", "old/") for path in _names("train", range(3), 3)]
    assert _found([*_names("train", range(2), 2), *elsewhere, *_names("val", range(4), 4)]) == []


def test_empty_shards_of_a_set_are_one_warning():
    paths = _names("train", range(6), 6)
    records = {path: 0 if number in (1, 2, 3, 5) else 9 for number, path in enumerate(paths)}
    [finding] = _found(paths, records=records)
    assert (finding.code, finding.severity, finding.path) == ("H781", "warning", paths[1])
    assert finding.message == "4 of 6 shards have no records"
    assert finding.found == "no records in 1–3, 5"


def test_a_shard_that_is_damaged_is_not_called_empty():
    paths = _names("train", range(2), 2)
    assert _found(paths, records={paths[0]: 5}) == []


def test_a_single_file_without_records_is_no_empty_shard():
    paths = _names("train", [0], 1)
    assert _found(paths, records={paths[0]: 0}) == []


@pytest.mark.parametrize("form", ["data/train-{:05d}-of-00005.tfrecord", "data/part-r-{:05d}", "data/x_{}.tfrecord"])
def test_shards_of_very_unequal_size_are_a_warning(form):
    paths = [form.format(number) for number in range(5)]
    sizes = dict(zip(paths, [5_000_000, 4_000_000, 20_000_001, 5_000_000, 6_000_000], strict=True))
    [finding] = _found(paths, sizes)
    assert (finding.code, finding.severity, finding.path) == ("H782", "warning", paths[2])
    assert finding.message == "shards are very uneven in size: the largest of 5 has 4 times the median"
    assert finding.found == "20,000,001 bytes"


@pytest.mark.parametrize(
    "sizes",
    [
        [5_000_000, 4_000_000, 20_000_000, 5_000_000, 6_000_000],  # four times the median, and not more
        [1, 1, 1, 1, 16_000_000],  # small as a whole
        [90_000_000, 100_000_000, 120_000_000, 100_000_000, 10],  # a short last one
    ],
)
def test_shards_that_differ_a_little_or_are_small_are_fine(sizes):
    paths = _names("train", range(5), 5)
    assert _found(paths, dict(zip(paths, sizes, strict=True))) == []


def test_files_of_other_names_are_not_compared_by_size():
    paths = ["data/train.tfrecord", "data/val.tfrecord", "data/test.tfrecord"]
    assert _found(paths, dict(zip(paths, [900_000_000, 1000, 1000], strict=True))) == []


def test_mostly_empty_files_beside_a_large_one_are_unequal():
    paths = _names("train", range(3), 3)
    [finding] = _found(paths, dict(zip(paths, [0, 0, 50_000_000], strict=True)))
    assert finding.message.endswith("has nearly all bytes")

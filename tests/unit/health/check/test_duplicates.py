"""The same content twice: in one split, and in two."""

from __future__ import annotations

import io
import os
import tempfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture

import rekord as rk
from rekord.dataset.read import infer_split_name, list_record_files
from rekord.health.check.duplicates import DuplicateContentRule
from rekord.health.finding import Finding, Report
from rekord.health.scan import scan_file
from rekord.testing import (
    bytes_list,
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


def _image(number: int, *, mode: str = "RGB", format: str = "png") -> bytes:
    bands = {"RGB": 3, "L": 1}[mode]
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, bands), dtype=np.uint8)
    file = io.BytesIO()
    Picture.fromarray(pixels if bands > 1 else pixels[:, :, 0], mode).save(file, format)
    return file.getvalue()


def _example(row: dict[str, Any]) -> bytes:
    """An Example, with empty lists of bytes where `image` is empty and of ints elsewhere."""
    empty = {"image": feature(("bytes", bytes_list([])))}
    nothing = feature(("int64", int64_list([])))
    whole = example_bytes({key: values for key, values in row.items() if values})
    # One message behind another is both of them merged.
    holes = [entry(key, empty.get(key, nothing)) for key, values in row.items() if not values]
    return whole + (example(features(holes)) if holes else b"")


def _run(rule: DuplicateContentRule, paths: Iterable[str]) -> list[Finding]:
    found: list[Finding] = []
    for path in paths:
        for item in scan_file(str(path), Report()):
            found += [item] if isinstance(item, Finding) else rule.update(item)
        found += rule.end_file(str(path))
    return [*found, *rule.end()]


def _found(folder: Path, schema: rk.Schema | None = None, **options: Any) -> list[Finding]:
    rule = DuplicateContentRule(lambda path: infer_split_name(path, str(folder)), schema, **options)
    return _run(rule, list_record_files(folder))


@pytest.fixture
def put(put_records: Any, tmp_path: Path) -> Any:
    """Writes files of Examples, named by their splits; gives the folder."""

    def files(**splits: list[dict[str, Any]]) -> Path:
        for split, rows in splits.items():
            put_records([_example(row) for row in rows], f"data/{split}.tfrecord")
        return tmp_path / "data"

    return files


def _place(finding: Finding) -> tuple[str, int | None, str | None]:
    return os.path.basename(finding.path or ""), finding.record, finding.feature


def _rows(numbers: Iterable[int], label: int = 0) -> list[dict[str, Any]]:
    return [{"image/encoded": [_image(number)], "label": [label]} for number in numbers]


# ---- In two splits ----


def test_content_that_is_all_different_is_fine(put):
    assert _found(put(train=_rows(range(50)), val=_rows(range(50, 60)))) == []


@pytest.mark.parametrize("at", [0, 5, 9])
def test_the_same_content_under_another_label_in_two_splits_is_an_error(put, at):
    val = _rows(range(100, 110), label=1)
    val[at]["image/encoded"] = [_image(3)]
    folder = put(train=_rows(range(50)), val=val)
    [finding] = _found(folder)
    assert (finding.code, finding.severity) == ("H787", "error")
    assert _place(finding) == ("train.tfrecord", 3, "image/encoded")
    assert finding.offset == frame_offsets((folder / "train.tfrecord").read_bytes())[3]
    assert finding.message == "splits 'train' and 'val' have the same `image/encoded`"
    assert finding.found == (
        f"also in {folder / 'val.tfrecord'}, record {at}; 1 record of 'train' and 1 of 'val' in total"
    )
    assert finding.count == 2


def test_how_many_records_are_concerned_is_said_with_the_first_twenty(put):
    folder = put(train=_rows(range(50)), val=[*_rows(range(30)), *_rows(range(10))])
    leaks = [finding for finding in _found(folder) if finding.code == "H787"]
    assert [finding.record for finding in leaks] == [*range(20), None]
    assert leaks[0].found.endswith("30 records of 'train' and 40 of 'val' in total")
    assert leaks[-1].message == "splits 'train' and 'val' have the same `image/encoded`: 10 more"
    assert (leaks[-1].count, leaks[0].count) == (20, 3)


def test_three_splits_with_the_same_content_are_told_against_the_first(put):
    found = _found(put(test=_rows([1, 2]), train=_rows([3, 1]), val=_rows([1, 5])))
    assert [(finding.code, finding.message) for finding in found] == [
        ("H787", "splits 'test' and 'train' have the same `image/encoded`"),
        ("H787", "splits 'test' and 'val' have the same `image/encoded`"),
    ]


def test_splits_that_were_only_guessed_are_an_error_if_they_are_named_like_splits(put):
    folder = put(train=_rows([1]), val=_rows([1, 2]))
    [finding] = _found(folder, guessed_splits=True)
    assert finding.severity == "error"


def test_two_folders_that_are_no_splits_with_the_same_content_are_a_warning(put):
    folder = put(**{"cats/a": _rows([1]), "dogs/a": _rows([1, 2])})
    [finding] = _found(folder, guessed_splits=True)
    assert (finding.code, finding.severity) == ("H787", "warning")
    assert [one.severity for one in _found(folder)] == ["error"]


def test_rows_of_a_table_in_two_folders_that_are_no_splits_are_a_note(put):
    folder = put(**{"old/a": _table(range(9)), "new/a": _table(range(3))})
    [finding] = _found(folder, guessed_splits=True)
    assert (finding.code, finding.severity) == ("H788", "note")
    assert [one.severity for one in _found(folder)] == ["warning"]


# ---- In one split ----


def test_the_same_content_twice_in_a_split_is_a_warning_with_both_places(put):
    folder = put(train=[*_rows(range(10)), *_rows([4], label=2)], val=_rows([20]))
    [finding] = _found(folder)
    assert (finding.code, finding.severity) == ("H786", "warning")
    assert _place(finding) == ("train.tfrecord", 4, "image/encoded")
    assert finding.message == "duplicate `image/encoded` in split 'train'"
    assert finding.found == f"also in {folder / 'train.tfrecord'}, record 10"
    assert finding.count == 2


def test_of_many_copies_the_first_two_are_named_and_all_are_counted(put):
    folder = put(train=[*_rows([9]), *_rows(range(10)), *_rows([9, 9, 9])])
    [finding] = _found(folder)
    assert (finding.record, finding.count) == (0, 5)
    assert finding.message == "duplicate `image/encoded`"  # there is one split
    assert finding.found.endswith("record 10")


def test_twenty_of_many_copies_are_listed_and_the_rest_is_counted(put):
    found = _found(put(train=[*_rows(range(35)), *_rows(range(35))]))
    assert [finding.record for finding in found] == [*range(20), None]
    assert found[-1].message.endswith(": 15 more")
    assert found[-1].count == 30


def test_each_content_key_is_compared_on_its_own(put):
    rows = [{"a": [_image(i)], "b": [_image(100 + i // 2)], "label": [i]} for i in range(8)]
    found = _found(put(train=rows))
    assert [(finding.feature, finding.record) for finding in found] == [
        ("b", 0),
        ("b", 2),
        ("b", 4),
        ("b", 6),
    ]


def test_the_same_bytes_under_two_keys_are_not_the_same_content(put):
    assert _found(put(train=[{"a": [_image(1)], "b": [_image(1)]}, {"a": [_image(2)], "b": [_image(3)]}])) == []


def test_missing_and_empty_content_is_never_the_same(put):
    rows: list[dict[str, Any]] = [{"image": [_image(i)], "label": [1]} for i in range(5)]
    rows += [{"image": [b""], "label": [1]}, {"image": [b""], "label": [2]}]
    rows += [{"image": [], "label": [1]}, {"image": [], "label": [1]}]
    rows += [{"label": [1]}, {"label": [1]}]
    assert _found(put(train=rows, val=rows[5:])) == []


# ---- What is content ----


def test_images_and_tensors_of_a_schema_are_content_however_small(put):
    schema = rk.Schema(
        {
            "image": rk.Image(format="png", key="image/encoded"),
            "cube": rk.Tensor("uint8", shape=(4,)),
            "label": rk.Int64(),
        }
    )
    rows = [{"image/encoded": [b"png %d" % i], "cube": [bytes([i] * 4)], "label": [i]} for i in range(4)]
    rows += [{"image/encoded": [b"png 2"], "cube": [bytes([9] * 4)], "label": [7]}]
    rows += [{"image/encoded": [b"png 7"], "cube": [bytes([1] * 4)], "label": [8]}]
    found = _found(put(train=rows), schema)
    assert [(one.code, one.feature, one.record) for one in found] == [
        ("H786", "cube", 1),
        ("H786", "image/encoded", 2),
    ]


def test_masks_of_a_schema_are_no_content(put):
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3)})
    rows = [{"image": [_image(i)], "mask": [_image(0, mode="L")]} for i in range(6)]
    assert _found(put(train=rows[:3], val=rows[3:]), schema) == []


@pytest.mark.parametrize("key", ["image/segmentation/class/encoded", "mask", "annotation"])
def test_masks_are_told_by_their_name_or_by_being_grey_beside_colours(put, key):
    rows = [{"image": [_image(i)], key: [_image(0, mode="L")], "label": [i]} for i in range(6)]
    assert _found(put(train=rows[:3], val=rows[3:])) == []


def test_grey_images_alone_are_content(put):
    rows = [{"image": [_image(i, mode="L")], "label": [i]} for i in range(6)]
    [finding] = _found(put(train=rows[:4], val=rows[3:]))
    assert (finding.code, finding.severity, finding.feature) == ("H787", "error", "image")


def _paragraphs(key: str) -> dict[str, list[dict[str, Any]]]:
    """Questions about paragraphs, which several of them share, also across splits."""
    rows = [{key: [f"{i // 3} " * 200], "question": [f"what is {i}?"]} for i in range(12)]
    return {"train": rows[:8], "val": rows[8:]}


@pytest.mark.parametrize("schema", [None, rk.Schema({"context": rk.Text(), "question": rk.Text()})])
def test_large_texts_are_no_content(put, schema):
    assert _found(put(**_paragraphs("context")), schema) == []


@pytest.mark.parametrize("schema", [None, rk.Schema({"blob": rk.Bytes(), "question": rk.Bytes()})])
def test_large_bytes_that_are_no_image_are_no_content(put, schema):
    rows = {
        split: [{**row, "blob": [b"\x08\x01" + row["blob"][0].encode()]} for row in rows]
        for split, rows in _paragraphs("blob").items()
    }
    assert _found(put(**rows), schema) == []


def test_large_bytes_are_part_of_the_row(put):
    rows = [{"text": [f"{i} " * 200], "label": [i % 3]} for i in range(12)]
    [finding] = _found(put(train=rows, val=[rows[2]]))
    assert (finding.code, finding.severity, finding.record) == ("H788", "warning", 2)


def test_tensors_that_hardly_ever_differ_are_noted_once_and_are_no_leak(put):
    schema = rk.Schema({"image": rk.Image(), "camera": rk.Tensor("uint8", shape=(300,)), "label": rk.Int64()})
    rows = [{"image": [_image(i)], "camera": [bytes([i % 2]) * 300], "label": [i]} for i in range(60)]
    [finding] = _found(put(train=rows[:40], val=rows[40:]), schema)
    assert (finding.code, finding.severity, finding.feature) == ("H786", "note", "camera")
    assert finding.message == "`camera` has only 2 distinct values in 60 records"
    assert finding.count == 60


def test_what_is_content_is_settled_by_the_first_records(put):
    first = [{"blob": [_image(i)], "label": [i]} for i in range(5)]
    later = [{"blob": [b"short"], "label": [i]} for i in range(2)]
    [finding] = _found(put(a=first, b=later))
    assert (finding.code, finding.feature, finding.count) == ("H786", "blob", 2)


# ---- Rows of a table ----


def _table(numbers: Iterable[int], first_id: int = 0) -> list[dict[str, Any]]:
    return [{"id": [first_id + i], "x": [n / 7], "name": [b"n%d" % n]} for i, n in enumerate(numbers)]


def test_rows_are_compared_by_all_but_their_identity(put):
    folder = put(train=_table(range(20)), val=_table([50, 3, 51, 7], first_id=900))
    [finding] = _found(folder)
    assert (finding.code, finding.severity) == ("H788", "warning")
    assert _place(finding) == ("train.tfrecord", 3, None)
    assert finding.message == "2 of 4 rows of split 'val' are also in split 'train'"
    assert finding.found == f"the first is also in {folder / 'val.tfrecord'}, record 1"
    assert finding.count == 4


def test_rows_that_differ_in_one_value_are_not_the_same(put):
    rows = _table(range(20))
    assert _found(put(train=rows, val=[{**row, "x": [0.5]} for row in rows])) == []


def test_rows_that_are_there_twice_are_one_note_a_split(put):
    folder = put(train=_table([*range(20), 4, 5, 4]), val=_table([70, 71, 70]))
    found = _found(folder)
    assert [(finding.code, finding.severity) for finding in found] == [("H789", "note")] * 2
    assert _place(found[0]) == ("train.tfrecord", 4, None)
    assert found[0].message == "5 of 23 rows of split 'train' are duplicates"
    assert found[0].found == f"the first is also in {folder / 'train.tfrecord'}, record 20"
    assert (found[0].count, found[1].count) == (5, 2)


def test_a_table_of_few_small_columns_repeats_by_nature_and_is_only_noted(put):
    rows = [{"colour": [i % 3], "size": [i % 2]} for i in range(60)]
    found = _found(put(train=rows, val=rows[:12]))
    assert {finding.severity for finding in found} == {"note"}
    assert [finding.code for finding in found] == ["H788", "H789", "H789"]


@pytest.mark.parametrize("name", ["id", "key", "uuid", "image/source_id", "example_id", "filename", "x/filename"])
def test_a_key_that_is_named_like_an_identity_and_differs_is_one(put, name):
    rows = [{name: [b"%d" % i], "x": [i // 2 * 1.5]} for i in range(10)]
    [finding] = _found(put(train=rows))
    assert (finding.code, finding.count) == ("H789", 10)


def test_a_key_that_is_named_like_an_identity_and_repeats_is_data(put):
    rows = [{"user_id": [i % 5], "movie_id": [i // 5], "stars": [3]} for i in range(25)]
    assert _found(put(train=rows[:20], val=rows[20:])) == []


def test_the_key_of_the_dataset_is_an_identity_whatever_its_name(put):
    rows = [{"serial": [i], "x": [i // 2 * 1.5]} for i in range(10)]
    folder = put(train=rows)
    assert _found(folder) == []
    [finding] = _found(folder, key="serial")
    assert (finding.code, finding.count) == ("H789", 10)
    schema = rk.Schema({"number": rk.Int64(key="serial"), "x": rk.Float32()})
    assert [finding.count for finding in _found(folder, schema, key="number")] == [10]


def test_a_table_of_nothing_but_identities_has_no_duplicates(put):
    assert _found(put(train=[{"id": [i]} for i in range(9)])) == []


def test_rows_without_any_value_are_not_the_same(put):
    assert _found(put(train=[{"id": [i], "x": []} for i in range(9)], val=[{}, {}])) == []


def test_keys_in_another_order_are_the_same_row(put_records, tmp_path):
    keys = [
        entry("a", feature(("int64", int64_list([5])))),
        entry("b", feature(("bytes", bytes_list([b"xyz"])))),
    ]
    other = entry("b", feature(("bytes", bytes_list([b"other"]))))
    put_records([example(features(keys)), example(features([other]))], "data/train.tfrecord")
    put_records([example(features(keys[::-1]))], "data/val.tfrecord")
    [finding] = _found(tmp_path / "data")
    assert (finding.code, finding.record) == ("H788", 0)


def test_a_missing_value_is_not_an_empty_one(put):
    assert _found(put(train=[{"x": [1], "y": []}, {"x": [1]}, {"x": [1], "y": [0]}])) == []


# ---- SequenceExamples ----


def _sequence(frames_of: list[bytes], label: int = 0) -> bytes:
    steps = {"frame": [[frame] for frame in frames_of]}
    return sequence_bytes({"label": [label]}, steps)


def test_the_steps_of_sequences_are_content_when_they_are_large(put_records, tmp_path):
    clips = [[_image(i), _image(i + 1)] for i in range(0, 20, 2)]
    put_records([_sequence(clip) for clip in clips], "data/train.tfrecord")
    others = [_sequence([_image(90)]), _sequence(clips[4], label=1), _sequence(clips[5][::-1])]
    put_records(others, "data/val.tfrecord")
    [finding] = _found(tmp_path / "data")
    assert (finding.code, finding.severity) == ("H787", "error")
    assert _place(finding) == ("train.tfrecord", 4, "frame")
    assert "record 1;" in finding.found


def test_small_steps_are_part_of_the_row(put_records, tmp_path):
    def sequence(label: int, tokens: list[list[int]]) -> bytes:
        return sequence_bytes({"label": [label]}, {"tokens": tokens})

    train = [sequence(1, [[1], [2, 3]]), sequence(1, [[1, 2], [3]]), sequence(1, [[1], [2], [3]])]
    put_records(train, "data/train.tfrecord")
    put_records([sequence(2, [[1], [2, 3]]), sequence(1, [[1, 2], [3]])], "data/val.tfrecord")
    [finding] = _found(tmp_path / "data")
    assert (finding.code, finding.record, finding.count) == ("H788", 1, 2)


# ---- Datasets that rekord wrote ----


def test_a_written_table_of_distinct_rows_leaks_nothing(tmp_path):
    random = np.random.default_rng(5)
    columns = {"id": np.arange(5000), "x": random.normal(size=5000).astype(np.float32)}
    dataset = rk.write(columns, tmp_path / "out", split={"train": 0.8, "val": 0.2}, key="id", progress=False)
    assert set(dataset.splits) == {"train", "val"}
    assert _found(tmp_path / "out", dataset.schema, key="id") == []


def test_a_written_table_with_a_copied_row_leaks_it(tmp_path):
    rows = [{"id": i, "x": i * 1.5, "split": "train" if i < 90 else "val"} for i in range(100)]
    rows[95]["x"] = rows[17]["x"]
    for split in ("train", "val"):
        chosen = [{"id": row["id"], "x": row["x"]} for row in rows if row["split"] == split]
        rk.write(chosen, tmp_path / split, split=split, progress=False)
    rule = DuplicateContentRule(lambda path: os.path.basename(path).split("-")[0], key="id")
    [finding] = _run(rule, [*list_record_files(tmp_path / "train"), *list_record_files(tmp_path / "val")])
    assert (finding.code, finding.severity, finding.record) == ("H788", "warning", 17)
    assert finding.found.endswith("record 5")


def test_images_by_files_leak_when_a_file_was_copied_under_another_name(tmp_path):
    raw = tmp_path / "raw"
    for number in range(12):
        place = raw / ("train" if number < 8 else "val") / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(_image(number))
    (raw / "val" / "cat" / "copy.png").write_bytes(_image(4))
    for split in ("train", "val"):
        rk.write(rk.sources.image_folder(raw / split), tmp_path / "out" / split, split=split, progress=False)
    schema = rk.open(tmp_path / "out" / "train").schema
    for known in (schema, None):
        [finding] = _found(tmp_path / "out", known)
        assert (finding.code, finding.severity) == ("H787", "error")
        assert finding.message.startswith("splits 'train' and 'val' have the same")
        images = list(rk.records(finding.path))
        assert _image(4) in images[finding.record]


# ---- Memory and disk ----


def _many(path: Path, count: int) -> list[str]:
    paths = []
    for split, (begin, end) in {"train": (0, count), "val": (count - 40, count + 500)}.items():
        rows = [example_bytes({"x": [i], "y": [i * 31]}) for i in range(begin, end)]
        target = path / f"{split}.tfrecord"
        target.write_bytes(frames([*rows, *rows[:30]]))
        paths.append(str(target))
    return paths


def test_what_goes_through_the_disk_finds_the_same(tmp_path):
    paths = _many(tmp_path, 4000)

    def found(memory_bytes: int) -> list[dict[str, Any]]:
        rule = DuplicateContentRule(lambda path: infer_split_name(path, None), memory_bytes=memory_bytes)
        return [finding.to_dict() for finding in _run(rule, paths)]

    in_memory = found(64 << 20)
    assert [(one["code"], one["count"]) for one in in_memory] == [("H788", 110), ("H789", 60), ("H789", 60)]
    assert found(200_000) == in_memory


def test_memory_does_not_grow_with_the_records(tmp_path):
    from rekord.health.key_columns import KeyColumn, KeyedBatch

    def peak_bytes(batches: int) -> int:
        rule = DuplicateContentRule(lambda path: "train", memory_bytes=1 << 20)
        tracemalloc.start()
        for number in range(batches):
            numbers = np.arange(2000) + number * 2000
            columns = {"x": KeyColumn("int64", numbers, None, None)}
            for _ in rule.update(KeyedBatch("a.tfrecord", numbers, numbers * 30, numbers, columns, {}, False)):
                pass
        assert list(rule.end()) == []
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(80) < 1.1 * peak_bytes(20) + (1 << 18)


def test_a_full_disk_is_one_finding_and_the_rest_goes_on(tmp_path, monkeypatch):
    def refused(**options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    rule = DuplicateContentRule(lambda path: infer_split_name(path, None), memory_bytes=100_000)
    [finding] = _run(rule, _many(tmp_path, 4000))
    assert (finding.code, finding.severity) == ("X546", "error")
    assert "TMPDIR" in finding.do


def test_a_rule_that_was_closed_says_nothing_more(tmp_path):
    rule = DuplicateContentRule(lambda path: "all")
    rule.close()
    rule.close()
    assert _run(rule, _many(tmp_path, 50)) == []

"""`rk.stats`: what it says of each kind of feature, of splits, of sequences and of damage."""

from __future__ import annotations

import io
import json
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import rekord as rk
from rekord.health.finding import Report
from rekord.health.stats import accumulate
from rekord.health.stats.accumulate import Accumulator
from rekord.health.stats.report import build_part_stats
from rekord.schema.interop.tfds import build_label_files, features_from_schema
from rekord.testing import corrupt_payload, example_bytes, frames, sequence_bytes


def image(width, height, mode="RGB", form="PNG"):
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, form)
    return file.getvalue()


@pytest.fixture
def described(put_records):
    """The statistics of one feature of these rows, as JSON holds them."""

    def described(rows, feature="x", **options):
        found = rk.stats(put_records([example_bytes(row) for row in rows]), **options)
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
        return found.features[feature].to_dict()

    return described


def test_integers(described):
    found = described([{"x": [0]}, {"x": [3, 3]}, {"x": [-7]}, {}])
    assert (found["kind"], found["present"], found["missing"], found["kinds"]) == (
        "int64",
        3,
        1,
        {"int64": 3},
    )
    assert (found["min"], found["max"], found["mean"]) == (-7, 3, -0.25)
    assert found["std"] == pytest.approx(np.std([0, 3, 3, -7]))
    assert (found["values"], found["values_min"], found["values_max"], found["values_mean"]) == (
        4,
        1,
        2,
        4 / 3,
    )
    assert (found["unique"], found["unique_is_exact"]) == (3, True)
    assert (found["top"], found["top_is_exact"]) == ([[3, 2], [-7, 1], [0, 1]], True)
    assert (found["zeros"], found["nan"], found["inf"]) == (1, 0, 0)
    assert found["quantiles"]["0.5"] == 0
    assert found["histogram"] == {
        "edges": [i - 7.5 for i in range(12)],
        "counts": [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2],
    }


def test_the_mean_of_the_largest_integers_is_exact(described):
    found = described([{"x": [2**63 - 1]}, {"x": [2**63 - 1, 2**63 - 3]}])
    assert (found["max"], found["mean"]) == (2**63 - 1, (3 * 2**63 - 5) / 3)
    assert (found["min"], found["std"]) == (2**63 - 3, pytest.approx(0, abs=1))


def test_floats_that_are_not_finite_are_counted_and_kept_out_of_the_rest(described):
    nan, inf = float("nan"), float("inf")
    found = described([{"x": [0.5, nan, inf]}, {"x": [-inf, 0.0, nan]}, {"x": [-0.0]}])
    assert (found["kind"], found["values"]) == ("float", 7)
    assert (found["min"], found["max"], found["mean"]) == (0.0, 0.5, 0.5 / 3)
    assert (found["nan"], found["inf"], found["zeros"], found["unique"]) == (2, 2, 2, 2)
    assert found["top"] == [[0.0, 2], [0.5, 1]]


def test_a_feature_of_nothing_but_nan_has_no_least_value(described):
    found = described([{"x": [float("nan")]}])
    assert (found["nan"], found["min"], found["mean"], found["quantiles"], found["histogram"]) == (
        1,
        None,
        None,
        {},
        None,
    )


def test_floats_are_said_in_the_digits_that_they_have(described):
    found = described([{"x": [0.1]}])
    assert (found["min"], found["max"], found["top"]) == (0.1, 0.1, [[0.1, 1]])


def test_byte_strings(described):
    found = described([{"x": [b"rose"]}, {"x": [b"rose", b"t\xc3\xbclip"]}, {"x": [b"\xff\x00"]}, {"x": [b""]}])
    assert (found["kind"], found["min"], found["max"], found["mean"]) == ("bytes", None, None, None)
    assert found["lengths"] | {"quantiles": None} == {"min": 0, "max": 6, "mean": 16 / 5, "quantiles": None}
    assert found["lengths"]["quantiles"]["0.5"] == 4
    assert found["utf8"] == 4 / 5
    assert found["unique"] == 4
    assert found["top"] == [["rose", 2], ["", 1], ["tülip", 1], ["0xff00", 1]]


def test_long_values_are_cut_to_sixty_characters(described):
    rows = [{"x": [b"\xc3\xa4" * 500]}, {"x": [b"\xff" * 500]}, {"x": [b"a" * 61]}, {"x": [b"b" * 60]}]
    top = {value for value, _ in described(rows)["top"]}
    assert top == {"ä" * 32 + "…", "0x" + "ff" * 16 + "… (500 bytes)", "a" * 59 + "…", "b" * 60}
    assert max(map(len, top)) == 60


def test_texts_that_are_only_together_utf8_are_none(described):
    assert described([{"x": [b"\xc3", b"\xbc"]}])["utf8"] == 0


def test_images_are_known_by_their_bytes(described):
    rows = [{"x": [image(8, 6)]}, {"x": [image(8, 6, "L", "JPEG")]}, {"x": [image(20, 10, "P", "GIF")]}]
    found = described([*rows, {"x": [b"GIF is a word, and this is no image."]}])["images"]
    assert (found["count"], found["formats"]) == (3, {"gif": 1, "jpeg": 1, "png": 1})
    assert found["sizes"] == [[8, 6, 2], [20, 10, 1]]
    assert (found["widths"]["min"], found["widths"]["max"], found["heights"]["mean"]) == (8, 20, 22 / 3)
    assert found["channels"] == {"3": 2, "1": 1}
    assert found["colours"]["grey"] == 1


def test_a_column_without_images_has_no_word_of_them(described):
    assert "images" not in described([{"x": [b"a text that is longer than a header"]}])


def test_an_image_without_a_size_is_counted_as_such(described):
    found = described([{"x": [b"\x89PNG\r\n\x1a\n" + bytes(40)]}])["images"]
    assert (found["count"], found["without_size"], found["sizes"]) == (1, 1, [])


def test_a_key_of_two_kinds_is_described_by_the_more_frequent_one(described):
    found = described([{"x": [1]}, {"x": [0.5]}, {"x": [2]}, {"x": None}])
    assert (found["kind"], found["kinds"]) == ("int64", {"int64": 2, "float": 1})
    assert (found["present"], found["missing"], found["max"]) == (3, 1, 2)


def test_few_different_integers_are_taken_for_classes(described):
    found = described([{"x": [i % 3 // 2]} for i in range(12)])
    assert (found["classes"], found["imbalance"]) == ({"0": 8, "1": 4}, 2.0)


def test_one_value_everywhere_is_a_constant_and_no_class(described):
    assert "classes" not in described([{"x": [3]} for _ in range(10)])
    assert described([{"label": [3]} for _ in range(10)], "label")["classes"] == {"3": 10}


def test_many_values_are_classes_only_where_the_name_says_so(described):
    rows = [{"x": [i % 30], "class/label": [i % 30]} for i in range(90)]
    assert "classes" not in described(rows)
    assert len(described(rows, "class/label")["classes"]) == 30


def test_a_schema_names_the_classes_even_those_that_do_not_occur(described):
    schema = rk.Schema({"kind": rk.Label(["cat", "dog", "emu"], key="x"), "y": rk.Int64()})
    rows = [{"x": [0], "y": [1]}] * 3 + [{"x": [1], "y": [1]}, {"x": [7], "y": [1]}]
    found = described(rows, schema=schema)
    assert found["classes"] == {"cat": 3, "dog": 1, "emu": 0, "7 (not declared)": 1}
    assert found["imbalance"] == 3.0
    assert "classes" not in described(rows, "y", schema=schema), "the schema says that it is no label"


def test_a_feature_of_the_schema_that_no_record_has_is_missing_everywhere(described):
    found = described([{"x": [1]}], "y", schema=rk.Schema({"y": rk.Float32(optional=True)}))
    assert (found["kind"], found["present"], found["missing"], found["unique"]) == ("float", 0, 1, 0)


def test_many_values_are_said_to_be_counted_about(described):
    rows = [{"x": list(range(i * 1_000, (i + 1) * 1_000))} for i in range(20)]
    found = described(rows)
    assert not found["unique_is_exact"]
    assert not found["top_is_exact"]
    assert not found["quantiles_is_exact"]
    assert found["unique"] == pytest.approx(20_000, rel=0.03)
    assert found["quantiles"]["0.5"] == pytest.approx(10_000, abs=100)
    assert (found["min"], found["max"], found["mean"]) == (0, 19_999, 9_999.5)
    assert sum(found["histogram"]["counts"]) == 20_000


def test_sequences_have_steps(put_records):
    records = [
        sequence_bytes({"id": [1], "a": [b"x"]}, {"a": [[1, 2], [3]], "b": [[0.5]]}),
        sequence_bytes({"id": [2], "a": [b"y"]}, {"a": [[4]]}),
    ]
    found = rk.stats(put_records(records))
    assert list(found.features) == ["a", "id", "steps/a", "b"]
    steps = found.features["steps/a"].to_dict()
    assert (steps["group"], steps["present"], steps["values"], steps["max"]) == ("steps", 2, 4, 4)
    assert (steps["steps"]["min"], steps["steps"]["max"], steps["steps"]["mean"]) == (1, 2, 1.5)
    assert (steps["values_min"], steps["values_max"]) == (1, 2)
    assert found.features["b"].to_dict()["missing"] == 1
    assert "group" not in found.features["a"].to_dict()


def test_lists_without_a_step_are_present_and_of_no_kind(put_records):
    found = rk.stats(put_records([sequence_bytes({}, {"a": []}), sequence_bytes({}, {"a": [None]})]))
    steps = found.features["a"].to_dict()
    assert (steps["kind"], steps["kinds"], steps["present"], steps["missing"]) == (None, {}, 2, 0)
    assert (steps["steps"]["min"], steps["steps"]["max"], steps["values"]) == (0, 1, 0)


def test_splits_have_statistics_of_their_own(put_records, tmp_path):
    put_records([example_bytes({"x": [i]}) for i in range(3)], "val-00000-of-00001.tfrecord")
    put_records([example_bytes({"x": [10]})], "train-00000-of-00002.tfrecord")
    put_records([example_bytes({"x": [20]})], "train-00001-of-00002.tfrecord")
    found = rk.stats(tmp_path)
    assert list(found.splits) == ["train", "val"]
    assert [part.records for part in found.splits.values()] == [2, 3]
    assert found.splits["train"].features["x"].numbers.moments.mean == 15
    assert (found.records, found.features["x"].numbers.moments.max) == (5, 20)
    assert found.to_dict()["splits"]["val"]["features"]["x"]["max"] == 2


def test_the_manifest_gives_splits_and_class_names(tmp_path):
    rows = [{"label": "cat" if i % 4 else "dog", "x": i} for i in range(40)]
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "x": rk.Int64()})
    rk.write(rows, tmp_path / "out", schema=schema, split={"train": 0.5, "test": 0.5}, progress=False, workers=1)
    found = rk.stats(tmp_path / "out")
    assert sorted(found.splits) == ["test", "train"]
    assert found.features["label"].classes == {"cat": 30, "dog": 10}
    assert found.ok


def test_a_tfds_folder_gives_splits_and_class_names(put_records, tmp_path):
    for name, labels in (("train", [0, 0, 1]), ("test", [1])):
        put_records([example_bytes({"label": [label]}) for label in labels], f"pets-{name}.tfrecord-00000-of-00001")
    splits = [
        {"name": "train", "shardLengths": ["3"]},
        {"name": "test", "shardLengths": ["1"]},
    ]
    (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "pets", "splits": splits}))
    schema = rk.Schema({"label": rk.Label(["cat", "dog"])})
    (tmp_path / "features.json").write_text(json.dumps(features_from_schema(schema)))
    for name, content in build_label_files(schema).items():
        (tmp_path / name).write_bytes(content)
    found = rk.stats(tmp_path)
    assert list(found.splits) == ["train", "test"]
    assert found.features["label"].classes == {"cat": 2, "dog": 2}
    assert found.ok


def test_a_file_that_the_manifest_does_not_list_is_not_read(put_records, tmp_path):
    rk.write([{"x": i} for i in range(4)], tmp_path / "out", progress=False, workers=1)
    put_records([example_bytes({"x": [100]})], "out/more.tfrecord")
    found = rk.stats(tmp_path / "out")
    assert (found.records, list(found.splits), found.ok) == (4, ["train"], True)


def test_a_manifest_that_cannot_be_used_is_damage_and_the_shards_go_by_their_names(tmp_path):
    rk.write([{"x": i} for i in range(4)], tmp_path / "out", progress=False, workers=1)
    (tmp_path / "out" / "rekord.json").write_text("{")
    found = rk.stats(tmp_path / "out")
    assert [(each.code, each.path) for each in found.damage] == [("X515", str(tmp_path / "out" / "rekord.json"))]
    assert (found.records, list(found.splits)) == (4, ["train"])


def test_a_missing_shard_is_damage_and_the_rest_is_read(put_records, tmp_path):
    put_records([example_bytes({"x": [1]})], "train-00000-of-00002.tfrecord")
    found = rk.stats(tmp_path)
    assert [finding.code for finding in found.damage] == ["X505"]
    assert (found.records, found.ok) == (1, False)


def test_damage_is_passed_over_and_told(put_file):
    data = frames([example_bytes({"x": [i]}) for i in range(10)])
    path = put_file(corrupt_payload(data, 4))
    found = rk.stats(path)
    assert found.records == 9
    assert found.features["x"].to_dict()["mean"] == (45 - 4) / 9
    (finding,) = found.to_dict()["damage"]
    assert (finding["code"], finding["path"], finding["record"]) == ("F102", str(path), 4)


def test_what_is_no_record_file_at_all_is_an_error(put_file):
    path = put_file(b"this is no record file\n" * 9)
    with pytest.raises(rk.FrameError) as caught:
        rk.stats(path)
    assert (caught.value.code, caught.value.location.path) == ("F118", str(path))


def test_payloads_that_are_no_examples_are_told_and_have_no_features(put_records):
    found = rk.stats(put_records([b"a line of text", b"and another"]))
    document = found.to_dict()
    assert (document["records"], document["records_not_counted"], document["features"]) == (0, 2, {})
    assert [finding["code"] for finding in document["foreign"]] == ["H713"]


def test_a_file_without_records_has_no_features(put_file):
    assert rk.stats(put_file(b"")).to_dict()["features"] == {}


@pytest.mark.parametrize("threshold", [-0.1, 1.5, "0.1", None, True])
def test_a_threshold_that_no_distance_can_have_is_refused(threshold, put_records):
    with pytest.raises(rk.UsageError) as caught:
        rk.stats(put_records([]), js_threshold=threshold)
    assert caught.value.code == "U605"
    assert "js_threshold" in caught.value.what


def test_features_beyond_what_there_is_room_for_are_left_out_and_said(put_records, monkeypatch):
    monkeypatch.setattr(accumulate, "MAX_FEATURES", 5)
    found = rk.stats(put_records([example_bytes({f"k{i}": [i] for i in range(8)})]))
    assert len(found.features) == 5
    assert found.to_dict()["features_left_out"] == 3


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(st.floats(width=32), max_size=3),
    st.lists(st.binary(max_size=40), max_size=3),
    st.none(),
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=12)


def exact(part):
    """What may not depend on how records were cut into files and batches."""
    document = part.to_dict()
    for feature in document["features"].values():
        for member in ("mean", "std"):
            if feature.get(member) is not None:
                feature[member] = None
    return document


@given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=3))
@settings(max_examples=60)
def test_any_cut_into_files_and_any_grouping_gives_the_same_statistics(rows, cuts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuts")
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    payloads = [example_bytes({key: value for key, value in row.items() if value != []}) for row in rows]
    parts = []
    for i, (begin, end) in enumerate(pairwise(edges)):
        path = folder / f"{i}.tfrecord"
        path.write_bytes(frames(payloads[begin:end]))
        part = Accumulator()
        assert [one for one in accumulate.accumulate([str(path)], Report(), part) if one.severity == "error"] == []
        parts.append(part)
    whole = folder / "whole.tfrecord"
    whole.write_bytes(frames(payloads))
    at_once, forwards, backwards = Accumulator(), Accumulator(), Accumulator()
    list(accumulate.accumulate([str(whole)], Report(), at_once))
    for part in parts:
        forwards.merge(part)
    for part in reversed(parts):
        backwards.merge(part)
    expected = exact(build_part_stats("all", at_once, None))
    assert exact(build_part_stats("all", forwards, None)) == expected
    assert exact(build_part_stats("all", backwards, None)) == expected
    means = [
        one.numbers.moments.mean for one in build_part_stats("all", at_once, None).features.values() if one.numbers
    ]
    merged = [
        one.numbers.moments.mean for one in build_part_stats("all", forwards, None).features.values() if one.numbers
    ]
    for one, other in zip(means, merged, strict=True):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-30) if one is not None else other is None


@pytest.mark.parametrize("limit", ["_PENDING_ROWS", "_PENDING_BYTES", "_PENDING_COLUMNS"])
def test_it_does_not_matter_how_many_batches_are_gathered(limit, put_records, monkeypatch):
    rows = [{"x": [i % 7, i], "y": [i / 3], "z": [b"%d" % (i % 5)] * (i % 3)} for i in range(9_000)]
    path = put_records([example_bytes({key: value for key, value in row.items() if value}) for row in rows])
    at_once = exact(rk.stats(path).everything)
    monkeypatch.setattr(accumulate, limit, 1)
    piecemeal = exact(rk.stats(path).everything)
    for document in (at_once, piecemeal):
        for feature in document["features"].values():
            for member in ("quantiles", "values_quantiles", "histogram", "lengths"):
                feature.pop(member, None)  # of more values than are kept one by one
    assert piecemeal == at_once


@pytest.mark.parametrize("values", [[2**63 - 1], [-(2**63)], [2**63 - 1, 2**63 - 3], [-(2**63), 2**63 - 1]])
def test_the_histogram_of_the_largest_integers_has_all_of_them(described, values):
    counts = described([{"x": values}])["histogram"]["counts"]
    assert sum(counts) == len(values)


def test_the_least_and_the_greatest_float_have_a_histogram(described):
    most = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    found = described([{"x": [most, -most, 0.0]}])
    assert sum(found["histogram"]["counts"]) == 3
    assert found["std"] == pytest.approx(most * (2 / 3) ** 0.5)

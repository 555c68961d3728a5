"""`rk.relabel`: other labels, and everything beside them that says the same."""

import io
import os

import msgspec
import numpy as np
import pytest
from PIL import Image as Picture
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.schema.interop.label_map import format_label_map, read_label_map
from rekord.verbs.edit.change import relabel_records
from rekord.verbs.edit.common import EditTarget
from rekord.verbs.options import RelabelOptions

SCHEMA = rk.Schema({"x": rk.Int64(), "caption": rk.Text(), "label": rk.Label(["cat", "dog", "cow"])})


@pytest.fixture
def path(tmp_path):
    rows = [{"x": i, "caption": f"image {i}", "label": i // 100} for i in range(300)]
    rk.write(rows, tmp_path / "in", schema=SCHEMA, shards=6, progress=False)
    return tmp_path / "in"


def relabel(path, out, change=None, **options):
    return rk.relabel(path, out, change, progress=False, **options)


def named(dataset, column="label"):
    """The labels of a dataset by name, which of them changed, and which of the shards are other files."""
    names = dataset.schema[column].names
    return [names[row[column]] for row in dataset["train"]]


def other_shards(path, made):
    pairs = zip(rk.open(path)["train"].paths, made["train"].paths, strict=True)
    return [i for i, (a, b) in enumerate(pairs) if not os.path.samefile(a, b)]


def test_a_class_goes_into_another_and_is_gone_from_the_list(path, tmp_path):
    before = read_tree(path)
    made = relabel(path, tmp_path / "out", {"dog": "cat"})
    assert made.schema["label"].names == ("cat", "cow")
    assert named(made) == ["cat"] * 200 + ["cow"] * 100
    assert other_shards(path, made) == [2, 3, 4, 5]
    assert read_manifest(str(tmp_path / "out")).splits["train"].classes == {"label": {"0": 200, "1": 100}}
    assert [row["caption"] for row in made[:]] == [f"image {i}" for i in range(300)]
    assert rk.check(tmp_path / "out").findings == []
    assert "dog" not in (tmp_path / "out" / "schema.pbtxt").read_text()
    assert read_tree(path) == before


def test_the_last_class_goes_into_another_and_only_its_own_shards_change(path, tmp_path):
    made = relabel(path, tmp_path / "out", {"cow": "dog"})
    assert made.schema["label"].names == ("cat", "dog")
    assert other_shards(path, made) == [4, 5]
    assert named(made) == ["cat"] * 100 + ["dog"] * 200


def test_a_new_name_changes_no_record(path, tmp_path):
    done = relabel_records(path, EditTarget(out=str(tmp_path / "out")), {"cow": "ox"}, RelabelOptions())
    made = rk.open(tmp_path / "out")
    assert made.schema["label"].names == ("cat", "dog", "ox")
    assert other_shards(path, made) == []
    assert (done.counts, done.linked_shards, done.written_shards) == ({"train": 100}, 6, 0)
    assert named(made)[-1] == "ox"


@pytest.mark.parametrize(
    ("change", "names", "labels"),
    [
        ({"cat": "dog", "dog": "cat"}, ("cat", "dog", "cow"), ["dog", "cat", "cow"]),
        ({"cat": "pet", "dog": "pet"}, ("pet", "cow"), ["pet", "pet", "cow"]),
        ({"cat": "x", "dog": "cat"}, ("cat", "x", "cow"), ["x", "cat", "cow"]),
        ({0: 2, "1": "cow"}, ("cow",), ["cow", "cow", "cow"]),
        ({}, ("cat", "dog", "cow"), ["cat", "dog", "cow"]),
    ],
)
def test_classes_are_mapped_all_at_once(path, tmp_path, change, names, labels):
    made = relabel(path, tmp_path / "out", change)
    assert made.schema["label"].names == names
    assert [named(made)[i] for i in (0, 100, 200)] == labels
    assert rk.check(tmp_path / "out").findings == []


def test_some_records_get_a_class_and_the_list_stays(path, tmp_path):
    made = relabel(path, tmp_path / "out", "cow", where="x < 10 or x = 299")
    assert made.schema["label"].names == ("cat", "dog", "cow")
    assert named(made) == ["cow"] * 10 + ["cat"] * 90 + ["dog"] * 100 + ["cow"] * 100
    assert other_shards(path, made) == [0]
    made = relabel(path, tmp_path / "some", {"dog": "cat"}, where="x < 110")
    assert named(made) == ["cat"] * 110 + ["dog"] * 90 + ["cow"] * 100
    made = relabel(path, tmp_path / "new", {"dog": "wolf"}, where="x < 110")
    assert made.schema["label"].names == ("cat", "dog", "cow", "wolf")
    assert named(made)[98:112] == ["cat"] * 2 + ["wolf"] * 10 + ["dog"] * 2


def test_other_splits_are_left_alone(tmp_path):
    rows = [{"x": i, "caption": "", "label": 0} for i in range(50)]
    rk.write(rows, tmp_path / "in", schema=SCHEMA, split={"train": 0.5, "val": 0.5}, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {"cat": "dog"}, split="val")
    assert set(made["train"].to_arrow()["label"].to_pylist()) == {0}
    assert set(made["val"].to_arrow()["label"].to_pylist()) == {1}
    assert made.schema["label"].names == ("cat", "dog", "cow")


def test_a_function_gives_names_ids_or_nothing(path, tmp_path):
    made = relabel(path, tmp_path / "out", lambda batch: np.full(len(batch["x"]), 1))
    assert set(named(made)) == {"dog"}
    made = relabel(path, tmp_path / "some", lambda batch: ["cow" if x == 5 else None for x in batch["x"].tolist()])
    assert named(made) == ["cat"] * 5 + ["cow"] + ["cat"] * 94 + ["dog"] * 100 + ["cow"] * 100
    assert other_shards(path, made) == [0]


def test_a_new_list_of_classes_may_be_in_another_order(path, tmp_path):
    made = relabel(path, tmp_path / "out", names=["cow", "emu", "cat", "dog"])
    assert made.schema["label"].names == ("cow", "emu", "cat", "dog")
    assert named(made) == ["cat"] * 100 + ["dog"] * 100 + ["cow"] * 100
    made = relabel(path, tmp_path / "fewer", {"dog": "pet", "cat": "pet"}, names=["cow", "pet"])
    assert named(made) == ["pet"] * 200 + ["cow"] * 100
    made = relabel(path, tmp_path / "more", "emu", where="x = 0", names=["cat", "dog", "cow", "emu"])
    assert (named(made)[0], other_shards(path, made)) == ("emu", [0])


def test_labels_come_from_a_file_by_key_or_by_number(path, tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("x,label\n7,cow\n250,0\n")
    made = relabel(path, tmp_path / "out", file=file)
    assert (named(made)[7], named(made)[250]) == ("cow", "cat")
    assert other_shards(path, made) == [0, 5]
    file.write_text("\ufeffcaption,x,label\r\nimage 8,700,cow\r\n")
    made = relabel(path, tmp_path / "key", file=file, key="caption")
    assert (named(made)[8], other_shards(path, made)) == ("cow", [0])
    file.write_text("split,record,label\ntrain,299,dog\n")
    made = relabel(path, tmp_path / "number", file=file)
    assert (named(made)[299], other_shards(path, made)) == ("dog", [5])


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("x,label\n1,cat\n9999,dog\n", "X571", 3),
        ("split,record,label\ntrain,300,dog\n", "X571", 2),
        ("split,record,label\ntest,3,dog\n", "X571", 2),
        ("split,record,label\ntrain,-3,dog\n", "U624: list of labels or records cannot be read", 2),
        ("x,label\n1,cat\n1,dog\n", "U624: list of labels or records cannot be read", 3),
        ("x,label\n1\n", "U624: list of labels or records cannot be read", 2),
        ("x,label\n1,mouse\n", "U606: `label` has no class 'mouse'", 2),
        ("x,lable\n1,cat\n", "U624: list of labels or records cannot be read", 1),
        ("label\ncat\n", "U624: list of labels or records cannot be read", 1),
        ("x,caption,label\n1,a,cat\n", "U624: list of labels or records cannot be read", 1),
        ('x,label\n1,"cat\n', "U624: list of labels or records cannot be read", 2),
        ("", "U624: list of labels or records cannot be read", 1),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_by_its_line(path, tmp_path, text, code, line):
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(rk.RekordError) as caught:
        relabel(path, tmp_path / "out", file=file)
    assert str(caught.value).startswith(code)
    assert caught.value.location.path == str(file)
    assert caught.value.location.line == line
    assert sorted(os.listdir(tmp_path)) == ["in", "labels.csv"]


def test_a_file_that_is_no_text_is_refused(path, tmp_path):
    file = tmp_path / "labels.csv"
    file.write_bytes(b"x,label\n\xff\xfe,cat\n")
    with pytest.raises(rk.UsageError) as caught:
        relabel(path, tmp_path / "out", file=file)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U624",
        "list of labels or records cannot be read",
        str(file),
    )
    with pytest.raises(rk.DatasetError) as missing:
        relabel(path, tmp_path / "out", file=tmp_path / "none.csv")
    assert (missing.value.code, missing.value.location.path) == ("X501", str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ({"mouse": "cat"}, {}, "U606: `label` has no class 'mouse'"),
        ({"cat": 3}, {}, "U606: `label` has no class 3"),
        ({"cat": -1}, {}, "U606: `label` has no class -1"),
        ({"cat": True}, {}, "U606: `label` has no class True"),
        ({3: "cat"}, {}, "U606: `label` has no class 3"),
        ("mouse", {"where": "x = 1"}, "U606: `label` has no class 'mouse'"),
        (lambda batch: [3] * len(batch["x"]), {}, "U606: `label` has no class 3"),
        (lambda batch: ["cat"], {}, "U622: function must return one value per record"),
        (lambda batch: 1, {}, "U622: function must return one value per record"),
        (None, {}, "U605: `change` is required"),
        (
            None,
            {"names": ["cat", "dog"]},
            "U605: class `cow` has records, but is not among the new classes",
        ),
        (None, {"names": 2}, "U605: class `cow` has records, but is not among the new classes"),
        (
            None,
            {"where": "x = 1", "names": 3},
            "U605: `where` selects records, but no class is given for them",
        ),
        ({"cat": "dog"}, {"column": "caption"}, "U605: `caption` does not hold classes"),
        ({"cat": "dog"}, {"key": "x"}, "U605: `key` does not apply without `file`"),
        ({"cat": "dog"}, {"file": "labels.csv"}, "U605: `change` and `file` cannot be combined"),
        (
            {0: 1},
            {"column": "x", "names": ["a", "b"]},
            "U605: `names` does not apply to `x`, which is not a Label",
        ),
        (1.5, {}, "U605: `change` cannot be 1.5"),
        (None, {"file": 3}, "U605: `file` cannot be"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_appears(path, tmp_path, change, options, code):
    with pytest.raises(rk.UsageError) as caught:
        relabel(path, tmp_path / "out", change, **options)
    assert str(caught.value).startswith(code)
    assert os.listdir(tmp_path) == ["in"]


def test_a_function_that_gives_no_class_is_told_by_the_record(path, tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        relabel(path, tmp_path / "out", lambda batch: np.where(batch["x"] == 120, 3, 0))
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U606",
        "`label` has no class 3",
        "3",
    )
    assert caught.value.location.path == rk.open(path)["train"].paths[2]
    assert (caught.value.location.record, caught.value.location.feature) == (20, "label")


def test_a_label_that_was_not_there_can_be_set_and_others_stay_away(tmp_path):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog"], optional=True)})
    rows = [{"x": i, "label": None if i % 2 else 0} for i in range(10)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {"cat": "dog"})
    assert made.schema["label"] == rk.Label(["dog"], optional=True)
    assert [row["label"] for row in made[:]] == [None if i % 2 else 0 for i in range(10)]
    done = relabel_records(
        tmp_path / "in", EditTarget(out=str(tmp_path / "set")), "dog", RelabelOptions(where="x < 4")
    )
    assert [row["label"] for row in rk.open(tmp_path / "set")[:]] == [1, 1, 1, 1, 0, None, 0, None, 0, None]
    assert done.counts == {"train": 4}


def test_plain_numbers_are_changed_by_number(tmp_path):
    schema = rk.Schema({"label": rk.Int64(range=(0, 9)), "k": rk.Int64(dtype="uint8")})
    rk.write([{"label": i % 5, "k": i} for i in range(20)], tmp_path / "in", schema=schema, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {4: 9, "3": 0})
    assert [row["label"] for row in made[:]][:5] == [0, 1, 2, 0, 9]
    made = relabel(tmp_path / "in", tmp_path / "k", 200, column="k", where="k > 17")
    assert [row["k"] for row in made[:]][-3:] == [17, 200, 200]
    with pytest.raises(rk.EncodeError) as caught:
        relabel(tmp_path / "in", tmp_path / "far", {4: 10})
    assert caught.value.location.feature == "label"
    assert not (tmp_path / "far").exists()


def test_classes_without_names_keep_their_number(tmp_path):
    schema = rk.Schema({"label": rk.Label(4)})
    rk.write([{"label": i % 4} for i in range(20)], tmp_path / "in", schema=schema, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {3: 0})
    assert (made.schema["label"].count, [row["label"] for row in made[:]][:4]) == (4, [0, 1, 2, 0])
    made = relabel(tmp_path / "in", tmp_path / "names", names=["a", "b", "c", "d"])
    assert named(made)[:4] == ["a", "b", "c", "d"]
    made = relabel(tmp_path / "in", tmp_path / "fewer", {3: 0}, names=3)
    assert (made.schema["label"].count, [row["label"] for row in made[:]][:4]) == (3, [0, 1, 2, 0])


def test_the_default_of_a_label_goes_along(tmp_path):
    for default in ("cow", 2):
        schema = rk.Schema({"label": rk.Label(["cat", "dog", "cow"], default=default)})
        folder = tmp_path / str(default)
        rk.write([{}, {"label": 0}], folder / "in", schema=schema, progress=False)
        made = relabel(folder / "in", folder / "out", {"dog": "cat"})
        assert named(made) == ["cow", "cat"]
        assert rk.decode(rk.encode({}, made.schema), made.schema)["label"] == 1


def test_several_classes_a_record_are_mapped_one_by_one(tmp_path):
    schema = rk.Schema({"tags": rk.Label(["a", "b", "c"], shape=(None,)), "two": rk.Int64(shape=(2,))})
    rows = [{"tags": list(range(i % 4)), "two": [i, i + 1]} for i in range(40)]
    rk.write(rows, tmp_path / "in", schema=schema, shards=4, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {"b": "a"})
    assert made.schema["tags"].names == ("a", "c")
    assert [row["tags"].tolist() for row in made[:]][:4] == [[], [0], [0, 0], [0, 0, 1]]
    made = relabel(tmp_path / "in", tmp_path / "two", {3: 100}, column="two")
    assert [row["two"].tolist() for row in made[:]][2:4] == [[2, 100], [100, 4]]
    assert other_shards(tmp_path / "in", made) == [0]
    with pytest.raises(rk.UsageError) as caught:
        relabel(tmp_path / "in", tmp_path / "set", "a", column="tags")
    assert (caught.value.code, caught.value.what, caught.value.location.feature) == (
        "U605",
        "`tags` holds several classes per record",
        "tags",
    )


def test_a_text_that_names_the_class_too_is_told_of(tmp_path):
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "word": rk.Text(), "other": rk.Text()})
    rows = [{"label": i % 2, "word": ("cat", "dog")[i % 2], "other": f"{i}"} for i in range(10)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    done = relabel_records(tmp_path / "in", EditTarget(out=str(tmp_path / "out")), {"dog": "wolf"}, RelabelOptions())
    assert done.notes == ("`word` also holds the class names, and was not changed",)
    done = relabel_records(
        tmp_path / "in", EditTarget(out=str(tmp_path / "order")), None, RelabelOptions(names=["dog", "cat"])
    )
    assert done.notes == ()


def image():
    data = io.BytesIO()
    Picture.new("RGB", (8, 6), "red").save(data, "JPEG")
    return data.getvalue()


@pytest.mark.parametrize("first", [0, 1])
def test_texts_and_synsets_of_classification_are_kept_true(tmp_path, first):
    names, synsets = ["cat", "dog", "cow"], ["n1", "n2", "n3"]
    layout = rk.layouts.classification(classes=names, synsets=synsets, background=first == 1)
    rows = [{"image": image(), "filename": f"{i}.jpg", "label": i % 3} for i in range(6)]
    rk.write(rows, tmp_path / "in", layout=layout, shards=3, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {"dog": "cat", "cow": "ox"})
    assert made.schema["label"].names == ("background", "cat", "ox")[1 - first :]
    assert [(row["label"], row["text"], row["synset"]) for row in made[:]][:3] == [
        (first, "cat", "n1"),
        (first, "cat", "n1"),
        (first + 1, "ox", "n3"),
    ]
    options = read_manifest(str(tmp_path / "out")).options["layout"]
    assert (options["classes"], options["synsets"]) == (["cat", "ox"], ["n1", "n3"])
    set_one = relabel(tmp_path / "in", tmp_path / "set", "cow", where="filename = '0.jpg'")
    assert next((row["label"], row["text"], row["synset"]) for row in set_one[:]) == (first + 2, "cow", "n3")
    assert [row["image"] for row in set_one[:]] == [image()] * 6
    more = rk.append(tmp_path / "out", [{**rows[0], "label": "ox"}], tmp_path / "more", progress=False)
    assert more[6]["text"] == "ox"


def test_class_names_and_the_label_map_of_detection_are_kept_true(tmp_path):
    layout = rk.layouts.detection(classes={1: "car", 3: "bus", 7: "van"})
    rows = [
        {
            "image": image(),
            "filename": f"{i}.jpg",
            "boxes": [[0, 0, 4, 4], [1, 1, 5, 5]],
            "labels": [1, one],
        }
        for i, one in enumerate([3, 7])
    ]
    rk.write(rows, tmp_path / "in", layout=layout, shards=2, progress=False)
    (tmp_path / "in" / "label_map.pbtxt").write_text(format_label_map({1: "car", 3: "bus", 7: "van"}))
    manifest = read_manifest(str(tmp_path / "in"))
    listed = sorted({*manifest.companions, "label_map.pbtxt"})
    told = msgspec.structs.replace(manifest, companions=listed).to_json()
    (tmp_path / "in" / "rekord.json").write_bytes(told)
    made = relabel(tmp_path / "in", tmp_path / "out", {"van": "bus", "car": "auto"})
    assert [row["labels"].tolist() for row in made[:]] == [[1, 3], [1, 3]]
    assert [list(row["class_names"]) for row in made[:]] == [["auto", "bus"], ["auto", "bus"]]
    assert read_label_map(tmp_path / "out" / "label_map.pbtxt") == {1: "auto", 3: "bus"}
    assert read_manifest(str(tmp_path / "out")).options["layout"]["classes"] == [[1, "auto"], [3, "bus"]]
    some = relabel(tmp_path / "in", tmp_path / "some", {"van": "bus"})
    assert other_shards(tmp_path / "in", some) == [1]
    new = relabel(tmp_path / "in", tmp_path / "new", {"car": "truck"}, where="filename = '1.jpg'")
    assert [row["labels"].tolist() for row in new[:]] == [[1, 3], [8, 7]]
    assert [list(row["class_names"]) for row in new[:]] == [["car", "bus"], ["truck", "van"]]
    assert read_label_map(tmp_path / "new" / "label_map.pbtxt") == {1: "car", 3: "bus", 7: "van", 8: "truck"}


def test_three_workers_make_the_same_bytes_as_one(path, tmp_path):
    for workers in (1, 3):
        relabel(path, tmp_path / f"out{workers}", {"dog": "cat"}, workers=workers)
    assert read_tree(tmp_path / "out1") == read_tree(tmp_path / "out3")


def test_the_steps_of_sequences_stay_as_they_are(tmp_path):
    schema = rk.Schema(context={"label": rk.Label(["a", "b"])}, steps={"v": rk.Float32(shape=(2,))})
    rows = [{"label": i % 2, "v": [[i, j] for j in range(i % 3)]} for i in range(9)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    made = relabel(tmp_path / "in", tmp_path / "out", {"a": "z", "b": "a"})
    assert [row["v"].tolist() for row in made[:]] == [row["v"].tolist() for row in rk.open(tmp_path / "in")[:]]
    assert named(made)[:2] == ["z", "a"]


def test_keys_that_the_schema_does_not_name_are_never_lost(tmp_path):
    rows = [{"x": i, "note": str(i), "label": 0} for i in range(10)]
    rk.write(rows, tmp_path / "all", progress=False)
    narrow = rk.Schema({"x": rk.Int64(), "label": rk.Int64()})
    files = rk.open(str(tmp_path / "all" / "*.tfrecord"), schema=narrow)
    rk.rewrite(files, tmp_path / "in", shards=2, progress=False)
    with pytest.raises(rk.DatasetError) as caught:
        rk.relabel(tmp_path / "in", tmp_path / "out", 1, where="x = 7", progress=False)
    found = caught.value
    assert (found.code, found.location.feature, found.location.record) == ("X572", "note", 0)
    assert found.location.path == str(tmp_path / "in" / "train-00001-of-00002.tfrecord")
    assert not (tmp_path / "out").exists()
    rk.rewrite(tmp_path / "in", tmp_path / "kept", keep=["x", "label"], progress=False)
    new = rk.relabel(tmp_path / "kept", tmp_path / "new", 1, where="x = 7", progress=False)
    assert [int(row["label"]) for row in new[:]] == [0] * 7 + [1] + [0] * 2
    assert [sorted(rk.decode(record)) for record in rk.records(new["train"].paths[0])] == [["label", "x"]] * 10


def test_a_text_column_named_label_does_not_hold_classes(tmp_path):
    rk.write([{"label": "cat"}, {"label": "dog"}], tmp_path / "in", progress=False)
    with pytest.raises(rk.UsageError, match="U605: `label` does not hold classes") as caught:
        rk.relabel(tmp_path / "in", tmp_path / "out", {"cat": "dog"})
    assert caught.value.do == "declare it as a Label in the schema, and write the dataset again"

"""What `train` makes of a schema: the target, its classes, the inputs, and what is left out."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import example
from training_rows import Row, Written, image, refusal, split_of

import rekord as rk
from rekord.training.choose import check_target, choose_task


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return partial(split_of, tmp_path / "train.tfrecord")


def dataset(rows: list[Row], out: Path, **options: Any) -> Any:
    return rk.write(rows, out, progress=False, **options)["train"]


def inputs_of(task: Any) -> dict[str, str]:
    return {each.column: each.form for each in task.inputs}


# The target.


def test_an_image_with_a_label_is_classified_from_the_image_alone(tmp_path):
    layout = rk.layouts.classification(classes=["cat", "dog"])
    rows = [{"image": image(i), "label": i % 2, "filename": f"{i}.png"} for i in range(6)]
    task = choose_task(dataset(rows, tmp_path / "data", layout=layout))
    assert (task.kind, task.target, inputs_of(task)) == ("classification", "label", {"image": "image"})
    assert (task.classes, task.values) == (("cat", "dog"), None)
    assert task.left_out == {
        "format": "describes how the image is stored",
        "filename": "identifies the source of the record",
        "height": "describes how the image is stored",
        "width": "describes how the image is stored",
        "channels": "describes how the image is stored",
        "colorspace": "describes how the image is stored",
        "text": "has the class name, and would leak `label`",
    }


def test_a_mask_beside_an_image_is_segmented_and_what_it_ignores_is_known(tmp_path):
    rows = [{"image": image(i), "mask": image(i % 3, mode="L"), "filename": f"{i}"} for i in range(4)]
    task = choose_task(dataset(rows, tmp_path / "data", layout=rk.layouts.deeplab(classes=3, ignore=255)))
    assert (task.kind, task.target, task.classes, task.ignore) == (
        "segmentation",
        "mask",
        ("0", "1", "2"),
        255,
    )
    assert inputs_of(task) == {"image": "image"}
    assert task.left_out["filename"] == "identifies the source of the record"
    assert task.left_out["mask_format"] == "describes how the image is stored"


def test_a_mask_is_not_learned_where_another_label_is_named(written):
    schema = {"image": rk.Image(), "mask": rk.Mask(classes=3), "label": rk.Label(2)}
    rows = [{"image": image(i), "mask": image(1, mode="L"), "label": i % 2} for i in range(4)]
    split = written(rows, schema)
    assert choose_task(split).kind == "segmentation"
    task = choose_task(split, label="label")
    assert (task.kind, inputs_of(task)) == ("classification", {"image": "image"})
    assert task.left_out == {"mask": "a mask; --label mask makes it the target"}


@pytest.mark.parametrize(
    "name", ["label", "Label", "class", "target", "Y", "category", "image/class/label", "a/labels"]
)
def test_a_column_that_is_called_so_is_the_target(written, name):
    task = choose_task(written([{"x": [i, 1.5], name: i % 3} for i in range(30)]))
    assert (task.kind, task.target, task.classes, task.values) == (
        "classification",
        name,
        ("0", "1", "2"),
        (0, 1, 2),
    )


def test_the_only_label_goes_before_columns_that_are_called_so(written):
    schema = {"x": rk.Float32(), "kind": rk.Label(["a", "b"]), "label": rk.Int64()}
    rows = [{"x": i / 7, "kind": i % 2, "label": i % 5} for i in range(40)]
    task = choose_task(written(rows, schema))
    assert (task.target, task.classes) == ("kind", ("a", "b"))
    assert inputs_of(task) == {"x": "numbers", "label": "numbers"}


@pytest.mark.parametrize(
    ("values", "classes", "stored"),
    [
        ([7, -2], ("-2", "7"), (-2, 7)),
        ([True, False], ("False", "True"), (False, True)),
        (["ham", "spam"], ("ham", "spam"), ("ham", "spam")),
        ([b"ham", b"\xff"], ("ham", "\ufffd"), (b"ham", b"\xff")),
    ],
)
def test_the_classes_of_a_column_are_the_values_that_occur(written, values, classes, stored):
    task = choose_task(written([{"x": i / 3, "label": values[i % 2]} for i in range(30)]))
    assert (task.kind, task.classes, task.values) == ("classification", classes, stored)


@pytest.mark.parametrize("feature", [rk.Float32(), rk.Tensor("float64"), rk.Tensor("bfloat16")])
def test_a_float_is_a_regression(written, feature):
    rows = [{"x": [i, -i], "price": float(i % 7)} for i in range(30)]
    task = choose_task(written(rows, {"x": rk.Float32(shape=(2,)), "price": feature}), label="price")
    assert (task.kind, task.classes, task.values, task.metric) == (
        "regression",
        (),
        None,
        "mean absolute error",
    )


def test_a_label_without_names_is_numbered(written):
    task = choose_task(written([{"x": i / 3, "k": i % 3} for i in range(9)], {"x": rk.Float32(), "k": rk.Label(4)}))
    assert task.classes == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("schema", "rows", "label", "what", "found"),
    [
        (
            {"a": rk.Label(2), "b": rk.Label(3), "x": rk.Float32()},
            [{"a": i % 2, "b": i % 3, "x": i} for i in range(6)],
            None,
            "several columns could be the target",
            "`a` Label, `b` Label",
        ),
        (
            {"x": rk.Float32(shape=(2,)), "n": rk.Int64()},
            [{"x": [i, i], "n": i} for i in range(6)],
            None,
            "cannot determine the target column",
            "`x` Float32 (2,), `n` Int64",
        ),
        (
            {"x": rk.Float32(), "label": rk.Int64(shape=(None,))},
            [{"x": i, "label": [i]} for i in range(6)],
            "label",
            "no baseline model learns `label`",
            "Int64 (None,)",
        ),
        (
            {"image": rk.Image(), "boxes": rk.Boxes(), "labels": rk.Int64(shape=(None,))},
            [{"image": image(9), "boxes": [[0, 0, 1, 1]], "labels": [1]}],
            None,
            "no baseline model for boxes",
            "`image` Image, `boxes` Boxes, `labels` Int64 (None,)",
        ),
        (
            {"image": rk.Image(), "boxes": rk.Boxes()},
            [{"image": image(9), "boxes": [[0, 0, 1, 1]]}],
            "boxes",
            "no baseline model for boxes",
            "Boxes",
        ),
    ],
)
def test_what_no_baseline_learns_is_said_with_the_columns_that_there_are(written, schema, rows, label, what, found):
    failure = refusal(lambda: choose_task(written(rows, schema), label=label))
    assert (failure.code, failure.what, failure.found) == ("U608", what, found)
    assert failure.location.feature == label
    assert failure.do


def test_a_label_that_there_is_not_is_said_with_the_one_that_was_meant(written):
    split = written([{"x": i / 3, "price": float(i)} for i in range(6)])
    failure = refusal(lambda: choose_task(split, label="pice"))
    assert (failure.code, failure.do) == ("S116", "did you mean `price`?")


@pytest.mark.parametrize(
    ("feature", "values", "what"),
    [
        (rk.Label(3), [1], "all 30 records have the same class"),
        (rk.Label(20_000), [1, 2], "`label` has 20,000 classes"),
        (rk.Int64(), [5], "all 30 records have the same class"),
        (rk.Int64(), range(30), "`label` has 30 distinct values in 30 records"),
        (rk.Text(), [f"t{i}" for i in range(30)], "`label` has 30 distinct values in 30 records"),
        (rk.Float32(), [2.5], "all 30 records have the same number"),
        (rk.Float32(), [1.0, float("nan")], "15 of 30 records have no finite number in `label`"),
        (rk.Label(3, optional=True), [0, 1, None], "10 of 30 records have no class in `label`"),
        (rk.Float32(optional=True), [0.5, 1.5, None], "10 of 30 records have no value in `label`"),
        (rk.Text(optional=True), ["a", "b", None], "10 of 30 records have no class in `label`"),
    ],
)
def test_a_target_that_cannot_be_learned_is_refused_with_how_many_records(written, feature, values, what):
    values = list(values)
    rows = [{"x": i / 3, "label": values[i % len(values)]} for i in range(30)]
    failure = refusal(lambda: choose_task(written(rows, {"x": rk.Float32(), "label": feature}), label="label"))
    assert (failure.code, failure.what, failure.location.feature) == ("U608", what, "label")


def test_the_remedy_for_missing_targets_is_one_that_works(tmp_path):
    rows = [{"x": i / 3, "a/label": None if i < 5 else i % 2} for i in range(30)]
    schema = rk.Schema({"x": rk.Float32(), "a/label": rk.Int64(optional=True)})
    split = dataset(rows, tmp_path / "data", schema=schema)
    failure = refusal(lambda: choose_task(split))
    assert (failure.code, failure.what, failure.location.record) == (
        "U608",
        "5 of 30 records have no class in `a/label`",
        0,
    )
    assert failure.do == 'rekord rewrite IN OUT --where "\\"a/label\\" is not null", and train on OUT'
    where = failure.do.split('--where "')[1].split('", and')[0].replace('\\"', '"')
    better = rk.rewrite(tmp_path / "data", tmp_path / "better", where=where, progress=False)
    assert choose_task(better["train"]).values == (0, 1)


def test_the_remedy_for_a_number_that_is_no_class_is_one_that_works(tmp_path):
    split = dataset([{"x": i / 3, "label": i * 3} for i in range(30)], tmp_path / "data")
    failure = refusal(lambda: choose_task(split))
    assert failure.do == "rekord rewrite IN OUT --cast label=float32, and train on OUT, to learn it as a number"
    better = rk.rewrite(tmp_path / "data", tmp_path / "better", cast={"label": "float32"}, progress=False)
    assert choose_task(better["train"]).kind == "regression"


def test_masks_that_are_missing_are_counted(written):
    schema = {"image": rk.Image(), "mask": rk.Mask(classes=3, optional=True)}
    rows = [{"image": image(i), "mask": None if i == 2 else image(1, mode="L")} for i in range(4)]
    failure = refusal(lambda: choose_task(written(rows, schema)))
    assert (failure.code, failure.what) == ("U608", "1 of 4 records have no value in `mask`")
    assert (failure.location.record, failure.location.feature) == (2, "mask")


def test_the_first_number_that_is_none_is_located_also_in_a_view(written):
    rows = [{"x": i / 3, "y": float("inf") if i in (7, 9) else i * 2.0} for i in range(20)]
    failure = refusal(lambda: choose_task(written(rows)[4:]))
    assert (failure.code, failure.what) == ("U608", "2 of 16 records have no finite number in `y`")
    assert failure.location.path is not None
    assert failure.location.path.endswith("train.tfrecord")
    assert (failure.location.record, failure.location.feature) == (7, "y")


def test_a_dataset_without_records_has_nothing_to_learn_from(written):
    split = written([{"x": 1.0, "label": 0}], {"x": rk.Float32(), "label": rk.Label(2)})
    failure = refusal(lambda: choose_task(split.take(0)))
    assert (failure.code, failure.what) == ("U608", "split has no records")


def test_another_split_with_a_class_of_its_own_is_refused_before_training(written):
    split = written([{"x": i / 3, "label": "cat" if i < 20 else f"dog{i % 4}"} for i in range(40)])
    task = choose_task(split[:22])
    check_target(split[:20], task)
    failure = refusal(lambda: check_target(split, task))
    assert (failure.code, failure.what, failure.location.feature) == (
        "U608",
        "10 records of `train` have a class that the training split lacks",
        "label",
    )
    assert failure.what == "10 records of `train` have a class that the training split lacks"
    assert failure.found == "2 other classes, such as 'dog2'"


# The inputs.


def table(**columns: Any) -> list[dict[str, Any]]:
    """40 rows whose label is random, so that nothing gives it away."""
    labels = np.random.default_rng(3).integers(0, 3, 40).tolist()
    return [{**{name: value(i) for name, value in columns.items()}, "label": labels[i]} for i in range(40)]


def test_numbers_classes_and_strings_are_taken_together(written):
    rows = table(
        age=lambda i: i % 17,
        flag=lambda i: i % 3 == 0,
        vector=lambda i: [i, 0.5],
        city=lambda i: ["Bonn", "Köln"][i % 2],
        note=lambda i: f"note {i}",
        kind=lambda i: i % 4,
        tokens=lambda i: [1] * (i % 3),
    )
    schema = {
        "age": rk.Int64(),
        "flag": rk.Int64(dtype="bool"),
        "vector": rk.Float32(shape=(2,)),
        "city": rk.Text(),
        "note": rk.Text(),
        "kind": rk.Label(4),
        "tokens": rk.Int64(shape=(None,)),
        "label": rk.Int64(),
    }
    task = choose_task(written(rows, schema), label="label")
    assert inputs_of(task) == {
        "age": "numbers",
        "flag": "numbers",
        "vector": "numbers",
        "city": "category",
        "note": "text",
        "kind": "category",
        "tokens": "tokens",
    }
    assert task.left_out == {}


@pytest.mark.parametrize(
    ("name", "feature", "value", "why"),
    [
        ("customer_id", rk.Int64(), lambda i: 7 * i, "a record id"),
        ("PassengerId", rk.Int64(), lambda i: 7 * i, "a record id"),
        ("user/uuid", rk.Text(), lambda i: f"u{i}", "a record id"),
        ("filename", rk.Text(), lambda i: f"{i}.txt", "identifies the source of the record"),
        ("country", rk.Text(), lambda i: "DE", "the same in every record"),
        ("hint", rk.Text(optional=True), lambda i: None, "no value in the sampled records"),
        ("boxes", rk.Boxes(), lambda i: [[0, 0, 1, 1]], "boxes are not supported"),
        ("many", rk.Label(9, shape=(None,)), lambda i: [1, 2], "several classes per record"),
        ("words", rk.Text(shape=(None,)), lambda i: ["a"], "a list of strings"),
        ("z", rk.Tensor("complex64", (2,)), lambda i: [1j, i], "complex numbers"),
        (
            "wave",
            rk.Float32(shape=(None,)),
            lambda i: [0.5],
            "lists of different lengths without integers",
        ),
        ("path", rk.Float32(shape=(None, 2)), lambda i: [[1, 2]], "varying shapes"),
        (
            "huge",
            rk.Sparse("float32", 70_000),
            lambda i: ([1], [2.0]),
            "70,000 values per record, more than 65,536",
        ),
        ("raw", rk.Bytes(), lambda i: bytes([255, i]), "bytes that are neither text nor images"),
        (
            "label_name",
            rk.Text(),
            lambda i: f"n{i % 9}",
            "has the class name, and would leak `label`",
        ),
    ],
)
def test_what_says_nothing_is_left_out_with_a_reason(written, name, feature, value, why):
    schema = {name: feature, "x": rk.Float32(), "label": rk.Label(3)}
    task = choose_task(written(table(**{name: value, "x": lambda i: i / 3}), schema))
    assert inputs_of(task) == {"x": "numbers"}
    assert task.left_out == {name: why}


def test_a_number_that_is_not_called_an_id_and_one_that_repeats_are_numbers(written):
    task = choose_task(written(table(steps=lambda i: i, group_id=lambda i: i % 5, key=lambda i: i % 7)))
    assert inputs_of(task) == {"steps": "numbers", "group_id": "numbers", "key": "numbers"}


def test_columns_that_give_the_answer_away_are_left_out(written):
    names = ["cat", "dog", "eel"]
    rows = table(x=lambda i: i / 3)
    for row in rows:
        row |= {"animal": names[row["label"]], "copy": float(row["label"]), "code": 10 - row["label"]}
    split = written(rows)
    task = choose_task(split, label="label")
    assert inputs_of(task) == {"x": "numbers"}
    assert inputs_of(choose_task(split, label="label", columns=["code"])) == {"code": "numbers"}  # as they say
    assert task.left_out == dict.fromkeys(
        ["animal", "copy", "code"], "leaks `label`: one value for each of its values"
    )


def test_a_copy_of_a_number_gives_it_away_and_another_number_does_not(written):
    rows = [{"x": i * 2.0, "copy": i / 8, "price": i / 8} for i in range(30)]
    task = choose_task(written(rows), label="price")
    assert inputs_of(task) == {"x": "numbers"}
    assert task.left_out == {"copy": "leaks `price`: one value for each of its values"}


def test_of_few_records_only_an_equal_column_gives_the_answer_away(written):
    rows = [{"x": 1 - i % 2, "same": i % 2, "label": i % 2} for i in range(6)]
    task = choose_task(written(rows))
    assert inputs_of(task) == {"x": "numbers"}
    assert list(task.left_out) == ["same"]


def test_where_everything_is_left_out_the_reasons_are_said(written):
    failure = refusal(lambda: choose_task(written(table(path=lambda i: f"u{i}", id=lambda i: i))))
    assert (failure.code, failure.what) == ("U608", "no input columns for `label`")
    assert failure.found == "`path`: identifies the source of the record; `id`: a record id"
    assert failure.location.feature == "label"


def test_columns_choose_the_inputs_also_beside_an_image(written):
    schema = {"image": rk.Image(), "age": rk.Int64(), "id": rk.Int64(), "label": rk.Label(3)}
    rows = table(image=lambda i: image(i), age=lambda i: i % 9, id=lambda i: i)
    split = written(rows, schema)
    assert choose_task(split).left_out["age"] == "only the image is used; --columns image,age uses both"
    assert inputs_of(choose_task(split, columns=["image", "age"])) == {"image": "image", "age": "numbers"}
    assert inputs_of(choose_task(split, columns=["id"])) == {"id": "numbers"}


@pytest.mark.parametrize(
    ("columns", "code", "what"),
    [
        (["x", "label"], "U605", "target `label` cannot be an input"),
        ([], "U605", "`columns` is empty"),
        (["z"], "S116", "schema has no column 'z'"),
        (["wave"], "U608", "`wave` cannot be an input"),
    ],
)
def test_columns_that_cannot_be_inputs_are_refused(written, columns, code, what):
    schema = {"x": rk.Float32(), "wave": rk.Float32(shape=(None,)), "label": rk.Label(3)}
    split = written(table(x=lambda i: i, wave=lambda i: [i]), schema)
    failure = refusal(lambda: choose_task(split, columns=columns))
    assert (failure.code, failure.what) == (code, what)


def test_a_mask_is_learned_from_its_own_image(written):
    schema = {"left": rk.Image(), "right": rk.Image(), "mask": rk.Mask(classes=3, of="right")}
    rows = [{"left": image(1), "right": image(2), "mask": image(1, mode="L")} for _ in range(3)]
    split = written(rows, schema)
    assert inputs_of(choose_task(split)) == {"right": "image"}
    failure = refusal(lambda: choose_task(split, columns=["left"]))
    assert (failure.code, failure.what, failure.location.feature) == (
        "U608",
        "`mask` is a mask, whose only input is its image",
        "mask",
    )


def test_tokens_are_taken_without_what_goes_along_with_them(written):
    schema = {
        "input_ids": rk.Int64(shape=(8,)),
        "attention_mask": rk.Int64(shape=(8,)),
        "codes": rk.Int64(shape=(8,)),
        "label": rk.Label(3),
    }
    rows = table(input_ids=lambda i: [i] * 8, attention_mask=lambda i: [1] * 8, codes=lambda i: [1] * 8)
    task = choose_task(written(rows, schema))
    assert inputs_of(task) == {"input_ids": "tokens", "codes": "numbers"}
    assert task.left_out == {"attention_mask": "belongs to `input_ids`, and has no information of its own"}


def test_numbers_that_are_called_an_image_are_one(written):
    schema = {"image": rk.Tensor("uint16", (12, 10, 8)), "x": rk.Float32(), "label": rk.Label(3)}
    rows = table(image=lambda i: np.zeros((12, 10, 8), np.uint16), x=lambda i: i)
    assert inputs_of(choose_task(written(rows, schema))) == {"image": "image"}


def test_images_that_nobody_declared_are_found_in_the_records(tmp_path):
    schema = rk.Schema(
        {
            "image/encoded": rk.Bytes(),
            "image/segmentation/class/encoded": rk.Bytes(),
            "image/class/label": rk.Int64(),
            "image/class/text": rk.Bytes(),
        }
    )
    with rk.Writer(tmp_path / "train.tfrecord", schema) as writer:
        for i in range(30):
            mask = image(1, mode="L")
            text = b"cat" if i % 2 else b"dog"
            writer.write(dict(zip(schema, (image(i), mask, i % 2, text), strict=True)))
    task = choose_task(rk.open(tmp_path / "train.tfrecord")["train"])
    assert (task.target, inputs_of(task)) == ("image/class/label", {"image/encoded": "image"})
    assert task.left_out == {
        "image/class/text": "has the class name, and would leak `image/class/label`",
        "image/segmentation/class/encoded": "images without an rk.Mask",
    }


def test_masks_that_nobody_declared_are_no_classes_and_the_remedy_works(tmp_path):
    declared = rk.layouts.deeplab(classes=3, ignore=255).schema
    stored = rk.Schema(
        {one.key: rk.Int64() if isinstance(one, rk.Int64) else rk.Bytes() for one in declared.values()}
    )
    (tmp_path / "foreign").mkdir()
    with rk.Writer(tmp_path / "foreign/train.tfrecord", stored) as writer:
        for i in range(8):
            sizes = {"image/height": 16, "image/width": 16, "image/channels": 3}
            pixels = {
                "image/encoded": image(i),
                "image/segmentation/class/encoded": image(i % 2, mode="L"),
            }
            writer.write({name: {**sizes, **pixels}.get(name, b"png") for name in stored})
    foreign = rk.open(tmp_path / "foreign")["train"]
    for label in (None, "image/segmentation/class/encoded"):
        failure = refusal(lambda label=label: choose_task(foreign, label=label))
        assert (failure.code, failure.location.feature) == ("U608", "image/segmentation/class/encoded")
        assert failure.found == "Bytes that are images"
        assert "rk.layouts.deeplab(classes=N, ignore=255).schema" in failure.do
    rk.rewrite(tmp_path / "foreign", tmp_path / "repaired", schema=declared, progress=False)
    task = choose_task(rk.open(tmp_path / "repaired")["train"])
    assert (task.kind, task.target, len(task.classes), task.ignore) == ("segmentation", "mask", 3, 255)


def test_steps_of_whole_numbers_are_tokens_and_other_steps_are_left_out(written):
    schema = rk.Schema(
        context={"label": rk.Label(2), "age": rk.Int64()},
        steps={"ids": rk.Int64(), "vector": rk.Float32(shape=(2,))},
    )
    rows = [
        {"label": i // 3 % 2, "age": i % 7, "ids": [1] * (i % 4), "vector": [[0, 1]] * (i % 4)} for i in range(40)
    ]
    split = written(rows, schema)
    task = choose_task(split)
    assert inputs_of(task) == {"age": "numbers", "ids": "tokens"}
    assert task.left_out == {"vector": "steps without a single integer each are not used"}
    failure = refusal(lambda: choose_task(split, label="ids"))
    assert (failure.code, failure.what) == (
        "U608",
        "`ids` has one value per step, not one per record",
    )


def test_the_same_choice_is_made_again(written):
    split = written(table(city=lambda i: "ab"[i % 2], x=lambda i: i, note=lambda i: f"n{i}"))
    assert choose_task(split) == choose_task(split)


# The pages.


@pytest.mark.parametrize("what", ["cannot determine the target", "4 of 20 records have no class"])
def test_an_example_of_the_page_says_what_it_shows(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rekord.training.run.load_keras", lambda backend: None)  # refused before it is needed
    program, message = example("U608", what)
    with contextlib.redirect_stdout(io.StringIO()):
        failure = refusal(lambda: exec(program, {"rk": rk}))
    assert failure.message == message

"""What a model is given of a batch: each input by its name, the target, and what was learned before."""

from __future__ import annotations

import io
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from training_rows import Written, image, refusal, split_of

import rekord as rk
from rekord.training.choose import choose_task
from rekord.training.inputs import BatchEncoder, InputSpec, TrainingStep
from rekord.training.statistics import fit_encoder
from rekord.training.task import InputColumn, Task


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return partial(split_of, tmp_path / "train.tfrecord")


def encoder_of(split: Any, columns: list[str] | None = None, **options: Any) -> BatchEncoder:
    return fit_encoder(split, choose_task(split, label=None, columns=columns), **options)


def steps(split: Any, encoder: BatchEncoder, batch_size: int = 1000, **options: Any) -> list[TrainingStep]:
    batches = split.batches(batch_size, **encoder.reading(), **options)
    return [batch["step"] for batch in batches]


def test_numbers_stand_side_by_side_and_what_is_missing_or_strange_is_bounded(written):
    schema = {
        "a": rk.Float32(optional=True),
        "b": rk.Int64(shape=(2,)),
        "flag": rk.Int64(dtype="bool"),
        "s": rk.Sparse("float32", 3),
        "label": rk.Label(2),
    }
    values = [1.0, 3.0, None, float("nan"), float("inf"), float("-inf")]
    rows = [{"a": values[i], "b": [i, 7], "flag": i == 0, "s": ([1], [i]), "label": i // 2 % 2} for i in range(6)]
    split = written(rows, schema)
    encoder = encoder_of(split)
    assert encoder.specs == {"numbers": InputSpec("numbers", (7,), "float32")}
    (step,) = steps(split, encoder)
    x = step.x["numbers"]
    assert (x.dtype, x.shape, step.rows) == (np.float32, (6, 7), 6)
    assert x[:, 0].tolist() == [1, 3, 2, 2, 3, 1]  # the mean of 1 and 3, the largest, the least
    assert x[:, 1].tolist() == [0, 1, 2, 3, 4, 5]
    assert x[:, 3].tolist() == [1, 0, 0, 0, 0, 0]
    assert x[:, 5].tolist() == [0, 1, 2, 3, 4, 5]
    assert encoder.numbers is not None
    assert encoder.numbers.mean[:3].tolist() == [2, 2.5, 7]
    assert encoder.numbers.variance[:3].tolist() == pytest.approx([1, 35 / 12, 1])  # of what never varies: 1
    assert (step.y.dtype, step.y.tolist()) == (np.int32, [0, 0, 1, 1, 0, 0])


def test_means_and_variances_of_many_batches_are_those_of_all_numbers(written):
    numbers = np.random.default_rng(5).normal(1e6, 3, (3000, 2))
    rows = [{"x": row.tolist(), "label": i % 2} for i, row in enumerate(numbers)]
    split = written(rows, {"x": rk.Tensor("float64", (2,)), "label": rk.Label(2)})
    encoder = encoder_of(split)
    stored = numbers.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(encoder.numbers.mean, stored.mean(0), rtol=1e-6)
    np.testing.assert_allclose(encoder.numbers.variance, stored.var(0), rtol=1e-6)


def test_numbers_that_float32_does_not_hold_become_the_largest_that_was_seen(written):
    rows = [{"x": [1e300, -1e300, 5.0, float(2**60)][i % 4], "label": i % 2} for i in range(8)]
    split = written(rows, {"x": rk.Tensor("float64"), "label": rk.Label(2)})
    (step,) = steps(split, encoder_of(split))
    assert step.x["numbers"][:4, 0].tolist() == [2.0**60, 5, 5, 2.0**60]


def test_numbers_that_float32_cannot_square_leave_the_others_as_they_are(written):
    values = [1.0, 2.0, 3.0, -3.4e38, 3.0, 2.0]
    split = written([{"x": x, "label": i % 2} for i, x in enumerate(values)])
    encoder = encoder_of(split)
    assert encoder.numbers.mean.tolist() == pytest.approx([2.2])
    assert encoder.numbers.variance.tolist() == pytest.approx([0.56])
    assert steps(split, encoder)[0].x["numbers"][:, 0].tolist() == [1, 2, 3, 1, 3, 2]


def test_a_column_without_any_number_is_zero(written):
    schema = {"x": rk.Float32(shape=(2,)), "label": rk.Label(2)}
    split = written([{"x": [i, float("nan")], "label": i % 2} for i in range(6)], schema)
    encoder = encoder_of(split)
    (step,) = steps(split, encoder)
    assert step.x["numbers"][:, 1].tolist() == [0] * 6
    assert encoder.numbers.variance.tolist()[1] == 1


def test_categories_are_numbered_from_one_and_others_are_zero(written):
    schema = {"city": rk.Text(optional=True), "kind": rk.Label(3, optional=True), "label": rk.Label(2)}
    rows = [
        {"city": ["b", "a", "c", None][i % 4], "kind": None if i == 0 else i % 3, "label": i // 4 % 2}
        for i in range(40)
    ]
    split = written(rows, schema)
    encoder = fit_encoder(split[:2], choose_task(split, label="label"))
    assert encoder.specs == {
        "category_0": InputSpec("category", (), "int32", 3),
        "category_1": InputSpec("category", (), "int32", 4),
    }
    step = steps(split, encoder)[0]
    assert step.x["category_0"][:5].tolist() == [
        2,
        1,
        0,
        0,
        2,
    ]  # in the order of the alphabet; c was not seen
    assert step.x["category_1"][:5].tolist() == [0, 2, 3, 1, 2]
    assert step.x["category_0"].dtype == np.int32


def test_words_are_numbered_by_how_often_they_occur_and_padded_to_one_length(written):
    texts = ["The cat, the CAT!", "the dog", "", None, "eel"]
    split = written(
        [{"text": texts[i % 5], "label": i // 5 % 2} for i in range(30)],
        {"text": rk.Text(optional=True), "label": rk.Label(2)},
    )
    task = Task("classification", (InputColumn("text", "text"),), "label", ("0", "1"))
    encoder = fit_encoder(split, task)
    part = encoder.to_dict()["inputs"]["text_0"]
    assert part == {"kind": "words", "column": "text", "words": ["the", "cat", "dog", "eel"], "length": 4}
    assert encoder.specs == {"text_0": InputSpec("text", (4,), "int32", 6)}
    ids = [[2, 3, 2, 3], [2, 4, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [5, 0, 0, 0]]  # never empty
    assert steps(split, encoder)[0].x["text_0"][:5].tolist() == ids
    fewer = fit_encoder(split.select([1, 4]), task)
    assert steps(split, fewer)[0].x["text_0"][0].tolist() == [4, 1]  # dog, eel and the are known, cat is not


def test_bytes_that_are_texts_are_read_as_texts(written):
    rows = [{"note": f"größe {i}".encode(), "label": i % 2} for i in range(20)]
    split = written(rows, {"note": rk.Bytes(), "label": rk.Label(2)})
    assert encoder_of(split).to_dict()["inputs"]["text_0"]["words"][0] == "größe"


def test_tokens_are_shifted_padded_cut_and_unknown_beyond_what_was_seen(written):
    schema = {"ids": rk.Int64(shape=(None,), optional=True), "label": rk.Label(2)}
    lists = [[0, 1, 2], [5], [], None, [9, -1, 3, 3, 3, 3, 3, 3]]
    split = written([{"ids": lists[i % 5], "label": i // 5 % 2} for i in range(20)], schema)
    encoder = fit_encoder(split[:4], choose_task(split))
    assert encoder.specs == {"tokens_0": InputSpec("tokens", (3,), "int32", 8)}
    x = steps(split, encoder)[0].x["tokens_0"]
    assert x[:5].tolist() == [[2, 3, 4], [7, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 5]]


def test_tokens_of_one_length_end_where_their_zeros_begin(written):
    schema = {"input_ids": rk.Int64(shape=(6,)), "label": rk.Label(2)}
    lists = [[5, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    split = written([{"input_ids": lists[i % 2], "label": i // 2 % 2} for i in range(20)], schema)
    encoder = encoder_of(split)
    assert encoder.specs == {"tokens_0": InputSpec("tokens", (3,), "int32", 8)}
    assert steps(split, encoder)[0].x["tokens_0"][:2].tolist() == [[7, 2, 5], [1, 0, 0]]


def test_very_large_tokens_share_their_ids(written):
    rows = [{"ids": [2**40 + i], "label": i % 2} for i in range(20)]
    split = written(rows, {"ids": rk.Int64(shape=(None,)), "label": rk.Label(2)})
    encoder = encoder_of(split)
    assert encoder.specs["tokens_0"].size == 65_536
    ids = np.concatenate([step.x["tokens_0"] for step in steps(split, encoder)])
    assert ids.min() >= 2
    assert ids.max() < 65_536
    assert len(np.unique(ids)) == 20


def test_lists_are_cut_at_the_length_of_most_and_never_beyond_256(written):
    schema = {"ids": rk.Int64(shape=(None,)), "label": rk.Label(2)}
    split = written([{"ids": [1] * (1000 if i == 0 else 4), "label": i % 2} for i in range(100)], schema)
    assert encoder_of(split).specs["tokens_0"].shape == (4,)
    assert encoder_of(split[:2]).specs["tokens_0"].shape == (256,)


def test_steps_of_a_sequence_are_tokens(written):
    schema = rk.Schema(context={"label": rk.Label(2)}, steps={"ids": rk.Int64()})
    split = written([{"label": i % 2, "ids": list(range(i % 3))} for i in range(20)], schema)
    assert steps(split, encoder_of(split))[0].x["tokens_0"][:3].tolist() == [[1, 0], [2, 0], [2, 3]]


@pytest.mark.parametrize(
    ("stored", "requested", "size"),
    [((100, 80), None, (64, 64)), ((20, 90), None, (64, 20)), ((28, 28), (32, 48), (32, 48))],
)
def test_images_have_one_size_that_is_not_larger_than_they_are(written, stored, requested, size):
    schema = {"image": rk.Image(), "label": rk.Label(2)}
    split = written([{"image": image(9 * i, stored), "label": i % 2} for i in range(4)], schema)
    encoder = encoder_of(split, image_size=requested)
    assert (encoder.image_size, encoder.specs) == (size, {"image": InputSpec("image", (*size, 3), "uint8")})
    (step,) = steps(split, encoder)
    assert step.x["image"].shape == (4, *size, 3)
    assert step.x["image"][:, 0, 0, 0].tolist() == [0, 9, 18, 27]
    assert encoder.numbers is None


def test_an_image_that_is_missing_is_black_and_declared_channels_are_kept(written):
    schema = {"image": rk.Image(channels=1, optional=True), "label": rk.Label(2)}
    rows = [{"image": None if i == 1 else image(200, mode="L"), "label": i % 2} for i in range(4)]
    split = written(rows, schema)
    encoder = encoder_of(split)
    assert encoder.specs["image"].shape == (16, 16, 1)
    assert steps(split, encoder)[0].x["image"][:, 3, 3, 0].tolist() == [200, 0, 200, 200]


def test_images_that_nobody_declared_are_decoded(tmp_path):
    schema = rk.Schema({"image/encoded": rk.Bytes(), "image/class/label": rk.Int64()})
    with rk.Writer(tmp_path / "train.tfrecord", schema) as writer:
        for i in range(6):
            data = b"\x89PNG\r\n\x1a\n" if i == 5 else image(i, (20, 10))
            writer.write({"image/encoded": data, "image/class/label": 3 + i % 2})
    split = rk.open(tmp_path / "train.tfrecord")["train"]
    encoder = fit_encoder(split, choose_task(split[:5]))
    (step,) = steps(split[:5], encoder)
    assert step.x["image"].shape == (5, 10, 20, 3)
    assert (step.x["image"][:, 0, 0, 0].tolist(), step.y.tolist()) == ([0, 1, 2, 3, 4], [0, 1, 0, 1, 0])
    failure = refusal(lambda: steps(split, encoder))
    assert (failure.code[0], failure.location.feature) == ("D", "image/encoded")


@pytest.mark.parametrize(
    ("feature", "most", "scaled"),
    [
        (rk.Tensor("uint8", (70, 10, 4)), 255, 1.0),
        (rk.Tensor("uint16", (70, 10, 4)), 13107, 0.2),
        (rk.Tensor("float32", (70, 10, 4)), 50, 1.0),
        (rk.Int64(shape=(70, 10)), 16, 1.0),
    ],
)
def test_images_that_are_stored_as_numbers_are_scaled_and_thinned_out(written, feature, most, scaled):
    rows = [{"image": np.full(feature.shape, most if i else 0), "label": i % 2} for i in range(4)]
    for row in rows:
        row["image"] = row["image"].astype(feature.dtype)
    split = written(rows, {"image": feature, "label": rk.Label(2)})
    encoder = encoder_of(split)
    channels = (*feature.shape, 1)[2]
    assert encoder.specs == {"image": InputSpec("image", (64, 10, channels), "float32")}
    (step,) = steps(split, encoder)
    assert step.x["image"][:, 5, 5, 0].tolist() == pytest.approx([0, scaled, scaled, scaled])
    assert step.x["image"].dtype == np.float32


def test_masks_follow_their_image_and_keep_what_is_ignored(written):
    schema = {"image": rk.Image(), "mask": rk.Mask(classes=3, ignore=255)}
    ids = np.zeros((30, 50), np.uint8)
    ids[:, 25:] = 2
    ids[:3] = 255
    file = io.BytesIO()
    Image.fromarray(ids).save(file, "PNG")
    rows = [{"image": image(i, (50, 30)), "mask": file.getvalue()} for i in range(3)]
    split = written(rows, schema)
    encoder = encoder_of(split)
    assert encoder.image_size == (32, 56)  # multiples of 8
    (step,) = steps(split, encoder)
    assert (step.y.dtype, step.y.shape, step.x["image"].shape) == (np.int32, (3, 32, 56), (3, 32, 56, 3))
    assert np.unique(step.y).tolist() == [0, 2, 255]
    assert encoder_of(split, image_size=(60, 64)).image_size == (64, 64)


@pytest.mark.parametrize(("ignore", "expected"), [(None, "ids below 3"), (255, "ids below 3, or 255 (ignored)")])
def test_pixels_of_no_class_are_refused_before_a_framework_meets_them(written, ignore, expected):
    masks = [np.full((16, 16), i % 3, np.uint8) for i in range(6)]
    masks[4][3, 5] = 77
    stored = {"image": rk.Image(), "mask": rk.Mask(classes=256)}
    split = written([{"image": image(0), "mask": mask} for mask in masks], stored)
    task = Task(
        "segmentation",
        (InputColumn("image", "image"),),
        "mask",
        classes=("0", "1", "2"),
        values=None,
        ignore=ignore,
    )
    failure = refusal(lambda: steps(split, fit_encoder(split, task)))
    assert (failure.code, failure.what, failure.location.feature) == (
        "U608",
        "`mask` has pixels with unknown class ids in 1 records of a batch",
        "mask",
    )
    assert failure.what == "`mask` has pixels with unknown class ids in 1 records of a batch"
    assert (failure.expected, failure.found) == (expected, "77")


def test_large_masks_are_128_at_most(written):
    schema = {"image": rk.Image(), "mask": rk.Mask(classes=3)}
    rows = [{"image": image(1, (300, 200)), "mask": image(1, (300, 200), "L")}]
    assert encoder_of(written(rows, schema)).image_size == (128, 128)


@pytest.mark.parametrize("size", [(64,), "64", (0, 64), (64.0, 64), (64, 5000)])
def test_an_image_size_that_is_none_is_refused(written, size):
    schema = {"image": rk.Image(), "label": rk.Label(2)}
    split = written([{"image": image(i), "label": i % 2} for i in range(4)], schema)
    assert refusal(lambda: encoder_of(split, image_size=size)).code == "U605"


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (rk.Int64(), [40, -3]),
        (rk.Int64(dtype="uint64"), [2**63 + 1, 5]),
        (rk.Int64(dtype="bool"), [True, False]),
        (rk.Text(), ["b", "a"]),
        (rk.Bytes(), [b"b", b"\xff"]),
    ],
)
def test_targets_become_the_ids_of_their_classes(written, feature, values):
    rows = [{"x": i / 3, "label": values[i % 2]} for i in range(20)]
    split = written(rows, {"x": rk.Float32(), "label": feature})
    encoder = encoder_of(split)
    (step,) = steps(split, encoder)
    assert step.y.dtype == np.int32
    assert [encoder.task.values[number] for number in step.y] == [row["label"] for row in rows]


def test_a_number_that_is_learned_stays_as_it_is_and_its_mean_is_known(written):
    rows = [{"x": [i, i % 3], "price": 10.0 * (i % 4)} for i in range(20)]
    split = written(rows, {"x": rk.Float32(shape=(2,)), "price": rk.Tensor("float64")})
    encoder = fit_encoder(split, choose_task(split, label="price"))
    assert (encoder.target_mean, encoder.target_std) == pytest.approx((15, np.std([0, 10, 20, 30])))
    (step,) = steps(split, encoder)
    assert (step.y.dtype, step.y[:4].tolist()) == (np.float32, [0, 10, 20, 30])


@pytest.mark.parametrize(
    ("feature", "good", "bad", "what"),
    [
        (rk.Int64(), [1, 2], 3, "`label` has a value that is not one of the classes"),
        (rk.Text(), ["a", "b"], "c", "`label` has a value that is not one of the classes"),
        (rk.Int64(optional=True), [1, 2], None, "1 of 21 records of a batch have no value in `label`"),
        (rk.Float32(), [1.0, 2.0], float("nan"), "`label` is not finite in 1 records of a batch"),
    ],
)
def test_a_target_that_was_not_known_is_refused_when_it_comes(written, feature, good, bad, what):
    rows = [{"x": i / 3, "label": good[i % 2] if i < 20 else bad} for i in range(21)]
    split = written(rows, {"x": rk.Float32(), "label": feature})
    encoder = encoder_of(split[:20])
    failure = refusal(lambda: steps(split, encoder))
    assert (failure.code, failure.what, failure.location.feature) == ("U608", what, "label")


def test_an_id_that_a_label_does_not_declare_is_refused(tmp_path):
    stored = rk.Schema({"x": rk.Float32(), "label": rk.Int64()})
    with rk.Writer(tmp_path / "train.tfrecord", stored) as writer:
        for i in range(10):
            writer.write({"x": i, "label": i % 2 if i < 9 else 7})
    declared = rk.Schema({"x": rk.Float32(), "label": rk.Label(3)})
    split = rk.open(tmp_path / "train.tfrecord", declared)["train"]
    failure = refusal(lambda: choose_task(split))
    assert (failure.what, failure.location.record, failure.found) == (
        "1 of 10 records have no class in `label`",
        9,
        "7",
    )
    assert failure.code == "U608"
    encoder = encoder_of(split[:9])
    failure = refusal(lambda: steps(split, encoder))
    assert (failure.code, failure.found, failure.expected) == ("U608", "7", "one of 3 classes")
    assert failure.what == "`label` has a value that is not one of the classes"


# Laws.


def everything(written: Written) -> Any:
    schema = {
        "image": rk.Image(optional=True),
        "age": rk.Float32(optional=True),
        "city": rk.Text(optional=True),
        "note": rk.Text(optional=True),
        "ids": rk.Int64(shape=(None,), optional=True),
        "input_ids": rk.Int64(shape=(3,), optional=True),
        "s": rk.Sparse("float32", 4, optional=True),
        "label": rk.Label(3),
    }
    random = np.random.default_rng(11)

    def some(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    rows = [
        {
            "image": some(image(int(random.integers(255)), (9, 12))),
            "age": some(float(random.normal())),
            "city": some("abc"[random.integers(3)]),
            "note": some(" ".join(random.choice(list("pqrst"), random.integers(6))) + f" {i}"),
            "ids": some(random.integers(0, 9, random.integers(5))),
            "input_ids": some(random.integers(0, 3, 3)),
            "s": some(([int(random.integers(4))], [1.5])),
            "label": int(random.integers(3)),
        }
        for i in range(60)
    ]
    return written(rows, schema)


ALL = ["image", "age", "city", "note", "ids", "input_ids", "s"]
NAMES = ["image", "numbers", "category_0", "text_0", "tokens_0", "tokens_1"]


def assert_same(one: list[TrainingStep], other: list[TrainingStep]) -> None:
    for name in NAMES:
        left, right = (np.concatenate([step.x[name] for step in made]) for made in (one, other))
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype
    left, right = (np.concatenate([step.y for step in made]) for made in (one, other))
    np.testing.assert_array_equal(left, right)


def test_a_batch_is_encoded_as_its_records_are_one_by_one(written):
    split = everything(written)
    encoder = encoder_of(split, ALL)
    assert list(encoder.specs) == NAMES
    whole = steps(split, encoder)
    for name, spec in encoder.specs.items():
        assert whole[0].x[name].shape == (60, *spec.shape)
        assert whole[0].x[name].dtype == spec.dtype
        assert np.isfinite(whole[0].x[name]).all()
        assert not spec.size or 0 <= whole[0].x[name].min() <= whole[0].x[name].max() < spec.size
    for batch_size in (1, 7):
        made = steps(split, encoder, batch_size)
        assert [step.rows for step in made][:2] == [batch_size, batch_size]
        assert_same(whole, made)


def test_what_was_learned_survives_json_and_pickle_and_is_learned_alike_again(written):
    split = everything(written)
    encoder = encoder_of(split, ALL)
    whole = steps(split, encoder)
    told = json.loads(json.dumps(encoder.to_dict(), allow_nan=False))
    read = BatchEncoder.from_dict(told, encoder.task)
    assert read.to_dict() == encoder.to_dict() == encoder_of(split, ALL).to_dict()
    assert_same(whole, steps(split, read))
    assert_same(whole, steps(split, pickle.loads(pickle.dumps(encoder))))
    assert told["target"]["classes"] == ["0", "1", "2"]


@pytest.mark.concurrency
def test_threads_share_an_encoder(written):
    split = everything(written)
    encoder = encoder_of(split, ALL)
    whole = steps(split, encoder)
    fresh = BatchEncoder.from_dict(encoder.to_dict(), encoder.task)
    with ThreadPoolExecutor(4) as threads:
        for made in threads.map(lambda _: steps(split, fresh, 9), range(4)):
            assert_same(whole, made)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"inputs": []},
        {"inputs": {"numbers": {"kind": "other"}}, "target": {"mean": 0, "std": 1}},
        {"inputs": {"text_0": {"kind": "words", "column": "a", "words": [1], "length": 3}}, "target": {}},
        {
            "inputs": {
                "numbers": {
                    "kind": "numbers",
                    "columns": ["a"],
                    "mean": [1],
                    "variance": [],
                    "least": [1],
                    "most": [1],
                }
            },
            "target": {"mean": 0, "std": 1},
        },
        *[
            {"inputs": {"x": {"column": "a", **part}}, "target": {"mean": 0, "std": 1}}
            for part in (
                {"kind": "picture", "height": 10**6, "width": 64, "channels": 3, "is_stored": False},
                {"kind": "picture", "height": 64, "width": 0, "channels": 3, "is_stored": False},
                {"kind": "pixels", "height": 64, "width": 64, "channels": 10**6, "scale": 1},
                {"kind": "words", "words": ["a"], "length": 10**9},
                {"kind": "tokens", "largest": 5, "length": 10**9},
                {"kind": "category", "words": None, "count": 10**9},
            )
        ],
    ],
)
def test_what_cannot_be_read_back_is_damage(written, told):
    split = written([{"x": i / 3, "label": i % 2} for i in range(20)])
    failure = refusal(lambda: BatchEncoder.from_dict(told, choose_task(split)))
    assert (failure.code, failure.do) == ("X575", "fresh=True, to start over")


def test_how_far_it_is_is_told_and_nothing_is_read_where_nothing_is_learned(written):
    told: list[tuple[int, int]] = []
    numbers = written([{"x": i / 3, "label": i % 2} for i in range(1500)])
    encoder_of(numbers, progress=lambda done, of: told.append((done, of)))
    assert told == [(1024, 1500), (1500, 1500)]
    told.clear()
    labels = written(
        [{"kind": i // 2 % 2, "label": i % 2} for i in range(30)],
        dict.fromkeys(["kind", "label"], rk.Label(2)),
    )
    fit_encoder(labels, choose_task(labels, label="label"), progress=lambda done, of: told.append((done, of)))
    assert told == []


def test_of_many_records_some_are_taken_with_equal_gaps(written, monkeypatch):
    monkeypatch.setattr("rekord.training.statistics.MAX_FIT_RECORDS", 10)
    monkeypatch.setattr("rekord.training.task.MAX_SURVEYED_RECORDS", 10)
    told: list[tuple[int, int]] = []
    split = written([{"x": float(i), "label": i // 7 % 2} for i in range(95)])
    encoder = encoder_of(split, progress=lambda done, of: told.append((done, of)))
    assert told == [(10, 10)]
    assert encoder.numbers.mean.tolist() == [45]

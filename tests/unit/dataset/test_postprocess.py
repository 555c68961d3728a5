"""What becomes of a decoded batch: holes filled, rows padded, functions applied, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.dataset.options import validate_resize
from rekord.dataset.postprocess import Postprocessor, build_image_decoder, build_postprocessor, compose_maps

COLUMNS = ("a", "b")


def made(**options: Any) -> Postprocessor | None:
    return build_postprocessor(COLUMNS, **{"fill": None, "ragged": "ragged", "pad": None, "map": None, **options})


def ragged(*rows: list[Any], dtype: Any = np.int64) -> rk.Ragged:
    values = np.array([value for row in rows for value in row], dtype)
    return rk.Ragged(values, np.concatenate([[0], np.cumsum([len(row) for row in rows])]))


def refused(**options: Any) -> rk.UsageError:
    with pytest.raises(rk.UsageError) as caught:
        made(**options)
    return caught.value


def test_nothing_asked_for_is_nothing_to_do() -> None:
    assert made() is None
    assert made(fill={}, pad={}) is None


def test_only_holes_of_optional_columns_are_filled() -> None:
    batch = {"a": rk.Optional(np.array([1, 0]), np.array([True, False])), "b": np.array([3, 4])}
    finish = made(fill={"a": 9, "b": 9})
    assert finish is not None
    out = finish(batch)
    assert out["a"].tolist() == [1, 9]
    assert out["b"] is batch["b"]
    assert isinstance(batch["a"], rk.Optional)  # what was given stays as it was


@pytest.mark.parametrize("value", [1.5, float("nan"), "x", None, [1, 2], 1 << 70])
def test_a_value_that_cannot_fill_names_the_column(value) -> None:
    finish = made(fill={"a": value})
    assert finish is not None
    with pytest.raises(rk.UsageError) as caught:
        finish({"a": rk.Optional(np.array([1, 0]), np.array([True, False]))})
    assert (caught.value.code, caught.value.location.feature) == ("U605", "a")


def test_a_row_may_be_filled_with_as_many_values_as_it_has() -> None:
    column = rk.Optional(np.zeros((2, 2), np.float32), np.array([True, False]))
    finish = made(fill={"a": [1.0, float("nan")]})
    assert finish is not None
    np.testing.assert_array_equal(finish({"a": column})["a"], [[0, 0], [1, np.nan]])


def test_ragged_rows_are_padded_with_zero_or_with_what_is_said() -> None:
    finish = made(ragged="pad", pad={"b": -1})
    assert finish is not None
    out = finish({"a": ragged([1], [2, 3]), "b": ragged([1], [2, 3]), "c": np.array([5, 6])})
    assert out["a"].tolist() == [[1, 0], [2, 3]]
    assert out["b"].tolist() == [[1, -1], [2, 3]]
    assert out["c"].tolist() == [5, 6]


def test_strings_are_padded_with_empty_ones_or_with_anything() -> None:
    batch = {"a": rk.Ragged(rk.Strings.of([b"x", b"y", b"z"]), np.array([0, 1, 3]))}
    for pad, expected in ((None, b""), ({"a": b"-"}, b"-"), ({"a": 0}, 0)):
        finish = made(ragged="pad", pad=pad)
        assert finish is not None
        assert finish(batch)["a"].tolist() == [[b"x", expected], [b"y", b"z"]]


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [
        (np.int64, 1.5),
        (np.int64, "x"),
        (np.int64, float("nan")),
        (np.uint8, 256),
        (np.uint8, -1),
        (np.int64, [1, 2]),
        (np.float32, 1e300),
        (np.float32, b"x"),
        (np.bool_, 2),
    ],
)
def test_a_value_that_the_column_cannot_hold_does_not_pad_it(dtype, pad) -> None:
    finish = made(ragged="pad", pad={"a": pad})
    assert finish is not None
    with pytest.raises(rk.UsageError) as caught:
        finish({"a": ragged([1], [0, 1], dtype=dtype)})
    assert (caught.value.code, caught.value.location.feature) == ("U605", "a")


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [
        (np.int64, -1),
        (np.float32, float("nan")),
        (np.float32, -1),
        (np.uint8, 255),
        (np.bool_, True),
        (np.int64, np.int8(3)),
    ],
)
def test_a_value_that_the_column_holds_pads_it(dtype, pad) -> None:
    finish = made(ragged="pad", pad={"a": pad})
    assert finish is not None
    out = finish({"a": ragged([1], [0, 1], dtype=dtype)})["a"]
    assert out.dtype == dtype
    np.testing.assert_array_equal(out[0, 1], np.array(pad, dtype))


def test_images_of_different_sizes_are_padded_to_the_largest() -> None:
    images = np.empty(3, object)
    images[:] = [np.ones((1, 3, 3), np.uint8), None, np.full((2, 1, 3), 2, np.uint8)]
    finish = made(ragged="pad", pad={"a": 7})
    assert finish is not None
    out = finish({"a": images})["a"]
    assert (out.shape, out.dtype) == ((3, 2, 3, 3), np.uint8)
    assert out[0, :, :, 0].tolist() == [[1, 1, 1], [7, 7, 7]]
    assert (out[1] == 7).all()
    assert out[2, :, :, 0].tolist() == [[2, 7, 7], [2, 7, 7]]


def test_what_cannot_be_meant_is_refused_at_once() -> None:
    for options in (
        {"ragged": "no"},
        {"pad": {"a": 1}},
        {"fill": {"c": 1}},
        {"fill": 3},
        {"ragged": "pad", "pad": {"c": 1}},
        {"ragged": "pad", "pad": [1]},
        {"map": 3},
    ):
        failure = refused(**options)
        assert failure.code == "U605"
        assert failure.do


def _one_more(batch: Any) -> Any:
    return {"a": batch["a"] + 1}


def _doubled(batch: Any) -> Any:
    return {"a": batch["a"] * 2}


def test_functions_are_applied_in_their_order_and_can_be_pickled() -> None:
    both = compose_maps(_one_more, _doubled)
    finish = pickle.loads(pickle.dumps(made(map=both)))
    assert finish({"a": np.array([1, 2])})["a"].tolist() == [4, 6]
    assert compose_maps(None, _doubled) is _doubled
    assert compose_maps(_one_more, None) is _one_more
    assert compose_maps(None, None) is None


def test_the_first_of_two_functions_must_give_a_batch_too() -> None:
    both = compose_maps(lambda batch: None, _doubled)
    assert both is not None
    with pytest.raises(rk.UsageError) as caught:
        both({"a": np.array([1])})
    assert (caught.value.code, caught.value.found) == ("U605", "None")


def test_a_size_is_two_whole_numbers() -> None:
    assert validate_resize(False, None) is None
    assert validate_resize(True, None) is None
    assert validate_resize(True, [np.int64(3), 4]) == (3, 4)


def test_images_are_the_images_and_masks_among_the_columns() -> None:
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=2), "n": rk.Int64()})
    assert list(build_image_decoder(schema, None, None).features) == ["image", "mask"]
    assert list(build_image_decoder(schema, ("mask", "n"), None).features) == ["mask"]
    with pytest.raises(rk.UsageError) as caught:
        build_image_decoder(schema, ("n",), None)
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U676",
        "no images to decode",
        "`n`: Int64",
    )

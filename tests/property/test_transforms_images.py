"""Laws of images that are transformed: class ids are never mixed, and steps in a row are the steps one by one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import rekord as rk
from rekord.transforms import chain, crop, resize
from rekord.transforms.image_row import FILTERS
from rekord.transforms.images import FIT_MODES

SCHEMA = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=200, ignore=255), "boxes": rk.Boxes()})
SIDES = st.integers(1, 40)


def saved(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@st.composite
def rows(draw: Any) -> dict[str, Any]:
    height, width = draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    corners = np.sort(rng.random((draw(st.integers(0, 4)), 2, 2)), axis=1)
    return {
        "image": saved(rng.integers(0, 256, (height, width, 3)).astype(np.uint8)),
        "mask": saved(rng.choice(np.array([0, 3, 7, 90, 199, 255], np.uint8), (height, width))),
        "boxes": corners.reshape(-1, 4).astype(np.float32),
    }


RESIZES = st.builds(
    lambda height, width, filter, fit: resize(height, width, filter=filter, fit=fit),
    SIDES,
    SIDES,
    st.sampled_from(sorted(FILTERS)),
    st.sampled_from(FIT_MODES),
)


@settings(deadline=None)
@given(rows(), st.lists(RESIZES, min_size=1, max_size=3))
def test_a_mask_has_no_class_that_it_did_not_have(row, steps):
    after = chain(*steps).bind(SCHEMA).apply(dict(row))
    assert set(np.unique(pixels(after["mask"]))) <= {*np.unique(pixels(row["mask"])).tolist(), 255}
    assert pixels(after["mask"]).shape == pixels(after["image"]).shape[:2]


@settings(deadline=None)
@given(rows(), st.lists(RESIZES, min_size=1, max_size=3), st.integers(1, 5))
def test_steps_in_a_row_are_the_steps_one_by_one_where_nothing_is_lost_between_them(row, steps, side):
    steps = [*steps, resize(side + 2, side + 3), crop(side, side)]
    together = chain(*steps).bind(SCHEMA).apply(dict(row))
    alone = dict(row)
    for step in steps:
        alone = step.bind(SCHEMA).apply(alone)
    for name in ("image", "mask"):
        assert np.array_equal(pixels(together[name]), pixels(alone[name]))
    assert np.allclose(together["boxes"], alone["boxes"], atol=1e-4)


@settings(deadline=None)
@given(rows(), RESIZES)
def test_boxes_stay_inside_and_in_order(row, step):
    boxes = step.bind(SCHEMA).apply(dict(row))["boxes"]
    assert (boxes >= -1e-6).all()
    assert (boxes <= 1 + 1e-6).all()
    assert (boxes[:, 2:] >= boxes[:, :2]).all()

"""`decode=True`: images and masks of a batch as arrays of pixels, and what is said of those that are none."""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.codec.images.decode import ImageColumnDecoder
from rekord.testing import example_bytes, frame_offsets, frames

HOW = [
    {"threads": 1, "prefetch": 0},
    {"threads": 2},
    {"threads": 1, "prefetch": 0, "shuffle": True},
    {"threads": 2, "shuffle": True},
]
"""Streamed and by number, on this thread and on others."""


def pixels_of(number: int, height: int = 6, width: int = 8, channels: int = 3) -> np.ndarray:
    """Pixels that tell one image from another."""
    return np.random.default_rng(number).integers(0, 256, (height, width, channels)).astype(np.uint8)


def encoded(image: Image.Image, kind: str = "png", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))


def photo(height: int, width: int, number: int = 0) -> Image.Image:
    """Something like a photograph: soft blobs, a few edges, a little noise."""
    random = np.random.default_rng(number)
    small = Image.fromarray(random.integers(0, 256, (12, 16, 3)).astype(np.uint8))
    out = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    out += random.integers(-6, 7, out.shape)
    out[height // 4 : height // 3, width // 5 : width // 2] = (250, 20, 30)
    return Image.fromarray(np.clip(out, 0, 255).astype(np.uint8))


Put = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path) -> Put:
    """Writes rows as they are, without a look at the images, and opens them with a schema."""

    def put(rows: list[dict[str, list[Any]]], features: dict[str, Any]) -> Any:
        path = tmp_path / "x.tfrecord"
        path.write_bytes(frames([example_bytes({"n": [i], **row}) for i, row in enumerate(rows)]))
        return rk.open(path, schema=rk.Schema({"n": rk.Int64(), **features}))

    return put


# ---- What a column becomes ----


@pytest.mark.parametrize("how", HOW)
def test_images_of_one_size_are_one_array(opened, how) -> None:
    data = opened([{"image": [png(pixels_of(i))]} for i in range(10)], {"image": rk.Image()})
    seen = []
    for batch in data.batches(4, decode=True, **how):
        images = batch["image"]
        assert (images.dtype, images.shape) == (np.uint8, (len(batch["n"]), 6, 8, 3))
        assert images.flags.writeable
        for n, image in zip(batch["n"].tolist(), images, strict=True):
            np.testing.assert_array_equal(image, pixels_of(n))
            seen.append(n)
    assert sorted(seen) == list(range(10))


def test_images_of_different_sizes_are_one_array_a_row(opened) -> None:
    sizes = [(2, 3), (4, 5), (2, 3)]
    rows = [{"image": [png(pixels_of(i, *size))]} for i, size in enumerate(sizes)]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(3, decode=True)
    images = batch["image"]
    assert (images.dtype, images.shape) == (object, (3,))
    assert [image.shape for image in images] == [(2, 3, 3), (4, 5, 3), (2, 3, 3)]
    assert all(image.flags.writeable for image in images)
    np.testing.assert_array_equal(images[1], pixels_of(1, 4, 5))


def test_padding_fills_images_up_to_the_largest(opened) -> None:
    rows = [{"image": [png(pixels_of(0, 2, 5))]}, {"image": [png(pixels_of(1, 4, 3))]}]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(2, decode=True, ragged="pad", pad={"image": 7})
    assert batch["image"].shape == (2, 4, 5, 3)
    np.testing.assert_array_equal(batch["image"][0, :2], pixels_of(0, 2, 5))
    assert (batch["image"][0, 2:] == 7).all()
    assert (batch["image"][1, :, 3:] == 7).all()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_channels_are_those_of_the_schema(opened, channels) -> None:
    rows = [{"image": [png(pixels_of(0, channels=stored))]} for stored in (1, 3, 4)]
    data = opened(rows, {"image": rk.Image(channels=channels)})
    (batch,) = data.batches(3, decode=True)
    assert batch["image"].shape == (3, 6, 8, channels)
    if channels in (2, 4):
        assert (batch["image"][:2, ..., -1] == 255).all()  # opaque where nothing was said
        np.testing.assert_array_equal(batch["image"][2, ..., -1], pixels_of(0, channels=4)[..., 3])


def test_grey_becomes_three_equal_channels_and_alpha_is_dropped(opened) -> None:
    rows = [{"image": [png(pixels_of(0, channels=1))]}, {"image": [png(pixels_of(0, channels=4))]}]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(2, decode=True)
    np.testing.assert_array_equal(batch["image"][0], pixels_of(0, channels=1).repeat(3, axis=2))
    np.testing.assert_array_equal(batch["image"][1], pixels_of(0, channels=4)[..., :3])


def test_exif_turns_no_image(opened) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    rows = [{"image": [encoded(photo(16, 24), "jpeg", exif=exif)]}]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(1, decode=True)
    assert batch["image"].shape == (1, 16, 24, 3)


def test_damaged_exif_is_no_fault_of_the_pixels(opened) -> None:
    rows = [{"image": [encoded(photo(16, 24), "jpeg", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")]}]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(1, decode=True)
    assert batch["image"].shape == (1, 16, 24, 3)


def test_the_first_frame_stands_for_an_animation(opened) -> None:
    first, second = (Image.new("RGB", (5, 4), colour) for colour in ("red", "blue"))
    rows = [{"image": [encoded(first, "gif", save_all=True, append_images=[second])]}]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(1, decode=True)
    assert batch["image"].shape == (1, 4, 5, 3)
    assert (batch["image"] == (255, 0, 0)).all()


def test_masks_are_their_class_ids(opened) -> None:
    ids = np.arange(48, dtype=np.uint8).reshape(6, 8) % 3
    grey = Image.fromarray(ids)
    palette = Image.frombytes("P", (8, 6), ids.tobytes())
    palette.putpalette([10, 20, 30, 200, 0, 0, 0, 0, 200])
    rows = [
        {"mask": [encoded(grey)], "image": [png(pixels_of(0))]},
        {"mask": [encoded(palette)], "image": [png(pixels_of(1))]},
        {"mask": [encoded(palette, bits=2)], "image": [png(pixels_of(2))]},
    ]
    data = opened(rows, {"image": rk.Image(), "mask": rk.Mask(classes=3)})
    (batch,) = data.batches(3, decode=True)
    assert (batch["mask"].dtype, batch["mask"].shape) == (np.uint8, (3, 6, 8))
    np.testing.assert_array_equal(batch["mask"], np.stack([ids] * 3))


def test_ids_beyond_255_are_uint16(opened) -> None:
    ids = np.array([[0, 300], [255, 256]], np.uint16)
    rows = [{"image": [png(pixels_of(0, 2, 2))], "mask": [encoded(Image.fromarray(ids))]}]
    data = opened(rows, {"image": rk.Image(), "mask": rk.Mask(classes=301)})
    (batch,) = data.batches(1, decode=True)
    assert batch["mask"].dtype == np.uint16
    np.testing.assert_array_equal(batch["mask"][0], ids)


# ---- Holes and steps ----


def test_a_missing_image_is_a_hole(opened) -> None:
    rows: list[dict[str, list[Any]]] = [{"image": [png(pixels_of(0))]}, {}, {"image": [png(pixels_of(2))]}]
    data = opened(rows, {"image": rk.Image(optional=True)})
    (batch,) = data.batches(3, decode=True)
    images = batch["image"]
    assert isinstance(images, rk.Optional)
    assert images.valid.tolist() == [True, False, True]
    assert images[1] is None
    assert not images.values[1].any()
    np.testing.assert_array_equal(images[2], pixels_of(2))
    (filled,) = data.batches(3, decode=True, fill={"image": 9})
    assert (filled["image"][1] == 9).all()


def test_among_images_of_different_sizes_a_missing_one_is_none(opened) -> None:
    rows = [{"image": [png(pixels_of(0))]}, {}, {"image": [png(pixels_of(2, 3, 3))]}]
    data = opened(rows, {"image": rk.Image(optional=True)})
    (batch,) = data.batches(3, decode=True)
    assert batch["image"][1] is None
    assert batch["image"][2].shape == (3, 3, 3)
    (resized,) = data.batches(3, decode=True, resize=(4, 4))
    assert resized["image"].values.shape == (3, 4, 4, 3)
    assert resized["image"].valid.tolist() == [True, False, True]


def test_a_batch_of_holes_alone_has_no_pixels(opened) -> None:
    (batch,) = opened([{}, {}], {"image": rk.Image(optional=True)}).batches(2, decode=True)
    assert batch["image"].values.shape == (2, 0, 0, 3)
    assert batch["image"].valid.tolist() == [False, False]


def _sequences(tmp_path: Path, rows: list[list[bytes]], feature: Any) -> Any:
    schema = rk.Schema(context={"n": rk.Int64()}, steps={"frames": feature})
    path = tmp_path / "s.tfrecord"
    with rk.Writer(path, schema) as writer:
        for n, row in enumerate(rows):
            writer.write({"n": n, "frames": row})
    return rk.open(path, schema=schema)


@pytest.mark.parametrize("how", HOW)
def test_images_of_steps_are_the_values_of_ragged_rows(tmp_path, how) -> None:
    rows = [[png(pixels_of(i * 10 + step)) for step in range(i)] for i in range(4)]
    for batch in _sequences(tmp_path, rows, rk.Image()).batches(4, decode=True, **how):
        for n, row in zip(batch["n"].tolist(), batch["frames"], strict=True):
            assert row.shape == (n, 6, 8, 3)
            for step in range(n):
                np.testing.assert_array_equal(row[step], pixels_of(n * 10 + step))


def test_images_of_steps_may_have_different_sizes(tmp_path) -> None:
    rows = [[png(pixels_of(0, 2, 3))], [png(pixels_of(1, 4, 2)), png(pixels_of(2, 1, 1))]]
    data = _sequences(tmp_path, rows, rk.Image())
    (batch,) = data.batches(2, decode=True)
    assert [image.shape for image in batch["frames"][1]] == [(4, 2, 3), (1, 1, 3)]
    (padded,) = data.batches(2, decode=True, ragged="pad")
    assert padded["frames"].shape == (2, 2, 4, 3, 3)
    np.testing.assert_array_equal(padded["frames"][1, 0, :, :2], pixels_of(1, 4, 2))
    assert not padded["frames"][0, 1].any()
    (resized,) = data.batches(2, decode=True, resize=(5, 5))
    assert resized["frames"].values.shape == (3, 5, 5, 3)


# ---- Resizing ----


def test_resized_images_are_one_array_of_that_size(opened) -> None:
    rows = [{"image": [png(pixels_of(i, 10 + i, 20))]} for i in range(3)]
    (batch,) = opened(rows, {"image": rk.Image()}).batches(3, decode=True, resize=(4, 7))
    assert batch["image"].shape == (3, 4, 7, 3)
    for i, image in enumerate(batch["image"]):
        expected = Image.fromarray(pixels_of(i, 10 + i, 20)).resize((7, 4), Image.Resampling.BILINEAR)
        # Pillow rounds between rows and columns, too.
        np.testing.assert_allclose(image.astype(int), np.asarray(expected).astype(int), atol=1)


@pytest.mark.parametrize("size", [(224, 224), (240, 320), (120, 160), (96, 96), (32, 48), (480, 640), (700, 700)])
def test_a_jpeg_that_is_decoded_small_is_nearly_what_the_whole_one_gives(opened, size) -> None:
    data = encoded(photo(480, 640), "jpeg", quality=90)
    (batch,) = opened([{"image": [data]}], {"image": rk.Image()}).batches(1, decode=True, resize=size)
    whole = Image.open(io.BytesIO(data)).resize(size[::-1], Image.Resampling.BILINEAR)
    off = np.abs(batch["image"][0].astype(int) - np.asarray(whole))
    assert off.mean() < 1.5
    assert np.percentile(off, 99) <= 8


def test_masks_are_resized_without_new_ids(opened) -> None:
    ids = (np.arange(12 * 16).reshape(12, 16) * 7 % 200).astype(np.uint8)
    rows = [{"image": [png(pixels_of(0, 12, 16))], "mask": [encoded(Image.fromarray(ids))]}]
    data = opened(rows, {"image": rk.Image(), "mask": rk.Mask(classes=200)})
    (batch,) = data.batches(1, decode=True, resize=(24, 8))
    np.testing.assert_array_equal(batch["mask"][0], ids.repeat(2, axis=0)[:, 1::2])


# ---- What is not decoded ----


def test_rows_and_batches_keep_the_encoded_bytes_unless_asked(opened) -> None:
    data = opened([{"image": [png(pixels_of(0))]}], {"image": rk.Image()})
    assert data[0]["image"] == png(pixels_of(0))
    assert next(iter(data.batches(1)))["image"].tolist() == [png(pixels_of(0))]


def test_only_the_columns_that_are_asked_for_are_decoded(opened) -> None:
    rows = [{"image": [png(pixels_of(0))], "other": [b"no image"]}]
    data = opened(rows, {"image": rk.Image(), "other": rk.Image()})
    (batch,) = data.batches(1, columns=["image"], decode=True)
    assert list(batch) == ["image"]


def test_a_function_is_given_the_decoded_images(opened) -> None:
    data = opened([{"image": [png(pixels_of(0))]}], {"image": rk.Image()})
    (batch,) = data.batches(1, decode=True, map=lambda batch: {"mean": batch["image"].mean(axis=(1, 2, 3))})
    assert batch["mean"][0] == pytest.approx(pixels_of(0).mean())


def test_what_decodes_can_be_pickled() -> None:
    made = ImageColumnDecoder({"image": rk.Image(channels=1)}, (3, 4))
    assert pickle.loads(pickle.dumps(made)).resize == (3, 4)


# ---- Images that are none ----


def _vast(width: int, height: int) -> bytes:
    """A PNG that claims so many pixels, with bytes enough that it could have them."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", bytes(width * height // 1000)), (b"IEND", b"")]
    framed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


JPEG = encoded(photo(40, 40), "jpeg")
BAD = {
    "empty": (b"", "D409", "is empty"),
    "text": (b"no image at all", "D409", "is not an image"),
    "cut": (JPEG[: len(JPEG) // 2], "D409", "is truncated: the JPEG has no end"),
    "flipped": (png(pixels_of(0))[:40] + b"\0\0\0\0" + png(pixels_of(0))[44:], "D409", "is corrupt"),
    "tiff": (encoded(photo(8, 8), "tiff"), "D409", "is TIFF"),
    "vast": (_vast(20_000, 10_000), "D410", "has too many pixels to decode"),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", BAD)
def test_an_image_that_cannot_be_decoded_names_its_record(opened, drain, how, kind) -> None:
    bad, code, says = BAD[kind]
    rows = [{"image": [png(pixels_of(i)) if i != 5 else bad]} for i in range(9)]
    data = opened(rows, {"image": rk.Image()})
    path = data["all"].paths[0]
    batches, failure = drain(data.batches(3, decode=True, **how))
    assert isinstance(failure, rk.DecodeError)
    assert (failure.code, failure.what[: len("`image` " + says)]) == (code, f"`image` {says}")
    offset = frame_offsets(Path(path).read_bytes())[5]
    assert failure.location.to_dict() == {"path": path, "record": 5, "offset": offset, "feature": "image"}
    assert failure.do
    if "shuffle" not in how:  # what comes before it is given before it
        assert [n for batch in batches for n in batch["n"].tolist()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", HOW)
def test_a_bad_image_among_steps_names_the_step_and_the_record(tmp_path, drain, how) -> None:
    rows = [[png(pixels_of(0))], [png(pixels_of(1)), JPEG[:300], png(pixels_of(2))]]
    schema = rk.Schema(context={"n": rk.Int64()}, steps={"frames": rk.Bytes()})
    path = tmp_path / "s.tfrecord"
    with rk.Writer(path, schema) as writer:
        for n, row in enumerate(rows):
            writer.write({"n": n, "frames": row})
    data = rk.open(path, schema=rk.Schema(context={"n": rk.Int64()}, steps={"frames": rk.Image()}))
    _, failure = drain(data.batches(2, decode=True, **how))
    assert failure.code == "D409"
    assert failure.what.startswith("step 1 of `frames` is truncated")
    assert (failure.location.record, failure.location.feature) == (1, "frames")
    assert failure.location.offset == frame_offsets(path.read_bytes())[1]


@pytest.mark.parametrize(
    ("mask", "code", "found"),
    [
        (png(pixels_of(0)), "D411", "a PNG of colours"),
        (JPEG, "D411", "a JPEG"),
        (encoded(Image.fromarray(np.full((2, 2), 300, np.uint16))), "D411", "16 bits, with values up to 300"),
        (b"", "D409", "0 bytes"),
        (encoded(Image.new("L", (9, 9)))[:-20], "D409", None),
        (_vast(20_000, 10_000), "D410", "20,000 × 10,000"),
    ],
)
def test_a_mask_that_holds_no_class_ids_is_refused(opened, drain, mask, code, found) -> None:
    rows = [{"image": [png(pixels_of(0))], "mask": [mask]}]
    data = opened(rows, {"image": rk.Image(), "mask": rk.Mask(classes=3)})
    _, failure = drain(data.batches(1, decode=True))
    assert (failure.code, failure.location.feature, failure.location.record) == (code, "mask", 0)
    if found is not None:
        assert failure.found == found


@pytest.mark.slow
def test_every_cut_and_many_flips_of_an_image_decode_or_are_refused(opened, drain) -> None:
    images = [encoded(photo(9, 13), kind) for kind in ("jpeg", "png", "gif", "bmp", "webp")]
    images.append(encoded(photo(9, 13).quantize(8)))
    for data in images:
        broken = [data[:end] for end in range(0, len(data), 7)]
        for at in range(0, len(data), 5):
            broken.append(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        for one in broken:
            split = opened([{"image": [one]}], {"image": rk.Image()})
            batches, failure = drain(split.batches(1, decode=True, resize=(4, 4), threads=1, prefetch=0))
            if failure is None:
                assert batches[0]["image"].shape == (1, 4, 4, 3)
            else:
                assert failure.code in ("D409", "D410")


def test_the_limit_of_pixels_is_pillows_own(opened, drain, monkeypatch) -> None:
    data = opened([{"image": [png(pixels_of(0))]}], {"image": rk.Image()})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 47)
    _, failure = drain(data.batches(1, decode=True))
    assert (failure.code, failure.expected, failure.found) == ("D410", "at most 47", "8 × 6")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    (batch,) = data.batches(1, decode=True)
    assert batch["image"].shape == (1, 6, 8, 3)


# ---- How it is asked for ----


@pytest.mark.parametrize(
    "arguments",
    [
        {"decode": 1},
        {"decode": "image"},
        {"resize": (2, 2)},
        {"decode": True, "resize": 224},
        {"decode": True, "resize": (224,)},
        {"decode": True, "resize": (0, 4)},
        {"decode": True, "resize": (2.0, 4)},
        {"decode": True, "resize": (True, 4)},
        {"decode": True, "resize": "ab"},
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(opened, arguments) -> None:
    data = opened([{"image": [png(pixels_of(0))]}], {"image": rk.Image()})
    with pytest.raises(rk.UsageError) as caught:
        data.batches(1, **arguments)
    assert caught.value.code == "U605"


def test_nothing_to_decode_is_said(opened) -> None:
    data = opened([{"image": [png(pixels_of(0))]}], {"image": rk.Bytes()})
    for columns in (None, ["n"]):
        with pytest.raises(rk.UsageError) as caught:
            data.batches(1, decode=True, columns=columns)
        assert (caught.value.code, caught.value.what) == ("U676", "no images to decode")
    assert "`n`: Int64" in caught.value.found

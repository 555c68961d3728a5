import gzip
import io
import struct
import wave

import numpy as np
import pytest
from PIL import Image as Pillow
from viewer_client import open_viewer

import rekord as rk
from rekord.testing import example_bytes, frames
from rekord.viewer import containers
from rekord.viewer.columns import view_of_bytes
from rekord.viewer.media import turn_upright
from rekord.viewer.memory import Budget

ORIENTATION = 0x0112


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))


def save(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def draw(width=120, height=80, seed=0):
    y, x = np.mgrid[:height, :width]
    return np.stack([(x * 2 + seed) % 256, (y * 3) % 256, (x + y) % 256], axis=-1).astype(np.uint8)


def palette_mask(ids):
    image = (
        Pillow.fromarray(ids, "P") if hasattr(Pillow, "P") else Pillow.frombytes("P", ids.shape[::-1], ids.tobytes())
    )
    image.putpalette([value * 7 % 256 for value in range(768)])
    return save(image, "png")


def to_pixels(data):
    return np.asarray(Pillow.open(io.BytesIO(data)).convert("RGB")).astype(int)


def write_examples(path, rows, schema=None):
    path.write_bytes(frames([example_bytes(row) for row in rows]))
    return path if schema is None else rk.open(path, schema=schema)


@pytest.mark.parametrize(
    ("form", "type"), [("jpeg", "image/jpeg"), ("png", "image/png"), ("webp", "image/webp"), ("gif", "image/gif")]
)
def test_images_are_served_as_they_are_stored_with_a_type_of_ours(tmp_path, form, type):
    data = save(Pillow.fromarray(draw()), form)
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"image": [data]}])) as viewer:
        viewer.wait()
        answer = viewer.get("image", record=0, feature="image")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, f"image/{form}", data)


def test_a_format_that_browsers_may_not_show_is_sent_as_png(tmp_path):
    data = save(Pillow.fromarray(draw()), "bmp")
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"image": [data]}])) as viewer:
        viewer.wait()
        answer = viewer.get("image", record=0, feature="image")
    assert answer.headers["content-type"] == "image/png"
    assert np.array_equal(to_pixels(answer.body), draw().astype(int))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_thumbnails_are_upright_and_facts_are_those_of_the_stored_image(tmp_path, orientation):
    exif = Pillow.Exif()
    exif[ORIENTATION] = orientation
    stored = np.zeros((40, 64, 3), np.uint8)
    stored[:10, :16] = 255  # white at the upper left of the stored image
    data = save(Pillow.fromarray(stored), "jpeg", exif=exif.tobytes(), quality=95)
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"image": [data]}])) as viewer:
        viewer.wait()
        answer = viewer.get("thumb", record=0, feature="image", px=64)
        cell = viewer.json("rows")["rows"][0]["cells"][0]
    assert cell["image"] | {"bytes": 0} == {
        "format": "jpeg", "width": 64, "height": 40, "orientation": orientation, "bytes": 0, "state": "ok",
    }  # fmt: skip
    from PIL import ImageOps

    expected = np.asarray(ImageOps.exif_transpose(Pillow.open(io.BytesIO(data))).convert("RGB")).astype(int)
    shown = to_pixels(answer.body)
    assert shown.shape == expected.shape
    assert np.abs(shown - expected).mean() < 8
    assert np.array_equal(turn_upright(stored, orientation).shape, expected.shape)


def test_a_mask_is_sent_as_the_ids_that_decoding_gives(tmp_path):
    ids = (np.arange(30 * 50).reshape(30, 50) // 300).astype(np.uint8)
    ids[0] = 255
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=5, ignore=255, of="image")})
    row = {"image": save(Pillow.fromarray(draw(50, 30)), "png"), "mask": palette_mask(ids)}
    rk.write([row] * 3, tmp_path / "d", schema=schema, progress=False)
    [batch] = rk.open(tmp_path / "d").batches(3, decode=True)
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        answer = viewer.get("mask", record=1, feature="mask")
        packed = viewer.get("mask", {"Accept-Encoding": "gzip"}, record=1, feature="mask")
        small = viewer.get("mask", record=1, feature="mask", px=10)
        side = viewer.json("session")["sides"][0]
    assert answer.headers["content-type"] == "application/octet-stream"
    magic, width, height, size = struct.unpack_from("<4sIII", answer.body)
    assert (magic, width, height, size) == (b"RKM1", 50, 30, 1)
    found = np.frombuffer(answer.body, np.uint8, offset=16).reshape(30, 50)
    assert np.array_equal(found, batch["mask"][1])
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == answer.body
    assert struct.unpack_from("<4sII", small.body) == (b"RKM1", 10, 6)
    assert set(small.body[16:]) <= set(answer.body[16:])
    assert side["overlays"] == [{"image": "image", "masks": ["mask"], "boxes": []}]
    described = next(one for one in side["columns"] if one["name"] == "mask")
    assert (described["view"], described["ignore"], described["colours"][:2]) == (
        "mask",
        255,
        ["transparent", "#e63946"],
    )


def test_boxes_come_with_their_classes_in_the_order_of_the_stored_image(tmp_path):
    side = {"xmin": [0.1], "ymin": [0.2], "xmax": [0.5], "ymax": [0.9]}
    row = {f"image/object/bbox/{name}": value for name, value in side.items()}
    row |= {"image/object/class/label": [2], "image/object/class/text": ["dog"]}
    row["image/encoded"] = [save(Pillow.fromarray(draw()), "jpeg")]
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [row] * 3)) as viewer:
        viewer.wait()
        opened = viewer.json("session")["sides"][0]
        page = viewer.json("rows")
        record = viewer.json("record", record=2)
    assert opened["overlays"] == [{"image": "image/encoded", "masks": [], "boxes": ["image/object/bbox"]}]
    cell = page["rows"][0]["cells"][page["columns"].index("image/object/bbox")]
    assert cell["boxes"] == [[0.2, 0.1, 0.9, 0.5]]
    value = next(one["value"] for one in record["features"] if one["name"] == "image/object/bbox")
    assert (value["boxes"]["labels"], value["boxes"]["names"]) == ([2], ["dog"])


def test_a_thumbnail_is_made_once_and_may_be_cached_for_this_session_only(tmp_path):
    data = save(Pillow.fromarray(draw()), "jpeg")
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"image": [data]}])) as viewer:
        viewer.wait()
        stamp = viewer.json("session")["stamp"]
        first = viewer.get("thumb", record=0, feature="image", v=stamp)
        other = viewer.get("thumb", record=0, feature="image", v="other")
    assert first.headers["cache-control"] == "private, max-age=3600, immutable"
    assert other.headers["cache-control"] == "no-store"
    assert first.body == other.body


def test_a_tile_sheet_has_the_image_and_the_class_of_each_record(tmp_path):
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    rows = [{"image": np.full((40, 40, 3), colours[i % 3], np.uint8), "label": i % 3} for i in range(50)]
    schema = rk.Schema({"image": rk.Image(format="png"), "label": rk.Label(3)})
    rk.write(rows, tmp_path / "d", schema=schema, shuffle=False, progress=False)
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        sheet = viewer.get("mosaic", first=10, count=20, px=8).body
        by_class = viewer.get("mosaic", count=50, px=8, order="class:label").body
    magic, px, first, count, total = struct.unpack_from("<4sIIII", sheet)
    assert (magic, px, first, count, total) == (b"RKT1", 8, 10, 20, 50)
    entries = [struct.unpack_from("<IiBB", sheet, 20 + 12 * i) for i in range(count)]
    assert entries == [(10 + i, (10 + i) % 3, 0, 0) for i in range(20)]
    pixels = np.frombuffer(sheet, np.uint8, offset=20 + 12 * count).reshape(count, 8, 8, 3)
    assert [tuple(pixels[i, 4, 4]) for i in range(20)] == [colours[(10 + i) % 3] for i in range(20)]
    classes = [struct.unpack_from("<Ii", by_class, 20 + 12 * i)[1] for i in range(50)]
    assert classes == sorted(classes)


def test_tiles_of_damaged_and_missing_images_are_grey(tmp_path):
    good = save(Pillow.fromarray(draw()), "png")
    rows = [{"image": [good], "a": [1]}, {"image": [good[: len(good) // 2]], "a": [1]}, {"a": [1]}]
    schema = rk.Schema({"image": rk.Image(optional=True), "a": rk.Int64()})
    with open_viewer(write_examples(tmp_path / "x.tfrecord", rows, schema)) as viewer:
        viewer.wait()
        sheet = viewer.get("mosaic", feature="image", px=8).body
        assert viewer.get("thumb", record=1, feature="image").status == 422
        assert viewer.get("thumb", record=2, feature="image").status == 404
    assert [sheet[20 + 12 * i + 9] for i in range(3)] == [0, 2, 1]
    assert set(sheet[20 + 36 + 8 * 8 * 3 :]) == {0x80}


def make_wav(samples, rate=8000, width=2):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(samples)
    return file.getvalue()


def test_audio_is_played_in_ranges_and_drawn_as_a_waveform(tmp_path):
    samples = np.concatenate([np.zeros(4000), np.full(4000, 16384)]).astype("<i2")
    data = make_wav(samples.tobytes())
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"sound": [data]}])) as viewer:
        viewer.wait()
        whole = viewer.get("audio", record=0, feature="sound")
        part = viewer.get("audio", {"Range": "bytes=10-19"}, record=0, feature="sound")
        end = viewer.get("audio", {"Range": "bytes=-4"}, record=0, feature="sound")
        beyond = viewer.get("audio", {"Range": "bytes=999999-"}, record=0, feature="sound")
        peaks = viewer.json("peaks", record=0, feature="sound", bins=4)
        value = viewer.json("record", record=0)["features"][0]["value"]
    assert (whole.status, whole.headers["content-type"], whole.body) == (200, "audio/wav", data)
    assert (part.status, part.body, part.headers["content-range"]) == (206, data[10:20], f"bytes 10-19/{len(data)}")
    assert (end.status, end.body) == (206, data[-4:])
    assert beyond.status == 416
    assert (peaks["rate"], peaks["seconds"], peaks["high"]) == (8000, 1.0, [0, 0, 0.5, 0.5])
    assert value["audio"] == {"format": "wav", "bytes": len(data), "rate": 8000, "channels": 1, "seconds": 1.0}


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_waveform_of_wav_needs_no_library(monkeypatch, width):
    pytest.importorskip("soundfile")
    raw = np.random.default_rng(width).integers(0, 256, 1000 * width, np.uint8).tobytes()
    data = make_wav(raw, width=width)
    decoded = containers.compute_peaks(data, 7, "sound")
    monkeypatch.setattr(containers, "find_spec", lambda name: None)
    assert containers.compute_peaks(data, 7, "sound") == decoded
    assert containers.inspect_audio(data)["seconds"] == 1000 / 8000
    assert len(containers.compute_peaks(data[:-101], 7, "sound")["low"]) == 7
    for damaged in (data[:40], data[:12] + b"junk\xff\xff\xff\x7f" + data[12:]):
        with pytest.raises(rk.RekordError) as caught:
            containers.compute_peaks(damaged, 7, "sound")
        assert (caught.value.code, caught.value.location.feature) == ("D414", "sound")


def test_text_that_contains_the_name_of_a_box_is_no_video():
    assert view_of_bytes(b"The free software, and text after it") == "text"
    assert view_of_bytes(b"\0\0\0\x08wide\0\0\0\x08mdat") == "video"


def test_video_frames_are_decoded(tmp_path):
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(6):
            image = np.full((48, 64, 3), 40 * i, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    with open_viewer(write_examples(tmp_path / "x.tfrecord", [{"clip": [file.getvalue()]}])) as viewer:
        viewer.wait()
        frame = viewer.get("frame", record=0, feature="clip", frame=4)
        stored = viewer.get("video", record=0, feature="clip")
        missing = viewer.get("frame", record=0, feature="clip", frame=60)
        value = viewer.json("record", record=0)["features"][0]["value"]
    assert frame.headers["content-type"] == "image/jpeg"
    assert abs(to_pixels(frame.body).mean() - 160) < 12
    assert (stored.headers["content-type"], stored.body) == ("video/mp4", file.getvalue())
    assert missing.status == 404
    assert (value["video"]["width"], value["video"]["height"]) == (64, 48)


def test_decoders_wait_for_their_share_of_pixels():
    gate = Budget(100)
    with gate.admit(60), gate.admit(40):
        assert gate._left == 0
    with gate.admit(10_000):  # alone, even if it is larger than everything
        assert gate._left == 0
    assert gate._left == 100

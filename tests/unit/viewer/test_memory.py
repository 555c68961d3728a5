"""The memory of the server stays below 500 MB, whatever the records hold and however many requests come at once."""

import asyncio
import io
import os
import subprocess
import sys
import wave
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image as Pillow
from sample_conversions import PeakMemory
from viewer_client import ViewerClient, open_viewer

from rekord.testing import example_bytes, frames, length_delimited
from rekord.viewer import responses
from rekord.viewer.memory import Budget, bound_decoded_bytes
from rekord.viewer.responses import PieceResponse

MOST_BYTES = 500_000_000


def encode_png(pixels, mode):
    file = io.BytesIO()
    Pillow.frombytes(mode, pixels.shape[1::-1], pixels.tobytes()).save(file, "png", compress_level=1)
    return file.getvalue()


def packed(kind, values):
    """An Example of one list; kind 1 is bytes, 2 floats, 3 int64."""
    return length_delimited(
        1, length_delimited(1, length_delimited(1, b"v") + length_delimited(2, length_delimited(kind, values)))
    )


def write_integers():
    return [packed(3, length_delimited(1, bytes(60 << 20)))] * 2


def write_floats():
    return [packed(2, length_delimited(1, bytes(60 << 20)))] * 2


def write_empty_values():
    return [packed(1, b"\x0a\x00" * (20 << 20))] * 2


def write_keys():
    one = length_delimited(2, length_delimited(3, length_delimited(1, b"\1")))
    names = [length_delimited(1, b"%d" % i) for i in range(100_000)]
    return [b"".join(length_delimited(1, length_delimited(1, name + one)) for name in names)] * 3


def write_masks():
    ids = np.repeat(np.arange(8000, dtype=np.uint8) % 7, 8000).reshape(8000, 8000)
    return [example_bytes({"v": [encode_png(ids, "L")]})] * 8


def write_images():
    return [example_bytes({"v": [encode_png(np.zeros((8000, 7999, 3), np.uint8), "RGB")]})] * 4


HOSTILE = {
    "integers": (write_integers, ["rows", "record", "tensor", "facets"], "too_large"),
    "floats": (write_floats, ["rows", "record", "tensor", "facets"], "ok"),
    "empty values": (write_empty_values, ["rows", "record"], "too_large"),
    "keys": (write_keys, ["rows", "record"], "ok"),
    "masks": (write_masks, ["mask", "thumb", "mosaic"], "ok"),
    "images": (write_images, ["image", "thumb", "mosaic"], "ok"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_bounded_whatever_records_hold(tmp_path, name):
    write, places, state = HOSTILE[name]
    (tmp_path / "x.tfrecord").write_bytes(frames(write()))
    command = [sys.executable, "-m", "rekord", "view", str(tmp_path / "x.tfrecord"), "--no-browser", "-q"]
    environment = os.environ | {"REKORD_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            with PeakMemory(process.pid) as watched:
                viewer = ViewerClient(process.stdout.readline().strip())
                viewer.wait()
                assert viewer.json("rows")["rows"][0]["state"] == state
                # As many at once as a browser sends.
                asked = [(place, record) for place in places for record in (0, 1, 0, 1, 0, 1)]
                with ThreadPoolExecutor(6) as pool:
                    answers = list(pool.map(lambda one: viewer.get(one[0], record=one[1], feature="v"), asked))
            assert {answer.status for answer in answers} <= {200, 413}
        finally:
            process.terminate()
    assert 20_000_000 < watched.peak_bytes < MOST_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_when_many_images_are_queried(tmp_path):
    pytest.importorskip("duckdb")
    image = np.random.default_rng(0).bytes(1_000_000)
    with open(tmp_path / "x.tfrecord", "wb") as file:
        for i in range(700):
            file.write(frames([example_bytes({"a": [i], "image": [image]})]))
    command = [sys.executable, "-m", "rekord", "view", str(tmp_path / "x.tfrecord"), "--no-browser", "-q"]
    environment = os.environ | {"REKORD_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            with PeakMemory(process.pid) as watched:
                viewer = ViewerClient(process.stdout.readline().strip())
                viewer.wait()
                viewer.json("facets")
                viewer.wait()
                assert viewer.json("facets")["records"] == 700
                # In time or not: that depends on the machine.
                assert viewer.get("rows", sql="a = 3").status in (200, 504)
                for query in ("select * from records", "select list(range) from range(50000000)"):
                    assert viewer.post("sql", {"query": query}).status in (200, 400, 422, 504)
        finally:
            process.terminate()
    assert 20_000_000 < watched.peak_bytes < MOST_BYTES


def test_decoded_sizes_are_bounded_before_anything_is_decoded():
    assert bound_decoded_bytes(b"") == 0
    row = example_bytes({"a": [1, 300, -1], "b": [1.5, 2.5], "c": [b"xyz"]})
    held = 3 * 8 + 2 * 4 + 3
    assert held <= bound_decoded_bytes(row) <= len(row) + held + 200
    assert bound_decoded_bytes(packed(3, length_delimited(1, bytes(1000)))) >= 8000
    assert bound_decoded_bytes(packed(1, b"\x0a\x00" * 5000)) >= 5000 * 41
    image = example_bytes({"image": [bytes(1_000_000)], "label": [3]})
    assert bound_decoded_bytes(image) < 2_100_000
    frames_of_a_clip = example_bytes({"frames": [bytes(5000)] * 2000})
    assert bound_decoded_bytes(frames_of_a_clip) < 21_000_000
    # Not an Example, damaged, or one with more keys than are worth measuring: every byte might end an integer.
    keys = example_bytes({f"k{i}": [1] for i in range(2000)})
    for payload in (row[:-1], keys, b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x7f", b"\x0b", b"text"):
        ended = sum(byte < 0x80 for byte in payload)
        assert bound_decoded_bytes(payload) == len(payload) + 8 * ended


def test_a_budget_is_given_back_once():
    budget = Budget(10)
    give_back = budget.take(7)
    give_back()
    give_back()
    with budget.admit(10):
        assert budget._left == 0
    assert budget._left == 10


def send_pieces(pieces, send):
    released = []
    response = PieceResponse(pieces, 200, {"content-type": "x/y"}, lambda: released.append(True))
    return released, response({"type": "http", "method": "GET"}, None, send)


def test_a_large_body_is_sent_piece_by_piece():
    sent = []

    async def send(message):
        sent.append(message)

    body = np.random.default_rng(0).bytes(1_000_000)
    released, sending = send_pieces([b"head", memoryview(body)], send)
    asyncio.run(sending)
    assert (b"content-length", b"1000004") in sent[0]["headers"]
    assert b"".join(one["body"] for one in sent[1:]) == b"head" + body
    assert max(len(one["body"]) for one in sent[1:]) == 256 << 10
    assert released == [True]


def test_a_client_that_takes_nothing_gives_its_memory_back(monkeypatch):
    monkeypatch.setattr(responses, "SEND_SECONDS", 0.01)

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    released, sending = send_pieces([bytes(1_000_000)], send)
    with pytest.raises(TimeoutError):
        asyncio.run(sending)
    assert released == [True]


def test_a_range_is_answered_by_its_first_four_megabytes(tmp_path):
    sound = encode_wav(3_000_000)
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"sound": [sound]})]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        heard = b""
        while len(heard) < len(sound):
            part = viewer.get("audio", {"Range": f"bytes={len(heard)}-"}, record=0, feature="sound")
            assert part.status == 206
            end = len(heard) + len(part.body) - 1
            assert part.headers["content-range"] == f"bytes {len(heard)}-{end}/{len(sound)}"
            heard += part.body
            assert len(part.body) <= 4 << 20
        assert viewer.get("audio", record=0, feature="sound").body == sound
    assert heard == sound


def encode_wav(samples):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(np.arange(samples, dtype="<i2").tobytes())
    return file.getvalue()


def test_long_records_are_not_checked_without_being_asked(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"a": [bytes(17 << 20)]})]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        assert viewer.json("status")["check"]["state"] == "idle"
        assert viewer.post("check", {}).json["state"] in ("running", "done")


def test_a_schema_is_inferred_for_the_first_columns_only(tmp_path):
    row = {f"key{i:04}": [i] for i in range(2100)}
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes(row)] * 3))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        record = viewer.json("record", record=1)
    assert (len(record["features"]), len(record["undeclared"])) == (1000, 100)
    assert (record["state"], record["undeclared"][-1]["name"]) == ("ok", "key2099")

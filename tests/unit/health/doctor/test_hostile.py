"""The doctor on files that nobody meant well: it says something, and neither fails nor grows."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.testing import damage, wire

NAN = float("nan")
INF = float("inf")


def png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(out, "PNG")
    return out.getvalue()


RICH: dict[str, Any] = {
    "image/encoded": [png()],
    "image/height": [4],
    "image/width": [4.0],
    "image/segmentation/class/encoded": [png()],
    "label": [3],
    "pixels": [bytes(range(48))],
    "tokens": [1, 2, 3],
}
SMALL = damage.frames([wire.example_bytes(RICH)] * 3)
SCHEMA = rk.Schema(
    {
        "image": rk.Image(key="image/encoded"),
        "mask": rk.Mask(classes=2, key="image/segmentation/class/encoded"),
        "label": rk.Label(5),
        "pixels": rk.Tensor("uint8", shape=(4, 4, 3)),
        "tokens": rk.Int64(shape=(3,)),
    }
)


def documents(path: Path) -> list[dict[str, Any]]:
    return [rk.doctor(path).to_dict(), rk.doctor(path, schema=SCHEMA).to_dict()]


@pytest.mark.parametrize("packed", [False, True])
def test_every_cut_of_a_file_is_diagnosed(tmp_path: Path, packed: bool) -> None:
    data = gzip.compress(SMALL) if packed else SMALL
    path = tmp_path / ("a.tfrecord.gz" if packed else "a.tfrecord")
    whole = damage.frame_offsets(SMALL)
    for size in range(1, len(data), 11):
        path.write_bytes(data[:size])
        if packed or size not in whole:
            assert not rk.doctor(path).ok, size


def test_every_changed_byte_is_diagnosed(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for at in range(0, len(SMALL), 13):
        path.write_bytes(SMALL[:at] + bytes([SMALL[at] ^ 0xFF]) + SMALL[at + 1 :])
        found = rk.doctor(path)
        assert {"H804", "H805", "H803", "H808"} & {each.code for each in found.diagnoses}, at


def test_a_payload_with_any_byte_changed_and_right_checksums_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    payload = wire.example_bytes(RICH)
    for at in range(0, len(payload), 7):
        changed = payload[:at] + bytes([payload[at] ^ 0x5A]) + payload[at + 1 :]
        path.write_bytes(damage.frames([payload, changed, payload]))
        for document in documents(path):
            assert document["records"] == 3


@pytest.mark.parametrize(
    "row",
    [
        {"height": [-5], "width": [-5], "image": [bytes(75)]},
        {"height": [0], "width": [0], "image": [bytes(75)]},
        {"height": [2**62], "width": [2**62], "channels": [2**62], "image": [bytes(75)]},
        {"height": [NAN], "width": [INF], "image": [bytes(75)]},
        {"height": [0.5], "width": [8.0], "image": [b"\xff" * 75]},
        {"height": [5], "width": [5], "image": list(range(25))},
        {"label": [NAN, INF, -INF]},
        {"label": [2**63 - 1, -(2**63)]},
        {"label": [b"\xff\xfe"]},
        {"": [1], "\x00": [b""], "`": [1.0]},
        {"label": [b"nan"], "class": [b"1_000"]},
        {"vector": [b"\x00\x00\xa0\x7f" * 64]},  # NaNs that signal
        {"image": [np.nan] * 64},
    ],
    ids=range(13),
)
def test_odd_values_are_survived(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(damage.frames([wire.example_bytes(row)] * 4))
    for document in documents(path):
        assert document["records"] == 4


@pytest.mark.slow
def test_thousands_of_keys_are_not_thousands_of_diagnoses(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    rows = [{f"label_{i:05d}_{j}": [1.5] for j in range(50)} for i in range(100)]
    path.write_bytes(damage.frames([wire.example_bytes(row) for row in rows]))
    assert len(rk.doctor(path).diagnoses) < 100


@pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"\x1f\x8b\x08", damage.claim_length(1 << 60, b"abc")])
def test_files_of_next_to_nothing_are_survived(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    found = rk.doctor(path)
    assert found.records == 0
    assert len(found.diagnoses) == 1

"""Video as it is stored and decoded: files of FFmpeg, their frames and times, and what is refused."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.codec import video

av = pytest.importorskip("av")
from media_files import audio_bytes, rotate_mp4, video_bytes, video_without_frames  # noqa: E402

FORMATS = ("mp4", "mov", "avi", "mkv", "webm")


def stored(value: Any, **declared: Any) -> Any:
    schema = rk.Schema({"x": rk.Video(**declared)})
    return rk.decode(rk.encode({"x": value}, schema), schema)["x"]


def refused(value: Any, **declared: Any) -> rk.RekordError:
    with pytest.raises(rk.EncodeError) as caught:
        stored(value, **declared)
    assert caught.value.location.feature == "x"
    assert caught.value.do
    return caught.value


def frames_of(data: bytes) -> list[Any]:
    with av.open(io.BytesIO(data)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_stored_unchanged_and_decoded_as_ffmpeg_does(form: str, tmp_path: Path) -> None:
    files = [video_bytes(form, frames) for frames in (3, 5)]
    schema = rk.Schema({"x": rk.Video()})
    rk.write([{"x": one} for one in files], tmp_path / "out", schema=schema, progress=False)
    split = rk.open(tmp_path / "out")["train"]
    assert [row["x"] for row in split] == files
    (batch,) = split.batches(2, decode=True)
    assert isinstance(batch["x"], rk.Ragged)
    for row, file in zip(batch["x"], files, strict=True):
        assert np.array_equal(row, frames_of(file))
    (batch,) = split.batches(2, decode=True, resize=(16, 24))
    assert [row.shape for row in batch["x"]] == [(3, 16, 24, 3), (5, 16, 24, 3)]


def test_videos_of_several_sizes_are_images_of_several_sizes(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Video(optional=True)})
    rows = [{"x": video_bytes("mp4", 2)}, {"x": None}, {"x": video_bytes("mp4", 1, size=(48, 32))}]
    rk.write(rows, tmp_path / "out", schema=schema, progress=False)
    (batch,) = rk.open(tmp_path / "out")["train"].batches(3, decode=True)
    column = batch["x"]
    assert column[1] is None
    assert [frame.shape for frame in column[0]] == [(32, 48, 3)] * 2
    assert [frame.shape for frame in column[2]] == [(48, 32, 3)]


def test_frames_are_turned_as_the_file_says() -> None:
    plain = video_bytes("mp4", 1, codec="mpeg4")
    turned = rotate_mp4(plain, 90)
    with av.open(io.BytesIO(turned)) as container:
        assert abs(next(container.decode(video=0)).rotation) == 90
    assert video.decode_video(plain, None).shape == (1, 32, 48, 3)
    assert video.decode_video(turned, None).shape == (1, 48, 32, 3)
    assert video.inspect_video(turned, rk.Video(), "full")[1][:3] == ("mp4", 32, 48)


@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_file_is_refused(form: str) -> None:
    file = video_bytes(form, 30)
    failure = refused(file[: len(file) * 2 // 3])
    assert (failure.code, failure.expected) == ("E345", f"{len(file):,} bytes, as the headers declare")


@pytest.mark.parametrize(
    "data",
    [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"<?xml version='1.0'?><MPD></MPD>",
        b"",
        audio_bytes("wav", 100) if pytest.importorskip("soundfile") else b"",
        b"\0\0\0\x1cftypheic" + bytes(100),
    ],
)
def test_playlists_and_other_files_are_refused(data: bytes) -> None:
    assert refused(data).code == "E344"


def test_a_playlist_in_disguise_opens_no_file(tmp_path: Path) -> None:
    # The demuxer is forced by the first bytes: it would otherwise be chosen by the content.
    secret = tmp_path / "secret"
    secret.write_bytes(video_bytes("mp4", 1))
    data = b"RIFF\x00\x00\x00\x00AVI \n#EXTM3U\n#EXTINF:1,\n" + str(secret).encode() + b"\n"
    assert refused(data).code == "E346"  # an AVI without streams


def test_files_without_video_are_refused() -> None:
    failure = refused(video_without_frames())
    assert (failure.code, failure.found) == ("E346", "audio")


def test_large_frames_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(video, "MAX_FRAME_PIXELS", 1000)
    failure = refused(video_bytes("mp4", 1))
    assert (failure.code, failure.found) == ("E347", "48 × 32")
    with pytest.raises(video.InvalidMedia) as caught:
        video.decode_video(video_bytes("mp4", 1), None)
    assert caught.value.code == "D416"


def test_a_film_is_not_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MAX_DECODED_BYTES", 5 * 32 * 48 * 3)
    assert len(video.decode_video(video_bytes("mp4", 5), None)) == 5
    with pytest.raises(video.InvalidMedia) as caught:
        video.decode_video(video_bytes("mp4", 6), None)
    assert caught.value.code == "D416"


def test_what_is_declared_is_required() -> None:
    assert refused(video_bytes("avi", 1), format="mp4").code == "E344"
    assert refused(np.zeros((2, 8, 8, 3), np.uint8)).code == "E344"
    assert refused("a.mp4").code == "E322"


@pytest.mark.parametrize("form", FORMATS)
def test_changed_bytes_are_an_error_or_frames(form: str) -> None:
    file = video_bytes(form, 4)
    random = np.random.default_rng(7)
    for _ in range(40):
        data = bytearray(file)
        for at in random.integers(len(data), size=3):
            data[at] = random.integers(256)
        with contextlib.suppress(video.InvalidMedia):  # and nothing else
            assert video.decode_video(bytes(data), None).dtype == np.uint8


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    file = video_bytes("mp4", 1)
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(rk.UsageError) as caught:
        stored(file)
    assert caught.value.code == "U602"
    assert "pip install 'rekord[video]'" in str(caught.value)

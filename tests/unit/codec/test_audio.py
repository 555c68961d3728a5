"""Audio as it is stored and decoded: files of libsndfile, PCM samples, and what is refused."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.codec import audio

soundfile = pytest.importorskip("soundfile")
from media_files import audio_bytes, tone  # noqa: E402

FORMATS = ("wav", "flac", "ogg", "mp3")


def stored(value: Any, **declared: Any) -> Any:
    schema = rk.Schema({"x": rk.Audio(**declared)})
    return rk.decode(rk.encode({"x": value}, schema), schema)["x"]


def refused(value: Any, **declared: Any) -> rk.RekordError:
    with pytest.raises(rk.EncodeError) as caught:
        stored(value, **declared)
    assert caught.value.location.feature == "x"
    return caught.value


def decoded(tmp_path: Path, values: list[Any], **declared: Any) -> Any:
    schema = rk.Schema({"x": rk.Audio(**declared)})
    rk.write([{"x": value} for value in values], tmp_path / "out", schema=schema, progress=False)
    (batch,) = rk.open(tmp_path / "out")["train"].batches(len(values), decode=True)
    return batch["x"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_stored_unchanged_and_decoded_as_libsndfile_does(form: str, tmp_path: Path) -> None:
    files = [audio_bytes(form, samples) for samples in (1600, 3000)]
    (tmp_path / "a").write_bytes(files[0])
    assert stored(tmp_path / "a") == files[0]
    column = decoded(tmp_path, files)
    assert isinstance(column, rk.Ragged)
    for row, file in zip(column, files, strict=True):
        expected, _ = soundfile.read(io.BytesIO(file), dtype="float32")
        assert row.dtype == np.float32
        assert row.shape == expected.shape
        assert np.abs(row - expected).max() <= (
            1e-7 if form == "mp3" else 0
        )  # libmpg123 rounds differently after a seek


def test_channels_are_averaged_unless_they_are_declared(tmp_path: Path) -> None:
    file = audio_bytes("wav", 100, channels=2, subtype="FLOAT")
    expected, _ = soundfile.read(io.BytesIO(file), dtype="float32")
    (whole,) = decoded(tmp_path / "2", [file], channels=2)
    assert np.array_equal(whole, expected)
    (mixed,) = decoded(tmp_path / "1", [file])
    assert np.allclose(mixed, expected.mean(axis=1), atol=1e-7)
    assert rk.open(tmp_path / "1" / "out")["train"].batches(1, decode=True, ragged="pad").peek()["x"].shape == (
        1,
        100,
    )


def test_pcm_samples_are_those_of_the_file(tmp_path: Path) -> None:
    file = audio_bytes("wav", 500)
    expected, _ = soundfile.read(io.BytesIO(file), dtype="int16")
    samples = stored(file, format="pcm16", rate=16_000)
    assert samples.dtype == np.int16
    assert np.array_equal(samples, expected)
    (floats,) = decoded(tmp_path, [file], format="pcm16", rate=16_000)
    assert np.array_equal(floats, soundfile.read(io.BytesIO(file), dtype="float32")[0])
    floats = stored(audio_bytes("wav", 50, channels=2, subtype="FLOAT"), format="pcm_f32", rate=16_000, channels=2)
    assert np.array_equal(floats, tone(50, channels=2))


def test_arrays_are_samples() -> None:
    whole = np.array([0, 1, -32768, 32767], np.int16)
    assert np.array_equal(stored(whole, format="pcm16", rate=8000), whole)
    assert stored(whole.tolist(), format="pcm16", rate=8000).tolist() == whole.tolist()
    floats = whole / np.float32(32768)
    assert np.array_equal(stored(floats, format="pcm16", rate=8000), whole)
    assert np.array_equal(stored(whole, format="pcm_f32", rate=8000), floats)
    for form in ("wav", "flac"):
        file = stored(whole, format=form, rate=8000)
        found, rate = soundfile.read(io.BytesIO(file), dtype="int16")
        assert (found.tolist(), rate) == (whole.tolist(), 8000)


def test_columns_of_samples_are_encoded_as_rows_are(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Audio(format="pcm16", rate=8000)})
    samples = np.arange(12, dtype=np.int16).reshape(3, 4)
    with rk.Writer(tmp_path / "a.tfrecord", schema) as writer:
        writer.write_columns({"x": samples})
    assert list(rk.records(tmp_path / "a.tfrecord")) == [rk.encode({"x": one}, schema) for one in samples]


WAV = b"RIFF" + struct.pack("<I", 52) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
HOSTILE = {
    "a size of 2 GB": WAV + b"data" + struct.pack("<I", 0x7FFFFFF0) + bytes(16),
    "a size of 2^41": b"RF64\xff\xff\xff\xffWAVEds64"
    + struct.pack("<IQQQI", 28, 1 << 41, 1 << 41, 1 << 40, 0)
    + WAV[12:]
    + b"data\xff\xff\xff\xff"
    + bytes(16),
    "no samples": WAV + b"data" + struct.pack("<I", 0),
    "only a header": WAV,
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_that_claims_what_is_not_there_is_refused(name: str) -> None:
    failure = refused(HOSTILE[name])
    assert failure.code == "E342"
    assert failure.do


@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_file_is_refused(form: str) -> None:
    file = audio_bytes(form, 20_000)
    assert refused(file[: len(file) // 2]).code == "E342"


def test_a_flac_that_claims_billions_of_samples_is_refused_without_decoding_them() -> None:
    file = bytearray(audio_bytes("flac", 1000))
    file[21] |= 0x0F
    file[22:26] = b"\xff" * 4
    failure = refused(bytes(file))
    assert (failure.code, failure.expected) == ("E347", "at most 1,073,741,824")
    with pytest.raises(audio.InvalidMedia) as caught:
        audio.decode_audio(bytes(file), None)
    assert caught.value.code == "D416"


@pytest.mark.parametrize("data", [b"not audio", b"riff\x2e\x91\xcf\x11" + bytes(60), b"FORM\0\0\0\0AIFF"])
def test_other_formats_are_refused(data: bytes) -> None:
    assert refused(data).code == "E341"


def test_what_is_declared_is_required() -> None:
    file = audio_bytes("wav", 100)
    assert refused(file, format="flac").code == "E341"
    assert refused(file, rate=8000).code == "E343"
    assert refused(file, channels=2).code == "E343"
    assert refused(audio_bytes("wav", 9, channels=2), format="pcm16", rate=16_000).code == "E343"
    assert refused(np.zeros(4, np.float32), format="flac", rate=8000).code == "E341"
    assert refused(np.zeros(4, np.int16)).code == "E341"
    assert refused(np.array([2.0], np.float32), format="pcm16", rate=8000).code == "E310"
    assert refused(np.zeros((4, 2), np.int16), format="pcm16", rate=8000).code == "E306"
    assert refused("a.wav").code == "E322"
    assert refused(3).code == "E302"


def test_a_file_that_cannot_be_decoded_is_named_by_its_record(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Bytes()})
    rk.write([{"x": audio_bytes("wav", 9)}, {"x": b"text"}], tmp_path / "out", schema=schema, progress=False)
    split = rk.open(tmp_path / "out", schema=rk.Schema({"x": rk.Audio()}))["train"]
    with pytest.raises(rk.DecodeError) as caught:
        list(split.batches(2, decode=True))
    assert (caught.value.code, caught.value.location.record, caught.value.location.feature) == ("D414", 1, "x")


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    file = audio_bytes("wav", 9)
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(rk.UsageError) as caught:
        stored(file)
    assert caught.value.code == "U602"
    assert "pip install 'rekord[audio]'" in str(caught.value)

"""Transforms of audio: their values, what they do to the columns of the header, and what they refuse."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.transforms.audio import compute_spectrogram

soundfile = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")
from media_files import audio_bytes, put_audio, tone  # noqa: E402

T = rk.transforms


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put_audio(tmp_path / "data" / "a.wav", 1600)
    put_audio(tmp_path / "data" / "b.flac", 800, rate=8000, channels=2)
    return tmp_path / "data"


def samples_of(data: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(data), dtype="float32")


def test_resampled_files_are_wav_files_of_that_rate(folder: Path, tmp_path: Path) -> None:
    dataset = rk.write(folder, tmp_path / "out", transforms=T.resample(8000), progress=False)
    first, second = dataset["train"]
    samples, rate = samples_of(first["audio"])
    expected = soxr.resample(samples_of((folder / "a.wav").read_bytes())[0], 16_000, 8000)
    assert rate == 8000
    assert np.abs(samples - expected).max() <= 0.5 / 32768
    facts = ["format", "rate", "channels", "samples", "duration"]
    assert [first[name] for name in facts] == ["wav", 8000, 1, 800, np.float32(0.1)]
    assert [second[name] for name in facts] == ["wav", 8000, 1, 800, np.float32(0.1)]
    mixed = samples_of((folder / "b.flac").read_bytes())[0].mean(axis=1)
    assert np.abs(samples_of(second["audio"])[0] - mixed).max() <= 0.5 / 32768
    assert dataset.schema["audio"] == rk.Audio(format="wav", rate=8000, key="audio/encoded")


def test_mono_averages_channels(tmp_path: Path) -> None:
    file = audio_bytes("wav", 500, channels=2)
    schema = rk.Schema({"x": rk.Audio(channels=2, rate=16_000)})
    dataset = rk.write([{"x": file}], tmp_path / "out", schema=schema, transforms=[T.mono()], progress=False)
    (row,) = dataset["train"]
    samples, rate = samples_of(row["x"])
    assert (rate, samples.ndim) == (16_000, 1)
    assert np.abs(samples - samples_of(file)[0].mean(axis=1)).max() <= 0.5 / 32768
    assert dataset.schema["x"] == rk.Audio(format="wav", rate=16_000, channels=1)


def test_pcm_samples_keep_their_format(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Audio(format="pcm_f32", rate=16_000, channels=2)})
    samples = tone(1600, channels=2)
    steps = [T.mono(), T.resample(8000)]
    dataset = rk.write([{"x": samples}], tmp_path / "out", schema=schema, transforms=steps, progress=False)
    (row,) = dataset["train"]
    mixed = samples.mean(axis=1, dtype=np.float64).astype(np.float32)
    assert np.array_equal(row["x"], soxr.resample(mixed, 16_000, 8000))
    assert dataset.schema["x"] == rk.Audio(format="pcm_f32", rate=8000)


def test_reading_gives_what_writing_gives(folder: Path, tmp_path: Path) -> None:
    steps = [T.resample(8000), T.spectrogram(64, 32, mels=8)]
    written = rk.write(folder, tmp_path / "a", transforms=steps, progress=False)["train"]
    read = rk.write(folder, tmp_path / "b", progress=False)["train"].transform(*steps)
    for one, other in zip(written, read, strict=True):
        assert np.array_equal(one["spectrogram"], other["spectrogram"])
        assert one["rate"] == other["rate"] == 8000
    (batch,) = read.batches(2)
    assert batch["spectrogram"].values.shape[1:] == (8,)
    again = rk.open(tmp_path / "a")
    assert again.schema["spectrogram"] == rk.Float32((None, 8))


def test_a_spectrogram_has_a_frame_for_each_whole_window() -> None:
    step = T.spectrogram(400, 160)
    assert [compute_spectrogram(tone(n)[:, 0], 16_000, step).shape for n in (399, 400, 559, 560)] == [
        (0, 257),
        (1, 257),
        (1, 257),
        (2, 257),
    ]
    peak = compute_spectrogram(tone(4000, hertz=1000.0)[:, 0], 16_000, T.spectrogram(512, 128, log=False))
    assert set(peak.argmax(axis=1)) == {32}  # of 512 bins at 16,000 Hz


def test_what_does_not_apply_is_refused(tmp_path: Path) -> None:
    for schema, step in (
        (rk.Schema({"x": rk.Int64()}), T.mono()),
        (rk.Schema({"x": rk.Audio(), "y": rk.Audio()}), T.resample(8000)),
        (rk.Schema({"x": rk.Audio()}), T.spectrogram()),
        (rk.Schema({"x": rk.Audio(rate=8000, channels=2)}), T.spectrogram()),
        (rk.Schema({"x": rk.Audio(rate=8000)}), T.spectrogram(mels=8, high=5000)),
        (rk.Schema({"x": rk.Int64()}), T.resample(8000, column="x")),
    ):
        with pytest.raises(rk.SchemaError) as caught:
            step.bind(schema)
        assert caught.value.code == "S142"
    for make in (
        lambda: T.resample(0),
        lambda: T.spectrogram(400, 0),
        lambda: T.spectrogram(400, fft=256),
        lambda: T.spectrogram(mels=0),
        lambda: T.spectrogram(power=3),
        lambda: T.spectrogram(low=-1.0),
    ):
        with pytest.raises(rk.UsageError) as caught:
            make()
        assert caught.value.code == "U605"


def test_a_recording_that_grows_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekord.codec.audio import InvalidMedia
    from rekord.transforms import audio

    monkeypatch.setattr(audio, "MAX_DECODED_VALUES", 1000)
    with pytest.raises(InvalidMedia) as caught:
        audio.resample_samples(np.zeros(200, np.float32), 8000, 48_000)
    assert caught.value.code == "E347"


@pytest.mark.parametrize("channels", [None, 1])
def test_files_of_several_rates_and_channels_become_samples_of_one(
    folder: Path, tmp_path: Path, channels: int | None
) -> None:
    declared = {"audio": rk.Audio(format="pcm16", rate=8000, channels=channels)}
    samples = rk.write(folder, tmp_path / "a", columns=declared, transforms=T.resample(8000), progress=False)
    files = rk.write(folder, tmp_path / "b", transforms=T.resample(8000), progress=False)
    for row, other in zip(samples["train"], files["train"], strict=True):
        assert np.array_equal(row["audio"], soundfile.read(io.BytesIO(other["audio"]), dtype="int16")[0])
    declared = {"audio": rk.Audio(format="pcm16", rate=8000, channels=2)}
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(folder, tmp_path / "c", columns=declared, transforms=T.resample(8000), progress=False)
    assert (caught.value.code, caught.value.location.path) == ("E343", str(folder / "a.wav"))


def test_a_declared_rate_of_files_is_checked_before_they_are_resampled(folder: Path, tmp_path: Path) -> None:
    declared = {"audio": rk.Audio(rate=8000)}
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(folder, tmp_path / "a", columns=declared, transforms=T.resample(8000), progress=False)
    assert caught.value.code == "E343"
    assert caught.value.do == "declare rk.Audio(), and transforms=rk.transforms.resample(8000), or declare rate=16000"


@pytest.mark.parametrize("step", [rk.transforms.mono(), rk.transforms.resample(8000)])
def test_averaged_files_are_not_said_to_have_several_channels(tmp_path: Path, step: Any) -> None:
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in/a.wav", np.zeros((1600, 2)), 16_000)
    rk.write(tmp_path / "in", tmp_path / "a", progress=False)
    assert "H847" in (tmp_path / "a/.rekord/remarks.jsonl").read_text()
    rk.write(tmp_path / "in", tmp_path / "b", transforms=[step], progress=False)
    assert not (tmp_path / "b/.rekord/remarks.jsonl").exists()

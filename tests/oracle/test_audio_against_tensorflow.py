"""Audio compared with TensorFlow: stored WAV files, spectrograms, feeds, and the features of TFDS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rekord as rk

tf = pytest.importorskip("tensorflow")
pytest.importorskip("soundfile")
from media_files import put_audio, put_video, tone  # noqa: E402

from rekord.transforms.audio import compute_spectrogram  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        put_audio(tmp_path / "data" / f"{number}.wav", 1000 + 100 * number)
    return tmp_path / "data"


def test_tensorflow_decodes_what_is_stored(folder: Path, tmp_path: Path) -> None:
    rk.write(folder, tmp_path / "out", progress=False)
    rk.write(folder, tmp_path / "half", transforms=rk.transforms.resample(8000), progress=False)
    for place, rate in (("out", 16_000), ("half", 8000)):
        split = rk.open(tmp_path / place)["train"]
        (batch,) = split.batches(3, decode=True)
        keys = {"audio/encoded": tf.io.FixedLenFeature([], tf.string)}
        records = tf.data.TFRecordDataset(str(tmp_path / place / "train-00000-of-00001.tfrecord"))
        for own, record in zip(batch["audio"], records, strict=True):
            samples, found = tf.audio.decode_wav(tf.io.parse_single_example(record, keys)["audio/encoded"])
            assert int(found) == rate
            assert np.array_equal(samples.numpy()[:, 0], own)


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_samples_are_ragged_tensors(folder: Path, tmp_path: Path, mode: str) -> None:
    columns = {"audio": rk.Audio(format="pcm16", rate=16_000)}
    split = rk.write(folder, tmp_path / "out", columns=columns, progress=False)["train"]
    (batch,) = split.to_tensorflow(3, mode=mode, columns=["audio"])
    assert isinstance(batch["audio"], tf.RaggedTensor)
    assert [row.numpy().tolist() for row in batch["audio"]] == [row["audio"].tolist() for row in split]
    if mode == "native":
        (batch,) = split.to_tensorflow(3, columns=["audio"], decode=True)
        assert batch["audio"].dtype == tf.float32
        assert batch["audio"].row_lengths().numpy().tolist() == [1000, 1100, 1200]
        (batch,) = split.to_tensorflow(3, columns=["audio"], decode=True, ragged="pad")
        assert batch["audio"].shape == (3, 1200)


def test_frames_are_ragged_tensors(tmp_path: Path) -> None:
    pytest.importorskip("av")
    for number in (2, 3):
        put_video(tmp_path / "data" / f"{number}.mp4", number)
    split = rk.write(tmp_path / "data", tmp_path / "out", progress=False)["train"]
    (batch,) = split.to_tensorflow(2, columns=["video"], decode=True, resize=(16, 16))
    assert batch["video"].row_lengths().numpy().tolist() == [2, 3]
    assert batch["video"].flat_values.shape[-1] == 3


@pytest.mark.parametrize(
    "options", [{}, {"power": 1, "log": False}, {"mels": 40, "low": 20.0, "high": 4000.0}], ids=str
)
def test_spectrograms_are_those_of_tf_signal(options: dict[str, float]) -> None:
    samples = tone(5000)[:, 0] + np.random.default_rng(1).standard_normal(5000).astype(np.float32) * 0.1
    found = compute_spectrogram(samples, 16_000, rk.transforms.spectrogram(400, 160, **options))
    expected = tf.abs(tf.signal.stft(samples, 400, 160, 512)) ** options.get("power", 2)
    if "mels" in options:
        expected = expected @ tf.signal.linear_to_mel_weight_matrix(40, 257, 16_000, 20.0, 4000.0)
    if options.get("log", True):
        expected = tf.math.log(expected + 1e-6)
    assert np.allclose(found, expected.numpy(), rtol=1e-4, atol=1e-3)


def test_tfds_reads_pcm_audio(folder: Path, tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    schema_columns = {"audio": rk.Audio(format="pcm16", rate=16_000)}
    out = tmp_path / "sounds" / "1.0.0"
    written = rk.write(folder, out, columns=schema_columns, format="tfds", progress=False)["train"]
    builder = tfds.builder_from_directory(str(out))
    assert builder.info.features["audio"].sample_rate == 16_000
    found = [row["audio"].numpy().tolist() for row in builder.as_dataset(split="train")]
    assert found == [row["audio"].tolist() for row in written]
    assert rk.open(out).schema["audio"] == rk.Audio(format="pcm16", rate=16_000)

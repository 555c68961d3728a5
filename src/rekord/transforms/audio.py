"""Transforms of audio: another rate, one channel, and spectrograms."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from rekord.arguments import check_keywords, flag, integer, invalid, positive_int, real_number
from rekord.codec.audio import (
    HEAD_BYTES,
    MAX_DECODED_VALUES,
    InvalidMedia,
    channels_error,
    decode_audio,
    import_media_package,
    mix_channels,
    read_samples,
    shape_samples,
    to_float,
    to_int16,
)
from rekord.codec.columns import Array
from rekord.codec.images.inspect import GeneratedBytes, read_image_bytes
from rekord.errors import schema_error
from rekord.schema import Audio, Feature, Float32, Schema, of_type
from rekord.schema.media import MAX_RATE
from rekord.transforms.base import Bound, ColumnTransform, Row, column_errors, get_value, rebuild_schema

_DERIVED_KEYS = ("audio/rate", "audio/channels", "audio/samples", "audio/duration", "audio/format")
"""Keys of what follows from the samples."""

_LOG_FLOOR = 1e-6  # as in TensorFlow's guide to log-mel spectrograms
_MAX_WINDOW = 1 << 16
_MAX_BANDS = 4096


@check_keywords
def resample(rate: int, *, column: str | None = None) -> Resample:
    """Resample audio to `rate` samples per second, with soxr.

    Encoded files become WAV files of 16 bits; PCM samples keep their format. Several channels are averaged unless the
    schema declares `channels`. The columns stored as `audio/rate`, `audio/samples` and so on are updated. `column` is
    the only Audio column by default.
    """
    return Resample(column=column, rate=integer("rate", rate, least=1, most=MAX_RATE, do="rate=16_000"))


@check_keywords
def mono(*, column: str | None = None) -> Mono:
    """Average the channels of audio.

    Encoded files become WAV files of 16 bits; PCM samples keep their format. `column` is the only Audio column by
    default.
    """
    return Mono(column=column)


@check_keywords
def spectrogram(
    window: int = 400,
    hop: int = 160,
    *,
    fft: int | None = None,
    mels: int | None = None,
    low: float = 0.0,
    high: float | None = None,
    power: Literal[1, 2] = 2,
    log: bool = True,
    column: str | None = None,
    into: str = "spectrogram",
    keep: bool = False,
) -> Spectrogram:
    """Replace audio by spectrograms, Float32 of shape (frames, bins).

    Each frame is a Hann window of `window` samples, `hop` samples after the one before; its Fourier transform has
    `fft` points, by default the next power of two. `power=2` gives squared magnitudes, 1 the magnitudes. `mels` sums
    them in that many mel bands from `low` to `high` Hz, by default up to half the rate. `log` takes the natural
    logarithm, after adding 0.000001. The values are those of `tf.signal.stft` and
    `tf.signal.linear_to_mel_weight_matrix`. The rate must be declared: use `resample` first.
    """
    if power not in (1, 2):
        raise invalid("power", power, "1 or 2", "power=2")
    positive_int("window", window, most=_MAX_WINDOW)
    positive_int("hop", hop)
    points = 1 << (window - 1).bit_length() if fft is None else positive_int("fft", fft, most=_MAX_WINDOW)
    if points < window:
        raise invalid(
            "fft", fft, f"at least the window of {window:,} samples", f"fft={1 << (window - 1).bit_length()}"
        )
    if mels is not None:
        positive_int("mels", mels, most=_MAX_BANDS, do="mels=80")
    expected = "a frequency ≥ 0 in Hz"
    real_number("low", low, expected=expected, fits=lambda one: 0 <= one <= MAX_RATE, do="low=0")
    if high is not None:
        real_number(
            "high", high, expected=f"{expected}, above low=", fits=lambda one: low < one <= MAX_RATE, do="high=8000"
        )
    return Spectrogram(
        column=column,
        into=into,
        keep=keep,
        window=int(window),
        hop=int(hop),
        fft=points,
        mels=mels,
        low=float(low),
        high=None if high is None else float(high),
        power=power,
        log=flag("log", log),
    )


@dataclass(frozen=True, kw_only=True)
class AudioTransform(ColumnTransform):
    """A transform of an Audio column, by default the only one."""

    column: str | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.column is not None:
            ColumnTransform.__post_init__(self)

    def find_column(self, before: Schema) -> tuple[str, Audio]:
        """The column, and its feature."""
        found = of_type(before.context, Audio)
        if self.column is not None:
            feature = self.require_source(before, (Audio,), "audio: rk.Audio")
            assert isinstance(feature, Audio)
            return self.column, feature
        if len(found) != 1:
            raise schema_error(
                "S142",
                f"`{self.name}` needs an Audio column",
                column=None,
                expected="one column of type rk.Audio, or column=",
                found=", ".join(found) or "none",
                do=f'column="{next(iter(found))}"' if found else "declare the column: columns={…: rk.Audio()}",
            )
        return next(iter(found.items()))


@dataclass(frozen=True, kw_only=True)
class _SampleTransform(AudioTransform):
    """A transform whose result is audio again."""

    def options(self) -> Mapping[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("into", "keep")}

    def changed(self, feature: Audio) -> Audio:
        """The feature of the result."""
        raise NotImplementedError

    def change(self, samples: Array, rate: int) -> tuple[Array, int]:
        """The samples and the rate of the result; raises InvalidValue."""
        raise NotImplementedError

    def bind(self, before: Schema) -> Bound:
        name, feature = self.find_column(before)
        after = self.changed(feature if feature.is_pcm else replace(feature, format="wav"))
        keys = {one: known.key or one for one, known in before.context.items()}
        derived = {one: key for one, key in keys.items() if key in _DERIVED_KEYS}
        apply = partial(_apply_to_samples, self, name, feature, after, derived)
        schema = rebuild_schema(before, {**before.features, name: after})
        return Bound(schema, apply, frozenset((name, *derived)), _settle_channels(name))


@dataclass(frozen=True, kw_only=True)
class Resample(_SampleTransform):
    rate: int

    name = "resample"

    def changed(self, feature: Audio) -> Audio:
        return replace(feature, rate=self.rate)

    def change(self, samples: Array, rate: int) -> tuple[Array, int]:
        return resample_samples(samples, rate, self.rate), self.rate


@dataclass(frozen=True, kw_only=True)
class Mono(_SampleTransform):
    name = "mono"

    def changed(self, feature: Audio) -> Audio:
        return replace(feature, channels=None if feature.is_pcm else 1)

    def change(self, samples: Array, rate: int) -> tuple[Array, int]:
        return (mix_channels(samples) if samples.ndim == 2 else samples), rate


def _settle_channels(column: str) -> frozenset[tuple[str, str]]:
    """The remark that files of several channels are stored unchanged does not hold for the result."""
    return frozenset([("H847", column)])


def resample_samples(samples: Array, rate: int, wanted: int) -> Array:
    """Samples at another rate."""
    if rate == wanted:
        return samples
    if samples.size * wanted > MAX_DECODED_VALUES * rate:
        raise InvalidMedia(
            "E347",
            "has too many samples to resample",
            expected=f"at most {MAX_DECODED_VALUES:,} at {wanted:,} Hz",
            found=f"{samples.size:,} at {rate:,} Hz",
            do="split the recording into shorter ones",
        )
    soxr = import_media_package("soxr", "audio", "soxr", "resampling audio")
    out: Array = soxr.resample(samples, rate, wanted)
    return out


def _apply_to_samples(
    step: _SampleTransform, name: str, feature: Audio, after: Audio, derived: Mapping[str, str], row: Row
) -> Row:
    value = get_value(row, name, feature)
    if value is None:
        return row
    with column_errors(name):
        samples, rate = step.change(*_read_value(value, feature))
    stored = to_int16(samples) if after.format != "pcm_f32" else samples
    row[name] = stored if after.is_pcm else GeneratedBytes(encode_wav(stored, rate))
    channels = 1 if stored.ndim == 1 else stored.shape[1]
    facts = (rate, channels, len(stored), len(stored) / rate, str(after.format))
    known = dict(zip(_DERIVED_KEYS, facts, strict=True))
    row.update({column: known[key] for column, key in derived.items() if column in row})
    return row


def _read_value(value: Any, feature: Audio) -> tuple[Array, int]:
    """The samples of a value as float32, and their rate; several channels are averaged unless they are declared."""
    if isinstance(value, np.ndarray):
        return to_float(value), feature.rate or 0
    data, path = read_image_bytes(value, "Audio")
    if not feature.is_pcm:
        return decode_audio(data, feature.channels)
    samples, rate = read_samples(io.BytesIO(data), data[:HEAD_BYTES], path, "E342")
    found = samples.shape[1]
    if feature.channels not in (None, 1, found):
        raise channels_error(found, feature.channels, path)
    return shape_samples(samples, None if feature.channels == 1 else feature.channels), rate


def encode_wav(samples: Array, rate: int) -> bytes:
    """A WAV file of int16 samples, with the shortest header."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    data = np.ascontiguousarray(samples, "<i2").tobytes()
    facts = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    riff = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16)
    return b"".join([riff, facts, b"data", struct.pack("<I", len(data)), data])


# Spectrograms.


@dataclass(frozen=True, kw_only=True)
class Spectrogram(AudioTransform):
    window: int
    hop: int
    fft: int
    mels: int | None
    low: float
    high: float | None
    power: int
    log: bool

    name = "spectrogram"

    def bind(self, before: Schema) -> Bound:
        name, feature = self.find_column(before)
        step = replace(self, column=name)
        step.require_source(before, (Audio,), "audio: rk.Audio")
        if feature.rate is None or feature.channels not in (None, 1):
            raise step.column_type_error(
                "audio with a declared rate, and one channel", feature, "resample(16_000) and mono() before it"
            )
        if self.high is not None and self.mels and self.high > feature.rate / 2:
            raise step.column_type_error(
                f"frequencies up to {feature.rate / 2:g} Hz, half the rate", feature, f"high={feature.rate / 2:g}"
            )
        result = Float32((None, self.mels or self.fft // 2 + 1), optional=feature.optional)
        convert = partial(_compute_value, self, name, feature)
        bound = step.bound(before, result, partial(_get, name, feature), convert)
        return replace(bound, settles=_settle_channels(name))


def _get(name: str, feature: Feature, row: Row) -> Any:
    return get_value(row, name, feature)


def _compute_value(step: Spectrogram, name: str, feature: Audio, value: Any) -> Array:
    with column_errors(name):
        samples, rate = _read_value(value, feature)
    return compute_spectrogram(samples, rate, step)


def compute_spectrogram(samples: Array, rate: int, step: Spectrogram) -> Array:
    """The spectrogram of samples from -1 to 1, as float32 of shape (frames, bins)."""
    bins = step.mels or step.fft // 2 + 1
    if len(samples) < step.window:
        return np.zeros((0, bins), np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(samples, step.window)[:: step.hop]
    out = np.empty((len(frames), bins), np.float32)
    weights = None if step.mels is None else mel_weights(step.mels, step.fft, rate, step.low, step.high or rate / 2)
    for begin in range(0, len(frames), _FRAMES_AT_ONCE):
        part = frames[begin : begin + _FRAMES_AT_ONCE] * _hann(step.window)
        found = np.abs(np.fft.rfft(part, step.fft)).astype(np.float32)
        found = found**2 if step.power == 2 else found
        found = found if weights is None else found @ weights
        out[begin : begin + len(found)] = np.log(found + np.float32(_LOG_FLOOR)) if step.log else found
    return out


_FRAMES_AT_ONCE = 1024  # a long recording is not held as all of its windows


@lru_cache(maxsize=8)
def _hann(window: int) -> Array:
    """The periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)).astype(np.float32)


@lru_cache(maxsize=8)
def mel_weights(bands: int, fft: int, rate: int, low: float, high: float) -> Array:
    """The weight of each bin of a Fourier transform in each mel band: triangles of height 1, on the HTK scale."""
    bins = _to_mel(np.linspace(0.0, rate / 2, fft // 2 + 1)[1:])[:, None]
    edges = np.linspace(_to_mel(np.array(low)), _to_mel(np.array(high)), bands + 2)
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - lower) / (centre - lower), (upper - bins) / (upper - centre)
    weights = np.maximum(0.0, np.minimum(rising, falling))
    # The first bin is the mean of the samples, which no band includes.
    return np.pad(weights, ((1, 0), (0, 0))).astype(np.float32)


def _to_mel(frequency: Array) -> Array:
    return 1127.0 * np.log1p(frequency / 700.0)

"""Audio and video in records for the page: the types that browsers play, facts, waveforms and frames."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from rekord.codec.audio import (
    HEAD_BYTES,
    AudioFacts,
    InvalidMedia,
    detect_audio_format,
    iter_blocks,
    open_audio,
)
from rekord.codec.columns import Array
from rekord.codec.video import detect_video_format, open_video
from rekord.errors import RekordError, error

AUDIO_TYPES = {
    "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "mp3": "audio/mpeg", "m4a": "audio/mp4",
}  # fmt: skip
# Browsers play MOV and Matroska under the names of the formats that have the same structure.
VIDEO_TYPES = {
    "mp4": "video/mp4", "mov": "video/mp4", "webm": "video/webm", "mkv": "video/webm", "avi": "video/x-msvideo",
}  # fmt: skip

MAX_SAMPLES = 60 * 60 * 48_000
"""Samples per channel of which a waveform is drawn: an hour."""

_BLOCK_BYTES = 1 << 20
_MAX_SEEK_FRAMES = 2_000


def sniff_audio(data: bytes) -> str | None:
    """The audio format of some bytes, by their beginning; browsers also play M4A."""
    return "m4a" if data[4:11] == b"ftypM4A" else detect_audio_format(data[:HEAD_BYTES])


def sniff_video(data: bytes) -> str | None:
    """The video format of some bytes, by their beginning."""
    name = None if sniff_audio(data) == "m4a" else detect_video_format(data)
    # Text may contain the name of a box: "The free …". Its size must fit.
    return None if name == "mov" and int.from_bytes(data[:4], "big") > len(data) else name


def inspect_audio(data: bytes) -> dict[str, Any] | None:
    """The facts of audio, from its header; nulls where it is corrupt, or takes a library that is not installed."""
    name = sniff_audio(data)
    if name is None:
        return None
    facts: dict[str, Any] = {"format": name, "bytes": len(data), "rate": None, "channels": None, "seconds": None}
    try:
        with _open_blocks(data) as (audio, _):
            return facts | {"rate": audio.rate, "channels": audio.channels, "seconds": audio.duration}
    except (InvalidMedia, RekordError):
        return facts


def compute_peaks(data: bytes, bins: int, column: str) -> dict[str, Any]:
    """The least and the greatest sample of each part of the audio, over all channels."""
    try:
        with _open_blocks(data) as (facts, blocks):
            return _reduce_blocks(facts, blocks, bins)
    except InvalidMedia as refused:
        raise refused.to_error(column) from refused.__cause__


@contextmanager
def _open_blocks(data: bytes) -> Iterator[tuple[AudioFacts, Iterable[Array]]]:
    """The facts and the samples of audio. WAV needs no library."""
    if detect_audio_format(data[:HEAD_BYTES]) == "wav" and find_spec("soundfile") is None:
        yield _read_wav(data)
        return
    with open_audio(io.BytesIO(data), data[:HEAD_BYTES], None, "D414") as (sound, facts):
        yield facts, iter_blocks(sound, min(facts.samples, MAX_SAMPLES))


def _read_wav(data: bytes) -> tuple[AudioFacts, Iterable[Array]]:
    try:
        file = wave.open(io.BytesIO(data))  # noqa: SIM115
        width, channels = file.getsampwidth(), file.getnchannels()
        facts = AudioFacts(
            "wav", file.getframerate(), channels, min(file.getnframes(), len(data) // width // channels)
        )
        if width not in (1, 2, 3, 4) or not facts.rate or not facts.samples:
            raise wave.Error(f"{facts.samples:,} samples of {width} bytes at {facts.rate:,} Hz")
    except (wave.Error, EOFError, ValueError, ArithmeticError, RuntimeError) as failure:  # RuntimeError: a seek
        raise InvalidMedia(
            "D414",
            "cannot be decoded",
            expected="a WAV file of integers",
            found=str(failure)[:60],
            do="pip install 'rekord[audio]', for other forms",
        ) from None
    step = max(1, _BLOCK_BYTES // (width * channels))
    starts = range(0, min(facts.samples, MAX_SAMPLES), step)
    return facts, (_to_floats(file.readframes(min(step, facts.samples - at)), width, channels) for at in starts)


def _to_floats(raw: bytes, width: int, channels: int) -> Array:
    """Integers of 1 to 4 bytes, of which single bytes are unsigned, as floats from -1 to 1."""
    count = len(raw) // (width * channels) * channels  # the file may be truncated
    wide = np.zeros((count, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(raw, np.uint8, count * width).reshape(-1, width)
    if width == 1:
        wide ^= np.array([0, 0, 0, 0x80], np.uint8)
    return (wide.view("<i4") / np.float64(1 << 31)).astype(np.float32).reshape(-1, channels)


def _reduce_blocks(facts: AudioFacts, blocks: Iterable[Array], bins: int) -> dict[str, Any]:
    samples = min(facts.samples, MAX_SAMPLES)
    bins = max(1, min(bins, samples))
    low, high = np.zeros((2, bins), np.float32)
    done = 0
    for block in blocks:
        values = np.nan_to_num(block, nan=0.0, posinf=1.0, neginf=-1.0)
        places = np.minimum((np.arange(done, done + len(values)) * bins) // samples, bins - 1)
        np.minimum.at(low, places, values.min(axis=1))
        np.maximum.at(high, places, values.max(axis=1))
        done += len(values)
    return {
        "rate": facts.rate,
        "channels": facts.channels,
        "seconds": done / facts.rate,
        "low": np.clip(low, -1, 1).round(4).tolist(),
        "high": np.clip(high, -1, 1).round(4).tolist(),
    }


def inspect_video(data: bytes) -> dict[str, Any] | None:
    """The facts of a video; nulls where it is corrupt, or takes a library that is not installed."""
    name = sniff_video(data)
    if name is None:
        return None
    facts = {"format": name, "bytes": len(data), "frames": None, "width": None, "height": None, "rate": None}
    try:
        with open_video(io.BytesIO(data), None, "D415") as video:
            found = video.facts
            size = {"width": found.width, "height": found.height}
            return facts | size | {"frames": video.declared_frames, "rate": found.frame_rate}
    except (InvalidMedia, RekordError):
        return facts


def decode_frame(data: bytes, number: int, column: str) -> Array:
    """The pixels of one frame of a video."""
    if not 0 <= number < _MAX_SEEK_FRAMES:
        raise error("U606", f"frame {number:,} cannot be shown", expected=f"a frame below {_MAX_SEEK_FRAMES:,}")
    try:
        with open_video(io.BytesIO(data), None, "D415") as video:
            for place, frame in enumerate(video.frames()):
                if place == number:
                    return frame.pixels()
    except InvalidMedia as refused:
        raise refused.to_error(column) from refused.__cause__
    raise error("U606", f"video has no frame {number:,}")

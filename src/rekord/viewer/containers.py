"""Audio and video in records: recognised by their first bytes, with types that browsers play and never run."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error

AUDIO_TYPES = {
    "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "mp3": "audio/mpeg", "m4a": "audio/mp4",
}  # fmt: skip
VIDEO_TYPES = {"mp4": "video/mp4", "webm": "video/webm"}

MAX_SAMPLES = 60 * 60 * 48_000
"""Samples per channel of which a waveform is drawn: an hour."""

_BLOCK_SAMPLES = 1 << 18
_MAX_FRAME_PIXELS = 64_000_000
_MAX_SEEK_FRAMES = 2_000


def sniff_audio(data: bytes) -> str | None:
    """The audio format of some bytes, by their beginning."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:4] == b"OggS":
        return "ogg"
    if data[:3] == b"ID3" or (len(data) > 2 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return "mp3"
    return "m4a" if data[4:11] == b"ftypM4A" else None


def sniff_video(data: bytes) -> str | None:
    """The video format of some bytes, by their beginning."""
    if data[4:8] == b"ftyp" and data[8:11] != b"M4A":
        return "mp4"
    return "webm" if data[:4] == b"\x1aE\xdf\xa3" else None


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """What the header of audio says; None where it takes a library to tell."""

    format: str
    rate: int | None = None
    channels: int | None = None
    seconds: float | None = None


def inspect_audio(data: bytes) -> AudioHeader | None:
    """The facts of audio, from its header alone."""
    kind = sniff_audio(data)
    if kind is None:
        return None
    if kind == "wav":
        wav = _parse_wav(data)
        if wav is not None:
            frames = len(wav.data) // max(wav.frame_bytes, 1)
            return AudioHeader(kind, wav.rate, wav.channels, frames / wav.rate)
    try:
        import soundfile  # type: ignore[import-untyped,unused-ignore]
    except (ImportError, OSError):
        return AudioHeader(kind)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return AudioHeader(kind, int(file.samplerate), int(file.channels), file.frames / file.samplerate)
    except Exception:  # there is no list of what damaged bytes cause in decoders
        return AudioHeader(kind)


@dataclass(frozen=True, slots=True)
class _Wav:
    rate: int
    channels: int
    bits: int
    is_float: bool
    data: memoryview

    @property
    def frame_bytes(self) -> int:
        return self.channels * self.bits // 8


def _parse_wav(data: bytes) -> _Wav | None:
    """A WAV file of plain samples; None if it has another form."""
    at, form = 12, None
    for _ in range(64):
        if at + 8 > len(data):
            return None
        name, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = at + 8
        if name == b"fmt " and length >= 16 and body + 16 <= len(data):
            form = struct.unpack_from("<HHIIHH", data, body)
            if form[0] == 0xFFFE and length >= 26 and body + 26 <= len(data):
                form = (int.from_bytes(data[body + 24 : body + 26], "little"), *form[1:])
        elif name == b"data":
            if form is None or form[0] not in (1, 3) or not 0 < form[1] <= 64 or not form[2]:
                return None
            if (form[0], form[5]) not in ((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)):
                return None
            return _Wav(form[2], form[1], form[5], form[0] == 3, memoryview(data)[body : body + length])
        at = body + length + length % 2
    return None


def _wav_blocks(wav: _Wav) -> Any:
    frames = min(len(wav.data) // wav.frame_bytes, MAX_SAMPLES)
    for first in range(0, frames, _BLOCK_SAMPLES):
        end = min(first + _BLOCK_SAMPLES, frames)
        raw = wav.data[first * wav.frame_bytes : end * wav.frame_bytes]
        if wav.is_float:
            samples: npt.NDArray[Any] = np.frombuffer(raw, f"<f{wav.bits // 8}").astype(np.float32)
        elif wav.bits == 8:
            samples = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
        elif wav.bits == 24:
            parts = np.frombuffer(raw, np.uint8).reshape(-1, 3).astype(np.int32)
            whole = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
            samples = (whole - ((whole & 0x800000) << 1)).astype(np.float32) / (1 << 23)
        else:
            samples = np.frombuffer(raw, f"<i{wav.bits // 8}").astype(np.float32) / (1 << (wav.bits - 1))
        yield samples.reshape(-1, wav.channels)


def compute_peaks(data: bytes, bins: int) -> dict[str, Any]:
    """The least and the greatest sample of each part of the audio, over all channels."""
    kind = sniff_audio(data)
    wav = _parse_wav(data) if kind == "wav" else None
    if wav is not None:
        frames = min(len(wav.data) // wav.frame_bytes, MAX_SAMPLES)
        return _reduce_blocks(_wav_blocks(wav), frames, bins, wav.rate, wav.channels)
    try:
        import soundfile  # type: ignore[import-untyped,unused-ignore]
    except (ImportError, OSError) as failure:
        raise missing_library("soundfile", "a waveform", "audio") from failure
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            frames = min(int(file.frames), MAX_SAMPLES)
            blocks = file.blocks(blocksize=_BLOCK_SAMPLES, frames=frames, dtype="float32", always_2d=True)
            return _reduce_blocks(blocks, frames, bins, int(file.samplerate), int(file.channels))
    except Exception as failure:
        raise undecodable("audio", failure) from None


def _reduce_blocks(blocks: Any, frames: int, bins: int, rate: int, channels: int) -> dict[str, Any]:
    bins = max(1, min(bins, frames or 1))
    low: npt.NDArray[np.float32] = np.zeros(bins, np.float32)
    high: npt.NDArray[np.float32] = np.zeros(bins, np.float32)
    done = 0
    for block in blocks:
        values = np.nan_to_num(np.asarray(block, np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
        places = (np.arange(done, done + len(values)) * bins) // max(frames, 1)
        places = np.minimum(places, bins - 1)
        np.minimum.at(low, places, values.min(axis=1))
        np.maximum.at(high, places, values.max(axis=1))
        done += len(values)
    return {
        "rate": rate,
        "channels": channels,
        "seconds": done / rate,
        "low": np.clip(low, -1, 1).round(4).tolist(),
        "high": np.clip(high, -1, 1).round(4).tolist(),
    }


def inspect_video(data: bytes) -> dict[str, Any]:
    """The facts of a video; nulls where the library to tell is not installed."""
    unknown: dict[str, Any] = dict.fromkeys(("frames", "width", "height", "rate"))
    facts: dict[str, Any] = {"format": sniff_video(data), "bytes": len(data), **unknown}
    try:
        import av
    except ImportError:
        return facts
    try:
        with av.open(io.BytesIO(data)) as container:
            stream = container.streams.video[0]
            rate = stream.average_rate
            facts |= {
                "frames": stream.frames or None,
                "width": stream.width,
                "height": stream.height,
                "rate": None if rate is None else float(rate),
            }
    except Exception:
        return facts
    return facts


def decode_frame(data: bytes, number: int) -> npt.NDArray[np.uint8]:
    """The pixels of one frame of a video."""
    try:
        import av
    except ImportError as failure:
        raise missing_library("av", "frames of a video", "video") from failure
    if not 0 <= number < _MAX_SEEK_FRAMES:
        raise error("U606", f"frame {number:,} cannot be shown", expected=f"a frame below {_MAX_SEEK_FRAMES:,}")
    try:
        opened: Any = av.open(io.BytesIO(data))
        with opened as container:
            stream = container.streams.video[0]
            if stream.width * stream.height > _MAX_FRAME_PIXELS:
                raise error("D409", "video is too large", expected="at most 64 megapixels per frame")
            for place, frame in enumerate(container.decode(stream)):
                if place == number:
                    return np.ascontiguousarray(frame.to_ndarray(format="rgb24"))
    except RekordError:
        raise
    except Exception as failure:
        raise undecodable("video", failure) from None
    raise error("U606", f"video has no frame {number:,}")


def missing_library(package: str, what: str, extra: str) -> RekordError:
    """The error for an optional library."""
    return error(
        "U602",
        f"{what} needs {package}, which is not installed",
        expected=f"the package {package}",
        do=f"pip install 'rekord[{extra}]'",
    )


def undecodable(what: str, failure: Exception) -> RekordError:
    """The error for audio or video that a library cannot decode."""
    return error("D409", f"{what} cannot be decoded", expected=f"{what} that can be decoded", found=str(failure)[:60])

"""Audio and video files made by libsndfile and FFmpeg, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def tone(samples: int, *, rate: int = 16_000, hertz: float = 440.0, channels: int = 1) -> Any:
    """A sine of float32; each channel is lower than the one before."""
    times = np.arange(samples) / rate
    waves = [np.sin(2 * np.pi * hertz / (i + 1) * times) * 0.5 for i in range(channels)]
    return np.stack(waves, axis=1).astype(np.float32)


def audio_bytes(
    form: str = "wav", samples: int = 1600, *, rate: int = 16_000, channels: int = 1, subtype: str | None = None
) -> bytes:
    """A file of a tone, by libsndfile."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, tone(samples, rate=rate, channels=channels), rate, format=form.upper(), subtype=subtype)
    return file.getvalue()


def put_audio(path: Path, samples: int = 1600, **options: Any) -> Path:
    """A file of a tone, in the format of its extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(audio_bytes(path.suffix[1:], samples, **options))
    return path


_CODECS = {"mp4": "mpeg4", "mov": "mpeg4", "avi": "mpeg4", "mkv": "mpeg4", "webm": "libvpx"}
_CONTAINERS = {"mkv": "matroska"}


def video_bytes(
    form: str = "mp4",
    frames: int = 10,
    *,
    rate: int = 10,
    size: tuple[int, int] = (32, 48),
    times: Sequence[int] | None = None,
    codec: str | None = None,
) -> bytes:
    """A video whose frame i is grey of level 20 * i, by FFmpeg. `times` are in milliseconds."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=_CONTAINERS.get(form, form)) as container:
        stream: Any = container.add_stream(codec or _CODECS[form], rate=rate)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        if times is not None:
            from fractions import Fraction

            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for i in range(frames):
            frame = av.VideoFrame.from_ndarray(np.full((*size, 3), 20 * i % 256, np.uint8), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[i], stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def put_video(path: Path, frames: int = 10, **options: Any) -> Path:
    """A video in the format of its extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(video_bytes(path.suffix[1:], frames, **options))
    return path


def video_without_frames() -> bytes:
    """A Matroska file with audio only."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def rotate_mp4(data: bytes, degrees: int) -> bytes:
    """An MP4 that players turn by 90 degrees clockwise or counterclockwise, as phones write them."""
    unit, at = 1 << 16, data.index(b"tkhd")
    body = bytearray(data)
    version_bytes = 4 + (32 if body[at + 4] == 1 else 20)
    matrix = at + 4 + version_bytes + 16
    sign = 1 if degrees == 90 else -1
    rows = [0, sign * unit, 0, -sign * unit, 0, 0, 0, 0, 1 << 30]
    body[matrix : matrix + 36] = b"".join([(one & 0xFFFFFFFF).to_bytes(4, "big") for one in rows])
    return bytes(body)

"""Audio: files inspected before they are stored, PCM samples, and samples decoded to float32."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.images.inspect import COPY_AGAIN_HINT, InvalidImage, VerifiedBytes, Verify, read_image_bytes
from rekord.codec.numbers import conform_tensor, raw_bytes
from rekord.codec.values import InvalidValue, as_array, describe_shape, is_text
from rekord.errors import error
from rekord.schema.media import AUDIO_FORMATS, Audio

HEAD_BYTES = 64
_BLOCK_VALUES = 1 << 20
MAX_CHECKED_VALUES = 1 << 30
"""Samples of all channels that are checked in one file: a few kilobytes of FLAC can hold billions of them."""
MAX_DECODED_VALUES = 1 << 28
"""Samples of all channels that are decoded at once: 1 GiB as float32."""
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)  # written by programs that could not know the size, such as those in a pipe
_CHECK_HINT = "write the dataset again from an intact file"


class InvalidMedia(InvalidImage):
    """Audio or a video that cannot be stored or decoded."""


class AudioFacts(NamedTuple):
    """What the header of an audio file declares."""

    format: str
    rate: int
    channels: int
    samples: int  # of each channel

    @property
    def duration(self) -> float:
        """The length in seconds."""
        return self.samples / self.rate


def import_media_package(name: str, extra: str, package: str, purpose: str) -> Any:
    """The library that reads audio or video; the error for a missing one names the extra."""
    try:
        return import_module(name)
    except (ImportError, OSError) as failure:  # soundfile raises OSError without its shared library
        raise error(
            "U602",
            f"{purpose} needs {package}",
            expected=f"the package {package}",
            found="not installed" if isinstance(failure, ModuleNotFoundError) else str(failure)[:60],
            do=f"pip install 'rekord[{extra}]'",
        ) from failure


def detect_audio_format(head: bytes) -> str | None:
    """The format of an audio file by its first bytes; None for anything else."""
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    is_mpeg_frame = len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2  # layer III
    return "mp3" if head[:3] == b"ID3" or is_mpeg_frame else None


@contextmanager
def open_audio(file: Any, head: bytes, path: str | None, code: str) -> Iterator[tuple[Any, AudioFacts]]:
    """The open SoundFile of a file or of bytes, and its facts; raises InvalidMedia, also while it is read."""
    name = detect_audio_format(head)
    if name is None:
        raise _not_audio_error(head, path, "E341" if code == "E342" else code)
    soundfile = import_media_package("soundfile", "audio", "soundfile", "reading audio")
    try:
        # By libsndfile, which recognises many more formats: only those of `name` pass the check above.
        with soundfile.SoundFile(file) as sound:
            facts = AudioFacts(name, sound.samplerate, sound.channels, max(sound.frames, 0))
            if facts.rate < 1 or facts.channels < 1 or not facts.samples:
                raise _corrupt_audio_error(code, "samples", f"{facts.samples:,} samples at {facts.rate:,} Hz", path)
            yield sound, facts
    except soundfile.SoundFileRuntimeError as failure:
        reason = str(getattr(failure, "error_string", failure)).strip().rstrip(".")
        raise _corrupt_audio_error(code, f"an intact {name} file", reason[:60], path) from failure


def inspect_audio_file(file: BinaryIO, path: str) -> AudioFacts:
    """The facts of an open file, from its header; raises InvalidMedia."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    with open_audio(file, head, path, "E342") as (_, facts):
        return facts


def inspect_audio(value: Any, feature: Audio, verify: Verify) -> tuple[VerifiedBytes, AudioFacts, str | None]:
    """The bytes of an encoded value, its facts and its file; raises InvalidMedia.

    full: everything is decoded, unless the format has no compression. headers: the structure of the file is checked.
    """
    data, path = read_image_bytes(value, "Audio")
    if not data:
        raise _corrupt_audio_error("E342", "an audio file", "0 bytes", path)
    cut = _find_missing_bytes(data)
    if cut is not None:
        declared, found = cut
        raise _corrupt_audio_error("E342", f"{declared:,} bytes of samples, as the header declares", found, path)
    with open_audio(io.BytesIO(data), data[:HEAD_BYTES], path, "E342") as (sound, facts):
        _check_declared(facts, feature, path)
        if verify == "full" and facts.format != "wav":
            _check_samples(sound, facts, path)
    return data if isinstance(data, VerifiedBytes) else VerifiedBytes(data), facts, path


def _find_missing_bytes(data: bytes) -> tuple[int, str] | None:
    """The size of the samples that a WAV declares, and what it has instead; None if it is complete."""
    if detect_audio_format(data[:12]) != "wav":
        return None
    at, wide = 12, None
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"ds64" and size >= 16:
            wide = int.from_bytes(data[at + 16 : at + 24], "little")
        if name == b"data":
            declared = wide if size == 0xFFFFFFFF and wide is not None else size
            there = len(data) - at - 8
            complete = declared in _UNKNOWN_SIZES or declared <= there
            return None if complete else (declared, f"{there:,} bytes: the file is truncated, or its header is wrong")
        at += 8 + size + (size & 1)
    return None


def _check_declared(facts: AudioFacts, feature: Audio, path: str | None) -> None:
    if not feature.is_pcm and feature.format not in (None, facts.format):
        raise InvalidMedia(
            "E341",
            f"is not {str(feature.format).upper()}",
            expected=f"the bytes of a {feature.format} file",
            found=facts.format,
            do=f'declare format="{facts.format}", or format=None for any',
            path=path,
        )
    if feature.rate not in (None, facts.rate):
        raise InvalidMedia(
            "E343",
            f"has {facts.rate:,} samples per second",
            expected=f"{feature.rate:,}, as declared",
            found=f"{facts.rate:,}",
            # The rate of a file is checked before transforms, which declare it themselves.
            do=f"{'' if feature.is_pcm else 'declare rk.Audio(), and '}transforms=rk.transforms.resample("
            f"{feature.rate}), or declare rate={facts.rate}",
            path=path,
        )
    channels = 1 if feature.is_pcm and feature.channels is None else feature.channels
    if channels not in (None, facts.channels):
        raise channels_error(facts.channels, feature.channels, path)


def channels_error(found: int, declared: int | None, path: str | None) -> InvalidMedia:
    """The error for a file with another number of channels than declared; PCM has one unless declared."""
    return InvalidMedia(
        "E343",
        f"has {found} {'channel' if found == 1 else 'channels'}",
        expected=f"{declared}, as declared" if declared else "1, unless channels= is declared",
        found=f"{found}",
        do=f"rk.transforms.mono(), or declare channels={found}"
        if declared in (None, 1)
        else f"declare channels={found}",
        path=path,
    )


def _check_samples(sound: Any, facts: AudioFacts, path: str | None) -> None:
    """Decode everything: what cannot be decoded would fail in training."""
    if facts.samples * facts.channels > MAX_CHECKED_VALUES:
        raise InvalidMedia(
            "E347",
            "has too many samples to check",
            expected=f"at most {MAX_CHECKED_VALUES:,}",
            found=f"{facts.samples:,} × {facts.channels}",
            do='split the recording, or verify="headers"',
            path=path,
        )
    decoded = sum([len(block) for block in iter_blocks(sound, facts.samples)])
    if decoded < facts.samples:
        expected = f"{facts.samples:,} samples, as the header declares"
        raise _corrupt_audio_error("E342", expected, f"{decoded:,} samples: the file is truncated", path)


def iter_blocks(sound: Any, most_samples: int) -> Iterator[Array]:
    """The samples, a bounded block at a time: nothing is allocated for what a header declares."""
    size = max(1, _BLOCK_VALUES // sound.channels)
    done = 0
    while done < most_samples:
        block = sound.read(min(size, most_samples - done), dtype="float32", always_2d=True)
        if not len(block):
            return
        yield block
        done += len(block)


def read_samples(file: Any, head: bytes, path: str | None, code: str) -> tuple[Array, int]:
    """All samples of a file or of bytes, of shape (samples, channels), and their rate; raises InvalidMedia."""
    with open_audio(file, head, path, code) as (sound, facts):
        if facts.samples * facts.channels > MAX_DECODED_VALUES:
            raise InvalidMedia(
                "D416" if code[0] == "D" else "E347",
                "has too many samples to decode",
                expected=f"at most {MAX_DECODED_VALUES:,}",
                found=f"{facts.samples:,} × {facts.channels}",
                do="split the recording into shorter ones before writing",
                path=path,
            )
        blocks = list(iter_blocks(sound, facts.samples))
        found = sum(map(len, blocks))
        if found < facts.samples:
            expected = f"{facts.samples:,} samples, as the header declares"
            raise _corrupt_audio_error(code, expected, f"{found:,} samples", path)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks), facts.rate


def decode_audio(data: bytes, channels: int | None) -> tuple[Array, int]:
    """The float32 samples of an encoded file, and their rate; raises InvalidMedia.

    Without `channels`, all channels are averaged: the shape is (samples,). With them, other numbers are refused.
    """
    samples, rate = read_samples(io.BytesIO(data), data[:HEAD_BYTES], None, "D414")
    if channels not in (None, samples.shape[1]):
        raise InvalidMedia(
            "D414",
            f"has {samples.shape[1]} channels",
            expected=f"{channels}, as the schema declares",
            found=f"{samples.shape[1]}",
            do=f"declare channels={samples.shape[1]}, or None to average them",
        )
    return shape_samples(samples, channels), rate


def shape_samples(samples: Array, channels: int | None) -> Array:
    """Samples of shape (samples, channels) in the shape that a column has."""
    if samples.shape[1] == 1:
        return samples[:, 0]
    return samples if channels is not None else mix_channels(samples)


def mix_channels(samples: Array) -> Array:
    """The average of all channels."""
    mixed: Array = samples.mean(axis=1, dtype=np.float64).astype(np.float32)
    return mixed


def to_float(samples: Array) -> Array:
    """PCM samples as float32; int16 from -1 to 1."""
    return samples.astype(np.float32) / np.float32(32768) if samples.dtype.kind == "i" else samples


def to_int16(samples: Array) -> Array:
    """Samples from -1 to 1 as int16. Those that decoders overshoot are clipped."""
    return np.clip(np.rint(samples * np.float32(32768)), -32768, 32767).astype("<i2")


# Storing.


def store_audio(value: Any, feature: Audio) -> bytes:
    """A value as it is stored: an encoded file, or PCM samples; raises InvalidValue."""
    array = None if is_text(value) or isinstance(value, (bytes, bytearray, memoryview)) else as_array(value)
    if feature.is_pcm:
        return _store_pcm(value, array, feature)
    if array is not None:
        return _encode_samples(array, feature)
    if isinstance(value, VerifiedBytes):
        return value
    return inspect_audio(value, feature, "full")[0]


def _store_pcm(value: Any, array: Array | None, feature: Audio) -> bytes:
    if array is None and not isinstance(value, (list, tuple)):
        data, _, path = inspect_audio(value, feature, "headers")
        array, _ = read_samples(io.BytesIO(data), data[:HEAD_BYTES], path, "E342")
        array = array if feature.channels not in (None, 1) else array[:, 0]
        return (to_int16(array) if feature.format == "pcm16" else array).astype(feature.dtype, copy=False).tobytes()
    samples = conform_tensor(value if array is None else _convert_samples(array, feature), feature)
    return raw_bytes(samples, feature)


def _convert_samples(array: Array, feature: Audio) -> Array:
    """An array in the dtype of the samples; int16 and floats from -1 to 1 stand for each other."""
    if feature.format == "pcm16" and array.dtype.kind == "f":
        if not (np.abs(array) <= 1).all():
            raise InvalidValue(
                "E310",
                "has samples outside -1 to 1",
                expected="floats from -1 to 1, or int16",
                found=describe_shape(array),
                do="scale them, or declare a format of floats: pcm_f32",
            )
        return to_int16(array)
    if feature.format == "pcm_f32":
        if array.dtype == np.int16:
            return to_float(array)
        if array.dtype == np.float64:
            return array.astype(np.float32)
    return array


def _encode_samples(array: Array, feature: Audio) -> bytes:
    """Samples as a file without loss: WAV, or FLAC for int16."""
    name = feature.format or "wav"
    is_float = array.dtype.kind == "f"
    lossless = (name == "wav" and array.dtype in (np.int16, np.float32)) or (
        name == "flac" and array.dtype == np.int16
    )
    if feature.rate is None or not lossless or array.ndim not in (1, 2) or not array.size:
        raise InvalidValue(
            "E341",
            "is an array, which cannot be encoded as declared",
            expected='rate= and format="wav" for int16 or float32, or format="flac" for int16',
            found=describe_shape(array),
            do='Audio(format="pcm16", rate=16_000) for samples without a file',
        )
    channels = 1 if array.ndim == 1 else array.shape[1]
    _check_declared(AudioFacts(name, feature.rate, channels, len(array)), feature, None)
    soundfile = import_media_package("soundfile", "audio", "soundfile", "writing audio")
    file = io.BytesIO()
    subtype = "FLOAT" if is_float else "PCM_16"
    soundfile.write(file, array, feature.rate, format=name.upper(), subtype=subtype)
    return file.getvalue()


# Errors.


def _not_audio_error(head: bytes, path: str | None, code: str) -> InvalidMedia:
    convert = "convert it to FLAC: ffmpeg -i IN OUT.flac" if head else COPY_AGAIN_HINT
    return InvalidMedia(
        code,
        "is not audio in a known format",
        expected=f"audio: {', '.join(AUDIO_FORMATS)}",
        found=f"bytes starting with {head[:8].hex(' ')}" if head else "0 bytes",
        do=convert if code[0] == "E" else _CHECK_HINT,
        path=path,
    )


def _corrupt_audio_error(code: str, expected: str, found: str, path: str | None) -> InvalidMedia:
    what = "cannot be decoded" if code[0] == "D" else "is truncated or corrupt"
    do = _CHECK_HINT if code[0] == "D" else COPY_AGAIN_HINT
    return InvalidMedia(code, what, expected=expected, found=found, do=do, path=path)

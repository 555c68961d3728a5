"""Audio and video files checked before they are stored, by type."""

from __future__ import annotations

import os
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from rekord.codec.audio import inspect_audio
from rekord.codec.images.inspect import VerifiedBytes, Verify
from rekord.codec.video import inspect_video
from rekord.schema import Audio, Feature, Video

_EXTENSION_FORMATS = {
    "wav": "wav",
    "wave": "wav",
    "flac": "flac",
    "ogg": "ogg",
    "oga": "ogg",
    "opus": "ogg",
    "mp3": "mp3",
    "mp4": "mp4",
    "m4v": "mp4",
    "mov": "mov",
    "mkv": "mkv",
    "webm": "webm",
    "avi": "avi",
}
_SIMILAR_FORMATS = ({"mp4", "mov"}, {"mkv", "webm"})  # decoders read both alike


class CheckedFile(NamedTuple):
    """An encoded file that may be stored, and remarks about it: codes and sentences."""

    data: VerifiedBytes
    remarks: tuple[tuple[str, str], ...] = ()


@singledispatch
def check_encoded_file(feature: Feature, value: Any, verify: Verify) -> CheckedFile | None:
    """The bytes of an audio or video file; None if the value is not a file. Raises InvalidValue."""
    raise NotImplementedError


@check_encoded_file.register(Audio)
def _check_audio(feature: Audio, value: Any, verify: Verify) -> CheckedFile | None:
    if isinstance(value, np.ndarray) or feature.is_pcm:
        return None  # the encoder converts samples
    data, facts, path = inspect_audio(value, feature, verify)
    remarks = _find_misnamed(facts.format, path)
    if facts.channels > 1 and feature.channels is None:
        what = f"{_name_file(path, 'the audio')} has {facts.channels} channels: it is stored unchanged"
        remarks.append(("H847", f"{what}, and decode=True averages them unless channels= is declared"))
    return CheckedFile(data, tuple(remarks))


@check_encoded_file.register(Video)
def _check_video(feature: Video, value: Any, verify: Verify) -> CheckedFile | None:
    data, facts, path = inspect_video(value, feature, verify)
    return CheckedFile(data, tuple(_find_misnamed(facts.format, path)))


def _find_misnamed(found: str, path: str | None) -> list[tuple[str, str]]:
    named = None if path is None else _EXTENSION_FORMATS.get(os.path.splitext(path)[1][1:].lower())
    if named in (None, found) or {named, found} in _SIMILAR_FORMATS:
        return []
    return [("H848", f"{_name_file(path, '')} is {found.upper()}: it is recorded as what it is")]


def _name_file(path: str | None, otherwise: str) -> str:
    return otherwise if path is None else os.path.basename(path)

"""Folders of audio: a row per file, with what its header declares and its folder as class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekord.arguments import as_path, check_keywords
from rekord.codec.audio import inspect_audio_file
from rekord.codec.values import InvalidValue
from rekord.schema import Audio, Feature, Float32, Int64, Schema, Text
from rekord.sources.base import PART_BYTES, SourceGuess, SourcePart
from rekord.sources.image_folder import class_names
from rekord.sources.media_folder import AUDIO_FILES, MediaFolderSource, open_media_file
from rekord.storage import raw_files

AUDIO_COLUMNS: Mapping[str, Feature] = {
    "audio": Audio(key="audio/encoded"),
    "format": Text(key="audio/format"),
    "filename": Text(key="audio/filename"),
    "rate": Int64(key="audio/rate"),
    "channels": Int64(key="audio/channels"),
    "samples": Int64(key="audio/samples"),
    "duration": Float32(key="audio/duration"),
}
"""The columns and keys of audio files."""

LABEL_KEY = "audio/class/label"
DECODED_PARTS = 8
"""Decoding takes longer than copying a file: about so many times."""

_SAMPLED_FILES = 32


@check_keywords
def audio_folder(path: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> AudioFolderSource:
    """Audio files below a folder, or a single file (wav, flac, ogg, mp3), one row each, with their folder as class.

    Files are stored unchanged in the column `audio`. The columns `rate` (samples per second), `channels`, `samples`
    (of each channel), `duration` (seconds) and `format` are those of their headers. Folders are classes and splits as
    for `image_folder`; files without class folders have no label.
    """
    return AudioFolderSource(as_path("path", path), class_names(classes))


@dataclass(frozen=True)
class AudioFolderSource(MediaFolderSource):
    kind = "audio_folder"
    medium = "audio"
    column = "audio"
    label_key = LABEL_KEY

    @property
    def is_named(self) -> Callable[[str], bool]:
        return AUDIO_FILES.is_name

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in parts: smaller ones than of other files, as samples are decoded to check them."""
        return MediaFolderSource.parts(self, max(1, part_bytes // DECODED_PARTS))

    def build_schema(self, files: Sequence[str], label: Mapping[str, Feature]) -> tuple[Schema, list[SourceGuess]]:
        return Schema({**AUDIO_COLUMNS, **label}), guess_rates(files)

    def read_file(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        yield read_audio_row(path, name)


def read_audio_row(path: str, name: str) -> dict[str, Any]:
    """The values of `AUDIO_COLUMNS` for a file; raises InvalidValue."""
    with open_media_file(path) as file:
        facts = inspect_audio_file(file, path)
    return {
        "audio": raw_files.to_path(path),
        "format": facts.format,
        "filename": name,
        "rate": facts.rate,
        "channels": facts.channels,
        "samples": facts.samples,
        "duration": facts.duration,
    }


def guess_rates(files: Sequence[str]) -> list[SourceGuess]:
    """What the headers of a few files say about rates: models expect one."""
    rates: Counter[int] = Counter()
    for path in files[:: max(1, len(files) // _SAMPLED_FILES)][:_SAMPLED_FILES]:
        with suppress(InvalidValue), open_media_file(path) as file:  # its row reports it
            rates[inspect_audio_file(file, path).rate] += 1
    if len(rates) < 2:
        return []
    most = rates.most_common(1)[0][0]
    counts = ", ".join([f"{rate:,} Hz in {count}" for rate, count in rates.most_common(4)])
    what = f"rates differ: {counts} of {sum(rates.values())} files inspected; files are stored unchanged"
    return [SourceGuess("audio", what, f"transforms=rk.transforms.resample({most})")]

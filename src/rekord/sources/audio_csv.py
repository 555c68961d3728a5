"""Lists of audio as rows: a CSV or text file with a file per line and its class, its transcript, or flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from rekord.arguments import as_path, check_keywords
from rekord.schema import Feature, Schema
from rekord.sources.audio_folder import AUDIO_COLUMNS, DECODED_PARTS, LABEL_KEY, read_audio_row
from rekord.sources.base import PART_BYTES, SourcePart
from rekord.sources.image_csv import ImageCsvSource, check_list_options, recognize_image_list
from rekord.sources.image_folder import class_names
from rekord.sources.media_folder import AUDIO_FILES, with_label_key


@check_keywords
def audio_csv(
    path: str | os.PathLike[str],
    *,
    audio: str | None = None,
    label: str | None = None,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    text: bool | None = None,
) -> AudioCsvSource:
    """Audio files listed in a CSV or text file, one row per line, with their class or their transcript.

    Columns, paths, classes and splits are found as `image_csv` finds them: by the usual names (audio, wav, path,
    file, …; label, class, …; text, transcript, sentence, …), or as `audio`, `label` and `split` name them. Texts are
    stored in the column `text`. The other columns are those of `audio_folder`.
    """
    columns = check_list_options({"audio": audio, "label": label, "split": split}, text)
    return AudioCsvSource(
        as_path("path", path),
        columns,
        None if root is None else as_path("root", root),
        class_names(classes),
        text,
    )


def recognize_audio_list(path: str, head: bytes | None = None) -> bool:
    """Whether `audio_csv` reads a file or a folder: lists of audio files that exist."""
    return recognize_image_list(path, head, AUDIO_FILES)


@dataclass(frozen=True)
class AudioCsvSource(ImageCsvSource):
    kind = "audio_csv"
    files = AUDIO_FILES

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in parts of the size of those of `audio_folder`."""
        return ImageCsvSource.parts(self, max(1, part_bytes // DECODED_PARTS))

    def read_rows(self, root: PurePath, name: str) -> Iterator[dict[str, Any]]:
        yield read_audio_row(str(root / name), name)

    def build_schema(self, target: Mapping[str, Feature], paths: Sequence[str]) -> Schema | None:
        return Schema({**AUDIO_COLUMNS, **with_label_key(target, LABEL_KEY)})

"""Lists of video as rows: a CSV or text file with a file per line and its class, its text, or flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from rekord.arguments import as_path, check_keywords
from rekord.schema import Feature, Schema
from rekord.sources.base import PART_BYTES, SourcePart
from rekord.sources.image_csv import ImageCsvSource, check_list_options, recognize_image_list
from rekord.sources.image_folder import class_names
from rekord.sources.media_folder import VIDEO_FILES, with_label_key
from rekord.sources.video_frames import (
    DECODED_PARTS,
    LABEL_KEY,
    STORED_UNCHANGED,
    FrameFormat,
    VideoReader,
    build_reader,
)


@check_keywords
def video_csv(
    path: str | os.PathLike[str],
    *,
    video: str | None = None,
    label: str | None = None,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    every: int | None = None,
    fps: float | None = None,
    clips: int | None = None,
    remainder: Literal["keep", "drop"] = "keep",
    frames: FrameFormat = "jpeg",
    quality: int = 95,
    frame_size: tuple[int, int] | None = None,
    classes: Sequence[str] | None = None,
    text: bool | None = None,
) -> VideoCsvSource:
    """Video files listed in a CSV or text file, with their class or their text.

    Columns, paths, classes and splits are found as `image_csv` finds them: by the usual names (video, path, file, …;
    label, class, …; text, caption, …), or as `video`, `label` and `split` name them. Texts are stored in the column
    `text`. What is stored of each file is up to `every`, `fps`, `clips` and so on, as for `video_folder`.
    """
    columns = check_list_options({"video": video, "label": label, "split": split}, text)
    return VideoCsvSource(
        as_path("path", path),
        columns,
        None if root is None else as_path("root", root),
        class_names(classes),
        text,
        build_reader(every, fps, clips, remainder, frames, quality, frame_size),
    )


def recognize_video_list(path: str, head: bytes | None = None) -> bool:
    """Whether `video_csv` reads a file or a folder: lists of video files that exist."""
    return recognize_image_list(path, head, VIDEO_FILES)


@dataclass(frozen=True)
class VideoCsvSource(ImageCsvSource):
    frames: VideoReader = STORED_UNCHANGED

    kind = "video_csv"
    files = VIDEO_FILES

    @property
    def column(self) -> str:
        return self.frames.column

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in parts: smaller ones where frames are decoded, so that all workers have some."""
        least = part_bytes if self.frames.stores_files else max(1, part_bytes // DECODED_PARTS)
        return ImageCsvSource.parts(self, least)

    def options(self) -> Mapping[str, Any]:
        return {**ImageCsvSource.options(self), "frames": self.frames.options()}

    def read_rows(self, root: PurePath, name: str) -> Iterator[dict[str, Any]]:
        return self.frames.read_file(str(root / name), name)

    def build_schema(self, target: Mapping[str, Feature], paths: Sequence[str]) -> Schema | None:
        return self.frames.build_schema(paths, with_label_key(target, LABEL_KEY))[0]

"""Folders of video: a row per file or per clip, with its folder as class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rekord.arguments import as_path, check_keywords
from rekord.schema import Feature, Schema
from rekord.sources.base import PART_BYTES, SourceGuess, SourcePart
from rekord.sources.image_folder import class_names
from rekord.sources.media_folder import VIDEO_FILES, MediaFolderSource
from rekord.sources.video_frames import (
    DECODED_PARTS,
    LABEL_KEY,
    STORED_UNCHANGED,
    FrameFormat,
    VideoReader,
    build_reader,
)


@check_keywords
def video_folder(
    path: str | os.PathLike[str],
    *,
    every: int | None = None,
    fps: float | None = None,
    clips: int | None = None,
    remainder: Literal["keep", "drop"] = "keep",
    frames: FrameFormat = "jpeg",
    quality: int = 95,
    frame_size: tuple[int, int] | None = None,
    classes: Sequence[str] | None = None,
) -> VideoFolderSource:
    """Video files below a folder, or a single file (mp4, mov, mkv, webm, avi), with their folder as class.

    Without `every`, `fps` and `clips`, files are stored unchanged, one row each. With one of them, rows are sequences
    of frames: `every=n` takes every n-th frame, `fps=r` the frame that is shown at each 1/r of a second, and
    `clips=k` makes a row of each k of these frames. The last clip may be shorter; `remainder="drop"` leaves it out.

    Frames are the steps of SequenceExamples, as `frames` "jpeg" (with `quality`) or "png", under the keys of
    MediaPipe's MediaSequence. `frames="tensor"` stores those of a row as one uint8 tensor of shape (frames, height,
    width, 3). `frame_size=(height, width)` resizes them; a tensor has the size of the first video otherwise. Frames
    are turned as the file says. `timestamp` is when each is shown, in microseconds.

    Folders are classes and splits as for `image_folder`; files without class folders have no label.
    """
    reader = build_reader(every, fps, clips, remainder, frames, quality, frame_size)
    return VideoFolderSource(as_path("path", path), class_names(classes), reader)


@dataclass(frozen=True)
class VideoFolderSource(MediaFolderSource):
    frames: VideoReader = STORED_UNCHANGED

    kind = "video_folder"
    medium = "video"
    label_key = LABEL_KEY

    @property
    def column(self) -> str:  # type: ignore[override]
        return self.frames.column

    @property
    def is_named(self) -> Callable[[str], bool]:
        return VIDEO_FILES.is_name

    @property
    def has_one_row_each(self) -> bool:
        return self.frames.clips is None

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in parts: smaller ones where frames are decoded, so that all workers have some."""
        least = part_bytes if self.frames.stores_files else max(1, part_bytes // DECODED_PARTS)
        return MediaFolderSource.parts(self, least)

    def options(self) -> Mapping[str, Any]:
        return {**MediaFolderSource.options(self), "frames": self.frames.options()}

    def build_schema(self, files: Sequence[str], label: Mapping[str, Feature]) -> tuple[Schema, list[SourceGuess]]:
        return self.frames.build_schema(files, label)

    def read_file(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        return self.frames.read_file(path, name)

"""Video files as rows: stored as they are, or their frames as sequences of images or as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rekord.arguments import conflicting_options, inapplicable, invalid, one_of, positive_int
from rekord.codec.audio import InvalidMedia
from rekord.codec.columns import Array
from rekord.codec.images.inspect import GeneratedBytes
from rekord.codec.images.store import store_image
from rekord.codec.values import InvalidValue
from rekord.codec.video import Frame, inspect_video_file, open_video
from rekord.schema import Feature, Float32, Image, Int64, Schema, Tensor, Text, Video
from rekord.sources.base import SourceGuess
from rekord.sources.media_folder import open_media_file
from rekord.storage import raw_files

FrameFormat = Literal["jpeg", "png", "tensor"]
FRAME_FORMATS: tuple[FrameFormat, ...] = ("jpeg", "png", "tensor")

MAX_ROW_BYTES = 256 << 20
"""The frames of one row, encoded or as pixels: so much is held in memory."""

DECODED_PARTS = 16
"""Decoding takes longer than copying a file: about so many times."""

_MAX_GAP_US = 3600 * 10**6  # a damaged time would repeat a frame for ever
_MAX_SIDE = 16_384

ENCODED_COLUMNS: Mapping[str, Feature] = {
    "video": Video(key="video/encoded"),
    "format": Text(key="video/format"),
    "filename": Text(key="clip/data_path"),
    "height": Int64(key="image/height"),
    "width": Int64(key="image/width"),
    "frame_rate": Float32(key="image/frame_rate", optional=True),
    "duration": Float32(key="video/duration", optional=True),
}
_CLIP_COLUMNS: Mapping[str, Feature] = {
    "filename": Text(key="clip/data_path"),
    "clip": Int64(key="clip/index"),
    "height": Int64(key="image/height"),
    "width": Int64(key="image/width"),
    "frame_rate": Float32(key="image/frame_rate", optional=True),
}


LABEL_KEY = "clip/label/index"


def build_reader(
    every: int | None,
    fps: float | None,
    clips: int | None,
    remainder: str,
    frames: FrameFormat,
    quality: int,
    frame_size: tuple[int, int] | None,
) -> VideoReader:
    """The reader for the arguments of a source, which are validated."""
    if every is not None and fps is not None:
        raise conflicting_options("every", "fps")
    if every is not None:
        positive_int("every", every, do="every=10")
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps <= 1000):
        raise invalid("fps", fps, "frames per second, above 0 and at most 1000", "fps=2")
    if clips is not None:
        positive_int("clips", clips, most=1 << 16, do="clips=16")
    if every is None and fps is None and clips is None:
        given = (("frames", frames, "jpeg"), ("frame_size", frame_size, None), ("remainder", remainder, "keep"))
        for name, value, usual in given:
            if value != usual:
                raise inapplicable(
                    name,
                    "to files that are stored unchanged",
                    expected="every=, fps= or clips= next to it",
                    found="none of them",
                    do="every=1 for all frames",
                )
    one_of("remainder", remainder, ("keep", "drop"))
    one_of("frames", frames, FRAME_FORMATS)
    positive_int("quality", quality, most=100, do="quality=95")
    size = None
    if frame_size is not None:
        if not isinstance(frame_size, (tuple, list)) or len(frame_size) != 2:
            raise invalid("frame_size", frame_size, "(height, width)", "frame_size=(240, 320)")
        height, width = (positive_int("frame_size", side, most=_MAX_SIDE) for side in frame_size)
        size = height, width
    rate = None if fps is None else float(fps)
    return VideoReader(every, rate, clips, remainder == "drop", frames, int(quality), size)


@dataclass(frozen=True)
class VideoReader:
    """Reads video files as rows: which frames are stored, and how."""

    every: int | None
    fps: float | None
    clips: int | None
    drop_remainder: bool
    format: FrameFormat
    quality: int
    size: tuple[int, int] | None

    @property
    def column(self) -> str:
        """The column that errors of a file name."""
        return "video" if self.stores_files or self.format == "tensor" else "image"

    def options(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in vars(self).items()}

    @property
    def stores_files(self) -> bool:
        """Whether files are stored unchanged."""
        return self.every is None and self.fps is None and self.clips is None

    def select(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The chosen ones of all frames, each with the time at which it stands for the video."""
        if self.fps is None:
            step = self.every or 1
            yield from (frame for i, frame in enumerate(frames) if i % step == 0)
            return
        interval = 1e6 / self.fps
        before: Frame | None = None
        begin = number = 0
        for frame in frames:
            if before is None:
                begin = frame.time_us
            # Until this frame, the one before is shown: for several moments, or for none.
            if before is not None and frame.time_us - before.time_us > _MAX_GAP_US:
                raise InvalidMedia(
                    "E345",
                    "has a gap between two frames",
                    expected=f"at most {_MAX_GAP_US // 10**6:,} seconds",
                    found=f"{(frame.time_us - before.time_us) / 1e6:,.0f} seconds",
                    do="every=1, which does not repeat frames",
                )
            while before is not None and round(begin + number * interval) < frame.time_us:
                yield before._replace(time_us=round(begin + number * interval))
                number += 1
            before = frame
        if before is not None and round(begin + number * interval) <= before.time_us:
            yield before._replace(time_us=round(begin + number * interval))

    def build_schema(self, files: Sequence[str], label: Mapping[str, Feature]) -> tuple[Schema, list[SourceGuess]]:
        if self.stores_files:
            return Schema({**ENCODED_COLUMNS, **label}), []
        if self.format != "tensor":
            text: dict[str, Feature] = {"format": Text(key="image/format")}
            steps = {
                "image": Image(format=self.format, key="image/encoded"),
                "timestamp": Int64(key="image/timestamp"),
            }
            return Schema(context={**_CLIP_COLUMNS, **text, **label}, steps=steps), []
        size, guesses = self.size, []
        if size is None:
            size = _find_first_size(files)
            guesses = [
                SourceGuess("video", f"frames are {size[0]} × {size[1]}, as those of the first video", "frame_size=…")
            ]
        count = self.clips if self.drop_remainder else None
        tensor = {"video": Tensor("uint8", (count, *size, 3), key="video/frames")}
        times = {"timestamp": Int64((count,), key="image/timestamp")}
        return Schema({**tensor, **times, **_CLIP_COLUMNS, **label}), guesses

    def read_file(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        if self.stores_files:
            with open_media_file(path) as file:
                facts = inspect_video_file(file, path)
            yield {
                "video": raw_files.to_path(path),
                "format": facts.format,
                "filename": name,
                "height": facts.height,
                "width": facts.width,
                "frame_rate": facts.frame_rate,
                "duration": facts.duration,
            }
            return
        with open_media_file(path) as file, open_video(file, path) as video:
            for clip, row in enumerate(self._iter_clips(video.frames(), path)):
                yield {**row, "filename": name, "clip": clip, "frame_rate": video.facts.frame_rate}

    def _iter_clips(self, frames: Iterator[Frame], path: str) -> Iterator[dict[str, Any]]:
        images: list[Any] = []
        times: list[int] = []
        row_bytes = 0
        shape: tuple[int, ...] = ()
        last: Any = None
        stored: Any = None
        for frame in self.select(frames):
            if frame.image is not last:  # else the same frame stands for several moments
                pixels, last = frame.pixels(self.size), frame.image
                shape = shape or pixels.shape
                stored = self._store(pixels, shape, path)
            images.append(stored)
            times.append(frame.time_us)
            row_bytes += stored.nbytes if isinstance(stored, np.ndarray) else len(stored)
            if row_bytes > MAX_ROW_BYTES:
                raise _too_long_error(len(images), path)
            if len(images) == self.clips:
                yield self._to_row(images, times, shape)
                images, times, row_bytes = [], [], 0
        if images and not (self.drop_remainder and self.clips is not None):
            yield self._to_row(images, times, shape)

    def _store(self, pixels: Array, shape: tuple[int, ...], path: str) -> Any:
        if self.format == "tensor":
            if pixels.shape != shape:
                raise _size_error(shape, pixels.shape, path)
            return pixels
        quality = self.quality if self.format == "jpeg" else None
        return GeneratedBytes(store_image(pixels, Image(format=self.format, quality=quality)))

    def _to_row(self, images: list[Any], times: list[int], shape: tuple[int, ...]) -> dict[str, Any]:
        size = {"height": shape[0], "width": shape[1]}
        if self.format == "tensor":
            return {"video": np.stack(images), "timestamp": np.array(times, np.int64), **size}
        return {"image": images, "timestamp": times, "format": self.format.upper(), **size}


STORED_UNCHANGED = VideoReader(None, None, None, False, "jpeg", 95, None)


def _find_first_size(files: Sequence[str]) -> tuple[int, int]:
    """The size of the first video that can be read; if there is none, rows report the reason."""
    for path in files[:8]:
        with suppress(InvalidValue), open_media_file(path) as file:
            facts = inspect_video_file(file, path)
            return facts.height, facts.width
    return 1, 1


def _too_long_error(frames: int, path: str) -> InvalidMedia:
    return InvalidMedia(
        "E347",
        "has too many frames for one row",
        expected=f"at most {MAX_ROW_BYTES >> 20} MiB of frames in a row",
        found=f"more after {frames:,} frames",
        do="store clips (clips=16), fewer frames (fps=1), or smaller ones (frame_size=(240, 320))",
        path=path,
    )


def _size_error(first: tuple[int, ...], other: tuple[int, ...], path: str) -> InvalidMedia:
    return InvalidMedia(
        "E347",
        "has frames of different sizes, which are not one tensor",
        expected=f"{first[0]:,} × {first[1]:,}, as the first frame",
        found=f"{other[0]:,} × {other[1]:,}",
        do="frame_size=(240, 320)",
        path=path,
    )

"""Video: files inspected before they are stored, and frames decoded one at a time, in bounded memory."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from rekord import _core
from rekord.codec.audio import InvalidMedia, import_media_package
from rekord.codec.columns import Array
from rekord.codec.images.inspect import COPY_AGAIN_HINT, VerifiedBytes, Verify, read_image_bytes
from rekord.codec.values import describe_shape
from rekord.schema.media import VIDEO_FORMATS, Video

MAX_FRAME_PIXELS = 64_000_000
MAX_DECODED_BYTES = 1 << 30
"""The frames of one video that are decoded at once."""

_HEAD_BYTES = 4096
_ATTACHED_PICTURE = 0x400  # AV_DISPOSITION_ATTACHED_PIC
_MAX_BOXES = 1 << 20  # at the top level of an MP4; each is 8 bytes at least
# Always forced: demuxers of playlists open other files, and would be chosen by the content.
_DEMUXERS = {"mp4": "mov", "mov": "mov", "mkv": "matroska", "webm": "matroska", "avi": "avi"}
_MOV_BOXES = (b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"avif", b"avis", b"mif1", b"msf1")


class VideoFacts(NamedTuple):
    """What a video file declares, and the size of its first frame as it is shown."""

    format: str
    width: int
    height: int
    frame_rate: float | None  # the average
    duration: float | None  # in seconds


class Frame(NamedTuple):
    """A frame that is not converted to pixels yet, and when it is shown."""

    time_us: int
    image: Any  # of PyAV

    def pixels(self, size: tuple[int, int] | None = None) -> Array:
        """The pixels as they are shown: uint8 of shape (height, width, 3), resized to `size` if it is given."""
        turned = np.rot90(self.image.to_ndarray(format="rgb24"), round((self.image.rotation or 0) / 90))
        pixels = np.ascontiguousarray(turned)
        if size in (None, pixels.shape[:2]):
            return pixels
        out = np.empty((*size, 3), np.uint8)
        _core.resample(pixels, (0.0, 0.0, float(pixels.shape[1]), float(pixels.shape[0])), out)
        return out


def detect_video_format(head: bytes) -> str | None:
    """The format of a video file by its first bytes; None for anything else."""
    if head[4:8] == b"ftyp" and head[8:12] not in _IMAGE_BRANDS:
        return "mov" if head[8:12] == b"qt  " else "mp4"
    if head[4:8] in _MOV_BOXES:
        return "mov"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "webm" if b"webm" in head[:64] else "mkv"
    return "avi" if head[:4] == b"RIFF" and head[8:11] == b"AVI" else None


class OpenVideo:
    """An open video file: its facts, and its frames from the first."""

    def __init__(self, name: str, container: Any, stream: Any, path: str | None, code: str) -> None:
        self._container = container
        self._stream = stream
        self._path = path
        self._code = code
        context = stream.codec_context
        self._check_size(context.width, context.height)
        context.thread_count = 1  # the other cores decode other files
        context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
        rate = stream.average_rate or stream.guessed_rate
        self._frame_seconds = 1 / float(rate) if rate else None
        duration = None
        if stream.duration is not None and stream.time_base is not None:
            duration = float(stream.duration * stream.time_base)
        elif container.duration is not None:
            duration = container.duration / 1e6
        self.facts = VideoFacts(name, context.width, context.height, float(rate) if rate else None, duration)

    def frames(self) -> Iterator[Frame]:
        """The frames in the order in which they are shown; raises InvalidMedia where the file is corrupt."""
        last: float | None = None
        for packet in self._container.demux(self._stream):
            for image in packet.decode():
                if image.is_corrupt:
                    raise self._corrupt(f"a corrupt frame after {last or 0:.3f} s")
                self._check_size(image.width, image.height)
                seconds = None if image.pts is None or image.time_base is None else float(image.pts * image.time_base)
                if seconds is None or not math.isfinite(seconds) or abs(seconds) > 1e9:
                    if self._frame_seconds is None:
                        raise self._corrupt("frames without times, and no frame rate")
                    seconds = 0.0 if last is None else last + self._frame_seconds
                last = seconds
                yield Frame(round(seconds * 1e6), image)
        if last is None:
            raise self._corrupt("no frame")

    @property
    def declared_frames(self) -> int | None:
        """The number of frames that the header declares, if it does."""
        return self._stream.frames or None

    def count_packets(self) -> int:
        """The number of compressed frames, read but not decoded."""
        return sum([packet.size > 0 for packet in self._container.demux(self._stream)])

    def _check_size(self, width: int, height: int) -> None:
        if width * height > MAX_FRAME_PIXELS:
            raise InvalidMedia(
                "D416" if self._code[0] == "D" else "E347",
                "has frames with too many pixels",
                expected=f"at most {MAX_FRAME_PIXELS:,}",
                found=f"{width:,} × {height:,}",
                do="scale the video down before writing",
                path=self._path,
            )

    def _corrupt(self, found: str) -> InvalidMedia:
        return _corrupt_video_error(self._code, "frames that can be decoded", found, self._path)


@contextmanager
def open_video(file: Any, path: str | None = None, code: str = "E345") -> Iterator[OpenVideo]:
    """The video in a binary file; raises InvalidMedia, also while its frames are read.

    The file is complete, its format is one of `VIDEO_FORMATS`, and no other file is opened, whatever it refers to.
    """
    head = file.read(_HEAD_BYTES)
    size_bytes = file.seek(0, io.SEEK_END)
    name = detect_video_format(head)
    if name is None:
        convert = "convert it to MP4: ffmpeg -i IN OUT.mp4" if head else COPY_AGAIN_HINT
        raise InvalidMedia(
            "E344" if code == "E345" else code,
            "is not a video in a known format",
            expected=f"a video: {', '.join(VIDEO_FORMATS)}",
            found=f"bytes starting with {head[:8].hex(' ')}" if head else "0 bytes",
            do=convert if code == "E345" else "write the dataset again from an intact file",
            path=path,
        )
    missing_bytes = _count_missing_bytes(file, name, size_bytes)
    if missing_bytes:
        expected = f"{size_bytes + missing_bytes:,} bytes, as the headers declare"
        raise _corrupt_video_error(code, expected, f"{size_bytes:,} bytes: the file is truncated", path)
    file.seek(0)
    av = import_media_package("av", "video", "PyAV", "reading video")
    try:
        with av.open(
            file, format=_DEMUXERS[name], io_open=_refuse_other_files, metadata_errors="replace"
        ) as container:
            # Without a context, FFmpeg has no decoder for the stream.
            streams = [one for one in container.streams.video if one.codec_context is not None and not _is_cover(one)]
            if not streams:
                raise InvalidMedia(
                    "E346" if code == "E345" else code,
                    "has no video stream",
                    expected="a file with a video stream",
                    found=", ".join([one.type for one in container.streams][:8]) or "no streams",
                    do="rk.sources.audio_folder for audio; convert it to FLAC first: ffmpeg -i IN OUT.flac",
                    path=path,
                )
            yield OpenVideo(name, container, streams[0], path, code)
    except (av.error.FFmpegError, ValueError, LookupError, ArithmeticError, RuntimeError) as failure:
        # PyAV raises built-in exceptions too for values that it does not expect.
        reason = getattr(failure, "strerror", None) or str(failure)
        raise _corrupt_video_error(code, f"an intact {name} file", reason[:60], path) from failure


def _refuse_other_files(url: str, flags: int, options: Any) -> NoReturn:
    raise ValueError("it refers to another file")


def _is_cover(stream: Any) -> bool:
    """Whether a stream is the cover of an album."""
    return bool(int(stream.disposition) & _ATTACHED_PICTURE)


def _count_missing_bytes(file: Any, name: str, size_bytes: int) -> int:
    """The bytes that the outermost structure of a file declares beyond its end."""
    ends = {"mp4": _find_mp4_end, "mov": _find_mp4_end, "avi": _find_avi_end}
    end = ends.get(name, _find_matroska_end)(file, size_bytes)
    return max(0, end - size_bytes)


def _find_mp4_end(file: Any, size_bytes: int) -> int:
    at = 0
    for _ in range(_MAX_BOXES):
        if at + 8 > size_bytes:
            break
        file.seek(at)
        header = file.read(16)
        box_bytes = int.from_bytes(header[:4], "big")
        if box_bytes == 1:
            box_bytes = int.from_bytes(header[8:16], "big")
        if box_bytes == 0 or not header[4:8].strip(b"\0"):  # to the end; padding
            return size_bytes
        at += max(box_bytes, 8)
    return at


def _find_avi_end(file: Any, size_bytes: int) -> int:
    at = 0
    while at + 8 <= size_bytes:
        file.seek(at)
        header = file.read(8)
        if header[:4] != b"RIFF":
            break  # padding after the last list
        chunk_bytes = int.from_bytes(header[4:8], "little")
        if chunk_bytes in (0, 0xFFFFFFFF):  # written by a program that could not seek
            return size_bytes
        at += 8 + chunk_bytes
    return at


def _find_matroska_end(file: Any, size_bytes: int) -> int:
    """The end of the segment, the second element of the file; its size may be unknown."""
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    at = 4
    length, width = _read_ebml_size(head, at)
    at += width + (length or 0)
    if length is None or head[at : at + 4] != b"\x18\x53\x80\x67":
        return size_bytes
    length, width = _read_ebml_size(head, at + 4)
    return size_bytes if length is None else at + 4 + width + length


def _read_ebml_size(head: bytes, at: int) -> tuple[int | None, int]:
    """A size of variable width, None if it is unknown, and its width."""
    first = head[at] if at < len(head) else 0
    width = 9 - first.bit_length()
    value = int.from_bytes(head[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (None if not first or value == (1 << 7 * width) - 1 else value), width


def inspect_video_file(file: BinaryIO, path: str) -> VideoFacts:
    """The facts of an open file, whose first frame is decoded; raises InvalidMedia."""
    with open_video(file, path) as video:
        return _with_shown_size(video)


def _with_shown_size(video: OpenVideo) -> VideoFacts:
    height, width = next(video.frames()).pixels().shape[:2]
    return video.facts._replace(width=width, height=height)


def inspect_video(value: Any, feature: Video, verify: Verify) -> tuple[VerifiedBytes, VideoFacts, str | None]:
    """The bytes of an encoded value, its facts and its file; raises InvalidMedia.

    The first frame is decoded. full: all compressed frames are read, too.
    """
    if isinstance(value, np.ndarray):
        raise InvalidMedia(
            "E344",
            "is an array, expected an encoded video",
            expected="the bytes of a video, or a pathlib.Path",
            found=describe_shape(value),
            do='rk.Schema(context={}, steps={"image": rk.Image()}) for frames',
        )
    data, path = read_image_bytes(value, "Video")
    with open_video(io.BytesIO(data), path) as video:
        facts = _with_shown_size(video)
    if feature.format not in (None, facts.format):
        raise InvalidMedia(
            "E344",
            f"is not {str(feature.format).upper()}",
            expected=f"the bytes of a {feature.format} file",
            found=facts.format,
            do=f'declare format="{facts.format}", or format=None for any',
            path=path,
        )
    if verify == "full":
        with open_video(io.BytesIO(data), path) as video:
            video.count_packets()
    return data if isinstance(data, VerifiedBytes) else VerifiedBytes(data), facts, path


def store_video(value: Any, feature: Video) -> bytes:
    """The encoded bytes of a video; raises InvalidValue."""
    return value if isinstance(value, VerifiedBytes) else inspect_video(value, feature, "full")[0]


def decode_video(data: bytes, resize: tuple[int, int] | None) -> Array:
    """All frames as uint8 of shape (frames, height, width, 3); raises InvalidMedia."""
    found: list[Array] = []
    with open_video(io.BytesIO(data), None, "D415") as video:
        for frame in video.frames():
            pixels = frame.pixels(resize)
            found.append(pixels)
            if pixels.shape != found[0].shape:
                shapes = f"{found[0].shape[:2]} and {pixels.shape[:2]}"
                raise _corrupt_video_error("D415", "frames of one size, or resize=", shapes, None)
            if len(found) * pixels.nbytes > MAX_DECODED_BYTES:
                raise InvalidMedia(
                    "D416",
                    "has too many frames to decode at once",
                    expected=f"at most {MAX_DECODED_BYTES:,} bytes of pixels",
                    found=f"more than {len(found):,} frames of {pixels.shape[1]:,} × {pixels.shape[0]:,}",
                    do="resize=(…), or write clips of its frames: rk.sources.video_folder(path, clips=16)",
                )
    return np.stack(found)


def _corrupt_video_error(code: str, expected: str, found: str, path: str | None) -> InvalidMedia:
    is_decoding = code[0] == "D"
    what = "cannot be decoded" if is_decoding else "is truncated or corrupt"
    do = "write the dataset again from an intact file" if is_decoding else COPY_AGAIN_HINT
    return InvalidMedia(code, what, expected=expected, found=found, do=do, path=path)

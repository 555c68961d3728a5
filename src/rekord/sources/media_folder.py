"""What folders of audio and of video share: files in class folders and splits, and rows of files that may be bad."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rekord.arguments import is_utf8_encodable
from rekord.codec.audio import InvalidMedia
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature, Label, Schema, of_type
from rekord.sources.base import PartItem, SourceFacts, SourceFile, SourceGuess, SourcePart, SourceRow
from rekord.sources.image_folder import (
    FileKind,
    FileTree,
    ListingSource,
    SourceListing,
    find_files,
    fingerprint,
    join_path,
    list_path_items,
    name_error,
    parse_label_and_split,
    read_class_folders,
    stat_file,
    to_printable_path,
    validate_folder,
)
from rekord.storage import raw_files

AUDIO_EXTENSIONS = frozenset((".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3"))
VIDEO_EXTENSIONS = frozenset((".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi"))
# Files that are reported, and do not vanish from a dataset.
UNREAD_AUDIO_EXTENSIONS = frozenset((".m4a", ".aac", ".wma", ".aif", ".aiff", ".amr", ".au"))
UNREAD_VIDEO_EXTENSIONS = frozenset((".wmv", ".flv", ".mpg", ".mpeg", ".3gp", ".mts", ".vob"))


AUDIO_FILES = FileKind(
    name="audio",
    plural="audio files",
    extensions=AUDIO_EXTENSIONS | UNREAD_AUDIO_EXTENSIONS,
    endings=(".wav", ".flac", ".mp3", ".ogg", ".WAV", ".FLAC", ".MP3", ".OGG"),
    columns=(
        *("audio", "audiopath", "audiofile", "audiofilename", "wav", "wavpath", "wavfile", "wavfilename", "sound"),
        *("recording", "path", "file", "filename", "filepath", "fname", "slicefilename", "uri", "audioid", "id"),
    ),
    folders=("audio", "wavs", "wav", "clips", "recordings", "sounds"),
)


VIDEO_FILES = FileKind(
    name="video",
    plural="videos",
    extensions=VIDEO_EXTENSIONS | UNREAD_VIDEO_EXTENSIONS,
    endings=(".mp4", ".avi", ".mov", ".mkv", ".webm", ".MP4", ".AVI", ".MOV"),
    columns=(
        *("video", "videopath", "videofile", "videofilename", "videoname", "clip", "clippath", "clipname"),
        *("path", "file", "filename", "filepath", "uri", "videoid", "youtubeid", "id"),
    ),
    folders=("videos", "video", "clips", "data", "films"),
)


@contextmanager
def open_media_file(path: str) -> Iterator[Any]:
    """A file or a member of an archive, open for reading in any order; raises InvalidMedia, also while it is read."""
    try:
        with raw_files.open_seekable(path) as file:
            yield file
    except (OSError, RekordError) as failure:
        if isinstance(failure, RekordError) and failure.code != "X524":  # a member that is corrupt
            raise
        reason = failure.found or failure.what if isinstance(failure, RekordError) else failure.strerror
        raise InvalidMedia(
            "E329",
            "cannot be read from its file",
            expected="a readable file",
            found=(reason or str(failure))[:60],
            do=f"check the path: {path}",
            path=path,
        ) from failure


@dataclass(frozen=True)
class MediaFolderSource(ListingSource):
    """Files below a folder, each a row or several, with their folder as class; or a single file."""

    path: str
    classes: tuple[str, ...] | None = None

    kind: ClassVar[str]
    medium: ClassVar[str]
    """What the files are, in messages."""

    column: ClassVar[str]
    """The column that errors of a file name."""

    @property
    def root(self) -> str:
        """The folder that the paths of rows are relative to."""
        return self.path if raw_files.isdir(self.path) else os.path.dirname(self.path) or "."

    @property
    def is_named(self) -> Callable[[str], bool]:
        """Whether a file is named like one of these."""
        raise NotImplementedError

    def build_schema(self, files: Sequence[str], label: Mapping[str, Feature]) -> tuple[Schema, list[SourceGuess]]:
        """The schema of the rows, and what was decided for it; `files` are full paths."""
        raise NotImplementedError

    def read_file(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        """The rows of one file, without label and split; raises InvalidValue."""
        raise NotImplementedError

    def options(self) -> Mapping[str, Any]:
        return {"classes": None if self.classes is None else list(self.classes)}

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        has_splits, paths = part.content
        for path in paths:
            if not is_utf8_encodable(path):
                yield SourceRow(to_printable_path(path), 0, name_error(self.root, path))
                continue
            place = parse_label_and_split(path, has_splits)
            known = {"label": place.label, "split": place.split}
            known = {name: value for name, value in known.items() if value is not None}
            position = 0
            try:
                for values in self.read_file(join_path(self.root, path), path):
                    yield SourceRow(path, position, {**values, **known})
                    position += 1
            except InvalidValue as refused:
                yield SourceRow(path, position, refused.to_error(self.column))

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The files of a part."""
        return list_path_items(part)

    def _list(self) -> SourceListing:
        files, ignored = self._find_files()
        if not files:
            raise no_media_error(self.root, ignored, self.medium)
        has_splits, found, splits = read_class_folders(files)
        names = self.classes or found
        label: dict[str, Feature] = {"label": Label(names, key=self.label_key)} if names else {}
        schema, guesses = self.build_schema([join_path(self.root, file.path) for file in files], label)
        facts = SourceFacts(
            layout="table",
            schema=schema,
            classes=names or None,
            rows=len(files) if self.has_one_row_each else None,
            source_bytes=sum([file.size_bytes for file in files]),
            splits=splits,
            files=fingerprint(files),
            guesses=tuple(guesses),
            extra={"ignored_files": ignored, "labels": bool(found)},
        )
        return SourceListing(facts, [(file.path, file.size_bytes) for file in files], has_splits)

    def _find_files(self) -> FileTree:
        facts = stat_file(self.path)
        if facts is None:
            return find_files(validate_folder(self.path), self.is_named)
        return FileTree((SourceFile(os.path.basename(self.path), facts.st_size, facts.st_mtime_ns),), 0)

    @property
    def label_key(self) -> str:
        """The record key of the class."""
        raise NotImplementedError

    @property
    def has_one_row_each(self) -> bool:
        """Whether every file is one row."""
        return True


def with_label_key(target: Mapping[str, Feature], key: str) -> dict[str, Feature]:
    """Columns of which the label has this record key."""
    return {**target, **{name: replace(label, key=key) for name, label in of_type(target, Label).items()}}


def no_media_error(root: str, ignored: int, medium: str) -> RekordError:
    """The error for a folder without audio or video."""
    endings = sorted(AUDIO_EXTENSIONS if medium == "audio" else VIDEO_EXTENSIONS)
    return error(
        "X580",
        f"folder has no {medium} files",
        location=Location(path=join_path(root, "")),
        expected=f"files that end in {', '.join(endings)}, at any depth",
        found=f"{ignored:,} other files" if ignored else "no files",
        do=f"pass the folder that contains the {medium} files, or unpack them first",
    )

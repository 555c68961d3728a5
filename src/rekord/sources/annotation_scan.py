"""A bounded look at a folder before another library parses it: cycles of links, pipes, XML entities, huge files."""

from __future__ import annotations

import gzip
import os
import stat as modes
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from xml.parsers import expat

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.coco import MAX_JSON_BYTES
from rekord.sources.image_folder import is_image_name, join_path
from rekord.storage.local import read_error

MAX_ENTRIES = 10_000_000
MAX_LEVELS = 32
MAX_INFLATED_BYTES = 2 << 30  # of all gzip files: Datumaro holds what they contain in memory
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FolderScan:
    """What a folder contains, in figures."""

    annotation_bytes: int  # of files that are not images, unpacked
    files: int
    fingerprint: str  # of the names, sizes and times of all files


def scan_folder(root: str) -> FolderScan:
    """Inspect every file that Datumaro may open. Raises X591 for one that must not be parsed, X503 for a pipe."""
    digest = blake2b(digest_size=16)
    annotation_bytes = files = inflated = 0
    for path, facts in _iter_files(root, (), 0):
        files += 1
        if files > MAX_ENTRIES:
            raise unsafe_error(root, f"at most {MAX_ENTRIES:,} files", "more", "pass a smaller folder")
        digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        name = path.lower()
        if is_image_name(name):
            continue
        if facts.st_size > MAX_JSON_BYTES:
            raise unsafe_error(
                path, f"at most {MAX_JSON_BYTES:,} bytes", f"{facts.st_size:,} bytes", "split the file"
            )
        annotation_bytes += facts.st_size
        if name.endswith(".xml"):
            _check_xml(path)
        elif name.endswith(".gz"):
            inflated += _measure_gzip(path, MAX_INFLATED_BYTES - inflated)
    return FolderScan(annotation_bytes + inflated, files, digest.hexdigest())


def unsafe_error(path: str, expected: str, found: str, do: str) -> RekordError:
    """The error for annotations that are not handed to a parser."""
    return error("X591", location=Location(path=join_path(path, "")), expected=expected, found=found, do=do)


def _iter_files(folder: str, inside: tuple[tuple[int, int], ...], level: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        facts = os.stat(folder)
        identity = facts.st_dev, facts.st_ino
        # Patterns with `**` follow links: a cycle multiplies the paths at every level.
        if identity in inside or level > MAX_LEVELS:
            found = "a link to a folder that contains it" if identity in inside else f"more than {MAX_LEVELS} levels"
            raise unsafe_error(folder, "folders without cycles", found, "remove the link, or pass a folder below it")
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda one: os.fsencode(one.name))
    except OSError as failure:
        raise read_error(folder, failure) from failure
    for entry in entries:
        try:
            facts = os.stat(entry.path)
        except OSError:
            continue  # a broken link
        if modes.S_ISDIR(facts.st_mode):
            yield from _iter_files(entry.path, (*inside, identity), level + 1)
        elif modes.S_ISREG(facts.st_mode):
            yield entry.path, facts
        else:
            raise error(
                "X503",
                "pipe or device cannot be a source",
                location=Location(path=join_path(entry.path, "")),
                expected="regular files",
                found="a pipe, a socket or a device",
                do="remove it, or write its content to a file",
            )


class _RootReached(Exception):
    """The document element has begun: entities cannot be declared after it."""


def _check_xml(path: str) -> None:
    """Refuse declarations of entities, which may expand without bound. Other errors are left to the parser."""

    def refuse(name: str, *_: object) -> None:
        raise unsafe_error(path, "XML without declared entities", f"<!ENTITY {name[:40]}", "remove the DOCTYPE")

    def stop(*_: object) -> None:
        raise _RootReached

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = stop
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
    except OSError as failure:
        raise read_error(path, failure) from failure
    except (_RootReached, expat.ExpatError, ValueError, LookupError):
        return


def _measure_gzip(path: str, most_bytes: int) -> int:
    """The bytes inside a gzip file, which are not kept."""
    size = 0
    try:
        with gzip.open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                size += len(chunk)
                if size > most_bytes:
                    expected = f"at most {MAX_INFLATED_BYTES:,} bytes in gzip files"
                    raise unsafe_error(path, expected, "more", "check what the file contains, or split the dataset")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return size  # the parser reports it
    except OSError as failure:
        raise read_error(path, failure) from failure
    return size

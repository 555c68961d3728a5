"""Files inside zip and tar archives, read in place: `photos.zip!/cats/1.jpg` is a member of `photos.zip`.

A member of a zip file, or of a tar file that is not compressed, is read from the archive. A compressed tar file
has no index and cannot be read from the middle: each process decompresses it once, into a temporary file.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import posixpath
import re
import stat as modes
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage import portability
from rekord.storage.local import LOCAL, DirectoryEntry, Readable, Stat, read_error, write_error
from rekord.storage.raw_files import SeekableFile, abspath, local_file, split_member_path
from rekord.storage.router import is_remote

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

MAX_RATIO = 250
"""How many times its compressed size a member may have, if it is larger than `RATIO_CHECKED_BYTES`."""

RATIO_CHECKED_BYTES = 16 << 20
MAX_HEADER_BYTES = 1 << 20
"""The most that a header of a tar file may have; it holds a name and a few properties."""

_MAX_MEMBERS = 1 << 22
_COPY_BYTES = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ZIP_UTF8_FLAG = 0x800
_ZIP_EXTRA = struct.Struct("<HH")
_ZIP_UNICODE_NAME = 0x7075
_METHODS: dict[int, Callable[[], Any]] = {
    zipfile.ZIP_DEFLATED: lambda: zlib.decompressobj(-15),
    zipfile.ZIP_BZIP2: bz2.BZ2Decompressor,
}
_FAILURES = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, ValueError, struct.error, NotImplementedError),
)


def require_own_file(path: str, what: str) -> None:
    """Raise X551 for what a library can only read as a local file of its own."""
    place = split_member_path(path)
    if place is None and is_remote(path):
        raise error(
            "X551",
            f"{what} cannot be read from remote storage",
            location=Location(path=path),
            expected="a local path",
            found=f"{path.partition('://')[0][:30]}://",
            do="copy it to a local folder, and write from the copy",
        )
    if place is not None:
        raise error(
            "X551",
            location=Location(path=path),
            expected="a file of its own",
            found=f"{what} in an archive: it is read in any order, by a library that opens a path",
            do=f"unpack this member of {place[0]}, and write from the file",
        )


class _ArchiveMember(NamedTuple):
    """A file in an archive."""

    offset: int  # of its header in a zip file, of its bytes in a tar file
    size_bytes: int
    stored_bytes: int
    method: int = zipfile.ZIP_STORED
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """The members of an archive by name, and the names in each folder, which are not always members."""

    path: str
    facts: Stat
    file: str = ""  # to open: the path, or a copy of a remote archive
    members: dict[str, _ArchiveMember] = field(default_factory=dict)
    folders: dict[str, dict[str, bool]] = field(default_factory=lambda: {"": {}})  # name → whether it is a folder
    expanded: Any = None  # a decompressed tar file

    def add_folder(self, name: str) -> None:
        above, _, own = name.rpartition("/")
        if name in self.members:
            raise _unsafe_error(self.path, name, "a file and a folder of the same name")
        if name and name not in self.folders:
            self.folders[name] = {}
            self.add_folder(above)
            self.folders[above][own] = True

    def add(self, name: str, member: _ArchiveMember) -> None:
        above, _, own = name.rpartition("/")
        if name in self.members or name in self.folders:
            raise _unsafe_error(self.path, name, "two members of the same name")
        if len(self.members) >= _MAX_MEMBERS:
            raise _unsafe_error(self.path, name, f"more than {_MAX_MEMBERS:,} members")
        if member.size_bytes > max(RATIO_CHECKED_BYTES, MAX_RATIO * member.stored_bytes):
            found = f"{member.size_bytes:,} bytes compressed to {member.stored_bytes:,}"
            raise _unsafe_error(self.path, name, found)
        self.add_folder(above)
        self.folders[above][own] = False
        self.members[name] = member


_archives: OrderedDict[tuple[str, int, int], Archive] = OrderedDict()
_MAX_OPEN = 4


def read_archive(path: str) -> Archive:
    """The index of an archive, which is kept while the file does not change."""
    file = local_file(path)
    facts = LOCAL.stat(file)
    key = abspath(path), facts.size_bytes, facts.mtime_ns
    if key in _archives:
        _archives.move_to_end(key)
        return _archives[key]
    archive = _index(path, file, facts)
    _archives[key] = archive
    while len(_archives) > _MAX_OPEN:
        _, old = _archives.popitem(last=False)
        if old.expanded is not None:
            old.expanded.close()
    return archive


def read_zip(path: str) -> Archive:
    """The index of a zip file of any name, such as a document of several parts."""
    try:
        file = local_file(path)
        with SeekableFile(LOCAL.open_read(file)) as raw:
            return _index_zip(Archive(path, LOCAL.stat(file), file), raw)
    except _FAILURES as failure:
        if isinstance(failure, RekordError):
            raise
        raise _corrupt_error(path, None, str(failure)[:60]) from None


def open_zip_member(archive: Archive, name: str) -> Readable:
    """A member of a zip file, open for reading."""
    return _ZipMemberFile(archive.path, LOCAL.open_read(archive.file), archive.members[name])


def _index(path: str, file: str, facts: Stat) -> Archive:
    try:
        with SeekableFile(LOCAL.open_read(file)) as raw:
            if path.lower().endswith(".zip"):
                return _index_zip(Archive(path, facts, file), raw)
            return _index_tar(path, file, facts, raw)
    except RekordError:
        raise
    except _FAILURES as failure:
        raise _corrupt_error(path, None, str(failure)[:60] or "data that ends too early") from None
    except OSError as failure:
        if failure.errno is None:
            raise _corrupt_error(path, None, str(failure)[:60]) from None
        raise read_error(path, failure) from failure


def _index_zip(archive: Archive, raw: SeekableFile) -> Archive:
    with zipfile.ZipFile(io.BufferedReader(raw)) as zipped:
        infos = zipped.infolist()
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        name = _decode_zip_name(info)
        name = name.replace("\\", "/") if info.create_system == 0 else name
        is_folder = name.endswith("/")
        name = _check_name(archive.path, name)
        if info.header_offset < end:
            raise _unsafe_error(archive.path, name, "members that overlap")
        end = info.header_offset + _LOCAL_HEADER.size + info.compress_size
        if modes.S_ISLNK(info.external_attr >> 16):
            raise _unsafe_error(archive.path, name, "a link")
        if is_folder:
            archive.add_folder(name)
            continue
        if info.flag_bits & 1:
            raise _unreadable_error(archive.path, name, "an encrypted member")
        if info.compress_type != zipfile.ZIP_STORED and info.compress_type not in _METHODS:
            found = zipfile.compressor_names.get(info.compress_type, f"method {info.compress_type}")  # type: ignore[attr-defined]
            raise _unreadable_error(archive.path, name, f"a member compressed with {found}")
        archive.add(
            name, _ArchiveMember(info.header_offset, info.file_size, info.compress_size, info.compress_type, info.CRC)
        )
    return archive


def _decode_zip_name(info: zipfile.ZipInfo) -> str:
    """The name of a member. Without a flag it is in code page 437, but macOS and others write UTF-8 all the same.

    Info-ZIP adds the name in UTF-8, with the checksum of the other name.
    """
    if info.flag_bits & _ZIP_UTF8_FLAG or info.filename.isascii():
        return info.filename
    try:
        raw = info.filename.encode("cp437")
    except UnicodeEncodeError:  # decoded from what Info-ZIP added
        return info.filename
    extra = info.extra
    while len(extra) >= _ZIP_EXTRA.size:
        kind, size_bytes = _ZIP_EXTRA.unpack_from(extra)
        value, extra = extra[_ZIP_EXTRA.size :][:size_bytes], extra[_ZIP_EXTRA.size + size_bytes :]
        if kind == _ZIP_UNICODE_NAME and value[1:5] == zlib.crc32(raw).to_bytes(4, "little"):
            raw = value[5:]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return info.filename


def _index_tar(path: str, place: str, facts: Stat, raw: SeekableFile) -> Archive:
    expanded = _expand(path, facts, raw) if not path.lower().endswith(".tar") else None
    archive = Archive(path, facts, place, expanded=expanded)
    file: Any = raw if expanded is None else expanded
    size_bytes = facts.size_bytes if expanded is None else expanded.seek(0, os.SEEK_END)
    file.seek(0)
    links: list[tuple[str, str]] = []
    opening: Any = tarfile.open
    with opening(fileobj=_HeaderReader(file), mode="r:", errorlevel=2) as tar:
        for info in tar:
            name = _check_name(path, info.name)
            if info.isdir():
                archive.add_folder(name)
            elif info.issym() or info.islnk():
                above = posixpath.dirname(name) if info.issym() else ""
                target = posixpath.normpath(posixpath.join(above, info.linkname))
                links.append((name, _check_name(path, target)))
            elif info.isreg() and not info.issparse():
                if info.offset_data + info.size > size_bytes:
                    raise _corrupt_error(path, name, "data that ends too early")
                archive.add(name, _ArchiveMember(info.offset_data, info.size, info.size))
            else:
                raise _unreadable_error(path, name, "a device, a pipe or a sparse file")
            tar.members = []  # it would keep them all
    for name, target in links:
        if target in archive.members:
            archive.add(name, archive.members[target])
        elif target not in archive.folders:
            raise _unsafe_error(path, name, f"a link to {target[:60]!r}, which is not in the archive")
    return archive


class _HeaderReader:
    """A tar file for `tarfile`, which reads headers only, but believes their sizes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size_bytes: int) -> bytes:
        if size_bytes > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size_bytes:,} bytes")
        data: bytes = self._file.read(size_bytes)
        return data


def _expand(path: str, facts: Stat, raw: SeekableFile) -> Any:
    """A compressed tar file as a temporary one, which is gone when the process ends, however it ends."""
    lower = path.lower()
    opening: Any = gzip.open if lower.endswith(("gz", "tgz")) else bz2.open if "bz" in lower else lzma.open
    expanded = tempfile.TemporaryFile()  # noqa: SIM115
    done = 0
    try:
        with opening(raw) as stream:
            while block := stream.read(_COPY_BYTES):
                done += len(block)
                if done > max(RATIO_CHECKED_BYTES, MAX_RATIO * facts.size_bytes):
                    raise _unsafe_error(path, "", f"more than {done:,} bytes compressed to {facts.size_bytes:,}")
                try:
                    expanded.write(block)
                except OSError as failure:
                    raise write_error(tempfile.gettempdir(), failure, left_bytes=len(block)) from failure
        expanded.flush()
    except BaseException:
        expanded.close()
        raise
    return expanded


def _check_name(path: str, name: str) -> str:
    """The name of a member, which must stay below the archive."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:[\\/]", name) or "\0" in name:
        raise _unsafe_error(path, name, "a name that leads out of the archive")
    return "/".join(part for part in parts if part not in ("", "."))


class _Members:
    """The members of archives as a storage that can only be read."""

    def open_read(self, path: str) -> Readable:
        archive, name = _find_archive(path)
        member = archive.members.get(name)
        if member is None:
            _raise_missing(archive, path, name)
        if archive.expanded is not None:
            return _RangeFile(path, os.dup(archive.expanded.fileno()), member)
        if member.crc is None:
            return _RangeFile(path, _open_descriptor(archive.file), member)
        return _ZipMemberFile(path, LOCAL.open_read(archive.file), member)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        archive, name = _find_archive(folder)
        if name in archive.members:
            raise read_error(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder))
        if name not in archive.folders:
            _raise_missing(archive, folder, name)
        entries = archive.folders[name]
        below = f"{name}/" if name else ""
        return [
            DirectoryEntry(
                name=own,
                kind="folder" if entries[own] else "file",
                link=False,
                size_bytes=None if entries[own] else archive.members[below + own].size_bytes,
            )
            for own in sorted(entries, key=os.fsencode)
        ]

    def stat(self, path: str) -> Stat:
        """Times are those of the archive."""
        archive, name = _find_archive(path)
        member = archive.members.get(name)
        if member is None and name not in archive.folders:
            _raise_missing(archive, path, name)
        device, inode = archive.facts.identity
        # Folders need identities of their own: one that is met twice counts as a cycle of links.
        return Stat(
            kind="folder" if member is None else "file",
            size_bytes=0 if member is None else member.size_bytes,
            mtime_ns=archive.facts.mtime_ns,
            identity=(device, (inode << 64) + (len(name) << 32) + zlib.crc32(os.fsencode(name))),
        )


MEMBERS: Final = _Members()


def _find_archive(path: str) -> tuple[Archive, str]:
    """The archive of a path, and the name of its member."""
    place = split_member_path(path)
    assert place is not None, "the caller looks at the path"
    return read_archive(place[0]), place[1]


def _open_descriptor(path: str) -> int:
    try:
        return portability.open_to_read(path)
    except OSError as failure:
        raise read_error(path, failure) from failure


def _raise_missing(archive: Archive, path: str, name: str) -> NoReturn:
    above = name
    while above and above not in archive.folders:
        above = above.rpartition("/")[0]
    shown = sorted(archive.folders.get(above, {}))[:3]
    raise error(
        "X501",
        location=Location(path=path),
        found="no such member" + (f"; there is {', '.join(shown)}"[:80] if shown else ""),
        do=f"list its members: {'unzip -l' if archive.path.lower().endswith('.zip') else 'tar -tf'} {archive.path}",
    )


class _RangeFile:
    """A range of a file as a file. The descriptor is its own."""

    def __init__(self, path: str, descriptor: int, member: _ArchiveMember) -> None:
        self.path = path
        self.size_bytes = member.size_bytes
        self._descriptor = descriptor
        self._begin = member.offset
        self._at = 0

    def readinto(self, buffer: Buffer, /) -> int:
        with memoryview(buffer).cast("B") as view:
            wanted = min(len(view), self.size_bytes - self._at)
            if wanted <= 0:
                return 0
            try:
                # Positions of duplicated descriptors are shared: `pread` does not depend on them.
                data = portability.pread(self._descriptor, wanted, self._begin + self._at)
            except OSError as failure:
                raise read_error(self.path, failure) from failure
            view[: len(data)] = data
            self._at += len(data)
            return len(data)

    def seek(self, offset: int, /) -> int:
        self._at = offset
        return offset

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _ZipMemberFile:
    """A member of a zip file as a file. Its length and checksum are verified when it is read to its end."""

    def __init__(self, path: str, archive: Readable, member: _ArchiveMember) -> None:
        self.path = path
        self.size_bytes = member.size_bytes
        self._archive = archive
        self._member = member
        self._begin = self._find_data()
        self._restart()

    def _find_data(self) -> int:
        self._archive.seek(self._member.offset)
        header = _read_exactly(self._archive, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size:
            raise _corrupt_error(self.path, None, "no header of the member")
        magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        if magic != b"PK\3\4":
            raise _corrupt_error(self.path, None, "no header of the member")
        return self._member.offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)

    def _restart(self) -> None:
        self._archive.seek(self._begin)
        self._left = self._member.stored_bytes  # compressed bytes that were not read
        self._inflate = None if self._member.method == zipfile.ZIP_STORED else _METHODS[self._member.method]()
        self._input = b""
        self._at = 0
        self._crc = 0

    def readinto(self, buffer: Buffer, /) -> int:
        with memoryview(buffer).cast("B") as view:
            if not len(view):
                return 0
            data = self._next(len(view))
            view[: len(data)] = data
            return len(data)

    def _next(self, wanted: int) -> bytes:
        if self._at >= self.size_bytes:
            return b""
        data = b""
        wanted = min(wanted, self.size_bytes - self._at)
        try:
            while not data:
                if not self._input and self._left:
                    self._input = _read_exactly(self._archive, min(self._left, _COPY_BYTES))
                    if not self._input:
                        raise EOFError
                    self._left -= len(self._input)
                if self._inflate is None:
                    data, self._input = self._input[:wanted], self._input[wanted:]
                elif isinstance(self._inflate, bz2.BZ2Decompressor):
                    data, self._input = self._inflate.decompress(self._input, wanted), b""
                else:
                    data = self._inflate.decompress(self._input, wanted)
                    self._input = self._inflate.unconsumed_tail
                if not data and (not self._left and not self._input):
                    raise EOFError
        except (zlib.error, OSError, EOFError, ValueError) as failure:
            if isinstance(failure, RekordError):
                raise
            found = "data that ends too early" if isinstance(failure, EOFError) else "invalid compressed data"
            raise _corrupt_error(self.path, None, found) from None
        self._at += len(data)
        self._crc = zlib.crc32(data, self._crc)
        if self._at == self.size_bytes and self._crc != self._member.crc:
            raise _corrupt_error(self.path, None, "data that does not match its checksum")
        return data

    def seek(self, offset: int, /) -> int:
        if offset < self._at:
            self._restart()
        while self._at < min(offset, self.size_bytes):
            self._next(min(offset - self._at, _COPY_BYTES))
        return offset

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _read_exactly(file: Readable, size_bytes: int) -> bytes:
    data = bytearray(size_bytes)
    done = 0
    with memoryview(data) as view:
        while done < size_bytes and (count := file.readinto(view[done:])):
            done += count
    return bytes(data) if done == size_bytes else bytes(data[:done])


def _unsafe_error(path: str, name: str, found: str) -> RekordError:
    return error(
        "X550",
        location=Location(path=f"{path}!/{name}" if name else path),
        expected="members with unique names below the archive, which do not overlap or expand without bound",
        found=found[:120],
        do="unpack the archive with a tool that you trust, and write from the folder",
    )


def _unreadable_error(path: str, name: str, found: str) -> RekordError:
    return error(
        "X551",
        location=Location(path=f"{path}!/{name}"),
        expected="files, stored or compressed with deflate or bzip2, without a password",
        found=found,
        do="unpack the archive, and write from the folder",
    )


def _corrupt_error(path: str, name: str | None, found: str) -> RekordError:
    return error(
        "X524",
        "archive is corrupt",
        location=Location(path=path if name is None else f"{path}!/{name}"),
        expected="an intact archive",
        found=found,
        do="copy the file again from its origin, or skip it",
    )

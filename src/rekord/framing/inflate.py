"""The uncompressed bytes of a record file; compression and other formats are detected from the content.

    gzip   1f 8b 08 …  deflate …  crc32 length     one member after another
    zlib   78 xx       deflate …  adler32          one stream

A plain file may begin with the same bytes (a first record of 40,056 bytes begins `78 9c`), so a valid frame
at the very front always wins.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

from rekord import _core
from rekord.errors import RekordError, error
from rekord.location import Location

HEAD_BYTES = 64 * 1024
"""How much of the start of a file is inspected."""

_CHUNK_BYTES = 64 * 1024
_UNKNOWN_SIZE = 1 << 62
# Deflate spends at least two bits on at most 258 bytes; zlib holds back less than 64 KiB of them.
_MAX_EXPANSION = 1032
_HELD_BACK_BYTES = 64 * 1024


class ByteSource(Protocol):
    """An open file: what this layer needs of one."""

    @property
    def size_bytes(self) -> int: ...

    def readinto(self, buffer: bytearray | memoryview, /) -> int: ...

    def seek(self, offset: int, /) -> int: ...

    def close(self) -> None: ...


class Stream(Protocol):
    """Uncompressed bytes, in order."""

    compression: str

    def readinto(self, buffer: memoryview) -> int:
        """Fill part of `buffer`; 0 means the end. Bytes before damage are returned before it is raised."""

    def start_at(self, offset: int) -> bool:
        """Continue from this offset; False if not possible. For a stream that has not been read yet."""

    def max_remaining_bytes(self) -> int:
        """The greatest number of bytes that can still follow."""

    def compressed_offset(self) -> int | None:
        """The current offset in the compressed file; None if it is not compressed."""

    def close(self) -> None: ...


class PlainStream:
    """An uncompressed file, including its first bytes, which were read already."""

    compression = "none"

    def __init__(self, file: ByteSource, head: bytes, *, sized: bool) -> None:
        self._file = file
        self._head = head
        self._sized = sized
        self._left = file.size_bytes if sized else _UNKNOWN_SIZE

    def start_at(self, offset: int) -> bool:
        if offset == 0:
            return True
        if not self._sized:
            return False
        self._file.seek(offset)
        self._head = b""
        self._left = max(self._file.size_bytes - offset, 0)
        return True

    def readinto(self, buffer: memoryview) -> int:
        if self._head:
            count = min(len(self._head), len(buffer))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
        else:
            count = self._file.readinto(buffer)
        # The file may have shrunk since it was opened.
        self._left = max(self._left - count, 0) if count else 0
        return count

    def max_remaining_bytes(self) -> int:
        return self._left

    def compressed_offset(self) -> int | None:
        return None

    def close(self) -> None:
        self._file.close()


class InflateStream:
    """A gzip or zlib file, inflated as it is read."""

    def __init__(self, file: ByteSource, head: bytes, compression: str, *, sized: bool) -> None:
        self.compression = compression
        self._file = file
        self._input = head
        self._sized = sized
        self._fed = len(head)  # compressed bytes taken from the file
        self._inflate = self._new_member()
        self._ended = False
        self._failure: RekordError | None = None

    def readinto(self, buffer: memoryview) -> int:
        if self._failure is not None:
            raise self._failure
        while not self._ended:
            if self._inflate.eof and not self._next_member():
                break
            starved = not self._input and not self._refill()
            # Even without input: zlib may have pending output.
            out = self._step(len(buffer))
            if out:
                buffer[: len(out)] = out
                return len(out)
            if self._failure is not None:
                raise self._failure
            if starved and not self._inflate.eof:
                raise self._fail("C202", f"the rest of the {self.compression} stream", "the end of the file")
        return 0

    def start_at(self, offset: int) -> bool:
        return offset == 0

    def max_remaining_bytes(self) -> int:
        if self._ended:
            return 0
        if not self._sized:
            return _UNKNOWN_SIZE
        unread = max(self._file.size_bytes - self._fed, 0) + len(self._input)
        return unread * _MAX_EXPANSION + _HELD_BACK_BYTES

    def compressed_offset(self) -> int | None:
        return self._fed - len(self._input)

    def close(self) -> None:
        self._file.close()

    def _new_member(self) -> zlib._Decompress:
        return zlib.decompressobj(wbits=31 if self.compression == "gzip" else 15)

    def _refill(self) -> bool:
        chunk = bytearray(_CHUNK_BYTES)
        count = self._file.readinto(chunk)
        self._input += bytes(chunk[:count])
        self._fed += count
        return count > 0

    def _step(self, most: int) -> bytes:
        """Inflate up to `most` bytes. On damage, everything before it."""
        before = self._inflate.copy()
        data = self._input
        try:
            out = self._inflate.decompress(data, most)
        except zlib.error as failure:
            out = self._up_to_damage(before, data, most)
            self._failure = self._damage(str(failure))
            return out
        self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return out

    def _up_to_damage(self, state: zlib._Decompress, data: bytes, most: int) -> bytes:
        """The output before the damage: zlib returns nothing from a call that fails."""
        # First all input that zlib accepts: a wrong checksum after the end of the data must not cost the last
        # bytes before it.
        good, bad = 0, len(data)
        accepted, out = state, b""
        while bad - good > 1:
            middle = (good + bad) // 2
            trial = state.copy()
            try:
                out_to_middle = trial.decompress(data[:middle], most)
            except zlib.error:
                bad = middle
            else:
                good, accepted, out = middle, trial, out_to_middle
        pieces = [out]
        state, data = accepted, (accepted.unconsumed_tail if good else b"") + data[good:]
        # Then output of the rest in ever smaller pieces.
        step = most
        while step:
            trial = state.copy()
            try:
                out = trial.decompress(data, step)
            except zlib.error:
                step //= 2
                continue
            if not out:
                break
            pieces.append(out)
            state, data = trial, trial.unconsumed_tail
        self._input = data
        return b"".join(pieces)

    def _next_member(self) -> bool:
        """After the end of a member: whether another one follows."""
        while True:
            # Zero padding to the end of a block is common on tapes and in object stores.
            self._input = self._input.lstrip(b"\0")
            if len(self._input) >= 2 or not self._refill():
                break
        if not self._input:
            self._ended = True
            return False
        if self.compression == "gzip" and self._input.startswith(b"\x1f\x8b"):
            self._inflate = self._new_member()
            return True
        found = f"bytes starting with {self._input[:8].hex(' ')}"
        raise self._fail("C203", f"the end of the file after the end of the {self.compression} stream", found)

    def _fail(self, code: str, expected: str, found: str) -> RekordError:
        """The error for all further reads."""
        self._failure = self._error(code, expected, found)
        return self._failure

    def _damage(self, message: str) -> RekordError:
        # zlib's message: "Error -3 while decompressing data: incorrect data check"
        reason = message.rsplit(": ", 1)[-1]
        code = "C204" if reason in ("incorrect data check", "incorrect length check") else "C201"
        return self._error(code, f"valid {self.compression} data", reason)

    def _error(self, code: str, expected: str, found: str) -> RekordError:
        return error(
            code,
            location=Location(compressed_offset=self.compressed_offset()),
            expected=expected,
            found=found,
            do="copy the file again from its origin; the records before this offset can still be read",
        )


def open_stream(file: ByteSource, *, sized: bool) -> tuple[Stream, bytes]:
    """The uncompressed bytes of `file`, and its first bytes on disk.

    `sized`: the file has a known size, unlike a pipe.
    """
    head = read_head(file)
    compression = sniff_compression(head)
    if compression == "none":
        return PlainStream(file, head, sized=sized), head
    return InflateStream(file, head, compression, sized=sized), head


def sniff_compression(head: bytes) -> str:
    """`none`, `gzip` or `zlib`, from the first bytes of a file."""
    if _core.header_agrees(head):
        return "none"
    if head[:3] == b"\x1f\x8b\x08":
        return "gzip"
    if len(head) >= 2 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and (head[0] << 8 | head[1]) % 31 == 0:
        inflate = zlib.decompressobj()
        try:
            inside = inflate.decompress(head, _core.HEADER_BYTES)
        except zlib.error:
            return "none"
        if _core.header_agrees(inside) or (not inside and inflate.eof):
            return "zlib"
    return "none"


def starts_with_record(head: bytes) -> bool:
    """Whether a file with this head is a record file, compressed or not, that starts with a frame."""
    compression = sniff_compression(head)
    if compression != "gzip":
        return compression == "zlib" or _core.header_agrees(head)
    try:
        inside = zlib.decompressobj(wbits=31).decompress(head, _core.HEADER_BYTES)
    except zlib.error:
        return False
    return _core.header_agrees(inside)


def read_head(file: ByteSource, most_bytes: int = HEAD_BYTES) -> bytes:
    """The next `most_bytes` of a file, or all that are left; its first bytes if nothing was read yet."""
    head = bytearray(most_bytes)
    filled = 0
    with memoryview(head) as view:
        while filled < most_bytes:
            count = file.readinto(view[filled:])
            if not count:
                break
            filled += count
    return bytes(head[:filled])


TAIL_BYTES = 64 * 1024
"""How much of its end: ArrayRecord has a magic number in its last block."""


@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """Another format: its error code, its name, and what to do."""

    code: str
    name: str
    do: str


_RIEGELI = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")
# The ArrayRecord postscript's magic number, as a protobuf varint.
_ARRAY_RECORD = bytes.fromhex("10dec0ebfe84cec3c971")

_REFETCH_HINT = "download the file again, and check the response of the server"
_UNPACK_HINT = "unpack it, and use the files inside"
_RAW_DATA_HINT = "rekord write SOURCE OUT      (this is raw data, not records)"
_OWN_LIBRARY_HINT = "read it with its own library"

_MAGIC_NUMBERS: tuple[tuple[bytes, ForeignFormat], ...] = (
    (
        b"version https://git-lfs.github.com/spec/",
        ForeignFormat("F110", "a Git LFS pointer", "git lfs pull      (in the repository of the file)"),
    ),
    (b"PAR1", ForeignFormat("F112", "Parquet", _OWN_LIBRARY_HINT)),
    (b"PK\x03\x04", ForeignFormat("F113", "a zip archive", _UNPACK_HINT)),
    (b"PK\x05\x06", ForeignFormat("F113", "an empty zip archive", _UNPACK_HINT)),
    (b"\xff\xd8\xff", ForeignFormat("F117", "a JPEG image", _RAW_DATA_HINT)),
    (b"\x89PNG\r\n\x1a\n", ForeignFormat("F117", "a PNG image", _RAW_DATA_HINT)),
    (b"GIF87a", ForeignFormat("F117", "a GIF image", _RAW_DATA_HINT)),
    (b"GIF89a", ForeignFormat("F117", "a GIF image", _RAW_DATA_HINT)),
    (b"II*\0", ForeignFormat("F117", "a TIFF image", _RAW_DATA_HINT)),
    (b"MM\0*", ForeignFormat("F117", "a TIFF image", _RAW_DATA_HINT)),
    (b"\x28\xb5\x2f\xfd", ForeignFormat("C205", "zstd", "zstd -d FILE")),
    (b"BZh", ForeignFormat("C205", "bzip2", "bunzip2 FILE")),
    (b"\xfd7zXZ\0", ForeignFormat("C205", "xz", "unxz FILE")),
    (b"\x04\x22\x4d\x18", ForeignFormat("C205", "lz4", "unlz4 FILE")),
    (b"\xff\x06\0\0sNaPpY", ForeignFormat("C205", "snappy", "decompress FILE with a snappy tool")),
    (b"\x89HDF\r\n\x1a\n", ForeignFormat("F119", "HDF5", _OWN_LIBRARY_HINT)),
    (b"\x93NUMPY", ForeignFormat("F119", "a NumPy array", _OWN_LIBRARY_HINT)),
    (b"ARROW1\0\0", ForeignFormat("F119", "an Arrow file", _OWN_LIBRARY_HINT)),
    (b"FEA1", ForeignFormat("F119", "a Feather file", _OWN_LIBRARY_HINT)),
    (b"ORC", ForeignFormat("F119", "an ORC file", _OWN_LIBRARY_HINT)),
    (b"Obj\x01", ForeignFormat("F119", "an Avro file", _OWN_LIBRARY_HINT)),
    (b"SQLite format 3\0", ForeignFormat("F119", "an SQLite database", _OWN_LIBRARY_HINT)),
    (b"\x0a\x23\xd7\xce", ForeignFormat("F119", "MXNet RecordIO", _OWN_LIBRARY_HINT)),
    (b"SEQ\x06", ForeignFormat("F119", "a Hadoop SequenceFile", _OWN_LIBRARY_HINT)),
    (b"%PDF-", ForeignFormat("F119", "a PDF document", _OWN_LIBRARY_HINT)),
    (b"\x7fELF", ForeignFormat("F119", "a program", _OWN_LIBRARY_HINT)),
    (b"\x80\x04\x95", ForeignFormat("F119", "a Python pickle", _OWN_LIBRARY_HINT)),
    (b"\x80\x05\x95", ForeignFormat("F119", "a Python pickle", _OWN_LIBRARY_HINT)),
)


def detect_foreign_format(head: bytes, tail: bytes = b"") -> ForeignFormat | None:
    """The format of a file with this `head` (up to HEAD_BYTES) and `tail` (up to TAIL_BYTES), if it is known."""
    if head.startswith(_RIEGELI):
        if _ARRAY_RECORD in tail:
            return ForeignFormat("F115", "ArrayRecord", "read it with array_record, or write it again as TFRecord")
        return ForeignFormat("F116", "Riegeli", "read it with riegeli, or write it again as TFRecord")
    for magic, foreign in _MAGIC_NUMBERS:
        if head.startswith(magic):
            return foreign
    if head[257:262] == b"ustar":
        return ForeignFormat("F114", "a tar archive", _UNPACK_HINT)
    if head[:4] == b"RIFF":
        if head[8:12] == b"WEBP":
            return ForeignFormat("F117", "a WebP image", _RAW_DATA_HINT)
        return ForeignFormat("F119", "a RIFF file (audio or video)", _OWN_LIBRARY_HINT)
    if head[4:8] == b"ftyp":
        if head[8:12] in (b"avif", b"heic", b"heix", b"mif1"):
            return ForeignFormat("F117", "an AVIF or HEIC image", _RAW_DATA_HINT)
        return ForeignFormat("F119", "an MP4 video", _OWN_LIBRARY_HINT)
    if head[:2] == b"BM" and int.from_bytes(head[6:10], "little") == 0 and len(head) >= 14:
        return ForeignFormat("F117", "a BMP image", _RAW_DATA_HINT)
    return _detect_text_format(head)


def _detect_text_format(head: bytes) -> ForeignFormat | None:
    text = _decode_head(head)
    if text is None or not text:
        return None
    start = text.lstrip("\ufeff \t\r\n")[:256].lower()
    if start.startswith(("<!doctype html", "<html", "<head", "<body")):
        return ForeignFormat("F111", "an HTML page", _REFETCH_HINT)
    if start.startswith("<?xml"):
        return ForeignFormat("F118", "XML", _REFETCH_HINT)
    if start.startswith(("{", "[")):
        return ForeignFormat("F118", "JSON, or text that starts like JSON", _RAW_DATA_HINT)
    return ForeignFormat("F118", "plain text", _RAW_DATA_HINT)


def _decode_head(head: bytes) -> str | None:
    """The head as text, or None if it has control characters or is not UTF-8."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as failure:
        # A character may be truncated only at the end of the head.
        if failure.end < len(head) or len(head) - failure.start > 3:
            return None
        text = head[: failure.start].decode("utf-8")
    if any(c < " " and c not in "\t\n\r\f" for c in text) or "\x7f" in text:
        return None
    return text

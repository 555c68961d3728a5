"""Recognition of files that are not record files, by their first bytes, never by name."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES = 64 * 1024
"""How much of the start of a file is inspected."""

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

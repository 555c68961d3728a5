"""What a file is when it is not a record file: recognised by its first bytes, never by its name."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES = 64 * 1024
"""How much of a file's beginning is looked at."""

TAIL_BYTES = 64 * 1024
"""How much of its end: ArrayRecord signs its last block."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another format: the code that says so, its name, and what turns it into what was wanted."""

    code: str
    name: str
    do: str


_RIEGELI = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")
# The ArrayRecord postscript's magic number, as a protobuf varint.
_ARRAY_RECORD = bytes.fromhex("10dec0ebfe84cec3c971")

_REFETCH = "fetch the file again and look at what the server really answered"
_UNPACK = "unpack it and name the files inside"
_AS_SOURCE = "give rekord record files; this is raw data that has not been written as records yet"
_CONVERT = "read it with its own library"

_MAGIC: tuple[tuple[bytes, Foreign], ...] = (
    (
        b"version https://git-lfs.github.com/spec/",
        Foreign("F110", "a Git LFS pointer", "git lfs pull      (in the repository that the file came from)"),
    ),
    (b"PAR1", Foreign("F112", "Parquet", _CONVERT)),
    (b"PK\x03\x04", Foreign("F113", "a zip archive", _UNPACK)),
    (b"PK\x05\x06", Foreign("F113", "an empty zip archive", _UNPACK)),
    (b"\xff\xd8\xff", Foreign("F117", "a JPEG image", _AS_SOURCE)),
    (b"\x89PNG\r\n\x1a\n", Foreign("F117", "a PNG image", _AS_SOURCE)),
    (b"GIF87a", Foreign("F117", "a GIF image", _AS_SOURCE)),
    (b"GIF89a", Foreign("F117", "a GIF image", _AS_SOURCE)),
    (b"II*\0", Foreign("F117", "a TIFF image", _AS_SOURCE)),
    (b"MM\0*", Foreign("F117", "a TIFF image", _AS_SOURCE)),
    (b"\x28\xb5\x2f\xfd", Foreign("C205", "zstd", "zstd -d FILE")),
    (b"BZh", Foreign("C205", "bzip2", "bunzip2 FILE")),
    (b"\xfd7zXZ\0", Foreign("C205", "xz", "unxz FILE")),
    (b"\x04\x22\x4d\x18", Foreign("C205", "lz4", "unlz4 FILE")),
    (b"\xff\x06\0\0sNaPpY", Foreign("C205", "snappy", "decompress FILE with a snappy tool")),
    (b"\x89HDF\r\n\x1a\n", Foreign("F119", "HDF5", _CONVERT)),
    (b"\x93NUMPY", Foreign("F119", "a NumPy array", _CONVERT)),
    (b"ARROW1\0\0", Foreign("F119", "an Arrow file", _CONVERT)),
    (b"FEA1", Foreign("F119", "a Feather file", _CONVERT)),
    (b"ORC", Foreign("F119", "an ORC file", _CONVERT)),
    (b"Obj\x01", Foreign("F119", "an Avro file", _CONVERT)),
    (b"SQLite format 3\0", Foreign("F119", "an SQLite database", _CONVERT)),
    (b"\x0a\x23\xd7\xce", Foreign("F119", "MXNet RecordIO", _CONVERT)),
    (b"SEQ\x06", Foreign("F119", "a Hadoop SequenceFile", _CONVERT)),
    (b"%PDF-", Foreign("F119", "a PDF document", _CONVERT)),
    (b"\x7fELF", Foreign("F119", "a program", _CONVERT)),
    (b"\x80\x04\x95", Foreign("F119", "a Python pickle", _CONVERT)),
    (b"\x80\x05\x95", Foreign("F119", "a Python pickle", _CONVERT)),
)


def recognise(head: bytes, tail: bytes = b"") -> Foreign | None:
    """The format that `head` (up to HEAD_BYTES) and `tail` (up to TAIL_BYTES) belong to, where it is known."""
    if head.startswith(_RIEGELI):
        if _ARRAY_RECORD in tail:
            return Foreign("F115", "ArrayRecord", "read it with array_record, or write it again as TFRecord")
        return Foreign("F116", "Riegeli", "read it with riegeli, or write it again as TFRecord")
    for magic, foreign in _MAGIC:
        if head.startswith(magic):
            return foreign
    if head[257:262] == b"ustar":
        return Foreign("F114", "a tar archive", _UNPACK)
    if head[:4] == b"RIFF":
        if head[8:12] == b"WEBP":
            return Foreign("F117", "a WebP image", _AS_SOURCE)
        return Foreign("F119", "a RIFF file (audio or video)", _CONVERT)
    if head[4:8] == b"ftyp":
        if head[8:12] in (b"avif", b"heic", b"heix", b"mif1"):
            return Foreign("F117", "an AVIF or HEIC image", _AS_SOURCE)
        return Foreign("F119", "an MP4 video", _CONVERT)
    if head[:2] == b"BM" and int.from_bytes(head[6:10], "little") == 0 and len(head) >= 14:
        return Foreign("F117", "a BMP image", _AS_SOURCE)
    return _recognise_text(head)


def _recognise_text(head: bytes) -> Foreign | None:
    text = _as_text(head)
    if text is None or not text:
        return None
    start = text.lstrip("\ufeff \t\r\n")[:256].lower()
    if start.startswith(("<!doctype html", "<html", "<head", "<body")):
        return Foreign("F111", "an HTML page", _REFETCH)
    if start.startswith("<?xml"):
        return Foreign("F118", "XML", _REFETCH)
    if start.startswith(("{", "[")):
        return Foreign("F118", "JSON, or text that begins like it", _AS_SOURCE)
    return Foreign("F118", "plain text", _AS_SOURCE)


def _as_text(head: bytes) -> str | None:
    """The head as text, or None where it has control characters or is not UTF-8."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as failure:
        # A character may be cut by the end of the head, not by anything else.
        if failure.end < len(head) or len(head) - failure.start > 3:
            return None
        text = head[: failure.start].decode("utf-8")
    if any(c < " " and c not in "\t\n\r\f" for c in text) or "\x7f" in text:
        return None
    return text

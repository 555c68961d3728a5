"""Avro container files: records as rows."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.row_adapters import flatten_row
from rekord.sources.base import (
    SizeCheckedFile,
    SourceFile,
    SourceGuess,
    corrupt_file_error,
    empty_file_error,
    source_path,
)
from rekord.sources.libraries import import_reader
from rekord.sources.table_files import kept_columns
from rekord.sources.value_tables import Values, ValueTable, to_plain_value

EXTENSIONS = (".avro",)
MAGIC = b"Obj\x01"

MAX_BLOCK_BYTES = 256 << 20
MAX_RATIO = 250
"""How many times its compressed size a block may have, if it is larger than `FREE_BLOCK_BYTES`."""

FREE_BLOCK_BYTES = 4 << 20
_MAX_HEADER_BYTES = 16 << 20
_MAX_LEVELS = 32
_SYNC_BYTES = 16
_PRIMITIVE = frozenset(("boolean", "int", "long", "float", "double", "bytes", "string", "null"))


@dataclass(frozen=True, slots=True)
class AvroSource(ValueTable):
    """Rows of Avro files."""

    kind = "avro"
    extensions = EXTENSIONS

    def read_file(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        fastavro = import_reader("fastavro", "tables", "an Avro file")
        if not file.size_bytes:
            raise empty_file_error(path, "an empty file", expected="an Avro file")
        with SizeCheckedFile(path, file) as opened:
            reader = _BlockReader(opened, path, file.size_bytes)
            try:
                schema = fastavro.parse_schema(reader.schema)
            except Exception as failure:  # whatever a schema makes it raise
                raise corrupt_file_error(path, "Avro file", f"a schema that is not valid: {failure}"[:100]) from None
            for count, data in reader.blocks():
                yield from _decode(fastavro, schema, count, data, path)


@check_keywords
def avro(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> AvroSource:
    """Rows of Avro files: a file, a folder or a pattern. `columns` selects columns; None keeps all.

    The fields of a record are columns; those of records in it are named with `/`. A union with null makes a column
    optional. Dates are timestamps, decimals floats, times of day seconds, enums and UUIDs texts.
    """
    return AvroSource(source_path(path, "avro"), kept_columns(columns))


class _BlockReader:
    """The blocks of a container file: its header, then counts, lengths and data, each with a marker after it."""

    def __init__(self, file: SizeCheckedFile, path: str, size_bytes: int) -> None:
        self.path = path
        self._file = file
        self._left = size_bytes
        if self._take(len(MAGIC)) != MAGIC:
            raise self._corrupt("no Avro header")
        header: dict[str, bytes] = {}
        budget = _MAX_HEADER_BYTES
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name, value = (self._take(self._length(budget)) for _ in range(2))
                budget -= len(name) + len(value) + 2
                header[name.decode("utf-8", "replace")] = value
        self._sync = self._take(_SYNC_BYTES)
        self._inflate = self._choose_codec(header.get("avro.codec", b"null").decode("utf-8", "replace"))
        try:
            self.schema: Any = json.loads(header.get("avro.schema", b""))
        except (ValueError, RecursionError):
            raise self._corrupt("a schema that is not JSON") from None
        _SchemaCheck(path).check(self.schema)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The number of records of each block, and their bytes."""
        while self._left:
            count = self._long()
            data = self._take(self._length(MAX_BLOCK_BYTES))
            if self._take(_SYNC_BYTES) != self._sync:
                raise self._corrupt("a block without its marker")
            try:
                data = self._inflate(data, min(MAX_BLOCK_BYTES, max(FREE_BLOCK_BYTES, MAX_RATIO * len(data))))
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as failure:
                raise self._corrupt(f"a block that cannot be decompressed: {failure}") from None
            if count < 0 or count > len(data):  # every record has at least one byte
                raise self._corrupt(f"a block of {count:,} records in {len(data):,} bytes")
            yield count, data

    def _choose_codec(self, name: str) -> Callable[[bytes, int], bytes]:
        codecs: dict[str, Callable[[bytes, int], bytes]] = {
            "null": lambda data, most: data,
            "deflate": lambda data, most: _bounded(zlib.decompressobj(-15), data, most),
            "bzip2": lambda data, most: _bounded(bz2.BZ2Decompressor(), data, most),
            "xz": lambda data, most: _bounded(lzma.LZMADecompressor(memlimit=MAX_BLOCK_BYTES), data, most),
            "snappy": _inflate_snappy,
            "zstandard": _inflate_zstandard,
        }
        if name not in codecs:
            raise error(
                "X525",
                f"Avro file is compressed with {name[:30]}",
                location=Location(path=self.path),
                expected=f"one of {', '.join(codecs)}",
                found=name[:30],
                do="write the file again with the codec deflate",
            )
        return codecs[name]

    def _length(self, most: int) -> int:
        length = self._long()
        if not 0 <= length <= min(self._left, most):
            raise self._corrupt(f"a length of {length:,} bytes, {self._left:,} are left")
        return length

    def _long(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            if shift > 63:
                raise self._corrupt("a number of more than 64 bits")

    def _take(self, size_bytes: int) -> bytes:
        if size_bytes > self._left:
            raise self._corrupt("data that ends too early")
        self._left -= size_bytes
        return self._file.read(size_bytes)

    def _corrupt(self, found: str) -> RekordError:
        return corrupt_file_error(self.path, "Avro file", found[:100])


def _bounded(inflate: Any, data: bytes, most: int) -> bytes:
    out: bytes = inflate.decompress(data, most + 1)
    if len(out) > most:
        raise _expansion(data, most)
    if not inflate.eof:
        raise EOFError("it ends too early")
    return out


def _expansion(data: bytes, most: int) -> ValueError:
    return ValueError(f"{len(data):,} bytes expand to more than {most:,}")


def _inflate_snappy(data: bytes, most: int) -> bytes:
    import pyarrow as pa

    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > most:
        raise _expansion(data, most)
    out: bytes = pa.Codec("snappy").decompress(data[:-4], length, asbytes=True)
    if zlib.crc32(out) != int.from_bytes(data[-4:], "big"):
        raise ValueError("its checksum is wrong")
    return out


def _inflate_zstandard(data: bytes, most: int) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        out: bytes = stream.read(most + 1)
    if len(out) > most:
        raise _expansion(data, most)
    return out


class _SchemaCheck:
    """Refuses schemas whose values take unbounded time or stack, or that no column can hold."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._open: list[str] = []
        self._empty: dict[str, bool] = {}  # named types, and whether their values may have no bytes

    def check(self, schema: Any) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise self._unsupported("", "a file of values that are not records")
        if self._is_empty(schema, "", 0):
            raise self._unsupported("", "records without fields")

    def _is_empty(self, schema: Any, name: str, level: int) -> bool:
        """Whether a value may take no bytes; raises for a type that cannot be read."""
        if level > _MAX_LEVELS:
            raise self._unsupported(name, "a type that is nested too deeply")
        if isinstance(schema, list):
            plain = [one for one in schema if one != "null"]
            if len(plain) > 1 and not set(map(str, plain)) <= {"int", "long", "float", "double"}:
                raise self._unsupported(name, f"a union of {len(plain):,} types")
            for one in plain:
                self._is_empty(one, name, level + 1)
            return False  # the number of the type takes a byte
        if isinstance(schema, str):
            short = schema.rpartition(".")[2]
            if short in self._open:
                raise self._unsupported(name, f"the type {short[:40]}, which contains itself")
            return schema == "null" or self._empty.get(short, False)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if kind == "map":
            raise self._unsupported(name, "a map, whose keys vary")
        if kind == "array":
            if self._is_empty(schema.get("items"), name, level + 1):
                raise self._unsupported(name, "an array of values without bytes")
            return False
        if isinstance(kind, (list, dict)) or kind in _PRIMITIVE:
            return self._is_empty(kind, name, level + 1)
        own = str(schema.get("name", "")).rpartition(".")[2] if isinstance(schema, dict) else ""
        if kind == "record":
            self._open.append(own)
            empty = True
            for field in schema.get("fields") or ():
                inner = f"{name}/{field.get('name')}".lstrip("/") if isinstance(field, dict) else name
                if not isinstance(field, dict) or not self._is_empty(field.get("type"), inner, level + 1):
                    empty = False
            self._open.pop()
        else:
            empty = kind == "fixed" and not schema.get("size")
        self._empty[own] = empty
        return empty

    def _unsupported(self, name: str, found: str) -> RekordError:
        return error(
            "X525",
            f"`{name[:60]}` has an unsupported type" if name else "Avro schema is not supported",
            location=Location(path=self.path, feature=name[:60] or None),
            expected="records of numbers, bools, texts, bytes, times, lists and records of these, each or null",
            found=found,
            do="write the file again without this field, or as a list of records with a key",
        )


class _StrictBytes(io.BytesIO):
    """Bytes of which a read never returns fewer than wanted: fastavro does not check."""

    def read(self, size_bytes: int | None = -1, /) -> bytes:
        data = super().read(size_bytes)
        if size_bytes is None or len(data) != size_bytes:
            raise EOFError("data that ends too early")
        return data


def _decode(fastavro: Any, schema: Any, count: int, data: bytes, path: str) -> Iterator[Mapping[str, Any]]:
    stream = _StrictBytes(data)
    for i in range(count):
        try:
            record = fastavro.schemaless_reader(stream, schema, None)
        except Exception as failure:  # whatever hostile bytes make it raise
            found = f"a record that cannot be decoded: {type(failure).__name__} {failure}"
            raise corrupt_file_error(path, "Avro file", found[:100]) from None
        yield flatten_row(to_plain_value(record), i, None)
    if stream.tell() != len(data):
        raise corrupt_file_error(path, "Avro file", f"{len(data) - stream.tell():,} bytes after the last record")

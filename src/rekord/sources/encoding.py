"""Text files that are not in UTF-8, read as if they were."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager

from rekord.arguments import invalid
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import READ_BYTES, ByteStream, SizeCheckedFile, SourceFile, SourceGuess, open_source_file

UTF8_BOM = b"\xef\xbb\xbf"
_BOMS = (
    (b"\xff\xfe\0\0", "utf-32"),  # before that of UTF-16, which it starts with
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_UTF8_NAMES = ("utf-8", "utf-8-sig")
_NOT_OF_FILES = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined")
_SHOWN_NAMES = {"utf-16": "UTF-16", "utf-32": "UTF-32"}


def check_encoding(encoding: object) -> str | None:
    """`encoding=` of a source, as Python names it; None for UTF-8, or as a byte order mark says."""
    if encoding is None:
        return None
    expected = "the name of an encoding, such as latin-1, cp1252 or utf-16"
    try:
        found = codecs.lookup(str(encoding)) if isinstance(encoding, str) else None
    except (LookupError, ValueError):
        found = None
    is_text = found is not None and getattr(found, "_is_text_encoding", True) and found.name not in _NOT_OF_FILES
    if found is None or not is_text:
        raise invalid("encoding", encoding, expected, 'encoding="latin-1"')
    return None if found.name in _UTF8_NAMES else found.name


@contextmanager
def open_text_file(
    path: str,
    file: SourceFile,
    encoding: str | None,
    *,
    gzipped: bool = False,
    opened: SizeCheckedFile | None = None,
) -> Iterator[tuple[ByteStream, str | None]]:
    """A whole text file as UTF-8, and the encoding it is transcoded from; None if its bytes are not changed."""
    with open_source_file(path, file, gzipped=gzipped, opened=opened) as stream:
        start = stream.read(4)
        stream.rewind()
        marked = next((name for bom, name in _BOMS if start.startswith(bom)), None)
        if encoding is None:
            yield stream if marked is None else TranscodedStream(path, stream, marked), marked
            return
        bom = "utf-8" if start.startswith(UTF8_BOM) else marked
        if bom is not None and not encoding.startswith(bom):
            raise error(
                "X585",
                f"file is not in {encoding}",
                location=Location(path=path),
                expected=f"text in {encoding}, as `encoding` says",
                found=f"the byte order mark of {bom.upper()}",
                do="leave encoding= out",
            )
        yield TranscodedStream(path, stream, encoding), encoding


class TranscodedStream:
    """The text of a file in another encoding, as bytes in UTF-8."""

    def __init__(self, path: str, stream: ByteStream, encoding: str) -> None:
        self.path = path
        self.encoding = encoding
        self._stream = stream
        self._start()

    def _start(self) -> None:
        self._decoder = codecs.getincrementaldecoder(self.encoding)()
        self._text = b""
        self._at = 0  # in _text
        self._lines = 0  # complete ones, before what is being decoded
        self._ended = False

    def rewind(self) -> None:
        self._stream.rewind()
        self._start()

    def read(self, size_bytes: int, /) -> bytes:
        while self._at == len(self._text) and not self._ended:
            raw = self._stream.read(READ_BYTES)
            self._ended = not raw
            try:
                # A lone surrogate can be decoded from some encodings, but is no text.
                text = self._decoder.decode(raw, final=self._ended)
                self._text, self._at = text.encode(), 0
            except UnicodeError as failure:
                raise self._invalid_error(failure) from None
            self._lines += self._text.count(b"\n")
        piece = self._text[self._at : self._at + size_bytes]
        self._at += len(piece)
        return piece

    def _invalid_error(self, failure: UnicodeError) -> RekordError:
        line, found = self._lines + 1, "text that cannot be stored"
        if isinstance(failure, UnicodeDecodeError):
            good = bytes(failure.object[: failure.start]).decode(self.encoding, "replace")
            line += good.count("\n")
            found = f"bytes {bytes(failure.object[failure.start : failure.start + 8]).hex(' ')}"
        return error(
            "X585",
            f"file is not in {self.encoding}",
            location=Location(path=self.path, line=line),
            expected=f"text in {self.encoding}",
            found=found,
            do='pass the encoding of the file, such as encoding="latin-1", or leave encoding= out for UTF-8',
        )


def guess_encoding(file: SourceFile, encoding: str | None, given: str | None, *, has_bom: bool) -> list[SourceGuess]:
    """What was assumed about the encoding of a file, where that is not the usual."""
    if encoding is not None and given is None:
        name = _SHOWN_NAMES[encoding]
        return [
            SourceGuess(
                None,
                f"{file.path} is in {name}: it starts with a byte order mark",
                'if that is wrong: encoding="latin-1"',
            )
        ]
    if has_bom and encoding is None:
        return [SourceGuess(None, f"{file.path} starts with a byte order mark, which is not part of the text")]
    return []

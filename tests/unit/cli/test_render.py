"""How numbers, text and bytes look in a terminal."""

from __future__ import annotations

import struct

import pytest

from rekord.cli import payload_view
from rekord.cli.console import (
    escape_controls,
    format_byte_size,
    format_count,
    format_duration,
    quote_text,
    truncate,
)
from rekord.cli.payload_view import ImagePreview, inspect_image


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (2_400_000_000, "2.4 GB"),
        (3 * 10**21, "3,000 EB"),
    ],
)
def test_byte_sizes_have_two_or_three_digits(n_bytes: int, text: str) -> None:
    assert format_byte_size(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0002, "less than 1 ms"),
        (0.085, "85 ms"),
        (0.9996, "1.0 s"),
        (1.14, "1.1 s"),
        (59.96, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (7_380.0, "2 h 3 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_counts_agree_with_their_noun() -> None:
    assert [format_count(n, "record") for n in (0, 1, 51_240)] == ["0 records", "1 record", "51,240 records"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode", "plain ünïcode"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("bell\x07 del\x7f csi\x9b", "bell\\x07 del\\x7f csi\\x9b"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("turned\u202eround", "turned\\u202eround"),
        ("line\u2028end", "line\\u2028end"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("name\udcff", "name\\xff"),
    ],
)
def test_what_could_steer_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_no_character_below_65536_reaches_a_terminal_unless_it_prints() -> None:
    everything = "".join(map(chr, range(0x10000)))
    assert escape_controls(everything).isprintable()
    assert quote_text(everything, limit=10**7).isprintable()


def test_quotes_and_backslashes_cannot_be_mistaken() -> None:
    assert quote_text('say "\\x1b"') == '"say \\"\\\\x1b\\""'


def test_long_text_is_cut_with_a_mark() -> None:
    assert truncate("x" * 60) == "x" * 60
    assert truncate("x" * 61) == "x" * 59 + "…"
    assert quote_text("x" * 61) == f'"{"x" * 60}…"'
    assert len(quote_text("\x00" * 100)) <= 63


def _jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments) + b"\xff\xd9"


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


_SOF = struct.pack(">BHHB", 8, 480, 640, 3)
_PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 640, 480)


def _webp(form: bytes, body: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + form + bytes(4) + body


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_PNG, ImagePreview("PNG", 640, 480)),
        (_PNG[:20], ImagePreview("PNG")),
        (b"GIF89a" + struct.pack("<HH", 640, 480), ImagePreview("GIF", 640, 480)),
        (b"GIF87a", ImagePreview("GIF")),
        (_jpeg(_segment(0xE0, b"JFIF"), _segment(0xC0, _SOF)), ImagePreview("JPEG", 640, 480)),
        (_jpeg(_segment(0xC4, b"table"), b"\xff", _segment(0xC2, _SOF)), ImagePreview("JPEG", 640, 480)),
        (_jpeg(_segment(0xE0, b"JFIF")), ImagePreview("JPEG")),
        (b"\xff\xd8\xff\xe0\x00\x00" * 5, ImagePreview("JPEG")),
        (b"\xff\xd8\xff", ImagePreview("JPEG")),
        (
            _webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640, 480)),
            ImagePreview("WebP", 640, 480),
        ),
        (_webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)), ImagePreview("WebP", 640, 480)),
        (_webp(b"VP8X", bytes(4) + b"\x7f\x02\x00\xdf\x01\x00"), ImagePreview("WebP", 640, 480)),
        (_webp(b"VP8X", b""), ImagePreview("WebP")),
        (b"RIFF" + bytes(4) + b"WAVE", None),
        (b"", None),
        (b"text", None),
    ],
)
def test_an_image_is_known_by_its_header(data: bytes, expected: ImagePreview | None) -> None:
    assert inspect_image(data) == expected


def test_every_beginning_of_an_image_is_read_without_failure() -> None:
    whole = [_PNG, _jpeg(_segment(0xC0, _SOF)), _webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + bytes(4))]
    for data in whole:
        for end in range(len(data)):
            payload_view.format_bytes(data[:end])


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", '""'),
        (b"rose", '"rose"'),
        ("größe".encode(), '"größe"'),
        (b"a\x1b[2J and more", '"a\\x1b[2J and more"'),
        (b"x" * 100, f'"{"x" * 60}…", 100 bytes'),
        (b"\x00\x01\x02", "0x 00 01 02"),
        (b"\xff" * 20, f"0x {' '.join(['ff'] * 16)} …, 20 bytes"),
        (_PNG, "PNG 640×480, 24 bytes"),
        (_PNG[:20], "PNG, 20 bytes"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes, shown: str) -> None:
    assert payload_view.format_bytes(data) == shown


def test_a_character_cut_at_the_end_of_what_is_looked_at_is_still_text() -> None:
    assert payload_view.format_bytes(b"x" + "é".encode() * 4000).startswith('"xéé')


def test_numbers_are_abbreviated() -> None:
    assert payload_view.format_numbers([1, -2], total=2) == "1, -2"
    assert payload_view.format_numbers([0.1, 1e-9, float("nan")], total=3) == "0.1, 1e-09, nan"
    assert payload_view.format_numbers(list(range(8)), total=100) == "0, 1, 2, 3, 4, 5, 6, 7, …"
    assert payload_view.format_numbers([2**62] * 8, total=8) == ", ".join([str(2**62)] * 2) + ", …"

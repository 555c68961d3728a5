"""Images of `rekord show`: what each protocol draws is decoded here and compared; text of records never gets in."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.cli.options import Preview
from rekord.cli.terminal_images import (
    ImagePrinter,
    choose_preview,
    encode_blocks,
    encode_iterm,
    encode_kitty,
    encode_sixel,
    nearest_xterm_colour,
)
from rekord.codec.preview import class_colour
from rekord.testing import example_bytes, frames, sequence_bytes

Captured = pytest.CaptureFixture[str]
RNG = np.random.default_rng(0)
ESCAPES = re.compile(r"\x1b_G[a-zA-Z0-9=,]*;[A-Za-z0-9+/=]*\x1b\\|\x1b\]1337;File=[a-zA-Z0-9=;]*:[A-Za-z0-9+/=]*\x07")


class Terminal(io.StringIO):
    def __init__(self, *, tty: bool = True, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({"TERM": "xterm-kitty"}, Preview.KITTY),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, Preview.KITTY),
        ({"TERM": "xterm-ghostty"}, Preview.KITTY),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, Preview.KITTY),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, Preview.ITERM),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, Preview.ITERM),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, Preview.ITERM),
        ({"TERM": "foot"}, Preview.SIXEL),
        ({"TERM": "mlterm-256color"}, Preview.SIXEL),
        ({"TERM": "xterm", "TERM_PROGRAM": "mintty"}, Preview.SIXEL),
        ({"TERM": "xterm-256color"}, Preview.BLOCKS),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, Preview.BLOCKS),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, Preview.BLOCKS),
        # A multiplexer does not draw what its terminal could.
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1", "TMUX": "/tmp/tmux"}, Preview.BLOCKS),
        ({"TERM": "screen-256color", "LC_TERMINAL": "iTerm2"}, Preview.BLOCKS),
        ({"TERM": "linux"}, Preview.NONE),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, Preview.NONE),
        ({}, Preview.NONE),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, Preview.NONE),
        ({"TERM": "xterm-kitty", "NO_COLOR": ""}, Preview.KITTY),
    ],
)
def test_the_terminal_decides(environment: dict[str, str], chosen: Preview) -> None:
    assert choose_preview(Preview.AUTO, Terminal(), environment) == chosen
    assert choose_preview(Preview.AUTO, Terminal(tty=False), environment) == Preview.NONE
    for requested in (Preview.SIXEL, Preview.NONE):
        assert choose_preview(requested, Terminal(tty=False), {**environment, "NO_COLOR": "1"}) == requested


def test_half_blocks_need_their_character(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_preview(Preview.AUTO, Terminal(encoding="ascii"), {"TERM": "xterm-256color"}) == Preview.NONE
    assert choose_preview(Preview.AUTO, None, {"TERM": "xterm-256color"}) == Preview.NONE


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def picture(height: int = 24, width: int = 30) -> Any:
    return RNG.integers(0, 256, (height, width, 3)).astype(np.uint8)


# Decoders, written from the descriptions of the protocols.


def decode_kitty(text: str) -> tuple[dict[str, str], Any]:
    facts: dict[str, str] = {}
    data = ""
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{keys};{piece}\x1b\\" for keys, piece in pieces) == text
    for number, (keys, piece) in enumerate(pieces):
        now = dict(pair.split("=") for pair in keys.split(","))
        assert now.pop("m") == ("0" if number == len(pieces) - 1 else "1")
        assert len(piece) <= 4096
        assert number in (0, len(pieces) - 1) or len(piece) % 4 == 0
        assert number == 0 or not now
        facts |= now
        data += piece
    return facts, np.array(Image.open(io.BytesIO(base64.b64decode(data, validate=True))))


def decode_iterm(text: str) -> tuple[dict[str, str], Any]:
    match = re.fullmatch(r"\x1b\]1337;File=([^:]*):([^\x07]*)\x07", text)
    assert match is not None
    facts = dict(pair.split("=") for pair in match[1].split(";"))
    data = base64.b64decode(match[2], validate=True)
    assert int(facts["size"]) == len(data)
    return facts, np.array(Image.open(io.BytesIO(data)))


def decode_sixel(text: str) -> Any:
    head = re.match(r'\x1bPq"1;1;(\d+);(\d+)', text)
    assert head is not None
    assert text.endswith("\x1b\\")
    width, height = int(head[1]), int(head[2])
    pixels = np.full((height + 6, width, 3), -1.0)
    palette: dict[int, list[float]] = {}
    colour = x = y = 0
    for match in re.finditer(
        r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|(\$)|(-)", text[head.end() : -2]
    ):
        number, r, g, b, chosen, repeat, repeated, single, back, down = match.groups()
        if number is not None:
            palette[int(number)] = [int(one) * 255 / 100 for one in (r, g, b)]
        elif chosen is not None:
            colour = int(chosen)
        elif back:
            x = 0
        elif down:
            x, y = 0, y + 6
        else:
            bits = ord(repeated or single) - 63
            for _ in range(int(repeat or 1)):
                for bit in range(6):
                    if bits >> bit & 1:
                        pixels[y + bit, x] = palette[colour]
                x += 1
            assert x <= width
    assert len(palette) <= 256
    assert (pixels[height:] == -1).all()
    assert (pixels[:height] >= 0).all(), "every pixel has a colour"
    return pixels[:height]


LEVELS = (0, 95, 135, 175, 215, 255)
XTERM = [
    *[(r, g, b) for r in LEVELS for g in LEVELS for b in LEVELS],
    *[(grey, grey, grey) for grey in range(8, 248, 10)],
]


def decode_blocks(text: str) -> Any:
    rows: list[list[Any]] = []
    for line in text.split("\n"):
        assert line.startswith("  ")
        assert line.endswith("\x1b[0m")
        upper: Any = None
        lower: Any = None
        above, below = [], []
        for codes, block in re.findall(r"\x1b\[([\d;]*)m|(▀)", line[2:-4]):
            if block:
                above.append(upper)
                below.append(lower)
                continue
            numbers = list(map(int, codes.split(";")))
            while numbers:
                ground = numbers.pop(0)
                if ground == 49:
                    lower = None
                    continue
                if numbers.pop(0) == 2:
                    colour = tuple(numbers.pop(0) for _ in range(3))
                else:
                    colour = XTERM[numbers.pop(0) - 16]
                upper, lower = (colour, lower) if ground == 38 else (upper, colour)
        rows.append(above)
        if below[0] is not None:
            rows.append(below)
    return np.array(rows)


@pytest.mark.parametrize("size", [(1, 1), (24, 30), (90, 61), (200, 320)])
def test_kitty_and_iterm_get_the_exact_pixels(size: tuple[int, int]) -> None:
    pixels = picture(*size)
    facts, found = decode_kitty(encode_kitty(pixels, 12, 7))
    assert facts == {"a": "T", "f": "100", "q": "2", "c": "12", "r": "7"}
    assert (found == pixels).all()
    facts, found = decode_iterm(encode_iterm(pixels, 12, 7))
    assert (facts["inline"], facts["width"], facts["height"]) == ("1", "12", "7")
    assert (found == pixels).all()


@pytest.mark.parametrize("size", [(1, 1), (6, 5), (7, 5), (24, 30)])
def test_sixels_have_the_pixels_up_to_the_rounding_of_percents(size: tuple[int, int]) -> None:
    few = RNG.integers(0, 8, (*size, 1)).astype(np.uint8) * np.array([30, 20, 10], np.uint8)
    assert np.abs(decode_sixel(encode_sixel(few)) - few).max() <= 1.3


def test_sixels_of_many_colours_are_close() -> None:
    y, x = np.mgrid[:60, :80]
    gradient = np.stack([x * 3, y * 4, (x + y) % 256], -1).astype(np.uint8)
    assert np.abs(decode_sixel(encode_sixel(gradient)) - gradient).mean() < 6


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 5), (32, 32)])
def test_half_blocks_have_the_pixels(size: tuple[int, int]) -> None:
    pixels = picture(*size)
    assert (decode_blocks(encode_blocks(pixels, true_colour=True)) == pixels).all()
    exact = np.array(XTERM)[RNG.integers(0, 240, size)].astype(np.uint8)
    assert (decode_blocks(encode_blocks(exact, true_colour=False)) == exact).all()


def test_the_nearest_of_256_colours_is_chosen() -> None:
    for colour in RNG.integers(0, 256, (200, 3)).astype(np.uint8):
        distances = ((np.array(XTERM) - colour.astype(int)) ** 2).sum(1)
        assert distances[nearest_xterm_colour(colour) - 16] == distances.min()


# `rekord show`.


def record_file(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "x.tfrecord"
    path.write_bytes(frames([example_bytes(row) for row in rows]))
    return str(path)


def show(capsys: Captured, *arguments: str) -> str:
    assert run_command_line(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_an_image_follows_the_values_of_its_record(tmp_path: Path, capsys: Captured) -> None:
    pixels = picture()
    path = record_file(tmp_path, {"image/encoded": [png(pixels)], "label": [3]})
    plain = show(capsys, path)
    assert "\x1b" not in plain
    out = show(capsys, path, "--preview", "kitty")
    assert out.startswith(plain)
    caption, drawn = out.removeprefix(plain).splitlines()
    assert caption == "  image/encoded"
    facts, found = decode_kitty(drawn.removeprefix("  "))
    assert (found == pixels).all()
    assert (int(facts["c"]), int(facts["r"])) == (12, 5)  # enlarged four times
    assert (decode_iterm(show(capsys, path, "--preview", "iterm").splitlines()[-1].strip())[1] == pixels).all()


@pytest.mark.parametrize("preview", ["sixel", "blocks"])
def test_a_large_image_is_drawn_small(tmp_path: Path, capsys: Captured, preview: str) -> None:
    half = np.zeros((600, 800, 3), np.uint8)
    half[:, 400:] = (255, 0, 95)
    out = show(capsys, record_file(tmp_path, {"a": [png(half)]}), "--preview", preview)
    drawn = out.split("  a\n")[1].removesuffix("\n")
    pixels = decode_sixel(drawn.strip()) if preview == "sixel" else decode_blocks(drawn)
    assert pixels.shape[0] <= (320 if preview == "sixel" else 32)
    assert pixels.shape[1] <= (640 if preview == "sixel" else 64)
    assert abs(pixels.shape[1] / pixels.shape[0] - 4 / 3) < 0.1
    middle = len(pixels) // 2
    assert np.abs(pixels[middle, 2] - [0, 0, 0]).max() <= 3
    assert np.abs(pixels[middle, -3] - [255, 0, 95]).max() <= 3


def colour(number: int) -> list[int]:
    return list(bytes.fromhex(class_colour(number)[1:]))


@pytest.mark.parametrize("declared", [True, False])
def test_masks_have_the_colours_of_their_classes(tmp_path: Path, capsys: Captured, declared: bool) -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[:4, 4:], mask[4:, :4], mask[4:, 4:] = 1, 2, 255
    if declared:
        schema = rk.Schema({"image": rk.Image(), "classes": rk.Mask(classes=3, ignore=255, key="odd")})
        rows = [{"image": picture(8, 8), "classes": mask}]
        rk.write(rows, tmp_path / "data", schema=schema, progress=False)
        out = show(capsys, str(tmp_path / "data"), "--preview", "iterm")
    else:
        out = show(capsys, record_file(tmp_path, {"image/mask": [png(mask)]}), "--preview", "iterm")
    found = decode_iterm(out.splitlines()[-1].strip())[1]
    assert found[1, 1].tolist() == [245, 245, 245]
    assert found[1, 6].tolist() == colour(1)
    assert found[6, 1].tolist() == colour(2)
    # Without a declaration nothing says that 255 is ignored.
    assert found[6, 6].tolist() == ([245, 245, 245] if declared else colour(255))


def test_images_of_steps_and_lists_are_drawn_up_to_four(tmp_path: Path, capsys: Captured) -> None:
    many = [png(picture(4, 4)) for _ in range(6)]
    out = show(capsys, record_file(tmp_path, {"a": many, "b": many}), "--preview", "iterm")
    assert len(ESCAPES.findall(out)) == 4
    (tmp_path / "s.tfrecord").write_bytes(frames([sequence_bytes({}, {"frames": [[one] for one in many]})]))
    out = show(capsys, str(tmp_path / "s.tfrecord"), "--preview", "iterm")
    assert len(ESCAPES.findall(out)) == 4


def test_rows_of_raw_data_are_drawn_too(tmp_path: Path, capsys: Captured) -> None:
    pixels = picture(10, 10)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "0.png").write_bytes(png(pixels))
    out = show(capsys, str(tmp_path / "photos"), "--preview", "kitty", "-n", "1")
    found = decode_kitty(out.splitlines()[-1].strip())[1]
    assert (found == pixels).all()


def bomb(side: int) -> bytes:
    """A PNG of 36 MB of zeros in a few kB, or one that claims to be larger."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "data", [bomb(30_000), bomb(100), png(picture())[:60], b"\xff\xd8\xff" + bytes(100), b"\x89PNG\r\n\x1a\n"]
)
def test_bombs_and_damaged_images_are_left_out(tmp_path: Path, capsys: Captured, data: bytes) -> None:
    path = record_file(tmp_path, {"image": [data], "mask": [data]})
    assert show(capsys, path, "--preview", "kitty") == show(capsys, path)


def test_what_is_decoded_by_one_command_is_bounded() -> None:
    from rekord.cli.payload_view import parse_message

    message = parse_message(example_bytes({"a": [png(picture())]}))
    printer = ImagePrinter(Preview.KITTY)
    drawn = 0
    while list(printer.draw(message)):
        drawn += 1
        assert printer.budget is not None
        printer.budget.pixels = min(printer.budget.pixels, 3000 - drawn * 720)
    assert drawn == 4


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b_Gi=1;AAAA\x1b\\\x9b31m\u202e"


def test_hostile_text_never_becomes_an_escape_sequence(tmp_path: Path, capsys: Captured) -> None:
    image = io.BytesIO()
    from PIL import PngImagePlugin

    facts = PngImagePlugin.PngInfo()
    facts.add_text("Comment", HOSTILE)
    Image.fromarray(picture()).save(image, "PNG", pnginfo=facts)
    path = record_file(
        tmp_path, {HOSTILE: [image.getvalue()], f"{HOSTILE}/mask": [image.getvalue()], "text": [HOSTILE.encode()]}
    )
    for preview in ("kitty", "iterm", "sixel", "blocks"):
        out = show(capsys, path, "--preview", preview)
        if preview == "sixel":
            left = re.sub(r"\x1bPq[0-9;\"#!?-~$-]*\x1b\\", "", out)
        elif preview == "blocks":
            left = re.sub(r"\x1b\[[0-9;]*m", "", out)
        else:
            left = ESCAPES.sub("", out)
        assert left != out
        assert all(letter.isprintable() or letter == "\n" for letter in left)
        assert "owned" in left


# `--where`.


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog"])})
    rows = [{"x": i, "label": i % 2} for i in range(40)]
    rk.write(rows, tmp_path / "data", schema=schema, shards=3, split={"train": 0.7, "val": 0.3}, progress=False)
    return str(tmp_path / "data")


def shown(text: str) -> list[int]:
    return [int(line.split()[-1]) for line in text.splitlines() if line.startswith("  x ")]


@pytest.mark.parametrize("where", ["x >= 20 and label_name = 'dog'", "x % 7 = 3", "x < 0", "x in (39, 0, 17)"])
def test_where_shows_the_records_that_a_query_finds(numbers: str, capsys: Captured, where: str) -> None:
    found = rk.query(numbers, f"select x, _split, _record from records where {where}")
    expected = [row["x"] for row in sorted(found.to_pylist(), key=lambda row: (row["_split"], row["_record"]))]
    assert shown(show(capsys, numbers, "--where", where, "-n", "100")) == expected
    assert shown(show(capsys, numbers, "--where", where, "-n", "2")) == expected[:2]


def test_fewer_matching_records_than_asked_for_are_counted(numbers: str, capsys: Captured) -> None:
    assert run_command_line(["show", numbers, "--where", "x = 3", "--preview", "none"]) == 0
    assert capsys.readouterr().err == "1 record found\n"


def test_the_heading_of_a_matching_record_is_its_place_in_its_file(numbers: str, capsys: Captured) -> None:
    heading = show(capsys, numbers, "--where", "x = 17").splitlines()[0]
    name, number = re.match(r"(\S+)  record (\d+)  byte", heading).groups()  # type: ignore[union-attr]
    assert show(capsys, str(Path(numbers, name)), "--record", number).splitlines()[1:] == [
        "  label  int64  1  1",
        "  x      int64  1  17",
    ]


def test_where_works_without_a_manifest_and_in_compressed_files(tmp_path: Path, capsys: Captured) -> None:
    import gzip

    data = frames([example_bytes({"x": [i]}) for i in range(300)])
    (tmp_path / "x.tfrecord.gz").write_bytes(gzip.compress(data))
    assert shown(show(capsys, str(tmp_path / "x.tfrecord.gz"), "--where", "x > 297")) == [298, 299]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--where", "x = 1", "--record", "1"], "U605"),
        (["--preview", "kitty", "--json"], "U605"),
        (["--where", "y = 1"], "U680"),
        (["--preview", "ascii"], "U605"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    numbers: str, capsys: Captured, arguments: list[str], code: str
) -> None:
    assert run_command_line(["show", numbers, *arguments]) == 2
    assert code in capsys.readouterr().err


def test_where_does_not_apply_to_raw_data(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    assert run_command_line(["show", str(tmp_path / "x.csv"), "--where", "a = 1"]) == 2
    assert "`--where` does not apply to raw data" in capsys.readouterr().err

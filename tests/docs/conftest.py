"""What the tests of the defect tables share: places to make defects in, and what is asked of every one of them."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from PIL import Image

import rekord as rk

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sources.md"
Cell = tuple[str, str, str]
"""A source, a defect, and the code that is said."""


class Case(NamedTuple):
    """A source with a defect, and what is to be said of it."""

    make: Callable[[], Any]
    where: Mapping[str, Any]  # the whole location of the error
    good: int | None  # rows that are left where the defect is one of a single row; None where it is of the source
    options: Mapping[str, Any]


class Place:
    """A folder to make a defect in."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = monkeypatch

    def put(self, name: str, data: bytes | str) -> Path:
        """A file with this content."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def image(self, name: str) -> Path:
        """A small image, in the format of its extension."""
        return self.put(name, _encoded(Image.new("RGB", (8, 6), (30, 60, 90)), name))

    def mask(self, name: str, class_id: int = 1) -> Path:
        """A small mask of one class."""
        return self.put(name, _encoded(Image.new("L", (8, 6), class_id), name))

    def vast_mask(self, name: str) -> Path:
        """A PNG that claims 2^29 pixels, in as few bytes as could hold them if they were all the same."""
        header = struct.pack(">IIBBBBB", 1 << 15, 1 << 14, 8, 0, 0, 0, 0)
        chunks = [(b"IHDR", header), (b"IDAT", bytes(1 << 20)), (b"IEND", b"")]
        framed = [
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        ]
        return self.put(name, b"\x89PNG\r\n\x1a\n" + b"".join(framed))

    def cut(self, path: Path, size_bytes: int | None = None) -> Path:
        """Keep the first half of a file, or so many bytes."""
        os.truncate(path, path.stat().st_size // 2 if size_bytes is None else size_bytes)
        return path

    def huge(self, path: Path) -> Path:
        """A file that is larger than any record, of holes that take no room on the disk."""
        os.truncate(path, 1 << 31)
        return path

    def unreadable(self, path: Path) -> Path:
        """A file of which the disk says that it cannot read it. Permissions would not do: root may read all."""
        barred = str(path)

        def guarded(opening: Any) -> Any:
            def opened(name: Any, *arguments: Any, **options: Any) -> Any:
                if isinstance(name, (str, os.PathLike)) and os.fspath(name) == barred:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), barred)
                return opening(name, *arguments, **options)

            return opened

        for module, name in ((builtins, "open"), (io, "open"), (io, "FileIO"), (os, "open"), (pa, "OSFile")):
            self.patch.setattr(module, name, guarded(getattr(module, name)))
        return path

    def case(
        self,
        make: Callable[[], Any],
        path: Path | str | None = None,
        *,
        good: int | None = None,
        options: Mapping[str, Any] | None = None,
        **where: Any,
    ) -> Case:
        """The case that `make` makes; the error is at `path` and `where`."""
        location = {} if path is None else {"path": str(path)}
        return Case(make, {**location, **where}, good, options or {})


def _encoded(image: Image.Image, name: str) -> bytes:
    file = io.BytesIO()
    image.save(file, "png" if name.endswith(".png") else "jpeg")
    return file.getvalue()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    root = tmp_path / "data"
    root.mkdir()
    return Place(root, monkeypatch)


@pytest.fixture
def check_defect(tmp_path: Path) -> Callable[[str, Case], None]:
    """Writes a source with a defect twice: once to be stopped by it, and once to go on after a bad row."""

    def check(code: str, case: Case) -> None:
        out = tmp_path / "out"
        with pytest.raises(rk.RekordError) as caught:
            rk.write(case.make(), out, progress=False, workers=1, **case.options)
        failure = caught.value
        assert (failure.code, failure.location.to_dict()) == (code, case.where), failure.message
        assert failure.do
        assert not out.exists(), "something was published"
        reject = {"on_bad_row": "reject", "max_rejects": 1, "progress": False, "workers": 1, **case.options}
        if case.good is None:
            assert code[0] in "XS", "the page says that other codes are of single rows"
            with pytest.raises(rk.RekordError) as caught:
                rk.write(case.make(), out, fresh=True, **reject)
            assert caught.value.code == code, "a defect of the whole source is no bad row"
            assert not out.exists()
            return
        rk.write(case.make(), out, fresh=True, **reject)
        lines = (out / ".rekord" / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
        rejects = [json.loads(line) for line in lines]
        assert [(one["code"], one["origin"]) for one in rejects] == [(code, case.where)]
        report = rk.check(out)
        assert (report.ok, report.records) == (True, case.good)

    return check


@pytest.fixture(scope="session")
def defect_table() -> Callable[[str], set[Cell]]:
    """The cells of the table below a heading of the page."""

    def cells(heading: str) -> set[Cell]:
        text = PAGE.read_text(encoding="utf-8").split(f"\n### {heading}\n", 1)[1]
        lines = [line for line in re.split(r"^#", text, flags=re.MULTILINE)[0].splitlines() if line[:1] == "|"]
        header, _, *rows = [[field.strip() for field in line.strip("|").split("|")] for line in lines]
        found: set[Cell] = set()
        for defect, *codes in rows:
            assert len(codes) == len(header) - 1
            for source, cell in zip(header[1:], codes, strict=True):
                named = [] if cell == "—" else cell.split(", ")
                assert all(re.fullmatch(r"[A-Z]\d{3}", code) for code in named), (source, defect)
                found |= {(source.strip("`"), defect, code) for code in named}
        return found

    return cells

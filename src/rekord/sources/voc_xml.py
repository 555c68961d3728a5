"""Pascal VOC's xml: the objects of one image, read without trust."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.parsers import expat

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown

_MOST_NESTED = 32
_MOST_PIXELS = 1e9
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class Object:
    """One object: its class and its box in pixels, with what else is said of it."""

    name: str
    box: tuple[float, ...]
    given: dict[str, Any]  # difficult, truncated, occluded and view, where the xml has them
    line: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the xml says of one image."""

    filename: str | None = None
    width: int | None = None
    height: int | None = None
    objects: tuple[Object, ...] = ()


@dataclass(slots=True)
class _Node:
    tag: str
    line: int
    pieces: list[str] = field(default_factory=list)  # of the text, after the last inner node
    inner: list[_Node] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[_Node]:
        return (node for node in self.inner if node.tag == tag)

    def first(self, tag: str) -> _Node | None:
        return next(self.all(tag), None)

    def said(self, tag: str) -> str | None:
        node = self.first(tag)
        return None if node is None else "".join(node.pieces).strip()


def parse_annotation(data: bytes, path: str) -> Annotation:
    """The annotation in the bytes of an xml file; E371 where it is no such file, E369 where an object is none."""
    root = _Reader(path).read(data)
    if root.tag != "annotation":
        raise _refused(
            path, "an xml file is no annotation of Pascal VOC", "<annotation>", f"<{root.tag[:40]}>", 1
        )
    size = root.first("size") or _Node("size", 0)
    objects = tuple([_object(node, path) for node in root.all("object")])
    return Annotation(root.said("filename"), _pixels(size, "width"), _pixels(size, "height"), objects)


class _Reader:
    """Builds the nodes of one file; expat calls it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.open = [_Node("", 0)]

    def read(self, data: bytes) -> _Node:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as failure:
            found = expat.ErrorString(failure.code) or "something else"
            cut = failure.code in (
                expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
                expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
            )
            what = "an xml file is empty" if not data.strip() else "an xml file cannot be parsed"
            raise _refused(
                self.path,
                f"{what} at line {failure.lineno:,}, column {failure.offset + 1:,}" if data.strip() else what,
                "the xml of an annotation",
                found if data.strip() else f"{len(data):,} bytes",
                failure.lineno,
                likely="the file was not copied to its end" if cut and data.strip() else None,
            ) from failure
        except (ValueError, LookupError) as failure:  # an encoding that Python does not have
            raise _refused(
                self.path, "an xml file is in no known encoding", "UTF-8", "another", 1
            ) from failure
        return self.open[0].inner[0]

    def start(self, tag: str, _: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self.open) > _MOST_NESTED:
            raise _refused(
                self.path, "an xml file is nested too deeply", f"{_MOST_NESTED} levels", "more", line
            )
        node = _Node(tag, line)
        self.open[-1].inner.append(node)
        self.open[-1].pieces.clear()
        self.open.append(node)

    def end(self, _: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        self.open[-1].pieces.append(text)

    def doctype(self, *_: object) -> None:
        line = self.parser.CurrentLineNumber
        raise _refused(
            self.path, "an xml file declares a DOCTYPE", "an annotation without one", "<!DOCTYPE", line
        )


def _object(node: _Node, path: str) -> Object:
    name = node.said("name")
    if not name:
        _unusable(path, node.line, "an object has no <name>", "the name of a class", "none")
    box = node.first("bndbox")
    if box is None:
        _unusable(path, node.line, "an object has no <bndbox>", "xmin, ymin, xmax and ymax", "none")
    sides = []
    for side in _SIDES:
        text = box.said(side)
        try:
            sides.append(float(text if text and "_" not in text else ""))  # to Python 1_0 is ten
        except ValueError:
            sides.append(float("nan"))
        if not abs(sides[-1]) < _MOST_PIXELS:
            _unusable(path, box.line, f"a box has no usable <{side}>", "a number of pixels", shown(text))
    given: dict[str, Any] = {}
    for flag in ("difficult", "truncated", "occluded"):
        text = node.said(flag)
        if text:
            # Tools write 1, true, Yes; anything else that is said here is said by mistake.
            known = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
            if text.lower() not in known:
                _unusable(path, node.line, f"an object has no usable <{flag}>", "0 or 1", shown(text))
            given[flag] = known[text.lower()]
    pose = node.said("pose")
    if pose:
        given["view"] = pose
    return Object(name, tuple(sides), given, node.line)


def _pixels(size: _Node, side: str) -> int | None:
    """A side of the image as the xml states it; tools that do not know it write 0, or nothing."""
    try:
        number = float(size.said(side) or "")
    except ValueError:
        return None
    return int(number) if 0 < number < _MOST_PIXELS else None


def _unusable(path: str, line: int, what: str, expected: str, found: str) -> NoReturn:
    raise error(
        "E369",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=f"mend line {line:,} of the xml file",
    )


def _refused(
    path: str, what: str, expected: str, found: str, line: int, *, likely: str | None = None
) -> RekordError:
    return error(
        "E371",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        likely=likely,
        do="write the file again without it" if "DOCTYPE" in what else "mend the file, or take it out",
    )

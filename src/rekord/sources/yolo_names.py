"""The names of YOLO's classes: from a yaml file, classes.txt or a .names file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.annotated import read_whole
from rekord.storage.files import LOCAL

_MOST_BYTES = 4 << 20
_MOST_CLASSES = 1 << 20
_KEYPOINTS = re.compile(
    r"^kpt_shape[ \t]*:\s*(?:\[\s*(\d{1,4})\s*,\s*([23])\s*\]|-\s*(\d{1,4})\s*\n\s*-\s*([23])\b)",
    re.MULTILINE,
)
_PAIR = re.compile(r"""^(["']?)(\d{1,7})\1\s*:\s*(.*)$""")


def class_names(root: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The names by number with the file that they are from; None where no file says them."""
    for path in _candidates(root):
        data = read_whole(path, _MOST_BYTES, "X533")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as failure:
            line = data.count(b"\n", 0, failure.start) + 1
            raise _refused(path, line, "the names of classes are not UTF-8", "other bytes") from None
        if path.lower().endswith((".yaml", ".yml")):
            names = _from_yaml(text, path)
            if names is None:
                continue
        else:
            lines = [line.strip() for line in text.splitlines()]
            while lines and not lines[-1]:
                lines.pop()
            names = tuple(lines)
        _check(names, path)
        return names, path
    return None, None


def keypoint_numbers(root: str) -> int | None:
    """How many numbers of keypoints follow every box; None where no yaml file says that there are any."""
    for path in _candidates(root):
        if not path.lower().endswith((".yaml", ".yml")):
            continue
        text = read_whole(path, _MOST_BYTES, "X533").decode("utf-8-sig", "replace")
        begin = re.search(r"^kpt_shape\s*:", text, re.MULTILINE)
        if begin is None:
            continue
        found = _KEYPOINTS.search(text)
        if found is None:
            line = text.count("\n", 0, begin.start()) + 1
            raise error(
                "X533",
                "`kpt_shape` cannot be read",
                location=Location(path=path, line=line),
                expected="how many keypoints, and 2 or 3 numbers of each: `kpt_shape: [17, 3]`",
                found=text[begin.start() :].split("\n", 1)[0][:60],
                do="mend the line, or take it out where labels have no keypoints",
            )
        count, each = [int(number) for number in found.groups() if number is not None]
        return count * each
    return None


def _candidates(root: str) -> Iterator[str]:
    names = [
        entry.name for entry in LOCAL.list(root) if entry.kind == "file" and not entry.name.startswith(".")
    ]
    yamls = [name for name in names if name.lower().endswith((".yaml", ".yml"))]
    yield from [os.path.join(root, name) for name in sorted(yamls, key=lambda name: name != "data.yaml")]
    for folder in ("", "labels", "labels/train", "train/labels"):
        path = os.path.join(root, *folder.split("/"), "classes.txt")
        if os.path.isfile(path):
            yield path
    yield from [
        os.path.join(root, name) for name in names if name.lower().endswith((".names", "_darknet.labels"))
    ]


def _from_yaml(text: str, path: str) -> tuple[str, ...] | None:
    """What stands under `names:`: a list or a map, in lines or in brackets."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.match(r"names\s*:(.*)$", line)
        if match is None:
            continue
        rest = _bare(match[1]).strip()
        at = number + 1
        if rest[:1] in ("[", "{"):
            whole = rest + " " + " ".join([_bare(one) for one in lines[at:]])
            return _in_brackets(whole, path, at)
        if rest:
            raise _refused(path, at, "`names` is no list and no map", rest[:60])
        return _in_lines(lines, at, path)
    return None


def _in_lines(lines: list[str], first: int, path: str) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for number, line in enumerate(lines[first:], first + 1):
        bare = _bare(line)
        if not bare.strip():
            continue
        text = bare.strip()
        pair = _PAIR.match(text)
        if text.startswith("- "):
            names[len(names)] = _unquoted(text[2:].strip())
        elif pair is not None and bare[0] in " \t":
            names[int(pair[2])] = _unquoted(pair[3].strip())
        elif bare[0] in " \t":
            raise _refused(path, number, "a line below `names` is no class", text[:60])
        else:
            break
    return _by_number(names, path, first)


def _in_brackets(text: str, path: str, line: int) -> tuple[str, ...]:
    is_map = text[0] == "{"
    names: dict[int, str] = {}
    for item in _items(text, "}" if is_map else "]", path, line):
        pair = _PAIR.match(item)
        if not is_map:
            names[len(names)] = _unquoted(item)
        elif pair is not None:
            names[int(pair[2])] = _unquoted(pair[3].strip())
        else:
            raise _refused(path, line, "a pair in `names` is no number and name", item[:60])
    return _by_number(names, path, line)


def _items(text: str, closing: str, path: str, line: int) -> Iterator[str]:
    """What stands between the commas of a bracket; a comma inside quotes parts nothing."""
    begin, quote = 1, ""
    for at in range(1, len(text)):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and at - begin < 16 and not text[begin:at].strip(" 0123456789:"):
            quote = letter
        elif letter in (",", closing):
            item = text[begin:at].strip()
            if item:
                yield item
            if letter == closing:
                return
            begin = at + 1
    raise _refused(path, line, "the brackets of `names` do not close", text[begin : begin + 40])


def _by_number(names: dict[int, str], path: str, line: int) -> tuple[str, ...]:
    if sorted(names) != list(range(len(names))):
        raise _refused(
            path, line, "the numbers of `names` have a gap", f"{len(names):,} names up to {max(names):,}"
        )
    return tuple([names[number] for number in range(len(names))])


def _bare(line: str) -> str:
    """A line of yaml without its comment."""
    return re.sub(r"(^|\s)#.*$", "", line).rstrip()


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _check(names: tuple[str, ...], path: str) -> None:
    if not names or not all(names) or len(names) > _MOST_CLASSES:
        raise _refused(
            path, None, "there are no usable names of classes", "none" if not names else "an empty name"
        )
    if len(set(names)) < len(names):
        first: set[str] = set()
        twice = next(name for name in names if name in first or first.add(name))  # type: ignore[func-returns-value]
        raise _refused(path, None, "two classes have one name", repr(twice)[:60])


def _refused(path: str, line: int | None, what: str, found: str) -> RekordError:
    return error(
        "X533",
        what,
        location=Location(path=path, line=line),
        expected="the names of classes, each once: `names: [cat, dog]` in yaml, or one a line",
        found=found,
        do="mend the file of names",
    )

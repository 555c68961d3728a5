"""The values of `rekord write`'s options: what is written on the command line, as Python takes it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rekord.cli.render import clean, cut
from rekord.errors import RekordError, error
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.schema import Schema

_MOST_BYTES = 16 << 20
_SPLITS = "rekord write SOURCE OUT --split train=0.9,val=0.1"


def splits(text: str | None) -> dict[str, float] | str | None:
    """`train=0.9,val=0.1`, a name, or `source`."""
    if text is None:
        return None
    if "=" not in text:
        # `0.8,0.2` and `train:0.8` are ratios, said wrongly: as a name they would be one split that holds everything.
        if re.search(r"[,:\s]|^[\d.]+$", text):
            raise _refused("--split", text, "one name, or names with a ratio each", text, _SPLITS)
        return text
    ratios: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            ratio = float(number)
        except ValueError:
            raise _refused("--split", text, "names with a ratio each", part, _SPLITS) from None
        if name.strip() in ratios:
            raise _refused("--split", text, "each name once", part, _SPLITS)
        ratios[name.strip()] = ratio
    return ratios


def names(text: str | None) -> tuple[str, ...]:
    """Columns, parted by commas."""
    return tuple([name.strip() for name in (text or "").split(",") if name.strip()])


def classes(text: str | None) -> int | tuple[str, ...] | None:
    """How many classes there are, or their names: a file of them, one a line."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    lines = [
        line.strip()
        for line in _text("--classes", text, "a number, or a file of names, one a line").splitlines()
    ]
    while lines and not lines[-1]:
        lines.pop()
    if not lines or not all(lines):
        found = "an empty file" if not lines else f"line {lines.index('') + 1} is empty"
        raise _unusable("--classes", text, "a name in each line", found)
    return tuple(lines)


def ignore(text: str | None) -> int | None:
    """The id of pixels without a class; `none` is said by the caller."""
    if text is None or text == "none":
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise _refused("--ignore", text, "the id of pixels without a class, or none", text, "--ignore 255")


def colours(path: str | None) -> dict[tuple[int, int, int], int] | None:
    """A JSON object: `{"128,64,0": 3}` gives the class id of each colour."""
    if path is None:
        return None
    expected = 'a JSON object such as {"128,64,0": 3}, an id for each colour'
    try:
        document = json.loads(_text("--colours", path, expected))
    except (ValueError, RecursionError) as failure:
        raise _unusable("--colours", path, expected, str(failure)[:60]) from None
    if not isinstance(document, dict) or not document:
        raise _unusable("--colours", path, expected, f"a {type(document).__name__}")
    made: dict[tuple[int, int, int], int] = {}
    for colour, number in document.items():
        parts = colour.split(",")
        if len(parts) != 3 or not all(part.strip().isdigit() and len(part) < 8 for part in parts):
            raise _unusable("--colours", path, expected, f"the colour {colour!r}"[:60])
        if isinstance(number, bool) or not isinstance(number, int):
            raise _unusable("--colours", path, expected, f"the id {number!r}"[:60])
        red, green, blue = [int(part) for part in parts]
        made[red, green, blue] = number
    return made


def schema(path: str | None) -> Schema | None:
    """A schema's JSON, or a schema.pbtxt."""
    if path is None:
        return None
    from rekord.errors import located
    from rekord.schema import Schema

    if path.endswith((".pbtxt", ".textproto", ".prototxt")):
        with located(path=path):
            return Schema.from_pbtxt(_text("--schema", path, "a schema's JSON, or a schema.pbtxt"))
    return Schema.load(path)


def ratio(option: str, *, do: str) -> Callable[[object], float]:
    """What reads a number from 0 on."""

    def number(text: object) -> float:
        try:
            value = float(str(text))
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise _refused(option, str(text), "a share below 1, or a number of rows", str(text), do)
        return value

    return number


@dataclass(frozen=True)
class FileFunction:
    """An object of a file that can be called, known by the whole text of it: what it calls may have changed too."""

    func: Callable[[Mapping[str, Any]], Any]
    args: tuple[str]  # the digest of the file, which makes it part of the plan

    def __call__(self, row: Mapping[str, Any]) -> Any:
        return self.func(row)


def function(text: str | None) -> Callable[[Mapping[str, Any]], Any] | None:
    """The function that `FILE.py:NAME` names."""
    if text is None:
        return None
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise _no_function(text, None, "FILE.py:NAME", text)
    source = _text("--map", path, "a Python file", code="U622")
    module_name = "rekord_map_" + hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise _no_function(text, path, "a file called .py", os.path.basename(path))
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what lies beside the file can be imported, as when it is run itself
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        del sys.modules[module_name]
        found = f"{type(failure).__name__}: {failure}"
        line = getattr(failure, "lineno", None) if isinstance(failure, SyntaxError) else None
        raise _no_function(text, path, "a file that Python can run", found, line=line) from failure
    found_function = getattr(module, name, None)
    if not callable(found_function):
        from rekord.schema.refuse import near_miss

        known = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        near = near_miss(name, known)
        found = "no such name" if found_function is None else f"a {type(found_function).__name__}"
        raise _no_function(text, path, f"a function `{name}`", found, near=near)
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # other processes do not know the file
    if isinstance(found_function, FunctionType) and inspect.unwrap(found_function).__module__ == module_name:
        return found_function  # as if it were imported, so that Python can go on with what was begun here
    return FileFunction(found_function, (hashlib.sha256(source.encode()).hexdigest(),))


def _text(option: str, path: str, expected: str, *, code: str = "U624") -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as failure:
        found = getattr(failure, "strerror", None) or str(failure)
        raise _unusable(option, path, expected, found[:60].lower(), code) from failure
    if len(data) > _MOST_BYTES:
        raise _unusable(option, path, expected, f"more than {_MOST_BYTES:,} bytes", code)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unusable(option, path, expected, "bytes that are no UTF-8", code) from None


def _unusable(option: str, path: str, expected: str, found: str, code: str = "U624") -> RekordError:
    return error(
        code,
        f"the file for `{option}` cannot be used",
        location=Location(path=path),
        expected=expected,
        found=clean(found),
        do=f"{option} FILE.py:NAME" if code == "U622" else f"mend the file, or name another: {option} FILE",
    )


def _no_function(
    text: str,
    path: str | None,
    expected: str,
    found: str,
    *,
    near: str | None = None,
    line: int | None = None,
) -> RekordError:
    return error(
        "U622",
        f"no function can be loaded from {cut(clean(repr(text)))}",
        location=Location(path=path, line=line),
        expected=expected,
        found=cut(clean(found)),
        do=f"did you mean `{near}`?"
        if near
        else "--map FILE.py:NAME, where NAME takes a row and returns one",
    )


def _refused(option: str, text: str, expected: str, found: str, do: str) -> RekordError:
    return error(
        "U605",
        f"`{option}` cannot be {cut(clean(repr(text)))}",
        expected=expected,
        found=cut(clean(found)),
        do=do,
    )

"""Argument validation: each check is written once and raises a `UsageError` that names the parameter.

A check takes the name of a parameter or command-line option and its value, and returns the value in canonical form.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Collection
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar, cast

from rekord.errors import RekordError, UsageError, closest_match, error, preview

T = TypeVar("T")
Target = TypeVar("Target", bound=Callable[..., Any])

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000 ** (i + 1) for i, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}iB": 1024 ** (i + 1) for i, letter in enumerate("KMGT")}
_UNIT_BYTES = {unit.lower(): size for unit, size in _UNITS.items()}
_SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def invalid(name: str, value: object, expected: str, do: str | None, **fields: Any) -> RekordError:
    """The error for an invalid value of a parameter; `fields` are those of `RekordError`."""
    what = f"`{name}` cannot be {preview(value)}"
    return error("U605", what, **{"expected": expected, "found": preview(value), "do": do, **fields})


def conflicting_options(first: str, second: str, *, expected: str = "one of the two", do: str = "") -> RekordError:
    """The error for two options that exclude each other."""
    return error(
        "U605",
        f"`{first}` and `{second}` cannot be combined",
        expected=expected,
        found="both",
        do=do or f"leave out {first}= or {second}=",
    )


def inapplicable(name: str, to: str, *, expected: str, found: str, do: str = "", **fields: Any) -> RekordError:
    """The error for an option that has no effect here; `to` says on what: "to an open dataset", "without `file`"."""
    do = do or f"leave out {name}="
    return error("U605", f"`{name}` does not apply {to}", expected=expected, found=found, do=do, **fields)


class UnknownOption(UsageError, TypeError):
    """A TypeError as well: Python raises one for an unexpected keyword."""

    @property
    def family(self) -> str:
        """Reported as a UsageError."""
        return UsageError.__name__


def unknown_keyword(function: str, name: str, names: Collection[str]) -> UnknownOption:
    """The error for an unexpected keyword, with the closest known one."""
    meant = closest_match(name, sorted(names))
    return UnknownOption(
        "U605",
        f"`{function}` has no option `{name[:60]}`",
        expected="one of " + ", ".join(sorted(names)),
        found=f"{name[:60]}=…",
        do=f"{function}(…, {meant}=…)" if meant else f"help({function}) lists the options",
    )


def check_keywords(public: Target) -> Target:
    """Decorate a public function or class: an unexpected keyword raises an error that suggests the closest one."""
    package = public.__module__.split(".")[1]
    inner = f"{package}." if package in ("sources", "layouts", "transforms") else ""
    shown = f"rk.{inner}{public.__name__}"
    called: Any = vars(public)["__init__"] if isinstance(public, type) else public
    names = set(inspect.signature(public).parameters)

    @wraps(called)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if not names.issuperset(keywords):
            raise unknown_keyword(shown, min(keywords.keys() - names), names)
        return called(*arguments, **keywords)

    if isinstance(public, type):
        public.__init__ = checked  # type: ignore[misc]
        return public
    return cast(Target, checked)


def integer(name: str, value: object, *, least: int = INT64_MIN, most: int = INT64_MAX, do: str | None = None) -> int:
    """A Python or NumPy integer within bounds; not True or False."""
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else int(value.__index__())
    if number is not None and least <= number <= most:
        return number
    if least == INT64_MIN:
        expected = "a 64-bit integer"
    elif most == INT64_MAX:
        expected = f"an integer ≥ {least:,}"
    else:
        expected = f"an integer from {least:,} to {most:,}"
    raise invalid(name, value, expected, do or f"{name}={max(least, 1)}")


def positive_int(name: str, value: object, *, most: int = INT64_MAX, do: str | None = None) -> int:
    """An integer ≥ 1."""
    return integer(name, value, least=1, most=most, do=do)


def seed_number(name: str, value: object) -> int:
    """A seed or an epoch: an integer ≥ 0."""
    return integer(name, value, least=0, do=f"{name}=0")


def real_number(
    name: str,
    value: object,
    *,
    expected: str = "a number",
    fits: Callable[[float], bool] = math.isfinite,
    do: str,
) -> float:
    """A number for which `fits` is true; `expected` describes it."""
    if isinstance(value, (int, float, Fraction)) and not isinstance(value, bool) and fits(float(value)):
        return float(value)
    raise invalid(name, value, expected, do)


def fraction(name: str, value: object, *, do: str | None = None) -> float:
    """A number from 0 to 1."""
    return real_number(
        name, value, expected="a number from 0 to 1", fits=lambda one: 0 <= one <= 1, do=do or f"{name}=0.05"
    )


def flag(name: str, value: object) -> bool:
    """True or False; no other truthy or falsy value."""
    if isinstance(value, bool):
        return value
    raise invalid(name, value, "True or False", f"{name}=True")


def one_of(name: str, value: T, known: Collection[object], *, do: str | None = None) -> T:
    """One of the known values; the error suggests the closest one."""
    if (value is None or isinstance(value, (str, int))) and value in known:
        return value
    names = [one for one in known if isinstance(one, str)]
    near = closest_match(value, names) if isinstance(value, str) else None
    listed = ", ".join([f'"{one}"' if isinstance(one, str) else repr(one) for one in known])
    raise invalid(name, value, f"one of {listed}", f'{name}="{near or names[0]}"' if near or not do else do)


def as_path(name: str, value: object, *, expected: str = "a str or a pathlib.Path", do: str | None = None) -> str:
    """A path as a str: not empty, without NUL bytes."""
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        if isinstance(text, str) and text and "\0" not in text:
            return text
    raise invalid(name, value, expected, do or f"{name}=pathlib.Path(…)")


def non_blank(name: str, value: object, *, expected: str, do: str) -> str:
    """A str that is not blank."""
    if isinstance(value, str) and value.strip():
        return value
    raise invalid(name, value, expected, do)


def name_list(
    name: str,
    value: object,
    *,
    expected: str = "a list of unique names",
    do: str,
    empty: bool = False,
) -> tuple[str, ...]:
    """A list or tuple of unique names, each of them valid UTF-8."""
    given = tuple(value) if isinstance(value, (list, tuple)) else None
    if (
        given is not None
        and (given or empty)
        and all(isinstance(one, str) and one and is_utf8_encodable(one) for one in given)
        and len(set(given)) == len(given)
    ):
        return given
    raise invalid(name, value, expected, do)


def optional_names(name: str, value: object, *, example: str = "image") -> tuple[str, ...] | None:
    """Column names without duplicates, or None; a single str is not a list."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return tuple(dict.fromkeys(value))
    do = f"{name}=[{value!r}]"[:60] if isinstance(value, str) else f'{name}=["{example}"]'
    raise invalid(name, value, "a list of column names", do)


def tuple_names(value: object) -> tuple[str, ...] | None:
    """`names=`: unique column names for the elements of a tuple."""
    if value is None:
        return None
    expected = "a list of unique names for the elements of a tuple"
    return name_list("names", value, expected=expected, do='names=("image", "label")', empty=True)


def column_name(name: str, value: object, known: Collection[str], *, expected: str, do: str) -> str:
    """An existing column; the error suggests the closest one."""
    if isinstance(value, str) and value in known:
        return value
    near = closest_match(value, known) if isinstance(value, str) else None
    raise invalid(name, value, expected, f"did you mean `{near}`?" if near else do)


def height_and_width(name: str, value: object, *, least: int, most: int) -> tuple[int, int]:
    """(height, width) in pixels."""
    parts = value if isinstance(value, (tuple, list)) else ()
    if len(parts) == 2 and all(hasattr(part, "__index__") and not isinstance(part, bool) for part in parts):
        height, width = (int(part.__index__()) for part in parts)
        if least <= height <= most and least <= width <= most:
            return height, width
    expected = f"(height, width), two integers from {least:,} to {most:,}"
    raise invalid(name, value, expected, f"{name}=({max(64, least)}, {max(64, least)})")


def bytes_size(name: str, value: object) -> int:
    """A size such as 128MB (10^6) or 128MiB (2^20), or a number of bytes."""
    do = f'{name}="128MB"'
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise invalid(name, value, "a size such as 128MB or 1GiB, or a number of bytes", do)
    if isinstance(value, int):
        return positive_int(name, value)
    match = _SIZE_PATTERN.fullmatch(value.strip())
    unit_bytes = _UNIT_BYTES.get(match[2].lower()) if match else None
    if match is None or unit_bytes is None or float(match[1]) <= 0:
        raise invalid(name, value, "a size such as 128MB (10^6) or 1GiB (2^30)", do)
    size_bytes = float(match[1]) * unit_bytes
    if size_bytes > INT64_MAX:
        raise invalid(name, value, "less than 2^63 bytes, such as 128MB", do)
    return max(1, int(size_bytes))


def is_utf8_encodable(value: str) -> bool:
    """Whether a str can be encoded as UTF-8: lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

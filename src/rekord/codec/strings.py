"""Texts and byte strings as they are stored."""

from __future__ import annotations

from typing import Any

from rekord.codec.nested import check_shape, flat
from rekord.codec.unfit import Unfit, described
from rekord.schema import Feature, Text


def stored_strings(value: Any, feature: Feature, shape: tuple[int | None, ...]) -> list[bytes]:
    """All strings of a value of the declared shape, flat, as bytes."""
    if type(value) is memoryview:
        value = value.tobytes()
    leaves, given = flat(value)
    text = isinstance(feature, Text)
    strings = [stored_string(leaf, text=text, at=i) for i, leaf in enumerate(leaves)]
    check_shape(given, shape, value)
    return strings


def stored_string(leaf: Any, *, text: bool, at: int | None = None) -> bytes:
    """One text or byte string as bytes; `at` is its position among others."""
    if isinstance(leaf, str):
        try:
            return leaf.encode("utf-8")
        except UnicodeEncodeError as failure:
            raise _not_utf8(f"a lone surrogate, {leaf[failure.start]!a}, at {failure.start:,}", at) from None
    if isinstance(leaf, (bytes, bytearray, memoryview)):
        data = bytes(leaf)
        if text:
            try:
                data.decode("utf-8")
            except UnicodeDecodeError as failure:
                found = f"byte 0x{data[failure.start]:02x} at {failure.start:,} of {len(data):,}"
                raise _not_utf8(found, at) from None
        return data
    raise _other(leaf, text=text, at=at)


def _not_utf8(found: str, at: int | None) -> Unfit:
    return Unfit(
        "E318",
        "is not UTF-8",
        expected="a text that UTF-8 can hold, or bytes that are UTF-8",
        found=found,
        do='value.decode("latin-1") or whatever it is written in; Bytes() keeps the bytes as they are',
        at=at,
    )


def _other(leaf: Any, *, text: bool, at: int | None) -> Unfit:
    wanted = "text" if text else "bytes"
    declared = "Text" if text else "Bytes"
    if isinstance(leaf, (int, float, complex)) or hasattr(leaf, "dtype"):
        return Unfit(
            "E305",
            f"is a number, the schema says {declared}",
            expected=wanted,
            found=described(leaf),
            do="str(value), or declare Int64() or Float32()"
            if text
            else "declare Int64(), Float32() or Tensor()",
            at=at,
        )
    return Unfit(
        "E302",
        "has no value in one of its places" if leaf is None else f"is of type {type(leaf).__name__}",
        expected=wanted,
        found=described(leaf),
        do=f"leave the value out, or put {'an empty text' if text else 'empty bytes'} in its place"
        if leaf is None
        else "convert it to str"
        if text
        else "convert it to bytes",
        at=at,
    )

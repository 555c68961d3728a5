"""Names of files that come out of records: hostile until they are made safe, and each of them once."""

from __future__ import annotations

import re
import unicodedata

EXTENSIONS = {"jpeg": ".jpg", "png": ".png", "gif": ".gif", "bmp": ".bmp", "webp": ".webp", "tiff": ".tif"}
_ENDINGS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "jpeg"),
    **dict.fromkeys(("tif", "tiff"), "tiff"),
    "png": "png",
    "gif": "gif",
    "bmp": "bmp",
    "dib": "bmp",
    "webp": "webp",
}

_SPLITTERS = re.compile(r"[/\\]")
# What some system cannot have in a name; a lone surrogate no system can.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\ud800-\udfff\u2028\u2029\x85]')
_RESERVED = re.compile(
    r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|thumbs|ehthumbs|desktop)(\..*)?", re.IGNORECASE
)
_PASSED_OVER = frozenset(("__macosx", "@eadir"))
_MOST_BYTES = 180  # of one part of a path: room for a number and an extension below the usual 255
_MOST_PARTS = 8


def safe_name(name: str) -> str:
    """A relative path, parted by "/", that leads nowhere but down; "" where nothing is left of the name."""
    parts = [_safe_part(part) for part in _SPLITTERS.split(name)]
    kept = [part for part in parts if part]
    if len(kept) > _MOST_PARTS:
        kept = [*kept[: _MOST_PARTS - 1], kept[-1]]
    return "/".join(kept)


def safe_part(name: str) -> str:
    """One part of a path: a class or a split as the name of a folder."""
    return _safe_part(_SPLITTERS.sub("_", name)) or "_"


def _safe_part(part: str) -> str:
    if part.strip(". ") == "":
        return ""
    safe = _UNSAFE.sub("_", part)
    if safe.startswith("."):
        safe = "_" + safe[1:]  # hidden, it would be passed over
    safe = safe.rstrip(". ").lstrip(" ")
    if _RESERVED.fullmatch(safe) or safe.lower() in _PASSED_OVER:
        safe = "_" + safe
    return _cut(safe)


def _cut(part: str) -> str:
    """A part that is too long loses its middle; its end may be an extension."""
    encoded = part.encode()
    if len(encoded) <= _MOST_BYTES:
        return part
    head, tail = encoded[: _MOST_BYTES - 24], encoded[-16:]
    return head.decode(errors="ignore") + "~" + tail.decode(errors="ignore")


def without_extension(name: str) -> str:
    """A name without the extension of a picture, if it has one."""
    stem, dot, ending = name.rpartition(".")
    return stem if dot and stem and not stem.endswith("/") and ending.lower() in _ENDINGS else name


def extension_for(name: str, format: str) -> str:
    """The extension of a file of this format: that of the name, where it says so already."""
    own = name[len(without_extension(name)) :]
    return own if own and _ENDINGS[own[1:].lower()] == format else EXTENSIONS[format]


class Names:
    """Gives each name once: a second one gets a number. Names are the same that differ in case alone."""

    def __init__(self) -> None:
        # Digests, not the names themselves: there may be millions.
        self._files: set[int] = set()
        self._folders: set[int] = set()
        self._next: dict[int, int] = {}  # the number to try, of a name that was there

    def take(self, stem: str, *endings: str) -> str:
        """A stem like this one that nobody has yet, with any of these endings; without one, where none is given."""
        stem, endings = self._around_files(stem), endings or ("",)
        if self._took(stem, endings):
            return stem
        key = _digest(stem + endings[0])
        number = self._next.get(key, 2)
        while not self._took(f"{stem}-{number}", endings):
            number += 1
        self._next[key] = number + 1
        return f"{stem}-{number}"

    def _around_files(self, stem: str) -> str:
        """Below a file there is no folder: such a part of a path becomes one with the next part."""
        *folders, last = stem.split("/")
        path = begun = ""  # whole folders, and what the next part is joined to
        for part in folders:
            begun = _cut(begun + part)
            if _digest(path + begun) in self._files:
                begun += "_"
            else:
                path, begun = f"{path}{begun}/", ""
        return path + (_cut(begun + last) if begun else last)

    def _took(self, stem: str, endings: tuple[str, ...]) -> bool:
        own = {_digest(stem + ending) for ending in endings}
        if not (self._files.isdisjoint(own) and self._folders.isdisjoint(own)):
            return False
        self._files |= own
        parts = stem.split("/")
        self._folders.update(_digest("/".join(parts[:i])) for i in range(1, len(parts)))
        return True


def _digest(path: str) -> int:
    return hash(unicodedata.normalize("NFC", path).casefold())

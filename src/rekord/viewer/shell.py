"""The page itself: a shell that is filled by the server, and the files that it loads, all of them our own."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rekord.report.charts import escape_html
from rekord.report.style import SWITCHABLE_THEME
from rekord.version import VERSION

TOKENS = "tokens.css"
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that the page loads."""

    content: bytes
    packed: bytes  # as gzip
    type: str
    etag: str


@cache
def load_static_files() -> dict[str, StaticFile]:
    """The files by name. Only these are served: a path never reaches the file system."""
    found = {}
    for entry in files("rekord.viewer").joinpath("static").iterdir():
        suffix = f".{entry.name.rpartition('.')[2]}"
        if entry.is_file() and suffix in _TYPES:
            found[entry.name] = _to_static(entry.read_bytes(), _TYPES[suffix])
    found[TOKENS] = _to_static(SWITCHABLE_THEME.encode(), _TYPES[".css"])
    return found


def _to_static(content: bytes, type: str) -> StaticFile:
    return StaticFile(content, gzip.compress(content, mtime=0), type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@cache
def _load_template() -> str:
    return files("rekord.viewer").joinpath("templates", "shell.html").read_text("utf-8")


def render_shell(title: str, session: dict[str, Any]) -> str:
    """The page with the facts that it starts with."""
    filled = {"title": escape_html(title), "version": escape_html(VERSION), "session": to_json_block(session)}
    page = _load_template()
    # In one pass: a value may look like a placeholder.
    parts = page.split("{{")
    out = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        out.append(filled.get(name, "") + rest)
    return "".join(out)


def to_json_block(document: Any) -> str:
    """JSON inside a script element of a data type: nothing in it can end the element."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

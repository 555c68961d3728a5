"""Manifests changed by hand, as nobody should: for tests of what is then said."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from rekord.dataset.manifest import Manifest, _checksum

Change = Callable[[dict[str, Any]], object]


def edit_manifest(folder: Path | str, change: Change) -> None:
    """Change the document of a manifest, and make its checksum agree with it again where that is possible."""
    path = Path(folder) / "rekord.json"
    document = json.loads(path.read_text())
    change(document)
    with suppress(msgspec.ValidationError, OverflowError):  # reading it says so too
        document["checksum"] = _checksum(msgspec.convert(document, Manifest))
    path.write_text(json.dumps(document, indent=1) + "\n")

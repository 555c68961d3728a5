"""`rekord view`: records in the browser, once it is there."""

from __future__ import annotations

from typing import Annotated

import typer

from rekord.errors import error


def view(path: Annotated[str, typer.Argument(metavar="PATH", show_default=False)] = "") -> int:
    """Records, images and histograms in the browser."""
    raise error("U604", "`rekord view` is not available yet", do="rekord show PATH")

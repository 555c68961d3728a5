"""The examples on the pages about records are what `check` finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rekord as rk

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = {
    path.stem: found
    for path in sorted(PAGES.glob("H7[567]?.md"))
    if (found := EXAMPLE.search(path.read_text(encoding="utf-8")))
}


def test_there_are_examples() -> None:
    assert len(SHOWN) >= 7


@pytest.mark.parametrize("code", SHOWN)
def test_the_example_of_a_page_is_what_is_found(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOWN[code][1], {"rk": rk, "np": np})
    printed = capsys.readouterr().out
    assert printed.startswith(code)
    assert printed == SHOWN[code][2]

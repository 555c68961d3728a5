"""The examples on the pages of detection's errors are what rekord says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rekord.codes import CODES
from rekord.errors import RekordError

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = [code for code in CODES if "E366" <= code <= "E375" or "X530" <= code <= "X534" or code == "U613"]


@pytest.mark.parametrize("code", OURS)
def test_the_example_of_a_page_about_boxes_is_what_is_said(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    with pytest.raises(RekordError) as caught:
        exec(found[1], {})
    assert caught.value.code == code
    assert caught.value.message == found[2].rstrip("\n")

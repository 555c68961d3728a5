"""The examples on the pages of transforms of columns say what rekord says."""

import re
from pathlib import Path

import pytest

import rekord as rk

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", ["S142", "S143", "E385", "E386", "E388", "U690", "U691", "U693"])
def test_the_example_of_a_page_is_what_is_said(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    with pytest.raises(rk.RekordError) as caught:
        exec(found[1], {"rk": rk})
    assert caught.value.code == code
    assert caught.value.message == found[2].rstrip("\n")

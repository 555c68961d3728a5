"""The examples on the pages of schema errors say what rekord says."""

import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.codes import CODES
from rekord.errors import SchemaError

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", [code for code in CODES if code.startswith("S1")])
def test_the_example_of_a_schema_error_is_what_is_said(code):
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    names = {"rk": rk}
    if "tf" in found[1]:
        names["tf"] = pytest.importorskip("tensorflow")
    with pytest.raises(SchemaError) as caught:
        exec(found[1], names)
    assert caught.value.code == code
    assert caught.value.message == found[2].rstrip("\n")

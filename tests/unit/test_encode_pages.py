"""The examples on the pages of row errors say what rekord says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from rekord import schema
from rekord.codec.encode import encode
from rekord.codec.plan import compile_plan
from rekord.codec.rows import Judge
from rekord.codes import CODES
from rekord.dataset.writer import Writer
from rekord.errors import RekordError

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What `encode` alone can say: layouts and sources have the rest.
ROWS = [code for code in CODES if "E300" < code < "E340" and code not in ("E327", "E333", "E336", "E337")]


@pytest.mark.parametrize("code", [*ROWS, "U610"])
def test_the_example_of_a_row_error_is_what_is_said(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    names = {name: getattr(schema, name) for name in schema.__all__}
    with pytest.raises(RekordError) as caught:
        exec(found[1], {"rk": SimpleNamespace(**names, encode=encode, Writer=Writer)})
    assert caught.value.code == code
    assert caught.value.message == found[2].rstrip("\n")


def test_the_example_of_a_record_too_large_is_what_is_said() -> None:
    with pytest.raises(RekordError) as caught:
        Judge(compile_plan(schema.Schema({}))).refuse_size()
    assert caught.value.message in (PAGES / "E327.md").read_text(encoding="utf-8")

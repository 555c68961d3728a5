"""The examples on the pages about datasets are what `rekord check` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line

PAGES = Path(__file__).parents[3] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODES = ["H780", "H781", "H783", "H784", "H786", "H787", "H788", "H789", "X545"]


@pytest.mark.parametrize("code", CODES)
def test_the_example_of_a_page_is_what_check_prints(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    exec(found[1], {"rk": rk})
    command, *shown = found[2].splitlines()
    prompt, verb, *arguments = command.split()
    assert (prompt, verb) == ("$", "rekord")
    run_command_line(arguments)
    printed = "".join(capsys.readouterr()).splitlines()
    assert shown[0].startswith(code)
    assert [line for line in shown if line not in printed] == []

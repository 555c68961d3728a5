"""The page about editing: its document is the one that is printed, and what it names exists."""

import json
import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import app, run_command_line
from rekord.codes import CODES

TEXT = (Path(__file__).parents[4] / "docs" / "reference" / "editing.md").read_text(encoding="utf-8")


@pytest.fixture
def pets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(TEXT.split("```python\n", 1)[1].split("```", 1)[0], {})


def test_the_document_is_the_one_that_is_printed(pets, capsys):
    (shown,) = re.findall(r"```json\n(.*?)```", TEXT, flags=re.DOTALL)
    assert run_command_line(["delete", "pets", "pets-2", "--where", "id < 10", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {**printed, "seconds": 0} == {**json.loads(shown), "seconds": 0}


def test_what_the_page_names_exists():
    assert set(re.findall(r"\b[SFWCEDXUH]\d{3}\b", TEXT)) <= set(CODES)
    verbs = {command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"`rekord (\w+)", TEXT)) <= verbs
    for name in re.findall(r"`rk\.(\w+)", TEXT):
        assert hasattr(rk, name)

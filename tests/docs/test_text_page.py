"""The page about texts: its examples print what it says, its flags and codes are those that there are."""

import contextlib
import io
import re
from pathlib import Path

import typer

import rekord as rk
from rekord.cli.main import app
from rekord.codes import CODES

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "text.md").read_text(encoding="utf-8")


def test_the_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(examples) == TEXT.count("```python")
    for code, said in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == said


def test_flags_codes_and_names_are_those_that_there_are():
    command = typer.main.get_command(app).commands["write"]  # type: ignore[attr-defined]
    known = {name for param in command.params for name in param.opts}
    assert set(re.findall(r"(--[a-z][a-z-]*)", TEXT)) <= known
    assert set(re.findall(r"\b[SEU]\d{3}\b", TEXT)) <= set(CODES)
    for name in re.findall(r"^\| `(\w+)\(", TEXT, re.MULTILINE):
        assert hasattr(rk.transforms, name)

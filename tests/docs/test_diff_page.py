"""The page about comparing datasets: its members, flags and codes are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import rekord as rk
from rekord.cli.main import app
from rekord.cli.options import NAMES
from rekord.codes import CODES

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "diff.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(code, {"rk": rk})
    return tmp_path


def test_the_members_are_those_of_the_document(example: Path) -> None:
    table = TEXT.split("## JSON", 1)[1]
    named = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")]
    document = rk.diff("old", "new").to_dict()
    assert [name.strip("`") for name in named] == list(document)
    assert set(document["records"]) <= set(re.findall(r"`(\w+)`", table))


def test_every_flag_and_code_is_one_that_there_is() -> None:
    command = typer.main.get_command(app).commands["diff"]  # type: ignore[attr-defined]
    known = {name for param in command.params if param.name not in NAMES for name in param.opts}
    flags = {name for name in known if name.startswith("--")} - {"--help"}
    assert set(re.findall(r"(--[a-z][a-z-]*)", TEXT)) == flags
    assert set(re.findall(r"\b[A-Z]\d{3}\b", TEXT)) <= set(CODES)

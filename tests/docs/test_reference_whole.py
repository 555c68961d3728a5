"""What holds for all pages of the reference, and the examples on them that no other test runs."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import rekord as rk
from rekord.cli.main import app, run
from rekord.codes import CODES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
SHAPES = ["transforms", "text", "rewriting", "editing", "balancing", "exporting", "querying"]


def links(path: Path) -> list[Path]:
    """The files that a page leads to."""
    named = LINK.findall(path.read_text(encoding="utf-8"))
    return [(path.parent / link).resolve() for link in named if "://" not in link]


@pytest.mark.parametrize("folder", [".", "docs/reference", "docs/errors", "docs/decisions"])
def test_the_links_of_all_pages_lead_somewhere(folder: str) -> None:
    pages = list((ROOT / folder).glob("*.md"))
    assert pages
    assert [(page.name, link.name) for page in pages for link in links(page) if not link.exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [link for link in links(page) if link.is_relative_to(FOLDER)]
    assert {path.stem for path in reached if path.parent == FOLDER} == set(PAGES)
    direct = {path.stem for path in links(ROOT / "README.md")}
    assert set(SHAPES) <= direct


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_verbs_flags_and_codes_that_there_are(page: str) -> None:
    text = PAGES[page]
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"(?:`|\$ |^ {4})rekord ([a-z]+)\b", text, re.MULTILINE)) <= set(verbs)
    flags = {name for verb in verbs.values() for param in verb.params for name in param.opts}
    assert set(re.findall(r"(?<!\w)(--[a-z][a-z-]*)", text)) <= flags
    assert set(re.findall(r"\b[CDEFHSUWX]\d{3}\b", text)) <= set(CODES)


def test_the_example_of_statistics_says_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "score": rk.Float32()})
    rows = [{"label": int(i % 4 == 3), "score": i} for i in range(40)]
    split = {"train": 0.5, "val": 0.5}
    rk.write(rows, "data/flowers", schema=schema, split=split, progress=False, workers=1)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGES["stats"], re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"rk": rk}
    exec(compile(code, "stats.md", "exec"), names)
    classes = re.findall(r"\.classes  # (.*)$", code, re.MULTILINE)
    assert [names["found"].features["label"].classes] == [eval(said) for said in classes]


def test_the_commands_of_balancing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3)).astype(np.uint8)
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(["rose", "tulip"])})
    rows = [{"image": picture, "label": int(i % 5 == 0)} for i, picture in enumerate(pictures)]
    split = {"train": 0.8, "val": 0.2}
    rk.write(rows, "data/flowers", schema=schema, split=split, stratify="label", progress=False, workers=1)
    schema = rk.Schema({"vec": rk.Float32(shape=(2,)), "label": rk.Label(["rose", "tulip"])})
    vectors = [{"vec": [i, i % 3], "label": int(i % 3 == 0)} for i in range(30)]
    rk.write(vectors, "data/vectors", schema=schema, progress=False, workers=1)
    commands = re.findall(r"^    rekord (.*)$", PAGES["balancing"], re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        shutil.rmtree("data/even", ignore_errors=True)
        assert run([*shlex.split(command), "--workers", "1"]) == 0, command

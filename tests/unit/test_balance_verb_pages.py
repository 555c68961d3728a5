"""The pages about balancing: their examples are what rekord says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run
from rekord.transforms.augment import AUGMENTATIONS
from rekord.verbs.balance_prepare import METHODS
from rekord.verbs.balance_targets import WORDS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (DOCS / "reference" / "balancing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", ["U636", "U637", "U638", "U639", "U642", "U644", "E395"])
def test_the_example_of_a_page_is_what_is_said(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((DOCS / "errors" / f"{code}.md").read_text(encoding="utf-8"))
    assert found
    with pytest.raises(rk.RekordError) as caught:
        exec(found[1], {"rk": rk})
    assert caught.value.message == found[2].rstrip("\n")


def test_the_examples_of_the_reference_say_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) == 2
    for python, said in examples:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(python, names)
        assert out.getvalue() == said


def test_the_reference_names_every_method_strategy_augmentation_and_option(capsys):
    for word in (*METHODS, *WORDS, *AUGMENTATIONS):
        assert re.search(rf"[`\"]{word}[`\"]", PAGE), word
    assert run(["balance", "--help"]) == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    said = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    shared = {"--shard-size", "--shards", "--compression", "--format", "--workers", "--fresh"}
    assert options - {"--help"} == said | shared

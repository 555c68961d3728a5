"""CONTRIBUTING.md and the page of the architecture tell the truth about the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import rekord as rk

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_source_of_the_example_is_written_as_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "fasta_source.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    fasta = importlib.import_module("fasta_source").fasta
    (tmp_path / "x.fasta").write_text(">a\nACGT\nAC\n>b one\nTT\n")
    dataset = rk.write(fasta(str(tmp_path / "x.fasta")), tmp_path / "out", progress=False)
    assert [dict(row) for row in dataset["train"]] == [
        {"name": "a", "sequence": "ACGTAC"},
        {"name": "b one", "sequence": "TT"},
    ]


def test_the_page_of_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "explain" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", page)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / "src" / "rekord" / name).exists()] == []

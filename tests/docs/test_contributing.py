"""The example of a new source in CONTRIBUTING.md is one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import rekord as rk

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_source_of_the_example_is_written_as_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

"""CONTRIBUTING.md and the page of the architecture tell the truth about the code."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

import rekord as rk

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_source_of_the_example_is_written_as_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "fasta.py").write_text(program)
    spec = importlib.util.spec_from_file_location("rekord.sources.fasta", tmp_path / "fasta.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rekord.sources.fasta", module)
    spec.loader.exec_module(module)
    fasta = module.fasta
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.fasta").write_text(">a\nACGT\nAC\n>b one\nTT\n")
    (tmp_path / "data" / "y.fa").write_bytes(b">c\n\xff\n>d\nG\n")
    written = rk.write(fasta(tmp_path / "data"), tmp_path / "out", on_bad_row="reject", max_rejects=1, progress=False)
    assert [dict(row) for row in written["train"]] == [
        {"name": "a", "sequence": "ACGTAC"},
        {"name": "b one", "sequence": "TT"},
        {"name": "d", "sequence": "G"},
    ]
    (rejected,) = (tmp_path / "out" / ".rekord" / "rejects.jsonl").read_text().splitlines()
    assert json.loads(rejected)["code"] == "E318"
    with pytest.raises(rk.RekordError) as missing:
        rk.write(fasta(tmp_path / "none"), tmp_path / "no", progress=False)
    assert (missing.value.code, missing.value.location.path) == ("X501", str(tmp_path / "none"))


def test_the_names_in_code_of_the_guide_exist() -> None:
    """Every identifier in backticks is defined or used somewhere in the sources, the tests or the tools."""
    places = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
    ]
    words = set(re.findall(r"\w+", "\n".join([one.read_text(encoding="utf-8") for one in places])))
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    spans = [span for span in re.findall(r"`([^`\n]+)`", prose) if "/" not in span and not span.endswith(".md")]
    named = {name for span in spans for name in re.findall(r"[A-Za-z_]\w{4,}", span)}
    assert len(named) > 30
    assert sorted(named - words - {"fasta", "test_fasta", "rk", "F106"}) == []


def test_the_page_of_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "explain" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", page)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / "src" / "rekord" / name).exists()] == []

"""The pages about queries: their examples are what rekord says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (DOCS / "reference" / "querying.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", ["U680", "U681", "U682"])
def test_the_example_of_a_page_is_what_is_said(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((DOCS / "errors" / f"{code}.md").read_text(encoding="utf-8"))
    assert found
    with pytest.raises(rk.RekordError) as caught:
        exec(found[1], {"rk": rk})
    assert caught.value.message == found[2].rstrip("\n")


def test_the_examples_of_the_reference_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = rk.Schema({"label": rk.Label(["a", "b"]), "score": rk.Float32(), "image": rk.Bytes()})
    rows = [{"label": i % 3 // 2, "score": i, "image": b"\xff"} for i in range(6)]
    split = {"train": 0.5, "val": 0.5}
    rk.write(rows, "data/flowers", schema=schema, split=split, progress=False, workers=1)
    [python] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"rk": rk}
    exec(python, names)
    assert names["table"].to_pydict() == {"label": [0, 1], "n": [4, 2]}  # type: ignore[attr-defined]
    commands = re.findall(r'^    rekord (query) (\S+) "(.*?)"(.*)$', PAGE, re.MULTILINE)
    assert len(commands) == 4
    for verb, path, sql, options in commands:
        assert run([verb, path, sql, *options.split()]) == 0
    assert "Error" not in capsys.readouterr().err

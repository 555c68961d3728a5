"""The examples on the pages about reading are what rekord says."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import rekord as rk

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODES = ["D401", "D402", "D403", "D404", "D405", "D406", "D407", "D408", "X505", "X506", "X507", "U607"]


@pytest.mark.parametrize("code", CODES)
def test_the_example_of_a_page_is_what_is_said(code, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    with pytest.raises(rk.RekordError) as caught:
        exec(found[1], {"rk": rk, "np": np, "pickle": pickle})
    assert caught.value.code == code
    assert caught.value.message == found[2].rstrip("\n")


def test_bytes_that_are_no_utf8_are_read_as_the_page_says(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rk.Writer("train.tfrecord", rk.Schema({"name": rk.Bytes()})) as writer:
        writer.write({"name": "café".encode("latin-1")})
    names = rk.open("train.tfrecord", schema=rk.Schema({"name": rk.Bytes()})).batches(32)
    assert [name.decode("latin-1") for batch in names for name in batch["name"]] == ["café"]

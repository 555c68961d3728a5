"""The page about a record that is too large says what rekord says; it takes gigabytes to raise it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekord import schema
from rekord.codec.encode import RowValidator
from rekord.codec.plan import compile_plan
from rekord.errors import RekordError

PAGES = Path(__file__).parents[3] / "docs" / "errors"


def test_the_example_of_a_record_too_large_is_what_is_said() -> None:
    with pytest.raises(RekordError) as caught:
        RowValidator(compile_plan(schema.Schema({}))).raise_too_large()
    assert caught.value.message in (PAGES / "E327.md").read_text(encoding="utf-8")

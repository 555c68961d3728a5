"""Errors in notebooks, through the protocol of IPython: a `_render_traceback_` method that returns lines."""

from __future__ import annotations

import linecache

import pytest

import rekord as rk


def run_cell(source: str) -> BaseException:
    """Run source code as IPython runs a cell: a file name of its own, known to linecache."""
    name = "/tmp/ipykernel_1/1234.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with pytest.raises(rk.RekordError) as caught:
        exec(compile(source, name, "exec"), {"rk": rk})
    return caught.value


def test_the_message_and_the_users_own_line_are_all_that_is_shown() -> None:
    failure = run_cell("x = 1\nrk.open('no/such/folder')\n")
    lines = failure._render_traceback_()  # type: ignore[attr-defined]
    assert lines[:3] == ["/tmp/ipykernel_1/1234.py, line 2", "    rk.open('no/such/folder')", ""]
    assert lines[3:] == failure.message.splitlines()  # type: ignore[attr-defined]
    assert lines[3].startswith("DatasetError X501: ")
    assert not any("src/rekord" in line for line in lines)


def test_an_error_that_was_never_raised_has_its_message() -> None:
    from rekord.errors import error

    assert error("X501")._render_traceback_() == ["DatasetError X501: no such file or folder"]

"""The logger `rekord`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import rekord as rk
from rekord.dataset.shard_index import rebuild_index


def test_runs_and_rejects_are_logged_at_info(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"x": 1}, {"x": "no"}, {"x": 2}]
    with caplog.at_level(logging.INFO, "rekord"):
        rk.write(
            rows,
            tmp_path / "data",
            schema=rk.Schema({"x": rk.Int64()}),
            on_bad_row="reject",
            max_rejects=2,
            workers=1,
            progress=False,
        )
        rebuild_index(rk.open(tmp_path / "data")["train"].paths[0])
    logged = [record.getMessage() for record in caplog.records]
    assert f"writing {tmp_path / 'data'} with 1 workers" in logged
    assert "rejected 1 of 3 rows" in logged
    assert any(line.startswith("rebuilding the index of ") for line in logged)
    assert {record.name.partition(".")[0] for record in caplog.records} == {"rekord"}


def test_the_logger_is_silent_until_it_is_configured() -> None:
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("rekord").handlers)

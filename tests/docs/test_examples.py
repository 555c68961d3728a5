"""The examples run, reach their accuracy, and go on after a stop as if there had been none."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["custom_loop_tensorflow", "keras_fit", "torch_loop", "jax_loop"]
STOPPED_AFTER, STEPS_OF_AN_EPOCH, BATCH = 30, 20, 32


def test_all_examples_are_run_and_named_on_their_page() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(NAMES)
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"({name}.py)" in page


@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns_and_ends_alike_with_and_without_a_stop(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    example["main"](tmp_path)
    stopped = capsys.readouterr().out
    accuracy = re.search(r"^validation accuracy: ([\d.]+)$", stopped, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.9
    assert f"after {STOPPED_AFTER} steps" in stopped

    given_again = list(rest(name, tmp_path))
    epoch = rk.open(tmp_path / "data")["train"].batches(BATCH, columns=["id"], shuffle=True, seed=1, epoch=1)
    whole = [batch["id"].tolist() for batch in epoch]
    assert len(whole) == STEPS_OF_AN_EPOCH
    assert given_again == whole[STOPPED_AFTER - STEPS_OF_AN_EPOCH :]

    for stops in ([], [STOPPED_AFTER, 5]):
        for kept in [*tmp_path.glob("reader.json"), *tmp_path.glob("checkpoint.pt")]:
            kept.unlink()
        for steps in [*stops, None]:
            example["train"](tmp_path, steps)
        assert last_lines(capsys.readouterr().out) == last_lines(stopped)


def rest(name: str, folder: Path) -> Iterator[list[int]]:
    """The ids of the batches that the framework gets from the saved state on, to the end of the epoch."""
    split = rk.open(folder / "data")["train"]
    reading: dict[str, Any] = {"columns": ["id"], "shuffle": True, "seed": 1}
    feed: Any
    if name == "torch_loop":
        import torch

        feed = split.to_torch(BATCH, **reading)
        feed.load_state_dict(torch.load(folder / "checkpoint.pt")["loader"])
    else:
        state = json.loads((folder / "reader.json").read_text())
        if name == "jax_loop":
            feed = split.to_jax(BATCH, remainder="drop", **reading)
            feed.load_state_dict(state)
        elif name == "keras_fit":
            feed = split.to_keras(BATCH, x="id", y=[], shuffle=True, seed=1, state=state)
            feed = ({"id": inputs} for (inputs,) in feed)
        else:
            feed = split.to_tensorflow(BATCH, state=state, **reading)
    for batch in feed:
        yield np.asarray(batch["id"]).tolist()


def last_lines(printed: str) -> list[str]:
    """The loss of the last epochs, which both runs do as a whole, and the accuracy."""
    lines = printed.strip().splitlines()[-3:]
    assert [line.split(":")[0] for line in lines] == ["epoch 2", "epoch 3", "validation accuracy"]
    return lines

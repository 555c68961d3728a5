"""A training loop in PyTorch, stopped in the middle of an epoch and resumed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import rekord as rk

CORNERS = ["top left", "top right", "bottom left", "bottom right"]
SCHEMA = rk.Schema({"id": rk.Int64(), "image": rk.Image(format="png"), "label": rk.Label(CORNERS)})
EPOCHS = 4
# Each epoch is an exact shuffle of all records, computed from the seed. Nothing is held in a buffer.
READING = {"columns": ["image", "label"], "decode": True, "resize": (16, 16), "shuffle": True, "seed": 1}


def rows() -> Iterator[dict[str, Any]]:
    """Noise with a bright square in one of four corners."""
    rng = np.random.default_rng(0)
    for i in range(800):
        image = rng.integers(0, 128, (16, 16, 3), np.uint8)
        y, x = rng.integers(0, 4, 2) + np.multiply(8, divmod(i % 4, 2))
        image[y : y + 5, x : x + 5] += 60
        yield {"id": i, "image": image, "label": CORNERS[i % 4]}


def pixels(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Images as torch has them: channels first, from 0 to 1."""
    return batch["image"].permute(0, 3, 1, 2).float() / 255


def train(folder: Path, stop_after: int | None = None) -> None:
    """Train until the end, or for `stop_after` steps; a run that was stopped before is resumed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, len(CORNERS)))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    data = rk.open(folder / "data")
    # Under DDP: rank="auto", remainder="drop". Ranks share each epoch, and a state fits any number of them.
    loader = data["train"].to_torch(32, **READING)
    path = folder / "checkpoint.pt"
    first_epoch = 0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first_epoch = saved["loader"]["epoch"]

    steps = 0
    for epoch in range(first_epoch, EPOCHS):
        losses = []
        for batch in loader:  # first the rest of the epoch that was stopped, then whole ones
            loss = nn.functional.cross_entropy(model(pixels(batch)), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            steps += 1
            if steps == stop_after:
                # The loader's state is a few numbers: which records come next, whatever was read ahead.
                states = {"model": model, "optimizer": optimizer, "loader": loader}
                torch.save({name: one.state_dict() for name, one in states.items()}, path)
                print(f"stopped in epoch {epoch} after {steps} steps")
                return
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} in {len(losses)} steps")

    right = []
    with torch.inference_mode():
        for batch in data["val"].to_torch(32, **{**READING, "shuffle": False}):
            right.append(model(pixels(batch)).argmax(1) == batch["label"])
    accuracy = float(torch.cat(right).float().mean())
    print(f"validation accuracy: {accuracy:.3f}")


def main(folder: Path) -> None:
    parts = {"train": 0.8, "val": 0.2}
    rk.write(rows(), folder / "data", schema=SCHEMA, split=parts, stratify="label", progress=False)
    train(folder, stop_after=30)
    train(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1] if sys.argv[1:] else made))

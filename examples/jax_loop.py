"""A training loop in JAX, stopped in the middle of an epoch and resumed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rekord as rk

CORNERS = ["top left", "top right", "bottom left", "bottom right"]
SCHEMA = rk.Schema({"id": rk.Int64(), "image": rk.Image(format="png"), "label": rk.Label(CORNERS)})
EPOCHS = 4
# Each epoch is an exact shuffle of all records, computed from the seed. Ids and texts stay out of `jit`.
READING = {"columns": ["image", "label"], "decode": True, "resize": (16, 16), "shuffle": True, "seed": 1}


def rows() -> Iterator[dict[str, Any]]:
    """Noise with a bright square in one of four corners."""
    rng = np.random.default_rng(0)
    for i in range(800):
        image = rng.integers(0, 128, (16, 16, 3), np.uint8)
        y, x = rng.integers(0, 4, 2) + np.multiply(8, divmod(i % 4, 2))
        image[y : y + 5, x : x + 5] += 60
        yield {"id": i, "image": image, "label": CORNERS[i % 4]}


def new_weights() -> dict[str, jax.Array]:
    one, two = jax.random.split(jax.random.key(0))
    return {
        "hidden": jax.random.normal(one, (16 * 16 * 3, 32)) * 0.03,
        "hidden_bias": jnp.zeros(32),
        "out": jax.random.normal(two, (32, len(CORNERS))) * 0.2,
        "out_bias": jnp.zeros(len(CORNERS)),
    }


def scores(weights: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    flat = images.reshape(len(images), -1) / 255.0 - 0.25
    hidden = jax.nn.relu(flat @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["out"] + weights["out_bias"]


def loss_of(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    logs = jax.nn.log_softmax(scores(weights, batch["image"]))
    return -jnp.take_along_axis(logs, batch["label"][:, None], 1).mean()


@jax.jit
def step(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


def train(folder: Path, stop_after: int | None = None) -> None:
    """Train until the end, or for `stop_after` steps; a run that was stopped before is resumed."""
    data = rk.open(folder / "data")
    # remainder="drop" keeps one shape, which `jit` compiles once. On several hosts: rank="auto", sharding=….
    feed = data["train"].to_jax(32, remainder="drop", **READING)
    weights, first_epoch = new_weights(), 0
    position, path = folder / "reader.json", folder / "weights.npz"
    if position.exists():
        with np.load(path) as saved:
            weights = {name: jnp.asarray(saved[name]) for name in saved}
        feed.load_state_dict(state := json.loads(position.read_text()))
        first_epoch = state["epoch"]

    steps = 0
    for epoch in range(first_epoch, EPOCHS):
        losses = []
        for batch in feed:  # first the rest of the epoch that was stopped, then whole ones
            weights, loss = step(weights, batch)
            losses.append(loss)
            steps += 1
            if steps == stop_after:
                # A few numbers beside the weights say which records come next.
                np.savez(path, **weights)
                position.write_text(json.dumps(feed.state_dict()))
                print(f"stopped in epoch {epoch} after {steps} steps")
                return
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} in {len(losses)} steps")

    held_out = data["val"].to_jax(32, **{**READING, "shuffle": False})
    right = [scores(weights, batch["image"]).argmax(1) == batch["label"] for batch in held_out]
    accuracy = float(jnp.concatenate(right).mean())
    print(f"validation accuracy: {accuracy:.3f}")


def main(folder: Path) -> None:
    parts = {"train": 0.8, "val": 0.2}
    rk.write(rows(), folder / "data", schema=SCHEMA, split=parts, stratify="label", progress=False)
    train(folder, stop_after=30)
    train(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1] if sys.argv[1:] else made))

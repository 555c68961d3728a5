"""A custom training loop in TensorFlow, stopped in the middle of an epoch and resumed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

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


def train(folder: Path, stop_after: int | None = None) -> None:
    """Train until the end, or for `stop_after` steps; a run that was stopped before is resumed."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(len(CORNERS)),
        ]
    )
    optimizer = keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    position = folder / "reader.json"
    state = None
    if position.exists():
        checkpoint.read(str(folder / "weights")).assert_consumed()
        state = json.loads(position.read_text())

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(batch["label"], model(batch["image"], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    data = rk.open(folder / "data")
    # On several hosts each reads its share: rank=…, world=…, remainder="drop". A state fits any number of them.
    batches = data["train"].to_tensorflow(32, state=state, **READING)
    steps = 0
    for epoch in range(state["epoch"] if state else 0, EPOCHS):
        losses = []
        for batch in batches:  # first the rest of the epoch that was stopped, then whole ones
            losses.append(float(step(batch)))
            steps += 1
            if steps == stop_after:
                # A few numbers beside the weights say which records come next.
                checkpoint.write(str(folder / "weights"))
                position.write_text(json.dumps(batches.state_after(steps)))
                print(f"stopped in epoch {epoch} after {steps} steps")
                return
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} in {len(losses)} steps")

    right = [
        tf.equal(tf.argmax(model(batch["image"]), 1), batch["label"])
        for batch in data["val"].to_tensorflow(32, **{**READING, "shuffle": False})
    ]
    accuracy = float(tf.reduce_mean(tf.cast(tf.concat(right, 0), tf.float32)))
    print(f"validation accuracy: {accuracy:.3f}")


def main(folder: Path) -> None:
    parts = {"train": 0.8, "val": 0.2}
    rk.write(rows(), folder / "data", schema=SCHEMA, split=parts, stratify="label", progress=False)
    train(folder, stop_after=30)
    train(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1] if sys.argv[1:] else made))

"""`model.fit` of Keras on a dataset of rekord, stopped in the middle of an epoch and resumed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import rekord as rk

CORNERS = ["top left", "top right", "bottom left", "bottom right"]
SCHEMA = rk.Schema({"id": rk.Int64(), "image": rk.Image(format="png"), "label": rk.Label(CORNERS)})
EPOCHS = 4
# `y` is the only Label. class_weight="balanced" here would weigh the classes by how many records they have.
READING = {"x": "image", "decode": True, "resize": (16, 16), "shuffle": True, "seed": 1}


def rows() -> Iterator[dict[str, Any]]:
    """Noise with a bright square in one of four corners."""
    rng = np.random.default_rng(0)
    for i in range(800):
        image = rng.integers(0, 128, (16, 16, 3), np.uint8)
        y, x = rng.integers(0, 4, 2) + np.multiply(8, divmod(i % 4, 2))
        image[y : y + 5, x : x + 5] += 60
        yield {"id": i, "image": image, "label": CORNERS[i % 4]}


def new_model() -> Any:
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    return model


class Stop(keras.callbacks.Callback):
    """Ends a run after so many batches, as a cluster may do at any time, and counts those of the epoch."""

    def __init__(self, after: int | None) -> None:
        super().__init__()
        self.left, self.used = after, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.used = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.used += 1
        if self.left is not None:
            self.left -= 1
            self.model.stop_training = self.left == 0


def train(folder: Path, stop_after: int | None = None) -> None:
    """Train until the end, or for `stop_after` batches; a run that was stopped before is resumed."""
    data = rk.open(folder / "data")
    position, weights = folder / "reader.json", folder / "model.keras"
    model, state, first_epoch = new_model(), None, 0
    if position.exists():
        model = keras.saving.load_model(weights)  # the optimizer is in it
        state = json.loads(position.read_text())
        first_epoch = state["epoch"]

    stop = Stop(stop_after)
    for epoch in range(first_epoch, EPOCHS):
        # One epoch a call: Keras takes all epochs of a call to be as long as the first, which may be a rest.
        batches = data["train"].to_keras(32, epoch=epoch, state=state, **READING)
        # rekord shuffles, so Keras need not.
        fit = {"initial_epoch": epoch, "epochs": epoch + 1, "shuffle": False, "verbose": 0}
        history = model.fit(batches, callbacks=[stop], **fit)
        if stop.left == 0:
            model.save(weights)
            position.write_text(json.dumps(batches.state_after(stop.used)))  # which records come next
            print(f"stopped in epoch {epoch} after {stop_after} steps")
            return
        print(f"epoch {epoch}: loss {history.history['loss'][0]:.3f} in {stop.used} steps")
        state = None

    held_out = data["val"].to_keras(32, **{**READING, "shuffle": False})
    accuracy = float(model.evaluate(held_out, verbose=0, return_dict=True)["accuracy"])
    print(f"validation accuracy: {accuracy:.3f}")


def main(folder: Path) -> None:
    parts = {"train": 0.8, "val": 0.2}
    rk.write(rows(), folder / "data", schema=SCHEMA, split=parts, stratify="label", progress=False)
    train(folder, stop_after=30)
    train(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1] if sys.argv[1:] else made))

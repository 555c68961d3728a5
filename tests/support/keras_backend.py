"""What Keras does with `to_keras` on one backend, as JSON: run with KERAS_BACKEND, and the folder of the datasets.

On backends other than TensorFlow any import of TensorFlow fails, so nothing here can depend on it.
"""

from __future__ import annotations

import importlib.abc
import json
import os
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import keras
import numpy as np

import rekord as rk

BACKEND = os.environ["KERAS_BACKEND"]


class RefuseTensorFlow(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "tensorflow":
            raise ImportError("TensorFlow is refused here")


if BACKEND != "tensorflow":
    # Keras has not imported it. torch looks for it while it is imported itself, so it is refused from here on.
    assert "tensorflow" not in sys.modules
    sys.meta_path.insert(0, RefuseTensorFlow())

ORDER: dict[str, Any] = {"shuffle": True, "seed": 3}
FOLDER = Path(sys.argv[1])
SPLIT = rk.open(FOLDER / "points")["train"]


def to_list(values: Any) -> Any:
    return keras.ops.convert_to_numpy(values).tolist()


class Net(keras.Model):  # type: ignore[misc]
    """Records the batches that it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.batches: list[list[float]] = []

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs["point"])

    def train_step(self, *arguments: Any) -> Any:
        self.batches.append(to_list(arguments[-1][0]["extra"]))
        return super().train_step(*arguments)

    def fit(self, *given: Any, **options: Any) -> list[list[float]]:
        self.batches.clear()
        super().fit(*given, verbose=0, **options)
        return list(self.batches)


def make_net(*, built: bool) -> Net:
    net = Net()
    net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    if built:
        net({"point": np.zeros((1, 2), np.float32), "extra": np.zeros(1, np.float32)})
    return net


def report_orders() -> dict[str, Any]:
    """The batches of several calls of `fit`, with a model that is built before or not."""
    found: dict[str, Any] = {}
    for built in (True, False):
        for shuffle in (True, False):
            net, dataset = make_net(built=built), SPLIT.to_keras(50, x=["point", "extra"], **ORDER)
            held_out = SPLIT.to_keras(50, x=["point", "extra"])
            first = net.fit(dataset, epochs=3, validation_data=held_out, shuffle=shuffle)
            second = net.fit(dataset, epochs=1, shuffle=shuffle)
            net.evaluate(dataset, verbose=0)
            third = net.fit(dataset, epochs=2, shuffle=shuffle)
            found[f"{'built' if built else 'new'} {shuffle}"] = [first, second, third]
    return found


def report_steps() -> dict[str, Any]:
    """Fewer steps than an epoch has: Keras reads on, and a second `fit` begins another epoch."""
    found: dict[str, Any] = {}
    for steps, shuffle in product((1, 2), (False, True)):
        net, dataset = make_net(built=False), SPLIT.to_keras(50, x=["point", "extra"], **ORDER)
        taken = net.fit(dataset, epochs=4 // steps, steps_per_epoch=steps, shuffle=shuffle)
        found[f"{steps} {shuffle}"] = taken
    again = net.fit(dataset, epochs=1, steps_per_epoch=2, shuffle=False)
    return {**found, "again": again}


def make_model(*, outputs: int = 2) -> Any:
    """A linear model with fixed weights."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(outputs)])
    model.set_weights([np.linspace(-1, 1, 2 * outputs).reshape(2, outputs), np.zeros(outputs)])
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def report_losses() -> dict[str, float]:
    """The loss of one batch with all records, with every kind of weights."""
    model, asked = make_model(), {"x": "point", "shuffle": True}

    def loss(fit: dict[str, Any] | None = None, **options: Any) -> float:
        dataset = SPLIT.to_keras(1000, **asked, **options)
        return float(model.fit(dataset, verbose=0, shuffle=False, **(fit or {})).history["loss"][0])

    return {
        "plain": loss(),
        "column": loss(sample_weight="weight"),
        "balanced": loss(class_weight="balanced"),
        "named": loss(class_weight={"above": 3.0}),
        "both": loss(class_weight={1: 3.0}, sample_weight="weight"),
        "of fit": loss(fit={"class_weight": {0: 1.0, 1: 3.0}}),
        "evaluated": float(model.evaluate(SPLIT.to_keras(64, x="point", sample_weight="weight"), verbose=0)[0]),
    }


def report_structures() -> dict[str, Any]:
    """Several inputs and outputs, by name and by position."""
    point, extra = keras.Input((2,), name="place"), keras.Input((), name="more")
    joined = keras.layers.Concatenate()([point, keras.layers.Reshape((1,))(extra)])
    outputs = {
        "class": keras.layers.Dense(2, name="class")(joined),
        "size": keras.layers.Dense(1, name="size")(joined),
    }
    named = keras.Model({"place": point, "more": extra}, outputs)
    ordered = keras.Model([point, extra], [outputs["class"], outputs["size"]])
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.losses.MeanSquaredError()]
    named.compile("sgd", dict(zip(outputs, losses, strict=True)))
    ordered.compile("sgd", losses)
    by_name = {"x": {"place": "point", "more": "extra"}, "y": {"class": "label", "size": "weight"}}
    by_position = {"x": ("point", "extra"), "y": ("label", "weight")}
    pairs = ((named, by_name), (ordered, by_position))
    losses_of = [
        [float(model.evaluate(SPLIT.to_keras(1000, **asked, **more), verbose=0)[0]) for model, asked in pairs]
        for more in ({}, {"sample_weight": "weight"})
    ]
    for model, asked in pairs:
        model.fit(SPLIT.to_keras(50, **asked), verbose=0, shuffle=False)
    return {"losses": losses_of, "steps": [int(model.optimizer.iterations) for model, _ in pairs]}


def report_images() -> dict[str, Any]:
    """Images that are decoded and resized, with several labels each, trained with a sigmoid."""
    split = rk.open(FOLDER / "images")["train"]
    dataset = split.to_keras(4, x="image", decode=True, resize=(6, 5), remainder="drop")
    model = keras.Sequential([keras.Input((6, 5, 3)), keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(dataset, epochs=2, verbose=0, shuffle=False)
    image, tags = next(iter(dataset))
    return {"steps": int(model.optimizer.iterations), "image": to_list(image), "tags": to_list(tags)}


def report_predictions() -> dict[str, Any]:
    model = make_model()
    predicted = model.predict(SPLIT.to_keras(50, x="point", y=[]), verbose=0)
    gzipped = rk.open(FOLDER / "points.tfrecord.gz", SPLIT.schema)
    streamed = model.predict(gzipped.to_keras(50, x="point", y=[]), verbose=0)
    return {"predicted": predicted.tolist(), "streamed": streamed.tolist()}


def report_iteration() -> dict[str, Any]:
    dataset = SPLIT.to_keras(50, x="extra", **ORDER)
    peeked = to_list(next(iter(dataset))[0])
    passes = [[to_list(extra) for extra, _ in dataset] for _ in range(2)]
    broken = [to_list(extra) for (extra, _), _ in zip(dataset, range(3), strict=False)][:3]
    rest = SPLIT.to_keras(50, x="extra", **ORDER, state=dataset.state_after(7))
    found = {
        "peeked": peeked,
        "passes": passes,
        "broken": broken,
        "after": to_list(next(iter(dataset))[0]),
        "rest": [to_list(extra) for extra, _ in rest],
        "length": len(dataset),
        "rest length": len(rest),
        "dropped": [len(part) for part, _ in SPLIT.to_keras(50, x="extra", remainder="drop")],
        "padded": [len(part) for part, _ in SPLIT.to_keras(50, x="extra", remainder="pad")],
    }
    if BACKEND != "tensorflow":
        found["again"] = code(lambda: next(iter(rest)))
        found["indexed"] = [to_list(dataset[i][0]) for i in (2, 0, 2, 0)]
        found["workers"] = code(lambda: setattr(dataset, "workers", 4))
        found["processes"] = code(lambda: setattr(dataset, "use_multiprocessing", True))
        found["outside"] = code(lambda: dataset[99])
        found["repr"] = repr(dataset)
        dataset.workers, dataset.use_multiprocessing = 1, False
    return found


def code(act: Any) -> list[str | None]:
    """The code, feature and advice of an error."""
    try:
        act()
    except rk.RekordError as failure:
        return [failure.code, failure.location.feature, failure.do]
    return [None, None, None]


def report_refusals() -> dict[str, Any]:
    split = rk.open(FOLDER / "odd")["train"]
    found = {
        name: code(lambda name=name: split.to_keras(4, x=name, y="number"))
        for name in split.schema
        if name != "number"
    }
    found["text as y"] = code(lambda: split.to_keras(4, x="number", y="text"))
    found["images"] = code(lambda: split.to_keras(4, x="image", y="number", decode=True))
    found["ops"] = code(lambda: split.to_keras(4, x="number", y=[], mode="ops"))
    found["large"] = code(lambda: list(split.to_keras(4, x="large", y="number")))
    filled = split.to_keras(4, x=["maybe", "ragged"], y="number", fill={"maybe": 7}, ragged="pad")
    x, y = next(iter(filled))
    found["filled"] = [to_list(x["maybe"]), to_list(x["ragged"]), to_list(y)]
    return found


warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="jax|torch|tensorflow|keras")
report: dict[str, Any] = {
    "backend": keras.backend.backend(),
    "is_dataset": isinstance(SPLIT.to_keras(4), keras.utils.PyDataset),
    "predictions": report_predictions(),
    "iteration": report_iteration(),
    "refusals": report_refusals(),
}
if BACKEND in ("torch", "jax"):  # test_feed_keras.py tests them on TensorFlow
    report["orders"] = report_orders()
    report["steps"] = report_steps()
if BACKEND != "numpy":  # where Keras does not train
    report["losses"] = report_losses()
    report["structures"] = report_structures()
    report["images"] = report_images()
report["tensorflow"] = "tensorflow" in sys.modules
json.dump(report, sys.stdout)

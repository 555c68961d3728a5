"""`to_keras`: what Keras's `fit` takes, and training that learns, and goes on where it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import rekord as rk

ROWS = 203
SCHEMA = rk.Schema(
    {
        "point": rk.Float32((2,)),
        "extra": rk.Float32(),
        "label": rk.Label(["below", "above"]),
        "weight": rk.Float32(),
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points above and below a line, one in four above."""
    rng = np.random.default_rng(7)
    label = (np.arange(ROWS) % 4 == 0).astype(np.int64)
    point = rng.normal(size=(ROWS, 2)).astype(np.float32)
    point[:, 0] += np.where(label, 3, -3)
    columns = {
        "point": point,
        "extra": np.arange(ROWS, dtype=np.float32),
        "label": label,
        "weight": np.arange(ROWS, dtype=np.float32) / ROWS,
    }
    out = tmp_path_factory.mktemp("data") / "set"
    rk.write(columns, out, schema=SCHEMA, shards=3, progress=False)
    return out


@pytest.fixture(scope="module")
def split(folder: Path) -> Any:
    return rk.open(folder)["train"]


def model() -> Any:
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(0.3), loss, metrics=["accuracy"])
    return net


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_fit_learns_over_several_epochs(split: Any, mode: Any) -> None:
    net = model()
    dataset = split.to_keras(32, x="point", shuffle=True, mode=mode)
    assert int(dataset.cardinality()) == 7
    history = net.fit(dataset, epochs=4, verbose=0, shuffle=False).history
    assert history["accuracy"][-1] > 0.95
    assert int(net.optimizer.iterations) == 28
    assert net.evaluate(split.to_keras(50, x="point"), verbose=0)[1] > 0.95


class Seen:
    """Watches which batches a model is trained on."""

    def __init__(self, *, built: bool) -> None:
        self.batches: list[list[float]] = []

        class Net(keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(2)

            def call(self, inputs: Any) -> Any:
                return self.dense(inputs["point"])

            def train_step(net, data: Any) -> Any:
                self.batches.append(data[0]["extra"].numpy().tolist())
                return super().train_step(data)

        self.net = Net()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.net.compile("sgd", loss, run_eagerly=True)
        if built:
            self.net({"point": np.zeros((1, 2), np.float32), "extra": np.zeros(1, np.float32)})

    def fit(self, *given: Any, **options: Any) -> list[list[float]]:
        """The batches of one `fit`."""
        self.batches.clear()
        self.net.fit(*given, verbose=0, shuffle=False, **options)
        return list(self.batches)


ORDER: dict[str, Any] = {"shuffle": True, "seed": 3}


def epochs_of(split: Any, *numbers: int) -> list[list[float]]:
    return [
        batch["extra"].tolist()
        for number in numbers
        for batch in split.batches(50, columns=["extra"], epoch=number, **ORDER)
    ]


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
def test_fit_trains_on_every_epoch_whole_and_in_order(split: Any, built: bool) -> None:
    seen = Seen(built=built)
    dataset = split.to_keras(50, x=["point", "extra"], **ORDER)
    held_out = split.to_keras(50, x=["point", "extra"])
    # Keras takes a first batch to build a model that is not built; that uses no epoch up.
    assert seen.fit(dataset, epochs=3, validation_data=held_out) == epochs_of(split, 0, 1, 2)
    assert seen.fit(dataset, epochs=1) == epochs_of(split, 3)
    seen.net.evaluate(dataset, verbose=0)
    assert seen.fit(dataset, epochs=2) == epochs_of(split, 5, 6)


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
def test_fit_with_fewer_steps_than_an_epoch_goes_through_all_of_it(split: Any, built: bool) -> None:
    seen = Seen(built=built)
    dataset = split.to_keras(50, x=["point", "extra"], **ORDER)
    # Keras keeps its iterator, and reads on where it stopped.
    found = seen.fit(dataset.repeat(), epochs=5, steps_per_epoch=2)
    assert found == epochs_of(split, 0, 1)


def test_a_custom_loop_that_breaks_off_sees_another_epoch_each_time(split: Any) -> None:
    dataset = split.to_keras(50, x="extra", **ORDER)
    for epoch in range(3):
        some = [extra.numpy().tolist() for (extra, _), _ in zip(dataset, range(3), strict=False)]
        assert some[:3] == epochs_of(split, epoch)[:3]


def test_the_only_label_is_y_and_all_else_is_x(split: Any) -> None:
    spec = split.to_keras(4, remainder="drop").element_spec
    assert list(spec[0]) == ["extra", "point", "weight"] or list(spec[0]) == ["point", "extra", "weight"]
    assert spec[1] == tf.TensorSpec([4], tf.int64)
    one = split.to_keras(4, x="point", sample_weight="weight").element_spec
    assert [part.shape.rank for part in one] == [2, 1, 1]
    assert "weight" not in split.to_keras(4, sample_weight="weight").element_spec[0]
    several = split.to_keras(4, x=["point"], y=["label", "extra"]).element_spec
    assert [sorted(part) for part in several] == [["point"], ["extra", "label"]]
    assert len(split.to_keras(4, x="point", y=[]).element_spec) == 1


def test_weights_are_those_of_classes_and_samples(split: Any) -> None:
    balanced = split.class_weights(by="label")
    assert balanced[1] == pytest.approx(ROWS / (2 * 51))
    for asked, of_class in (
        ("balanced", balanced),
        ({"above": 3.0}, {0: 1.0, 1: 3.0}),
        ({1: 2}, {0: 1.0, 1: 2.0}),
    ):
        dataset = split.to_keras(50, x="point", class_weight=asked, sample_weight="weight")
        for (_, label, weight), batch in zip(dataset, split.batches(50), strict=True):
            own = np.array([of_class[int(one)] for one in batch["label"]], np.float32)
            np.testing.assert_array_equal(weight.numpy(), own * batch["weight"])
            np.testing.assert_array_equal(label.numpy(), batch["label"])
    alone = next(iter(split.to_keras(50, x="point", class_weight="balanced")))[2]
    assert set(alone.numpy()) == {np.float32(weight) for weight in balanced.values()}
    net = model()
    net.fit(
        split.to_keras(32, x="point", class_weight="balanced", shuffle=True),
        epochs=3,
        verbose=0,
        shuffle=False,
    )
    assert net.evaluate(split.to_keras(50, x="point"), verbose=0)[1] > 0.95


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"y": "lable"}, "S116"),
        ({"x": "points"}, "S116"),
        ({"x": 3}, "U605: `x` cannot be 3"),
        ({"y": "extra", "class_weight": "balanced"}, "U676: `class_weight` requires a single label as `y`"),
        ({"y": [], "class_weight": "balanced"}, "U676: `class_weight` requires a single label as `y`"),
        ({"class_weight": "even"}, "U676: `class_weight` is not valid"),
        ({"class_weight": {"sideways": 1.0}}, "U676: `class_weight` is not valid"),
        ({"class_weight": {2: 1.0}}, "U676: `class_weight` is not valid"),
        ({"class_weight": {0: -1.0}}, "U676: `class_weight` is not valid"),
        ({"class_weight": {0: float("nan")}}, "U676: `class_weight` is not valid"),
        ({"x": []}, "U676: `x` names no column"),
        ({"x": "point", "y": [], "sample_weight": "weight"}, "U676: `sample_weight` requires `y`"),
        (
            {"x": "sum", "map": lambda batch: {"label": batch["label"]}},
            "U676: function for `map` does not return column 'sum'",
        ),
        (
            {"x": "point", "map": lambda batch: {"point": batch["point"]}},
            "U676: `y` is required: no column is declared as rk.Label",
        ),
        (
            {
                "x": "point",
                "class_weight": "balanced",
                "map": lambda batch: batch | {"label": batch["label"] / 2},
            },
            "U676: `class_weight` requires class ids, and the function for",
        ),
    ],
)
def test_parts_that_cannot_be_told_are_refused(split: Any, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(rk.RekordError) as caught:
        split.to_keras(4, **asked)
    assert str(caught.value).startswith(code)


def summed(batch: Any) -> Any:
    return {"sum": batch["point"].sum(1), "label": batch["label"], "weight": batch["weight"] * 2}


def test_columns_that_a_function_makes_can_be_named(split: Any) -> None:
    asked: dict[str, Any] = {"x": "sum", "sample_weight": "weight", "class_weight": {1: 3.0}}
    for dataset in (split.to_keras(50, map=summed, **asked), split.map(summed).to_keras(50, **asked)):
        for (total, label, weight), batch in zip(dataset, split.batches(50, map=summed), strict=True):
            np.testing.assert_array_equal(total.numpy(), batch["sum"])
            np.testing.assert_array_equal(label.numpy(), batch["label"])
            own = np.where(batch["label"] == 1, np.float32(3), np.float32(1))
            np.testing.assert_array_equal(weight.numpy(), own * batch["weight"])


def test_weights_that_may_be_missing_must_be_filled(tmp_path: Path) -> None:
    schema = rk.Schema({"a": rk.Label(2), "x": rk.Int64(), "w": rk.Float32(optional=True), "t": rk.Text()})
    with rk.Writer(tmp_path / "x.tfrecord", schema) as writer:
        writer.write({"a": 1, "x": 2, "t": "t"})
    split = rk.open(tmp_path / "x.tfrecord", schema)
    for name, do in (("w", "fill={'w': 1}"), ("t", "name a numeric column")):
        with pytest.raises(rk.UsageError) as caught:
            split.to_keras(4, x="x", sample_weight=name)
        assert (caught.value.code, caught.value.what, caught.value.location.feature) == (
            "U676",
            "`sample_weight` requires a number for every record",
            name,
        )
        assert caught.value.do == do
    batch = next(iter(split.to_keras(4, x="x", sample_weight="w", fill={"w": 1})))
    assert [part.numpy().tolist() for part in batch] == [[2], [1], [1.0]]


def test_without_one_label_y_must_be_named(tmp_path: Path) -> None:
    for name, schema in (
        ("none", rk.Schema({"a": rk.Int64(), "b": rk.Int64()})),
        ("two", rk.Schema({"a": rk.Label(2), "b": rk.Label(2)})),
        ("alone", rk.Schema({"a": rk.Label(2)})),
    ):
        path = tmp_path / f"{name}.tfrecord"
        with rk.Writer(path, schema) as writer:
            writer.write(dict.fromkeys(schema, 1))
        with pytest.raises(rk.UsageError) as caught:
            rk.open(path, schema).to_keras(4)
        assert caught.value.code == "U676"
        assert caught.value.what in (
            "`y` is required: no column is declared as rk.Label",
            "`y` is required: 2 columns are declared as rk.Label",
            "no column is left for `x`",
        )


TRAINING = """
import json, os, signal, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
import rekord as rk

def train(folder, kept, until):
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(0.3), loss)
    state, done = None, 0
    if os.path.exists(kept + ".json"):
        saved = json.load(open(kept + ".json"))
        state, done = saved["state"], saved["done"]
        net.set_weights([np.array(part, np.float32) for part in saved["weights"]])
    split = rk.open(folder)["train"]

    class Keep(keras.callbacks.Callback):
        def __init__(self, dataset, done):
            super().__init__()
            self.dataset, self.done, self.seen = dataset, done, 0
        def on_train_batch_end(self, batch, logs=None):
            self.seen += 1
            weights = [part.astype(float).tolist() for part in net.get_weights()]
            done = self.done + self.seen
            saved = {"state": self.dataset.state_after(self.seen), "done": done, "weights": weights}
            with open(kept + ".tmp", "w") as file:
                json.dump(saved, file)
            os.replace(kept + ".tmp", kept + ".json")
            if done == int(until):
                os.kill(os.getpid(), signal.SIGKILL)

    def fit(begin, end, **where):
        nonlocal done
        dataset = split.to_keras(32, x="point", shuffle=True, seed=5, **where)
        keep = Keep(dataset, done)
        net.fit(dataset, initial_epoch=begin, epochs=end, verbose=0, shuffle=False, callbacks=[keep])
        done += keep.seen

    epoch = 0
    if state is not None:
        fit(state["epoch"], state["epoch"] + 1, state=state)  # the rest of that epoch
        epoch = state["epoch"] + 1
    fit(epoch, 3, epoch=epoch)

for kept, until in zip(sys.argv[2::2], sys.argv[3::2]):
    train(sys.argv[1], kept, until)
"""


def train(folder: Path, *runs: tuple[Path, int]) -> int:
    """Train once for each place and number of steps, after which the process is killed, in one process."""
    arguments = [str(part) for run in runs for part in run]
    command = [sys.executable, "-W", "error::UserWarning", "-c", TRAINING, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.concurrency
def test_killed_and_resumed_training_reaches_the_same_weights(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "killed"  # in the middle of the second epoch
    assert train(folder, (tmp_path / "whole", -1), (kept, 10)) == -signal.SIGKILL
    assert json.loads(Path(f"{kept}.json").read_text())["done"] == 10
    assert train(folder, (kept, -1)) == 0
    whole, resumed = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "killed"))
    assert resumed["done"] == whole["done"] == 21
    assert resumed["weights"] == whole["weights"]
    assert resumed["state"] == whole["state"]
    assert os.path.getsize(f"{kept}.json") < 4096


def test_the_rest_of_an_epoch_is_not_taken_for_the_length_of_all(split: Any) -> None:
    """Keras would cut later epochs to the length of the first."""
    whole = split.to_keras(32, x="point", shuffle=True)
    rest = split.to_keras(32, x="point", shuffle=True, state=whole.state_after(10))
    assert int(rest.cardinality()) == 4
    assert len(list(rest)) == 4
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(rest)
    assert "UsageError U609: resumed epoch 1 is over" in caught.value.message
    assert int(split.to_keras(32, x="point", shuffle=True, state=whole.state_after(14)).cardinality()) == 7


@pytest.mark.parametrize(
    ("feature", "value", "asked"),
    [
        (rk.Text(), "no", {"y": "churned"}),
        (rk.Bytes(), b"no", {"y": "churned"}),
        (rk.Text(optional=True), "no", {"y": "churned"}),
        (rk.Text(shape=(None,)), ["no"], {"y": "churned"}),
        (rk.Text(), "no", {"y": "churned", "class_weight": "balanced"}),
        (rk.Text(), "no", {"y": ["age", "churned"]}),
    ],
)
def test_text_as_the_target_names_the_command_that_makes_it_a_label(
    tmp_path: Path, feature: Any, value: Any, asked: dict[str, Any]
) -> None:
    schema = rk.Schema({"age": rk.Float32(), "churned": feature})
    rows = [{"age": float(i), "churned": value} for i in range(3)]
    split = rk.write(rows, tmp_path / "data", schema=schema, workers=1, progress=False)["train"]
    with pytest.raises(rk.UsageError) as caught:
        split.to_keras(2, x="age", **asked)
    failure = caught.value
    assert (failure.code, failure.location.feature) == ("U676", "churned")
    assert failure.what == "`churned` is text, and a loss needs class ids"
    assert failure.do == f"rekord write {tmp_path / 'data'} OUT --label churned, and use OUT"


@pytest.mark.parametrize("single", [True, False], ids=["file", "folder"])
def test_the_command_that_makes_a_label_of_text_works(tmp_path: Path, single: bool) -> None:
    schema = rk.Schema({"age": rk.Float32(), "churned": rk.Text()})
    rows = [{"age": float(i), "churned": ["no", "yes"][i % 2]} for i in range(4)]
    if single:
        with rk.Writer(tmp_path / "x.tfrecord", schema) as writer:
            for row in rows:
                writer.write(row)
        split = rk.open(tmp_path / "x.tfrecord", schema)["all"]
    else:
        split = rk.write(rows, tmp_path / "my data", schema=schema, workers=1, progress=False)["train"]
    with pytest.raises(rk.UsageError) as caught:
        split.to_keras(2)  # the last column is proposed
    assert caught.value.what == "`y` is required: no column is declared as rk.Label"
    assert caught.value.found == "`age` Float32, `churned` Text"
    command = str(caught.value.do).removesuffix(", and use OUT").replace(" OUT ", f" {tmp_path / 'out'} ")
    subprocess.run(f"{sys.executable} -m {command} -q", shell=True, check=True, capture_output=True)
    labelled = rk.open(tmp_path / "out")
    x, y = next(iter(labelled.to_keras(4)))
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


def test_images_of_different_sizes_are_refused_before_training(tmp_path: Path) -> None:
    rows = [{"image": np.zeros((8 + i, 9, 3), np.uint8), "label": i % 2} for i in range(4)]
    schema = rk.Schema({"image": rk.Image(format="png"), "label": rk.Label(2)})
    split = rk.write(rows, tmp_path / "data", schema=schema, workers=1, progress=False)["train"]
    with pytest.raises(rk.UsageError) as refused:
        split.to_keras(2, decode=True)
    assert (refused.value.code, refused.value.location.feature, refused.value.do) == (
        "U676",
        "image",
        "resize=(224, 224)",
    )
    x, _ = next(iter(split.to_keras(2, decode=True, resize=(4, 4))))
    assert x.shape == (2, 4, 4, 3)

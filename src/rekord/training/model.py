"""The baseline models on Keras: build, train and save."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error
from rekord.training.inputs import BatchEncoder, InputSpec, TrainingStep
from rekord.training.result import StepTotals
from rekord.training.task import Task

BACKENDS = ("tensorflow", "torch", "jax")
_BACKEND_VARIABLE = "KERAS_BACKEND"


def load_keras(backend: str | None = None) -> Any:
    """Keras on the given backend, on that of KERAS_BACKEND, or on the first one installed."""
    wanted = backend if backend is not None else os.environ.get(_BACKEND_VARIABLE) or None
    if wanted is not None and wanted not in BACKENDS:
        found = wanted[:60] if backend is not None else f"{_BACKEND_VARIABLE}={wanted[:60]}"
        what = f"unknown backend {wanted[:60]!r}"
        raise error("U677", what, expected=", ".join(BACKENDS), found=found, do='backend="tensorflow"')
    if "keras" in sys.modules:
        return _find_loaded_keras(wanted)
    chosen = wanted or next((name for name in BACKENDS if find_spec(name)), None)
    if chosen is None or find_spec(chosen) is None:
        raise _missing_package_error(chosen or "tensorflow")
    if find_spec("keras") is None:
        raise _missing_package_error("keras")
    os.environ[_BACKEND_VARIABLE] = chosen
    # Without TensorFlow's messages about the processor and its own start.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return _check_keras(_import_keras(chosen))


def _find_loaded_keras(wanted: str | None) -> Any:
    keras = _check_keras(sys.modules["keras"])
    running = keras.backend.backend()
    if wanted not in (None, running):
        raise error(
            "U677",
            f"Keras already runs on {running} in this process",
            expected=f"{wanted}",
            found=f"{running}: Keras was imported before",
            do=f"set {_BACKEND_VARIABLE}={wanted} before importing Keras or TensorFlow, or use `rekord train`",
        )
    return keras


def _import_keras(backend: str) -> Any:
    try:
        return import_module("keras")
    except ImportError as failure:
        raise error(
            "U677",
            f"Keras cannot be imported on {backend}",
            expected=f"keras 3 and {backend}",
            found=str(failure).split("\n", 1)[0][:60],
            do=f"pip install --upgrade keras {backend}",
        ) from failure


def _check_keras(keras: Any) -> Any:
    version = str(getattr(keras, "__version__", "0"))
    if not hasattr(keras, "ops"):
        raise error(
            "U677",
            "training needs Keras 3",
            expected="keras 3 or newer",
            found=f"keras {version[:20]}",
            do="pip install --upgrade keras",
        )
    return keras


def _missing_package_error(package: str) -> RekordError:
    return error(
        "U602",
        f"training needs {package}, which is not installed",
        expected=f"package {package}",
        found="not installed",
        do="pip install 'rekord[tensorflow]'"
        if package in ("tensorflow", "keras")
        else f"pip install 'rekord[{package},keras]'",
    )


_MOMENTUM = 0.7  # of batch normalisation: a run may have only a few hundred steps, and the first ones say little
_MIN_SIDE = 8  # images are halved until they are about this small
_WIDTHS = (16, 32, 64, 96, 128)
_MAX_EMBEDDING = 64
_HIDDEN_UNITS = 64


def build_model(keras: Any, encoder: BatchEncoder, seed: int) -> Any:
    """The model for a task: from inputs by name to one logit per class (and pixel), or to a number."""
    task, builder = encoder.task, _ModelBuilder(keras, seed)
    if task.kind == "segmentation":
        return builder.build_segmentation(encoder.specs["image"], len(task.classes))
    inputs = {name: keras.Input(spec.shape, name=name, dtype=spec.dtype) for name, spec in encoder.specs.items()}
    joined = builder.joined(inputs, encoder)
    if task.kind == "regression":
        number = builder.dense(1, None)(joined)
        # The model predicts in the target's own unit.
        output = keras.layers.Rescaling(encoder.target_std, encoder.target_mean)(number)
    else:
        output = builder.dense(len(task.classes), None)(joined)
    return keras.Model(inputs, output)


def describe_model(task: Task) -> str:
    """The kind of model, in a few words."""
    if task.kind == "segmentation":
        return "small encoder–decoder"
    if "image" in task.forms:
        return "small CNN"
    if task.forms & {"text", "tokens"}:
        return "embedding + pooling" + (" + numbers" if task.forms & {"numbers", "category"} else "")
    return "MLP with normalisation"


class _ModelBuilder:
    """Layers initialised with consecutive seeds."""

    def __init__(self, keras: Any, seed: int) -> None:
        self._keras = keras
        self._layers = keras.layers
        self._seed = seed * 1_000

    def joined(self, inputs: Mapping[str, Any], encoder: BatchEncoder) -> Any:
        """All inputs as one vector."""
        vectors = [self._vector(tensor, encoder.specs[name], encoder) for name, tensor in inputs.items()]
        joined = vectors[0] if len(vectors) == 1 else self._layers.Concatenate()(vectors)
        if all(spec.form == "image" for spec in encoder.specs.values()):
            return joined
        for _ in range(2):
            joined = self.dense(_HIDDEN_UNITS, "relu")(joined)
        return joined

    def build_segmentation(self, spec: InputSpec, classes: int) -> Any:
        """Downsampling by halves, and upsampling with skip connections."""
        inputs = self._keras.Input(spec.shape, name="image", dtype=spec.dtype)
        x = self._rescale(inputs, spec)
        skipped, widths = [], _WIDTHS[: self._count_halvings(spec, most=3)]
        for width in widths:
            x = self._convolve(self._convolve(x, width), width)
            skipped.append(x)
            x = self._layers.MaxPooling2D()(x)
        x = self._convolve(x, _WIDTHS[len(widths)])
        for width, skip in zip(reversed(widths), reversed(skipped), strict=True):
            x = self._layers.UpSampling2D()(x)
            x = self._convolve(self._layers.Concatenate()([x, skip]), width)
        return self._keras.Model({"image": inputs}, self._convolution(classes, 1)(x))

    def dense(self, width: int, activation: str | None) -> Any:
        return self._layers.Dense(width, activation=activation, kernel_initializer=self._next_initializer())

    def _vector(self, tensor: Any, spec: InputSpec, encoder: BatchEncoder) -> Any:
        layers = self._layers
        if spec.form == "image":
            return self._image(tensor, spec)
        if spec.form == "numbers":
            return layers.Normalization(mean=encoder.numbers.mean, variance=encoder.numbers.variance)(tensor)  # type: ignore[union-attr]
        width = min(_MAX_EMBEDDING, max(2, round(spec.size**0.5)))
        embedding = layers.Embedding(
            spec.size,
            width if spec.form == "category" else _MAX_EMBEDDING,
            mask_zero=spec.form != "category",
            embeddings_initializer=self._keras.initializers.RandomUniform(-0.05, 0.05, seed=self._next_seed()),
        )(tensor)
        return layers.Flatten()(embedding) if spec.form == "category" else layers.GlobalAveragePooling1D()(embedding)

    def _image(self, tensor: Any, spec: InputSpec) -> Any:
        x = self._rescale(tensor, spec)
        for width in _WIDTHS[: self._count_halvings(spec, most=4)]:
            x = self._layers.MaxPooling2D()(self._convolve(x, width))
        x = self._convolve(x, _WIDTHS[-1])
        # The maximum as well as the mean: an object may fill a small part of the image.
        means = self._layers.GlobalAveragePooling2D()(x)
        return self._layers.Concatenate()([means, self._layers.GlobalMaxPooling2D()(x)])

    def _rescale(self, tensor: Any, spec: InputSpec) -> Any:
        if spec.dtype != "uint8":
            return tensor
        return self._layers.Rescaling(1 / 127.5, -1.0)(tensor)

    def _convolve(self, tensor: Any, width: int) -> Any:
        x = self._convolution(width, 3, use_bias=False)(tensor)
        return self._layers.ReLU()(self._layers.BatchNormalization(momentum=_MOMENTUM)(x))

    def _convolution(self, width: int, side: int, *, use_bias: bool = True) -> Any:
        return self._layers.Conv2D(
            width, side, padding="same", use_bias=use_bias, kernel_initializer=self._next_initializer()
        )

    def _count_halvings(self, spec: InputSpec, *, most: int) -> int:
        halvings, side = 0, min(spec.shape[:2])
        while halvings < most and side >= 2 * _MIN_SIDE:
            halvings, side = halvings + 1, side // 2
        return halvings

    def _next_initializer(self) -> Any:
        return self._keras.initializers.GlorotUniform(seed=self._next_seed())

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed


Array: TypeAlias = "npt.NDArray[Any]"


class ModelTrainer:
    """A model with its optimizer. `weights` has one weight per class, if classes are weighted."""

    def __init__(
        self, keras: Any, encoder: BatchEncoder, *, seed: int, learning_rate: float, weights: Array | None
    ) -> None:
        self._keras = keras
        self._encoder = encoder
        self._seed = seed
        self.learning_rate = learning_rate
        self.weights = None if weights is None else weights.astype(np.float32)
        self._model = build_model(keras, encoder, seed)
        task = encoder.task
        if task.kind == "regression":
            self._tally = keras.metrics.MeanAbsoluteError(name="error")
            loss = _make_squared_error(keras, encoder.target_std)
        elif task.kind == "multilabel":
            self._tally = _make_label_counter(keras, len(task.classes))
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
        else:
            self._tally = _make_class_counter(keras, len(task.classes), task.ignore)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=task.ignore)
        self._model.compile(
            optimizer=keras.optimizers.Adam(learning_rate),
            loss=loss,
            metrics=[self._tally],
            # Whole-program compilation takes longer on small models than it saves; JAX requires it.
            jit_compile=keras.backend.backend() == "jax",
        )
        # Otherwise its variables are created at the first step, long after a checkpoint is read.
        self._model.optimizer.build(self._model.trainable_variables)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return int(sum(np.prod(variable.shape, dtype=np.int64) for variable in self._model.trainable_variables))

    @property
    def variables(self) -> list[Any]:
        """All variables that change during training."""
        return [*self._model.variables, *self._model.optimizer.variables]

    def train(self, step: TrainingStep, totals: StepTotals) -> float:
        """Train on one step, and add its loss and counts to the totals."""
        self._model.reset_metrics()
        is_regression = self._encoder.task.kind == "regression"
        targets = step.y[:, None] if is_regression else step.y
        weights = self._step_weights(step)
        metrics = self._model.train_on_batch(step.x, targets, sample_weight=weights, return_dict=True)
        loss, learned = float(metrics["loss"]), step.rows
        totals.rows += step.rows
        if is_regression:
            totals.error += float(metrics["error"]) * step.rows
            totals.blind_error += float(np.abs(step.y - self._encoder.target_mean).sum())
        else:
            counts = variable_to_numpy(self._tally.counts).reshape(3, -1).astype(np.int64)
            totals.by_class += counts
            if self._encoder.task.kind != "multilabel":
                learned = int(counts[1].sum())  # for masks: the pixels that are not ignored
        totals.loss += loss * learned
        totals.weight += learned
        return loss

    def predict(self, step: TrainingStep) -> Array:
        """The predictions of the model: logits, or numbers."""
        return np.asarray(self._model.predict_on_batch(step.x))

    def save(self, path: str) -> None:
        """Save the model in the Keras format, without the training state."""
        bare = build_model(self._keras, self._encoder, self._seed)
        bare.set_weights(self._model.get_weights())
        bare.save(path)

    def _step_weights(self, step: TrainingStep) -> Array | None:
        if self.weights is None:
            return None
        # The ignored id may not be a class; the loss skips it.
        return self.weights[np.minimum(step.y, len(self.weights) - 1)]


def variable_to_numpy(variable: Any) -> Array:
    """The value of a Keras variable, on any backend."""
    value = variable.value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _make_squared_error(keras: Any, unit: float) -> Any:
    def loss(true: Any, predicted: Any) -> Any:
        return keras.ops.mean(keras.ops.square((true - predicted) / unit), axis=-1)

    return loss


def _make_class_counter(keras: Any, classes: int, ignore: int | None) -> Any:
    """Counts per class for one step: correct predictions, occurrences, and predictions."""
    ops = keras.ops

    def count(y_true: Any, y_pred: Any) -> list[Any]:
        true = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        predicted = ops.reshape(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), (-1,))
        learned = ops.ones_like(true, dtype="float32")
        if ignore is not None:
            learned = ops.cast(true != ignore, "float32")
            true = ops.where(true == ignore, 0, true)
        right = learned * ops.cast(true == predicted, "float32")
        return [
            ops.segment_sum(values, ids, num_segments=classes)
            for values, ids in ((right, true), (learned, true), (learned, predicted))
        ]

    return _make_tally(keras, classes, count)


def _make_label_counter(keras: Any, classes: int) -> Any:
    """The same counts for targets with several classes per record; a class is predicted if its logit is above 0."""
    ops = keras.ops

    def count(y_true: Any, y_pred: Any) -> list[Any]:
        true, predicted = ops.cast(y_true, "float32"), ops.cast(y_pred > 0, "float32")
        return [ops.sum(part, axis=0) for part in (true * predicted, true, predicted)]

    return _make_tally(keras, classes, count)


def _make_tally(keras: Any, classes: int, count: Callable[[Any, Any], list[Any]]) -> Any:
    ops = keras.ops

    class Tally(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="tally")
            self.counts = self.add_weight(name="counts", shape=(3 * classes,), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.counts.assign_add(ops.concatenate(count(y_true, y_pred)))

        def result(self) -> Any:
            return ops.sum(self.counts)

    return Tally()

"""A Keras model that takes steps: what it loses, what it says, and all numbers that it consists of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.training.encoder import Encoder, Step
from rekord.training.models import build
from rekord.training.totals import Totals

Array: TypeAlias = "npt.NDArray[Any]"


class Learner:
    """A model with its optimizer. `weights` holds one weight a class, where classes are weighted."""

    def __init__(
        self, keras: Any, encoder: Encoder, *, seed: int, learning_rate: float, weights: Array | None
    ) -> None:
        self._keras = keras
        self._encoder = encoder
        self._seed = seed
        self.weights = None if weights is None else weights.astype(np.float32)
        self._model = build(keras, encoder, seed)
        task = encoder.task
        if task.kind == "regression":
            self._tally = keras.metrics.MeanAbsoluteError(name="error")
            loss = _squared_error(keras, encoder.target_std)
        else:
            self._tally = _tally(keras, len(task.classes), task.ignore)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=task.ignore)
        self._model.compile(
            optimizer=keras.optimizers.Adam(learning_rate),
            loss=loss,
            metrics=[self._tally],
            # Whole-program compilation takes longer on small models than it saves; JAX does not go without.
            jit_compile=keras.backend.backend() == "jax",
        )
        # Its variables are made at the first step otherwise, when a checkpoint has long been read.
        self._model.optimizer.build(self._model.trainable_variables)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return int(
            sum(np.prod(variable.shape, dtype=np.int64) for variable in self._model.trainable_variables)
        )

    @property
    def variables(self) -> list[Any]:
        """All that changes while the model learns."""
        return [*self._model.variables, *self._model.optimizer.variables]

    def train(self, step: Step, totals: Totals) -> float:
        """Take one step; its loss and counts are added to the totals."""
        self._model.reset_metrics()
        told = self._model.train_on_batch(
            step.x, self._targets(step), sample_weight=self._step_weights(step), return_dict=True
        )
        loss, learned = float(told["loss"]), step.rows
        totals.rows += step.rows
        if self._encoder.task.kind == "regression":
            totals.error += float(told["error"]) * step.rows
            totals.blind_error += float(np.abs(step.y - self._encoder.target_mean).sum())
        else:
            counts = numpy_of(self._tally.counts).reshape(3, -1).astype(np.int64)
            totals.by_class += counts
            learned = int(counts[1].sum())  # of masks: the pixels that are not ignored
        totals.loss += loss * learned
        totals.weight += learned
        return loss

    def said(self, step: Step) -> Array:
        """What the model says: logits, or numbers."""
        return np.asarray(self._model.predict_on_batch(step.x))

    def save(self, path: str) -> None:
        """Write the model as Keras loads it, without what only training needs."""
        bare = build(self._keras, self._encoder, self._seed)
        bare.set_weights(self._model.get_weights())
        bare.save(path)

    def _targets(self, step: Step) -> Array:
        return step.y[:, None] if self._encoder.task.kind == "regression" else step.y

    def _step_weights(self, step: Step) -> Array | None:
        if self.weights is None:
            return None
        # What is ignored has an id that may be no class; the loss leaves it out.
        known = np.minimum(step.y, len(self.weights) - 1)
        return self.weights[known]


def numpy_of(variable: Any) -> Array:
    """What a variable of Keras holds, on any backend."""
    value = variable.value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _squared_error(keras: Any, unit: float) -> Any:
    def loss(true: Any, said: Any) -> Any:
        return keras.ops.mean(keras.ops.square((true - said) / unit), axis=-1)

    return loss


def _tally(keras: Any, classes: int, ignore: int | None) -> Any:
    """Counts of each class, of one step: how often it was said rightly, is true, and was said."""
    ops = keras.ops

    class Tally(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="tally")
            self.counts = self.add_weight(name="counts", shape=(3 * classes,), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            true = ops.reshape(ops.cast(y_true, "int32"), (-1,))
            said = ops.reshape(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), (-1,))
            learned = ops.ones_like(true, dtype="float32")
            if ignore is not None:
                learned = ops.cast(true != ignore, "float32")
                true = ops.where(true == ignore, 0, true)
            right = learned * ops.cast(true == said, "float32")
            counts = [
                ops.segment_sum(values, ids, num_segments=classes)
                for values, ids in ((right, true), (learned, true), (learned, said))
            ]
            self.counts.assign_add(ops.concatenate(counts))

        def result(self) -> Any:
            return ops.sum(self.counts)

    return Tally()

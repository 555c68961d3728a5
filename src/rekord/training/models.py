"""The baselines: small models that learn in minutes, chosen by what goes in and what comes out.

They draw no random numbers while they train, and those that they begin with come from the seed alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rekord.training.encoder import Encoder, Spec
from rekord.training.task import Task

_MOMENTUM = 0.7  # of batch normalisation: a run may have some hundred steps, and the first ones say little
_LEAST_SIDE = 8  # pictures are halved until they are about so small
_WIDTHS = (16, 32, 64, 96, 128)
_MOST_EMBEDDED = 64
_HIDDEN = 64


def build(keras: Any, encoder: Encoder, seed: int) -> Any:
    """The model for a task: of its inputs by name, to one logit a class (and pixel), or to a number."""
    task, builder = encoder.task, _Builder(keras, seed)
    if task.kind == "segmentation":
        return builder.segmenting(encoder.specs["image"], len(task.classes))
    inputs = {
        name: keras.Input(spec.shape, name=name, dtype=spec.dtype) for name, spec in encoder.specs.items()
    }
    joined = builder.joined(inputs, encoder)
    if task.kind == "regression":
        number = builder.dense(1, None)(joined)
        # The model speaks in the target's own unit.
        output = keras.layers.Rescaling(encoder.target_std, encoder.target_mean)(number)
    else:
        output = builder.dense(len(task.classes), None)(joined)
    return keras.Model(inputs, output)


def describe(task: Task) -> str:
    """What kind of model it is, in a few words."""
    if task.kind == "segmentation":
        return "small encoder–decoder"
    if "image" in task.forms:
        return "small CNN"
    if task.forms & {"text", "tokens"}:
        return "embedding + pooling" + (" + numbers" if task.forms & {"numbers", "category"} else "")
    return "MLP with normalisation"


class _Builder:
    """Layers whose first weights come from seeds in a row."""

    def __init__(self, keras: Any, seed: int) -> None:
        self._keras = keras
        self._layers = keras.layers
        self._seed = seed * 1_000

    def joined(self, inputs: Mapping[str, Any], encoder: Encoder) -> Any:
        """All inputs as one vector."""
        vectors = [self._vector(tensor, encoder.specs[name], encoder) for name, tensor in inputs.items()]
        joined = vectors[0] if len(vectors) == 1 else self._layers.Concatenate()(vectors)
        if all(spec.form == "image" for spec in encoder.specs.values()):
            return joined
        for _ in range(2):
            joined = self.dense(_HIDDEN, "relu")(joined)
        return joined

    def segmenting(self, spec: Spec, classes: int) -> Any:
        """Down by halves, and up again, with what was seen on the way down beside it."""
        inputs = self._keras.Input(spec.shape, name="image", dtype=spec.dtype)
        x = self._scaled(inputs, spec)
        seen, widths = [], _WIDTHS[: self._halvings(spec, most=3)]
        for width in widths:
            x = self._convolved(self._convolved(x, width), width)
            seen.append(x)
            x = self._layers.MaxPooling2D()(x)
        x = self._convolved(x, _WIDTHS[len(widths)])
        for width, beside in zip(reversed(widths), reversed(seen), strict=True):
            x = self._layers.UpSampling2D()(x)
            x = self._convolved(self._layers.Concatenate()([x, beside]), width)
        return self._keras.Model({"image": inputs}, self._convolution(classes, 1)(x))

    def dense(self, width: int, activation: str | None) -> Any:
        return self._layers.Dense(width, activation=activation, kernel_initializer=self._first_weights())

    def _vector(self, tensor: Any, spec: Spec, encoder: Encoder) -> Any:
        layers = self._layers
        if spec.form == "image":
            return self._image(tensor, spec)
        if spec.form == "numbers":
            return layers.Normalization(mean=encoder.mean, variance=encoder.variance)(tensor)
        width = min(_MOST_EMBEDDED, max(2, round(spec.size**0.5)))
        embedding = layers.Embedding(
            spec.size,
            width if spec.form == "category" else _MOST_EMBEDDED,
            mask_zero=spec.form != "category",
            embeddings_initializer=self._keras.initializers.RandomUniform(
                -0.05, 0.05, seed=self._next_seed()
            ),
        )(tensor)
        return (
            layers.Flatten()(embedding)
            if spec.form == "category"
            else layers.GlobalAveragePooling1D()(embedding)
        )

    def _image(self, tensor: Any, spec: Spec) -> Any:
        x = self._scaled(tensor, spec)
        for width in _WIDTHS[: self._halvings(spec, most=4)]:
            x = self._layers.MaxPooling2D()(self._convolved(x, width))
        x = self._convolved(x, _WIDTHS[-1])
        # The strongest answer beside the mean one: an object may fill a small part of the picture.
        means = self._layers.GlobalAveragePooling2D()(x)
        return self._layers.Concatenate()([means, self._layers.GlobalMaxPooling2D()(x)])

    def _scaled(self, tensor: Any, spec: Spec) -> Any:
        if spec.dtype != "uint8":
            return tensor
        return self._layers.Rescaling(1 / 127.5, -1.0)(tensor)

    def _convolved(self, tensor: Any, width: int) -> Any:
        x = self._convolution(width, 3, use_bias=False)(tensor)
        return self._layers.ReLU()(self._layers.BatchNormalization(momentum=_MOMENTUM)(x))

    def _convolution(self, width: int, side: int, *, use_bias: bool = True) -> Any:
        return self._layers.Conv2D(
            width, side, padding="same", use_bias=use_bias, kernel_initializer=self._first_weights()
        )

    def _halvings(self, spec: Spec, *, most: int) -> int:
        halvings, side = 0, min(spec.shape[:2])
        while halvings < most and side >= 2 * _LEAST_SIDE:
            halvings, side = halvings + 1, side // 2
        return halvings

    def _first_weights(self) -> Any:
        return self._keras.initializers.GlorotUniform(seed=self._next_seed())

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed

"""`split.to_tensorflow(…)`: a split as a tf.data.Dataset; native mode, with batches that rekord decodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

from rekord.arguments import one_of
from rekord.codec.images.decode import ImageColumnDecoder
from rekord.dataset.batches import BatchRequest
from rekord.dataset.options import BatchOptions
from rekord.dataset.postprocess import Postprocessor
from rekord.errors import RekordError, error
from rekord.feeds.feed import import_package, make_empty_batch
from rekord.feeds.tensorflow.columns import (
    DenseForm,
    ImageForm,
    MaskedForm,
    RaggedForm,
    TensorForm,
    infer_form,
    infer_mapped_forms,
    pad_form,
    validate_mapped_batch,
)
from rekord.feeds.tensorflow.eager import EagerEpoch, make_dataset_class
from rekord.feeds.tensorflow.epochs import EpochTracker
from rekord.feeds.tensorflow.groups import GroupReader
from rekord.feeds.tensorflow.packing import BatchPacking
from rekord.schema import Feature, Tensor

if TYPE_CHECKING:
    from rekord.dataset.split import Split


_MAX_PREFETCH = 1024
"""More prefetched batches would only take memory."""

_MAX_GRAPH_BATCH_ROWS = 256
_MAX_GRAPH_GROUP_BATCHES = 32
"""The graph copies a group to separate its batches, which costs more for larger ones."""

_MAX_EAGER_GROUP_ROWS = 2048


def build_native_dataset(
    tf: Any,
    request: BatchRequest,
    state: Mapping[str, Any] | None,
    *,
    one_length: bool,
    forms: Mapping[str, TensorForm] | None = None,
) -> Any:
    """The dataset of a request, resumed from a state; `forms` if they are known already.

    It has a cardinality if the length is known without reading. With `one_length` it always has one, and all
    iterations have that length: Keras remembers the first, and would truncate later epochs to it. So a state in the
    middle of an epoch is then valid only for the rest of that epoch.
    """
    request = fix_image_dtypes(request)
    epochs = EpochTracker(request, state, one_length=one_length)
    is_mapped = has_map(request)
    forms = determine_forms(request) if forms is None else forms
    packing = BatchPacking.of(forms)
    # Functions and images may take long, and a group is passed when its last batch is complete.
    is_quick = request.transform is None and request.images is None and not is_mapped
    is_grouped = bool(request.prefetch) and is_quick and packing.has_fixed_shapes
    in_graph = is_grouped and request.batch_size <= _MAX_GRAPH_BATCH_ROWS and not packing.has_wide_rows
    reader = partial(GroupReader, packing, validate=partial(validate_mapped_batch, forms) if is_mapped else None)
    graph_reader = reader(packing.pack, most=_MAX_GRAPH_GROUP_BATCHES if in_graph else 1)
    pipeline = partial(_build_pipeline, tf, epochs, graph_reader, is_mapped=is_mapped)
    start_eagerly = None
    if packing.has_fixed_shapes:

        def split(arrays: list[Any], batches: int, rows: int, begin: int = 0) -> list[tuple[Any, ...]]:
            with tf.device("CPU:0"):  # where tf.data has its elements
                return packing.split_eagerly(tf, packing.pack(arrays, batches, rows, begin, by_batch=True))

        def unpack(tensors: tuple[Any, ...]) -> dict[str, Any]:
            with tf.device("CPU:0"):
                return packing.unpack_eagerly(tf, tensors)

        most = max(1, _MAX_EAGER_GROUP_ROWS // request.batch_size) if is_grouped else 1
        start_eagerly = partial(EagerEpoch, tf, epochs, reader(split, most=most).read, unpack, pipeline)
    dataset = pipeline()
    if one_length or (not epochs.resumed and (request.shards.counted or not request.streams)):
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(epochs.first_steps))
    return make_dataset_class(tf)(dataset, epochs.state_after, start_eagerly)


def _build_pipeline(
    tf: Any,
    epochs: EpochTracker,
    reader: GroupReader,
    position: tuple[int, int] | None = None,
    delivered: int = 0,
    *,
    is_mapped: bool,
) -> Any:
    """The dataset as a pipeline of tf.data: the epochs in turn, or one from a position on."""
    request, packing = epochs.request, reader.packing
    # A short last batch or a function may change the number of rows.
    rows = None if is_mapped or request.remainder == "keep" else request.batch_size

    def batches() -> Iterator[tuple[Any, ...]]:
        try:
            begin = epochs.position() if position is None else position
            for group, begun in epochs.run(reader.read, *begin, delivered=delivered):
                for piece in group.pieces:
                    yield piece.to_tensors(begun)
                    begun = 0
        except RekordError as failure:
            # TensorFlow keeps only the text of Python exceptions, and reports all but ValueErrors as unknown.
            raise ValueError(failure.message) from failure

    def report(begun: Any) -> Any:
        return tf.numpy_function(epochs.advance, [begun], [], stateful=True)

    # Only after all prefetching is it known which batches were delivered.
    def deliver(*tensors: Any) -> Any:
        begun, _, columns = packing.unpack(tf, tensors, rows)
        tf.cond(begun > 0, lambda: report(begun), tf.no_op)
        return columns

    def deliver_group(*tensors: Any) -> Any:
        begun, count, columns = packing.unpack(tf, tensors, None)

        def reported(columns: Any) -> Any:
            report(begun)
            return columns

        def stack(column: Any) -> Any:
            each = tf.shape(column, tf.int64)[0] // count if rows is None else rows
            return tf.reshape(column, [count, each, *column.shape[1:]])

        group = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(stack, columns))
        # Only the first batch of a group reports: a function call for each would cost more than the batch.
        first = tf.cast(begun > 0, tf.int64)
        return group.take(first).map(reported).concatenate(group.skip(first))

    dataset = tf.data.Dataset.from_generator(batches, output_signature=packing.signature(tf))
    if request.prefetch:
        dataset = dataset.prefetch(min(request.prefetch, _MAX_PREFETCH))
    dataset = dataset.flat_map(deliver_group) if reader.most > 1 else dataset.map(deliver)
    options = tf.data.Options()
    # A prefetch after `delivered` would count batches that were not delivered yet.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def has_map(request: BatchRequest) -> bool:
    """Whether a function makes the columns of a request."""
    return isinstance(request.finish, Postprocessor) and request.finish.map is not None


def fix_image_dtypes(request: BatchRequest) -> BatchRequest:
    """The request with images decoded to the dtype that the schema declares, whatever the images are."""
    if not isinstance(request.images, ImageColumnDecoder):
        return request
    return replace(request, images=replace(request.images, one_dtype=True))


def determine_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of all columns: by the schema, or by a trial of the function that makes them."""
    return infer_mapped_forms(request) if has_map(request) else plan_forms(request)


def plan_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of all columns, by the schema and the options for missing values, ragged rows and images."""
    plan = request.plan()
    columns = make_empty_batch(plan).items()
    forms = {
        name: _shaped_tensor_form(plan.schema[name], name in plan.schema.steps)
        or infer_form(column, optional=plan.schema[name].optional)
        for name, column in columns
    }
    if isinstance(request.images, ImageColumnDecoder):
        decoded = request.images(make_empty_batch(plan))
        for name in request.images.features:
            form = infer_form(decoded[name], optional=False)
            forms[name] = form if request.images.resize else _allow_any_image_size(form)
    if isinstance(request.finish, Postprocessor):
        for name, form in forms.items():
            inner = form.values if isinstance(form, MaskedForm) else None
            if name in request.finish.fill and isinstance(inner, DenseForm) and inner.dtype is not None:
                form = inner
            forms[name] = form if request.finish.pad is None else pad_form(form)
    return forms


def _shaped_tensor_form(feature: Feature, in_steps: bool) -> TensorForm | None:
    """The form of a tensor that is stored with its shape; None for other features."""
    if not isinstance(feature, Tensor) or not feature.stores_shape:
        return None
    levels = 1 + max(axis for axis, size in enumerate(feature.shape) if size is None)
    after: tuple[int, ...] = feature.shape[levels:]  # type: ignore[assignment]
    form: TensorForm = ImageForm(np.dtype(feature.dtype), after, levels)
    form = RaggedForm(form) if in_steps else form
    return MaskedForm(form) if feature.optional else form


def _allow_any_image_size(form: TensorForm) -> TensorForm:
    """The form of images that keep their sizes, from that of a batch in which all had one size."""
    if isinstance(form, MaskedForm):
        return MaskedForm(_allow_any_image_size(form.values))
    if isinstance(form, RaggedForm):
        return RaggedForm(_allow_any_image_size(form.values))
    if not isinstance(form, DenseForm) or form.dtype not in ("uint8", "uint16"):
        return form  # samples of audio
    return ImageForm(form.dtype, form.shape[2:])  # type: ignore[arg-type]


Mode: TypeAlias = Literal["native", "ops"]


def to_tensorflow(
    split: Split,
    batch_size: int,
    *,
    mode: Mode,
    state: Mapping[str, Any] | None,
    one_length: bool = False,
    call: str = "`to_tensorflow`",
    **options: Unpack[BatchOptions],
) -> Any:
    """The dataset in one of the two modes; `one_length` as for native mode."""
    one_of("mode", mode, ("native", "ops"))
    shuffle = options.get("shuffle", False)
    if mode == "ops":
        from rekord.feeds.tensorflow.ops import validate_ops_options

        validate_ops_options(options, state)
        options["shuffle"] = False
    request = split.request(batch_size, **options)
    if not request.plan().columns:
        raise error(
            "U605",
            "tf.data.Dataset requires at least one column",
            expected="at least one column",
            found="columns=[]" if options.get("columns") is not None else "a schema without columns",
            do="omit `columns`, or name one",
        )
    tf = import_package("tensorflow", call, "'rekord[tensorflow]'")
    if mode == "native":
        return build_native_dataset(tf, request, state, one_length=one_length)
    from rekord.feeds.tensorflow.ops import build_ops_dataset

    return build_ops_dataset(tf, request, shuffle=bool(shuffle), seed=options.get("seed", 0), one_length=one_length)

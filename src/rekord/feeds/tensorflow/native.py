"""`split.to_tensorflow(…)`: a split as a tf.data.Dataset; native mode, with batches that rekord decodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from rekord.arguments import integer, one_of
from rekord.codec.columns import Batch
from rekord.codec.images.decode import ImageColumnDecoder
from rekord.dataset.batches import BatchReader, BatchRequest, LoaderState, read_batches
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
from rekord.feeds.tensorflow.packing import BatchPacking, count_bytes

if TYPE_CHECKING:
    from rekord.dataset.split import Split


_MAX_PREFETCH = 1024
"""More prefetched batches would only take memory."""

_MAX_GROUPED_ROWS = 256
_MAX_GROUP_BATCHES = 32
_MAX_GROUP_BYTES = 1 << 20
"""Passing a small batch to TensorFlow costs more than decoding it, so several are passed at a time. Splitting a group
copies it, which costs more for larger batches."""


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
    epochs = EpochTracker(request, state, one_length=one_length)
    is_mapped = has_map(request)
    forms = determine_forms(request) if forms is None else forms
    packing = BatchPacking.of(forms)
    # A short last batch or a function may change the number of rows.
    rows = None if is_mapped or request.remainder == "keep" else request.batch_size
    # Functions and images may take long, and a group is passed when its last batch is complete.
    is_quick = request.transform is None and request.images is None and not is_mapped
    is_small = request.batch_size <= _MAX_GROUPED_ROWS
    is_grouped = bool(request.prefetch) and is_quick and is_small and packing.is_stackable

    def batches() -> Iterator[tuple[Any, ...]]:
        return _pack_batches(epochs.run(), packing, is_mapped=is_mapped, most=_MAX_GROUP_BATCHES if is_grouped else 1)

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
    dataset = dataset.flat_map(deliver_group) if is_grouped else dataset.map(deliver)
    if one_length or (not epochs.resumed and (request.shards.counted or not request.streams)):
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(epochs.first_steps))
    options = tf.data.Options()
    # A prefetch after `delivered` would count batches that were not delivered yet.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    dataset.state_after = epochs.state_after
    return dataset


class EpochTracker:
    """The epoch of the next iteration: the one after the last epoch with more than its first batch delivered.

    So peeking at the first batch, as Keras does to build a model before it trains, does not use up an epoch.
    """

    def __init__(self, request: BatchRequest, state: Mapping[str, Any] | None, *, one_length: bool = False) -> None:
        epoch, consumed = request.epoch, 0
        if state is not None:
            loaded = LoaderState.from_dict(state)
            request, epoch, consumed = request.resume(loaded), loaded.epoch, loaded.consumed
        self.request = request
        self._one_length = one_length
        self._lock = Lock()
        # Keras rejects an epoch without batches: a state at the end of an epoch becomes the start of the next.
        ended = consumed > 0 and not len(request.steps(consumed))
        self.begin = (epoch + 1, 0) if ended else (epoch, consumed)  # the first epoch, and the position in it
        self._epoch, self._consumed = self.begin

    @property
    def resumed(self) -> bool:
        """Whether the first epoch is shorter than those that follow."""
        return self.begin[1] > 0

    @property
    def first_steps(self) -> int:
        """The number of batches in the first iteration."""
        return len(self.request.steps(self.begin[1]))

    def run(self) -> Iterator[tuple[Batch, int]]:
        """One iteration: each batch, with the number of epochs begun, if that changes.

        An epoch counts as begun with its second batch, or its only one.
        """
        with self._lock:
            epoch, consumed = self._epoch, self._consumed
        if self._one_length:
            self.check_epoch(epoch)
        # Not closed when TensorFlow drops this generator: that is a finalizer, which must not wait.
        reading = read_batches(self.request, epoch, consumed)
        for number, (batch, last) in enumerate(_flag_last_batch(reading)):
            yield batch, epoch + 1 if number == 1 or (number == 0 and last) else 0

    def check_epoch(self, epoch: int) -> None:
        """Raise if this is an epoch after a first one that was only the rest of an epoch."""
        if not self.resumed or epoch == self.begin[0]:
            return
        raise error(
            "U609",
            f"resumed epoch {self.begin[0]} is over",
            expected="one iteration over a dataset that starts in the middle of an epoch",
            found="a second iteration",
            do=f"create another dataset for the following epochs: to_keras(…, epoch={epoch})",
        )

    def advance(self, begun: int) -> None:
        """Note that `begun` epochs have begun; concurrent loops may both report it."""
        with self._lock:
            if int(begun) > self._epoch:
                self._epoch, self._consumed = int(begun), 0

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state after `batches` batches, counted from the dataset's first one, across epochs.

        Pass it as `state=`, or to `load_state_dict` of any other feed of the same split and order. Count the batches
        that you used: TensorFlow prefetches.
        """
        left = integer("batches", batches, least=0)
        epoch, consumed = self.begin
        steps = self.request.steps(consumed)
        while left >= len(steps) > 0:
            left -= len(steps)
            epoch, consumed = epoch + 1, 0
            steps = self.request.steps(0)
            if left >= len(steps) > 0:
                epoch, left = epoch + left // len(steps), left % len(steps)
        consumed = steps.consumed_after(left - 1) if left and len(steps) else consumed
        return self.request.state(epoch, consumed).to_dict()


def _flag_last_batch(reading: BatchReader[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether it is the last; an error is raised after the batch before it."""
    failure: RekordError | None = None
    held: Batch | None = None
    while True:
        try:
            coming: Batch | None = next(reading)[0]
        except StopIteration:
            coming = None
        except RekordError as raised:
            coming, failure = None, raised
        if held is not None:
            yield held, coming is None and failure is None
        if coming is None:
            break
        held = coming
    reading.close()
    if failure is not None:
        raise failure


def _pack_batches(
    numbered: Iterator[tuple[Batch, int]], packing: BatchPacking, *, is_mapped: bool, most: int
) -> Iterator[tuple[Any, ...]]:
    """Packed groups of up to `most` batches of one size. One that reports an epoch is the first of its group.

    The first groups are small, so that the first batches do not wait for many others.
    """
    group: list[list[Any]] = []
    limit, n_bytes, group_rows, note = 1, 0, 0, 0
    failure: RekordError | None = None
    while True:
        try:
            batch, begun = next(numbered)
            if is_mapped:
                validate_mapped_batch(packing.forms, batch)
            arrays, rows = packing.put(batch), len(next(iter(batch.values())))
        except StopIteration:
            break
        except RekordError as raised:
            failure = raised  # after the batches before it
            break
        if group and (begun or rows != group_rows or len(group) >= limit or n_bytes >= _MAX_GROUP_BYTES):
            yield packing.pack(group, rows=group_rows, note=note)
            group, n_bytes, limit = [], 0, min(2 * limit, most)
        if not group:
            group_rows, note = rows, begun
        group.append(arrays)
        n_bytes += count_bytes(arrays)
    if group:
        yield packing.pack(group, rows=group_rows, note=note)
    if failure is not None:
        # TensorFlow keeps only the text of Python exceptions, and reports all but ValueErrors as unknown.
        raise ValueError(failure.message)


def has_map(request: BatchRequest) -> bool:
    """Whether a function makes the columns of a request."""
    return isinstance(request.finish, Postprocessor) and request.finish.map is not None


def determine_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of all columns: by the schema, or by a trial of the function that makes them."""
    return infer_mapped_forms(request) if has_map(request) else plan_forms(request)


def plan_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of all columns, by the schema and the options for missing values, ragged rows and images."""
    plan = request.plan()
    columns = make_empty_batch(plan).items()
    forms = {name: infer_form(column, optional=plan.schema[name].optional) for name, column in columns}
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


def _allow_any_image_size(form: TensorForm) -> TensorForm:
    """The form of images that keep their sizes, from that of a batch in which all had one size."""
    if isinstance(form, MaskedForm):
        return MaskedForm(_allow_any_image_size(form.values))
    if isinstance(form, RaggedForm):
        return RaggedForm(_allow_any_image_size(form.values))
    assert isinstance(form, DenseForm)
    assert form.dtype is not None
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

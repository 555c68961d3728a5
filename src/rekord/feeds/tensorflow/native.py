"""`split.to_tensorflow(…)`: a split as a tf.data.Dataset; native mode, with batches that rekord decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from rekord import _core
from rekord.arguments import integer, invalid
from rekord.codec.columns import Batch, Column
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.images.decode import ImageColumnDecoder
from rekord.codec.plan import CodecPlan
from rekord.dataset.batches import BatchReader, BatchRequest, LoaderState, read_batches
from rekord.dataset.options import BatchOptions
from rekord.dataset.postprocess import Postprocessor
from rekord.errors import RekordError, error
from rekord.feeds.feed import import_framework
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
from rekord.feeds.tensorflow.packing import BatchPacking

if TYPE_CHECKING:
    from rekord.dataset.split import Split


_MAX_PREFETCH = 1024
"""More batches read ahead change nothing but the memory that they take."""


def build_native_dataset(tf: Any, request: BatchRequest, state: Mapping[str, Any] | None, *, one_length: bool) -> Any:
    """The dataset of a request, from a state on.

    Its length is told where it is known without reading. With `one_length` it always is, and all iterations have it:
    Keras remembers the first, and would cut later epochs to that. So a state in the middle of an epoch is then good
    for the rest of that epoch alone.
    """
    epochs = EpochTracker(request, state, one_length=one_length)
    is_mapped = isinstance(request.finish, Postprocessor) and request.finish.map is not None
    forms = infer_mapped_forms(request) if is_mapped else plan_forms(request)
    boundary = BatchPacking.of(forms)
    # Only what is not kept short has one length for sure; a function may have changed it too.
    rows = None if is_mapped or request.remainder == "keep" else request.batch_size

    def packed(batch: dict[str, Column], begun: int) -> tuple[Any, ...]:
        if is_mapped:
            validate_mapped_batch(forms, batch)
        return boundary.pack(batch, note=begun)

    def batches() -> Iterator[tuple[Any, ...]]:
        return epochs.run(packed)

    def delivered(*tensors: Any) -> Any:
        begun, columns = boundary.unpack(tf, tensors, rows)

        def advance() -> Any:
            return tf.numpy_function(epochs.advance, [begun], [], stateful=True)

        # Only here, after all that reads ahead, is it known which batches were delivered.
        tf.cond(begun > 0, advance, tf.no_op)
        return columns

    dataset = tf.data.Dataset.from_generator(batches, output_signature=boundary.signature(tf))
    if request.prefetch:
        dataset = dataset.prefetch(min(request.prefetch, _MAX_PREFETCH))
    dataset = dataset.map(delivered)
    if one_length or (not epochs.resumed and (request.shards.counted or not request.streams)):
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(epochs.first_steps))
    options = tf.data.Options()
    # A prefetch behind `delivered` would take batches for seen that nobody has seen yet.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    dataset.state_after = epochs.state_after
    return dataset


class EpochTracker:
    """Which epoch the next iteration is: the one after the last of which more than the first batch was delivered.

    So a look at the first batch, as Keras takes one to build a model before it trains, uses no epoch up.
    """

    def __init__(self, request: BatchRequest, state: Mapping[str, Any] | None, *, one_length: bool = False) -> None:
        epoch, consumed = request.epoch, 0
        if state is not None:
            loaded = LoaderState.from_dict(state)
            request, epoch, consumed = request.resume(loaded), loaded.epoch, loaded.consumed
        self._request = request
        self._one_length = one_length
        self._lock = Lock()
        # Keras takes no epoch without a batch: a state at the very end of an epoch is one at the start of the next.
        ended = consumed > 0 and not len(request.steps(consumed))
        self._begin = (epoch + 1, 0) if ended else (epoch, consumed)
        self._epoch, self._consumed = self._begin

    @property
    def resumed(self) -> bool:
        """Whether the first epoch is shorter than those that follow."""
        return self._begin[1] > 0

    @property
    def first_steps(self) -> int:
        """How many batches the first iteration has."""
        return len(self._request.steps(self._begin[1]))

    def run(self, packed: Callable[[dict[str, Column], int], tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """One iteration: the arrays of each batch, and how many epochs are begun with it, where that changes.

        With the second batch of an epoch, or its only one, it counts as begun.
        """
        with self._lock:
            epoch, consumed = self._epoch, self._consumed
        try:
            if self._one_length and self.resumed and epoch != self._begin[0]:
                raise self._ended(epoch)
            # Not closed here where TensorFlow lets go of this generator: that is a finalizer, which must not wait.
            reading = read_batches(self._request, epoch, consumed)
            for number, (batch, last) in enumerate(_flag_last_batch(reading)):
                yield packed(batch, epoch + 1 if last or number == 1 else 0)
        except RekordError as failure:
            # TensorFlow keeps the text alone of what Python raises, and calls all but ValueErrors unknown.
            raise ValueError(failure.message) from None

    def _ended(self, epoch: int) -> RekordError:
        return error(
            "U609",
            f"epoch {self._begin[0]} was gone on with, and is over",
            expected="one iteration over a dataset that begins in the middle of an epoch",
            found="another one",
            do=f"make another dataset for the epochs after it: to_keras(…, epoch={epoch})",
        )

    def advance(self, begun: int) -> None:
        """So many epochs were begun. Of two loops at once both say so."""
        with self._lock:
            if int(begun) > self._epoch:
                self._epoch, self._consumed = int(begun), 0

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state once so many batches were used, counted from the dataset's first, through all epochs.

        It is for `state=`, and for `load_state_dict` of any other feed of the same split and order. Only who uses the
        batches can count them: TensorFlow reads ahead.
        """
        left = integer("batches", batches, least=0)
        epoch, consumed = self._begin
        steps = self._request.steps(consumed)
        while left >= len(steps) > 0:
            left -= len(steps)
            epoch, consumed = epoch + 1, 0
            steps = self._request.steps(0)
            if left >= len(steps) > 0:
                epoch, left = epoch + left // len(steps), left % len(steps)
        return self._state(epoch, steps.consumed_after(left - 1) if left and len(steps) else consumed)

    def _state(self, epoch: int, consumed: int) -> dict[str, Any]:
        return self._request.state(epoch, consumed).to_dict()


def _flag_last_batch(reading: BatchReader[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether it is the last; a failure comes after the batch before it."""
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


def plan_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of all columns, by the schema and what becomes of holes, ragged rows and images."""
    plan = request.plan()
    forms = infer_schema_forms(plan)
    if isinstance(request.images, ImageColumnDecoder):
        decoded = request.images(make_empty_batch(plan))
        for name in request.images.features:
            form = infer_form(decoded[name], optional=False)
            forms[name] = form if request.images.resize else _allow_any_image_size(form)
    if isinstance(request.finish, Postprocessor):
        for name, form in forms.items():
            if name in request.finish.fill and isinstance(form, MaskedForm) and _is_fillable(form.values):
                form = form.values
            forms[name] = form if request.finish.pad is None else pad_form(form)
    return forms


def infer_schema_forms(plan: CodecPlan) -> dict[str, TensorForm]:
    """The forms of the wanted columns as they are decoded."""
    columns = make_empty_batch(plan).items()
    return {name: infer_form(column, optional=plan.schema[name].optional) for name, column in columns}


def make_empty_batch(plan: CodecPlan) -> dict[str, Column]:
    """A batch of no records: what columns are, without reading any."""
    return assemble_columns(plan, new_batch(plan, _core.Pool(0)).take(), 0)


def _is_fillable(form: TensorForm) -> bool:
    return isinstance(form, DenseForm) and form.dtype is not None


def _allow_any_image_size(form: TensorForm) -> TensorForm:
    """The form of images that keep their sizes, from that of one batch in which they were alike."""
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
    call: str = "to_tensorflow",
    **options: Unpack[BatchOptions],
) -> Any:
    """The dataset in one of the two modes; `one_length` as for native mode."""
    if mode not in ("native", "ops"):
        raise invalid("mode", mode, '"native" or "ops"', 'mode="native"')
    shuffle = options.get("shuffle", False)
    if mode == "ops":
        from rekord.feeds.tensorflow.ops import validate_ops_options

        validate_ops_options(options, state)
        options["shuffle"] = False
    request = split.request(batch_size, **options)
    if not request.plan().columns:
        raise error(
            "U605",
            "a tf.data.Dataset cannot have no columns",
            expected="a column at least",
            found="columns=[]" if options.get("columns") is not None else "a schema without columns",
            do="leave `columns` out, or name one",
        )
    tf = import_framework("tensorflow", call, "tensorflow")
    if mode == "native":
        return build_native_dataset(tf, request, state, one_length=one_length)
    from rekord.feeds.tensorflow.ops import build_ops_dataset

    return build_ops_dataset(tf, request, shuffle=bool(shuffle), seed=options.get("seed", 0), one_length=one_length)

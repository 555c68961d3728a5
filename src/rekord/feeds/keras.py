"""`split.to_keras(…)`: a split as inputs, labels and weights for Keras's `fit`, on any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from operator import index as to_index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

from rekord.arguments import invalid
from rekord.codec.columns import Batch
from rekord.dataset.balanced import make_label_command
from rekord.dataset.batches import BatchReader, read_batches
from rekord.dataset.options import BatchOptions, ClassShares
from rekord.errors import RekordError, error
from rekord.feeds.feed import Array, import_package, without_times
from rekord.feeds.tensorflow.columns import (
    DenseForm,
    ImageForm,
    MaskedForm,
    RaggedForm,
    SparseForm,
    TensorForm,
    describe_form,
    validate_mapped_batch,
)
from rekord.feeds.tensorflow.epochs import EpochTracker
from rekord.feeds.tensorflow.native import (
    Mode,
    build_native_dataset,
    determine_forms,
    fix_image_dtypes,
    has_map,
    to_tensorflow,
)
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.report.notebook import safe_repr
from rekord.schema import Feature, Image, Label, Schema
from rekord.schema.schema import shorten_name

if TYPE_CHECKING:
    from rekord.dataset.split import Split

ColumnNames: TypeAlias = "str | Sequence[str] | Mapping[str, str] | None"
AvailableColumns: TypeAlias = "Schema | Mapping[str, Any]"  # features by the names of columns
ClassWeight: TypeAlias = 'Literal["balanced"] | ClassShares | None'
Element: TypeAlias = "tuple[Any, ...]"
"""(x,), (x, y) or (x, y, weights)."""

_MAX_CLASSES = 1 << 20
_MAX_LISTED_COLUMNS = 8
_TARGET_NAMES = ("y", "label", "labels", "target", "class")


def to_keras(
    split: Split,
    batch_size: int,
    *,
    x: ColumnNames,
    y: ColumnNames,
    sample_weight: str | None,
    class_weight: ClassWeight,
    mode: Mode,
    state: Mapping[str, Any] | None,
    **options: Unpack[BatchOptions],
) -> Any:
    """What `fit` takes: a tf.data.Dataset on the TensorFlow backend, else a `keras.utils.PyDataset`."""
    schema = split.schema
    choose = partial(_KerasColumns.of, split=split, x=x, y=y, sample_weight=sample_weight)
    # What a function returns is known only after a trial, so it receives all columns.
    is_mapped = options.get("map") is not None or split.batch_map is not None
    chosen = None if is_mapped else choose(schema)
    table = None if chosen is None else _build_weight_table(split, schema, chosen.y.columns, class_weight)
    keras = _import_keras()
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if mode == "ops" and not on_tensorflow:
        raise _backend_error(keras)
    options["columns"] = None if chosen is None else chosen.columns
    if mode == "native":
        request = split.request(batch_size, **options)
    else:  # validates the options of this mode first
        dataset = to_tensorflow(
            split, batch_size, mode=mode, state=state, one_length=True, call="`to_keras`", **options
        )
        options["shuffle"] = False
        request = split.request(batch_size, **options)
    request = fix_image_dtypes(request)
    forms = determine_forms(request)
    if chosen is None:
        chosen = choose({name: schema.get(name) for name in forms})
        table = _build_weight_table(split, schema, chosen.y.columns, class_weight)
    _FormCheck(split, forms, is_mapped=is_mapped, on_tensorflow=on_tensorflow).run(
        chosen, with_classes=table is not None
    )
    if not on_tensorflow:
        narrow = _get_integer_check(keras)
        tracker = EpochTracker(request, state, one_length=True)
        convert = _BatchConverter(chosen, table, forms if has_map(request) else None, narrow)
        return _make_dataset_class(keras)(tracker, convert)
    tf = import_package("tensorflow", "`to_keras`", "'rekord[tensorflow]'")
    if mode == "native":
        dataset = build_native_dataset(tf, request, state, one_length=True, forms=forms)

    def parts(columns: dict[str, Any]) -> Element:
        return chosen.element(columns, lambda weights: tf.cast(weights, tf.float32), gather)

    def gather(ids: Any) -> Any:
        return None if table is None else tf.gather(tf.constant(table), ids)

    made = dataset.map(parts)
    if mode == "native":
        made.state_after = dataset.state_after
    return made


@dataclass(frozen=True, slots=True)
class _Structure:
    """Columns in the structure that a model takes: one alone, a tuple, or a dict by the `names` of inputs."""

    columns: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    is_tuple: bool = False

    def of(self, columns: Mapping[str, Any]) -> Any:
        values = [columns[name] for name in self.columns]
        if self.names is not None:
            return dict(zip(self.names, values, strict=True))
        return tuple(values) if self.is_tuple else values[0]


@dataclass(frozen=True, slots=True)
class _KerasColumns:
    """Which columns are inputs, labels and weights."""

    x: _Structure
    y: _Structure
    weight: str | None

    @classmethod
    def of(
        cls, known: AvailableColumns, *, split: Split, x: ColumnNames, y: ColumnNames, sample_weight: str | None
    ) -> _KerasColumns:
        weight = None if sample_weight is None else _validate_column(known, "sample_weight", sample_weight)
        labels = _resolve_labels(known, split) if y is None else _resolve_names(known, "y", y)
        inputs = _resolve_inputs(known, x, labels.columns, weight)
        if weight is not None and not labels.columns:
            what = "`sample_weight` requires `y`"
            expected = "y=…, the name of the target column"
            raise _keras_error(what, expected, "no `y`", "omit `sample_weight`, or name `y`", feature=weight)
        return cls(inputs, labels, weight)

    @property
    def columns(self) -> tuple[str, ...]:
        weight = () if self.weight is None else (self.weight,)
        return tuple(dict.fromkeys((*self.x.columns, *self.y.columns, *weight)))

    def element(
        self, columns: Mapping[str, Any], as_float: Callable[[Any], Any], weigh: Callable[[Any], Any]
    ) -> Element:
        """The parts of a batch; `weigh` returns the weights of class ids, or None."""
        given = self.x.of(columns)
        if not self.y.columns:
            return (given,)
        weight = None if self.weight is None else as_float(columns[self.weight])
        own = weigh(columns[self.y.columns[0]])
        if own is not None:
            weight = own if weight is None else weight * own
        wanted = self.y.of(columns)
        return (given, wanted) if weight is None else (given, wanted, weight)


@dataclass(frozen=True, slots=True)
class _BatchConverter:
    """Turns batches into what `fit` takes, as arrays."""

    chosen: _KerasColumns
    table: Array | None  # the weight of each class
    forms: Mapping[str, TensorForm] | None  # that a function must return
    narrow: Callable[[str, Array], Array]

    def __call__(self, batch: Batch) -> Element:
        if self.forms is not None:
            validate_mapped_batch(self.forms, batch)
        columns = {name: self._array(name, batch[name]) for name in self.chosen.columns}
        return self.chosen.element(columns, lambda weights: weights.astype(np.float32), self._weigh)

    def _array(self, name: str, column: Any) -> Array:
        array = self.narrow(name, without_times(column))
        # torch shares the memory of an array, and warns if it must not write to it.
        return array if array.flags.writeable else array.copy()

    def _weigh(self, ids: Array) -> Array | None:
        return None if self.table is None else self.table[ids]


class KerasBatches:
    """The batches of a split for `fit`, `evaluate` and `predict`: mixed into a `keras.utils.PyDataset`.

    Keras asks for batches by index, in any order: with `fit(shuffle=True)` in one drawn from Python's global random
    state. Whatever the index, the batches of an epoch come in rekord's order: the first index that is requested gets
    the first batch, and an index that is requested again gets the same batch again. So reading ahead works, and every
    pass over all indices has every record once.

    A completed epoch is followed by the next one. So is an unfinished one when another `fit` begins, unless only its
    first batch was taken, as Keras does to build a model.
    """

    def __init__(self, tracker: EpochTracker, convert: Callable[[Batch], Element]) -> None:
        super().__init__()
        self._tracker = tracker
        self._convert = convert
        self._epoch = tracker.begin[0]
        self._current: _EpochPass | None = None
        self._is_counted = False  # since the last batch

    def __len__(self) -> int:
        return self._tracker.first_steps

    @property
    def num_batches(self) -> int:
        """The number of batches per epoch."""
        self._is_counted = True
        return len(self)

    def __getitem__(self, index: int) -> Element:
        try:
            number = to_index(index)
        except TypeError:
            number = -1
        if not 0 <= number < len(self):
            raise invalid("index", index, f"an integer from 0 to {len(self) - 1:,}", "dataset[0]")
        if self._current is None:
            self._current = self._new_pass()
        self._is_counted = False
        batch = self._current(number)
        if self._current.delivered == len(self):
            self._leave()
        return batch

    def __iter__(self) -> Iterator[Element]:
        """A whole epoch, the next one each time; one that ends with its first batch of several does not count."""
        if self._current is not None:
            self._leave_unfinished()
        current, self._current = self._current or self._new_pass(), None
        for number in range(len(self)):
            batch = current(number)
            if number == 1 or len(self) == 1:
                self._epoch = current.epoch + 1
            yield batch
        current.close()

    def on_epoch_end(self) -> None:
        """Called by Keras after an epoch, which may have fewer steps, and when `fit` or `evaluate` begins."""
        # Only at the begin is the number of batches taken again just before. Within a `fit` Keras reads on.
        if self._is_counted and self._current is not None:
            self._leave_unfinished()

    @property
    def workers(self) -> int:
        """1: rekord reads ahead on threads of its own."""
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        _refuse_workers("workers", value, 1)

    @property
    def use_multiprocessing(self) -> bool:
        """False: rekord reads ahead on threads of its own."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        _refuse_workers("use_multiprocessing", value, False)

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state after `batches` batches, counted from the first one across epochs; resume with `state=`."""
        return self._tracker.state_after(batches)

    @safe_repr
    def __repr__(self) -> str:
        request = self._tracker.request
        facts = f"{format_count(len(self), 'step')} of {format_count(request.batch_size, 'row')}, epoch {self._epoch}"
        return f"KerasBatches of split {shorten_name(request.split)!r}: {facts}"

    def _new_pass(self) -> _EpochPass:
        self._tracker.check_epoch(self._epoch)
        return _EpochPass(self._tracker, self._epoch, self._convert)

    def _leave(self) -> None:
        """Go on to the next epoch."""
        current, self._current = self._current, None
        assert current is not None
        current.close()
        self._epoch = max(self._epoch, current.epoch + 1)

    def _leave_unfinished(self) -> None:
        """Go on to the next epoch; one of which only the first batch was taken begins again."""
        assert self._current is not None
        if self._current.delivered > 1:
            self._leave()
        else:
            self._current.begin_again()


class _EpochPass:
    """The batches of an epoch by the indices of Keras, read in rekord's order."""

    def __init__(self, tracker: EpochTracker, epoch: int, convert: Callable[[Batch], Element]) -> None:
        self.epoch = epoch
        self._request = tracker.request
        self._begin = tracker.begin[1] if epoch == tracker.begin[0] else 0
        self._steps = tracker.request.steps(self._begin)
        self._convert = convert
        self._numbers: dict[int, int] = {}  # of batches, by index
        self._reading: BatchReader[Batch] | None = None
        self._next = 0  # the number of the batch that is read next
        self._last: tuple[int, Element] | None = None

    @property
    def delivered(self) -> int:
        return len(self._numbers)

    def __call__(self, index: int) -> Element:
        number = self._numbers.get(index, len(self._numbers))
        if self._last is None or self._last[0] != number:
            self._last = number, self._convert(self._read(number))
        self._numbers[index] = number
        return self._last[1]

    def begin_again(self) -> None:
        """Forget the indices; the last batch is kept, and reading continues after it."""
        self._numbers.clear()

    def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.close()

    def _read(self, number: int) -> Batch:
        if self._reading is None or number != self._next:
            self.close()
            consumed = self._steps.consumed_after(number - 1) if number else self._begin
            self._reading, self._next = read_batches(self._request, self.epoch, consumed), number
        try:
            batch, _ = next(self._reading)
        except BaseException:
            self._reading = None  # a failed reader does not continue
            raise
        self._next += 1
        return batch


@cache
def _make_dataset_class(keras: Any) -> Callable[[EpochTracker, Callable[[Batch], Element]], Any]:
    return type("KerasBatches", (KerasBatches, keras.utils.PyDataset), {"__doc__": KerasBatches.__doc__})


def _refuse_workers(name: str, value: object, only: object) -> None:
    if value != only:
        raise error(
            "U605",
            f"`{name}` of a dataset from `to_keras` cannot be {repr(value)[:60]}",
            expected=f"{name}={only}: rekord reads and decodes ahead on its own threads",
            found=f"{name}={repr(value)[:60]}",
            do="to_keras(…, threads=4, prefetch=4)",
        )


def _import_keras() -> Any:
    """Keras; the error says which backend could be used."""
    if find_spec("keras") is None:
        return import_package("keras", "`to_keras`", "'rekord[keras]'")
    try:
        import keras
    except ImportError as failure:
        found = next((name for name in ("torch", "jax") if find_spec(name)), None)
        raise error(
            "U677",
            "Keras cannot be imported on its backend",
            expected="the package of the backend: tensorflow, unless KERAS_BACKEND names another one",
            found=str(failure).split("\n", 1)[0][:60],
            do=f'os.environ["KERAS_BACKEND"] = "{found}" before Keras is imported'
            if found is not None
            else "pip install 'rekord[tensorflow]'",
        ) from failure
    return keras


def _backend_error(keras: Any) -> RekordError:
    backend = keras.backend.backend()
    return error(
        "U605",
        'mode="ops" needs Keras on TensorFlow',
        expected='mode="native"',
        found=f"Keras on {backend}",
        do='mode="native"',
    )


def _get_integer_check(keras: Any) -> Callable[[str, Array], Array]:
    """A function that raises for integers which the backend would change: JAX uses 32 bits, and wraps silently."""
    if keras.backend.backend() != "jax":
        return lambda name, array: array
    from rekord.feeds.jax import narrow_integers

    return narrow_integers


def _resolve_labels(known: AvailableColumns, split: Split) -> _Structure:
    found = [name for name, feature in known.items() if feature is not None and feature.label_count is not None]
    if len(found) == 1:
        return _Structure((found[0],))
    what = f"{'no column is' if not found else f'{len(found)} columns are'} declared as rk.Label"
    proposed = (
        found[-1] if found else next((name for name in _TARGET_NAMES if name in known), ([*known] or ["label"])[-1])
    )
    do = f"to_keras(…, y={proposed!r})" + (", or another of them" if found else ", or y=[] for none")
    if proposed in known and _is_text(known[proposed]):
        do = make_label_command(split, proposed)
    raise _keras_error(
        f"`y` is required: {what}",
        "the name of the target column, or [] for none",
        _describe_columns(known, found or known),
        do,
    )


def _is_text(feature: Feature | None) -> bool:
    return feature is not None and feature.value_kind in ("str", "bytes") and not feature.is_image


def _resolve_inputs(
    known: AvailableColumns, x: ColumnNames, labels: tuple[str, ...], weight: str | None
) -> _Structure:
    if x is None:
        left = tuple([name for name in known if name not in labels and name != weight])
        inputs = _Structure(left, None if len(left) == 1 else left)
    else:
        inputs = _resolve_names(known, "x", x)
    if inputs.columns:
        return inputs
    others = (*labels, *([weight] if weight else []))
    call = "".join(
        [f", y={labels[0]!r}" if len(labels) == 1 else "", f", sample_weight={weight!r}" if weight else ""]
    )
    usable = next((name for name in known if name not in others), None)
    raise _keras_error(
        "no column is left for `x`" if x is None else "`x` names no column",
        "a column other than " + _join_names(others) if others else "a column",
        _describe_columns(known, known),
        f"to_keras(…, x={usable!r}{call})" if usable is not None else "write the data again with a column of inputs",
    )


def _resolve_names(known: AvailableColumns, argument: str, given: ColumnNames) -> _Structure:
    """One column, a tuple of columns, a list of columns (a dict by their names), or a dict of columns by input."""
    if isinstance(given, Mapping):
        names = tuple([_validate_key(argument, name, given) for name in given])
        return _Structure(tuple([_validate_column(known, argument, name) for name in given.values()]), names)
    several: tuple[Any, ...] = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    columns = tuple([_validate_column(known, argument, name) for name in several])
    if isinstance(given, tuple):
        return _Structure(columns, is_tuple=True)
    return _Structure(columns, columns if isinstance(given, list) else None)


def _validate_key(argument: str, name: object, given: object) -> str:
    if isinstance(name, str):
        return name
    raise invalid(
        argument, given, "names of columns by the names of the model's inputs", f'{argument}={{"a": "column"}}'
    )


def _validate_column(known: AvailableColumns, argument: str, name: object) -> str:
    do = f"{argument}={next(iter(known), 'label')!r}"
    if not isinstance(name, str):
        raise invalid(argument, name, "the name of a column", do)
    if isinstance(known, Schema):
        known[name]  # raises, with near misses, if it does not exist
    elif name not in known:
        what = f"function for `map` does not return column {name[:60]!r}"
        expected = "one of " + _join_names(known)
        raise _keras_error(what, expected, repr(name)[:60], f"return it from the function, or {do}", feature=name)
    return name


@dataclass(frozen=True)
class _FormCheck:
    """Refuses columns that cannot be trained on, before training."""

    split: Split
    forms: Mapping[str, TensorForm]
    is_mapped: bool
    on_tensorflow: bool

    def run(self, chosen: _KerasColumns, *, with_classes: bool) -> None:
        for name in chosen.y.columns:
            self._check_target(name)
        if chosen.weight is not None:
            self._check_weights(chosen.weight)
        if with_classes:
            self._check_classes(chosen.y.columns[0])
        for name in chosen.columns:
            if self.on_tensorflow:
                self._check_image_sizes(name)
            else:
                self._check_dense(name)

    def _check_image_sizes(self, name: str) -> None:
        """Keras's layers take no ragged tensors of images."""
        form = self.forms[name]
        if isinstance(form.values if isinstance(form, MaskedForm) else form, ImageForm):
            raise _keras_error(
                f"`{name}` has images of different sizes",
                "images of one size",
                describe_form(form)[:60],
                "resize=(224, 224)",
                feature=name,
            )

    def _check_target(self, name: str) -> None:
        form = self.forms[name]
        inner = form.values if isinstance(form, MaskedForm) else form
        feature = self.split.schema.get(name)
        if isinstance(inner, RaggedForm):
            inner = inner.values
        if isinstance(inner, DenseForm) and inner.dtype is None and (feature is None or not feature.is_image):
            raise _text_target_error(self.split, name, None if self.is_mapped else feature)

    def _check_weights(self, name: str) -> None:
        form = self.forms[name]
        if isinstance(form, DenseForm) and form.dtype is not None:
            return
        holes = isinstance(form, MaskedForm) and isinstance(form.values, DenseForm) and form.values.dtype is not None
        raise _keras_error(
            "`sample_weight` requires a number for every record",
            "a numeric column of one shape",
            "a column with missing values" if holes else "a column of another type",
            f"fill={{{name!r}: 1}}" if holes else "name a numeric column",
            feature=name,
        )

    def _check_classes(self, name: str) -> None:
        """Only a function can have turned a label into something other than one id per record."""
        form = self.forms[name]
        if isinstance(form, DenseForm) and form.dtype is not None and form.dtype.kind in "iu" and form.shape == ():
            return
        raise _keras_error(
            "`class_weight` requires class ids, and the function for `map` does not return them as `y`",
            "integers of shape (rows,)",
            describe_form(form)[:60],
            "omit `class_weight`, or return the ids from the function",
            feature=name,
        )

    def _check_dense(self, name: str) -> None:
        """Only TensorFlow has tensors of strings and of rows with different lengths."""
        form = self.forms[name]
        if isinstance(form, DenseForm) and form.dtype is not None:
            return
        inner = form.values if isinstance(form, MaskedForm) else form
        feature = self.split.schema.get(name)
        is_string = isinstance(inner, DenseForm) and inner.dtype is None
        if is_string and feature is not None and feature.is_image:
            what, do = "is encoded", "decode=True, resize=(224, 224)"
        elif is_string:
            images = [one for one, feature in self.split.schema.items() if isinstance(feature, Image)]
            what, do = "is text", f"turn it into ids with split.transform(…), or omit {name!r} from `x`"
            do = f"x={images[0]!r}" if len(images) == 1 else do
        elif isinstance(form, MaskedForm) and isinstance(inner, DenseForm):
            what, do = "has missing values", f"fill={{{name!r}: 0}}"
        elif isinstance(inner, ImageForm):
            what, do = "has images of different sizes", "resize=(224, 224)"
        elif isinstance(inner, SparseForm):
            what, do = "is sparse", f"map=lambda batch: {{**batch, {name!r}: batch[{name!r}].to_dense()}}"
        else:
            what, do = "has rows of different lengths", 'ragged="pad"'
        raise _keras_error(
            f"`{name}` {what}, which only the TensorFlow backend of Keras supports",
            "a dense column of numbers",
            describe_form(form)[:60],
            do,
            feature=name,
        )


def _build_weight_table(split: Split, schema: Schema, labels: tuple[str, ...], given: ClassWeight) -> Any:
    """The weight of each class by its id, as float32; None without `class_weight`."""
    if given is None:
        return None
    name = labels[0] if labels else ""
    feature = schema.get(name)
    if _is_text(feature):
        raise _text_target_error(split, name, feature)
    if len(labels) != 1 or not isinstance(feature, Label) or feature.shape != () or feature.optional:
        raise _keras_error(
            "`class_weight` requires a single label as `y`",
            "y=…, a column declared as rk.Label with one class per record",
            _join_names(labels) if labels else "no `y`",
            "omit `class_weight`, or provide the weights as a column with sample_weight=…",
            feature=name or None,
        )
    if feature.count > _MAX_CLASSES:
        raise _class_weight_error(f"at most {_MAX_CLASSES:,} classes", f"{feature.count:,}")
    if isinstance(given, str) and given == "balanced":
        weights: Mapping[Any, Any] = split.class_weights(by=name)
    elif isinstance(given, Mapping):
        weights = given
    else:
        raise _class_weight_error('"balanced", or a dict of weights by class', repr(given)[:60])
    table = np.ones(feature.count, np.float32)
    for one, weight in weights.items():
        number = feature.id_of(one) if isinstance(one, str) else one
        whole = hasattr(number, "__index__") and not isinstance(number, bool)
        if not whole or not 0 <= int(number) < feature.count:  # type: ignore[arg-type]
            expected = f"classes of `{name}`: names, or ids below {feature.count:,}"
            raise _class_weight_error(expected, repr(one)[:60])
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
            raise _class_weight_error("weights ≥ 0", repr(weight)[:60])
        table[int(number)] = weight  # type: ignore[arg-type]
    return table


def _class_weight_error(expected: str, found: str) -> RekordError:
    do = 'class_weight="balanced", or class_weight={0: 1.0, 1: 2.5}; other classes have weight 1'
    return _keras_error("`class_weight` is not valid", expected, found, do)


def _text_target_error(split: Split, name: str, feature: Feature | None) -> RekordError:
    """For text as the target; `feature` is None if a function has made the column."""
    return _keras_error(
        f"`{name}` is text, and a loss needs class ids",
        "a label, stored as ids from 0",
        "strings from the function for `map`" if feature is None else type(feature).__name__,
        "return class ids from the function" if feature is None else make_label_command(split, name),
        feature=name,
    )


def _keras_error(what: str, expected: str, found: str, do: str, *, feature: str | None = None) -> RekordError:
    return error("U676", what, location=Location(feature=feature), expected=expected, found=found, do=do)


def _join_names(names: Any) -> str:
    return ", ".join([f"`{name}`" for name in names])[:60]


def _describe_columns(known: AvailableColumns, names: Any) -> str:
    """Columns with their types, as far as these are known."""
    listed = [
        f"`{shorten_name(name)}`" + ("" if known[name] is None else f" {type(known[name]).__name__}")
        for name in names
    ]
    more = len(listed) - _MAX_LISTED_COLUMNS
    return ", ".join(listed[:_MAX_LISTED_COLUMNS]) + (f" and {more:,} more" if more > 0 else "") or "no columns"

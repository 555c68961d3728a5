"""`split.to_keras(…)`: a split as inputs, labels and weights for Keras's `fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

from rekord.arguments import invalid
from rekord.dataset.options import BatchOptions, ClassShares
from rekord.errors import RekordError, error
from rekord.feeds.feed import import_package
from rekord.feeds.tensorflow.native import Mode, to_tensorflow
from rekord.location import Location
from rekord.schema import Label, Schema

if TYPE_CHECKING:
    from rekord.dataset.split import Split

ColumnNames: TypeAlias = "str | Sequence[str] | None"
AvailableColumns: TypeAlias = "Schema | Mapping[str, Any]"  # features by the names of columns
ClassWeight: TypeAlias = 'Literal["balanced"] | ClassShares | None'

_MAX_CLASSES = 1 << 20


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
    """The dataset of (x, y), or (x, y, weights). One column is a tensor, several are a dict."""
    schema = split.schema
    # What a function returns is known only after a trial, so it receives all columns.
    is_mapped = options.get("map") is not None or split.batch_map is not None
    chosen = None if is_mapped else _KerasColumns.of(schema, x, y, sample_weight)
    table = None if chosen is None else _build_weight_table(split, schema, chosen.labels, class_weight)
    tf = import_package("tensorflow", "`to_keras`", "'rekord[tensorflow]'")
    options["columns"] = None if chosen is None else chosen.columns
    dataset = to_tensorflow(split, batch_size, mode=mode, state=state, one_length=True, call="`to_keras`", **options)
    spec = dataset.element_spec
    if chosen is None:
        chosen = _KerasColumns.of({name: schema.get(name) for name in spec}, x, y, sample_weight)
        table = _build_weight_table(split, schema, chosen.labels, class_weight)
    inputs, labels, weight_name = chosen.inputs, chosen.labels, chosen.weight
    if weight_name is not None:
        _check_weights(tf, weight_name, spec[weight_name])
    if table is not None:
        _check_classes(tf, labels[0], spec[labels[0]])

    def parts(columns: dict[str, Any]) -> Any:
        given = _unwrap_single(columns, inputs, single=x is None or isinstance(x, str))
        if not labels:
            return (given,)
        wanted = _unwrap_single(columns, labels, single=y is None or isinstance(y, str))
        weight = None if weight_name is None else tf.cast(columns[weight_name], tf.float32)
        if table is not None:
            own = tf.gather(tf.constant(table), columns[labels[0]])
            weight = own if weight is None else weight * own
        return (given, wanted) if weight is None else (given, wanted, weight)

    made = dataset.map(parts)
    if mode == "native":
        made.state_after = dataset.state_after
    return made


@dataclass(frozen=True, slots=True)
class _KerasColumns:
    """Which columns are inputs, labels and weights."""

    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    weight: str | None

    @classmethod
    def of(cls, known: AvailableColumns, x: ColumnNames, y: ColumnNames, sample_weight: str | None) -> _KerasColumns:
        labels = _resolve_labels(known, y)
        inputs = _resolve_inputs(known, x, labels, sample_weight)
        weight = None if sample_weight is None else _validate_column(known, "sample_weight", sample_weight)
        if weight is not None and not labels:
            what = "`sample_weight` requires `y`"
            expected = "y=…, the name of the target column"
            raise _keras_error(what, expected, "no `y`", "omit `sample_weight`, or name `y`", feature=weight)
        return cls(inputs, labels, weight)

    @property
    def columns(self) -> tuple[str, ...]:
        weight = () if self.weight is None else (self.weight,)
        return tuple(dict.fromkeys((*self.inputs, *self.labels, *weight)))


def _unwrap_single(columns: dict[str, Any], names: tuple[str, ...], *, single: bool) -> Any:
    if single and len(names) == 1:
        return columns[names[0]]
    return {name: columns[name] for name in names}


def _resolve_labels(known: AvailableColumns, y: ColumnNames) -> tuple[str, ...]:
    if y is not None:
        return _resolve_names(known, "y", y)
    found = tuple(
        [name for name, feature in known.items() if feature is not None and feature.class_count is not None]
    )
    if len(found) == 1:
        return found
    proposed = found[-1:] or [name for name in ("y", "label") if name in known] or [*known][-1:] or ["label"]
    raise _keras_error(
        f"`y` is required: {'no column is' if not found else f'{len(found)} columns are'} declared as rk.Label",
        "the name of the target column, or [] for none",
        _join_names(found) if found else "columns " + _join_names(known),
        f"y={proposed[0]!r}",
    )


def _resolve_inputs(
    known: AvailableColumns, x: ColumnNames, labels: tuple[str, ...], weight: str | None
) -> tuple[str, ...]:
    left = tuple([name for name in known if name not in labels and name != weight])
    inputs = left if x is None else _resolve_names(known, "x", x)
    if inputs:
        return inputs
    others = (*labels, *([weight] if weight else []))
    raise _keras_error(
        "no column is left for `x`" if x is None else "`x` names no column",
        "a column other than " + _join_names(others) if others else "a column",
        "columns " + _join_names(known),
        'x="…", the name of an input column',
    )


def _resolve_names(known: AvailableColumns, argument: str, given: ColumnNames) -> tuple[str, ...]:
    names: tuple[Any, ...] = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return tuple([_validate_column(known, argument, name) for name in names])


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


def _check_weights(tf: Any, name: str, spec: Any) -> None:
    if isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string:
        return
    holes = isinstance(spec, dict) and spec["values"].dtype != tf.string
    raise _keras_error(
        "`sample_weight` requires a number for every record",
        "a numeric column of one shape",
        "a column with missing values" if holes else "a column of another type",
        f"fill={{{name!r}: 1}}" if holes else "name a numeric column",
        feature=name,
    )


def _check_classes(tf: Any, name: str, spec: Any) -> None:
    """Only a function can have turned a label into something other than one id per record."""
    if not isinstance(spec, tf.TensorSpec) or not spec.dtype.is_integer or spec.shape.rank != 1:
        raise _keras_error(
            "`class_weight` requires class ids, and the function for `map` does not return them as `y`",
            "integers of shape (rows,)",
            repr(spec)[:60],
            "omit `class_weight`, or return the ids from the function",
            feature=name,
        )


def _build_weight_table(split: Split, schema: Schema, labels: tuple[str, ...], given: ClassWeight) -> Any:
    """The weight of each class by its id, as float32; None without `class_weight`."""
    if given is None:
        return None
    name = labels[0] if labels else ""
    feature = schema.get(name)
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


def _keras_error(what: str, expected: str, found: str, do: str, *, feature: str | None = None) -> RekordError:
    return error("U676", what, location=Location(feature=feature), expected=expected, found=found, do=do)


def _join_names(names: Any) -> str:
    return ", ".join([f"`{name}`" for name in names])[:60]

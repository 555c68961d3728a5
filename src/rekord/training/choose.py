"""The task for a dataset: its target, its input columns, and the columns left out with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.columns import Column, Optional, Strings, Validity
from rekord.codec.images.inspect import FORMAT_NAMES
from rekord.dataset.balanced import ClassCodes, ClassIndex
from rekord.dataset.options import validate_columns
from rekord.dataset.read_transforms import reject_transformed_column
from rekord.dataset.split import Split
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Boxes, Bytes, Feature, Image, Mask, Schema, of_type
from rekord.training import task as tasks
from rekord.training.task import TOKEN_COMPANIONS, ColumnForm, ColumnSample, ExclusionReason, InputColumn

MAX_CLASSES = 10_000

_TARGET_NAMES = ("label", "labels", "class", "target", "y", "category")
_MAX_LISTED_COLUMNS = 8
_ROWS = 8192
_SAMPLED_IMAGES = 128
_EXPECTED_TARGET = "a class, labels, a number or a mask per record"


def choose_target(schema: Schema, label: str | None) -> tuple[tasks.TaskKind, str]:
    """The kind of task, and its target: the column `label`, or the only candidate."""
    if label is not None:
        kind = None if label in schema.steps else tasks.target_kind(schema[label])
        if kind is None:
            raise _target_type_error(schema, label)
        return kind, label
    context = schema.context
    masks = list(of_type(context, Mask))
    labels = [name for name, one in context.items() if one.class_count is not None and not one.shape]
    called = [name for name, feature in context.items() if _has_target_name(name, feature)]
    multi = [name for name, one in context.items() if one.is_multi_hot]
    candidates: list[tuple[tasks.TaskKind | None, list[str]]] = [
        ("segmentation", masks),
        ("classification", labels),
        ("multilabel", multi),
        (None, called),
    ]
    for kind, found in candidates:
        if len(found) > 1:
            raise untrainable_error(
                "several columns could be the target",
                found=describe_columns(schema, found),
                expected="one of them",
                do=f'label="{found[0]}", or another of them',
            )
        if found:
            return kind or tasks.target_kind(schema[found[0]]) or "classification", found[0]
    if of_type(schema.features, Boxes):
        raise untrainable_error(
            "no baseline model for boxes",
            expected=_EXPECTED_TARGET,
            found=describe_columns(schema),
            do=_suggest_target(schema, "rekord reader PATH --for tensorflow, to train your own model"),
        )
    raise untrainable_error(
        "cannot determine the target column",
        expected="a Mask, one Label, or one column of single values named label, class, target, category or y",
        found=describe_columns(schema),
        do=_suggest_target(schema, "add a column with one class or number per record"),
    )


def read_target_classes(
    split: Split, kind: tasks.TaskKind, target: str
) -> tuple[tuple[str, ...], tuple[Any, ...] | None]:
    """The class names, and the value of each class in the column if that is not its id.

    All records of the split are checked, through the index if it has the column.
    """
    feature = split.schema[target]
    if not len(split):
        raise untrainable_error(
            "split has no records",
            column=target,
            expected="at least one record",
            found="none",
            do="rekord stats PATH",
        )
    if isinstance(feature, Mask):
        _check_class_count(target, feature.classes, len(split))
        _check_present(split, target, feature)
        return _number_classes(feature.classes), None
    if kind == "regression":
        _check_numbers(split, target)
        return (), None
    coded = _read_class_codes(split, target)
    if kind == "multilabel":
        _check_present(split, target, feature)
        _check_labels(split, target, coded)
        return feature.label_names or _number_classes(feature.label_count or 0), None
    if feature.class_count is not None:
        _check_class_count(target, feature.class_count, len(split))
        _check_multiple_classes(split, target, coded)
        return feature.class_names or _number_classes(feature.class_count), None
    _check_multiple_classes(split, target, coded)
    _check_class_count(target, len(coded.classes), len(split), feature=feature)
    return tuple([_format_class_name(value) for value in coded.classes]), coded.classes


def check_target(split: Split, task: tasks.Task) -> None:
    """Raise if a split, such as the one for validation, has targets that are not part of the task."""
    feature = split.schema[task.target]
    if task.kind == "segmentation":
        _check_present(split, task.target, feature)
    elif task.kind == "regression":
        _check_numbers(split, task.target, constant=True)
    elif task.kind == "multilabel":
        _check_present(split, task.target, feature)
        _read_class_codes(split, task.target)
    else:
        coded = _read_class_codes(split, task.target)
        known = set(task.values or ())
        new = [value for value in coded.classes if task.values is not None and value not in known]
        if new:
            counts = coded.counts()
            records = sum(int(counts[coded.classes.index(value)]) for value in new)
            raise untrainable_error(
                f"{records:,} records of `{split.name}` have a class that the training split lacks",
                column=task.target,
                expected=f"one of the {len(task.classes):,} classes of the training split",
                found=f"{len(new):,} other classes, such as {preview(new[0])}",
                do=f"rekord split IN OUT --split train=0.9,val=0.1 --stratify {task.target}",
            )


def describe_columns(schema: Schema, names: Sequence[str] | None = None) -> str:
    """Columns with their types."""
    chosen = list(schema if names is None else names)
    some = ", ".join([f"`{name}` {_describe_type(schema, name)}" for name in chosen[:_MAX_LISTED_COLUMNS]])
    more = len(chosen) - _MAX_LISTED_COLUMNS
    return (some or "no columns") + (f" and {more:,} more" if more > 0 else "")


def untrainable_error(
    what: str,
    *,
    expected: str,
    found: str,
    do: str = "rekord check PATH, to find these records",
    column: str | None = None,
    location: Location | None = None,
) -> RekordError:
    """The error for columns or values that no baseline model can learn."""
    location = Location(feature=column) if location is None else location
    return error("U608", what, location=location, expected=expected, found=found, do=do)


def _suggest_target(schema: Schema, otherwise: str, *, target: str | None = None) -> str:
    """The argument that names a possible target other than `target`, or `otherwise` if there is none."""
    columns = [name for name in schema.context if name != target and tasks.target_kind(schema[name]) is not None]
    # A target is usually the last column, and hardly an id.
    name = min(columns[::-1], key=tasks.is_id_like, default=None)
    return otherwise if name is None else f'label="{name}", or another column of single values'


def _has_target_name(name: str, feature: Feature) -> bool:
    names = {part.rpartition("/")[2].casefold() for part in (name, feature.key or name)}
    return tasks.target_kind(feature) in ("classification", "regression") and not names.isdisjoint(_TARGET_NAMES)


def _target_type_error(schema: Schema, label: str) -> RekordError:
    if isinstance(schema[label], Boxes):
        what = "no baseline model for boxes"
    elif label in schema.steps:
        what = f"`{label}` has one value per step, not one per record"
    else:
        what = f"no baseline model learns `{label}`"
    is_text_list = schema[label].value_kind in ("str", "bytes") and label in schema.context
    return untrainable_error(
        what,
        column=label,
        expected=_EXPECTED_TARGET,
        found=_describe_type(schema, label),
        do=f"rekord write IN OUT --label {label}, and train on OUT, to store the texts as labels"
        if is_text_list
        else _suggest_target(schema, "add a column with one class or number per record", target=label),
    )


def _describe_type(schema: Schema, name: str) -> str:
    feature = schema[name]
    kind = f"{type(feature).__name__}"
    if feature.storage == "blob" and feature.dtype is not None:
        kind += f" {feature.dtype.name}"
    if feature.shape and feature.storage != "parallel":
        kind += f" {feature.shape}"
    return f"{kind} in each step" if name in schema.steps else kind


def _read_class_codes(split: Split, target: str) -> ClassCodes:
    reject_transformed_column(split, target, "train")
    try:
        return ClassIndex(split.view.shards, split.stored_schema, target, split.view.ids).class_codes
    except RekordError as failure:
        if failure.code != "X552":
            raise
        where = {"do": _drop_records_command(target, "{} is not null")} if failure.found == "no value" else {}
        raise untrainable_error(
            failure.what,
            location=failure.location,
            expected=str(failure.expected),
            found=str(failure.found),
            **where,
        ) from None


def _check_multiple_classes(split: Split, target: str, coded: ClassCodes) -> None:
    if len(coded.classes) < 2:
        raise untrainable_error(
            f"all {len(split):,} records have the same class",
            column=target,
            expected="at least two classes",
            found=f"only {preview(coded.classes[0])}",
            do=_suggest_target(split.schema, "train on another split: split=NAME", target=target),
        )


def _check_labels(split: Split, target: str, coded: ClassCodes) -> None:
    records = np.bincount(coded.pairs()[1], minlength=len(coded.classes))
    if not ((records > 0) & (records < len(split))).any():
        raise untrainable_error(
            f"all {len(split):,} records have the same labels",
            column=target,
            expected="a class that some records have and others do not",
            found=f"{len(coded.classes):,} classes in every record" if coded.classes else "no labels in any record",
            do=_suggest_target(split.schema, "train on another split: split=NAME", target=target),
        )


def _check_class_count(target: str, count: int, records: int, *, feature: Feature | None = None) -> None:
    """Raise if a small model cannot learn this many classes, or if most values occur only once."""
    if count < 2:
        raise untrainable_error(
            f"`{target}` has one class",
            column=target,
            expected="at least two classes",
            found="one",
            do="name another target column: label=NAME",
        )
    is_number = feature is not None and feature.value_kind == "int"
    hardly_twice = feature is not None and count > 2 and 2 * count > records
    if count <= MAX_CLASSES and not hardly_twice:
        return
    cast = f"rekord rewrite IN OUT --cast {target}=float32, and train on OUT, to learn it as a number"
    raise untrainable_error(
        f"`{target}` has {count:,} distinct values in {records:,} records"
        if feature is not None
        else f"`{target}` has {count:,} classes",
        column=target,
        expected=f"at most {MAX_CLASSES:,} classes" + (", each with several records" if hardly_twice else ""),
        found="a measured number, or an id" if is_number else f"{count:,}",
        do=cast if is_number else "name the column of the classes: label=NAME",
    )


def _check_present(split: Split, target: str, feature: Feature) -> None:
    if not feature.optional:
        return
    missing = _RowTally()
    for batch in split.batches(_SAMPLED_IMAGES, columns=[target]):
        missing.add(~tasks.find_valid_rows(batch[target]))
    _check_missing(split, target, missing)


def _check_numbers(split: Split, target: str, *, constant: bool = False) -> None:
    missing, strange = _RowTally(), _RowTally()
    least, most = np.inf, -np.inf
    for batch in split.batches(_ROWS, columns=[target]):
        column = batch[target]
        valid = tasks.find_valid_rows(column)
        with np.errstate(over="ignore"):
            values = (column.values if isinstance(column, Optional) else np.asarray(column)).astype(np.float32)
        finite = np.isfinite(values) & valid
        missing.add(~valid)
        strange.add(valid & ~finite)
        least = min(least, values[finite].min(initial=np.inf))
        most = max(most, values[finite].max(initial=-np.inf))
    _check_missing(split, target, missing)
    if strange.count:
        raise untrainable_error(
            f"{strange.count:,} of {len(split):,} records have no finite number in `{target}`",
            location=strange.location(split, target),
            expected="a finite number in each record",
            found="NaN or infinity",
            do=_drop_records_command(target, "isfinite({})"),
        )
    if least == most and not constant:
        raise untrainable_error(
            f"all {len(split):,} records have the same number",
            column=target,
            expected="numbers that differ",
            found=f"only {float(least):g}",
            do=_suggest_target(split.schema, "name another target column: label=NAME", target=target),
        )


class _RowTally:
    """The number of records with some property, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._seen = 0
        self._first = 0

    def add(self, true: Validity) -> None:
        if not self.count and true.any():
            self._first = self._seen + int(np.argmax(true))
        self.count += int(true.sum())
        self._seen += len(true)

    def location(self, split: Split, target: str) -> Location:
        number = self._first if split.view.ids is None else int(split.view.ids[self._first])
        where = split.view.shards.where(number)
        return Location(path=where.path, record=where.record, offset=where.offset, feature=target)


def _check_missing(split: Split, target: str, missing: _RowTally) -> None:
    if missing.count:
        raise untrainable_error(
            f"{missing.count:,} of {len(split):,} records have no value in `{target}`",
            location=missing.location(split, target),
            expected="a value in each record",
            found="no value",
            do=_drop_records_command(target, "{} is not null"),
        )


def _drop_records_command(column: str, condition: str) -> str:
    """The command that keeps the records for which a condition on a column is true."""
    quoted = column if column.isidentifier() else f'\\"{column}\\"'
    return f'rekord rewrite IN OUT --where "{condition.format(quoted)}", and train on OUT'


def _number_classes(count: int) -> tuple[str, ...]:
    return tuple([str(number) for number in range(count)])


def _format_class_name(value: Any) -> str:
    return tasks.decode_string(value) if isinstance(value, (str, bytes)) else str(value)


MAX_CATEGORIES = 1_000
_DEEPLAB_MASK = "image/segmentation/class/encoded"


def choose_task(split: Split, *, label: str | None = None, columns: Sequence[str] | None = None) -> tasks.Task:
    """The task for a split, from its schema.

    `label` names the target, `columns` the inputs. A sample of records decides what types and names leave open.
    """
    schema = split.schema
    kind, target = _choose_split_target(split, label)
    named = None if columns is None else validate_columns(columns)
    if named is not None:
        _check_named(schema, named, target)
    classes, values = read_target_classes(split, kind, target)
    feature = schema[target]
    if isinstance(feature, Mask):
        inputs, left_out = _find_mask_image(schema, target, feature, named)
    else:
        inputs, left_out = _InputSelection(split, kind, target, named).made()
    return tasks.Task(
        kind=kind,
        inputs=inputs,
        target=target,
        classes=classes,
        values=values,
        ignore=feature.ignore if isinstance(feature, Mask) else None,
        is_id_list=kind == "multilabel" and not feature.is_multi_hot,
        left_out=left_out,
    )


class _InputSelection:
    """Selects the inputs for a class or a number."""

    def __init__(self, split: Split, kind: tasks.TaskKind, target: str, named: tuple[str, ...] | None) -> None:
        self._split = split
        self._schema = split.schema
        self._kind = kind
        self._target = target
        self._named = named
        self._left_out: dict[str, str] = {}

    def made(self) -> tuple[tuple[InputColumn, ...], dict[str, str]]:
        """The inputs in the order of the schema, and the reasons why other columns are left out."""
        forms = self._without_images(self._resolve_byte_strings(self._by_type()))
        if "image" not in forms.values() or self._named is not None:
            forms = self._without_companions(forms)
            forms = self._apply_survey(forms)
        if not forms:
            raise untrainable_error(
                f"no input columns for `{self._target}`",
                column=self._target,
                expected="an image, text, tokens or numbers",
                found=self._explain_no_inputs(),
                do="name the inputs with columns=[…], or another target with label=NAME",
            )
        inputs = [InputColumn(name, form) for name, form in forms.items() if form != "string"]
        return tuple(inputs), self._left_out

    def _by_type(self) -> dict[str, ColumnForm]:
        forms: dict[str, ColumnForm] = {}
        for name in self._schema if self._named is None else self._named:
            if name == self._target:
                continue
            why = None if self._named is not None else tasks.explain_exclusion(self._schema, name, self._target)
            form = tasks.infer_column_form(self._schema, name)
            if why is not None or isinstance(form, ExclusionReason):
                self._exclude(name, why or form)
            else:
                forms[name] = form
        return forms

    def _resolve_byte_strings(self, forms: dict[str, ColumnForm]) -> dict[str, ColumnForm]:
        """Decide by their values whether undeclared byte strings are images, text, or neither."""
        stored = [name for name, form in forms.items() if form == "string" and self._is_bytes(name)]
        batch = tasks.read_first_batch(self._split, stored) if stored else {}
        for name in stored:
            values = _get_byte_values(batch.get(name))
            if _is_image_column(values):
                if tasks.is_mask_like(name) and self._named is None:
                    del forms[name]
                    self._exclude(name, "images without an rk.Mask")
                else:
                    forms[name] = "image"
            elif not all(_is_text(value) for value in values):
                del forms[name]
                self._exclude(name, "bytes that are neither text nor images")
        return forms

    def _without_images(self, forms: dict[str, ColumnForm]) -> dict[str, ColumnForm]:
        """Keep one image, and no other column unless it was named: an image carries most of the information."""
        images = [name for name, form in forms.items() if form == "image"]
        if not images:
            return forms
        chosen = next((name for name in images if self._schema[name].is_image), images[0])
        if self._named is None:
            for name in forms:
                if name != chosen:
                    self._exclude(name, f"only the image is used; --columns {chosen},{name} uses both")
            return {chosen: "image"}
        for name in images:
            if name != chosen:
                self._exclude(name, f"only one image is used, `{chosen}`")
        return forms

    def _without_companions(self, forms: dict[str, ColumnForm]) -> dict[str, ColumnForm]:
        companions = [name for name in forms if tasks.get_last_name_part(name) in TOKEN_COMPANIONS]
        tokens = [name for name, form in forms.items() if form == "tokens" and name not in companions]
        if self._named is None and tokens:
            for name in companions:
                self._exclude(name, f"belongs to `{tokens[0]}`, and has no information of its own")
                del forms[name]
        return forms

    def _apply_survey(self, forms: dict[str, ColumnForm]) -> dict[str, ColumnForm]:
        """Decide by a sample of records: categories or text, record numbers, copies of the target."""
        single = [name for name, form in forms.items() if form != "image" and self._is_single(name)]
        # A column that follows from several classes at once is not found.
        targets = [] if self._kind == "multilabel" else [self._target]
        seen = tasks.survey_columns(self._split, [*single, *targets])
        target = seen.get(self._target)
        for name in single:
            why = self._find_exclusion(name, seen[name], target)
            if why is not None:
                del forms[name]
                self._exclude(name, why)
            elif forms[name] == "string":
                forms[name] = _infer_string_form(seen[name])
        return forms

    def _find_exclusion(self, name: str, seen: ColumnSample, target: ColumnSample | None) -> str | None:
        if not seen.valid.any():
            return "no value in the sampled records"
        if self._named is not None:
            return None
        if seen.is_text and seen.distinct == 1:
            return "the same in every record"
        if seen.all_different and seen.values.dtype.kind in "iu" and tasks.is_id_like(name):
            return "a record id"
        if target is not None and tasks.is_target_leak(seen, target):
            return f"leaks `{self._target}`: one value for each of its values"
        return None

    def _exclude(self, name: str, why: str) -> None:
        if self._named is not None:
            raise untrainable_error(
                f"`{name}` cannot be an input",
                column=name,
                expected="an image, text, tokens, classes or numbers",
                found=f"{describe_columns(self._schema, [name])}: {why}",
                do=f"remove `{name}` from columns=",
            )
        self._left_out[name] = why

    def _explain_no_inputs(self) -> str:
        some = [f"`{name}`: {why}" for name, why in list(self._left_out.items())[:4]]
        more = len(self._left_out) - len(some)
        return ("; ".join(some) or "no other column") + (f"; and {more:,} more" if more > 0 else "")

    def _is_bytes(self, name: str) -> bool:
        return self._schema[name].value_kind == "bytes"

    def _is_single(self, name: str) -> bool:
        return name in self._schema.context and self._schema[name].shape == ()


def _choose_split_target(split: Split, label: str | None) -> tuple[tasks.TaskKind, str]:
    """The kind of task and its target; raises for masks that are stored as plain bytes."""
    schema = split.schema
    try:
        kind, target = choose_target(schema, label)
    except RekordError as failure:
        stored = [name for name in of_type(schema.context, Bytes) if tasks.is_mask_like(name)]
        if failure.code != "U608" or label is not None or not stored:
            raise
        batch = tasks.read_first_batch(split, stored)
        undeclared = next((name for name in stored if _is_image_column(_get_byte_values(batch.get(name)))), None)
        if undeclared is None:
            raise
        raise _undeclared_column_error(schema, undeclared) from None
    if schema[target].value_kind == "bytes" and _is_image_column(
        _get_byte_values(tasks.read_first_batch(split, [target]).get(target))
    ):
        raise _undeclared_column_error(schema, target)
    return kind, target


def _undeclared_column_error(schema: Schema, column: str) -> RekordError:
    key = schema[column].key or column
    return untrainable_error(
        f"`{column}` has images that are not declared as masks",
        column=column,
        expected="an rk.Mask with its number of classes",
        found="Bytes that are images",
        do="rk.rewrite(IN, OUT, schema=rk.layouts.deeplab(classes=N, ignore=255).schema), and train on OUT"
        if key == _DEEPLAB_MASK
        else "rekord rewrite IN OUT --schema FILE, with a Mask in the schema, and train on OUT",
    )


def _find_mask_image(
    schema: Schema, target: str, mask: Mask, named: tuple[str, ...] | None
) -> tuple[tuple[InputColumn, ...], dict[str, str]]:
    """The image that a mask belongs to: a schema has exactly one for each."""
    image = mask.of or next(iter(of_type(schema.context, Image)))
    if named is not None and named != (image,):
        raise untrainable_error(
            f"`{target}` is a mask, whose only input is its image",
            column=target,
            expected=f'columns=["{image}"]',
            found=f"columns={list(named)}"[:60],
            do=f'columns=["{image}"]',
        )
    left_out = {}
    for name in schema:
        if name not in (target, image):
            form = tasks.infer_column_form(schema, name)
            why = tasks.explain_exclusion(schema, name, target)
            default = form if isinstance(form, ExclusionReason) else "the only input for a mask is its image"
            left_out[name] = why or default
    return (InputColumn(image, "image"),), left_out


def _check_named(schema: Schema, named: tuple[str, ...], target: str) -> None:
    for name in named:
        schema[name]  # an unknown name is an error
    if target in named or not named:
        raise error(
            "U605",
            f"target `{target}` cannot be an input" if named else "`columns` is empty",
            location=Location(feature=target),
            expected="columns other than the target",
            found=",".join(named)[:60] or "none",
            do=f"remove `{target}` from columns=, or name another label=" if named else "columns=None",
        )


def _infer_string_form(seen: ColumnSample) -> tasks.InputForm:
    known = int(seen.valid.sum())
    return "category" if seen.distinct <= MAX_CATEGORIES and 2 * seen.distinct <= known else "text"


def _get_byte_values(column: Column | None) -> list[bytes]:
    values = column.tolist() if isinstance(column, Strings) else []
    return [value for value in values if value is not None]


def _is_image_column(values: list[bytes]) -> bool:
    return bool(values) and all(_is_image(value) for value in values)


def _is_image(data: bytes) -> bool:
    facts = _core.inspect_image(data, False)
    return facts.fault == _core.ImageFault.NONE and FORMAT_NAMES.get(facts.format) not in (None, "tiff")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False

"""Which baseline a dataset gets: what is learned, from which columns, and which are left out and why."""

from __future__ import annotations

from collections.abc import Sequence

from rekord import _core
from rekord.codec.columns import Column, Strings
from rekord.codec.looking import FORMATS
from rekord.dataset.asking import checked_columns
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Image, Mask, Schema
from rekord.training.forms import (
    TOKEN_COMPANIONS,
    Taken,
    Unfit,
    describes,
    form_of,
    is_id_like,
    is_mask_like,
    last_part,
)
from rekord.training.survey import Seen, first_batch, survey, tells
from rekord.training.targets import classes_of, listed, no_baseline, target_of
from rekord.training.task import Form, Input, Kind, Task

MOST_CATEGORIES = 1_000
_DEEPLAB_MASK = "image/segmentation/class/encoded"
_DO = "rekord train PATH --columns A,B, with columns that say something of the target; or --label KEY"


def choose(split: Split, *, label: str | None = None, columns: Sequence[str] | None = None) -> Task:
    """The task that the schema of a split asks for.

    `label` names the column that is learned, `columns` those that it is learned from. What the types and names of
    columns leave open is decided by a look at some records.
    """
    schema = split.schema
    kind, target = _target(split, label)
    named = None if columns is None else checked_columns(columns)
    if named is not None:
        _check_named(schema, named, target)
    classes, values = classes_of(split, kind, target)
    feature = schema[target]
    if isinstance(feature, Mask):
        inputs, left_out = _image_of_mask(schema, target, feature, named)
    else:
        inputs, left_out = _Choice(split, kind, target, named).made()
    return Task(
        kind=kind,
        inputs=inputs,
        target=target,
        classes=classes,
        values=values,
        ignore=feature.ignore if isinstance(feature, Mask) else None,
        left_out=left_out,
    )


class _Choice:
    """The inputs for a target that is told from records as they are."""

    def __init__(self, split: Split, kind: Kind, target: str, named: tuple[str, ...] | None) -> None:
        self._split = split
        self._schema = split.schema
        self._kind = kind
        self._target = target
        self._named = named
        self._left_out: dict[str, str] = {}

    def made(self) -> tuple[tuple[Input, ...], dict[str, str]]:
        """The inputs in the order of the schema, and why others are none."""
        forms = self._without_images(self._looked_into(self._by_type()))
        if "image" not in forms.values() or self._named is not None:
            forms = self._without_companions(forms)
            forms = self._surveyed(forms)
        if not forms:
            raise no_baseline(
                f"no column is left to learn `{self._target}` from",
                feature=self._target,
                expected="an image, a text, tokens or numbers beside it",
                found=self._why_not(),
                do=_DO,
            )
        inputs = [Input(name, form) for name, form in forms.items() if form != "string"]
        return tuple(inputs), self._left_out

    def _by_type(self) -> dict[str, Taken]:
        forms: dict[str, Taken] = {}
        for name in self._schema if self._named is None else self._named:
            if name == self._target:
                continue
            why = None if self._named is not None else describes(self._schema, name, self._target)
            form = form_of(self._schema, name)
            if why is not None or isinstance(form, Unfit):
                self._leave_out(name, why or form)
            else:
                forms[name] = form
        return forms

    def _looked_into(self, forms: dict[str, Taken]) -> dict[str, Taken]:
        """Byte strings that nobody declared as anything else: images, texts, or neither."""
        stored = [name for name, form in forms.items() if form == "string" and self._is_bytes(name)]
        batch = first_batch(self._split, stored) if stored else {}
        for name in stored:
            values = _values(batch.get(name))
            if _are_pictures(values):
                if is_mask_like(name) and self._named is None:
                    del forms[name]
                    self._leave_out(name, "pictures that no rk.Mask declares")
                else:
                    forms[name] = "image"
            elif not all(_is_text(value) for value in values):
                del forms[name]
                self._leave_out(name, "bytes that are no text and no picture")
        return forms

    def _without_images(self, forms: dict[str, Taken]) -> dict[str, Taken]:
        """One image, and nothing beside it that is not named: it says more than what else a record holds."""
        images = [name for name, form in forms.items() if form == "image"]
        if not images:
            return forms
        chosen = next((name for name in images if isinstance(self._schema[name], Image)), images[0])
        if self._named is None:
            for name in forms:
                if name != chosen:
                    self._leave_out(name, f"the image alone is taken; --columns {chosen},{name} takes both")
            return {chosen: "image"}
        for name in images:
            if name != chosen:
                self._leave_out(name, f"one image is taken, and that is `{chosen}`")
        return forms

    def _without_companions(self, forms: dict[str, Taken]) -> dict[str, Taken]:
        companions = [name for name in forms if last_part(name) in TOKEN_COMPANIONS]
        tokens = [name for name, form in forms.items() if form == "tokens" and name not in companions]
        if self._named is None and tokens:
            for name in companions:
                self._leave_out(name, f"goes with `{tokens[0]}`, and says nothing by itself")
                del forms[name]
        return forms

    def _surveyed(self, forms: dict[str, Taken]) -> dict[str, Taken]:
        """What some records say: categories or texts, numbers of records, copies of the target."""
        single = [name for name, form in forms.items() if form != "image" and self._is_single(name)]
        seen = survey(self._split, [*single, self._target])
        target = seen[self._target]
        for name in single:
            why = self._useless(name, seen[name], target)
            if why is not None:
                del forms[name]
                self._leave_out(name, why)
            elif forms[name] == "string":
                forms[name] = _form_of_string(seen[name])
        return forms

    def _useless(self, name: str, seen: Seen, target: Seen) -> str | None:
        if not seen.valid.any():
            return "has no value in the records that were looked at"
        if self._named is not None:
            return None
        if seen.is_text and seen.distinct == 1:
            return "the same in every record"
        if seen.all_different and seen.values.dtype.kind in "iu" and is_id_like(name):
            return "a number for each record" if not seen.is_text else "a name for each record"
        if tells(seen, target):
            return f"gives `{self._target}` away: one value for each that it has"
        return None

    def _leave_out(self, name: str, why: str) -> None:
        if self._named is not None:
            raise no_baseline(
                f"`{name}` cannot be learned from",
                feature=name,
                expected="an image, a text, tokens, classes or numbers",
                found=f"{listed(self._schema, [name])}: {why}",
                do="leave it out of --columns",
            )
        self._left_out[name] = why

    def _why_not(self) -> str:
        some = [f"`{name}`: {why}" for name, why in list(self._left_out.items())[:4]]
        more = len(self._left_out) - len(some)
        return ("; ".join(some) or "no other column") + (f"; and {more:,} more" if more > 0 else "")

    def _is_bytes(self, name: str) -> bool:
        return isinstance(self._schema[name], Bytes)

    def _is_single(self, name: str) -> bool:
        return name in self._schema.context and self._schema[name].shape == ()


def _target(split: Split, label: str | None) -> tuple[Kind, str]:
    """What is learned; pictures of classes that are stored as plain bytes are said to be what they are."""
    schema = split.schema
    try:
        kind, target = target_of(schema, label)
    except RekordError as failure:
        stored = [
            name for name, one in schema.context.items() if isinstance(one, Bytes) and is_mask_like(name)
        ]
        if failure.code != "U608" or label is not None or not stored:
            raise
        batch = first_batch(split, stored)
        undeclared = next((name for name in stored if _are_pictures(_values(batch.get(name)))), None)
        if undeclared is None:
            raise
        raise _not_declared(schema, undeclared) from None
    if isinstance(schema[target], Bytes) and _are_pictures(_values(first_batch(split, [target]).get(target))):
        raise _not_declared(schema, target)
    return kind, target


def _not_declared(schema: Schema, column: str) -> RekordError:
    key = schema[column].key or column
    return no_baseline(
        f"`{column}` holds pictures, and nothing says that they are classes of pixels",
        feature=column,
        expected="an rk.Mask, with the number of its classes",
        found="Bytes that are pictures",
        do="rk.rewrite(IN, OUT, schema=rk.layouts.deeplab(classes=N, ignore=255).schema), and train on OUT"
        if key == _DEEPLAB_MASK
        else "rekord rewrite IN OUT --schema FILE, with a Mask in it, and train on OUT",
    )


def _image_of_mask(
    schema: Schema, target: str, mask: Mask, named: tuple[str, ...] | None
) -> tuple[tuple[Input, ...], dict[str, str]]:
    """The image that a mask belongs to: a schema has exactly one for each."""
    images = [name for name, feature in schema.context.items() if isinstance(feature, Image)]
    image = mask.of or images[0]
    if named is not None and named != (image,):
        raise no_baseline(
            f"`{target}` is a mask, which is learned from its image alone",
            feature=target,
            expected=f"--columns {image}",
            found=f"--columns {','.join(named)}"[:60],
            do="leave --columns out",
        )
    left_out = {}
    for name in schema:
        if name not in (target, image):
            form = form_of(schema, name)
            why = describes(schema, name, target) or (form if isinstance(form, Unfit) else None)
            left_out[name] = why or "a mask is learned from its image alone"
    return (Input(image, "image"),), left_out


def _check_named(schema: Schema, named: tuple[str, ...], target: str) -> None:
    for name in named:
        schema[name]  # one that there is not is said with the names that there are
    if target in named or not named:
        raise error(
            "U605",
            f"`{target}` is what is to be learned, and cannot be learned from"
            if named
            else "`columns` names no column to learn from",
            location=Location(feature=target),
            expected="other columns than the target",
            found=",".join(named)[:60] or "none",
            do="leave it out of --columns, or name another --label" if named else "leave --columns out",
        )


def _form_of_string(seen: Seen) -> Form:
    known = int(seen.valid.sum())
    return "category" if seen.distinct <= MOST_CATEGORIES and 2 * seen.distinct <= known else "text"


def _values(column: Column | None) -> list[bytes]:
    values = column.tolist() if isinstance(column, Strings) else []
    return [value for value in values if value is not None]


def _are_pictures(values: list[bytes]) -> bool:
    return bool(values) and all(_is_picture(value) for value in values)


def _is_picture(data: bytes) -> bool:
    facts = _core.look(data, False)
    return facts.fault == _core.PictureFault.NONE and FORMATS.get(facts.format) not in (None, "tiff")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False

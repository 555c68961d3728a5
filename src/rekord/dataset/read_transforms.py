"""Transforms of rows while they are read, with the same result as transforms while writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rekord.codec.columns import Batch
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.encode import new_row_encoder, shared_pool
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.readers.pipeline import IdlePool
from rekord.errors import RekordError, error
from rekord.schema import Bytes, Feature, Schema

if TYPE_CHECKING:
    from rekord.dataset.split import LazySchema, Split
    from rekord.transforms.base import Bound
    from rekord.transforms.chain import Chain


def extended(split: Split, transforms: Sequence[Any]) -> SplitTransforms:
    """The transforms of a split, followed by more of them."""
    from rekord.transforms.chain import Chain, as_chain

    steps = as_chain(transforms[0] if len(transforms) == 1 else transforms).steps
    if split.batch_map is not None:
        raise error(
            "U691",
            "`transform` after `map` is not supported",
            expected="transforms first: they take rows as the schema declares them",
            found="a split with .map(…)",
            do="split.transform(…).map(function)",
        )
    before = () if split.row_transforms is None else split.row_transforms.chain.steps
    made = SplitTransforms(split.stored_schema, Chain((*before, *steps)))
    if split.stored_schema.known:
        made.schema  # noqa: B018 - an invalid transform is reported now, not at the first batch
    return made


def has_same_transforms(one: SplitTransforms | None, other: SplitTransforms | None) -> bool:
    """Whether two splits have equal transforms."""
    return (None if one is None else one.chain) == (None if other is None else other.chain)


def reject_transformed_column(split: Split, column: str, verb: str) -> None:
    """Refuse a column that a transform may change: classes are counted as stored."""
    transforms = split.row_transforms
    if transforms is None:
        return
    touched = transforms.bound.touches
    if touched is None or column in touched:
        raise error(
            "U667",
            f"`{verb}` counts the stored classes of `{column}`, and a transform changes them",
            expected="a column that no transform changes",
            found=f"split.transform(…).{verb}(by={column!r})"[:60],
            do=f"split.{verb}(by={column!r}) before transform(…), or write the transformed records first",
        )


class SplitTransforms:
    """The transforms of a split, bound to its schema at first use. Small to pickle."""

    def __init__(self, before: LazySchema, chain: Chain) -> None:
        self.before = before
        self.chain = chain
        self._bound: Bound | None = None

    @property
    def bound(self) -> Bound:
        """The transforms bound to the schema of the split."""
        if self._bound is None:
            self._bound = self.chain.bind(self.before.get())
        return self._bound

    @property
    def schema(self) -> Schema:
        """The schema of the transformed rows."""
        return self.bound.schema

    def on(self, before: LazySchema) -> SplitTransforms:
        """The same transforms for rows of another schema."""
        return SplitTransforms(before, self.chain)

    def of(self, columns: tuple[str, ...] | None) -> BatchTransformer:
        """The transformer for some columns of the transformed rows, or all."""
        return BatchTransformer(self, columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitTransforms, (self.before, self.chain)


class BatchTransformer:
    """Transforms batches of stored rows, and keeps some of the resulting columns."""

    def __init__(self, transforms: SplitTransforms, columns: tuple[str, ...] | None) -> None:
        self._transforms = transforms
        self._columns = columns
        self._stored: Schema | None = None
        self._encoders = IdlePool(lambda: new_row_encoder(self._stored_schema()))

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchTransformer, (self._transforms, self._columns)

    def plan(self) -> CodecPlan:
        """The plan of the resulting columns."""
        return compile_plan(self._transforms.schema, self._columns)

    def reading(self) -> CodecPlan:
        """The plan to decode records by: of the required columns, as far as these are known."""
        before, columns = self._transforms.before, self._columns
        self.plan()  # raises for an unknown column
        if columns is None or self._touches is None:
            return before.plan(None)
        stored = before.get()
        wanted = set(columns) if self._is_passthrough else {*columns, *self._touches}
        return before.plan(tuple([name for name in stored if name in wanted]))

    def then(self, images: Callable[[Batch], Batch] | None) -> Callable[[Batch], Batch] | None:
        """The transforms, followed by image decoding. Errors name the row in the batch."""
        if self._is_passthrough:
            return images
        return self if images is None else _TransformAndDecode(self, images)

    @property
    def _touches(self) -> frozenset[str] | None:
        return self._transforms.bound.touches

    @property
    def _is_passthrough(self) -> bool:
        """Whether the transforms change none of the resulting columns."""
        touched = self._touches
        return touched is not None and self._columns is not None and touched.isdisjoint(self._columns)

    def __call__(self, batch: Batch) -> Batch:
        names = list(batch)
        if not names:
            return batch
        stored, apply = self._stored_schema(), self._transforms.bound.apply
        rows = len(batch[names[0]])
        wanted = tuple(stored)
        with self._encoders.borrow() as encoder:
            for row in range(rows):
                try:
                    made = apply({name: batch[name][row] for name in names})
                    encoder.append({name: made[name] for name in wanted if name in made})
                except RekordError as failure:
                    failure.location = failure.location.within(row=row)
                    raise
            frames: Any = encoder.take() if rows else b""
        return _decode_frames(compile_plan(stored), frames, rows)

    def _stored_schema(self) -> Schema:
        """The resulting columns for one pass through the codec; images are plain bytes."""
        if self._stored is None:
            schema = self._transforms.schema
            some = frozenset(schema if self._columns is None else self._columns)
            context = _replace_images_with_bytes(schema.context, some)
            if schema.is_sequence:
                self._stored = Schema(context=context, steps=_replace_images_with_bytes(schema.steps, some))
            else:
                self._stored = Schema(context)
        return self._stored


class _TransformAndDecode:
    """Transforms followed by image decoding. Unlike a closure it can be pickled."""

    def __init__(self, first: Callable[[Batch], Batch], last: Callable[[Batch], Batch]) -> None:
        self._first = first
        self._last = last

    def __call__(self, batch: Batch) -> Batch:
        return self._last(self._first(batch))


def _replace_images_with_bytes(features: Mapping[str, Feature], wanted: frozenset[str]) -> dict[str, Feature]:
    """These columns with plain bytes for images: a mask without its image is not a valid schema."""
    out: dict[str, Feature] = {}
    for name, feature in features.items():
        if name in wanted:
            plain = Bytes(key=feature.key, optional=feature.optional)
            is_encoded = feature.is_image or (feature.is_media and feature.dtype is None)
            out[name] = plain if is_encoded else feature
    return out


def _decode_frames(plan: CodecPlan, frames: Any, rows: int) -> Batch:
    batch = new_batch(plan, shared_pool())
    if rows:
        view = memoryview(frames).cast("B")
        slab = shared_pool().slab(len(view))
        slab.view()[: len(view)] = view
        batch.feed(slab, 0, len(view), len(view), rows)
    return assemble_columns(plan, batch.take(), rows)

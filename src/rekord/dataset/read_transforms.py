"""Transforms of rows while they are read: what comes out is what writing them would have stored."""

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
    """The transforms of a split with more of them, after those that it has."""
    from rekord.transforms.chain import Chain, as_chain

    steps = as_chain(transforms[0] if len(transforms) == 1 else transforms).steps
    if split.batch_map is not None:
        raise error(
            "U691",
            "`transform` comes behind a function that changes batches",
            expected="transforms before functions: they take rows as a schema declares them",
            found="`map` was called first",
            do="split.transform(…).map(…)",
        )
    before = () if split.row_transforms is None else split.row_transforms.chain.steps
    made = SplitTransforms(split.stored_schema, Chain((*before, *steps)))
    if split.stored_schema.known:
        made.schema  # noqa: B018 - what has no meaning for these columns is said now, not at the first batch
    return made


def has_same_transforms(one: SplitTransforms | None, other: SplitTransforms | None) -> bool:
    """Whether two splits are transformed alike."""
    return (None if one is None else one.chain) == (None if other is None else other.chain)


def reject_transformed_column(split: Split, column: str, verb: str) -> None:
    """Classes are found as they are stored: refused where a transform may have made others of them."""
    transforms = split.row_transforms
    if transforms is None:
        return
    touched = transforms.bound.touches
    if touched is None or column in touched:
        raise error(
            "U667",
            f"`{verb}` knows the classes of `{column}` as they are stored, and a transform changes them",
            expected="a column that no transform touches",
            found=f"split.transform(…).{verb}(by={column!r})"[:60],
            do=f"split.{verb}(by={column!r}) before transform(…), or write the transformed records first",
        )


class SplitTransforms:
    """The transforms of a split, bound to its schema when that is known. Small to pickle."""

    def __init__(self, before: LazySchema, chain: Chain) -> None:
        self.before = before
        self.chain = chain
        self._bound: Bound | None = None

    @property
    def bound(self) -> Bound:
        """The transforms for rows of the split's schema."""
        if self._bound is None:
            self._bound = self.chain.bind(self.before.get())
        return self._bound

    @property
    def schema(self) -> Schema:
        """That of the rows that they make."""
        return self.bound.schema

    def on(self, before: LazySchema) -> SplitTransforms:
        """The same for rows of another schema."""
        return SplitTransforms(before, self.chain)

    def of(self, columns: tuple[str, ...] | None) -> BatchTransformer:
        """What makes some columns of the transformed rows, or all."""
        return BatchTransformer(self, columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitTransforms, (self.before, self.chain)


class BatchTransformer:
    """Makes some columns of transformed rows out of batches of rows as they are stored."""

    def __init__(self, transforms: SplitTransforms, columns: tuple[str, ...] | None) -> None:
        self._transforms = transforms
        self._columns = columns
        self._stored: Schema | None = None
        self._encoders = IdlePool(lambda: new_row_encoder(self._stored_schema()))

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchTransformer, (self._transforms, self._columns)

    def plan(self) -> CodecPlan:
        """The plan of what comes out."""
        return compile_plan(self._transforms.schema, self._columns)

    def reading(self) -> CodecPlan:
        """The plan that records are decoded by: of the columns that are needed, as far as that is known."""
        before, columns = self._transforms.before, self._columns
        self.plan()  # a column that there is not is said here
        if columns is None or self._touches is None:
            return before.plan(None)
        stored = before.get()
        wanted = set(columns) if self._is_passthrough else {*columns, *self._touches}
        return before.plan(tuple([name for name in stored if name in wanted]))

    def then(self, images: Callable[[Batch], Batch] | None) -> Callable[[Batch], Batch] | None:
        """The transforms, and what decodes images behind them. Errors name the row in the batch."""
        if self._is_passthrough:
            return images
        return self if images is None else _TransformAndDecode(self, images)

    @property
    def _touches(self) -> frozenset[str] | None:
        return self._transforms.bound.touches

    @property
    def _is_passthrough(self) -> bool:
        """Whether no column that comes out is one of theirs."""
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
        """The columns that come out, for one way through the codec; images are the bytes that they are."""
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
    """Transforms, and what decodes images behind them. Unlike a closure it can be pickled."""

    def __init__(self, first: Callable[[Batch], Batch], last: Callable[[Batch], Batch]) -> None:
        self._first = first
        self._last = last

    def __call__(self, batch: Batch) -> Batch:
        return self._last(self._first(batch))


def _replace_images_with_bytes(features: Mapping[str, Feature], wanted: frozenset[str]) -> dict[str, Feature]:
    """These columns with plain bytes for images: a mask without its image would be no schema."""
    out: dict[str, Feature] = {}
    for name, feature in features.items():
        if name in wanted:
            plain = Bytes(key=feature.key, optional=feature.optional)
            out[name] = plain if feature.is_image else feature
    return out


def _decode_frames(plan: CodecPlan, frames: Any, rows: int) -> Batch:
    batch = new_batch(plan, shared_pool())
    if rows:
        view = memoryview(frames).cast("B")
        slab = shared_pool().slab(len(view))
        slab.view()[: len(view)] = view
        batch.feed(slab, 0, len(view), len(view), rows)
    return assemble_columns(plan, batch.take(), rows)

"""`rk.concat` and `rk.mix`: several splits as one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from rekord import _core
from rekord.arguments import check_keywords, invalid
from rekord.dataset.dataset import Dataset
from rekord.dataset.read_transforms import has_same_transforms
from rekord.dataset.samplers import UINT64_RANGE, Ids, QuotaSampler, Sampler, allocate_quotas, parse_share
from rekord.dataset.shards import Shards
from rekord.dataset.split import LazySchema, RecordView, Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.schema import compat


def resolve_common_schema(parts: Sequence[Split]) -> LazySchema:
    """The first schema that reads the records of all parts."""
    first = parts[0].stored_schema
    if all(part.stored_schema is first for part in parts):
        return first
    schemas = [part.schema for part in parts]
    chosen = next(
        (one for one in schemas if all(_find_schema_mismatch(other, one) is None for other in schemas)), None
    )
    if chosen is None:
        raise _find_mismatch_error(parts, schemas)
    paths = [path for part in parts for path in part.paths]
    if any(part.stored_schema.declared for part in parts):
        return LazySchema(paths, chosen, None)
    return LazySchema(paths, None, None, inferred=chosen)


def _find_schema_mismatch(written: Schema, read: Schema) -> tuple[str | None, str] | None:
    """The first column, with the reason, because of which `read` cannot read all that `written` has."""
    for change in compat(written, read).changes:
        if change.verdict == "breaking":
            return change.column, change.what
    for before, after in ((written.context, read.context), (written.steps, read.steps)):
        kept = {key for name, feature in after.items() for key in feature.record_keys(name)}
        for name, feature in before.items():
            if not kept.issuperset(feature.record_keys(name)):
                return name, "only one of the schemas has it"
    return None


def _find_mismatch_error(parts: Sequence[Split], schemas: Sequence[Schema]) -> RekordError:
    """The error for the first part and one of those that its schema does not read."""
    unread = []
    for part, schema in zip(parts, schemas, strict=True):
        misfit = _find_schema_mismatch(schema, schemas[0])
        if misfit is not None:
            unread.append((part, schema, misfit))
    # Preferably one that does not read the first either: otherwise its schema would do for both.
    other, against, (column, why) = next(
        (one for one in unread if _find_schema_mismatch(schemas[0], one[1]) is not None), unread[0]
    )
    return error(
        "U656",
        "splits hold different kinds of records" if column is None else f"`{column}` differs between splits: {why}",
        location=Location(path=next(iter(other.paths), None), feature=column),
        expected=f"{_format_column(schemas[0], column)}, as in {next(iter(parts[0].paths), 'the first split')}",
        found=_format_column(against, column),
        do="rk.open(path, schema=…) with one schema that reads all of them",
    )


def _format_column(schema: Schema, column: str | None) -> str:
    if column is None:
        return "SequenceExamples" if schema.is_sequence else "Examples"
    return repr(schema[column])[:60] if column in tuple(schema) else "no such column"


@check_keywords
def concat(splits: Iterable[Split | Dataset]) -> Split:
    """All records of these splits as one split, in this order; nothing is copied.

    Views and datasets with one split are accepted. The schemas may differ, as long as one of them reads all records
    and has every column.
    """
    parts = _validate_splits(splits)
    if len(parts) == 1:
        return parts[0]
    schema = resolve_common_schema(parts)
    names = "+".join(dict.fromkeys([part.name for part in parts]))
    return Split(
        names,
        RecordView.concat([part.view for part in parts], digest=_combine_digests(parts)),
        schema,
        row_transforms=None if parts[0].row_transforms is None else parts[0].row_transforms.on(schema),
        batch_map=parts[0].batch_map,
    )


def _validate_splits(splits: Any) -> list[Split]:
    given = list(splits) if isinstance(splits, Iterable) and not isinstance(splits, (Split, Dataset)) else []
    parts = [one.only_split("concat") if isinstance(one, (Split, Dataset)) else one for one in given]
    wrong = [one for one in parts if not isinstance(one, Split)]
    if not parts or wrong:
        found = f"{type(wrong[0]).__name__}: {repr(wrong[0])[:40]}" if wrong else repr(splits)[:60]
        raise error(
            "U605",
            "`concat` needs splits",
            expected="a list of one or more splits",
            found=found,
            do='rk.concat([dataset["train"], dataset["val"]])',
        )
    for one in parts:
        one.require_view("concat")
        for what, is_same, do in (
            ("transforms", has_same_transforms(one.row_transforms, parts[0].row_transforms), "transform(…)"),
            ("map functions", one.batch_map is parts[0].batch_map, "map(function)"),
        ):
            if not is_same:
                raise error(
                    "U656",
                    f"splits with different {what} cannot be combined",
                    expected=f"splits without {what}, or all with the same ones",
                    found=f"different ones in `{parts[0].name}` and `{one.name}`",
                    do=f"rk.concat([a, b]).{do}",
                )
    return parts


def _combine_digests(parts: Sequence[Split]) -> str | None:
    """One digest for all parts if each is known without reading the files; None otherwise."""
    known = [f"{part.name}:{part.view.known_digest}" for part in parts if part.view.known_digest is not None]
    return hashlib.sha256("+".join(known).encode()).hexdigest() if len(known) == len(parts) else None


MixLength: TypeAlias = 'int | Literal["sum", "shortest", "longest"]'


@check_keywords
def mix(parts: Sequence[tuple[Split | Dataset, float]], *, length: MixLength = "sum") -> Split:
    """One split of several: `rk.mix([(a, 0.7), (b, 0.3)])` has 7 records of `a` to 3 of `b` in every epoch.

    An epoch has as many records as all splits together (`length="sum"`), as many as fit before one of them repeats
    ("shortest"), as many as it takes to deliver every record of each ("longest"), or `length` records. A split that
    is too small for its share is repeated evenly; one that is too large continues in the next epoch.
    """
    splits, shares = _validate_shares(parts)
    schema = resolve_common_schema(splits)
    sizes = [len(split) for split in splits]
    for number, size in enumerate(sizes):
        if not size:
            raise _mix_error(
                f"part {number} has no records", "records in every part", "none", f"remove part {number}"
            )
    quotas = _compute_quotas(sizes, shares, length)
    digest = hashlib.sha256("\0".join(split.digest() for split in splits).encode()).hexdigest()
    view = RecordView(Shards.concat([split.view.shards for split in splits]), digest=digest)
    return Split("mix", view, schema, sampling=MixturePlan(SplitGroups(tuple(splits)), quotas))


@dataclass(frozen=True, eq=False)
class SplitGroups:
    """Splits as groups. The records of one come after those of the splits before it."""

    splits: tuple[Split, ...]

    def __len__(self) -> int:
        return len(self.splits)

    def size(self, part: int) -> int:
        return len(self.splits[part])

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        own = self.sampler(part, shuffled=shuffled, seed=seed)
        before = sum(len(split.view.shards) for split in self.splits[:part])
        return before + own.records(round % UINT64_RANGE, numbers)

    def sampler(self, part: int, *, shuffled: bool, seed: int) -> Sampler:
        """The sampler of one split. Two equal splits have different orders."""
        own_seed = _core.order_key([seed, part]) >> 1 if shuffled else 0
        return self.splits[part].sampler(shuffled, own_seed)


@dataclass(frozen=True, eq=False)
class MixturePlan:
    """Splits, each with a quota per epoch."""

    parts: SplitGroups
    quotas: Ids

    @property
    def description(self) -> str:
        return f"a mixture of {len(self.parts)} splits"

    @property
    def size(self) -> int:
        return int(self.quotas.sum())

    @property
    def achieved(self) -> dict[int, float]:
        """The share of each split, by its position in the list."""
        return dict(enumerate((self.quotas / max(self.size, 1)).tolist()))

    def sampler(self, *, shuffled: bool, seed: int) -> QuotaSampler:
        parts = [self.parts.sampler(part, shuffled=shuffled, seed=seed) for part in range(len(self.parts))]
        return QuotaSampler(self.parts, self.quotas, shuffled, seed, {"mixed": [one.to_dict() for one in parts]})


def _validate_shares(parts: object) -> tuple[list[Split], list[Fraction]]:
    given = list(parts) if isinstance(parts, (list, tuple)) else []
    splits: list[Split] = []
    shares: list[Fraction] = []
    for number, part in enumerate(given):
        split = part[0] if isinstance(part, (list, tuple)) and len(part) == 2 else None
        if isinstance(split, Dataset):
            split = split.only_split("mix")
        if not isinstance(split, Split):
            raise _mix_error(
                f"part {number} is not a pair of a split and a share",
                "(split, share)",
                repr(part)[:60],
                "rk.mix([(a, 0.7), (b, 0.3)])",
            )
        share = parse_share("(split, 0.5)", part[1])
        if not share:
            raise _mix_error(f"part {number} has share 0", "shares above 0", "0", f"remove part {number}")
        for what, value, do in (
            ("a map function", split.batch_map, "map(function)"),
            ("transforms", split.row_transforms, "transform(…)"),
        ):
            if value is not None:
                raise _mix_error(
                    f"part {number} has {what}, and a batch has records of all parts",
                    f"splits without {what}",
                    f"a split with .{do.partition('(')[0]}(…)",
                    f"rk.mix([…]).{do}",
                )
        splits.append(split)
        shares.append(share)
    if not splits:
        raise _mix_error(
            "no splits given",
            "a list of (split, share)",
            repr(parts)[:60],
            "rk.mix([(a, 0.7), (b, 0.3)])",
        )
    return splits, shares


def _compute_quotas(sizes: Sequence[int], shares: Sequence[Fraction], length: object) -> Ids:
    total = sum(shares, Fraction(0))
    rounds = [Fraction(size) * total / share for size, share in zip(sizes, shares, strict=True)]
    if length == "sum":
        return allocate_quotas(sum(sizes), shares)
    if length == "longest":
        n = math.ceil(max(rounds))
        while (allocate_quotas(n, shares) < sizes).any():
            n += 1
        return allocate_quotas(n, shares)
    if length == "shortest":
        # Rounding may leave room for a few more than the exact number. At least one fits.
        n = math.floor(min(rounds)) + len(shares)
        while (allocate_quotas(n, shares) > sizes).any():
            n -= 1
        return allocate_quotas(n, shares)
    if isinstance(length, bool) or not hasattr(length, "__index__") or length.__index__() < 1:
        raise invalid("length", length, '"sum", "shortest", "longest", or an integer ≥ 1', 'length="sum"')
    return allocate_quotas(int(length.__index__()), shares)


def _mix_error(what: str, expected: str, found: str, do: str) -> RekordError:
    return error("U656", f"splits cannot be mixed: {what}", expected=expected, found=found, do=do)

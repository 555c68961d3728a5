"""`rk.balance`: a dataset whose classes have the numbers of records that a strategy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from rekord.conversion.copy_records import Records, Stretch, cut_records
from rekord.conversion.derive import Copied, Framed, Linked, NewShard, NewSplit, Remake, kept_shard
from rekord.conversion.driver import Outcome
from rekord.conversion.plan import CutRule
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import SplitPart
from rekord.dataset.order import Order
from rekord.dataset.samplers import Selected, digest_of, selected
from rekord.dataset.shard_index import compression_of
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.layouts.tfds import check_tfds
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.messages import near_miss, shown
from rekord.storage.local import PathLike, Storage
from rekord.transforms.augment import augmentation, checked_augmentations
from rekord.verbs.balance.sampling import Draw, fewer, labelled, more, targets
from rekord.verbs.balance.synthesis import (
    MakeRow,
    Synthesised,
    Varied,
    Vectors,
    WithAdded,
    check_counts,
    check_size,
    package,
    synthesised,
    vectors_of,
    versions,
)
from rekord.verbs.derive_common import (
    Old,
    RemadeCompanions,
    as_outcome,
    check_apart,
    damage_told,
    opened,
    records_of,
    remake_plan,
    run_remake,
)
from rekord.verbs.options import BalanceOptions, SamplingStrategy, output_folder, worker_count
from rekord.verbs.rewrite.rewrite import Given, found_schema
from rekord.verbs.write import (
    TFDS_VERSION,
    shard_template,
    tfds_name,
)
from rekord.version import VERSION

_MOST_TOLD = 1000
_FOR_MEASURING = frozenset(("val", "valid", "validation", "dev", "eval", "test"))


@dataclass(frozen=True, kw_only=True)
class Balancing:
    """A balanced dataset that is ready to be made."""

    out: str
    old: Old
    wanted: Remake
    by: str
    method: str
    augment: tuple[str, ...]
    draws: Mapping[str, Draw]

    def run(self, *, progress: bool) -> Outcome:
        """Make it."""
        return as_outcome(run_remake(self.wanted, [self.old], progress=progress))

    @property
    def added(self) -> int:
        """Records that the old dataset does not have."""
        return sum(len(draw.added) for draw in self.draws.values())

    @property
    def removed(self) -> int:
        """Records that the new dataset does not have."""
        return sum(draw.removed for draw in self.draws.values())

    @property
    def looks_alike(self) -> bool:
        """Whether several copies of a record are one picture: there is only one way to flip it."""
        return self.augment == ("flip",) and any((draw.copies > 1).any() for draw in self.draws.values())

    def to_dict(self) -> dict[str, Any]:
        """Counts before and after, as JSON holds them."""
        return {
            "dataset": self.out,
            "by": self.by,
            "method": self.method,
            "splits": {
                name: {
                    "before": draw.labelled.named(draw.labelled.counts),
                    "after": draw.labelled.named(draw.after),
                    "without": draw.labelled.without,
                }
                for name, draw in self.draws.items()
            },
            "kept": [name for name in self.old.splits if name not in self.draws],
            "added": self.added,
            "removed": self.removed,
        }


def prepare_balance(
    path: Given, out: PathLike, asked: BalanceOptions, *, storage: Storage | None = None
) -> Balancing:
    """Everything that can be refused before a record is written is refused here."""
    place = output_folder(out)
    names = () if asked.augment is None else checked_augmentations(asked.augment)
    _check_together(asked, names)
    if asked.method == "smote":
        package()
    old = opened(path)
    check_apart(place, [old])
    chosen = _chosen_splits(old, asked.splits)
    old = replace(old, schema=found_schema([old], old.splits, None))
    with damage_told([old]):
        draws = {name: _draw(old.splits[name], asked) for name in chosen}
        wanted = _remake(old, draws, names, place, asked)
    if storage is not None:
        wanted = replace(wanted, storage=storage)
    return Balancing(
        out=place, old=old, wanted=wanted, by=asked.by, method=asked.method, augment=names, draws=draws
    )


def _check_together(asked: BalanceOptions, augmentations: Sequence[str]) -> None:
    """Refuse what means nothing beside the method."""
    method = asked.method
    for name, given, needs in (
        ("augment", bool(augmentations), "oversample"),
        ("per_box", asked.per_box is not None, "oversample"),
        ("columns", asked.columns is not None, "smote"),
        ("k_neighbors", asked.k_neighbors != BalanceOptions.k_neighbors, "smote"),
    ):
        if given and method != needs:
            raise error(
                "U605",
                f"`{name}` means nothing for method {method!r}",
                expected=f"method={needs!r}, or no {name}",
                found=f"method={method!r}",
                do=f'leave {name} out, or method="{needs}"',
            )
    if asked.per_box is not None and not augmentations:
        raise error(
            "U605",
            "`per_box` means nothing without `augment`: plain copies keep their boxes",
            expected="augment=[…], or no per_box",
            found="no augment",
            do="leave per_box out, or name augmentations: augment=['crop']",
        )


def _chosen_splits(old: Old, asked: object) -> list[str]:
    """The splits to be balanced, of which each is balanced on its own."""
    known = list(old.splits)
    names = list(asked) if isinstance(asked, (list, tuple)) else [asked]
    for name in names if asked is not None else ():
        if name not in known:
            near = near_miss(name, known) if isinstance(name, str) else None
            raise error(
                "X506",
                f"there is no split {shown(name)}",
                location=Location(path=old.name),
                expected="one of " + ", ".join(map(repr, known))[:60],
                found=shown(name),
                do=f"--splits {near or known[0]}",
            )
    if asked is not None:
        chosen = [name for name in known if name in names]
    elif "train" in known:
        chosen = ["train"]
    else:
        chosen = known if len(known) == 1 and known[0] not in _FOR_MEASURING else []
    if not chosen:
        raise error(
            "U605",
            "splits to balance are not given",
            location=Location(path=old.name),
            expected="a split `train`, or the names of those to be balanced",
            found=", ".join(known)[:60],
            do=f"--splits {known[0]}",
        )
    return chosen


def _draw(split: Split, asked: BalanceOptions) -> Draw:
    if asked.method == "smote":
        split.view.shards.check_any_order()  # neighbours are looked up by number
    records = labelled(split, asked.by)
    grow = asked.method != "undersample"
    after = targets(asked.sampling_strategy, records.classes, records.values_of_records, grow=grow)
    return (more if grow else fewer)(records, after, asked.seed)


def _remake(
    old: Old, draws: Mapping[str, Draw], augmentations: Sequence[str], out: str, asked: BalanceOptions
) -> Remake:
    cut = asked.cut
    new: dict[str, NewSplit] = {}
    options: dict[str, Any] = {
        "by": asked.by,
        "method": asked.method,
        "augment": list(augmentations),
        "per_box": None if asked.per_box is None else list(asked.per_box),
        "splits": {name: _told_counts(draw) for name, draw in draws.items()},
        "shuffle": bool(asked.shuffle),
        "seed": asked.seed,
        "shard_bytes": None if cut.shards is not None else cut.shard_bytes,
        "shards": cut.shards,
        "format": asked.format,
    }
    vectors = None
    if asked.method == "smote":
        vectors = vectors_of(old.schema, asked.by, asked.columns)
        for draw in draws.values():
            check_counts(draw, asked.k_neighbors)
            check_size(draw, vectors)
        options |= {"k_neighbors": asked.k_neighbors, "columns": list(vectors.names), "versions": versions()}
    for name, split in old.splits.items():
        part = None if old.manifest is None else old.manifest.splits.get(name)
        if name not in draws:
            new[name] = _kept_split(old, split, part, out, cut, asked)
            continue
        draw = draws[name]
        compression = asked.compression or _compression(split)
        make, touches = _maker(name, draw, old.schema, augmentations, vectors, asked)
        shards = _drawn_shards(draw, cut, make, touches, asked)
        new[name] = NewSplit(
            shards=shards, template=shard_template(out, compression, asked.format), compression=compression
        )
    options |= {
        "templates": {name: split.template for name, split in new.items()},
        "compression": {name: split.compression for name, split in new.items()},
        "records": {name: digest_of(selected(draw.ids)) for name, draw in draws.items()},
    }
    if asked.format == "tfds":
        packed = next((one.compression for one in new.values() if one.compression != "none"), None)
        check_tfds(old.schema, tfds_name(out), TFDS_VERSION, tuple(new), packed)
    return Remake(
        out=out,
        splits=new,
        schema=old.schema,
        index=old.index,
        plan=remake_plan("balance", old, old.schema, old.index, options),
        version=VERSION,
        companions=RemadeCompanions(old, old.schema, out, tfds=asked.format == "tfds"),
        parent=old.parent,
        workers=worker_count(asked.workers),
        fresh=bool(asked.fresh),
        framed_bytes=_framed_bytes(new),
    )


def _told_counts(draw: Draw) -> dict[str, int] | int:
    """What the manifest says of a split: the records of each class, or how many classes there are."""
    return draw.labelled.named(draw.after) if len(draw.after) <= _MOST_TOLD else len(draw.after)


def _maker(
    name: str,
    draw: Draw,
    schema: Schema,
    augmentations: Sequence[str],
    vectors: Vectors | None,
    asked: BalanceOptions,
) -> tuple[MakeRow | None, frozenset[str]]:
    """What makes the rows that are added, and which columns of theirs are others; None where they are copies."""
    if vectors is not None:
        make = partial(synthesised, draw, vectors, neighbours=asked.k_neighbors, seed=asked.seed)
        return Synthesised(make), frozenset(schema)
    if not augmentations:
        return None, frozenset()
    varied = augmentation(augmentations, schema, per_box=asked.per_box)
    return Varied(varied, asked.seed, name, draw.added, draw.copies), varied.touches


def _drawn_shards(
    draw: Draw, cut: CutRule, make: MakeRow | None, touches: frozenset[str], asked: BalanceOptions
) -> list[NewShard]:
    order = Order("exact" if asked.shuffle else "sequential", len(draw.ids), asked.seed)
    records = Records(draw.labelled.split.view.shards, Selected(order, selected(draw.ids)))
    # What rows that are made will weigh is not known yet: as much as the records that they go back to.
    stretches = cut_records(records, cut)
    if make is None:
        return [Copied(stretch) for stretch in stretches]
    function = WithAdded(order, len(draw.kept), make, touches)
    return [Framed(stretch, function) for stretch in stretches]


def _kept_split(
    old: Old, split: Split, part: SplitPart | None, out: str, cut: CutRule, asked: BalanceOptions
) -> NewSplit:
    """A split that stays as it is, shard for shard."""
    records = records_of(split)
    compression = _compression(split)
    shards: list[NewShard]
    if split.view.ids is not None:
        shards = [Copied(stretch) for stretch in cut_records(records, cut)]
    elif part is not None:
        shards = [kept_shard(records, i, part, old.index) for i in range(len(part.shards.records))]
    else:
        starts = split.view.shards.starts.tolist()
        shards = [Copied(Stretch(records, begin, end)) for begin, end in pairwise(starts)]
    return NewSplit(
        shards=shards, template=shard_template(out, compression, asked.format), compression=compression
    )


def _compression(split: Split) -> str:
    found = {compression_of(path) for path in split.paths}
    return found.pop() if len(found) == 1 else "none"


def _framed_bytes(splits: Mapping[str, NewSplit]) -> int:
    """About how much will be written."""
    shards = [shard for split in splits.values() for shard in split.shards if not isinstance(shard, Linked)]
    return sum(int(lengths.sum()) for shard in shards for _, lengths in shard.stretch.pieces())


def balance(
    path: Given,
    out: PathLike,
    *,
    by: str = "label",
    method: Literal["oversample", "undersample", "smote"] = "oversample",
    sampling_strategy: SamplingStrategy = "auto",
    splits: str | Sequence[str] | None = None,
    augment: str | Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    k_neighbors: int = 5,
    shuffle: bool = True,
    seed: int = 0,
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    format: Literal["tfds"] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset at `out` in which the classes of `by` have the numbers that are asked for, and open it.

    "oversample" adds copies of records, as many of each record of a class as of any other, give or take one.
    "undersample" leaves records out. Both copy records as they are. "smote" adds new ones between those of a class,
    made by imbalanced-learn of the numbers in `columns` (the extra `balance`).

    `sampling_strategy` is what imbalanced-learn takes: "auto", "minority", "majority", "not minority",
    "not majority", "all", a ratio for two classes, `{class: records}`, or a function of the classes of all records.

    Each split is balanced on its own, and only those of `splits`: by default `train`. All others stay as they are.
    Records without a class stay too. `augment` varies the pictures of copies, with their masks and boxes, by "flip",
    "crop", "rotate" and "colour". With `shuffle` the records of a balanced split are in a new order; without, copies
    come behind all others.
    """
    prepared = prepare_balance(path, out, BalanceOptions.of(locals()))
    prepared.run(progress=progress)
    return open_dataset(prepared.out)

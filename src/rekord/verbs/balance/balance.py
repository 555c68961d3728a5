"""`rk.balance`: a dataset whose classes have the numbers of records that a strategy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from rekord.arguments import check_keywords
from rekord.conversion.copy_records import RecordRange, RecordSequence, plan_record_ranges
from rekord.conversion.derive import (
    CopiedShard,
    Derivation,
    DerivedShard,
    DerivedSplit,
    GeneratedShard,
    LinkedShard,
    reuse_shard,
)
from rekord.conversion.driver import ConversionResult
from rekord.conversion.plan import ShardingRule
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import ManifestSplit
from rekord.dataset.samplers import EpochOrder, SubsetSampler, digest_selection, normalize_selection
from rekord.dataset.shard_index import detect_file_compression
from rekord.dataset.split import Split
from rekord.errors import closest_match, error, preview
from rekord.layouts.tfds import check_tfds
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike, Storage
from rekord.transforms.augment import build_augmentation, validate_augmentations
from rekord.verbs.balance.sampling import (
    SampledRecords,
    compute_targets,
    oversample,
    read_record_labels,
    undersample,
)
from rekord.verbs.balance.synthesis import (
    AddedRowFrames,
    AugmentedRowMaker,
    RowMaker,
    SyntheticRowMaker,
    VectorColumns,
    check_memory,
    check_neighbour_counts,
    get_package_versions,
    import_imblearn,
    select_vector_columns,
    synthesize_rows,
)
from rekord.verbs.derive_common import (
    DerivedCompanions,
    SourceDataset,
    build_derivation_plan,
    check_separate_folders,
    open_source_dataset,
    run_derivation,
    select_split_records,
    suggest_salvage,
    to_conversion_result,
)
from rekord.verbs.options import BalanceOptions, SamplingStrategy, output_folder, resolve_worker_count
from rekord.verbs.rewrite.rewrite import DatasetLike, resolve_source_schema
from rekord.verbs.write import (
    TFDS_VERSION,
    infer_tfds_name,
    make_shard_template,
)
from rekord.version import VERSION

_MAX_RECORDED_CLASSES = 1000
_EVALUATION_SPLITS = frozenset(("val", "valid", "validation", "dev", "eval", "test"))


@dataclass(frozen=True, kw_only=True)
class PreparedBalance:
    """A balanced dataset that is ready to be made."""

    out: str
    old: SourceDataset
    wanted: Derivation
    by: str
    method: str
    augment: tuple[str, ...]
    samples: Mapping[str, SampledRecords]

    def run(self, *, progress: bool) -> ConversionResult:
        """Make it."""
        return to_conversion_result(run_derivation(self.wanted, [self.old], progress=progress))

    @property
    def added(self) -> int:
        """Records that the old dataset does not have."""
        return sum(len(draw.added) for draw in self.samples.values())

    @property
    def removed(self) -> int:
        """Records that the new dataset does not have."""
        return sum(draw.removed for draw in self.samples.values())

    @property
    def has_identical_copies(self) -> bool:
        """Whether several copies of a record are one image: there is only one way to flip it."""
        return self.augment == ("flip",) and any((draw.copies > 1).any() for draw in self.samples.values())

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
                for name, draw in self.samples.items()
            },
            "kept": [name for name in self.old.splits if name not in self.samples],
            "added": self.added,
            "removed": self.removed,
        }


def prepare_balance(
    path: DatasetLike, out: PathLike, requested: BalanceOptions, *, storage: Storage | None = None
) -> PreparedBalance:
    """Everything that can be refused before a record is written is refused here."""
    place = output_folder(out)
    names = () if requested.augment is None else validate_augmentations(requested.augment)
    _check_option_combinations(requested, names)
    if requested.method == "smote":
        import_imblearn()
    old = open_source_dataset(path)
    check_separate_folders(place, [old])
    chosen = _select_splits(old, requested.splits)
    old = replace(old, schema=resolve_source_schema([old], old.splits, None))
    with suggest_salvage([old]):
        samples = {name: _sample_split(old.splits[name], requested) for name in chosen}
        wanted = _build_derivation(old, samples, names, place, requested)
    if storage is not None:
        wanted = replace(wanted, storage=storage)
    return PreparedBalance(
        out=place,
        old=old,
        wanted=wanted,
        by=requested.by,
        method=requested.method,
        augment=names,
        samples=samples,
    )


def _check_option_combinations(requested: BalanceOptions, augmentations: Sequence[str]) -> None:
    """Refuse what means nothing beside the method."""
    method = requested.method
    for name, given, needs in (
        ("augment", bool(augmentations), "oversample"),
        ("per_box", requested.per_box is not None, "oversample"),
        ("columns", requested.columns is not None, "smote"),
        ("k_neighbors", requested.k_neighbors != BalanceOptions.k_neighbors, "smote"),
    ):
        if given and method != needs:
            raise error(
                "U605",
                f"`{name}` means nothing for method {method!r}",
                expected=f"method={needs!r}, or no {name}",
                found=f"method={method!r}",
                do=f'leave {name} out, or method="{needs}"',
            )
    if requested.per_box is not None and not augmentations:
        raise error(
            "U605",
            "`per_box` means nothing without `augment`: plain copies keep their boxes",
            expected="augment=[…], or no per_box",
            found="no augment",
            do="leave per_box out, or name augmentations: augment=['crop']",
        )


def _select_splits(old: SourceDataset, requested: object) -> list[str]:
    """The splits to be balanced, of which each is balanced on its own."""
    known = list(old.splits)
    names = list(requested) if isinstance(requested, (list, tuple)) else [requested]
    for name in names if requested is not None else ():
        if name not in known:
            near = closest_match(name, known) if isinstance(name, str) else None
            raise error(
                "X506",
                f"there is no split {preview(name)}",
                location=Location(path=old.name),
                expected="one of " + ", ".join(map(repr, known))[:60],
                found=preview(name),
                do=f"--splits {near or known[0]}",
            )
    if requested is not None:
        chosen = [name for name in known if name in names]
    elif "train" in known:
        chosen = ["train"]
    else:
        chosen = known if len(known) == 1 and known[0] not in _EVALUATION_SPLITS else []
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


def _sample_split(split: Split, requested: BalanceOptions) -> SampledRecords:
    if requested.method == "smote":
        split.view.shards.check_random_access()  # neighbours are looked up by number
    records = read_record_labels(split, requested.by)
    grow = requested.method != "undersample"
    after = compute_targets(requested.sampling_strategy, records.classes, records.values_of_records, grow=grow)
    return (oversample if grow else undersample)(records, after, requested.seed)


def _build_derivation(
    old: SourceDataset,
    samples: Mapping[str, SampledRecords],
    augmentations: Sequence[str],
    out: str,
    requested: BalanceOptions,
) -> Derivation:
    cut = requested.cut
    new: dict[str, DerivedSplit] = {}
    options: dict[str, Any] = {
        "by": requested.by,
        "method": requested.method,
        "augment": list(augmentations),
        "per_box": None if requested.per_box is None else list(requested.per_box),
        "splits": {name: _counts_for_manifest(draw) for name, draw in samples.items()},
        "shuffle": bool(requested.shuffle),
        "seed": requested.seed,
        "shard_bytes": None if cut.shards is not None else cut.shard_bytes,
        "shards": cut.shards,
        "format": requested.format,
    }
    vectors = None
    if requested.method == "smote":
        vectors = select_vector_columns(old.schema, requested.by, requested.columns)
        for draw in samples.values():
            check_neighbour_counts(draw, requested.k_neighbors)
            check_memory(draw, vectors)
        options |= {
            "k_neighbors": requested.k_neighbors,
            "columns": list(vectors.names),
            "versions": get_package_versions(),
        }
    for name, split in old.splits.items():
        part = None if old.manifest is None else old.manifest.splits.get(name)
        if name not in samples:
            new[name] = _keep_split(old, split, part, out, cut, requested)
            continue
        draw = samples[name]
        compression = requested.compression or _detect_split_compression(split)
        make, touches = _build_row_maker(name, draw, old.schema, augmentations, vectors, requested)
        shards = _build_sampled_shards(draw, cut, make, touches, requested)
        new[name] = DerivedSplit(
            shards=shards,
            template=make_shard_template(out, compression, requested.format),
            compression=compression,
        )
    options |= {
        "templates": {name: split.template for name, split in new.items()},
        "compression": {name: split.compression for name, split in new.items()},
        "records": {name: digest_selection(normalize_selection(draw.ids)) for name, draw in samples.items()},
    }
    if requested.format == "tfds":
        packed = next((one.compression for one in new.values() if one.compression != "none"), None)
        check_tfds(old.schema, infer_tfds_name(out), TFDS_VERSION, tuple(new), packed)
    return Derivation(
        out=out,
        splits=new,
        schema=old.schema,
        index=old.index,
        plan=build_derivation_plan("balance", old, old.schema, old.index, options),
        version=VERSION,
        companions=DerivedCompanions(old, old.schema, out, tfds=requested.format == "tfds"),
        parent=old.parent,
        workers=resolve_worker_count(requested.workers),
        fresh=bool(requested.fresh),
        framed_bytes=_estimate_framed_bytes(new),
    )


def _counts_for_manifest(draw: SampledRecords) -> dict[str, int] | int:
    """What the manifest says of a split: the records of each class, or how many classes there are."""
    return draw.labelled.named(draw.after) if len(draw.after) <= _MAX_RECORDED_CLASSES else len(draw.after)


def _build_row_maker(
    name: str,
    draw: SampledRecords,
    schema: Schema,
    augmentations: Sequence[str],
    vectors: VectorColumns | None,
    requested: BalanceOptions,
) -> tuple[RowMaker | None, frozenset[str]]:
    """What makes the rows that are added, and which columns of theirs are others; None where they are copies."""
    if vectors is not None:
        make = partial(synthesize_rows, draw, vectors, neighbours=requested.k_neighbors, seed=requested.seed)
        return SyntheticRowMaker(make), frozenset(schema)
    if not augmentations:
        return None, frozenset()
    varied = build_augmentation(augmentations, schema, per_box=requested.per_box)
    return AugmentedRowMaker(varied, requested.seed, name, draw.added, draw.copies), varied.touches


def _build_sampled_shards(
    draw: SampledRecords,
    cut: ShardingRule,
    make: RowMaker | None,
    touches: frozenset[str],
    requested: BalanceOptions,
) -> list[DerivedShard]:
    order = EpochOrder("exact" if requested.shuffle else "sequential", len(draw.ids), requested.seed)
    records = RecordSequence(draw.labelled.split.view.shards, SubsetSampler(order, normalize_selection(draw.ids)))
    # What rows that are made will weigh is not known yet: as much as the records that they go back to.
    stretches = plan_record_ranges(records, cut)
    if make is None:
        return [CopiedShard(stretch) for stretch in stretches]
    function = AddedRowFrames(order, len(draw.kept), make, touches)
    return [GeneratedShard(stretch, function) for stretch in stretches]


def _keep_split(
    old: SourceDataset,
    split: Split,
    part: ManifestSplit | None,
    out: str,
    cut: ShardingRule,
    requested: BalanceOptions,
) -> DerivedSplit:
    """A split that stays as it is, shard for shard."""
    records = select_split_records(split)
    compression = _detect_split_compression(split)
    shards: list[DerivedShard]
    if split.view.ids is not None:
        shards = [CopiedShard(stretch) for stretch in plan_record_ranges(records, cut)]
    elif part is not None:
        shards = [reuse_shard(records, i, part, old.index) for i in range(len(part.shards.records))]
    else:
        starts = split.view.shards.starts.tolist()
        shards = [CopiedShard(RecordRange(records, begin, end)) for begin, end in pairwise(starts)]
    return DerivedSplit(
        shards=shards,
        template=make_shard_template(out, compression, requested.format),
        compression=compression,
    )


def _detect_split_compression(split: Split) -> str:
    found = {detect_file_compression(path) for path in split.paths}
    return found.pop() if len(found) == 1 else "none"


def _estimate_framed_bytes(splits: Mapping[str, DerivedSplit]) -> int:
    """About how much will be written."""
    shards = [shard for split in splits.values() for shard in split.shards if not isinstance(shard, LinkedShard)]
    return sum(int(lengths.sum()) for shard in shards for _, lengths in shard.stretch.pieces())


@check_keywords
def balance(
    path: DatasetLike,
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
    Records without a class stay too. `augment` varies the images of copies, with their masks and boxes, by "flip",
    "crop", "rotate" and "colour". With `shuffle` the records of a balanced split are in a new order; without, copies
    come behind all others.
    """
    prepared = prepare_balance(path, out, BalanceOptions.of(locals()))
    prepared.run(progress=progress)
    return open_dataset(prepared.out)

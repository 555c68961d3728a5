"""`rk.balance`: a dataset whose classes have the number of records that a strategy determines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from rekord.arguments import check_keywords, inapplicable
from rekord.conversion.derive import (
    CopiedShard,
    Derivation,
    DerivedShard,
    DerivedSplit,
    GeneratedShard,
    LinkedShard,
    plan_record_ranges,
    reuse_shard,
)
from rekord.conversion.driver import ConversionResult
from rekord.conversion.plan import ShardingRule
from rekord.conversion.record_copier import RecordRange, RecordSequence
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import ManifestSplit
from rekord.dataset.samplers import EpochOrder, SubsetSampler, digest_selection, normalize_selection
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike, Storage
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.augment import build_augmentation, validate_augmentations
from rekord.verbs.derive_common import (
    SourceDataset,
    build_derivation_plan,
    check_separate_folders,
    check_split_name,
    derived_companions,
    open_source_dataset,
    run_derivation,
    select_split_records,
    suggest_salvage,
    to_conversion_result,
)
from rekord.verbs.options import BalanceOptions, SamplingStrategy, output_folder, resolve_worker_count
from rekord.verbs.resampling import (
    AddedRowFrames,
    AugmentedRowMaker,
    RowMaker,
    SampledRecords,
    SyntheticRowMaker,
    VectorColumns,
    check_memory,
    check_neighbour_counts,
    compute_targets,
    get_package_versions,
    import_imblearn,
    oversample,
    read_record_labels,
    select_vector_columns,
    synthesize_rows,
    undersample,
)
from rekord.verbs.rewrite import DatasetLike, choose_compression, resolve_source_schema
from rekord.verbs.write import check_tfds_output, make_shard_template
from rekord.version import VERSION

_MAX_RECORDED_CLASSES = 1000
_EVALUATION_SPLITS = frozenset(("val", "valid", "validation", "dev", "eval", "test"))


@dataclass(frozen=True, kw_only=True)
class PreparedBalance:
    """A balanced dataset that is ready to be written."""

    out: str
    old: SourceDataset
    wanted: Derivation
    by: str
    method: str
    augment: tuple[str, ...]
    samples: Mapping[str, SampledRecords]

    def run(self, *, progress: bool) -> ConversionResult:
        """Write it."""
        return to_conversion_result(run_derivation(self.wanted, [self.old], progress=progress))

    @property
    def added(self) -> int:
        """The number of records that are not in the old dataset."""
        return sum(len(sample.added) for sample in self.samples.values())

    @property
    def removed(self) -> int:
        """The number of records that are not in the new dataset."""
        return sum(sample.removed for sample in self.samples.values())

    @property
    def has_identical_copies(self) -> bool:
        """Whether several copies of a record are the same image: there is only one way to flip it."""
        return self.augment == ("flip",) and any((sample.copies > 1).any() for sample in self.samples.values())

    def to_dict(self) -> dict[str, Any]:
        """Counts before and after, as a JSON document."""
        return {
            "dataset": self.out,
            "by": self.by,
            "method": self.method,
            "splits": {
                name: {
                    "before": sample.labelled.named(sample.labelled.counts),
                    "after": sample.labelled.named(sample.after),
                    "without": sample.labelled.without,
                }
                for name, sample in self.samples.items()
            },
            "kept": [name for name in self.old.splits if name not in self.samples],
            "added": self.added,
            "removed": self.removed,
        }


def prepare_balance(
    path: DatasetLike, out: PathLike, requested: BalanceOptions, *, storage: Storage = ROUTED_STORAGE
) -> PreparedBalance:
    """Validate everything that can be validated before a record is written."""
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
        wanted = _build_derivation(old, samples, names, place, requested, storage)
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
    """Refuse options that do not apply to the method."""
    method = requested.method
    for name, given, needed in (
        ("augment", bool(augmentations), "oversample"),
        ("per_box", requested.per_box is not None, "oversample"),
        ("columns", requested.columns is not None, "smote"),
        ("k_neighbors", requested.k_neighbors != BalanceOptions.k_neighbors, "smote"),
    ):
        if given and method != needed:
            expected, do = f"method={needed!r}, or no {name}", f'method="{needed}"'
            raise inapplicable(name, f"to method {method!r}", expected=expected, found=f"method={method!r}", do=do)
    if requested.per_box is not None and not augmentations:
        why, expected = "without `augment`: plain copies keep their boxes", "augment, or no per_box"
        raise inapplicable("per_box", why, expected=expected, found="no augment", do='augment=["crop"]')


def _select_splits(old: SourceDataset, requested: object) -> list[str]:
    """The splits to balance, each on its own."""
    known = list(old.splits)
    names = list(requested) if isinstance(requested, (list, tuple)) else [requested]
    if requested is not None:
        for name in names:
            check_split_name(old, name, "splits")
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
            expected="a split `train`, or the names of the splits to balance",
            found=", ".join(known)[:60],
            do=f"splits={known[0]!r}",
        )
    return chosen


def _sample_split(split: Split, requested: BalanceOptions) -> SampledRecords:
    if requested.method == "smote":
        split.view.shards.check_random_access()  # neighbours are read by number
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
    storage: Storage,
) -> Derivation:
    cut = requested.cut
    new: dict[str, DerivedSplit] = {}
    options: dict[str, Any] = {
        "by": requested.by,
        "method": requested.method,
        "augment": list(augmentations),
        "per_box": None if requested.per_box is None else list(requested.per_box),
        "splits": {name: _counts_for_manifest(sample) for name, sample in samples.items()},
        "shuffle": bool(requested.shuffle),
        "seed": requested.seed,
        "shard_bytes": None if cut.shards is not None else cut.shard_bytes,
        "shards": cut.shards,
        "format": requested.format,
    }
    vectors = None
    if requested.method == "smote":
        vectors = select_vector_columns(old.schema, requested.by, requested.columns)
        for sample in samples.values():
            check_neighbour_counts(sample, requested.k_neighbors)
            check_memory(sample, vectors)
        options |= {
            "k_neighbors": requested.k_neighbors,
            "columns": list(vectors.names),
            "versions": get_package_versions(),
        }
    for name, split in old.splits.items():
        part = None if old.manifest is None else old.manifest.splits.get(name)
        if name not in samples:
            shards = _keep_shards(old, split, part, cut)
            compression = choose_compression(None, split.paths, None)
        else:
            make, touches = _build_row_maker(name, samples[name], old.schema, augmentations, vectors, requested)
            shards = _build_sampled_shards(samples[name], cut, make, touches, requested)
            compression = requested.compression or choose_compression(None, split.paths, None)
        template = make_shard_template(out, compression, requested.format)
        new[name] = DerivedSplit(shards=shards, template=template, compression=compression)
    options |= {
        "templates": {name: split.template for name, split in new.items()},
        "compression": {name: split.compression for name, split in new.items()},
        "records": {name: digest_selection(normalize_selection(one.ids)) for name, one in samples.items()},
    }
    if requested.format == "tfds":
        packed = next((one.compression for one in new.values() if one.compression != "none"), "none")
        check_tfds_output(out, old.schema, tuple(new), packed)
    return Derivation(
        out=out,
        splits=new,
        schema=old.schema,
        index=old.index,
        plan=build_derivation_plan("balance", old, old.schema, old.index, options),
        version=VERSION,
        companions=derived_companions(old, old.schema, out, tfds=requested.format == "tfds"),
        parent=old.parent,
        workers=resolve_worker_count(requested.workers),
        fresh=bool(requested.fresh),
        storage=storage,
        framed_bytes=_estimate_framed_bytes(new),
    )


def _counts_for_manifest(sample: SampledRecords) -> dict[str, int] | int:
    """The entry of a split in the manifest: the records of each class, or the number of classes if there are many."""
    return sample.labelled.named(sample.after) if len(sample.after) <= _MAX_RECORDED_CLASSES else len(sample.after)


def _build_row_maker(
    name: str,
    sample: SampledRecords,
    schema: Schema,
    augmentations: Sequence[str],
    vectors: VectorColumns | None,
    requested: BalanceOptions,
) -> tuple[RowMaker | None, frozenset[str]]:
    """The function that makes added rows, and the columns that it changes; None if added rows are copies."""
    if vectors is not None:
        make = partial(synthesize_rows, sample, vectors, neighbours=requested.k_neighbors, seed=requested.seed)
        return SyntheticRowMaker(make), frozenset(schema)
    if not augmentations:
        return None, frozenset()
    augmentation = build_augmentation(augmentations, schema, per_box=requested.per_box)
    make_row = AugmentedRowMaker(augmentation, requested.seed, name, sample.added, sample.copies)
    return make_row, augmentation.touches


def _build_sampled_shards(
    sample: SampledRecords,
    cut: ShardingRule,
    make: RowMaker | None,
    touches: frozenset[str],
    requested: BalanceOptions,
) -> list[DerivedShard]:
    order = EpochOrder("exact" if requested.shuffle else "sequential", len(sample.ids), requested.seed)
    records = RecordSequence(sample.labelled.split.view.shards, SubsetSampler(order, normalize_selection(sample.ids)))
    # The size of added rows is not known yet: it is estimated by that of the original records.
    stretches = plan_record_ranges(records, cut)
    if make is None:
        return [CopiedShard(stretch) for stretch in stretches]
    function = AddedRowFrames(order, len(sample.kept), make, touches)
    return [GeneratedShard(stretch, function) for stretch in stretches]


def _keep_shards(
    old: SourceDataset, split: Split, part: ManifestSplit | None, cut: ShardingRule
) -> list[DerivedShard]:
    """The shards of a split that is not balanced: the same ones, unless it is a view."""
    records = select_split_records(split)
    if split.view.ids is not None:
        return [CopiedShard(stretch) for stretch in plan_record_ranges(records, cut)]
    if part is not None:
        return [reuse_shard(records, i, part, old.index) for i in range(len(part.shards.records))]
    starts = split.view.shards.starts.tolist()
    return [CopiedShard(RecordRange(records, begin, end)) for begin, end in pairwise(starts)]


def _estimate_framed_bytes(splits: Mapping[str, DerivedSplit]) -> int:
    """Approximate number of bytes to write."""
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
    """Write a dataset to `out` with balanced classes of the column `by`, and open it.

    "oversample" adds copies of records; within a class, the number of copies per record differs by at most one.
    "undersample" drops records. Both copy records without decoding. "smote" adds synthetic records between those of a
    class, made by imbalanced-learn from the numbers in `columns` (needs the extra `balance`).

    `sampling_strategy` is that of imbalanced-learn: "auto", "minority", "majority", "not minority", "not majority",
    "all", a ratio for two classes, `{class: records}`, or a function of the classes of all records.

    Only `splits` are balanced, each on its own: by default `train`. All other splits, and records without a class,
    are kept. `augment` varies the images of copies, with their masks and boxes, by "flip", "crop", "rotate" and
    "colour". With `shuffle`, a balanced split is shuffled; without, copies follow all other records.
    """
    prepared = prepare_balance(path, out, BalanceOptions.of(locals()))
    prepared.run(progress=progress)
    return open_dataset(prepared.out)

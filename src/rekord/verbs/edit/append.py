"""`rk.append`: a dataset with more records, in new shards after the existing ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rekord.arguments import check_keywords
from rekord.conversion.derive import DerivedShard, reuse_shard
from rekord.conversion.driver import Conversion, OutputTarget, find_complete_dataset
from rekord.conversion.plan import RowFunction
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout, SelectedLayout, images
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.json_form import feature_from_json
from rekord.sources.base import RowsLike, is_partitioned
from rekord.storage.local import PathLike
from rekord.storage.publication import exists
from rekord.storage.transaction import Transaction
from rekord.transforms.chain import Chain, deserialize_transforms
from rekord.verbs.derive_common import (
    SourceDataset,
    build_derivation_plan,
    check_split_name,
    select_split_records,
)
from rekord.verbs.edit.common import (
    DatasetEdit,
    EditResult,
    EditTarget,
    EditWorkspace,
    build_recovered_result,
    digest_options,
    is_same_file,
    keep_shard,
    open_edit,
    open_editable,
    resolve_edit_target,
    run_edit,
)
from rekord.verbs.options import AppendOptions
from rekord.verbs.write import prepare_conversion, run_conversion


@check_keywords
def append(
    path: PathLike,
    rows: RowsLike,
    out: PathLike | None = None,
    *,
    split: Mapping[str, float] | str | None = None,
    map: RowFunction | None = None,
    names: Sequence[str] | None = None,
    shard_size: str | int = "128MB",
    shards: int | None = None,
    verify: Literal["full", "headers"] = "full",
    limit: int | None = None,
    replace: bool = False,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Write a dataset to `out` with the records of another one and more rows, and open it.

    `rows` is anything that `rk.write` accepts, in the form that the dataset was written from; a row that does not fit
    its schema raises. New classes are added after the others, if `rk.write` learned them from the data. The rows are
    written to new shards at the end of `split`: by default `train`, or the only split; a dict of ratios or "source"
    as in `rk.write`. Existing shards are linked, not copied.

    With `replace`, the new dataset replaces the old one, atomically if the system supports it.
    """
    options = AppendOptions.of(locals())
    target = resolve_edit_target(out, options, progress=progress)
    return open_dataset(append_rows(path, rows, target, options).dataset)


def append_rows(path: PathLike, rows: RowsLike, target: EditTarget, options: AppendOptions) -> EditResult:
    """Run `append`, and report the result."""
    with open_edit(path, target) as (work, done):
        old = open_editable(path, target)
        assert old.manifest is not None
        where = _default_split(old) if options.split is None else options.split
        layout, chain = _load_recorded_layout(old)
        key = old.manifest.options.get("key")
        written = options.to_write_options(
            schema=old.schema if layout is None else None,
            layout=layout,
            transforms=() if chain is None else chain.steps,
            split=where,
            key=key if isinstance(key, str) else None,
            index=old.index,
            compression=_choose_compression(old, where),
            max_rejects=0,
            workers=target.workers,
        )
        recorded = _load_recorded_columns(old)
        conversion = prepare_conversion(rows, work.rows, written, storage=target.storage, recorded=recorded)
        schema = conversion.job.schema  # with the new classes, if there are any
        for name in conversion.job.splits.names:
            check_split_name(old, name)
        plan_options = {"rows": conversion.plan.id}
        if is_partitioned(conversion.job.source):
            request_digest = digest_options("append", conversion.plan.id)
            if done is not None and done.request_digest == request_digest:
                return build_recovered_result(done, path, target)
            complete = _find_completed_edit(old, schema, plan_options, target)
            if complete is not None:
                work.clear()
                return complete
        fingerprint = _write_new_rows(conversion, work, progress=target.progress)
        if not is_partitioned(conversion.job.source):
            # Only now are the rows known.
            request_digest = digest_options("append", conversion.plan.id, fingerprint)
            plan_options["digest"] = fingerprint
            if done is not None and done.request_digest == request_digest:
                work.clear()
                return build_recovered_result(done, path, target)
        new = open_dataset(work.rows)
        made: dict[str, list[DerivedShard]] = {}
        counts: dict[str, int] = {}
        for name, one in old.splits.items():
            records = select_split_records(one)
            made[name] = [keep_shard(old, name, records, number) for number in range(len(one.paths))]
            more = _build_new_shards(new, work, old, name)
            counts[name] = len(new.splits[name]) if more else 0
            if more and not len(one):
                made[name] = []  # an empty shard was the placeholder of the split
            made[name] += more
        edit = DatasetEdit(
            verb="append",
            old=old,
            shards=made,
            counts=counts,
            options=plan_options,
            request_digest=request_digest,
            schema=None if schema == old.schema else schema,
        )
        return run_edit(edit, path, target, work)


def _write_new_rows(conversion: Conversion, work: EditWorkspace, *, progress: bool) -> str:
    """Write the rows as a dataset of their own; returns the fingerprint of their source."""
    again = is_partitioned(conversion.job.source)
    # Rows that can be read only once are always written again: comparing them would consume them.
    work.remove_stale(work.rows, conversion.plan.id if again or not exists(work.storage, work.rows) else "")
    return run_conversion(conversion, progress=progress).manifest.source.fingerprint


def _build_new_shards(new: Dataset, work: EditWorkspace, old: SourceDataset, name: str) -> list[DerivedShard]:
    """The shards with the new rows of a split."""
    if name not in new.splits or not len(new.splits[name]):
        return []
    records = select_split_records(new.splits[name])
    part = read_manifest(work.rows).splits[name]
    return [reuse_shard(records, number, part, old.index) for number in range(len(part.shards.records))]


def _find_completed_edit(
    old: SourceDataset, schema: Schema, options: Mapping[str, Any], target: EditTarget
) -> EditResult | None:
    """The result, if exactly this dataset exists. Any other output at `out` is refused before rows are read."""
    out = target.out
    if out is None or Transaction(out, target.storage).find() is None:
        return None
    plan = build_derivation_plan("append", old, schema, old.index, options)
    with Transaction(out, target.storage).lock() as transaction:
        aim = OutputTarget(out=out, plan=plan, storage=target.storage, fresh=target.fresh)
        manifest = find_complete_dataset(aim, transaction)
    if manifest is None:
        return None
    assert old.manifest is not None
    assert old.root is not None
    linked = 0
    for name, part in old.manifest.splits.items():
        for theirs, own in zip(part.names(name), manifest.splits[name].names(name), strict=False):
            linked += is_same_file(target.storage, os.path.join(old.root, theirs), os.path.join(out, own))
    shards = sum(len(part.shards.records) for part in manifest.splits.values())
    return EditResult(
        dataset=out,
        manifest=manifest,
        counts={name: part.records - old.manifest.splits[name].records for name, part in manifest.splits.items()},
        linked_shards=linked,
        written_shards=shards - linked,
        nothing_to_do=True,
    )


def _default_split(old: SourceDataset) -> str:
    if "train" in old.splits or len(old.splits) == 1:
        return "train" if "train" in old.splits else next(iter(old.splits))
    raise error(
        "U605",
        "`split` is required: the dataset has no split `train`",
        location=Location(path=old.name),
        expected="one of " + ", ".join(repr(name) for name in old.splits)[:60],
        found="no split given",
        do=f"split={next(iter(old.splits), '')!r}",
    )


def _choose_compression(old: SourceDataset, split: Any) -> str:
    """The compression of the split, or of all splits."""
    assert old.manifest is not None
    parts = old.manifest.splits
    if isinstance(split, str) and split in parts:
        return parts[split].compression
    found = sorted({part.compression for part in parts.values()})
    if len(found) > 1:
        raise error(
            "U605",
            "`split` must name one split: their compression differs",
            location=Location(path=old.name),
            expected="the name of one split",
            found=", ".join(found),
            do=f"split={next(iter(parts))!r}",
        )
    return found[0] if found else "none"


def _load_recorded_columns(old: SourceDataset) -> dict[str, Any]:
    """How the columns of the dataset were declared: learned classes, and columns that were left out."""
    assert old.manifest is not None
    recorded = old.manifest.options.get("columns")
    known = recorded if isinstance(recorded, dict) else {}
    found: dict[str, Any] = {"classes": ()}
    for name in ("classes", "drop", "keep"):
        names = known.get(name)
        if isinstance(names, (list, dict)) and all(isinstance(one, str) for one in names):
            found[name] = tuple(names)
    return found


def _load_recorded_layout(old: SourceDataset) -> tuple[Layout | None, Chain | None]:
    """The layout and transforms that the dataset was written with, if they give its schema."""
    assert old.manifest is not None
    assert old.root is not None
    recorded = old.manifest.options.get("layout")
    if not isinstance(recorded, dict) or recorded.get("name") == "plain":
        return None, None
    try:
        layout = build_layout(recorded)
        chain = deserialize_transforms(recorded.get("transforms", ()), old.root)
        schema = chain.bind(layout.schema).schema if chain.steps else layout.schema
    except (KeyError, TypeError, ValueError, AttributeError, RekordError):
        return None, None  # from another version: rows must have the stored columns
    return (layout, chain) if schema == old.schema else (None, None)


_LAYOUTS: Mapping[str, tuple[Callable[..., Layout], tuple[str, ...]]] = {
    "classification": (classification, ("classes", "synsets", "background", "optional_labels")),
    "detection": (detection, ("classes", "masks", "has", "bad_boxes")),
    "deeplab": (deeplab, ("classes", "ignore", "colours", "optional_masks")),
    "images": (images, ()),
}


def build_layout(recorded: Mapping[str, Any]) -> Layout:
    """The layout that a manifest records."""
    build, names = _LAYOUTS[recorded["name"]]
    if "zero_based" in recorded:  # from a version whose default was a background
        recorded = {**recorded, "background": not recorded["zero_based"]}
    options = {name: recorded[name] for name in names}
    if build is detection:
        options["classes"] = dict(options["classes"])
    if options.get("colours") is not None:
        options["colours"] = {(r, g, b): number for r, g, b, number in options["colours"]}
    layout = build(**options)
    dropped, declared = recorded.get("drop", ()), recorded.get("declared", {})
    if not dropped and not declared:
        return layout
    features = {name: feature_from_json(one, name) for name, one in declared.items()}
    return SelectedLayout(layout, frozenset(dropped), features)

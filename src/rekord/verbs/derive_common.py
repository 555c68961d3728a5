"""Shared by the verbs that derive a dataset from an existing one: opening it, identifying it, writing the new one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rekord.conversion.derive import Derivation, DerivationResult, derive_dataset, estimate_inflated_bytes
from rekord.conversion.driver import Companions, ConversionListener, ConversionResult
from rekord.conversion.plan import ConversionPlan
from rekord.conversion.record_copier import RecordSequence
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.infer import Kind
from rekord.dataset.manifest import Manifest, manifest_path, read_manifest
from rekord.dataset.samplers import EpochOrder, FileOrderSampler, SubsetSampler, digest_selection
from rekord.dataset.split import Split
from rekord.errors import FormatError, add_location, closest_match, error, preview
from rekord.location import Location
from rekord.report.formatting import format_byte_size
from rekord.schema import Label, Schema, of_type
from rekord.schema.interop.tfds import FEATURES_NAME, INFO_NAME, build_label_files
from rekord.storage.publication import exists, read_bytes
from rekord.storage.router import ROUTED_STORAGE
from rekord.verbs.forecast import disk_space_error, get_free_bytes, has_staging, is_complete
from rekord.verbs.options import reject_reading_options
from rekord.verbs.write import build_tfds_companions

_SCHEMA_FILE = "schema.pbtxt"


@dataclass(frozen=True, kw_only=True)
class SourceDataset:
    """A dataset that another one is derived from."""

    splits: Mapping[str, Split]
    schema: Schema
    root: str | None  # its folder, if it is a folder
    manifest: Manifest | None
    parent: str | None  # the digest of the manifest
    digest: str  # identifies its files and the selected records

    @property
    def name(self) -> str:
        """The path for messages."""
        return self.root or next((path for split in self.splits.values() for path in split.paths), "")

    @property
    def index(self) -> tuple[str, ...]:
        """The columns of its index, and every Label."""
        recorded = None if self.manifest is None else self.manifest.options.get("index")
        kept = [name for name in recorded if name in self.schema.context] if isinstance(recorded, list) else []
        return tuple(dict.fromkeys([*kept, *of_type(self.schema.context, Label)]))

    @property
    def is_tfds(self) -> bool:
        """Whether TFDS can open it."""
        return self.manifest is not None and INFO_NAME in self.manifest.companions

    def inherited_options(self) -> dict[str, Any]:
        """Its options that also hold for datasets derived from it."""
        recorded = {} if self.manifest is None else self.manifest.options
        return {name: recorded[name] for name in ("key", "layout", "columns") if recorded.get(name) is not None}


def open_source_dataset(
    given: Any, schema: Schema | str | os.PathLike[str] | None = None, *, kind: Kind | None = None
) -> SourceDataset:
    """A path, a dataset or a split, as the source of a new dataset."""
    reject_reading_options(given, schema, kind)
    if isinstance(given, Split):
        dataset = Dataset([given], given.stored_schema)
    elif isinstance(given, Dataset):
        dataset = given
    else:
        dataset = open_dataset(given, schema=schema, kind=kind)
    for split in dataset.splits.values():
        _check_untransformed(split)
        # Files that were replaced since may have another schema.
        for shard in range(len(split.paths)):
            split.view.shards.check_unchanged(shard)
    root = _find_root(given, dataset)
    manifest, parent = _read_current_manifest(root, dataset)
    return SourceDataset(
        splits=dict(dataset.splits),
        schema=dataset.schema,
        root=root,
        manifest=manifest,
        parent=parent,
        digest=_compute_digest(dataset, parent),
    )


def select_split_records(split: Split) -> RecordSequence:
    """The records of a split in its order."""
    if split.view.ids is None:
        return RecordSequence(split.view.shards, FileOrderSampler(split.view.shards))
    return RecordSequence(
        split.view.shards, SubsetSampler(EpochOrder("sequential", len(split.view.ids)), split.view.ids)
    )


def build_derivation_plan(
    verb: str, old: SourceDataset, schema: Schema, index: Sequence[str], options: Mapping[str, Any]
) -> ConversionPlan:
    """Identifies the dataset that a verb writes: `options` are all those that affect its bytes."""
    recorded = {"verb": verb, **old.inherited_options(), **options, "index": list(index)}
    return ConversionPlan(options=recorded, schema=schema.to_dict(evidence=False), source=old.digest)


def check_separate_folders(out: str, olds: Sequence[SourceDataset]) -> None:
    """Refuse an output inside an input, or around it."""
    place = ROUTED_STORAGE.real(out).rstrip("/")
    for old in olds:
        files = [ROUTED_STORAGE.real(path) for split in old.splits.values() for path in split.paths]
        root = None if old.root is None else ROUTED_STORAGE.real(old.root).rstrip("/")
        inside = root is not None and (place == root or place.startswith(root + os.sep))
        around = any(path.startswith(place + os.sep) for path in files)
        if inside or around or place in files:
            raise error(
                "U631",
                "new dataset would overlap the dataset that it is derived from",
                location=Location(path=out),
                expected="a separate folder",
                found=f"{'a folder inside' if inside and place != root else 'the folder of'} {old.name[:60]}",
                do="choose another output",
            )


def check_split_name(old: SourceDataset, name: Any, option: str = "split") -> None:
    """Refuse an unknown split; `option` is the parameter that named it."""
    if name in old.splits:
        return
    names = list(old.splits)
    near = closest_match(name, names) if isinstance(name, str) else None
    raise error(
        "X506",
        f"dataset has no split {preview(name)}",
        location=Location(path=old.name),
        expected="one of " + ", ".join(map(repr, names))[:60],
        found=preview(name),
        do=f"{option}={near or names[0]!r}"[:60],
    )


def derived_companions(
    old: SourceDataset, schema: Schema, out: str, *, tfds: bool, changed: Mapping[str, bytes] | None = None
) -> Companions:
    """The files next to the shards: regenerated if they depend on the records, otherwise copied or as `changed`."""

    def build(manifest: Manifest) -> dict[str, bytes]:
        files = read_other_companions(old)
        if schema.kind != "bytes":
            files = {_SCHEMA_FILE: schema.to_pbtxt().encode(), **files}
        if tfds:
            files |= build_tfds_companions(out, schema, manifest)
        return {**files, **(changed or {})}

    return build


def read_other_companions(old: SourceDataset) -> dict[str, bytes]:
    """The companions of a dataset that do not depend on its schema and counts: label maps, vocabularies."""
    if old.manifest is None or old.root is None:
        return {}
    generated = {_SCHEMA_FILE, INFO_NAME, FEATURES_NAME}
    if old.is_tfds:
        generated |= set(build_label_files(old.schema))
    paths = {name: os.path.join(old.root, name) for name in old.manifest.companions if name not in generated}
    return {name: read_bytes(ROUTED_STORAGE, path) for name, path in paths.items() if exists(ROUTED_STORAGE, path)}


def run_derivation(
    wanted: Derivation,
    olds: Sequence[SourceDataset],
    *,
    progress: bool,
    shown: str | None = None,
    watch: ConversionListener | None = None,
) -> DerivationResult:
    """Write the dataset, with progress to `watch`, or on stderr if wanted. `shown` is its path for messages."""
    from rekord.verbs.progress import ConversionProgress

    with add_location(path=shown or wanted.out):
        check_disk_space(wanted)
    with suggest_salvage(olds):
        if watch is not None or not progress:
            return derive_dataset(wanted, watch)
        with ConversionProgress() as bar:
            return derive_dataset(wanted, bar)


def to_conversion_result(made: DerivationResult) -> ConversionResult:
    """The result of a derivation as that of a conversion."""
    return ConversionResult(
        manifest=made.manifest,
        rejects=None,
        remarks=None,
        resumed_shards=made.resumed_shards,
        nothing_to_do=made.nothing_to_do,
    )


def check_disk_space(wanted: Derivation) -> None:
    """Refuse what the disk cannot hold. An unfinished run already occupies some of the space."""
    if wanted.framed_bytes is None:
        return
    compressed = any(split.compression != "none" for split in wanted.splits.values())
    needed = estimate_inflated_bytes(wanted) + (0 if compressed else wanted.framed_bytes)
    if not needed or has_staging(wanted) or is_complete(wanted):
        return
    free = get_free_bytes(wanted.out)
    if free is not None and needed > free:
        raise disk_space_error(f"{format_byte_size(needed)} for the shards", free)


@contextmanager
def suggest_salvage(olds: Sequence[SourceDataset]) -> Iterator[None]:
    """Errors about corrupt records suggest to salvage the intact ones first."""
    try:
        yield
    except FormatError as failure:
        path = failure.location.path or ""
        old = next((one for one in olds if any(path in split.paths for split in one.splits.values())), None)
        if old is not None:
            place = old.root or path
            failure.do = f"rekord salvage {place} {place.rstrip('/')}-repaired"
        raise


def combine_dataset_digests(olds: Sequence[SourceDataset]) -> str:
    """Identifies several concatenated datasets."""
    if len(olds) == 1:
        return olds[0].digest
    return hashlib.sha256("\n".join(old.digest for old in olds).encode()).hexdigest()


def _check_untransformed(split: Split) -> None:
    """Refuse a split whose rows differ from its stored records."""
    sampled = split.sampling is not None
    if split.batch_map is None and split.row_transforms is None and not sampled:
        return
    raise error(
        "U651",
        f"`{split.name[:60]}` is {'sampled' if sampled else 'transformed when it is read'}",
        expected="a dataset, a split or a view of unchanged records",
        found=preview(split),
        do="rk.balance(path, out)" if sampled else "rk.write(split, out)",
    )


def _find_root(given: Any, dataset: Dataset) -> str | None:
    """The folder of a dataset, if it is a folder."""
    if isinstance(given, (Split, Dataset)):
        folders = {os.path.dirname(path) for split in dataset.splits.values() for path in split.paths}
        return folders.pop() if len(folders) == 1 else None
    place = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(place, str):
        return None
    paths = [path for split in dataset.splits.values() for path in split.paths]
    is_folder = place not in paths and all(path.startswith(place.rstrip("/") + "/") for path in paths)
    return place.rstrip("/") or "/" if is_folder else None


def _read_current_manifest(root: str | None, dataset: Dataset) -> tuple[Manifest | None, str | None]:
    """The manifest of an open dataset, and its digest."""
    if root is None or not exists(ROUTED_STORAGE, manifest_path(root)):
        return None, None
    manifest = read_manifest(root)
    if any(split.view.known_digest != manifest.digest for split in dataset.splits.values()):
        return None, None  # it lists other files, or the dataset was changed since
    return manifest, hashlib.sha256(read_bytes(ROUTED_STORAGE, manifest_path(root))).hexdigest()


def _compute_digest(dataset: Dataset, parent: str | None) -> str:
    digest = hashlib.sha256()
    for name, split in dataset.splits.items():
        selected = "" if split.view.ids is None else digest_selection(split.view.ids)
        digest.update(f"{name}\0{parent or split.digest()}\0{selected}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()

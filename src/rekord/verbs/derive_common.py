"""What verbs share that make a dataset of one that exists: it is opened, told apart, and remade at another place."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rekord.conversion.copy_records import RecordSequence
from rekord.conversion.derive import Derivation, DerivationResult, derive_dataset, estimate_inflated_bytes
from rekord.conversion.driver import ConversionResult
from rekord.conversion.plan import ConversionPlan
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.infer import Kind
from rekord.dataset.manifest import Manifest, manifest_path, read_manifest
from rekord.dataset.samplers import EpochOrder, FileOrderSampler, SubsetSampler, digest_selection
from rekord.dataset.split import Split
from rekord.errors import FormatError, RekordError, add_location, closest_match, error, preview
from rekord.layouts.tfds import build_tfds_files
from rekord.location import Location
from rekord.report.formatting import format_byte_size
from rekord.schema import Label, Schema, of_type
from rekord.schema.interop.tfds import FEATURES_NAME, INFO_NAME, build_label_files
from rekord.storage.router import ROUTED_STORAGE, is_remote
from rekord.storage.transaction import Transaction, exists, read_bytes
from rekord.verbs.write import TFDS_VERSION, infer_tfds_name

_SCHEMA_FILE = "schema.pbtxt"


@dataclass(frozen=True, kw_only=True)
class SourceDataset:
    """A dataset that another one is made of."""

    splits: Mapping[str, Split]
    schema: Schema
    root: str | None  # the folder that it is, where it is one
    manifest: Manifest | None
    parent: str | None  # the digest of the manifest
    digest: str  # tells its files, and which of their records these are, from others

    @property
    def name(self) -> str:
        """As a message names it."""
        return self.root or next((path for split in self.splits.values() for path in split.paths), "")

    @property
    def index(self) -> tuple[str, ...]:
        """The columns that its index keeps, and every Label."""
        told = None if self.manifest is None else self.manifest.options.get("index")
        kept = [name for name in told if name in self.schema.context] if isinstance(told, list) else []
        labels = list(of_type(self.schema.context, Label))
        return tuple(dict.fromkeys([*kept, *labels]))

    @property
    def is_tfds(self) -> bool:
        """Whether it is one that TFDS opens."""
        return self.manifest is not None and INFO_NAME in self.manifest.companions

    def inherited_options(self) -> dict[str, Any]:
        """Those of its options that are true of whatever is made of its records."""
        told = {} if self.manifest is None else self.manifest.options
        return {name: told[name] for name in ("key", "layout") if told.get(name) is not None}


def open_source_dataset(
    given: Any, schema: Schema | str | os.PathLike[str] | None = None, *, kind: Kind | None = None
) -> SourceDataset:
    """A path, a dataset or a split, as what a new dataset is made of."""
    if isinstance(given, Split):
        dataset = Dataset([given], given.stored_schema)
    elif isinstance(given, Dataset):
        dataset = given
    else:
        dataset = open_dataset(given, schema=schema, kind=kind)
    if (schema is not None or kind is not None) and isinstance(given, (Split, Dataset)):
        name = "kind" if schema is None else "schema"
        raise error(
            "U605",
            f"`{name}` cannot be given beside a dataset that is open",
            expected=f"a path, or no {name}",
            found="an open dataset",
            do=f"rk.open(path, {name}=…)",
        )
    for split in dataset.splits.values():
        _check_untransformed(split)
        # What replaced the files since then may be of another schema.
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
    """The records of a split in its own order."""
    if split.view.ids is None:
        return RecordSequence(split.view.shards, FileOrderSampler(split.view.shards))
    return RecordSequence(
        split.view.shards, SubsetSampler(EpochOrder("sequential", len(split.view.ids)), split.view.ids)
    )


def build_derivation_plan(
    verb: str, old: SourceDataset, schema: Schema, index: Sequence[str], options: Mapping[str, Any]
) -> ConversionPlan:
    """What identifies a dataset that a verb makes: `options` are all that decide its bytes."""
    told = {"verb": verb, **old.inherited_options(), **options, "index": list(index)}
    return ConversionPlan(options=told, schema=schema.to_dict(evidence=False), source=old.digest)


def check_separate_folders(out: str, olds: Sequence[SourceDataset]) -> None:
    """Refuse a place within what is read, or around it."""
    place = os.path.realpath(out)
    for old in olds:
        files = [path for split in old.splits.values() for path in split.paths if not is_remote(path)]
        root = None if old.root is None or is_remote(old.root) else os.path.realpath(old.root)
        inside = root is not None and (place == root or place.startswith(root + os.sep))
        around = any(os.path.realpath(path).startswith(place + os.sep) for path in files)
        if inside or around or place in map(os.path.realpath, files):
            raise error(
                "U631",
                "new dataset would overlap the dataset that it is made from",
                location=Location(path=out),
                expected="a place of its own",
                found=f"{'a place inside' if inside and place != root else 'the place of'} {old.name[:60]}",
                do="choose another place",
            )


def check_split_name(old: SourceDataset, name: Any, option: str = "split=") -> None:
    """Refuse the name of a split that a dataset does not have; `option` is what it was given by."""
    if name in old.splits:
        return
    names = list(old.splits)
    near = closest_match(name, names) if isinstance(name, str) else None
    raise error(
        "X506",
        f"there is no split {preview(name)}",
        location=Location(path=old.name),
        expected="one of " + ", ".join(map(repr, names))[:60],
        found=preview(name),
        do=f"did you mean {near!r}?" if near else f"{option}{names[0]!r}"[:60],
    )


class DerivedCompanions:
    """The files beside the shards: made anew where they follow from the records, else as the old dataset has them."""

    def __init__(self, old: SourceDataset, schema: Schema, out: str, *, tfds: bool) -> None:
        self._old = old
        self._schema = schema
        self._out = out
        self._tfds = tfds

    def __call__(self, manifest: Manifest) -> dict[str, bytes]:
        files = read_other_companions(self._old)
        if self._schema.kind != "bytes":
            files = {_SCHEMA_FILE: self._schema.to_pbtxt().encode(), **files}
        if self._tfds:
            splits = {name: (part.shards.records, part.payload_bytes) for name, part in manifest.splits.items()}
            files |= build_tfds_files(self._schema, infer_tfds_name(self._out), TFDS_VERSION, splits)
        return files


def read_other_companions(old: SourceDataset) -> dict[str, bytes]:
    """The companions of a dataset that do not follow from its schema and counts: label maps, vocabularies."""
    if old.manifest is None or old.root is None:
        return {}
    follow = {_SCHEMA_FILE, INFO_NAME, FEATURES_NAME}
    if old.is_tfds:
        follow |= set(build_label_files(old.schema))
    paths = {name: os.path.join(old.root, name) for name in old.manifest.companions if name not in follow}
    return {name: read_bytes(ROUTED_STORAGE, path) for name, path in paths.items() if exists(ROUTED_STORAGE, path)}


def run_derivation(
    wanted: Derivation, olds: Sequence[SourceDataset], *, progress: bool, shown: str | None = None
) -> DerivationResult:
    """Make it, and tell on stderr how far it is where that is wanted. `preview` is its place as it was asked for."""
    from rekord.verbs.progress import ConversionProgress

    with add_location(path=shown or wanted.out):
        check_disk_space(wanted)
    with suggest_salvage(olds):
        if not progress:
            return derive_dataset(wanted)
        with ConversionProgress() as watch:
            return derive_dataset(wanted, watch)


def to_conversion_result(made: DerivationResult) -> ConversionResult:
    """How it ended, in the words of conversions."""
    return ConversionResult(
        manifest=made.manifest,
        rejects=None,
        remarks=None,
        resumed_shards=made.resumed_shards,
        nothing_to_do=made.nothing_to_do,
    )


def check_disk_space(wanted: Derivation) -> None:
    """Refuse what the disk cannot hold. An unfinished run has taken some of its space already."""
    if wanted.framed_bytes is None:
        return
    compressed = any(split.compression != "none" for split in wanted.splits.values())
    needed = estimate_inflated_bytes(wanted) + (0 if compressed else wanted.framed_bytes)
    if not needed:
        return
    place = os.path.abspath(wanted.out)
    staging = Transaction(place, wanted.storage).staging(wanted.plan.id)
    if exists(wanted.storage, staging.folder) or is_already_derived(wanted):
        return
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return
    if needed > free:
        raise error(
            "X519",
            expected=f"{format_byte_size(needed)} for the shards",
            found=f"{format_byte_size(free)} free",
            do="write to another disk, or free some space",
        )


def is_already_derived(wanted: Derivation) -> bool:
    """Whether the very dataset is there already."""
    try:
        return read_manifest(wanted.out, wanted.storage).plan == wanted.plan.id
    except RekordError:
        return False


@contextmanager
def suggest_salvage(olds: Sequence[SourceDataset]) -> Iterator[None]:
    """What is said of a damaged record names the way out: what is whole can be saved first."""
    try:
        yield
    except FormatError as failure:
        path = failure.location.path or ""
        old = next((one for one in olds if any(path in split.paths for split in one.splits.values())), None)
        if old is not None:
            place = old.root or path
            failure.do = f"rekord salvage {place} NEW, and do this with NEW"
        raise


def combine_dataset_digests(olds: Sequence[SourceDataset]) -> str:
    """What tells several datasets, one behind another, from others."""
    if len(olds) == 1:
        return olds[0].digest
    return hashlib.sha256("\n".join(old.digest for old in olds).encode()).hexdigest()


def _check_untransformed(split: Split) -> None:
    """Refuse what is not made of records alone."""
    drawn = split.sampling is not None
    if split.batch_map is None and split.row_transforms is None and not drawn:
        return
    raise error(
        "U651",
        f"`{split.name[:60]}` is more than its records: {'they are drawn' if drawn else 'something changes them'}",
        expected="a dataset, a split or a view of records as they are",
        found=preview(split),
        do="rk.balance(path, out)" if drawn else "rk.write(split, out)",
    )


def _find_root(given: Any, dataset: Dataset) -> str | None:
    """The folder that a dataset is, where it is one."""
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
    """The manifest that an open dataset is by, and its digest."""
    if root is None or not exists(ROUTED_STORAGE, manifest_path(root)):
        return None, None
    manifest = read_manifest(root)
    if any(split.view.known_digest != manifest.digest for split in dataset.splits.values()):
        return None, None  # of other files that lie there, or of a dataset that was changed since
    return manifest, hashlib.sha256(read_bytes(ROUTED_STORAGE, manifest_path(root))).hexdigest()


def _compute_digest(dataset: Dataset, parent: str | None) -> str:
    told = hashlib.sha256()
    for name, split in dataset.splits.items():
        which = "" if split.view.ids is None else digest_selection(split.view.ids)
        told.update(f"{name}\0{parent or split.digest()}\0{which}\n".encode("utf-8", "surrogateescape"))
    return told.hexdigest()

"""The options of the verbs that write datasets, with defaults and checks, shared by Python and the command line.

A verb's public function repeats names and defaults for `help()` and type checkers; a test keeps the two equal.
Its implementation and its command take the dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from rekord.arguments import (
    INT64_MIN,
    as_path,
    bytes_size,
    flag,
    inapplicable,
    integer,
    invalid,
    one_of,
    optional_names,
    positive_int,
    real_number,
)
from rekord.conversion.plan import OnBadRow, RowFunction, ShardingRule
from rekord.conversion.workers import available_workers
from rekord.dataset.dataset import Dataset
from rekord.dataset.split import Split
from rekord.errors import error
from rekord.framing.deflate import compression_name
from rekord.layouts.base import Layout, Verify
from rekord.schema import Feature, RecordKind, Schema
from rekord.storage.local import PathLike

if TYPE_CHECKING:
    from rekord.codec.columns import Array, Batch
    from rekord.transforms.base import Transform

ClassCounts: TypeAlias = "Mapping[str, int] | Mapping[int, int] | Mapping[bytes, int]"
SamplingStrategy: TypeAlias = "str | float | ClassCounts | Callable[[Array], ClassCounts]"
"""As in imbalanced-learn: a name, a ratio for two classes, records by class, or a function of all classes."""

RecordCondition: TypeAlias = "str | Callable[[Batch], object] | Mapping[str, Sequence[int]] | Sequence[int]"
"""Which records: a condition in SQL, a function of a batch, or record numbers, of the only split or by split."""
RecordPairs: TypeAlias = "PathLike | Iterable[tuple[str, int]]"
"""Which records: pairs of split and record number, or the path of a file that lists them."""

METHODS = ("oversample", "undersample", "smote")
_MOST_SHARDS = 99_999
_MOST_WORKERS = 1024


@dataclass(frozen=True, kw_only=True)
class VerbOptions:
    """The options of one verb, validated on construction."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """The options among the arguments of a public function, which has one per field."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class OutputOptions(VerbOptions):
    """How the shards of a new dataset are written."""

    least_seed: ClassVar[int] = 0

    shard_size: str | int = "128MB"
    shards: int | None = None
    compression: str | None = None
    shuffle: bool = False
    seed: int = 0
    format: Literal["tfds"] | None = None
    workers: int | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        one_of("format", self.format, (None, "tfds"))
        integer("seed", self.seed, least=self.least_seed, do="seed=0")
        _ = self.cut
        if self.compression is not None:
            compression_name(self.compression)
        if self.workers is not None:
            resolve_worker_count(self.workers)

    @property
    def cut(self) -> ShardingRule:
        """How records are cut into shards."""
        return ShardingRule(
            shard_bytes=bytes_size("shard_size", self.shard_size),
            shards=None if self.shards is None else positive_int("shards", self.shards, most=_MOST_SHARDS),
        )


@dataclass(frozen=True, kw_only=True)
class WriteOptions(OutputOptions):
    """The options of `rk.write`."""

    least_seed = INT64_MIN

    schema: Schema | None = None
    columns: Mapping[str, Feature] | None = None
    label: str | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] | None = None
    background: bool = False
    encoding: str | None = None
    layout: Layout | str | None = None
    map: RowFunction | None = None
    transforms: Transform | Sequence[Transform] = ()
    names: Sequence[str] | None = None
    split: Mapping[str, float] | str | None = None
    split_by: str | None = None
    stratify: str | None = None
    key: str | None = None
    index: Sequence[str] = ()
    verify: Verify = "full"
    on_bad_row: OnBadRow = "stop"
    max_rejects: float = 0.01
    limit: int | None = None
    engine: Literal["local", "ray"] = "local"
    staging: PathLike | None = None

    def __post_init__(self) -> None:
        one_of("verify", self.verify, ("full", "headers"))
        one_of("on_bad_row", self.on_bad_row, ("stop", "reject"))
        if self.engine == "ray":
            raise error(
                "U604",
                "`engine` cannot be 'ray' yet",
                expected="'local'",
                found="'ray'",
                do='engine="local"',
            )
        one_of("engine", self.engine, ("local",))
        flag("background", self.background)
        super().__post_init__()
        expected = "a fraction of the rows below 1, or a number of rows"
        share = self.max_rejects
        real_number("max_rejects", share, expected=expected, fits=lambda one: one >= 0, do="max_rejects=0.01")
        if self.limit is not None:
            positive_int("limit", self.limit)


@dataclass(frozen=True, kw_only=True)
class RewriteOptions(OutputOptions):
    """The options of `rk.rewrite`."""

    kind: RecordKind | None = None
    schema: Schema | None = None
    cast: Mapping[str, str | Feature] | None = None
    rename: Mapping[str, str] | None = None
    drop: Sequence[str] | None = None
    keep: Sequence[str] | None = None
    fill: Mapping[str, object] | None = None
    where: str | None = None
    transforms: Transform | Sequence[Transform] = ()
    index: Sequence[str] = ()
    lossy: bool = False


@dataclass(frozen=True, kw_only=True)
class SplitOptions(OutputOptions):
    """The options of `rk.split`."""

    split: Mapping[str, float] | None = None
    split_by: str | None = None
    stratify: str | None = None
    folds: int | None = None
    only: str | None = None


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(OutputOptions):
    """The options of `rk.balance`."""

    by: str = "label"
    method: Literal["oversample", "undersample", "smote"] = "oversample"
    sampling_strategy: SamplingStrategy = "auto"
    splits: str | Sequence[str] | None = None
    augment: str | Sequence[str] | None = None
    per_box: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    k_neighbors: int = 5
    shuffle: bool = True

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        super().__post_init__()
        positive_int("k_neighbors", self.k_neighbors, most=1_000_000)
        optional_names("columns", self.columns)
        optional_names("per_box", self.per_box)


@dataclass(frozen=True, kw_only=True)
class EditOptions(VerbOptions):
    """Where an edited dataset goes, and how it is written."""

    replace: bool = False
    workers: int | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        resolve_worker_count(self.workers)


@dataclass(frozen=True, kw_only=True)
class AppendOptions(EditOptions):
    """The options of `rk.append`: some of those of `rk.write`, for the new rows."""

    split: Mapping[str, float] | str | None = None
    map: RowFunction | None = None
    names: Sequence[str] | None = None
    shard_size: str | int = "128MB"
    shards: int | None = None
    verify: Verify = "full"
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.to_write_options()

    def to_write_options(self, **others: Any) -> WriteOptions:
        """How the new rows are written; `others` are determined by the dataset."""
        own = [field.name for field in fields(AppendOptions)][len(fields(EditOptions)) :]
        return WriteOptions(**{name: getattr(self, name) for name in own} | others)


@dataclass(frozen=True, kw_only=True)
class DeleteOptions(EditOptions):
    """The options of `rk.delete`."""

    where: RecordCondition | None = None
    records: RecordPairs | None = None
    split: str | Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class RelabelOptions(DeleteOptions):
    """The options of `rk.relabel`: `where`, `records` and `split` are those of `rk.delete`."""

    column: str | None = None
    file: PathLike | None = None
    key: str | None = None
    names: Sequence[str] | int | None = None


FormatName: TypeAlias = Literal[
    "parquet", "arrow", "arrow-stream", "csv", "tsv", "jsonl", "webdataset", "images", "coco", "voc", "tfds"
]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(VerbOptions):
    """The options of `rk.export`."""

    format: FormatName | None = None
    split: str | Sequence[str] | None = None
    columns: Sequence[str] | None = None
    limit: int | None = None
    labels: Literal["ids", "names"] = "ids"
    shard_size: str | int | None = None
    schema: Schema | PathLike | None = None
    kind: RecordKind | None = None
    threads: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        one_of("labels", self.labels, ("ids", "names"), do='labels="names"')
        if self.limit is not None:
            positive_int("limit", self.limit, do="limit=1000")
        if self.columns is not None and not optional_names("columns", self.columns):
            raise invalid("columns", self.columns, "at least one column", 'columns=["label"]')


def resolve_worker_count(workers: int | None) -> int:
    """The number of processes: as given, or one per core."""
    if workers is None:
        return available_workers()
    return positive_int("workers", workers, most=_MOST_WORKERS)


def output_folder(out: PathLike) -> str:
    """The folder of a new dataset, validated."""
    expected, do = "the path of a new folder", 'out="data/flowers"'
    place = as_path("out", out, expected=expected, do=do)
    if not place.strip("/."):
        raise invalid("out", place, expected, do)
    return place


def reject_reading_options(source: object, schema: object, kind: object) -> None:
    """Refuse options of `rk.open` next to a dataset that is open already."""
    for name, value in (("schema", schema), ("kind", kind)):
        if value is not None and isinstance(source, (Dataset, Split)):
            found, do = f"an open {type(source).__name__}", f"rk.open(path, {name}=…)"
            raise inapplicable(name, "to an open dataset", expected=f"a path, or no {name}", found=found, do=do)

"""`rk.open`: datasets and their splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.batches import Batches
from rekord.dataset.infer import Kind, infer_files
from rekord.dataset.manifest import check_shard, manifest_path, read_manifest
from rekord.dataset.names import check_complete, splits_of
from rekord.dataset.read import PathLike, record_files
from rekord.errors import error, located
from rekord.schema import Schema


def open(
    path: PathLike | Sequence[PathLike],
    schema: Schema | PathLike | None = None,
    kind: Kind | None = None,
    allow_missing: bool = False,
) -> Dataset:
    """The dataset in a record file, a folder or a glob, without reading it.

    A folder with a manifest (`rekord.json`) is what the manifest says. Elsewhere file names tell the splits.
    Without a schema one is inferred from the first records when it is needed (10,000 of them, or 64 MiB); `kind`
    then says whether they are Examples or SequenceExamples, where that is not to be guessed. An incomplete set
    of `-of-N` shards is refused unless `allow_missing`.
    """
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.load(schema)
    _check_kind(kind, schema)
    listed = _listed(path, allow_missing=allow_missing)
    if listed is not None:
        splits, declared = listed
        return Dataset(splits, declared if schema is None else schema, kind)
    paths = record_files(path)
    named = isinstance(path, (str, os.PathLike))
    root = os.fspath(path) if named and os.path.isdir(os.fspath(path)) else None  # type: ignore[arg-type]
    # A file that was named itself is what was wanted, whatever its name says of others.
    if not allow_missing and not (named and os.path.isfile(os.fspath(path))):  # type: ignore[arg-type]
        check_complete(paths)
    return Dataset(splits_of(paths, root), schema, kind)


def _listed(path: object, *, allow_missing: bool) -> tuple[dict[str, list[str]], Schema] | None:
    """The splits and the schema that a manifest tells of, where there is one."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    folder = os.fspath(path)
    if not isinstance(folder, str) or not os.path.isfile(manifest_path(folder)):
        return None
    manifest = read_manifest(folder)
    splits = {}
    for name, part in manifest.splits.items():
        shards = list(zip(part.names(name), part.shards.bytes, strict=True))
        present = [
            check_shard(folder, shard, size_bytes, allow_missing=allow_missing)
            for shard, size_bytes in shards
        ]
        splits[name] = [one for one in present if one is not None]
    with located(path=manifest_path(folder)):
        return splits, Schema.from_dict(manifest.schema)


class Split:
    """A named subset of a dataset: its files, in order. Small to pickle, shared freely by threads."""

    def __init__(self, name: str, paths: Sequence[str], schema: _Schema) -> None:
        self.name = name
        self.paths = tuple(paths)
        self._schema = schema

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records."""
        return self._schema.get()

    def batches(
        self,
        batch_size: int,
        *,
        columns: Sequence[str] | None = None,
        prefetch: int = 2,
        threads: int | None = None,
    ) -> Batches:
        """Decoded batches in file order: `{column: values}` each, the last one perhaps shorter.

        Fixed shapes are NumPy arrays, optional ones `rk.Optional`; varying ones `rk.Ragged`; bytes, texts,
        images and masks `rk.Strings`. Only `columns` are decoded where they are given. `prefetch` batches are
        made ahead in the background by `threads`; with threads=1 and prefetch=0 nothing runs in the background.
        """
        wanted = None if columns is None else _checked_columns(columns)
        if self._schema.known:
            self._schema.plan(wanted)  # a column that is not there is said now, not at the first batch
        return Batches(
            self.paths, lambda: self._schema.plan(wanted), batch_size, prefetch=prefetch, threads=threads
        )

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records as a `pyarrow.Table`."""
        from rekord.feeds.arrow import split_to_arrow

        return split_to_arrow(self, columns)

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self.paths)} file{'s' if len(self.paths) != 1 else ''})"


class Dataset:
    """The splits of a dataset by name. With one split it can be used as that split."""

    def __init__(
        self, splits: Mapping[str, Sequence[str]], schema: Schema | None, kind: Kind | None = None
    ) -> None:
        everything = [path for paths in splits.values() for path in paths]
        self._share(splits, _Schema(everything, schema, kind))

    def _share(self, splits: Mapping[str, Sequence[str]], schema: _Schema) -> None:
        self._schema = schema
        self.splits: Mapping[str, Split] = MappingProxyType(
            {name: Split(name, paths, schema) for name, paths in splits.items()}
        )

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records."""
        return self._schema.get()

    def __getitem__(self, name: str) -> Split:
        if name not in self.splits:
            raise error(
                "X506",
                f"there is no split {name!r}",
                expected="one of " + ", ".join(map(repr, self.splits)),
                found=repr(name)[:60],
                do=f"dataset[{next(iter(self.splits))!r}]",
            )
        return self.splits[name]

    def __iter__(self) -> Any:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    def batches(
        self,
        batch_size: int,
        *,
        columns: Sequence[str] | None = None,
        prefetch: int = 2,
        threads: int | None = None,
    ) -> Batches:
        """The batches of the only split; see `Split.batches`."""
        split = self._only("batches")
        return split.batches(batch_size, columns=columns, prefetch=prefetch, threads=threads)

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> Any:
        """All records of the only split as a `pyarrow.Table`."""
        return self._only("to_arrow").to_arrow(columns=columns)

    def _only(self, method: str) -> Split:
        if len(self.splits) == 1:
            return next(iter(self.splits.values()))
        names = ", ".join(map(repr, self.splits))
        raise error(
            "X507",
            f"`{method}` needs one split, and the dataset has {len(self.splits)}",
            expected="one of " + names,
            found="none named",
            do=f"dataset[{next(iter(self.splits))!r}].{method}(…)",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle, and the splits share one schema.
        return _rebuilt, ({name: split.paths for name, split in self.splits.items()}, self._schema)

    def __repr__(self) -> str:
        return f"Dataset({', '.join(map(repr, self.splits.values()))})"


def _rebuilt(splits: Mapping[str, Sequence[str]], schema: _Schema) -> Dataset:
    dataset = Dataset.__new__(Dataset)
    dataset._share(splits, schema)
    return dataset


class _Schema:
    """The schema of a dataset: declared, or inferred at the first use and then kept."""

    def __init__(self, paths: Sequence[str], declared: Schema | None, kind: Kind | None) -> None:
        self._paths = tuple(paths)
        self._declared = declared
        self._kind = kind
        self._inferred: Schema | None = None

    @property
    def known(self) -> bool:
        """Whether there is a schema without reading any record."""
        return self._declared is not None or self._inferred is not None

    def get(self) -> Schema:
        if self._declared is not None:
            return self._declared
        if self._inferred is None:
            self._inferred, _ = infer_files(self._paths, kind=self._kind)
        return self._inferred

    def plan(self, columns: tuple[str, ...] | None) -> CodecPlan:
        # Under a declared schema other keys are none of its business; an inferred one claims to know them all.
        return compile_plan(self.get(), columns, strict=self._declared is None)


def _check_kind(kind: object, schema: Schema | None) -> None:
    if kind not in (None, "example", "sequence"):
        raise error(
            "U605",
            f"`kind` cannot be {repr(kind)[:60]}",
            expected='"example" or "sequence"',
            found=repr(kind)[:60],
            do='kind="sequence"',
        )
    if kind is not None and schema is not None and schema.is_sequence != (kind == "sequence"):
        raise error(
            "U605",
            f"`kind` cannot be {kind!r} beside this schema",
            expected="the kind that the schema declares",
            found=f"a schema of {'SequenceExamples' if schema.is_sequence else 'Examples'}",
            do="leave `kind` out",
        )


def _checked_columns(columns: Sequence[str]) -> tuple[str, ...]:
    single = isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable)
    given: list[Any] = [columns] if single else list(columns)
    if single or not all(isinstance(name, str) for name in given):
        wrong = next((name for name in given if not isinstance(name, str)), columns)
        raise error(
            "U605",
            f"`columns` cannot be {repr(columns)[:60]}",
            expected="a list of column names",
            found="one str" if isinstance(columns, str) else f"{repr(wrong)[:60]}",
            do=f"columns=[{columns[:60]!r}]" if isinstance(columns, str) else 'columns=["label"]',
        )
    return tuple(dict.fromkeys(given))

"""`rk.write`: raw data to a dataset; everything that can be refused is refused before a row is read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rekord.codec.encode import checked_schema
from rekord.conversion.driver import Conversion, Outcome, Watch, convert
from rekord.conversion.encode_rows import Shaped
from rekord.conversion.engines.local import available_workers
from rekord.conversion.plan import CutRule, Job, OnBadRow, RowFunction, plan_of
from rekord.conversion.splits import split_rule
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import Manifest
from rekord.errors import RekordError, error
from rekord.framing.deflate import checked_compression
from rekord.layouts.base import Layout, Plain, Verify
from rekord.layouts.tfds import check_tfds, tfds_files
from rekord.schema import Label, Schema, of_type
from rekord.schema.interop.label_map import label_map_text
from rekord.schema.messages import near_miss, shown
from rekord.sources.base import Facts, Source
from rekord.sources.rows import Limited
from rekord.storage.local import LOCAL, PathLike, Storage
from rekord.storage.remote import refuse_to_write
from rekord.transforms.base import Transform, companions_of
from rekord.transforms.chain import as_chain
from rekord.verbs.fit_transforms import Asked, learned
from rekord.verbs.resolve_source import NOTHING_SAID, MaskOptions, as_source, layout_for
from rekord.version import VERSION

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000 ** (i + 1) for i, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}iB": 1024 ** (i + 1) for i, letter in enumerate("KMGT")}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_EXTENSIONS = {"none": "", "gzip": ".gz", "zlib": ".zz"}


def run(conversion: Conversion, watch: Watch | None = None) -> Outcome:
    """Run a conversion that was prepared."""
    return convert(conversion, watch)


def prepare(
    rows: Any,
    out: PathLike,
    *,
    schema: Schema | None,
    layout: Layout | str | None,
    map: RowFunction | None,
    transforms: Transform | Sequence[Transform] = (),
    names: Sequence[str] | None,
    split: Mapping[str, float] | str | None,
    split_by: str | None,
    stratify: str | None,
    key: str | None,
    index: Sequence[str],
    shard_size: str | int,
    shards: int | None,
    compression: str | None,
    shuffle: bool,
    seed: int,
    verify: Verify,
    on_bad_row: OnBadRow,
    max_rejects: float,
    limit: int | None,
    workers: int | None,
    engine: str,
    staging: PathLike | None,
    fresh: bool,
    format: str | None,
    storage: Storage = LOCAL,
    masks: MaskOptions = NOTHING_SAID,
    own_splits: bool = False,
    aloud: bool = False,
) -> Conversion:
    """Everything that can be refused before a row is read is refused here.

    `masks` stands in place of what the source knows of its masks. With `own_splits` the splits of a source that
    has some are kept where `split` asks for nothing else. What transforms learn from the rows is learned here, and
    told on stderr if `aloud`.
    """
    check_one_of("verify", verify, ("full", "headers"))
    check_one_of("on_bad_row", on_bad_row, ("stop", "reject"))
    check_one_of("format", format, (None, "tfds"))
    if engine != "local":
        raise _no_engine(engine)
    checked_whole("seed", seed, least=-(2**63))
    cut = CutRule(
        shard_bytes=byte_count(shard_size, name="shard_size"),
        shards=None if shards is None else checked_whole("shards", shards, least=1, most=99_999),
    )
    name = checked_compression(compression)
    if not isinstance(max_rejects, (int, float)) or isinstance(max_rejects, bool) or not max_rejects >= 0:
        raise _refused(
            "max_rejects", max_rejects, "a share of the rows below 1, or a number of them", "max_rejects=0.01"
        )
    source = as_source(rows, names=names, layout=layout if isinstance(layout, str) else None, schema=schema)
    if limit is not None:
        source = Limited(source, checked_whole("limit", limit, least=1))
    facts = source.facts()
    if limit is None and facts.extra.get("infinite"):
        raise error(
            "U625",
            expected="rows that end",
            found="a pipeline that begins anew whenever it ends",
            likely="`.repeat()` in the pipeline, which training wants and writing does not",
            do="leave `.repeat()` out, or say how many rows: limit=10_000",
        )
    chosen, select = _layout(source, facts, schema, layout, masks)
    checked_schema(chosen.schema)
    inferred = schema is None and isinstance(chosen, Plain)
    if own_splits and split is None and facts.splits:
        split = "source"
    rule = split_rule(split, by=split_by, stratify=stratify, known=facts.splits)
    place = checked_out(out)
    many = worker_count(workers)
    beside: dict[str, bytes] = {}
    if (steps := as_chain(transforms)).steps:
        asked = Asked(function=map, select=select, splits=rule, key=key, seed=seed)
        steps = learned(
            steps,
            source,
            chosen,
            asked=asked,
            workers=many,
            source_bytes=facts.source_bytes,
            aloud=aloud,
        )
        beside = companions_of(steps.steps)
        chosen = Shaped(chosen, steps)
    job = Job(
        source=source,
        layout=chosen,
        splits=rule,
        cut=cut,
        template=shard_template(place, name, format),
        function=map,
        inferred=inferred,
        key=key,
        index=index_columns(chosen.schema, index),
        select=select,
        shuffle=bool(shuffle),
        seed=seed,
        compression=name,
        verify=verify,
        on_bad_row=on_bad_row,
        max_rejects=float(max_rejects),
        format=format,
    )
    if format == "tfds":
        check_tfds(
            chosen.schema, tfds_name(place), TFDS_VERSION, rule.names, None if name == "none" else name
        )
    return Conversion(
        job=job,
        plan=plan_of(job, facts),
        out=place,
        version=VERSION,
        companions=_Companions(job, place, facts, beside),
        workers=many,
        rows=facts.rows,
        source_bytes=facts.source_bytes,
        spills=None if staging is None else os.fspath(staging),
        fresh=bool(fresh),
        storage=storage,
    )


TFDS_VERSION = "1.0.0"


def tfds_name(out: str) -> str:
    """The name of a TFDS dataset in a folder: the folder's own, or that of the one above a version."""
    folder, name = os.path.split(os.path.abspath(out))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):
        name = os.path.basename(folder)
    return re.sub(r"\W", "_", name)


class _Companions:
    """The files beside the shards that other tools look for."""

    def __init__(self, job: Job, out: str, facts: Facts, beside: Mapping[str, bytes]) -> None:
        self._job = job
        self._out = out
        self._facts = facts
        self._beside = beside  # what transforms keep there

    def __call__(self, manifest: Manifest) -> dict[str, bytes]:
        schema = self._job.schema
        files = {**self._beside, "schema.pbtxt": schema.to_pbtxt().encode()}
        names = getattr(self._job.layout, "class_names", None)
        if self._job.layout.name == "detection" and names:
            files["label_map.pbtxt"] = label_map_text(names).encode()
        if self._job.format == "tfds":
            splits = {
                name: (split.shards.records, split.payload_bytes) for name, split in manifest.splits.items()
            }
            files |= tfds_files(schema, tfds_name(self._out), TFDS_VERSION, splits)
        return files


def _layout(
    source: Source, facts: Facts, schema: Schema | None, layout: Layout | str | None, masks: MaskOptions
) -> tuple[Layout, tuple[str, ...] | None]:
    """The layout, and the columns that it takes from the source (None: rows must fit as they are)."""
    if schema is not None:
        checked_schema(schema)
        if layout is not None and layout not in ("table", "text", "auto"):
            raise _refused("layout", layout, "either schema= or layout=", "leave one of them out")
        declared = None if facts.schema is None else tuple(schema)
        return Plain(schema), declared
    if layout is None or isinstance(layout, str):
        made = layout_for(source, facts, layout, masks)
        # Where the source knows splits, rows name theirs beside their columns. Else they must fit: a column that
        # none of the first rows had would be lost without a word.
        named = isinstance(made, Plain) and facts.splits is not None
        return made, tuple(made.schema) if named else None
    for member in ("schema", "derive", "looks", "options"):
        if not hasattr(layout, member):
            raise _refused("layout", layout, "a layout of rk.layouts, or its name", 'layout="deeplab"')
    return layout, None


def index_columns(schema: Schema, asked: Sequence[str]) -> tuple[str, ...]:
    """The columns of the index: what was asked for, and every Label."""
    if isinstance(asked, str):
        raise _refused("index", asked, "a list of column names", f"index=[{asked!r}]")
    for name in asked:
        if name not in schema.context:
            near = near_miss(name, list(schema.context)) if isinstance(name, str) else None
            raise _refused(
                "index",
                name,
                "columns of the schema",
                f"did you mean `{near}`?" if near else "name one of its columns",
            )
    labels = list(of_type(schema.context, Label))
    return tuple(dict.fromkeys([*asked, *labels]))


def shard_template(out: str, compression: str, format: str | None) -> str:
    """How the shards of a dataset at `out` are called."""
    if format == "tfds":
        return f"{tfds_name(out)}-{{split}}.tfrecord-{{shard:05d}}-of-{{shards:05d}}"
    return f"{{split}}-{{shard:05d}}-of-{{shards:05d}}.tfrecord{_EXTENSIONS[compression]}"


def byte_count(size: object, *, name: str) -> int:
    """A size such as 128MB (10^6) or 128MiB (2^20) in bytes."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise _refused(name, size, "a size such as 128MB or 1GiB, or a number of bytes", f'{name}="128MB"')
    if isinstance(size, int):
        return checked_whole(name, size, least=1)
    match = _SIZE.fullmatch(size.strip())
    unit = match[2] if match else ""
    by_case = {known.lower(): known for known in _UNITS}
    if match is None or unit.lower() not in by_case or float(match[1]) <= 0:
        raise _refused(name, size, "a size such as 128MB (10^6) or 1GiB (2^30)", f'{name}="128MB"')
    n_bytes = float(match[1]) * _UNITS[by_case[unit.lower()]]
    if n_bytes >= 2**63:
        raise _refused(name, size, "a size that a file can have, such as 128MB", f'{name}="128MB"')
    return max(1, int(n_bytes))


def worker_count(workers: int | None) -> int:
    """How many work at once: as asked, or one for each core."""
    return available_workers() if workers is None else checked_whole("workers", workers, least=1, most=1024)


def checked_out(out: PathLike) -> str:
    """The folder that a dataset is to appear at, where that can be."""
    try:
        place = os.fspath(out)
    except TypeError:
        raise _refused("out", out, "the path of a folder", 'rk.write(rows, "data/flowers")') from None
    if not isinstance(place, str) or not place.strip("/.") or "\0" in place:
        raise _refused(
            "out", place, "the path of a folder that is to be made", 'rk.write(rows, "data/flowers")'
        )
    refuse_to_write(place)
    return place


def checked_whole(name: str, value: object, *, least: int, most: int = 2**63 - 1) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upper = "" if most == 2**63 - 1 else f" to {most:,}"
        expected = (
            f"a whole number from {least:,}{upper}" if least > -(2**63) else "a whole number of 64 bits"
        )
        raise _refused(name, value, expected, f"{name}={max(least, 1)}")
    return value


def check_one_of(name: str, value: object, known: tuple[Any, ...]) -> None:
    """Refuse a value that is none of the known ones."""
    if value not in known:
        raise _refused(
            name, value, "one of " + ", ".join([repr(one) for one in known]), f"{name}={known[-1]!r}"
        )


def _no_engine(engine: object) -> RekordError:
    if engine == "ray":
        return error(
            "U604",
            "`engine` cannot be 'ray' yet",
            expected="'local'",
            found="'ray'",
            do="leave it out: all cores of this machine are used",
        )
    return _refused("engine", engine, "'local'", "engine='local'")


def _refused(name: str, value: object, expected: str, do: str) -> RekordError:
    return error("U605", f"`{name}` cannot be {shown(value)}", expected=expected, found=shown(value), do=do)


def run_aloud(conversion: Conversion) -> Outcome:
    """Run a conversion, with what is to be expected before it and how far it is beside it, on stderr."""
    from rekord.verbs.forecast import check_space, forecast, is_complete
    from rekord.verbs.progress import Progress

    with Progress() as progress:
        if not is_complete(conversion):
            expected = forecast(conversion)
            check_space(conversion, expected)
            progress.say(expected.lines())
        return convert(conversion, progress)


def write(
    rows: Any,
    out: PathLike,
    *,
    schema: Schema | None = None,
    layout: Layout | str | None = None,
    map: RowFunction | None = None,
    transforms: Transform | Sequence[Transform] = (),
    names: Sequence[str] | None = None,
    split: Mapping[str, float] | str | None = None,
    split_by: str | None = None,
    stratify: str | None = None,
    key: str | None = None,
    index: Sequence[str] = (),
    shard_size: str | int = "128MB",
    shards: int | None = None,
    compression: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    verify: Literal["full", "headers"] = "full",
    on_bad_row: Literal["stop", "reject"] = "stop",
    max_rejects: float = 0.01,
    limit: int | None = None,
    workers: int | None = None,
    engine: Literal["local"] = "local",
    staging: PathLike | None = None,
    fresh: bool = False,
    progress: bool = True,
    format: Literal["tfds"] | None = None,
) -> Dataset:
    """Write a dataset at the folder `out` from rows, and open it.

    `rows` is a source (`rk.sources`), a path that one is made of, an iterable of mappings, a dict of NumPy columns,
    a pyarrow Table, a pandas or polars DataFrame, a tf.data.Dataset, a Hugging Face dataset or a torch Dataset.
    Columns are what `schema` declares, or what a `layout` (`rk.layouts`) makes of them; without either, what fits
    the source. `transforms` (`rk.transforms`) then change the rows, and with them the schema that is stored.

    `split` is a dict of ratios, one name, "source" where the source knows splits, or None: everything goes to
    `train`. A ratio is kept by the hash of the row's identity, or of the column `split_by`: rows stay where they
    are when others are added. `stratify` makes the ratios exact within each class of a column instead.

    The dataset appears when it is complete. After a crash the same call goes on where it stopped, and ends with
    the bytes that it would have had; workers change nothing but the time. A row that does not fit ends it
    (`on_bad_row="stop"`), or is listed in `.rekord/rejects.jsonl` ("reject"), unless more than `max_rejects` are
    bad: a share of the rows below 1, a number from 1 on.
    """

    conversion = prepare(
        rows,
        out,
        schema=schema,
        layout=layout,
        map=map,
        transforms=transforms,
        names=names,
        split=split,
        split_by=split_by,
        stratify=stratify,
        key=key,
        index=index,
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        shuffle=shuffle,
        seed=seed,
        verify=verify,
        on_bad_row=on_bad_row,
        max_rejects=max_rejects,
        limit=limit,
        workers=workers,
        engine=engine,
        staging=staging,
        fresh=fresh,
        format=format,
        aloud=progress,
    )
    (run_aloud if progress else run)(conversion)
    return open_dataset(conversion.out)

"""`rk.write`: raw data to a dataset; everything that can be refused is refused before a row is read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from rekord.arguments import check_keywords, column_name, invalid
from rekord.codec.encode import validate_schema
from rekord.conversion.driver import Conversion, ConversionListener, ConversionResult, convert
from rekord.conversion.encode_rows import TransformedLayout
from rekord.conversion.plan import ConversionJob, RowFunction, build_plan
from rekord.conversion.splits import parse_split_rule
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import Manifest
from rekord.errors import error
from rekord.framing.deflate import compression_name
from rekord.layouts.base import Layout, PlainLayout
from rekord.layouts.tfds import build_tfds_files, check_tfds
from rekord.schema import Label, Schema, of_type
from rekord.schema.interop.label_map import format_label_map
from rekord.sources.base import RowsLike, Source, SourceFacts
from rekord.sources.rows import LimitedSource
from rekord.storage.local import LOCAL, PathLike, Storage
from rekord.transforms.base import Transform, collect_companions
from rekord.transforms.chain import as_chain
from rekord.verbs.fit_transforms import FitOptions, fit_chain
from rekord.verbs.options import WriteOptions, output_folder, resolve_worker_count
from rekord.verbs.resolve_source import DEFAULT_MASK_OPTIONS, MaskOptions, choose_layout, resolve_source
from rekord.version import VERSION

_EXTENSIONS = {"none": "", "gzip": ".gz", "zlib": ".zz"}


def run_prepared_conversion(
    conversion: Conversion, watch: ConversionListener | None = None
) -> ConversionResult:
    """Run a conversion that was prepared."""
    return convert(conversion, watch)


def prepare_conversion(
    rows: RowsLike,
    out: PathLike,
    options: WriteOptions,
    *,
    storage: Storage = LOCAL,
    masks: MaskOptions = DEFAULT_MASK_OPTIONS,
    own_splits: bool = False,
    aloud: bool = False,
) -> Conversion:
    """Everything that can be refused before a row is read is refused here.

    `masks` stands in place of what the source knows of its masks. With `own_splits` the splits of a source that
    has some are kept where `split` asks for nothing else. What transforms learn from the rows is learned here, and
    told on stderr if `aloud`.
    """
    schema, layout, split = options.schema, options.layout, options.split
    named = layout if isinstance(layout, str) else None
    source = resolve_source(rows, names=options.names, layout=named, schema=schema)
    if options.limit is not None:
        source = LimitedSource(source, options.limit)
    facts = source.facts()
    if options.limit is None and facts.extra.get("infinite"):
        raise error(
            "U616",
            "rows of the source never end",
            expected="rows that end",
            found="a pipeline that begins anew whenever it ends",
            likely="`.repeat()` in the pipeline, which training wants and writing does not",
            do="leave `.repeat()` out, or say how many rows: limit=10_000",
        )
    chosen, select = _resolve_layout(source, facts, schema, layout, masks)
    validate_schema(chosen.schema)
    inferred = schema is None and isinstance(chosen, PlainLayout)
    if own_splits and split is None and facts.splits:
        split = "source"
    rule = parse_split_rule(split, by=options.split_by, stratify=options.stratify, known=facts.splits)
    place, many = output_folder(out), resolve_worker_count(options.workers)
    compression = compression_name(options.compression)
    beside: dict[str, bytes] = {}
    if (steps := as_chain(options.transforms)).steps:
        asked = FitOptions(
            function=options.map, select=select, splits=rule, key=options.key, seed=options.seed
        )
        steps = fit_chain(
            steps,
            source,
            chosen,
            requested=asked,
            workers=many,
            source_bytes=facts.source_bytes,
            aloud=aloud,
        )
        beside = collect_companions(steps.steps)
        chosen = TransformedLayout(chosen, steps)
    job = ConversionJob(
        source=source,
        layout=chosen,
        splits=rule,
        cut=options.cut,
        template=make_shard_template(place, compression, options.format),
        function=options.map,
        inferred=inferred,
        key=options.key,
        index=select_index_columns(chosen.schema, options.index),
        select=select,
        shuffle=bool(options.shuffle),
        seed=options.seed,
        compression=compression,
        verify=options.verify,
        on_bad_row=options.on_bad_row,
        max_rejects=float(options.max_rejects),
        format=options.format,
    )
    if options.format == "tfds":
        packed = None if compression == "none" else compression
        check_tfds(chosen.schema, infer_tfds_name(place), TFDS_VERSION, rule.names, packed)
    return Conversion(
        job=job,
        plan=build_plan(job, facts),
        out=place,
        version=VERSION,
        companions=_ConversionCompanions(job, place, facts, beside),
        workers=many,
        rows=facts.rows,
        source_bytes=facts.source_bytes,
        spills=None if options.staging is None else os.fspath(options.staging),
        fresh=bool(options.fresh),
        storage=storage,
    )


TFDS_VERSION = "1.0.0"


def infer_tfds_name(out: str) -> str:
    """The name of a TFDS dataset in a folder: the folder's own, or that of the one above a version."""
    folder, name = os.path.split(os.path.abspath(out))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):
        name = os.path.basename(folder)
    return re.sub(r"\W", "_", name)


class _ConversionCompanions:
    """The files beside the shards that other tools look for."""

    def __init__(self, job: ConversionJob, out: str, facts: SourceFacts, beside: Mapping[str, bytes]) -> None:
        self._job = job
        self._out = out
        self._facts = facts
        self._beside = beside  # what transforms keep there

    def __call__(self, manifest: Manifest) -> dict[str, bytes]:
        schema = self._job.schema
        files = {**self._beside, "schema.pbtxt": schema.to_pbtxt().encode()}
        names = getattr(self._job.layout, "class_names", None)
        if self._job.layout.name == "detection" and names:
            files["label_map.pbtxt"] = format_label_map(names).encode()
        if self._job.format == "tfds":
            splits = {
                name: (split.shards.records, split.payload_bytes) for name, split in manifest.splits.items()
            }
            files |= build_tfds_files(schema, infer_tfds_name(self._out), TFDS_VERSION, splits)
        return files


def _resolve_layout(
    source: Source, facts: SourceFacts, schema: Schema | None, layout: Layout | str | None, masks: MaskOptions
) -> tuple[Layout, tuple[str, ...] | None]:
    """The layout, and the columns that it takes from the source (None: rows must fit as they are)."""
    if schema is not None:
        validate_schema(schema)
        if layout is not None and layout not in ("table", "text", "auto"):
            raise invalid("layout", layout, "either schema= or layout=", "leave one of them out")
        declared = None if facts.schema is None else tuple(schema)
        return PlainLayout(schema), declared
    if layout is None or isinstance(layout, str):
        made = choose_layout(source, facts, layout, masks)
        # Where the source knows splits, rows name theirs beside their columns. Else they must fit: a column that
        # none of the first rows had would be lost without a word.
        named = isinstance(made, PlainLayout) and facts.splits is not None
        return made, tuple(made.schema) if named else None
    for member in ("schema", "derive", "looks", "options"):
        if not hasattr(layout, member):
            raise invalid("layout", layout, "a layout of rk.layouts, or its name", 'layout="deeplab"')
    return layout, None


def select_index_columns(schema: Schema, asked: Sequence[str]) -> tuple[str, ...]:
    """The columns of the index: what was asked for, and every Label."""
    if isinstance(asked, str):
        raise invalid("index", asked, "a list of column names", f"index=[{asked!r}]")
    for name in asked:
        column_name(
            "index", name, schema.context, expected="columns of the schema", do="name one of its columns"
        )
    labels = list(of_type(schema.context, Label))
    return tuple(dict.fromkeys([*asked, *labels]))


def make_shard_template(out: str, compression: str, format: str | None) -> str:
    """How the shards of a dataset at `out` are called."""
    if format == "tfds":
        return f"{infer_tfds_name(out)}-{{split}}.tfrecord-{{shard:05d}}-of-{{shards:05d}}"
    return f"{{split}}-{{shard:05d}}-of-{{shards:05d}}.tfrecord{_EXTENSIONS[compression]}"


def run_with_progress(conversion: Conversion) -> ConversionResult:
    """Run a conversion, with what is to be expected before it and how far it is beside it, on stderr."""
    from rekord.verbs.forecast import check_free_space, forecast, is_complete
    from rekord.verbs.progress import ConversionProgress

    with ConversionProgress() as progress:
        if not is_complete(conversion):
            expected = forecast(conversion)
            check_free_space(conversion, expected)
            progress.say(expected.lines())
        return convert(conversion, progress)


@check_keywords
def write(
    rows: RowsLike,
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
    options = WriteOptions.of(locals())
    conversion = prepare_conversion(rows, out, options, aloud=progress)
    (run_with_progress if progress else run_prepared_conversion)(conversion)
    return open_dataset(conversion.out)

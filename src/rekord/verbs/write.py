"""`rk.write`: what a person gave as a source and a layout, and a dataset of its rows.

Everything that can be refused is refused before a row is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rekord.arguments import check_keywords, column_name, invalid, one_of
from rekord.codec.encode import validate_schema
from rekord.conversion.driver import Conversion, ConversionListener, ConversionResult, convert
from rekord.conversion.encode_rows import TransformedLayout
from rekord.conversion.plan import ConversionJob, RowFunction, build_plan
from rekord.conversion.splits import parse_split_rule
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import Manifest, manifest_path
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout, PlainLayout
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection
from rekord.layouts.tfds import build_tfds_files, check_tfds
from rekord.schema import Label, Schema, of_type
from rekord.schema.interop.label_map import format_label_map
from rekord.sources.base import RowsLike, Source, SourceFacts
from rekord.sources.frameworks import find_framework_source, huggingface
from rekord.sources.records import RecordsSource
from rekord.sources.rows import LimitedSource
from rekord.sources.rows import rows as rows_source
from rekord.storage.local import LOCAL, PathLike, Storage
from rekord.transforms.base import Transform, collect_companions
from rekord.transforms.chain import as_chain
from rekord.verbs.fit_transforms import FitOptions, fit_chain
from rekord.verbs.options import WriteOptions, output_folder, resolve_worker_count
from rekord.version import VERSION

_EXTENSIONS = {"none": "", "gzip": ".gz", "zlib": ".zz"}

LAYOUTS = ("auto", "classification", "deeplab", "detection", "table", "text")


class MaskOptions(NamedTuple):
    """What a person says of masks, in place of what the source knows; None where nothing is said."""

    classes: int | None = None
    ignore: int | Literal["as the source"] | None = "as the source"
    colours: Mapping[tuple[int, int, int], int] | None = None


DEFAULT_MASK_OPTIONS = MaskOptions()


def resolve_source(
    rows: Any,
    *,
    names: Sequence[str] | None = None,
    layout: str | None = None,
    schema: Schema | None = None,
) -> Source:
    """The source that an object is, or that is made of it.

    `layout` decides where a path can be several sources, `schema` says how record files are read.
    """
    if hasattr(rows, "facts") and (hasattr(rows, "parts") or hasattr(rows, "rows")):
        return attach_schema(rows, schema)
    if isinstance(rows, (str, os.PathLike)):
        from rekord.sources.detect import detect_source

        return attach_schema(detect_source(rows, layout=layout), schema, os.fspath(rows))
    framework = find_framework_source(rows)
    if framework is not None:
        named = names is not None and framework is not huggingface  # whose columns have names already
        return framework(rows, names=names) if named else framework(rows)  # type: ignore[no-any-return]
    module = type(rows).__module__.split(".")[0]
    if module == "pyarrow":
        from rekord.sources.arrow import arrow

        return arrow(rows)
    if module in ("pandas", "polars") and hasattr(rows, "columns"):
        from rekord.sources import pandas, polars

        return pandas(rows) if module == "pandas" else polars(rows)
    if isinstance(rows, Dataset):
        return rows_source(rows.only_split("write"), names=names)
    if isinstance(rows, Mapping):
        from rekord.sources.arrays import columns

        return columns(rows)
    return rows_source(rows, names=names)


def attach_schema(source: Source, schema: Schema | None = None, path: str | None = None) -> Source:
    """The source; where it is of records that nothing describes, with a schema: the one given, or inferred."""
    if not isinstance(source, RecordsSource) or source.schema is not None:
        return source
    from rekord.sources.records import records

    dataset = open_dataset(source.paths if path is None else path, schema)
    splits = {file: name for name in dataset.splits for file in dataset[name].paths}
    known = None if set(splits.values()) == {"all"} else splits
    # An inferred schema claims to know every key, so that a record with another one is a bad row.
    declared = schema is not None or (path is not None and os.path.isfile(manifest_path(path)))
    return records(list(splits), dataset.schema, splits=known, strict=not declared)


def choose_layout(
    source: Source, facts: SourceFacts, name: str | None, masks: MaskOptions = DEFAULT_MASK_OPTIONS
) -> Layout:
    """The layout of this name, or the one that fits the source, with what the source knows of classes."""
    if name is not None:
        one_of("layout", name, LAYOUTS, do='layout="auto"')
    wanted = facts.layout if name in (None, "auto") else name
    if wanted in ("table", "text"):
        return PlainLayout(_get_schema(source, facts))
    if wanted != facts.layout:
        raise _layout_mismatch_error(source, facts, str(wanted))
    classes = facts.classes
    if wanted == "classification":
        return classification(classes=classes, optional_labels=bool(facts.extra.get("optional_labels")))
    if wanted == "deeplab":
        colours = facts.extra.get("colours") if masks.colours is None else masks.colours
        return deeplab(
            classes=masks.classes or facts.extra.get("classes") or (len(classes) if classes else 21),
            ignore=facts.extra.get("ignore", 255) if masks.ignore == "as the source" else masks.ignore,
            colours=colours,
            optional_masks=bool(facts.extra.get("optional_masks")),
        )
    return detection(
        classes=_get_names_by_id(facts),
        has=tuple(facts.extra.get("has", ())),
        masks=bool(facts.extra.get("masks")),
    )


def _get_names_by_id(facts: SourceFacts) -> dict[int, str]:
    names = facts.classes or ()
    ids = facts.class_ids or range(1, len(names) + 1)
    return dict(zip(ids, names, strict=True))


def _get_schema(source: Any, facts: SourceFacts) -> Any:
    if facts.schema is not None:
        return facts.schema
    inner = getattr(source, "source", source)
    if hasattr(inner, "peek_schema"):
        return inner.peek_schema()
    raise _layout_mismatch_error(source, facts, "table")


def _layout_mismatch_error(source: Any, facts: SourceFacts, wanted: str) -> RekordError:
    return error(
        "U676",
        f"a source of the kind {source.kind} has no rows for the layout {wanted!r}",
        expected=f"a source that fits it; this one fits {facts.layout!r}",
        found=source.kind,
        do="leave layout= out, or choose another source of rk.sources",
    )


def run_prepared_conversion(conversion: Conversion, watch: ConversionListener | None = None) -> ConversionResult:
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
    compression = options.compression or "none"
    beside: dict[str, bytes] = {}
    if options.transforms != () and (steps := as_chain(options.transforms)).steps:
        asked = FitOptions(function=options.map, select=select, splits=rule, key=options.key, seed=options.seed)
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
            splits = {name: (split.shards.records, split.payload_bytes) for name, split in manifest.splits.items()}
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
    for member in ("schema", "derive", "needs_derive", "options"):
        if not hasattr(layout, member):
            raise invalid("layout", layout, "a layout of rk.layouts, or its name", 'layout="deeplab"')
    return layout, None


def select_index_columns(schema: Schema, asked: Sequence[str]) -> tuple[str, ...]:
    """The columns of the index: what was asked for, and every Label."""
    if isinstance(asked, str):
        raise invalid("index", asked, "a list of column names", f"index=[{asked!r}]")
    for name in asked:
        column_name("index", name, schema.context, expected="columns of the schema", do="name one of its columns")
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

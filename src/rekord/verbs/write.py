"""`rk.write`: a dataset written from a source of rows. Invalid arguments are refused before a row is read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from rekord.arguments import check_keywords, column_name, conflicting_options, inapplicable, invalid, one_of
from rekord.codec.encode import validate_schema
from rekord.conversion.driver import Conversion, ConversionResult, convert
from rekord.conversion.encode_rows import TransformedLayout
from rekord.conversion.plan import ConversionJob, RowFunction, build_plan
from rekord.conversion.splits import parse_split_rule
from rekord.conversion.windows.source import window_source
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import Manifest, manifest_path
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout, PlainLayout, images
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection
from rekord.schema import Feature, Label, Schema, of_type
from rekord.schema.interop.label_map import format_label_map
from rekord.schema.interop.tfds import build_tfds_files, check_tfds
from rekord.sources.base import (
    DetectedSource,
    RowsLike,
    Source,
    SourceFacts,
    SourceGuess,
    UnusedInput,
    full_path,
    is_partitioned,
)
from rekord.sources.detect import FOLDER_KINDS, SourceOverrides, build_source, identify_source
from rekord.sources.folder_survey import find_unused_files, guess_class_folders
from rekord.sources.frameworks import find_framework_source, huggingface
from rekord.sources.records import RecordsSource
from rekord.sources.rows import rows as rows_source
from rekord.sources.wrapped import LimitedSource
from rekord.storage.local import PathLike, Storage
from rekord.storage.remote_files import listed_once
from rekord.storage.router import ROUTED_STORAGE, is_remote
from rekord.transforms.base import Transform, collect_companions
from rekord.transforms.chain import as_chain
from rekord.transforms.windows import Window
from rekord.verbs.declare_columns import (
    ColumnRequest,
    DeclaredColumns,
    adapt_image_list,
    check_column_options,
    choose_class_names,
    declare_layout,
    declare_table,
    prepare_function,
    project_source,
)
from rekord.verbs.learning import fit_chain
from rekord.verbs.options import WriteOptions, output_folder, resolve_worker_count
from rekord.verbs.write_request import MaskRequest, encode_request
from rekord.version import VERSION

_EXTENSIONS = {"none": "", "gzip": ".gz", "zlib": ".zz"}

LAYOUTS = ("auto", "classification", "deeplab", "detection", "images", "table", "text")


class MaskOptions(NamedTuple):
    """Overrides of what the source knows about its masks; None if nothing is overridden."""

    classes: int | None = None
    ignore: int | Literal["as the source"] | None = "as the source"
    colours: Mapping[tuple[int, int, int], int] | None = None


DEFAULT_MASK_OPTIONS = MaskOptions()
_NO_REQUEST = ColumnRequest()


def resolve_source(
    rows: Any,
    *,
    names: Sequence[str] | None = None,
    schema: Schema | None = None,
    encoding: str | None = None,
) -> Source:
    """The source for an object that is not a path: a source itself, or data in memory.

    `schema` is for record files, `encoding` for texts.
    """
    if encoding is not None:
        raise inapplicable(
            "encoding",
            "to rows that are not read from a path",
            expected="the path of a text file",
            found=f"a {type(rows).__name__}",
            do='leave encoding= out, or give it to the source: rk.sources.csv(path, encoding="latin-1")',
        )
    if hasattr(rows, "facts") and (hasattr(rows, "parts") or hasattr(rows, "rows")):
        return attach_schema(rows, schema)
    framework = find_framework_source(rows)
    if framework is not None:
        named = names is not None and framework is not huggingface  # its columns already have names
        return framework(rows, names=names) if named else framework(rows)  # type: ignore[no-any-return]
    module = type(rows).__module__.split(".")[0]
    if module == "pyarrow":
        from rekord.sources.table_files import arrow

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
    """The source; record files without a schema get one, given or inferred."""
    if not isinstance(source, RecordsSource) or source.schema is not None:
        return source
    from rekord.sources.records import records

    dataset = open_dataset(source.paths if path is None else path, schema)
    splits = {file: name for name in dataset.splits for file in dataset[name].paths}
    known = None if set(splits.values()) == {"all"} else splits
    # An inferred schema knows every key, so that a record with another key is a bad row.
    declared = schema is not None or (path is not None and os.path.isfile(manifest_path(path)))
    return records(list(splits), dataset.schema, splits=known, strict=not declared)


def choose_layout(
    facts: SourceFacts, name: str, masks: MaskOptions = DEFAULT_MASK_OPTIONS, request: ColumnRequest = _NO_REQUEST
) -> Layout:
    """The named layout, with the classes of the source unless others are declared."""
    named = choose_class_names(request, name, facts)
    classes = named or facts.classes
    if name == "images":
        return images()
    if name == "classification":
        optional = bool(facts.extra.get("optional_labels"))
        background = request.background
        return classification(classes=classes, background=background, optional_labels=optional)
    if name == "deeplab":
        colours = facts.extra.get("colours") if masks.colours is None else masks.colours
        ignore = facts.extra.get("ignore", 255) if masks.ignore == "as the source" else masks.ignore
        ids = set(masks.colours.values()) - {ignore} if masks.colours else ()
        return deeplab(
            classes=masks.classes
            or facts.extra.get("classes")
            or (len(classes) if classes else max(ids) + 1 if ids else 21),
            ignore=ignore,
            colours=colours,
            optional_masks=bool(facts.extra.get("optional_masks")),
        )
    names = classes or ()
    return detection(
        classes=dict(zip(facts.class_ids or range(1, len(names) + 1), names, strict=True)),
        has=tuple(facts.extra.get("has", ())),
        masks=bool(facts.extra.get("masks")),
    )


def _has_schema(source: Any, facts: SourceFacts) -> bool:
    """Whether the columns of a source can be stored as they are."""
    while facts.schema is None and not hasattr(source, "peek_schema") and hasattr(source, "source"):
        source = source.source
    return facts.schema is not None or hasattr(source, "peek_schema")


def _layout_mismatch_error(source: Any, facts: SourceFacts, wanted: str) -> RekordError:
    return error(
        "U676",
        f"{source.kind} source does not fit the layout {wanted!r}",
        expected=f"the layout {facts.layout!r}",
        found=repr(wanted),
        do=f'layout="{facts.layout}"',
    )


@listed_once()
def prepare_conversion(
    rows: RowsLike,
    out: PathLike,
    options: WriteOptions,
    *,
    storage: Storage = ROUTED_STORAGE,
    masks: MaskOptions = DEFAULT_MASK_OPTIONS,
    own_splits: bool = False,
    verbose: bool = False,
    class_names: tuple[str, ...] | None = None,
    recorded: Mapping[str, Any] | None = None,
    detected: DetectedSource | None = None,
    overrides: SourceOverrides | None = None,
) -> Conversion:
    """Validate everything that can be validated before a row is read, and learn classes and transforms from rows.

    `masks` overrides what the source knows about its masks, `class_names` the classes of its labels. With
    `own_splits`, a source that has splits keeps them unless `split` is given. With `verbose`, fitting is reported on
    stderr. `recorded` are the declared columns of the dataset that rows are appended to; `detected` is what the
    source was built from, if it was detected, and `overrides` with which options.
    """
    check_column_options(options)
    schema, layout, split = options.schema, options.layout, options.split
    named = layout if isinstance(layout, str) else None
    if isinstance(rows, (str, os.PathLike)):
        detected = detected or identify_source(rows, layout=named)
        overrides = SourceOverrides(encoding=options.encoding)
        source = attach_schema(build_source(detected, overrides), schema, os.fspath(rows))
    else:
        source = resolve_source(rows, names=options.names, schema=schema, encoding=options.encoding)
    read = source
    given = options
    source, options = _apply_window(source, options, out)
    split = options.split
    source, options = adapt_image_list(source, options)
    request = ColumnRequest.of(options, class_names, recorded or {})
    source, request = project_source(source, request)
    if options.limit is not None:
        source = LimitedSource(source, options.limit)
    facts = source.facts()
    if options.limit is None and facts.extra.get("infinite"):
        raise error(
            "U616",
            "source has no end",
            expected="a finite number of rows",
            found="a pipeline that restarts whenever it ends",
            likely="`.repeat()` in the pipeline, which is for training",
            do="remove `.repeat()`, or limit=10_000",
        )
    place, workers = output_folder(out), resolve_worker_count(options.workers)
    if request.function is not None:
        _check_layout(layout)
        peek = schema is None and layout in (None, "auto", "table", "text")
        stop = options.on_bad_row == "stop"
        source, facts, request = prepare_function(source, facts, request, workers=workers, stop=stop, peek=peek)
    declared = _declare_columns(source, facts, layout, masks, request, options, place, workers)
    source, facts, chosen, select = declared.source, declared.facts, declared.layout, declared.select
    validate_schema(chosen.schema)
    inferred = schema is None and isinstance(chosen, PlainLayout)
    if own_splits and split is None and facts.splits:
        split = "source"
    rule = parse_split_rule(split, by=options.split_by, stratify=options.stratify, known=facts.splits)
    compression = options.compression or "none"
    job = ConversionJob(
        source=source,
        layout=chosen,
        splits=rule,
        cut=options.cut,
        template=make_shard_template(place, compression, options.format),
        function=options.map,
        inferred=inferred,
        key=options.key,
        select=select,
        columns=declared.conversions,
        shuffle=bool(options.shuffle),
        seed=options.seed,
        compression=compression,
        verify=options.verify,
        on_bad_row=options.on_bad_row,
        max_rejects=float(options.max_rejects),
        format=options.format,
    )
    fitted_files: dict[str, bytes] = {}
    if options.transforms != () and (chain := as_chain(options.transforms)).steps:
        chain = fit_chain(chain, job, workers=workers, source_bytes=facts.source_bytes, verbose=verbose)
        fitted_files = collect_companions(chain.steps)
        chosen = TransformedLayout(chosen, chain)
    job = replace(job, layout=chosen, index=select_index_columns(chosen.schema, options.index))
    # What is declared was not guessed.
    settled = {one for one in (options.label, *(options.columns or ())) if one in chosen.schema}
    settled = {one for one in settled if chosen.schema[str(one)].is_label} | ({"mask"} if masks.colours else set())
    settled |= {"image"} if getattr(read, "images_as", None) is not None else set()
    if options.format == "tfds":
        check_tfds_output(place, chosen.schema, rule.names, compression)
    return Conversion(
        job=job,
        plan=build_plan(job, facts),
        out=place,
        version=VERSION,
        companions=partial(_build_companions, job, place, fitted_files),
        workers=workers,
        are_workers_given=options.workers is not None,
        prior_processes=0 if request.outputs is None else request.outputs.processes,
        prior_remark=None if request.outputs is None else request.outputs.problem,
        rows=facts.rows,
        source_bytes=facts.source_bytes,
        known_rows=is_partitioned(source) or bool(facts.files),
        guesses=tuple(
            [
                guess
                for guess in (*(detected.guesses if detected is not None else ()), *facts.guesses)
                if guess.column not in settled
            ]
            + (guess_class_folders(facts) if read.kind == "image_folder" else [])
        ),
        notes=facts.notes,
        is_split_by_series=split == "source" and given.split != "source" and options.transforms != given.transforms,
        # The source knows better than its folder why a file is not used.
        unused=tuple(
            {(one.kind, one.name): one for one in (*_find_unused(read, facts, detected), *facts.unused)}.values()
        ),
        spills=None if options.staging is None else os.fspath(options.staging),
        fresh=bool(options.fresh),
        storage=storage,
        files=facts.files,
        request=encode_request(
            given,
            overrides=overrides,
            masks=_record_masks(masks),
            class_names=class_names,
            own_splits=own_splits,
        )
        if recorded is None
        else b"",
    )


def _apply_window(source: Source, options: WriteOptions, out: PathLike) -> tuple[Source, WriteOptions]:
    """The windows of a source, if the first transform asks for them, and the options for these."""
    steps = () if options.transforms == () else as_chain(options.transforms).steps
    if not steps or not isinstance(steps[0], Window):
        return source, options
    window, split = steps[0], options.split
    overlap = window.is_timed or int(window.stride) < int(window.size) or window.horizon > 0
    by = window.by or ()
    if window.split_by_time and (split is not None or options.split_by or options.stratify or options.key):
        raise conflicting_options("split_by_time", "split", do="leave split= out")
    for name in ("stratify", "key"):
        if overlap and isinstance(split, Mapping) and getattr(options, name) is not None:
            raise _leaking_split_error(name, getattr(options, name), by)
    if overlap and options.split_by is not None and options.split_by not in by:
        raise _leaking_split_error("split_by", options.split_by, by)
    rule = None
    if isinstance(split, Mapping) and not (options.split_by or options.stratify or options.key):
        # All windows of a group go to one split: no two splits share a row.
        rule = parse_split_rule(split, by=None, stratify=None, known=None)
    made = window_source(
        source,
        window,
        out=output_folder(out),
        staging=None if options.staging is None else os.fspath(options.staging),
        workers=resolve_worker_count(options.workers),
        group_splits=rule,
        seed=options.seed,
    )
    own = "source" if rule is not None or window.split_by_time else split
    return made, replace(options, transforms=steps[1:], split=own)


def _leaking_split_error(name: str, value: object, by: Sequence[str]) -> RekordError:
    wanted = f"one of by=: {', '.join(by)}" if by else "no split_by=: all windows of a file go to one split"
    return inapplicable(
        name,
        "to windows that overlap: they would share rows with those of other splits",
        expected=wanted[:80],
        found=repr(value)[:60],
        do=f"split_by={by[0]!r}" if len(by) == 1 else f"leave {name}= out",
    )


def _record_masks(masks: MaskOptions) -> MaskRequest | None:
    if masks == DEFAULT_MASK_OPTIONS:
        return None
    colours = None if masks.colours is None else [(*colour, number) for colour, number in masks.colours.items()]
    return MaskRequest(classes=masks.classes, ignore=masks.ignore, colours=colours)


def _find_unused(source: Any, facts: SourceFacts, detected: DetectedSource | None) -> tuple[UnusedInput, ...]:
    """The files next to those of a source that are not read."""
    folder = None if detected is None else detected.given
    if detected is None and source.kind in FOLDER_KINDS:
        folder = source.root
    if folder is None or source.kind == "records":
        return ()
    return find_unused_files(folder, [full_path(source, file.path) for file in facts.files], source.kind)


_TFDS_VERSION = "1.0.0"


def infer_tfds_name(out: str) -> str:
    """The name of a TFDS dataset: that of its folder, or of the parent of a version folder."""
    folder, name = os.path.split(out.rstrip("/") if is_remote(out) else os.path.abspath(out))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):
        name = os.path.basename(folder)
    return re.sub(r"\W", "_", name)


def check_tfds_output(out: str, schema: Schema, splits: Sequence[str], compression: str) -> None:
    """Refuse a dataset that TFDS could not open."""
    packed = None if compression == "none" else compression
    check_tfds(schema, infer_tfds_name(out), _TFDS_VERSION, splits, packed)


def build_tfds_companions(out: str, schema: Schema, manifest: Manifest) -> dict[str, bytes]:
    """The files that TFDS reads next to the shards."""
    splits = {name: (split.shards.records, split.payload_bytes) for name, split in manifest.splits.items()}
    return build_tfds_files(schema, infer_tfds_name(out), _TFDS_VERSION, splits)


def _build_companions(
    job: ConversionJob, out: str, fitted_files: Mapping[str, bytes], manifest: Manifest
) -> dict[str, bytes]:
    """The files next to the shards: those of fitted transforms, and those that other tools look for."""
    files = {**fitted_files, "schema.pbtxt": job.schema.to_pbtxt().encode()}
    names = getattr(job.layout, "class_names", None)
    if job.layout.name == "detection" and names:
        files["label_map.pbtxt"] = format_label_map(names).encode()
    if job.format == "tfds":
        files |= build_tfds_companions(out, job.schema, manifest)
    return files


def _declare_columns(
    source: Source,
    facts: SourceFacts,
    layout: Layout | str | None,
    masks: MaskOptions,
    request: ColumnRequest,
    options: WriteOptions,
    out: str,
    workers: int,
) -> DeclaredColumns:
    """The layout, with the columns as they are declared."""
    _check_layout(layout)
    if request.schema is not None:
        if not isinstance(request.schema, Schema) or request.schema.kind == "bytes":
            validate_schema(request.schema)  # raises
        if layout is not None and layout not in ("table", "text", "auto"):
            raise conflicting_options("layout", "schema")
    elif layout is not None and not isinstance(layout, str):
        if request.background:
            raise conflicting_options("background", "layout", do="rk.layouts.classification(background=True)")
        return declare_layout(layout, source, facts, request)
    else:
        wanted = facts.layout if layout in (None, "auto") else layout
        if wanted not in ("table", "text"):
            if wanted != facts.layout:
                raise _layout_mismatch_error(source, facts, str(wanted))
            added = [] if request.outputs is None else request.outputs.added
            if not added:
                return declare_layout(choose_layout(facts, str(wanted), masks, request), source, facts, request)
            facts = replace(facts, guesses=(*facts.guesses, _not_a_layout_guess(added, str(wanted))))
        elif request.outputs is None and not _has_schema(source, facts):
            raise _layout_mismatch_error(source, facts, "table")
    return declare_table(source, facts, request, out=out, staging=options.staging, workers=workers)


def _check_layout(layout: Layout | str | None) -> None:
    if isinstance(layout, str):
        one_of("layout", layout, LAYOUTS, do='layout="auto"')
    elif layout is not None:
        for member in ("schema", "derive", "needs_derive", "options"):
            if not hasattr(layout, member):
                raise invalid("layout", layout, "a layout from rk.layouts, or its name", 'layout="deeplab"')


def _not_a_layout_guess(added: Sequence[str], layout: str) -> SourceGuess:
    names = ", ".join([f"`{name}`" for name in added[:5]]) + (", …" if len(added) > 5 else "")
    return SourceGuess(
        None,
        f"`map` returns {names}, which the layout {layout} does not have: its rows are stored as a table",
        f'layout="{layout}" to leave them out',
    )


def select_index_columns(schema: Schema, requested: Sequence[str]) -> tuple[str, ...]:
    """The columns of the index: the requested ones, and every Label."""
    if isinstance(requested, str):
        raise invalid("index", requested, "a list of column names", f"index=[{requested!r}]")
    do = f"index={list(schema.context)[:1]}"[:60]
    for name in requested:
        column_name("index", name, schema.context, expected="columns of the schema", do=do)
    return tuple(dict.fromkeys([*requested, *of_type(schema.context, Label)]))


def make_shard_template(out: str, compression: str, format: str | None) -> str:
    """The template for the shard names of a dataset at `out`."""
    if format == "tfds":
        return f"{infer_tfds_name(out)}-{{split}}.tfrecord-{{shard:05d}}-of-{{shards:05d}}"
    return f"{{split}}-{{shard:05d}}-of-{{shards:05d}}.tfrecord{_EXTENSIONS[compression]}"


def run_conversion(conversion: Conversion, *, progress: bool) -> ConversionResult:
    """Run a conversion; with `progress`, its forecast and progress are printed to stderr."""
    try:
        return _run_conversion(conversion, progress=progress)
    finally:
        _release(conversion.job.source)


def _release(source: Any) -> None:
    """Remove the temporary files of a source, and of those that it is made from."""
    while source is not None:
        getattr(source, "release", lambda: None)()
        source = getattr(source, "source", None)


def _run_conversion(conversion: Conversion, *, progress: bool) -> ConversionResult:
    if not progress:
        return convert(conversion)
    from rekord.verbs.forecast import check_free_space, forecast, is_complete
    from rekord.verbs.progress import ConversionProgress

    with ConversionProgress() as reporter:
        if not is_complete(conversion):
            expected = forecast(conversion)
            check_free_space(conversion, expected)
            reporter.say(expected.lines())
        result = convert(conversion, reporter)
        if conversion.are_workers_given and result.processes_remark is not None:
            reporter.close()
            ran = f"{result.processes:,} of {conversion.workers:,} processes took part"
            reporter.say([f"workers: {ran}: {result.processes_remark}"])
        return result


@check_keywords
def write(
    rows: RowsLike,
    out: PathLike,
    *,
    schema: Schema | None = None,
    columns: Mapping[str, Feature] | None = None,
    label: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    background: bool = False,
    encoding: str | None = None,
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
    """Write rows to a dataset in the folder `out`, and open it.

    `rows` is a source (`rk.sources`), the path of one, an iterable of mappings, a dict of NumPy columns, a pyarrow
    Table, a pandas or polars DataFrame, a tf.data.Dataset, a Hugging Face dataset or a torch Dataset. `schema` or a
    `layout` (`rk.layouts`) determines the columns; without either, the source does. `transforms` (`rk.transforms`)
    are then applied to the rows, and change the stored schema. `encoding` is that of text files, such as "latin-1".

    `schema` declares all columns; `columns={"zip": rk.Text()}` declares some, and the rest is inferred. A column of
    paths that is declared as `rk.Image()` becomes images. `label="species"` makes a column a label, whose classes are
    learned from all rows; ids start at 0, or at 1 with `background`. `drop` and `keep` select columns.

    `split` is a dict of ratios, a name, "source" if the source has splits, or None for a single split `train`.
    Ratios are based on the hash of a row's identity, or of the column `split_by`: rows keep their split when others
    are added. `stratify` makes the ratios exact within each class of a column.

    The dataset appears when it is complete. After a crash, the same call resumes and produces byte-identical output;
    the number of workers only affects the time. An invalid row stops the conversion (`on_bad_row="stop"`), or is
    listed in `.rekord/rejects.jsonl` ("reject") unless there are more than `max_rejects`: a fraction of the rows if
    below 1, otherwise a number of rows.
    """
    options = WriteOptions.of(locals())
    conversion = prepare_conversion(rows, out, options, verbose=progress)
    if progress:
        from rekord.verbs.progress import report_guesses, report_notes

        report_guesses(conversion.guesses)
        report_notes(conversion.notes)
    run_conversion(conversion, progress=progress)
    return open_dataset(conversion.out)

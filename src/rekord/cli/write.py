"""`rekord write`: raw data to a dataset, in one command."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import raw_data
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_conversion, report_forecast, report_resumable
from rekord.cli.options import Panel, argument, flag_option, integer_option, parsed_option, text_option
from rekord.cli.window_options import WindowOptions, parse_window
from rekord.cli.write_options import parse_columns
from rekord.errors import error

if TYPE_CHECKING:
    from rekord.conversion.driver import Conversion
    from rekord.sources.base import DetectedSource
    from rekord.sources.detect import SourceOverrides

_DATA_ERROR_CODES = ("X510", "X514")


@shared.expand_groups
def write(
    source: Annotated[
        str | None,
        argument("SOURCE", "Raw data: a folder, file or glob pattern. Left out with --images and --masks."),
    ] = None,
    out: Annotated[str | None, argument("OUT", "Folder to create.")] = None,
    *,
    layout: Annotated[
        str | None,
        text_option(
            "--layout",
            "NAME",
            "Keys of the records: auto (default), deeplab, detection, classification, images, table or text.",
            Panel.COLUMNS,
        ),
    ] = None,
    images: Annotated[
        str | None, text_option("--images", "DIR", "Folder of images, for --masks or a list of files.", Panel.SOURCE)
    ] = None,
    masks: Annotated[
        str | None, text_option("--masks", "DIR", "Folder of masks that belong to --images.", Panel.SOURCE)
    ] = None,
    classes: Annotated[
        str | None,
        text_option(
            "--classes", "N|FILE", "Number of classes, or a file with one class name per line.", Panel.SOURCE
        ),
    ] = None,
    ignore: Annotated[
        str | None,
        text_option("--ignore", "N", "Mask id of pixels without a class, or none if all have one.", Panel.SOURCE),
    ] = None,
    colours: Annotated[
        str | None,
        text_option(
            "--colours",
            "FILE|LEVELS",
            'Class ids by mask colour: levels 0=0,255=1, JSON {"128,64,0": 3}, or a table of colours.',
            Panel.SOURCE,
        ),
    ] = None,
    optional_masks: Annotated[
        bool, flag_option("--optional-masks", "Allow images without masks.", Panel.SOURCE)
    ] = False,
    label_map: Annotated[
        str | None,
        text_option("--label-map", "FILE", "Class ids by name: a .pbtxt label map, JSON or text.", Panel.SOURCE),
    ] = None,
    text_files: raw_data.TextFileOptions,
    videos: raw_data.VideoOptions,
    schema: Annotated[
        str | None, text_option("--schema", "FILE", "Schema to write: JSON or .pbtxt.", Panel.COLUMNS)
    ] = None,
    columns: Annotated[
        list[str] | None,
        text_option(
            "--column", "NAME=TYPE", "Type of a column, such as zip=text; others are inferred.", Panel.COLUMNS
        ),
    ] = None,
    label: Annotated[
        str | None,
        text_option("--label", "COLUMN", "Column whose values are classes, learned from the data.", Panel.COLUMNS),
    ] = None,
    background: Annotated[
        bool, flag_option("--background", "Reserve class id 0 for the background.", Panel.COLUMNS)
    ] = False,
    drop: Annotated[str | None, text_option("--drop", "A,B", "Leave these columns out.", Panel.COLUMNS)] = None,
    keep: Annotated[str | None, text_option("--keep", "A,B", "Leave all other columns out.", Panel.COLUMNS)] = None,
    map_: shared.MapOption = None,
    windows: WindowOptions,
    image_transforms: options.ImageTransformOptions,
    column_transforms: options.ColumnTransformOptions,
    split: Annotated[
        str | None,
        text_option(
            "--split",
            "A=0.9,B=0.1",
            "Splits by ratio, the name of the only split, or source: those of the source.",
            Panel.SPLITS,
        ),
    ] = None,
    split_by: Annotated[
        str | None,
        text_option("--split-by", "KEY", "Keep rows with the same value in the same split.", Panel.SPLITS),
    ] = None,
    stratify: shared.StratifyOption = None,
    key: Annotated[
        str | None, text_option("--key", "KEY", "Column that identifies a row, for splitting.", Panel.SPLITS)
    ] = None,
    index: Annotated[
        str | None,
        text_option("--index", "A,B", "Columns to add to the index; labels are always in it.", Panel.OUTPUT),
    ] = None,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: Annotated[
        str | None,
        text_option("--compression", "NAME", "Compression of the shards: none, gzip or zlib.", Panel.OUTPUT),
    ] = None,
    shuffle: Annotated[
        bool, flag_option("--shuffle", "Shuffle rows across the whole dataset.", Panel.SPLITS)
    ] = False,
    seed: Annotated[int, integer_option("--seed", "Seed for shuffling and splitting.", Panel.SPLITS)] = 0,
    verify: shared.VerifyOption = "full",
    on_bad_row: Annotated[
        str,
        text_option(
            "--on-bad-row", "stop|reject", "Stop at the first bad row, or list it and continue.", Panel.CHECKS
        ),
    ] = "stop",
    max_rejects: Annotated[
        float,
        parsed_option(
            "--max-rejects",
            "X",
            "Stop when more bad rows than this were rejected: a fraction below 1, or a number of rows.",
            options.make_ratio_parser("--max-rejects", do="--max-rejects 0.01"),
            Panel.CHECKS,
        ),
    ] = 0.01,
    limit: shared.LimitRowsOption = None,
    workers: shared.WorkersOption = None,
    engine: Annotated[
        str, text_option("--engine", "local|ray", "Where to run; ray is not available yet.", Panel.RUN)
    ] = "local",
    format_: shared.FormatOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Write a dataset from raw data. Run the same command again to resume."""
    from rekord.cli.downloads import show_downloads
    from rekord.storage.remote_files import listed_once
    from rekord.verbs.options import WriteOptions
    from rekord.verbs.write import MaskOptions, prepare_conversion, run_conversion

    began = time.perf_counter()
    transforms = parse_window(windows)
    transforms += options.parse_image_transforms(image_transforms)
    transforms += options.parse_column_transforms(column_transforms)
    requested = WriteOptions(
        schema=options.read_schema(schema),
        columns=parse_columns(columns),
        label=label,
        drop=options.parse_names(drop),
        keep=options.parse_optional_names(keep),
        background=background,
        layout=layout,
        map=options.load_function(map_),
        transforms=transforms,
        split=options.parse_splits(split),
        split_by=split_by,
        stratify=stratify,
        key=key,
        index=options.parse_names(index),
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        shuffle=shuffle,
        seed=seed,
        verify=verify,  # type: ignore[arg-type]
        on_bad_row=on_bad_row,  # type: ignore[arg-type]
        max_rejects=max_rejects,
        limit=limit,
        workers=workers,
        engine=engine,  # type: ignore[arg-type]
        fresh=fresh,
        format=format_,  # type: ignore[arg-type]
    )
    known_classes = options.parse_classes(classes)
    ignored = options.parse_ignore(ignore)
    with listed_once(), show_downloads():
        place, rows, class_names, detected, overrides = _resolve_source(
            source,
            out,
            layout=layout,
            images=images,
            masks=masks,
            classes=known_classes,
            ignore=ignored,
            label_map=label_map,
            optional_masks=optional_masks,
            read_as={**text_files.to_dict(), **videos.to_dict()},
        )
        mask_options = MaskOptions(
            classes=known_classes if isinstance(known_classes, int) else None,
            ignore="as the source" if ignore is None else ignored,
            colours=options.read_colours(colours, ignored),
        )
        with report_resumable(_DATA_ERROR_CODES, as_json=as_json):
            conversion = prepare_conversion(
                rows,
                place,
                requested,
                masks=mask_options,
                own_splits=True,
                verbose=output.shows_progress(),
                class_names=class_names,
                detected=detected,
                overrides=overrides,
            )
            _reject_mask_options(conversion, {"--ignore": ignore, "--colours": colours})
            output.print_status(raw_data.format_source_heading(conversion))
            raw_data.print_guesses(conversion.guesses)
            for note in conversion.notes:
                output.print_status(f"note: {escape_controls(note)}")
            if dry_run:
                return _report_forecast(conversion, as_json=as_json)
            outcome = run_conversion(conversion, progress=output.shows_progress())
        raw_data.print_unused(conversion)
        also = {
            "workers": outcome.processes,
            "workers_remark": outcome.processes_remark,
            **raw_data.describe_source(conversion),
        }
        return report_conversion(place, outcome, time.perf_counter() - began, as_json=as_json, also=also)


def _resolve_source(
    source: str | None,
    out: str | None,
    *,
    layout: str | None,
    images: str | None,
    masks: str | None,
    classes: int | tuple[str, ...] | None,
    ignore: int | None,
    label_map: str | None,
    optional_masks: bool,
    read_as: Mapping[str, Any],
) -> tuple[str, Any, tuple[str, ...] | None, DetectedSource | None, SourceOverrides | None]:
    """The folder to write, the source, the classes of a label map that it does not take, its kind, its options."""
    from rekord.sources.base import DetectedSource
    from rekord.sources.detect import SourceOverrides, build_source, identify_source, takes_label_map
    from rekord.verbs.write import LAYOUTS

    if source is None:
        if images is None or masks is None:
            raise error("U601", "`rekord write` needs SOURCE and OUT", do="rekord write --help")
        given = escape_controls(shlex.join(["--images", images, "--masks", masks]))
        raise error("U601", "`rekord write` needs OUT", do=f"rekord write {given} OUT")
    if layout is not None and layout not in LAYOUTS:
        return out or source, (), None, None, None
    if masks is not None:
        if images is None or out is not None:
            what = "`--masks` needs `--images`" if images is None else "SOURCE excludes `--images` and `--masks`"
            folders = ["--images", images or "DIR", "--masks", masks, out or source]
            raise error("U601", what, do=f"rekord write {escape_controls(shlex.join(folders))}")
        out, found = source, DetectedSource("segmentation", images, masks)
        images = None
    elif out is None:
        if images is not None:
            do = f"rekord write --images {shlex.quote(images)} --masks DIR {shlex.quote(source)}"
            raise error("U601", "`--images` needs `--masks`", do=escape_controls(do))
        raise error("U601", "`rekord write` needs OUT", do=f"rekord write {escape_controls(shlex.quote(source))} OUT")
    else:
        found = identify_source(source, layout=layout, annotation_format=read_as.get("annotation_format"))
    class_names = None
    if label_map is not None and not takes_label_map(found):
        from rekord.schema.interop.label_map import read_class_names

        class_names, label_map = read_class_names(label_map), None
    overrides = SourceOverrides(
        classes=classes,
        ignore=ignore,
        label_map=label_map,
        images=images,
        optional_masks=True if optional_masks else None,
        **read_as,
    )
    made = build_source(found, overrides)
    # Record files are described by files next to them, which `prepare_conversion` looks for.
    return out, found.path if found.kind == "records" else made, class_names, found, overrides


def _reject_mask_options(conversion: Conversion, given: dict[str, str | None]) -> None:
    """Refuse options for masks if the source has none."""
    for option, value in given.items():
        if value is not None and conversion.job.layout.name != "deeplab":
            raise error(
                "U605",
                f"`{option}` has no effect without masks",
                expected="a source of images and masks",
                found=conversion.job.source.kind,
                do=f"leave {option} out, or pass the masks: --images DIR --masks DIR",
            )


def _report_forecast(conversion: Conversion, *, as_json: bool) -> int:
    from itertools import islice

    from rekord.verbs.forecast import check_free_space, forecast, is_sampleable
    from rekord.verbs.infer import iter_stored_rows

    expected = forecast(conversion)
    check_free_space(conversion, expected)
    can_read = is_sampleable(conversion.job)
    rows = list(islice(iter_stored_rows(conversion), raw_data.DRY_RUN_ROWS)) if can_read else []
    schema = conversion.job.schema
    if as_json:
        also = {
            "rows": [raw_data.stored_row_to_json(row, schema, whole=False) for row in rows],
            **raw_data.describe_source(conversion),
        }
        return report_forecast(conversion.out, expected, as_json=True, also=also)
    raw_data.print_rows(rows, getattr(conversion.job.source, "root", ""), schema)
    if rows:
        output.print_line()
    return report_forecast(conversion.out, expected, as_json=False)

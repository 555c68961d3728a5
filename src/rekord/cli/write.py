"""`rekord write`: raw data to a dataset, in one command."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import raw_data
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_conversion, report_forecast, report_resumable
from rekord.cli.options import (
    Panel,
    argument,
    flag_option,
    integer_option,
    option_group,
    parsed_option,
    text_option,
)
from rekord.cli.window_options import WindowOptions, parse_window
from rekord.cli.write_options import parse_columns
from rekord.errors import error

if TYPE_CHECKING:
    from rekord.conversion.driver import Conversion
    from rekord.sources.base import DetectedSource
    from rekord.sources.detect import SourceOverrides

_DATA_ERROR_CODES = ("X510", "X514")


@option_group(Panel.SOURCE)
class MaskedSourceOptions(raw_data.SourceOptions):
    """How `write` reads raw data."""

    optional_masks: bool = flag_option("--optional-masks", "Allow images without masks.")
    colours: str | None = text_option(
        "--colours",
        "FILE|LEVELS",
        'Class ids by mask colour: levels 0=0,255=1, JSON {"128,64,0": 3}, or a table of colours.',
    )


@option_group()
class DatasetOptions(shared.CopyOptions):
    """How a dataset is written."""

    compression: str | None = text_option(
        "--compression", "NAME", "Compression of the shards: none, gzip or zlib.", Panel.OUTPUT
    )


@shared.with_options
def write(
    source: str | None = argument(
        "SOURCE", "Raw data: a folder, file or glob pattern. Left out with --images and --masks.", default=None
    ),
    out: str | None = argument("OUT", "Folder to create.", default=None),
    *,
    layout: str | None = text_option(
        "--layout",
        "NAME",
        "Keys of the records: auto (default), deeplab, detection, classification, images, table or text.",
        Panel.COLUMNS,
    ),
    raw: MaskedSourceOptions,
    schema: str | None = text_option("--schema", "FILE", "Schema to write: JSON or .pbtxt.", Panel.COLUMNS),
    columns: list[str] | None = text_option(
        "--column", "NAME=TYPE", "Type of a column, such as zip=text; others are inferred.", Panel.COLUMNS
    ),
    label: str | None = text_option(
        "--label", "COLUMN", "Column whose values are classes, learned from the data.", Panel.COLUMNS
    ),
    background: bool = flag_option("--background", "Reserve class id 0 for the background.", Panel.COLUMNS),
    drop: str | None = text_option("--drop", "A,B", "Leave these columns out.", Panel.COLUMNS),
    keep: str | None = text_option("--keep", "A,B", "Leave all other columns out.", Panel.COLUMNS),
    map_: str | None = shared.MAP_OPTION,
    windows: WindowOptions,
    image_transforms: options.ImageTransformOptions,
    column_transforms: options.ColumnTransformOptions,
    split: str | None = text_option(
        "--split",
        "A=0.9,B=0.1",
        "Splits by ratio, the name of the only split, or source: those of the source.",
        Panel.SPLITS,
    ),
    split_by: str | None = text_option(
        "--split-by", "KEY", "Keep rows with the same value in the same split.", Panel.SPLITS
    ),
    stratify: str | None = shared.STRATIFY_OPTION,
    key: str | None = text_option("--key", "KEY", "Column that identifies a row, for splitting.", Panel.SPLITS),
    index: str | None = text_option(
        "--index", "A,B", "Columns to add to the index; labels are always in it.", Panel.OUTPUT
    ),
    shuffle: bool = flag_option("--shuffle", "Shuffle rows across the whole dataset.", Panel.SPLITS),
    seed: int = integer_option("--seed", "Seed for shuffling and splitting.", Panel.SPLITS, default=0),
    verify: str = shared.VERIFY_OPTION,
    on_bad_row: str = text_option(
        "--on-bad-row",
        "stop|reject",
        "Stop at the first bad row, or list it and continue.",
        Panel.CHECKS,
        default="stop",
    ),
    max_rejects: float = parsed_option(
        "--max-rejects",
        "X",
        "Stop when more bad rows than this were rejected: a fraction below 1, or a number of rows.",
        options.make_ratio_parser("--max-rejects", do="--max-rejects 0.01"),
        Panel.CHECKS,
        default=0.01,
    ),
    limit: int | None = shared.LIMIT_ROWS_OPTION,
    engine: str = text_option(
        "--engine", "local|ray", "Where to run; ray is not available yet.", Panel.RUN, default="local"
    ),
    writing: DatasetOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Write a dataset from raw data. Run the same command again to resume."""
    from rekord.cli.downloads import show_downloads
    from rekord.storage.remote_files import listed_once
    from rekord.verbs.options import WriteOptions
    from rekord.verbs.write import prepare_conversion, run_conversion

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
        shuffle=shuffle,
        seed=seed,
        verify=verify,  # type: ignore[arg-type]
        on_bad_row=on_bad_row,  # type: ignore[arg-type]
        max_rejects=max_rejects,
        limit=limit,
        engine=engine,  # type: ignore[arg-type]
        **writing.to_dict(),
    )
    with listed_once(), show_downloads():
        place, rows, class_names, detected, overrides = _resolve_source(source, out, layout, raw)
        mask_options = raw.to_mask_options(raw.colours)
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
            _reject_mask_options(conversion, {"--ignore": raw.ignore, "--colours": raw.colours})
            output.print_status(raw_data.format_source_heading(conversion))
            raw_data.print_guesses(conversion.guesses)
            for note in conversion.notes:
                output.print_status(f"note: {escape_controls(note)}")
            if writing.dry_run:
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
    source: str | None, out: str | None, layout: str | None, raw: MaskedSourceOptions
) -> tuple[str, Any, tuple[str, ...] | None, DetectedSource | None, SourceOverrides | None]:
    """The folder to write, the source, the classes of a label map that it does not take, its kind, its options."""
    from rekord.sources.detect import build_source, identify_source, takes_label_map
    from rekord.verbs.write import LAYOUTS

    images, masks = raw.images, raw.masks
    if source is None:
        if images is None or masks is None:
            raise error("U601", "`rekord write` needs SOURCE and OUT", do="rekord write --help")
        given = escape_controls(shlex.join(["--images", images, "--masks", masks]))
        raise error("U601", "`rekord write` needs OUT", do=f"rekord write {given} OUT")
    if layout is not None and layout not in LAYOUTS:
        return out or source, (), None, None, None
    overrides = raw.to_overrides()
    if masks is not None:
        found = raw.find_masks("write", "SOURCE", excluded=out is not None, layout=layout, out=out or source)
        out = source
    elif out is None:
        if images is not None:
            do = f"rekord write --images {shlex.quote(images)} --masks DIR {shlex.quote(source)}"
            raise error("U601", "`--images` needs `--masks`", do=escape_controls(do))
        raise error("U601", "`rekord write` needs OUT", do=f"rekord write {escape_controls(shlex.quote(source))} OUT")
    else:
        found = identify_source(source, layout=layout, annotation_format=raw.annotation_format)
    class_names = None
    if raw.label_map is not None and not takes_label_map(found):
        from rekord.schema.interop.label_map import read_class_names

        class_names, overrides = read_class_names(raw.label_map), replace(overrides, label_map=None)
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

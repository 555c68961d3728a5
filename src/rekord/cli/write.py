"""`rekord write`: raw data to a dataset, in one command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_conversion, report_forecast, report_resumable
from rekord.cli.options import argument, flag_option, integer_option, text_option
from rekord.errors import error

if TYPE_CHECKING:
    from rekord.conversion.driver import Conversion

_DATA_ERROR_CODES = ("X510", "X514")


def write(
    source: Annotated[str, argument("SOURCE", "Raw data: a folder, a file or a pattern.")],
    out: Annotated[str | None, argument("OUT", "The folder to be made. The only argument beside --masks.")] = None,
    layout: Annotated[
        str | None,
        text_option("--layout", "NAME", "auto, deeplab, detection, classification, table or text."),
    ] = None,
    images: Annotated[str | None, text_option("--images", "DIR", "The folder of the images.")] = None,
    masks: Annotated[str | None, text_option("--masks", "DIR", "The folder of their masks.")] = None,
    classes: Annotated[
        str | None, text_option("--classes", "N|FILE", "How many, or a file of names, one a line.")
    ] = None,
    ignore: Annotated[str | None, text_option("--ignore", "N", "The mask's id for no class, or none.")] = None,
    colours: Annotated[str | None, text_option("--colours", "FILE", 'JSON for RGB masks: {"128,64,0": 3}.')] = None,
    optional_masks: Annotated[bool, flag_option("--optional-masks", "Images may be without a mask.")] = False,
    label_map: Annotated[
        str | None, text_option("--label-map", "FILE", "Ids of detection's classes by name.")
    ] = None,
    schema: Annotated[str | None, text_option("--schema", "FILE", "Columns as declared: JSON or .pbtxt.")] = None,
    map_: shared.MapOption = None,
    resize: options.ResizeOption = None,
    resize_filter: options.ResizeFilterOption = None,
    resize_fit: options.ResizeFitOption = None,
    crop: options.CropOption = None,
    encode: options.EncodeOption = None,
    decode: options.DecodeOption = False,
    normalize: options.NormalizeOption = False,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    cast: options.CastOption = None,
    standardize: options.StandardizeOption = None,
    bucketize: options.BucketizeOption = None,
    vocabulary: options.VocabularyOption = None,
    hashes: options.HashOption = None,
    one_hot: options.OneHotOption = None,
    tfidf: options.TfidfOption = None,
    tokenize: options.TokenizeOption = None,
    vocab_size: options.VocabSizeOption = None,
    max_tokens: options.MaxTokensOption = None,
    split: Annotated[
        str | None, text_option("--split", "SPLITS", "train=0.9,val=0.1, or one name, or source (its own).")
    ] = None,
    split_by: Annotated[str | None, text_option("--split-by", "KEY", "Rows of one value share a split.")] = None,
    stratify: shared.StratifyOption = None,
    key: Annotated[str | None, text_option("--key", "KEY", "The column that identifies a row.")] = None,
    index: Annotated[
        str | None, text_option("--index", "A,B", "Columns to keep in the index; labels always are.")
    ] = None,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: Annotated[str | None, text_option("--compression", "NAME", "none, gzip or zlib.")] = None,
    shuffle: Annotated[bool, flag_option("--shuffle", "Across the whole dataset.")] = False,
    seed: Annotated[int, integer_option("--seed", "Of order and splits.")] = 0,
    verify: shared.VerifyOption = "full",
    on_bad_row: Annotated[str, text_option("--on-bad-row", "stop|reject", "Stop, or list it and go on.")] = "stop",
    max_rejects: Annotated[
        float,
        typer.Option(
            "--max-rejects",
            metavar="X",
            help="Bad rows that are too many: a share below 1, or a number.",
            parser=options.make_ratio_parser("--max-rejects", do="--max-rejects 0.01"),
        ),
    ] = 0.01,
    limit: Annotated[int | None, integer_option("--limit", "The first N rows only.")] = None,
    workers: shared.WorkersOption = None,
    engine: Annotated[str, text_option("--engine", "local|ray", "Where it runs.")] = "local",
    format_: shared.FormatOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Write a dataset from raw data. The same command goes on where an earlier run of it ended."""
    from rekord.verbs.options import WriteOptions
    from rekord.verbs.write import MaskOptions, prepare_conversion, run_conversion

    began = time.perf_counter()
    transforms = options.parse_image_transforms(
        resize=resize,
        resize_filter=resize_filter,
        resize_fit=resize_fit,
        crop=crop,
        encode=encode,
        decode=decode,
        normalize=normalize,
        mean=mean,
        std=std,
    )
    transforms += options.parse_column_transforms(
        cast=cast,
        standardize=standardize,
        bucketize=bucketize,
        vocabulary=vocabulary,
        hashes=hashes,
        one_hot=one_hot,
        tfidf=tfidf,
        tokenize=tokenize,
        vocab_size=vocab_size,
        max_tokens=max_tokens,
    )
    asked = WriteOptions(
        schema=options.read_schema(schema),
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
    many = options.parse_classes(classes)
    ignored = options.parse_ignore(ignore)
    place, rows = _resolve_source(
        source,
        out,
        layout=layout,
        images=images,
        masks=masks,
        classes=many,
        ignore=ignored,
        label_map=label_map,
        optional_masks=optional_masks,
    )
    said = MaskOptions(
        classes=many if isinstance(many, int) else None,
        ignore="as the source" if ignore is None else ignored,
        colours=options.read_colours(colours),
    )
    with report_resumable(_DATA_ERROR_CODES, as_json=as_json):
        conversion = prepare_conversion(rows, place, asked, masks=said, own_splits=True, verbose=True)
        _reject_mask_options(conversion, {"--ignore": ignore, "--colours": colours})
        output.print_status(_format_heading(conversion))
        if dry_run:
            return _report_forecast(conversion, as_json=as_json)
        outcome = run_conversion(conversion, progress=True)
    return report_conversion(place, outcome, time.perf_counter() - began, as_json=as_json)


def _resolve_source(
    source: str,
    out: str | None,
    *,
    layout: str | None,
    images: str | None,
    masks: str | None,
    classes: int | tuple[str, ...] | None,
    ignore: int | None,
    label_map: str | None,
    optional_masks: bool,
) -> tuple[str, Any]:
    """Where the dataset goes, and the source that it is made from."""
    from rekord.sources.detect import DetectedSource, SourceOverrides, build_source, identify_source
    from rekord.verbs.write import LAYOUTS

    if layout is not None and layout not in LAYOUTS:
        return out or source, ()
    if masks is not None:
        if images is None or out is not None:
            what = (
                "`--masks` needs `--images`"
                if images is None
                else "there is a SOURCE beside `--images` and `--masks`"
            )
            raise error("U601", what, do="rekord write --images DIR --masks DIR OUT")
        out, found = source, DetectedSource("segmentation", images, masks)
        images = None
    elif out is None:
        needed = "`--images` needs `--masks`" if images is not None else "`rekord write` needs OUT"
        raise error("U601", needed, do="rekord write --help")
    else:
        found = identify_source(source, layout=layout)
    said = SourceOverrides(
        classes=classes,
        ignore=ignore,
        label_map=label_map,
        images=images,
        optional_masks=True if optional_masks else None,
    )
    made = build_source(found, said)
    # What describes record files is looked for where they lie.
    return out, found.path if found.kind == "records" else made


def _reject_mask_options(conversion: Conversion, given: dict[str, str | None]) -> None:
    """What is said of masks must find some."""
    for option, value in given.items():
        if value is not None and conversion.job.layout.name != "deeplab":
            raise error(
                "U605",
                f"`{option}` means nothing without masks",
                expected="a source of images and masks",
                found=conversion.job.source.kind,
                do=f"leave {option} out, or name the masks: --images DIR --masks DIR",
            )


def _format_heading(conversion: Conversion) -> str:
    """What was recognised: the source, the layout, and the splits where they are the source's own."""
    job = conversion.job
    place = getattr(job.source, "root", "")
    name = {"plain": "text" if job.source.kind == "text" else "table"}.get(job.layout.name, job.layout.name)
    told = [
        f"source: {job.source.kind}" + (f" in {escape_controls(place)}" if place else ""),
        f"layout: {name}",
    ]
    if job.splits.from_source:
        told.append(f"splits: {', '.join(job.splits.names)}, as the source has them (--split says otherwise)")
    return " · ".join(told)


def _report_forecast(conversion: Conversion, *, as_json: bool) -> int:
    from rekord.verbs.forecast import check_free_space, forecast

    expected = forecast(conversion)
    check_free_space(conversion, expected)
    return report_forecast(conversion.out, expected, as_json=as_json)

"""Raw data on the command line: the options that say how to read it, and rows as they would be stored."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekord.cli import console
from rekord.cli import write_options as options
from rekord.cli.console import StyledText, escape_controls, shorten_paths
from rekord.cli.flag_hints import translate_document, translate_error, translate_hint
from rekord.cli.options import Panel, flag_option, integer_option, option_group, text_option
from rekord.errors import error
from rekord.report.formatting import format_byte_size

if TYPE_CHECKING:
    from rekord.cli.payload_view import PayloadMessage
    from rekord.cli.terminal_images import ImagePrinter
    from rekord.conversion.driver import Conversion
    from rekord.schema import Schema
    from rekord.sources.base import DetectedSource, SourceGuess
    from rekord.sources.detect import SourceOverrides
    from rekord.verbs.infer import StoredRow
    from rekord.verbs.write import MaskOptions

DRY_RUN_ROWS = 3
_MAX_JSON_BYTES = 1024
_MAX_CLASS_IDS = 12
_MAX_SHOWN_UNUSED = 6


@option_group(Panel.SOURCE)
class SourceOptions:
    """Where raw data is and how it is read, for `write`, `infer` and `show`; nothing is given for record files."""

    images: str | None = text_option("--images", "DIR", "Folder of images, for --masks or a list of files.")
    masks: str | None = text_option("--masks", "DIR", "Folder of masks that belong to --images.")
    classes: str | None = text_option(
        "--classes", "N|FILE", "Number of classes, or a file with one class name per line."
    )
    ignore: str | None = text_option("--ignore", "N", "Mask id of pixels without a class, or none if all have one.")
    label_map: str | None = text_option("--label-map", "FILE", "Class ids by name: a .pbtxt label map, JSON or text.")
    images_as: str | None = text_option(
        "--images-as", "png|jpeg", "Convert images that are neither PNG nor JPEG: TIFF, HEIC, …"
    )
    georeference: bool = flag_option("--georeference", "Keep the coordinates of GeoTIFF files.")
    pages: bool = flag_option("--pages", "One row per page of a TIFF, or per frame of a DICOM file.")
    rescale: bool = flag_option("--rescale", "Apply the slope and intercept of DICOM files.")
    metadata: str | None = text_option(
        "--metadata", "A,B", "Technical fields of DICOM files to keep, such as Modality."
    )
    affine: bool = flag_option("--affine", "Keep the matrix from voxels to millimetres of NIfTI files.")
    encoding: str | None = text_option("--encoding", "NAME", "Encoding of text files: latin-1, cp1252, utf-16, …")
    delimiter: str | None = text_option(
        "--delimiter", "CHAR", "Character between the fields of a CSV file; tab for a tab."
    )
    header: bool | None = flag_option(
        "--header/--no-header",
        "Whether the first line of a CSV file or a sheet has the column names; detected for CSV.",
        default=None,
    )
    na: str | None = text_option("--na", "A,B", "Fields of a CSV file that are missing values, besides empty ones.")
    decimal: str | None = text_option("--decimal", "CHAR", "Decimal mark of a CSV file: a point or a comma.")
    numbers: str | None = text_option(
        "--numbers",
        "A,B",
        "Columns of a CSV file to read as numbers without currency signs, percent signs and separators.",
    )
    strip: bool = flag_option("--strip", "Remove spaces around the texts of a CSV file.")
    sheet: str | None = text_option("--sheet", "NAME", "Sheet of a spreadsheet.")
    table: str | None = text_option("--table", "NAME", "Table of a database file.")
    query: str | None = text_option("--query", "SQL", "SELECT statement for a SQLite or DuckDB file.")
    group: str | None = text_option("--group", "PATH", "Group of an HDF5 file whose datasets are columns.")
    text: bool | None = flag_option(
        "--text/--no-text",
        "Whether a list of images has texts instead of classes; detected by default.",
        default=None,
    )
    box_format: str | None = text_option(
        "--box-format",
        "xyxy|xywh|center_xywh",
        "Meaning of the four numbers of a box in a CSV file; detected by default.",
    )

    annotation_format: str | None = text_option(
        "--annotation-format",
        "NAME",
        "Format of a folder of annotations that Datumaro reads: cvat, mot_seq, … (needs rekord[annotations]).",
    )
    every: int | None = integer_option("--every", "Store every N-th frame of videos instead of the files.")
    fps: str | None = text_option("--fps", "RATE", "Store the frames of videos at this rate per second.")
    clips: int | None = integer_option("--clip-frames", "Store clips of N frames, one per record.")
    remainder: str | None = text_option("--remainder", "keep|drop", "Whether to store a last clip that is shorter.")
    frames: str | None = text_option(
        "--frames", "jpeg|png|tensor", "How frames of videos are stored; jpeg by default."
    )
    frame_size: str | None = text_option("--frame-size", "HxW", "Resize frames of videos to this size.")

    def to_overrides(self) -> SourceOverrides:
        """The options as sources take them; a flag that is not given overrides nothing."""
        from rekord.sources.array_files import check_images_as
        from rekord.sources.detect import SourceOverrides

        known = SourceOverrides.__dataclass_fields__
        given = {name: None if value is False else value for name, value in vars(self).items() if name in known}
        # An empty field is missing unless Python says otherwise: a list of words would not mention it.
        na = None if self.na is None else list(dict.fromkeys(["", *[word.strip() for word in self.na.split(",")]]))
        return SourceOverrides(
            **given
            | {
                "images": self.images if self.masks is None else None,
                "classes": options.parse_classes(self.classes),
                "ignore": options.parse_ignore(self.ignore),
                "delimiter": "\t" if self.delimiter in ("tab", "\\t") else self.delimiter,
                "header": self.header,
                "text": self.text,
                "na": na,
                "numbers": options.parse_optional_names(self.numbers),
                "images_as": check_images_as(self.images_as) if self.images_as is not None else None,
                "metadata": options.parse_optional_names(self.metadata),
                "frame_size": self._parse_frame_size(),
                "fps": self._parse_fps(),
            }
        )

    def to_mask_options(self, colours: str | None = None) -> MaskOptions:
        """What overrides the masks of a source."""
        from rekord.verbs.write import MaskOptions

        classes, ignored = options.parse_classes(self.classes), options.parse_ignore(self.ignore)
        return MaskOptions(
            classes=classes if isinstance(classes, int) else None,
            ignore="as the source" if self.ignore is None else ignored,
            colours=options.read_colours(colours, ignored),
        )

    def find_masks(
        self, verb: str, argument: str, *, excluded: bool, layout: str | None, out: str | None = None
    ) -> DetectedSource:
        """The source that --images and --masks name, in place of an argument of the verb."""
        from rekord.sources.detect import identify_masked

        assert self.masks is not None
        if self.images is None or excluded:
            what = "`--masks` needs `--images`"
            if self.images is not None:
                what = f"{argument} excludes `--images` and `--masks`"
            words = ["--images", self.images or "DIR", "--masks", self.masks, *([] if out is None else [out])]
            raise error("U601", what, do=f"rekord {verb} {escape_controls(shlex.join(words))}")
        return identify_masked(self.images, self.masks, layout=layout)

    def _parse_frame_size(self) -> tuple[int, int] | None:
        if self.frame_size is None:
            return None
        with options.attribute_errors_to_option("--frame-size", self.frame_size, "--frame-size 240x320"):
            return options.parse_size(self.frame_size)

    def _parse_fps(self) -> float | None:
        try:
            return None if self.fps is None else float(self.fps)
        except ValueError:
            raise console.invalid_option("--fps", str(self.fps), "frames per second", "--fps 2") from None


@option_group(Panel.SOURCE)
class PreviewOptions(SourceOptions):
    """How `infer` and `show` read raw data."""

    layout: str | None = text_option("--layout", "NAME", "Layout of the records, for raw data; as in write.")


def prepare_raw_data(verb: str, path: str | None, raw: PreviewOptions, limit: int | None = None) -> Conversion | None:
    """The conversion that `rekord write` would run; None for record files."""
    from rekord.sources.detect import build_source
    from rekord.verbs.infer import identify_raw_data, prepare_preview
    from rekord.verbs.options import WriteOptions
    from rekord.verbs.write import LAYOUTS

    if raw.layout is not None:
        from rekord.arguments import one_of

        one_of("layout", raw.layout, LAYOUTS, do='layout="auto"')
    overrides = raw.to_overrides()
    found: DetectedSource | None
    if raw.masks is not None:
        found = raw.find_masks(verb, "PATH", excluded=path is not None, layout=raw.layout)
    elif path is None:
        raise error("U601", f"`rekord {verb}` needs PATH", do=f"rekord {verb} --help")
    else:
        found = identify_raw_data(path, layout=raw.layout, annotation_format=raw.annotation_format)
    if found is None:
        if raw != PreviewOptions():
            raise error(
                "U605",
                "options of raw data do not apply to record files",
                expected="raw data: images, a table or texts",
                found=f"record files in {escape_controls(str(path))}",
                do="leave the options that say how to read raw data out",
            )
        return None
    requested = WriteOptions(layout=raw.layout, limit=limit)
    return prepare_preview(build_source(found, overrides), requested, masks=raw.to_mask_options(), detected=found)


def layout_name(conversion: Conversion) -> str:
    """The layout of a conversion, as `--layout` takes it."""
    job = conversion.job
    return {"plain": "text" if job.source.kind == "text" else "table"}.get(job.layout.name, job.layout.name)


def describe_source(conversion: Conversion) -> dict[str, Any]:
    """What was read and how, for a JSON document: the source, the layout, guesses, and what was not used."""
    return {
        "source": conversion.job.source.kind,
        "layout": layout_name(conversion),
        "guesses": guesses_to_json(conversion.guesses),
        "notes": list(conversion.notes),
        "unused": [one._asdict() for one in conversion.unused],
    }


def print_unused(conversion: Conversion) -> None:
    """What was not used of raw data, on stderr."""
    unused = conversion.unused
    for one in unused[:_MAX_SHOWN_UNUSED]:
        console.print_status(escape_controls(f"not used: {one.name} ({one.reason})"))
    if len(unused) > _MAX_SHOWN_UNUSED:
        console.print_status(f"not used: … and {len(unused) - _MAX_SHOWN_UNUSED} more; --json lists them")


def format_source_heading(conversion: Conversion) -> str:
    """What was detected: the source, the layout, and the splits if they come from the source."""
    job = conversion.job
    place = getattr(job.source, "root", "")
    parts = [
        f"source: {job.source.kind}" + (f" in {escape_controls(place)}" if place else ""),
        f"layout: {layout_name(conversion)}",
    ]
    if job.splits.from_source:
        origin = "by series" if conversion.is_split_by_series else "from the source (--split overrides them)"
        parts.append(f"splits: {', '.join(job.splits.names)}, {origin}")
    return " · ".join(parts)


# Guesses.


def print_guesses(guesses: Sequence[SourceGuess]) -> None:
    """What was guessed about raw data, with the flag that changes it, on stderr."""
    from rekord.verbs.progress import format_guesses

    for what, do in format_guesses(guesses):
        shown = "" if do is None else f"; {translate_hint(do)}"
        console.print_status(escape_controls(f"{what}{shown}"))


def guesses_to_json(guesses: Sequence[SourceGuess]) -> list[dict[str, Any]]:
    """What was guessed, for a JSON document."""
    documents: list[dict[str, Any]] = translate_document([guess.to_dict() for guess in guesses])
    return documents


# Rows.


def print_rows(rows: Sequence[StoredRow], folder: str, schema: Schema, printer: ImagePrinter | None = None) -> None:
    """Rows as they would be stored, with an empty line between them, and their images."""
    from rekord.cli.payload_view import parse_message

    texts = display_texts(schema)
    for i, row in enumerate(rows):
        if i:
            console.print_line()
        console.print_lines(format_stored_row(row, folder, texts))
        for payload in row.payloads if printer is not None else ():
            print_images(printer, parse_message(payload))


def print_images(printer: ImagePrinter | None, message: PayloadMessage) -> None:
    """The images of a record, each below its key."""
    for caption, image in printer.draw(message) if printer is not None else ():
        console.print_line((caption, "dim"))
        console.print_escapes(image)


def format_stored_row(
    row: StoredRow, folder: str, texts: Mapping[str, Callable[[Any], str]]
) -> Iterator[list[StyledText]]:
    """A row of raw data as it would be stored. Its path is relative to `folder`."""
    from rekord.cli.payload_view import format_message, parse_message

    name = "" if row.path is None else shorten_paths(folder, [row.path])[row.path]
    place = ("" if row.row is None else f"  row {row.row:,}") + ("" if row.line is None else f"  line {row.line:,}")
    place = place if name else place.strip()
    if row.problem is not None:
        yield [(name, "bold"), place, ("  cannot be stored", "red")]
        for line in console.format_error_lines(translate_error(row.problem)):
            yield ["  ", *line]
    elif not row.payloads:
        yield [(name, "bold"), place, "  no record: the function returned none"]
    for payload in row.payloads:
        yield [(name, "bold"), f"{place}  {format_byte_size(len(payload))} stored"]
        yield from format_message(parse_message(payload), texts)


def stored_row_to_json(row: StoredRow, schema: Schema, *, whole: bool) -> dict[str, Any]:
    """A row as a JSON document; unless `whole`, a long byte string is described and not contained."""
    from rekord.cli.payload_view import message_to_json, parse_message

    document: dict[str, Any] = {"path": row.path, "row": row.row, "line": row.line}
    if row.problem is not None:
        return {**document, "error": translate_error(row.problem).to_dict()}
    numbers = {key: text for key, text in number_texts(schema).items() if text is not None}
    records = []
    for payload in row.payloads:
        record = {"payload_bytes": len(payload), **message_to_json(parse_message(payload), numbers)}
        if not whole:
            _describe_long_values(record, payload)
        records.append(record)
    return {**document, "records": records}


def _describe_long_values(record: dict[str, Any], payload: bytes) -> None:
    from rekord.cli.payload_view import inspect_image, parse_message

    message = parse_message(payload)
    for key, value in (message.features or {}).items():
        if not isinstance(value, list):
            continue
        shown = record["features"][key]["values"]
        for i, data in enumerate(value):
            if len(data) > _MAX_JSON_BYTES:
                image = inspect_image(data)
                shown[i] = {"bytes": len(data), **({} if image is None else image._asdict())}


def number_texts(schema: Schema) -> dict[str, Callable[[int], str]]:
    """By record key, how to print its numbers, if the schema defines it, as for times."""
    features = schema.features.items()
    return {one.record_keys(name)[0]: one.number_text for name, one in features if one.number_text is not None}


def display_texts(schema: Schema) -> dict[str, Callable[[Any], str]]:
    """By record key, how to print its values: times, class names, and the class ids of masks."""
    from rekord.schema import Mask, of_type

    texts: dict[str, Callable[[Any], str]] = dict(number_texts(schema))
    for name, feature in schema.features.items():
        if feature.class_names:
            texts[feature.record_keys(name)[0]] = _LabelText(feature.class_names)
    for name, mask in of_type(schema.features, Mask).items():
        texts[mask.record_keys(name)[0]] = _MaskText(mask)
    return texts


@dataclass(frozen=True)
class _LabelText:
    """A class id with the name of its class."""

    names: tuple[str, ...]

    def __call__(self, number: int) -> str:
        return f"{number} ({escape_controls(self.names[number])})" if 0 <= number < len(self.names) else str(number)


@dataclass(frozen=True)
class _MaskText:
    """A mask with the class ids of its pixels."""

    feature: Any

    def __call__(self, data: bytes) -> str:
        import numpy as np

        from rekord.cli.payload_view import format_bytes
        from rekord.codec.images.decode import decode_mask
        from rekord.codec.images.inspect import InvalidImage
        from rekord.codec.images.store import MaskIds

        wanted = MaskIds(self.feature.classes, self.feature.ignore)
        try:
            ids = np.unique(decode_mask(data, wanted, None)).tolist()
        except InvalidImage:
            return format_bytes(data)
        more = ", …" if len(ids) > _MAX_CLASS_IDS else ""
        return f"{format_bytes(data)}, class ids {', '.join(map(str, ids[:_MAX_CLASS_IDS]))}{more}"

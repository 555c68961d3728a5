"""`rekord show` and `infer`: the records or rows of a dataset, and their schema."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekord.arguments import conflicting_options, inapplicable
from rekord.cli import console, flag_hints, raw_data
from rekord.cli import options as shared
from rekord.cli.console import StyledText, escape_controls, make_integer_parser, shorten_paths
from rekord.cli.options import Preview, flag_option, integer_option, output_option, parsed_option, text_option
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.report.formatting import format_byte_size, format_count

if TYPE_CHECKING:
    from rekord._core import PayloadKind
    from rekord.cli.terminal_images import ImagePrinter
    from rekord.conversion.driver import Conversion
    from rekord.framing.frames import VerifiedFrames
    from rekord.schema import Feature, Schema


@shared.with_options
def show(
    path: str | None = shared.RAW_PATH_ARGUMENT,
    *,
    number: int = integer_option("-n", "Number of records to show.", do="-n 5", default=5),
    record: int | None = parsed_option(
        "--record",
        "I",
        "Show only this record or row, counted from 0 across all files.",
        make_integer_parser("--record", do="--record 0"),
    ),
    where: str | None = text_option("--where", "SQL", "Show records that a condition on columns selects."),
    preview: Preview | None = text_option(
        "--preview",
        "auto|kitty|iterm|sixel|blocks|none",
        "How to draw images; auto: as the terminal can, and not at all in a pipe or with NO_COLOR.",
    ),
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    raw: raw_data.PreviewOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Show records with their features, values and images; or the rows of raw data, as write would store them."""
    from rekord.cli.payload_view import format_message, message_to_json, parse_message
    from rekord.dataset.read import list_record_files
    from rekord.errors import add_location

    preview = preview or Preview.AUTO  # not the default: the oldest typer takes texts only
    _check_show_options(record, where, preview, as_json=as_json)
    if kind is None or path is None:
        conversion = raw_data.prepare_raw_data("show", path, raw)
        if conversion is not None:
            if where is not None:
                raise inapplicable("where", "to raw data", expected="record files", found="raw data")
            place = path or raw.images or ""
            return _show_raw_data(conversion, place, number=number, row=record, preview=preview, as_json=as_json)
    assert path is not None  # else there is raw data, or an error
    if where is None:
        paths = list_record_files(path)
        chosen = iter_picked_records(paths, number=number, record=record)
    else:
        paths, chosen = _select_records(path, where, number, kind)
    names = shorten_paths(path, paths)
    schema = _read_schema(paths)
    texts = {} if schema is None else raw_data.number_texts(schema)
    printer = None if as_json else make_image_printer(preview, schema)
    documents: list[dict[str, Any]] = []
    found = 0
    with add_location(path=path):
        for picked in chosen:
            with add_location(path=picked.path, record=picked.record, offset=picked.offset):
                content = parse_message(picked.payload, kind=kind, file_kind=picked.file_kind)
            if as_json:
                documents.append({**picked.to_dict(), **message_to_json(content, texts)})
            else:
                if found:
                    console.print_line()
                console.print_line(*format_heading(names[picked.path], picked))
                console.print_lines(format_message(content, texts))
                raw_data.print_images(printer, content)
            found += 1
    if as_json:
        console.print_json({"records": documents})
    elif where is not None and found < number:
        console.print_status(f"{format_count(found, 'record')} found")
    elif record is None and found < number:
        console.print_status(f"end of the dataset: {format_count(found, 'record')}" if found else "no records")
    return 0


def _check_show_options(record: int | None, where: str | None, preview: Preview, *, as_json: bool) -> None:
    if where is not None and record is not None:
        raise conflicting_options("where", "record", do="leave --record out")
    if as_json and preview not in (Preview.AUTO, Preview.NONE):
        raise inapplicable(
            "preview", "with --json", expected="--preview or --json", found="both", do="leave --preview out"
        )


def make_image_printer(preview: Preview, schema: Schema | None) -> ImagePrinter:
    """Draws images as requested or as the terminal can, and masks of the schema in the colours of their classes."""
    from rekord.cli.terminal_images import ImagePrinter, stdout_preview
    from rekord.schema import Mask, of_type

    columns = {} if schema is None else of_type(schema.features, Mask)
    masks = {key: mask for name, mask in columns.items() for key in mask.record_keys(name)}
    return ImagePrinter.of_terminal(stdout_preview(preview), masks)


def _select_records(
    path: str, where: str, number: int, kind: shared.PayloadForm | None
) -> tuple[list[str], Iterator[PickedRecord]]:
    """The files of a dataset, and its first records for which a condition is true."""
    import numpy as np

    from rekord.verbs.query import find_matching_records, select_query_splits

    splits = select_query_splits(path, None, None, kind)
    numbers: dict[str, list[int]] = {}  # in each file
    left = number
    for split in splits:
        if not left:
            break
        found = np.sort(find_matching_records(split, where, most=left))
        left -= len(found)
        shards, records = split.view.shards.locate(found)
        for shard, record in zip(shards.tolist(), records.tolist(), strict=True):
            numbers.setdefault(split.paths[shard], []).append(record)
    paths = [file for split in splits for file in split.paths]
    return paths, (one for file, wanted in numbers.items() for one in iter_listed_records(file, wanted))


def _show_raw_data(
    conversion: Conversion, path: str, *, number: int, row: int | None, preview: Preview, as_json: bool
) -> int:
    """Print rows of raw data; returns 1 if one of them cannot be stored."""
    from itertools import islice

    from rekord.verbs.infer import iter_stored_rows

    schema = conversion.job.schema
    stored = iter_stored_rows(conversion, first=row or 0)
    rows = list(islice(stored, number if row is None else 1))
    if row is not None and not rows:
        raise error(
            "U606",
            f"row {row:,} does not exist",
            location=Location(path=path),
            found=None if conversion.rows is None else format_count(conversion.rows, "row"),
            do=f"--record {conversion.rows - 1}" if conversion.rows else "--record 0",
        )
    if as_json:
        documents = [raw_data.stored_row_to_json(one, schema, whole=True) for one in rows]
        console.print_json({"rows": documents, "guesses": raw_data.guesses_to_json(conversion.guesses)})
        return int(any(one.problem is not None for one in rows))
    console.print_status(raw_data.format_source_heading(conversion))
    raw_data.print_guesses(conversion.guesses)
    raw_data.print_rows(rows, path, schema, make_image_printer(preview, schema))
    if row is None and len(rows) < number:
        console.print_status(f"end of the data: {format_count(len(rows), 'row')}")
    return int(any(one.problem is not None for one in rows))


def _read_schema(paths: list[str]) -> Schema | None:
    """The schema in the manifest next to the files."""
    import os

    from rekord.dataset.manifest import read_manifest
    from rekord.schema import Schema

    try:
        return Schema.from_dict(read_manifest(os.path.dirname(paths[0]) or ".").schema)
    except RekordError:
        return None  # records can be shown without a schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedRecord:
    """One record of a file. `file_kind` is the kind of the first records of that file."""

    path: str
    record: int
    offset: int
    payload: bytes
    file_kind: PayloadKind | None

    def to_dict(self) -> dict[str, Any]:
        """The fields that JSON shows."""
        return {
            "path": self.path,
            "record": self.record,
            "offset": self.offset,
            "payload_bytes": len(self.payload),
        }


def iter_picked_records(paths: list[str], *, number: int = 1, record: int | None = None) -> Iterator[PickedRecord]:
    """The first `number` records, or the one numbered `record`, counted across files.

    Nothing after them is read. A record that does not exist is a UsageError.
    """
    before = 0  # records of earlier files
    first, left = (0, number) if record is None else (record, 1)
    for path in paths:
        if not left:
            return
        counted = 0
        for stretch, file_kind in _iter_stretches(path):
            begin = max(first - before - stretch.first_record, 0)
            for index in range(begin, min(begin + left, len(stretch.extents))):
                yield _pick_record(path, stretch, index, file_kind)
                left -= 1
            if not left:
                return
            counted = stretch.first_record + len(stretch.extents)
        before += counted
    if record is not None:
        raise error(
            "U606",
            f"record {record:,} does not exist",
            location=Location(path=paths[0] if len(paths) == 1 else None),
            expected=f"a record from 0 to {before - 1:,}" if before else None,
            found=f"{format_count(before, 'record')} in {format_count(len(paths), 'file')}",
            do=f"--record {before - 1}" if before else "pass a file that has records",
        )


def iter_listed_records(path: str, numbers: Sequence[int]) -> Iterator[PickedRecord]:
    """The records of a file with these numbers, in ascending order. Nothing after them is read."""
    left = deque(numbers)
    for stretch, file_kind in _iter_stretches(path) if left else ():
        while left and left[0] < stretch.first_record + len(stretch.extents):
            yield _pick_record(path, stretch, left.popleft() - stretch.first_record, file_kind)
        if not left:
            return


def _iter_stretches(path: str) -> Iterator[tuple[VerifiedFrames, PayloadKind | None]]:
    """The verified frames of a file, and the kind of its first records if the others need it."""
    from rekord._core import PayloadKind
    from rekord.dataset.infer import detect_payload_kind
    from rekord.dataset.read import open_frames
    from rekord.framing.frames import EVIDENCE_BYTES

    file_kind = None
    with open_frames(path) as reader:
        try:
            for stretch in reader.iter_verified_frames():
                # In a file of SequenceExamples, one without steps looks like an Example.
                if stretch.first_record == 0 and detect_payload_kind(stretch) == PayloadKind.SEQUENCE:
                    file_kind = PayloadKind.SEQUENCE
                yield stretch, file_kind
        except RekordError as failure:
            raise reader.recover(failure, within=EVIDENCE_BYTES)[0] from None


def _pick_record(path: str, stretch: VerifiedFrames, index: int, file_kind: PayloadKind | None) -> PickedRecord:
    from rekord._core import HEADER_BYTES

    payload_at = stretch.extents.offset(index) + HEADER_BYTES
    payload_end = payload_at + stretch.extents.length(index)
    return PickedRecord(
        path=path,
        record=stretch.first_record + index,
        offset=stretch.offset(index),
        payload=bytes(stretch.buffer[payload_at:payload_end]),
        file_kind=file_kind,
    )


def format_heading(name: str, picked: PickedRecord) -> list[Any]:
    """The line above a record."""
    size = format_byte_size(len(picked.payload))
    exact = f"  {size}" if len(picked.payload) < 1000 else f"  {size} ({len(picked.payload):,} bytes)"
    return [(name, "bold"), f"  record {picked.record:,}  byte {picked.offset:,}{exact}"]


_HINT = "rekord infer PATH --limit 10000"
_MAX_DECLARATION_WIDTH = 72
_NAMES = {"int64": "int", "float": "float"}


@shared.with_options
def infer(
    path: str | None = shared.RAW_PATH_ARGUMENT,
    *,
    output: str | None = output_option("FILE", "Save the schema as JSON, for --schema and Schema.load."),
    limit: int | None = integer_option("--limit", "Read only the first N records.", do=_HINT),
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    raw: raw_data.PreviewOptions,
    as_json: bool = flag_option("--json", "Print the schema as JSON."),
) -> int:
    """Infer a schema from records or raw data, and print the evidence for it."""
    conversion = None
    if kind is None or path is None:
        conversion = raw_data.prepare_raw_data("infer", path, raw, limit)
    if conversion is not None:
        from rekord.verbs.infer import infer_conversion

        schema = infer_conversion(conversion)
        console.print_status(raw_data.format_source_heading(conversion))
        schema = schema.with_evidence(flag_hints.translate_document(schema.evidence))
    else:
        from rekord.dataset.infer import infer as infer_quietly

        schema = infer_quietly(path, limit=limit, kind=kind)
    if output is not None:
        _save_schema(schema, output)
    if as_json:
        console.print_json(schema.to_dict())
    else:
        console.print_lines(format_declaration(schema))
    for remark in format_remarks(schema, "record" if conversion is None else "row"):
        console.print_status(remark)
    if conversion is not None:
        raw_data.print_guesses(conversion.guesses)
    shared.print_opaque_payload_note(schema)
    if output is not None:
        console.print_status(f"saved to {escape_controls(output)}")
    return 0


def format_declaration(schema: Schema) -> Iterator[list[StyledText]]:
    """The schema as Python code, with the evidence next to each column."""
    records = schema.evidence["records"]
    yield ["import rekord as rk"]
    yield []
    if not schema.is_sequence:
        yield ["schema = rk.Schema({"]
        yield from _format_columns(schema.context, schema.evidence["features"], records, 4)
        yield ["})"]
        return
    yield ["schema = rk.Schema("]
    for group, columns in (("context", schema.context), ("steps", schema.steps)):
        yield [f"    {group}={{"]
        yield from _format_columns(columns, schema.evidence[group], records, 8)
        yield ["    },"]
    yield [")"]


def format_remarks(schema: Schema, noun: str = "record") -> Iterator[str]:
    """Remarks on the schema: how much was read, and what it does not cover."""
    evidence = schema.evidence
    records = format_count(evidence["records"], noun)
    if noun == "row":
        yield f"evidence from {'all' if evidence['complete'] else 'the first'} {records}, as they would be stored"
        if evidence.get("bad_rows"):
            yield f"{format_count(evidence['bad_rows'], 'row')} among the first cannot be stored: rekord show"
    else:
        yield (f"from all {records}" if evidence["complete"] else f"from the first {records}; later ones may differ")
    for group in ("features", "context", "steps"):
        for key, seen in evidence.get(group, {}).items():
            if not key:
                yield "left out: an empty key, which no column can have"
            if "differs" in seen:
                kinds = ", ".join(f"{kind} {n:,}x" for kind, n in seen["kinds"].items())
                yield (
                    f"`{escape_controls(key)}` is stored as several kinds ({kinds}): reading fails where they differ"
                )


def _format_columns(
    columns: Mapping[str, Feature], evidence: Mapping[str, Any], records: int, indent: int
) -> Iterator[list[StyledText]]:
    lines = [f"{' ' * indent}{escape_controls(repr(name))}: rk.{feature!r}," for name, feature in columns.items()]
    width = max([len(line) for line in lines if len(line) <= _MAX_DECLARATION_WIDTH], default=0)
    for line, (name, feature) in zip(lines, columns.items(), strict=True):
        seen = evidence.get(feature.record_keys(name)[0], {"present": 0, "kind": None})
        comment = ", ".join(format_evidence(seen, records))
        yield [f"{line:<{width}}", (f"  # {comment}", "dim")]


def format_evidence(seen: Mapping[str, Any], records: int) -> Iterator[str]:
    """The evidence for one key, in short pieces."""
    yield f"present {seen['present']:,} of {records:,}"
    if seen["kind"] is None:
        yield "no values"
        return
    if "steps" in seen:
        yield _format_span(seen["steps"], "step")
    if "values" in seen:
        yield _format_span(seen["values"], "value")
    if "min" in seen:
        least, most = seen["min"], seen["max"]
        yield f"{_NAMES[seen['kind']]} {least}" + (f"..{most}" if most != least else "")
    for name, word in (("nan", "NaN"), ("infinite", "infinite")):
        if name in seen:
            yield f"{seen[name]:,} {word}"
    if "bytes" in seen:
        yield _format_span(seen["bytes"], "byte")
    if "format" in seen:
        yield seen["format"].upper()
    elif seen.get("utf8"):
        yield "UTF-8"
    if seen.get("unset"):
        yield f"{seen['unset']:,} unset"
    if "differs" in seen:
        differs = seen["differs"]
        place = f"{escape_controls(differs['path'])} " if "path" in differs else ""
        yield f"{differs['kind']} in {place}record {differs['record']:,}"


def _format_span(span: list[int], noun: str) -> str:
    least, most = span
    return format_count(most, noun) if least == most else f"{least:,}..{most:,} {noun}s"


def _save_schema(schema: Schema, path: str) -> None:
    from rekord.storage.transaction import publish

    with publish(path) as staged:
        staged.write(schema.to_json().encode())

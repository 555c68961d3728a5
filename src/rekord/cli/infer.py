"""`rekord infer`: infer a schema, and print the evidence for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from rekord.cli import console, flag_hints, raw_data
from rekord.cli import options as shared
from rekord.cli.console import StyledText, escape_controls
from rekord.cli.options import flag_option, integer_option, output_option
from rekord.report.formatting import format_count

if TYPE_CHECKING:
    from rekord.schema import Feature, Schema

_HINT = "rekord infer PATH --limit 10000"
_MAX_DECLARATION_WIDTH = 72
_NAMES = {"int64": "int", "float": "float"}


def infer(
    path: shared.RawPathArgument = None,
    output: Annotated[
        str | None,
        output_option("FILE", "Save the schema as JSON, for --schema and Schema.load."),
    ] = None,
    limit: Annotated[int | None, integer_option("--limit", "Read only the first N records.", do=_HINT)] = None,
    kind: shared.KindOption = None,
    layout: raw_data.LayoutOption = None,
    images: raw_data.ImagesOption = None,
    masks: raw_data.MasksOption = None,
    classes: raw_data.ClassesOption = None,
    ignore: raw_data.IgnoreOption = None,
    label_map: raw_data.LabelMapOption = None,
    encoding: raw_data.EncodingOption = None,
    delimiter: raw_data.DelimiterOption = None,
    header: raw_data.HeaderOption = None,
    na: raw_data.NaOption = None,
    decimal: raw_data.DecimalOption = None,
    numbers: raw_data.NumbersOption = None,
    strip: raw_data.StripOption = False,
    text: raw_data.TextOption = None,
    box_format: raw_data.BoxFormatOption = None,
    as_json: Annotated[bool, flag_option("--json", "Print the schema as JSON.")] = False,
) -> int:
    """Infer a schema from records or raw data, and print the evidence for it."""
    conversion = None
    if kind is None or path is None:
        raw = raw_data.RawOptions(
            layout=layout,
            images=images,
            masks=masks,
            classes=classes,
            ignore=ignore,
            label_map=label_map,
            text=raw_data.parse_text_options(
                encoding=encoding,
                delimiter=delimiter,
                header=header,
                na=na,
                decimal=decimal,
                numbers=numbers,
                strip=strip,
                text=text,
                box_format=box_format,
            ),
        )
        conversion = raw_data.prepare_raw_data("infer", path, raw, limit)
    if conversion is not None:
        from rekord.verbs.infer import infer_conversion

        schema = infer_conversion(conversion)
        console.print_status(raw_data.format_source_heading(conversion))
        schema = schema.with_evidence(flag_hints.translate_document(schema.evidence))
    else:
        from rekord.dataset.infer import infer as infer_quietly

        schema = infer_quietly(path, limit=limit, kind=kind.value if kind else None)
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

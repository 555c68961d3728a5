"""`rekord infer`: propose a schema, with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import Piece, clean, whole_number
from rekord.report.formatting import count

if TYPE_CHECKING:
    from rekord.schema import Feature, Schema

_HINT = "rekord infer PATH --limit 10000"
_WIDEST_DECLARATION = 72
_NAMES = {"int64": "int", "float": "float"}


def infer(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A record file, a folder or a pattern.")],
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Save the schema as JSON, for --schema and Schema.load."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            help="Read the first N records only.",
            parser=whole_number("--limit", do=_HINT),
        ),
    ] = None,
    kind: shared.Kind = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the schema's JSON.")] = False,
) -> int:
    """Propose a schema that the records fit. The evidence for it is given too."""
    from rekord.dataset.infer import infer as infer_quietly

    schema = infer_quietly(path, limit=limit, kind=kind.value if kind else None)
    if output is not None:
        _save(schema, output)
    if as_json:
        console.say_json(schema.to_dict())
    else:
        for line in declaration(schema):
            console.say(*line)
    for remark in remarks(schema):
        console.tell(remark)
    shared.note_whole_payloads(schema)
    if output is not None:
        console.tell(f"saved in {clean(output)}")
    return 0


def declaration(schema: Schema) -> Iterator[list[Piece]]:
    """The schema as a Python program declares it, with the evidence beside each column."""
    records = schema.evidence["records"]
    yield ["import rekord as rk"]
    yield []
    if not schema.is_sequence:
        yield ["schema = rk.Schema({"]
        yield from _columns(schema.context, schema.evidence["features"], records, 4)
        yield ["})"]
        return
    yield ["schema = rk.Schema("]
    for group, columns in (("context", schema.context), ("steps", schema.steps)):
        yield [f"    {group}={{"]
        yield from _columns(columns, schema.evidence[group], records, 8)
        yield ["    },"]
    yield [")"]


def remarks(schema: Schema) -> Iterator[str]:
    """What a person should know besides: how much was read, and what the schema does not hold."""
    evidence = schema.evidence
    records = count(evidence["records"], "record")
    yield (
        f"from all {records}" if evidence["complete"] else f"from the first {records}; later ones may differ"
    )
    for group in ("features", "context", "steps"):
        for key, seen in evidence.get(group, {}).items():
            if not key:
                yield "left out: a key without a name, which no column can have"
            if "differs" in seen:
                kinds = ", ".join(f"{kind} {n:,}x" for kind, n in seen["kinds"].items())
                yield f"`{clean(key)}` is stored in several kinds ({kinds}): reading stops where they differ"


def _columns(
    columns: Mapping[str, Feature], evidence: Mapping[str, Any], records: int, indent: int
) -> Iterator[list[Piece]]:
    lines = [f"{' ' * indent}{clean(repr(name))}: rk.{feature!r}," for name, feature in columns.items()]
    width = max([len(line) for line in lines if len(line) <= _WIDEST_DECLARATION], default=0)
    for line, (name, feature) in zip(lines, columns.items(), strict=True):
        said = ", ".join(said_about(evidence[feature.key or name], records))
        yield [f"{line:<{width}}", (f"  # {said}", "dim")]


def said_about(seen: Mapping[str, Any], records: int) -> Iterator[str]:
    """The evidence about one key, in a few words each."""
    yield f"present {seen['present']:,} of {records:,}"
    if seen["kind"] is None:
        yield "never a value"
        return
    if "steps" in seen:
        yield _span(seen["steps"], "step")
    if "values" in seen:
        yield _span(seen["values"], "value")
    if "min" in seen:
        least, most = seen["min"], seen["max"]
        yield f"{_NAMES[seen['kind']]} {least}" + (f"..{most}" if most != least else "")
    for name, word in (("nan", "NaN"), ("infinite", "infinite")):
        if name in seen:
            yield f"{seen[name]:,} {word}"
    if "bytes" in seen:
        yield _span(seen["bytes"], "byte")
    if "format" in seen:
        yield seen["format"].upper()
    elif seen.get("utf8"):
        yield "UTF-8"
    if seen.get("unset"):
        yield f"{seen['unset']:,} unset"
    if "differs" in seen:
        differs = seen["differs"]
        place = f"{clean(differs['path'])} " if "path" in differs else ""
        yield f"{differs['kind']} in {place}record {differs['record']:,}"


def _span(span: list[int], noun: str) -> str:
    least, most = span
    return count(most, noun) if least == most else f"{least:,}..{most:,} {noun}s"


def _save(schema: Schema, path: str) -> None:
    from rekord.storage.transaction import publish

    with publish(path) as staged:
        staged.write(schema.to_json().encode())

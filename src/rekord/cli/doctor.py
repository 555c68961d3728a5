"""`rekord doctor`: why, how bad, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekord.cli import console
from rekord.cli.console import Piece, clean, cut, detail_lines, shown_below
from rekord.report.formatting import byte_size, count

if TYPE_CHECKING:
    from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis, Parsed

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_SEVERITIES = ("error", "warning", "note")
_MOST_CHARACTERS = 300


def doctor(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Record files, folders or patterns.", show_default=False),
    ],
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="FILE", help="What the records should be.")
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            "--spec", metavar="FILE.py:NAME", help="The tf.io spec that reads them; the file is not run."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say why it is wrong, and what to do. Grouped by cause, worst first. Nothing is written."""
    from rekord.cli.console import Progress
    from rekord.health.dataset_files import look_at
    from rekord.health.doctor.run import doctor_place, loaded_schema, loaded_spec, place_of_all
    from rekord.health.finding import Report

    loaded, wanted = loaded_schema(schema), loaded_spec(spec)
    place = look_at(paths[0] if len(paths) == 1 else paths)
    files = place.paths
    asked = paths[0] if len(paths) == 1 else place_of_all(files)
    report = Report()
    with Progress(report, files=len(files)):
        found = doctor_place(place, asked=asked, schema=loaded, spec=wanted, report=report)
    if as_json:
        console.say_json(found.to_dict())
    else:
        names = shown_below(asked, files)
        for line in said(found, names, report.payload_bytes):
            console.say(*line)
    if found.unreadable:
        return 3
    return 0 if found.ok else 1


def said(found: Diagnoses, names: dict[str, str], payload_bytes: int) -> list[list[Piece]]:
    """Everything that the doctor has to say, line by line."""
    lines: list[list[Piece]] = []
    for diagnosis in found.diagnoses:
        lines += [*_diagnosis_lines(diagnosis, names), []]
    if found.features:
        lines += [*_feature_lines(found.features), []]
    if found.spec is not None and any(not feature.ok for feature in found.features):
        pasted: list[list[Piece]] = [[text] for text in found.spec.splitlines()]
        lines += [["a spec that parses these records:"], *pasted, []]
    return [*lines, *_summary(found, payload_bytes)]


def _diagnosis_lines(diagnosis: Diagnosis, names: dict[str, str]) -> list[list[Piece]]:
    head: list[Piece] = [
        (diagnosis.code, _STYLES[diagnosis.severity]),
        f"  {'' if diagnosis.severity == 'error' else diagnosis.severity + ': '}{clean(diagnosis.title)}",
    ]
    lines = [head, *detail_lines(("where", _where(diagnosis, names)))]
    for label, texts in (("evidence", diagnosis.evidence), ("ruled out", diagnosis.ruled_out)):
        for number, text in enumerate(texts):
            label_once = label if number == 0 else ""
            lines.append(["  ", (f"{label_once:<9}", "dim"), f" {clean(text)}"])
    lines += detail_lines(("likely", diagnosis.likely), ("do", diagnosis.do))
    if diagnosis.tensorflow_error is not None:
        lines.append(["  ", (f"tf says   {cut(clean(diagnosis.tensorflow_error), _MOST_CHARACTERS)}", "dim")])
    return lines


def _where(diagnosis: Diagnosis, names: dict[str, str]) -> str:
    path = names.get(diagnosis.path, clean(diagnosis.path))
    parts = [f"{path} ({count(diagnosis.files, 'file')})" if diagnosis.files > 1 else path]
    if diagnosis.feature is not None:
        parts.append(f"feature `{cut(clean(diagnosis.feature))}`")
    first = next((place for place in diagnosis.records if place.record is not None), None)
    if first is not None:
        several = diagnosis.files > 1
        inside = f" of {names.get(first.path, clean(first.path))}" if several else ""
        least = (
            f"first record {first.record:,}" if diagnosis.records_affected > 1 else f"record {first.record:,}"
        )
        byte = "" if first.offset is None else f", byte {first.offset:,}"
        parts.append(f"{least}{inside}{byte}")
    return ", ".join(parts)


def _feature_lines(features: tuple[Parsed, ...]) -> list[list[Piece]]:
    width = min(max(len(feature.feature) for feature in features), 40)
    lines: list[list[Piece]] = [["TensorFlow, feature by feature:"]]
    for feature in features:
        name = f"{cut(clean(feature.feature)):<{width}}"
        if feature.ok:
            lines.append(["  ", (name, "bold"), "  parses"])
            continue
        records = count(feature.records_affected, "record")
        lines.append(["  ", (name, "bold"), ("  fails", "bold red"), f" in {records}"])
        lines += detail_lines(("asked", feature.asked), ("works", feature.works or "none"), indent=6)
    return lines


def _summary(found: Diagnoses, payload_bytes: int) -> list[list[Piece]]:
    amount = f"{count(found.files, 'file')} · {count(found.records, 'record')} · {byte_size(payload_bytes)}"
    if not found.diagnoses:
        return [[("nothing wrong", "bold green"), f" · {amount}"]]
    each = [
        count(number, name)
        for name in _SEVERITIES
        if (number := sum(diagnosis.severity == name for diagnosis in found.diagnoses))
    ]
    head: Piece = (", ".join(each), "bold red" if not found.ok else "bold")
    return [[head, f" · {amount}"], [f"next: rekord explain {found.diagnoses[0].code}"]]

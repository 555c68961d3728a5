"""`rekord doctor`: causes, their extent, and how to fix them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import (
    SEVERITY_STYLES,
    StyledText,
    escape_controls,
    format_detail_lines,
    shorten_paths,
    truncate,
)
from rekord.cli.flag_hints import translate_document, translate_hint
from rekord.cli.options import text_option
from rekord.report.formatting import format_byte_size, format_count

if TYPE_CHECKING:
    from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis, ParsePrediction

_MAX_CHARACTERS = 300


def doctor(
    paths: shared.PathsArgument,
    schema: Annotated[
        str | None, text_option("--schema", "FILE", "Schema that the records should match: JSON.")
    ] = None,
    spec: Annotated[
        str | None,
        text_option("--spec", "FILE.py:NAME", "tf.io spec that your code parses them with; the file is not run."),
    ] = None,
    as_json: shared.JsonOption = False,
) -> int:
    """Explain what is wrong with a dataset and how to fix it. Grouped by cause, worst first. Nothing is written."""
    from rekord.cli.console import CheckProgress
    from rekord.health.dataset_files import find_dataset_files, resolve_schema
    from rekord.health.doctor.run import diagnose_files, find_common_folder, resolve_spec
    from rekord.health.finding import Report

    loaded, wanted = resolve_schema(schema), resolve_spec(spec)
    place = find_dataset_files(paths[0] if len(paths) == 1 else paths)
    files = place.paths
    asked = paths[0] if len(paths) == 1 else find_common_folder(files)
    report = Report()
    with CheckProgress(report, files=len(files)):
        found = diagnose_files(place, asked=asked, schema=loaded, spec=wanted, report=report)
    if as_json:
        console.print_json(translate_document(found.to_dict()))
    else:
        names = shorten_paths(asked, files)
        console.print_lines(format_diagnoses(found, names, report.payload_bytes))
    if found.unreadable:
        return 3
    return 0 if found.ok else 1


def format_diagnoses(found: Diagnoses, names: dict[str, str], payload_bytes: int) -> list[list[StyledText]]:
    """The diagnoses as lines, with what TensorFlow will report per feature."""
    lines: list[list[StyledText]] = []
    for diagnosis in found.diagnoses:
        lines += [*_format_diagnosis(diagnosis, names), []]
    if found.features:
        lines += [*_format_features(found.features), []]
    if found.spec is not None and any(not feature.ok for feature in found.features):
        pasted: list[list[StyledText]] = [[text] for text in found.spec.splitlines()]
        lines += [["a spec that parses these records:"], *pasted, []]
    return [*lines, *_format_summary(found, payload_bytes)]


def _format_diagnosis(diagnosis: Diagnosis, names: dict[str, str]) -> list[list[StyledText]]:
    head: list[StyledText] = [
        (diagnosis.code, SEVERITY_STYLES[diagnosis.severity]),
        f"  {'' if diagnosis.severity == 'error' else diagnosis.severity + ': '}{escape_controls(diagnosis.title)}",
    ]
    lines = [head, *format_detail_lines(("where", _format_location(diagnosis, names)))]
    for label, texts in (("evidence", diagnosis.evidence), ("ruled out", diagnosis.ruled_out)):
        for number, text in enumerate(texts):
            label_once = label if number == 0 else ""
            lines.append(["  ", (f"{label_once:<9}", "dim"), f" {escape_controls(text)}"])
    lines += format_detail_lines(("likely", diagnosis.likely), ("do", translate_hint(diagnosis.do)))
    if diagnosis.tensorflow_error is not None:
        message = truncate(escape_controls(diagnosis.tensorflow_error), _MAX_CHARACTERS)
        lines.append(["  ", (f"tf says   {message}", "dim")])
    return lines


def _format_location(diagnosis: Diagnosis, names: dict[str, str]) -> str:
    path = names.get(diagnosis.path, escape_controls(diagnosis.path))
    parts = [f"{path} ({format_count(diagnosis.files, 'file')})" if diagnosis.files > 1 else path]
    if diagnosis.feature is not None:
        parts.append(f"feature `{truncate(escape_controls(diagnosis.feature))}`")
    first = next((place for place in diagnosis.records if place.record is not None), None)
    if first is not None:
        several = diagnosis.files > 1
        inside = f" of {names.get(first.path, escape_controls(first.path))}" if several else ""
        least = f"first record {first.record:,}" if diagnosis.records_affected > 1 else f"record {first.record:,}"
        byte = "" if first.offset is None else f", byte {first.offset:,}"
        parts.append(f"{least}{inside}{byte}")
    return ", ".join(parts)


def _format_features(features: tuple[ParsePrediction, ...]) -> list[list[StyledText]]:
    width = min(max(len(feature.feature) for feature in features), 40)
    lines: list[list[StyledText]] = [["TensorFlow, per feature:"]]
    for feature in features:
        name = f"{truncate(escape_controls(feature.feature)):<{width}}"
        if feature.ok:
            lines.append(["  ", (name, "bold"), "  parses"])
            continue
        records = format_count(feature.records_affected, "record")
        lines.append(["  ", (name, "bold"), ("  fails", "bold red"), f" in {records}"])
        lines += format_detail_lines(("asked", feature.asked), ("works", feature.works or "none"), indent=6)
    return lines


def _format_summary(found: Diagnoses, payload_bytes: int) -> list[list[StyledText]]:
    amount = (
        f"{format_count(found.files, 'file')} · {format_count(found.records, 'record')} · "
        f"{format_byte_size(payload_bytes)}"
    )
    if not found.diagnoses:
        return [[("nothing wrong", "bold green"), f" · {amount}"]]
    each = [
        format_count(number, name)
        for name in SEVERITY_STYLES
        if (number := sum(diagnosis.severity == name for diagnosis in found.diagnoses))
    ]
    head: StyledText = (", ".join(each), "bold red" if not found.ok else "bold")
    return [[head, f" · {amount}"], [f"next: rekord explain {found.diagnoses[0].code}"]]

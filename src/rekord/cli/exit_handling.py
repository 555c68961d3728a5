"""How a command ends: usage errors, bad data, an interrupt, and the summary of a dataset that was written."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rekord.cli import console as output
from rekord.cli.console import escape_controls, truncate
from rekord.cli.options import list_choices, split_words
from rekord.errors import DataError, FormatError, RekordError, closest_match, error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.conversion.driver import ConversionResult
    from rekord.dataset.manifest import Manifest
    from rekord.verbs.forecast import Forecast


# Typer carries a copy of Click or imports it, depending on its version; this class is the right one in both.
UsageFailure: type[Exception] = typer.BadParameter.__mro__[1]


def explain_usage_error(failure: Any, group: Any, arguments: Sequence[str]) -> RekordError:
    """The UsageError for a command line that cannot be parsed."""
    command, path = _find_command(failure, group, arguments)
    help_line = f"{path} --help"
    if hasattr(failure, "option_name") and hasattr(failure, "possibilities"):
        option = failure.option_name
        known = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
        near, likely = None, None
        if not _is_option_of_another(option, group):
            near = closest_match(option, [name for name in (*known, "--help") if name.startswith("--")])
            likely = f"a typo of `{near}`" if near else None
        if likely is None and (near := _find_shared_word(option, known)):
            likely = f"`{near}` was meant"
        what = f"`{path}` has no option `{truncate(escape_controls(option))}`"
        return error("U601", what, likely=likely, do=help_line)
    if command is group and "command" in failure.message.lower():
        # Click only has the sentence; the name is the first word that is not an option.
        return unknown_verb_error(next((word for word in arguments if not word.startswith("-")), ""), group)
    if isinstance(failure, typer.BadParameter):
        name = _format_parameter(getattr(failure, "param", None))
        if hasattr(failure, "param_type"):
            return missing_argument_error(command, failure.param, arguments)
        found = failure.message.removeprefix("Value error, ").rstrip(".")
        value, is_choice, choices = found.partition(" is not one of ")
        if is_choice:
            return error(
                "U605",
                f"`{name}` cannot be {truncate(escape_controls(value))}",
                expected=f"one of {choices}",
                found=truncate(escape_controls(value)),
                do=help_line,
            )
        return error("U605", f"`{name}` has an invalid value", found=escape_controls(found), do=help_line)
    sentence = escape_controls(failure.message).rstrip(".")
    extra = re.fullmatch(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", sentence)
    if extra is not None:
        what = f"`{path}`: unexpected argument `{truncate(extra[1])}`"
        quoted = _quote_pattern(arguments)
        likely = "the shell replaced a pattern by the names of several files" if quoted else None
        return error("U601", what, likely=likely, do=quoted or help_line)
    return error("U601", f"`{path}`: {sentence[:1].lower()}{sentence[1:]}", do=help_line)


def _quote_pattern(arguments: Sequence[str]) -> str | None:
    """The command line with one quoted pattern in place of several files of one folder and extension."""
    paths = [word for word in arguments if os.path.isfile(word)]
    places = {(os.path.dirname(word), os.path.splitext(word)[1]) for word in paths}
    if len(paths) < 2 or len(places) > 1 or not paths[0].isprintable():
        return None
    folder, extension = next(iter(places))
    pattern = os.path.join(folder, f"*{extension}")
    words = [pattern if word == paths[0] else word for word in arguments if word not in paths[1:]]
    return f"rekord {shlex.join(words)}"


def unknown_verb_error(verb: str, group: Any) -> RekordError:
    """The UsageError for a verb that does not exist."""
    visible = [name for name, each in group.commands.items() if not each.hidden]
    near = closest_match(verb, visible)
    return error(
        "U601",
        f"unknown command `{truncate(escape_controls(verb))}`",
        expected=None if near else f"one of {', '.join(visible)}",
        likely=f"a typo of `{near}`" if near else None,
        do=f"rekord {near} --help" if near else "rekord --help",
    )


def missing_argument_error(command: Any, missing: Any, arguments: Sequence[str]) -> RekordError:
    """The UsageError for a command line without an argument or option that its verb requires."""
    do = _complete_command(command, missing, arguments)
    return error("U601", f"`rekord {command.name}` needs {_format_parameter(missing)}", do=do)


def _complete_command(command: Any, missing: Any, arguments: Sequence[str]) -> str:
    """The command line with an example of what is missing; the help of the verb if that is everything."""
    at = list(arguments).index(str(command.name)) + 1
    given, last = split_words(command, arguments[at:])
    positionals = [param for param in command.params if param.param_type_name == "argument"]
    if not given:
        return f"rekord {command.name} --help"
    words = list(arguments[at:])
    if missing.param_type_name == "option":
        choices = list_choices(missing)
        words += [missing.opts[0], choices[0] if choices else str(missing.metavar)]
    else:
        stem, extension = os.path.splitext(given[0].rstrip("/"))
        examples = {
            "OUT": f"{stem}-repaired{extension}" if command.name == "salvage" else f"{stem}-new",
            "SQL": "select count(*) from records",
        }
        if command.name == "export":
            examples["OUT"] = f"{stem}.parquet"
        absent = [str(param.metavar) for param in positionals[len(given) :] if param.required]
        words[last + 1 : last + 1] = [examples.get(name, name) for name in absent]
    return escape_controls(f"rekord {command.name} {shlex.join(words)}")


def _is_option_of_another(option: str, group: Any) -> bool:
    """Whether another verb has an option of exactly this name: then it is not a typo."""
    return any(option in param.opts for command in group.commands.values() for param in command.params)


def _find_shared_word(option: str, known: Sequence[str]) -> str | None:
    """The only option that shares a word with an unknown one: `--map` is part of `--map-labels`."""
    words = set(option.strip("-").split("-")) - {"", "no"}
    shared = [name for name in known if name.startswith("--") and words & set(name[2:].split("-"))]
    return shared[0] if len(shared) == 1 else None


def _find_command(failure: Any, group: Any, arguments: Sequence[str]) -> tuple[Any, str]:
    if failure.ctx is not None:
        return failure.ctx.command, failure.ctx.command_path
    verb = arguments[0] if arguments else ""
    return (group.commands[verb], f"rekord {verb}") if verb in group.commands else (group, "rekord")


def _format_parameter(param: Any) -> str:
    if param is None:
        return "another argument"
    return str(param.metavar or param.name) if param.param_type_name == "argument" else str(param.opts[0])


_DATA_ERROR_CODES = ("X510", "X552", "X565")
"""What can be wrong with the records of the input of a verb, besides damage."""

_RESUMABLE_NOTE = "nothing was published; finished work is kept for the next run"


def is_data_error(failure: RekordError, codes: Collection[str] = _DATA_ERROR_CODES) -> bool:
    """Whether the data is at fault, not the command or the disk."""
    if isinstance(failure, DataError) or failure.code in codes:
        return True
    return isinstance(failure, FormatError) and failure.location.record is not None


@contextmanager
def report_bad_data(codes: Collection[str], *, as_json: bool, left: str) -> Iterator[None]:
    """End with exit code 1 if the data is bad; `left` describes what was written or kept."""
    try:
        yield
    except RekordError as failure:
        if not is_data_error(failure, codes):
            raise
        output.print_error(failure, as_json=as_json)
        output.print_message(left)
        raise typer.Exit(1) from None


@contextmanager
def report_resumable(
    codes: Collection[str] = _DATA_ERROR_CODES, *, as_json: bool, left: str = _RESUMABLE_NOTE
) -> Iterator[None]:
    """`report_bad_data` for a run that the next one resumes, and that may be interrupted at any time."""
    try:
        with report_bad_data(codes, as_json=as_json, left=left):
            yield
    except KeyboardInterrupt:
        output.print_interrupt("interrupted: run the same command again to resume", as_json=as_json)
        raise typer.Exit(130) from None


def exit_code(unreadable: int, *, ok: bool) -> int:
    """3 if files could not be read, 1 if something was found, else 0."""
    return 3 if unreadable else int(not ok)


def report_conversion(
    place: str,
    outcome: ConversionResult,
    seconds: float,
    *,
    as_json: bool,
    also: Mapping[str, Any] | None = None,
) -> int:
    """Print what was written, and return the exit code. `also` goes into the JSON document."""
    if as_json:
        output.print_json({**_build_document(place, outcome, seconds), **(also or {})})
    else:
        _print_outcome(place, outcome, seconds)
    return 0


def report_forecast(place: str, expected: Forecast, *, as_json: bool, also: Mapping[str, Any] | None = None) -> int:
    """Print what would be written, and return the exit code. `also` goes into the JSON document."""
    if as_json:
        document = {"dataset": place, "dry_run": True, "forecast": expected.to_dict(), **(also or {})}
        output.print_json(document)
    else:
        for line in expected.lines():
            output.print_line(escape_controls(line))
        output.print_status("nothing was written")
    return 0


def _build_document(place: str, outcome: ConversionResult, seconds: float) -> dict[str, Any]:
    """The outcome as a JSON document."""
    manifest = outcome.manifest
    return {
        "dataset": place,
        "splits": {
            name: {
                "records": split.records,
                "shards": len(split.shards.records),
                "bytes": sum(split.shards.bytes),
            }
            for name, split in manifest.splits.items()
        },
        "rejected": manifest.source.rejected,
        "rejects": _find_rejects_path(place, manifest),
        "resumed_shards": outcome.resumed_shards,
        "seconds": round(seconds, 3),
    }


def _print_outcome(place: str, outcome: ConversionResult, seconds: float) -> None:
    """Print the outcome as text."""
    manifest = outcome.manifest
    records = sum(split.records for split in manifest.splits.values())
    total_bytes = sum(sum(split.shards.bytes) for split in manifest.splits.values())
    head = f"{escape_controls(place)}: {format_count(records, 'record')}, {format_byte_size(total_bytes)}"
    if outcome.nothing_to_do:
        output.print_line(f"nothing to do: {head}, already complete")
    else:
        resumed = (
            f", {format_count(outcome.resumed_shards, 'shard')} from an earlier run" if outcome.resumed_shards else ""
        )
        output.print_line(f"{head}, in {format_duration(seconds)}{resumed}")
    output.print_table(split_rows(manifest), "<>><")
    rejects = _find_rejects_path(place, manifest)
    if rejects is not None:
        output.print_line(
            f"rejected: {format_count(manifest.source.rejected, 'row')}, listed in {escape_controls(rejects)}"
        )
        _print_codes(rejects)
    if outcome.remarks is not None:
        output.print_line(f"remarks: listed in {escape_controls(outcome.remarks)}")
        _print_codes(outcome.remarks)
    if outcome.left is not None:
        output.print_status(f"files that rekord did not write were kept in {escape_controls(outcome.left)}")
    output.print_next(f"next: rekord check {shlex.quote(escape_controls(place))}")


def split_rows(manifest: Manifest) -> list[list[str]]:
    """The name, records, shards and size of each split of a dataset."""
    return [
        [
            escape_controls(name),
            format_count(split.records, "record"),
            format_count(len(split.shards.records), "shard"),
            format_byte_size(sum(split.shards.bytes)),
        ]
        for name, split in manifest.splits.items()
    ]


def _find_rejects_path(place: str, manifest: Manifest) -> str | None:
    return os.path.join(place, ".rekord", "rejects.jsonl") if manifest.source.rejected else None


def _print_codes(path: str) -> None:
    """One line per code in a list: its count and its first location."""
    counts: Counter[str] = Counter()
    first: dict[str, dict[str, Any]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                document = json.loads(line)
                counts[document["code"]] += 1
                first.setdefault(document["code"], document)
    except (OSError, ValueError):
        return  # the list is only summarised here
    for code, number in counts.most_common():
        origin = first[code]["origin"].get("path") or ""
        where = f"   first: {escape_controls(origin)}" if origin else ""
        output.print_line(
            (f"  {code}", "bold"),
            f"  {number:,} ×  {escape_controls(first[code]['what'])}{where}",
        )

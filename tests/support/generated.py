"""Pages generated from the code, from other pages, or from the benchmark. Run this file to write them again."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import typer
from pages import blocks
from terminal import draw_terminal

from rekord.cli.main import app, run_command_line
from rekord.codes import CODES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FLOORS = re.compile(r"\*\*(\d+ floors reached, \d+ missed)")
_WITHIN = re.compile(r" \([\d.]+\)$")
COMMAND = "python tests/support/generated.py"

FAMILIES = {
    "F": (
        "Frames",
        "`FrameError`: the framing of a record file, or something else where a record file was expected.",
    ),
    "C": ("Compression", "`CompressionError`: the gzip or zlib stream around the frames."),
    "W": ("Wire format", "`WireError`: protobuf's wire format inside a payload."),
    "S": ("Schemas", "`SchemaError`: a schema that contradicts itself, or one that does not fit another."),
    "E": ("Rows", "`EncodeError`: a row that cannot be written as the schema declares it."),
    "D": ("Records", "`DecodeError`: a record that cannot be read as the schema declares it."),
    "X": (
        "Datasets",
        "`DatasetError`: files, folders and places: missing, unreadable, or not what their manifest says.",
    ),
    "U": ("Usage", "`UsageError`: an invalid argument, or a dependency that is not installed."),
    "H": ("Findings", "Findings of `rekord check` (H7xx) and `rekord doctor` (H8xx) in data that can be read."),
}

_CODES = """\
# Error codes

Every error and finding has a code: a letter for the family, and a number that is never reused. `rekord explain CODE`
prints the same pages in a terminal, offline; `rekord explain "…"` explains a message of TensorFlow. Catch errors by
class ([errors in Python](reference/api/errors.md)); the code says what happened.
"""

_VERBS = """\
# Command line

Results go to stdout, progress and messages to stderr; nothing is coloured where it is piped. With `--json` most verbs
print one JSON document.

| exit code | |
|---|---|
| 0 | success |
| 1 | problems in the data: damage, a bad row, differences, gaps |
| 2 | invalid usage |
| 3 | could not read or write |
| 130 | interrupted |
"""


_DECISIONS = """\
# Decisions

Choices that a newcomer may question: the context, the choice, and what was given up for it.
"""

_BENCHMARK = """\
# The benchmark

`make bench` compares rekord with TensorFlow and others on the machine that it runs on, and writes the whole result
to `benchmarks/RESULTS.md` in the repository. Every number there is measured; none is entered by hand.

## How it is measured

- **Ratios are what counts.** Contenders run in turn, each in a process of its own, and a ratio is taken within each
  round: other load on the machine falls on all of them alike. Figures in records per second say more about the
  machine.
- **The same work.** Before a reader is timed, its first batch must have the sums and lengths that the others have.
  What a conversion wrote is read back, and its first rows must be those of the others.
- **Checksums are verified** by rekord and by TensorFlow. Where a peer does not verify them, its line says so.
- **A warm cache.** Files are in the page cache: it is code that is measured, not a disk.
- **Others as their makers mean them.** TensorFlow runs on one core, with `AUTOTUNE`, and as an interleave of shards.
  Peers whose dependencies conflict have environments of their own.
- **CPU seconds too.** A reader that is twice as fast on twice the cores has won nothing on a machine that trains.
- Each line is the median of several timings after a warm-up, with the least and the greatest; the load of the machine
  is printed, and a run on a busy machine says so.

Workloads: *tabular* (500,000 records with 40 columns), the same with another order of keys in each record,
*sequences* (lists of varying length), *dense* (2,048 floats per record), and *images* (blobs of about 100 KB).

## Floors, and what is missed

A floor is what a result is meant to reach. These are all that the last runs missed:

"""


def benchmark_page() -> str:
    """`docs/explain/benchmark.md`: how it is measured, and every floor that was missed."""
    lines = ["| | floor | reached | who |", "|---|---|---|---|"]
    counts = []
    for path in sorted((ROOT / "benchmarks").glob("RESULTS*.md")):
        text = path.read_text(encoding="utf-8")
        heading = ""
        counts.append(f"- `{path.name}`: {_FLOORS.findall(text)[0]}")
        for line in text.splitlines():
            heading = line[3:] if line.startswith("## ") else heading
            if line.endswith("| MISS |"):
                who, _, _, ratio, _, floor, _ = (cell.strip() for cell in line.strip("|").split("|"))
                within = re.search(r" \(([\d.]+)\)$", floor)
                reached = within[1] if within else ratio
                lines.append(f"| {heading} | {_WITHIN.sub('', floor)} | {reached} | {who} |")
    return _BENCHMARK + "\n".join([*lines, "", "In all:", "", *counts, ""])


def codes_page() -> str:
    """`docs/errors.md`: every code by family, with the line that it says first."""
    parts = [_CODES]
    for letter, (title, text) in FAMILIES.items():
        rows = [f"| [{code}](errors/{code}.md) | {CODES[code]} |" for code in sorted(CODES) if code[0] == letter]
        parts.append("\n".join([f"## {title}", "", text, "", "| code | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def decisions_page() -> str:
    """`docs/decisions/index.md`: every decision by its title."""
    rows = []
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        number, title = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ").split(". ", 1)
        rows.append(f"| {number} | [{title}]({path.name}) |")
    return "\n".join([_DECISIONS, "| | |", "|---|---|", *rows, ""])


def verbs() -> list[str]:
    """The verbs that the help lists, in its order."""
    return [name for name, verb in typer.main.get_command(app).commands.items() if not verb.hidden]  # type: ignore[attr-defined]


def cli_page() -> str:
    """`docs/reference/cli.md`: the help of each verb, as the command prints it."""
    parts = [_VERBS, _transcript([])]
    for verb in verbs():
        parts.append(f"## {verb}\n\n{_transcript([verb])}")
    return "\n".join(parts)


def _transcript(words: list[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run_command_line([*words, "--help"])
    return f"```console\n$ {' '.join(['rekord', *words, '--help'])}\n{said.getvalue().rstrip()}\n```\n"


def terminal_image() -> str:
    """`docs/images/terminal.svg`: the commands of the first page with their output, which the tests run."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    (transcript,) = [block.body for block in blocks(page) if block.kind == "console"]
    return draw_terminal(transcript, "rekord writes a dataset, checks a corrupt file and salvages its records")


PAGES = {
    DOCS / "decisions" / "index.md": decisions_page,
    DOCS / "errors.md": codes_page,
    DOCS / "explain" / "benchmark.md": benchmark_page,
    DOCS / "images" / "terminal.svg": terminal_image,
    DOCS / "reference" / "cli.md": cli_page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")

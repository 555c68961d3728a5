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
COMMAND = "python tests/support/generated.py"

FAMILIES = {
    "F": (
        "Frames",
        "`FrameError`: the framing of a record file is invalid, or the file is not a record file.",
    ),
    "C": ("Compression", "`CompressionError`: the gzip or zlib stream around the frames is invalid."),
    "W": ("Wire format", "`WireError`: a payload is not a valid protobuf message."),
    "S": ("Schemas", "`SchemaError`: a schema contradicts itself, or is incompatible with another one."),
    "E": ("Rows", "`EncodeError`: a row does not match the schema and cannot be written."),
    "D": ("Records", "`DecodeError`: a record does not match the schema and cannot be read."),
    "X": (
        "Datasets",
        "`DatasetError`: a file or folder is missing, unreadable, or does not match its manifest.",
    ),
    "U": ("Usage", "`UsageError`: an argument is invalid, or a dependency is not installed."),
    "H": ("Findings", "What `rekord check` (H7xx) and `rekord doctor` (H8xx) report about readable data."),
}

_CODES = """\
# Error codes

Every error and finding has a code: a letter for the family and a number that is never reused. `rekord explain CODE`
shows the same pages in the terminal, offline; `rekord explain "…"` explains a TensorFlow error message. In Python,
catch errors by class ([errors in Python](reference/api/errors.md)); the code identifies what happened.
"""

_VERBS = """\
# Command line

Results are printed to stdout, progress and messages to stderr. Piped output is never coloured. With `--json`, every
verb prints one JSON document, and `{"error": {…}}` if it fails. Defaults of options, shell completion, `-q` and `-v`:
[configuring the command line](../howto/configure.md).

| exit code | |
|---|---|
| 0 | success |
| 1 | problems in the data: corruption, a bad row, differences, gaps |
| 2 | invalid usage |
| 3 | cannot read or write |
| 130 | interrupted |
"""


_DECISIONS = """\
# Decisions

Design decisions that a new contributor might question: the context, the decision and its trade-offs.
"""

_BENCHMARK = """\
# The benchmark

`make bench` compares rekord with TensorFlow and other libraries on your machine. It stores the timings of each group
in `benchmarks/results` with their commit, date and load, and renders `benchmarks/RESULTS.md` and the chart from them.
Every number there is measured; none is entered by hand.

## Method

- **Ratios matter most.** Contenders take turns, each in its own process, and ratios are computed within each round,
  so that other load on the machine affects all of them equally. Absolute figures in records per second say more
  about the machine.
- **Equal work.** Before a reader is timed, its first batch must have the same sums and lengths as those of the
  others. The output of a conversion is read back, and its first rows must equal those of the others.
- **Checksums are verified** by rekord and by TensorFlow. If a peer does not verify them, its line says so.
- **Warm cache.** Files are in the page cache: the benchmark measures code, not the disk.
- **Peers in their recommended setup.** TensorFlow runs on one core, with `AUTOTUNE`, and with interleaved shards.
  Peers with conflicting dependencies have their own environments.
- **CPU seconds as well.** A reader that is twice as fast on twice the cores gains nothing on a machine that is busy
  training.
- **Batch sizes that people use.** Decoding and feeding are measured with batches of 32 to 8192.
- **Training loops.** WebDataset, LitData, MosaicML Streaming, Grain with ArrayRecord and Hugging Face datasets read
  the same data in their own formats, shuffled, into PyTorch tensors.
- **Scaling.** A record may cost at most 10 % more in a dataset of 16 times the size.
- Each line is the median of several timings after a warm-up, with minimum and maximum. The load of the machine is
  recorded, and the results are marked if other work ran at the same time.

Workloads: *tabular* (500,000 records with 40 columns), the same with a different key order in each record,
*sequences* (variable-length lists), *dense* (2,048 floats per record), and *images* (blobs of about 100 KB).

## Floors and goals

A floor is the result that rekord must reach, a goal the result that it aims for. `benchmarks/limits.md` explains
missed floors.

"""


def benchmark_page() -> str:
    """`docs/explain/benchmark.md`: the method, and the summary of RESULTS.md."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    return _BENCHMARK + "".join(re.findall(r"^## Summary\n\n(.*?\n)\n(?=^## |\Z)", results, re.MULTILINE | re.DOTALL))


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

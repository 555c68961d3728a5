"""Options that every verb takes: -q, -v, -V, --json; and `rekord help`."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord import __version__
from rekord.cli import console
from rekord.cli import demo as demo_module
from rekord.cli.help import format_usage
from rekord.cli.main import EXAMPLES, commands, run_command_line
from rekord.cli.options import StderrHandler
from rekord.testing import corrupt_payload

Captured = pytest.CaptureFixture[str]
VISIBLE = [name for name, command in commands().commands.items() if not command.hidden]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"id": i, "label": "cat" if i % 3 else "dog", "x": [i / 2, 1.0]} for i in range(30)]
    schema = rk.Schema({"id": rk.Int64(), "label": rk.Label(["cat", "dog"]), "x": rk.Float32(shape=(2,))})
    monkeypatch.chdir(tmp_path)
    rk.write(rows, "data", schema=schema, split={"train": 0.5, "val": 0.5}, progress=False, workers=1)
    (tmp_path / "x.csv").write_text("id,label,a,b\n1,cat,0,1\n2,dog,2,3\n")
    rk.write("x.csv", "from_csv", progress=False, workers=1)
    shutil.copytree("data", "damaged")
    shutil.copytree("data", "shards", ignore=shutil.ignore_patterns("rekord.json", ".rekord"))
    file = next(Path("damaged").glob("train-*.tfrecord"))
    file.write_bytes(corrupt_payload(file.read_bytes(), 1))
    return tmp_path


def shorten_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tour of one short step: the others have tests of their own."""

    def step(tour: demo_module.DemoTour) -> None:
        tour.step("Draw")
        tour.show("$ cd tour")
        console.print_line("drawn")

    monkeypatch.setattr(demo_module, "STEPS", (step,))


# A command line of every verb that succeeds, and the fields of its document.
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "write": (["x.csv", "out"], {"dataset", "splits", "rejected", "rejects", "resumed_shards", "seconds"}),
    "show": (["data"], {"records"}),
    "stats": (["data"], {"records", "features"}),
    "query": (["data", "select 1 as a"], {"columns", "rows"}),
    "infer": (["data"], {"features"}),
    "check": (["data"], {"ok", "files", "records", "findings"}),
    "doctor": (["data"], {"ok", "diagnoses"}),
    "salvage": (["data", "out"], {"kept", "lost_records", "gaps"}),
    "diff": (["data", "data"], set()),
    "rewrite": (["data", "out", "--shards", "1"], {"dataset", "splits"}),
    "split": (["data", "out", "--split", "a=0.5,b=0.5"], {"dataset", "splits"}),
    "balance": (["data", "out"], {"dataset", "splits"}),
    "append": (["data", "out", "--from", "rows.jsonl"], {"dataset", "appended"}),
    "delete": (["data", "out", "--where", "id = 1"], {"dataset", "deleted"}),
    "relabel": (["data", "out", "--map-labels", "dog=wolf"], {"dataset", "relabelled"}),
    "sync": (["x.csv", "from_csv"], {"dataset", "splits", "converted_files", "copied_records"}),
    "trace": (["data", "--split", "train", "--record", "0"], {"path", "row", "line", "record"}),
    "export": (["data", "out.csv", "--split", "train"], {"format"}),
    "adopt": (["shards"], {"dataset", "splits", "schema", "notes", "seconds"}),
    "index": (["data", "--format", "vahidk"], {"files", "records"}),
    "reader": (["data", "--for", "torch"], {"dataset", "for", "code"}),
    "train": (["data", "model", "--epochs", "1", "--limit", "8"], {"seconds"}),
    "demo": ([], {"folder", "steps", "seconds"}),
    "explain": (["F102"], {"code", "title", "text"}),
    "help": (["write"], {"verb", "usage", "help", "arguments", "options", "examples"}),
}


@pytest.mark.parametrize("verb", [verb for verb in VISIBLE if verb != "view"])  # which runs until it is stopped
@pytest.mark.parametrize("first", [True, False])
def test_every_verb_prints_one_json_document(
    verb: str, first: bool, place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "train":
        pytest.importorskip("keras")
    shorten_tour(monkeypatch)
    (place / "rows.jsonl").write_text('{"id": 90, "label": "cat", "x": [1, 2]}\n')
    arguments, fields = COMMANDS[verb]  # a new verb needs a line there
    words = ["--json", verb, *arguments] if first else [verb, *arguments, "--json"]
    assert run_command_line(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert fields <= set(document)


@pytest.mark.parametrize("verb", VISIBLE)
def test_every_verb_prints_an_error_as_a_document_with_the_same_exit_code(
    verb: str, place: Path, capsys: Captured
) -> None:
    del place
    wrong: dict[str, list[str]] = {
        "explain": ["Q999"],
        "help": ["wirte"],
        "demo": ["x.csv"],  # not a folder
        "view": [],
    }
    words = wrong.get(
        verb, ["none" if word in ("data", "shards", "x.csv") else word for word in COMMANDS.get(verb, ([],))[0]]
    )
    code = run_command_line([verb, *words])
    text = capsys.readouterr()
    assert (code in (1, 2, 3), text.out) == (True, "")
    assert run_command_line([verb, *words, "--json"]) == code
    printed = capsys.readouterr()
    failure = json.loads(printed.out)["error"]
    assert {"error", "code", "what", "location", "expected", "found", "likely", "do"} == set(failure)
    assert printed.err.startswith(f"{failure['error']} {failure['code']}: ")


def test_an_interrupt_is_a_document_too(place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rekord.verbs.write.prepare_conversion", interrupted)
    monkeypatch.setattr("rekord.verbs.index.index", interrupted)
    for words, what in (
        (["write", "x.csv", "out"], "interrupted: run the same command again to resume"),
        (["index", "data"], "interrupted"),
    ):
        assert run_command_line([*words, "--json"]) == 130
        printed = capsys.readouterr()
        assert json.loads(printed.out) == {
            "error": {"error": "KeyboardInterrupt", "code": None, "what": what, "do": None}
        }
        assert printed.err == f"{what}\n"
    assert (place / "x.csv").exists()


def test_the_tour_as_json_is_told_on_stderr(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_tour(monkeypatch)
    assert run_command_line(["demo", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["steps"] == [{"title": "Draw", "commands": ["$ cd tour"]}]
    assert printed.err == "1. Draw\n$ cd tour\ndrawn\n"


def test_no_verb_under_json_is_an_error_document(capsys: Captured) -> None:
    assert run_command_line(["--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["what"] == "no verb is given"


# -V


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["write", "-V"], ["write", "x", "--version"], ["-qV"]])
def test_the_version_is_printed_before_and_after_the_verb(words: list[str], capsys: Captured) -> None:
    assert run_command_line(words) == 0
    assert capsys.readouterr() == (f"rekord {__version__}\n", "")


def test_the_version_as_json(capsys: Captured) -> None:
    assert run_command_line(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


# -q and -v


QUIET = [
    ["write", "x.csv", "out"],
    ["rewrite", "data", "out", "--shards", "1"],
    ["split", "data", "out", "--split", "a=0.5,b=0.5"],
    ["balance", "data", "out"],
    ["delete", "data", "out", "--where", "id = 1"],
    ["query", "data", "from records", "--format", "table", "--limit", "2"],
    ["show", "data", "-n", "99"],
    ["index", "data", "--format", "dali"],
    ["infer", "data", "-o", "schema.json"],
    ["write", "x.csv", "out", "--dry-run"],
]


@pytest.mark.parametrize("words", QUIET)
@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_prints_the_result_alone(words: list[str], option: str, place: Path, capsys: Captured) -> None:
    del place
    assert run_command_line([words[0], option, *words[1:]]) == 0
    after = capsys.readouterr()
    assert after.err == ""
    assert "next: " not in after.out
    shutil.rmtree("out", ignore_errors=True)
    assert run_command_line([option, *words]) == 0
    before = capsys.readouterr()
    assert (before.err, len(before.out.splitlines())) == ("", len(after.out.splitlines()))
    shutil.rmtree("out", ignore_errors=True)
    assert run_command_line(words) == 0
    assert capsys.readouterr().err != ""


def test_quiet_prints_errors_and_what_belongs_to_them(place: Path, capsys: Captured) -> None:
    assert run_command_line(["-q", "check", "none"]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X501: ")
    (place / "bad.jsonl").write_text('{"a": 1}\n{"a": [}\n')
    assert run_command_line(["-q", "write", "bad.jsonl", "out"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("nothing was published")
    # The next command is not quiet.
    assert run_command_line(["write", "x.csv", "out2"]) == 0
    assert capsys.readouterr().err.startswith("source: csv")


def test_quiet_shows_no_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda stream: True)
    console.reset_output(as_json=False)
    console.set_quiet(True)
    with console.LiveLine() as line:
        assert line._live is None
    console.reset_output(as_json=False)


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        (["explain", "F102"], []),
        (["explain", "F102", "-v"], ["steps"]),
        (["-v", "explain", "F102"], ["steps"]),
        (["explain", "F102", "-vv"], ["steps", "details"]),
        (["-vv", "explain", "F102"], ["steps", "details"]),
        (["-v", "explain", "F102", "--verbose"], ["steps", "details"]),
        (["-v", "explain", "F102", "-q"], []),
    ],
)
def test_verbose_logs_what_the_package_does(
    words: list[str], levels: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("rekord.somewhere")

    def read(code: str) -> str:
        logger.info("steps")
        logger.debug("details")
        return code

    monkeypatch.setattr("rekord.cli.health.read_error_page", read)
    assert run_command_line(words) == 0
    assert capsys.readouterr().err.splitlines() == [f"rekord.somewhere: {level}" for level in levels]


def test_a_log_line_cannot_steer_the_terminal(capsys: Captured) -> None:
    handler = StderrHandler()
    record = logging.LogRecord("rekord", logging.INFO, "", 0, "%s", ("a\x1b[2Jb",), None)
    handler.emit(record)
    assert capsys.readouterr().err == "rekord: a\\x1b[2Jb\n"


def test_logging_is_as_it_was_after_a_command(capsys: Captured) -> None:
    logger = logging.getLogger("rekord")
    assert run_command_line(["-vv", "explain", "F102"]) == 0
    assert run_command_line(["explain", "F102"]) == 0
    capsys.readouterr()
    assert not [each for each in logger.handlers if isinstance(each, StderrHandler)]
    assert logger.level == logging.NOTSET


# help


def test_help_without_a_verb_lists_all(capsys: Captured) -> None:
    assert run_command_line(["help"]) == 0
    listed = capsys.readouterr()
    assert run_command_line(["--help"]) == 0
    assert (listed.out, listed.err) == (capsys.readouterr().out, "")


@pytest.mark.parametrize("verb", VISIBLE)
def test_help_of_a_verb_is_what_its_option_prints(verb: str, capsys: Captured) -> None:
    assert run_command_line(["help", verb]) == 0
    shown = capsys.readouterr().out
    assert run_command_line([verb, "--help"]) == 0
    assert shown == capsys.readouterr().out


def test_help_of_an_unknown_verb_suggests_the_nearest(capsys: Captured) -> None:
    assert run_command_line(["help", "chekc"]) == 2
    assert capsys.readouterr().err == (
        "UsageError U601: unknown command `chekc`\n  likely    a typo of `check`\n  do        rekord check --help\n"
    )


def test_help_as_json_describes_options_with_their_values(capsys: Captured) -> None:
    assert run_command_line(["help", "reader", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["usage"] == "rekord reader PATH --for tensorflow|torch|jax|dali|spark [OPTIONS]"
    assert document["arguments"] == [
        {"name": "PATH", "help": "Dataset to read: a folder, file or glob pattern.", "required": True}
    ]
    assert document["options"][0] == {
        "names": ["--for"],
        "value": "tensorflow|torch|jax|dali|spark",
        "choices": ["tensorflow", "torch", "jax", "dali", "spark"],
        "help": "Framework to generate code for.",
    }
    assert document["examples"] == list(EXAMPLES["reader"])
    assert run_command_line(["help", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["verb"] for each in document["verbs"]] == VISIBLE


def test_arguments_have_help_even_if_typer_lost_it(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest typer that is allowed and a newer click drop the help of positional arguments."""
    command: Any = commands().commands["check"]
    monkeypatch.setattr(command.params[0], "help", None)
    assert run_command_line(["help", "check"]) == 0
    assert "  PATH...           Record files, folders or glob patterns.\n" in capsys.readouterr().out
    assert format_usage(command) == "rekord check PATH..."


# What is missing.


@pytest.mark.parametrize(
    ("words", "what", "do"),
    [
        (["salvage", "data"], "OUT", "rekord salvage data data-repaired"),
        (["salvage", "a.tfrecord"], "OUT", "rekord salvage a.tfrecord a-repaired.tfrecord"),
        (["rewrite", "data/", "--shards", "3"], "OUT", "rekord rewrite data/ data-new --shards 3"),
        (["split", "--folds", "5", "data"], "OUT", "rekord split --folds 5 data data-new"),
        (["export", "data"], "OUT", "rekord export data data.parquet"),
        (["balance", "my data"], "OUT", "rekord balance 'my data' 'my data-new'"),
        (["append", "data", "new"], "--from", "rekord append data new --from SOURCE"),
        (["append", "data", "--from", "x.csv"], "OUT, or --replace", "rekord append data data-new --from x.csv"),
        (["delete", "data", "--where", "a > 1"], "OUT, or --replace", "rekord delete data data-new --where 'a > 1'"),
        (["query", "data"], "SQL", "rekord query data 'select count(*) from records'"),
        (["reader", "data"], "--for", "rekord reader data --for tensorflow"),
        (["check"], "PATH", "rekord check --help"),
    ],
)
def test_a_missing_argument_is_named_with_a_whole_command(
    words: list[str], what: str, do: str, capsys: Captured
) -> None:
    assert run_command_line(words) == 2
    assert capsys.readouterr().err == f"UsageError U601: `rekord {words[0]}` needs {what}\n  do        {do}\n"


@pytest.mark.parametrize(
    ("words", "code", "do"),
    [
        (["write", "x.csv", "o", "--stratify", "lable", "--split", "a=0.5,b=0.5"], "E381", "--stratify label"),
        (["split", "data", "o", "--stratify", "lable", "--split", "a=0.5,b=0.5"], "S116", "--stratify label"),
        (["train", "data", "--label", "lable"], "S116", "--label label"),
        (["balance", "data", "o", "--by", "lable"], None, "--by label"),
    ],
)
def test_a_misspelled_column_is_corrected_as_the_option_that_named_it(
    words: list[str], code: str | None, do: str, place: Path, capsys: Captured
) -> None:
    del place
    assert run_command_line(words) in (1, 2)
    printed = capsys.readouterr().err
    assert code is None or f" {code}: " in printed
    assert f"\n  do        {do}\n" in printed

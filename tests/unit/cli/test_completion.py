"""Shell completion: what is proposed, the scripts, and a real bash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli import completion
from rekord.cli.main import commands, run_command_line
from rekord.cli.options import list_choices
from rekord.codes import CODES
from rekord.testing import example_bytes, frames

Captured = pytest.CaptureFixture[str]
BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    schema = rk.Schema({"image/height": rk.Int64(), "label": rk.Label(["cat", "dog"]), "score": rk.Float32()})
    rows = [{"image/height": 1, "label": "cat", "score": 0.5}] * 4
    rk.write(rows, folder / "data", schema=schema, split={"train": 0.5, "val": 0.5}, progress=False, workers=1)
    (folder / "table.csv").write_text("name,price;x,label\n1,2,3\n")
    (folder / "rows.jsonl").write_text('{"name": 1, "label": 2}\n')
    (folder / "plain.tfrecord").write_bytes(frames([example_bytes({"b": [1], "a": [b"x"], "b c": [1], "$(x)": [1]})]))
    return folder


def proposed(*words: str) -> list[str]:
    return [each.value for each in completion.list_proposals(commands(), words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], ["rewrite", "relabel", "reader"]),
        (["-q", "sal"], ["salvage"]),
        (["help", "wr"], ["write"]),
        (["explain", "f10"], [code for code in CODES if code.startswith("F10")]),
        (["--install-completion", ""], ["bash", "zsh", "fish"]),
        (["--show"], ["--show-completion"]),
        (["write", "x", "--sha"], ["--shard-size", "--shards"]),
        (["write", "x", "--shards", "3", "--shar"], ["--shard-size"]),
        (["write", "x", "--layout", "de"], ["deeplab", "detection"]),
        (["write", "x", "--layout=de"], ["deeplab", "detection"]),
        (["write", "x", "--layout", "=", "de"], ["deeplab", "detection"]),  # as bash splits it
        (["write", "x", "--compression", ""], ["none", "gzip", "zlib"]),
        (["write", "x", "--verify", ""], ["full", "headers"]),
        (["check", "x", "--kind", ""], []),
        (["reader", "x", "--for", "t"], ["tensorflow", "torch"]),
        (["balance", "x", "y", "--augment", "flip,c"], ["flip,crop", "flip,colour"]),
        (["export", "x", "y", "--format", "arrow"], ["arrow", "arrow-stream"]),
        (["check", ""], []),
        (["nurse", ""], []),
        ([""], None),
        ([], None),
    ],
)
def test_verbs_options_and_values_are_proposed(words: list[str], expected: list[str] | None) -> None:
    visible = [name for name, command in commands().commands.items() if not command.hidden]
    assert proposed(*words) == (visible if expected is None else expected)


def test_all_options_of_a_verb_are_proposed_once() -> None:
    options = proposed("check", "data", "-")
    assert options == [
        *(
            "--max-findings",
            "--schema",
            "--json",
            "-q",
            "--quiet",
            "-v",
            "--verbose",
            "--stats",
            "--no-config",
            "--help",
        )
    ]
    assert "--json" not in proposed("check", "data", "--json", "-")


def test_columns_and_splits_of_the_dataset_are_proposed(place: Path) -> None:
    data = str(place / "data")
    assert proposed("balance", data, "out", "--by", "") == ["image/height", "label", "score"]
    assert proposed("train", data, "--label", "l") == ["label"]
    assert proposed("train", data, "--columns", "label,") == ["label,image/height", "label,score"]
    assert proposed("rewrite", data, "out", "--cast", "s") == ["score="]
    assert proposed("train", data, "--val", "") == ["train", "val"]
    assert proposed("export", data, "out.csv", "--split", "train,") == ["train,val"]
    assert proposed("write", data, "out", "--split", "") == []  # ratios of new splits
    assert proposed("train", str(place / "none"), "--label", "") == []


@pytest.mark.parametrize(("name", "expected"), [("table.csv", ["name", "label"]), ("rows.jsonl", ["name", "label"])])
def test_columns_of_raw_data_are_proposed(place: Path, name: str, expected: list[str]) -> None:
    # `price;x` may not be proposed: a shell would end the command there.
    assert proposed("write", str(place / name), "out", "--stratify", "") == expected


def test_keys_of_a_record_file_are_proposed_if_no_shell_can_misread_them(place: Path) -> None:
    assert proposed("train", str(place / "plain.tfrecord"), "--label", "") == ["a", "b"]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 40, b"\x05", b"\x00" * 12, (20).to_bytes(8, "little") + b"\x00" * 4 + b"\x0a\xff\xff"]
)
def test_a_file_of_any_bytes_proposes_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tfrecord").write_bytes(content)
    assert proposed("train", str(tmp_path / "x.tfrecord"), "--label", "") == []


def test_a_broken_manifest_is_no_error(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rekord.json").write_text("{")
    monkeypatch.setenv(completion.VARIABLE, "bash")
    assert run_command_line(["train", str(tmp_path), "--label", ""]) == 0
    assert capsys.readouterr() == ("", "")


def test_descriptions_follow_a_tab_except_in_bash(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, line in (("bash", "salvage\n"), ("fish", "salvage\tCopy all intact records of damaged files.\n")):
        monkeypatch.setenv(completion.VARIABLE, shell)
        assert run_command_line(["salv"]) == 0
        assert capsys.readouterr() == (line, "")


def test_completion_imports_no_library_and_does_not_run_the_verb(place: Path) -> None:
    program = (
        "import sys; from rekord.cli.main import run_command_line as run; code = run(sys.argv[1:]);"
        "print(code, [name for name in ('numpy', 'pyarrow', 'PIL', 'rekord._core') if name in sys.modules])"
    )
    arguments = ["write", "data", "out", "--stratify", "l"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, completion.VARIABLE: "bash"},
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("label\n0 []\n", "")
    assert not (place / "out").exists()


def test_the_table_of_values_is_what_the_library_takes() -> None:
    from typing import get_args

    from rekord.transforms import images
    from rekord.transforms.augment import AUGMENTATIONS
    from rekord.transforms.image_row import FILTERS
    from rekord.verbs.options import METHODS, FormatName
    from rekord.verbs.write import LAYOUTS

    params = {
        (verb, option): param
        for verb, command in commands().commands.items()
        for param in command.params
        for option in param.opts
    }
    for place, known in {
        ("write", "--layout"): LAYOUTS,
        ("write", "--resize-filter"): FILTERS,
        ("write", "--resize-fit"): images.FIT_MODES,
        ("balance", "--method"): METHODS,
        ("balance", "--augment"): AUGMENTATIONS,
        ("export", "--format"): get_args(FormatName),
    }.items():
        assert sorted(list_choices(params[place])) == sorted(known), place


# The scripts.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("form", [["--show-completion", "{}"], ["--show-completion={}"]])
def test_the_script_of_a_shell_is_printed(shell: str, form: list[str], capsys: Captured) -> None:
    assert run_command_line([word.format(shell) for word in form]) == 0
    assert capsys.readouterr() == (completion.SCRIPTS[shell], "")


def test_the_shell_is_detected(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_detect_shell", lambda: "fish")
    assert run_command_line(["--show-completion"]) == 0
    assert capsys.readouterr().out == completion.SCRIPTS["fish"]


@pytest.mark.parametrize("given", ["tcsh", None])
def test_a_shell_that_is_not_supported_is_refused(
    given: str | None, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_detect_shell", lambda: None)
    assert run_command_line(["--install-completion", *([given] if given else [])]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("UsageError U605: ")
    assert "  expected  bash, zsh or fish\n" in printed
    assert "  do        rekord --install-completion bash\n" in printed


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_installed_once_and_the_startup_file_kept(shell: str, home: Path, capsys: Captured) -> None:
    startup = home / f".{shell}rc"
    startup.write_text("alias ll='ls -l'")
    for _ in range(2):
        assert run_command_line(["--install-completion", shell]) == 0
    script = home / ".local" / "share" / "rekord" / f"completion.{shell}"
    assert script.read_text() == completion.SCRIPTS[shell]
    assert startup.read_text() == f"alias ll='ls -l'\nsource {script}\n"
    assert f"installed completion for {shell}: {script}, sourced by {startup}\n" in capsys.readouterr().out


def test_fish_finds_its_script_itself(home: Path, capsys: Captured) -> None:
    assert run_command_line(["--install-completion", "fish", "--json"]) == 0
    script = home / ".config" / "fish" / "completions" / "rekord.fish"
    assert json.loads(capsys.readouterr().out) == {"shell": "fish", "script": str(script), "startup_file": None}
    assert script.read_text() == completion.SCRIPTS["fish"]


def test_a_home_that_cannot_be_written_is_one_message(home: Path, capsys: Captured) -> None:
    (home / ".local").write_text("a file")
    assert run_command_line(["--install-completion", "bash"]) == 3
    printed = capsys.readouterr().err
    assert printed.startswith("DatasetError X504: completion cannot be installed\n  where     ")
    assert "  do        rekord --show-completion bash > FILE" in printed


# A real shell.

# What readline does: set the words and the cursor, call the function of the command, and use COMPREPLY.
DRIVER = """
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
compopt() { :; }
_rekord_completion "$REKORD" "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rekord", "ch"], ["check"]),
        (["rekord", "write", "a b.csv", "--on-bad-row", ""], ["stop", "reject"]),
        (["rekord", "train", "data", "--label", ""], ["image/height", "label", "score"]),
        (["rekord", "show", "d"], [""]),
    ],
)
def test_a_real_bash_completes(place: Path, words: list[str], expected: list[str]) -> None:
    wrapper = place / "rekord"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m rekord "$@"\n')
    wrapper.chmod(0o755)
    done = subprocess.run(
        [str(BASH), "--norc", "-c", DRIVER, "driver", *words],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, "SCRIPT": completion.SCRIPTS["bash"], "REKORD": str(wrapper)},
        timeout=60,
        check=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_bash_registers_the_function_and_falls_back_to_paths() -> None:
    done = subprocess.run(
        [str(BASH), "--norc", "-c", f"{completion.SCRIPTS['bash']}\ncomplete -p rekord"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "complete -o default -F _rekord_completion rekord\n"

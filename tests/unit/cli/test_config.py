"""Defaults of options from `rekord.toml` and `pyproject.toml`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli import config
from rekord.cli.main import commands, run_command_line

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table in it, far from any configuration file."""
    (tmp_path / "x.csv").write_text("a,label\n" + "".join(f"{i},{'cat' if i % 2 else 'dog'}\n" for i in range(8)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(config.VARIABLE, raising=False)
    return tmp_path


def written(capsys: Captured, *options: str) -> dict[str, Any]:
    """The manifest of a dataset that is written with these options."""
    assert run_command_line(["write", "x.csv", "out", "--workers", "1", "--fresh", "-q", *options]) == 0
    assert capsys.readouterr().err == ""
    manifest: dict[str, Any] = json.loads(Path("out/rekord.json").read_text())
    return manifest


def shards(manifest: dict[str, Any]) -> dict[str, tuple[int, str]]:
    return {
        name: (len(split["shards"]["records"]), split["compression"]) for name, split in manifest["splits"].items()
    }


TABLES = """
compression = "gzip"
[write]
split = {train = 0.5, val = 0.5}
shards = 2
shuffle = true
"""


def test_options_have_the_defaults_of_rekord_toml(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text(TABLES)
    assert shards(written(capsys)) == {"train": (2, "gzip"), "val": (2, "gzip")}


def test_options_have_the_defaults_of_a_project(place: Path, capsys: Captured) -> None:
    project = TABLES.replace("[write]", "[tool.rekord.write]")
    (place / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.rekord]{project}")
    assert shards(written(capsys)) == {"train": (2, "gzip"), "val": (2, "gzip")}


def test_the_nearest_file_applies_and_rekord_toml_wins(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    below = place / "a" / "b"
    below.mkdir(parents=True)
    (place / "rekord.toml").write_text("shards = 4")
    (place / "a" / "pyproject.toml").write_text("[project]\ndescription = 'reads with rekord'\n")  # no table
    (below / "x.csv").write_bytes((place / "x.csv").read_bytes())
    monkeypatch.chdir(below)
    assert shards(written(capsys)) == {"train": (4, "none")}
    (place / "a" / "pyproject.toml").write_text("[tool.rekord]\nshards = 3")
    assert shards(written(capsys)) == {"train": (3, "none")}
    (place / "a" / "rekord.toml").write_text("shards = 2")
    assert shards(written(capsys)) == {"train": (2, "none")}


def test_the_table_of_a_verb_overrides_a_common_key(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text("[write]\nshards = 3\n[rewrite]\nshards = 5\n")
    (place / "rekord.toml").write_text("shards = 2\n" + (place / "rekord.toml").read_text())
    assert shards(written(capsys)) == {"train": (3, "none")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--compression", "none", "--shards", "1"], {"train": (1, "none"), "val": (1, "none")}),
        (["--split", "train"], {"train": (2, "gzip")}),
        # An option that the default of another one would override.
        (["--shard-size", "1MB"], {"train": (1, "gzip"), "val": (1, "gzip")}),
        (["--no-config"], {"train": (1, "none")}),
    ],
)
def test_the_command_line_overrides_the_file(
    place: Path, options: list[str], expected: dict[str, tuple[int, str]], capsys: Captured
) -> None:
    (place / "rekord.toml").write_text(TABLES)
    assert shards(written(capsys, *options)) == expected


def test_a_flag_of_the_file_can_be_switched_off(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text("[write]\nshuffle = true")
    written(capsys)
    shuffled = [int(row["a"]) for row in rk.open("out")["train"]]
    written(capsys, "--no-shuffle")
    assert [int(row["a"]) for row in rk.open("out")["train"]] == list(range(8)) != shuffled
    (place / "rekord.toml").unlink()
    written(capsys, "--no-shuffle")  # a script need not know whether there is a file
    assert [int(row["a"]) for row in rk.open("out")["train"]] == list(range(8))


def test_a_contradicting_default_gives_way(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text('[write]\nsplit = {a = 0.5, b = 0.5}\nstratify = "label"\n')
    assert set(shards(written(capsys, "--split-by", "a"))) == {"a", "b"}


def test_a_variable_names_the_file_or_none(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    (place / "rekord.toml").write_text("shards = 4")
    (place / "other.toml").write_text("shards = 2")
    monkeypatch.setenv(config.VARIABLE, "other.toml")
    assert shards(written(capsys)) == {"train": (2, "none")}
    monkeypatch.setenv(config.VARIABLE, "")
    assert shards(written(capsys)) == {"train": (1, "none")}
    monkeypatch.setenv(config.VARIABLE, "none.toml")
    assert run_command_line(["check", "out"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("UsageError U692: `REKORD_CONFIG` does not name a file\n  where     none.toml\n")


def test_verbose_names_the_file_and_what_it_sets(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text(TABLES)
    assert run_command_line(["write", "x.csv", "out", "-v", "--workers", "1", "--compression", "none"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert line == (
        "rekord.cli.main: configuration: rekord.toml sets write.split = {train = 0.5, val = 0.5}, "
        "write.shards = 2, write.shuffle = true"
    )


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('comprssion = "gzip"', "unknown key `comprssion`", "likely    a typo of `compression`"),
        ("[wirte]\nshards = 2", "unknown key `wirte`", "likely    a typo of `write`"),
        ("[write]\nshard_sise = 2", "unknown key `write.shard_sise`", "likely    a typo of `shard-size`"),
        ("layout = 'table'", "unknown key `layout`", "do        move it to [write]"),
        ('compression = "gzp"', '`compression` cannot be "gzp"', 'do        compression = "gzip"'),
        ("[write]\nverify = 'ful'", '`write.verify` cannot be "ful"', 'likely    a typo of "full"'),
        ("quiet = 3", "`quiet` cannot be 3", "expected  true or false"),
        ("verbose = 9", "`verbose` cannot be 9", "expected  true, false, 1 or 2"),
        ("shards = true", "`shards` cannot be true", "expected  a text or a number, as after --shards"),
        ("shards = [1, 2]", "`shards` cannot be [1, 2]", "expected  one value"),
        ("[check]\nmax-findings = {a = 1}", "`check.max-findings` cannot be {a = 1}", "expected  a text or a number"),
        ("shards = [", "configuration file is not valid TOML", "do        --no-config"),
        ("a = " + "[" * 5000, "configuration file is not valid TOML", "do        --no-config"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_of_every_verb(
    place: Path, text: str, what: str, line: str, capsys: Captured
) -> None:
    (place / "rekord.toml").write_text(text)
    for verb in (["check", "x.csv"], ["show", "x.csv"]):
        assert run_command_line(verb) == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"UsageError U692: {what}\n  where     ")
        assert "rekord.toml\n" in printed.splitlines(keepends=True)[1]
        assert f"  {line}" in printed
    assert run_command_line(["check", "x.csv", "--no-config"]) == 1  # not a record file
    capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("[write]\nworkers = 'many'", "--workers"),
        ("[write]\nsplit = {a = 0.5, b = 0.6}", "--split"),
        ("[write]\nshard-size = 'huge'", "--shard-size"),
    ],
)
def test_a_value_that_the_verb_refuses_names_the_file_and_the_key(
    place: Path, text: str, option: str, capsys: Captured
) -> None:
    (place / "rekord.toml").write_text(text)
    assert run_command_line(["write", "x.csv", "out"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"UsageError U605: `{option}` ")
    assert "\n  where     rekord.toml\n" in printed
    assert f"\n  likely    `write.{option[2:]} = " in printed
    assert run_command_line(["write", "x.csv", "out", option, ","]) == 2
    assert "rekord.toml" not in capsys.readouterr().err


UNSAFE = {
    "write": ["map", "fresh", "schema", "images", "masks", "classes", "colours", "label_map", "engine", "limit"],
    "append": ["from", "map", "replace", "fresh", "limit"],
    "delete": ["where", "records", "replace", "fresh"],
    "relabel": ["from", "records", "where", "replace", "fresh"],
    "doctor": ["spec", "schema"],
    "stats": ["html", "metadata"],
    "index": ["output"],
    "query": ["output"],
    "infer": ["output"],
    "export": ["overwrite", "limit", "columns"],
    "rewrite": ["also", "where", "drop", "keep", "fresh"],
    "train": ["fresh", "resume", "limit"],
}


@pytest.mark.parametrize(("verb", "key"), [(verb, key) for verb, keys in UNSAFE.items() for key in keys])
def test_a_file_cannot_run_code_redirect_output_or_leave_rows_out(
    place: Path, verb: str, key: str, capsys: Captured
) -> None:
    (place / "rekord.toml").write_text(f"[{verb}]\n{key} = 'evil.py:run'")
    (place / "evil.py").write_text("open('ran', 'w')\ndef run(row): return row\n")
    assert run_command_line(["write", "x.csv", "out"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"UsageError U692: `{verb}.{key}` cannot be set in a configuration file\n")
    assert sorted(os.listdir(place)) == ["evil.py", "rekord.toml", "x.csv"]


def test_no_option_for_a_file_or_folder_can_be_set() -> None:
    places = ("FILE", "DIR", "OUT", "SOURCE", "PATH", "SQL")
    for name, command in commands().commands.items():
        for key, param in config._params_by_key(command).items():
            if key in config._settable_keys(command):
                assert not any(word in str(param.metavar) for word in places), (name, key)


def test_every_key_that_can_be_set_belongs_to_a_verb_that_exists() -> None:
    verbs = commands().commands
    for verb in config.VERB_KEYS:
        assert verb in verbs
    later = {"label", "background", "encoding"}  # declared by `write` as soon as it has them
    for verb, keys in config.VERB_KEYS.items():
        assert keys - config._params_by_key(verbs[verb]).keys() <= later, verb
    known = {key for command in verbs.values() for key in config._params_by_key(command)}
    assert known >= config.COMMON_KEYS


def test_help_and_explanations_work_beside_a_broken_file(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text("[[[")
    for arguments in (["--help"], ["write", "--help"], ["help", "write"], ["explain", "U692"], ["write", "-V"]):
        assert run_command_line(arguments) == 0, arguments
    capsys.readouterr()


def test_files_of_other_projects_are_not_read(place: Path, capsys: Captured) -> None:
    (place / "pyproject.toml").write_text("not toml, and not ours: rekord [")
    assert shards(written(capsys)) == {"train": (1, "none")}
    (place / "pyproject.toml").write_text("[tool.rekord\n")
    assert run_command_line(["check", "out"]) == 2
    assert capsys.readouterr().err.startswith("UsageError U692: configuration file is not valid TOML\n")


def test_a_file_that_is_not_a_file_or_too_large_is_not_read(place: Path, capsys: Captured) -> None:
    (place / "pyproject.toml").mkdir()
    os.mkfifo(place / "rekord.toml")
    assert shards(written(capsys)) == {"train": (1, "none")}
    (place / "rekord.toml").unlink()
    (place / "rekord.toml").write_text("#" * (2 << 20))
    assert run_command_line(["check", "out"]) == 2
    assert capsys.readouterr().err.startswith("UsageError U692: configuration file is too large\n")


def test_control_characters_of_a_file_do_not_reach_the_terminal(place: Path, capsys: Captured) -> None:
    (place / "rekord.toml").write_text('"a\\u001b[31m" = "\\u001b[2J"')
    assert run_command_line(["check", "x.csv"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["on-bad-row", "max-rejects", "limit", "drop", "map"])
def test_no_file_can_leave_rows_or_columns_out_or_run_code(
    key: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "rekord.toml").write_text(f"[write]\n{key} = 'reject'\n")
    assert run_command_line(["write", "x.csv", "out"]) == 2
    assert capsys.readouterr().err.startswith("UsageError U692: ")

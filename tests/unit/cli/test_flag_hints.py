"""Advice for Python, as the command line prints it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli import flag_hints
from rekord.cli.main import commands, run_command_line
from rekord.errors import error
from rekord.testing import damage, wire


@pytest.fixture
def translate() -> Iterator[Any]:
    def translated(verb: str, text: str) -> str | None:
        flag_hints.set_running_verb(commands(), commands().commands[verb])
        return flag_hints.translate_hint(text)

    yield translated
    flag_hints.set_running_verb(None, None)


@pytest.mark.parametrize(
    ("verb", "text", "shown"),
    [
        ("write", "add the mask, or optional_masks=True", "add the mask, or --optional-masks"),
        ("write", 'shard_size="128MB"', "--shard-size 128MB"),
        ("write", "say how many rows: limit=10_000", "say how many rows: --limit 10000"),
        ("write", 'split={"train": 0.9, "val": 0.1}', "--split train=0.9,val=0.1"),
        ("write", "resize=(224, 224)", "--resize 224x224"),
        ("write", "transforms=rk.transforms.resample(16000)", "--resample 16000"),
        ("write", "rk.transforms.mono(), or declare channels=2", "--mono, or declare channels=2"),
        ("check", "transforms=rk.transforms.resample(16000)", "transforms=rk.transforms.resample(16000)"),
        ("write", 'classes=["cat", "dog"]', "--classes N|FILE"),  # a list has no form on the command line
        ("write", "map= with a function", "--map FILE.py:FUNC with a function"),
        ("write", "images=pathlib.Path(…)", "--images DIR"),
        ("write", "colours: rk.layouts.deeplab(colours={(128, 0, 0): 1, …})", "colours: --colours FILE|LEVELS"),
        ("write", "colours={(0, 0, 0): 0, (255, 255, 255): 1}", "--colours 0=0,255=1"),
        ("write", "run it again with --fresh (fresh=True)", "run it again with --fresh"),
        ("export", "name them with columns=[…] (--columns a,b)", "name them with --columns a,b"),
        ("rewrite", 'cast={"label": "int64", "x": "float32"}', "--cast label=int64 --cast x=float32"),
        ("delete", 'where="label = 3", or records=[("train", 3)]', "--where 'label = 3', or --records FILE"),
        ("delete", 'where=lambda batch: batch["label"] == 3', "--where SQL"),
        ("append", 'out="data/new", or replace=True', "OUT, or --replace"),
        ("balance", "shuffle=False", "--no-shuffle"),
        ("balance", 'sampling_strategy="minority"', "--strategy minority"),
        ("show", 'rk.open(path, kind="sequence")', "--kind sequence"),
        ("split", "rk.split(path, out, folds=5)", "rekord split IN OUT --folds 5"),
        ("export", 'rk.export("data", "data.parquet")', "rekord export data data.parquet"),
    ],
)
def test_parameters_are_named_as_flags_of_the_verb(translate: Any, verb: str, text: str, shown: str) -> None:
    assert translate(verb, text) == shown


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("check", "optional_masks=True"),  # not an option of this verb
        ("write", 'declare format="png", or format=None for any'),  # of an image, not of the dataset
        ("write", 'Image(format="jpeg", quality=95)'),
        ("write", "shuffle=False"),
        ("write", 'rk.write(rows, "data/flowers")'),  # rows exist only in Python
        ("check", "columns={'a': rk.Text()}"),
        ("train", "rekord split IN OUT --split train=0.9,val=0.1 --stratify label"),
        ("train", "rekord rewrite IN OUT --cast label=int64, and train on OUT"),
        ("write", "rekord write --images DIR --masks DIR OUT"),
    ],
)
def test_what_the_verb_does_not_take_stays_as_it_is(translate: Any, verb: str, text: str) -> None:
    assert translate(verb, text) == text


def test_declared_columns_are_options_of_write(translate: Any) -> None:
    assert translate("write", "columns={'a': rk.Text()}") == "--column a=text"
    assert translate("write", "drop=['id', 'b c']") == "--drop 'id,b c'"


def test_an_error_about_an_argument_names_the_option(translate: Any) -> None:
    translate("write", "")
    failure = error(
        "U605", "`split_by` cannot be 'a'", expected="either split_by= or stratify=", do="leave split_by= out"
    )
    shown = flag_hints.translate_error(failure)
    assert (shown.what, shown.expected) == ("`--split-by` cannot be 'a'", "either --split-by or --stratify")
    assert (shown.do, failure.do) == ("leave --split-by out", "leave split_by= out")


def test_outside_of_a_verb_nothing_changes() -> None:
    flag_hints.set_running_verb(None, None)
    failure = error("U605", "`split` cannot be 1", do="split=…")
    assert flag_hints.translate_error(failure) is failure


def test_every_do_of_a_document_is_translated(translate: Any) -> None:
    translate("write", "")
    document = {"findings": [{"do": "limit=3", "found": "limit=3"}], "do": None}
    assert flag_hints.translate_document(document) == {
        "findings": [{"do": "--limit 3", "found": "limit=3"}],
        "do": None,
    }


def _image(path: str, shape: tuple[int, ...]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full(shape, 7, np.uint8)
    pixels[0, 0] = np.arange(pixels[0, 0].size).reshape(pixels[0, 0].shape)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        _image(f"unmasked/images/{number}.png", (8, 8, 3))
        _image(f"coloured/images/{number}.png", (8, 8, 3))
        _image(f"coloured/masks/{number}.png", (8, 8, 3))
    _image("unmasked/masks/1.png", (8, 8))
    Path("table.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n5,x\n")
    Path("papers").mkdir()
    Path("papers/one.zzz").write_text("hello")


@pytest.mark.parametrize(
    ("arguments", "code", "do"),
    [
        (["write", "unmasked", "out", "--classes", "9"], "E363", "--optional-masks"),
        (["write", "coloured", "out", "--classes", "9"], "E334", "--colours FILE"),
        (["write", "table.csv", "out", "--split", "train=80,val=20"], "U605", "--split train=0.8,val=0.2"),
        (["write", "table.csv", "out", "--split", "a=1,b=1,c=1"], "U605", "--split a=0.3333,b=0.3333,c=0.3334"),
        (["split", "data", "out", "--split", "train=80,val=20"], "U605", "--split train=0.8,val=0.2"),
        (["write", "table.csv"], "U601", "rekord write table.csv OUT"),
        (
            ["write", "--images", "coloured/images", "out"],
            "U601",
            "rekord write --images coloured/images --masks DIR out",
        ),
        (["write", "table.csv", "out", "--shards", "0"], "U605", "--shards 1"),
        (["write", "table.csv", "out", "--verify", "fulll"], "U605", "--verify full"),
    ],
)
@pytest.mark.usefixtures("sources")
def test_a_do_on_the_command_line_is_one_of_the_command_line(
    arguments: list[str], code: str, do: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "split":
        assert run_command_line(["write", "table.csv", "data"]) == 0
        capsys.readouterr()
    assert run_command_line([*arguments, "--json"]) in (1, 2)
    printed = capsys.readouterr()
    failure = json.loads(printed.out)["error"]
    assert failure["code"] == code
    assert do in failure["do"]
    assert "=True" not in failure["do"]
    assert "rk." not in failure["do"]
    assert f"  do        {failure['do']}\n" in printed.err


@pytest.mark.usefixtures("sources")
def test_ratios_that_are_proposed_are_accepted() -> None:
    assert run_command_line(["write", "table.csv", "out", "--split", "a=0.3333,b=0.3333,c=0.3334"]) == 0


@pytest.mark.usefixtures("sources")
def test_a_source_of_an_unknown_kind_is_not_answered_with_the_same_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["write", "papers", "OUT", "--json"]) == 2
    failure = json.loads(capsys.readouterr().out)["error"]
    assert failure["code"] == "U621"
    assert failure["do"] != "rekord write papers OUT"


@pytest.mark.parametrize(
    ("path", "do"),
    [
        ("damaged.tfrecord", "`rekord salvage damaged.tfrecord damaged-repaired.tfrecord` keeps the intact records"),
        ("two words", "`rekord salvage 'two words' 'two words-repaired'` keeps the intact records"),
    ],
)
def test_a_command_in_advice_names_the_path_that_is_read(
    path: str, do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    intact = damage.frames(wire.example_bytes({"x": [i]}) for i in range(30))
    file = Path(path) if path.endswith(".tfrecord") else Path(path) / "train.tfrecord"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(damage.corrupt_payload(intact, 4))
    assert run_command_line(["doctor", path]) == 1
    assert do in capsys.readouterr().out
    command = shlex.split(do.split("`")[1])
    assert run_command_line(command[1:]) == 1, "salvage found gaps"
    assert len(list(rk.records(command[3]))) == 29


@pytest.mark.usefixtures("sources")
def test_an_unknown_split_is_answered_with_the_option_that_named_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["write", "table.csv", "data", "--split", "train=0.5,val=0.5"]) == 0
    assert run_command_line(["export", "data", "out.csv", "--split", "vall"]) == 3
    assert "  do        --split val\n" in capsys.readouterr().err
    assert run_command_line(["train", "data", "run", "--val", "other"]) == 3
    assert "  do        --val val\n" in capsys.readouterr().err


@pytest.mark.usefixtures("sources")
def test_an_output_of_an_unknown_format_is_answered_with_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["write", "table.csv", "data"]) == 0
    assert run_command_line(["export", "data", "out.xlsx"]) == 2
    assert "  do        rekord export data out.parquet\n" in capsys.readouterr().err
    assert run_command_line(["export", "data", "out.parquet"]) == 0


@pytest.mark.usefixtures("sources")
def test_a_table_given_as_records_is_answered_with_the_command_that_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["stats", "table.csv"]) == 3
    assert "  do        rekord write table.csv table-new  " in capsys.readouterr().err
    assert run_command_line(["write", "table.csv", "table-new"]) == 0

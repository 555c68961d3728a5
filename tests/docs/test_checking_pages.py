"""The pages about checking and salvaging: codes, fields and exit codes are those that there are."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.codes import CODES
from rekord.health.salvage import Gap

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in ("checking", "salvage")}
CODE = re.compile(r"\b[A-Z]\d{3}\b")


def fields(page: str, heading: str) -> list[str]:
    """The names in the first column of a table."""
    table = re.split(rf"\n\| {heading} \| (?:description )?\|\n", PAGES[page], maxsplit=1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_code_that_a_check_can_find_is_in_the_table_of_families() -> None:
    table = PAGES["checking"].split("\n| finding | codes | severity |\n", 1)[1].split("\n\n", 1)[0]
    named = set(CODE.findall(table))
    for first, last in re.findall(r"([A-Z]\d{3}) to ([A-Z]\d{3})", table):
        named |= {code for code in CODES if first <= code <= last}
    source = Path(rk.__file__).parent
    folders = [*(source / "health" / "check").glob("*.py"), *(source / "framing").glob("*.py")]
    files = [
        *folders,
        source / "faults.py",
        *(source / "health" / name for name in ("scan.py", "dataset_files.py")),
    ]
    said = {code for file in files for code in CODE.findall(file.read_text(encoding="utf-8"))}
    # E are what the codec says where an image is written (they become H76x), D410 where one is decoded (H739), U how
    # something was called.
    expected = {code for code in said if code[0] not in "EU"} - {"D410"}
    assert expected <= named
    # Told of boxes and images by `write`, not by a check.
    assert {code for code in CODES if "H700" <= code < "H800"} - named == {"H733", "H741", "H742", "H743"}


def test_the_fields_of_check_are_those_of_its_document(tmp_path: Path) -> None:
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    document = rk.check(path).to_dict()
    assert sorted(fields("checking", "field")) == sorted(document)
    severities = ["error", "warning", "note"]
    named = [name for name in fields("checking", "field of a finding") if name not in severities]
    assert sorted(named) == sorted(document["findings"][0])


def test_the_fields_of_salvage_are_those_of_its_document(tmp_path: Path) -> None:
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    document = rk.salvage(path, tmp_path / "out.tfrecord").to_dict()
    assert sorted(set(fields("salvage", "field"))) == sorted(document)
    assert sorted(set(fields("salvage", "a gap has"))) == sorted(field.name for field in dataclasses.fields(Gap))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["good.tfrecord"], 0),
        (["note.tfrecord.gz"], 0),
        (["image.tfrecord"], 1),
        (["good.tfrecord", "--frob"], 2),
        (["good.tfrecord", "--schema", "missing.json"], 3),
        (["missing.tfrecord"], 3),
        (["empty"], 3),
    ],
)
def test_the_exit_codes_are_those_of_the_table(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with rk.Writer("good.tfrecord", rk.Schema({"x": rk.Int64()})) as writer:
        writer.write({"x": 1})
    Path("note.tfrecord.gz").write_bytes(Path("good.tfrecord").read_bytes())
    Path("image.tfrecord").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    Path("empty").mkdir()
    assert run_command_line(["check", *arguments]) == code
    assert f"\n| {code} | " in PAGES["checking"]

"""The page about writing: its keys, its flags and its files are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import rekord as rk
from rekord.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "writing.md"
TEXT = PAGE.read_text(encoding="utf-8")

LAYOUTS = {
    "classification": rk.layouts.classification(classes=["a", "b"]),
    "deeplab": rk.layouts.deeplab(),
    "detection": rk.layouts.detection(classes={1: "a"}),
}


def _said_keys(layout: str) -> set[str]:
    (row,) = re.findall(rf"^\| `{layout}` \|.*\| (.*) \|$", TEXT, re.MULTILINE)
    said = set()
    for key in re.findall(r"`(image/[^`]+)`", row):
        stem, _, several = key.partition("{")
        said |= {stem + end for end in several.rstrip("}").split(",")} if several else {key}
    return said


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_keys_of_a_layout_are_those_that_the_page_says(name: str) -> None:
    schema = LAYOUTS[name].schema
    stored = {key for column, feature in schema.items() for key in feature.record_keys(column)}
    assert _said_keys(name) == stored


def test_every_flag_on_the_page_is_one_of_the_command() -> None:
    command = typer.main.get_command(app).commands["write"]  # type: ignore[attr-defined]
    known = {name for param in command.params for name in param.opts}
    said = set(re.findall(r"(--[a-z][a-z-]*)", TEXT))
    assert len(said) > 10
    assert said <= known


def test_what_is_written_is_what_the_page_lists(tmp_path: Path) -> None:
    rows = [{"text": f"row {i}", "label": i % 2} for i in range(40)] + [{"text": 3, "label": 0}]
    schema = rk.Schema({"text": rk.Text(), "label": rk.Label(2)})
    out = tmp_path / "OUT"
    rk.write(rows, out, schema=schema, shards=2, on_bad_row="reject", max_rejects=1, progress=False)
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    tree = TEXT.split("    OUT/\n", 1)[1].split("\n\n", 1)[0]
    listed = {line.split()[0] for line in tree.splitlines()}
    shards = {f"train-0000{i}-of-00002.tfrecord" for i in range(2)}
    expected = {name.replace("<split>", "train") for name in listed if "<shard>" not in name}
    expected |= {f".rekord/index/{shard}.arrow" for shard in shards}
    expected |= {f".rekord/origins/{shard}.origins" for shard in shards}
    assert written == expected - {"label_map.pbtxt", ".rekord/remarks.jsonl"}

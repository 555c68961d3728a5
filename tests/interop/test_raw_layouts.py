"""Raw data in the layouts of public datasets: read as its authors mean it, or refused; never something else."""

from __future__ import annotations

import io
import json
import re
import shlex
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from raw_layouts import BOXES, CORPUS, RawLayout, Reading, Tree
from raw_layouts.exported import EXPORTED, FIXTURES

import rekord as rk
from rekord.cli.main import run_command_line

SPLIT_NAMES = {
    **dict.fromkeys(("training", "tr"), "train"),
    **dict.fromkeys(("valid", "validation", "dev"), "val"),
    **dict.fromkeys(("testing", "te"), "test"),
}
COMMAND = re.compile(r"^ +(?:do|or) +(rekord [a-z]+ .*)$", re.MULTILINE)
CLAIMS = {
    "# images and masks": "deeplab",
    "# images with boxes": "detection",
    "# images in folders as classes": "classification",
    "# images without labels": "images",
}
"""What the comment after a proposed command says of it."""


@dataclass
class Written:
    """What `rekord write` did with a folder."""

    code: int
    document: dict[str, Any]
    messages: str
    out: Path


def write(arguments: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> Written:
    """Run `rekord write` in this process."""
    capsys.readouterr()
    code = run_command_line(["write", *arguments, "--json", "--workers", "1", "--no-config"])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err, printed.err
    return Written(code, json.loads(printed.out) if code == 0 else {}, printed.err, out)


def split_name(name: str) -> str:
    """A split by its common name: train2017 and Training are train."""
    bare = re.sub(r"(?<=[a-z])\d{4}$", "", name.lower())
    return SPLIT_NAMES.get(bare, bare)


class Facts:
    """What a dataset contains, found by reading it."""

    def __init__(self, out: Path) -> None:
        dataset = rk.open(out)
        self.columns = {name: type(feature).__name__ for name, feature in dataset.schema.features.items()}
        self.splits = Counter({split_name(name): len(split) for name, split in dataset.items()})
        self.rows = [row for split in dataset.values() for row in split]
        self.features = dataset.schema.features

    @property
    def layout(self) -> str:
        """The layout, by the types of the columns."""
        types = set(self.columns.values())
        if "Boxes" in types:
            return "detection"
        if "Mask" in types:
            return "deeplab"
        if "Image" in types:
            if "Label" in types:
                return "classification"
            derived = {
                "image",
                "format",
                "filename",
                "height",
                "width",
                "channels",
                "colorspace",
                "source_id",
                "sha256",
            }
            return "images" if set(self.columns) <= derived else "table"
        return "text" if set(self.columns) <= {"text", "filename", "origin"} else "table"

    def counts(self, name: str) -> Counter[str]:
        """Values of a column, classes by name."""
        names = getattr(self.features[name], "names", None)
        values = [row[name] for row in self.rows]
        if names:
            values = [names[int(value)] if value is not None else value for value in values]
        return Counter([value.decode() if isinstance(value, bytes) else str(value) for value in values])

    def label_counts(self) -> list[Counter[str]]:
        """Records by value, for each column that may be the label."""
        return [self.counts(name) for name, kind in self.columns.items() if kind in ("Label", "Text", "Int64")]

    def box_counts(self) -> Counter[str]:
        """Boxes by class."""
        return Counter([str(name) for row in self.rows for name in row["class_names"]])

    def boxes(self) -> Iterable[tuple[Any, ...]]:
        """Boxes in pixels: x0, y0, x1, y1."""
        for row in self.rows:
            width, height = float(row["width"]), float(row["height"])
            for x0, y0, x1, y1 in np.asarray(row["boxes"]).reshape(-1, 4).tolist():
                yield x0 * width, y0 * height, x1 * width, y1 * height

    def mask_ids(self) -> frozenset[str]:
        """Ids of pixels that have a class."""
        ignore = getattr(self.features["mask"], "ignore", None)
        found: set[int] = set()
        for row in self.rows:
            if row["mask"] is not None:
                found |= set(np.unique(np.asarray(Image.open(io.BytesIO(row["mask"])))).tolist())
        return frozenset({str(value) for value in found if value != ignore})


def differences(facts: Facts, document: Mapping[str, Any], truth: Reading) -> list[str]:
    """How a dataset differs from a right reading; nothing if it does not."""
    layout = document.get("layout", facts.layout)
    wrong = []
    if layout not in truth.layout.split("|"):
        wrong.append(f"layout {layout}, not {truth.layout}")
    if "*" in truth.splits:
        if sum(facts.splits.values()) != truth.splits["*"]:
            wrong.append(f"{sum(facts.splits.values())} records, not {truth.splits['*']}")
    elif facts.splits != truth.splits:
        wrong.append(f"splits {dict(facts.splits)}, not {dict(truth.splits)}")
    if wrong:
        return wrong
    if truth.labels is not None and Counter(truth.labels) not in facts.label_counts():
        wrong.append(f"no label with {dict(truth.labels)}, found {[dict(one) for one in facts.label_counts()]}")
    if truth.boxes is not None:
        found = facts.box_counts()
        if "*" in truth.boxes:
            found = Counter({"*": sum(found.values())})
        if found != truth.boxes:
            wrong.append(f"boxes {dict(found)}, not {dict(truth.boxes)}")
        for box in facts.boxes():
            if not any(np.allclose(box, known, atol=1.01) for known in BOXES):
                wrong.append(f"a box at {[round(side, 2) for side in box]}")
                break
    if truth.masks is not None and facts.mask_ids() not in truth.masks:
        wrong.append(f"mask ids {sorted(facts.mask_ids())}, not {[sorted(ids) for ids in truth.masks]}")
    for name, kinds in (truth.columns or {}).items():
        if name == "*":
            if len(facts.columns) != int(kinds):
                wrong.append(f"columns {list(facts.columns)}, not {kinds} of them")
        elif facts.columns.get(name) not in kinds.split("|"):
            wrong.append(f"column {name} is {facts.columns.get(name)}, not {kinds}")
    reported = json.dumps(document.get("unused", []), ensure_ascii=False)
    wrong += [
        f"{name} is not reported as unused"
        for name in truth.unused
        if not any(one in reported for one in name.split("|"))
    ]
    return wrong


def judge(entry: RawLayout, source: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The verdict on an entry: right, refused, or how it is wrong."""
    result = write([str(source), str(out)], out, capsys)
    if result.code == 0:
        facts = Facts(out)
        told = [differences(facts, result.document, truth) for truth in entry.readings]
        if any(not one for one in told):
            return "right"
        return f"silently wrong: {min(told, key=str) if told else [f'{facts.layout}, must be refused']}"
    if not entry.refusal:
        return f"refused, must be read: {result.messages}"
    return judge_refusal(result, out, capsys)


def judge_refusal(result: Written, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Whether a refusal says what was seen, and whether each command that it proposes does what it claims."""
    code = re.search(r"Error ([A-Z]\d{3}):", result.messages)
    for part in ("found ", "do "):
        if not re.search(rf"^ +{part}", result.messages, re.MULTILINE):
            return f"refused without {part.strip()!r}: {result.messages}"
    commands = COMMAND.findall(result.messages)
    # What to do is an edit of the file that it names, or another copy of it.
    is_bad_row = code is not None and (code[1].startswith("E") or code[1] == "X524")
    given = re.search(r"--[a-z]|rk\.|pip install", result.messages.partition(" do ")[2])
    if not commands and not is_bad_row and not given:
        return f"refused without a command: {result.messages}"
    for number, command in enumerate(commands):
        words = shlex.split(command, comments=True)[1:]
        if words[0] != "write":
            continue
        place = out.with_name(f"{out.name}-{number}")
        again = write([str(place) if word == "OUT" else word for word in words[1:]], place, capsys)
        if again.code == 0:
            written = again.document.get("layout", Facts(place).layout)
            claimed = next((layout for claim, layout in CLAIMS.items() if claim in command), written)
            if "--layout" in words:
                claimed = words[words.index("--layout") + 1]
            if claimed != written:
                return f"the command {command!r} wrote the layout {written}"
        elif not re.search(r"Error [A-Z]\d{3}: ", again.messages):
            return f"the command {command!r} failed: {again.messages}"
    return "refused"


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_a_layout_is_read_rightly_or_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = CORPUS[name]
    source = tmp_path / "data"
    source.mkdir()
    inner = entry.build(Tree(source))
    verdict = judge(entry, source / (inner or ""), tmp_path / "out", capsys)
    assert verdict in ("right", "refused"), f"{name} ({entry.source})\n{verdict}"


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_an_export_of_datumaro_is_read_rightly_or_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(tmp_path / "data")
    verdict = judge(EXPORTED[name], tmp_path / "data", tmp_path / "out", capsys)
    assert verdict in ("right", "refused"), f"{name}\n{verdict}"


def test_the_corpus_is_large_and_mostly_after_published_layouts() -> None:
    published = [entry for entry in CORPUS.values() if entry.published]
    assert len(CORPUS) >= 200
    assert len(published) >= 180
    assert len(EXPORTED) >= 30
    assert {path.stem for path in FIXTURES.glob("*.zip")} == set(EXPORTED)
    assert len([entry for entry in CORPUS.values() if not entry.refusal]) >= 50, "a corpus of refusals proves nothing"

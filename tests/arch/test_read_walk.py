"""The walk of a batch from the manifest to a tensor: which modules run, and that the architecture page names them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk

ROOT = Path(__file__).parents[2]
MAX_MODULES = 22
MAX_MODULES_AT_FIRST = 25
"""The first read of a process also parses the schema and resolves `rk.open`."""

TRACE = """
import sys, threading
import torch
import rekord, rekord.dataset.dataset, rekord.feeds.torch.loader
from pathlib import Path

root, modules = Path(rekord.__file__).parent, set()
paths = {}

def note(frame, event, argument):
    path = frame.f_code.co_filename
    if event == "call" and frame.f_code.co_name != "<module>":
        if path not in paths:
            paths[path] = Path(path).is_relative_to(root)
        if paths[path]:
            modules.add(Path(path).relative_to(root).as_posix())

if sys.argv[2] == "opened before":
    rekord.open(sys.argv[1])
threading.setprofile(note)
sys.setprofile(note)
rows = sum(len(batch["x"]) for batch in rekord.open(sys.argv[1])["train"].to_torch(10, shuffle=True))
sys.setprofile(None)
threading.setprofile(None)
assert rows == 100, rows
print(*sorted(modules))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("walk") / "out"
    rows = [{"x": n, "label": "ab"[n % 2], "text": f"t{n}"} for n in range(100)]
    rk.write(rows, out, split="train", progress=False, workers=1)
    return out


def modules_of_a_read(dataset: Path, when: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", TRACE, str(dataset), when], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_a_batch_crosses_the_modules_that_the_architecture_page_names(dataset: Path) -> None:
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "explain" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## Reading: from the manifest to a tensor")[2].partition("These 22 modules")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", walk))
    crossed = modules_of_a_read(dataset, "opened before")
    assert crossed == named
    assert len(crossed) <= MAX_MODULES


def test_the_first_read_of_a_process_crosses_few_modules_more(dataset: Path) -> None:
    pytest.importorskip("torch")
    assert len(modules_of_a_read(dataset, "first")) <= MAX_MODULES_AT_FIRST

"""A source file is opened twice by `rk.write`: once to be inspected, once to be read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

CSV = "x,label,text\n" + "".join(f"{i / 3},{'ab'[i % 2]},t{i}\n" for i in range(20_000))
JSONL = "".join(json.dumps({"a": i, "b": str(i)}) + "\n" for i in range(20_000))
TEXT = "".join(f"line {i}\n" for i in range(20_000))
FILES = {
    "table.csv": CSV.encode(),  # longer than what detection reads of it
    "small.csv": b"a,b\n1,2\n",
    "table.tsv": CSV.replace(",", "\t").encode(),
    "table.csv.gz": gzip.compress(CSV.encode()),
    "really_plain.csv.gz": CSV.encode(),
    "rows.jsonl": JSONL.encode(),
    "array.json": json.dumps([{"a": i} for i in range(10)]).encode(),
    "rows.jsonl.gz": gzip.compress(JSONL.encode()),
    "lines.txt": TEXT.encode(),
}
COUNT = """
import sys
import rekord as rk

source, out, make = sys.argv[1:]
opened = 0

def count(event, arguments):
    global opened
    opened += event == "open" and str(arguments[0]) == source

sys.addaudithook(count)
rows = source if make == "path" else getattr(rk.sources, make)(source)
dataset = rk.write(rows, out, progress=False, workers=1)
print(opened, len(dataset.only_split("a test")))
"""


def count_opens(path: Path, out: Path, make: str = "path") -> tuple[int, int]:
    """(times that the file was opened, records) of a conversion in a process of its own."""
    command = [sys.executable, "-c", COUNT, str(path), str(out), make]
    opened, records = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(opened), int(records)


@pytest.mark.parametrize("name", FILES)
def test_a_path_is_opened_once_to_inspect_it_and_once_to_read_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    opened, records = count_opens(path, tmp_path / "out")
    assert opened == 2
    assert records in (1, 10, 20_000)


@pytest.mark.parametrize(
    ("name", "make"), [("table.csv", "csv"), ("rows.jsonl", "jsonl"), ("lines.txt", "text")]
)
def test_so_is_a_source_that_was_named(name: str, make: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    assert count_opens(path, tmp_path / "out", make) == (2, 20_000)

"""A source file is opened twice by `rk.write`: once to be inspected, once to be read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

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

opened = {}

def count(event, arguments):
    if event == "open" and str(arguments[0]) in opened:
        opened[str(arguments[0])] += 1

sys.addaudithook(count)
for number, one in enumerate(sys.argv[1:]):
    kind, path = one.split(":", 1)
    opened[path] = 0
    rows = getattr(rk.sources, kind)(path) if kind else path
    dataset = rk.write(rows, f"out-{number}", progress=False, workers=1)
    print(opened[path], dataset.records, one)
"""


def test_a_file_is_opened_once_to_inspect_it_and_once_to_read_it(tmp_path: Path) -> None:
    """As a path, and as a source that was named; in a process of its own, since an audit hook stays."""
    asked = []
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
        asked.append(f":{tmp_path / name}")
    # Copies, since what was found out about a file is kept.
    for kind, name in (("csv", "table.csv"), ("jsonl", "rows.jsonl"), ("text", "lines.txt")):
        (tmp_path / f"copy-{name}").write_bytes(FILES[name])
        asked.append(f"{kind}:{tmp_path / f'copy-{name}'}")
    command = [sys.executable, "-c", COUNT, *asked]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    found = [line.split(" ", 2) for line in ran.stdout.splitlines()]
    assert [one for _, _, one in found] == asked
    assert {one: int(opened) for opened, _, one in found} == dict.fromkeys(asked, 2)
    assert [int(records) for _, records, _ in found] == [20_000, 1, *[20_000] * 4, 10, *[20_000] * 5]

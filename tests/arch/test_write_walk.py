"""The way of a CSV row to the published file, as it runs: the modules it crosses, and that the docs name them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_MODULES = 50
TRACE = """
import json, sys, threading
from pathlib import Path
import rekord as rk
import rekord.verbs.write

package = str(Path(rk.__file__).parent)
Path("people.csv").write_text("x,label,text\\n" + "".join(f"{i},{'ab'[i % 2]},t{i}\\n" for i in range(100)))
crossed = []

def note(frame, event, argument):
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(package) and frame.f_code.co_name != "<module>":
        name = Path(path).relative_to(package).as_posix()
        if name not in crossed:
            crossed.append(name)

threading.setprofile(note)
sys.setprofile(note)
rk.write("people.csv", "out", progress=False, workers=1)
sys.setprofile(None)
print(json.dumps(crossed))
"""


def trace_write(folder: Path) -> list[str]:
    """The modules in which something ran while a CSV was written, in a process of its own."""
    command = [sys.executable, "-c", TRACE]
    ran = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return list(json.loads(ran.stdout))


def test_a_row_of_a_csv_crosses_few_modules_and_the_docs_name_those_that_do_something(tmp_path: Path) -> None:
    crossed = trace_write(tmp_path)
    assert len(crossed) <= MOST_MODULES, crossed
    page = (ROOT / "docs" / "explain" / "architecture.md").read_text()
    walk = page[page.index("## Writing: from a CSV row") : page.index("## Reading: from the manifest")]
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", walk))
    missing = {name for name in named if name not in crossed}
    assert not missing, f"the page names {missing}, which no row crosses"
    assert named >= {name for name in crossed if name.startswith(("conversion/", "sources/", "verbs/"))}

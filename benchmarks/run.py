"""`make bench`: rekord beside its peers, in one run.

    run.py [--only GROUP] [--quick] [--repeats N] [--to FILE]

A whole run writes RESULTS.md; one that is quick or only of some groups just prints its tables, and writes them to
another file where one is named.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from feed_groups import GROUPS as FEEDING
from groups import GROUPS as READING
from health_groups import GROUPS as HEALTH
from measure import Settings
from report import Table, as_markdown, for_terminal, load_line
from shape_groups import GROUPS as SHAPING
from write_groups import GROUPS as WRITING
from write_groups import MOST_REPEATS

GROUPS = READING | WRITING | HEALTH | FEEDING | SHAPING
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="rekord beside its peers, in one run")
    parser.add_argument("--only", action="append", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="small files, two repeats: a smoke run")
    parser.add_argument("--repeats", type=int, metavar="N", help="timings of each contender (5)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the tables of this run there")
    arguments = parser.parse_args()
    repeats = arguments.repeats or (2 if arguments.quick else 5)
    if arguments.quick:
        settings = Settings(repeats=repeats, min_seconds=0.05, max_seconds=0.3, shrink=20)
    else:
        settings = Settings(repeats=repeats)

    begin = time.monotonic()
    versions: dict[str, str] = {}
    tables: list[Table] = []
    loads: list[float] = []
    for name in arguments.only or GROUPS:
        for table in GROUPS[name](settings, versions):
            print(for_terminal(table), flush=True)
            tables.append(table)
            loads.append(os.getloadavg()[0])
    minutes = (time.monotonic() - begin) / 60
    place = arguments.to or (None if arguments.quick or arguments.only else RESULTS)
    if place is None:
        print(f"{minutes:.1f} minutes; RESULTS.md is written by a whole run only")
        return
    line = (
        f"median of {repeats} timings after a warm-up, each of whole passes for at least "
        f"{settings.min_seconds} s, cut off at {settings.max_seconds} s (of whole conversions: of at most "
        f"{MOST_REPEATS}); the run took {minutes:.0f} minutes"
    )
    if arguments.only:
        line += f"; only of the groups {', '.join(arguments.only)}"
    place.write_text(as_markdown(tables, versions, [line, load_line(loads)]))
    print(f"{minutes:.1f} minutes; written to {place}")


if __name__ == "__main__":
    main()

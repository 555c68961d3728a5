"""`make bench`: measure rekord next to its peers and store the results; write RESULTS.md, chart and README from them.

run.py [--only GROUP …] [--quick] [--repeats N] [--no-save]
run.py --render | --stale
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from chart import chart_bars, draw_chart, readme_table
from groups import GROUPS
from measure import Settings
from report import LIMITS, for_terminal, render
from results import Group, StampTimer, load, save, stale

RESULTS = Path(__file__).parent / "RESULTS.md"
README = Path(__file__).parents[1] / "README.md"
CHART = Path(__file__).parents[1] / "docs" / "images" / "speed.svg"

_SPEEDS = re.compile(r"(<!-- speed -->).*(<!-- end of speed -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure rekord next to its peers.")
    parser.add_argument(
        "--only", nargs="+", action="extend", choices=GROUPS, metavar="GROUP", help=f"of {', '.join(GROUPS)}"
    )
    parser.add_argument("--quick", action="store_true", help="smoke run: small files, two repeats, nothing saved")
    parser.add_argument("--repeats", type=int, metavar="N", help="timings of each contender (5)")
    parser.add_argument("--no-save", action="store_true", help="only print the tables")
    parser.add_argument(
        "--render", action="store_true", help="write RESULTS.md, chart and README from stored results"
    )
    parser.add_argument("--stale", action="store_true", help="list groups that were measured on other source code")
    arguments = parser.parse_args()
    if arguments.stale:
        print("\n".join(stale(load(GROUPS))))
        return
    if not arguments.render:
        measure(arguments.only or list(GROUPS), _settings(arguments), save_them=not _is_trial(arguments))
    if not _is_trial(arguments):
        write_files()


def measure(names: list[str], settings: Settings, *, save_them: bool) -> None:
    """Measure groups one after the other; a group is saved as soon as it is complete."""
    begin = time.monotonic()
    for name in names:
        timer = StampTimer(settings.repeats)
        tables = []
        for table in GROUPS[name](settings):
            print(for_terminal(table), flush=True)
            tables.append(table)
        group = Group(name=name, stamp=timer.stamp(), tables=tables)
        if save_them:
            save(group)
        print(f"{name}: {group.stamp.seconds:.0f} s\n", flush=True)
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes")


def write_files() -> None:
    """RESULTS.md, the chart and the table in the README, from the stored results."""
    groups = load(GROUPS)
    RESULTS.write_text(render(groups, LIMITS.read_text(encoding="utf-8")), encoding="utf-8")
    bars = chart_bars(groups)
    CHART.write_text(draw_chart(bars), encoding="utf-8")
    README.write_text(with_speeds(README.read_text(encoding="utf-8"), readme_table(bars)), encoding="utf-8")


def with_speeds(readme: str, table: str) -> str:
    """The README with this table between the comments that mark its place."""
    replaced, count = _SPEEDS.subn(lambda found: f"{found[1]}\n\n{table}\n\n{found[2]}", readme)
    if count != 1:
        raise ValueError("README.md has no place for the speeds: <!-- speed --> and <!-- end of speed -->")
    return replaced


def _settings(arguments: argparse.Namespace) -> Settings:
    if arguments.quick:
        return Settings(repeats=arguments.repeats or 2, min_seconds=0.05, max_seconds=0.3, shrink=20)
    return Settings(repeats=arguments.repeats or 5)


def _is_trial(arguments: argparse.Namespace) -> bool:
    return bool(arguments.quick or arguments.no_save)


if __name__ == "__main__":
    main()

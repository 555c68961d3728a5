"""The benchmark's report and chart are current, and say what the stored results say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the benchmark, which is not a package."""
    names = ("measure", "results", "floors", "report", "chart", "workloads", "environments", "run")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import chart
    import floors
    import measure
    import report
    import results
    import run

    yield SimpleNamespace(chart=chart, floors=floors, measure=measure, report=report, results=results, run=run)
    for name in names:
        sys.modules.pop(name, None)


def _group(bench: Any, rates: dict[str, list[float]], *, title: str = "Decode, tabular", **stamp: Any) -> Any:
    """A group with one table of the given rates in records/s."""
    results = [
        bench.measure.Result(
            label=label,
            samples=[bench.measure.Sample(rate, 1.0, 2.0) for rate in found],
            version=f"{label.split(',')[0]} 1.0",
        )
        for label, found in rates.items()
    ]
    table = bench.results.Table(title=title, unit="records/s", results=results, reference="TensorFlow, 1 core")
    fields = {
        "commit": "0123456789abcdef",
        "dirty": False,
        "source": "a-b",
        "measured": "2026-11-18 12:00 UTC",
        "seconds": 3.5,
        "repeats": 3,
        "load": (0.5, 1.5),
        "machine": "CPU, 2 cores",
        "python": "3.11",
    }
    return bench.results.Group(name="decode", stamp=bench.results.Stamp(**(fields | stamp)), tables=[table])


RATES = {"rekord, 1 thread": [1200.0, 1300.0, 1400.0], "TensorFlow, 1 core": [100.0, 100.0, 100.0]}
DECODE = "Decode tabular, 1 thread, batches of 1024"


def _stored_groups(bench: Any) -> list[Any]:
    names = sorted(path.stem for path in bench.results.FOLDER.glob("*.json"))
    return bench.results.load(names)


def test_the_report_the_chart_and_the_readme_are_those_of_the_stored_results(bench: Any) -> None:
    from groups import GROUPS

    stored = bench.results.load(GROUPS)
    if not stored:
        pytest.skip("nothing is stored before the first `make bench`")
    limits = bench.report.LIMITS.read_text(encoding="utf-8")
    assert (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8") == bench.report.render(stored, limits)
    bars = bench.chart.chart_bars(stored)
    assert (ROOT / "docs" / "images" / "speed.svg").read_text(encoding="utf-8") == bench.chart.draw_chart(bars)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == bench.run.with_speeds(readme, bench.chart.readme_table(bars))


def test_every_floor_of_a_stored_group_is_measured_on_a_table_and_contender_that_exist(bench: Any) -> None:
    tables = {table.title: table for group in _stored_groups(bench) for table in group.tables}
    unknown = [
        floor.work
        for floor in bench.floors.FLOORS
        if floor.table in tables and tables[floor.table].result(floor.contender) is None
    ]
    assert unknown == []


def test_floors_have_distinct_names_which_limits_and_chart_use(bench: Any) -> None:
    works = [floor.work for floor in bench.floors.FLOORS]
    assert len(works) == len(set(works))
    explained = bench.report.read_limits(bench.report.LIMITS.read_text(encoding="utf-8"))
    assert set(explained) <= set(works)
    assert set(bench.chart._BARS) <= set(works)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [([1050.0, 1100.0 - 1, 5000.0], "MISS"), ([1100.0, 1100.0, 1100.0], "pass"), ([1600.0] * 3, "goal reached")],
)
def test_a_floor_is_the_median_ratio_of_the_rounds(bench: Any, ours: list[float], verdict: str) -> None:
    group = _group(bench, RATES | {"rekord, 1 thread": ours})
    (floor,) = [floor for floor in bench.floors.FLOORS if floor.work == DECODE]
    assert floor.evaluate({"Decode, tabular": group.tables[0]})[0] == verdict


def test_a_floor_without_a_measurement_is_not_measured(bench: Any) -> None:
    (floor,) = [floor for floor in bench.floors.FLOORS if floor.work == DECODE]
    assert floor.evaluate({}) == ("not measured", None)
    group = _group(bench, RATES)
    group.tables[0].results[1].failure = "not installable here"
    assert floor.evaluate({"Decode, tabular": group.tables[0]}) == ("not measured", None)


def test_a_floor_compares_with_the_fastest_peer(bench: Any) -> None:
    rates = {"rekord": [800.0], "TensorFlow, 1 core": [80.0], "TensorFlow, AUTOTUNE": [160.0]}
    group = _group(bench, rates, title="Decode, tabular, batches of 128")
    work = "Decode tabular, default settings, batches of 128"
    (floor,) = [floor for floor in bench.floors.FLOORS if floor.work == work]
    verdict, measured = floor.evaluate({group.tables[0].title: group.tables[0]})
    assert (verdict, measured.value, measured.against) == ("MISS", 5.0, "TensorFlow, AUTOTUNE")


def test_results_survive_storing(bench: Any, tmp_path: Path) -> None:
    group = _group(bench, RATES)
    bench.results.save(group, tmp_path)
    assert bench.results.load(["decode", "never_measured"], tmp_path) == [group]


def test_the_report_has_a_verdict_and_a_stamp_for_each_table(bench: Any) -> None:
    text = bench.report.render([_group(bench, RATES)], f"## {DECODE}\nMemory bandwidth.\n")
    assert f"| {DECODE} | 13 × | 13 | ≥ 11 × | ≥ 16 × | TensorFlow, 1 core | pass |" in text
    assert "| rekord, 1 thread | 1.3 k | 1.2 k – 1.4 k | 13.00 | 13.00 |" in text
    assert "at commit 0123456789; 3 repeats; load 0.5 before, 1.5 after." in text
    assert "Memory bandwidth." not in text  # the floor is reached


def test_the_report_explains_missed_floors_and_marks_uncommitted_changes_and_load(bench: Any) -> None:
    slow = RATES | {"rekord, 1 thread": [500.0]}
    group = _group(bench, slow, dirty=True, load=(0.2, 7.0))
    text = bench.report.render([group], f"## {DECODE}\nMemory bandwidth.\n")
    assert f"**{DECODE}.** Memory bandwidth." in text
    assert "0123456789 with uncommitted changes" in text
    assert "**Other work ran at the same time** as decode" in text


def test_the_chart_is_accessible_and_shows_slower_results_as_such(bench: Any) -> None:
    bars = [bench.chart.Bar("Decode <a> table", "TensorFlow, 1 core", 12.34), bench.chart.Bar("Slow", "Peer", 0.8)]
    image = bench.chart.draw_chart(bars)
    assert 'role="img" aria-labelledby="title desc"' in image
    assert "Decode &lt;a&gt; table: 12.3 × TensorFlow, 1 core; Slow: 0.8 × Peer." in image
    assert image.count('class="bar"') == image.count('class="slower"') == 1
    assert "http" not in image.replace("http://www.w3.org/2000/svg", "")


def test_the_readme_shows_the_chart_and_its_main_ratios(bench: Any) -> None:
    table = bench.chart.readme_table(bench.chart.chart_bars([_group(bench, RATES)]))
    readme = bench.run.with_speeds("before <!-- speed --> old <!-- end of speed --> after", table)
    assert readme.startswith("before <!-- speed -->\n\n![")
    assert "](docs/images/speed.svg)" in readme
    assert "| Decode a table, one thread | TensorFlow, 1 core | 13.0 |" in readme
    assert "old" not in readme
    with pytest.raises(ValueError, match="no place for the speeds"):
        bench.run.with_speeds("no comments", table)


def test_the_readme_has_a_place_for_the_speeds(bench: Any) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert bench.run.with_speeds(readme, "a table") != readme


def test_the_chart_and_the_readme_name_floors_that_exist(bench: Any) -> None:
    assert set(bench.chart._README) <= set(bench.chart._BARS)

"""Windows of time series: compared with a simple implementation, whatever the parts, runs and workers are."""

import datetime
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_conversions import read_tree

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.conversion.windows import merge, sort
from rekord.errors import RekordError
from rekord.transforms import window

COLUMNS = ("t", "device", "x", "activity")


def make_rows(seed: int = 1, count: int = 400) -> list[tuple[int, str, int, str]]:
    """Rows of three devices in random order, each with a pause of 50."""
    rng = random.Random(seed)
    clocks: dict[str, int] = defaultdict(int)
    rows = []
    for i in range(count):
        device = rng.choice(["a", "b", "c10"])
        clocks[device] += 50 if clocks[device] == 40 else rng.choice([1, 2])
        rows.append((clocks[device], device, i, rng.choice(["walk", "run"])))
    rng.shuffle(rows)
    return rows


def write_csv(folder: Path, rows: list[Any], files: int = 3) -> Path:
    folder.mkdir(parents=True)
    for number in range(files):
        lines = [",".join(COLUMNS), *[",".join(map(str, row)) for row in rows[number::files]]]
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return folder


def expected_windows(rows: list[Any], size: int, stride: int, horizon: int, gap: float) -> list[Any]:
    """The same windows, made one by one."""
    found = []
    for device in sorted({row[1] for row in rows}):
        series: list[list[Any]] = []
        for row in sorted(row for row in rows if row[1] == device):
            if not series or row[0] - series[-1][-1][0] > gap:
                series.append([])
            series[-1].append(row)
        for one in series:
            for begin in range(0, len(one) - size - horizon + 1, stride):
                inside = one[begin : begin + size]
                after = one[begin + size : begin + size + horizon]
                found.append((device, inside[0][0], [row[2] for row in inside], inside[-1][3], [r[2] for r in after]))
    return found


def read_windows(split: rk.Split) -> list[Any]:
    return [
        (
            row["device"],
            int(row["t"]),
            row["x"].tolist(),
            row["activity"],
            row["x_target"].tolist() if "x_target" in row else [],
        )
        for row in split
    ]


@pytest.mark.parametrize(
    ("size", "stride", "horizon", "gap", "run_bytes", "merge_rows", "workers"),
    [
        (8, 3, 0, 9, 1 << 26, 1 << 16, 1),
        (8, 3, 0, 9, 900, 64, 1),
        (5, 5, 2, 1e9, 900, 64, 2),
        (4, 9, 1, 1, 900, 64, 1),
    ],
)
def test_windows_are_those_of_a_simple_loop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    stride: int,
    horizon: int,
    gap: float,
    run_bytes: int,
    merge_rows: int,
    workers: int,
) -> None:
    monkeypatch.setattr(sort, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(merge, "MERGE_ROWS", merge_rows)
    rows = make_rows()
    made = window(
        size,
        stride,
        by="device",
        time="t",
        label="activity",
        targets="x" if horizon else (),
        horizon=horizon,
        max_gap=gap,
    )
    source = write_csv(tmp_path / "csv", rows)
    dataset = rk.write(source, tmp_path / "out", transforms=made, workers=workers, progress=False)
    assert read_windows(dataset["train"]) == expected_windows(rows, size, stride, horizon, gap)
    assert [one.name for one in tmp_path.iterdir() if "series" in one.name] == []


def test_the_bytes_depend_on_neither_workers_nor_the_size_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_csv(tmp_path / "csv", make_rows())
    options: dict[str, Any] = {
        "transforms": window(6, 2, by="device", time="t", split_by_time={"train": 0.7, "val": 0.3}),
        "shuffle": True,
        "shards": 2,
        "progress": False,
    }
    rk.write(source, tmp_path / "one" / "data", workers=1, **options)
    monkeypatch.setattr(sort, "RUN_BYTES", 500)
    monkeypatch.setattr(merge, "MERGE_ROWS", 16)
    rk.write(source, tmp_path / "two" / "data", workers=2, **options)
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")


@pytest.mark.parametrize("borders", [{"train": 0.6, "val": 0.4}, {"train": None, "val": 120}])
def test_splits_by_time_share_no_row_and_come_one_after_the_other(tmp_path: Path, borders: dict[str, Any]) -> None:
    rows = make_rows()
    source = write_csv(tmp_path / "csv", rows)
    made = window(8, 2, by="device", time="t", targets="x", horizon=2, split_by_time=borders)
    dataset = rk.write(source, tmp_path / "out", transforms=made, progress=False)
    used: dict[str, set[int]] = {}
    for name, split in dataset.items():
        used[name] = {int(x) for row in split for x in [*row["x"], *row["x_target"]]}
    time_of = {row[2]: row[0] for row in rows}
    assert used["train"]
    assert used["val"]
    assert not used["train"] & used["val"]
    border = min(time_of[x] for x in used["val"])
    assert max(time_of[x] for x in used["train"]) < border
    if borders["train"] is None:
        assert border >= 120
    else:  # the exact share of rows lies before the border
        before = sorted(time_of.values())[round(0.6 * len(rows))]
        assert max(time_of[x] for x in used["train"]) < before <= border


@pytest.mark.parametrize("by", ["device", ["device", "activity"], None])
def test_ratios_put_whole_series_into_splits(tmp_path: Path, by: Any) -> None:
    rows = [(i, f"device {i % 17}", i, f"{i % 3}") for i in range(900)]
    source = write_csv(tmp_path / "csv", rows, files=30)
    options = {"split": {"train": 0.6, "val": 0.4}, "progress": False}
    dataset = rk.write(source, tmp_path / "out", transforms=window(4, 1, by=by, time="t"), **options)
    assert len(dataset["train"])
    assert len(dataset["val"])
    used = {name: {int(x) for row in split for x in row["x"]} for name, split in dataset.items()}
    assert not used["train"] & used["val"]
    if by == "device":
        assert not {row["device"] for row in dataset["train"]} & {row["device"] for row in dataset["val"]}


@pytest.mark.parametrize("options", [{"split_by": "activity"}, {"stratify": "activity"}, {"key": "x"}])
def test_a_split_that_would_share_rows_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write_csv(tmp_path / "csv", make_rows())
    made = window(8, 2, by="device", time="t", label="activity")
    with pytest.raises(RekordError) as caught:
        rk.write(source, tmp_path / "out", transforms=made, split={"a": 0.5, "b": 0.5}, progress=False, **options)
    assert caught.value.code == "U605"
    assert "overlap" in str(caught.value)


def test_bad_rows_are_listed_and_break_their_series(tmp_path: Path) -> None:
    lines = ["t,x,y", *[f"{t},{t},{t / 2}" for t in range(40)]]
    lines[6] = "5,5,"  # no value
    lines[16] = "15,900,7.5"  # out of range
    lines[26] = "24,25,12.5"  # the time of the row before
    lines[36] = ",35,1"  # no time: nobody knows where it belongs
    (tmp_path / "s.csv").write_text("\n".join(lines) + "\n")
    made = window(5, 1, time="t", ranges={"x": (None, 100)})
    rejecting: dict[str, Any] = {"on_bad_row": "reject", "max_rejects": 10, "progress": False}
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=made, **rejecting)
    found = [json.loads(line) for line in (tmp_path / "out" / ".rekord" / "rejects.jsonl").read_text().splitlines()]
    assert [(one["code"], one["origin"]["line"], one["origin"]["feature"]) for one in found] == [
        ("E349", 7, "y"),
        ("E351", 17, "x"),
        ("E349", 37, "t"),
        ("E352", 27, "t"),
    ]
    assert all(one["origin"]["path"].endswith("s.csv") for one in found)
    used = [row["x"].tolist() for row in dataset["train"]]
    assert not any({4, 6} <= set(one) or {14, 16} <= set(one) or {24, 26} <= set(one) for one in used)
    assert any({34, 36} <= set(one) for one in used)
    with pytest.raises(RekordError) as caught:
        rk.write(tmp_path / "s.csv", tmp_path / "stop", transforms=made, progress=False)
    assert (caught.value.code, caught.value.location.line) == ("E349", 7)
    assert not (tmp_path / "stop").exists()


def test_rows_out_of_order_are_sorted_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = [0, 1, 2, 5, 4, 3, 6, 7]
    (tmp_path / "s.csv").write_text("t,x\n" + "".join(f"{t},{t}\n" for t in times))
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=window(8, time="t"))
    assert dataset["train"][0]["x"].tolist() == list(range(8))
    assert "note: rows out of order: 2, sorted" in capsys.readouterr().err
    with pytest.raises(RekordError) as caught:
        rk.write(tmp_path / "s.csv", tmp_path / "no", transforms=window(2, time="t", monotonic=True), progress=False)
    assert (caught.value.code, caught.value.location.feature) == ("E352", "t")


def test_durations_select_rows_by_their_timestamps(tmp_path: Path) -> None:
    begin = datetime.datetime(2024, 1, 1)
    times = [begin + datetime.timedelta(milliseconds=100 * i) for i in range(100)]
    del times[40:60]
    table = pa.table({"t": pa.array(times, pa.timestamp("ms")), "x": np.arange(80.0)})
    pq.write_table(table, tmp_path / "s.parquet")
    made = window("1s", "500ms", time="t")
    dataset = rk.write(tmp_path / "s.parquet", tmp_path / "out", transforms=made, progress=False)
    rows = [(np.datetime64(row["t"], "ms"), row["x"].tolist()) for row in dataset["train"]]
    assert rows[0] == (np.datetime64(begin, "ms"), list(range(10)))
    assert rows[1][1] == list(range(5, 15))
    assert [len(x) for _, x in rows].count(5) == 2  # half of them lie in the pause
    assert rows[-1][1] == list(range(70, 80))
    whole = rk.write(
        tmp_path / "s.parquet",
        tmp_path / "gap",
        transforms=window("1s", "500ms", time="t", max_gap="1s"),
        progress=False,
    )
    assert {len(row["x"]) for row in whole["train"]} == {10}


def test_texts_are_read_as_times_and_others_reported(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("t,x\n2024-01-01T00:00:02Z,2\n2024-01-01T00:00:01Z,1\nyesterday,3\n")
    made = window(2, time="t")
    with pytest.raises(RekordError) as caught:
        rk.write(tmp_path / "s.csv", tmp_path / "stop", transforms=made, progress=False)
    assert (caught.value.code, caught.value.location.line, caught.value.found) == ("E349", 4, "'yesterday'")
    rejecting: dict[str, Any] = {"on_bad_row": "reject", "max_rejects": 1, "progress": False}
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=made, **rejecting)
    assert dataset["train"][0]["x"].tolist() == [1, 2]
    assert dataset["train"][0]["t"] == datetime.datetime(2024, 1, 1, 0, 0, 1)


def test_incomplete_windows_are_padded_and_have_a_length(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("x,name\n" + "".join(f"{i},n{i}\n" for i in range(1, 8)))
    made = window(4, incomplete="pad")
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=made, progress=False)
    assert [(row["x"].tolist(), row["length"]) for row in dataset["train"]] == [([1, 2, 3, 4], 4), ([5, 6, 7, 0], 3)]
    assert list(dataset["train"][1]["name"]) == ["n5", "n6", "n7", ""]


def test_steps_are_those_of_a_sequence_example(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("dev,x\n" + "".join(f"d,{i}\n" for i in range(6)))
    made = window(3, by="dev", steps=True)
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=made, progress=False)
    assert dataset.schema.is_sequence
    assert [row["x"].tolist() for row in dataset["train"]] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("rule", "label"), [("first", [1, 0, 3]), ("last", [2, 0, 3]), ("majority", [2, 0, 3]), ("any", [1, 0, 1])]
)
def test_a_label_is_one_value_per_window(tmp_path: Path, rule: Any, label: list[int]) -> None:
    values = [1, 2, 2, 0, 0, 0, 3, 1, 3]
    (tmp_path / "s.csv").write_text("x,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(values)))
    made = window(3, label="y", label_from=rule)
    dataset = rk.write(tmp_path / "s.csv", tmp_path / "out", transforms=made, progress=False)
    assert [int(row["y"]) for row in dataset["train"]] == label


def test_rows_in_memory_are_identified_by_their_values(tmp_path: Path) -> None:
    made = window(2)
    rk.write(pa.table({"x": [1, 2, 3, 4]}), tmp_path / "out", transforms=made, progress=False)
    with pytest.raises(RekordError) as caught:
        rk.write(pa.table({"x": [1, 2, 3, 5]}), tmp_path / "out", transforms=made, progress=False)
    assert caught.value.code == "U618"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"by": "devise"}, "S155"),
        ({"size": 1000}, "X563"),
        ({"size": "10s", "time": "t"}, "U605"),  # a number, and not a timestamp
        ({"targets": "x"}, "U605"),
        ({"time": "t", "by": "t"}, "S155"),
        ({"ranges": {"activity": (0, 1)}}, "S155"),
    ],
)
def test_what_cannot_be_windows_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], code: str
) -> None:
    source = write_csv(tmp_path / "csv", make_rows(count=40))

    def write() -> None:
        rk.write(source, tmp_path / "out", transforms=window(**{"size": 4, **options}), progress=False)

    with pytest.raises(RekordError) as caught:
        write()
    assert caught.value.code == code
    assert sorted(one.name for one in tmp_path.iterdir()) == ["csv"]


def test_a_window_is_not_a_transform_for_reading(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "csv", make_rows(count=40))
    dataset = rk.write(source, tmp_path / "out", progress=False)
    with pytest.raises(RekordError) as caught:
        dataset["train"].transform(window(4))
    assert caught.value.code == "U605"


def test_a_window_is_traced_to_its_first_row(tmp_path: Path) -> None:
    rows = make_rows()
    source = write_csv(tmp_path / "csv", rows)
    made = window(5, by="device", time="t")
    dataset = rk.write(source, tmp_path / "out", transforms=made, shuffle=True, progress=False)
    for number in (0, 7, len(dataset["train"]) - 1):
        origin = rk.trace(tmp_path / "out", number)
        line = (source / origin.path).read_text().splitlines()[origin.line - 1]
        assert int(line.split(",")[2]) == dataset["train"][number]["x"][0]


def test_one_huge_group_is_merged_in_small_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "RUN_BYTES", 2000)
    monkeypatch.setattr(merge, "MERGE_ROWS", 256)
    most = 0
    join = merge.RunMerge._join

    def measured(self: Any, pieces: Any) -> Any:
        nonlocal most
        most = max(most, sum(end - begin for _, begin, end in pieces))
        return join(self, pieces)

    monkeypatch.setattr(merge.RunMerge, "_join", measured)
    order = np.random.default_rng(0).permutation(20_000)
    dataset = rk.write({"t": order, "x": order}, tmp_path / "out", transforms=window(100, time="t"), progress=False)
    assert dataset["train"][150]["x"].tolist() == list(range(15_000, 15_100))
    assert most <= 20_000 // 2


@pytest.mark.parametrize(("size", "do"), [("0", "--window 1"), ("5m", "--window 10s")])
def test_the_command_line_names_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str, do: str
) -> None:
    source = write_csv(tmp_path / "csv", make_rows(count=40))
    arguments = ["write", str(source), str(tmp_path / "out"), "--window", size, "--by", "device", "--time", "t"]
    assert run_command_line(arguments) == 2
    shown = capsys.readouterr().err
    assert "UsageError U605: `--window` cannot be " in shown
    assert f"do        {do}\n" in shown


def test_pauses_that_leave_no_window_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t,x\n" + "".join(f"2024-01-01T00:{i:02d}:00,{i}\n" for i in range(20)))
    with pytest.raises(RekordError) as caught:
        rk.write(path, tmp_path / "out", transforms=window(5, time="t", max_gap="30s"), progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X563", str(tmp_path))
    assert caught.value.likely == "19 pauses longer than max_gap: a series ends at each"


def test_the_column_with_the_time_is_not_reported_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t,u,x\n" + "".join(f"2024-01-01T00:{i:02d}:00,2024-01-01,{i}\n" for i in range(20)))
    assert run_command_line(["write", str(path), str(tmp_path / "out"), "--window", "5", "--time", "t"]) == 0
    shown = capsys.readouterr().err
    assert "`u` is text" in shown
    assert "`t` is text" not in shown

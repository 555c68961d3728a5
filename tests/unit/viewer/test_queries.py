"""Queries run in a process of their own, which bounds what they take and ends with them."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sample_conversions import PeakMemory
from viewer_client import ViewerClient, open_viewer

from rekord.testing import example_bytes, frames

pytest.importorskip("duckdb")

RECORDS = 200
ENDLESS = "select count(*) from range(100000000000) a, range(1000000) b where a.range * b.range % 7 = 3"
HUGE = "select repeat('x', 10000000) from records"
MOST_BYTES = 500_000_000

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and needs a limit of memory")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"a": [i]}) for i in range(RECORDS)]))
    return path


@pytest.fixture
def command(path):
    """The command line, and what talks to it."""
    arguments = [sys.executable, "-m", "rekord", "view", str(path), "--no-browser", "-q"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        viewer = ViewerClient(process.stdout.readline().strip())
        viewer.wait()
        yield process, viewer
        process.kill()


def query(viewer, sql, **more):
    return viewer.post("sql", {"query": sql, **more})


def children(process):
    found = []
    for thread in os.listdir(f"/proc/{process}/task"):
        with suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:  # a thread may have ended
            found += [int(child) for child in file.read().split()]
    return [child for child in found if "rekord.viewer.query_process" in arguments_of(child)]


def arguments_of(process):
    try:
        with open(f"/proc/{process}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def is_zombie(process):
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def wait_until(is_true):
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@on_linux
def test_texts_that_a_query_makes_stay_within_the_memory_of_the_viewer(command):
    process, viewer = command
    with PeakMemory(process.pid) as watched:
        answers = [
            query(viewer, HUGE),
            query(viewer, f"select sum(length(t)) from ({HUGE.replace(' from', ' as t from')} order by t)"),
            viewer.get("rows", sql="list_sum(range(50000000 + a)) = 3"),
        ]
        assert query(viewer, "select count(*) from records").json["rows"] == [[RECORDS]]
    assert [answer.status for answer in answers] == [400] * 3
    for answer in answers:
        shown = answer.json["error"]
        assert shown["code"] == "U682"
        assert shown["what"] == "query needs more memory than it has in the viewer"
        assert "rekord query" in shown["do"]
    assert 20_000_000 < watched.peak_bytes < MOST_BYTES


def test_a_query_that_never_ends_is_ended_and_the_next_one_runs(path, monkeypatch):
    monkeypatch.setattr("rekord.viewer.queries.QueryRunner.__init__.__defaults__", (0.5,))
    with open_viewer(path) as viewer:
        viewer.wait()
        answer = query(viewer, ENDLESS)
        assert (answer.status, answer.json["error"]["code"]) == (504, "U682")
        assert (answer.what, answer.json["error"]["do"]) == ("query was over its time limit", "rekord query PATH SQL")
        assert viewer.get("rows", sql=f"a = ({ENDLESS})").what == "query was over its time limit"
        wait_until(lambda: query(viewer, "select 1 as one").status == 200)


def test_a_running_and_a_waiting_query_are_cancelled(path):
    with open_viewer(path) as viewer, ThreadPoolExecutor(2) as pool:
        viewer.wait()
        running = pool.submit(query, viewer, ENDLESS, id="first")
        waiting = pool.submit(query, viewer, ENDLESS, id="second")
        for name in ("second", "first"):
            wait_until(lambda name=name: viewer.post("cancel", {"id": name}).json["cancelled"])
        assert [running.result().what, waiting.result().what] == ["query was cancelled"] * 2
        assert query(viewer, "select count(*) from records").json["rows"] == [[RECORDS]]


def test_conditions_choose_the_records_that_they_are_true_for(path):
    with open_viewer(path) as viewer:
        viewer.wait()
        assert viewer.json("rows", sql="a % 50 = 7")["total"] == 4
        assert viewer.json("rows", sql="a < 0")["total"] == 0
        beyond = "true) union all select 1000000000 from records where (true"
        assert viewer.json("rows", sql=beyond)["total"] == RECORDS


@on_linux
def test_the_process_for_queries_ends_with_the_viewer(path):
    with open_viewer(path) as viewer:
        viewer.wait()
        assert children(os.getpid()) == []  # not before it is needed
        query(viewer, "select 1")
        [first] = children(os.getpid())
        query(viewer, "select 2")
        assert children(os.getpid()) == [first]
    assert children(os.getpid()) == []
    assert not os.path.exists(f"/proc/{first}")


@on_linux
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_for_queries_ends_when_the_server_is_killed_in_a_query(command, sent):
    process, viewer = command
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(query, viewer, ENDLESS)
        wait_until(lambda: children(process.pid))
        [child] = children(process.pid)
        process.send_signal(sent)
        process.wait()
        assert asked.exception() is not None or asked.result().status == 504
    wait_until(lambda: not arguments_of(child))


@on_linux
def test_a_process_for_queries_that_died_is_replaced(command):
    process, viewer = command
    assert query(viewer, "select 1 as one").json["rows"] == [[1]]
    [child] = children(process.pid)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: is_zombie(child))
    assert query(viewer, "select 2 as two").json["rows"] == [[2]]
    assert child not in children(process.pid)

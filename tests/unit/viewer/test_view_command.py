import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from rekord.cli.main import run_command_line
from rekord.testing import example_bytes, frames


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"a": [i]}) for i in range(5)]))
    return path


def start(*arguments, cache):
    command = [sys.executable, "-m", "rekord", "view", *map(str, arguments)]
    environment = os.environ | {"REKORD_CACHE": str(cache)}
    environment.pop("SSH_CONNECTION", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, process_group=0
    )


def test_the_address_is_printed_and_answers_until_it_is_interrupted(path, tmp_path):
    with start(path, "--no-browser", cache=tmp_path / "cache") as process:
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", url)
        with urllib.request.urlopen(f"{url}api/rows", timeout=60) as answer:
            assert [row["cells"][0]["value"] for row in json.load(answer)["rows"]] == [0, 1, 2, 3, 4]
        process.send_signal(signal.SIGINT)
        rest, messages = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert "press Ctrl-C to stop" in messages
    assert "Traceback" not in messages
    assert messages.rstrip().endswith("stopped")


def test_no_argument_of_the_browser_contains_the_token(path, monkeypatch, capsys):
    from rekord.cli import view as command
    from rekord.viewer.run import start_viewer

    opened = []
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(command, "_has_browser", lambda: True)
    monkeypatch.setattr("webbrowser.open", opened.append)
    with start_viewer([str(path)], port=0) as viewer:
        command._announce(viewer, ["x"], as_json=False, is_silent=False)
        while not opened:
            time.sleep(0.01)
        assert opened == [viewer.opening_url]
        assert viewer.path not in opened[0]
        with urllib.request.urlopen(opened[0], timeout=60) as page:
            assert page.url == viewer.url
    assert capsys.readouterr().out == f"{viewer.url}\n"


def test_json_has_the_address(path, tmp_path):
    with start(path, "--no-browser", "--json", "-q", cache=tmp_path / "cache") as process:
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        document = json.loads(text)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert document["url"].startswith(f"http://127.0.0.1:{document['port']}/")
    assert messages == ""


@pytest.mark.parametrize(
    ("arguments", "code", "first"),
    [
        (["missing.tfrecord"], 3, "DatasetError X501"),
        ([], 2, "UsageError U601"),
        (["x.tfrecord", "--port", "many"], 2, "UsageError U605"),
        (["x.tfrecord", "--port", "70000"], 2, "UsageError U605"),
        (["x.tfrecord", "--host", "http://hub"], 2, "UsageError U605"),
    ],
)
def test_wrong_usage_is_reported_before_anything_is_served(path, monkeypatch, capsys, arguments, code, first):
    monkeypatch.chdir(path.parent)
    assert run_command_line(["view", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.err.startswith(first)
    assert (printed.out, "Traceback" in printed.err) == ("", False)


def test_a_port_in_use_is_wrong_usage(path, capsys):
    from rekord.viewer.run import open_port

    with open_port(None) as taken:
        number = taken.getsockname()[1]
        assert run_command_line(["view", str(path), "--port", str(number)]) == 2
    assert capsys.readouterr().err.startswith(f"UsageError U605: port {number} is in use")

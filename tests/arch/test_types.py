"""`py.typed` is shipped, and a type checker finds the types of the public surface, as in a user's program."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

PACKAGE = Path(rk.__file__).parent

PROGRAM = """\
import numpy as np
import rekord as rk

data = rk.open("data")
reveal_type(data)  # rekord.dataset.dataset.Dataset
reveal_type(data["train"])  # rekord.dataset.split.Split
reveal_type(rk.sources.csv("a.csv"))  # rekord.sources.csv.CsvSource | rekord.sources.csv.GzipCsvSource
reveal_type(rk.sources.rows([{"a": 1}]))  # rekord.sources.rows.RowsSource
reveal_type(rk.layouts.deeplab(classes=21))  # rekord.layouts.deeplab.DeepLabLayout
reveal_type(rk.transforms.resize(224, 224))  # rekord.transforms.images.Resize
reveal_type(rk.write({"x": np.arange(3)}, "out", shards=2))  # rekord.dataset.dataset.Dataset
reveal_type(rk.export(data, "out.parquet"))  # rekord.verbs.export.export.ExportReport
reveal_type(rk.check("data"))  # rekord.health.finding.Report
schema = rk.Schema({"a": rk.Int64()})
reveal_type(schema.get("a"))  # rekord.schema.base.Feature | None
reveal_type(rk.encode({"a": 1}, schema))  # bytes
reveal_type(rk.decode(b"", schema))  # dict[str, Any]
reveal_type(rk.decode(b"", kind="sequence"))  # rekord.codec.decode.SequenceExample
try:
    rk.open("none")
except (FileNotFoundError, ValueError):
    pass
rk.write([], "out", shard=3)  # error: Unexpected keyword argument "shard" for "write"; did you mean "shards"?
rk.sources.csv(3)  # error: Argument 1 to "csv" has incompatible type "int"
"""


@pytest.mark.slow
def test_a_type_checker_sees_the_types_of_an_installed_package(tmp_path: Path) -> None:
    """The package lies in a folder of its own, as in site-packages: without `py.typed` it would not be read."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "rekord").symlink_to(PACKAGE)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--cache-dir",
            os.devnull,
            "program.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    said: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"program\.py:(\d+): (error|note): (.*)", line):
            said.setdefault(int(match[1]), f"{match[2]}: {match[3]}")
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    assert set(said) == set(expected), done.stdout + done.stderr
    for number, text in expected.items():
        told = said[number].removeprefix("note: ")
        wanted = text if text.startswith("error: ") else f'Revealed type is "{text}"'
        assert told.startswith(wanted), done.stdout


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in rk.__all__:
        value = getattr(rk, name)
        if inspect.ismodule(value):
            for inner in value.__all__:
                if inspect.isfunction(getattr(value, inner)):
                    yield f"{name}.{inner}", getattr(value, inner)
        elif inspect.isfunction(value):
            yield name, value


@pytest.mark.parametrize(("name", "function"), list(public_functions()))
def test_a_public_function_takes_and_gives_what_has_a_name(name: str, function: Callable[..., Any]) -> None:
    """`dict[str, Any]` is a JSON document or a row; anything else that is only `Any` says nothing."""
    signature = inspect.signature(function)
    said = {one.name: str(one.annotation) for one in signature.parameters.values()}
    said["return"] = str(signature.return_annotation)
    unnamed = {
        part: text
        for part, text in said.items()
        if re.search(r"\bAny\b", re.sub(r"(dict|Mapping)\[str, Any\]|np\.\w+\[.*?Any\]", "", text))
    }
    assert unnamed == {}

"""`py.typed` is shipped, and a type checker finds the types of the public surface, as in a user's program."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.dataset.batches import Batches, LoaderIterator
from rekord.feeds.feed import Feed
from rekord.health.stats.report import Stats

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


USES = """\
from typing import Any, assert_type

import numpy as np
import rekord as rk
from rekord.codec.columns import Column
from rekord.dataset.batches import Batches

data = rk.open("data")
split = data["train"]
assert_type(split[0], dict[str, Any])
assert_type(split[10:20], rk.Split)
assert_type(split[[3, 1]], dict[str, Column])
assert_type(split.batches(8, shuffle="exact", columns=["label"]), Batches)
for batch in split.batches(8):
    assert_type(batch, dict[str, Column])
for row in split:
    assert_type(row, dict[str, Any])
assert_type(split.take(3).select([1]).balanced(target={"cat": 0.5}), rk.Split)
assert_type(split.filter(lambda row: row["label"] == 1), rk.Split)
assert_type(split.map(lambda batch: {**batch, "x": np.zeros(3)}), rk.Split)
assert_type(split.transform(rk.transforms.resize(8, 8), data.transforms), rk.Split)
assert_type(split.class_weights(names=True), dict[str, float])
assert_type(split.class_weights(), dict[int | str | bytes, float])
split.to_keras(8, class_weight=split.class_weights())
split.to_keras(8, class_weight={0: 1.0, 1: 2.0})
schema = rk.Schema({"a": rk.Int64(range=(0, None)), "b": rk.Float32(range=(0, 1.5)), "t": rk.Timestamp("ms")})
assert_type(rk.concat([data, split]), rk.Split)
assert_type(rk.delete("data", "out", where=lambda batch: batch["x"] == 3), rk.Dataset)
assert_type(rk.relabel("data", "out", {"cat": "dog"}), rk.Dataset)
assert_type(rk.append("data", rk.sources.jsonl("a.jsonl"), replace=True), rk.Dataset)
assert_type(rk.layouts.detection(classes=["cat"]).schema, rk.Schema)
rk.write(rk.sources.columns({"x": np.arange(3)}), "out", schema=schema, transforms=[rk.transforms.resize(8, 8)])

split.batches(8, shufle=True)  # error
split.batches("8")  # error
split.batches(8, remainder="kep")  # error
split.to_torch(8, style="laoder")  # error
split.to_torch(8, style="iterable", workers=2)  # error
split.to_tensorflow(8, mode="opps")  # error
split.to_keras(8, columns=3)  # error
split.map(lambda batch: 3)  # error
split.transform(lambda row: row)  # error
split.balanced(target=0.5)  # error
data["train"].sql(3)  # error
rk.Int64(range=(0, "a"))  # error
rk.Timestamp("hours")  # error
rk.Image(heigth=3)  # error
rk.Schema({"a": 3})  # error
rk.delete("data", "out", where=3)  # error
rk.export(data, "out.csv", labels="name")  # error
rk.check("data", shema="a.json")  # error
rk.layouts.deeplab(clases=3)  # error
rk.transforms.resize("8", 8)  # error
rk.sources.jsonl()  # error
rk.no_such_name  # error
"""

FRAMEWORKS = """\
from typing import Any, assert_type

import polars
import rekord as rk
import torch.utils.data
from rekord.feeds.feed import Feed

split = rk.open("data")["train"]
assert_type(split.to_torch(8, workers=2, shuffle=True), Feed)
assert_type(split.to_torch(8, style="iterable"), torch.utils.data.IterableDataset[dict[str, Any]])
assert_type(split.to_torch(style="map", columns=["label"]), torch.utils.data.Dataset[dict[str, Any]])
assert_type(split.to_jax(8, remainder="drop"), Feed)
assert_type(split.to_polars(), polars.DataFrame)
for batch in split.to_torch(8):
    assert_type(batch, dict[str, Any])

split.to_polars().no_such_method()  # error
split.to_torch(style="map", workers=2)  # error
split.to_jax(8, sharding="cpu")  # error
"""


PROGRAMS = {"program": PROGRAM, "uses": USES, "frameworks": FRAMEWORKS}


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, and the package in a folder of its own, as in site-packages: only `py.typed` gives it types."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "site").mkdir()
    (folder / "site" / "rekord").symlink_to(PACKAGE)
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program)
    settings = {"include": ["*.py"], "extraPaths": ["site"], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


def run_checker(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


@pytest.fixture(scope="module")
def mypy_output(user_folder: Path) -> str:
    """Of all programs at once: most of the time goes into NumPy and the frameworks, which they share."""
    files = [f"{name}.py" for name in PROGRAMS]
    return run_checker(user_folder, "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, *files)


@pytest.fixture(scope="module")
def pyright_output(user_folder: Path) -> str:
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("pyright runs in Node")
    return run_checker(user_folder, "pyright", "--outputjson", "--pythonpath", sys.executable)


def marked_lines(name: str) -> set[int]:
    lines = enumerate(PROGRAMS[name].splitlines(), 1)
    return {number for number, line in lines if line.endswith("  # error")}


def require_packages(name: str) -> None:
    for package in ("torch", "jax", "polars") if name == "frameworks" else ():
        pytest.importorskip(package)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uses", "frameworks"])
def test_mypy_takes_right_uses_and_refuses_wrong_ones(name: str, mypy_output: str) -> None:
    require_packages(name)
    errors = {int(number) for number in re.findall(rf"^{name}\.py:(\d+): error", mypy_output, re.MULTILINE)}
    assert errors == marked_lines(name), mypy_output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uses", "frameworks"])
def test_pyright_takes_right_uses_and_refuses_wrong_ones(name: str, pyright_output: str) -> None:
    require_packages(name)
    found = json.loads(pyright_output)["generalDiagnostics"]
    errors = {
        one["range"]["start"]["line"] + 1
        for one in found
        if one["severity"] == "error" and Path(one["file"]).stem == name
    }
    assert errors == marked_lines(name), pyright_output


@pytest.mark.slow
def test_a_type_checker_sees_the_types_of_an_installed_package(mypy_output: str) -> None:
    said: dict[int, str] = {}
    for line in mypy_output.splitlines():
        if match := re.match(r"program\.py:(\d+): (error|note): (.*)", line):
            said.setdefault(int(match[1]), f"{match[2]}: {match[3]}")
    expected = {
        number: line.partition("  # ")[2] for number, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line
    }
    assert set(said) == set(expected), mypy_output
    for number, text in expected.items():
        told = said[number].removeprefix("note: ")
        wanted = text if text.startswith("error: ") else f'Revealed type is "{text}"'
        assert told.startswith(wanted), mypy_output


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
    assert unnamed_types(function) == {}


def unnamed_types(function: Callable[..., Any]) -> dict[str, str]:
    signature = inspect.signature(function)
    said = {one.name: str(one.annotation) for one in signature.parameters.values()}
    said["return"] = str(signature.return_annotation)
    return {
        part: text
        for part, text in said.items()
        if re.search(r"\bAny\b", re.sub(r"(dict|Mapping)\[str, Any\]|np\.\w+\[.*?Any\]", "", text))
    }


CLASSES = [rk.Dataset, rk.Split, rk.Writer, rk.Report, rk.Schema, Batches, Feed, LoaderIterator, Stats]
ANY_ON_PURPOSE = {
    "Split.replace": "changes",  # to any field of a split
    "Schema.with_evidence": "evidence",  # any JSON
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_public_method_takes_and_gives_what_has_a_name(kind: type) -> None:
    methods = {
        name: value.fget if isinstance(value, property) else value
        for base in kind.__mro__
        if base.__module__.startswith("rekord.")
        for name, value in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    assert methods
    found = {f"{kind.__name__}.{name}": unnamed_types(method) for name, method in methods.items()}
    unnamed = {name: set(parts) - {ANY_ON_PURPOSE.get(name)} for name, parts in found.items()}
    assert {name: parts for name, parts in unnamed.items() if parts} == {}

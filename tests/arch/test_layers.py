"""The layers of the code hold: an import that goes up, or sideways, fails here."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONTRACT = ROOT / "pyproject.toml"


def lint(config: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", str(config), "--no-cache"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_higher_layers_import_lower_ones_and_siblings_never_each_other():
    result = lint(CONTRACT, ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_import_that_goes_up_is_found(tmp_path):
    """The contract can fail: without its one allowed exception, the lazy import upwards is reported."""
    lines = CONTRACT.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "rekord.dataset.split -> " not in line]
    assert len(kept) == len(lines) - 1
    strict = tmp_path / "pyproject.toml"
    strict.write_text("".join(kept))
    result = lint(strict, ROOT)
    assert result.returncode == 1
    assert "rekord.dataset.split -> rekord.feeds.dataframes" in result.stdout


def test_only_the_core_is_imported_from_the_package_itself():
    imports = re.compile(r"^\s*(from rekord import .*|import rekord\b(?!\.).*)$", re.MULTILINE)
    package = ROOT / "src" / "rekord"
    found = {
        line.strip()
        for path in package.rglob("*.py")
        # The public surface itself, and the command line, which uses it.
        if path != package / "__init__.py" and not {"cli", "testing"} & set(path.parts)
        for line in imports.findall(path.read_text())
    }
    assert found == {"from rekord import _core"}


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_no_module_imports_a_framework_when_it_is_imported(framework):
    """Frameworks are imported inside functions: nothing in the package needs one to be loaded."""
    sources = list((ROOT / "src" / "rekord").rglob("*.py"))
    assert len(sources) > 40
    eager = [
        path.relative_to(ROOT)
        for path in sources
        for line in path.read_text().splitlines()
        if line.startswith((f"import {framework}", f"from {framework}"))
    ]
    assert eager == []


def test_only_the_pandas_feed_and_source_need_pandas():
    """`to_pandas` and `to_pandas_dtype` of pyarrow import pandas too, which a plain install does not have."""
    needs = re.compile(r"^\s*(import pandas|from pandas)|\.to_pandas\(|\.to_pandas_dtype\(", re.MULTILINE)
    source = ROOT / "src" / "rekord"
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if needs.search(path.read_text())}
    assert found == {"feeds/dataframes.py"}


def test_every_folder_of_tests_is_run_by_some_command():
    options = tomllib.loads(CONTRACT.read_text())["tool"]["pytest"]["ini_options"]
    collected = {path.removeprefix("tests/") for path in options["testpaths"]}
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == collected | {"minimum", "peers"}
    groups = {
        path.relative_to(ROOT / "tests" / "peers").parts[0] for path in (ROOT / "tests").glob("peers/*/test_*.py")
    }
    makefile = (ROOT / "Makefile").read_text()
    peers = re.search(r"^PEERS := (.*)$", makefile, re.MULTILINE)
    assert peers is not None
    assert groups == set(peers.group(1).split())


NAMED_TUPLES = {"_replace", "_fields", "_asdict"}
"""Public methods of named tuples, whatever their names look like."""

FOREIGN = {
    *("_Decompress", "_get_kwargs_from_urls", "_strip_protocol", "_exit", "_getframe", "_core", "_pytree"),
    *("_call_queue", "_variant_tensor"),
}
"""Of zlib, fsspec, Python, torch, loky and TensorFlow: there is no public name for these."""


def test_no_module_reaches_into_private_attributes_of_another():
    """`x._name` is used where a class of the same module defines it."""
    package = ROOT / "src" / "rekord"
    reached = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        own = NAMED_TUPLES | FOREIGN
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                own.add(node.target.id)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
                own.add(node.attr)
        for node in ast.walk(tree):
            is_private = isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr)
            if is_private and node.attr not in own:
                reached.append(f"{path.relative_to(package)}:{node.lineno} {ast.unparse(node)}")
    assert reached == []


def test_only_the_storage_renames_files():
    """What gets a name of its own goes through a transaction; `storage` asks the operating system for it."""
    package = ROOT / "src" / "rekord"
    renames = re.compile(r"\bos\.(replace|renames?)\(|\bshutil\.(move|copy2?|copyfile)\(|\b(LOCAL|storage)\.rename\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if renames.search(path.read_text()) and path.parent.name != "storage"
    }
    assert found == set()

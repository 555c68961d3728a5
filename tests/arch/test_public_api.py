"""The surface that users see: one sorted list of names, no framework behind it, a sentence a module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rekord

PACKAGE = Path(rekord.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FRAMEWORKS = ["hypothesis", "jax", "pandas", "polars", "rich", "tensorflow", "torch", "typer"]


def test_all_is_sorted_and_names_nothing_twice() -> None:
    assert rekord.__all__ == sorted(set(rekord.__all__))


def test_all_is_exactly_what_the_module_exports() -> None:
    assert set(rekord.__all__) <= set(dir(rekord))
    assert all(hasattr(rekord, name) for name in rekord.__all__)  # some are loaded when they are asked for
    public = {
        name
        for name, value in vars(rekord).items()
        if not name.startswith("_")
        # Importing `rekord.x` anywhere makes `x` an attribute of the package.
        and not (isinstance(value, ModuleType) and value.__name__ == f"rekord.{name}")
    }
    exported = {name for name in rekord.__all__ if not is_submodule(name)}
    assert public == exported


def is_submodule(name: str) -> bool:
    return isinstance(getattr(rekord, name, None), ModuleType)


@pytest.mark.parametrize("statement", ["import rekord", "from rekord import *", "import rekord.testing"])
@pytest.mark.slow
def test_importing_rekord_loads_no_framework(statement: str) -> None:
    program = f"import sys; {statement}; print(*sorted(set({FRAMEWORKS}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def printed(program: str) -> list[str]:
    """What a program of its own process prints, word by word."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("module", "ours"),
    [
        ("rekord", {"rekord", "rekord.version"}),
        ("rekord.__main__", {"rekord", "rekord.version", "rekord.__main__"}),
        ("rekord.cli", {"rekord", "rekord.version", "rekord.cli"}),
    ],
)
def test_what_the_command_imports_first_loads_almost_nothing(module: str, ours: set[str]) -> None:
    """Before the handler of interrupts is in place there is next to nothing to interrupt."""
    loaded = set(printed(f"import sys; import {module}; print(*sys.modules)"))
    assert {name for name in loaded if name.partition(".")[0] == "rekord"} == ours
    assert {name.partition(".")[0] for name in loaded} & {
        "numpy",
        "pyarrow",
        "msgspec",
        "typer",
        "rich",
    } == set()


def test_opening_a_dataset_loads_no_source_and_no_verb() -> None:
    """They would double what the first `rk.open` of a process takes."""
    loaded = printed("import sys, rekord; rekord.open; print(*sys.modules)")
    packages = {name.split(".")[1] for name in loaded if name.startswith("rekord.")}
    assert packages & {"cli", "conversion", "feeds", "health", "sources", "training", "verbs"} == set()


def test_type_checkers_see_the_imports_that_happen_at_run_time() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (declared,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imports = [node for node in declared.body if isinstance(node, ast.ImportFrom)]
    module_of = {alias.name: node.module for node in imports for alias in node.names if node.module != "rekord"}
    submodules = {alias.name for node in imports for alias in node.names if node.module == "rekord"}
    assert module_of == rekord._MODULE_OF
    assert {*module_of, *submodules} == set(rekord.__all__)
    assert submodules == {name for name in rekord.__all__ if is_submodule(name)}


def test_records_is_the_function_whatever_was_imported_first() -> None:
    """No package has the name of a public function: importing its modules would replace the function."""
    program = "import rekord.framing.frames, rekord.dataset.read; import rekord; print(rekord.records.__module__)"
    assert printed(program) == ["rekord.dataset.read"]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages & set(rekord.__all__) == {"layouts", "sources", "transforms"}


def test_a_name_is_one_object_however_it_is_imported() -> None:
    program = (
        "import pickle, rekord; from rekord import Int64, open; from rekord.schema import Int64 as defined; "
        "print(Int64 is defined is rekord.Int64, pickle.loads(pickle.dumps(Int64)) is Int64, open is rekord.open)"
    )
    assert printed(program) == ["True", "True", "True"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        _ = rekord.chekc


def test_importing_rekord_is_quiet() -> None:
    program = "import warnings; warnings.simplefilter('error'); import rekord"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_begins_by_saying_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring
    first_line = docstring.split("\n")[0]
    assert first_line[0] == first_line[0].upper() or first_line[0] == "`"
    assert first_line.rstrip()[-1] in ".:?"

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


def test_importing_rekord_loads_no_verb_of_health() -> None:
    program = (
        "import sys, rekord; print(*(name for name in sys.modules if name.startswith('rekord.health.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rekord.health.finding"]


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

"""Names: one meaning for each class name, and none of the words that explain nothing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rekord"
UNCLEAR = re.compile(
    r"(^|_)(told|asked|said|seen_of|going_on|elsewhere|anew|mend(ed)?|heard|aloud|picture|pictures)(_|$)"
)


def definitions() -> list[tuple[str, str, ast.AST]]:
    """Module, name and node of every class, function and method."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (path.relative_to(SOURCE).as_posix(), node.name, node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    ]


def test_a_class_name_has_one_meaning_in_the_package() -> None:
    places = defaultdict(list)
    for module, name, node in definitions():
        if isinstance(node, ast.ClassDef):
            places[name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_no_function_or_class_has_an_unclear_name() -> None:
    assert [f"{module}: {name}" for module, name, _ in definitions() if UNCLEAR.search(name)] == []

"""How many places ask for the type of a feature: a new type should not have to be entered in any of them."""

from __future__ import annotations

import ast
from pathlib import Path

import rekord
from rekord.schema.base import FEATURE_TYPES

MOST = 40
_TYPES = {name for name, kind in FEATURE_TYPES.items() if kind.__module__.startswith("rekord.")} | {"_Encoded"}


def switches(source: str) -> list[int]:
    """The lines with `isinstance(…, Label)`, `case Label():` or `type(…) is Label`."""
    tree = ast.parse(source)
    groups = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and _names(node.value) & _TYPES
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("isinstance", "issubclass"):
            asked = _names(node.args[1])
        elif isinstance(node, ast.MatchClass):
            asked = _names(node.cls)
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call):
            named = {name for one in node.comparators for name in _names(one)}
            asked = named if _called(node.left) == "type" else set()
        else:
            continue
        if asked & (_TYPES | groups):
            lines.append(node.lineno if isinstance(node, ast.expr) else node.cls.lineno)
    return lines


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _names(node: ast.AST) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def test_few_places_ask_for_the_type_of_a_feature() -> None:
    root = Path(rekord.__file__).parent
    found = {str(path.relative_to(root)): switches(path.read_text()) for path in sorted(root.rglob("*.py"))}
    count = sum(len(lines) for lines in found.values())
    assert count <= MOST, {path: lines for path, lines in found.items() if lines}


def test_each_form_of_a_switch_is_counted() -> None:
    source = "A = (Label, Text)\nisinstance(x, A)\ntype(x) is Mask\nmatch x:\n    case Image(): pass\n"
    assert sorted(switches(source)) == [2, 3, 5]

"""The options of `batches` and the feeds: declared once, listed by every method, refused by name."""

from __future__ import annotations

import ast
import inspect
import pickle
import pydoc
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.dataset.options import BatchOptions, CheckedOptions

METHODS = ["batches", "request", "to_torch", "to_jax", "to_tensorflow", "to_keras"]
NAMES = list(BatchOptions.__annotations__)


def options_of(method: str) -> list[str]:
    # Keras takes its columns as x, y and sample_weight.
    return [name for name in NAMES if method != "to_keras" or name != "columns"]


def test_the_declared_options_are_those_with_defaults_and_checks() -> None:
    assert BatchOptions.__optional_keys__ == frozenset(NAMES)
    assert [one.name for one in fields(CheckedOptions)] == NAMES
    assert all(one.default is not MISSING for one in fields(CheckedOptions))


@pytest.mark.parametrize("method", METHODS)
def test_signature_and_help_list_every_option(method: str) -> None:
    function = getattr(rk.Split, method)
    parameters = inspect.signature(function).parameters
    defaults = {one.name: one.default for one in fields(CheckedOptions)}
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    text = pydoc.render_doc(function)
    for name in options_of(method):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == defaults[name]
        assert f"{name}: " in text
    assert ("columns" in parameters) == (method != "to_keras")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("wrong", "meant"), [("shufle", "shuffle"), ("Seed", "seed"), ("buffer_size", None)])
def test_an_unknown_option_names_the_method_and_a_near_miss(
    method: str, wrong: str, meant: str | None, tmp_path: Any
) -> None:
    with rk.Writer(tmp_path / "x.tfrecord", rk.Schema({"n": rk.Int64()})) as writer:
        writer.write({"n": 1})
    split = rk.open(tmp_path / "x.tfrecord")["all"]
    with pytest.raises(TypeError) as caught:
        getattr(split, method)(4, **{wrong: True})
    failure = caught.value
    assert isinstance(failure, rk.UsageError)
    assert failure.code == "U605"
    assert failure.what == f"`{method}` has no option `{wrong}`"
    assert failure.do == (f"{method}(…, {meant}=…)" if meant else f"help({method}) lists the options")
    assert failure.message.startswith("UsageError U605: ")
    assert isinstance(pickle.loads(pickle.dumps(failure)), TypeError)


def test_keras_chooses_its_columns_by_x_and_y(tmp_path: Any) -> None:
    with rk.Writer(tmp_path / "x.tfrecord", rk.Schema({"n": rk.Int64()})) as writer:
        writer.write({"n": 1})
    with pytest.raises(rk.UsageError, match="`to_keras` has no option `columns`"):
        rk.open(tmp_path / "x.tfrecord").to_keras(4, columns=["n"])


def test_no_function_lists_the_options_again() -> None:
    """What makes a new option a matter of four places (CONTRIBUTING.md)."""
    package = Path(rk.__file__).parent
    listing = []
    for path in [*package.glob("dataset/**/*.py"), *package.glob("feeds/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.Call)):
                given = node.args.kwonlyargs if isinstance(node, ast.FunctionDef) else node.keywords
                names = {one.arg for one in given}
                if len(names & set(NAMES)) > 6:
                    listing.append(f"{path.name}:{node.lineno}")
    assert listing == []

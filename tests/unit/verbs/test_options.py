"""The options of a verb are declared once: its function and its command have the same names and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from typing import Any

import pytest

import rekord as rk
from rekord.cli import edit, interop, rewrite, train, write
from rekord.training.run import TrainOptions
from rekord.verbs.adopt import AdoptOptions
from rekord.verbs.options import (
    AppendOptions,
    BalanceOptions,
    DeleteOptions,
    ExportOptions,
    RelabelOptions,
    RewriteOptions,
    SplitOptions,
    VerbOptions,
    WriteOptions,
)

VERBS: list[tuple[type[VerbOptions], Callable[..., Any], Callable[..., Any]]] = [
    (WriteOptions, rk.write, write.write),
    (RewriteOptions, rk.rewrite, rewrite.rewrite),
    (SplitOptions, rk.split, rewrite.split),
    (BalanceOptions, rk.balance, rewrite.balance),
    (ExportOptions, rk.export, interop.export),
    (AppendOptions, rk.append, edit.append),
    (DeleteOptions, rk.delete, edit.delete),
    (RelabelOptions, rk.relabel, edit.relabel),
    (AdoptOptions, rk.adopt, interop.adopt),
    (TrainOptions, rk.train, train.train),
]
NOT_OPTIONS = {"progress", "on_records", "watch"}
"""What a public function takes that its command decides: how it is watched."""


def defaults(options: type[VerbOptions]) -> dict[str, object]:
    assert all(field.default is not MISSING for field in fields(options))
    return {field.name: field.default for field in fields(options)}


@pytest.mark.parametrize(("options", "function"), [(one, two) for one, two, _ in VERBS])
def test_a_function_has_the_options_of_its_verb_with_the_same_defaults(
    options: type[VerbOptions], function: Callable[..., Any]
) -> None:
    parameters = inspect.signature(function).parameters.values()
    keywords = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    assert {name: value for name, value in keywords.items() if name not in NOT_OPTIONS} == defaults(options)


@pytest.mark.parametrize(("options", "command"), [(one, three) for one, _, three in VERBS])
def test_a_command_has_the_defaults_of_its_verb(options: type[VerbOptions], command: Callable[..., Any]) -> None:
    known = defaults(options)
    for name, parameter in inspect.signature(command).parameters.items():
        default = known.get(name.rstrip("_"), parameter.default)
        # An option that is not given can stand for a default: None for "ids", no names for ().
        assert parameter.default in (default, None) or (parameter.default, default) == (None, ())


def test_append_takes_the_defaults_of_write() -> None:
    known = defaults(WriteOptions)
    for function in (rk.append, edit.append):
        for name, parameter in inspect.signature(function).parameters.items():
            assert parameter.default == known.get(name.rstrip("_"), parameter.default)


@pytest.mark.parametrize("options", [options for options, _, _ in VERBS])
def test_options_do_not_change(options: type[VerbOptions]) -> None:
    made = options()
    with pytest.raises(FrozenInstanceError):
        made.seed = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: WriteOptions(shards=0), "shards"),
        (lambda: WriteOptions(verify="some"), "verify"),
        (lambda: WriteOptions(max_rejects=-1), "max_rejects"),
        (lambda: WriteOptions(limit=0), "limit"),
        (lambda: RewriteOptions(shard_size="12 apples"), "shard_size"),
        (lambda: RewriteOptions(seed=-1), "seed"),
        (lambda: SplitOptions(workers=0), "workers"),
        (lambda: SplitOptions(format="tfdss"), "format"),
        (lambda: BalanceOptions(method="smoter"), "method"),
        (lambda: BalanceOptions(columns="label"), "columns"),
        (lambda: ExportOptions(columns=[]), "columns"),
        (lambda: ExportOptions(labels="name"), "labels"),
        (lambda: AppendOptions(verify="some"), "verify"),
        (lambda: AppendOptions(shards=0), "shards"),
        (lambda: DeleteOptions(workers=0), "workers"),
        (lambda: RelabelOptions(workers=0), "workers"),
        (lambda: TrainOptions(learning_rate=0), "learning_rate"),
        (lambda: TrainOptions(image_size=(1, 1)), "image_size"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_options_are_made(make: Callable[[], VerbOptions], name: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        make()
    assert caught.value.code == "U605"
    assert caught.value.what.startswith(f"`{name}` cannot be ")
    assert caught.value.do

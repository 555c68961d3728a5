"""Arguments are checked in one place: each check gives the canonical value, or an error that names the parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord import arguments as check


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (check.integer("n", np.int16(-3)), -3),
        (check.positive_int("n", 1), 1),
        (check.seed_number("seed", np.uint64(2**63 - 1)), 2**63 - 1),
        (check.fraction("share", 1), 1.0),
        (check.real_number("rate", 0.5, do="rate=1"), 0.5),
        (check.flag("keep", False), False),
        (check.one_of("fit", None, (None, "crop")), None),
        (check.as_path("path", Path("a/b")), "a/b"),
        (check.non_blank("key", " id", expected="a name", do="key='id'"), " id"),
        (check.name_list("columns", ["a", "b"], do="columns=['a']"), ("a", "b")),
        (check.optional_names("columns", ["a", "b", "a"]), ("a", "b")),
        (check.optional_names("columns", None), None),
        (check.tuple_names(()), ()),
        (check.height_and_width("size", [np.int64(8), 9], least=8, most=99), (8, 9)),
        (check.bytes_size("size", "1.5 kB"), 1500),
        (check.bytes_size("size", "2MiB"), 2 << 20),
        (check.bytes_size("size", 7), 7),
    ],
)
def test_what_fits_comes_back_in_one_form(made: object, expected: object) -> None:
    assert (made, type(made)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("call", "expected", "do"),
    [
        (lambda: check.integer("n", True), "a 64-bit integer", "n=1"),
        (lambda: check.positive_int("n", 0), "an integer ≥ 1", "n=1"),
        (lambda: check.positive_int("n", 10, most=9), "an integer from 1 to 9", "n=1"),
        (lambda: check.positive_int("n", 1.0), "an integer ≥ 1", "n=1"),
        (lambda: check.seed_number("n", -1), "an integer ≥ 0", "n=0"),
        (lambda: check.fraction("n", float("nan")), "a number from 0 to 1", "n=0.05"),
        (lambda: check.flag("n", 1), "True or False", "n=True"),
        (lambda: check.one_of("n", "corp", ("pad", "crop")), 'one of "pad", "crop"', 'n="crop"'),
        (lambda: check.one_of("n", ["pad"], ("pad", "crop")), 'one of "pad", "crop"', 'n="pad"'),
        (lambda: check.as_path("n", ""), "a str or a pathlib.Path", "n=pathlib.Path(…)"),
        (lambda: check.as_path("n", b"a"), "a str or a pathlib.Path", "n=pathlib.Path(…)"),
        (lambda: check.name_list("n", ["a", "a"], do="x"), "a list of unique names", "x"),
        (lambda: check.name_list("n", ["\ud800"], do="x"), "a list of unique names", "x"),
        (lambda: check.optional_names("n", "a"), "a list of column names", "n=['a']"),
        (lambda: check.bytes_size("n", "1 apple"), "a size such as 128MB (10^6) or 1GiB (2^30)", 'n="128MB"'),
        (lambda: check.bytes_size("n", 0), "an integer ≥ 1", "n=1"),
    ],
)
def test_what_does_not_fit_names_the_parameter_and_what_to_do(
    call: Callable[[], Any], expected: str, do: str
) -> None:
    with pytest.raises(rk.UsageError) as caught:
        call()
    failure = caught.value
    assert (failure.code, failure.expected, failure.do) == ("U605", expected, do)
    assert failure.what.startswith("`n` cannot be ")
    assert failure.found is not None


def test_a_column_that_does_not_exist_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean `label`") as caught:
        check.column_name("index", "lable", ["image", "label"], expected="a column", do="name another")
    assert isinstance(caught.value, rk.UsageError)


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (lambda: rk.write([], "out", shard=1), "write", "shards"),  # type: ignore[call-arg]
        (lambda: rk.open("data", kin="example"), "open", "kind"),  # type: ignore[call-arg]
        (lambda: rk.export("data", "out.csv", colums=[]), "export", "columns"),  # type: ignore[call-arg]
        (lambda: rk.check("data", shema="a.json"), "check", "schema"),  # type: ignore[call-arg]
        (lambda: rk.Schema(contxt={}, steps={}), "Schema", "context"),  # type: ignore[call-arg]
        (lambda: rk.Image(fromat="png"), "Image", "format"),  # type: ignore[call-arg]
        (lambda: rk.Label(3, optinal=True), "Label", "optional"),  # type: ignore[call-arg]
        (lambda: rk.Timestamp("ms", tzz="UTC"), "Timestamp", "tz"),  # type: ignore[call-arg]
        (lambda: rk.sources.csv("a.csv", delimeter=","), "sources.csv", "delimiter"),  # type: ignore[call-arg]
        (lambda: rk.layouts.deeplab(clases=2), "layouts.deeplab", "classes"),  # type: ignore[call-arg]
        (lambda: rk.transforms.resize(8, 8, fitt="crop"), "transforms.resize", "fit"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_keyword_names_the_function_that_was_called(call: Callable[[], Any], name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"`rk.{name}` has no option") as caught:
        call()
    assert isinstance(caught.value, rk.UsageError)
    assert (caught.value.code, caught.value.location.path) == ("U605", None)
    assert caught.value.do == f"rk.{name}(…, {meant}=…)"

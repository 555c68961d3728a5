"""Rows from Python iterables."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pages import messages

from rekord.errors import RekordError, UsageError
from rekord.schema import Float32, Int64, Schema, Text
from rekord.sources.base import SourceRow, is_partitioned
from rekord.sources.rows import PEEK_BYTES, RowsSource, rows

Point = namedtuple("Point", "a b")


def read(source: RowsSource) -> list[Any]:
    return [row.values for row in source.rows()]


def test_rows_come_in_order_with_their_positions():
    source = rows([{"a": i} for i in range(5)])
    assert not is_partitioned(source)
    assert list(source.rows()) == [SourceRow("", i, {"a": i}) for i in range(5)]
    assert (source.kind, source.options()) == ("rows", {"names": None})


@pytest.mark.parametrize(
    ("item", "names", "values"),
    [
        ({"a": 1, "b": {"c": 2, "d": {"e": 3}}}, None, {"a": 1, "b/c": 2, "b/d/e": 3}),
        (OrderedDict(a=1), None, {"a": 1}),
        ((1, 2), None, {"x": 1, "y": 2}),
        ((1, 2, 3), None, {"x": 1, "y": 2, "weight": 3}),
        ([1, 2], ("p", "q"), {"p": 1, "q": 2}),
        (({"u": 1}, 2), None, {"x/u": 1, "y": 2}),
        (Point(1, 2), None, {"a": 1, "b": 2}),
    ],
)
def test_mappings_and_tuples_become_columns(item, names, values):
    assert read(rows([item], names=names)) == [values]


def test_a_flat_dict_is_handed_on_as_it_is():
    row = {"a": np.zeros(3), "b": b"x"}
    assert next(rows([row]).rows()).values is row


@pytest.mark.parametrize(
    "item", [3, "text", b"bytes", None, {1: 2}, {"a": {2: 3}}, (1, 2, 3, 4), {"a/b": 1, "a": {"b": 2}}]
)
def test_what_is_no_row_is_a_bad_one_and_the_next_is_read(item):
    first, second = rows([item, {"a": 1}]).rows()
    assert isinstance(first.values, RekordError)
    assert (first.values.code, first.values.location.row) == ("E325", 0)
    assert first.values.expected
    assert first.values.do
    assert second == SourceRow("", 1, {"a": 1})


def test_facts_know_the_length_of_a_list_and_nothing_of_a_generator():
    assert rows([{"a": 1}] * 3).facts().rows == 3
    facts = rows(row for row in [{"a": 1}]).facts()
    assert (facts.rows, facts.schema, facts.layout, facts.files) == (None, None, "table", ())


def generated(count: int, taken: list[int]) -> Iterator[dict[str, Any]]:
    for i in range(count):
        taken.append(i)
        yield {"a": i, "b": "x"}


def test_a_look_at_the_first_rows_loses_none_and_reads_no_more_than_it_needs():
    taken: list[int] = []
    source = rows(generated(50, taken))
    schema = source.peek_schema(10)
    assert dict(schema.items()) == {"a": Int64(), "b": Text()}
    assert (schema.evidence["rows"], schema.evidence["complete"]) == (10, False)
    assert taken == list(range(10))
    assert source.peek_schema() is schema is source.facts().schema
    assert [(row.position, row.values["a"]) for row in source.rows()] == [(i, i) for i in range(50)]


def test_a_look_at_all_rows_says_that_it_saw_all():
    source = rows([{"a": 0.5}] * 3)
    assert source.peek_schema() == Schema({"a": Float32()})
    assert source.peek_schema().evidence["complete"] is True
    assert len(read(source)) == 3


def test_a_look_ends_when_the_rows_are_large():
    big = np.zeros(PEEK_BYTES // 4, np.uint8)
    taken: list[int] = []

    def make() -> Iterator[Any]:
        for i in range(100):
            taken.append(i)
            yield {"a": big}

    rows(make()).peek_schema()
    assert len(taken) == 4


def test_bad_rows_are_passed_over_when_a_schema_is_inferred():
    source = rows([7, {"a": 1}, None])
    assert dict(source.peek_schema().items()) == {"a": Int64()}
    assert [getattr(values, "code", None) for values in read(source)] == ["E325", None, "E325"]


def test_where_no_row_is_good_the_first_bad_one_is_said():
    with pytest.raises(RekordError) as caught:
        rows([7, 8]).peek_schema()
    assert (caught.value.code, caught.value.location.row) == ("E325", 0)


def test_no_rows_at_all_give_no_schema():
    with pytest.raises(RekordError) as caught:
        rows([]).peek_schema()
    assert caught.value.code == "S126"


def test_a_list_can_be_read_again_and_an_iterator_cannot():
    source = rows([{"a": 1}])
    source.peek_schema()
    assert read(source) == read(source) == [{"a": 1}]
    once = rows(iter([{"a": 1}]))
    once.peek_schema()
    assert read(once) == [{"a": 1}]
    with pytest.raises(UsageError) as caught:
        once.rows()
    assert caught.value.code == "U616"
    assert caught.value.what == "iterator of rows was already read"


def failing() -> Iterator[dict[str, int]]:
    yield {"a": 1}
    yield {"a": 2}
    raise KeyError("mine")


def test_an_exception_of_the_generator_reaches_the_user_with_the_row_in_its_notes():
    source = rows(failing())
    found = source.rows()
    assert [next(found).values, next(found).values] == [{"a": 1}, {"a": 2}]
    with pytest.raises(KeyError, match="mine") as caught:
        next(found)
    assert caught.value.__notes__ == ["rekord was reading row 2"]


def test_an_exception_while_looking_at_the_first_rows_reaches_the_user_too():
    with pytest.raises(KeyError, match="mine"):
        rows(failing()).peek_schema()


@pytest.mark.parametrize("given", [3, "text", b"bytes", {"a": [1]}, None])
def test_what_is_no_iterable_of_rows_is_refused_at_once(given):
    with pytest.raises(UsageError) as caught:
        rows(given)
    assert caught.value.code == "U605"


@pytest.mark.parametrize("names", ["ab", ("a", "a"), ("", "b"), (1,)])
def test_names_that_are_none_are_refused(names):
    with pytest.raises(UsageError) as caught:
        rows([(1, 2)], names=names)
    assert caught.value.code == "U605"


def test_rows_that_were_looked_at_are_let_go_one_by_one():
    source = rows([{"a": i} for i in range(100)])
    source.peek_schema()
    found = source.rows()
    assert next(found).values == {"a": 0}
    assert [row.values["a"] for row in found] == list(range(1, 100))


def test_the_example_of_the_page_is_what_is_said():
    source = rows(iter([{"a": 1}]))
    read(source)
    with pytest.raises(UsageError) as caught:
        source.rows()
    assert caught.value.message in messages("U616")

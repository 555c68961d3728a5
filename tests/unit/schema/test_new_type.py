"""A feature type that is defined here alone, with its adapters: nothing in rekord knows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import record_strategies as strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.codec.columns import Ragged
from rekord.codec.decode import decoded_column
from rekord.codec.encode import stored_list
from rekord.codec.encode_columns import array_slot, column_slot, encode_columns
from rekord.codec.values import InvalidValue, check_shape
from rekord.errors import EncodeError
from rekord.schema import Feature
from rekord.schema.base import (
    FEATURE_TYPES,
    InvalidDefault,
    ListKind,
    Shape,
)
from rekord.schema.interop.tf_spec import spec_from_schema, to_source


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hundredths(Feature):
    """Decimal fractions of two places, such as prices: stored as int64, given back as float64."""

    shape: Shape = ()

    _kind: ClassVar[ListKind] = "int64"

    def _validate_fields(self) -> None:
        self._validate_shape()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<f8")

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        return np.dtype("<i8")

    def _conform_element(self, value: Any) -> float:
        if not isinstance(value, (int, float)) or round(value, 2) != value:
            raise InvalidDefault("a number of two places", value)
        return float(value)

    def _stored_value(self, value: Any) -> int:
        return round(value * 100)

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": "int64"}


@stored_list.register(Hundredths)
def _store(feature: Hundredths, value: Any, shape: Shape) -> Any:
    numbers = np.asarray(value, np.float64)
    check_shape(numbers.shape, shape, value)
    return _hundredths(numbers.ravel())


def _hundredths(numbers: Any) -> Any:
    wrong = np.round(numbers, 2) != numbers
    if wrong.any():
        raise InvalidValue(
            "E315",
            "has more than two places",
            expected="two",
            found="more",
            do="round",
            at=int(np.argmax(wrong)),
        )
    return np.round(numbers * 100).astype(np.int64)


@column_slot.register(Hundredths)
def _slot(feature: Hundredths, column: Any, rows: int) -> Any:
    if not isinstance(column, np.ndarray) or column.dtype.kind != "f":
        return None
    return array_slot(feature, column, column, rows, _hundredths)


@decoded_column.register(Hundredths)
def _decode(feature: Hundredths, field: Any, parts: Sequence[Any], rows: int) -> Any:
    values, offsets, valid = parts[0]
    if offsets is not None:
        return Ragged(values / 100, offsets, valid=valid)
    return (values / 100).reshape(rows, *feature.shape)


def _features() -> st.SearchStrategy[Feature]:
    return st.sampled_from([(), (2,), (None,)]).map(Hundredths)


@strategies.one_element.register(Hundredths)
def _element(feature: Hundredths) -> st.SearchStrategy[Any]:
    return st.integers(-(2**40), 2**40).map(lambda n: n / 100)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The type by its name and in `strategies.features`, and both as they were afterwards."""
    FEATURE_TYPES["Hundredths"] = Hundredths
    strategies.FEATURES[Hundredths] = _features
    yield
    del FEATURE_TYPES["Hundredths"], strategies.FEATURES[Hundredths]


FEATURE_TYPES.pop("Hundredths")  # messages list all types, and other tests read them


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_value_comes_back(data: st.DataObject) -> None:
    feature = data.draw(_features())
    schema = rk.Schema({"x": feature})
    value = data.draw(strategies.one_value(feature))
    row = rk.decode(rk.encode({"x": value}, schema), schema)
    assert np.array_equal(row["x"], np.asarray(value, np.float64))
    assert rk.Schema.from_json(schema.to_json()) == schema


def test_columns_are_encoded_as_rows_are_and_refused_by_row() -> None:
    schema = rk.Schema({"x": Hundredths()})
    assert encode_columns({"x": np.array([0.25, 1])}, schema) == encode_columns({"x": [0.25, 1.0]}, schema)
    for column in (np.array([0.25, 0.125]), [0.25, 0.125]):
        with pytest.raises(EncodeError) as caught:
            encode_columns({"x": column}, schema)
        assert (caught.value.code, caught.value.location.row, caught.value.location.feature) == (
            "E315",
            1,
            "x",
        )


def test_other_schemas_and_compat_know_it_by_its_plain_values() -> None:
    schema = rk.Schema({"x": Hundredths(default=0.25)})
    assert "tf.io.FixedLenFeature([], tf.int64, default_value=25)" in to_source(spec_from_schema(schema))
    assert rk.Schema.from_pbtxt(schema.to_pbtxt()) == schema
    assert rk.compat(schema, schema).verdict == "same"
    assert rk.compat(schema, rk.Schema({"x": rk.Int64()})).verdict == "breaking"
    assert rk.decode(rk.encode({}, schema), schema)["x"] == 0.25


def test_a_dataset_of_it_is_written_checked_queried_and_exported(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    schema = rk.Schema({"price": Hundredths(), "many": Hundredths((None,))})
    rk.write([{"price": n / 4, "many": [0.5] * n} for n in range(4)], tmp_path / "data", schema=schema)
    split = rk.open(tmp_path / "data")["train"]
    assert split.schema == schema
    assert [batch["price"].tolist() for batch in split.batches(4)] == [[0, 0.25, 0.5, 0.75]]
    assert split.sql("select sum(price) s, sum(len(many)) n from records").to_pylist() == [{"s": 1.5, "n": 6}]
    assert not list(rk.check(tmp_path / "data").findings)
    rk.export(tmp_path / "data", tmp_path / "out.parquet")
    rk.write(str(tmp_path / "out.parquet"), tmp_path / "back")
    back = rk.open(tmp_path / "back")["train"]
    assert back.schema == schema
    assert back.to_arrow().equals(split.to_arrow())

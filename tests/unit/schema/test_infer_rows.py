"""`infer` from Python rows and tables."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import rekord as rk
from rekord.dataset.infer import infer
from rekord.errors import SchemaError, UsageError
from rekord.schema import Bytes, Feature, Float32, Int64, Schema, Tensor, Text
from rekord.schema.column_evidence import Float32CollisionDetector
from rekord.schema.infer import infer_rows


def column(*values: Any) -> Feature:
    feature: Feature = infer_rows([{"x": value} for value in values])["x"]
    return feature


def refused(*values: Any) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        column(*values)
    assert caught.value.location.feature == "x"
    assert caught.value.do
    return caught.value


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([1, 2], Int64()),
        ([True, False], Int64(dtype="bool")),
        ([True, 2], Int64()),
        ([np.bool_(True)], Int64(dtype="bool")),
        ([np.int8(1), np.int8(2)], Int64(dtype="int8")),
        ([np.int8(1), np.int16(2)], Int64(dtype="int16")),
        ([np.int8(1), 2], Int64()),
        ([np.uint8(1)], Int64(dtype="uint8")),
        ([2**63 - 1, -(2**63)], Int64()),
        ([2**63, 0], Int64(dtype="uint64")),
        ([np.uint64(1)], Int64(dtype="uint64")),
        ([np.uint64(1), np.int64(2)], Int64()),
        ([0.5, 1.5], Float32()),
        ([np.float32(0.5)], Float32()),
        ([np.float16(0.5)], Float32(dtype="float16")),
        ([np.float64(0.5)], Float32()),
        ([np.float16(0.5), np.float32(0.5)], Float32()),
        ([float("nan"), float("inf"), float("-inf")], Float32()),
        ([1, 0.5], Float32()),
        ([1, np.float32(0.5)], Float32()),
        (["a", "é"], Text()),
        ([np.str_("a")], Text()),
        ([b"a", bytearray(b"b"), memoryview(b"c")], Bytes()),
        ([np.bytes_(b"a")], Bytes()),
        ([1j], Tensor("complex128")),
        ([np.array(3)], Int64()),
    ],
)
def test_a_scalar_is_declared_by_its_type(values: list[Any], declared: Feature) -> None:
    assert column(*values) == declared


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([[1, 2], (3, 4)], Int64(shape=(2,))),
        ([[1], [1, 2]], Int64(shape=(None,))),
        ([[1], []], Int64(shape=(None,))),
        ([[1]], Int64(shape=(1,))),
        ([[1.0, 2]], Float32(shape=(2,))),
        ([["a", "b"]], Text(shape=(2,))),
        ([[b"a"], [b"a", b"b"]], Bytes(shape=(None,))),
        ([[]], Bytes(shape=(None,))),
        ([range(3)], Int64(shape=(3,))),
        ([np.arange(3)], Int64(shape=(3,))),
        ([np.arange(3, dtype=np.int32)], Int64(shape=(3,), dtype="int32")),
        ([np.zeros(0, np.int32)], Int64(shape=(None,), dtype="int32")),
        ([np.array([True, False])], Int64(shape=(2,), dtype="bool")),
        ([np.zeros(3, np.float32), np.zeros(2, np.float32)], Float32(shape=(None,))),
        ([np.zeros(3, np.float16)], Float32(shape=(3,), dtype="float16")),
        ([np.zeros(3, np.complex64)], Tensor("complex64", shape=(3,))),
        ([np.array(["a", "bb"])], Text(shape=(2,))),
        ([np.array([b"a", b"bb"])], Bytes(shape=(2,))),
        ([np.array(["a", "bb"], object)], Text(shape=(2,))),
        ([[np.int8(1), np.int8(2)]], Int64(shape=(2,), dtype="int8")),
        ([[np.int8(1), 2]], Int64(shape=(2,))),
        ([[np.array([1, 2], np.int8), np.array([3, 4], np.int8)]], Tensor("int8", shape=(2, 2))),
        ([np.zeros(3, ">i2")], Int64(shape=(3,), dtype="int16")),
    ],
)
def test_a_list_or_an_array_of_one_dimension_becomes_a_list(values: list[Any], declared: Feature) -> None:
    assert column(*values) == declared


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([np.zeros((2, 3), np.uint8)], Tensor("uint8", shape=(2, 3))),
        ([np.zeros(5, np.uint8)], Tensor("uint8", shape=(5,))),
        ([np.zeros(5, np.uint16), np.zeros(6, np.uint16)], Tensor("uint16", shape=(None,))),
        ([np.zeros((2, 3)), np.zeros((4, 3))], Tensor("float64", shape=(None, 3))),
        ([np.zeros((2, 3), bool)], Tensor("bool", shape=(2, 3))),
        ([np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float64)], Tensor("float64", shape=(2, 3))),
        ([[[1, 2], [3, 4]]], Tensor("int64", shape=(2, 2))),
        ([[[0.5], [1.5]], []], Tensor("float64", shape=(None, 1))),
        ([[["a", "b"]]], Text(shape=(1, 2))),
        ([np.zeros((2, 0), np.int8)], Tensor("int8", shape=(2, 0))),
    ],
)
def test_arrays_of_more_dimensions_and_of_small_unsigned_ints_are_kept_as_raw_bytes(
    values: list[Any], declared: Feature
) -> None:
    assert column(*values) == declared


def test_bfloat16_is_kept() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert column(np.zeros(3, ml_dtypes.bfloat16)) == Float32(shape=(3,), dtype="bfloat16")
    assert column(ml_dtypes.bfloat16(1)) == Float32(dtype="bfloat16")


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([0.1, 0.2], Float32()),
        ([1_700_000_000.1, 1_700_000_000.2], Tensor("float64")),
        ([0.1, 0.1 + 1e-12], Tensor("float64")),
        ([0.1, 0.1], Float32()),
        ([0.0, -0.0], Float32()),
        ([1e300], Tensor("float64")),
        ([1e-300], Float32()),
        ([np.array([0.5, 1e39])], Tensor("float64", shape=(2,))),
        ([np.array([0.5]), np.array([0.5 + 1e-12, 1.0])], Tensor("float64", shape=(None,))),
        ([1e300, 1], Tensor("float64")),
    ],
)
def test_float64_that_float32_would_merge_or_overflow_is_kept_as_float64(
    values: list[Any], declared: Feature
) -> None:
    assert column(*values) == declared


def test_merging_is_found_far_apart_and_among_many() -> None:
    values = np.arange(400_000, dtype=np.float64)
    merging = Float32CollisionDetector()
    for part in np.array_split(values, 7):
        merging.add(part)
    assert not merging.merges()
    merging.add([3.0 + 1e-9])
    assert merging.merges()


def test_whole_numbers_among_floats_must_survive() -> None:
    assert column(2**24, 0.5) == Float32()
    assert column(np.array([2**30, -(2**24), 0]), [0.5, 1, 2]) == Float32(shape=(3,))
    assert column(2**30, 0.5) == Float32()
    failure = refused(2**24 + 1, 0.5)
    assert failure.code == "S129"
    assert refused(np.array([2**24 + 1]), np.array([0.5])).code == "S129"
    assert refused(np.array([-(2**63)]), np.array([-(2**62) - 1]), np.array([0.5])).code == "S129"
    # Where the floats need float64 anyway, whole numbers may be as long as it holds.
    assert column(2**24 + 1, 1e300) == Tensor("float64")
    assert refused(2**53 + 1, 1e300).code == "S129"


@pytest.mark.parametrize(
    "values",
    [["a", b"a"], [1, "a"], [b"a", 0.5], [True, 0.5], [[1, "a"]], [1j, "a"], [[1], ["a"]]],
)
def test_values_of_several_types_are_refused(values: list[Any]) -> None:
    assert refused(*values).code == "S129"


def test_the_row_where_another_type_begins_is_named() -> None:
    assert "row 2" in (refused("a", "b", b"c").found or "")


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (datetime.timedelta(1), "isoformat"),
        (datetime.date(2020, 1, 1), "isoformat"),
        (np.timedelta64(1, "D"), "isoformat"),
        (np.array([1], "timedelta64[D]"), "isoformat"),
        (decimal.Decimal("1.5"), "float(value)"),
        ({1, 2}, "sorted"),
        (Path("x.jpg"), "read_bytes"),
        ([1, None], "hole"),
        ([None], "hole"),
        (object(), "numbers, text or bytes"),
        ([object()], "numbers, text or bytes"),
        (np.zeros(2, [("a", "i4")]), "numbers, text or bytes"),
        (np.longdouble(1), "numbers, text or bytes"),
    ],
)
def test_a_value_that_no_feature_holds_is_refused_with_a_remedy(value: Any, remedy: str) -> None:
    failure = refused(value)
    assert (failure.code, failure.location.row) == ("S130", 0)
    assert remedy in (failure.do or "")


@pytest.mark.parametrize("values", [[2**64], [-(2**63) - 1], [2**63, -1]])
def test_a_whole_number_beyond_64_bits_is_refused(values: list[Any]) -> None:
    assert refused(*values).code == "S130"


@pytest.mark.parametrize(
    "values",
    [
        [[[1], [2, 3]]],
        [[1, [2]]],
        [1, [1]],
        [1, []],
        [[1], [[1]]],
        [np.zeros((2, 0)), np.zeros((3, 0))],
        [[np.zeros(2), np.zeros(3)]],
    ],
)
def test_values_that_no_one_shape_describes_are_refused(values: list[Any]) -> None:
    assert refused(*values).code == "S131"


def test_nesting_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert refused(endless).code == "S131"
    row: dict[str, Any] = {}
    row["a"] = row
    with pytest.raises(SchemaError) as caught:
        infer_rows([row])
    assert caught.value.code == "S132"


def test_a_value_that_is_missing_makes_its_column_optional() -> None:
    assert infer_rows([{"a": 1, "b": None, "n": None}, {"a": None, "b": 2.5, "c": "x"}]) == Schema(
        {
            "a": Int64(optional=True),
            "b": Float32(optional=True),
            "n": Bytes(shape=(None,), optional=True),
            "c": Text(optional=True),
        }
    )


def test_columns_keep_the_order_in_which_they_were_first_seen() -> None:
    assert list(infer_rows([{"z": 1, "a": 1}, {"m": 1}])) == ["z", "a", "m"]


def test_nested_mappings_join_their_names() -> None:
    assert infer_rows([{"a": {"b": {"c": 1}, "d": "x"}}]) == Schema({"a/b/c": Int64(), "a/d": Text()})
    with pytest.raises(SchemaError) as caught:
        infer_rows([{"a/b": 1, "a": {"b": 2}}])
    assert caught.value.code == "S132"


def test_tuples_are_x_y_and_weight_unless_told() -> None:
    assert list(infer_rows([(1, 2)])) == ["x", "y"]
    assert list(infer_rows([(1, 2, 3), [1, 2, 3]])) == ["x", "y", "weight"]
    assert list(infer_rows([(1, 2)], names=("image", "label"))) == ["image", "label"]
    assert list(infer_rows([({"a": 1}, 2)])) == ["x/a", "y"]
    point = namedtuple("point", "left top")
    assert list(infer_rows([point(1, 2)])) == ["left", "top"]


@pytest.mark.parametrize(
    ("rows", "names"),
    [([(1, 2, 3, 4)], None), ([(1, 2, 3)], ["a", "b"]), ([(1,)], ["a", "b"]), ([3], None), ([{1: 2}], None)],
)
def test_a_row_that_does_not_name_its_values_is_refused(rows: Any, names: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(rows, names=names)
    assert (caught.value.code, caught.value.location.row) == ("S132", 0)


@pytest.mark.parametrize("names", ["xy", ["a", "a"], [1, 2], ["", "b"]])
def test_names_that_are_none_are_refused(names: Any) -> None:
    with pytest.raises(UsageError) as caught:
        infer([(1, 2)], names=names)
    assert caught.value.code == "U605"


@pytest.mark.parametrize("rows", [[], iter([]), [{}], {}, {"a": []}, pa.table({"a": pa.array([], pa.int8())})])
def test_there_must_be_something_to_infer_from(rows: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(rows)
    assert caught.value.code == "S126"


@pytest.mark.parametrize("rows", [3, None, object()])
def test_rows_come_from_something_that_holds_rows(rows: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(rows)
    assert caught.value.code == "S132"


def test_other_mappings_and_sequences_are_rows_too() -> None:
    rows = sqlite3.connect(":memory:")
    rows.row_factory = sqlite3.Row
    assert infer(rows.execute("select 1 as a, 'x' as b")) == Schema({"a": Int64(), "b": Text()})
    rows.close()
    assert infer([OrderedDict(a=1)]) == Schema({"a": Int64()})

    class MapStyle:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"a": index}

    assert infer(MapStyle()).evidence["rows"] == 3


def test_a_tensor_is_the_array_that_it_gives() -> None:
    class Tensorlike:
        def __init__(self, fails: bool = False) -> None:
            self.fails = fails

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            if self.fails:
                raise RuntimeError("on another device")
            return np.zeros((2, 2), np.float32)

    assert column(Tensorlike()) == Tensor("float32", shape=(2, 2))
    assert refused(Tensorlike(fails=True)).code == "S130"


def test_a_limit_reads_no_more_rows_than_it_needs() -> None:
    requested = []

    def rows() -> Iterator[dict[str, int]]:
        for i in range(10):
            requested.append(i)
            yield {"a": i}

    evidence = infer(rows(), limit=3).evidence
    assert (evidence["rows"], evidence["complete"], evidence["features"]["a"]["max"]) == (3, False, 2)
    assert len(requested) == 4
    assert infer(rows(), limit=10).evidence["complete"] is True
    assert infer({"a": np.arange(10)}, limit=4).evidence["complete"] is False
    assert infer({"a": np.arange(10)}, limit=10).evidence["complete"] is True
    assert infer(pa.table({"a": [1, 2, 3]}), limit=2).evidence["rows"] == 2


def test_evidence_of_rows_says_what_was_seen_and_is_json() -> None:
    schema = infer([{"a": 1, "b": "x", "c": float("nan")}, {"a": 0.5, "b": None, "c": np.float32(2)}])
    assert schema.evidence == {
        "rows": 2,
        "complete": True,
        "features": {
            "a": {
                "present": 2,
                "types": ["int", "float"],
                "dtypes": ["int64", "float64"],
                "min": 0.5,
                "max": 1,
            },
            "b": {"present": 1, "types": ["text"]},
            "c": {"present": 2, "types": ["float"], "dtypes": ["float64", "float32"], "min": 2.0, "max": 2.0},
        },
    }
    assert Schema.from_json(schema.to_json()) == schema


def test_a_dict_of_columns_is_a_table() -> None:
    table = {
        "label": np.arange(5000, dtype=np.int16),
        "image": np.zeros((5000, 2, 2), np.uint8),
        "vector": np.zeros((5000, 3), np.float32),
        "name": [f"row {i}" for i in range(5000)],
        "tags": [["a"]] * 4999 + [["a", "b"]],
        "pixels": np.zeros(5000, np.uint8),
        "text": np.array(["x"] * 5000),
        "object": np.array([None, *["x"] * 4999], object),
        "inner": [{"a": 1}] * 4999 + [None],
    }
    assert infer(table) == Schema(
        {
            "label": Int64(dtype="int16"),
            "image": Tensor("uint8", shape=(2, 2)),
            "vector": Float32(shape=(3,)),
            "name": Text(),
            "tags": Text(shape=(None,)),
            "pixels": Int64(dtype="uint8"),
            "text": Text(),
            "object": Text(optional=True),
            "inner/a": Int64(optional=True),
        }
    )


@pytest.mark.parametrize(
    "table",
    [
        {"a": 3},
        {"a": np.array(3)},
        {"a": "text"},
        {1: [1]},
        {"a": [1], "b": [1, 2]},
        {"label": 3, "image": b"x"},
    ],
)
def test_a_dict_that_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(table)
    assert caught.value.code == "S132"


def test_an_arrow_table_keeps_its_widths_and_its_holes() -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int8()),
            "b": pa.array([True, False, None]),
            "h": pa.array([0.5, 1.5, 2.5], pa.float16()),
            "f": pa.array([0.5, 1.5, 2.5], pa.float32()),
            "s": pa.array(["a", None, "b"], pa.large_string()),
            "y": pa.array([b"a", b"b", b"c"]),
            "l": pa.array([[1], [2, 3], None], pa.list_(pa.int32())),
            "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
            "d": pa.array(["a", "b", "a"]).dictionary_encode(),
            "n": pa.array([{"a": 1}, None, {"a": 2}], pa.struct([("a", pa.uint16())])),
            "x": pa.nulls(3),
        }
    )
    expected = Schema(
        {
            "i": Int64(dtype="int8", optional=True),
            "b": Int64(dtype="bool", optional=True),
            "h": Float32(dtype="float16"),
            "f": Float32(),
            "s": Text(optional=True),
            "y": Bytes(),
            "l": Int64(shape=(None,), dtype="int32", optional=True),
            "v": Float32(shape=(2,)),
            "d": Text(),
            "n/a": Int64(optional=True),
            "x": Bytes(shape=(None,), optional=True),
        }
    )
    assert infer(table) == expected
    assert infer(table.combine_chunks().to_batches()[0]) == expected


def test_an_arrow_table_with_dates_or_two_columns_of_one_name_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        infer(pa.table({"t": pa.array([datetime.date(2020, 1, 1)])}))
    assert (caught.value.code, caught.value.location.feature) == ("S130", "t")
    with pytest.raises(SchemaError) as caught:
        infer(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    assert caught.value.code == "S132"


def test_a_pandas_frame_is_a_table_whose_nan_among_objects_is_a_hole() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "i": np.arange(4, dtype=np.int16),
            "s": ["x", None, float("nan"), "y"],
            "f": [1.5, None, 2.5, 3.5],
            "n": pd.array([1, None, 2, 3], dtype="Int32"),
            "c": pd.Categorical(["a", "b", "a", "b"]),
            "l": [[1], [2, 3], [], [4]],
        }
    )
    assert infer(frame) == Schema(
        {
            "i": Int64(dtype="int16"),
            "s": Text(optional=True),
            "f": Float32(),
            "n": Int64(dtype="int32", optional=True),
            "c": Text(),
            "l": Int64(shape=(None,)),
        }
    )
    with pytest.raises(SchemaError) as caught:
        infer(pd.DataFrame({0: [1]}))
    assert caught.value.code == "S132"


def test_a_polars_frame_is_a_table() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": pl.Series([1, None], dtype=pl.Int8), "b": ["x", "y"], "c": [[1], [2, 3]]})
    assert infer(frame) == Schema({"a": Int64(dtype="int8", optional=True), "b": Text(), "c": Int64(shape=(None,))})


def test_a_source_says_the_schema_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,name\n3,ann\n4,bob\n")
    assert rk.infer(rk.sources.csv(tmp_path / "t.csv")) == rk.Schema({"age": rk.Int64(), "name": rk.Text()})
    assert rk.infer(rk.sources.rows([{"x": 1}])) == rk.Schema({"x": rk.Int64()})
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.png").write_bytes(b"")
    schema = rk.infer(rk.sources.image_folder(tmp_path / "images"))
    assert schema == rk.layouts.classification(classes=["cat"]).schema
    assert (schema.evidence["records"], schema.evidence["bad_rows"]) == (0, 1)


def test_paths_and_images_in_a_list_are_not_advised_to_be_an_image() -> None:
    for value, do in (
        (Path("1.jpg"), "read the files: [path.read_bytes() for path in paths]"),
        (Image.new("L", (2, 2)), "write a row per image, or their encoded bytes as a list"),
    ):
        with pytest.raises(rk.SchemaError) as caught:
            rk.infer([{"images": [value, value]}])
        assert (caught.value.code, caught.value.location.feature, caught.value.do) == ("S130", "images", do)

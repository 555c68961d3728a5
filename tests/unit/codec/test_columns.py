"""The columns of a batch: what they are, row by row, as lists, padded, in Arrow and pickled."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rekord as rk
from rekord import Optional, Ragged, SparseColumn, Strings, UsageError, _core
from rekord.codec.columns import column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import compile_plan


def _int64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _valid(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def _strings(values: list[bytes], **options: Any) -> Strings:
    return Strings(_core.strings(values), **options)


def _sparse(valid: np.ndarray | None = None) -> SparseColumn:
    indices = Ragged(_int64(1, 4, 2), _int64(0, 2, 2, 3), valid=valid)
    values = Ragged(np.array([0.5, 1.5, -1.0], np.float32), _int64(0, 2, 2, 3), valid=valid)
    return SparseColumn(indices, values, 5)


RAGGED = Ragged(_int64(1, 2, 3, 4), _int64(0, 2, 2, 3, 4), valid=_valid(1, 1, 0, 1))

# Every kind of column with its rows as plain values.
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "bytes": (Strings.of([b"x", b"", b"yy"]), [b"x", b"", b"yy"]),
    "texts": (Strings.of(["Größe", "", "画像"]), ["Größe", "", "画像"]),
    "optional texts": (
        Strings(_core.strings([b"x", b"", b"z"]), text=True, valid=_valid(1, 0, 1)),
        ["x", None, "z"],
    ),
    "pairs of bytes": (_strings([b"a", b"b", b"c", b"d"], row_shape=(2,)), [[b"a", b"b"], [b"c", b"d"]]),
    "optional squares of texts": (
        _strings([b"a", b"b", b"c", b"d", b"", b"", b"", b""], text=True, row_shape=(2, 2), valid=_valid(1, 0)),
        [[["a", "b"], ["c", "d"]], None],
    ),
    "bytes of no length": (_strings([], row_shape=(0,), rows=3), [[], [], []]),
    "ragged numbers": (Ragged(_int64(1, 2, 3), _int64(0, 2, 2, 3)), [[1, 2], [], [3]]),
    "ragged pairs": (
        Ragged(np.arange(6, dtype=np.float32).reshape(3, 2), _int64(0, 2, 2, 3)),
        [[[0, 1], [2, 3]], [], [[4, 5]]],
    ),
    "optional ragged numbers": (RAGGED, [[1, 2], [], None, [4]]),
    "varying inside": (
        Ragged(_int64(1, 2, 3, 4, 5, 6), _int64(0, 4, 4, 6), row_shape=(2, -1)),
        [[[1, 2], [3, 4]], [[], []], [[5], [6]]],
    ),
    "texts varying inside": (
        Ragged(Strings.of(["a", "b", "c", "d"]), _int64(0, 4, 4), row_shape=(2, -1)),
        [[["a", "b"], ["c", "d"]], [[], []]],
    ),
    "ragged bytes": (Ragged(Strings.of([b"a", b"b"]), _int64(0, 0, 2)), [[], [b"a", b"b"]]),
    "ragged pairs of bytes": (
        Ragged(_strings([b"a", b"b", b"c", b"d"], row_shape=(2,)), _int64(0, 2, 2)),
        [[[b"a", b"b"], [b"c", b"d"]], []],
    ),
    "two levels": (
        Ragged(Ragged(_int64(1, 2, 3), _int64(0, 2, 2, 3)), _int64(0, 1, 1, 3)),
        [[[1, 2]], [], [[], [3]]],
    ),
    "two levels of texts": (
        Ragged(Ragged(Strings.of(["a", "b"]), _int64(0, 1, 2)), _int64(0, 2, 2), valid=_valid(1, 0)),
        [[["a"], ["b"]], None],
    ),
    "optional numbers": (Optional(_int64(1, 0, 3), _valid(1, 0, 1)), [1, None, 3]),
    "optional pairs": (Optional(np.array([[1.0, 2.0], [0, 0]]), _valid(1, 0)), [[1.0, 2.0], None]),
    "sparse": (_sparse(), [([1, 4], [0.5, 1.5]), ([], []), ([2], [-1.0])]),
    "optional sparse": (_sparse(_valid(1, 0, 1)), [([1, 4], [0.5, 1.5]), None, ([2], [-1.0])]),
    "steps of sparse": (
        Ragged(_sparse(), _int64(0, 1, 3)),
        [[([1, 4], [0.5, 1.5])], [([], []), ([2], [-1.0])]],
    ),
}


@pytest.fixture(params=COLUMNS)
def column_and_rows(request: pytest.FixtureRequest) -> tuple[Any, list[Any]]:
    return COLUMNS[request.param]


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return type(value)(map(_listed, value))
    return value


# ---- Rows ----


def test_a_column_has_as_many_rows_as_it_says_and_gives_them_all(column_and_rows) -> None:
    column, rows = column_and_rows
    assert len(column) == len(rows)
    assert column.tolist() == rows
    assert [_listed(row) for row in column] == rows


def test_a_row_is_found_from_the_front_and_from_the_back(column_and_rows) -> None:
    column, rows = column_and_rows
    for i in range(len(rows)):
        assert _listed(column[i]) == rows[i]
        assert _listed(column[i - len(rows)]) == rows[i]
        assert _listed(column[np.int64(i)]) == rows[i]


def test_a_row_that_is_not_there_is_an_index_error(column_and_rows) -> None:
    column, rows = column_and_rows
    for index in (len(rows), -len(rows) - 1, 10**9):
        with pytest.raises(IndexError, match=f"row {index} of {len(rows)}"):
            column[index]


@pytest.mark.parametrize(
    "part", [slice(None), slice(1, None), slice(-2, None), slice(0, 1), slice(2, 1), slice(None, None, -1)]
)
def test_a_slice_is_a_list_of_rows(column_and_rows, part: slice) -> None:
    column, rows = column_and_rows
    assert [_listed(row) for row in column[part]] == rows[part]


def test_a_pickled_column_comes_back_the_same(column_and_rows) -> None:
    column, rows = column_and_rows
    for protocol in (2, 5):
        again = pickle.loads(pickle.dumps(column, protocol))
        assert type(again) is type(column)
        assert again.tolist() == rows
        assert repr(again) == repr(column)


def test_strings_pickle_as_buffers_and_are_made_when_one_is_asked_for() -> None:
    strings = Strings.of([f"text {i}" for i in range(1000)])
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(strings, protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 1000
    assert sum(buffer.raw().nbytes for buffer in buffers) == strings.nbytes + 8 * 1001
    again = pickle.loads(pickled, buffers=buffers)
    assert (len(again), again.nbytes, again.to_arrow().to_pylist()) == (
        1000,
        strings.nbytes,
        strings.tolist(),
    )
    assert again[999] == "text 999"
    assert again.tolist() == pickle.loads(pickle.dumps(again)).tolist() == strings.tolist()
    assert not hasattr(again, "dtype")


def test_an_empty_column_has_no_rows() -> None:
    empty = [
        Strings.of([]),
        Ragged(_int64(), _int64(0)),
        Optional(_int64(), _valid()),
        SparseColumn(Ragged(_int64(), _int64(0)), Ragged(_int64(), _int64(0)), 3),
    ]
    for column in empty:
        assert len(column) == 0
        assert column.tolist() == list(column) == column[:] == []
        assert column.to_arrow().to_pylist() == []
    assert empty[1].to_padded().shape == (0, 0)


def test_what_a_column_says_of_itself_is_short() -> None:
    assert repr(Strings.of([b"abc", b"d"])) == "Strings(2 rows of bytes, 4 bytes)"
    assert repr(Strings.of(["é"])) == "Strings(1 rows of text, 2 bytes)"
    assert repr(Ragged(Strings.of([b"a"]), _int64(0, 1))) == "Ragged(1 rows of Strings(1 rows of bytes, 1 bytes))"
    assert repr(Optional(_int64(1, 2), _valid(1, 0))) == "Optional(2 rows, 1 missing, int64)"
    assert repr(_sparse()) == "SparseColumn(3 rows of size 5)"


# ---- Strings ----


def test_strings_are_bytes_or_texts_and_know_their_size() -> None:
    texts = Strings.of(["é", "x"])
    assert (texts.text, texts.nbytes, texts[0]) == (True, 3, "é")
    plain = Strings.of([b"\xff"])
    assert (plain.text, plain.nbytes, plain[0]) == (False, 1, b"\xff")


def test_strings_as_an_object_array_have_none_where_one_is_missing() -> None:
    column, rows = COLUMNS["optional texts"]
    array = column.to_numpy()
    assert (array.dtype, array.shape) == (object, (3,))
    assert array.tolist() == rows
    squares, rows = COLUMNS["optional squares of texts"]
    array = squares.to_numpy()
    assert array.shape == (2, 2, 2)
    assert array[0].tolist() == rows[0]
    assert (array[1] == None).all()  # noqa: E711


def test_a_row_of_several_strings_is_an_object_array_of_its_shape() -> None:
    row = COLUMNS["optional squares of texts"][0][0]
    assert (row.dtype, row.shape) == (object, (2, 2))


def test_packed_strings_lie_end_to_end() -> None:
    ends, data = Strings.of([b"ab", b"", b"c"]).packed()
    assert ends.tolist() == [0, 2, 2, 3]
    assert data.tobytes() == b"abc"


# ---- Ragged ----


def test_a_ragged_row_of_numbers_shares_memory_with_its_column() -> None:
    column, _ = COLUMNS["ragged numbers"]
    assert np.shares_memory(column[0], column.values)
    assert column.lengths.tolist() == [2, 0, 1]


PADDED: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("ragged numbers", {}, [[1, 2], [0, 0], [3, 0]]),
    ("ragged numbers", {"pad": -1}, [[1, 2], [-1, -1], [3, -1]]),
    ("ragged numbers", {"length": 1}, [[1], [0], [3]]),
    ("ragged numbers", {"length": 3, "pad": 9}, [[1, 2, 9], [9, 9, 9], [3, 9, 9]]),
    ("ragged numbers", {"length": 0}, [[], [], []]),
    ("ragged pairs", {}, [[[0, 1], [2, 3]], [[0, 0], [0, 0]], [[4, 5], [0, 0]]]),
    ("optional ragged numbers", {"pad": 7}, [[1, 2], [7, 7], [7, 7], [4, 7]]),
    ("varying inside", {}, [[[1, 2], [3, 4]], [[0, 0], [0, 0]], [[5, 0], [6, 0]]]),
    ("varying inside", {"length": 1, "pad": 9}, [[[1], [3]], [[9], [9]], [[5], [6]]]),
    ("varying inside", {"length": 3}, [[[1, 2, 0], [3, 4, 0]], [[0] * 3] * 2, [[5, 0, 0], [6, 0, 0]]]),
    ("texts varying inside", {}, [[["a", "b"], ["c", "d"]], [["", ""], ["", ""]]]),
    ("texts varying inside", {"pad": "?", "length": 1}, [[["a"], ["c"]], [["?"], ["?"]]]),
    ("ragged bytes", {}, [[b"", b""], [b"a", b"b"]]),
    ("ragged bytes", {"pad": b"-", "length": 3}, [[b"-"] * 3, [b"a", b"b", b"-"]]),
    ("ragged pairs of bytes", {}, [[[b"a", b"b"], [b"c", b"d"]], [[b"", b""], [b"", b""]]]),
    ("two levels", {}, [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [3, 0]]]),
    ("two levels", {"length": 1, "pad": 5}, [[[1, 2]], [[5, 5]], [[5, 5]]]),
    ("two levels of texts", {}, [[["a"], ["b"]], [[""], [""]]]),
    ("two levels of texts", {"length": 3}, [[["a"], ["b"], [""]], [[""], [""], [""]]]),
    (
        "steps of sparse",
        {},
        [[[0, 0.5, 0, 0, 1.5], [0] * 5], [[0] * 5, [0, 0, -1.0, 0, 0]]],
    ),
]


@pytest.mark.parametrize(("name", "options", "expected"), PADDED)
def test_padded_rows_are_filled_up_to_the_longest_or_to_a_length(name, options, expected) -> None:
    column, _ = COLUMNS[name]
    padded = column.to_padded(**options)
    assert padded.tolist() == expected
    leaf = column.values
    while isinstance(leaf, Ragged):
        leaf = leaf.values
    if isinstance(leaf, np.ndarray):
        assert padded.dtype == leaf.dtype


def test_padding_leaves_the_column_as_it_was() -> None:
    column, rows = COLUMNS["ragged numbers"]
    padded = column.to_padded()
    padded[:] = 99
    assert column.tolist() == rows


# ---- Optional and sparse ----


def test_an_optional_column_is_filled_with_a_value() -> None:
    column, rows = COLUMNS["optional numbers"]
    assert column.fill(-1).tolist() == [1, -1, 3]
    assert column.tolist() == rows
    pairs, _ = COLUMNS["optional pairs"]
    assert pairs.fill(7).tolist() == [[1.0, 2.0], [7.0, 7.0]]


def test_a_sparse_column_is_dense_on_request() -> None:
    assert _sparse().to_dense().tolist() == [[0, 0.5, 0, 0, 1.5], [0] * 5, [0, 0, -1.0, 0, 0]]
    assert _sparse().to_dense().dtype == np.float32
    assert _sparse(_valid(1, 0, 1)).to_dense()[1].tolist() == [0] * 5


# ---- Arrow ----

ARROW_TYPES = {
    "bytes": pa.large_binary(),
    "texts": pa.large_string(),
    "optional texts": pa.large_string(),
    "pairs of bytes": pa.list_(pa.large_binary(), 2),
    "optional squares of texts": pa.list_(pa.list_(pa.large_string(), 2), 2),
    "bytes of no length": pa.list_(pa.large_binary(), 0),
    "ragged numbers": pa.large_list(pa.int64()),
    "ragged pairs": pa.large_list(pa.list_(pa.float32(), 2)),
    "optional ragged numbers": pa.large_list(pa.int64()),
    "ragged bytes": pa.large_list(pa.large_binary()),
    "ragged pairs of bytes": pa.large_list(pa.list_(pa.large_binary(), 2)),
    "two levels": pa.large_list(pa.large_list(pa.int64())),
    "two levels of texts": pa.large_list(pa.large_list(pa.large_string())),
    "optional numbers": pa.int64(),
    "optional pairs": pa.list_(pa.float64(), 2),
}


@pytest.mark.parametrize("name", ARROW_TYPES)
def test_arrow_has_the_rows_and_nulls_of_a_column(name) -> None:
    column, rows = COLUMNS[name]
    array = column.to_arrow()
    array.validate(full=True)
    assert array.type == ARROW_TYPES[name]
    assert array.to_pylist() == rows
    assert array.null_count == rows.count(None)


@pytest.mark.parametrize("name", ["varying inside", "texts varying inside"])
def test_arrow_has_flat_lists_where_the_varying_dimension_is_inside(name) -> None:
    column, rows = COLUMNS[name]
    assert column.to_arrow().to_pylist() == [[value for part in row for value in part] for row in rows]


@pytest.mark.parametrize("name", ["sparse", "optional sparse"])
def test_a_sparse_column_is_a_struct_of_two_lists_in_arrow(name) -> None:
    column, rows = COLUMNS[name]
    array = column.to_arrow()
    array.validate(full=True)
    assert array.type == pa.struct([("indices", pa.large_list(pa.int64())), ("values", pa.large_list(pa.float32()))])
    pairs = [None if row is None else {"indices": row[0], "values": row[1]} for row in rows]
    assert array.to_pylist() == pairs


def test_steps_of_sparse_vectors_are_lists_of_structs_in_arrow() -> None:
    column, rows = COLUMNS["steps of sparse"]
    assert column.to_arrow().to_pylist() == [
        [{"indices": indices, "values": values} for indices, values in row] for row in rows
    ]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), (3, 0)])
def test_a_dense_array_is_fixed_size_lists_in_arrow(dtype, shape) -> None:
    values = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    array = column_to_arrow(values)
    array.validate(full=True)
    expected = values
    if dtype.startswith("complex"):
        expected = np.stack([values.real, values.imag], axis=-1)
    assert len(array) == 3
    assert array.to_pylist() == expected.tolist()


def test_bfloat16_is_float32_in_arrow() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = column_to_arrow(np.array([0.5, -2.0], ml_dtypes.bfloat16))
    assert array.type == pa.float32()
    assert array.to_pylist() == [0.5, -2.0]


def test_arrow_shares_the_memory_of_strings_and_numbers() -> None:
    strings = Strings.of([b"abc", b"d"])
    address = strings.packed()[1].__array_interface__["data"][0]
    assert strings.to_arrow().buffers()[2].address == address
    values = np.arange(10)
    assert column_to_arrow(values).buffers()[1].address == values.__array_interface__["data"][0]


@pytest.mark.parametrize("value", [1.5, None, "x", 2**70])
def test_a_hole_is_not_filled_with_what_the_column_cannot_hold(value):
    column = Optional(np.array([1, 0]), np.array([True, False]))
    with pytest.raises(UsageError) as caught:
        column.fill(value)
    assert caught.value.code == "U605"
    assert column.fill(7).tolist() == [1, 7]


def test_arrays_of_a_batch_are_writable_and_own_their_memory_through_their_base() -> None:
    schema = rk.Schema(
        {"i": rk.Int64(), "f": rk.Float32(), "n": rk.Int64(shape=(None,)), "o": rk.Int64(optional=True)}
    )
    batch = new_batch(compile_plan(schema), _core.Pool(1 << 20))
    rows = [{"i": 1, "f": 0.5, "n": [1, 2], "o": None}, {"i": 2, "f": 1.5, "n": [], "o": 3}]
    for row in rows:
        assert batch.add(rk.encode(row, schema)) is None
    columns: Any = assemble_columns(compile_plan(schema), batch.take(), len(rows))
    arrays = [columns["i"], columns["f"], columns["n"].values, columns["n"].offsets, columns["o"].valid]
    assert [array.dtype.type for array in arrays] == [np.int64, np.float32, np.int64, np.int64, np.bool_]
    for array in arrays:
        assert array.flags.carray  # writable, aligned and contiguous
        assert array.base is not None
    assert [array.tolist() for array in arrays] == [[1, 2], [0.5, 1.5], [1, 2], [0, 2, 2], [False, True]]

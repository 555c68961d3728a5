"""Numbers and classes as other numbers, before they are stored."""

import math
import pickle

import numpy as np
import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.transforms.base import NumberReader
from rekord.transforms.numeric import StandardizeState

t = rk.transforms


def applied(step, feature, *values, column="x"):
    """What a transform makes of each value, read back from a record."""
    bound = pickle.loads(pickle.dumps(step.bind(rk.Schema({column: feature}))))
    rows = [bound.apply({column: value}) for value in values]
    return [rk.decode(rk.encode(row, bound.schema), bound.schema).get(step.target) for row in rows]


def refused(call, *arguments, **named):
    with pytest.raises(RekordError) as caught:
        call(*arguments, **named)
    return caught.value


# One-hot.


def test_a_label_becomes_a_vector_with_a_one_at_its_id():
    schema = t.one_hot("x").bind(rk.Schema({"x": rk.Label(["a", "b", "c"])})).schema
    assert schema["x"] == rk.Float32((3,))
    found = applied(t.one_hot("x"), rk.Label(["a", "b", "c"]), "b", 2, np.int64(0))
    assert [one.tolist() for one in found] == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_several_labels_at_once_become_several_ones():
    found = applied(t.one_hot("x"), rk.Label(4, shape=(None,)), [0, 3, 3], [])
    assert [one.tolist() for one in found] == [[1, 0, 0, 1], [0, 0, 0, 0]]


def test_whole_numbers_need_the_number_of_classes_and_stay_below_it():
    found = refused(t.one_hot("x").bind, rk.Schema({"x": rk.Int64()}))
    assert (found.code, found.location.feature) == ("S142", "x")
    assert applied(t.one_hot("x", 3), rk.Int64(), 2)[0].tolist() == [0, 0, 1]
    found = refused(applied, t.one_hot("x", 3), rk.Int64(), 3)
    assert (found.code, found.location.feature, found.found) == ("E317", "x", "3")
    assert refused(applied, t.one_hot("x", 3), rk.Int64(), -1).code == "E317"


def test_what_is_missing_stays_missing_and_a_default_is_transformed():
    assert applied(t.one_hot("x"), rk.Label(3, optional=True), None) == [None]
    assert applied(t.one_hot("x"), rk.Label(3, default=1), None)[0].tolist() == [0, 1, 0]
    found = refused(applied, t.one_hot("x"), rk.Label(3), None)
    assert (found.code, found.location.feature) == ("E301", "x")


# Places.


def test_a_result_takes_the_place_of_its_column_with_its_key_or_goes_beside_it():
    before = rk.Schema({"a": rk.Int64(), "x": rk.Label(2, key="image/label"), "z": rk.Int64()})
    assert list(t.one_hot("x").bind(before).schema.items())[1] == ("x", rk.Float32((2,), key="image/label"))
    after = t.one_hot("x", into="y").bind(before)
    assert list(after.schema) == ["a", "y", "z"]
    assert after.schema["y"] == rk.Float32((2,))
    assert sorted(after.apply({"a": 1, "x": 0, "z": 2})) == ["a", "y", "z"]
    kept = t.one_hot("x", into="y", keep=True).bind(before)
    assert list(kept.schema) == ["a", "x", "y", "z"]
    assert kept.touches == {"x", "y"}


def test_a_column_that_is_not_there_or_is_taken_is_refused():
    before = rk.Schema({"label": rk.Label(2), "y": rk.Int64()})
    found = refused(t.one_hot("lable").bind, before)
    assert (found.code, found.do) == ("S116", "did you mean `label`?")
    found = refused(t.one_hot("label", into="y").bind, before)
    assert (found.code, found.location.feature) == ("S143", "y")


def test_a_column_of_steps_is_refused():
    before = rk.Schema(context={"a": rk.Int64()}, steps={"x": rk.Label(2)})
    assert refused(t.one_hot("x").bind, before).code == "S142"
    after = t.bucketize("a", [1]).bind(before).schema
    assert after.is_sequence
    assert list(after.steps) == ["x"]


def test_arguments_that_cannot_be_meant_are_refused():
    for call in (
        lambda: t.one_hot(""),
        lambda: t.one_hot("x", 0),
        lambda: t.one_hot("x", True),
        lambda: t.one_hot("x", keep=True),
        lambda: t.one_hot("x", into=3),
        lambda: t.bucketize("x", []),
        lambda: t.bucketize("x", [2, 1]),
        lambda: t.bucketize("x", [1, 1]),
        lambda: t.bucketize("x", [math.nan]),
        lambda: t.bucketize("x", "12"),
        lambda: t.cast("x", "float80"),
        lambda: t.cast("x", "int8", lossy=1),
        lambda: t.standardize("x", mean=1.0),
        lambda: t.standardize("x", mean=1.0, std=0.0),
        lambda: t.standardize("x", mean=[], std=[1.0]),
        lambda: t.standardize("x", learn_from="test"),
        lambda: t.hash_into("x", 0),
        lambda: t.hash_into("x", 10, salt=2**63),
    ):
        assert refused(call).code == "U605"


# Buckets.


def test_a_number_is_in_the_bucket_that_its_boundary_begins():
    assert t.bucketize("x", [0, 10]).bind(rk.Schema({"x": rk.Float32()})).schema["x"] == rk.Label(3)
    found = applied(t.bucketize("x", [0, 10]), rk.Float32(), -0.5, 0, 9.99, 10, math.inf, -math.inf)
    assert found == [0, 1, 1, 2, 2, 0]
    assert applied(t.bucketize("x", [2**53 + 1]), rk.Int64(), 2**53, 2**53 + 1) == [0, 1]


def test_boundaries_of_a_float_column_are_meant_in_its_dtype():
    assert applied(t.bucketize("x", [0.7]), rk.Float32(), 0.7, np.float32(0.7), 0.69) == [1, 1, 0]
    assert applied(t.bucketize("x", [0.7]), rk.Float32(dtype="float16"), 0.7) == [1]


def test_lists_are_bucketed_one_by_one_and_nan_is_in_no_bucket():
    assert applied(t.bucketize("x", [5]), rk.Int64((None,)), [1, 9, 5], [])[0].tolist() == [0, 1, 1]
    found = refused(applied, t.bucketize("x", [5]), rk.Float32(), math.nan)
    assert (found.code, found.location.feature) == ("E388", "x")
    assert applied(t.bucketize("x", [5]), rk.Float32(optional=True), None) == [None]


# Casts.


@pytest.mark.parametrize(
    ("feature", "dtype", "value", "made"),
    [
        (rk.Int64(), "float32", 7, 7.0),
        (rk.Float32(), "int64", 7.0, 7),
        (rk.Float32(), "uint8", 255.0, 255),
        (rk.Int64(), "bool", 1, True),
        (rk.Float32(), "float16", 0.5, 0.5),
        (rk.Int64(dtype="uint64"), "float32", 2**63, 2.0**63),
        (rk.Int64(), "text", -12, "-12"),
        (rk.Float32(), "text", 0.1, "0.1"),
        (rk.Int64(dtype="bool"), "text", True, "true"),
        (rk.Label(["cat", "dog"]), "text", "dog", "dog"),
        (rk.Label(["cat", "dog"]), "int64", "dog", 1),
        (rk.Label(3), "bytes", 2, b"2"),
        (rk.Text(), "int64", " 42 ", 42),
        (rk.Text(), "int64", "4e3", 4000),
        (rk.Text(), "float32", "0.1", np.float32(0.1)),
        (rk.Text(), "bool", "True", True),
        (rk.Bytes(), "int64", b"42", 42),
        (rk.Bytes(), "text", "ä".encode(), "ä"),
        (rk.Text(), "bytes", "ä", "ä".encode()),
        (rk.Tensor("float64"), "float32", 0.5, 0.5),
        (rk.Text(), "float64", "0.1", 0.1),
        (rk.Int64(), "float64", 2**53, 2.0**53),
    ],
)
def test_a_value_that_survives_is_cast(feature, dtype, value, made):
    (found,) = applied(t.cast("x", dtype), feature, value)
    assert found == made
    assert type(found) is type(made) or np.dtype(type(found)) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("feature", "dtype", "value", "shown"),
    [
        (rk.Int64(), "float32", 2**24 + 1, "16777217"),
        (rk.Float32(), "int64", 1.5, "float32 1.5"),
        (rk.Float32(), "int64", math.nan, "float32 nan"),
        (rk.Float32(), "int64", math.inf, "float32 inf"),
        (rk.Float32(), "uint8", 256.0, "float32 256.0"),
        (rk.Int64(), "int8", 128, "128"),
        (rk.Int64(dtype="uint64"), "int64", 2**63, "uint64 9223372036854775808"),
        (rk.Int64(), "bool", 2, "2"),
        (rk.Float32(), "float16", 0.1, "float32 0.1"),
        (rk.Float32(), "float16", 70000.0, "float32 70000.0"),
        (rk.Text(), "int64", "four", "'four'"),
        (rk.Text(), "int64", "1_000", "'1_000'"),
        (rk.Text(), "int64", "", "''"),
        (rk.Text(), "int64", "9" * 19, "'" + "9" * 19 + "'"),
        (rk.Text(), "int64", "1.5", "'1.5'"),
        (rk.Text(), "float32", "1e39", "'1e39'"),
        (rk.Text(), "bool", "yes", "'yes'"),
        (rk.Tensor("float64"), "float32", 0.1, "0.1"),
        (rk.Int64(), "float64", 2**53 + 1, "9007199254740993"),
        (rk.Int64(), "float16", 70000, "70000"),
    ],
)
def test_a_value_that_does_not_survive_is_refused_with_its_value(feature, dtype, value, shown):
    found = refused(applied, t.cast("x", dtype), feature, value)
    assert (found.code, found.location.feature, found.found) == ("E386", "x", shown)


def test_lossy_cuts_fractions_and_digits_and_nothing_else():
    def lossy(dtype, feature, value):
        return applied(t.cast("x", dtype, lossy=True), feature, value)[0]

    assert lossy("int64", rk.Float32(), -1.75) == -1
    assert lossy("float32", rk.Int64(), 2**24 + 1) == 2.0**24
    assert lossy("float16", rk.Float32(), 0.1) == np.float16(0.1)
    assert lossy("bfloat16", rk.Float32(), 1 + 2**-20) == 1
    assert lossy("bool", rk.Int64(), 7)
    assert lossy("int64", rk.Text(), "1.9") == 1
    assert lossy("text", rk.Bytes(), b"a\xff") == "a�"
    for dtype, feature, value in (
        ("uint8", rk.Float32(), 300.5),
        ("int64", rk.Float32(), math.nan),
        ("bool", rk.Float32(), math.nan),
        ("float16", rk.Float32(), 1e6),
        ("int64", rk.Text(), "four"),
    ):
        assert refused(lossy, dtype, feature, value).code == "E386"


def test_bytes_that_are_no_text_are_refused_by_the_encoder():
    found = refused(applied, t.cast("x", "text"), rk.Bytes(), b"\xff")
    assert (found.code, found.location.feature) == ("E318", "x")


def test_lists_arrays_holes_and_defaults_are_cast():
    assert applied(t.cast("x", "float32"), rk.Int64((None, 2)), [[1, 2], [3, 4]])[0].tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert applied(t.cast("x", "text"), rk.Int64((2, 2)), [[1, 2], [3, 4]])[0].tolist() == [
        ["1", "2"],
        ["3", "4"],
    ]
    assert applied(t.cast("x", "int64"), rk.Text((None,)), ["1", "2"], [])[0].tolist() == [1, 2]
    assert applied(t.cast("x", "uint8"), rk.Tensor("float64", (2,)), np.array([1.0, 2.0]))[0].tolist() == [
        1,
        2,
    ]
    assert applied(t.cast("x", "int64"), rk.Text(optional=True), None) == [None]
    assert applied(t.cast("x", "int64"), rk.Text(default="5"), None) == [5]
    assert applied(t.cast("x", "float32"), rk.Int64(optional=True), None) == [None]


def test_what_is_no_number_and_no_text_is_not_cast():
    schema = rk.Schema({"x": rk.Sparse("float32", 4)})
    assert refused(t.cast("x", "float32").bind, schema).code == "S142"
    schema = rk.Schema({"x": rk.Tensor("complex64")})
    assert refused(t.cast("x", "float32").bind, schema).code == "S142"
    schema = rk.Schema({"x": rk.Int64((None, None), partitions=("x/rows",))})
    assert refused(t.cast("x", "float32").bind, schema).code == "S142"


# Hashes.


def test_the_hash_of_a_value_never_changes():
    found = applied(t.hash_into("x", 1_000_000), rk.Text(), "", "cat", "Ångström", "7")
    assert found == [847043, 418230, 374534, 915977]
    assert applied(t.hash_into("x", 1_000_000), rk.Int64(), 7) == found[3:]
    assert applied(t.hash_into("x", 1_000_000), rk.Bytes(), b"cat") == found[1:2]
    assert applied(t.hash_into("x", 1_000_000, salt=1), rk.Text(), "cat") == [713807]


def test_hashes_are_a_label_of_so_many_buckets():
    assert t.hash_into("x", 10).bind(rk.Schema({"x": rk.Text((None,))})).schema["x"] == rk.Label(10, shape=(None,))
    found = applied(t.hash_into("x", 10), rk.Text((None,)), ["a", "b", "a"], [])
    assert found[0][0] == found[0][2]
    assert max(found[0]) < 10
    assert applied(t.hash_into("x", 10), rk.Bytes(optional=True), None) == [None]
    assert applied(t.hash_into("x", 10), rk.Bytes(), b"\xff")[0] < 10


@pytest.mark.parametrize(
    ("feature", "given"),
    [
        (
            rk.Float32(),
            [0.1, np.float64(0.1), np.float32(0.1), 7, np.int64(3), 2**24, -0.0, 3.3e38, math.inf],
        ),
        (rk.Float32(dtype="float16"), [0.1, 2]),
        (rk.Float32(range=(0, 1)), [0.25]),
        (rk.Int64(), [7, np.int64(7), np.uint8(7), True, 2**63 - 1, -(2**63)]),
        (rk.Int64(dtype="uint64"), [2**64 - 1, 7, np.uint64(2**63)]),
        (rk.Int64(dtype="bool"), [True, 0]),
        (rk.Label(["a", "b"]), ["b", 0, np.int64(1)]),
    ],
)
def test_a_single_number_is_read_as_it_would_be_stored(feature, given):
    schema = rk.Schema({"x": feature})
    numbers = NumberReader("x", feature)
    for value in given:
        stored = rk.decode(rk.encode({"x": value}, schema), schema)["x"]
        assert numbers.one({"x": value}) == numbers.flat({"x": value})[0] == stored.item()
        # What is read from a record is the same again.
        assert numbers.one({"x": stored}) == stored.item()


def test_a_single_number_that_does_not_fit_is_refused_as_by_the_encoder():
    for feature, value, code in (
        (rk.Float32(), 1e39, "E313"),
        (rk.Float32(), 2**24 + 1, "E314"),
        (rk.Float32(range=(0, 1)), 2.0, "E311"),
        (rk.Float32(rounding="exact"), 0.1, "E315"),
        (rk.Int64(), 2**63, "E310"),
        (rk.Int64(), 1.5, "E304"),
        (rk.Int64(range=(0, 5)), 6, "E311"),
        (rk.Label(3), 3, "E317"),
        (rk.Label(["a"]), "b", "E316"),
        (rk.Float32(), "1", "E303"),
    ):
        found = refused(NumberReader("x", feature).one, {"x": value})
        assert (found.code, found.location.feature) == (code, "x")


# Standard scores.


def test_numbers_are_standardised_by_a_mean_and_a_deviation_that_are_given():
    assert applied(t.standardize("x", 10, 2), rk.Int64(), 14, 9) == [2.0, -0.5]
    found = applied(t.standardize("x", [1, 10], [1, 10]), rk.Float32((None, 2)), [[2, 20], [1, 0]])
    assert found[0].tolist() == [[1, 1], [0, -1]]
    schema = rk.Schema({"x": rk.Float32((3,))})
    assert refused(t.standardize("x", [1, 2], 1).bind, schema).code == "S142"


def test_a_mean_is_learned_before_rows_are_written(tmp_path):
    rng = np.random.default_rng(5)
    values = (rng.normal(1e6, 3, 1000)).astype(np.float32)
    rows = [{"x": float(value), "v": [int(i), 7]} for i, value in enumerate(values)]
    schema = rk.Schema({"x": rk.Float32(), "v": rk.Int64((2,))})
    steps = [t.standardize("x"), t.standardize("v")]
    dataset = rk.write(rows, tmp_path / "out", schema=schema, transforms=steps, progress=False, workers=1)
    batch = next(iter(dataset["train"].batches(1000)))
    exact = values.astype(np.float64)
    expected = ((exact - exact.mean()) / exact.std()).astype(np.float32)
    np.testing.assert_allclose(batch["x"], expected, rtol=1e-6, atol=1e-7)
    # A column that is always the same is divided by 1.
    assert batch["v"][:, 1].tolist() == [0.0] * 1000
    assert batch["v"][0, 0] == np.float32((0 - 499.5) / np.arange(1000).std())


def test_sums_are_exact_in_whatever_order_they_are_made():
    values = [float(np.float32(one)) for one in (1e30, 1.0, -1e30, 1e-40, 3.5, -2.25)] * 700
    schema = rk.Schema({"x": rk.Float32()})

    def learned(parts):
        lessons = []
        for part in parts:
            lesson = t.standardize("x").begin(schema)
            for value in part:
                lesson.update({"x": value})
            lessons.append(pickle.loads(pickle.dumps(lesson)))
        whole = t.standardize("x").begin(schema)
        for lesson in lessons:
            whole.merge(lesson)
        return whole.learned().options()

    first = learned([values])
    assert first == learned([values[::2], values[1::2]]) == learned([values[3000:], values[:3000][::-1]])
    assert first["mean"] == [math.fsum(values) / len(values)]


def test_nan_and_infinity_are_left_out_of_the_sums():
    lesson = t.standardize("x").begin(rk.Schema({"x": rk.Float32((None,))}))
    assert isinstance(lesson, StandardizeState)
    lesson.update({"x": [1.0, math.nan, 3.0, math.inf]})
    lesson.update({"x": []})
    assert lesson.describe() == "mean and std of 2 values"
    options = lesson.learned().options()
    assert (options["mean"], options["std"]) == ([2.0], [1.0])


def test_what_has_to_be_learned_first_is_not_applied():
    found = refused(t.standardize("x").bind, rk.Schema({"x": rk.Float32()}))
    assert (found.code, found.what, found.do) == (
        "U691",
        "`standardize` of `x` is not fitted",
        "pass mean= and std=",
    )


@pytest.mark.parametrize(
    "step",
    [
        t.one_hot("x", 4, into="y", keep=True),
        t.bucketize("x", [1, 2.5]),
        t.cast("x", "float32", lossy=True),
        t.hash_into("x", 7, salt=3),
        t.standardize("x", [1.5], [2.0]),
        t.hash_words("x", 100, with_="whitespace", lowercase=False, salt=2),
    ],
)
def test_a_transform_is_made_again_from_its_options(step, tmp_path):
    import msgspec

    options = msgspec.json.decode(msgspec.json.encode(step.options()))
    assert type(step).from_options(options, str(tmp_path)) == step

"""Specs taken from Python files that are never run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekord.errors import RekordError
from rekord.schema.interop.spec_file import load_spec, parse_spec_source
from rekord.schema.interop.tf_spec import (
    FixedLenSequenceSpec,
    FixedLenSpec,
    Partition,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    VarLenSpec,
    record_keys,
    to_source,
)

LABEL = {"label": FixedLenSpec((), "int64")}


@pytest.fixture
def spec_of(tmp_path: Path):
    """Reads the spec `NAME` of a file with this text."""

    def read(text: str, name: str | None = "S"):
        path = tmp_path / "spec.py"
        path.write_text(text, encoding="utf-8")
        return load_spec(str(path) if name is None else f"{path}:{name}")

    return read


@pytest.fixture
def refused(spec_of, tmp_path: Path):
    """The error for the spec `NAME` of a file with this text, of which path and line are checked by the test."""

    def read(text: str, name: str | None = "S") -> RekordError:
        with pytest.raises(RekordError) as caught:
            spec_of(text, name)
        assert caught.value.location.path == str(tmp_path / "spec.py")
        assert caught.value.do
        return caught.value

    return read


FIVE = """
import tensorflow as tf
S = {
    "fixed": tf.io.FixedLenFeature([2, 3], tf.float32),
    "default": tf.io.FixedLenFeature(shape=(), dtype=tf.string, default_value="é"),
    "vector": tf.io.FixedLenFeature([2], tf.int64, [1, -2]),
    "one": tf.io.FixedLenFeature([1], tf.float32, default_value=0.5),
    "var": tf.io.VarLenFeature(tf.int64),
    "seq": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=-1),
    "sparse": tf.io.SparseFeature(index_key="i", value_key="v", dtype=tf.float32, size=10),
    "matrix": tf.io.SparseFeature(["i", "j"], "v", tf.int64, [3, 4], already_sorted=True),
    "flat": tf.io.RaggedFeature(tf.string),
    "rows": tf.io.RaggedFeature(
        tf.int64,
        value_key="rows/values",
        partitions=[tf.io.RaggedFeature.RowLengths("rows/lengths"), tf.io.RaggedFeature.UniformRowLength(2)],
        row_splits_dtype=tf.int64,
        validate=True,
    ),
}
"""
FIVE_SPEC = {
    "fixed": FixedLenSpec((2, 3), "float32"),
    "default": FixedLenSpec((), "string", "é".encode()),
    "vector": FixedLenSpec((2,), "int64", (1, -2)),
    "one": FixedLenSpec((1,), "float32", (0.5,)),
    "var": VarLenSpec("int64"),
    "seq": FixedLenSequenceSpec((), "int64", allow_missing=True, default=-1),
    "sparse": SparseSpec(("i",), "v", "float32", (10,)),
    "matrix": SparseSpec(("i", "j"), "v", "int64", (3, 4), already_sorted=True),
    "flat": RaggedSpec("string"),
    "rows": RaggedSpec(
        "int64",
        "rows/values",
        (Partition("RowLengths", key="rows/lengths"), Partition("UniformRowLength", length=2)),
        "int64",
        True,
    ),
}


def test_the_five_classes_are_read_with_all_their_arguments(spec_of):
    assert spec_of(FIVE) == FIVE_SPEC


def test_what_to_source_writes_is_read_back_as_it_was(spec_of):
    odd = {
        'a "b"': FixedLenSpec((), "float32", float("inf")),
        "c\n'": VarLenSpec("string"),
        "\\": VarLenSpec("int64"),
    }
    for spec in (FIVE_SPEC, odd, {}):
        text = to_source(spec)
        if spec is not odd:
            assert spec_of(f"S = {text}") == spec
        compile(text, "spec", "eval")
    pair = SequenceSpec(LABEL, {"x": VarLenSpec("int64")})
    assert spec_of(f"S = {to_source(pair)}") == pair


def test_the_keys_of_a_record_that_a_feature_reads_are_told_with_their_types():
    assert record_keys("label", FixedLenSpec((), "int64")) == {"label": "int64"}
    assert record_keys("s", FIVE_SPEC["matrix"]) == {"i": "int64", "j": "int64", "v": "int64"}
    assert record_keys("rows", FIVE_SPEC["rows"]) == {"rows/values": "int64", "rows/lengths": "int64"}
    assert record_keys("flat", FIVE_SPEC["flat"]) == {"flat": "string"}


@pytest.mark.parametrize(
    "text",
    [
        'S = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'S: dict[str, object] = {"label": tensorflow.io.FixedLenFeature((), tensorflow.int64)}',
        'S = {"label": io.FixedLenFeature([], dtypes.int64)}',
        'from tensorflow.io import FixedLenFeature\nS = {"label": FixedLenFeature([], "int64")}',
        'from tensorflow.io import FixedLenFeature as F\nS = {"label": F([], np.int64)}',
        'S = {"label": tf.FixedLenFeature([], tf.int64)}',
        'S = {"label": tf.compat.v1.FixedLenFeature([], tf.dtypes.int64)}',
        "from tensorflow import int64\nS = dict(label=tf.io.FixedLenFeature([], int64))",
        'S = dict({"label": tf.io.FixedLenFeature([], tf.int64)})',
        "S = collections.OrderedDict(label=tf.io.FixedLenFeature([], tf.int64))",
        'BASE = {"label": tf.io.FixedLenFeature([], tf.int64)}\nS = {**BASE}',
        'BASE = {"label": tf.io.FixedLenFeature([], tf.int64)}\nS = dict(BASE)',
        'BASE = {"label": tf.io.FixedLenFeature([], tf.int64)}\nS = BASE',
        'L = tf.io.FixedLenFeature([], tf.int64)\nKEY = "la" + "bel"\nS = {KEY: L}',
        'F = tf.io.FixedLenFeature\nD = tf.int64\nSH = []\nS = {"label": F(SH, D)}',
        'S = {}\nS["label"] = tf.io.FixedLenFeature([], tf.int64)',
        'S = {"x": tf.io.VarLenFeature(tf.int64)}\nS = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'S = {}\nS.update({"label": tf.io.FixedLenFeature([], tf.int64)})',
        "S = {}\nS.update(label=tf.io.FixedLenFeature([], tf.int64))",
        'S = {}\nS |= {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'NAMES = ["label"]\nS = {n: tf.io.FixedLenFeature([], tf.int64) for n in NAMES}',
        'if True:\n    S = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'with x():\n    S = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'def f():\n    S = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'class C:\n    S = {"label": tf.io.FixedLenFeature([], tf.int64)}',
        'S, T = {"label": tf.io.FixedLenFeature([], tf.int64)}, 3',
        "try:\n    from tensorflow.io import FixedLenFeature\nexcept ImportError:\n"
        '    from tensorflow import FixedLenFeature\nS = {"label": FixedLenFeature([], tf.int64)}',
    ],
)
def test_the_ways_in_which_people_write_a_spec_are_understood(spec_of, text):
    assert spec_of(text) == LABEL


@pytest.mark.parametrize(
    ("written", "shape"),
    [
        ("[SIZE]", (28,)),
        ("(SIZE, SIZE + 4, 3)", (28, 32, 3)),
        ("[SIZE * SIZE]", (784,)),
        ("[SIZE // 3 - 1]", (8,)),
        ("[SIZE] + [3]", (28, 3)),
        ("SIZE", (28,)),
        ("tf.TensorShape([SIZE])", (28,)),
        ("list((SIZE, 1))", (28, 1)),
    ],
)
def test_shapes_may_be_named_and_computed(spec_of, written, shape):
    spec = spec_of(f'SIZE = 28\nS = {{"x": tf.io.FixedLenFeature({written}, tf.float32)}}')
    assert spec == {"x": FixedLenSpec(shape, "float32")}


PARSERS = """
FEATURES = {"label": tf.io.FixedLenFeature([], tf.int64)}

def by_name(record):
    return tf.io.parse_single_example(record, FEATURES)

def by_keyword(record):
    return tf.io.parse_example(serialized=record, features={"label": tf.io.FixedLenFeature([], tf.int64)})

def by_local_name(record):
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    other = {"label": 3}
    return tf.io.parse_single_example(record, spec)

def only_bound(record):
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    return parse(record, spec)

def returned():
    return {"label": tf.io.FixedLenFeature([], tf.int64)}

def outside():
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    def inside(record):
        return tf.io.parse_single_example(record, spec)
    return inside

class Reader:
    def method(self, record):
        return tf.io.parse_single_example(record, FEATURES)
"""


@pytest.mark.parametrize(
    "name",
    ["by_name", "by_keyword", "by_local_name", "only_bound", "returned", "inside", "outside", "method"],
)
def test_a_function_may_be_named_in_place_of_its_spec(spec_of, name):
    assert spec_of(PARSERS, name) == LABEL


SEQUENCE = """
CONTEXT = {"label": tf.io.FixedLenFeature([], tf.int64)}
STEPS = {"x": tf.io.FixedLenSequenceFeature([2], tf.float32)}
BOTH = (CONTEXT, STEPS)
ONLY_STEPS = (None, STEPS)

def parse(record):
    return tf.io.parse_single_sequence_example(record, sequence_features=STEPS, context_features=CONTEXT)
"""


@pytest.mark.parametrize("name", ["BOTH", "parse", "CONTEXT,STEPS", "CONTEXT, STEPS"])
def test_a_sequence_has_two_specs(spec_of, name):
    steps = {"x": FixedLenSequenceSpec((2,), "float32")}
    assert spec_of(SEQUENCE, name) == SequenceSpec(LABEL, steps)
    assert spec_of(SEQUENCE, "ONLY_STEPS") == SequenceSpec({}, steps)


def test_without_a_name_the_only_spec_of_the_file_is_taken(spec_of):
    assert spec_of(f"X = 3\nY = {{1: 2}}\n{FIVE}", None) == FIVE_SPEC
    inline = 'def f(r):\n    return tf.io.parse_example(r, {"label": tf.io.FixedLenFeature([], tf.int64)})'
    assert spec_of(inline, None) == LABEL


def test_of_several_specs_one_must_be_named(refused):
    error = refused(SEQUENCE, None)
    assert error.code == "S135"
    assert "`CONTEXT`, `STEPS`" in error.found
    assert error.do.endswith("spec.py:CONTEXT")
    assert refused("X = 3", None).code == "S135"


def test_nothing_of_the_file_is_run(spec_of, tmp_path):
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n{FIVE}"
    assert spec_of(text) == FIVE_SPEC
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("value", "line", "found"),
    [
        ("make_spec()", 4, None),
        ("{**make_spec()}", 4, "not a dict"),
        ("{'x': tf.io.FixedLenFeature([N], tf.int64)}", 4, "`N`"),
        ("{'x': tf.io.FixedLenFeature(\n    [len(A)], tf.int64)}", 5, "`len(A)`"),
        ("{'x': tf.io.FixedLenFeature([2 ** 3], tf.int64)}", 4, "`2 ** 3`"),
        ("{'x': tf.io.FixedLenFeature([1 // 0], tf.int64)}", 4, "calculation"),
        ("{'x': tf.io.FixedLenFeature(*ARGS)}", 4, "`*`"),
        ("{'x': tf.io.FixedLenFeature(**ARGS)}", 4, "`**`"),
        ("{f'{n}': tf.io.VarLenFeature(tf.int64)}", 4, "f'{n}'"),
        ("{3: tf.io.VarLenFeature(tf.int64)}", 4, "not a str"),
        ("{k: tf.io.VarLenFeature(tf.int64) for k in range(3)}", 4, "`range(3)`"),
        ("{k: tf.io.VarLenFeature(tf.int64) for k in A if k}", 4, "conditions"),
        ("LOOP", 2, "deeply, or circular"),
        ("{'x': tf.io.VarLenFeature(tf.int64), **FROM_CONFIG}", 1, "an import"),
        ("{'x': tf.io.FixedLenFeature([TWICE], tf.int64)}", 3, "more than once"),
    ],
)
def test_what_only_running_would_tell_is_refused_with_its_line(refused, value, line, found):
    text = "from config import FROM_CONFIG\nLOOP, A = LOOP, ['a']\nTWICE = 1; TWICE = 2\nS = " + value
    error = refused(text)
    assert error.code == ("S136" if found is None else "S134")
    assert error.location.line == line
    assert found is None or found in error.found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("for k in A:\n    S[k] = tf.io.VarLenFeature(tf.int64)", "a loop"),
        ("if training:\n    S['x'] = tf.io.VarLenFeature(tf.int64)", "a condition"),
        ("S.pop('label')", ".pop()"),
        ("del S['label']", "deleted"),
    ],
)
def test_a_spec_that_is_changed_later_is_not_taken_for_what_it_was(refused, change, found):
    error = refused(f"S = {{'label': tf.io.FixedLenFeature([], tf.int64)}}\n{change}")
    assert error.code == "S134"
    assert error.location.line in (2, 3)
    assert found in error.found


def test_a_parameter_of_a_function_is_not_known(refused):
    text = "def parse(record, size):\n    S = {'x': tf.io.FixedLenFeature([size], tf.int64)}"
    error = refused(text, "parse")
    assert (error.code, error.location.line) == ("S134", 1)
    assert "a function parameter" in error.found


@pytest.mark.parametrize(
    ("feature", "found"),
    [
        ("tf.io.FixedLenFeature([], tf.int32)", "dtype=`tf.int32`"),
        ("tf.io.VarLenFeature(DTYPE())", "dtype=`DTYPE()`"),
        ("tf.io.FixedLenFeature([None], tf.int64)", "shape=`[None]`"),
        ("tf.io.FixedLenFeature([-1], tf.int64)", "shape=`[-1]`"),
        ("tf.io.FixedLenFeature(dtype=tf.int64)", "without it"),
        ("tf.io.FixedLenFeature([])", "without it"),
        ("tf.io.FixedLenFeature([], tf.int64, 0, 1)", "more"),
        ("tf.io.FixedLenFeature([], tf.int64, default=0)", "argument `default`"),
        ("tf.io.FixedLenFeature([2], tf.int64, [1, 2, 3])", "default_value=`[1, 2, 3]`"),
        ("tf.io.FixedLenFeature([], tf.int64, 'a')", "default_value=`'a'`"),
        ("tf.io.SparseFeature('i', dtype=tf.int64, size=3)", "without it"),
        ("tf.io.SparseFeature(3, 'v', tf.int64, 3)", "index_key=`3`"),
        ("tf.io.RaggedFeature(tf.int64, value_key=3)", "value_key=`3`"),
        ("tf.io.RaggedFeature(tf.int64, partitions=3)", "partitions=`3`"),
        ("tf.io.RaggedFeature(tf.int64, partitions=[3])", "`3`"),
        ("tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.float32)", "row_splits_dtype=`tf.float32`"),
        ("tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=3)", "allow_missing=`3`"),
        ("tf.io.FixedLenFeatures([], tf.int64)", "`tf.io.FixedLenFeatures([], tf.int64)`"),
        ("tf.int64", "`tf.int64`"),
        ("3", "`3`"),
    ],
)
def test_a_feature_that_tensorflow_would_refuse_is_refused_by_name_and_line(refused, feature, found):
    error = refused(f"import tensorflow as tf\nS = {{\n    'x': {feature},\n}}")
    assert (error.code, error.location.line) == ("S137", 3)
    assert error.location.feature in ("x", None)
    assert found in error.found
    assert error.expected


def test_a_name_that_is_not_there_brings_the_nearest(refused):
    error = refused(FIVE.replace("S = {", "FEATURES = {"), "FEATURE")
    assert (error.code, error.likely) == ("S135", "`FEATURES`")
    assert error.do.endswith("spec.py:FEATURES")


@pytest.mark.parametrize("value", ["3", "[1, 2, 3]", "'text'", "tf.io.VarLenFeature(tf.int64)", "lambda: {}"])
def test_a_name_that_is_no_dict_is_refused_with_its_line(refused, value):
    error = refused(f"\nS = {value}")
    assert (error.code, error.location.line) == ("S136", 2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("S = {\n'x': }", 2),
        ("S = 3\nx = = 3", 2),
        ("S = " + "(" * 5000, None),
    ],
)
def test_a_file_that_is_not_python_is_refused(refused, text, line):
    error = refused(text)
    assert error.code == "S133"
    assert line is None or error.location.line == line


def test_bytes_that_are_no_text_are_refused(tmp_path):
    for content in (b"\xff\xfe\x00S = 3", b"S = 3\0", b"# coding: nonsense\nS = 3", bytes(5 << 20)):
        path = tmp_path / "spec.py"
        path.write_bytes(content)
        with pytest.raises(RekordError) as caught:
            load_spec(f"{path}:S")
        assert (caught.value.code, caught.value.location.path) == ("S133", str(path))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path, code in ((tmp_path / "no.py", "X501"), (tmp_path, "X503")):
        with pytest.raises(RekordError) as caught:
            load_spec(f"{path}:S")
        assert (caught.value.code, caught.value.location.path) == (code, str(path))


@pytest.mark.parametrize("text", ["", ":", ":S", "spec.py:", "a.py:A,B,C"])
def test_what_names_no_file_and_no_spec_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(SEQUENCE)
    with pytest.raises(RekordError) as caught:
        load_spec(text)
    assert (caught.value.code, caught.value.do) == ("U622", "--spec FILE.py:NAME")
    assert caught.value.what.endswith(" is not a valid spec reference")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("C:\\work\\spec.py", "C:\\work\\spec.py"),
        ("C:\\work\\spec.py:S", "C:\\work\\spec.py"),
        ("C:spec.py", "C:spec.py"),
        (os.path.join("a:b", "spec.py"), os.path.join("a:b", "spec.py")),
    ],
)
def test_the_colon_of_a_drive_is_no_name(text, path):
    with pytest.raises(RekordError) as caught:
        load_spec(text)
    assert (caught.value.code, caught.value.location.path) == ("X501", path)


def test_a_pair_of_pairs_is_refused():
    with pytest.raises(RekordError) as caught:
        parse_spec_source(SEQUENCE, "BOTH,STEPS", path="spec.py")
    assert (caught.value.code, caught.value.what) == ("U622", "'BOTH,STEPS' is not a valid spec reference")


def test_an_odd_escape_in_somebody_elses_file_is_no_warning_of_ours(spec_of):
    assert spec_of("X = '\\d'\n" + FIVE) == FIVE_SPEC


def test_names_that_are_bound_in_several_functions_are_not_guessed(refused):
    two = "def f():\n    S = {'a': tf.io.VarLenFeature(tf.int64)}\ndef g():\n    S = {}\n"
    error = refused(two)
    assert (error.code, error.location.line, error.found) == ("S135", 3, "f, g")
    assert refused("def f():\n    pass", "f").code == "S135"
    several = "def f():\n    a = {'a': tf.io.VarLenFeature(tf.int64)}\n    b = {'b': tf.io.VarLenFeature(tf.int64)}"
    assert refused(several, "f").found == "a, b"


@pytest.mark.parametrize(
    "text",
    [
        "A0 = {}\n" + "".join([f"A{i} = {{**A{i - 1}, **A{i - 1}}}\n" for i in range(1, 45)]) + "S = A44",
        "A0 = (1,)\n"
        + "".join([f"A{i} = A{i - 1} + A{i - 1}\n" for i in range(1, 45)])
        + "S = {'x': tf.io.FixedLenFeature(A44, tf.int64)}",
        "A0 = 2\n"
        + "".join([f"A{i} = A{i - 1} * A{i - 1}\n" for i in range(1, 45)])
        + "S = {'x': tf.io.FixedLenFeature([A44], tf.int64)}",
        "S = {'x': tf.io.FixedLenFeature([" + "-" * 80 + "1], tf.int64)}",
        "S = {'x': tf.io.FixedLenFeature([" + "1 + " * 80 + "1], tf.int64)}",
    ],
)
def test_a_file_that_would_never_be_done_is_given_up(refused, text):
    assert refused(text).code == "S134"

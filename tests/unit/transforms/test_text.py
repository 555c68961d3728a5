"""Texts as ids, as sparse vectors and as hashes, by vocabularies that are given."""

import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rekord as rk
from rekord.errors import RekordError
from rekord.transforms import vocabularies
from rekord.transforms.vocabularies import build_splitter, hash_to_bucket

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


# Words.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The cat, the CAT!", ["the", "cat", "the", "cat"]),
        ("don't  re-use_it\t2 times", ["don't", "re", "use_it", "2", "times"]),
        ("l’été 'quoted'", ["l’été", "quoted"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("", []),
        ("... !!!", []),
    ],
)
def test_words_are_letters_digits_and_their_marks(text, found):
    assert build_splitter("words", True)(text) == found


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)) | st.sampled_from("ab 'é’\u0301ि,_1")))
def test_the_fast_ways_to_words_find_what_the_slow_one_finds(text):
    assert build_splitter("words", False)(text) == vocabularies._load_marked_word_finder()(text)


def test_white_space_keeps_what_stands_between_it():
    assert build_splitter("whitespace", False)(" The cat,\nsat\u2003down ") == ["The", "cat,", "sat", "down"]


# Looking up.


def test_words_become_their_places_behind_the_unknown():
    assert t.vocabulary("x", ["a", "b"]).bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Label(
        ["[UNK]", "a", "b"]
    )
    assert applied(t.vocabulary("x", ["a", "b"]), rk.Text(), "b", "a", "z", "") == [2, 1, 0, 0]
    assert applied(t.vocabulary("x", ["a", "b"]), rk.Text((None,)), ["b", "z"], [])[0].tolist() == [2, 0]
    assert applied(t.vocabulary("x", [10, 20]), rk.Int64(), 20, 5) == [2, 0]
    assert applied(t.vocabulary("x", ["ä"]), rk.Bytes(), "ä".encode()) == [1]


def test_without_room_for_the_unknown_it_is_refused():
    step = t.vocabulary("x", ["a", "b"], oov_buckets=0)
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Label(["a", "b"])
    assert applied(step, rk.Text(), "b") == [1]
    found = refused(applied, step, rk.Text(), "z")
    assert (found.code, found.location.feature, found.found) == ("E385", "x", "'z'")


def test_several_buckets_part_the_unknown_by_their_hash():
    step = t.vocabulary("x", ["a"], oov_buckets=5)
    found = applied(step, rk.Text(), "a", "y", "z")
    assert found == [5, hash_to_bucket(b"y", 5, 0), hash_to_bucket(b"z", 5, 0)]


def test_a_large_vocabulary_does_not_name_its_classes():
    step = t.vocabulary("x", [str(i) for i in range(2000)])
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Label(2001)


def test_missing_words_stay_missing():
    assert applied(t.vocabulary("x", ["a"]), rk.Text(optional=True), None) == [None]
    assert applied(t.vocabulary("x", ["a"]), rk.Text(default="a"), None) == [1]


# Files of words.


def test_a_file_of_words_is_read_with_any_line_ends(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffa\r\nb b\r\nnaïve\n".encode())
    assert applied(t.vocabulary("x", file=path), rk.Text(), "a", "b b", "naïve") == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"a\n\xff\xfe\n", 2),
        (b"a\n\nb\n", 2),
        (b"a\nb\na\n", 3),
        (b"a\nb\0c\n", 2),
        (b"a\n" + b"x" * 5000, 2),
        (b"", None),
        (b"\n", 1),
        (b"\x89PNG\r\n\x1a\n", 1),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused_with_its_line(tmp_path, data, line):
    path = tmp_path / "words.txt"
    path.write_bytes(data)
    found = refused(t.vocabulary, "x", file=path)
    assert (found.code, found.what, found.location.path, found.location.line) == (
        "U624",
        "vocabulary cannot be used",
        str(path),
        line,
    )
    assert len(found.found) <= 60


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabularies, "MAX_LINES", 3)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\nb\nc\nd\n")
    found = refused(t.vocabulary, "x", file=path)
    assert (found.code, found.what, found.found, found.location.path) == (
        "U624",
        "vocabulary cannot be used",
        "4 lines",
        str(path),
    )
    monkeypatch.setattr(vocabularies, "MAX_FILE_BYTES", 1000)
    path = tmp_path / "words.txt"
    path.write_bytes(b"abc\n" * 1000)
    found = refused(t.vocabulary, "x", file=path)
    assert (found.code, found.what, found.found, found.location.path) == (
        "U624",
        "vocabulary cannot be used",
        "a larger file",
        str(path),
    )
    assert refused(t.vocabulary, "x", file=tmp_path / "none.txt").code == "X501"


def test_words_that_cannot_be_are_refused():
    for several in (["a", "a"], [""], ["a\nb"], [None], ["\ud800"], []):
        assert str(refused(t.vocabulary, "x", several)).startswith("U624: vocabulary cannot be used")
    assert refused(t.vocabulary, "x").code == "U605"
    assert refused(t.vocabulary, "x", "abc").code == "U605"


# Tokens.

WORDS = ["[PAD]", "[UNK]", "the", "cat"]


def test_texts_become_the_ids_of_their_words():
    step = t.tokenize("x", vocabulary=WORDS)
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Int64((None,), range=(0, 3))
    found = applied(step, rk.Text(), "The dog: the cat.", "", "[PAD]")
    assert [one.tolist() for one in found] == [[2, 1, 2, 3], [], [1]]
    assert applied(step, rk.Bytes(), b"cat")[0].tolist() == [3]
    assert applied(step, rk.Text(optional=True), None, "cat")[0] is None


def test_texts_are_cut_and_filled_up():
    assert applied(t.tokenize("x", vocabulary=WORDS, max_length=2), rk.Text(), "the cat the")[0].tolist() == [
        2,
        3,
    ]
    step = t.tokenize("x", vocabulary=WORDS, max_length=4, pad=0)
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"].shape == (4,)
    found = applied(step, rk.Text(), "the cat", "", "cat " * 9)
    assert [one.tolist() for one in found] == [[2, 3, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3]]


def test_unknown_words_are_left_out_where_there_is_no_word_for_them():
    assert applied(t.tokenize("x", vocabulary=["cat"], oov=None), rk.Text(), "the cat")[0].tolist() == [0]
    found = refused(t.tokenize, "x", vocabulary=["cat"])
    assert (found.code, found.what) == ("U624", "vocabulary does not contain '[UNK]', the word for unknown words")


def test_white_space_and_case_can_be_kept():
    step = t.tokenize("x", "whitespace", vocabulary=["[UNK]", "Cat,"], lowercase=False)
    assert applied(step, rk.Text(), "Cat, cat,")[0].tolist() == [1, 0]


def test_what_is_no_text_is_refused():
    for feature in (rk.Int64(), rk.Text((None,)), rk.Label(["a"])):
        found = refused(t.tokenize("x", vocabulary=WORDS).bind, rk.Schema({"x": feature}))
        assert (found.code, found.location.feature) == ("S142", "x")
    found = refused(applied, t.tokenize("x", vocabulary=WORDS), rk.Text(), 7)
    assert (found.code, found.location.feature) == ("E305", "x")
    found = refused(applied, t.tokenize("x", vocabulary=WORDS), rk.Bytes(), b"\xff")
    assert (found.code, found.location.feature) == ("E318", "x")
    found = refused(applied, t.tokenize("x", vocabulary=WORDS), rk.Text(), "a\ud800")
    assert (found.code, found.location.feature) == ("E318", "x")


def test_arguments_of_tokenize_that_cannot_be_meant_are_refused(tmp_path):
    for call in (
        lambda: t.tokenize("x", "letters"),
        lambda: t.tokenize("x", 7),
        lambda: t.tokenize("x", pad=0),
        lambda: t.tokenize("x", max_length=0),
        lambda: t.tokenize("x", size=2),
        lambda: t.tokenize("x", oov=""),
        lambda: t.tokenize("x", lowercase=1),
        lambda: t.tokenize("x", "tokenizer.json", vocabulary=["a"]),
        lambda: t.tfidf("x", 0),
        lambda: t.tfidf("x", with_="letters"),
        lambda: t.hash_words("x", 0),
    ):
        assert refused(call).code == "U605"
    assert refused(t.tokenize, "x", tmp_path / "tokenizer.json").code == "X501"


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b"[1, 2", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, data):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    found = refused(t.tokenize, "x", path)
    assert (found.code, found.what, found.location.path) == (
        "U624",
        "tokenizer file cannot be used",
        str(path),
    )


def word_level(path, **model):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"cat": 7, "[UNK]": 90}, **model))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return path


def test_a_text_that_the_tokenizer_cannot_take_is_a_bad_row(tmp_path):
    step = t.tokenize("x", word_level(tmp_path / "tokenizer.json"))
    assert applied(step, rk.Text(), "cat cat")[0].tolist() == [7, 7]
    found = refused(applied, step, rk.Text(), "dog")
    assert (found.code, found.location.feature) == ("E387", "x")


def test_the_ids_of_a_tokenizer_may_have_gaps(tmp_path):
    step = t.tokenize("x", word_level(tmp_path / "tokenizer.json", unk_token="[UNK]"))
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Int64((None,), range=(0, 90))
    assert applied(step, rk.Text(), "dog cat")[0].tolist() == [90, 7]


def test_a_missing_tokenizers_library_names_the_extra(tmp_path, monkeypatch):
    path = word_level(tmp_path / "tokenizer.json", unk_token="[UNK]")
    path.write_text(path.read_text() + " ")  # not one that was loaded before
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = refused(t.tokenize, "x", path)
    assert (found.code, found.do) == ("U602", "pip install 'rekord[text]'")


def test_learned_transforms_are_not_applied_before_they_learned():
    schema = rk.Schema({"x": rk.Text()})
    for step in (t.tokenize("x"), t.tfidf("x")):
        assert str(refused(step.bind, schema)).startswith(f"U691: `{step.name}` of `x` is not fitted")


# Hashed words.


def test_words_are_counted_where_their_hash_says():
    step = t.hash_words("x", 1000)
    assert step.bind(rk.Schema({"x": rk.Text()})).schema["x"] == rk.Sparse("float32", 1000)
    (indices, values), empty = applied(step, rk.Text(), "a b A", "")
    expected = {hash_to_bucket(b"a", 1000, 0): 2.0, hash_to_bucket(b"b", 1000, 0): 1.0}
    assert dict(zip(indices.tolist(), values.tolist(), strict=True)) == expected
    assert [part.tolist() for part in empty] == [[], []]
    (one,) = applied(t.hash_words("x", 1), rk.Text(), "a b c")
    assert [part.tolist() for part in one] == [[0], [3.0]]
    assert applied(step, rk.Text(optional=True), None) == [None]


# Counting.


def test_more_words_than_can_be_counted_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabularies, "MAX_WORDS", 10)
    rows = [{"x": " ".join(f"w{i}" for i in range(n))} for n in (5, 10, 11)]
    found = refused(rk.write, rows, tmp_path / "out", transforms=[t.tokenize("x")], progress=False, workers=1)
    assert (found.code, found.what) == ("U691", "`x` has too many distinct words")
    assert not (tmp_path / "out").exists()
    rk.write(rows[:2], tmp_path / "out", transforms=[t.tokenize("x")], progress=False, workers=1)


def test_a_run_of_letters_that_is_too_long_is_no_word_to_learn(tmp_path):
    rows = [{"x": "a " + "b" * 300}]
    dataset = rk.write(rows, tmp_path / "out", transforms=[t.tokenize("x")], progress=False, workers=1)
    assert (tmp_path / "out" / "vocabulary-x.txt").read_text() == "[PAD]\n[UNK]\na\n"
    assert dataset["train"][0]["x"].tolist() == [2, 1]


# Beside a dataset.


def test_a_file_that_is_not_the_one_of_the_dataset_is_refused(tmp_path):
    step = t.vocabulary("x", ["a", "b"])
    options = json.loads(json.dumps(step.options()))
    path = tmp_path / "vocabulary-x.txt"
    path.write_bytes(b"a\nb\n")
    assert type(step).from_options(options, str(tmp_path)) == step
    path.write_bytes(b"a\nc\n")
    found = refused(type(step).from_options, options, str(tmp_path))
    assert (found.code, found.location.path) == ("U624", str(path))
    assert found.what == "vocabulary-x.txt is not the file that the dataset was written with"
    for name in ("../vocabulary-x.txt", "/etc/passwd", "", ".hidden", 7, None):
        assert str(refused(type(step).from_options, {**options, "file": name}, str(tmp_path))).startswith(
            "U624: vocabulary"
        )
    path.unlink()
    assert refused(type(step).from_options, options, str(tmp_path)).code == "X501"


def test_names_of_files_are_safe_and_differ():
    names = [
        vocabularies.format_companion_name("vocabulary", one, "txt") for one in ("text", "a/b", "a_b", "../x", "ä")
    ]
    assert names[0] == "vocabulary-text.txt"
    assert len(set(names)) == 5
    assert not any("/" in name or not name.isascii() for name in names)


def test_two_transforms_that_would_keep_one_file_are_refused(tmp_path):
    steps = [t.vocabulary("x", ["1"]), t.cast("x", "text"), t.vocabulary("x", ["2"])]
    found = refused(rk.write, [{"x": "1"}], tmp_path / "out", transforms=steps, progress=False)
    assert found.code == "U605"
    assert not (tmp_path / "out").exists()


def test_sparse_columns_become_scipy_arrays(tmp_path):
    rows = [{"x": "a b a"}, {"x": None}, {"x": ""}, {"x": "b"}]
    schema = rk.Schema({"x": rk.Text(optional=True)})
    dataset = rk.write(
        rows, tmp_path / "out", schema=schema, transforms=[t.hash_words("x", 8)], progress=False, workers=1
    )
    column = next(iter(dataset["train"].batches(4)))["x"]
    matrix = column.to_scipy()
    assert matrix.shape == (4, 8)
    np.testing.assert_array_equal(matrix.toarray(), column.to_dense())
    assert matrix.sum(axis=1).tolist() == [3, 0, 0, 1]

"""Transforms of numbers and texts give what Keras, scikit-learn and tokenizers give."""

import numpy as np
import pytest

import rekord as rk

t = rk.transforms

TEXTS = [
    "The cat sat on the mat.",
    "A dog, a cat; and another DOG!",
    "",
    "naïve café — naïve",
    "mat mat mat unseen",
    "हिन्दी में लिखा cat",
    "...",
]


@pytest.fixture(scope="module")
def keras():
    import keras

    return keras


def values(step, feature, *given):
    bound = step.bind(rk.Schema({"x": feature}))
    return [bound.apply({"x": one})["x"] for one in given]


def test_lookup_is_that_of_string_lookup(keras):
    words = ["rome", "oslo", "naïve"]
    given = ["oslo", "rome", "bonn", "", "naïve", "Rome"]
    layer = keras.layers.StringLookup(vocabulary=words)
    assert values(t.vocabulary("x", words), rk.Text(), *given) == layer(np.array(given)).numpy().tolist()
    layer = keras.layers.StringLookup(vocabulary=words, num_oov_indices=0)
    known = ["oslo", "rome", "naïve"]
    found = values(t.vocabulary("x", words, oov_buckets=0), rk.Text(), *known)
    assert found == layer(np.array(known)).numpy().tolist()
    numbers = keras.layers.IntegerLookup(vocabulary=[10, 20])
    assert (
        values(t.vocabulary("x", [10, 20]), rk.Int64(), 20, 7, 10) == numbers(np.array([20, 7, 10])).numpy().tolist()
    )


def test_with_several_buckets_known_words_have_the_ids_of_string_lookup(keras):
    layer = keras.layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=3)
    found = values(t.vocabulary("x", ["a", "b"], oov_buckets=3), rk.Text(), "a", "b", "z")
    assert found[:2] == layer(np.array(["a", "b"])).numpy().tolist()
    assert found[2] < 3


def test_buckets_are_those_of_discretization(keras):
    ends = [-1.0, 0.0, 0.3, 0.7, 10.0]
    given = [-2.0, -1.0, -0.5, 0.0, 0.3, 0.299999, 0.7, 0.6999, 9.0, 10.0, 1e30]
    layer = keras.layers.Discretization(bin_boundaries=ends)
    expected = layer(np.array(given, np.float32)).numpy().tolist()
    assert values(t.bucketize("x", ends), rk.Float32(), *given) == expected
    layer = keras.layers.Discretization(bin_boundaries=[0, 10])
    expected = layer(np.array([-5, 0, 9, 10, 11])).numpy().tolist()
    assert values(t.bucketize("x", [0, 10]), rk.Int64(), -5, 0, 9, 10, 11) == expected


def test_vectors_are_those_of_category_encoding(keras):
    one = keras.layers.CategoryEncoding(num_tokens=4, output_mode="one_hot")
    found = values(t.one_hot("x"), rk.Label(4), 0, 3)
    np.testing.assert_array_equal(found, one(np.array([0, 3])).numpy())
    many = keras.layers.CategoryEncoding(num_tokens=4, output_mode="multi_hot")
    found = values(t.one_hot("x"), rk.Label(4, shape=(None,)), [0, 3, 3])
    np.testing.assert_array_equal(found[0], np.asarray(many(np.array([[0, 3, 3]])))[0])


def test_scores_are_those_of_the_standard_scaler():
    from sklearn.preprocessing import StandardScaler

    data = np.random.default_rng(3).normal([5, -1, 100], [2, 0.1, 30], (500, 3)).astype(np.float32)
    schema = rk.Schema({"x": rk.Float32((3,))})
    lesson = t.standardize("x").begin(schema)
    for row in data:
        lesson.update({"x": row})
    bound = lesson.learned().bind(schema)
    found = np.array([bound.apply({"x": row})["x"] for row in data])
    np.testing.assert_allclose(found, StandardScaler().fit_transform(data.astype(np.float64)), rtol=1e-9)


def test_vocabularies_are_those_of_text_vectorization(tmp_path, keras):
    texts = ["the cat sat on the mat", "a dog a cat and another dog", "", "mat mat mat unseen"]
    layer = keras.layers.TextVectorization(max_tokens=8)
    layer.adapt(np.array(texts))
    # Words that occur alike stand in another order there, so that only their number is compared.
    dataset = rk.write(
        [{"text": text} for text in texts],
        tmp_path / "out",
        transforms=[t.tokenize("text", size=8)],
        progress=False,
        workers=1,
    )
    ours = (tmp_path / "out" / "vocabulary-text.txt").read_text().splitlines()
    theirs = layer.get_vocabulary()
    assert len(ours) == len(theirs) == 8
    again = keras.layers.TextVectorization(vocabulary=ours[2:])
    for text, row in zip(texts, dataset["train"], strict=True):
        assert row["text"].tolist() == [one for one in again([text]).numpy()[0].tolist() if one]


@pytest.mark.parametrize("with_", ["words", "whitespace"])
def test_vectors_are_those_of_the_tfidf_vectorizer(tmp_path, with_):
    from sklearn.feature_extraction.text import TfidfVectorizer

    from rekord.transforms.vocabularies import build_splitter

    dataset = rk.write(
        [{"text": text} for text in TEXTS],
        tmp_path / "out",
        transforms=[t.tfidf("text", with_=with_)],
        progress=False,
        workers=1,
    )
    words = (tmp_path / "out" / "vocabulary-text.txt").read_text().splitlines()
    vectorizer = TfidfVectorizer(analyzer=build_splitter(with_, True))
    expected = vectorizer.fit_transform(TEXTS).toarray()
    order = [vectorizer.vocabulary_[word] for word in words]
    assert sorted(order) == list(range(expected.shape[1]))
    column = next(iter(dataset["train"].batches(len(TEXTS))))["text"]
    np.testing.assert_allclose(column.to_dense(), expected[:, order], rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(column.to_scipy().toarray(), column.to_dense())


def test_the_most_frequent_words_are_those_that_the_vectorizer_keeps(tmp_path):
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [" ".join([f"w{i}"] * (i + 1)) for i in range(10)]
    rk.write(
        [{"text": text} for text in texts],
        tmp_path / "out",
        transforms=[t.tfidf("text", 4)],
        progress=False,
        workers=1,
    )
    words = (tmp_path / "out" / "vocabulary-text.txt").read_text().splitlines()
    assert set(words) == set(CountVectorizer(max_features=4).fit(texts).vocabulary_)


def test_tfidf_is_fed_to_tensorflow_as_a_sparse_tensor(tmp_path):
    import tensorflow as tf

    dataset = rk.write(
        [{"text": text} for text in TEXTS],
        tmp_path / "out",
        transforms=[t.tfidf("text")],
        progress=False,
        workers=1,
    )
    dense = next(iter(dataset["train"].batches(len(TEXTS))))["text"].to_dense()
    (batch,) = dataset["train"].to_tensorflow(len(TEXTS))
    assert isinstance(batch["text"], tf.SparseTensor)
    np.testing.assert_array_equal(tf.sparse.to_dense(batch["text"]).numpy(), dense)


def test_counts_of_hashed_words_are_those_that_are_counted(tmp_path):
    from sklearn.feature_extraction.text import CountVectorizer

    from rekord.transforms.vocabularies import build_splitter

    split = build_splitter("words", True)
    bound = t.hash_words("x", 2**30).bind(rk.Schema({"x": rk.Text()}))
    counted = CountVectorizer(analyzer=split).fit_transform(TEXTS).toarray()
    for text, row in zip(TEXTS, counted, strict=True):
        _, found = bound.apply({"x": text})["x"]
        assert sorted(found) == sorted([one for one in row.tolist() if one])


def test_ids_are_those_of_the_tokenizers_library(tmp_path):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    dataset = rk.write(
        [{"text": text} for text in TEXTS],
        tmp_path / "out",
        transforms=[t.tokenize("text", tmp_path / "tokenizer.json")],
        progress=False,
        workers=1,
    )
    for text, row in zip(TEXTS, dataset["train"], strict=True):
        assert row["text"].tolist() == tokenizer.encode(text).ids
        assert tokenizer.decode(row["text"].tolist()) == text

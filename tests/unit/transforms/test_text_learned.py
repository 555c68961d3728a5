"""What transforms learn from rows: the same for any number of workers, from the training split alone."""

import json
import pickle
from collections import Counter

import numpy as np
import pytest
from faulty_storage import Crash, FaultyStorage
from sample_conversions import build_conversion, execute_conversion, find_leftovers, use_small_parts

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError
from rekord.sources.rows import RowsSource
from rekord.transforms.text import Tfidf, Tokenize, TokenizerFile
from rekord.verbs import learning

t = rk.transforms


def refused(call, *arguments, **named):
    with pytest.raises(RekordError) as caught:
        call(*arguments, **named)
    return caught.value


def jsonl(path, rows):
    path.write_text("".join([json.dumps(row) + "\n" for row in rows]))
    return path


def texts(count):
    return [{"id": i, "text": " ".join([f"w{i % m}" for m in range(1, 9)]), "n": i / 7} for i in range(count)]


def words_of(out, column="text"):
    return (out / f"vocabulary-{column}.txt").read_text().splitlines()


def files(out):
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def test_a_vocabulary_holds_the_most_frequent_words_and_those_alike_by_the_alphabet(tmp_path):
    rows = [{"text": "b a c"}, {"text": "c B"}, {"text": "c"}, {"text": "[pad] [unk] [UNK]"}]
    rk.write(rows, tmp_path / "a", transforms=[t.tokenize("text")], progress=False, workers=1)
    assert words_of(tmp_path / "a") == ["[PAD]", "[UNK]", "c", "b", "unk", "a", "pad"]
    dataset = rk.write(rows, tmp_path / "b", transforms=[t.tokenize("text", size=4)], progress=False, workers=1)
    assert words_of(tmp_path / "b") == ["[PAD]", "[UNK]", "c", "b"]
    assert dataset["train"][0]["text"].tolist() == [3, 1, 2]
    rk.write(rows, tmp_path / "c", transforms=[t.tokenize("text", min_count=3)], progress=False, workers=1)
    assert words_of(tmp_path / "c") == ["[PAD]", "[UNK]", "c"]
    rk.write(rows, tmp_path / "d", transforms=[t.tokenize("text", "whitespace", oov=None, lowercase=False)],
             progress=False, workers=1)  # fmt: skip
    assert words_of(tmp_path / "d") == ["[PAD]", "c", "B", "[UNK]", "[pad]", "[unk]", "a", "b"]


@pytest.mark.parametrize("mapped", [False, True])
def test_any_number_of_workers_learns_and_writes_the_same(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(learning, "_MIN_PART_BYTES", 2000)
    source = jsonl(tmp_path / "rows.jsonl", texts(300))

    def also(row):
        return {**row, "text": row["text"] + " more"}

    outs = []
    for workers in (1, 3):
        out = tmp_path / f"out{workers}"
        rk.write(
            source,
            out,
            transforms=[
                t.tfidf("text", 12, into="v", keep=True),
                t.tokenize("text", size=9),
                t.standardize("n"),
            ],
            map=also if mapped else None,
            split={"train": 0.7, "val": 0.3},
            workers=workers,
            progress=False,
        )
        outs.append(files(out))
    assert outs[0] == outs[1]
    assert "vocabulary-v.txt" in outs[0]


def test_only_the_training_split_is_learned_from_unless_all_is_asked_for(tmp_path):
    rows = [{"text": f"only{i}", "group": str(i % 10), "split": "dev" if i % 3 else "fit"} for i in range(200)]
    requested = [
        {"split": {"val": 0.3, "train": 0.7}},
        {"split": {"val": 0.3, "train": 0.7}, "seed": 3},
        {"split": {"val": 0.3, "train": 0.7}, "split_by": "group"},
        {"split": {"val": 0.3, "train": 0.7}, "key": "group"},
    ]
    for i, options in enumerate(requested):
        steps = [t.tokenize("text", into="ids", keep=True)]
        out = tmp_path / f"out{i}"
        dataset = rk.write(rows, out, transforms=steps, progress=False, workers=1, **options)
        seen = {row["text"] for row in dataset["train"]}
        assert 50 < len(seen) < 200
        assert set(words_of(out, "ids")[2:]) == seen
        # A row of the other split knows none of its words.
        assert all(row["ids"].tolist() == [1] for row in dataset["val"])
    steps = [t.tokenize("text", learn_from="all")]
    rk.write(rows, tmp_path / "all", transforms=steps, progress=False, workers=1, **requested[0])
    assert len(words_of(tmp_path / "all")) == 202


def test_stratified_splits_are_not_known_before_so_all_rows_are_learned_from(tmp_path, capfd):
    rows = [{"text": f"only{i}", "group": str(i % 2)} for i in range(40)]
    rk.write(
        rows,
        tmp_path / "out",
        transforms=[t.tokenize("text")],
        split={"train": 0.5, "val": 0.5},
        stratify="group",
        workers=1,
    )
    assert len(words_of(tmp_path / "out")) == 42
    said = capfd.readouterr().err
    assert "on all rows (stratified splits are not known yet)" in said
    assert "fitted: 40 distinct words in 40 texts" in said


def test_splits_of_the_source_are_learned_from_by_their_name(tmp_path):
    rows = [{"text": "seen", "split": "train"}, {"text": "unseen", "split": "test"}]
    source = RowsSource("rows", lambda: iter(rows), splits=("test", "train"))
    dataset = rk.write(
        source, tmp_path / "out", split="source", transforms=[t.tokenize("text")], progress=False, workers=1
    )
    assert words_of(tmp_path / "out") == ["[PAD]", "[UNK]", "seen"]
    assert dataset["test"][0]["text"].tolist() == [1]


def test_rows_that_do_not_fit_are_passed_over_and_judged_afterwards(tmp_path, capfd):
    rows = [{"text": "a"}, {"text": 7}, {"text": "b"}]
    schema = rk.Schema({"text": rk.Text()})
    steps = [t.tokenize("text")]
    found = refused(rk.write, rows, tmp_path / "out", schema=schema, transforms=steps, workers=1)
    assert (found.code, found.location.row, found.location.feature) == ("E305", 1, "text")
    assert "2 distinct words in 2 texts, 1 rows skipped" in capfd.readouterr().err
    rk.write(
        rows,
        tmp_path / "out2",
        schema=schema,
        transforms=steps,
        on_bad_row="reject",
        max_rejects=1,
        workers=1,
        progress=False,
    )
    assert words_of(tmp_path / "out2") == ["[PAD]", "[UNK]", "a", "b"]


def test_what_a_map_makes_and_what_transforms_before_make_is_learned_from(tmp_path):
    rows = [{"text": "x"}, {"text": "y"}]

    def twice(row):
        yield {"n": f"{len(row['text'])}"}
        yield {"n": "22"}

    steps = [t.cast("n", "int64"), t.cast("n", "text"), t.tokenize("n")]
    schema = rk.Schema({"n": rk.Text()})
    rk.write(rows, tmp_path / "out", schema=schema, map=twice, transforms=steps, progress=False, workers=1)
    assert words_of(tmp_path / "out", "n") == ["[PAD]", "[UNK]", "1", "22"]


def test_rows_that_can_be_read_once_cannot_be_learned_from(tmp_path):
    generator = ({"text": "a"} for _ in range(3))
    found = refused(rk.write, generator, tmp_path / "out", transforms=[t.tokenize("text")], progress=False)
    assert (found.code, found.what) == (
        "U616",
        "`tokenize` needs all rows first, but these can be read only once",
    )
    assert not (tmp_path / "out").exists()
    dataset = rk.write(
        ({"text": "a"} for _ in range(3)),
        tmp_path / "out",
        transforms=[t.tokenize("text", vocabulary=["[UNK]", "a"])],
        progress=False,
    )
    assert [row["text"].tolist() for row in dataset["train"]] == [[1]] * 3


def test_the_limit_of_rows_is_one_for_learning_too(tmp_path):
    source = jsonl(tmp_path / "rows.jsonl", [{"text": f"w{i}"} for i in range(9)])
    rk.write(source, tmp_path / "out", transforms=[t.tokenize("text")], limit=2, progress=False, workers=1)
    assert words_of(tmp_path / "out") == ["[PAD]", "[UNK]", "w0", "w1"]


def test_rows_without_a_word_make_a_dataset_all_the_same(tmp_path):
    steps = [t.tfidf("text", into="v", keep=True), t.tokenize("text")]
    dataset = rk.write([{"text": "..."}], tmp_path / "out", transforms=steps, progress=False, workers=1)
    row = dataset["train"][0]
    assert row["text"].tolist() == []
    assert row["v"][0].tolist() == []


def test_what_was_learned_lies_beside_the_dataset_and_makes_the_transforms_again(tmp_path):
    rows = texts(20)
    steps = [t.tfidf("text", 5, into="a/b", keep=True), t.tokenize("text", size=8, max_length=3, pad=0)]
    dataset = rk.write(rows, tmp_path / "out", transforms=steps, progress=False, workers=1)
    manifest = read_manifest(str(tmp_path / "out"))
    first, second = manifest.options["layout"]["transforms"]
    assert {first["vocabulary"], first["idf"], second["vocabulary"]} <= set(manifest.companions)
    chain = t.chain(
        Tfidf.from_options({k: v for k, v in first.items() if k != "name"}, str(tmp_path / "out")),
        Tokenize.from_options({k: v for k, v in second.items() if k != "name"}, str(tmp_path / "out")),
    )
    raw = rk.Schema({"id": rk.Int64(), "text": rk.Text(), "n": rk.Float32()})
    bound = chain.bind(raw)
    assert bound.schema == dataset.schema
    for row, stored in zip(rows, dataset["train"], strict=True):
        made = bound.apply(dict(row))
        assert rk.encode(made, bound.schema) == rk.encode(stored, dataset.schema)
    rk.check(tmp_path / "out")
    (tmp_path / "out" / first["idf"]).write_text("nan\n" * 5)
    found = refused(Tfidf.from_options, {k: v for k, v in first.items() if k != "name"}, str(tmp_path / "out"))
    assert (found.code, found.what) == (
        "U624",
        "idf-a_b-c14cdd.txt is not the file that the dataset was written with",
    )


def test_another_source_makes_another_plan_and_the_same_one_is_complete(tmp_path):
    steps = [t.tokenize("text")]
    options = {"schema": rk.Schema({"text": rk.Text()}), "transforms": steps}
    plans = [build_conversion(rows, tmp_path / "out", options).plan.id for rows in
             ([{"text": "a"}], [{"text": "a"}], [{"text": "b"}])]  # fmt: skip
    assert plans[0] == plans[1] != plans[2]


def test_a_conversion_that_died_goes_on_with_what_it_learns_again(tmp_path, monkeypatch):
    use_small_parts(monkeypatch)
    rows = texts(30)
    options = {
        "schema": rk.Schema({"id": rk.Int64(), "text": rk.Text(), "n": rk.Float32()}),
        "transforms": [t.tokenize("text", size=9), t.standardize("n")],
    }
    execute_conversion(rows, tmp_path / "whole", options)
    died = 0
    for at in range(5, 200, 20):
        out = tmp_path / f"out{at}"
        try:
            execute_conversion(rows, out, options, FaultyStorage(fail_at=at))
        except Crash:
            died += 1
        execute_conversion(rows, out, options)
        assert files(out) == files(tmp_path / "whole")
        assert find_leftovers(out) == []
    assert died > 2


def test_the_counts_of_words_are_those_that_python_counts(tmp_path):
    rows = texts(100)
    rk.write(rows, tmp_path / "out", transforms=[t.tokenize("text")], progress=False, workers=1)
    counts = Counter([word for row in rows for word in row["text"].split()])
    assert words_of(tmp_path / "out")[2:] == sorted(counts, key=lambda word: (-counts[word], word))


# Tokenizer files.


def trained(path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.train_from_iterator(["the cat sat on the mat", "a dog"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(path))
    return tokenizer


def test_a_tokenizer_file_is_used_copied_and_read_back(tmp_path):
    tokenizer = trained(tmp_path / "tokenizer.json")
    rows = [{"text": "the cat sat"}, {"text": ""}, {"text": "the mat " * 20}, {"text": "naïve 猫"}]
    steps = [
        t.tokenize("text", tmp_path / "tokenizer.json", into="cut", keep=True, max_length=6, pad=0),
        t.tokenize("text", str(tmp_path / "tokenizer.json")),
    ]
    dataset = rk.write(rows, tmp_path / "out", transforms=steps, progress=False, workers=1)
    assert (tmp_path / "out" / "tokenizer-text.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    for row, stored in zip(rows, dataset["train"], strict=True):
        assert stored["text"].tolist() == tokenizer.encode(row["text"]).ids
        ids = tokenizer.encode(row["text"]).ids
        if len(ids) > 6:
            ids = [*ids[:5], 3]  # the end is kept
        assert stored["cut"].tolist() == ids + [0] * (6 - len(ids))
    told = read_manifest(str(tmp_path / "out")).options["layout"]["transforms"]
    for step, options in zip(steps, told, strict=True):
        rest = {name: value for name, value in options.items() if name != "name"}
        assert Tokenize.from_options(rest, str(tmp_path / "out")) == step
        assert isinstance(step, TokenizerFile)
    (tmp_path / "out" / "tokenizer-text.json").write_text("{}")
    rest = {name: value for name, value in told[1].items() if name != "name"}
    found = refused(Tokenize.from_options, rest, str(tmp_path / "out"))
    assert (found.code, found.what, found.location.path) == (
        "U624",
        "tokenizer-text.json is not the file that the dataset was written with",
        str(tmp_path / "out" / "tokenizer-text.json"),
    )


# The command.


def test_the_command_takes_the_same_transforms(tmp_path, capfd):
    source = tmp_path / "rows.csv"
    source.write_text('text,age,city,n,user\n"a b, a",3,rome,1,u1\n"b",30,oslo,3,u2\n"c a",70,bonn,5,u1\n')
    (tmp_path / "cities.txt").write_text("rome\noslo\n")
    status = run_command_line(
        [
            "write", str(source), str(tmp_path / "out"), "--bucketize", "age=18,65", "--one-hot", "age",
            "--vocabulary", f"city={tmp_path / 'cities.txt'}", "--cast", "n=float32", "--standardize", "n",
            "--hash", "user=10", "--tokenize", "text", "--vocab-size", "4", "--max-tokens", "2", "--json",
        ]
    )  # fmt: skip
    assert status == 0
    dataset = rk.open(tmp_path / "out")
    rows = list(dataset["train"])
    assert [row["age"].tolist() for row in rows] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert [row["city"] for row in rows] == [1, 2, 0]
    assert [row["text"].tolist() for row in rows] == [[2, 3], [3], [1, 2]]
    assert rows[0]["user"] == rows[2]["user"]
    assert rows[1]["n"] == 0
    assert "fitting tokenize of text on all rows" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cast", "n"],
        ["--cast", "n=float80"],
        ["--bucketize", "n=a,b"],
        ["--bucketize", "n=2,1"],
        ["--hash", "n=x"],
        ["--vocabulary", "=x"],
        ["--tokenize", "text=letters"],
        ["--vocab-size", "10"],
        ["--max-tokens", "10"],
    ],
)
def test_options_of_the_command_that_cannot_be_meant_are_refused(tmp_path, capfd, arguments):
    source = tmp_path / "rows.csv"
    source.write_text("text,n\na,1\n")
    assert run_command_line(["write", str(source), str(tmp_path / "out"), *arguments]) == 2
    assert "U605" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


# Reading.


def test_reading_with_the_transforms_of_a_dataset_gives_what_writing_with_them_stored(tmp_path):
    schema = rk.Schema(
        {
            "text": rk.Text(optional=True),
            "n": rk.Float32(),
            "k": rk.Int64(),
            "c": rk.Text((None,)),
            "l": rk.Label(["x", "y", "z"]),
            "p": rk.Text(default="7"),
        }
    )
    rows = [
        {
            "text": None if i % 9 == 0 else f"The cat {i} naïve",
            "n": i / 7,
            "k": i % 5,
            "c": ["a", "b"][i % 2 :],
            "l": "xyz"[i % 3],
            "p": None if i % 2 else str(i),
        }
        for i in range(50)
    ]
    steps = [
        t.tfidf("text", 20, into="v", keep=True),
        t.hash_words("text", 100, into="h", keep=True),
        t.tokenize("text", size=10),
        t.standardize("n"),
        t.bucketize("k", [2], into="b", keep=True),
        t.vocabulary("c", ["b"]),
        t.one_hot("l"),
        t.cast("p", "int64"),
        t.hash_into("k", 3),
    ]
    raw = rk.write(rows, tmp_path / "raw", schema=schema, progress=False, workers=1)
    written = rk.write(rows, tmp_path / "out", schema=schema, transforms=steps, progress=False, workers=1)
    view = raw["train"].transform(written.transforms)
    assert view.schema == written.schema
    assert [rk.encode(row, view.schema) for row in view] == [
        rk.encode(row, written.schema) for row in written["train"]
    ]
    for ours, theirs in zip(view.batches(16), written["train"].batches(16), strict=True):
        for name in written.schema:
            np.testing.assert_equal(_plain(ours[name]), _plain(theirs[name]))
    rk.write(tmp_path / "raw", tmp_path / "again", transforms=written.transforms, progress=False, workers=1)
    name = "train-00000-of-00001.tfrecord"
    assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def _plain(column):
    return [tuple(map(list, row)) if isinstance(row, tuple) else row for row in column.tolist()]


def test_an_error_while_reading_names_the_record(tmp_path):
    rows = [{"x": "1"}, {"x": "2"}, {"x": "three"}]
    raw = rk.write(rows, tmp_path / "raw", progress=False, workers=1)
    found = refused(list, raw["train"].transform(t.cast("x", "int64")).batches(2))
    assert (found.code, found.location.feature, found.location.record) == ("E386", "x", 2)
    assert found.location.path.endswith("train-00000-of-00001.tfrecord")


def test_parts_may_be_seen_elsewhere_and_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "_MIN_PART_BYTES", 2000)
    source = jsonl(tmp_path / "rows.jsonl", texts(200))
    steps = [t.tfidf("text", 12, into="v", keep=True), t.tokenize("text", size=9), t.standardize("n")]
    options = {"transforms": steps, "split": {"train": 0.7, "val": 0.3}}
    first = build_conversion(source, tmp_path / "out", options).job.layout.options()
    seen = []

    class Backwards(learning.WorkerPool):
        def run(self, function, inline, calls, **_):
            seen.append(len(calls))
            for i, arguments in reversed(calls):
                yield i, pickle.loads(pickle.dumps(function(*arguments)))

    monkeypatch.setattr(learning, "WorkerPool", Backwards)
    second = build_conversion(source, tmp_path / "out", {**options, "workers": 3}).job.layout.options()
    assert first == second
    assert min(seen) > 3

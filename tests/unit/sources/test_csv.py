"""CSV and TSV files as rows: their types, their parts, their lines, and what is said of rows that do not fit."""

from __future__ import annotations

import csv as python_csv
import gzip
import io
import pickle
import random
import re
from importlib import import_module
from pathlib import Path

import pytest

import rekord as rk
from rekord.sources import lines
from rekord.sources.base import SourceRow, is_partitioned
from rekord.sources.csv import csv

CSV_MODULE = import_module("rekord.sources.csv")
"""`rekord.sources.csv` is the function."""

TRICKY = (
    "\ufeffname,remark,n\r\n"
    'Ada,"said: ""no""\nand left",1\r\n'
    "\r\n"
    'Bob,6" tall,2\n'
    '"Cy, D","",3\n'
    "Eve,,NA\n"
    '"F"x,"a\r\nb",5'
)
TRICKY_ROWS = [
    ("Ada", 'said: "no"\nand left', 1),
    ("Bob", '6" tall', 2),
    ("Cy, D", None, 3),
    ("Eve", None, None),
    ("Fx", "a\r\nb", 5),
]
TRICKY_LINES = [2, 5, 6, 7, 8]


def file(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def chunks(source, part_bytes: int = 1 << 26) -> list:
    if is_partitioned(source):
        return [chunk for part in source.parts(part_bytes) for chunk in source.read(part)]
    return list(source.rows())


def rows(source, part_bytes: int = 1 << 26) -> list[tuple]:
    """(path, position, line, values or code) of every row."""
    out = []
    for chunk in chunks(source, part_bytes):
        if isinstance(chunk, SourceRow):
            out.append((chunk.path, chunk.position, chunk.line, chunk.values.code))
            continue
        assert chunk.values.num_rows == chunk.rows
        out += [
            (chunk.path, chunk.first + i, chunk.line_of(i), tuple(row.values()))
            for i, row in enumerate(chunk.values.to_pylist())
        ]
    return out


def problems(source) -> list[rk.RekordError]:
    return [chunk.values for chunk in chunks(source) if isinstance(chunk, SourceRow)]


def refusal(call) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        (["1", "-2", "0"], rk.Int64()),
        (["1", "", "3"], rk.Int64(optional=True)),
        (["1", "NA", "N/A", "null", "NULL"], rk.Int64(optional=True)),
        (["9223372036854775807"], rk.Int64()),
        (["9223372036854775808", "1"], rk.Text()),
        (["00123", "7"], rk.Text()),
        (["1", "2.5"], rk.Float32()),
        (["1e-3", ".5", "5.", "-inf"], rk.Float32()),
        (["1.5", "NaN"], rk.Float32(optional=True)),
        (["NaN", "text"], rk.Text()),
        (["true", "False", "TRUE"], rk.Int64(dtype="bool")),
        (["true", ""], rk.Int64(dtype="bool", optional=True)),
        (["true", "1"], rk.Text()),
        (["2007-11-11"], rk.Text()),
        (["12:30"], rk.Text()),
        (["+5"], rk.Text()),
        (["0x1F"], rk.Text()),
        (["a", ""], rk.Text(optional=True)),
        (["", ""], rk.Text(optional=True)),
    ],
)
def test_a_column_has_the_type_that_all_its_fields_fit(tmp_path, fields, feature):
    source = csv(file(tmp_path, "a,b\n" + "".join(f"{field},x\n" for field in fields)))
    assert source.facts().schema == rk.Schema({"a": feature, "b": rk.Text()})


def test_numbers_bools_and_texts_are_read_as_what_they_are(tmp_path):
    content = "n,f,b,t\n 1,.5,true,007\n2,NaN,False,NaN\n,2e3,,\n"
    assert [values for *_, values in rows(csv(file(tmp_path, content)))] == [
        (1, 0.5, True, "007"),
        (2, None, False, "NaN"),
        (None, 2000.0, None, None),
    ]


@pytest.mark.parametrize("part_bytes", [1, 5, 17, 40, 1 << 26])
def test_rows_and_their_lines_are_the_same_for_parts_of_any_size(tmp_path, part_bytes):
    source = csv(file(tmp_path, TRICKY))
    assert rows(source, part_bytes) == [
        ("table.csv", i, line, values) for i, (line, values) in enumerate(zip(TRICKY_LINES, TRICKY_ROWS, strict=True))
    ]


def test_small_parts_are_really_cut(tmp_path):
    source = csv(file(tmp_path, "a,b\n" + "1,x\n" * 100))
    assert len(source.parts(1)) > 20
    assert len(source.parts()) == 1


def test_the_facts_are_known_before_rows_are_read(tmp_path):
    path = file(tmp_path, TRICKY)
    facts = csv(path).facts()
    assert (facts.layout, facts.rows, facts.source_bytes) == ("table", 5, path.stat().st_size)
    assert [tuple(one) for one in facts.files] == [("table.csv", path.stat().st_size, path.stat().st_mtime_ns)]


def test_a_source_and_its_parts_survive_pickling(tmp_path):
    source = csv(file(tmp_path, TRICKY))
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    parts = pickle.loads(pickle.dumps(source.parts(20)))
    assert sum(len(list(again.read(part))) for part in parts) == len(chunks(source, 20))


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_that_pythons_own_reader_finds(tmp_path, seed):
    print("seed", seed)
    chosen = random.Random(seed)
    words = ["", "a", "é", '"', "x,y", "l\nm", "l\r\nm", '""', "12", " ", 'q"r']
    table = [[chosen.choice(words) for _ in range(3)] + ["z"] for _ in range(chosen.randrange(1, 60))]
    text = io.StringIO(newline="")
    python_csv.writer(text, lineterminator=chosen.choice(["\n", "\r\n"])).writerows([["a", "b", "c", "d"], *table])
    source = csv(file(tmp_path, text.getvalue()), columns={name: rk.Text() for name in "abc"}, na=[])
    for part_bytes in (1, 50, 1 << 20):
        assert [list(values) for *_, values in rows(source, part_bytes)] == table


def test_every_chunk_can_be_written_under_the_schema_of_the_facts(tmp_path):
    content = "n,f,b,t\n" + "".join(f"{i},{i / 4},true,w{i}\n" if i % 5 else ",,,\n" for i in range(500))
    source = csv(file(tmp_path, content))
    schema = source.facts().schema
    out = tmp_path / "out.tfrecord"
    with rk.Writer(out, schema) as writer:
        for chunk in chunks(source, 700):
            writer.write_columns(chunk.values)
    decoded = [rk.decode(record, schema) for record in rk.records(out)]
    assert decoded[7] == {"n": 7, "f": 1.75, "b": True, "t": "w7"}
    assert decoded[5] == {"n": None, "f": None, "b": None, "t": None}
    assert len(decoded) == 500


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "a\tb\n1\tx,y\n"),
        ("t.csv", "a\tb\n1\tx,y\n"),
        ("t.csv", "a;b\n1;x,y\n"),
        ("t.csv", "a|b\n1|x,y\n"),
    ],
)
def test_the_delimiter_is_known_by_name_or_first_line(tmp_path, name, content):
    assert rows(csv(file(tmp_path, content, name))) == [(name, 0, 2, (1, "x,y"))]


def test_a_delimiter_can_be_given(tmp_path):
    assert rows(csv(file(tmp_path, "a,b:c\n1,2:3\n"), delimiter=":")) == [("table.csv", 0, 2, ("1,2", 3))]


def test_columns_can_be_kept_and_declared(tmp_path):
    path = file(tmp_path, "a,zip,c\n1,123,x\n")
    kept = csv(path, columns=["c", "a"])
    assert kept.facts().schema == rk.Schema({"c": rk.Text(), "a": rk.Int64()})
    assert rows(kept)[0][3] == ("x", 1)
    typed = csv(path, columns={"zip": rk.Text(), "a": rk.Float32()})
    assert typed.facts().schema == rk.Schema({"a": rk.Float32(), "zip": rk.Text(), "c": rk.Text()})
    assert rows(typed)[0][3] == (1.0, "123", "x")


def test_without_a_header_columns_are_numbered_or_named(tmp_path):
    path = file(tmp_path, "1,x\n2,y\n")
    assert list(csv(path, header=False).facts().schema) == ["column_0", "column_1"]
    named = csv(path, header=False, columns=["n", "t"])
    assert list(named.facts().schema) == ["n", "t"]
    assert rows(named) == [("table.csv", 0, 1, (1, "x")), ("table.csv", 1, 2, (2, "y"))]


def test_files_of_a_folder_come_in_the_order_of_their_paths(tmp_path):
    for name, n in (("b.csv", 2), ("a/z.csv", 1), ("a/_hidden.csv", 9), ("a.txt", 8)):
        file(tmp_path, f"n,t\n{n},x\n", name)
    expected = [("a/z.csv", 0, 2, (1, "x")), ("b.csv", 0, 2, (2, "x"))]
    assert rows(csv(tmp_path)) == expected
    assert rows(csv(tmp_path / "**" / "*.csv")) == expected
    assert rows(csv(tmp_path / "b*.csv")) == [("b.csv", 0, 2, (2, "x"))]
    assert csv(tmp_path).root == str(tmp_path)


def test_types_are_those_of_all_files_together(tmp_path):
    file(tmp_path, "n\n1\n", "a.csv")
    file(tmp_path, "n\n2.5\n", "b.csv")
    assert csv(tmp_path).facts().schema == rk.Schema({"n": rk.Float32()})
    assert [values for *_, values in rows(csv(tmp_path), 1)] == [(1.0,), (2.5,)]


def test_a_compressed_file_has_the_same_rows_and_no_parts(tmp_path):
    plain = csv(file(tmp_path, TRICKY))
    zipped = csv(file(tmp_path, gzip.compress(TRICKY.encode()), "table.csv.gz"))
    assert not is_partitioned(zipped)
    assert zipped.facts().schema == plain.facts().schema
    assert [row[1:] for row in rows(zipped)] == [row[1:] for row in rows(plain)]


def test_options_say_what_was_asked_and_not_where(tmp_path):
    source = csv(file(tmp_path, "a\n1\n"), columns={"a": rk.Text()}, na=["?"])
    assert source.options() == {
        "delimiter": None,
        "columns": None,
        "types": {"a": {"type": "Text"}},
        "header": None,
        "na": ["?"],
        "decimal": ".",
        "numbers": [],
        "strip": False,
        "encoding": None,
    }


@pytest.mark.parametrize("bad", ["2", "2,x,y", "2,x,"])
def test_a_row_with_another_number_of_fields_is_bad_and_the_others_go_on(tmp_path, bad):
    path = file(tmp_path, f"n,t\n1,a\n\n{bad}\n3,c\n")
    source = csv(path)
    assert rows(source) == [
        ("table.csv", 0, 2, (1, "a")),
        ("table.csv", 1, 4, "E354"),
        ("table.csv", 2, 5, (3, "c")),
    ]
    (problem,) = problems(source)
    assert (problem.location.path, problem.location.row, problem.location.line) == (str(path), 1, 4)
    assert source.facts().schema == rk.Schema({"n": rk.Int64(), "t": rk.Text()})


def test_a_field_that_does_not_fit_a_declared_type_is_bad_by_line_and_column(tmp_path):
    content = "n,f,b\n1,1.5,true\nx,1.5,true\n3,1.5.2,true\n4,1.5,maybe\n5,1e999,true\n6,inf,true\n"
    declared = {"n": rk.Int64(), "f": rk.Float32(), "b": rk.Int64(dtype="bool")}
    source = csv(file(tmp_path, content), columns=declared)
    assert [row[3] for row in rows(source)] == [
        (1, 1.5, True),
        "E356",
        "E356",
        "E356",
        "E356",
        (6, float("inf"), True),
    ]
    told = [(one.location.line, one.location.feature, one.found) for one in problems(source)]
    assert told == [(3, "n", "'x'"), (4, "f", "'1.5.2'"), (5, "b", "'maybe'"), (6, "f", "'1e999'")]


def test_many_bad_rows_are_each_told_once(tmp_path):
    content = "n,t\n" + "".join(f"{i},x\n" if i % 2 else f"{i}\n" for i in range(1000))
    found = rows(csv(file(tmp_path, content)), 300)
    assert [position for _, position, _, _ in found] == list(range(1000))
    assert [values for *_, values in found] == [(i, "x") if i % 2 else "E354" for i in range(1000)]


def test_bytes_that_are_not_utf8_are_a_bad_row(tmp_path):
    path = file(tmp_path, b"n,t\n1,a\n2," + "café".encode("latin-1") + b"\n3,c\n")
    source = csv(path)
    assert [row[3] for row in rows(source)] == [(1, "a"), "E353", (3, "c")]
    (problem,) = problems(source)
    assert (problem.location.line, problem.location.feature) == (3, "t")
    assert "Latin-1" in problem.likely


def test_a_quote_that_is_not_closed_is_told_by_the_line_it_begins_in(tmp_path):
    source = csv(file(tmp_path, 'n,t\n1,a\n2,"b\n3,c\n'))
    for part_bytes in (1, 1 << 20):
        assert rows(source, part_bytes) == [("table.csv", 0, 2, (1, "a")), ("table.csv", 1, 3, "E358")]
    assert rows(csv(file(tmp_path, 'n,t\n1,"a\n', "first.csv"))) == [("first.csv", 0, 2, "E358")]


def test_a_row_that_is_too_large_is_bad_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_ROW_BYTES", 100)
    monkeypatch.setattr(lines, "_HEAD_BYTES", 16)
    content = 'n,t\n1,a\n2,"' + "b\n" * 200 + '"\n3,c\n'
    source = csv(file(tmp_path, content))
    small = [row for block in (7, 64) for row in _read_in_blocks(source, block, monkeypatch)]
    expected = [(0, 2, (1, "a")), (1, 3, "E357"), (2, 204, (3, "c"))]
    assert small == expected * 2


def _read_in_blocks(source, block_bytes: int, monkeypatch) -> list[tuple]:
    real = lines.read_row_blocks

    def in_blocks(stream, rules, begin, *, head=b"", block_bytes=block_bytes):
        return real(stream, rules, begin, head=head, block_bytes=block_bytes)

    monkeypatch.setattr(lines, "read_row_blocks", in_blocks)
    return [row[1:] for row in rows(source)]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 10])
def test_rows_are_the_same_for_blocks_of_any_size(tmp_path, monkeypatch, block_bytes):
    source = csv(file(tmp_path, TRICKY))
    found = _read_in_blocks(source, block_bytes, monkeypatch)
    assert [values for *_, values in found] == TRICKY_ROWS
    assert [line for _, line, _ in found] == TRICKY_LINES


def test_of_a_large_source_samples_decide_and_what_differs_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(CSV_MODULE, "MAX_FULL_SURVEY_BYTES", 1000)
    monkeypatch.setattr(CSV_MODULE, "HEAD_SURVEY_BYTES", 1000)
    monkeypatch.setattr(CSV_MODULE, "SAMPLE_BYTES", 1)
    path = file(tmp_path, "n,t\n" + "1,x\n" * 20_000 + "007,x\n0x1F,x\nabc,x\n12,x\n")
    source = csv(path)
    assert source.facts().schema == rk.Schema({"n": rk.Int64(), "t": rk.Text()})
    # Arrow would read the first two as 7 and 31: not what is written.
    assert [(row[1], row[3]) for row in rows(source, 5000)[20_000:]] == [
        (20_000, "E356"),
        (20_001, "E356"),
        (20_002, "E356"),
        (20_003, (12, "x")),
    ]


def test_samples_are_spread_over_a_large_source(tmp_path, monkeypatch):
    monkeypatch.setattr(CSV_MODULE, "MAX_FULL_SURVEY_BYTES", 1000)
    monkeypatch.setattr(CSV_MODULE, "HEAD_SURVEY_BYTES", 1000)
    path = file(tmp_path, "n,t\n" + "1,x\n" * 20_000 + "abc,x\n")
    assert csv(path).facts().schema == rk.Schema({"n": rk.Text(), "t": rk.Text()})


@pytest.mark.parametrize(
    ("content", "code", "found"),
    [
        ("", "X520", "an empty file"),
        ("\n\r\n", "X520", "only empty lines"),
        ("a,b\n", "X520", "a header without rows"),
        (b"a,b\n1,\x00\n", "X521", "a zero byte at 6"),
        ("a,b\n1,2\n".encode("utf-16-le"), "X521", "a zero byte at 1"),
        ("a,b,a\n1,2,3\n", "X522", "columns 1 and 3 with this name"),
        ("a,,c\n1,2,3\n", "X522", "3 columns, number 2 with an empty name"),
        (b"a,\xff\n1,2\n", "X522", "the byte 0xff"),
        ('a,"b\n1,2\n', "X522", "an unclosed quote"),
    ],
)
def test_a_file_without_a_table_is_refused_by_name(tmp_path, content, code, found):
    path = file(tmp_path, content)
    failure = refusal(csv(path).facts)
    assert (failure.code, failure.location.path, failure.found) == (code, str(path), found)
    assert failure.do


def test_a_duplicate_name_is_named(tmp_path):
    assert refusal(csv(file(tmp_path, "x,y,x\n1,2,3\n")).facts).location.feature == "x"


def test_files_with_different_columns_are_refused_by_file_and_column(tmp_path):
    file(tmp_path, "a,b\n1,2\n", "1.csv")
    for content, feature, found in (("a,c\n1,2\n", "b", "`c`"), ("a\n1\n", "b", "1 columns")):
        other = file(tmp_path, content, "2.csv")
        failure = refusal(csv(tmp_path).facts)
        assert (failure.code, failure.location.path, failure.location.feature) == (
            "X523",
            str(other),
            feature,
        )
        assert failure.found == found


def test_a_column_that_is_not_there_is_refused_with_a_near_miss(tmp_path):
    failure = refusal(csv(file(tmp_path, "label,x\n1,2\n"), columns=["lable"]).facts)
    assert (failure.code, failure.location.feature, failure.do) == ("X522", "lable", "did you mean `label`?")


def test_names_that_do_not_fit_a_file_without_a_header_are_refused(tmp_path):
    failure = refusal(csv(file(tmp_path, "1,2\n"), header=False, columns=["a"]).facts)
    assert (failure.code, failure.expected) == ("X522", "2 names, one per field of the first row")


def test_a_path_that_is_not_there_is_refused(tmp_path):
    failure = refusal(csv(tmp_path / "none.csv").facts)
    assert (failure.code, failure.location.path) == ("X501", str(tmp_path / "none.csv"))
    assert refusal(lambda: csv(tmp_path).facts()).code == "X520"
    assert refusal(lambda: csv(tmp_path / "*.csv").facts()).code == "X520"


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert refusal(lambda: csv(tmp_path / "folder.csv").facts()).code == "X520"
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    failure = refusal(lambda: csv(tmp_path / "loop.csv").facts())
    assert (failure.code, failure.location.path) == ("X503", str(tmp_path / "loop.csv"))


@pytest.mark.parametrize("change", [lambda data: data + b"5,z\n", lambda data: data[:-2]])
def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path, change):
    path = file(tmp_path, "n,t\n1,a\n2,b\n")
    source = csv(path)
    (part,) = source.parts()
    path.write_bytes(change(path.read_bytes()))
    failure = refusal(lambda: list(source.read(part)))
    assert (failure.code, failure.location.path) == ("X526", str(path))


@pytest.mark.parametrize("cut", [12, 40, -4])
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path, cut):
    whole = gzip.compress(("a,b\n" + "".join(f"{i},{i * 7919 % 1000}\n" for i in range(2000))).encode())
    path = file(tmp_path, whole[:cut], "table.csv.gz")
    failure = refusal(csv(path).facts)
    assert (failure.code, failure.location.path) == ("X524", str(path))


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ",,"},
        {"delimiter": '"'},
        {"delimiter": "é"},
        {"columns": "a"},
        {"columns": []},
        {"columns": ["a", "a"]},
        {"columns": {"a": rk.Text(shape=(2,))}},
        {"columns": {"a": int}},
        {"na": "NA"},
        {"na": [None]},
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(tmp_path, options):
    assert refusal(lambda: csv(tmp_path, **options)).code == "U605"


PAGES = Path(__file__).parents[3] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = ["E350", "E353", "E354", "E355", "E356", "E358", *(f"X52{i}" for i in range(7)), "X553"]


@pytest.mark.parametrize("code", SHOWN)
def test_the_example_on_the_page_of_a_code_is_what_is_said(tmp_path, monkeypatch, code):
    monkeypatch.chdir(tmp_path)
    found = EXAMPLE.search((PAGES / f"{code}.md").read_text(encoding="utf-8"))
    assert found, "no example"
    failure = refusal(lambda: exec(found[1], {"rk": rk}))
    assert (failure.code, failure.message) == (code, found[2].rstrip("\n"))


def test_a_declared_column_of_bools_takes_all_usual_spellings(tmp_path):
    words = ["true", "FALSE", "Yes", "no", "Y", "n", "t", "F", "1", "0", "on", "OFF", ""]
    path = tmp_path / "a.csv"
    path.write_text("x,n\n" + "".join(f"{word},{i}\n" for i, word in enumerate(words)))
    out = tmp_path / "out"
    rk.write(path, out, columns={"x": rk.Int64(dtype="bool", optional=True)}, progress=False)
    bools = [None if row["x"] is None else bool(row["x"]) for row in rk.open(out)["train"]]
    assert bools == [True, False] * 6 + [None]


def test_a_word_that_is_no_bool_is_a_bad_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\nyes\nmaybe\nno\n")
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", columns={"x": rk.Int64(dtype="bool")}, progress=False)
    where = caught.value.location
    assert (caught.value.code, where.row, where.line, where.feature) == ("E356", 1, 3, "x")

"""JSON files as rows: one object a line, or one array of them."""

from __future__ import annotations

import gzip
import json
import pickle
from importlib import import_module
from pathlib import Path

import pytest

import rekord as rk
from rekord.sources import lines
from rekord.sources.base import SourceRow, is_partitioned
from rekord.sources.jsonl import jsonl

# `rekord.sources.jsonl` is the function; the module has to be asked for by name.
module = import_module("rekord.sources.jsonl")

ROWS = [{"n": i, "t": f"é{i}", "l": [0.5] * (i % 3), "deep/a": i, "deep/b/c": "x"} for i in range(40)]
LINES = [
    json.dumps({"n": row["n"], "t": row["t"], "l": row["l"], "deep": {"a": row["n"], "b": {"c": "x"}}})
    for row in ROWS
]


def file(folder: Path, content: str | bytes, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(source, part_bytes: int = 1 << 26) -> list[SourceRow]:
    if is_partitioned(source):
        return [row for part in source.parts(part_bytes) for row in source.read(part)]
    return list(source.rows())


def told(source, part_bytes: int = 1 << 26) -> list[tuple]:
    return [
        (row.position, row.line, row.values.code if isinstance(row.values, rk.RekordError) else row.values)
        for row in rows(source, part_bytes)
    ]


def refusal(call) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 26])
def test_rows_are_the_objects_of_the_lines_for_parts_of_any_size(tmp_path, end, part_bytes):
    source = jsonl(file(tmp_path, "\ufeff" + end.join(LINES)))
    assert told(source, part_bytes) == [(i, i + 1, row) for i, row in enumerate(ROWS)]
    assert {row.path for row in rows(source)} == {"rows.jsonl"}


def test_small_parts_are_really_cut_and_survive_pickling(tmp_path):
    source = jsonl(file(tmp_path, "\n".join(LINES)))
    parts = pickle.loads(pickle.dumps(source.parts(1)))
    assert len(parts) > 20
    again = pickle.loads(pickle.dumps(source))
    assert [row.values for part in parts for row in again.read(part)] == ROWS


def test_the_schema_is_what_the_rows_have_in_common(tmp_path):
    path = file(tmp_path, "\n".join([*LINES, '{"n": null, "t": "u", "l": [], "deep": {"a": 1, "b": {"c": ""}}}']))
    facts = jsonl(path).facts()
    assert facts.schema == rk.Schema(
        {
            "n": rk.Int64(optional=True),
            "t": rk.Text(),
            "l": rk.Float32(shape=(None,)),
            "deep/a": rk.Int64(),
            "deep/b/c": rk.Text(),
        }
    )
    assert (facts.layout, facts.rows, facts.source_bytes) == ("table", 41, path.stat().st_size)
    assert [tuple(one) for one in facts.files] == [("rows.jsonl", path.stat().st_size, path.stat().st_mtime_ns)]


def test_every_row_can_be_written_under_the_schema_of_the_facts(tmp_path):
    source = jsonl(file(tmp_path, "\n".join(LINES)))
    schema = source.facts().schema
    with rk.Writer(tmp_path / "out.tfrecord", schema) as writer:
        for row in rows(source):
            writer.write(row.values)
    decoded = [rk.decode(record, schema) for record in rk.records(tmp_path / "out.tfrecord")]
    assert [(one["n"], one["t"], one["l"].tolist()) for one in decoded] == [
        (row["n"], row["t"], row["l"]) for row in ROWS
    ]


def test_rows_far_behind_the_first_have_a_say_in_the_schema(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HEAD_ROWS", 10)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 16)
    content = "\n".join('{"n": 1}' if i < 500 else '{"n": 1, "late": 2}' for i in range(1000))
    schema = jsonl(file(tmp_path, content)).facts().schema
    assert schema == rk.Schema({"n": rk.Int64(), "late": rk.Int64(optional=True)})
    assert schema.evidence["rows"] <= 10 + 16 + 1


def test_empty_lines_are_lines_and_no_rows(tmp_path):
    assert told(jsonl(file(tmp_path, '\n{"a": 1}\n\n\r\n{"a": 2}\n\n'))) == [
        (0, 2, {"a": 1}),
        (1, 5, {"a": 2}),
    ]
    assert told(jsonl(file(tmp_path, '{"a": 1}\n  \n{"a": 2}\n'))) == [(0, 1, {"a": 1}), (2, 3, {"a": 2})]


def test_a_file_of_one_array_is_read_as_well(tmp_path):
    for content in (json.dumps([{"a": 1}, {"a": 2}]), json.dumps([{"a": 1}, {"a": 2}], indent=2)):
        for part_bytes in (1, 1 << 20):
            assert told(jsonl(file(tmp_path, content, "rows.json")), part_bytes) == [
                (0, None, {"a": 1}),
                (1, None, {"a": 2}),
            ]


@pytest.mark.parametrize("content", [LINES, json.dumps([{"a": 1}, {"a": 2}])])
def test_a_compressed_file_has_the_same_rows_and_no_parts(tmp_path, content):
    text = content if isinstance(content, str) else "\n".join(content)
    plain = jsonl(file(tmp_path, text))
    zipped = jsonl(file(tmp_path, gzip.compress(text.encode()), "rows.jsonl.gz"))
    assert not is_partitioned(zipped)
    assert zipped.facts().schema == plain.facts().schema
    assert told(zipped) == told(plain)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ('{"a": 1', "E355"),
        ('{"a": 1}}', "E355"),
        ('{"a": NaN}', "E355"),
        ("a,b", "E355"),
        ("[" * 100_000, "E355"),
        ("[1, 2]", "E350"),
        ("3", "E350"),
        ("null", "E350"),
        ('"text"', "E350"),
        ('{"a": 1, "a": 2}', "E355"),
        ('{"a": 1, "b": {"c": "d: e", "c": 3}}', "E355"),
        ('{"a": 1, "b/c": 2, "b": {"c": 3}}', "S132"),
    ],
)
def test_a_line_that_is_no_row_is_bad_and_the_others_go_on(tmp_path, bad, code):
    path = file(tmp_path, f'{{"a": 0}}\n\n{bad}\n{{"a": 2}}\n')
    source = jsonl(path)
    assert told(source) == [(0, 1, {"a": 0}), (1, 3, code), (2, 4, {"a": 2})]
    where = rows(source)[1].values.location
    assert (where.path, where.row, where.line) == (str(path), 1, 3)


def test_bytes_that_are_not_utf8_are_a_bad_row(tmp_path):
    source = jsonl(file(tmp_path, b'{"a": "x"}\n{"a": "caf\xe9"}\n'))
    assert told(source) == [(0, 1, {"a": "x"}), (1, 2, "E353")]


def test_a_row_that_is_too_large_is_bad_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_ROW_BYTES", 100)
    monkeypatch.setattr(lines, "_HEAD_BYTES", 32)
    text = json.dumps({"a": "x" * 200_000})
    monkeypatch.setattr(lines, "read_row_blocks", _in_blocks(lines.read_row_blocks))
    source = jsonl(file(tmp_path, f'{{"a": "x"}}\n{text}\n{{"a": "y"}}\n'))
    assert told(source) == [(0, 1, {"a": "x"}), (1, 2, "E357"), (2, 3, {"a": "y"})]


def _in_blocks(real):
    return lambda stream, rules, begin, *, head=b"": real(stream, rules, begin, head=head, block_bytes=50)


def test_columns_of_several_types_are_a_schema_error_that_names_the_file(tmp_path):
    path = file(tmp_path, '{"a": 1}\n{"a": "x"}\n')
    failure = refusal(jsonl(path).facts)
    assert (failure.code, failure.location.path, failure.location.feature) == ("S129", str(path), "a")


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "X520"), (b"\n\n", "X520"), (b"[]", "X520"), (b'{"a": 1}\0', "X521"), (b'[{"a": 1}, {', "X524")],
)
def test_a_file_without_rows_is_refused_by_name(tmp_path, content, code):
    path = file(tmp_path, content)
    failure = refusal(jsonl(path).facts)
    assert (failure.code, failure.location.path) == (code, str(path))


def test_where_no_row_can_be_read_the_first_says_why(tmp_path):
    failure = refusal(jsonl(file(tmp_path, "<html>\n<body>\n")).facts)
    assert (failure.code, failure.location.line) == ("E355", 1)


def test_an_empty_file_beside_others_has_no_rows(tmp_path):
    file(tmp_path, "", "a.jsonl")
    file(tmp_path, '{"a": 1}\n', "b.jsonl")
    assert [(row.path, row.position) for row in rows(jsonl(tmp_path))] == [("b.jsonl", 0)]


def test_a_path_that_is_not_there_is_refused(tmp_path):
    assert refusal(jsonl(tmp_path / "none.jsonl").facts).code == "X501"
    assert refusal(lambda: jsonl(3)).code == "U605"


def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path):
    path = file(tmp_path, '{"a": 1}\n')
    source = jsonl(path)
    (part,) = source.parts()
    path.write_text('{"a": 1}\n{"a": 2}\n')
    failure = refusal(lambda: list(source.read(part)))
    assert (failure.code, failure.location.path) == ("X526", str(path))


def test_a_damaged_gzip_file_is_refused_by_name(tmp_path):
    path = file(tmp_path, gzip.compress("\n".join(LINES).encode())[:60], "rows.jsonl.gz")
    failure = refusal(jsonl(path).facts)
    assert (failure.code, failure.location.path) == ("X524", str(path))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_column_of_several_types_can_be_left_out(tmp_path, ending):
    rows = [{"a": 1, "b": "x", "c": 1}, {"a": "y", "b": "z", "c": 2, "d": [{"e": 1}]}]
    path = tmp_path / f"t.jsonl{ending}"
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if ending else data)
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", drop=["d"], progress=False)
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.feature) == ("S129", str(path), "a")
    assert failure.do == 'write its values as one type; or leave the column out: drop=["a"]'
    rk.write(path, tmp_path / "out", drop=["a", "d"], progress=False)
    assert [(row["b"], row["c"]) for row in rk.open(tmp_path / "out")["train"]] == [("x", 1), ("z", 2)]
    rk.write(path, tmp_path / "kept", keep=["c"], progress=False)
    assert [dict(row) for row in rk.open(tmp_path / "kept")["train"]] == [{"c": 1}, {"c": 2}]
    with pytest.raises(rk.UsageError) as caught:
        rk.write(path, tmp_path / "none", drop=["dd"], progress=False)
    assert (caught.value.code, caught.value.location.feature) == ("U605", "dd")


def test_nan_is_named_as_what_json_has_not(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"a": float("nan")}) + "\n" + json.dumps({"a": 1.0}) + "\n")
    first = next(row.values for part in rk.sources.jsonl(path).parts() for row in rk.sources.jsonl(path).read(part))
    assert (first.code, first.location.line) == ("E355", 1)
    assert first.likely == "NaN: Python's json writes it, and JSON has no such value"

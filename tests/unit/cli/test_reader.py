"""`rekord reader`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.feeds.codegen import FRAMEWORKS, generate_reader_code
from rekord.testing import example_bytes, frames
from rekord.verbs.index import index

Captured = pytest.CaptureFixture[str]
HOSTILE = 'a\'"\\\n\u202e{x}"""#; import os'
SCHEMA = rk.Schema(
    {
        "image": rk.Image(format="jpeg", key="image/encoded"),
        "label": rk.Label(["cat", "dög"]),
        "vec": rk.Float32(shape=(3,)),
        "tokens": rk.Int64(shape=(None,)),
        "name": rk.Text(optional=True),
        "boxes": rk.Boxes(),
    }
)


def values(code: str) -> dict[str, Any]:
    """The constants of a program that are plain literals; nothing of it is run."""
    found = {}
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                found[node.targets[0].id] = ast.unparse(node.value)
    return found


def empty(folder: Path, schema: rk.Schema, **options: Any) -> tuple[rk.Dataset, str]:
    path = folder / "x.tfrecord"
    with rk.Writer(path, schema, **options):
        pass
    return rk.open(path, schema=schema), str(path)


def code_of(capsys: Captured, *arguments: str) -> str:
    assert run_command_line(["reader", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    compile(printed.out, "reader.py", "exec")
    return printed.out


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_program_compiles_and_names_files_and_classes(framework: str, tmp_path: Path, capsys: Captured) -> None:
    rows = [{"label": i % 2, "x": float(i)} for i in range(6)]
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "x": rk.Float32()})
    out = tmp_path / "data"
    rk.write(rows, out, schema=schema, split={"train": 0.5, "val": 0.5}, progress=False, workers=1)
    code = code_of(capsys, str(out), "--for", framework)
    told = values(code)
    assert told["CLASSES"] == {"label": ["cat", "dog"]}
    if framework in ("torch", "jax"):
        assert (told["PATH"], told["COLUMNS"]) == (str(out), ["label", "x"])
        assert f"to_{framework}(" in code
    else:
        assert told["FILES"]["train"] == [str(out / "train-00000-of-00001.tfrecord")]
        assert list(told["FILES"]) == ["train", "val"]


def test_many_files_are_counted_by_their_names(tmp_path: Path, capsys: Captured) -> None:
    schema = rk.Schema({"n": rk.Int64()})
    rk.write([{"n": n} for n in range(40)], tmp_path / "data", schema=schema, shards=20, progress=False, workers=1)
    code = code_of(capsys, str(tmp_path / "data"), "--for", "tensorflow")
    scope: dict[str, Any] = {}
    files = next(node for node in ast.parse(code).body if isinstance(node, ast.Assign))
    exec(compile(ast.Module([files], []), "files", "exec"), scope)
    assert scope["FILES"] == {"train": list(rk.open(tmp_path / "data")["train"].paths)}
    assert len(code.splitlines()) < 40


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_name_is_never_more_than_a_literal(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "here" {now}'
    folder.mkdir()
    schema = rk.Schema({HOSTILE: rk.Label([HOSTILE, "b"]), "mask": rk.Bytes(key=HOSTILE + "2")})
    dataset, path = empty(folder, schema)
    code = generate_reader_code(dataset, path, framework)
    compile(code, "reader.py", "exec")
    assert "\u202e" not in code
    told = values(code)
    assert told["CLASSES"] == {HOSTILE: [HOSTILE, "b"]}
    literals = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
    assert {HOSTILE, path} <= literals
    assert not any(isinstance(node, ast.Name) and node.id == "os" for node in ast.walk(ast.parse(code)))
    if framework not in ("torch", "jax"):
        assert HOSTILE + "2" in literals


@pytest.mark.parametrize(("compression", "said"), [(None, ""), ("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_tensorflow_is_told_the_compression(compression: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    with rk.Writer(path, rk.Schema({"n": rk.Int64()}), compression=compression) as writer:
        writer.write({"n": 1})
    told = values(generate_reader_code(rk.open(path), str(path), "tensorflow"))
    assert told["COMPRESSION"] == {"all": said}


def test_dali_reads_fixed_and_varying_features_and_decodes_images(tmp_path: Path) -> None:
    code = generate_reader_code(*empty(tmp_path, SCHEMA), "dali")
    assert '"image/encoded": tfrec.FixedLenFeature([], tfrec.string, ""),' in code
    assert '"vec": tfrec.FixedLenFeature([3], tfrec.float32, 0.0),' in code
    assert '"tokens": tfrec.VarLenFeature(tfrec.int64, 0),' in code
    assert '"image/object/bbox/xmin": tfrec.VarLenFeature(tfrec.float32, 0.0),' in code
    assert 'columns["image/encoded"], output_type=types.RGB, adjust_orientation=False' in code
    assert "rekord index PATH --format dali" in code


@pytest.mark.parametrize("place", ["data", "data/", "data/Split-train/x.tfrecord", "data/*/x.tfrecord"])
def test_the_reader_for_dali_takes_the_indexes_that_are_written_for_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("Split-train", "Split-eval"):
        Path("data", split).mkdir(parents=True)
        with rk.Writer(f"data/{split}/x.tfrecord", rk.Schema({"n": rk.Int64()})) as writer:
            writer.write({"n": 1})
    tree = ast.parse(generate_reader_code(rk.open(place), place, "dali"))
    (requested,) = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "index_path"
    ]
    told = values(ast.unparse(tree))
    files = [file for split in told["FILES"].values() for file in split]
    names = {"Path": Path, "ROOT": told["ROOT"], "files": files}
    places = eval(compile(ast.Expression(requested), "reader.py", "eval"), names)
    assert {Path(file) for file in places} == {Path(file) for file in index(place, format="dali").written}


def test_columns_with_a_default_are_in_every_record_and_read_by_dali(tmp_path: Path) -> None:
    schema = rk.Schema({"score": rk.Float32(default=0.25), "n": rk.Int64(default=3), "plain": rk.Int64()})
    rk.write([{"plain": 1}], tmp_path / "data", schema=schema, progress=False)
    code = generate_reader_code(rk.open(tmp_path / "data"), "data", "dali")
    assert '"score": tfrec.FixedLenFeature([], tfrec.float32, 0.0),' in code
    assert '"n": tfrec.FixedLenFeature([], tfrec.int64, 0),' in code
    assert '"plain": tfrec.FixedLenFeature([], tfrec.int64, 0),' in code


@pytest.mark.parametrize("framework", ["tensorflow", "dali", "spark"])
def test_a_list_whose_inner_dimension_varies_is_read_flat(framework: str, tmp_path: Path) -> None:
    schema = rk.Schema({"pairs": rk.Float32(shape=(2, None))})
    rk.write([{"pairs": [[1.0], [2.0]]}], tmp_path / "data", schema=schema, progress=False)
    code = generate_reader_code(rk.open(tmp_path / "data"), "data", framework)
    compile(code, "reader.py", "exec")
    assert '"pairs"' in code


def test_spark_has_a_type_for_every_key(tmp_path: Path) -> None:
    code = generate_reader_code(*empty(tmp_path, SCHEMA), "spark")
    for line in (
        'StructField("image/encoded", BinaryType())',
        'StructField("label", LongType())',
        'StructField("vec", ArrayType(FloatType()))',
        'StructField("tokens", ArrayType(LongType()))',
        'StructField("name", StringType())',
        'StructField("image/object/bbox/ymax", ArrayType(FloatType()))',
        'reader.option("recordType", "Example")',
    ):
        assert line in code
    steps = rk.Schema(context={"id": rk.Int64()}, steps={"x": rk.Float32(), "w": rk.Text(shape=(None,))})
    code = generate_reader_code(*empty(tmp_path, steps), "spark")
    for line in (
        'StructField("id", LongType())',
        'StructField("x", ArrayType(FloatType()))',
        'StructField("w", ArrayType(ArrayType(StringType())))',
        'reader.option("recordType", "SequenceExample")',
    ):
        assert line in code


def test_what_dali_cannot_read_is_said(tmp_path: Path) -> None:
    sequence = rk.Schema(context={"id": rk.Int64()}, steps={"x": rk.Float32()})
    path = tmp_path / "z.tfrecord"
    with rk.Writer(path, rk.Schema({"n": rk.Int64()}), compression="gzip") as writer:
        writer.write({"n": 1})
    for dataset, where in (empty(tmp_path, sequence), (rk.open(path), str(path))):
        with pytest.raises(rk.UsageError) as caught:
            generate_reader_code(dataset, where, "dali")
        assert (caught.value.code, caught.value.location.path) == ("U605", where)


def test_wrong_usage_and_missing_files_are_said(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"n": [1]})]))
    assert run_command_line(["reader", str(tmp_path / "x.tfrecord")]) == 2
    assert run_command_line(["reader", str(tmp_path / "x.tfrecord"), "--for", "keras"]) == 2
    assert run_command_line(["reader", str(tmp_path / "y.tfrecord"), "--for", "torch"]) == 3
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(rk.UsageError) as caught:
        generate_reader_code(rk.open(tmp_path), str(tmp_path), "keras")
    assert caught.value.code == "U605"

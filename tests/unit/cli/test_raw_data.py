"""Raw data is shown and inferred as `rekord write` stores it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import rekord as rk
from rekord.cli.main import run_command_line

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save_image(path: str, seed: int, *, mask: bool = False) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    chosen = np.random.default_rng(seed)
    pixels = chosen.integers(0, 3, (6, 8)) if mask else chosen.integers(0, 255, (6, 8, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def make_folder() -> str:
    for name in ("cat", "dog"):
        for i in range(2):
            save_image(f"photos/{name}/{i}.png", i)
    return "photos"


def make_pairs() -> str:
    for i in range(2):
        save_image(f"pairs/images/{i}.png", i)
        save_image(f"pairs/masks/{i}.png", i, mask=True)
    return "pairs"


def make_coco() -> str:
    save_image("coco/images/1.png", 1)
    Path("coco/annotations").mkdir()
    box = {"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 1, 4, 4], "area": 16, "iscrowd": 0}
    document = {
        "images": [{"id": 1, "file_name": "1.png", "width": 8, "height": 6}],
        "annotations": [box],
        "categories": [{"id": 2, "name": "dog"}],
    }
    Path("coco/annotations/instances.json").write_text(json.dumps(document))
    return "coco"


def make_csv() -> str:
    Path("t.csv").write_text("a,b\n1,x\n2,y\n3,z\n")
    return "t.csv"


def make_jsonl() -> str:
    Path("t.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 2}\n')
    return "t.jsonl"


def make_parquet() -> str:
    parquet.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), "t.parquet")
    return "t.parquet"


def make_text() -> str:
    Path("t.txt").write_text("one\ntwo\n")
    return "t.txt"


def make_npy() -> str:
    np.save("t.npy", np.arange(6, dtype=np.int64).reshape(3, 2))
    return "t.npy"


MAKERS = [make_folder, make_pairs, make_coco, make_csv, make_jsonl, make_parquet, make_text, make_npy]


@pytest.mark.parametrize("make", MAKERS)
def test_every_kind_is_shown_and_inferred_as_it_is_written(make: Any, capsys: Captured) -> None:
    path = make()
    assert run_command_line(["infer", path, "--json"]) == 0
    inferred = rk.Schema.from_dict(json.loads(capsys.readouterr().out))
    assert run_command_line(["show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["rows"]
    assert run_command_line(["write", path, "out", "--workers", "1"]) == 0
    assert inferred == rk.open("out").schema == rk.infer(path)
    capsys.readouterr()
    assert run_command_line(["show", "out", "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)["records"]
    assert [row["records"][0]["features"] for row in shown] == [record["features"] for record in stored]


def test_the_same_options_give_the_same_rows_as_write(capsys: Captured) -> None:
    Path("t.csv").write_bytes("ort;x;n\nKöln;1,5;?\nZürich;2,5;3\n".encode("latin-1"))
    options = ["--encoding", "latin-1", "--decimal", ",", "--na", "?", "--delimiter", ";"]
    assert run_command_line(["show", "t.csv", *options]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "t.csv  row 0  line 2  35 bytes stored",
        "  ort  bytes  1  \"Köln\"",
        "  x    float  1  1.5",
        "",
        "t.csv  row 1  line 3  49 bytes stored",
        "  n    int64  1  3",
        "  ort  bytes  1  \"Zürich\"",
        "  x    float  1  2.5",
    ]  # fmt: skip
    assert printed.err == "source: csv · layout: table\nend of the data: 2 rows\n"
    assert run_command_line(["write", "t.csv", "out", *options]) == 0
    rows = [(row["ort"], row["x"], row["n"]) for row in rk.open("out")["train"]]
    assert rows == [("Köln", 1.5, None), ("Zürich", 2.5, 3)]


def test_masks_are_shown_with_their_class_ids_and_labels_with_their_names(capsys: Captured) -> None:
    make_pairs()
    given = ["--images", "pairs/images", "--masks", "pairs/masks", "--classes", "3", "--ignore", "none"]
    assert run_command_line(["show", *given, "-n", "1"]) == 0
    printed = capsys.readouterr()
    assert "  image/encoded                     bytes  1  PNG 8×6, " in printed.out
    assert ", class ids 0, 1, 2\n" in printed.out
    assert run_command_line(["infer", *given]) == 0
    assert "rk.Mask(classes=3, of='image'" in capsys.readouterr().out
    make_folder()
    assert run_command_line(["show", "photos", "--record", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("dog/0.png  ")
    assert " (dog)\n" in printed.out


def test_one_row_is_found_by_its_number(capsys: Captured) -> None:
    assert run_command_line(["show", make_csv(), "--record", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "t.csv  row 2  line 4  26 bytes stored"
    assert run_command_line(["show", "t.csv", "--record", "3"]) == 2
    failure = capsys.readouterr().err
    assert "UsageError U606: row 3 does not exist" in failure
    assert "  do        --record 2\n" in failure


def test_a_row_that_cannot_be_stored_is_shown_with_its_error(capsys: Captured) -> None:
    Path("t.csv").write_bytes(b"a,b\n1,x\n2,\xe9\n")
    assert run_command_line(["show", "t.csv"]) == 1
    printed = capsys.readouterr().out
    assert "t.csv  row 1  line 3  cannot be stored\n  EncodeError E353: text is not UTF-8\n" in printed
    assert "do        --encoding latin-1\n" in printed
    assert run_command_line(["show", "t.csv", "--json"]) == 1
    good, bad = json.loads(capsys.readouterr().out)["rows"]
    assert (good["row"], bad["row"], bad["error"]["code"]) == (0, 1, "E353")


def test_a_schema_is_saved_with_its_evidence_and_writes_the_data(capsys: Captured) -> None:
    Path("t.csv").write_text("age,zip\n1,007\n2,010\n?,011\n")
    assert run_command_line(["infer", "t.csv", "--na", "?", "-o", "schema.json"]) == 0
    printed = capsys.readouterr()
    assert "    'age': rk.Int64(optional=True),  # present 2 of 3, 1 value, int 1..2\n" in printed.out
    assert "evidence from all 3 rows, as they would be stored\n" in printed.err
    assert "guessed: `zip` is text: '007' in row 0 (line 2) has a leading zero; " in printed.err
    (guess,) = json.loads(Path("schema.json").read_text())["evidence"]["guesses"]
    assert guess["column"] == "zip"
    assert run_command_line(["write", "t.csv", "out", "--na", "?", "--schema", "schema.json"]) == 0


def test_guesses_are_printed_with_flags_by_dry_run_and_write_and_are_in_their_json(capsys: Captured) -> None:
    Path("t.csv").write_text("1,?\n2,3\n4,5\n")
    expected = [
        "guessed: the first line is read as a row, not as column names: it has numbers, first '1'; "
        "to read it as column names: --header",
        "guessed: `column_1` is text because of '?' in row 0 (line 1); 2 other values are numbers; "
        "if it is a missing value: --na ',NA,N/A,null,NULL,?'",
    ]
    assert run_command_line(["write", "t.csv", "out", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:3] == expected
    assert printed.out.startswith("t.csv  row 0  line 1  ")
    assert run_command_line(["write", "t.csv", "out", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in document["rows"]] == [1, 2, 3]
    assert [guess["column"] for guess in document["guesses"]] == [None, "column_1"]
    assert run_command_line(["write", "t.csv", "out", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:3] == expected
    assert json.loads(printed.out)["guesses"] == document["guesses"]
    # What is proposed works.
    assert run_command_line(["write", "t.csv", "new", "--no-header", "--na", ",NA,N/A,null,NULL,?"]) == 0
    assert "guessed" not in capsys.readouterr().err
    assert rk.open("new").schema["column_1"] == rk.Int64(optional=True)


def test_python_reports_guesses_with_arguments(capsys: Captured) -> None:
    Path("t.csv").write_text("a;b\n1;2\n")
    rk.write("t.csv", "out")
    assert capsys.readouterr().err.startswith(
        "guessed: fields are separated by ';', the most frequent delimiter of the first line; "
        'to separate them by commas: delimiter=","\n'
    )
    assert rk.infer("t.csv").evidence["guesses"][0]["do"] == 'to separate them by commas: delimiter=","'


def test_many_guesses_are_counted(capsys: Captured) -> None:
    names = ",".join(f"c{i}" for i in range(20))
    Path("t.csv").write_text(f"{names}\n" + ",".join(["007"] * 20) + "\n")
    assert run_command_line(["show", "t.csv"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("guessed")]
    assert len(lines) == 13
    assert lines[-1] == "guessed: … and 8 more"


@pytest.mark.parametrize("verb", ["show", "infer"])
def test_options_of_raw_data_are_refused_where_they_do_not_apply(verb: str, capsys: Captured) -> None:
    rk.write([{"a": 1}], "data", progress=False)
    assert run_command_line([verb, "data", "--encoding", "latin-1"]) == 2
    assert "U605: options of raw data do not apply to record files" in capsys.readouterr().err
    assert run_command_line([verb, make_folder(), "--encoding", "latin-1"]) == 2
    assert "`--encoding` does not apply to source image_folder" in capsys.readouterr().err
    assert run_command_line([verb]) == 2
    assert f"U601: `rekord {verb}` needs PATH" in capsys.readouterr().err
    assert run_command_line([verb, "--masks", "x"]) == 2
    assert f"do        rekord {verb} --images DIR --masks x\n" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["show", "infer"])
def test_what_is_neither_raw_data_nor_records_is_refused(verb: str, capsys: Captured) -> None:
    Path("empty").mkdir()
    assert run_command_line([verb, "empty"]) == 2
    assert "U621" in capsys.readouterr().err
    assert run_command_line([verb, "missing"]) == 3
    assert "X501" in capsys.readouterr().err


def test_the_missing_out_of_a_pair_of_folders_is_named(capsys: Captured) -> None:
    make_pairs()
    assert run_command_line(["write", "--images", "pairs/images", "--masks", "pairs/masks"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "UsageError U601: `rekord write` needs OUT",
        "  do        rekord write --images pairs/images --masks pairs/masks OUT",
    ]
    assert run_command_line(["write", "pairs"]) == 2
    assert "`rekord write` needs OUT\n" in capsys.readouterr().err
    assert run_command_line(["write"]) == 2
    assert "`rekord write` needs SOURCE and OUT\n" in capsys.readouterr().err

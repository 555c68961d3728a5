"""`rekord write`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pages import messages
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def image(path: str, *, mode: str = "RGB", side: int = 8, colour: object = None) -> None:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (side, side), colour).save(place)


@pytest.fixture
def photos() -> str:
    for name in ("cat", "dog"):
        for i in range(6):
            image(f"photos/{name}/{i}.jpg", colour=(i, 0, 0))
    return "photos"


@pytest.fixture
def table() -> str:
    Path("table.csv").write_text("id,label\n" + "".join([f"{i},{'ab'[i % 2]}\n" for i in range(40)]))
    return "table.csv"


def written(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run_command_line(["write", *arguments, "--json", "--workers", "1"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_a_folder_of_images_becomes_a_dataset(photos: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["write", photos, "out", "--workers", "1"]) == 0
    printed = capsys.readouterr()
    assert re.sub(r"in [\d.]+ m?s", "in 1 s", re.sub(r"[\d.]+ kB", "9 kB", printed.out)) == (
        "out: 12 records, 9 kB, in 1 s\n  train  12 records  1 shard  9 kB\nnext: rekord check out\n"
    )
    told = printed.err.splitlines()
    assert told[0] == "source: image_folder in photos · layout: classification"
    assert told[1].startswith("forecast: 12 records · about ")
    assert "reading 12 rows" in told
    assert rk.check("out").ok
    assert rk.open("out")["train"].to_arrow().num_rows == 12


def test_the_json_is_the_document_of_the_interface(photos: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = written(capsys, photos, "out", "--split", "train=0.5,val=0.5", "--shards", "2")
    fields = ["dataset", "splits", "rejected", "rejects", "resumed_shards", "seconds"]
    assert list(document) == [*fields, "workers", "workers_remark", "source", "layout", "guesses", "notes", "unused"]
    assert (document["workers"], document["workers_remark"]) == (1, None)
    assert (document["source"], document["layout"], document["unused"]) == ("image_folder", "classification", [])
    splits = document["splits"]
    assert isinstance(splits, dict)
    assert sum(split["records"] for split in splits.values()) == 12
    for name, split in splits.items():
        files = sorted(Path("out").glob(f"{name}-*"))
        assert split["shards"] == len(files) == 2
        assert split["bytes"] == sum(file.stat().st_size for file in files)
    assert (document["dataset"], document["rejected"], document["rejects"]) == ("out", 0, None)


def test_the_splits_of_the_source_are_kept_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "val"):
        image(f"photos/{split}/cat/1.jpg")
    assert run_command_line(["write", "photos", "out", "--workers", "1"]) == 0
    printed = capsys.readouterr()
    assert "splits: train, val, from the source (--split overrides them)" in printed.err
    assert list(rk.open("out").splits) == ["train", "val"]
    assert run_command_line(["write", "photos", "one", "--split", "all", "--workers", "1"]) == 0
    assert list(rk.open("one").splits) == ["all"]


def test_the_same_command_again_has_nothing_to_do(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(capsys, table, "out")
    assert run_command_line(["write", table, "out", "--workers", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("nothing to do: out: 40 records, ")
    assert "forecast" not in printed.err


def test_another_plan_for_the_same_place_is_refused_unless_it_is_fresh(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(capsys, table, "out")
    assert run_command_line(["write", table, "out", "--shuffle", "--workers", "1"]) == 2
    assert "UsageError U618" in capsys.readouterr().err
    assert written(capsys, table, "out", "--shuffle", "--fresh")["rejected"] == 0


def test_images_and_masks_are_named_apart(capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        image(f"a/{i}.jpg")
        image(f"b/{i}.png", mode="L", colour=i)
    written(capsys, "--images", "a", "--masks", "b", "out", "--classes", "3", "--ignore", "none")
    manifest = json.loads(Path("out/rekord.json").read_text())
    assert manifest["options"]["layout"]["classes"] == 3
    assert manifest["options"]["layout"]["ignore"] is None
    assert (
        run_command_line(["write", "--images", "a", "--masks", "b", "two", "--classes", "2", "--workers", "1"]) == 1
    )
    assert "EncodeError E335" in capsys.readouterr().err
    assert not Path("two").exists()


def test_masks_of_colours_become_class_ids(capsys: pytest.CaptureFixture[str]) -> None:
    image("a/1.jpg")
    image("b/1.png", colour=(128, 64, 0))
    Path("colours.json").write_text('{"128,64,0": 3, "0, 0, 0": 0}')
    written(capsys, "--images", "a", "--masks", "b", "out", "--classes", "4", "--colours", "colours.json")
    (mask,) = rk.open("out")["train"].to_arrow(columns=["mask"])["mask"].to_pylist()
    Path("mask.png").write_bytes(mask)
    assert np.unique(np.asarray(Image.open("mask.png"))).tolist() == [3]


def test_binary_masks_are_refused_with_a_command_for_each_meaning_of_255(capsys: pytest.CaptureFixture[str]) -> None:
    image("data/images/1.jpg")
    Path("data/masks").mkdir()
    Image.fromarray(np.array([[0, 255] * 4] * 8, np.uint8)).save("data/masks/1.png")
    assert run_command_line(["write", "data", "out", "--json"]) == 2
    readings = json.loads(capsys.readouterr().out)["error"]["readings"]
    commands = [one["command"] for one in readings if "--masks" in one["command"]]
    found = {}
    for command in commands:
        out = f"out{len(found)}"
        document = written(capsys, *command.replace("OUT", out).split()[2:])
        assert [one for one in document["guesses"] if one["column"] == "mask"] == []  # type: ignore[attr-defined]
        mask = rk.open(out).schema["mask"]
        values = np.unique(next(iter(rk.open(out)["train"].batches(1, decode=True)))["mask"]).tolist()
        found[command.split("data/masks ")[1]] = (mask.classes, values)  # type: ignore[attr-defined]
    assert found == {"--colours 0=0,255=1 OUT": (2, [0, 1]), "--ignore 255 OUT": (21, [0, 255])}
    # Without either, what was assumed is reported.
    document = written(capsys, "--images", "data/images", "--masks", "data/masks", "plain")
    (guess,) = document["guesses"]  # type: ignore[misc]
    assert guess["do"] == "if it is class 1: --classes 2 --colours 0=0,255=1"


def test_a_table_of_colours_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    image("a/1.jpg")
    image("b/1.png", colour=(128, 64, 0))
    Path("table.txt").write_text("0 0 0 Void\n1 1 1 Sky\n128 64 0 Road\n")
    written(capsys, "--images", "a", "--masks", "b", "out", "--colours", "table.txt")
    assert np.unique(next(iter(rk.open("out")["train"].batches(1, decode=True)))["mask"]).tolist() == [2]


def test_options_of_lists_are_named_by_messages_and_work(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        image(f"a/{name}", side=20)
    lists = {
        "words.txt": "1.jpg hello\n2.jpg world\n3.jpg again\n",
        "boxes.csv": "file,xmin,ymin,xmax,ymax,kind,colour\n1.jpg,1,2,8,9,cat,red\n2.jpg,1,2,8,9,dog,red\n",
        "numbers.csv": "file,bbox,class\n1.jpg,[1 2 8 9],cat\n2.jpg,[1 2 8 9],cat\n",
    }
    for name, text in lists.items():
        Path("a", name).write_text(text)
    proposed = {
        "words.txt": ("X528", [["--no-text"], ["--text"]]),
        "boxes.csv": ("X534", [["--label", "kind"], ["--label", "colour"]]),
        "numbers.csv": ("X534", [["--box-format", "xyxy"], ["--box-format", "xywh"]]),
    }
    for name, (code, flags) in proposed.items():
        assert run_command_line(["write", f"a/{name}", "out", "--json"]) in (2, 3)
        failure = json.loads(capsys.readouterr().out)["error"]
        assert failure["code"] == code
        for number, one in enumerate(flags):
            assert " ".join(one) in failure["do"]
            written(capsys, f"a/{name}", f"{name}-{number}", *one)
    assert rk.open("words.txt-1").schema["text"] == rk.Text()
    assert [row["text"] for row in rk.open("words.txt-0")["train"].take(2)] == ["hello", "world"]
    assert run_command_line(["write", "a/boxes.csv", "out", "--label", "kidn", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["do"] == "--label kind"
    Path("list.csv").write_text("file,class\n1.jpg,x\n2.jpg,x\n9.jpg,x\n")
    assert (
        run_command_line(["write", "list.csv", "out", "--layout", "classification", "--images", "a", "--json"]) == 1
    )
    failure = json.loads(capsys.readouterr().out)["error"]
    assert (failure["code"], failure["expected"]) == ("E360", "a file below a")
    assert failure["do"].endswith("relative to: --images DIR")


@pytest.mark.parametrize(
    ("flags", "guesses"), [([], ["ok"]), (["--label", "ok"], []), (["--column", "ok=label"], [])]
)
def test_a_column_that_is_declared_a_label_is_not_a_guess(
    flags: list[str], guesses: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("answers.csv").write_text("age,ok\n" + "3,yes\n4,no\n" * 20)
    document = written(capsys, "answers.csv", "out", *flags)
    assert [one["column"] for one in document["guesses"]] == guesses  # type: ignore[attr-defined]


def test_names_of_classes_come_from_a_file(photos: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("names.txt").write_text("dog\ncat\n")
    written(capsys, photos, "out", "--classes", "names.txt")
    assert json.loads(Path("out/rekord.json").read_text())["options"]["source"]["classes"] == ["dog", "cat"]


def test_a_function_of_a_file_maps_rows_in_other_processes_too(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("beside.py").write_text("FACTOR = 10\n")
    Path("clean.py").write_text(
        "from beside import FACTOR\n"
        "def _times(n):\n    return n * FACTOR\n"
        "def tidy(row):\n    return {**row, 'id': _times(row['id'])} if row['id'] % 2 else None\n"
    )
    assert run_command_line(["write", table, "out", "--map", "clean.py:tidy", "--workers", "2", "--json"]) == 0
    capsys.readouterr()
    assert rk.open("out")["train"].to_arrow()["id"].to_pylist() == [i * 10 for i in range(1, 40, 2)]
    text = Path("clean.py").read_text()
    Path("clean.py").write_text(text.replace("n * FACTOR", "n * FACTOR + 1"))
    assert run_command_line(["write", table, "out", "--map", "clean.py:tidy", "--workers", "1"]) == 2
    assert "`map` differs" in capsys.readouterr().err


def test_records_are_a_source_with_the_schema_of_their_manifest(
    photos: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(capsys, photos, "out", "--split", "train=0.5,val=0.5")
    written(capsys, "out", "again", "--compression", "gzip")
    first, second = rk.open("out"), rk.open("again")
    assert list(second.splits) == ["train", "val"]
    assert second.schema == first.schema
    for name in first.splits:
        assert second[name].to_arrow() == first[name].to_arrow()


def test_a_schema_says_how_records_without_one_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.tfrecord").write_bytes(frames([example_bytes({"n": [i], "s": [b"a"]}) for i in range(3)]))
    written(capsys, "x.tfrecord", "inferred")
    assert rk.open("inferred").schema["s"] == rk.Bytes()
    rk.Schema({"number": rk.Int64(key="n"), "text": rk.Text(key="s")}).save("schema.json")
    written(capsys, "x.tfrecord", "declared", "--schema", "schema.json")
    assert rk.open("declared")["train"].to_arrow().to_pydict() == {"number": [0, 1, 2], "text": ["a"] * 3}


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(
    photos: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir())
    assert run_command_line(["write", photos, "out", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cat/0.jpg  ")
    assert '  image/class/text   bytes  1  "cat"\n' in printed.out
    assert "\nforecast: 12 records · about " in printed.out
    assert printed.err.endswith("nothing was written\n")
    assert run_command_line(["write", photos, "out", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["dry_run"], document["forecast"]["records"]) == (True, 12)
    assert [row["path"] for row in document["rows"]] == [f"photos/cat/{i}.jpg" for i in range(3)]
    assert sorted(os.listdir()) == before


def test_a_bad_row_ends_it_with_1_and_nothing_appears(photos: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos/cat/3.jpg").write_bytes(b"")
    assert run_command_line(["write", photos, "out", "--workers", "1"]) == 1
    printed = capsys.readouterr()
    assert "EncodeError E330" in printed.err
    assert "photos/cat/3.jpg" in printed.err
    assert printed.out == ""
    assert not Path("out").exists()


def test_bad_rows_are_rejected_and_counted(photos: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos/cat/3.jpg").write_bytes(b"")
    reject = ["--on-bad-row", "reject", "--workers", "1"]
    assert run_command_line(["write", photos, "out", *reject]) == 1
    assert "DatasetError X514" in capsys.readouterr().err
    assert run_command_line(["write", photos, "out", *reject, "--max-rejects", "1"]) == 0  # goes on
    out = capsys.readouterr().out
    assert "rejected: 1 row, listed in out/.rekord/rejects.jsonl\n  E330  1 ×  " in out
    assert "first: photos/cat/3.jpg" in out
    assert rk.open("out")["train"].to_arrow().num_rows == 11


def test_remarks_are_said_once_for_each_code(capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        image(f"photos/{i}.jpg", mode="CMYK")
    assert run_command_line(["write", "photos", "out", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "  H731  3 ×  " in out
    assert "first: photos/0.jpg" in out


def test_a_damaged_record_of_the_source_is_a_bad_row(capsys: pytest.CaptureFixture[str]) -> None:
    good = frames([example_bytes({"n": [i]}) for i in range(20)])
    Path("x.tfrecord").write_bytes(corrupt_payload(good, 7))
    rk.Schema({"n": rk.Int64()}).save("schema.json")
    assert (
        run_command_line(["write", "x.tfrecord", "out", "--schema", "schema.json", "--workers", "1", "--json"]) == 1
    )
    printed = capsys.readouterr()
    failure = json.loads(printed.out)["error"]
    assert (failure["code"], failure["location"]["record"]) == ("F102", 7)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["table.csv"], "U601", 2),
        (["table.csv", "out", "--masks", "b"], "U601", 2),
        (["out", "--images", "a"], "U601", 2),
        (["table.csv", "out", "--images", "a", "--masks", "b"], "U601", 2),
        (["table.csv", "out", "--engine", "ray"], "U604", 2),
        (["table.csv", "out", "--layout", "tabel"], "U605: `--layout` cannot be 'tabel'", 2),
        (
            ["table.csv", "out", "--layout", "deeplab"],
            "U676: csv source does not fit the layout 'deeplab'",
            2,
        ),
        (["table.csv", "out", "--shard-size", "9" * 400], "U605: `--shard-size` cannot be", 2),
        (["table.csv", "out", "--shard-size", "1e5"], "U605: `--shard-size` cannot be '1e5'", 2),
        (["table.csv", "out", "--split", "train=0.9,val"], "U605: `--split` cannot be 'train=0.9,val'", 2),
        (
            ["table.csv", "out", "--split", "train=0.9,train=0.1"],
            "U605: `--split` cannot be 'train=0.9,train=0.1'",
            2,
        ),
        (["table.csv", "out", "--split", "0.9,0.1"], "U605: `--split` cannot be '0.9,0.1'", 2),
        (
            ["table.csv", "out", "--split", "train:0.9,val:0.1"],
            "U605: `--split` cannot be 'train:0.9,val:0.1'",
            2,
        ),
        (["table.csv", "out", "--split", "train 0.9"], "U605: `--split` cannot be 'train 0.9'", 2),
        (["table.csv", "out", "--split", "train=0.9"], "U605: `--split` cannot be 'train=0.9'", 2),
        (["table.csv", "out", "--split", "source"], "U605: `--split` cannot be 'source'", 2),
        (["table.csv", "out", "--shard-size", "1XB"], "U605: `--shard-size` cannot be '1XB'", 2),
        (["table.csv", "out", "--workers", "0"], "U605: `--workers` cannot be 0", 2),
        (["table.csv", "out", "--limit", "-1"], "U605: `--limit` cannot be '-1'", 2),
        (["table.csv", "out", "--max-rejects", "few"], "U605: `--max-rejects` cannot be 'few'", 2),
        (["table.csv", "out", "--ignore", "x"], "U605: `--ignore` cannot be 'x'", 2),
        (["table.csv", "out", "--verify", "none"], "U605: `--verify` cannot be 'none'", 2),
        (["table.csv", "out", "--compression", "zip"], "U605: `--compression` cannot be 'zip'", 2),
        (["table.csv", "out", "--format", "tdfs"], "U605: `--format` cannot be 'tdfs'", 2),
        (["table.csv", "out", "--index", "lable"], "U605: `--index` cannot be 'lable'", 2),
        (
            ["table.csv", "out", "--ignore", "255"],
            "U605: `--ignore` does not apply to source csv",
            2,
        ),
        (["table.csv", "out", "--ignore", "none"], "U605: `--ignore` has no effect without masks", 2),
        (
            ["table.csv", "out", "--colours", "colours.json"],
            "U605: `--colours` has no effect without masks",
            2,
        ),
        (
            ["table.csv", "out", "--label-map", "map.pbtxt"],
            "U605: `--label-map` does not apply to this data",
            2,
        ),
        (["table.csv", "out", "--classes", "gone.txt"], "U624: the file for `--classes` cannot be used", 2),
        (["table.csv", "out", "--classes", "gaps.txt"], "U624: the file for `--classes` cannot be used", 2),
        (["table.csv", "out", "--colours", "table.csv"], "U624: the file for `--colours` cannot be used", 2),
        (["table.csv", "out", "--map", "clean.py"], "U622: cannot load a function from 'clean.py'", 2),
        (["table.csv", "out", "--map", "gone.py:f"], "U622: the file for `--map` cannot be used", 2),
        (["table.csv", "out", "--map", "slip.py:f"], "U622: cannot load a function from 'slip.py:f'", 2),
        (["table.csv", "out", "--map", "ends.py:f"], "U622: cannot load a function from 'ends.py:f'", 2),
        (
            ["table.csv", "out", "--map", "table.csv:f"],
            "U622: cannot load a function from 'table.csv:f'",
            2,
        ),
        (["gone.csv", "out"], "X501", 3),
        (["table.csv", "out", "--schema", "gone.json"], "X501", 3),
        (["table.csv", "table.csv"], "U618: output already exists", 2),
        (["table.csv", "out", "--stratify", "lable", "--split", "a=0.5,b=0.5"], "E381", 1),
        (["empty.csv", "out"], "X520", 3),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_code(
    table: str, arguments: list[str], code: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("colours.json").write_text('{"0,0,0": 0}')
    Path("map.pbtxt").write_text("item { id: 1 name: 'a' }")
    Path("gaps.txt").write_text("a\n\nb\n")
    Path("slip.py").write_text("def f(:\n")
    Path("ends.py").write_text("raise SystemExit(3)\n")
    Path("empty.csv").write_text("")
    workers = [] if "--workers" in arguments else ["--workers", "1"]
    assert run_command_line(["write", *arguments, *workers]) == exit_code
    printed = capsys.readouterr()
    assert re.search(rf"^\w+Error {re.escape(code)}", printed.err, re.MULTILINE)
    assert "Traceback" not in printed.err
    assert not Path("out").exists()


@pytest.mark.parametrize("code", ["U621", "U622", "U605", "U624"])
def test_the_pages_show_what_is_said(table: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.pdf", "b.pdf", "c.docx"):
        Path("papers").mkdir(exist_ok=True)
        Path("papers", name).touch()
    Path("clean.py").write_text("def tidy(row):\n    return row\n")
    Path("colours.json").write_text('{"red": 1}')
    image("a/1.jpg")
    image("b/1.png")
    command, *shown = next(text for text in messages(code) if text.startswith("$ rekord write ")).splitlines()
    assert run_command_line(command.split()[2:]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in shown if line not in printed] == []


def test_an_interrupt_ends_it_with_130_and_the_next_run_goes_on(
    table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rekord.conversion import driver

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(driver, "write_shard", interrupted)
        assert run_command_line(["write", table, "out", "--workers", "1"]) == 130
    assert capsys.readouterr().err.endswith("interrupted: run the same command again to resume\n")
    assert not Path("out").exists()
    written(capsys, table, "out")
    assert rk.open("out")["train"].to_arrow().num_rows == 40


@pytest.mark.concurrency
def test_a_signal_ends_the_command_itself(table: str) -> None:
    Path("slow.py").write_text(
        "import time\ndef f(row):\n    open('began', 'w').close()\n    time.sleep(0.2)\n    return row\n"
    )
    command = [sys.executable, "-m", "rekord", "write", table, "out", "--map", "slow.py:f", "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not Path("began").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    assert "Traceback" not in told
    assert told.endswith("interrupted: run the same command again to resume\n")


def test_tfds_files_lie_beside_the_shards_where_that_is_asked_for(
    photos: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(capsys, photos, "pets", "--format", "tfds")
    assert {"dataset_info.json", "features.json", "pets-train.tfrecord-00000-of-00001"} <= set(os.listdir("pets"))


def test_the_first_rows_are_written_where_a_limit_is_given(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(capsys, table, "out", "--limit", "7", "--key", "id", "--index", "id,label")
    assert rk.open("out")["train"].to_arrow()["id"].to_pylist() == list(range(7))


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(
    table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rekord.verbs import forecast

    monkeypatch.setattr(forecast, "get_free_bytes", lambda out: 1000)
    assert run_command_line(["write", table, "out", "--workers", "1", "--json"]) == 3
    failure = json.loads(capsys.readouterr().out)["error"]
    assert (failure["code"], failure["location"]["path"], failure["found"]) == ("X519", "out", "1.0 kB free")
    assert sorted(os.listdir()) == ["table.csv"]

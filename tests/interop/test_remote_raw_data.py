"""Raw data in object storage becomes the dataset that a local copy becomes, and is listed once."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_server import Fault, ObjectServer
from PIL import Image
from raw_layouts import CORPUS, Tree

import rekord as rk
from rekord.cli.main import run_command_line

CIRCUMSTANCES = ("run.json", "source.json")
EVERY_THIRD = sorted(set(CORPUS) - {"empty-folder"})[::3]  # a bucket has no empty folders


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with ObjectServer() as server, server.environment():
        yield server


@pytest.fixture
def server(running: ObjectServer) -> Iterator[ObjectServer]:
    running.drop()
    running.reset()
    yield running
    running.reset()


def upload(server: ObjectServer, folder: Path) -> None:
    """Put a folder into the bucket, below `data`."""
    for path in folder.rglob("*"):
        if path.is_file():
            server.put(f"data/{path.relative_to(folder).as_posix()}", path.read_bytes())


def content(out: Path, source: str) -> dict[str, Any]:
    """What a dataset consists of, without what depends on the times of files; `source` is replaced in texts."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name not in (*CIRCUMSTANCES, "rekord.json"):
            data = path.read_bytes()
            found[str(path.relative_to(out))] = data.replace(source.encode(), b"SOURCE")
    manifest = json.loads((out / "rekord.json").read_text())
    del manifest["plan"], manifest["checksum"], manifest["source"]["fingerprint"]
    return {**found, "rekord.json": manifest}


def write(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `rekord write`: the exit code, and the code of the error."""
    capsys.readouterr()
    code = run_command_line(["write", *arguments, "--json", "--workers", "1", "--no-config"])
    messages = capsys.readouterr().err
    assert "Traceback" not in messages, messages
    found = re.search(r"Error ([A-Z]\d{3}):", messages)
    return code, found[1] if found else ""


@pytest.mark.parametrize("name", EVERY_THIRD)
def test_a_layout_in_a_bucket_is_read_as_on_a_disk(
    name: str, server: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    inner = CORPUS[name].build(Tree(folder))
    upload(server, folder)
    local = str(folder / inner) if inner else str(folder)
    url = f"{server.bucket}/data/{inner}" if inner else f"{server.bucket}/data"
    expected = write([local, str(tmp_path / "local")], capsys)
    assert write([url, str(tmp_path / "remote")], capsys) == expected
    if expected[0] == 0:
        assert content(tmp_path / "remote", f"{server.bucket}/data") == content(tmp_path / "local", str(folder))
    assert server.counts()["list"] <= 6, "folders are not listed one by one"


ROWS = [{"name": f"row {i}", "value": i, "score": i / 4} for i in range(40)]


def table() -> pa.Table:
    return pa.Table.from_pylist(ROWS)


def make_csv(folder: Path) -> str:
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return "table.csv"


def make_pattern(folder: Path) -> str:
    for name in ("a.csv", "b.csv", "c.txt"):
        (folder / name).write_text("x,y\n1,2\n3,4\n")
    return "[ab].csv"


def make_jsonl(folder: Path) -> str:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return "rows.jsonl"


def make_parquet(folder: Path) -> str:
    pq.write_table(table(), folder / "rows.parquet", row_group_size=16)
    return "rows.parquet"


def make_arrow(folder: Path) -> str:
    with pa.ipc.new_file(str(folder / "rows.arrow"), table().schema) as file:
        file.write_table(table())
    return "rows.arrow"


def make_npz(folder: Path) -> str:
    np.savez(folder / "arrays.npz", x=np.arange(60).reshape(20, 3), y=np.arange(20))
    return "arrays.npz"


def make_npy(folder: Path) -> str:
    np.save(folder / "array.npy", np.arange(60).reshape(20, 3))
    return "array.npy"


def make_sqlite(folder: Path) -> str:
    with sqlite3.connect(folder / "rows.sqlite") as database:
        database.execute("create table rows (name text, value integer)")
        database.executemany("insert into rows values (?, ?)", [(row["name"], row["value"]) for row in ROWS])
    database.close()
    return "rows.sqlite"


def make_duckdb(folder: Path) -> str:
    import duckdb

    with duckdb.connect(str(folder / "rows.duckdb")) as database:
        database.execute("create table rows as select range as value from range(30)")
    return "rows.duckdb"


def make_hdf5(folder: Path) -> str:
    import h5py

    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"], file["y"] = np.arange(60).reshape(20, 3), np.arange(20)
    return "rows.h5"


def make_text(folder: Path) -> str:
    (folder / "lines.txt").write_text("one line\nanother line\nand a third one\n")
    return "lines.txt"


def make_arff(folder: Path) -> str:
    (folder / "t.arff").write_text("@relation t\n@attribute a numeric\n@attribute b {x,y}\n@data\n1,x\n2,y\n")
    return "t.arff"


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (24, 24, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def make_webdataset(folder: Path) -> str:
    with tarfile.open(folder / "samples.tar", "w") as tar:
        for i in range(4):
            for name, data in ((f"{i}.jpg", jpeg(i)), (f"{i}.cls", str(i % 2).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return "samples.tar"


def make_zip(folder: Path) -> str:
    with zipfile.ZipFile(folder / "photos.zip", "w") as file:
        for i in range(6):
            file.writestr(f"photos/{'cat' if i % 2 else 'dog'}/{i}.jpg", jpeg(i))
    return "photos.zip"


def make_records(folder: Path) -> str:
    rk.write(ROWS, folder / "records", shards=2, progress=False, workers=1)
    (folder / "records" / "rekord.json").unlink()
    return "records"


def make_large_images(folder: Path) -> str:
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 255, (400, 400, 3), np.uint8)
        (folder / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "photos" / "ab"[i % 2] / f"{i}.png")
    return "photos"


MAKERS: list[Callable[[Path], str]] = [
    *(make_csv, make_pattern, make_jsonl, make_parquet, make_arrow, make_npz, make_npy, make_sqlite, make_duckdb),
    *(make_hdf5, make_text, make_arff, make_webdataset, make_zip, make_records, make_large_images),
]


@pytest.mark.parametrize("make", MAKERS, ids=[make.__name__.removeprefix("make_") for make in MAKERS])
def test_a_kind_of_source_in_a_bucket_is_written_byte_for_byte_as_a_local_copy(
    make: Callable[[Path], str],
    server: ObjectServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    name = make(folder)
    upload(server, folder)
    assert write([str(folder / name), str(tmp_path / "local")], capsys) == (0, "")
    assert write([f"{server.bucket}/data/{name}", str(tmp_path / "remote")], capsys) == (0, "")
    assert content(tmp_path / "remote", f"{server.bucket}/data") == content(tmp_path / "local", str(folder))


@pytest.fixture
def photos(server: ObjectServer, tmp_path: Path) -> str:
    """120 images of two classes in a bucket."""
    for i in range(120):
        server.put(f"photos/{'cat' if i % 2 else 'dog'}/{i:03}.jpg", jpeg(i))
    return f"{server.bucket}/photos"


def test_a_folder_is_listed_once_and_each_image_is_one_request(
    photos: str, server: ObjectServer, tmp_path: Path
) -> None:
    server.reset()
    rk.write(photos, tmp_path / "out", progress=False, workers=1)
    counts = server.counts()
    assert counts["get"] <= 120 + 30, counts  # some are read twice, to look at the first rows
    assert counts["head"] <= 6, counts
    assert counts["list"] <= 4, counts


def test_images_are_fetched_ahead(photos: str, server: ObjectServer, tmp_path: Path) -> None:
    server.reset()
    server.inject(Fault("slow", operation="get", seconds=0.02))
    rk.write(photos, tmp_path / "out", progress=False, workers=1)
    assert server.most_at_once >= 8


def test_workers_read_and_write_the_same(photos: str, tmp_path: Path) -> None:
    rk.write(photos, tmp_path / "one", progress=False, workers=1, shuffle=True)
    rk.write(photos, tmp_path / "two", progress=False, workers=2, shuffle=True)
    assert content(tmp_path / "one", "") == content(tmp_path / "two", "")


def test_sync_converts_only_the_image_whose_etag_changed(photos: str, server: ObjectServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rk.write(photos, out, progress=False, workers=1)
    assert rk.sync(photos, out, progress=False, workers=1)["train"][4]["filename"] == "cat/009.jpg"
    server.put("photos/cat/009.jpg", jpeg(1000))
    server.reset()
    changed = rk.sync(photos, out, progress=False, workers=1)["train"][4]
    assert (changed["filename"], bytes(changed["image"])) == ("cat/009.jpg", jpeg(1000))
    assert len({one.key for one in server.log if one.operation == "get" and one.key.endswith(".jpg")}) < 60


def test_a_file_replaced_while_it_is_read_stops_the_conversion(
    photos: str, server: ObjectServer, tmp_path: Path
) -> None:
    def replace() -> None:
        server.put("photos/dog/000.jpg", jpeg(7))

    server.inject(Fault("slow", operation="get", key="photos/dog/118.jpg", times=1, seconds=0, hook=replace))
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(photos, tmp_path / "out", progress=False, workers=1)
    assert (caught.value.code, caught.value.location.path) == ("X526", f"{photos}/dog/000.jpg")
    assert not (tmp_path / "out").exists()


def test_a_table_replaced_between_two_ranges_is_no_mixture(server: ObjectServer, tmp_path: Path) -> None:
    lines = "".join(f"{i},{i * i}\n" for i in range(200_000))
    server.put("t.csv", f"a,b\n{lines}".encode())
    other = "".join(f"{i},{i * i + 1}\n" for i in range(200_000))
    url = f"{server.bucket}/t.csv"

    def replace() -> None:
        server.put("t.csv", f"a,b\n{other}".encode())

    gets = 3
    server.inject(Fault("slow", operation="get", key="t.csv", skip=gets, times=1, seconds=0, hook=replace))
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(url, tmp_path / "out", progress=False, workers=1)
    assert caught.value.code in ("X526", "X548")
    assert caught.value.location.path == url


@pytest.mark.parametrize("kind", ["503", "cut", "500"])
def test_a_tenth_of_all_requests_may_fail(
    kind: Any, photos: str, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rk.write(photos, tmp_path / "calm", progress=False, workers=1)
    # The answer to a HEAD has no body to cut.
    server.inject(Fault(kind, operation=("get", "list") if kind == "cut" else ("get", "head", "list"), share=0.1))
    rk.write(photos, tmp_path / "out", progress=False, workers=1)
    assert content(tmp_path / "out", "") == content(tmp_path / "calm", "")


def test_a_refused_file_is_the_fault_of_the_storage_and_not_of_its_row(
    photos: str, server: ObjectServer, tmp_path: Path
) -> None:
    server.inject(Fault("denied", operation="get", key="photos/dog/060.jpg"))
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(photos, tmp_path / "out", progress=False, workers=1, on_bad_row="reject", max_rejects=50)
    assert caught.value.location.path == f"{photos}/dog/060.jpg"
    assert not (tmp_path / "out").exists()


def test_keys_that_cannot_be_paths_are_refused(server: ObjectServer, tmp_path: Path) -> None:
    server.put("odd/cat/1.jpg", jpeg(1))
    server.put("odd/cat//2.jpg", jpeg(2))
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(f"{server.bucket}/odd", tmp_path / "out", progress=False)
    assert caught.value.code == "X581"


def test_a_folder_for_datumaro_says_that_it_has_to_be_copied(server: ObjectServer, tmp_path: Path) -> None:
    server.put("x/images/1.jpg", jpeg(1))
    with pytest.raises(rk.DatasetError) as caught:
        rk.sources.datumaro(f"{server.bucket}/x", format="voc").facts()
    assert caught.value.code == "X551"
    assert "copy" in str(caught.value.do)


def test_infer_and_trace_know_remote_raw_data(photos: str, tmp_path: Path) -> None:
    assert set(rk.infer(photos, limit=4).features) >= {"image", "label"}
    rk.write(photos, tmp_path / "out", progress=False, workers=1)
    assert rk.trace(tmp_path / "out", 3).path == "cat/007.jpg"

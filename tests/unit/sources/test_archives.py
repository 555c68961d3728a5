"""Raw data inside zip and tar archives, read without unpacking, and archives that must not be believed."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import nibabel
import numpy as np
import openpyxl
import pyarrow as pa
import pytest
import tifffile
from media_files import put_audio, put_video
from PIL import Image
from pyarrow import parquet
from pydicom.data import get_testdata_file

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.detect import detect_source, identify_source
from rekord.storage import raw_files
from rekord.storage.archives import read_archive

KINDS = (".zip", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz")


def pack(folder: Path, path: Path) -> Path:
    """An archive of what is in a folder, in an order that is not sorted."""
    files = sorted((one for one in folder.rglob("*") if one.is_file()), reverse=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for i, one in enumerate(files):
                method = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2)[i % 3]
                archive.write(one, str(one.relative_to(folder)), method)
    else:
        with tarfile.open(path, "w:" + {".tar": "", ".gz": "gz", ".bz2": "bz2", ".xz": "xz"}[path.suffix]) as tar:
            for one in files:
                tar.add(one, str(one.relative_to(folder)))
    return path


def put(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def image(path: Path, value: int = 0, kind: str = "PNG") -> Path:
    file = io.BytesIO()
    Image.fromarray(np.full((6, 8, 3) if kind == "JPEG" else (6, 8), value, np.uint8)).save(file, kind)
    return put(path, file.getvalue())


def class_folders(root: Path) -> None:
    for i in range(6):
        image(root / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg", i * 9, "JPEG")


def csv(root: Path) -> None:
    put(root / "a.csv", "x,y\n1,a\n2,b\n")


def csvs(root: Path) -> None:
    put(root / "data" / "a.csv", "x,y\n1,a\n2,b\n")
    put(root / "data" / "b.csv", "x,y\n3,c\n")


def jsonl(root: Path) -> None:
    put(root / "a.jsonl", '{"x": 1}\n{"x": 2}\n')


def table(root: Path) -> None:
    parquet.write_table(pa.table({"x": [1, 2, 3]}), put(root / "a.parquet", b""))


def arrays(root: Path) -> None:
    np.savez(put(root / "a.npz", b""), x=np.arange(5), y=np.arange(5) / 2)


def sheet(root: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["x"], [1], [2]):
        book.active.append(row)
    book.save(put(root / "a.xlsx", b""))


def coco(root: Path) -> None:
    document: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    for i in range(3):
        image(root / "images" / f"{i}.jpg", i, "JPEG")
        document["images"].append({"id": i, "file_name": f"{i}.jpg", "width": 8, "height": 6})
        document["annotations"].append({"id": i, "image_id": i, "category_id": 1, "bbox": [1, 1, 2, 2]})
    put(root / "annotations" / "instances.json", json.dumps(document))


def voc(root: Path) -> None:
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
    for i in range(3):
        image(root / "JPEGImages" / f"{i}.jpg", i, "JPEG")
        put(root / "Annotations" / f"{i}.xml", f"<annotation><object><name>cat</name>{box}</object></annotation>")


def yolo(root: Path) -> None:
    for i in range(3):
        image(root / "images" / f"{i}.jpg", i, "JPEG")
        put(root / "labels" / f"{i}.txt", "0 0.5 0.5 0.2 0.2\n")


def masks(root: Path) -> None:
    for i in range(4):
        image(root / "images" / f"{i}.jpg", i, "JPEG")
        image(root / "masks" / f"{i}.png", i % 2)


def listed(root: Path) -> None:
    for i in range(3):
        image(root / "img" / f"{i}.jpg", i, "JPEG")
    put(root / "labels.csv", "image,label\n" + "".join(f"img/{i}.jpg,{'ab'[i % 2]}\n" for i in range(3)))


def texts(root: Path) -> None:
    for split in ("train", "test"):
        for i in range(4):
            put(root / split / ("neg", "pos")[i % 2] / f"{i}.txt", f"{split} {i}\n")


def sounds(root: Path) -> None:
    for i, name in enumerate(("1.wav", "2.flac", "3.ogg", "4.mp3")):
        put_audio(root / ("cat", "dog")[i % 2] / name, 800)


def listed_sounds(root: Path) -> None:
    for i in range(2):
        put_audio(root / "clips" / f"{i}.wav", 800 + i)
    put(root / "labels.csv", "file,label\nclips/0.wav,a\nclips/1.wav,b\n")


def videos(root: Path) -> None:
    for i, name in enumerate(("1.mp4", "2.mkv", "3.avi")):
        put_video(root / ("run", "walk")[i % 2] / name, 4)


def listed_videos(root: Path) -> None:
    for i in range(2):
        put_video(root / "clips" / f"{i}.mp4", 3 + i)
    put(root / "labels.csv", "video,label\nclips/0.mp4,a\nclips/1.mp4,b\n")


def tiffs(root: Path) -> None:
    for i, how in enumerate((None, "zlib", "lzw")):
        path = put(root / ("a", "b")[i % 2] / f"{i}.tif", b"")
        tifffile.imwrite(path, np.full((9, 7, 4), i, np.uint16), compression=how, photometric="minisblack")


def scans(root: Path) -> None:
    for i, name in enumerate(("CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm")):
        data = Path(str(get_testdata_file(name, download=False))).read_bytes()
        put(root / ("a.dcm", "b.dcm", "IM0001")[i], data)


def volumes(root: Path) -> None:
    for i, (name, kind) in enumerate(
        (("a.nii", nibabel.Nifti1Image), ("b.nii.gz", nibabel.Nifti1Image), ("c.nii.gz", nibabel.Nifti2Image))
    ):
        nibabel.save(kind(np.full((3, 4, 5), i, np.int16), np.eye(4)), put(root / name, b""))


def array_files(root: Path) -> None:
    for i in range(4):
        np.save(put(root / ("a", "b")[i % 2] / f"{i}.npy", b""), np.full((4, 3), i, np.float32))


DATA = [class_folders, csv, csvs, jsonl, table, arrays, sheet, coco, voc, yolo, masks, listed, texts]
MEDIA = [sounds, listed_sounds, videos, listed_videos, tiffs, scans, volumes, array_files]


def records(path: Path, out: Path) -> dict[str, list[bytes]]:
    rk.write(path, out, progress=False, workers=1)
    dataset = rk.open(out)
    return {
        name: [bytes(frame) for one in dataset[name].paths for frame in rk.records(one)] for name in dataset.splits
    }


@pytest.mark.parametrize("build", [*DATA, *MEDIA], ids=lambda build: build.__name__)
@pytest.mark.parametrize("kind", [".zip", ".tar"])
def test_an_archive_gives_the_records_that_its_folder_gives(tmp_path, build, kind):
    build(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / f"data{kind}")
    expected = records(tmp_path / "data", tmp_path / "one")
    shutil.rmtree(tmp_path / "data")
    before = sorted(os.listdir(tmp_path))
    assert records(path, tmp_path / "two") == expected
    assert sum(map(len, expected.values())) >= 2
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "two"]), "something was unpacked"


def plain(value: Any) -> Any:
    """A value of a row that can be compared: files as their bytes."""
    if isinstance(value, PurePath):
        return value.read_bytes()
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytes) else (np.asarray(value).dtype, np.asarray(value).tolist())


def rows_of(source: Any) -> list[tuple[Any, ...]]:
    found = []
    for row in (row for part in source.parts() for row in source.read(part)):
        assert not isinstance(row.values, rk.RekordError), row.values
        found.append((row.path, row.position, {name: plain(one) for name, one in row.values.items()}))
    return found


@pytest.mark.parametrize("most", [0, raw_files.MEMORY_BYTES])
@pytest.mark.parametrize(
    ("build", "read"),
    [
        (sounds, rk.sources.audio_folder),
        (videos, partial(rk.sources.video_folder, clips=2)),
        (videos, partial(rk.sources.video_folder, every=2, frames="tensor")),
        (listed_videos, partial(rk.sources.video_csv, fps=5)),
        (tiffs, partial(rk.sources.tiff, images_as="png")),
        (tiffs, partial(rk.sources.tiff, georeference=True)),
        (scans, partial(rk.sources.dicom, rescale=True, metadata=["Modality"])),
        (volumes, partial(rk.sources.nifti, affine=True)),
        (tiffs, lambda path: rk.sources.convert_images(rk.sources.image_folder(path))),
    ],
)
def test_a_source_reads_an_archive_as_its_folder(tmp_path, monkeypatch, build, read, most):
    monkeypatch.setattr(raw_files, "MEMORY_BYTES", most)
    build(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / "data.zip")
    expected = rows_of(read(tmp_path / "data"))
    assert len(expected) >= 2
    assert rows_of(read(f"{path}!")) == expected


@pytest.mark.parametrize("build", MEDIA, ids=lambda build: build.__name__)
def test_a_corrupt_member_is_one_bad_row(tmp_path, build):
    build(tmp_path / "data")
    path = tmp_path / "data.zip"
    files = sorted(one for one in (tmp_path / "data").rglob("*") if one.is_file())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for one in files:
            archive.write(one, str(one.relative_to(tmp_path / "data")))
    victim = next(one for one in reversed(files) if one.suffix != ".csv")
    content = victim.read_bytes()
    data = bytearray(path.read_bytes())
    data[data.index(content) + len(content) - 1] ^= 1
    path.write_bytes(bytes(data))
    result = rk.write(path, tmp_path / "out", progress=False, on_bad_row="reject", max_rejects=1)
    rows = sum(len(result[split]) for split in result.splits)
    assert rows == sum(one.suffix != ".csv" for one in files) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_members_have_the_bytes_that_were_packed(tmp_path, kind):
    data = np.random.default_rng(7).integers(0, 9, 3 << 20, np.uint8).tobytes()
    contents = {"a.txt": b"", "b/c.txt": b"abc", "b/d/e.bin": data, "z.txt": b"z" * 70_000}
    for name, content in contents.items():
        put(tmp_path / "data" / name, content)
    inside = f"{pack(tmp_path / 'data', tmp_path / f'data{kind}')}!"
    found = {}
    for name in contents:
        with raw_files.open_binary(f"{inside}/{name}") as file:
            found[name] = file.read()
            file.seek(2)
            assert file.read(5) == contents[name][2:7]
        assert raw_files.getsize(f"{inside}/{name}") == len(contents[name])
    assert found == contents
    assert raw_files.listdir(inside) == ["a.txt", "b", "z.txt"]
    assert (raw_files.isdir(f"{inside}/b"), raw_files.isfile(f"{inside}/b")) == (True, False)
    assert not raw_files.lexists(f"{inside}/missing")


def test_two_workers_read_one_archive(tmp_path):
    for i in range(40):
        image(tmp_path / "data" / ("cat", "dog")[i % 2] / f"{i}.png", i)
    path = pack(tmp_path / "data", tmp_path / "data.tar.gz")
    rk.write(path, tmp_path / "out", progress=False, workers=2)
    assert len(rk.open(tmp_path / "out")["train"]) == 40


def test_a_folder_in_an_archive_is_named_after_it(tmp_path, capsys):
    texts(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / "data.zip")
    for place in (f"{path}/train", f"{path}!/train"):
        out = tmp_path / "out"
        assert run_command_line(["write", place, str(out)]) == 0, capsys.readouterr().err
        assert len(rk.open(out)["train"]) == 4
        shutil.rmtree(out)


def test_a_bad_row_is_located_in_the_archive(tmp_path):
    put(tmp_path / "data" / "a.csv", "x,y\n1,a\n2\n")
    path = pack(tmp_path / "data", tmp_path / "data.zip")
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", progress=False)
    where = caught.value.location
    assert (caught.value.code, where.path, where.line) == ("E354", f"{path}!/a.csv", 3)


def test_an_image_of_an_archive_that_is_corrupt_is_a_bad_row(tmp_path):
    for i in range(3):
        image(tmp_path / "data" / "cat" / f"{i}.png", i)
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for i in range(3):
            archive.write(tmp_path / "data" / "cat" / f"{i}.png", f"cat/{i}.png")
    data = bytearray(path.read_bytes())
    data[data.index(b"IDAT") + 6] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("E329", f"{path}!/cat/0.png")
    assert "checksum" in str(caught.value.found)


def test_samples_of_a_webdataset_stay_one(tmp_path):
    for i in range(3):
        image(tmp_path / "data" / f"{i}.jpg", i, "JPEG")
        put(tmp_path / "data" / f"{i}.cls", str(i % 2))
    assert identify_source(pack(tmp_path / "data", tmp_path / "data.tar")).kind == "webdataset"


def test_databases_in_an_archive_are_refused(tmp_path):
    import sqlite3

    (tmp_path / "data").mkdir()
    database = sqlite3.connect(tmp_path / "data" / "a.db")
    database.execute("CREATE TABLE t AS SELECT 1 AS x")
    database.commit()
    database.close()
    path = pack(tmp_path / "data", tmp_path / "data.zip")
    with pytest.raises(rk.RekordError) as caught:
        detect_source(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X551", f"{path}!/a.db")


def test_annotations_that_datumaro_reads_are_refused_in_an_archive(tmp_path):
    masks(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / "data.zip")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.datumaro(f"{path}!").facts()
    assert (caught.value.code, caught.value.location.path) == ("X551", f"{path}!")


def test_a_real_folder_with_such_a_name_is_not_an_archive(tmp_path):
    put(tmp_path / "a.zip!" / "a.csv", "x\n1\n")
    assert raw_files.listdir(str(tmp_path / "a.zip!")) == ["a.csv"]
    assert detect_source(tmp_path / "a.zip!").facts().rows == 1


# Archives that must not be believed.


def refused(path: Path) -> tuple[str, str | None]:
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.csv(f"{path}!").facts()
    assert caught.value.do
    return caught.value.code, caught.value.location.path


@pytest.mark.parametrize("name", ["../a.csv", "/etc/a.csv", "b/../../a.csv", "C:/a.csv", "C:\\a.csv"])
def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, name):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good.csv", "x\n1\n")
        archive.writestr(name, "x\n1\n")
    assert refused(path)[0] == "X550"
    tar = tmp_path / "a.tar"
    with tarfile.open(tar, "w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 4
        archive.addfile(info, io.BytesIO(b"x\n1\n"))
    assert refused(tar)[0] == "X550"


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.csv", "missing.csv"])
def test_links_out_of_the_archive_are_refused(tmp_path, target):
    path = tmp_path / "a.tar"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("a.csv")
            info.type, info.linkname = kind, target
            archive.addfile(info)
        os.utime(path, ns=(0, kind[0]))
        assert refused(path)[0] == "X550"
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        linked = zipfile.ZipInfo("a.csv")
        linked.external_attr = (stat.S_IFLNK | 0o777) << 16
        linked.create_system = 3
        archive.writestr(linked, target)
    assert refused(path) == ("X550", f"{path}!/a.csv")


def test_links_inside_an_archive_are_followed(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("data/a.csv")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"x\n7\n"))
        info = tarfile.TarInfo("data/b.csv")
        info.type, info.linkname = tarfile.SYMTYPE, "a.csv"
        archive.addfile(info)
    assert rk.sources.csv(f"{path}!").facts().rows == 2


def test_devices_are_refused(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("a.csv")
        info.type = tarfile.FIFOTYPE
        archive.addfile(info)
    assert refused(path) == ("X551", f"{path}!/a.csv")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("a.csv", "x\n2\n")
    assert refused(path) == ("X550", f"{path}!/a.csv")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("a.csv/b.csv", "x\n2\n")
    assert refused(path)[0] == "X550"


def test_members_that_overlap_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "x\n" + "1\n" * 1000)
        archive.writestr("b.csv", "x\n" + "1\n" * 1000)
    data = bytearray(path.read_bytes())
    second = data.rindex(b"PK\1\2")
    data[second + 42 : second + 46] = struct.pack("<I", 0)  # the offset of the first
    path.write_bytes(bytes(data))
    assert refused(path)[0] == "X550"


@pytest.mark.parametrize("kind", [".zip", ".tar.gz", ".tar.bz2"])
def test_bombs_are_refused(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("rekord.storage.archives.RATIO_CHECKED_BYTES", 1 << 16)
    path = tmp_path / f"a{kind}"
    content = b"x\n" + b"1\n" * (1 << 21)
    if kind == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", content)
    else:
        with tarfile.open(path, "w:" + kind[5:]) as archive:
            info = tarfile.TarInfo("a.csv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert refused(path)[0] == "X550"


def test_a_member_that_is_longer_or_shorter_than_it_says_is_corrupt(tmp_path):
    path = tmp_path / "a.zip"
    for change in (-2, 2):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", "x\n" + "1\n" * 100)
        data = bytearray(path.read_bytes())
        entry = data.rindex(b"PK\1\2")
        data[entry + 24 : entry + 28] = struct.pack("<I", 202 + change)
        path.write_bytes(bytes(data))
        assert refused(path) == ("X524", f"{path}!/a.csv")


def test_an_encrypted_member_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + offset] |= 1
    path.write_bytes(bytes(data))
    assert refused(path) == ("X551", f"{path}!/a.csv")


def test_an_archive_in_an_archive_is_not_opened(tmp_path):
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(tmp_path / "data" / "inner.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
    path = pack(tmp_path / "data", tmp_path / "a.zip")
    with pytest.raises(rk.RekordError) as caught:
        detect_source(path)
    assert (caught.value.code, caught.value.location.path) == ("U621", f"{path}!/inner.zip")


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_archives_are_corrupt(tmp_path, kind):
    csvs(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / f"a{kind}")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 if kind != ".tar" else 515])
    assert refused(path) == ("X524", str(path))


def test_every_flipped_bit_of_an_archive_gives_the_same_rows_or_an_error(tmp_path):
    put(tmp_path / "data" / "a.csv", "x\n" + "".join(f"{i}\n" for i in range(20)))
    path = pack(tmp_path / "data", tmp_path / "a.zip")
    data = path.read_bytes()
    expected = list(range(20))
    outcomes = set()
    for bit in range(0, len(data) * 8, 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        os.utime(path, ns=(bit, bit))
        try:
            with raw_files.open_binary(f"{path}!/a.csv") as file:
                rows = [int(line) for line in file.read().split()[1:]]
            assert rows == expected
            outcomes.add("rows")
        except (rk.RekordError, FileNotFoundError) as failure:
            outcomes.add(getattr(failure, "code", "X501"))
    assert {"rows", "X524"} <= outcomes <= {"rows", "X501", "X524", "X550", "X551"}


def test_the_index_is_read_again_where_the_archive_changed(tmp_path):
    csv(tmp_path / "data")
    path = pack(tmp_path / "data", tmp_path / "a.zip")
    assert list(read_archive(str(path)).members) == ["a.csv"]
    put(tmp_path / "data" / "b.csv", "x\n1\n")
    pack(tmp_path / "data", path)
    assert sorted(read_archive(str(path)).members) == ["a.csv", "b.csv"]


def unicode_name(raw: bytes, name: str, crc: int | None = None) -> bytes:
    """The field of Info-ZIP that has the name in UTF-8."""
    crc = zlib.crc32(raw) if crc is None else crc
    value = b"\x01" + struct.pack("<I", crc) + name.encode()
    return struct.pack("<HH", 0x7075, len(value)) + value


@pytest.mark.parametrize(
    ("raw", "extra", "expected"),
    [
        ("Köln/1.png".encode(), b"", "Köln/1.png"),  # macOS
        ("東京/1.png".encode(), b"", "東京/1.png"),
        ("Köln/1.png".encode("cp437"), b"", "Köln/1.png"),  # Windows
        (b"_ln/1.png", unicode_name(b"_ln/1.png", "Łn/1.png"), "_ln/1.png"),  # ASCII is what it is
        ("\xe9/1.png".encode("latin-1"), unicode_name(b"\xe9/1.png", "Łódź/1.png"), "Łódź/1.png"),
        ("Köln/1.png".encode("cp437"), unicode_name(b"", "other/1.png", crc=1), "Köln/1.png"),
    ],
)
def test_names_of_zip_members_are_read_in_the_encoding_of_their_program(tmp_path, raw, extra, expected):
    info = zipfile.ZipInfo("x" * len(raw))
    info.create_system, info.extra = 3, extra
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, image(tmp_path / "1.png").read_bytes())
    data = (tmp_path / "a.zip").read_bytes()
    assert data.count(b"x" * len(raw)) == 2
    (tmp_path / "a.zip").write_bytes(data.replace(b"x" * len(raw), raw))
    (row,) = rows_of(rk.sources.images(f"{tmp_path / 'a.zip'}!"))
    assert row[0] == expected


def test_a_name_that_leads_out_is_refused_in_any_encoding(tmp_path):
    raw = b"\xe9/1.png"
    info = zipfile.ZipInfo("x" * len(raw))
    info.extra = unicode_name(raw, "../é.png")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, image(tmp_path / "1.png").read_bytes())
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(b"x" * len(raw), raw))
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.images(f"{tmp_path / 'a.zip'}!").facts()
    assert (caught.value.code, str(tmp_path / "a.zip") in caught.value.location.path) == ("X550", True)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_without_bound_is_not_read(tmp_path, kind):
    path = tmp_path / "a.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 40
    with open(path, "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 40)  # sparse: it takes no space
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.csv(f"{path}!/a.csv").facts()
    assert (caught.value.code, caught.value.location.path) == ("X524", str(path))
    assert caught.value.found == "a header of 1,099,511,627,776 bytes"

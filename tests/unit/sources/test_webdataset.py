"""WebDataset tars as rows."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rekord.errors import DatasetError, RekordError
from rekord.schema import Image, Int64, Text
from rekord.sources.base import SourceRow, is_partitioned
from rekord.sources.webdataset import WebDatasetSource, webdataset

JPEG = b"\xff\xd8\xff\xe0 an image"
PNG = b"\x89PNG\r\n\x1a\n a mask"


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def tar(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def put(path: Path, members: list[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar(members))
    return path


def samples(first: int, count: int) -> list[tuple[str, bytes]]:
    return [
        member
        for i in range(first, first + count)
        for member in ((f"{i:06d}.jpg", JPEG + bytes([i])), (f"{i:06d}.cls", b"%d\n" % (i % 3)))
    ]


def read(source: WebDatasetSource, part_bytes: int = 1 << 26) -> list[SourceRow]:
    return [row for part in source.parts(part_bytes) for row in source.read(pickle.loads(pickle.dumps(part)))]


def only_row(path: Path, members: list[tuple[str, bytes]]) -> Any:
    [row] = read(webdataset(put(path / "x.tar", members)))
    return row.values


def refused(path: Path, members: list[tuple[str, bytes]]) -> RekordError:
    failure = only_row(path, members)
    assert isinstance(failure, RekordError)
    assert failure.location.path == str(path / "x.tar")
    assert failure.location.row == 0
    return failure


def test_members_that_share_a_name_are_one_row(tmp_path):
    source = webdataset(put(tmp_path / "a.tar", samples(0, 3)))
    assert is_partitioned(source)
    assert [(row.path, row.position, row.values) for row in read(source)] == [
        ("a.tar", i, {"filename": f"{i:06d}", "image": JPEG + bytes([i]), "label": i}) for i in range(3)
    ]


def test_the_facts_come_from_the_files_and_the_first_samples(tmp_path):
    put(tmp_path / "b" / "1.tar", samples(0, 2))
    put(tmp_path / "b" / "0.tar", samples(2, 2))
    facts = webdataset(tmp_path / "b").facts()
    assert facts.layout == "classification"
    assert facts.schema is not None
    assert dict(facts.schema.items()) == {"filename": Text(), "image": Image(), "label": Int64()}
    assert [file.path for file in facts.files] == ["0.tar", "1.tar"]
    assert facts.source_bytes == sum(file.size_bytes for file in facts.files) == 2 * 10240


@pytest.mark.parametrize("part_bytes", [1, 10241, 30720, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(tmp_path, part_bytes):
    for i in range(5):
        put(tmp_path / "d" / f"{i}.tar", samples(10 * i, 2))
    source = webdataset(tmp_path / "d")
    rows = read(source, part_bytes)
    assert [(row.path, row.position) for row in rows] == [(f"{i}.tar", j) for i in range(5) for j in range(2)]
    assert rows == read(source)


def test_a_pattern_and_compressed_tars_are_read(tmp_path):
    for i in range(2):
        data = gzip.compress(tar(samples(i, 1)), mtime=0)
        (tmp_path / f"s-{i}.tar.gz").write_bytes(data)
    put(tmp_path / "other.tar", samples(7, 1))
    rows = read(webdataset(str(tmp_path / "s-*.tar.gz")))
    assert [row.values["filename"] for row in rows] == ["000000", "000001"]
    [row] = read(webdataset(put(tmp_path / "plain.tar", samples(3, 1))))
    for form in ("bz2", "xz"):
        with tarfile.open(tmp_path / f"c.tar.{form}", f"w:{form}") as archive:
            for name, data in samples(3, 1):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        assert read(webdataset(tmp_path / f"c.tar.{form}"))[0].values == row.values


def test_extensions_decide_what_a_member_becomes(tmp_path):
    document = {"a": 1, "b": {"c": "x", "d": None}, "e": [1, 2]}
    values = only_row(
        tmp_path,
        [
            ("./d/7.JPG", JPEG),
            ("./d/7.png", PNG),
            ("./d/7.left.png", PNG),
            ("./d/7.txt", "é".encode()),
            ("./d/7.caption.txt", b"c"),
            ("./d/7.json", json.dumps(document).encode()),
            ("./d/7.more.json", b'{"z": 2}'),
            ("./d/7.list.json", b"[1]"),
            ("./d/7.npy", npy(np.arange(6, dtype=">i4").reshape(2, 3))),
            ("./d/7.f.npy", npy(np.asfortranarray(np.arange(4.0).reshape(2, 2)))),
            ("./d/7.cls", b" 12\n"),
            ("./d/7.side.cls", b"-1"),
            ("./d/7.mp3", b"sound"),
        ],
    )
    arrays = {name: values.pop(name) for name in ("npy", "f")}
    assert values == {
        "filename": "d/7",
        "image": JPEG,
        "mask": PNG,
        "left": PNG,
        "text": "é",
        "caption": "c",
        "a": 1,
        "b/c": "x",
        "b/d": None,
        "e": [1, 2],
        "more/z": 2,
        "list": [1],
        "label": 12,
        "side": -1,
        "mp3": b"sound",
    }
    assert (arrays["npy"].dtype, arrays["npy"].tolist()) == (np.int32, [[0, 1, 2], [3, 4, 5]])
    assert arrays["f"].tolist() == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("extensions", "layout"),
    [
        (["jpg", "png"], "deeplab"),
        (["jpg", "seg.png"], "deeplab"),
        (["jpg", "cls"], "classification"),
        (["png"], "table"),
        (["txt"], "text"),
        (["txt", "cls"], "table"),
    ],
)
def test_the_layout_fits_the_columns(tmp_path, extensions, layout):
    contents = {"jpg": JPEG, "png": PNG, "seg.png": PNG, "cls": b"1", "txt": b"t"}
    put(tmp_path / "x.tar", [(f"0.{extension}", contents[extension]) for extension in extensions])
    assert webdataset(tmp_path).facts().layout == layout


def test_what_belongs_to_no_sample_is_passed_over(tmp_path):
    members = [("README", b"?"), ("__MACOSX/._0.jpg", b"?"), (".hidden.jpg", b"?"), *samples(0, 1)]
    assert [row.values["filename"] for row in read(webdataset(put(tmp_path / "x.tar", members)))] == ["000000"]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("0.cls", b"cat", "an integer"),
        ("0.cls", b"9" * 100, "an integer"),
        ("0.txt", b"\xff\xfe", "UTF-8"),
        ("0.json", b"{", "JSON"),
        ("0.json", b"[" * 100_000, "JSON"),
        ("0.json", b'{"a/b": 1, "a": {"b": 2}}', "JSON"),
        ("0.npy", b"no array", "a NumPy array of numbers"),
        ("0.npy", npy(np.zeros(3))[:-1], "a NumPy array of numbers"),
        ("0.npy", npy(np.zeros(3)).replace(b"(3,)", b"(9,)"), "a NumPy array of numbers"),
        ("0.npy", npy(np.array([None])), "a NumPy array of numbers"),
    ],
)
def test_a_member_that_is_not_what_its_extension_says_is_a_bad_row(tmp_path, name, data, expected):
    failure = refused(tmp_path, [(name, data)])
    assert (failure.code, failure.expected) == ("E377", expected)
    assert len(failure.found) <= 60


def test_a_bad_sample_leaves_the_others_alone(tmp_path):
    members = [("0.cls", b"1"), ("1.cls", b"x"), ("2.cls", b"3")]
    rows = read(webdataset(put(tmp_path / "x.tar", members)))
    assert [row.position for row in rows] == [0, 1, 2]
    assert [getattr(row.values, "code", None) for row in rows] == [None, "E377", None]


@pytest.mark.parametrize(
    "members",
    [
        [("0.jpg", JPEG), ("0.jpg", JPEG)],
        [("0.jpg", JPEG), ("0.webp", JPEG)],
        [("0.cls", b"1"), ("0.json", b'{"label": 2}')],
        [("0.json", b'{"filename": 2}')],
    ],
)
def test_two_values_for_one_column_are_a_bad_row(tmp_path, members):
    failure = refused(tmp_path, members)
    assert failure.code == "E378"
    assert failure.location.feature in ("image", "label", "filename")


def test_links_and_files_with_holes_are_refused_by_name(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("0.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    (tmp_path / "x.tar").write_bytes(out.getvalue())
    [row] = read(webdataset(tmp_path / "x.tar"))
    assert row.values.code == "E377"
    assert "0.jpg" in row.values.what


def test_a_header_that_claims_too_much_costs_nothing(tmp_path):
    info = tarfile.TarInfo("0.jpg")
    info.size = 1 << 40
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    rows = read(webdataset(tmp_path / "x.tar"))
    assert [row.values.code for row in rows] == ["E376"]


@pytest.mark.parametrize("cut", [1, 511, 512, 600, 1024, 1536, 1600, 2048, 2600, 3072, 3500, 4096])
def test_a_tar_that_ends_early_gives_its_good_samples_and_then_says_so(tmp_path, cut):
    members = samples(0, 4)
    whole = tar(members)  # a member each 1,024 bytes
    seen = [i for i, (_, data) in enumerate(members) if 1024 * i + 512 + len(data) <= cut]
    (tmp_path / "x.tar").write_bytes(whole[:cut])
    *good, last = read(webdataset(tmp_path / "x.tar"))
    assert last.values.code == "E376"
    assert (last.values.location.path, last.values.location.row) == (str(tmp_path / "x.tar"), len(good))
    # The sample of the last member that was seen may have had more of them.
    assert last.position == len(good) == max(seen, default=0) // 2
    assert [row.values["label"] for row in good] == [0, 1, 2][: len(good)]


def test_a_header_that_is_damaged_in_the_middle_is_not_taken_for_the_end(tmp_path):
    data = bytearray(tar(samples(0, 4)))
    data[2 * 2048 + 3] ^= 0xFF
    (tmp_path / "x.tar").write_bytes(data)
    *good, last = read(webdataset(tmp_path / "x.tar"))
    assert [row.values["label"] for row in good] == [0]
    assert (last.position, last.values.code) == (1, "E376")


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9, -6, -2])
def test_damage_in_a_compressed_tar_is_noticed(tmp_path, at):
    rng = np.random.default_rng(0)
    members = [(f"{i}.bin", rng.bytes(3000)) for i in range(20)]
    data = bytearray(gzip.compress(tar(members), mtime=0))
    data[int(at * len(data)) if at > 0 else at] ^= 0x55
    (tmp_path / "x.tar.gz").write_bytes(data)
    *good, last = read(webdataset(tmp_path / "x.tar.gz"))
    assert last.values.code == "E376"
    assert last.position == len(good)


@pytest.mark.parametrize("data", [b"", b"no tar at all", bytes(range(256)) * 8, gzip.compress(b"abc", mtime=0)])
def test_what_is_no_tar_is_one_bad_row(tmp_path, data):
    (tmp_path / "x.tar").write_bytes(data)
    source = webdataset(tmp_path / "x.tar")
    [row] = read(source)
    assert (row.values.code, row.position) == ("E376", 0)
    with pytest.raises(RekordError) as caught:
        source.facts()
    assert caught.value.code == "E376"


def test_a_place_without_tars_and_a_missing_one_are_said(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DatasetError) as caught:
        webdataset(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X520", str(tmp_path))
    with pytest.raises(DatasetError) as caught:
        webdataset(tmp_path / "none.tar").facts()
    assert caught.value.code == "X501"


def test_a_source_is_small_to_pickle_and_has_no_path_in_its_options(tmp_path):
    source = webdataset(put(tmp_path / "x.tar", samples(0, 1)))
    assert pickle.loads(pickle.dumps(source)) == source
    assert (source.kind, source.root, source.options()) == ("webdataset", str(tmp_path), {})


def page(code: str) -> str:
    return (Path(__file__).parents[3] / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "name", "members", "cut"),
    [
        ("E376", "shard-000000.tar", samples(0, 2), 3000),
        ("E377", "shard-000001.tar", [("000.jpg", JPEG), ("000.cls", b"cat")], None),
        ("E378", "shard-000002.tar", [("000.cls", b"1"), ("000.json", b'{"label": 2}')], None),
    ],
)
def test_the_example_of_a_page_is_what_is_said(tmp_path, monkeypatch, code, name, members, cut):
    monkeypatch.chdir(tmp_path)
    put(
        tmp_path / name,
        [(one.replace("000000", "000").replace("000001", "001"), data) for one, data in members],
    )
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:cut])
    failure = read(webdataset(name))[-1].values
    assert failure.code == code
    assert f"```text\n{failure.message}\n```" in page(code)


@pytest.mark.parametrize(("name", "data"), [("a.cls", b"1_0"), ("a.json", b'{"n": {"b": 1, "b": 2}}')])
def test_a_member_is_not_read_as_something_else_than_is_written(tmp_path, name, data):
    failure = refused(tmp_path / "x.tar", [(name, data)])
    assert (failure.code, failure.location.row) == ("E377", 0)

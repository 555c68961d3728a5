"""Whatever happens to the files beside the records: every reader gives the original rows, or a RekordError."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sample_conversions import disable_fsync

import rekord as rk
from rekord.dataset import index as index_module
from rekord.dataset import manifest as manifest_module
from rekord.dataset import shard_index
from rekord.dataset.index import index_path
from rekord.verbs.edit.change import delete

SCHEMA = rk.Schema({"label": rk.Label(3), "n": rk.Int64(), "text": rk.Text()})
ROWS = [{"label": i % 3, "n": i, "text": f"row {i}"} for i in range(12)]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fsync(monkeypatch)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    forget()


def forget() -> None:
    """As a new process knows nothing."""
    shard_index._index_cache.clear()
    manifest_module._manifest_cache.clear()
    index_module._chunk_cache.clear()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "data"
    rk.write(ROWS, folder, schema=SCHEMA, index=["n", "text"], shards=2, progress=False, workers=1)
    return folder


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def rows_of(data: Path) -> Any:
    return [(int(row["label"]), int(row["n"]), row["text"]) for row in rk.open(data)["train"]]


def shuffled(data: Path) -> Any:
    batches = list(rk.open(data)["train"].batches(5, shuffle=True, prefetch=0, threads=1))
    return sorted(number for batch in batches for number in batch["n"].tolist())


def one_by_one(data: Path) -> Any:
    split = rk.open(data)["train"]
    return [(int(split[i]["label"]), int(split[i]["n"])) for i in (11, 0, 6)]


def queried(data: Path) -> Any:
    table = rk.open(data)["train"].sql("select label, n, text from train order by n")
    return table.to_pylist()


def balanced(data: Path) -> Any:
    batches = list(rk.open(data)["train"].balanced("label").batches(12, prefetch=0, threads=1))
    return sorted(zip(batches[0]["label"].tolist(), batches[0]["n"].tolist(), strict=True))


def weights(data: Path) -> Any:
    return rk.open(data)["train"].class_weights("label")


def deleted(data: Path) -> Any:
    out = data.parent / "deleted"
    shutil.rmtree(out, ignore_errors=True)
    delete(data, out=out, where="label = 2", progress=False, workers=1)
    found = rows_of(out)
    shutil.rmtree(out)
    return found


READERS: dict[str, Callable[[Path], Any]] = {
    "rows": rows_of,
    "shuffled": shuffled,
    "one by one": one_by_one,
    "query": queried,
    "balanced": balanced,
    "class weights": weights,
    "delete": deleted,
}
QUICK = ("rows", "shuffled", "one by one", "balanced", "class weights")


@pytest.fixture(scope="module")
def answers(original: Path) -> dict[str, Any]:
    found = {name: read(original) for name, read in READERS.items()}
    assert found["rows"] == [(i % 3, i, f"row {i}") for i in range(12)]
    assert found["class weights"] == {0: 1.0, 1: 1.0, 2: 1.0}
    assert [row[0] for row in found["delete"]] == [0, 1] * 4
    return found


def check_readers(data: Path, answers: dict[str, Any], names: Any, *, refused: bool) -> None:
    """Every reader gives the original answer; where that may be `refused`, or a RekordError."""
    for name in names:
        forget()
        try:
            found = READERS[name](data)
        except rk.RekordError:
            if not refused:
                raise
        else:
            assert found == answers[name], name


def flips(size: int) -> Iterator[tuple[int, int]]:
    for at in range(size):
        yield at, 1 << at % 8


# A flipped bit of a label, as it was found.


def flip_label(data: Path) -> Path:
    """The index of the second shard says that its first record has class 2; it has class 0."""
    place = Path(index_path(str(data / "train-00001-of-00002.tfrecord")))
    content = bytearray(place.read_bytes())
    table = pa.ipc.open_file(pa.py_buffer(bytes(content))).read_all()
    labels = np.array(table["label"].combine_chunks())
    assert labels[0] == 0
    at = bytes(content).index(labels.tobytes())
    content[at] ^= 2
    place.write_bytes(content)
    return place


@pytest.mark.parametrize("reader", READERS)
def test_one_flipped_bit_of_a_label_changes_no_answer(data: Path, answers: dict[str, Any], reader: str) -> None:
    flip_label(data)
    check_readers(data, answers, [reader], refused=False)


def test_check_reports_one_flipped_bit_of_a_label_and_index_repairs_it(data: Path) -> None:
    assert rk.check(data).findings == []
    place = flip_label(data)
    [finding] = rk.check(data).findings
    assert (finding.code, finding.severity) == ("X547", "warning")
    assert finding.path == str(data / "train-00001-of-00002.tfrecord")
    good = Path(index_path(str(data / "train-00000-of-00002.tfrecord"))).read_bytes()
    from rekord.verbs.index import index

    report = index(data)
    assert (report.written, len(report.kept)) == ([str(place)], 1)
    assert rk.check(data).findings == []
    assert Path(index_path(str(data / "train-00000-of-00002.tfrecord"))).read_bytes() == good


def test_an_index_of_another_shard_with_the_same_counts_is_not_believed(data: Path, answers: dict[str, Any]) -> None:
    one, other = (index_path(str(data / f"train-0000{i}-of-00002.tfrecord")) for i in (0, 1))
    content = Path(one).read_bytes()
    Path(one).write_bytes(Path(other).read_bytes())
    Path(other).write_bytes(content)
    check_readers(data, answers, READERS, refused=False)
    assert {(one.code, one.severity) for one in rk.check(data).findings} == {("X547", "warning")}


# Every byte of an index.


def test_every_flipped_bit_of_an_index_changes_no_answer(data: Path, answers: dict[str, Any]) -> None:
    place = Path(index_path(str(data / "train-00000-of-00002.tfrecord")))
    good = place.read_bytes()
    for at, bit in flips(len(good)):
        place.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
        names = READERS if at % 97 == 0 else [QUICK[at % len(QUICK)]]
        check_readers(data, answers, names, refused=False)


def test_every_cut_of_an_index_changes_no_answer(data: Path, answers: dict[str, Any]) -> None:
    place = Path(index_path(str(data / "train-00000-of-00002.tfrecord")))
    good = place.read_bytes()
    for length in range(0, len(good), 7):
        place.write_bytes(good[:length])
        names = READERS if length % 161 == 0 else [QUICK[length % len(QUICK)]]
        check_readers(data, answers, names, refused=False)


def test_an_index_that_is_cut_while_it_is_open_ends_no_process(data: Path, answers: dict[str, Any]) -> None:
    split = rk.open(data)["train"]
    assert split[0]["n"] == 0
    split.view.shards.index(0)
    for shard in range(2):
        os.truncate(index_path(str(data / f"train-0000{shard}-of-00002.tfrecord")), 100)
    index_module._chunk_cache.clear()
    assert split[[11, 0]]["n"].tolist() == [11, 0]
    assert split.class_weights("label") == answers["class weights"]


# Every byte of a manifest.


def test_every_flipped_bit_of_a_manifest_is_refused_or_changes_no_answer(data: Path, answers: dict[str, Any]) -> None:
    place = data / "rekord.json"
    good = place.read_bytes()
    for at, bit in flips(len(good)):
        place.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
        names = READERS if at % 331 == 0 else [QUICK[at % len(QUICK)]]
        check_readers(data, answers, names, refused=True)


def test_two_flipped_digits_of_a_manifest_are_refused(data: Path) -> None:
    place = data / "rekord.json"
    place.write_text(place.read_text().replace('"0": 4', '"0": 3').replace('"1": 4', '"1": 5'))
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(data)
    assert (caught.value.code, caught.value.location.path) == ("X515", str(place))


# An index that lies, with a manifest that agrees with it.


def lying(data: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """An index changed by somebody who knows how, and writes the manifest accordingly."""
    import msgspec

    from rekord.dataset.manifest import read_manifest

    names = ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"]
    place = Path(index_path(str(data / names[0])))
    table = change(pa.ipc.open_file(pa.py_buffer(place.read_bytes())).read_all())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)
    content, checksums = index_module._append_checksums(sink.getvalue().to_pybytes())
    place.write_bytes(content)
    manifest = read_manifest(str(data))
    part = manifest.splits["train"]
    assert part.shards.index is not None
    values = [*checksums, *part.shards.index.values[2:]]
    index = msgspec.structs.replace(part.shards.index, values=values)
    part = msgspec.structs.replace(part, shards=msgspec.structs.replace(part.shards, index=index))
    (data / "rekord.json").write_bytes(msgspec.structs.replace(manifest, splits={"train": part}).to_json())


def with_column(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, values(table[name].combine_chunks()))

    return change


def same(table: pa.Table) -> pa.Table:
    return table


LIES: dict[str, tuple[Callable[[pa.Table], pa.Table], dict[str, Any]]] = {
    "labels as texts": (with_column("label", lambda one: one.cast(pa.string())), {}),
    "labels as floats": (with_column("label", lambda one: one.cast(pa.float64())), {}),
    "labels as a dictionary": (with_column("label", lambda one: one.dictionary_encode()), {}),
    "labels as nulls": (with_column("label", lambda one: pa.nulls(len(one))), {}),
    "numbers as lists": (with_column("n", lambda one: pa.array([[i] for i in range(len(one))])), {}),
    "offsets as texts": (with_column("offset", lambda one: one.cast(pa.string())), {}),
    "offsets with nulls": (with_column("offset", lambda one: pa.nulls(len(one), pa.uint32())), {}),
    "offsets backwards": (with_column("offset", lambda one: one[::-1]), {}),
    "offsets far away": (
        with_column("offset", lambda one: pc.multiply(one, pa.scalar(1000, pa.uint32()))),
        {},
    ),
    "a column twice": (lambda table: table.append_column("n", table["n"]), {}),
    "a column of nobody": (lambda table: table.append_column("x", table["n"]), {}),
    "a row too few": (lambda table: table.slice(1), {}),
    "no metadata": (lambda table: table.replace_schema_metadata(None), {}),
    "metadata that is deep": (
        lambda table: table.replace_schema_metadata({"rekord": b"[" * 100_000}),
        {},
    ),
    "metadata that is no UTF-8": (
        lambda table: table.replace_schema_metadata({"rekord": b'{"records": 6, "shard": "\xff"}'}),
        {},
    ),
    "classes that are no numbers": (
        lambda table: table.replace_schema_metadata(
            {"rekord": table.schema.metadata[b"rekord"].replace(b'"0":', b'"x":')}
        ),
        {},
    ),
    "compressed buffers": (same, {"compression": "zstd"}),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_of_another_form_changes_no_answer(data: Path, answers: dict[str, Any], lie: str) -> None:
    change, options = LIES[lie]
    lying(data, change, **options)
    check_readers(data, answers, READERS, refused=False)


def test_compressed_buffers_are_never_inflated(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lying(data, same, compression="zstd")

    def never(*_: Any) -> Any:
        raise AssertionError("decoded")

    index = shard_index.open_shard_index(str(data / "train-00000-of-00002.tfrecord"))
    monkeypatch.setattr(pa.ipc, "read_record_batch", never)
    assert (index.origin, len(index)) == ("found", 6)


def test_check_finds_an_index_that_lies_with_checksums_of_its_own(data: Path) -> None:
    lying(data, with_column("label", lambda one: pa.array([2, *one.to_pylist()[1:]], pa.int64())))
    [finding] = rk.check(data).findings
    assert (finding.code, finding.severity, finding.record, finding.feature) == ("X547", "error", 0, "label")
    assert (finding.expected, finding.found) == ("0, as in the record", "2 in the index")


@pytest.mark.parametrize("column", ["n", "text"])
def test_check_compares_every_column_of_an_index(data: Path, column: str) -> None:
    other = {"n": lambda one: pc.add(one, 1), "text": lambda one: pc.utf8_upper(one)}[column]
    lying(data, with_column(column, other))
    [finding] = rk.check(data).findings
    assert (finding.code, finding.severity, finding.record, finding.feature) == ("X547", "error", 0, column)


def test_a_missing_index_is_a_note(data: Path, answers: dict[str, Any]) -> None:
    os.remove(index_path(str(data / "train-00000-of-00002.tfrecord")))
    [finding] = rk.check(data).findings
    assert (finding.code, finding.severity) == ("X547", "note")
    check_readers(data, answers, READERS, refused=False)

"""The doctor on datasets as wholes: what `check` says of them, it says too, grouped."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import rekord as rk
from rekord.health.check.run import iter_findings
from rekord.health.dataset_files import find_dataset_files
from rekord.health.doctor.diagnosis import Diagnosis
from rekord.health.finding import Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import FileSummary
from rekord.testing import damage, wire


def image(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    PIL.Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


LARGE = [image(i) for i in range(60)]
UNSET_Y = wire.example(wire.features([wire.entry("y", wire.feature())]))


def put(path: Path, values: list[bytes], *, first: int = 0) -> None:
    payloads = [wire.example_bytes({"x": [data], "id": [first + i]}) for i, data in enumerate(values)]
    path.write_bytes(damage.frames(payloads))


def of(found: tuple[Diagnosis, ...], code: str) -> Diagnosis:
    (only,) = [each for each in found if each.code == code]
    return only


def test_the_same_content_in_two_splits_is_a_diagnosis(tmp_path: Path) -> None:
    put(tmp_path / "train.tfrecord", LARGE[:40])
    put(tmp_path / "test.tfrecord", [*LARGE[40:], LARGE[7]], first=100)
    diagnosis = of(rk.doctor(tmp_path).diagnoses, "H787")
    assert diagnosis.severity == "error"
    assert diagnosis.feature == "x"
    assert diagnosis.title == "splits 'test' and 'train' have the same `x`"
    assert diagnosis.records_affected == 2
    assert [(Path(each.path).name, each.record) for each in diagnosis.records] == [("test.tfrecord", 20)]
    assert not any("only" in line for line in diagnosis.evidence)
    assert any("train.tfrecord, record 7" in line for line in diagnosis.evidence)
    assert "--split-by" in diagnosis.do


def test_many_leaks_are_one_diagnosis_with_all_records_counted(tmp_path: Path) -> None:
    put(tmp_path / "train.tfrecord", LARGE)
    put(tmp_path / "test.tfrecord", LARGE, first=100)
    diagnosis = of(rk.doctor(tmp_path).diagnoses, "H787")
    assert diagnosis.records_affected == 120


def test_content_that_is_twice_in_a_file_is_a_diagnosis(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", [*LARGE, LARGE[3]])
    found = rk.doctor(tmp_path / "a.tfrecord")
    diagnosis = of(found.diagnoses, "H786")
    assert (diagnosis.severity, diagnosis.records_affected) == ("warning", 2)
    assert [each.record for each in diagnosis.records] == [3]


def written(folder: Path) -> list[Path]:
    rows = [{"id": i} for i in range(30)]
    rk.write(rows, folder, schema=rk.Schema({"id": rk.Int64()}), shards=3, progress=False)
    return sorted(folder.glob("*-of-*"))


def test_a_shard_that_is_not_what_its_manifest_says_is_a_diagnosis(tmp_path: Path) -> None:
    shards = written(tmp_path / "data")
    data = shards[1].read_bytes()
    shards[1].write_bytes(shards[2].read_bytes())
    assert len(shards[1].read_bytes()) == len(data)
    diagnosis = of(rk.doctor(tmp_path / "data").diagnoses, "X516")
    assert (diagnosis.severity, diagnosis.path) == ("error", str(shards[1]))
    assert diagnosis.likely is not None
    assert shards[2].name in diagnosis.likely


def test_a_manifest_that_cannot_be_read_is_a_diagnosis(tmp_path: Path) -> None:
    written(tmp_path / "data")
    (tmp_path / "data" / "rekord.json").write_text("{")
    found = rk.doctor(tmp_path / "data")
    assert not found.ok
    assert found.diagnoses[0].path == str(tmp_path / "data" / "rekord.json")


def test_a_file_of_a_dataset_is_held_against_the_schema_of_its_manifest(tmp_path: Path) -> None:
    shards = written(tmp_path / "data")
    shards[0].write_bytes(damage.frames([wire.example_bytes({"id": [1.5]})]))
    assert not rk.doctor(shards[0]).ok


@pytest.mark.parametrize("broken", ["X505", "X516", "H787", "F102", "D403"])
def test_what_check_calls_an_error_the_doctor_does_not_call_well(tmp_path: Path, broken: str) -> None:
    shards = written(tmp_path / "data")
    if broken == "X505":
        shards[1].unlink()
    elif broken == "X516":
        shards[1].write_bytes(shards[2].read_bytes())
    elif broken == "F102":
        shards[1].write_bytes(damage.corrupt_payload(shards[1].read_bytes(), 2))
    elif broken == "D403":
        shards[1].write_bytes(damage.frames([wire.example_bytes({"id": [1.5]})]))
    else:
        (tmp_path / "data" / "rekord.json").unlink()
        for shard in shards:
            shard.unlink()
        put(tmp_path / "data" / "train.tfrecord", LARGE)
        put(tmp_path / "data" / "val.tfrecord", LARGE[:1], first=100)
    report = rk.check(tmp_path / "data")
    assert broken in {finding.code for finding in report.findings}
    found = rk.doctor(tmp_path / "data")
    assert not found.ok
    assert found.diagnoses[0].severity == "error"
    assert (found.files, found.records) == (report.files, report.records)


def boxed(side: float) -> dict[str, list[float]]:
    return {f"image/object/bbox/{name}": [0.5] for name in ("xmin", "ymin")} | {
        f"image/object/bbox/{name}": [side] for name in ("xmax", "ymax")
    }


SAME_FACTS: dict[str, tuple[list[Any], str, str, str]] = {
    "compressed, and not named so": ([{"x": [1]}], "a.gz", "a.tfrecord", "H702 H801 note"),
    "named as compressed": ([{"x": [1]}], "a.tfrecord", "a.tfrecord.gz", "H701 H802 warning"),
    "a box that was rounded": ([boxed(1.0005)], "a.tfrecord", "a.tfrecord", "H771 H771 note"),
    "a box a little outside": ([boxed(1.002)], "a.tfrecord", "a.tfrecord", "H771 H771 warning"),
    "a box far outside": ([boxed(1.5)], "a.tfrecord", "a.tfrecord", "H771 H771 error"),
    "a class id of 0": (
        [{**boxed(0.9), "image/object/class/label": [0]}],
        "a.tfrecord",
        "a.tfrecord",
        "H774 H830 warning",
    ),
    "NaN": ([{"x": [float("nan")]}], "a.tfrecord", "a.tfrecord", "H751 H751 warning"),
    "two kinds": ([{"x": [1]}, {"x": [2]}, {"x": [0.5]}], "a.tfrecord", "a.tfrecord", "H755 H820 error"),
    "no value": (
        [{"x": [i], "y": [i]} for i in range(99)] + [wire.example_bytes({"x": [1]}) + UNSET_Y],
        "a.tfrecord",
        "a.tfrecord",
        "H756 H819 warning",
    ),
    "an empty file": ([], "a.tfrecord", "a.tfrecord", "H703 H703 note"),
    "texts": ([b"no protobuf, but text", b"and more of it"], "a.tfrecord", "a.tfrecord", "H713 H811 note"),
}


@pytest.mark.parametrize("fact", SAME_FACTS)
def test_doctor_and_check_agree_how_severe_a_fact_is(tmp_path: Path, fact: str) -> None:
    rows, form, name, said = SAME_FACTS[fact]
    finding, diagnosis, severity = said.split()
    payloads = [row if isinstance(row, bytes) else wire.example_bytes(row) for row in rows]
    data = damage.frames(payloads)
    (tmp_path / name).write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    assert [(each.code, each.severity) for each in rk.check(tmp_path / name).findings] == [(finding, severity)]
    found = rk.doctor(tmp_path / name)
    assert [(each.code, each.severity) for each in found.diagnoses] == [(diagnosis, severity)]


def test_one_code_of_several_severities_is_a_diagnosis_each(tmp_path: Path) -> None:
    payloads = [wire.example_bytes(boxed(side)) for side in (1.0005, 1.002, 1.5, 1.002)]
    (tmp_path / "a.tfrecord").write_bytes(damage.frames(payloads))
    found = rk.doctor(tmp_path / "a.tfrecord").diagnoses
    assert [(each.code, each.severity, each.records_affected) for each in found] == [
        ("H771", "error", 1),
        ("H771", "warning", 2),
        ("H771", "note", 1),
    ]


def test_records_that_are_no_examples_are_counted_against_their_file(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(damage.frames([b"text of a record"] * 5))
    (only,) = rk.doctor(tmp_path / "a.tfrecord").diagnoses
    assert only.evidence[0] == "5 records of 5"


def test_what_is_said_once_of_many_records_is_the_title(tmp_path: Path) -> None:
    payloads = [wire.example_bytes({"x": [float("nan")], "id": [i]}) for i in range(30)]
    (tmp_path / "a.tfrecord").write_bytes(damage.frames(payloads))
    diagnosis = of(rk.doctor(tmp_path / "a.tfrecord").diagnoses, "H751")
    assert (diagnosis.title, diagnosis.records_affected) == ("`x` is NaN or infinite", 30)
    assert not any(line.startswith("first: ") for line in diagnosis.evidence)


def test_who_looks_on_sees_every_batch_and_the_end_of_every_file(tmp_path: Path) -> None:
    put(tmp_path / "a.tfrecord", LARGE[:5])
    put(tmp_path / "b.tfrecord", LARGE[5:9], first=5)

    class Onlooker:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def update(self, batch: KeyedBatch) -> None:
            self.seen.append(f"{len(batch)} of {Path(batch.path).name}")

        def end_file(self, end: FileSummary) -> None:
            self.seen.append(f"end of {Path(end.path).name} after {end.records}")

    onlooker = Onlooker()
    assert list(iter_findings(find_dataset_files(tmp_path), Report(), observers=[onlooker])) == []
    assert onlooker.seen == [
        "5 of a.tfrecord",
        "end of a.tfrecord after 5",
        "4 of b.tfrecord",
        "end of b.tfrecord after 4",
    ]

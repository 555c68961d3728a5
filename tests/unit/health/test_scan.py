"""`scan_file`: batches by key, in the face of records that differ, and the notes on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from record_strategies import ints

from rekord import _core
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import scan_file
from rekord.testing import corrupt_payload, entry, example, example_bytes, frames, sequence_bytes

PutFile = Callable[..., Path]


def scanned(path: Path) -> tuple[list[KeyedBatch], list[Finding], Report]:
    report = Report()
    items = list(scan_file(str(path), report))
    return (
        [item for item in items if isinstance(item, KeyedBatch)],
        [item for item in items if isinstance(item, Finding)],
        report,
    )


def test_records_that_agree_are_one_batch_of_plain_columns(put_records: PutFile) -> None:
    batches, findings, report = scanned(put_records([example_bytes({"n": [i], "s": [b"x"]}) for i in range(5)]))
    assert findings == []
    assert report.records == 5
    assert [len(batch) for batch in batches] == [5]
    column = batches[0].context["n"]
    assert (column.kind, column.offsets, column.valid) == ("int64", None, None)
    assert column.values.tolist() == [0, 1, 2, 3, 4]
    assert column.counts.tolist() == [1] * 5
    assert column.present == 5


def test_an_empty_list_is_no_hole(put_records: PutFile) -> None:
    payloads = [example_bytes({"n": [1]}), example(entry("n", ints())), example_bytes({})]
    batches, *_ = scanned(put_records(payloads))
    column = {int(r): (b.context["n"].value(i)) for b in batches for i, r in enumerate(b.records)}
    assert column[0].tolist() == [1]
    assert column[1].tolist() == []
    assert column[2] is None


def test_a_shard_of_another_kind_is_columns_too(put_records: PutFile) -> None:
    payloads = [example_bytes({"label": [i]}) for i in range(3)]
    payloads += [example_bytes({"label": [float(i)]}) for i in range(100)]
    batches, findings, _ = scanned(put_records(payloads))
    assert findings == []
    assert [(batch.context["label"].kind, batch.records.tolist()) for batch in batches] == [
        ("float", list(range(3, 103))),
        ("int64", [0, 1, 2]),
    ]


def test_kinds_that_take_turns_are_two_batches_not_a_hundred(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [i] if i % 2 else [i / 2]}) for i in range(100)]
    batches, *_ = scanned(put_records(payloads))
    assert sorted(len(batch) for batch in batches) == [50, 50]


def test_more_dialects_than_are_kept_lose_no_record(put_records: PutFile) -> None:
    values = ([1], [1.0], [b"1"])
    payloads = [
        example_bytes({"a": values[i % 3], "b": values[i // 3 % 3], "c": values[i // 9 % 3]}) for i in range(81)
    ]
    batches, *_ = scanned(put_records(payloads))
    assert sorted(int(r) for batch in batches for r in batch.records) == list(range(81))


def test_keys_that_are_data_end_in_dialects_of_their_own_and_lose_nothing(put_records: PutFile) -> None:
    payloads = [example_bytes({f"file-{i}": [i]}) for i in range(300)]
    batches, *_ = scanned(put_records(payloads))
    found = {
        int(r): batch.context[f"file-{r}"].value(i).tolist() for batch in batches for i, r in enumerate(batch.records)
    }
    assert found == {i: [i] for i in range(300)}


def test_records_with_thousands_of_other_keys_each_are_not_put_into_one_batch(put_records: PutFile) -> None:
    payloads = [example_bytes({f"key-{i}-{j}": [j] for j in range(1500)}) for i in range(6)]
    batches, *_ = scanned(put_records(payloads))
    assert max(len(batch.context) for batch in batches) <= 4096
    assert sorted(int(r) for batch in batches for r in batch.records) == list(range(6))


@pytest.mark.parametrize("steps", [[None], [None, None], [], [None, [1]]])
@pytest.mark.parametrize("key", ["a", "tokens", "\n\x00"])
def test_steps_without_a_kind_make_a_sequence(put_records: PutFile, key: str, steps: list[list[int] | None]) -> None:
    batches, *_ = scanned(put_records([sequence_bytes({}, {key: steps})] * 3))
    assert [(batch.sequence, list(batch.steps)) for batch in batches] == [(True, [key])]


def test_a_sample_does_not_search_a_whole_file_for_the_next_record(put_file: PutFile) -> None:
    good = frames([example_bytes({"a": [1]})])
    path = put_file(good + bytes(1 << 20) + good)
    whole, sample = Report(), Report()
    list(scan_file(str(path), whole))
    list(scan_file(str(path), sample, enough=(100, 1 << 16)))
    assert (whole.records, sample.records) == (2, 1)


def test_damage_in_the_middle_leaves_the_records_around_it(put_file: PutFile) -> None:
    payloads = [example_bytes({"n": [i]}) for i in range(9)]
    batches, findings, _ = scanned(put_file(corrupt_payload(frames(payloads), 4)))
    assert [(finding.code, finding.record) for finding in findings] == [("F102", 4)]
    assert [r for batch in batches for r in batch.records.tolist()] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_list_whose_steps_are_of_several_kinds_is_told(put_records: PutFile) -> None:
    good = sequence_bytes({}, {"x": [[1], [2]]})
    batches, findings, _ = scanned(put_records([good, sequence_bytes({}, {"x": [[1], [0.5]]}), good]))
    assert [(f.code, f.severity, f.record, f.feature, f.found) for f in findings] == [
        ("H726", "error", 1, "x", "int64 and float")
    ]
    assert [r for batch in batches for r in batch.records.tolist()] == [0, 2]


def test_a_record_with_an_empty_key_beside_others_is_kept(put_records: PutFile) -> None:
    batches, *_ = scanned(put_records([example_bytes({"": [1], "n": [2]}), example_bytes({"n": [3]})]))
    assert [b.context["n"].values.tolist() for b in batches] == [[2, 3]]


@pytest.mark.parametrize("size", [3, 70_000, 600_000])
def test_a_value_at_the_end_of_the_read_buffer_is_whole(size: int, put_records: PutFile) -> None:
    payloads = [example_bytes({"blob": [bytes([i]) * size]}) for i in range(4)]
    batches, *_ = scanned(put_records(payloads))
    found = [batch.context["blob"].value(i) for batch in batches for i in range(len(batch))]
    assert found == [[bytes([i]) * size] for i in range(4)]


def digests(
    column: object, rows: int, offsets: object = None, valid: object = None, seed: int = 7
) -> list[tuple[int, int]]:
    into = np.zeros((rows, 2), np.uint64)
    _core.digest_column(seed, column, offsets, valid, into)
    return [tuple(map(int, row)) for row in into]


def test_a_digest_does_not_depend_on_how_a_column_lies() -> None:
    plain = digests(np.array([5, 6, 5]), 3)
    ragged = digests(np.array([5, 6, 5]), 3, np.array([0, 1, 2, 3]))
    assert plain == ragged
    assert plain[0] == plain[2] != plain[1]
    strings = digests(_core.strings([b"a", b"b", b"a"]), 3)
    assert strings == digests(_core.strings([b"a", b"b", b"a"]), 3, np.array([0, 1, 2, 3]))
    assert len({plain[0], strings[0], digests(np.array([5.0], np.float32), 1)[0]}) == 3


def test_a_digest_tells_where_the_values_of_a_list_begin_and_end() -> None:
    whole = digests(_core.strings([b"ab", b"c", b"a", b"bc"]), 2, np.array([0, 2, 4]))
    assert whole[0] != whole[1]
    counts = digests(np.array([0, 0, 0]), 2, np.array([0, 1, 3]))
    assert counts[0] != counts[1]


def test_a_row_without_the_key_keeps_its_digest() -> None:
    assert digests(np.array([5, 6]), 2, None, np.array([True, False]))[1] == (0, 0)


@pytest.mark.parametrize(
    ("offsets", "valid"),
    [([0, 1], None), ([0, 2, 1], None), ([0, 1, 9], None), ([-1, 1, 2], None), (None, [True])],
)
def test_a_digest_reads_nothing_outside_of_its_column(offsets: object, valid: object) -> None:
    arrays = [None if each is None else np.array(each) for each in (offsets, valid)]
    with pytest.raises(ValueError):
        digests(np.array([1, 2]), 2, *arrays)


def test_a_record_with_too_many_keys_is_told_and_not_looked_into(put_records: PutFile) -> None:
    good = example_bytes({"n": [1]})
    batches, findings, _ = scanned(put_records([good, example_bytes({f"k{i}": [i] for i in range(5000)}), good]))
    assert [(f.code, f.severity, f.record, f.found) for f in findings] == [("H727", "warning", 1, "5,000 keys")]
    assert [r for batch in batches for r in batch.records.tolist()] == [0, 2]

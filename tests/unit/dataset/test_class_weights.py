"""`split.class_weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.dataset.balanced import ClassIndex


def written(folder: Path, rows: list[dict[str, Any]], schema: rk.Schema, **options: Any) -> rk.Split:
    return rk.write(rows, folder / "data", schema=schema, progress=False, workers=1, **options)["train"]


def labelled(folder: Path, counts: list[int], **options: Any) -> rk.Split:
    schema = rk.Schema({"label": rk.Label(["cat", "dog", "owl"])})
    rows = [{"label": label} for label, count in enumerate(counts) for _ in range(count)]
    return written(folder, rows, schema, **options)


def test_a_weight_is_n_over_k_times_the_count(tmp_path: Path) -> None:
    rows = [{"label": int(i >= 90)} for i in range(100)]
    split = written(tmp_path, rows, rk.Schema({"label": rk.Label(2)}))
    assert split.class_weights() == {0: pytest.approx(100 / 180), 1: 5.0}


def test_the_classes_of_an_indexed_label_are_counted_without_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = labelled(tmp_path, [6, 3, 3], shards=3)
    monkeypatch.setattr(ClassIndex, "load", lambda _: pytest.fail("classes were loaded"))
    assert split.class_weights() == {0: 12 / 18, 1: 12 / 9, 2: 12 / 9}


def test_names_are_given_on_request(tmp_path: Path) -> None:
    assert labelled(tmp_path, [6, 3, 3]).class_weights(names=True) == {
        "cat": 2 / 3,
        "dog": 4 / 3,
        "owl": 4 / 3,
    }


def test_a_class_without_records_has_no_weight_and_does_not_count(tmp_path: Path) -> None:
    assert labelled(tmp_path, [6, 0, 3]).class_weights() == {0: 0.75, 2: 1.5}


def test_a_view_is_weighed_by_its_own_records(tmp_path: Path) -> None:
    assert labelled(tmp_path, [6, 3, 3])[4:8].class_weights() == {0: 1.0, 1: 1.0}


def test_another_column_is_read_where_the_index_lacks_it(tmp_path: Path) -> None:
    rows = [{"kind": "a" if i % 4 else "b"} for i in range(8)]
    split = written(tmp_path, rows, rk.Schema({"kind": rk.Text()}))
    assert split.class_weights(by="kind") == {"a": 8 / 12, "b": 2.0}


def test_of_a_list_every_value_counts(tmp_path: Path) -> None:
    rows = [{"tags": [0, 1]}, {"tags": [0]}, {"tags": []}, {"tags": [0]}]
    split = written(tmp_path, rows, rk.Schema({"tags": rk.Label(2, shape=(None,))}))
    assert split.class_weights(by="tags") == {0: 4 / 6, 1: 2.0}


def test_names_of_a_column_without_names_are_refused(tmp_path: Path) -> None:
    split = written(tmp_path, [{"n": 1}], rk.Schema({"n": rk.Int64()}))
    with pytest.raises(rk.UsageError) as caught:
        split.class_weights(by="n", names=True)
    assert caught.value.code == "U605"


def test_no_records_have_no_weights(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"")
    split = rk.open(tmp_path / "x.tfrecord", schema=rk.Schema({"label": rk.Label(2)}))
    assert split.class_weights() == {}

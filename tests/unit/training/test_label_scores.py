"""Several labels per record: their scores, the target that a schema gives, and targets that cannot be learned."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from training_rows import Written, refusal, split_of

import rekord as rk
from rekord.training import result
from rekord.training.choose import check_target, choose_task
from rekord.training.inputs import BatchEncoder
from rekord.training.task import Task


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return partial(split_of, tmp_path / "train.tfrecord")


@pytest.mark.parametrize(
    ("true", "scores", "expected"),
    [
        ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 1 / 2 + 1 / 2 * 2 / 3),
        ([1, 0, 1], [0.5, 0.5, 0.5], 2 / 3),  # found together
        ([1, 0], [2.0, -1.0], 1.0),
        ([0, 0, 1], [3.0, 2.0, 1.0], 1 / 3),
        ([0, 0], [1.0, 2.0], None),
    ],
)
def test_average_precision_is_the_area_under_the_steps(
    true: list[int], scores: list[float], expected: float | None
) -> None:
    found = result.compute_average_precision(np.array(true, bool), np.array(scores))
    assert found == (None if expected is None else pytest.approx(expected))


def test_f1_counts_what_is_right_twice() -> None:
    true = np.array([[1, 0, 0], [1, 1, 0]])
    predicted = np.array([[1, 1, 0], [0, 1, 0]])
    counts = result.count_labels(true, predicted)
    assert counts.tolist() == [[1, 1, 0], [2, 1, 0], [1, 2, 0]]
    assert result.compute_f1_scores(*counts) == [2 / 3, 2 / 3, None]
    assert result.compute_mean_f1(*counts) == pytest.approx(2 / 3)
    scores = result.compute_label_scores(counts, ["a", "b", "c"], [])
    assert (scores[1].records, scores[1].precision, scores[1].recall) == (1, 0.5, 1.0)
    assert (scores[2].precision, scores[2].recall, scores[2].f1, scores[2].average_precision) == (None,) * 4


def test_the_loss_is_that_of_a_sigmoid_per_class() -> None:
    logits, true = np.array([[2.0, -1.0], [0.0, 500.0]]), np.array([[1, 1], [0, 1]])
    sigmoid = 1 / (1 + np.exp(-logits))
    expected = (-np.log(sigmoid[0])).mean() + (-np.log(0.5)) / 2
    assert result.compute_binary_cross_entropy(logits, true) == pytest.approx(expected)


SCHEMA = {"x": rk.Float32(), "tags": rk.MultiLabel(["a", "b"])}


def test_the_only_multi_label_is_the_target_unless_there_is_a_label(written: Written) -> None:
    rows = [{"x": i / 7, "tags": ["a"] if i % 2 else []} for i in range(30)]
    task = choose_task(written(rows, SCHEMA))
    assert (task.kind, task.target, task.classes, task.is_id_list) == ("multilabel", "tags", ("a", "b"), False)
    assert {each.column: each.form for each in task.inputs} == {"x": "numbers"}
    rows = [{**row, "label": i % 2} for i, row in enumerate(rows)]
    task = choose_task(written(rows, {**SCHEMA, "label": rk.Label(2)}))
    assert (task.kind, task.target) == ("classification", "label")


@pytest.mark.parametrize("tags", [[], ["a"], ["a", "b"]])
def test_labels_that_all_records_share_are_refused(written: Written, tags: list[str]) -> None:
    split = written([{"x": i / 7, "tags": tags} for i in range(9)], SCHEMA)
    failure = refusal(lambda: choose_task(split))
    assert (failure.code, failure.what, failure.location.feature) == (
        "U608",
        "all 9 records have the same labels",
        "tags",
    )


def test_missing_labels_are_refused_where_they_are(written: Written, tmp_path: Path) -> None:
    schema = {"x": rk.Float32(), "tags": rk.MultiLabel(["a", "b"], optional=True)}
    rows = [{"x": i / 7, "tags": None if i == 5 else ["ab"[i % 2]]} for i in range(9)]
    split = written(rows, schema)
    for act in (lambda: choose_task(split), lambda: check_target(split, Task("multilabel", (), "tags", ("a", "b")))):
        failure = refusal(act)
        assert (failure.code, failure.location.record, failure.location.feature) == ("U608", 5, "tags")


@pytest.mark.parametrize(
    ("is_id_list", "column", "expected"),
    [
        (False, np.array([[0, 1], [1, 1]]), [[0, 1], [1, 1]]),
        (False, np.array([[0, 2]]), "2"),
        (True, rk.Ragged(np.array([1, 0, 1]), np.array([0, 1, 1, 3])), [[0, 1], [0, 0], [1, 1]]),
        (True, np.array([[1, 1], [0, 1]]), [[0, 1], [1, 1]]),
        (True, rk.Ragged(np.array([0, 7]), np.array([0, 2])), "7"),
        (True, rk.Ragged(np.array([-1]), np.array([0, 1])), "-1"),
    ],
)
def test_targets_become_multi_hot_and_other_values_are_refused(
    is_id_list: bool, column: object, expected: object
) -> None:
    encoder = BatchEncoder(Task("multilabel", (), "tags", ("a", "b"), is_id_list=is_id_list), {})
    if isinstance(expected, list):
        y = encoder({"tags": column}).y  # type: ignore[dict-item]
        assert (y.tolist(), y.dtype) == (expected, np.float32)
        return
    failure = refusal(lambda: encoder({"tags": column}))  # type: ignore[dict-item]
    assert (failure.code, failure.location.feature, failure.found) == ("U608", "tags", expected)


def test_a_list_of_texts_names_the_command_that_makes_labels_of_it(written: Written) -> None:
    rows = [{"x": i / 7, "tags": ["a"]} for i in range(9)]
    split = written(rows, {"x": rk.Float32(), "tags": rk.Text(shape=(None,))})
    failure = refusal(lambda: choose_task(split, label="tags"))
    assert (failure.code, failure.location.feature) == ("U608", "tags")
    assert str(failure.do).startswith("rekord write IN OUT --label tags, and train on OUT")


def test_the_proposed_target_is_the_last_column_that_is_no_id(written: Written) -> None:
    rows = [{"age": i, "churned": "no", "customer_id": i} for i in range(9)]
    failure = refusal(lambda: choose_task(written(rows)))
    assert str(failure.do).startswith('label="churned"')

"""The HTML report of a training run: whole in itself, well-formed, escaped, and true to its numbers."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from training_runs import HOSTILE, MATRIX, PIXEL, finished_run, hostile_run

from rekord.report.charts import ChartCurve, render_curves, render_time_bar
from rekord.report.style import STYLE, get_base_name
from rekord.training.report import (
    ShownMistake,
    describe_chance,
    describe_task,
    format_score,
    make_usage_snippet,
    render_class_table,
    render_confused_pairs,
    render_confusion_matrix,
    render_training_page,
)
from rekord.training.result import Mistake, TrainingResult, measure_errors
from rekord.training.task import InputColumn, Task


def regression() -> TrainingResult:
    task = Task("regression", (InputColumn("x", "numbers"),), "price")
    alone = [dataclasses.replace(epoch, val_loss=None, val_score=None) for epoch in finished_run().epochs]
    return finished_run(task=task, confusion=None, val_split=None, chance=2_345.5, epochs=tuple(alone))


def parsed(text: str) -> ElementTree.Element:
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def texts(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def rows(markup: str) -> list[list[str]]:
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    return [[texts(cell) for cell in row] for row in root.iter("tr")]


def test_the_page_says_how_good_the_model_is_and_whether_it_waited() -> None:
    root = parsed(render_training_page(finished_run()))
    assert texts(next(root.iter("h1"))) == "flowers"
    assert [texts(one) for one in root.iter("li")] == [
        "0.700 accuracy, validation",
        "0.500 always the most frequent class",
        "3 epochs",
        "320 records in train",
        "160 records per second",
        "10 % of the time spent waiting for data",
    ]
    (note,) = [one for one in root.iter("div") if one.get("role") == "note"]
    assert texts(note) == "Waited for data 10 % of the time: the model is the bottleneck."
    lead = "image → label, 3 classes · small CNN, 61,892 parameters · keras on tensorflow"
    assert lead in texts(root)


def test_advice_is_listed_where_the_input_is_the_bottleneck() -> None:
    slow = [dataclasses.replace(epoch, waited_seconds=1.5) for epoch in finished_run().epochs]
    root = parsed(
        render_training_page(finished_run(epochs=tuple(slow), advice=("use more threads", "use larger batches")))
    )
    (note,) = [one for one in root.iter("div") if one.get("role") == "note"]
    assert note.get("class") == "notice"
    assert [texts(one) for one in note.iter("li")] == ["use more threads", "use larger batches"]
    assert "75 % of the time: the input is the bottleneck" in texts(note)


def test_every_epoch_is_in_the_table() -> None:
    root = parsed(render_training_page(finished_run()))
    (table,) = [one for one in root.iter("table") if "records/s" in texts(one)]
    body = [[texts(cell) for cell in row] for row in table.find("tbody") or []]
    assert body[0] == ["1", "1.000", "0.600", "1.200", "0.500", "160", "5 %"]
    assert len(body) == 3


def test_names_and_values_are_text_and_never_markup() -> None:
    text = render_training_page(hostile_run())
    root = parsed(text)
    assert {one.tag for one in root.iter()}.isdisjoint({"script", "img", "b>", "iframe", "object", "link"})
    assert all(not name.startswith("on") for one in root.iter() for name in one.attrib)
    assert ("<script" in text, "\x00" in text, "\u202e" in text) == (False, False, False)
    assert text.count("</style>") == 1
    assert "<b>cat</b>" in texts(root)


@pytest.mark.parametrize(
    "run", [finished_run(), hostile_run(), regression()], ids=["classes", "hostile", "regression"]
)
def test_nothing_is_fetched_from_anywhere(run: TrainingResult) -> None:
    root = parsed(render_training_page(run))
    for one in root.iter():
        assert (one.get("src") or "data:image/").startswith("data:image/")
        assert one.get("href") is None
        assert "url(" not in (one.get("style") or "")
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    (policy,) = [one for one in root.iter("meta") if one.get("http-equiv")]
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_a_regression_has_curves_and_no_matrix() -> None:
    root = parsed(render_training_page(regression()))
    assert [one for one in root.iter("table") if one.get("class") == "heat"] == []
    assert "always the mean" in texts(root)
    assert "2,346" in texts(root)
    charts = [one.get("aria-label") for one in root.iter("svg") if one.get("role") == "img"]
    assert charts == [
        "loss: training from 1 to 0.3333",
        "mean absolute error: training from 0.6 to 0.8",
    ]


def test_every_chart_can_be_heard_and_every_point_says_its_value() -> None:
    root = parsed(render_training_page(finished_run()))
    charts = [one for one in root.iter("svg") if one.get("role") == "img"]
    assert [chart.get("aria-label") for chart in charts] == [
        "loss: training from 1 to 0.3333; validation from 1.2 to 0.4",
        "accuracy: training from 0.6 to 0.8; validation from 0.5 to 0.7",
    ]
    points = [texts(one) for chart in charts for one in chart.iter("circle")]
    assert len(points) == 12
    assert points[4] == "validation, epoch 2: 0.6"


def test_a_curve_of_one_epoch_is_a_point_and_of_thousands_still_small() -> None:
    (only,) = ElementTree.fromstring(render_curves("loss", [ChartCurve("training", "train", [0.5])])).iter("circle")
    assert texts(only) == "training, epoch 1: 0.5"
    many = ElementTree.fromstring(render_curves("loss", [ChartCurve("training", "train", [1.0] * 5000)]))
    assert len(list(many.iter("circle"))) == 100


def test_what_is_not_finite_is_left_out_of_a_curve() -> None:
    drawn = ElementTree.fromstring(render_curves("loss", [ChartCurve("training", "train", [1.0, float("nan"), 0.5])]))
    assert [texts(one) for one in drawn.iter("circle")] == ["training, epoch 1: 1", "training, epoch 3: 0.5"]


def test_the_bar_of_time_says_seconds_and_shares() -> None:
    drawn = render_time_bar([("computing", "computing", 3.0), ("waiting", "waiting", 1.0), ("once", "once", 0.0)])
    assert 'aria-label="computing 3.0 s (75 %); waiting 1.0 s (25 %); once less than 1 ms (0 %)"' in drawn
    assert "width:75.0%" in drawn


def test_a_matrix_shows_counts_and_shares_of_rows() -> None:
    head, first, *_ = rows(render_confusion_matrix(MATRIX, ["rose", "tulip", "daisy"], "records"))
    assert head == ["true ↓ predicted →", "rose", "tulip", "daisy", "records"]
    assert first == ["rose", "8 80 %", "2 20 %", "·", "10"]
    assert 'title="rose predicted as tulip: 2 of 10 records"' in render_confusion_matrix(
        MATRIX, ["rose", "tulip", "x"], "records"
    )


def test_of_many_classes_those_that_occur_most_are_drawn() -> None:
    matrix = np.diag(np.arange(1, 121))
    names = [f"class {i}" for i in range(120)]
    table = render_confusion_matrix(matrix, names, "records")
    assert [row[0] for row in rows(table)[1:]] == [f"class {i}" for i in range(90, 120)]
    assert "The 30 most frequent of 120 classes." in table
    listed = render_class_table(np.roll(matrix, 1, 1), names, "records", with_iou=False)
    assert "The 100 of 120 classes with the lowest recall." in listed
    assert len(rows(listed)) == 101


def test_large_counts_are_short_in_a_cell_and_whole_behind_it() -> None:
    table = render_confusion_matrix(np.array([[12_345_678]]), ["sky"], "pixels")
    assert rows(table)[1] == ["sky", "12 M 100 %", "12 M"]
    assert "sky predicted as sky: 12,345,678 of 12,345,678 pixels" in table


def test_the_most_confused_classes_come_first() -> None:
    listed = rows(render_confused_pairs(MATRIX, ["rose", "tulip", "daisy"]))
    assert [[row[0], row[1], row[3], row[4]] for row in listed[1:]] == [
        ["daisy", "tulip", "5", "25 %"],
        ["rose", "tulip", "2", "20 %"],
        ["tulip", "rose", "1", "10 %"],
    ]
    assert render_confused_pairs(np.diag([3, 4]), ["a", "b"]) == ""
    assert rows(render_confused_pairs(np.array([[999, 1], [0, 9]]), ["a", "b"]))[1][4] == "<1 %"


def test_each_class_has_its_recall_and_precision_and_iou() -> None:
    listed = rows(render_class_table(MATRIX, ["rose", "tulip", "daisy"], "pixels", with_iou=True))
    assert listed[0] == ["class", "", "IoU", "recall", "precision", "pixels"]
    assert listed[3] == ["daisy", "", "0.750", "0.750", "1.000", "20"]
    never = rows(render_class_table(np.array([[3, 0], [0, 0]]), ["a", "b"], "records", with_iou=False))
    assert never[2] == ["b", "", "–", "–", "0"]


def test_the_code_on_the_page_is_python_and_names_this_run() -> None:
    code = make_usage_snippet(finished_run())
    assert code.split("\n")[2:] == [
        "model = rk.load_model('flowers-model')",
        'prediction = model.predict("new.jpg")  # or bytes, an array of pixels, a list of files',
        "print(prediction.value, prediction.probability)",
    ]
    compile(make_usage_snippet(hostile_run()), "page", "exec")
    compile(make_usage_snippet(regression(), {HOSTILE: HOSTILE}), "page", "exec")
    assert "transformed=True" in make_usage_snippet(regression())
    shown = [one.text or "" for one in parsed(render_training_page(finished_run())).iter("pre")]
    assert shown[0] == code
    assert shown[1].startswith("rekord train data/flowers flowers-model --epochs 3 ")


def mistakes_of(root: ElementTree.Element) -> list[str]:
    return [texts(one) for each in root.iter("ul") if each.get("class") == "gallery" for one in each]


def test_mistakes_are_shown_with_truth_and_prediction() -> None:
    wrong = [
        Mistake(17, "rose", "tulip", 0.987),
        Mistake(3, HOSTILE, "daisy", 0.51),
    ]
    shown = [ShownMistake(wrong[0], [(PIXEL, "png")]), ShownMistake(wrong[1], [None])]
    root = parsed(render_training_page(finished_run(mistakes=tuple(wrong)), shown))
    assert "8 of 40 predictions on val are wrong. Shown are the 2 most confident ones." in texts(root)
    first, second = mistakes_of(root)
    assert first == "tulip 99 % true: rose record 17"
    assert second.startswith('cannot be shown daisy 51 % true: "><script>')
    (image,) = root.iter("img")
    assert image.get("alt") == "record 17: rose predicted as tulip"


def test_masks_are_shown_next_to_each_other_with_their_legend() -> None:
    task = Task("segmentation", (InputColumn("image", "image"),), "mask", ("0", "1", "2"), ignore=255)
    shown = [ShownMistake(Mistake(5, None, None, iou=0.25), [(PIXEL, "png")] * 3)]
    root = parsed(render_training_page(finished_run(task=task, mistakes=(shown[0].mistake,)), shown))
    assert mistakes_of(root) == ["IoU 0.250 · record 5"]
    assert [one.get("alt") for one in root.iter("img")] == [
        "image of record 5",
        "true mask of record 5",
        "predicted mask of record 5",
    ]
    (legend,) = [one for one in root.iter("ul") if one.get("class") == "swatches"]
    assert [texts(one) for one in legend] == ["class 0 25%", "class 1 25%", "class 2 50%"]


def test_rows_of_numbers_are_a_table_with_the_errors() -> None:
    wrong = Mistake(1_234, 10.0, 12.5)
    shown = [ShownMistake(wrong, cells={"age": "48", "city": HOSTILE})]
    run = dataclasses.replace(regression(), mistakes=(wrong,))
    root = parsed(render_training_page(run, shown))
    (panel,) = [one for one in root.iter("div") if one.get("class") == "panel rows"]
    head, row = [[texts(cell) for cell in row] for row in panel.iter("tr")]
    assert head == ["record", "age", "city", "true", "predicted", "error"]
    assert [*row[:2], *row[3:]] == ["1,234", "48", "10", "12.5", "2.5"]
    assert "with the largest errors" in texts(root)


def test_a_run_without_mistakes_says_so() -> None:
    perfect = parsed(render_training_page(finished_run(confusion=np.diag([3, 4, 5]))))
    assert "All predictions on val are right." in texts(perfect)
    assert "are right" not in texts(parsed(render_training_page(finished_run())))


def test_the_error_of_a_record_is_how_sure_and_how_wrong_the_model_is() -> None:
    classes = finished_run().task
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    assert measure_errors(classes, logits, np.array([0, 1, 0])) == pytest.approx([0.0, 0.5, 0.7])
    number = regression().task
    assert measure_errors(number, np.array([[1.0], [5.0]]), np.array([1.5, 2.0])).tolist() == [0.5, 3.0]
    masks = Task("segmentation", (InputColumn("image", "image"),), "mask", ("0", "1"), ignore=255)
    true = np.array([[[0, 1, 1, 255]], [[255, 255, 255, 255]]])
    predicted = np.eye(2)[np.array([[[0, 1, 0, 1]], [[1, 1, 1, 1]]])]
    assert measure_errors(masks, predicted, true) == pytest.approx([1 - (1 / 2 + 1 / 2) / 2, 0.0])


def test_words_are_short_however_many_inputs_there_are() -> None:
    task = Task("regression", tuple(InputColumn(name, "numbers") for name in "abcdef"), "y")
    assert describe_task(task) == "a, b, c and 3 more → y"
    assert (describe_chance(task), get_base_name("data/flowers/"), get_base_name("/")) == (
        "always the mean",
        "flowers",
        "/",
    )
    assert [format_score(value) for value in (None, 0.5, 12345.6)] == ["–", "0.500", "12,346"]


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colour_of(name: str, theme: int) -> list[float]:
    code = re.findall(rf"--{name}: #([0-9a-f]{{6}})", STYLE)[theme]
    return [int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("accent", ["accent", "warn"])
def test_figures_in_the_darkest_cell_of_a_matrix_can_be_read(theme: int, accent: str) -> None:
    strongest = (
        float(re.findall(r"--share:([\d.]+)%", render_confusion_matrix(np.array([[1]]), ["a"], "records"))[0]) / 100
    )
    mixed = [
        strongest * a + (1 - strongest) * b
        for a, b in zip(colour_of(accent, theme), colour_of("card", theme), strict=True)
    ]
    low, high = sorted([luminance(mixed), luminance(colour_of("ink", theme))])
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_every_line_of_the_sheet_is_understood() -> None:
    rules = re.sub(r"@media[^{]*", "", STYLE)
    declarations = [part.strip() for block in re.findall(r"{([^{}]*)}", rules) for part in block.split(";")]
    broken = [one for one in declarations if one and not re.fullmatch(r"-{0,2}[a-z-]*[a-z]: \S[^:]*", one)]
    assert declarations
    assert broken == []

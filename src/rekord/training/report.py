"""The report of a training run as one self-contained HTML page, with its worst predictions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column
from rekord.codec.preview import (
    ThumbnailBudget,
    class_colour,
    describe_cell,
    make_thumbnail,
    pixels_to_thumbnail,
)
from rekord.dataset.split import Split
from rekord.errors import RekordError
from rekord.report.charts import (
    ChartCurve,
    escape_html,
    render_bar_cell,
    render_curves,
    render_legend,
    render_time_bar,
)
from rekord.report.formatting import format_count, format_number
from rekord.report.notebook import CaptionLine, Thumbnail, Tile, render_gallery, render_swatches, render_table
from rekord.report.style import render_page
from rekord.training.advice import describe_bottleneck, format_percent, is_bottleneck
from rekord.training.inputs import Array, BatchEncoder, TrainingStep
from rekord.training.model import ModelTrainer, describe_model
from rekord.training.result import (
    EpochResult,
    Mistake,
    TrainingResult,
    compute_class_ious,
    compute_label_probabilities,
    compute_probabilities,
    compute_record_iou,
)
from rekord.training.task import Task

_MAX_THUMBNAIL_BYTES = 900_000
_MAX_THUMBNAIL_PIXELS = 240_000_000
_THUMBNAIL_SIDE = 192
_MAX_CELLS = 8

_MAX_SHOWN_INPUTS = 4


def describe_task(task: Task) -> str:
    """`image → label, 4 classes`."""
    names = [each.column for each in task.inputs]
    more = len(names) - _MAX_SHOWN_INPUTS + 1
    shown = ", ".join(names) if more < 2 else f"{', '.join(names[: _MAX_SHOWN_INPUTS - 1])} and {more:,} more"
    classes = f", {len(task.classes):,} classes" if task.classes else ""
    return f"{shown} → {task.target}{classes}"


def describe_chance(task: Task) -> str:
    """The constant prediction that the chance score belongs to."""
    if task.kind == "multilabel":
        return "always every class"
    return "always the mean" if task.kind == "regression" else "always the most frequent class"


def format_score(value: float | None) -> str:
    """A loss or a score: `0.953`, `12,345`."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"


CountMatrix: TypeAlias = "npt.NDArray[np.int64]"

MAX_MATRIX_CLASSES = 30
"""The number of classes shown in the matrix; the most frequent ones if there are more."""
MAX_LISTED_CLASSES = 100
MAX_CONFUSED_PAIRS = 10

_MAX_NAME_CHARACTERS = 40
_MAX_HEAT_PERCENT = 45
"""The accent of a cell that has all of its row, in percent: its number stays readable."""


def render_confusion_matrix(matrix: CountMatrix, names: Sequence[str], counted: str) -> str:
    """The matrix as a heat map of counts, coloured by their share of the row. `counted` names what is counted."""
    shown = _find_most_frequent(matrix, MAX_MATRIX_CLASSES)
    totals = matrix.sum(1)
    heads = "".join(f'<th scope="col"><span>{_get_name(names, i)}</span></th>' for i in shown)
    rows = "".join(
        f'<tr><th scope="row">{_get_name(names, true)}</th>'
        + "".join(_render_cell(matrix, int(totals[true]), true, pred, names, counted) for pred in shown)
        + f'<td class="n total">{_format_short_count(int(totals[true]))}</td></tr>'
        for true in shown
    )
    hint = (
        f'<p class="hint">The {MAX_MATRIX_CLASSES} most frequent of {len(names):,} classes.</p>'
        if len(shown) < len(names)
        else ""
    )
    return (
        f'{hint}<div class="panel"><table class="heat"><thead><tr><th scope="col">true ↓ predicted →</th>{heads}'
        f'<th scope="col" class="n">{escape_html(counted)}</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def render_confused_pairs(matrix: CountMatrix, names: Sequence[str]) -> str:
    """The pairs of classes that are confused most often; empty if there are none."""
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(off, axis=None, kind="stable")[::-1][:MAX_CONFUSED_PAIRS]
    pairs = [divmod(int(at), len(off)) for at in order if off.flat[at] > 0]
    if not pairs:
        return ""
    totals = matrix.sum(1)
    most = int(off.max())
    rows = "".join(_render_pair_row(true, pred, int(off[true, pred]), totals, most, names) for true, pred in pairs)
    return (
        '<h3>Most frequent confusions</h3><div class="panel"><table><thead><tr><th scope="col">true</th>'
        '<th scope="col">predicted</th><td></td><th scope="col" class="n">count</th>'
        f'<th scope="col" class="n">of its class</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def render_class_table(matrix: CountMatrix, names: Sequence[str], counted: str, *, with_iou: bool) -> str:
    """Precision and recall per class, and intersection over union for pixels."""
    right, true, pred = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    ious = compute_class_ious(matrix)
    listed, hint = list(range(len(names))), ""
    if len(names) > MAX_LISTED_CLASSES:
        occurring = [i for i in listed if true[i]]
        listed = sorted(occurring, key=lambda i: (right[i] / true[i], -true[i]))[:MAX_LISTED_CLASSES]
        hint = f'<p class="hint">The {len(listed):,} of {len(names):,} classes with the lowest recall.</p>'
    rows = ""
    for i in listed:
        recall, precision = _divide_or_none(right[i], true[i]), _divide_or_none(right[i], pred[i])
        figures = [*([ious[i]] if with_iou else []), recall, precision]
        cells = "".join(f'<td class="n">{_format_decimal(figure)}</td>' for figure in figures)
        rows += (
            f'<tr><th scope="row">{_get_name(names, i)}</th>{render_bar_cell(figures[0] or 0.0, 1)}{cells}'
            f'<td class="n wide">{int(true[i]):,}</td></tr>'
        )
    iou = '<th scope="col" class="n">IoU</th>' if with_iou else ""
    return (
        f'<h3>Classes</h3>{hint}<div class="panel"><table><thead><tr><th scope="col">class</th><td></td>{iou}'
        '<th scope="col" class="n">recall</th><th scope="col" class="n">precision</th>'
        f'<th scope="col" class="n wide">{escape_html(counted)}</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _render_pair_row(true: int, pred: int, times: int, totals: CountMatrix, most: int, names: Sequence[str]) -> str:
    return (
        f'<tr><th scope="row">{_get_name(names, true)}</th><td>{_get_name(names, pred)}'
        f"</td>{render_bar_cell(times, most)}"
        f'<td class="n">{times:,}</td><td class="n">{_format_share(times, int(totals[true]))}</td></tr>'
    )


def _render_cell(matrix: CountMatrix, total: int, true: int, pred: int, names: Sequence[str], counted: str) -> str:
    times = int(matrix[true, pred])
    share = times / total if total else 0.0
    true_name, pred_name = _shorten_class_name(names[true]), _shorten_class_name(names[pred])
    words = f"{true_name} predicted as {pred_name}: {times:,} of {total:,} {counted}"
    kind = "right" if true == pred else "wrong"
    shade = f' style="--share:{_MAX_HEAT_PERCENT * share:.1f}%"' if times else ""
    figure = f"{_format_short_count(times)}<small>{_format_share(times, total)}</small>" if times else "·"
    return f'<td class="{kind}"{shade} title="{escape_html(words)}">{figure}</td>'


def _find_most_frequent(matrix: CountMatrix, most: int) -> list[int]:
    if len(matrix) <= most:
        return list(range(len(matrix)))
    return sorted(int(i) for i in np.argsort(-matrix.sum(1), kind="stable")[:most])


def _get_name(names: Sequence[str], number: int) -> str:
    return escape_html(_shorten_class_name(names[number]))


def _shorten_class_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[: _MAX_NAME_CHARACTERS - 1]}…"


def _divide_or_none(part: int, whole: int) -> float | None:
    return int(part) / int(whole) if whole else None


def _format_decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _format_share(part: int, whole: int) -> str:
    return escape_html(format_percent(part / whole)) if whole else "–"


def _format_short_count(times: int) -> str:
    """A count for a narrow cell; its title has all digits."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if times >= 10 * size:
            return f"{times / size:.0f} {unit}"
    return f"{times:,}"


_MAX_EPOCHS = 200
_MAX_LEFT_OUT = 100
_MAX_SHOWN_ROWS = 12


def render_training_page(
    trained: TrainingResult, shown: Sequence[ShownMistake] = (), example: Mapping[str, Any] | None = None
) -> str:
    """The complete page. It loads nothing, runs nothing, and escapes all text from the data.

    `shown` are the mistakes with their images or values, and `example` is a row for the code that uses the model.
    """
    body = "".join(_iter_sections(trained, shown, example))
    return render_page("Training run", trained.dataset, body, lead=_summarize(trained))


def _summarize(trained: TrainingResult) -> str:
    model = f"{describe_model(trained.task)}, {format_count(trained.parameters, 'parameter')}"
    return f"{describe_task(trained.task)} · {model} · keras on {trained.backend}"


def _iter_sections(
    trained: TrainingResult, shown: Sequence[ShownMistake], example: Mapping[str, Any] | None
) -> Iterator[str]:
    yield _render_cards(trained)
    yield _render_advice(trained)
    yield _render_curves(trained)
    yield _render_epochs(trained)
    yield _render_mistakes(trained, shown)
    if trained.confusion is not None and trained.task.classes:
        yield _render_classes(trained)
    if trained.label_scores:
        yield _render_labels(trained)
    yield _render_usage(trained, example)
    yield _render_time(trained)
    yield _render_inputs(trained)


def _render_mistakes(trained: TrainingResult, shown: Sequence[ShownMistake]) -> str:
    task, where = trained.task, escape_html(trained.val_split or trained.train_split)
    if not shown:
        is_right = trained.confusion is not None and int(trained.confusion.sum()) == int(np.trace(trained.confusion))
        return _render_section(f"All predictions on {where} are right.", "") if is_right else ""
    if task.kind == "segmentation":
        tiles = [
            Tile(
                one.images,
                [f"{part} of record {one.mistake.record}" for part in ("image", "true mask", "predicted mask")],
                [[(f"IoU {one.mistake.iou or 0.0:.3f}", "strong"), (f" · record {one.mistake.record:,}", "plain")]],
                fits=True,
            )
            for one in shown[:_MAX_SHOWN_ROWS]
        ]
        hint = f"The {len(tiles):,} masks of {where} with the lowest mIoU: image, truth and prediction."
        return _render_section(hint, render_gallery(tiles, side=440) + _render_mask_legend(trained))
    if all(one.images for one in shown):
        body = render_gallery([_make_tile(one) for one in shown])
    else:
        shown = shown[:_MAX_SHOWN_ROWS]
        body = _render_mistake_rows(shown)
    if task.kind == "regression":
        return _render_section(f"The {len(shown):,} records of {where} with the largest errors.", body)
    wrong = "" if trained.confusion is None else _count_wrong(trained.confusion, where)
    return _render_section(f"{wrong}Shown are the {len(shown):,} most confident ones.", body)


def _render_section(hint: str, body: str) -> str:
    return f'<h2>Mistakes</h2><p class="hint">{hint}</p>{body}'


def _count_wrong(matrix: CountMatrix, where: str) -> str:
    total, right = int(matrix.sum()), int(np.trace(matrix))
    return f"{total - right:,} of {total:,} predictions on {where} are wrong. "


def _make_tile(one: ShownMistake) -> Tile:
    mistake = one.mistake
    true, predicted = (_format_answer(value) for value in (mistake.true, mistake.predicted))
    sure = "" if mistake.probability is None else f" {format_percent(mistake.probability)}"
    lines: list[CaptionLine] = [
        [(predicted, "wrong"), (sure, "plain")],
        [("true: ", "plain"), (true, "strong")],
        [(f"record {mistake.record:,}", "plain")],
    ]
    return Tile(one.images, [f"record {mistake.record}: {true} predicted as {predicted}"], lines)


def _render_mistake_rows(shown: Sequence[ShownMistake]) -> str:
    names = list(shown[0].cells or {})
    has_classes = shown[0].mistake.probability is not None
    head = ["record", *names, "true", "predicted", "probability" if has_classes else "error"]
    rows = []
    for one in shown:
        mistake = one.mistake
        if mistake.probability is not None:
            last = format_percent(mistake.probability)
        else:
            last = format_number(abs(float(mistake.predicted or 0) - float(mistake.true or 0)))
        answers = [_format_answer(mistake.true), _format_answer(mistake.predicted), last]
        rows.append([f"{mistake.record:,}", *[(one.cells or {})[name] for name in names], *answers])
    return f'<div class="panel rows">{render_table(head, rows, right=[0, len(head) - 1])}</div>'


def _format_answer(value: str | float | None) -> str:
    return _shorten_class_name(value) if isinstance(value, str) else format_number(value)


def _render_mask_legend(trained: TrainingResult) -> str:
    if trained.confusion is None:
        return ""
    pixels = trained.confusion.sum(1).tolist()
    listed = [(i, times) for i, times in enumerate(pixels) if times][:MAX_MATRIX_CLASSES]
    names = [f"class {name}" if name.isdecimal() else name for name in trained.task.classes]
    return render_swatches([(class_colour(i), names[i], times) for i, times in listed], sum(pixels))


def _render_cards(trained: TrainingResult) -> str:
    held_out = trained.val_split is not None
    split = "validation" if held_out else "training"
    cards = [(format_score(trained.score), f"{trained.task.metric}, {split}")]
    if trained.chance is not None:
        cards.append((format_score(trained.chance), describe_chance(trained.task)))
    cards += [
        (f"{len(trained.epochs):,}", "epoch" if len(trained.epochs) == 1 else "epochs"),
        (f"{trained.train_records:,}", f"records in {trained.train_split}"),
        (_format_rate(trained.records_per_second), "records per second"),
        (format_percent(trained.waited_share), "of the time spent waiting for data"),
    ]
    items = "".join(
        f"<li><b>{escape_html(value)}</b><span>{escape_html(label)}</span></li>" for value, label in cards
    )
    return f'<ul class="cards">{items}</ul>'


def _render_advice(trained: TrainingResult) -> str:
    sentence = escape_html(_capitalize(describe_bottleneck(trained.waited_share)))
    kind = "notice" if is_bottleneck(trained.waited_share) else "good"
    listed = "".join(f"<li>{escape_html(line)}</li>" for line in trained.advice)
    return f'<div class="{kind}" role="note"><b>{sentence}.</b>{f"<ul>{listed}</ul>" if listed else ""}</div>'


def _render_curves(trained: TrainingResult) -> str:
    epochs, task = trained.epochs, trained.task
    losses = [ChartCurve("training", "train", [epoch.loss for epoch in epochs])]
    scores = [ChartCurve("training", "train", [epoch.score for epoch in epochs])]
    held_out = [epoch for epoch in epochs if epoch.val_loss is not None and epoch.val_score is not None]
    if len(held_out) == len(epochs):
        losses.append(ChartCurve("validation", "held", [epoch.val_loss or 0.0 for epoch in epochs]))
        scores.append(ChartCurve("validation", "held", [epoch.val_score or 0.0 for epoch in epochs]))
    top = None if task.kind == "regression" else 1.0
    level = None if trained.chance is None else describe_chance(trained.task)
    drawn = (
        ("loss", render_curves("loss", losses), render_legend(losses)),
        (
            task.metric,
            render_curves(task.metric, scores, top=top, level=trained.chance),
            render_legend(scores, level=level),
        ),
    )
    figures = "".join(
        f'<figure class="panel"><figcaption>{escape_html(name)}</figcaption>{chart}<p class="keys">{keys}</p>'
        "</figure>"
        for name, chart, keys in drawn
    )
    return (
        '<h2>Learning curves</h2><p class="hint">Values per epoch. Training values are means over an epoch, during '
        f'which the model changes; validation values are computed after it.</p><div class="plots">{figures}</div>'
    )


def _render_epochs(trained: TrainingResult) -> str:
    shown = trained.epochs[-_MAX_EPOCHS:]
    metric = escape_html(trained.task.metric)
    held_out = trained.val_split is not None
    heads = ["epoch", "loss", metric, *(["val loss", f"val {metric}"] if held_out else [])]
    head = "".join(f'<th scope="col" class="n">{name}</th>' for name in heads)
    rows = "".join(f"<tr>{_render_epoch_cells(epoch, held_out=held_out)}</tr>" for epoch in shown)
    hint = f'<p class="hint">The last {_MAX_EPOCHS} epochs.</p>' if len(shown) < len(trained.epochs) else ""
    return (
        f'<h3>Epochs</h3>{hint}<div class="panel"><table><thead><tr>{head}'
        '<th scope="col" class="n wide">records/s</th>'
        f'<th scope="col" class="n wide">waiting</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _render_epoch_cells(epoch: EpochResult, *, held_out: bool) -> str:
    values = [epoch.loss, epoch.score, *([epoch.val_loss, epoch.val_score] if held_out else [])]
    cells = "".join(f'<td class="n">{escape_html(format_score(value))}</td>' for value in values)
    return (
        f'<th scope="row" class="n">{epoch.number:,}</th>{cells}'
        f'<td class="n wide">{_format_rate(epoch.records_per_second)}</td>'
        f'<td class="n wide">{escape_html(format_percent(epoch.waited_share))}</td>'
    )


def _render_classes(trained: TrainingResult) -> str:
    matrix, task = trained.confusion, trained.task
    assert matrix is not None
    pixels = task.kind == "segmentation"
    counted = "pixels" if pixels else "records"
    where = trained.val_split or trained.train_split
    return (
        f'<h2>Confusion matrix</h2><p class="hint">On {escape_html(where)}, after the last epoch. Rows are true '
        "classes, columns are predictions; the colour is the share of the row.</p>"
        + render_confusion_matrix(matrix, task.classes, counted)
        + render_confused_pairs(matrix, task.classes)
        + render_class_table(matrix, task.classes, counted, with_iou=pixels)
    )


def _render_labels(trained: TrainingResult) -> str:
    """The scores of each class, if records may have several."""
    where = escape_html(trained.val_split or trained.train_split)
    listed, hint = list(trained.label_scores), ""
    if len(listed) > MAX_LISTED_CLASSES:
        listed = sorted([one for one in listed if one.records], key=lambda one: one.f1 or 0.0)[:MAX_LISTED_CLASSES]
        hint = f" The {len(listed):,} of {len(trained.label_scores):,} classes with the lowest F1."
    rows = ""
    for one in listed:
        figures = (one.f1, one.average_precision, one.recall, one.precision)
        cells = "".join(f'<td class="n">{_format_decimal(figure)}</td>' for figure in figures)
        rows += (
            f'<tr><th scope="row">{escape_html(_shorten_class_name(one.name))}</th>'
            f'{render_bar_cell(one.f1 or 0.0, 1)}{cells}<td class="n wide">{one.records:,}</td></tr>'
        )
    heads = "".join(
        f'<th scope="col" class="n">{name}</th>' for name in ("F1", "average precision", "recall", "precision")
    )
    return (
        f'<h2>Classes</h2><p class="hint">On {where}, after the last epoch. A record may have several classes; one '
        f'is predicted if its probability is above 0.5.{hint}</p><div class="panel"><table><thead><tr>'
        f'<th scope="col">class</th><td></td>{heads}<th scope="col" class="n wide">records</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _render_time(trained: TrainingResult) -> str:
    waited = sum(epoch.waited_seconds for epoch in trained.epochs)
    computed = sum(epoch.seconds for epoch in trained.epochs) - waited
    once = trained.compile_seconds + trained.first_batch_seconds
    return (
        '<h2>Time</h2><p class="hint">Training steps. The first batch and the first step, which compiles the model, '
        "happen once and do not count as waiting.</p>"
        + render_time_bar(
            [("computing", "computing", computed), ("waiting", "waiting", waited), ("once", "once", once)]
        )
    )


def _render_inputs(trained: TrainingResult) -> str:
    task = trained.task
    rows: list[tuple[str, str, str]] = [(each.column, each.form, "") for each in task.inputs]
    target = "a number" if task.kind == "regression" else f"{len(task.classes):,} classes"
    ignored = "" if task.ignore is None else f"; pixels with id {task.ignore} are ignored"
    rows.append((task.target, "target", f"{target}{ignored}"))
    left_out = list(task.left_out.items())
    rows += [(name, "left out", why) for name, why in left_out[:_MAX_LEFT_OUT]]
    body = "".join(
        f'<tr><th scope="row">{escape_html(name if len(name) <= 60 else f"{name[:59]}…")}</th>'
        f'<td><span class="pill{" kind" if use != "left out" else ""}">'
        f"{escape_html(use)}</span></td><td>{escape_html(why)}</td></tr>"
        for name, use, why in rows
    )
    more = len(left_out) - _MAX_LEFT_OUT
    hint = f'<p class="hint">{more:,} more columns are left out.</p>' if more > 0 else ""
    return (
        '<h2>Columns</h2><div class="panel"><table><thead><tr><th scope="col">column</th>'
        f'<th scope="col">use</th><th scope="col"></th></tr></thead><tbody>{body}</tbody></table></div>{hint}'
    )


def _render_usage(trained: TrainingResult, example: Mapping[str, Any] | None) -> str:
    again = (
        f"rekord train {shlex.quote(trained.dataset)} {shlex.quote(trained.out)} --epochs {len(trained.epochs)} "
        f"--batch-size {trained.batch_size} --backend {trained.backend} --fresh"
    )
    return (
        '<h2>Use the model</h2><p class="hint">On something new, prepared as the records were for training. It '
        f"was trained on {escape_html(trained.backend)}, and runs on every Keras backend (KERAS_BACKEND).</p>"
        f"<pre>{escape_lines(make_usage_snippet(trained, example))}</pre>"
        '<p class="hint">Train again from the start, with the same other options.</p>'
        f"<pre>{escape_html(again)}</pre>"
    )


def make_usage_snippet(trained: TrainingResult, example: Mapping[str, Any] | None = None) -> str:
    """Code that loads the model and predicts something new."""
    task = trained.task
    lines = ["import rekord as rk", "", f"model = rk.load_model({trained.out!r})"]
    if task.forms == {"image"}:
        lines.append('prediction = model.predict("new.jpg")  # or bytes, an array of pixels, a list of files')
    elif example is not None:
        lines.append(f"prediction = model.predict({dict(example)!r})  # or a list of rows")
    else:
        lines.append(f"row = rk.open({trained.dataset!r})[{trained.val_split or trained.train_split!r}][0]")
        lines.append("prediction = model.predict(row, transformed=True)  # transformed, as all rows of the dataset")
    if task.kind == "segmentation":
        lines.append("print(prediction.value.shape, prediction.value.max())  # the class id of each pixel")
    elif task.kind == "regression":
        lines.append("print(prediction.value)")
    elif task.kind == "multilabel":
        lines.append("print(prediction.value, prediction.probabilities)")
    else:
        lines.append("print(prediction.value, prediction.probability)")
    return "\n".join(lines)


def escape_lines(text: str) -> str:
    """Escaped text that keeps its line breaks."""
    return "\n".join(escape_html(line) for line in text.split("\n"))


def _format_rate(records_per_second: float) -> str:
    return f"{records_per_second:,.0f}" if records_per_second > 0 else "–"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class ShownMistake:
    """A mistake as it is shown: images (for masks, the image, the truth and the prediction), or values."""

    mistake: Mistake
    images: Sequence[Thumbnail | None] = ()
    cells: Mapping[str, str] | None = None


def collect_mistakes(
    split: Split, encoder: BatchEncoder, learner: ModelTrainer, worst: Sequence[int]
) -> list[ShownMistake]:
    """Predict the worst records of a split again, one by one, and prepare them to be shown."""
    found = []
    budget = ThumbnailBudget(_MAX_THUMBNAIL_PIXELS, _MAX_THUMBNAIL_BYTES, _THUMBNAIL_SIDE)
    try:
        for record in worst:
            stored: dict[str, Column] = dict(split[[record]])
            step = encoder(encoder.decode_images(stored, split.schema))
            found.append(_describe_mistake(record, split, stored, step, learner.predict(step), encoder, budget))
    except RekordError:
        # Records of a compressed file cannot be read by number. A finished run is not lost for that.
        return found
    return found


def _describe_mistake(
    record: int,
    split: Split,
    stored: Mapping[str, Column],
    step: TrainingStep,
    predicted: Array,
    encoder: BatchEncoder,
    budget: ThumbnailBudget,
) -> ShownMistake:
    task = encoder.task
    if task.kind == "segmentation":
        mistake = Mistake(record, None, None, iou=compute_record_iou(task, predicted[0], step.y[0]))
        overlays = [None, step.y[0], predicted[0].argmax(-1)]
        return ShownMistake(mistake, [_draw(stored, step, task, budget, ids) for ids in overlays])
    if task.kind == "regression":
        mistake = Mistake(record, float(step.y[0]), float(predicted.reshape(-1)[0]))
    elif task.kind == "multilabel":
        shares = compute_label_probabilities(predicted)[0]
        worst = float(np.abs(shares - step.y[0]).max())
        mistake = Mistake(record, _join_classes(task, step.y[0]), _join_classes(task, shares > 0.5), worst)
    else:
        shares = compute_probabilities(predicted)[0]
        best = int(shares.argmax())
        mistake = Mistake(record, task.classes[int(step.y[0])], task.classes[best], float(shares[best]))
    if "image" in task.forms:
        return ShownMistake(mistake, [_draw(stored, step, task, budget, None)])
    names = [each.column for each in task.inputs][:_MAX_CELLS]
    features = split.schema.features
    return ShownMistake(mistake, cells={name: _describe_value(stored[name][0], features[name]) for name in names})


def _join_classes(task: Task, has: Array) -> str:
    return ", ".join([name for name, one in zip(task.classes, has.tolist(), strict=True) if one]) or "none"


def _draw(
    stored: Mapping[str, Column], step: TrainingStep, task: Task, budget: ThumbnailBudget, ids: Array | None
) -> Thumbnail | None:
    column = next(each.column for each in task.inputs if each.form == "image")
    data = stored[column][0]
    if isinstance(data, bytes):
        return make_thumbnail(data, budget, ids=ids, ignore=task.ignore)
    # Stored as numbers: shown as the model sees them.
    pixels = np.asarray(step.x["image"][0], np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - min(low, 0.0)) / ((high - min(low, 0.0)) or 1.0) * 255
    return pixels_to_thumbnail(scaled[:, :, :3].astype(np.uint8), budget, ids=ids, ignore=task.ignore)


def _describe_value(value: Any, feature: Any) -> str:
    return "–" if value is None else describe_cell(value, feature)


_MAX_EXAMPLE_VALUES = 16
_MAX_EXAMPLE_CHARACTERS = 80


def read_example(split: Split, encoder: BatchEncoder) -> dict[str, Any] | None:
    """The inputs of the first record as literals, for code in the report; None if they are images or too long."""
    if "image" in encoder.task.forms:
        return None
    try:
        row = split[0]
    except RekordError:  # of a compressed file
        return None
    found = {}
    for each in encoder.task.inputs:
        value, feature = row[each.column], split.schema[each.column]
        if isinstance(value, (np.generic, np.ndarray)) and value.size <= _MAX_EXAMPLE_VALUES:
            value = value.tolist()
        names = feature.class_names
        if names is not None and isinstance(value, int) and 0 <= value < len(names):
            value = names[value]
        if isinstance(value, (str, bytes)):
            value = value[:_MAX_EXAMPLE_CHARACTERS]
        elif not isinstance(value, (int, float, list, type(None))):
            return None
        if value is not None:
            found[each.column] = value
    return found

"""The report of a training run as one HTML page that needs nothing from anywhere else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from rekord.health.stats.charts import escaped
from rekord.health.stats.style import STYLE
from rekord.training.advice import is_bottleneck, percent, verdict
from rekord.training.models import describe
from rekord.training.report_charts import Curve, curves, legend, time_bar
from rekord.training.report_classes import class_table, confused_pairs, matrix_table
from rekord.training.report_style import STYLE as MORE_STYLE
from rekord.training.report_words import blind, dataset_name, figure, learned
from rekord.training.result import Epoch, Trained
from rekord.verbs.figures import count
from rekord.version import VERSION

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MOST_EPOCHS = 200
_MOST_LEFT_OUT = 100


def page(trained: Trained) -> str:
    """The whole page. It loads nothing, runs nothing, and holds no text from the data that is not escaped."""
    title = dataset_name(trained.dataset)
    body = "".join(_sections(trained))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{escaped(title)}: training</title><style>{STYLE}{MORE_STYLE}</style></head><body>"
        f'<header class="top"><p class="eyebrow">Training run</p><h1>{escaped(title)}</h1>'
        f'<p class="lead">{escaped(_sentence(trained))}</p></header>'
        f"<main>{body}<footer>rekord {escaped(VERSION)} · {escaped(trained.dataset)}</footer></main></body></html>\n"
    )


def _sentence(trained: Trained) -> str:
    model = f"{describe(trained.task)}, {count(trained.parameters, 'parameter')}"
    return f"{learned(trained.task)} · {model} · keras on {trained.backend}"


def _sections(trained: Trained) -> Iterator[str]:
    yield _cards(trained)
    yield _advice(trained)
    yield _curves(trained)
    yield _epochs(trained)
    if trained.confusion is not None and trained.task.classes:
        yield _classes(trained)
    yield _time(trained)
    yield _inputs(trained)
    yield _use(trained)


def _cards(trained: Trained) -> str:
    held_out = trained.val_split is not None
    split = "validation" if held_out else "training"
    cards = [(figure(trained.score), f"{trained.task.metric}, {split}")]
    if trained.chance is not None:
        cards.append((figure(trained.chance), blind(trained.task)))
    cards += [
        (f"{len(trained.epochs):,}", "epoch" if len(trained.epochs) == 1 else "epochs"),
        (f"{trained.train_records:,}", f"records in {trained.train_split}"),
        (_rate(trained.records_per_second), "records a second"),
        (percent(trained.waited_share), "of the time waited for data"),
    ]
    items = "".join(
        f"<li><b>{escaped(value)}</b><span>{escaped(label)}</span></li>" for value, label in cards
    )
    return f'<ul class="cards">{items}</ul>'


def _advice(trained: Trained) -> str:
    said = escaped(_capital(verdict(trained.waited_share)))
    kind = "notice" if is_bottleneck(trained.waited_share) else "good"
    listed = "".join(f"<li>{escaped(line)}</li>" for line in trained.advice)
    return f'<div class="{kind}" role="note"><b>{said}.</b>{f"<ul>{listed}</ul>" if listed else ""}</div>'


def _curves(trained: Trained) -> str:
    epochs, task = trained.epochs, trained.task
    losses = [Curve("training", "train", [epoch.loss for epoch in epochs])]
    scores = [Curve("training", "train", [epoch.score for epoch in epochs])]
    held_out = [epoch for epoch in epochs if epoch.val_loss is not None and epoch.val_score is not None]
    if len(held_out) == len(epochs):
        losses.append(Curve("validation", "held", [epoch.val_loss or 0.0 for epoch in epochs]))
        scores.append(Curve("validation", "held", [epoch.val_score or 0.0 for epoch in epochs]))
    top = None if task.kind == "regression" else 1.0
    level = None if trained.chance is None else blind(trained.task)
    drawn = (
        ("loss", curves("loss", losses), legend(losses)),
        (
            task.metric,
            curves(task.metric, scores, top=top, level=trained.chance),
            legend(scores, level=level),
        ),
    )
    figures = "".join(
        f'<figure class="panel"><figcaption>{escaped(name)}</figcaption>{chart}<p class="keys">{keys}</p></figure>'
        for name, chart, keys in drawn
    )
    return (
        '<h2>How it learned</h2><p class="hint">Values by epoch. Those of training are means over an epoch in which '
        f'the model changes; those of validation come after it.</p><div class="plots">{figures}</div>'
    )


def _epochs(trained: Trained) -> str:
    shown = trained.epochs[-_MOST_EPOCHS:]
    metric = escaped(trained.task.metric)
    held_out = trained.val_split is not None
    heads = ["epoch", "loss", metric, *(["val loss", f"val {metric}"] if held_out else [])]
    head = "".join(f'<th scope="col" class="n">{name}</th>' for name in heads)
    rows = "".join(f"<tr>{_epoch_cells(epoch, held_out=held_out)}</tr>" for epoch in shown)
    hint = f'<p class="hint">The last {_MOST_EPOCHS} epochs.</p>' if len(shown) < len(trained.epochs) else ""
    return (
        f'<h3>Each epoch</h3>{hint}<div class="panel"><table><thead><tr>{head}'
        '<th scope="col" class="n wide">records/s</th>'
        f'<th scope="col" class="n wide">waiting</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _epoch_cells(epoch: Epoch, *, held_out: bool) -> str:
    values = [epoch.loss, epoch.score, *([epoch.val_loss, epoch.val_score] if held_out else [])]
    cells = "".join(f'<td class="n">{escaped(figure(value))}</td>' for value in values)
    return (
        f'<th scope="row" class="n">{epoch.number:,}</th>{cells}'
        f'<td class="n wide">{_rate(epoch.records_per_second)}</td>'
        f'<td class="n wide">{escaped(percent(epoch.waited_share))}</td>'
    )


def _classes(trained: Trained) -> str:
    matrix, task = trained.confusion, trained.task
    assert matrix is not None
    pixels = task.kind == "segmentation"
    counted = "pixels" if pixels else "records"
    where = trained.val_split or trained.train_split
    return (
        f'<h2>What is taken for what</h2><p class="hint">On {escaped(where)}, after the last epoch. A row is what is '
        "true, a column what the model says; the colour is the share of the row.</p>"
        + matrix_table(matrix, task.classes, counted)
        + confused_pairs(matrix, task.classes)
        + class_table(matrix, task.classes, counted, with_iou=pixels)
    )


def _time(trained: Trained) -> str:
    waited = sum(epoch.waited_seconds for epoch in trained.epochs)
    computed = sum(epoch.seconds for epoch in trained.epochs) - waited
    once = trained.compile_seconds + trained.first_batch_seconds
    return (
        '<h2>Where the time went</h2><p class="hint">The steps of training. The first batch and the first step, '
        "which builds the model's program, come once and are not counted as waiting.</p>"
        + time_bar(
            [("computing", "computing", computed), ("waiting", "waiting", waited), ("once", "once", once)]
        )
    )


def _inputs(trained: Trained) -> str:
    task = trained.task
    rows: list[tuple[str, str, str]] = [(each.column, each.form, "") for each in task.inputs]
    target = "a number" if task.kind == "regression" else f"{len(task.classes):,} classes"
    ignored = "" if task.ignore is None else f"; pixels of {task.ignore} are not learned"
    rows.append((task.target, "target", f"{target}{ignored}"))
    left_out = list(task.left_out.items())
    rows += [(name, "left out", why) for name, why in left_out[:_MOST_LEFT_OUT]]
    body = "".join(
        f'<tr><th scope="row">{escaped(_cut(name))}</th><td><span class="pill{" kind" if use != "left out" else ""}">'
        f"{escaped(use)}</span></td><td>{escaped(why)}</td></tr>"
        for name, use, why in rows
    )
    more = len(left_out) - _MOST_LEFT_OUT
    hint = f'<p class="hint">{more:,} more columns are left out.</p>' if more > 0 else ""
    return (
        '<h2>What it learned from</h2><div class="panel"><table><thead><tr><th scope="col">column</th>'
        f'<th scope="col">use</th><th scope="col"></th></tr></thead><tbody>{body}</tbody></table></div>{hint}'
    )


def _use(trained: Trained) -> str:
    again = (
        f"rekord train {shlex.quote(trained.dataset)} {shlex.quote(trained.out)} --epochs {len(trained.epochs)} "
        f"--batch-size {trained.batch_size} --backend {trained.backend} --fresh"
    )
    return (
        '<h2>How to use it</h2><p class="hint">Load the model, and what turns records into its inputs. The model '
        f"was trained on {escaped(trained.backend)}; it runs on every backend of Keras (KERAS_BACKEND).</p>"
        f"<pre>{escaped_lines(snippet(trained))}</pre>"
        '<p class="hint">Train again, from the beginning; other options as they were.</p>'
        f"<pre>{escaped(again)}</pre>"
    )


def snippet(trained: Trained) -> str:
    """Code that loads the model and asks it about the records of a split."""
    task, inputs = trained.task, [each.column for each in trained.task.inputs]
    said = "[:, 0]" if task.kind == "regression" else ".argmax(-1)"
    folder = trained.out
    return "\n".join(
        [
            "import json",
            "",
            "import keras",
            "import rekord as rk",
            "from rekord.training.choose import choose",
            "from rekord.training.encoder import Encoder",
            "",
            f"dataset = rk.open({trained.dataset!r})",
            f"task = choose(dataset[{trained.train_split!r}], label={task.target!r}, columns={inputs!r})",
            f"with open({os.path.join(folder, 'inputs.json')!r}) as file:",
            "    encoder = Encoder.from_dict(json.load(file), task)",
            f"model = keras.models.load_model({os.path.join(folder, 'model.keras')!r})",
            "",
            f"split = dataset[{trained.val_split or trained.train_split!r}]",
            f"for batch in split.batches({trained.batch_size}, **encoder.reading()):",
            "    step = encoder(batch)",
            f"    said = model.predict_on_batch(step.x){said}  # beside step.y, which is true",
        ]
    )


def escaped_lines(text: str) -> str:
    """Text of several lines; their ends stay."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def _rate(records_per_second: float) -> str:
    return f"{records_per_second:,.0f}" if records_per_second > 0 else "–"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cut(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"

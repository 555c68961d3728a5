"""What a report says of each class: which are taken for which, and how well each is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.health.stats.charts import bar_cell, escaped
from rekord.training.advice import percent
from rekord.training.scores import class_ious

Matrix: TypeAlias = "npt.NDArray[np.int64]"

MOST_MATRIX = 30
"""So many classes are drawn as a matrix; of more, those that occur most."""
MOST_LISTED = 100
MOST_PAIRS = 10

_LONGEST_NAME = 40
_STRONGEST = 45
"""A cell with all of its row has so many percent of the accent: figures in it can still be read."""


def matrix_table(matrix: Matrix, names: Sequence[str], counted: str) -> str:
    """The matrix as a heat map: counts, with a colour for the share of their row. `counted` names what is counted."""
    shown = _most_frequent(matrix, MOST_MATRIX)
    totals = matrix.sum(1)
    heads = "".join(f'<th scope="col"><span>{_name(names, i)}</span></th>' for i in shown)
    rows = "".join(
        f'<tr><th scope="row">{_name(names, true)}</th>'
        + "".join(_cell(matrix, int(totals[true]), true, said, names, counted) for said in shown)
        + f'<td class="n total">{_short(int(totals[true]))}</td></tr>'
        for true in shown
    )
    hint = (
        f'<p class="hint">The {MOST_MATRIX} of {len(names):,} classes that occur most.</p>'
        if len(shown) < len(names)
        else ""
    )
    return (
        f'{hint}<div class="panel"><table class="heat"><thead><tr><th scope="col">true ↓ said →</th>{heads}'
        f'<th scope="col" class="n">{escaped(counted)}</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def confused_pairs(matrix: Matrix, names: Sequence[str]) -> str:
    """The classes that are most often taken for another one; nothing where none ever is."""
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(off, axis=None, kind="stable")[::-1][:MOST_PAIRS]
    pairs = [divmod(int(at), len(off)) for at in order if off.flat[at] > 0]
    if not pairs:
        return ""
    totals = matrix.sum(1)
    most = int(off.max())
    rows = "".join(_pair_row(true, said, int(off[true, said]), totals, most, names) for true, said in pairs)
    return (
        '<h3>Most often confused</h3><div class="panel"><table><thead><tr><th scope="col">true</th>'
        '<th scope="col">said</th><td></td><th scope="col" class="n">count</th>'
        f'<th scope="col" class="n">of its class</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def class_table(matrix: Matrix, names: Sequence[str], counted: str, *, with_iou: bool) -> str:
    """Precision and recall of each class; intersection over union too, where pixels are told."""
    right, true, said = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    ious = class_ious(matrix)
    listed, hint = list(range(len(names))), ""
    if len(names) > MOST_LISTED:
        occurring = [i for i in listed if true[i]]
        listed = sorted(occurring, key=lambda i: (right[i] / true[i], -true[i]))[:MOST_LISTED]
        hint = (
            f'<p class="hint">The {len(listed):,} of {len(names):,} classes that are found least often.</p>'
        )
    rows = ""
    for i in listed:
        recall, precision = _part(right[i], true[i]), _part(right[i], said[i])
        figures = [*([ious[i]] if with_iou else []), recall, precision]
        cells = "".join(f'<td class="n">{_decimal(figure)}</td>' for figure in figures)
        rows += (
            f'<tr><th scope="row">{_name(names, i)}</th>{bar_cell(figures[0] or 0.0, 1)}{cells}'
            f'<td class="n wide">{int(true[i]):,}</td></tr>'
        )
    iou = '<th scope="col" class="n">IoU</th>' if with_iou else ""
    return (
        f'<h3>Each class</h3>{hint}<div class="panel"><table><thead><tr><th scope="col">class</th><td></td>{iou}'
        '<th scope="col" class="n">recall</th><th scope="col" class="n">precision</th>'
        f'<th scope="col" class="n wide">{escaped(counted)}</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _pair_row(true: int, said: int, times: int, totals: Matrix, most: int, names: Sequence[str]) -> str:
    return (
        f'<tr><th scope="row">{_name(names, true)}</th><td>{_name(names, said)}</td>{bar_cell(times, most)}'
        f'<td class="n">{times:,}</td><td class="n">{_share(times, int(totals[true]))}</td></tr>'
    )


def _cell(matrix: Matrix, total: int, true: int, said: int, names: Sequence[str], counted: str) -> str:
    times = int(matrix[true, said])
    share = times / total if total else 0.0
    words = f"{_cut(names[true])} said to be {_cut(names[said])}: {times:,} of {total:,} {counted}"
    kind = "right" if true == said else "wrong"
    shade = f' style="--share:{_STRONGEST * share:.1f}%"' if times else ""
    figure = f"{_short(times)}<small>{_share(times, total)}</small>" if times else "·"
    return f'<td class="{kind}"{shade} title="{escaped(words)}">{figure}</td>'


def _most_frequent(matrix: Matrix, most: int) -> list[int]:
    if len(matrix) <= most:
        return list(range(len(matrix)))
    return sorted(int(i) for i in np.argsort(-matrix.sum(1), kind="stable")[:most])


def _name(names: Sequence[str], number: int) -> str:
    return escaped(_cut(names[number]))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _part(part: int, whole: int) -> float | None:
    return int(part) / int(whole) if whole else None


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(part: int, whole: int) -> str:
    return escaped(percent(part / whole)) if whole else "–"


def _short(times: int) -> str:
    """A count in a narrow cell; the words behind it have all digits."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if times >= 10 * size:
            return f"{times / size:.0f} {unit}"
    return f"{times:,}"

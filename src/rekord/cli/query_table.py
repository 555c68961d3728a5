"""The first rows of an answer as a table for a person."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekord.cli.preview import SHOWN_VALUES, of_bytes
from rekord.cli.query_rows import span, unique
from rekord.cli.render import Piece, clean, cut

if TYPE_CHECKING:
    from rekord.feeds.sql_answer import Answer

_WIDTH, _MOST, _LEAST = 80, 60, 8
MOST_COLUMNS = 100
"""A table shows no more of them: its lines would be longer than anybody reads."""
_BETWEEN = "  "


def shown(answer: Answer, rows: int, terminal: bool) -> tuple[list[list[Piece]], bool, int]:
    """The lines of a table of some rows, whether there are more of them, and how many columns are left out."""
    names = [cut(clean(name), _MOST) for name in unique(answer.schema.names)[:MOST_COLUMNS]]
    columns: list[list[str]] = [[] for _ in names]
    taken, more = 0, False
    for batch in answer.batches():
        part = batch.slice(0, rows - taken)
        for column, cells in zip(part.columns[:MOST_COLUMNS], columns, strict=True):
            cells += [_cell(value) for value in column.to_pylist()]
        taken += part.num_rows
        if part.num_rows < batch.num_rows:
            more = True
            break
    right = [_is_number(answer.schema.field(i).type) for i in range(len(names))]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]
    width = max(shutil.get_terminal_size().columns, _WIDTH) if terminal else 0
    _narrow(widths, width)
    lines: list[list[Piece]] = [[(_line(names, widths, right), "bold")]]
    lines += [[_line(list(row), widths, right)] for row in zip(*columns, strict=True)]
    return lines, more, len(answer.schema) - len(names)


def _narrow(widths: list[int], width: int) -> None:
    """Make the widest columns narrower, until a line fits where there is a width to fit."""
    room = width - len(_BETWEEN) * (len(widths) - 1)
    if not width or sum(widths) <= room:
        return
    widest = max(widths)
    while widest > _LEAST and sum(min(one, widest) for one in widths) > room:
        widest -= 1
    wider = [i for i, one in enumerate(widths) if one > widest]
    widths[:] = [min(one, widest) for one in widths]
    # The last ones keep what is left over.
    left = max(room - sum(widths), 0)
    for i in wider[len(wider) - left :] if left else []:
        widths[i] += 1


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    fitted = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [
        cell.rjust(width) if at_right else cell.ljust(width)
        for cell, width, at_right in zip(fitted, widths, right, strict=True)
    ]
    return _BETWEEN.join(padded).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return clean(of_bytes(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, pa.MonthDayNano):
        return span(value)
    if isinstance(value, dict):
        return cut("{" + ", ".join(f"{clean(name)}: {_cell(one)}" for name, one in value.items()) + "}")
    if isinstance(value, (list, tuple)):
        more = ", …" if len(value) > SHOWN_VALUES else ""
        return cut("[" + ", ".join(_cell(one) for one in value[:SHOWN_VALUES]) + more + "]")
    return cut(clean(str(value)))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

"""The first rows of an answer as a table for a person."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekord.cli.preview import SHOWN_VALUES, of_bytes
from rekord.cli.query_rows import span, unique
from rekord.cli.query_times import times_as_text
from rekord.cli.render import Piece, clean, cut

if TYPE_CHECKING:
    from rekord.feeds.sql_answer import Answer

_WIDTH, _MOST, _LEAST = 80, 60, 8
SHOWN_COLUMNS = 100
_BETWEEN = "  "


def shown(answer: Answer, rows: int, terminal: bool) -> tuple[list[list[Piece]], bool]:
    """The lines of a table of some rows and its first columns, and whether there are more rows."""
    names = [cut(clean(name), _MOST) for name in unique(answer.schema.names)[:SHOWN_COLUMNS]]
    columns: list[list[str]] = [[] for _ in names]
    taken, more = 0, False
    for batch in answer.batches():
        part = batch.slice(0, rows - taken)
        for column, cells in zip(part.columns[: len(names)], columns, strict=True):
            cells += [_cell(value) for value in times_as_text(column).to_pylist()]
        taken += part.num_rows
        if part.num_rows < batch.num_rows:
            more = True
            break
    right = [_is_number(kind) for kind in answer.schema.types[: len(names)]]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]
    width = max(shutil.get_terminal_size().columns, _WIDTH) if terminal else 0
    _narrow(widths, width)
    lines: list[list[Piece]] = [[(_line(names, widths, right), "bold")]]
    lines += [[_line(list(row), widths, right)] for row in zip(*columns, strict=True)]
    return lines, more


def _narrow(widths: list[int], width: int) -> None:
    """Make the widest columns narrower, until a line fits where there is a width to fit."""
    while width and sum(widths) + len(_BETWEEN) * (len(widths) - 1) > width:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


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

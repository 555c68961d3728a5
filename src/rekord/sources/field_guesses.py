"""What texts could be besides texts: numbers in another notation, words for missing values, dates, booleans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from rekord.errors import preview
from rekord.report.formatting import format_count
from rekord.schema import Schema
from rekord.sources.base import SourceGuess
from rekord.sources.fields import CURRENCY_SIGNS, CsvTable, clean_number, split_fields
from rekord.sources.lines import RowBlock

SAMPLE_ROWS = 1000
"""The rows of a column that are inspected for notations."""

_MAX_SAMPLED_FIELDS = 1_000_000
_MAX_SPLIT_ROWS = 20_000

_MAX_WORDS = 5  # that can stand for missing values in a column of numbers
_MIN_NUMBER_SHARE = 0.5

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_PADDED = re.compile(r"-?0\d+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?", re.ASCII)
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}|\d{4}([./])\d{1,2}\2\d{1,2}", re.ASCII)
_NUMBER_FIELD = r"^[ \t]*[+-]?(?:\d+\.?\d*|\.\d+|[nN][aA][nN]|[iI][nN][fF])(?:[eE][+-]?\d+)?[ \t]*$"  # for Arrow
_BOOLEANS = ({"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"}, {"true", "false"})


class TextPlace(NamedTuple):
    """A field, and where it is."""

    text: str
    row: int
    line: int | None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line:,})"
        return f"{preview(self.text)} in row {self.row:,}{line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTexts:
    """The first values of a column of texts, without missing ones, and where each is."""

    name: str
    texts: Sequence[str]
    locate: Callable[[int], TextPlace]

    def find(self, matches: Callable[[str], object]) -> TextPlace | None:
        """The first text that matches."""
        found = next((i for i, text in enumerate(self.texts) if matches(text)), None)
        return None if found is None else self.locate(found)


def guess_text_column(
    column: ColumnTexts, *, na: Sequence[str] | None, delimiter: str | None, stripped: bool = False
) -> Iterator[SourceGuess]:
    """The guesses about a column that is stored as text.

    `na` are the words for missing values, None if the source has none; `delimiter` is that of a CSV file.
    """
    guess = _guess_type(column, na, delimiter)
    if guess is not None:
        yield guess
    if not stripped and delimiter is not None:
        spaced = column.find(lambda text: text != text.strip(" \t"))
        if spaced is not None:
            what = f"`{column.name[:60]}` keeps leading or trailing spaces, first {spaced}"
            yield SourceGuess(column.name, what, "to remove them: strip=True")


def _guess_type(column: ColumnTexts, na: Sequence[str] | None, delimiter: str | None) -> SourceGuess | None:
    bare = [text.strip(" \t") for text in column.texts]
    if not bare:
        return None
    name, is_csv = column.name, delimiter is not None
    numbers = sum(1 for text in bare if _NUMBER.fullmatch(text))
    padded = column.find(lambda text: _PADDED.fullmatch(text.strip(" \t")))
    if numbers == len(bare):
        if padded is not None and is_csv:
            return _text_guess(name, f"{padded} has a leading zero", f"to read integers: {_declare(name, 'Int64()')}")
        return None if is_csv else _text_guess(name, f"its numbers are strings, first {column.locate(0)}", None)
    marked = _guess_number_notation(column, bare, delimiter)
    if marked is not None:
        return marked
    if numbers >= _MIN_NUMBER_SHARE * len(bare):
        return _guess_missing_words(column, numbers, na)
    words = {text.lower() for text in islice(bare, SAMPLE_ROWS)}
    if any(words <= pair for pair in _BOOLEANS):
        shown = " and ".join(repr(word) for word in sorted(set(bare))[:2])
        return _text_guess(name, f"its values are {shown}", f"to store class ids: {_declare(name, 'Label()')}")
    if all(_ISO_DATE.fullmatch(text) for text in bare):
        feature = 'Timestamp(tz="UTC")' if re.search(r"Z|:.*[+-]", bare[0]) else "Timestamp()"
        do = f"to store times: {_declare(name, feature)}" if is_csv else None
        return _text_guess(name, f"its dates are kept as written, first {column.locate(0)}", do)
    if all(_OTHER_DATE.fullmatch(text) for text in bare):
        return _text_guess(name, f"its dates are kept as written, first {column.locate(0)}", None)
    return None


def _guess_number_notation(column: ColumnTexts, bare: Sequence[str], delimiter: str | None) -> SourceGuess | None:
    """Numbers with decimal commas, separators of thousands, currency or percent signs."""
    if delimiter is None:
        return None
    others = [text for text in bare if not _NUMBER.fullmatch(text)]
    name, numbers = column.name, f"to read numbers: numbers=[{_quote(column.name)}]"
    if all(_DECIMAL_COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text) for text in others):
        place = column.find(lambda text: "," in text)
        is_decimal = any(not _THOUSANDS.fullmatch(text) for text in others)
        if is_decimal:
            return _text_guess(name, f"{place} has a decimal comma", 'to read numbers: decimal=","')
        if any(text.count(",") > 1 or "." in text for text in others):
            return _text_guess(name, f"{place} has separators of thousands", numbers)
        do = f'if it separates thousands: numbers=[{_quote(name)}]; if it is a decimal comma: decimal=","'
        return _text_guess(name, f"{place} has a comma", do)
    for decimal in (".", ","):
        if all(_NUMBER.fullmatch(clean_number(text, decimal)) for text in others) and not any(
            _ISO_DATE.fullmatch(text) or _OTHER_DATE.fullmatch(text) for text in others
        ):
            signs = {sign for text in others for sign in text if sign in CURRENCY_SIGNS + "%"}
            kind = "a percent sign" if signs == {"%"} else "a currency sign" if signs else "separators of thousands"
            place = column.find(lambda text: not _NUMBER.fullmatch(text.strip(" \t")))
            also = "" if decimal == "." else f" {decimal_option(decimal)}"
            return _text_guess(name, f"{place} has {kind}", numbers + also)
    return None


def _guess_missing_words(column: ColumnTexts, numbers: int, na: Sequence[str] | None) -> SourceGuess:
    words = list(dict.fromkeys(text for text in column.texts if not _NUMBER.fullmatch(text.strip(" \t"))))
    place = column.find(lambda text: text == words[0])
    others = len(column.texts) - numbers - 1
    more = f", and of {format_count(others, 'more value')}" if others else ""
    why = (
        f"of {place}{more}; {format_count(numbers, 'other value')} {'is a number' if numbers == 1 else 'are numbers'}"
    )
    return missing_word_guess(column.name, why, words, na)


def missing_word_guess(name: str, why: str, words: Sequence[str], na: Sequence[str] | None) -> SourceGuess:
    """A column that a few words make text."""
    do = None
    if na is not None and len(words) <= _MAX_WORDS:
        condition = "it is a missing value" if len(words) == 1 else "these are missing values"
        do = f"if {condition}: {na_option([*na, *words])}"
    return SourceGuess(name, f"`{name[:60]}` is text because {why}", do)


def guess_table_columns(
    table: CsvTable,
    blocks: Sequence[RowBlock],
    turned: Mapping[int, TextPlace],
    counts: Sequence[tuple[int, ...]],
    na: Sequence[str],
    *,
    is_usual_na: bool,
) -> Iterator[SourceGuess]:
    """The guesses about the columns of a CSV file, from its first rows.

    `turned` has the first text of columns that had only numbers in the first `blocks`, `counts` how many fields of
    each column have which type, `na` the words for missing values; with `is_usual_na`, nobody asked for them.
    """
    left = max(1, min(SAMPLE_ROWS, _MAX_SAMPLED_FIELDS // len(table.names)))
    fields: list[list[TextPlace]] = [[] for _ in table.columns]
    for block in blocks:
        rows = min(block.rows, left)
        left -= rows
        read = _read_fields(block, table.names, table.delimiter, [column.place for column in table.columns], rows)
        for known, more in zip(fields, read, strict=True):
            known += more
    words: dict[str, list[tuple[str, TextPlace]]] = {}
    for column, texts in zip(table.columns, fields, strict=True):
        present = [place for place in texts if place.text not in table.na]
        for word in dict.fromkeys(place.text for place in texts if place.text in table.na and place.text.strip()):
            first = next(place for place in texts if place.text == word)
            words.setdefault(word.strip(), []).append((column.name, first))
        if column.form != "text" or column.declared:
            continue
        found = guess_text_column(
            ColumnTexts(name=column.name, texts=[place.text for place in present], locate=present.__getitem__),
            na=na,
            delimiter=table.delimiter,
            stripped=table.strip,
        )
        guesses = list(found)
        if not any(guess.what.startswith(f"`{column.name[:60]}` is text") for guess in guesses):
            numbers = sum(counts[column.place][1:6])
            place = turned.get(column.place)
            for block in blocks if numbers else ():
                place = place or find_text_field(block, table.names, table.delimiter, column.place, table.na)
            if place is not None:
                why = f"of {place}, after {format_count(numbers, 'number')}"
                yield missing_word_guess(column.name, why, [place.text], na)
        yield from guesses
    for word, places in words.items() if is_usual_na else ():
        name, first = places[0]
        also = f", also in {format_count(len(places) - 1, 'other column')}" if len(places) > 1 else ""
        do = f"to keep it: {na_option(one for one in na if one != word)}"
        yield SourceGuess(name, f"{first} of `{name[:60]}` is read as a missing value{also}", do)


def find_text_field(
    block: RowBlock, names: Sequence[str], delimiter: str, column: int, na: Sequence[str]
) -> TextPlace | None:
    """The first field of a column that is neither a number nor missing."""
    from pyarrow import compute

    texts = _read_column_texts(block, names, delimiter, [column], block.rows)
    if texts is not None:
        values = texts.column(0)
        numbers = compute.match_substring_regex(values, pattern=_NUMBER_FIELD).to_pylist()
        missing = frozenset(na)
        for i, is_number in enumerate(numbers):
            if not is_number and (text := values[i].as_py()) not in missing:
                return TextPlace(text, block.first + i, int(block.lines[i]))
        return None
    rows = _read_fields(block, names, delimiter, [column], min(block.rows, _MAX_SPLIT_ROWS))[0]
    return next((one for one in rows if one.text not in na and not re.match(_NUMBER_FIELD, one.text)), None)


def _read_fields(
    block: RowBlock, names: Sequence[str], delimiter: str, columns: Sequence[int], rows: int
) -> list[list[TextPlace]]:
    """The fields of some columns in the first rows of a block, as they are written."""
    lines = block.lines.tolist()
    texts = _read_column_texts(block, names, delimiter, columns, rows)
    if texts is not None:
        return [
            [TextPlace(text, block.first + i, lines[i]) for i, text in enumerate(column.to_pylist())]
            for column in texts.columns
        ]
    out: list[list[TextPlace]] = [[] for _ in columns]
    for i in range(rows):  # a row has another number of fields, or is not UTF-8
        fields = split_fields(block.row(i), delimiter)
        if len(fields) == len(names):
            for column, place in zip(out, columns, strict=True):
                column.append(TextPlace(fields[place].decode(errors="replace"), block.first + i, lines[i]))
    return out


def _read_column_texts(
    block: RowBlock, names: Sequence[str], delimiter: str, columns: Sequence[int], rows: int
) -> Any:
    """A table of texts; None if the rows cannot be parsed together."""
    import pyarrow as pa
    from pyarrow import csv

    data = block.data[: int(block.starts[rows])]
    kept = [names[place] for place in columns]
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(data) + 1),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(kept, pa.string()), include_columns=kept, strings_can_be_null=False
            ),
        ).combine_chunks()
    except (pa.ArrowException, ValueError, KeyError):
        return None
    return table if table.num_rows == rows else None


def guess_json_columns(rows: Iterable[Mapping[str, Any]], schema: Schema) -> Iterator[SourceGuess]:
    """The guesses about the columns of text of JSON rows."""
    taken = list(islice(rows, SAMPLE_ROWS))
    for name, feature in schema.features.items():
        if feature.value_kind != "str" or feature.shape != ():
            continue
        places = [i for i, row in enumerate(taken) if isinstance(row.get(name), str)]
        texts = [taken[i][name] for i in places]
        column = ColumnTexts(
            name=name,
            texts=texts,
            locate=lambda i, places=places, texts=texts: TextPlace(texts[i], places[i], None),  # type: ignore[misc]
        )
        yield from guess_text_column(column, na=None, delimiter=None)


def na_option(words: Iterable[str]) -> str:
    """`na=` with these words."""
    return f"na=[{', '.join(_quote(word) for word in dict.fromkeys(words))}]"


def decimal_option(decimal: str) -> str:
    """`decimal=` with this mark."""
    return f'decimal="{decimal}"'


def _text_guess(name: str, why: str, do: str | None) -> SourceGuess:
    return SourceGuess(name, f"`{name[:60]}` is text: {why}", do)


def _declare(name: str, feature: str) -> str:
    return f"columns={{{_quote(name)}: rk.{feature}}}"


def _quote(text: str) -> str:
    return json.dumps(text[:60], ensure_ascii=False)

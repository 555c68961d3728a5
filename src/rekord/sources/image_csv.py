"""Lists of images as rows: a CSV or text file with an image per line and its class, its text, or flags."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple, TextIO

from rekord.arguments import as_path, check_keywords, invalid, is_utf8_encodable
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema import Feature, Image, Int64, Label, Schema, Text
from rekord.sources.base import (
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    UnusedInput,
)
from rekord.sources.boxes_csv import recognize_boxes_csv
from rekord.sources.detection_common import (
    INTEGER_PATTERN,
    SEPARATORS,
    TEXT_EXTENSIONS,
    candidate_image_folders,
    find_base,
    find_class_names,
    find_lists,
    first_class_id,
    read_list_head,
    relative_path,
    split_list_line,
    stat_listed,
    strip_folders,
)
from rekord.sources.image_folder import (
    IMAGE_FILES,
    SPLIT_NAMES,
    FileKind,
    ListingSource,
    SourceListing,
    class_names,
    fingerprint,
    join_path,
    sort_splits,
    stat_file,
    strip_image_extension,
    to_printable_path,
)
from rekord.sources.media_folder import AUDIO_FILES, VIDEO_FILES
from rekord.storage import raw_files
from rekord.storage.local import read_error

# As compared: in lower case, without spaces, hyphens and underscores. Those of the file are in its `FileKind`.
_COLUMN_ALIASES = {
    "label": ("label", "class", "classname", "category", "labelname", "target"),
    "split": ("split", "set", "subset", "partition"),
    "text": ("text", "caption", "transcription", "transcript", "sentence", "word", "words"),
}
_MAX_LINE_CHARACTERS = 1 << 20


class ImageCsvColumns(NamedTuple):
    """The positions of the columns."""

    image: int
    label: int  # or the text, if there is no label
    split: int | None
    width: int
    rows: Iterator[tuple[int, list[str]]]  # after the header
    is_text: bool = False
    flags: tuple[tuple[str, int], ...] = ()  # columns of 0 and 1, one per class
    unused: tuple[str, ...] = ()  # other columns
    guess: str | None = None  # how the label was found, if not by its name


class ImageCsvReader:
    """An open CSV: the file as it is now, and its rows, each with its first line."""

    def __init__(self, path: str, kind: FileKind = IMAGE_FILES) -> None:
        self.path = path
        self.kind = kind
        self.ended = False

    def __enter__(self) -> tuple[SourceFile, Iterator[tuple[int, list[str]]]]:
        try:
            # Bytes that are not UTF-8 are kept, so that their line can be reported.
            self.file = raw_files.open_text(self.path, "utf-8-sig", "surrogateescape", "")
            facts = raw_files.stat(self.path)
        except OSError as failure:
            raise read_error(self.path, failure) from failure
        own = SourceFile(os.path.basename(self.path), facts.st_size, facts.st_mtime_ns)
        return own, self.rows(self.file)

    def __exit__(self, *failure: object) -> None:
        self.file.close()

    def rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """The rows of an open file."""
        lines = self._lines(file)
        head = next(lines, "")
        if not head.strip():
            raise unreadable_csv_error(self.path, "is empty", found="no first line")
        if self.path.lower().endswith(TEXT_EXTENSIONS) and not _is_header(head, self.kind):
            yield from self._split_lines(head, lines)
            return
        reader = csv.reader(chain([head], lines), delimiter=max(SEPARATORS, key=head.count))
        number = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as failure:
                raise unreadable_csv_error(
                    self.path, "is not a valid CSV", found=str(failure)[:60], line=reader.line_num
                ) from failure
            if fields is None:
                return
            if self.ended:  # the reader reads more lines only while a quote is open
                raise unreadable_csv_error(
                    self.path,
                    "has an unclosed quote",
                    expected='a closing " at the end of the field',
                    found="the end of the file",
                    do=f"close the quote in the row that begins at line {number:,}",
                    line=number,
                )
            if any(field.strip() for field in fields):
                yield number, [field.strip() for field in fields]
            number = reader.line_num + 1

    def _split_lines(self, head: str, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
        """The lines of a text file without a header, each an image and the rest of the line."""
        separator = next((one for one in SEPARATORS if one in head), None)
        for number, line in enumerate(chain([head], lines), 1):
            if line.strip():
                yield number, split_list_line(line.strip(), separator, self.kind)

    def _lines(self, file: TextIO) -> Iterator[str]:
        number = 0
        while True:
            try:
                line = file.readline(_MAX_LINE_CHARACTERS + 1)
            except OSError as failure:
                raise read_error(self.path, failure) from failure
            number += 1
            if len(line) > _MAX_LINE_CHARACTERS:
                found = f"a line of more than {_MAX_LINE_CHARACTERS:,} characters"
                raise unreadable_csv_error(self.path, "has a line that is too long", found=found, line=number)
            if "\0" in line:
                raise unreadable_csv_error(self.path, "is not text", found="a zero byte", line=number)
            if not line:
                self.ended = True
                return
            yield line


def _is_header(line: str, kind: FileKind) -> bool:
    """Whether the first line of a text file has the usual names of an image and of another column."""
    names = {_fold(name) for name in re.split(r"[,;\t|]", line)}
    others = {one for role in ("label", "text") for one in _COLUMN_ALIASES[role]}
    return bool(names.intersection(kind.columns)) and bool(names & others)


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.strip().strip('"')).lower()


def find_columns(
    path: str,
    requested: Mapping[str, str | None],
    rows: Iterator[tuple[int, list[str]]],
    kind: FileKind = IMAGE_FILES,
) -> ImageCsvColumns:
    """The columns that are `requested`, or named as usual; "image" is the file, of whatever kind."""
    aliases = {"image": kind.columns, **_COLUMN_ALIASES}
    first = next(rows, None)
    head = first[1] if first else []
    at: dict[str, int | None] = {}
    for role, column in requested.items():
        if column is None:
            plain = [_fold(name) for name in head]
            at[role] = next((plain.index(name) for name in aliases[role] if name in plain), None)
        elif column in head:
            at[role] = head.index(column)
        else:
            meant = closest_match(column, head)
            raise unreadable_csv_error(
                path,
                f"has no column {preview(column)}",
                expected="a header with this column",
                found=_preview_header(head),
                do=f'{_argument(role, kind)}="{meant}"'
                if meant
                else f'name one of these columns: {_argument(role, kind)}="…"',
                kind=kind,
            )
    image, label = at["image"], at["label"]
    text = next((i for i, name in enumerate(head) if _fold(name) in _COLUMN_ALIASES["text"] and i != image), None)
    if image is not None and (label is not None or text is not None):
        used = (image, text if label is None else label, at["split"])
        unused = [to_printable_path(name) for i, name in enumerate(head) if i not in used]
        is_text = label is None
        return ImageCsvColumns(
            image, used[1] or 0, at["split"], len(head), rows, is_text=is_text, unused=tuple(unused)
        )
    images = [i for i, field in enumerate(head) if kind.is_name(field)]
    if image is None and label is None and first and path.lower().endswith(TEXT_EXTENSIONS):
        return ImageCsvColumns(0, 1, None, 2, chain([first], rows))
    if image is None and label is None and len(images) == 1 and first:
        # No header: the image in the first line shows which column is which.
        splits = [i for i, field in enumerate(head) if field.lower() in SPLIT_NAMES]
        others = [i for i in range(len(head)) if i not in (*images, *splits[:1])]
        if len(others) == 1:
            whole = chain([first], rows)
            return ImageCsvColumns(images[0], others[0], splits[0] if splits else None, len(head), whole)
    if image is not None and first:
        flags = [(name, i) for i, name in enumerate(head) if i not in (image, at["split"]) and _fold(name)]
        sample = list(islice(rows, _SAMPLE_LINES))
        whole = chain(sample, rows)
        names = {name for name, _ in flags} - {kind.name, "filename", "split"}
        distinct = len(names) == len(flags) > 1 and all(map(is_utf8_encodable, names))
        if distinct and sample and all(_are_flags(fields, flags) for _, fields in sample):
            return ImageCsvColumns(image, image, at["split"], len(head), whole, flags=tuple(flags))
        if len(flags) == 1 and _are_classes(
            [fields[flags[0][1]] for _, fields in sample if len(fields) == len(head)]
        ):
            guess = f"`{flags[0][0]}` is the class: the only other column"
            return ImageCsvColumns(image, flags[0][1], at["split"], len(head), whole, guess=guess)
    missing = kind.name if image is None else "label"
    raise unreadable_csv_error(
        path,
        f"has no {missing} column",
        expected=f"a header with {' or '.join(aliases['image' if image is None else 'label'][:2])}",
        found=_preview_header(head),
        do=f'name the column of the {kind.plural if image is None else "labels"}: {missing}="…"',
        kind=kind,
    )


def _argument(role: str, kind: FileKind) -> str:
    """The argument that names a column."""
    return kind.name if role == "image" else role


def _are_classes(values: list[str]) -> bool:
    """Whether values are those of several rows each, and not measurements."""
    return 2 * len(set(values)) <= len(values) and not _are_measurements(values)


def _are_measurements(values: list[str]) -> bool:
    """Whether all values are numbers, and some of them are not integers: 0.25, but not 1.0."""
    decimals = [re.fullmatch(r"[-+]?\d*(?:\.(\d*))?(?:[eE][-+]?\d+)?", one.strip()) for one in values]
    return bool(values) and all(decimals) and any((one[1] or "").strip("0") for one in decimals if one)


def _are_flags(fields: list[str], flags: Sequence[tuple[str, int]]) -> bool:
    return all(i < len(fields) and fields[i] in ("0", "1") for _, i in flags)


def _preview_header(head: list[str]) -> str:
    return "the columns " + preview(", ".join([to_printable_path(name) for name in head])) if head else "no header"


def unreadable_csv_error(
    path: str,
    what: str,
    *,
    found: str,
    expected: str = "a CSV with a header, and a line per image",
    do: str = "save it as CSV in UTF-8, with the columns image and label",
    line: int | None = None,
    kind: FileKind = IMAGE_FILES,
) -> RekordError:
    name = join_path("", path)
    return error(
        "X528",
        f"list of {kind.plural} {what}",
        location=Location(path=name, line=line),
        expected=expected,
        found=found,
        do=do,
    )


_SAMPLE_LINES = 1000
_MAX_NUMERIC_CLASSES = 1 << 16
_FILE_KINDS = (IMAGE_FILES, AUDIO_FILES, VIDEO_FILES)
_LINE_BITS = 40  # of a position; those above count the rows of a line, if its file has several
_MAX_TRIED = 50  # images that are looked up, or folders


@check_keywords
def image_csv(
    path: str | os.PathLike[str],
    *,
    image: str | None = None,
    label: str | None = None,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    text: bool | None = None,
) -> ImageCsvSource:
    """Images listed in a CSV or text file, one row per line, with their class and optionally their split.

    `image`, `label` and `split` name columns; by default the header is searched for the usual names (image, path,
    filename, …; label, class, …; split, set, subset). A file without a header is accepted if its first line has the
    name of an image, one other field, and optionally a split. A line of a text file is an image and its class,
    separated by a comma, a tab or spaces. `path` may be a folder whose lists are named after their splits, or are in
    folders of these names: `train.txt` and `val.txt`, or `train/gt.txt`.

    Paths are relative to `root`, to the folder of the list, or to a folder of images next to it, and may lack their
    extension. If none of them exists, leading folders that all of them share are dropped, as many as needed.

    Class ids follow the byte order of the names. Labels that are all integers, starting at 0 or 1, keep their order,
    and integers between that no line has are classes too. `classes` gives the names by id instead; by default they
    are read from `synsets.txt`, `classes.txt`, `labels.txt` or the like next to the list.

    Two kinds of lists are tables, with the columns `image` and `filename`. One has a text per image (in quotes, in a
    column named text, caption or the like, or with `text=True`), in the column `text`. The other has a column of 0
    and 1 for each of several classes; these columns keep their names.
    """
    columns = check_list_options({"image": image, "label": label, "split": split}, text)
    return ImageCsvSource(
        as_path("path", path),
        columns,
        None if root is None else as_path("root", root),
        class_names(classes),
        text,
    )


def check_list_options(columns: Mapping[str, str | None], text: bool | None) -> tuple[tuple[str, str | None], ...]:
    """The columns by role, "image" for the file of any kind; UsageError for anything but column names."""
    for name, column in columns.items():
        if column is not None and not isinstance(column, str):
            raise invalid(name, column, "a column name", f'{name}="…"')
    if text not in (None, True, False):
        raise invalid("text", text, "True, False, or None to decide by the data", "text=True")
    return tuple(zip(("image", "label", "split"), columns.values(), strict=True))


def recognize_image_list(path: str, head: bytes | None = None, kind: FileKind = IMAGE_FILES) -> bool:
    """Whether `image_csv` reads a file or a folder: lists of images that exist, with classes, texts or flags.

    `head` is the beginning of the file, if it was already read.
    """
    if head is None and raw_files.isdir(path):
        with suppress(RekordError):
            return bool(_find_lists(path, kind)[0])
        return False
    return _read_sample(path, head, kind) is not None


def _read_sample(path: str, head: bytes | None, kind: FileKind) -> list[_ImageCsvLine] | None:
    """The first lines of a list of images; None if the file is not one, or none of its images exists."""
    text, is_cut = read_list_head(path, head)
    if not text or recognize_boxes_csv(path, text.encode("utf-8", "surrogateescape")):
        return None
    lines: list[_ImageCsvLine] = []
    try:
        rows = ImageCsvReader(path, kind).rows(io.StringIO(text, newline=""))
        found = find_columns(path, {"image": None, "label": None, "split": None}, rows, kind)
        for i, row in enumerate(islice(found.rows, _SAMPLE_LINES)):
            lines.append(_parse_line(i, *row, found))
    except RekordError:
        if not (is_cut and lines):  # else the head may end in a quoted field
            return None
    good = [line for line in lines if line.code is None]
    if 2 * len(good) <= len(lines):
        return None
    if (
        not found.flags
        and path.lower().endswith(TEXT_EXTENSIONS)
        and not _is_target([one.label for one in good], kind)
    ):
        return None
    if not found.flags and _are_measurements([one.label for one in good if one.label]):
        return None
    names = [line.image for line in good]
    if any(other.is_name(name) for other in _FILE_KINDS if other is not kind for name in names[:_MAX_TRIED]):
        return None
    base, left_off = find_base(names, candidate_image_folders(path, kind), kind)
    tried = [strip_folders(name, left_off) for name in names[:_MAX_TRIED]]
    exist = sum([stat_listed(base, name, kind) is not None for name in tried])
    # Any word may be the name of a file: without extensions, most of them must be.
    return lines if exist and (any(map(kind.is_name, tried)) or 2 * exist > len(tried)) else None


def _is_target(values: Sequence[str | None], kind: FileKind) -> bool:
    """Whether the rest of lines is a class or a text: not another image, and not several numbers."""
    known = [value for value in values if value]
    return bool(known) and not any(kind.is_name(one) for one in known) and not all(map(_has_numbers, known))


def _has_numbers(value: str) -> bool:
    """Whether a text is several numbers and at most one other word, such as a box and its class."""
    words = re.split(r"[\s,;|]+", value)
    numbers = [word for word in words if re.fullmatch(r"[-+]?\d[\d.]*", word)]
    return len(numbers) > 1 and len(words) - len(numbers) < 2


def _find_lists(folder: str, kind: FileKind) -> tuple[dict[str, str | None], str | None]:
    """The lists in a folder by path, with their splits, and another one that lists the same as the only list.

    There are none if several are not one per split.
    """
    found = find_lists(folder, partial(recognize_image_list, kind=kind))
    if len(found) < 2 or None not in found.values():
        return found, None
    samples = [_read_sample(os.path.join(folder, path), None, kind) or [] for path in found]
    same = {frozenset((strip_image_extension(one.image), one.label, one.flags) for one in lines) for lines in samples}
    if len(same) > 1 or len(found) > 2 or len(samples[0]) >= _SAMPLE_LINES:
        return {}, None
    first, other = found
    return {first: None}, other


class _ImageCsvLine(NamedTuple):
    """A row of a list; `code` is the error of a bad one, `detail` a value in its message."""

    position: int
    line: int
    image: str
    label: str | None
    split: str | None
    code: str | None = None
    detail: Any = None
    flags: tuple[int, ...] = ()
    list: str = ""  # the path of its file, below the root


@dataclass(frozen=True)
class ImageCsvSource(ListingSource):
    path: str
    columns: tuple[tuple[str, str | None], ...]
    images: str | None
    classes: tuple[str, ...] | None
    text: bool | None = None

    kind = "image_csv"
    files: ClassVar[FileKind] = IMAGE_FILES

    @property
    def root(self) -> str:
        return self.path if raw_files.isdir(self.path) else os.path.dirname(self.path) or "."

    def options(self) -> Mapping[str, Any]:
        return {
            **dict(self.columns),
            "rooted": self.images is not None,
            "classes": None if self.classes is None else list(self.classes),
            **({} if self.text is None else {"text": self.text}),
        }

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        root = raw_files.to_path(self.images or self.root)
        names, lines = part.content
        for line in lines:
            where = to_printable_path(line.list), line.position
            if line.code is not None:
                yield SourceRow(*where, self._row_error(line), line.line)
                continue
            # A table has a text, or a column per class.
            known = dict(zip(names or ("label",), line.flags or (line.label,), strict=True))
            if line.split is not None:
                known["split"] = line.split
            count = 0
            try:
                for count, values in enumerate(self.read_rows(root, line.image), 1):
                    yield SourceRow(
                        where[0], line.position + (count - 1 << _LINE_BITS), {**values, **known}, line.line
                    )
            except InvalidValue as refused:
                yield SourceRow(
                    where[0], line.position + (count << _LINE_BITS), refused.to_error(self.column), line.line
                )

    @property
    def column(self) -> str:
        """The column that errors of a file name."""
        return self.files.name

    def read_rows(self, root: PurePath, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a listed file: usually one. Raises InvalidValue."""
        yield {"image": root / name, "filename": name}

    def build_schema(self, target: Mapping[str, Feature], paths: Sequence[str]) -> Schema | None:
        """The schema of the rows with these labels, texts or flags; None if a layout has one for them."""
        if any(feature.is_label for feature in target.values()) or not target:
            return None
        return Schema({"image": Image(), "filename": Text(), **target})

    def _list(self) -> SourceListing:
        """Read the lists, and look up every file."""
        if raw_files.isdir(self.path):
            lists, other = _find_lists(self.path, self.files)
            if not lists:
                raise self._no_lists_error()
        else:
            lists, other = {os.path.basename(self.path): None}, None
        root = self.images or self.root
        lines: list[_ImageCsvLine] = []
        files: list[SourceFile] = []
        unused: list[UnusedInput] = []
        guesses: list[SourceGuess] = []
        if other is not None:
            guesses.append(SourceGuess(None, f"{other} lists the same images as {next(iter(lists))}"))
        kinds: dict[tuple[bool, tuple[str, ...]], str] = {}
        for name, split in lists.items():
            path = os.path.join(self.root, name)
            with ImageCsvReader(path, self.files) as (own, rows):
                columns = find_columns(path, dict(self.columns), rows, self.files)
                found = [_parse_line(i, *row, columns) for i, row in enumerate(columns.rows)]
            if not found:
                raise unreadable_csv_error(path, "has no rows", found="only a header")
            files.append(own._replace(path=name.replace(os.sep, "/")))
            unused += [
                UnusedInput("column", one, f"neither {self.files.name}, class nor split")
                for one in columns.unused
                if one
            ]
            unused = list(dict.fromkeys(unused))
            guesses += [SourceGuess("label", columns.guess, 'label="…"')] if columns.guess else []
            is_text, found = self._choose_target(path, columns, found, guesses)
            kinds[is_text, tuple([one for one, _ in columns.flags])] = path
            folders = [self.images] if self.images else candidate_image_folders(path, self.files)
            base, left_off = find_base([line.image for line in found if line.code is None], folders, self.files)
            if self.images is None and raw_files.normpath(base) != raw_files.normpath(os.path.dirname(path) or "."):
                what = f"{self.files.plural} are in {to_printable_path(relative_path(self.root, base))}"
                guesses.append(SourceGuess(self.files.name, what, "root=…"))
            below = relative_path(root, base)
            prefix = "" if below == "." else f"{below}/"
            for line in found:
                if line.code is None:
                    line = line._replace(image=prefix + strip_folders(line.image, left_off))
                lines.append(line._replace(split=line.split or split, list=name.replace(os.sep, "/")))
        if len(kinds) > 1:
            raise unreadable_csv_error(
                list(kinds.values())[1], "differs from the others", found="other columns than in another list"
            )
        (is_text, flags), _ = kinds.popitem()
        sizes, images = self._find_files(lines, root, is_text)
        files += images
        is_table = is_text or bool(flags)
        classes = None if is_table else self._name_classes(lines, files, unused, guesses)
        unused += self._find_unlisted(images, files)
        labels = {line.label for line in lines if line.label is not None}
        classes = None if is_table else classes or _order_classes(labels) or None
        target: dict[str, Feature] = {name: Int64() for name in flags} or ({"text": Text()} if is_text else {})
        if classes:
            target["label"] = Label(classes)
        schema = self.build_schema(target, [os.path.join(root, image.path) for image in images])
        facts = SourceFacts(
            layout="table" if schema else "classification",
            schema=schema,
            classes=classes,
            rows=len(lines),
            source_bytes=sum(sizes),
            splits=sort_splits({line.split for line in lines if line.split is not None}) or None,
            files=fingerprint(files),
            unused=tuple(unused),
            guesses=tuple(guesses),
            extra={} if is_table else {"labels": bool(labels)},
        )
        names = flags if flags else ("text",) if is_text else ()
        return SourceListing(facts, list(zip(lines, sizes, strict=True)), names)

    def _find_files(self, lines: list[_ImageCsvLine], root: str, is_text: bool) -> tuple[list[int], list[SourceFile]]:
        """Look up the files of all lines: their sizes, and the files. Lines without a file become bad rows."""
        sizes: list[int] = []
        files: list[SourceFile] = []
        first: dict[Any, str] = {}
        for i, line in enumerate(lines):
            found = None if line.code is not None else stat_listed(root, line.image, self.files)
            sizes.append(0 if found is None else found[1].st_size)
            if line.code is not None:
                continue
            if found is None:
                lines[i] = line._replace(code="E360")
                continue
            path, facts = found
            lines[i] = line = line._replace(image=path)
            # An image may have several texts, but not one of them twice.
            identity = (raw_files.normpath(path), line.label if is_text else None)
            where = f"{line.line:,}" if line.list == lines[0].list else f"{line.line:,} of {line.list}"
            earlier = first.setdefault(identity, where)
            if earlier != where:
                lines[i] = line._replace(code="E362", detail=earlier)
            else:
                files.append(SourceFile(path, facts.st_size, facts.st_mtime_ns))
        return sizes, files

    def _choose_target(
        self, path: str, columns: ImageCsvColumns, lines: list[_ImageCsvLine], guesses: list[SourceGuess]
    ) -> tuple[bool, list[_ImageCsvLine]]:
        """Whether the field of the label is a text, and the lines with texts without quotes."""
        if columns.flags:
            return False, lines
        values = [line.label for line in lines if line.label]
        quoted = path.lower().endswith(TEXT_EXTENSIONS) and values and all(one.startswith('"') for one in values)
        if quoted:
            lines = [line if line.label is None else line._replace(label=_unquote(line.label)) for line in lines]
        if self.text is not None or columns.is_text or quoted:
            return columns.is_text or bool(quoted) if self.text is None else self.text, lines
        if dict(self.columns)["label"] is not None:
            return False, lines
        if _are_measurements(values):
            raise unreadable_csv_error(
                path,
                "has numbers that are not classes",
                expected="classes: names, or integers",
                found=preview(values[0]),
                kind=self.files,
                do='layout="table" for a table of numbers without images, or label="…" if each number is a class',
            )
        if not path.lower().endswith(TEXT_EXTENSIONS):
            return False, lines
        distinct = set(values)
        are_ids = all(INTEGER_PATTERN.fullmatch(value) for value in distinct)
        if are_ids or 2 * len(distinct) <= len(values) or distinct <= set(self._find_class_names(path)[0]):
            return False, lines
        if not _is_target(values, self.files):
            raise unreadable_csv_error(
                path,
                "has no class or text after the images",
                expected="an image and its class on each line",
                found=preview(values[0]),
                do="rk.sources.boxes_csv(path) for boxes, rk.sources.segmentation(path) for masks",
            )
        raise unreadable_csv_error(
            path,
            "has classes or texts, which cannot be distinguished",
            expected="classes that several images have, or texts in quotes",
            found=f"{len(distinct):,} different values in {len(values):,} lines",
            do="rk.sources.image_csv(path, text=False) for classes, text=True for texts",
        )

    def _find_class_names(self, path: str) -> tuple[tuple[str, ...], str | None]:
        if self.classes is not None:
            return self.classes, None
        return find_class_names([os.path.dirname(path) or ".", self.root])

    def _name_classes(
        self,
        lines: list[_ImageCsvLine],
        files: list[SourceFile],
        unused: list[UnusedInput],
        guesses: list[SourceGuess],
    ) -> tuple[str, ...] | None:
        """The classes by id, given or from a file of names; labels that are ids become names."""
        labels = {line.label for line in lines if line.label is not None}
        names, path = self._find_class_names(os.path.join(self.root, lines[0].list))
        if not names or not labels:
            return self.classes
        shown = "" if path is None else relative_path(self.root, path)
        if not labels <= set(names):
            first = first_class_id(labels, len(names))
            if first is None:
                if path is not None:
                    reason = f"does not name the classes of the list: {len(names):,} names"
                    unused.append(UnusedInput("file", shown, reason))
                return self.classes
            for i, line in enumerate(lines):
                if line.label is not None:
                    lines[i] = line._replace(label=names[int(line.label) - first])
            if "0" not in labels:
                what = f"ids of the {len(names):,} class names start at {first}: no line has the id 0"
                guesses.append(SourceGuess("label", what))
        if path is not None:
            guesses.append(SourceGuess("label", f"class names are those of {shown}", "classes=[…]"))
            facts = stat_file(path)
            if facts is not None:
                files.append(SourceFile(shown, facts.st_size, facts.st_mtime_ns))
        return names

    def _find_unlisted(self, images: Sequence[SourceFile], files: Iterable[SourceFile]) -> list[UnusedInput]:
        """The images and lists next to those that are used."""
        root = self.images or self.root
        listed = {raw_files.normpath(file.path) for file in images}
        folders = Counter(os.path.dirname(path) for path in listed)
        unused = []
        for folder in sorted(folders)[:_MAX_TRIED]:
            with suppress(OSError), raw_files.scandir(os.path.join(root, folder)) as entries:
                names = [entry.name for entry in entries if self.files.is_name(entry.name)]
                more = sum([raw_files.normpath(os.path.join(folder, name)) not in listed for name in names])
                if more:
                    what = os.path.join(to_printable_path(folder), "*")
                    unused.append(UnusedInput("file", what, f"{more:,} {self.files.plural} that no list names"))
        if raw_files.isdir(self.path):
            known = {file.path for file in files}
            for name in sorted(raw_files.listdir(self.path), key=os.fsencode)[:_SAMPLE_LINES]:
                if (
                    name not in known
                    and raw_files.isfile(os.path.join(self.path, name))
                    and not self.files.is_name(name)
                ):
                    unused.append(UnusedInput("file", to_printable_path(name), "not a list that is read"))
        return unused

    def _no_lists_error(self) -> RekordError:
        return unreadable_csv_error(
            self.path,
            "cannot be determined",
            expected="one list of images, or one per split: train.txt, val.txt, test.txt",
            found="no such lists, or several without the name of a split",
            do="pass the list itself, such as labels.csv",
        )

    def _row_error(self, line: _ImageCsvLine) -> RekordError:
        name = self.files.name
        below = "the folder of the list" if self.images is None else to_printable_path(self.images)
        what, feature, expected, found, do = {
            "no image": (f"line has no {name}", name, "a path", "nothing", "fix or remove the line"),
            "E360": (
                f"listed {name} does not exist",
                name,
                f"a file below {below}",
                f"no file {preview(line.image)}",
                "fix the path, or pass the folder that the paths are relative to: root=…",
            ),
            "E356": (
                "column of a class is neither 0 nor 1",
                line.detail,
                "0 or 1",
                preview(line.label),
                "fix the line",
            ),
            "E361": ("line has no label", "label", "a class", line.detail, "add a label to the line, or remove it"),
            "E362": (
                f"lines {line.detail} and {line.line:,} list the same {name}",
                name,
                f"each {name} once",
                preview(line.image),
                "remove one of the two lines: it would be in the dataset twice",
            ),
            "E318": (
                "line is not UTF-8",
                name if line.detail == "image" else line.detail,
                "UTF-8",
                "other bytes",
                "save the file as UTF-8",
            ),
        }["no image" if line.code == "E360" and not line.image else line.code or ""]
        where = Location(path=join_path(self.root, line.list), line=line.line, feature=feature)
        return error(line.code or "", what, location=where, expected=expected, found=found, do=do)


def _unquote(text: str) -> str:
    """A text without its quotes; a backslash escapes a quote."""
    inner = text[1:].removesuffix('"')
    return re.sub(r'\\(["\\])', r"\1", inner)


def _parse_line(position: int, line: int, fields: list[str], columns: ImageCsvColumns) -> _ImageCsvLine:
    def field(at: int | None) -> str:
        return fields[at] if at is not None and at < len(fields) else ""

    image, label, split = field(columns.image), field(columns.label), field(columns.split)
    split = split.lower()
    odd = next(
        (n for n, v in (("image", image), ("label", label), ("split", split)) if not is_utf8_encodable(v)),
        None,
    )
    if odd is not None:
        return _ImageCsvLine(position, line, "", None, None, "E318", odd)
    if len(fields) > columns.width:
        # Usually a comma in a path: the label would be in another field.
        found = f"{len(fields)} fields; the first line has {columns.width}"
        return _ImageCsvLine(position, line, image, None, None, "E361", found)
    if not image:
        return _ImageCsvLine(position, line, "", None, None, "E360")
    if not label:
        return _ImageCsvLine(position, line, image, None, None, "E361", "nothing")
    if "\\" in image and "/" not in image:
        image = image.replace("\\", "/")
    if columns.flags:
        wrong = next(((name, field(at)) for name, at in columns.flags if field(at) not in ("0", "1")), None)
        if wrong is not None:
            return _ImageCsvLine(position, line, image, wrong[1], None, "E356", wrong[0])
        flags = tuple([int(field(at)) for _, at in columns.flags])
        return _ImageCsvLine(position, line, image, None, split or None, flags=flags)
    return _ImageCsvLine(position, line, image, label, split or None)


def _order_classes(labels: set[str]) -> tuple[str, ...]:
    """Classes by id. Integers that start at 0 or 1 are the ids."""
    if labels and all(INTEGER_PATTERN.fullmatch(label) for label in labels):
        numbers = sorted(map(int, labels))
        if numbers[0] <= 1 and numbers[-1] < _MAX_NUMERIC_CLASSES:
            return tuple([str(number) for number in range(numbers[0], numbers[-1] + 1)])
        return tuple(map(str, numbers))
    return tuple(sorted(labels, key=os.fsencode))

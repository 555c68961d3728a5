"""Deleting or relabelling selected records: the list, the command line and the Python that do it, and doing it.

Everything here writes a new dataset. A plan is a value: nothing is written before `EditRun` starts it. The verbs are
imported when an edit begins: a viewer opens faster without them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rekord.arguments import as_path, invalid, non_blank, one_of
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import has_manifest
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema import RecordKind
from rekord.storage.local import LOCAL, system_limit_error
from rekord.storage.publication import exists
from rekord.storage.router import is_remote
from rekord.storage.transaction import Staging
from rekord.viewer.selections import Record, Selection, save_record_list

if TYPE_CHECKING:
    from rekord.verbs.progress import ProgressStep

Action: TypeAlias = Literal["delete", "relabel"]

MAX_INLINE_RECORDS = 20
"""So many records are written out in Python; longer lists are read from their file."""
MAX_CONDITION_TERMS = 1000
"""Longer conditions exceed what a command line may hold on some systems."""
MAX_CLASSES = 10_000

_PLAIN_NAME = re.compile(r"[\w.+-]+")
_MAX_NAMES = 1000
_LISTED_NAMES = 12


@dataclass(frozen=True, slots=True)
class Command:
    """One way to do it: lines for a shell, run in order, and the same in Python. `note` says what differs."""

    shell: str
    python: str
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"command": self.shell, "python": self.python, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class EditPlan:
    """An edit of selected records.

    `commands` are alternatives, best first. They are empty if none can do it, and `refusal` is why. `file` is the
    list of records that the commands name, if it could be saved; `listing` is its content.
    """

    action: Action
    path: str
    out: str
    records: tuple[Record, ...]
    column: str | None = None
    label: str | int | None = None
    listing: str
    extension: str
    file: str | None
    commands: tuple[Command, ...]
    refusal: RekordError | None = None
    kind: RecordKind | None = None
    digests: Mapping[str, str] | None = None
    is_dataset: bool

    @property
    def can_run(self) -> bool:
        """Whether one step does it, so that `EditRun` can."""
        return self.is_dataset or (self.action == "delete" and format_condition(self.records) is not None)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON document."""
        first = self.commands[0] if self.commands else None
        return {
            "action": self.action,
            "count": len(self.records),
            "out": _to_text(self.out),
            "csv": self.listing,
            "csv_name": f"{_to_text(os.path.basename(self.out))}{self.extension}",
            "file": None if self.file is None else _to_text(self.file),
            "command": None if first is None else first.shell,
            "python": None if first is None else first.python,
            "note": None if first is None else first.note,
            "can_run": self.can_run,
            "others": [one.to_dict() for one in self.commands[1:]],
            "error": None if self.refusal is None else self.refusal.to_dict(),
        }


def plan_edit(
    action: Action,
    path: str | os.PathLike[str],
    records: Iterable[Record],
    *,
    column: str | None = None,
    label: str | int | None = None,
    out: str | os.PathLike[str] | None = None,
    kind: RecordKind | None = None,
    digests: Mapping[str, str] | None = None,
) -> EditPlan:
    """How to delete some records of the dataset or files at `path`, or to set the class `label` of their `column`.

    The commands name absolute paths: they may be pasted in any folder. `digests` are those of the splits in which the
    records were selected: if `path` has other files by now, or always had, the numbers mean other records, and the
    edit is refused; so is a class that the column does not have.
    """
    one_of("action", action, ("delete", "relabel"))
    place = _absolute("path", path)
    chosen = tuple(sorted(set(records)))
    if not chosen:
        raise error("U605", "no records are selected", expected="at least one record", found="none")
    if action == "relabel":
        column, label = _check_label(column, label)
    target = suggest_output(place) if out is None else _absolute("out", out)
    is_dataset = has_manifest(place)
    listing, extension = format_records(chosen)
    file = save_record_list(listing, extension)
    words = _EditWords(action, place, target, chosen, column, label, kind, file, listing)
    refusal = None
    try:
        if digests is not None:
            with _open_unchanged(place, chosen, kind, digests) as dataset:
                if action == "relabel":
                    _check_class(dataset, str(column), label)
        commands = words.for_dataset() if is_dataset else words.for_files()
    except RekordError as failure:
        commands, refusal = (), failure
    return EditPlan(
        action=action,
        path=place,
        out=target,
        records=chosen,
        column=column,
        label=label,
        listing=listing,
        extension=extension,
        file=file,
        commands=commands,
        refusal=refusal,
        kind=kind,
        digests=digests,
        is_dataset=is_dataset,
    )


def format_records(records: Sequence[Record]) -> tuple[str, str]:
    """Records as a file for `--records`, and its extension: CSV, or JSON for split names that CSV could garble."""
    if all(_PLAIN_NAME.fullmatch(split) and split.isprintable() for split in {split for split, _ in records}):
        lines = "".join(f"{split},{record}\n" for split, record in records)
        return f"split,record\n{lines}", ".csv"
    return json.dumps([list(one) for one in records]) + "\n", ".json"


def format_selection(selection: Selection, tag: str | None = None) -> str:
    """A selection with its tags as CSV, for people and spreadsheets; `--records` reads it too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["split", "record", "tags"])
    for split, record in selection.with_tag(tag):
        writer.writerow([_to_text(split), record, ";".join(selection.tags[split, record])])
    return text.getvalue()


def suggest_output(path: str) -> str:
    """A free path for the new dataset: next to the old one, or in the working directory if that is remote."""
    folder, name = os.path.split(path.rstrip("/"))
    if re.fullmatch(r"\d+\.\d+\.\d+", name):  # a version of TFDS, in a folder with the dataset's name
        folder, name = os.path.split(folder)
    if is_remote(path) or any(mark in folder for mark in "*?["):
        folder = os.getcwd()
    stem = name.split("*")[0].split("?")[0].split("[")[0]
    stem = stem.removesuffix(".gz").removesuffix(".tfrecord").rstrip("-_.") or "dataset"
    base = os.path.join(folder, f"{stem}-curated")
    names = (base, *(f"{base}-{number}" for number in range(2, _MAX_NAMES)))
    return next((one for one in names if not os.path.lexists(one)), base)


def list_label_columns(dataset: Dataset) -> list[dict[str, Any]]:
    """The columns whose class can be set for single records, and their classes, None for plain numbers."""
    columns = []
    for name, feature in dataset.schema.context.items():
        if feature.value_kind == "int" and not feature.shape:
            names = feature.class_names
            classes = None if names is None else [str(one) for one in names[:MAX_CLASSES]]
            columns.append({"column": name, "classes": classes})
    return columns


@dataclass(frozen=True)
class _EditWords:
    """The words of the commands of an edit."""

    action: Action
    path: str
    out: str
    records: tuple[Record, ...]
    column: str | None
    label: str | int | None
    kind: RecordKind | None
    file: str | None
    listing: str

    def for_dataset(self) -> tuple[Command, ...]:
        """An edit of a dataset that rekord wrote or adopted."""
        return (Command(self._edit_line(self.path), _IMPORT + self._edit_call(self.path)),)

    def for_files(self) -> tuple[Command, ...]:
        """Files without a manifest can be filtered while they are copied, or become a dataset first."""
        if self.kind is not None and self.action == "relabel":
            raise _no_labels_error(self.path, self.kind)
        adopted = self._after_adoption()
        if self.action == "delete":
            return tuple(one for one in (self._rewrite(), adopted, self._after_copy()) if one is not None)
        return tuple(one for one in (self._after_copy(), adopted) if one is not None)

    def _rewrite(self) -> Command | None:
        condition = format_condition(self.records)
        if condition is None:
            return None
        kind = () if self.kind is None else ("--kind", self.kind)
        keyword = "" if self.kind is None else f", kind={self.kind!r}"
        shell = format_shell(["rekord", "rewrite", self.path, self.out, "--where", condition, *kind])
        call = f"rk.rewrite({self.path!r}, {self.out!r}, where={condition!r}{keyword})\n"
        return Command(shell, _IMPORT + call)

    def _after_adoption(self) -> Command | None:
        """Only folders can be adopted; the numbers of their records do not change."""
        if is_remote(self.path) or not os.path.isdir(self.path) or self.kind is not None:
            return None
        shell = f"{format_shell(['rekord', 'adopt', self.path])} &&\n{self._edit_line(self.path)}"
        python = f"{_IMPORT}rk.adopt({self.path!r})\n{self._edit_call(self.path)}"
        return Command(shell, python, "writes rekord.json and indexes next to the files, which are not changed")

    def _after_copy(self) -> Command | None:
        if self.kind is not None:
            return None
        copy = f"{self.out}-all"
        shell = f"{format_shell(['rekord', 'rewrite', self.path, copy])} &&\n{self._edit_line(copy)}"
        python = f"{_IMPORT}rk.rewrite({self.path!r}, {copy!r})\n{self._edit_call(copy)}"
        return Command(shell, python, f"copies all records to {_to_text(os.path.basename(copy))} first")

    def _edit_line(self, path: str) -> str:
        words = ["rekord", self.action, path, self.out]
        if self.action == "relabel":
            words += ["--set", f"{self.column}={self.label}"]
        if self.file is not None:
            return format_shell([*words, "--records", self.file])
        return f"{format_shell([*words, '--records', '/dev/stdin'])} <<'END'\n{self.listing}END"

    def _edit_call(self, path: str) -> str:
        inline = self.file is None or len(self.records) <= MAX_INLINE_RECORDS
        records = repr(list(self.records)) if inline else repr(self.file)
        change = "" if self.action == "delete" else f", {self.label!r}, column={self.column!r}"
        return f"rk.{self.action}({path!r}, {self.out!r}{change}, records={records})\n"


_IMPORT = "import rekord as rk\n\n"


def format_condition(records: Sequence[Record]) -> str | None:
    """An SQL condition that is true for all other records; None if it would be too long."""
    parts, terms = [], 0
    for split, group in groupby(sorted(records), key=lambda one: one[0]):
        if not split.isprintable():
            return None  # neither a shell nor DuckDB takes bytes that are not UTF-8
        ranges = _find_ranges([record for _, record in group])
        terms += len(ranges)
        single = [str(first) for first, last in ranges if first == last]
        tests = [f"_record between {first} and {last}" for first, last in ranges if first != last]
        if single:
            tests.insert(0, f"_record in ({', '.join(single)})")
        name = split.replace("'", "''")
        parts.append(f"_split = '{name}' and ({' or '.join(tests)})")
    return None if terms > MAX_CONDITION_TERMS else f"not ({' or '.join(parts)})"


def format_shell(words: Iterable[str]) -> str:
    """A command line for sh, bash and zsh; control characters and bytes that are not UTF-8 are escaped."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    # A raw escape character would control the terminal into which it is pasted.
    shown = "".join(
        letter
        if letter.isprintable() and letter not in "'\\"
        else "".join(f"\\{byte:03o}" for byte in os.fsencode(letter))
        for letter in word
    )
    return f"$'{shown}'"


def _absolute(name: str, path: object) -> str:
    place = as_path(name, path)
    try:
        os.fsencode(place)
    except UnicodeEncodeError:  # from a browser: half a character
        raise invalid(name, place, "a path", f'{name}="data/new"') from None
    return place if is_remote(place) else os.path.abspath(place)


def _to_text(text: str) -> str:
    """A path for JSON, which must be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _find_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as inclusive ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _check_label(column: Any, label: Any) -> tuple[str, str | int]:
    column = non_blank("column", column, expected="a column with classes", do='column="label"')
    if isinstance(label, bool) or not isinstance(label, (str, int)) or label == "":
        raise invalid("label", label, "the name of a class, or its id", 'label="tulip"')
    if "=" in column:
        raise error(
            "U605",
            "`--set` cannot name a column with an equals sign",
            location=Location(feature=column),
            expected="a column without `=`",
            found=preview(column),
            do=f"rk.relabel(path, out, {preview(label)}, column={preview(column)}, records=[…])",
        )
    return column, label


def _open_unchanged(
    path: str, records: Sequence[Record], kind: RecordKind | None, digests: Mapping[str, str]
) -> Dataset:
    """The dataset at `path`, if it has the files in which the records were selected."""
    dataset = open_dataset(path, kind=kind)
    for name in dict(records):
        now = dataset.splits.get(name)
        if now is None or now.digest() != digests.get(name):
            dataset.close()
            raise error(
                "X570",
                "records were selected in other files",
                location=Location(path=path),
                expected=f"the files of `{name[:60]}` that are shown",
                found="another split of this name" if now is not None else "no split of this name",
                do="open the viewer again, and select the records again",
            )
    return dataset


def _check_class(dataset: Dataset, column: str, label: str | int | None) -> None:
    """Refuse a column that has no class per record, and a class that it does not have."""
    known = {one["column"]: one["classes"] for one in list_label_columns(dataset)}
    if column not in known:
        raise error(
            "U606",
            f"`{column[:60]}` does not hold one class per record",
            location=Location(feature=column),
            expected=f"one of {', '.join(f'`{name[:60]}`' for name in list(known)[:8])}" if known else "a Label",
            found=preview(column),
        )
    names = known[column]
    is_id = str(label).lstrip("-").isdigit()
    if label in (names or ()) or (is_id and (names is None or 0 <= int(str(label)) < len(names))):
        return
    near = closest_match(str(label), names or ())
    raise error(
        "U606",
        f"`{column[:60]}` has no class {preview(label)}",
        location=Location(feature=column),
        expected=f"{_list_names(names)}, or an id from 0 to {len(names) - 1:,}" if names else "an integer",
        found=preview(label),
        do=f"did you mean {preview(near)}?" if near else None,
    )


def _list_names(names: Sequence[str]) -> str:
    if len(names) > _LISTED_NAMES:
        return f"one of {len(names):,} names"
    return "one of " + ", ".join(f"`{name[:40]}`" for name in names)


def _no_labels_error(path: str, kind: str) -> RekordError:
    return error(
        "U651",
        "payloads that are not parsed have no labels",
        location=Location(path=path),
        expected="records with a column of classes",
        found=f"kind={kind!r}",
        do="open the files without kind=",
    )


State: TypeAlias = Literal["waiting", "running", "done", "failed"]


class EditRun:
    """Runs a plan on a thread of its own. It cannot be stopped; a run that dies is resumed by its command.

    `EditRun(plan).start()` returns at once, and `status()` says how far it is.
    """

    def __init__(self, plan: EditPlan) -> None:
        if plan.refusal is not None:
            raise plan.refusal
        if not plan.can_run:
            raise error(
                "U651",
                "files without a manifest need two steps for this edit",
                location=Location(path=plan.path),
                expected="a folder with a rekord.json",
                found="no rekord.json",
                do=plan.commands[0].shell,
            )
        self.plan = plan
        self._state: State = "waiting"
        self._failure: dict[str, Any] | None = None
        self._result: dict[str, Any] | None = None
        self._step: ProgressStep | None = None
        # Not waited for at exit: what is written appears only when it is complete.
        self._thread = threading.Thread(target=self._run, name="rekord edit", daemon=True)

    def start(self) -> EditRun:
        """Begin; an output that exists is refused here, before anything is written."""
        check_output(self.plan.out)
        self._state = "running"
        self._thread.start()
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it ended; returns whether it did."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        """The state as a JSON document: progress while it runs, then the result or the error."""
        share, words = None, ""
        step = self._step
        if step is not None and self._state == "running":
            from rekord.conversion.tasks import sum_progress

            now = sum_progress(step.folder)
            words = step.words(now, time.monotonic() - step.began)
            share = min(1.0, step.done(now) / step.total) if step.total else None
        return {
            "state": self._state,
            "action": self.plan.action,
            "out": _to_text(self.plan.out),
            "share": share,
            "progress": words,
            "result": self._result,
            "error": self._failure,
        }

    def phase(self, name: str, staging: Staging, total: int | None) -> None:
        """Writing begins."""
        from rekord.conversion.tasks import sum_progress
        from rekord.verbs.progress import ProgressStep

        self._step = ProgressStep(name, staging.folder, total, sum_progress(staging.folder), time.monotonic())

    def _run(self) -> None:
        try:
            self._result = self._edit()
            self._state = "done"
        except RekordError as failure:
            self._failure, self._state = failure.to_dict(), "failed"
        except Exception as failure:  # a thread must not end without a trace
            unexpected = error("U605", f"edit failed: {preview(str(failure))}", found=type(failure).__name__)
            self._failure, self._state = (system_limit_error(failure) or unexpected).to_dict(), "failed"

    def _edit(self) -> dict[str, Any]:
        from rekord.verbs.edit.change import delete_records, relabel_records
        from rekord.verbs.edit.common import EditTarget
        from rekord.verbs.options import DeleteOptions, RelabelOptions, resolve_worker_count

        plan = self.plan
        if plan.digests is not None:
            _open_unchanged(plan.path, plan.records, plan.kind, plan.digests).close()
        if not plan.is_dataset:
            return self._filter_files()
        target = EditTarget(out=plan.out, workers=resolve_worker_count(None), watch=self)
        if plan.action == "delete":
            done = delete_records(plan.path, target, DeleteOptions(records=plan.records))
            return done.to_dict("deleted")
        options = RelabelOptions(records=plan.records, column=plan.column)
        assert plan.label is not None
        return relabel_records(plan.path, target, plan.label, options).to_dict("relabelled")

    def _filter_files(self) -> dict[str, Any]:
        from rekord.verbs.options import RewriteOptions
        from rekord.verbs.rewrite import prepare_rewrite

        plan = self.plan
        condition = format_condition(plan.records)
        rewrite = prepare_rewrite([plan.path], plan.out, RewriteOptions(where=condition, kind=plan.kind))
        before = sum(len(split) for old in rewrite.olds for split in old.splits.values())
        manifest = rewrite.run(progress=False, watch=self).manifest
        splits = {name: {"records": part.records} for name, part in manifest.splits.items()}
        left = sum(part.records for part in manifest.splits.values())
        return {"dataset": plan.out, "splits": splits, "deleted": before - left, "notes": []}


def check_output(out: str) -> None:
    """Refuse an output that exists, even an empty folder."""
    if exists(LOCAL, out):
        raise error(
            "U618",
            "output exists already",
            location=Location(path=out),
            expected="a path where nothing exists",
            found="a file or a folder",
            do="choose another folder",
        )

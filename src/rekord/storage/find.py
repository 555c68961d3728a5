"""Which files are meant: a file, a folder or a pattern becomes a list of record files."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown
from rekord.storage.files import LOCAL, Entry, Stat, Storage
from rekord.storage.remote import CHECK_ADDRESS, is_remote

# Names that are always taken, damaged or not, so that damage is seen. Matched in lower case.
_RECORDS = re.compile(
    r"""
      (?: [._-]tfrecords? | \.records? | \.tfrecs? | \.tfr ) (?: \.gz | \.zz | \.zlib )? $
    | -\d{3,}-of-\d{3,} (?! \d )              # the shards of TensorFlow, TFDS, TFX and Beam
    | ^part-(?: [mr]- )?\d                    # Spark and Hadoop
    | ^events\.out\.tfevents                  # TensorBoard
    """,
    re.VERBOSE,
)

# Names that are never taken, whatever stands before the extension: `train-00000-of-00004.json` tells about
# a shard and is none.
_OTHERS = re.compile(
    r"""
    \. (?:
      jsonl? | ndjson | csv | tsv | txt | text | log | md | rst | html? | xml | ya?ml | toml | ini | cfg
    | pbtxt | prototxt | textproto | proto | pb | labels | names | vocab     # schemas and label maps
    | idx | index | tfindex | crc | md5 | sha1 | sha256 | done | lock        # what tools keep beside records
    | py | pyc | ipynb | sh | c | cc | cpp | h | java | js | ts | go | rs | r
    | parquet | orc | avro | arrows? | feather | np[yz] | h5 | hdf5 | mat | pkl | pickle | db | sqlite
    | tar | tgz | array_record | arrayrecord | riegeli | safetensors | ckpt | meta | pt | pth | zip | 7z | rar
    | jpe?g | png | gif | bmp | webp | tiff? | svg | pdf | wav | mp3 | flac | ogg | mp4 | avi | mov | mkv
    | tmp | temp | part | partial | crdownload | swp | bak                   # unfinished, or put aside
    )
    (?: \.gz | \.zz | \.zlib | \.bz2 | \.xz | \.zst )? $
    """,
    re.VERBOSE,
)
_CHECKPOINT = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-\d{5}$")
_MAGIC = re.compile(r"[*?[]")
_HIDDEN = (".", "_")
_SIBLINGS_LOOKED_AT = 10_000  # a hint must not cost more than the error that it is for


def find(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    looks_like_records: Callable[[str], bool],
    *,
    storage: Storage = LOCAL,
) -> list[str]:
    """The record files that `path` means, each once, sorted by the bytes of their paths.

    A file that is named is taken, whatever it is. Of a folder (searched to its depth) or a pattern (`*`,
    `?`, `[…]`, `**` for any number of folders), files with a record file's name are taken even if they are
    damaged, known companions never, and any other file only if `looks_like_records(path)`. Names that begin
    with `.` or `_` are passed over. Something that is there under the very name of a pattern wins over the
    pattern. A file that several paths reach is listed once; below one folder, by its own name, not a link's.
    """
    single = isinstance(path, str | bytes | os.PathLike)
    places: list[Any] = [path] if single or not isinstance(path, Iterable) else list(path)
    wrong = [place for place in places if not isinstance(place, str | bytes | os.PathLike)]
    if wrong:
        raise error(
            "U605",
            f"a path cannot be {shown(wrong[0])}",
            expected="the path of a file or folder, a pattern, or a list of them",
            found=type(wrong[0]).__name__,
            do="name a file, a folder or a pattern",
        )
    if not places:
        do = "name a file, a folder or a pattern"
        raise error("X502", "no path was given", found="an empty list", do=do)
    by_real: dict[str, str] = {}
    for place in places:
        for found, real in _Search(os.fsdecode(place), looks_like_records, storage).run():
            by_real.setdefault(real, found)
    return sorted(by_real.values(), key=os.fsencode)


def is_record_name(name: str) -> bool | None:
    """Whether a file of this name holds records: yes, no, or None where only its content can tell."""
    name = name.lower()
    if _OTHERS.search(name):
        return False
    return True if _RECORDS.search(name) else None


class _Search:
    """One place being searched: what was passed over, and which folders have been seen."""

    def __init__(self, place: str, looks_like_records: Callable[[str], bool], storage: Storage) -> None:
        self.place = place
        self.looks_like_records = looks_like_records
        self.storage = storage
        self.passed_over: Counter[str] = Counter()
        self.folders_seen: set[tuple[int, int]] = set()
        self.expanded: set[tuple[str, int]] = set()

    def run(self) -> list[tuple[str, str]]:
        """Every record file with its real path."""
        there = self._stat(self.place)
        if there is None and not _MAGIC.search(self.place):
            raise _missing(self.place, self.storage)
        if there is not None and there.kind != "folder":
            return [(self.place, self.storage.real(self.place))]
        found = list(self._folder(self.place) if there is not None else self._pattern())
        if not found:
            raise self._nothing(pattern=there is None)
        return found

    def _stat(self, path: str) -> Stat | None:
        try:
            return self.storage.stat(path)
        except DatasetError as failure:
            if failure.code == "X501":
                return None
            raise

    def _folder(self, root: str) -> Iterator[tuple[str, str]]:
        # Links wait until all that is really here has been seen, so that it goes by its own name. A folder
        # is entered once, so that links in a circle come to an end.
        linked_folders = deque([root])
        linked_files: list[tuple[str, str]] = []
        while linked_folders:
            folders = [linked_folders.popleft()]
            while folders:
                folder = folders.pop()
                identity = self.storage.stat(folder).identity
                if identity in self.folders_seen:
                    continue
                self.folders_seen.add(identity)
                entries = self.storage.list(folder)
                names = {entry.name for entry in entries}
                real = self.storage.real(folder)
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.kind == "folder" and not entry.name.startswith(_HIDDEN):
                        (linked_folders if entry.link else folders).append(path)
                    elif self._takes(path, entry, names):
                        if entry.link:
                            linked_files.append((path, self.storage.real(path)))
                        else:
                            yield path, os.path.join(real, entry.name)
        yield from linked_files

    def _takes(self, path: str, entry: Entry, beside: set[str], *, hidden: bool = False) -> bool:
        if entry.kind == "folder":
            return False
        verdict: bool | None = False
        if (hidden or not entry.name.startswith(_HIDDEN)) and entry.kind != "other":
            verdict = is_record_name(entry.name)
            checkpoint = _CHECKPOINT.match(entry.name)
            if verdict and checkpoint and f"{checkpoint['stem']}.index" in beside:
                verdict = False  # TensorFlow numbers the files of a checkpoint like shards
            if verdict is None:
                verdict = entry.kind == "file" and self.looks_like_records(path)
        if not verdict:
            self.passed_over[os.path.splitext(entry.name)[1] or "without extension"] += 1
        return bool(verdict)

    def _pattern(self) -> Iterator[tuple[str, str]]:
        root = _root(self.place)
        parts = [part for part in self.place[len(root) :].split("/") if part]
        if self.place.endswith("/"):
            parts.append("**")  # as in a shell, only folders match
        fixed = root
        for part in parts:
            if _MAGIC.search(part) and self._stat(os.path.join(fixed, part)) is None:
                break
            fixed = os.path.join(fixed, part)
        if fixed and self._stat(fixed) is None:
            raise _missing(fixed, self.storage)
        yield from self._expand(root, parts)

    def _expand(self, folder: str, parts: list[str]) -> Iterator[tuple[str, str]]:
        # Several `**` reach one folder in many ways; each is followed once.
        if (folder, len(parts)) in self.expanded:
            return
        self.expanded.add((folder, len(parts)))
        part, rest = parts[0], parts[1:]
        literal = os.path.join(folder, part)
        there = self._stat(literal)
        if there is not None and there.kind == "folder":
            yield from self._expand(literal, rest) if rest else self._folder(literal)
        elif there is None and part == "**" and not rest:
            yield from self._folder(folder or ".")
        elif there is None and part == "**":
            for below in self._folders_below(folder):
                yield from self._expand(below, rest)
        else:
            # What is not a pattern, or is there by this very name, matches itself alone.
            exact = there is not None or not _MAGIC.search(part)
            entries = self.storage.list(folder or ".")
            names = {entry.name for entry in entries}
            for entry in entries:
                if (part == entry.name) if exact else _matches(entry.name, part):
                    path = os.path.join(folder, entry.name)
                    if entry.kind == "folder":
                        yield from self._expand(path, rest) if rest else self._folder(path)
                    elif not rest and self._takes(path, entry, names, hidden=True):
                        yield path, self.storage.real(path)

    def _folders_below(self, top: str) -> Iterator[str]:
        seen: set[tuple[int, int]] = set()
        folders = [top]
        while folders:
            folder = folders.pop()
            identity = self.storage.stat(folder or ".").identity
            if identity in seen:
                continue
            seen.add(identity)
            yield folder
            for entry in self.storage.list(folder or "."):
                if entry.kind == "folder" and not entry.name.startswith(_HIDDEN):
                    folders.append(os.path.join(folder, entry.name))

    def _nothing(self, *, pattern: bool) -> RekordError:
        count = sum(self.passed_over.values())
        found = "no file matches" if pattern else "a folder without files"
        do = "name a folder that holds record files"
        if count:
            most_first = sorted(self.passed_over.items(), key=lambda kind: (-kind[1], kind[0]))
            kinds = ", ".join(f"{n:,} {extension}" for extension, n in most_first[:4])
            more = ", …" if len(most_first) > 4 else ""
            found = f"{count:,} file{'s' if count > 1 else ''} passed over: {kinds}{more}"
            do = "name the file itself, if one of them holds records; raw data first needs rekord write FOLDER OUT"
        return error(
            "X502",
            "no record files match" if pattern else None,
            location=Location(path=self.place),
            expected="a name such as x.tfrecord, x-00000-of-00004 or part-00000, or a record at the start",
            found=found,
            do=do,
        )


def _matches(name: str, pattern: str) -> bool:
    # As in a shell: a wildcard does not match a hidden name's first character, a written one does.
    if name.startswith(_HIDDEN) and not pattern.startswith(name[0]):
        return False
    return fnmatchcase(name, pattern)


def _missing(path: str, storage: Storage) -> RekordError:
    """X501 for a path, with the name that may have been meant."""
    root = _root(path)
    folder, name = _split(path, root)
    siblings: list[str] = []
    # The first name that is missing is the one to look at. Of a remote place nobody lists all that there is.
    while not is_remote(root) or folder != root:
        try:
            siblings = [entry.name for entry in storage.list(folder or ".")]
            break
        except DatasetError:
            if not folder or folder == "/":
                break
            folder, name = _split(folder, root)
    first_missing = os.path.join(folder, name)
    found = likely = None
    do = CHECK_ADDRESS if is_remote(path) else f"ls {shlex.quote(folder or '.')}"
    if name in siblings:
        whole = first_missing == path.rstrip("/")
        found = (
            "a link that leads nowhere" if whole else f"{first_missing} is no folder, or cannot be entered"
        )
        do = f"ls -ld {shlex.quote(first_missing)}"
    else:
        if first_missing != path.rstrip("/"):
            found = f"nothing at {first_missing} either"
        near = near_miss(name, sorted(siblings[:_SIBLINGS_LOOKED_AT]))
        if near is not None:
            likely = f"`{near}` is meant: it is there, and its name is nearly the same"
            do = f"use {shlex.quote(os.path.join(folder, near))}"
    return error("X501", location=Location(path=path), found=found, likely=likely, do=do)


def _root(path: str) -> str:
    """What a path begins with that is no name: `/`, or a scheme."""
    scheme, found, _ = path.partition("://")
    return scheme + found if is_remote(path) else "/" if path.startswith("/") else ""


def _split(path: str, root: str) -> tuple[str, str]:
    folder, name = os.path.split(path[len(root) :].rstrip("/"))
    return root + folder, name

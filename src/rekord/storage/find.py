"""From a file, a folder or a pattern to a list of record files.

Names decide. If no file is named like a record file, as in a folder that Ray wrote (`…_000000_000000.tar`), the first
bytes decide, of the files with an unknown kind of name.
"""

from __future__ import annotations

import os
import random
import re
import shlex
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rekord.errors import DatasetError, RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.storage.local import LOCAL, DirectoryEntry, SearchableStorage, Stat, read_up_to
from rekord.storage.publication import HIDDEN_FOLDER, check_finished
from rekord.storage.router import CHECK_ADDRESS_HINT, REMOTE, ROUTED_STORAGE, is_remote, map_concurrently

# Names that are always accepted, damaged or not, so that damage is noticed. Matched in lower case.
_RECORD_NAME = re.compile(
    r"""
      (?: [._-]tfrecords? (?: [_-][a-z0-9_-]+ | \.\d+ )?  # also data_tfrecord_eval, x.tfrecords.3
        | \.records? | \.tfrecs? | \.tfr ) (?: \.gz | \.zz | \.zlib )? $
    | -\d{3,}-of-\d{3,} (?! \d )              # the shards of TensorFlow, TFDS, TFX and Beam
    | ^part-(?: [mr]- )?\d                    # Spark and Hadoop
    | ^events\.out\.tfevents                  # TensorBoard
    """,
    re.VERBOSE,
)

# Names that are never accepted, whatever precedes the extension: `train-00000-of-00004.json` describes
# a shard and is not one.
_NON_RECORD_NAME = re.compile(
    r"""
    \. (?:
      jsonl? | ndjson | csv | tsv | txt | text | log | md | rst | html? | xml | ya?ml | toml | ini | cfg
    | pbtxt | prototxt | textproto | proto | pb | labels | names | vocab     # schemas and label maps
    | idx | index | tfindex | crc | md5 | sha1 | sha256 | done | lock        # what tools keep next to records
    | py | pyc | ipynb | sh | c | cc | cpp | h | java | js | ts | go | rs | r
    | parquet | orc | avro | arrows? | feather | np[yz] | h5 | hdf5 | mat | pkl | pickle | db | sqlite
    | array_record | arrayrecord | riegeli | safetensors | ckpt | meta | pt | pth | zip | 7z | rar
    | jpe?g | png | gif | bmp | webp | tiff? | svg | pdf | wav | mp3 | flac | ogg | mp4 | avi | mov | mkv
    | tmp | temp | part | partial | crdownload | swp | bak                   # unfinished, or backups
    )
    (?: \.gz | \.zz | \.zlib | \.bz2 | \.xz | \.zst )? $
    """,
    re.VERBOSE,
)

# Ray calls its record files `.tar`; others call tar archives `train-00000-of-00004.tar`. Only the content decides.
_TAR_NAME = re.compile(r"\. (?: tar | tgz ) (?: \.gz | \.zz | \.zlib | \.bz2 | \.xz | \.zst )? $", re.VERBOSE)
_CHECKPOINT_NAME = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-\d{5}$")
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_HIDDEN_PREFIXES = (".", "_")
_MAX_SIBLINGS = 10_000  # a hint must not cost more than its error

PROBE_BYTES = 4096
"""Bytes read from a file to recognise it: 12 are enough, unless they are compressed."""

MAX_PROBED = 1000
MAX_PROBED_REMOTE = 100
"""Number of files read to recognise them. If there are more, a sample decides for each extension."""

_MIN_FILE_BYTES = 12  # of a file with a record
_NUMBER = re.compile(r"\d+")

IsRecordHead = Callable[[bytes], bool]
"""Whether a file that begins with these bytes begins with a record."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The record files of some paths, sorted by the bytes of their paths.

    `skipped` are files with unknown kinds of names that were not read, because others are named like record files.
    """

    paths: list[str]
    skipped: list[str] = field(default_factory=list)


def resolve_record_files(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    begins_with_a_record: IsRecordHead,
    *,
    storage: SearchableStorage = LOCAL,
) -> FoundFiles:
    """The record files of `path`, each once.

    A file given by its path is always included. Of a folder (searched recursively) or a pattern (`*`, `?`, `[…]`,
    `**` for any number of folders), files named like record files are included even if they are damaged, and known
    companions never. If no file has such a name, files with an unknown kind of name are included if they begin with
    a record. Names that begin with `.` or `_` are skipped. A path that exists is not a pattern. A file that is
    reached several times is listed once; below one folder, by its own name rather than that of a link.
    """
    single = isinstance(path, str | bytes | os.PathLike)
    places: list[Any] = [path] if single or not isinstance(path, Iterable) else list(path)
    wrong = [place for place in places if not isinstance(place, str | bytes | os.PathLike)]
    if wrong:
        raise error(
            "U605",
            f"`path` cannot be {preview(wrong[0])}",
            expected="the path of a file or folder, a pattern, or a list of them",
            found=type(wrong[0]).__name__,
            do="use the path of a file or folder, or a pattern",
        )
    if not places:
        do = "use the path of a file or folder, or a pattern"
        raise error("X502", "no path given", found="an empty list", do=do)
    by_real: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for place in places:
        search = _Search(os.fsdecode(place), begins_with_a_record, storage)
        for one in search.run():
            by_real.setdefault(one.real, one.path)
        skipped.update({one.real: one.path for one in search.skipped})
    left = [path for real, path in skipped.items() if real not in by_real]
    return FoundFiles(sorted(by_real.values(), key=os.fsencode), sorted(left, key=os.fsencode))


def filter_record_files(
    paths: Sequence[str], begins_with_a_record: IsRecordHead, *, storage: SearchableStorage = LOCAL
) -> list[str]:
    """The files that begin with a record, among those that are read: of very many, not all are."""
    paths = paths[: _max_probed(paths[0])] if paths else paths
    heads = _read_heads(paths, storage)
    return [path for path, head in zip(paths, heads, strict=True) if head and begins_with_a_record(head)]


def is_record_name(name: str) -> bool | None:
    """Whether a file of this name holds records; None if only its content can decide."""
    name = name.lower()
    if _NON_RECORD_NAME.search(name):
        return False
    return True if _RECORD_NAME.search(name) and not _TAR_NAME.search(name) else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that was found, and its real path; `is_record` follows from its name, or is None if content decides."""

    path: str
    real: str
    is_record: bool | None = True
    size_bytes: int | None = None


class _Search:
    """The search of one path: what was skipped, and which folders were visited."""

    def __init__(self, place: str, begins_with_a_record: IsRecordHead, storage: SearchableStorage) -> None:
        self.place = place
        self.begins_with_a_record = begins_with_a_record
        self.storage = storage
        self.skipped: list[_Candidate] = []
        self.skipped_extensions: Counter[str] = Counter()
        self.visited_folders: set[tuple[int, int]] = set()
        self.expanded: set[tuple[str, int]] = set()

    def run(self) -> list[_Candidate]:
        """Every record file."""
        there = self._stat(self.place)
        if there is None and not _GLOB_CHARACTERS.search(self.place):
            raise _not_found_error(self.place, self.storage)
        if there is not None and there.kind != "folder":
            return [_Candidate(self.place, self.storage.real(self.place))]
        reached = list(self._folder(self.place) if there is not None else self._pattern())
        found = [one for one in reached if one.is_record]
        unexplained = [one for one in reached if one.is_record is None]
        if found:
            self.skipped = list(filter(_is_large_enough, unexplained))
        else:
            found = self._by_content(unexplained)
        if not found:
            raise self._nothing(pattern=there is None)
        return found

    def _by_content(self, unexplained: Sequence[_Candidate]) -> list[_Candidate]:
        """The files that begin with a record; if there are too many to read, by a sample of each extension."""
        large = list(filter(_is_large_enough, unexplained))
        alike: dict[str, list[_Candidate]] = defaultdict(list)
        for one in sorted(large, key=lambda one: os.fsencode(one.path)):
            alike[_NUMBER.sub("#", _file_extension(one.path))].append(one)
        most = _max_probed(self.place)
        quota = len(large) if len(large) <= most else most // len(alike)
        if alike and not quota:
            raise self._undecided_error(large, f"{len(alike):,} different extensions")
        found: list[_Candidate] = []
        for ending, files in alike.items():
            # A random sample with a fixed seed: every tenth file may be special for a reason.
            sample = files if len(files) <= quota else random.Random(0).sample(files, quota)
            heads = _read_heads([one.path for one in sample], self.storage)
            are_records = [
                one for one, head in zip(sample, heads, strict=True) if head and self.begins_with_a_record(head)
            ]
            # An empty file holds no records, and says nothing about others.
            all_are = len(are_records) == sum(head != b"" for head in heads)
            if len(sample) < len(files) and are_records and not all_are:
                counts = f"{len(are_records):,} of {len(sample):,} that were read begin with a record"
                raise self._undecided_error(files, f"{ending or 'no extension'}: {counts}")
            found += are_records if len(sample) == len(files) or not are_records else files
        taken = {one.path for one in found}
        for one in unexplained:
            if one.path not in taken:
                self._record_skipped(one.path)
        return found

    def _record_skipped(self, path: str) -> None:
        self.skipped_extensions[_file_extension(path) or "without extension"] += 1

    def _stat(self, path: str) -> Stat | None:
        try:
            return self.storage.stat(path)
        except DatasetError as failure:
            if failure.code == "X501":
                return None
            raise

    def _folder(self, root: str) -> Iterator[_Candidate]:
        # Links are followed last, so that everything below the folder is listed by its own name. A folder
        # is entered once, so that circular links end.
        linked_folders = deque([root])
        linked_files: list[_Candidate] = []
        while linked_folders:
            folders = [linked_folders.popleft()]
            while folders:
                folder = folders.pop()
                identity = self.storage.stat(folder).identity
                if identity in self.visited_folders:
                    continue
                self.visited_folders.add(identity)
                entries = self._list(folder)
                names = {entry.name for entry in entries}
                real = self.storage.real(folder)
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.kind == "folder" and not entry.name.startswith(_HIDDEN_PREFIXES):
                        (linked_folders if entry.link else folders).append(path)
                    elif (verdict := self._classify_entry(path, entry, names)) is not False:
                        if entry.link:
                            real_path = self.storage.real(path)
                            linked_files.append(_Candidate(path, real_path, verdict, entry.size_bytes))
                        else:
                            real_path = os.path.join(real, entry.name)
                            yield _Candidate(path, real_path, verdict, entry.size_bytes)
        yield from linked_files

    def _list(self, folder: str) -> Sequence[DirectoryEntry]:
        """The names in a folder. X564 if these are files of an unfinished dataset."""
        entries = self.storage.list(folder)
        if any(entry.name == HIDDEN_FOLDER for entry in entries):
            check_finished(ROUTED_STORAGE, folder)
        return entries

    def _classify_entry(
        self, path: str, entry: DirectoryEntry, beside: set[str], *, hidden: bool = False
    ) -> bool | None:
        """Whether a file holds records; None if only its content can decide."""
        if entry.kind == "folder":
            return False
        verdict: bool | None = False
        if (hidden or not entry.name.startswith(_HIDDEN_PREFIXES)) and entry.kind != "other":
            verdict = is_record_name(entry.name)
            checkpoint = _CHECKPOINT_NAME.match(entry.name)
            if verdict and checkpoint and f"{checkpoint['stem']}.index" in beside:
                verdict = False  # TensorFlow numbers the files of a checkpoint like shards
            if verdict is None and entry.kind != "file":
                verdict = False
        if verdict is False:
            self._record_skipped(path)
        return verdict

    def _pattern(self) -> Iterator[_Candidate]:
        root = _path_root(self.place)
        parts = [part for part in self.place[len(root) :].split("/") if part]
        if self.place.endswith("/"):
            parts.append("**")  # as in a shell, only folders match
        fixed = root
        for part in parts:
            if _GLOB_CHARACTERS.search(part) and self._stat(os.path.join(fixed, part)) is None:
                break
            fixed = os.path.join(fixed, part)
        if fixed and self._stat(fixed) is None:
            raise _not_found_error(fixed, self.storage)
        yield from self._expand(root, parts)

    def _expand(self, folder: str, parts: list[str]) -> Iterator[_Candidate]:
        # Several `**` reach the same folder in many ways; it is searched once.
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
            # A name that is not a pattern, or that exists literally, matches only itself.
            exact = there is not None or not _GLOB_CHARACTERS.search(part)
            entries = self._list(folder or ".")
            names = {entry.name for entry in entries}
            for entry in entries:
                if (part == entry.name) if exact else _is_match(entry.name, part):
                    path = os.path.join(folder, entry.name)
                    if entry.kind == "folder":
                        yield from self._expand(path, rest) if rest else self._folder(path)
                    elif not rest:
                        verdict = self._classify_entry(path, entry, names, hidden=True)
                        if verdict is not False:
                            yield _Candidate(path, self.storage.real(path), verdict, entry.size_bytes)

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
                if entry.kind == "folder" and not entry.name.startswith(_HIDDEN_PREFIXES):
                    folders.append(os.path.join(folder, entry.name))

    def _undecided_error(self, files: Sequence[_Candidate], found: str) -> RekordError:
        return error(
            "X502",
            f"cannot determine which of {len(files):,} files hold records",
            location=Location(path=self.place),
            expected="names of record files, or one extension for all files that hold records and no others",
            found=found,
            do=f"use a pattern, for example {shlex.quote(os.path.join(self.place, '*.bin'))}",
        )

    def _nothing(self, *, pattern: bool) -> RekordError:
        count = sum(self.skipped_extensions.values())
        found = "no file matches" if pattern else "a folder without files"
        do = "use a folder that holds record files"
        if count:
            most_first = sorted(self.skipped_extensions.items(), key=lambda kind: (-kind[1], kind[0]))
            kinds = ", ".join(f"{n:,} {extension}" for extension, n in most_first[:4])
            more = ", …" if len(most_first) > 4 else ""
            found = f"{count:,} skipped file{'s' if count > 1 else ''}: {kinds}{more}"
            do = "use the path of the file itself if it holds records; for raw data: rekord write FOLDER OUT"
        return error(
            "X502",
            "no record files match" if pattern else None,
            location=Location(path=self.place),
            expected="a name such as x.tfrecord, x-00000-of-00004 or part-00000, or a record at the start",
            found=found,
            do=do,
        )


def _is_large_enough(one: _Candidate) -> bool:
    return one.size_bytes is None or one.size_bytes >= _MIN_FILE_BYTES


def _max_probed(place: str) -> int:
    return MAX_PROBED_REMOTE if is_remote(place) else MAX_PROBED


def _read_heads(paths: Sequence[str], storage: SearchableStorage) -> list[bytes | None]:
    """The first bytes of each file; None if it cannot be read."""
    return map_concurrently(lambda path: _read_head(path, storage), paths, remote=bool(paths) and is_remote(paths[0]))


def _read_head(path: str, storage: SearchableStorage) -> bytes | None:
    if is_remote(path):
        return REMOTE.head(path, PROBE_BYTES)
    try:
        with storage.open_read(path) as file:
            return read_up_to(file, PROBE_BYTES)
    except DatasetError:
        return None


def _file_extension(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[1]


def _is_match(name: str, pattern: str) -> bool:
    # As in a shell: a wildcard does not match the dot of a hidden name, a written dot does.
    if name.startswith(_HIDDEN_PREFIXES) and not pattern.startswith(name[0]):
        return False
    return fnmatchcase(name, pattern)


def _not_found_error(path: str, storage: SearchableStorage) -> RekordError:
    """X501 for a path, with a suggestion."""
    root = _path_root(path)
    folder, name = _split_path(path, root)
    siblings: list[str] = []
    # The first missing part of the path is what to correct. Remote folders are not listed for a hint.
    while not is_remote(root) or folder != root:
        try:
            siblings = [entry.name for entry in storage.list(folder or ".")]
            break
        except DatasetError:
            if not folder or folder == "/":
                break
            folder, name = _split_path(folder, root)
    first_missing = os.path.join(folder, name)
    found = likely = None
    do = CHECK_ADDRESS_HINT if is_remote(path) else f"ls {shlex.quote(folder or '.')}"
    if name in siblings:
        whole = first_missing == path.rstrip("/")
        found = "a broken link" if whole else f"{first_missing} is not an accessible folder"
        do = f"ls -ld {shlex.quote(first_missing)}"
    else:
        if first_missing != path.rstrip("/"):
            found = f"{first_missing} does not exist either"
        near = closest_match(name, sorted(siblings[:_MAX_SIBLINGS]))
        if near is not None:
            likely = f"`{near}` is meant: it exists and its name is similar"
            do = f"use {shlex.quote(os.path.join(folder, near))}"
    return error("X501", location=Location(path=path), found=found, likely=likely, do=do)


def _path_root(path: str) -> str:
    """The root of a path: `/`, or a scheme."""
    scheme, found, _ = path.partition("://")
    return scheme + found if is_remote(path) else "/" if path.startswith("/") else ""


def _split_path(path: str, root: str) -> tuple[str, str]:
    folder, name = os.path.split(path[len(root) :].rstrip("/"))
    return root + folder, name

"""Which files are meant: a file, a folder or a pattern becomes a list of record files.

Names decide. Where no name is that of a record file, as in a folder that Ray wrote (`…_000000_000000.tar`), the first
bytes of those files decide whose names explain nothing.
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
from rekord.storage.local import LOCAL, DirectoryEntry, Stat, Storage, read_up_to
from rekord.storage.remote import CHECK_ADDRESS_HINT
from rekord.storage.router import REMOTE, is_remote, map_concurrently

# Names that are always taken, damaged or not, so that damage is seen. Matched in lower case.
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

# Names that are never taken, whatever stands before the extension: `train-00000-of-00004.json` tells about
# a shard and is none.
_NON_RECORD_NAME = re.compile(
    r"""
    \. (?:
      jsonl? | ndjson | csv | tsv | txt | text | log | md | rst | html? | xml | ya?ml | toml | ini | cfg
    | pbtxt | prototxt | textproto | proto | pb | labels | names | vocab     # schemas and label maps
    | idx | index | tfindex | crc | md5 | sha1 | sha256 | done | lock        # what tools keep beside records
    | py | pyc | ipynb | sh | c | cc | cpp | h | java | js | ts | go | rs | r
    | parquet | orc | avro | arrows? | feather | np[yz] | h5 | hdf5 | mat | pkl | pickle | db | sqlite
    | array_record | arrayrecord | riegeli | safetensors | ckpt | meta | pt | pth | zip | 7z | rar
    | jpe?g | png | gif | bmp | webp | tiff? | svg | pdf | wav | mp3 | flac | ogg | mp4 | avi | mov | mkv
    | tmp | temp | part | partial | crdownload | swp | bak                   # unfinished, or put aside
    )
    (?: \.gz | \.zz | \.zlib | \.bz2 | \.xz | \.zst )? $
    """,
    re.VERBOSE,
)

# Ray calls its record files `.tar`; others call tar archives `train-00000-of-00004.tar`. Only the content tells.
_TAR_NAME = re.compile(r"\. (?: tar | tgz ) (?: \.gz | \.zz | \.zlib | \.bz2 | \.xz | \.zst )? $", re.VERBOSE)
_CHECKPOINT_NAME = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-\d{5}$")
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_HIDDEN_PREFIXES = (".", "_")
_MAX_SIBLINGS = 10_000  # a hint must not cost more than the error that it is for

PROBE_BYTES = 4096
"""How much of a file is read to recognise it: 12 bytes are enough, unless they are compressed."""

MAX_PROBED = 1000
MAX_PROBED_REMOTE = 100
"""How many files are read to recognise them. Of more than these, files with one extension are judged by a sample."""

_MIN_FILE_BYTES = 12  # of a file with a record
_NUMBER = re.compile(r"\d+")

IsRecordHead = Callable[[bytes], bool]
"""Whether a file that begins with these bytes begins with a record."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The record files that some paths mean, sorted by the bytes of their paths.

    `skipped` are files whose names say nothing and that were not read, because other files have the names of records.
    """

    paths: list[str]
    skipped: list[str] = field(default_factory=list)


def resolve_record_files(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    begins_with_a_record: IsRecordHead,
    *,
    storage: Storage = LOCAL,
) -> FoundFiles:
    """The record files that `path` means, each once.

    A file that is named is taken, whatever it is. Of a folder (searched to its depth) or a pattern (`*`, `?`, `[…]`,
    `**` for any number of folders), files with a record file's name are taken even if they are damaged, and known
    companions never. Where no file has such a name, those files are taken whose names explain nothing and whose first
    bytes are a record's. Names that begin with `.` or `_` are passed over. Something that is there under the very
    name of a pattern wins over the pattern. A file that several paths reach is listed once; below one folder, by its
    own name, not a link's.
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
    paths: Sequence[str], begins_with_a_record: IsRecordHead, *, storage: Storage = LOCAL
) -> list[str]:
    """Those of some files that begin with a record, as far as they are read: not all of very many."""
    paths = paths[: _max_probed(paths[0])] if paths else paths
    heads = _read_heads(paths, storage)
    return [path for path, head in zip(paths, heads, strict=True) if head and begins_with_a_record(head)]


def is_record_name(name: str) -> bool | None:
    """Whether a file of this name holds records: yes, no, or None where only its content can tell."""
    name = name.lower()
    if _NON_RECORD_NAME.search(name):
        return False
    return True if _RECORD_NAME.search(name) and not _TAR_NAME.search(name) else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that was reached, and its real path; `is_record` is what its name says, None where only content can."""

    path: str
    real: str
    is_record: bool | None = True
    size_bytes: int | None = None


class _Search:
    """One place being searched: what was passed over, and which folders have been seen."""

    def __init__(self, place: str, begins_with_a_record: IsRecordHead, storage: Storage) -> None:
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
        """The files that begin with a record; where they are too many to read, by a sample of each extension."""
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
            # Drawn by lot, the same each time: every tenth file may be every tenth for a reason.
            sample = files if len(files) <= quota else random.Random(0).sample(files, quota)
            heads = _read_heads([one.path for one in sample], self.storage)
            are_records = [
                one for one, head in zip(sample, heads, strict=True) if head and self.begins_with_a_record(head)
            ]
            # What is empty holds no records, and says nothing of its like.
            all_are = len(are_records) == sum(head != b"" for head in heads)
            if len(sample) < len(files) and are_records and not all_are:
                said = f"{len(are_records):,} of {len(sample):,} that were read begin with a record"
                raise self._undecided_error(files, f"{ending or 'no extension'}: {said}")
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
        # Links wait until all that is really here has been seen, so that it goes by its own name. A folder
        # is entered once, so that links in a circle come to an end.
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
                entries = self.storage.list(folder)
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

    def _classify_entry(
        self, path: str, entry: DirectoryEntry, beside: set[str], *, hidden: bool = False
    ) -> bool | None:
        """Whether a file is one of records: yes, no, or None where only its content can tell."""
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
            exact = there is not None or not _GLOB_CHARACTERS.search(part)
            entries = self.storage.list(folder or ".")
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


def _read_heads(paths: Sequence[str], storage: Storage) -> list[bytes | None]:
    """The first bytes of each file; None of one that cannot be read."""
    return map_concurrently(lambda path: _read_head(path, storage), paths, remote=bool(paths) and is_remote(paths[0]))


def _read_head(path: str, storage: Storage) -> bytes | None:
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
    # As in a shell: a wildcard does not match a hidden name's first character, a written one does.
    if name.startswith(_HIDDEN_PREFIXES) and not pattern.startswith(name[0]):
        return False
    return fnmatchcase(name, pattern)


def _not_found_error(path: str, storage: Storage) -> RekordError:
    """X501 for a path, with the name that may have been meant."""
    root = _path_root(path)
    folder, name = _split_path(path, root)
    siblings: list[str] = []
    # The first name that is missing is the one to look at. Of a remote place nobody lists all that there is.
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
    """What a path begins with that is no name: `/`, or a scheme."""
    scheme, found, _ = path.partition("://")
    return scheme + found if is_remote(path) else "/" if path.startswith("/") else ""


def _split_path(path: str, root: str) -> tuple[str, str]:
    folder, name = os.path.split(path[len(root) :].rstrip("/"))
    return root + folder, name

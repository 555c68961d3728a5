"""A bounded look at a folder: which folders, images and other files it has, and what their names say."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rekord.errors import preview
from rekord.sources.annotation_formats import read_file_head
from rekord.sources.base import SourceFacts, SourceGuess, UnusedInput
from rekord.sources.image_folder import is_image_name, split_of_folder, strip_image_extension, to_printable_path
from rekord.storage.local import LOCAL

_MAX_FOLDERS = 3000  # inspected in all, however large a tree is
_MAX_NAMES = 1000  # kept per folder and kind, however many files it has
_MAX_LEVELS = 16
_MAX_TRIED = 20  # files of a kind that are opened
_TEXT_BYTES = 64 * 1024
_HIDDEN_PREFIXES = (".", "@")
_IGNORED_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx"))

Parts = tuple[str, ...]  # a folder below the root, as its names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The words that the names of folders consist of.
SPLIT_WORDS = _words("train training trn val valid validation dev eval evaluation test testing tst trainval holdout")
IMAGE_WORDS = _words(
    "image images img imgs photo photos pic pics rgb input inputs frame frames original "
    "originals raw scan scans jpeg jpegs jpg jpgs png pngs tif tiff tiffs bmp bmps ppm pgm color colour"
)
CONTAINER_WORDS = _words(
    "data dataset datasets dir dirs folder folders set sets file files sample samples all full split splits part "
    "parts subset resized bit class classes object objects aug fine ids id map maps"
)
MASK_WORDS = _words(
    "mask masks labeled labelled gt gts ground truth groundtruth label labels lbl lbls annot annots annotation "
    "annotations ann "
    "anns anno annos seg segs segm segmentation segmentations segmap segmaps semantic semantics target targets "
    "matte mattes alpha trimap trimaps saliency manual parsing palette"
)
ANNOTATION_WORDS = MASK_WORDS | _words(
    "instance instances panoptic "
    "polygon polygons json jsons xml xmls txt csv box boxes bbox bboxes bounding meta metadata imagesets list "
    "lists landmark landmarks keypoint keypoints caption captions attribute attributes text texts calib"
)
VIEW_WORDS = _words(
    "left right depth depths disparity disp flow nir ir thermal infrared visible vis rgb cam cams camera cameras "
    "view views stereo lidar velodyne event events edge edges sketch sketches low high blur blurred sharp hazy "
    "haze clear noisy noise clean hr lr normals albedo red green blue swir sar optical front rear input output "
    "source"
)
_NEVER_CLASSES = (
    (SPLIT_WORDS | IMAGE_WORDS | CONTAINER_WORDS | ANNOTATION_WORDS)
    - _words("color colour object objects class classes id ids map maps text texts fine event events")
) | _words(
    "left right depth depths disparity disp nir thermal infrared cam cams camera cameras view views stereo lidar "
    "velodyne query gallery probe unlabeled unlabelled crops crop patches patch tiles tile videos video clips "
    "sequences seq seqs output outputs source sources"
)
_INSTANCE_WORDS = _words(
    "person subject patient subj sub user identity scene sequence seq video vid clip track case session study "
    "series recording drive run episode camera cam view frame batch part fold group chunk shard set folder dir "
    "volume vol slice sample image img id"
)
_VOCABULARY = SPLIT_WORDS | IMAGE_WORDS | CONTAINER_WORDS | ANNOTATION_WORDS | VIEW_WORDS
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")

_DOCUMENTATION = re.compile(
    r"(readme|license|licence|copying|copyright|citation|changelog|changes|authors|contributing|credits|notice|"
    r"attribution|about|terms|_success|makefile|requirements|index\.html?|checksums?|md5sums?|sha256sums?)\b.*|"
    r"readme.*|.*\.(md|rst|pdf|html?|css|js|py|pyc|ipynb|sh|bat|ps1|m|r|c|cpp|h|java|doc|docx|ppt|pptx|rtf|bib|tex|"
    r"log|md5|sha1|sha256|sha512|url|lnk|toml|lock|zip|rar|7z|tar|tgz|gz|bz2|xz|crdownload|part|bak|tmp)",
    re.IGNORECASE,
)


_ARCHIVE = re.compile(r".*\.(zip|rar|7z|tar|tgz|gz|bz2|xz)", re.IGNORECASE)


def is_archive(name: str) -> bool:
    """Whether a file may contain others, or compressed data."""
    return _ARCHIVE.fullmatch(name) is not None


def is_documentation(name: str) -> bool:
    """Whether a file describes, packs or processes data: a README, a licence, a script, an archive."""
    return _DOCUMENTATION.fullmatch(name) is not None


def split_words(name: str) -> list[str]:
    """The words of a name, in lower case: `TrainMasks`, `train_masks` and `trainmasks` are train, masks."""
    words: list[str] = []
    for token in _WORD.findall(name):
        word = token.lower()
        word = re.sub(r"^pictur(e|es)$", "pics", word)
        known = [word] if word in _VOCABULARY or len(word) > 30 else _split_compound(word)
        words += known
    return words


def _split_compound(word: str) -> list[str]:
    for i in range(2, len(word) - 1):
        if word[:i] in _VOCABULARY and word[i:] in _VOCABULARY:
            return [word[:i], word[i:]]
    return [word]


def has_annotation_word(name: str) -> bool:
    """Whether a folder is named like annotations: `labels`, `label_2`, `trainannot`, `gtFine`."""
    return any(word in ANNOTATION_WORDS for word in split_words(name))


def has_mask_word(name: str) -> bool:
    """Whether a folder is named like masks."""
    return any(word in MASK_WORDS for word in split_words(name))


def is_never_class(name: str) -> bool:
    """Whether a name is that of a container, a split or an annotation: `images`, `train_2`, `img1`, `masks`."""
    words = [word for word in split_words(name) if not word.isdigit()]
    longer = [word for word in words if len(word) > 1]
    return bool(longer) and all(word in _NEVER_CLASSES for word in longer)


def guess_class_folders(facts: SourceFacts) -> list[SourceGuess]:
    """What is doubtful about the classes of a folder of images, which was asked for nevertheless."""
    do = 'to store the images without labels: layout="images"'
    doubtful = [name for name in facts.classes or () if is_never_class(name)]
    if doubtful:
        what = f"{preview(doubtful[0])} is stored as a class, though it is named like a folder of images or a split"
        return [SourceGuess("label", what, do)]
    if not facts.extra.get("labels", True):
        return [SourceGuess("label", "the images are not in class folders: they are stored without labels")]
    return []


def is_container(name: str) -> bool:
    """Whether a folder name only says that there are images, or of which split."""
    words = [word for word in split_words(name) if not word.isdigit()]
    return bool(words) and all(word in SPLIT_WORDS | IMAGE_WORDS | CONTAINER_WORDS for word in words)


def is_instance_name(name: str) -> bool:
    """Whether a name is that of one of many instances: `person_0001`, `seq-12`, `patient3`."""
    words = split_words(name)
    return len(words) >= 2 and words[-1].isdigit() and any(word in _INSTANCE_WORDS for word in words)


class SurveyedFolder(NamedTuple):
    """The direct entries of a folder, sorted by name, without hidden ones."""

    parts: Parts
    folders: tuple[str, ...]
    images: tuple[str, ...]  # the first ones
    image_count: int
    others: tuple[str, ...]  # the first other files

    def folder(self, *names: str) -> str | None:
        """The folder with one of these names, ignoring case; earlier names win."""
        lower = {name.lower(): name for name in reversed(self.folders)}
        return next((lower[name] for name in names if name in lower), None)


class FileGroup(NamedTuple):
    """Files of one folder with the same extension that are neither images nor documentation."""

    folder: Parts
    extension: str
    file_count: int
    names: tuple[str, ...]  # the first ones
    evidence: str  # "stems", "names", "paths", "binary" or "text": how they refer to images

    @property
    def example(self) -> str:
        """The path of the first file, below the root."""
        return "/".join((*self.folder, self.names[0]))


class FolderSurvey:
    """The folders of a tree, nearest to the top first. The same names give the same survey."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folders: dict[Parts, SurveyedFolder] = {}
        level: list[Parts] = [()]
        for _ in range(_MAX_LEVELS):
            below: list[Parts] = []
            for parts in level:
                if len(self.folders) >= _MAX_FOLDERS:
                    return
                self.folders[parts] = found = _inspect_folder(self.path(parts), parts)
                below += [(*parts, name) for name in found.folders[: max(0, _MAX_FOLDERS - len(below))]]
            level = below

    @classmethod
    def below(cls, survey: FolderSurvey, parts: Parts) -> FolderSurvey:
        """The part of a survey below one of its folders, without looking again."""
        made = object.__new__(cls)
        made.root = survey.path(parts)
        depth = len(parts)
        made.folders = {
            one[depth:]: found._replace(parts=one[depth:])
            for one, found in survey.folders.items()
            if one[:depth] == parts
        }
        return made

    def path(self, parts: Iterable[str]) -> str:
        """A folder or file below the root, as a user finds it."""
        return os.path.join(self.root, *parts)

    @property
    def top(self) -> SurveyedFolder:
        return self.folders[()]

    @cached_property
    def image_folders(self) -> dict[Parts, SurveyedFolder]:
        """The folders that contain images themselves."""
        return {parts: one for parts, one in self.folders.items() if one.image_count}

    @cached_property
    def image_count(self) -> int:
        return sum(one.image_count for one in self.image_folders.values())

    @cached_property
    def image_stems(self) -> frozenset[str]:
        """The names of images without extensions, without their folders."""
        return frozenset(strip_image_extension(name) for one in self.image_folders.values() for name in one.images)

    def iter_files(self) -> Iterator[str]:
        """Paths below the root, those nearest to the top first."""
        for parts, one in self.folders.items():
            for name in sorted((*one.images, *one.others), key=os.fsencode):
                yield "/".join((*parts, name))

    @cached_property
    def groups(self) -> list[FileGroup]:
        """The files that may be annotations."""
        found = []
        for parts, one in self.folders.items():
            by_extension: dict[str, list[str]] = {}
            for name in one.others:
                if not is_documentation(name):
                    by_extension.setdefault(os.path.splitext(name)[1].lower(), []).append(name)
            for extension, found_names in sorted(by_extension.items()):
                # An empty file annotates at most the image that it is named like.
                names = [name for name in found_names if self._is_stem(name) or self._has_content((*parts, name))]
                if not names:
                    continue
                evidence = self._weigh(parts, names)
                found.append(FileGroup(parts, extension, len(names), tuple(names[:_MAX_TRIED]), evidence))
        return found

    def _is_stem(self, name: str) -> bool:
        """Whether a file is named like an image."""
        return os.path.splitext(name)[0] in self.image_stems or name in self.image_stems

    def _has_content(self, parts: Parts) -> bool:
        try:
            return os.path.getsize(self.path(parts)) > 0
        except OSError:
            return True  # reading it reports the cause

    def _weigh(self, parts: Parts, names: Sequence[str]) -> str:
        """How files of one kind refer to images."""
        if any(self._is_stem(name) for name in names):
            return "stems"
        weights = Counter(self._weigh_content(self.path((*parts, name))) for name in names[:_MAX_TRIED])
        return next(one for one in ("names", "binary", "paths", "text") if weights[one])

    def _weigh_content(self, path: str) -> str:
        head = read_file_head(path, _TEXT_BYTES)
        if b"\0" in head:
            return "binary"
        lines = [line for line in head.decode("utf-8", "replace").splitlines()[:200] if line.strip()]
        firsts = [re.split(r"[\s,;|]+", line.strip().strip('"'))[0].strip("\"'") for line in lines]
        tokens = [one for line in lines for one in re.split(r'[\s,;|"\'<>=]+', line) if is_image_name(one)]
        if not tokens:
            listed = [one for one in firsts if one.rsplit("/", 1)[-1] in self.image_stems]
            if len(listed) * 2 < len(firsts) or not listed:
                return "text"
            tokens = listed
        # Paths that begin with the folder of their image say no more than the folders themselves.
        plain = all(len(re.split(r"[\s,;|]+", line.strip())) <= 2 for line in lines)
        folders = {one[0] for one in self.image_folders if one} | {one[1] for one in self.image_folders if one[1:]}
        inside = all(one.lstrip("./").split("/")[0] in folders and "/" in one.lstrip("./") for one in tokens)
        return "paths" if plain and inside else "names"


def _inspect_folder(path: str, parts: Parts) -> SurveyedFolder:
    folders: list[str] = []
    images: list[str] = []
    others: list[str] = []
    for entry in LOCAL.list(path):
        name = entry.name
        if _is_hidden(name):
            continue
        is_folder = entry.kind == "folder" or (entry.link and os.path.isdir(os.path.join(path, name)))
        (folders if is_folder else images if is_image_name(name) else others).append(name)
    for names in (folders, images, others):
        names.sort(key=os.fsencode)
    return SurveyedFolder(
        parts,
        tuple(folders[:_MAX_FOLDERS]),
        tuple(images[:_MAX_NAMES]),
        len(images),
        tuple(others[:_MAX_NAMES]),
    )


_MAX_UNUSED = 20  # entries in a list of what is not used
_MAX_WALKED = 20_000  # folders


def find_unused_files(folder: str, used: Iterable[str], kind: str) -> tuple[UnusedInput, ...]:
    """The files below a folder that are not among the `used` paths, grouped by folder, extension and reason."""
    by_folder: dict[str, set[str]] = {}
    for path in used:
        place, name = os.path.split(os.path.abspath(path))
        by_folder.setdefault(place, set()).add(name)
    stems = {os.path.splitext(name)[0] for names in by_folder.values() for name in names}
    groups: dict[tuple[str, str, str], list[str]] = {}
    level = [""]
    walked = 0
    while level and walked < _MAX_WALKED:
        below: list[str] = []
        for parts in level:
            walked += 1
            place = os.path.join(folder, parts)
            known = by_folder.get(os.path.abspath(place), set())
            try:
                with os.scandir(place) as entries:
                    listed = sorted([(one.name, one.is_dir(follow_symlinks=False)) for one in entries])
            except OSError:
                continue  # the source reports what it cannot read
            for name, is_folder in listed:
                path = os.path.join(parts, name)
                if is_folder and not _is_hidden(name):
                    below.append(path)
                elif not is_folder and name not in known:
                    reason = _explain_unused(name, kind, stems)
                    extension = "" if _is_hidden(name) else os.path.splitext(name)[1].lower()
                    groups.setdefault((parts, extension, reason), []).append(path)
        level = below
    return _summarize_unused(groups)


def _is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN_PREFIXES) or name.lower() in _IGNORED_NAMES


def _explain_unused(name: str, kind: str, stems: Container[str]) -> str:
    if _is_hidden(name):
        return "hidden"
    if is_documentation(name):
        return "documentation, code or an archive"
    if is_image_name(name):
        return f"an image that is not part of the source {kind}"
    if os.path.splitext(name)[0] in stems:
        return f"named like an image; the source {kind} does not read it"
    return f"the source {kind} does not read it"


def _summarize_unused(groups: Mapping[tuple[str, str, str], Sequence[str]]) -> tuple[UnusedInput, ...]:
    found = []
    # What may have been meant comes before documentation and hidden files.
    order = sorted(groups.items(), key=lambda one: (one[0][2] == "hidden", is_documentation(one[1][0]), one[0]))
    for (folder, extension, reason), paths in order[:_MAX_UNUSED]:
        if len(paths) == 1:
            found.append(UnusedInput("file", to_printable_path(paths[0].replace(os.sep, "/")), reason))
        else:
            pattern = to_printable_path(os.path.join(folder, f"*{extension}").replace(os.sep, "/"))
            found.append(UnusedInput("file", pattern, f"{len(paths):,} files: {reason}"))
    rest = sum(len(paths) for _, paths in order[_MAX_UNUSED:])
    return (*found, *([UnusedInput("file", "*", f"{rest:,} more files")] if rest else []))


def split_of(parts: Parts) -> str | None:
    """The split that one of the folders is named after."""
    return next((split for name in parts if (split := split_of_folder(name)) is not None), None)


def is_number_run(stems: Iterable[str]) -> bool:
    """Whether names are numbered without gaps from 0 or 1, with the same text around the numbers."""
    names = list(stems)
    found = [re.findall(r"\d+", stem) for stem in names]
    if len({re.sub(r"\d+", "#", stem) for stem in names}) != 1 or not found[0]:
        return False
    columns = [{int(number[:18]) for number in column} for column in zip(*found, strict=True)]
    varying = [column for column in columns if len(column) > 1] or columns[-1:]
    numbers = varying[0]
    return len(varying) == 1 and min(numbers) <= 1 and max(numbers) - min(numbers) < len(numbers)

"""A bounded look at a folder: its folders, images and other files, what their names say, and which are classes."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from rekord.errors import preview
from rekord.sources.annotation_formats import read_file_head
from rekord.sources.base import SourceFacts, SourceGuess, UnusedInput
from rekord.sources.image_folder import is_image_name, split_of_folder, strip_image_extension, to_printable_path
from rekord.sources.segmentation import find_mask_naming
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

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
            return raw_files.getsize(self.path(parts)) > 0
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
    for entry in RAW_FILES.list(path):
        name = entry.name
        if _is_hidden(name):
            continue
        is_folder = entry.kind == "folder" or (entry.link and raw_files.isdir(os.path.join(path, name)))
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
        place, name = os.path.split(raw_files.abspath(path))
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
            known = by_folder.get(raw_files.abspath(place), set())
            try:
                with raw_files.scandir(place) as entries:
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


def folder_name(parts: Parts) -> str:
    return "/".join(parts) or "."


def count_matches(survey: FolderSurvey, images: Parts, masks: Parts) -> int:
    have = {strip_image_extension(name) for name in survey.folders[images].images}
    stems = [strip_image_extension(name) for name in survey.folders[masks].images]
    naming = find_mask_naming(have, stems)
    if naming is None:
        return 0
    return len([stem for stem in stems if stem.removesuffix(naming.mask) + naming.image in have])


def find_same_folder_ending(names: Sequence[str]) -> str | None:
    """The ending of the second images of a folder, if at least a third of its images are another one with it."""
    stems = [strip_image_extension(name) for name in names]
    have = set(stems)
    endings: Counter[str] = Counter()
    for stem in stems:
        # An ending is a word or two after a mark: `_mask`, `-depth`, `.GT`, `_seg_color`.
        for match in re.finditer(r"[_\-. ]+[A-Za-z]", stem):
            if stem[: match.start()] in have:
                endings[stem[match.start() :]] += 1
    best = max(endings, key=lambda one: (endings[one], one), default=None)
    if best is not None and endings[best] * 3 >= len(stems):
        return best
    # Neither of the two may be the plain name: `1_sat`, `1_mask`.
    bases: dict[str, set[str]] = {}
    for stem in stems:
        parted = re.fullmatch(r"(.+?)([_\-. ]+[A-Za-z]+)", stem)
        if parted:
            bases.setdefault(parted[1], set()).add(parted[2])
    shared = [found for found in bases.values() if len(found) > 1]
    kinds = {ending for found in shared for ending in found}
    if sum(map(len, shared)) * 3 < len(stems) * 2 or not 2 <= len(kinds) <= 4:
        return None
    return max(kinds, key=lambda ending: (bool(set(split_words(ending)) & MASK_WORDS), ending))


class ClassFolders:
    """The folders of images as classes, below split folders if all are: what speaks against it."""

    def __init__(self, survey: FolderSurvey) -> None:
        self.survey = survey
        tops = {parts[0] for parts in survey.image_folders if parts}
        self.has_splits = bool(tops) and all(split_of_folder(top) is not None for top in tops)
        skipped = 1 if self.has_splits else 0
        below = {parts: parts[skipped:] for parts in survey.image_folders}
        self.loose = [parts for parts, rest in below.items() if not rest]
        self.by_class: dict[str, list[Parts]] = {}
        for parts, rest in below.items():
            if rest:
                self.by_class.setdefault(rest[0], []).append(parts)
        self.nested = [parts for parts, rest in below.items() if len(rest) > 1]
        names = sorted({name for parts in survey.image_folders for name in parts}, key=os.fsencode)
        self.containers = [name for name in names if is_never_class(name)]
        self.doubts = list(dict.fromkeys(self._iter_doubts()))

    @property
    def is_flat(self) -> bool:
        """Whether images are only in folders that say nothing about them, and under names that say nothing."""
        survey = self.survey
        folders = survey.image_folders
        return (
            all(is_container(name) for parts in folders for name in parts)
            and not self._find_parallel(list(folders))
            and not any(find_same_folder_ending(one.images) for one in folders.values())
            and not any(_has_twins(one.images) for one in folders.values())
            and _describe_label_names([name for one in folders.values() for name in one.images]) is None
        )

    @property
    def are_plausible(self) -> bool:
        """Whether the folders can be read as classes, whatever the doubts."""
        names = list(self.by_class)
        return (
            bool(names)
            and not self.loose
            and not any(is_never_class(name) for name in names)
            and not (len(names) > 1 and all(set(split_words(name)) & SPLIT_WORDS for name in names))
            and not (len(names) == 1 and self.nested)
        )

    def _iter_doubts(self) -> Iterator[str]:
        folders = self.survey.image_folders
        for parts in self.loose[:1]:
            if self.by_class:
                yield f"{folders[parts].image_count:,} images in {folder_name(parts)} are not in a class folder"
        if not self.by_class:
            example = "/".join((*self.loose[0], folders[self.loose[0]].images[0]))
            yield f"{self.survey.image_count:,} images that are not in class folders, such as {example}"
            described = _describe_label_names([name for one in folders.values() for name in one.images])
            if described is not None:
                yield described
        names = list(self.by_class)
        for name in self.containers[:2]:
            if self.by_class and not (self.has_splits and split_of_folder(name) is not None):
                yield f"{preview(name)} is the name of a folder of images or annotations, not that of a class"
        if len(names) == 1 and not self.containers:
            yield f"only one folder that may be a class: {preview(names[0])}"
        for parts in self.nested[:1]:
            yield f"folders of images below others, such as {folder_name(parts)}: either may be the class"
        first = next((name for name in names if is_instance_name(name) and not is_never_class(name)), None)
        if first is not None:
            yield f"{preview(first)} looks like one of many persons, scenes or sequences, not like a class"
        if names and all(re.fullmatch(r"[\d_\-]+", name) for name in names) and not self._are_class_numbers(names):
            yield f"folders named with numbers, such as {preview(names[0])}: ids or dates, or classes"
        parallel = self._find_parallel(list(folders)) if len(folders) > 1 else None
        if parallel is not None:
            yield parallel
        if self._are_sequences(names):
            yield "every folder has frames numbered from its first: sequences, or classes"
        yield from self._iter_pair_doubts()
        if len(names) > 1 and all(set(split_words(name)) & SPLIT_WORDS for name in names) and not self.containers:
            yield f"all folders are named after splits, such as {preview(names[0])}"
        if self.has_splits and not self._have_common_classes():
            yield "the splits have no class in common"

    def _iter_pair_doubts(self) -> Iterator[str]:
        for parts, one in self.survey.image_folders.items():
            ending = find_same_folder_ending(one.images)
            if ending is not None:
                yield f"images in pairs: names in {folder_name(parts)} that differ in the ending {ending}"
                return
            if _has_twins(one.images):
                yield f"images in pairs: {folder_name(parts)} has two images of the same name, with other extensions"
                return

    def _are_class_numbers(self, names: Sequence[str]) -> bool:
        """Whether names are 0, 1, 2, …"""
        if not all(name.isdecimal() and len(name) < 9 for name in names):
            return False
        numbers = sorted(int(name) for name in names)
        counted = numbers[0] <= 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        return counted and not self._are_sequences(names)

    def _are_sequences(self, names: Sequence[str]) -> bool:
        """Whether folders with numbers in their names all have frames counted from their own first."""
        if not names or not all(re.search(r"\d", name) for name in names):
            return False
        folders = [one.images for parts, one in self.survey.image_folders.items() if len(one.images) > 1]
        return bool(folders) and all(
            is_number_run(strip_image_extension(name) for name in images)
            and all(re.fullmatch(r"(frame[_-]?)?0\d{3,}", strip_image_extension(name)) for name in images[:5])
            for images in folders
        )

    def _find_parallel(self, places: Sequence[Parts]) -> str | None:
        """Folders of the same split that have exactly the same names: views of the same things."""
        by_split: dict[str | None, list[Parts]] = {}
        for parts in places:
            by_split.setdefault(split_of(parts) if self.has_splits else None, []).append(parts)
        for group in by_split.values():
            stems = [frozenset(map(strip_image_extension, self.survey.image_folders[one].images)) for one in group]
            if len(group) < 2:
                continue
            for (a, own), (b, other) in pairwise(zip(group, stems, strict=True)):
                if own.isdisjoint(other):
                    for images, masks in ((a, b), (b, a)):
                        if 2 * count_matches(self.survey, images, masks) > len(self.survey.folders[masks].images):
                            both = f"{folder_name(images)} and {folder_name(masks)}"
                            return f"the names in {both} differ only in an ending"
            first, same = stems[0], all(one == stems[0] for one in stems)
            views = all(set(split_words(one[-1])) & VIEW_WORDS for one in group if one)
            split_folders = all(one and split_of_folder(one[-1]) is not None for one in group)
            if same and not split_folders and (views or (len(first) > 1 and not is_number_run(first))):
                both = f"{folder_name(group[0])} and {folder_name(group[1])}"
                return f"{both} have the same {len(first):,} names: pairs or views, not classes"
        return None

    def _have_common_classes(self) -> bool:
        splits: dict[str | None, set[str]] = {}
        for name, places in self.by_class.items():
            for parts in places:
                splits.setdefault(split_of(parts), set()).add(name)
        sets = list(splits.values())
        return len(sets) < 2 or all(one & max(sets, key=len) for one in sets)


def _has_twins(names: Sequence[str]) -> bool:
    """Whether a third of the images has another one of the same name with another extension."""
    counts = Counter(map(strip_image_extension, names))
    twice = sum(count for count in counts.values() if count > 1)
    return twice * 3 >= len(names) and twice > 1


def _describe_label_names(names: Sequence[str]) -> str | None:
    """What names of images seem to say about them, as in `cat.0.jpg`, `dog.0.jpg`, or `0001_c1s1_000151_01.jpg`."""
    stems = [strip_image_extension(name) for name in names]
    prefixes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for stem in stems:
        match = re.fullmatch(r"([A-Za-z][A-Za-z ]*?)[_\-. ]*(\d+)", stem)
        words = set() if match is None else set(split_words(match[1]))
        if match and not words <= IMAGE_WORDS | CONTAINER_WORDS | {"dsc", "dscn", "p", "pano", "screenshot", "page"}:
            prefixes[match[1].lower()] += 1
            numbers[match[2]] += 1
    found = sorted(prefixes)
    usual = len(found) > 1 and sum(prefixes.values()) * 10 >= len(stems) * 9
    if usual and (len(stems) >= 2 * len(found) or max(numbers.values()) > 1):
        return f"names of images that begin with {preview(found[0])}, {preview(found[1])}, …: labels, perhaps"
    if stems and all(re.fullmatch(r"-?\d+(_[a-z]*\d+){2,}", stem) for stem in stems):
        return f"names of images with several fields, such as {preview(stems[0])}: labels, perhaps"
    return None

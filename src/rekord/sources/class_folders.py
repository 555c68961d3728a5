"""Folders of images as classes: what speaks against it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rekord.errors import preview
from rekord.sources.folder_survey import (
    CONTAINER_WORDS,
    IMAGE_WORDS,
    MASK_WORDS,
    SPLIT_WORDS,
    VIEW_WORDS,
    FolderSurvey,
    Parts,
    is_container,
    is_instance_name,
    is_never_class,
    is_number_run,
    split_of,
    split_words,
)
from rekord.sources.image_folder import split_of_folder, strip_image_extension
from rekord.sources.segmentation import find_mask_naming


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

"""COCO's json files as rows: one an image, with its boxes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.labelmap import LabelItem
from rekord.schema.refuse import shown
from rekord.sources.annotated import (
    Annotated,
    Entry,
    Listing,
    below,
    box_array,
    classes_of,
    file_facts,
    find_image,
    folder_of,
    in_order,
    label_items,
    label_option,
    listed_twice,
    named,
    no_class,
    no_image,
    nothing_here,
    ordered_splits,
    seen_once,
    source_files,
)
from rekord.sources.coco_files import (
    Document,
    JsonFile,
    image_folders,
    json_files,
    key_of,
    read_document,
    root_of,
    whole_number,
)
from rekord.sources.coco_masks import drawn
from rekord.sources.trees import given_path

_MOST_PIXELS = 1e9  # where a coordinate stops being one


def coco(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    masks: bool = False,
    label_map: str | os.PathLike[str] | None = None,
) -> Coco:
    """The images of a COCO json file with their boxes; or of a folder, with a json file for each split.

    In a folder the files are `annotations/instances_SPLIT.json` (or another kind, where there are no
    instances), Roboflow's `SPLIT/_annotations.coco.json`, or any json beside the images. `images` is the
    folder of the images, guessed where it is not given.

    Ids of classes are the category ids, gaps included; where a box has the id 0, which detection reserves for
    the background, all ids are one higher. `label_map` gives ids by name instead. The objects of panoptic
    files are boxes too. Annotations without a box are left out, and each row counts its own in
    `skipped_annotations`; a file in which no annotation has a box is refused. A missing `iscrowd` is 0, a
    missing `area` that of the box. `masks` draws the outline of every object as a PNG of 0 and 1.
    """
    place = given_path(path)
    folder = None if images is None else given_path(images, name="images")
    return Coco(root_of(place, folder), place, folder, bool(masks), label_items(label_map))


class _Image(NamedTuple):
    json: str  # below the root
    image: str
    name: str
    id: str
    width: int | None
    height: int | None
    split: str | None
    annotations: tuple[tuple[Any, ...], ...]  # id, category, bbox, iscrowd, area, segmentation
    unboxed: int


class _Bad(NamedTuple):
    """A row that there is not; its error is made where the row is read."""

    kind: str
    name: Any
    other: Any
    json: str


class _Context(NamedTuple):
    ids: dict[str, int]  # of classes, by the category id as text
    names: dict[int, str]
    categories: dict[str, str]  # names by category id, for messages


@dataclass(eq=False)
class Coco(Annotated):
    """The source that `coco` makes."""

    root: str
    json: str
    images: str | None
    masks: bool
    items: tuple[LabelItem, ...] | None

    kind = "coco"

    def options(self) -> Mapping[str, Any]:
        images = None if self.images is None else below(self.root, self.images)
        return {
            "json": below(self.root, self.json),
            "images": images,
            "masks": self.masks,
            "label_map": label_option(self.items),
        }

    def look(self) -> Listing:
        entries: list[Entry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        crowd = area = False
        splits: list[str | None] = []
        documents: list[tuple[JsonFile, Document]] = []
        for file in json_files(self.json):
            document = read_document(file.path, masks=self.masks)
            documents.append((file, document._replace(annotations=[])))
            crowd |= any(one.iscrowd is not None for one in document.annotations)
            area |= any(one.area is not None for one in document.annotations)
            facts = file_facts(file.path)
            if facts is not None:
                files[below(self.root, file.path)] = facts
            entries += self._entries(file, document, files, taken)
            splits.append(file.split)
        context = _context(documents, self.items)
        if not entries:
            raise nothing_here(
                self.json,
                "there are no images in the json",
                "at least one entry in `images`",
                "none",
                "name the json file that lists the images",
            )
        return Listing(
            entries=in_order(entries),
            files=source_files(files),
            classes=context.names,
            has=tuple([name for name, there in (("is_crowd", crowd), ("area", area)) if there]),
            masks=self.masks,
            splits=ordered_splits(splits),
            context=context,
        )

    def _entries(
        self,
        file: JsonFile,
        document: Document,
        files: dict[str, os.stat_result],
        taken: dict[str, str],
    ) -> list[Entry]:
        json = below(self.root, file.path)
        folder = self.images
        if folder is None:
            folder = folder_of(document.names, image_folders(file, self.root)) or os.path.dirname(file.path)
        of_image: dict[str, list[Any]] = {}
        entries: list[Entry] = []
        ids: dict[str, str] = {}
        whole: list[tuple[int, Any, str, str, os.stat_result]] = []
        for i, image in enumerate(document.images):
            key, name = key_of(image.id), image.file_name
            bad: _Bad | None = None
            found = None
            if key is None or not isinstance(name, str):
                bad = _Bad("image", i, "id" if key is None else "file_name", json)
            else:
                of_image.setdefault(key, [])
                before = seen_once(ids, key, name)
                found = find_image(folder, name)
                if before is not None:
                    bad = _Bad("twice", f"{name}, id {key}", shown(before), json)
                elif found is None:
                    bad = _Bad("missing", name, below(self.root, folder), json)
                elif (first := seen_once(taken, below(self.root, found[0]), json)) is not None:
                    bad = _Bad("twice", name, first, json)
            if bad is not None or key is None or found is None:
                entries.append(Entry(json, i, 0, bad))
            else:
                whole.append((i, image, key, below(self.root, found[0]), found[1]))
        unboxed: dict[str, int] = {}
        for i, one in enumerate(document.annotations, len(document.images)):
            key = key_of(one.image_id)
            if key is None or key not in of_image:
                entries.append(Entry(json, i, 0, _Bad("orphan", one.id, one.image_id, json)))
            elif one.bbox is None or one.bbox == []:
                unboxed[key] = unboxed.get(key, 0) + 1
            else:
                outline = bytes(one.segmentation) if self.masks else b""
                of_image[key].append((one.id, one.category_id, one.bbox, one.iscrowd, one.area, outline))
        for _, image, key, path, facts in whole:
            files[path] = facts
            width, height = _size(image.width), _size(image.height)
            objects, left_out = tuple(of_image[key]), unboxed.get(key, 0)
            content = _Image(json, path, image.file_name, key, width, height, file.split, objects, left_out)
            entries.append(Entry(path, 0, facts.st_size, content))
        return entries

    def row(self, entry: Entry, context: _Context) -> dict[str, Any]:
        content = entry.content
        if isinstance(content, _Bad):
            raise self._refused(content)
        at = Location(path=self.place(content.json))
        boxes, labels, crowds, areas, outlines = [], [], [], [], []
        for number, category, bbox, crowd, area, outline in content.annotations:
            whose = f"annotation {shown(number)} of image {content.id}"
            key = key_of(category)
            if key is None or key not in context.ids:
                known = "a class of the label map" if self.items else "one of `categories`"
                raise no_class(whose, context.categories.get(key or "", category), known, at)
            x, y, width, height = _checked(bbox, 4, whose, "bbox", "four numbers: x, y, width, height", at)
            boxes.append((x, y, x + width, y + height))
            labels.append(context.ids[key])
            if crowd not in (None, 0, 1):
                raise _malformed(whose, "iscrowd", "0 or 1", crowd, at)
            crowds.append(int(crowd or 0))
            areas.append(
                abs(width * height) if area is None else _checked([area], 1, whose, "area", "a number", at)[0]
            )
            outlines.append((outline, whose))
        values: dict[str, Any] = {
            "image": Path(self.root) / content.image,
            "filename": content.name,
            "source_id": content.id,
            "boxes": box_array(boxes),
            "labels": np.array(labels, np.int64),
            "class_names": [context.names[label] for label in labels],
            "is_crowd": np.array(crowds, np.int64),
            "area": np.array(areas, np.float32),
            "box_names": [f"annotation {shown(one[0])}" for one in content.annotations],
        }
        if content.width is not None and content.height is not None:
            values.update({"width": content.width, "height": content.height})
        if content.unboxed:
            values["skipped_annotations"] = content.unboxed
        if content.split is not None:
            values["split"] = content.split
        if self.masks:
            size = content.height, content.width
            values["masks"] = [drawn(outline, size, whose, at) for outline, whose in outlines]
        return values

    def _refused(self, bad: _Bad) -> RekordError:
        at = Location(path=self.place(bad.json))
        match bad.kind:
            case "missing":
                return no_image(bad.name, self.place(bad.other), at)
            case "twice":
                return listed_twice(bad.name, bad.other, at)
            case "image":
                return _malformed(
                    f"image {bad.name:,} of `images`", bad.other, "an id and a file_name", None, at
                )
        return error(
            "E367",
            f"annotation {shown(bad.name)} is of an image that there is not",
            location=at,
            expected="the id of one of `images`",
            found=f"image_id {shown(bad.other)}",
            do="add the image to `images`, or take the annotation out",
        )


def _context(documents: Sequence[tuple[JsonFile, Document]], items: tuple[LabelItem, ...] | None) -> _Context:
    """What categories mean, in all files together."""
    names: dict[int, str] = {}
    where: dict[int, str] = {}
    used: set[str] = set()
    for file, document in documents:
        used |= document.used
        for i, category in enumerate(document.categories):
            number = whole_number(category.id)
            if number is None or not isinstance(category.name, str) or not category.name:
                raise _not_coco(file.path, f"category {i:,} has no id and name", f"id {shown(category.id)}")
            if names.setdefault(number, category.name) != category.name:
                other = "" if where[number] == file.path else f", in {where[number]}"
                raise _not_coco(
                    file.path,
                    f"category {number} has two names",
                    f"{shown(category.name)} and {shown(names[number])}{other}",
                )
            where.setdefault(number, file.path)
    # Roboflow lists the name of the whole project as category 0, and no box has it.
    kept = {number: name for number, name in names.items() if number != 0 or "0" in used}
    ids = {str(number): number + (0 in kept) for number in kept}
    if items is None:
        of_name: dict[str, int] = {}
        for number, name in kept.items():
            if of_name.setdefault(name, number) != number:
                found = f"{of_name[name]} and {number}, both {shown(name)}"
                raise _not_coco(where[number], "two categories have one name", found)
        return _Context(ids, {ids[str(number)]: name for number, name in kept.items()}, _texts(kept))
    by_name = classes_of(list(kept.values()), items)
    chosen = {str(number): by_name[name] for number, name in kept.items() if name in by_name}
    return _Context(chosen, named(by_name, items), _texts(kept))


def _texts(names: Mapping[int, str]) -> dict[str, str]:
    return {str(number): name for number, name in names.items()}


def _not_coco(path: str, what: str, found: str) -> RekordError:
    return error(
        "X531",
        what,
        location=Location(path=path),
        expected="categories with an id from 0 and a name, each id and each name once",
        found=found,
        do="mend `categories` in the json file",
    )


def _malformed(whose: str, member: str, expected: str, found: Any, location: Location) -> RekordError:
    return error(
        "E369",
        f"{whose} has no usable `{member}`",
        location=location,
        expected=expected,
        found=shown(found),
        do="mend it in the json file, or take it out",
    )


def _checked(
    value: Any, count: int, whose: str, member: str, expected: str, location: Location
) -> Sequence[float]:
    good = isinstance(value, list) and len(value) == count
    if good:
        good = all(type(one) in (int, float) and abs(one) < _MOST_PIXELS for one in value)
    if not good:
        raise _malformed(whose, member, expected, value, location)
    return [float(one) for one in value]


def _size(value: Any) -> int | None:
    number = whole_number(value)
    return number if number is not None and 0 < number < _MOST_PIXELS else None

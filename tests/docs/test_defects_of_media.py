"""What is said of defects in sources of audio and video: every cell of the table, made and met."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from media_files import audio_bytes, video_bytes, video_without_frames

import rekord as rk

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Audio and video") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


class Medium:
    """Good files of audio or video, and the codes of bad ones."""

    def __init__(self, name: str, ending: str, unknown: str, corrupt: str) -> None:
        self.name, self.ending, self.unknown, self.corrupt = name, ending, unknown, corrupt

    def good(self, place: Any, path: str, frames: int = 3) -> Any:
        """A file that can be read; every one is different."""
        data = audio_bytes("wav", 100 * frames) if self.name == "audio" else video_bytes("mp4", frames)
        return place.put(path + self.ending, data)

    def folder(self, place: Any) -> Callable[[], Any]:
        """Two good files in class folders."""
        self.good(place, "cat/1")
        self.good(place, "dog/1", 4)
        return lambda: getattr(rk.sources, f"{self.name}_folder")(place.root)

    def listed(self, place: Any, *lines: str, header: str | None = None) -> Callable[[], Any]:
        """Two good files in a list, and more lines."""
        self.good(place, "1")
        self.good(place, "2", 4)
        head = f"{self.name},label" if header is None else header
        both = [] if header is not None else [f"1{self.ending},cat", f"2{self.ending},dog"]
        place.put("list.csv", "\n".join([head, *both, *lines]) + "\n")
        return lambda: getattr(rk.sources, f"{self.name}_csv")(place.root / "list.csv")


MEDIA = (Medium("audio", ".wav", "E341", "E342"), Medium("video", ".mp4", "E344", "E345"))


def _cells(medium: Medium) -> dict[tuple[str, str, str], Callable[[Any], Any]]:
    name, end, unknown, corrupt = medium.name, medium.ending, medium.unknown, medium.corrupt
    in_folder, in_list = f"{name}_folder", f"{name}_csv"
    feature = {"feature": name}

    def bad_in_folder(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        def case(place: Any) -> Any:
            make = medium.folder(place)
            path = medium.good(place, "cat/2", 9)
            change(place, path)
            return place.case(make, path, good=2, **feature)

        return case

    def bad_in_list(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        def case(place: Any) -> Any:
            make = medium.listed(place, f"3{end},cat")
            path = medium.good(place, "3", 9)
            change(place, path)
            return place.case(make, path, good=2, **feature)

        return case

    changes: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
        ("empty", unknown): lambda place, path: path.write_bytes(b""),
        ("truncated", corrupt): lambda place, path: place.cut(path),
        ("wrong type", unknown): lambda place, path: path.write_bytes(b"a text"),
        ("unreadable", "E329"): lambda place, path: place.unreadable(path),
        ("too large", "E347"): _make_too_large(medium),
        ("too large", "E327"): lambda place, path: place.huge(path),
    }
    if name == "video":
        changes["wrong type", "E346"] = lambda place, path: path.write_bytes(video_without_frames())
    cells: dict[tuple[str, str, str], Callable[[Any], Any]] = {}
    for (defect, code), change in changes.items():
        cells[in_folder, defect, code] = bad_in_folder(change)
        cells[in_list, defect, code] = bad_in_list(change)

    def orphan(place: Any) -> Any:
        make, path = medium.folder(place), medium.good(place, "1", 5)
        return place.case(make, path, feature="label", good=2)

    def badly_named(place: Any) -> Any:
        make = medium.folder(place)
        medium.good(place, os.fsdecode(b"cat/caf\xe9"), 5)
        return place.case(make, f"{place.root}/cat/caf\\xe9{end}", feature="filename", good=2)

    def bad_line(line: str, column: str) -> Callable[[Any], Any]:
        def case(place: Any) -> Any:
            return place.case(
                medium.listed(place, line), place.root / "list.csv", row=2, line=4, feature=column, good=2
            )

        return case

    def not_utf8(place: Any) -> Any:
        make = medium.listed(place)
        path = place.root / "list.csv"
        path.write_bytes(path.read_bytes() + b"caf\xe9" + end.encode() + b",cat\n")
        return place.case(make, path, row=2, line=4, feature=name, good=2)

    def whole_list(header: str, *lines: str) -> Callable[[Any], Any]:
        return lambda place: place.case(medium.listed(place, *lines, header=header), place.root / "list.csv")

    cells |= {
        (in_folder, "empty", "X580"): lambda place: place.case(
            lambda: getattr(rk.sources, in_folder)(place.root), place.root
        ),
        (in_folder, "missing file", "X501"): lambda place: place.case(
            lambda: getattr(rk.sources, in_folder)(place.root / "none"), place.root / "none"
        ),
        (in_folder, "orphan", "E301"): orphan,
        (in_folder, "bad encoding", "E318"): badly_named,
        (in_list, "empty", "X528"): whole_list(""),
        (in_list, "missing file", "X501"): lambda place: place.case(
            lambda: getattr(rk.sources, in_list)(place.root / "none.csv"), place.root / "none.csv"
        ),
        (in_list, "missing file", "E360"): bad_line(f"9{end},cat", name),
        (in_list, "orphan", "E361"): bad_line(f"3{end},", "label"),
        (in_list, "duplicate key", "E362"): bad_line(f"1{end},dog", name),
        (in_list, "bad encoding", "E318"): not_utf8,
        (in_list, "inconsistent columns", "E361"): bad_line(f"1{end},cat,more", "label"),
        (in_list, "inconsistent columns", "X528"): whole_list("a,b", "1,2"),
        (in_list, "unreadable", "X503"): lambda place: place.case(
            medium.listed(place), place.unreadable(place.root / "list.csv")
        ),
    }
    return cells


def _make_too_large(medium: Medium) -> Callable[[Any, Any], Any]:
    def change(place: Any, path: Any) -> None:
        if medium.name == "audio":
            data = bytearray(audio_bytes("flac", 1000))
            data[21] |= 0x0F
            data[22:26] = b"\xff" * 4  # 2^36 samples
            path.write_bytes(data)
        else:
            from rekord.codec import video

            place.patch.setattr(video, "MAX_FRAME_PIXELS", 100_000)
            path.write_bytes(video_bytes("mp4", 1, size=(320, 400)))

    return change


for one in MEDIA:
    CELLS |= _cells(one)

"""The index files of other tools: the text format of DALI and vahidk, and the binary format of kmkolasinski.

    0 19          the offset of a frame, and its size with the framing, in decimal; one line per record
    19 16

    count         then begin, end and payload size of each record, eight bytes each, little-endian

They list where the frames of an uncompressed file begin, and are used only if they match the file. The tools write
theirs next to the file; rekord writes them to a separate folder, so that `train-*` does not match them as records:

    data/train-00000-of-00004.tfrecord
    data/index-dali/train-00000-of-00004.tfrecord.idx
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.index import Offsets, compact_offsets, parse_frame_size
from rekord.storage.local import read_up_to
from rekord.storage.portability import pread
from rekord.storage.router import ROUTED_STORAGE, is_remote

TEXT_SUFFIX = {"dali": ".idx", "vahidk": ".tfindex"}
_EXTENSION = re.compile(r"\.(tfrecords?|records?|tfrecs?|tfr)$", re.IGNORECASE)
_MAX_LINE_BYTES = 42  # two numbers of 20 digits, a space and a line ending
_FRAMING_BYTES = 16
_LINES_PER_CHUNK = 1 << 20
_MAX_PARENT_FOLDERS = 2
"""Parent folders searched for an index folder: `data/index-dali` also has the indexes of `data/a/b/x.tfrecord`."""


def external_index_name(path: str, tool: str) -> str:
    """The name that a tool gives to the index of a file: DALI `x.tfrecord.idx`, vahidk `x.tfindex`."""
    # Only a known extension is replaced: that of `x.tfrecord-00000-of-00002` distinguishes the shards.
    return (_EXTENSION.sub("", path) if tool == "vahidk" else path) + TEXT_SUFFIX[tool]


def index_folder(root: str, tool: str) -> str:
    """The folder for the index files of a tool, in the folder `root` of its record files."""
    return os.path.join(root, f"index-{tool}")


def find_index_root(path: str, files: Sequence[str]) -> str:
    """The folder that gets the index folder: `path` itself, or the one that contains its file or all its files."""
    if os.path.isdir(path):
        return path
    common = os.path.commonpath([os.path.dirname(file) for file in files])
    return common.replace(":/", "://", 1) if is_remote(path) else common


def external_index_path(root: str, path: str, tool: str) -> str:
    """The path of the index of a record file below `root`: `root/index-dali/train/x.tfrecord.idx`."""
    return os.path.join(index_folder(root, tool), os.path.relpath(external_index_name(path, tool), root or "."))


def find_external_index(path: str, size_bytes: int) -> Offsets | None:
    """The offsets in an index file next to a file or in an index folder, if they cover the whole file."""
    for place in dict.fromkeys(_iter_index_paths(path)):
        found = read_external_index(place, size_bytes)
        if found is not None:
            return found
    return None


def _iter_index_paths(path: str) -> Iterator[str]:
    """Possible paths of the index of a file: next to it, as the tools write it, or in an index folder."""
    stem = _EXTENSION.sub("", path)
    yield from (f"{stem}.tfindex", f"{path}.tfindex", f"{path}.idx", f"{stem}.idx")
    root = os.path.dirname(os.path.abspath(path))
    for _ in range(1 + _MAX_PARENT_FOLDERS):
        yield from (external_index_path(root, os.path.abspath(path), tool) for tool in TEXT_SUFFIX)
        root = os.path.dirname(root)


def read_external_index(place: str, size_bytes: int) -> Offsets | None:
    """The offsets in an index file of another tool; None if it is not an index of this many bytes."""
    most_records = size_bytes // _FRAMING_BYTES
    try:
        length_bytes = os.path.getsize(place)
        if not 0 < length_bytes <= 8 + _MAX_LINE_BYTES * most_records:
            return None
        with open(place, "rb") as file:
            count = int.from_bytes(file.read(8), "little")
            file.seek(0)
            binary = length_bytes == 8 + 24 * count
            content = file.read(length_bytes)
    except OSError:
        return None
    return _parse_binary(content, size_bytes) if binary else _parse_text(content, size_bytes)


def encode_text_index(offsets: Offsets, size_bytes: int) -> bytes:
    """The lines of an index file for DALI or vahidk."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    options = pa_csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    for first in range(0, len(offsets), _LINES_PER_CHUNK):
        begins = offsets[first : first + _LINES_PER_CHUNK + 1].astype(np.int64)
        if first + _LINES_PER_CHUNK >= len(offsets):
            begins = np.append(begins, size_bytes)
        lines = pa.table({"offset": begins[:-1], "size": np.diff(begins)})
        pa_csv.write_csv(lines, sink, options)
    return bytes(sink.getvalue().to_pybytes())


def is_external_index(place: str) -> bool:
    """Whether a file begins like an index of one of these tools; an empty one may be an index of nothing."""
    with ROUTED_STORAGE.open_read(place) as file:
        head = read_up_to(file, 64)
        length_bytes = file.size_bytes
    if not head or length_bytes == 8 + 24 * int.from_bytes(head[:8], "little"):
        return True
    return re.match(rb"0 \d{2,20}\n", head) is not None


def is_index_of_file(offsets: Offsets, size_bytes: int, descriptor: int) -> bool:
    """Whether offsets ascend through an uncompressed file, and a few of them are those of its frames.

    Four frames are checked: the last one shows whether the file has grown or shrunk since.
    """
    if not len(offsets):
        return size_bytes == 0
    if int(offsets[0]) or int(offsets[-1]) + _FRAMING_BYTES > size_bytes or not is_ascending(offsets):
        return False
    last = len(offsets) - 1
    for record in {0, last // 3, 2 * last // 3, last}:
        begin = int(offsets[record])
        end = int(offsets[record + 1]) if record < last else size_bytes
        header = pread(descriptor, _core.HEADER_BYTES, begin)
        if not _core.header_agrees(header) or begin + parse_frame_size(header) != end:
            return False
    return True


def is_ascending(offsets: Offsets) -> bool:
    """Whether each frame begins after the one before it, with at least enough room for its framing."""
    for first in range(0, len(offsets), _LINES_PER_CHUNK):
        part = offsets[first : first + _LINES_PER_CHUNK + 1].astype(np.int64)
        if len(part) > 1 and int(np.diff(part).min()) < _FRAMING_BYTES:
            return False
    return True


def _parse_binary(content: bytes, size_bytes: int) -> Offsets | None:
    found = np.frombuffer(content, "<u8", offset=8).astype(np.int64).reshape(-1, 3)
    begins, ends, payloads = found[:, 0], found[:, 1], found[:, 2]
    if not np.array_equal(ends - begins, payloads + _FRAMING_BYTES):
        return None
    return _validate_coverage(begins, ends, size_bytes)


def _parse_text(content: bytes, size_bytes: int) -> Offsets | None:
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    try:
        lines: Any = pa_csv.read_csv(
            pa.py_buffer(content),
            read_options=pa_csv.ReadOptions(column_names=["offset", "size"], use_threads=False),
            parse_options=pa_csv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=pa_csv.ConvertOptions(
                column_types={"offset": pa.int64(), "size": pa.int64()}, null_values=[]
            ),
        )
        begins, sizes = (lines[name].combine_chunks().to_numpy() for name in ("offset", "size"))
    except (pa.ArrowException, ValueError, KeyError):
        return None
    return _validate_coverage(begins, begins + sizes, size_bytes)


def _validate_coverage(begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], size_bytes: int) -> Offsets | None:
    whole = (
        len(begins) > 0
        and int(begins[0]) == 0
        and int(ends[-1]) == size_bytes
        and np.array_equal(begins[1:], ends[:-1])
        and int((ends - begins).min()) >= _FRAMING_BYTES
    )
    return compact_offsets(begins) if whole else None

"""A shard on its way into a dataset: frames go in, and its file, its index and its `.done` come out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from rekord.dataset.index import index_file
from rekord.dataset.manifest import FOLDER, Count, tagged
from rekord.engines.journal import Staging
from rekord.engines.memory import LARGE_BYTES, give_back
from rekord.errors import RekordError
from rekord.records.compress import frame_sink
from rekord.schema import Schema
from rekord.storage.behind import Output

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer


class ShardDone(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a shard when it is finished."""

    records: Count
    framed_bytes: Count
    file_bytes: Count
    digest: str  # algorithm:hex
    index: list[Count]  # the checksums of the index
    classes: dict[str, dict[str, Count]]  # of each Label column: records by class id
    blocks: list[
        tuple[Count, Count]
    ]  # [record, offset] of some records, for readers that begin in the middle


class ShardFile:
    """One shard, in a `with` block: without `complete` nothing is left of it."""

    def __init__(self, staging: Staging, name: str, compression: str) -> None:
        self._staging = staging
        self._name = name
        self._path = os.path.join(staging.out, name)
        self._temporary = staging.temporary(self._path)
        self._file = staging.storage.create(self._temporary)
        self._output = Output(self._file, hashed=True)
        self._sink = frame_sink(compression, self._output.write)
        self._is_plain = compression == "none"
        self._complete = False

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.__exit__(kind, failure, trace)
        self._file.close()
        if not self._complete:
            # What is half done is of no use to anybody, and the disk may be full of it.
            with suppress(RekordError):
                self._staging.storage.remove(self._temporary)

    def write(self, frames: Buffer) -> None:
        """Whole frames, in any pieces; they may be used again after that."""
        self._sink.write(frames)

    def lend(self, frames: Buffer) -> None:
        """Whole frames that stay as they are until `LENT` more were lent: they are not copied once more."""
        if self._is_plain:
            self._output.lend(frames)
        else:
            self._sink.write(frames)

    def complete(
        self, schema: Schema, index: Sequence[str], lengths: Any, tables: Sequence[pa.Table], done_path: str
    ) -> ShardDone:
        """Put the file in its place, with its index; `lengths` are those of its frames.

        `tables` have a column `index:<name>` for each column of the index, and a line for each record.
        """
        self._sink.finish()
        self._output.finish()
        self._file.fsync()
        offsets = np.cumsum(lengths) - lengths
        digest = tagged(self._output.sha256())
        made = index_file(schema, index, offsets, tables, self._sink.flush_points, digest)
        staging = self._staging
        staging.storage.rename(self._temporary, self._path)
        self._complete = True
        staging.write(index_place(staging, self._name), made.data, sync=True)
        done = ShardDone(
            records=len(lengths),
            framed_bytes=int(lengths.sum()),
            file_bytes=self._output.n_bytes,
            digest=digest,
            index=made.checksums,
            classes=made.classes,
            blocks=made.blocks,
        )
        staging.write_done(done_path, done)
        if done.file_bytes >= LARGE_BYTES:
            give_back()
        return done


def index_place(staging: Staging, name: str) -> str:
    """Where the index of a shard is written."""
    return os.path.join(staging.out, FOLDER, "index", f"{name}.arrow")


def finished_shard(staging: Staging, name: str, done_path: str) -> ShardDone | None:
    """What an earlier run says of a shard that it finished, where the shard and its index are there."""
    done = staging.read_done(done_path, ShardDone)
    if done is None:
        return None
    whole = staging.size_of(os.path.join(staging.out, name)) == done.file_bytes
    return done if whole and staging.size_of(index_place(staging, name)) > 0 else None

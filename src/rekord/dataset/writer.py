"""`rk.Writer`: one record file, written row by row or in columns, and published when it is complete."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rekord.arguments import check_keywords
from rekord.codec.columns import Column
from rekord.codec.encode import new_row_encoder, validate_schema
from rekord.codec.encode_columns import EncodedBatches, encode_batches
from rekord.errors import EncodeError, RekordError, error
from rekord.framing.deflate import FlushPoint, FrameSink, compression_name, open_frame_sink
from rekord.location import Location
from rekord.storage.local import WRITE_BYTES, AsyncWriter, Storage
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import StagedFile, Transaction

if TYPE_CHECKING:
    from typing import Self

    import numpy.typing as npt
    import pyarrow as pa

    from rekord.schema import Schema

_BLOCK_BYTES = WRITE_BYTES


@check_keywords
class Writer:
    """Writes one record file, which appears, complete and on disk, at the end of the `with` block.

    ```python
    with rk.Writer("train.tfrecord", schema) as writer:
        for row in rows:
            writer.write(row)
    ```
    If the block raises, nothing appears and an existing file at `path` stays. An invalid row raises an EncodeError
    with its number and is not written; writing can continue with the next one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        compression: str | None = None,
        storage: Storage = ROUTED_STORAGE,
    ) -> None:
        self.path = os.fsdecode(path)
        self.schema = validate_schema(schema)
        self.compression = compression_name(compression)
        self._encoder = new_row_encoder(schema)
        self._transaction = Transaction(self.path, storage)
        self._file: StagedFile | None = None
        self._sink: FrameSink | None = None
        self._in_columns = 0
        self._given = 0  # rows, including refused ones
        self._whole = True  # nothing that was taken from the encoder is missing in the file
        self._closed = False

    @property
    def records(self) -> int:
        """Number of records written so far."""
        return int(self._encoder.appended) + self._in_columns

    @property
    def flush_points(self) -> list[FlushPoint]:
        """The positions in a compressed file where reading can start, besides its beginning."""
        return [] if self._sink is None else list(self._sink.flush_points)

    def write(self, row: Mapping[str, object]) -> None:
        """Write one row."""
        if self._sink is None or self._closed:
            self._open()
        try:
            waiting = self._encoder.append(row)
        except RekordError as failure:
            failure.location = failure.location.within(path=self.path, row=self._given)
            raise
        finally:
            self._given += 1
        if waiting >= _BLOCK_BYTES:
            self._flush()

    def write_columns(self, batch: Mapping[str, npt.ArrayLike | Column] | pa.RecordBatch | pa.Table) -> None:
        """Write many rows, all or none, from a dict of NumPy columns, a pyarrow RecordBatch or a Table."""
        sink = self._open()
        try:
            pieces = encode_batches(batch, self.schema, enough_bytes=_BLOCK_BYTES)
            self._given += pieces.rows
        except RekordError as failure:
            row = failure.location.row
            failure.location = replace(failure.location, row=None if row is None else row + self._given)
            failure.location = failure.location.within(path=self.path)
            raise
        self._flush()
        self._whole = False
        try:
            self._write_pieces(pieces, sink)
        except EncodeError:  # a record too large; the rows before it are in the file
            self._whole = True
            raise
        self._whole = True

    def _write_pieces(self, pieces: EncodedBatches, sink: FrameSink) -> None:
        if self.compression != "none":
            for frames, rows in pieces:
                sink.write(frames)
                self._in_columns += rows
            return
        assert self._file is not None
        # Each piece is written while the next one is encoded.
        with AsyncWriter(self._file, hashed=False) as output:
            try:
                for frames, rows in pieces:
                    # A short piece, usually the only one, is not worth a thread.
                    (output.write_borrowed if len(frames) >= WRITE_BYTES else output.write)(frames)
                    self._in_columns += rows
            finally:
                output.finish()

    def close(self) -> None:
        """Complete and publish the file. Closing twice is fine."""
        if self._closed:
            return
        sink = self._open()
        try:
            self._flush()
            sink.finish()
        except BaseException:
            self.discard()
            raise
        self._closed = True
        assert self._file is not None
        self._file.commit()

    def discard(self) -> None:
        """Discard the file; nothing appears."""
        if self._closed:
            return
        self._closed = True
        if self._file is not None:
            self._file.abort()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # Never closed: nothing will complete its staged file.
        with suppress(Exception):
            self.discard()

    def _open(self) -> FrameSink:
        if self._closed:
            raise self._refused("is closed")
        if self._sink is None:
            self._file = self._transaction.file()
            self._sink = open_frame_sink(self.compression, self._file.write)
        return self._sink

    def _flush(self) -> None:
        assert self._sink is not None
        if not self._whole:
            raise self._refused("was interrupted, and records are missing")
        self._whole = False
        frames: Any = self._encoder.take()
        if len(frames):
            self._sink.write(frames)
        self._whole = True

    def _refused(self, what: str) -> RekordError:
        return error(
            "U607",
            f"writer {what}",
            location=Location(path=self.path),
            expected="an open writer",
            found="a closed one" if self._closed else "an incomplete one",
            do="write inside the `with` block, or create another rk.Writer",
        )

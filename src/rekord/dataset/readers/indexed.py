"""Records by their numbers to decoded batches."""

from __future__ import annotations

from collections.abc import Callable

from rekord import _core
from rekord.codec.columns import Column
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import CodecPlan
from rekord.dataset.order import Ids
from rekord.dataset.read import decode_error
from rekord.dataset.shards import Shards
from rekord.errors import RekordError
from rekord.location import Location


class IndexedDecoder:
    """Decodes records of some shards by a plan, and perhaps their images, batch after batch, for one thread."""

    def __init__(
        self,
        shards: Shards,
        plan: CodecPlan,
        pool: _core.Pool,
        images: Callable[[dict[str, Column]], dict[str, Column]] | None = None,
    ) -> None:
        self._shards = shards
        self._plan = plan
        self._pool = pool
        self._image_decoder = images
        self._batch = new_batch(plan, pool)

    def decode(self, ids: Ids) -> dict[str, Column]:
        """The batch of these records, in this order."""
        gathered = self._shards.gather(ids, self._pool)
        size = gathered.size_bytes
        consumed, _, frame, row = self._batch.feed(gathered.slab, 0, size, size, len(ids))
        if frame is not None or row is not None:
            where = self._shards.where(int(ids[self._batch.rows]))
            self._batch.take()  # the rows before it go with it
            raise decode_error(self._plan, where, frame, row, gathered.slab, consumed)
        try:
            batch = assemble_columns(self._plan, self._batch.take(), len(ids))
            return batch if self._image_decoder is None else self._image_decoder(batch)
        except RekordError as failure:
            bad = failure.location.row
            if bad is not None:
                where = self._shards.where(int(ids[bad]))
                failure.location = Location(feature=failure.location.feature).within(**where.to_dict())
            raise

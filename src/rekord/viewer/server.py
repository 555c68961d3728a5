"""The addresses of the viewer, and the server that answers them."""

from __future__ import annotations

import os
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rekord.dataset.index import ByteLimitedCache
from rekord.errors import RekordError, error
from rekord.log import get_logger
from rekord.version import VERSION
from rekord.viewer import containers, details, media, mosaic
from rekord.viewer.columns import ColumnInfo, get_bytes, list_overlays
from rekord.viewer.memory import Budget, Buffer
from rekord.viewer.predictions import find_predictions
from rekord.viewer.record_sets import RecordSetQuery, RecordSets
from rekord.viewer.records import MAX_DECODED_BYTES, MAX_RECORD_BYTES, Pending, RawRecord
from rekord.viewer.responses import PieceResponse
from rekord.viewer.security import Access, AccessMiddleware
from rekord.viewer.session import QueryTimeout, Session, Side, SplitRecords, TooManyQueries
from rekord.viewer.shell import load_static_files, render_shell

# What the first page does not need is imported when it is first used: SQL, checks and edits take longer to load
# than a record takes to show.
if TYPE_CHECKING:
    from rekord.viewer.findings import CheckRun
    from rekord.viewer.tags import Curation

_log = get_logger(__name__)

MAX_PAGE_ROWS = 200
MAX_COLUMNS_SHOWN = 40
MAX_IDS = 100_000
FACET_SECONDS = 1.0

_CACHED_MEDIA_BYTES = 48 << 20
_READ_BYTES = 256 << 20  # for all records that are being read and decoded
_BYTES_PER_PAYLOAD_BYTE = 16  # integers of one byte have 8 in memory, twice while they are described
_SENT_BYTES = 128 << 20  # for all bodies that are being sent
_SMALL_BODY_BYTES = 4 << 20
_MAX_RANGE_BYTES = 4 << 20
_EDIT_SECONDS = 1.0  # how long an edit is waited for; then the page asks how far it is
_MAX_NUMBER = 10**15
_NOT_FOUND = frozenset({"U606", "X506", "X501"})
_MISSING_LIBRARY = "U602"


def error_status(failure: RekordError) -> int:
    """The HTTP status of an error."""
    if failure.code in _NOT_FOUND:
        return 404
    if failure.code == _MISSING_LIBRARY:
        return 424
    return 400 if failure.code[0] in "US" else 422


def to_response(failure: Exception) -> Response:
    """The answer to a request that failed."""
    if isinstance(failure, Pending):
        document = _plain_error("record is not indexed yet")
        return json_response(document, 503, {"retry-after": "1"})
    if isinstance(failure, media.TooLarge):
        return json_response({"error": failure.failure.to_dict()}, 413)
    if isinstance(failure, media.UnsafeType):
        return json_response(_plain_error("value is not of a type that the page shows"), 415)
    if isinstance(failure, QueryTimeout) and failure.cancelled:
        return json_response(_plain_error("query was cancelled"), 504)
    if isinstance(failure, QueryTimeout):
        slow = error("U682", "query was over its time limit", do="rekord query PATH SQL")
        return json_response({"error": slow.to_dict()}, 504)
    if isinstance(failure, TooManyQueries):
        return json_response(_plain_error("too many queries run at once"), 429, {"retry-after": "1"})
    if isinstance(failure, RekordError):
        return json_response({"error": failure.to_dict()}, error_status(failure))
    last = traceback.extract_tb(failure.__traceback__)[-1:]
    where = "".join(f"{os.path.basename(one.filename)}:{one.lineno}" for one in last)
    _log.error("request failed: %s in %s: %s", type(failure).__name__, where, failure, exc_info=failure)
    return json_response(_plain_error(f"unexpected {type(failure).__name__}"), 500)


def _plain_error(what: str, *, do: str | None = None) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(("expected", "found", "likely"))
    return {"error": {"error": "ViewerError", "code": None, "what": what, "location": {}, **empty, "do": do}}


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document. Text of records may hold lone surrogates, which JSON has as escapes."""
    import json

    body = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    return Response(body, status, dict(headers or {}), "application/json")


@dataclass(frozen=True, slots=True)
class _Medium:
    """A body in pieces. `release` gives its memory back, if it holds some until it is sent."""

    pieces: Sequence[Buffer]
    type: str
    is_compressed: bool = False
    release: Callable[[], None] | None = None

    @classmethod
    def of(cls, body: bytes, type: str) -> _Medium:
        """A body that was made at once."""
        return cls([body], type)

    @property
    def n_bytes(self) -> int:
        """The size of the body."""
        return sum(map(len, self.pieces))


class Parameters:
    """The query string of a request, parsed."""

    def __init__(self, request: Request) -> None:
        self._given = request.query_params

    def text(self, name: str, default: str = "", *, most: int = 10_000) -> str:
        """A text of bounded length."""
        found = self._given.get(name, default)
        if len(found) > most:
            raise error(
                "U605", f"`{name}` is too long", expected=f"at most {most:,} characters", found=str(len(found))
            )
        return found

    def integer(self, name: str, default: int | None = None, *, least: int = 0, most: int = _MAX_NUMBER) -> int:
        """An integer, limited to a range."""
        text = self._given.get(name)
        if text is None and default is not None:
            return default
        if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
            raise error("U605", f"`{name}` is not a number", expected="an integer ≥ 0", found=repr(text)[:60])
        return min(max(int(text), least), most)

    @property
    def optional_step(self) -> int | None:
        """The step of a sequence, if one is asked for."""
        return None if "step" not in self._given else self.integer("step")

    @property
    def record_set(self) -> RecordSetQuery:
        """The parameters that choose records."""
        return RecordSetQuery(
            filter=self.text("filter"),
            sql=self.text("sql"),
            finding=self.text("finding"),
            cell=self.text("cell"),
            tag=self.text("tag"),
            order=self.text("order", "file"),
        )


class Api:
    """Everything that the page asks for."""

    def __init__(self, session: Session, access: Access) -> None:
        self.session = session
        self.access = access
        self.sets = RecordSets(session)
        self._media = ByteLimitedCache(_CACHED_MEDIA_BYTES)
        self._read_budget = Budget(_READ_BYTES)
        self._send_budget = Budget(_SENT_BYTES)

    # The page.

    def shell(self, request: Request) -> Response:
        """The page itself."""
        names = " and ".join(side.name for side in self.session.sides)
        page = render_shell(f"{names} · rekord", self._describe_session())
        return Response(page, media_type="text/html")

    def static(self, request: Request) -> Response:
        """A file of the page."""
        found = load_static_files().get(request.path_params["name"])
        if found is None:
            return json_response(_plain_error("no such file"), 404)
        headers = {"etag": found.etag, "cache-control": "private, no-cache"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        headers |= {"content-type": found.type, "vary": "accept-encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(found.content, headers=headers)
        return Response(found.packed, headers=headers | {"content-encoding": "gzip"})

    def describe_session(self, request: Request) -> Response:
        """What is open."""
        return json_response(self._describe_session())

    def _describe_session(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "stamp": self.session.stamp,
            "edit": self.access.edit,
            "sql": find_spec("duckdb") is not None,
            "media": {"video": find_spec("av") is not None, "audio": find_spec("soundfile") is not None},
            "limits": {
                "record_bytes": MAX_RECORD_BYTES,
                "decoded_bytes": MAX_DECODED_BYTES,
                "pixels": media.MAX_PIXELS,
                "tiles": mosaic.MAX_TILES,
                "page": MAX_PAGE_ROWS,
                "findings": 1000,
            },
            "sides": [self._describe_side(side) for side in self.session.sides],
            "schema_pending": any(side.schema_pending for side in self.session.sides),
            "predictions": find_predictions(self.session) is not None,
            "notebook": self.access.framed,
        }

    def _describe_side(self, side: Side) -> dict[str, Any]:
        columns = side.columns
        label = next((one.name for one in columns if one.view == "class" and not one.is_step), None)
        return {
            "index": side.number,
            "name": side.name,
            "path": side.path,
            "remote": side.remote,
            "error": None if side.problem is None else side.problem.to_dict(),
            "kind": side.schema.kind,
            "declared": side.is_declared,
            "columns": [one.to_dict() for one in columns if not one.is_step][: details.MAX_FEATURES],
            "steps": [one.to_dict() for one in columns if one.is_step][: details.MAX_FEATURES],
            "splits": [
                {"name": one.name, "files": len(one.files), "bytes": sum(file.size_bytes for file in one.files)}
                for one in side.splits.values()
            ],
            "overlays": list_overlays([one for one in columns if not one.is_step]),
            "label": label,
        }

    def status(self, request: Request) -> Response:
        """How far the background work is."""
        check = self.check(self.session.sides[0])
        is_indexing = any(side.is_busy for side in self.session.sides)
        if not is_indexing:
            check.start_if_small()
        facets = self.sets.facet_status()
        busy = is_indexing or check.state == "running" or not all(one["complete"] for one in facets)
        return json_response(
            {
                "busy": busy,
                "sides": [side.status() for side in self.session.sides],
                "check": check.status(),
                "facets": facets,
            }
        )

    def check(self, side: Side) -> CheckRun:
        """The check of a side."""
        from rekord.viewer.findings import get_check

        return get_check(self.session, side)

    # Records.

    def rows(self, request: Request) -> Response:
        """A page of the table."""
        given, side, split = self._place(request)
        split.wait_for(0)
        chosen = self.sets.resolve(side, split, given.record_set)
        first = given.integer("first", 0)
        count = given.integer("count", 50, most=MAX_PAGE_ROWS)
        columns = side.columns
        shown = columns[:MAX_COLUMNS_SHOWN]
        check: CheckRun | None = self.session.find_part("check") if side.number == 0 else None
        rows = []
        for number, raw in self._iter_records(split, chosen.slice(first, count)):
            row = details.describe_raw(raw, number, split.name)
            row["stream"] = bool(split.locate(number).file.compression != "none")
            row["findings"] = [] if check is None else check.findings_of(split.name, number)
            row["cells"] = []
            if raw.state == "ok":
                try:
                    names = details.with_box_names(side.schema, [one.name for one in shown])
                    row["cells"] = details.make_cells(details.read_row(raw, side.schema, names), shown, side.schema)
                except RekordError as failure:
                    row |= {"state": "invalid", "error": failure.to_dict()}
            rows.append(row)
        return json_response(
            {
                "total": len(chosen),
                "complete": chosen.complete and split.is_complete,
                "first": first,
                "columns": [one.name for one in shown],
                "more_columns": len(columns) - len(shown),
                "rows": rows,
            }
        )

    def ids(self, request: Request) -> Response:
        """The numbers of the records of a set."""
        given, side, split = self._place(request)
        chosen = self.sets.resolve(side, split, given.record_set)
        numbers = chosen.slice(0, given.integer("most", 10_000, most=MAX_IDS))
        return json_response({"total": len(chosen), "records": [[split.name, one] for one in numbers]})

    def record(self, request: Request) -> Response:
        """Everything about a record."""
        given, side, split = self._place(request)
        number = given.integer("record")
        with self._reading(split):
            raw = split.read([number])[0][1]
            document = details.describe_record(raw, number, split.name, side.schema)
        known = len(split)
        check: CheckRun | None = self.session.find_part("check") if side.number == 0 else None
        document["findings"] = [] if check is None else check.name_findings(split.name, number)
        document["previous"] = number - 1 if number else None
        document["next"] = number + 1 if number + 1 < known else None
        document["frame"]["stream"] = split.locate(number).file.compression != "none"
        return json_response(document)

    def hex(self, request: Request) -> Response:
        """Bytes of a frame, or of a value."""
        given, side, split = self._place(request)
        first, count = given.integer("first", 0), given.integer("count", 4096, most=details.MAX_HEX_BYTES)
        with self._reading(split):
            if given.text("feature"):
                return json_response(details.describe_bytes_hex(self._value_bytes(given, side, split), first, count))
            raw = split.read([given.integer("record")])[0][1]
            return json_response(details.describe_hex(raw, first, count))

    # Media.

    def thumb(self, request: Request) -> Response:
        """A thumbnail."""
        px = Parameters(request).integer("px", 160, least=16, most=512)

        def make(value: Any, column: ColumnInfo, given: Parameters) -> _Medium:
            if isinstance(value, np.ndarray) and value.dtype == np.uint8:
                return _Medium.of(*media.array_thumbnail(value, px))
            data = get_bytes(value, column.name, given.integer("item", 0))
            if column.view == "mask":
                return _Medium.of(*media.make_mask_thumbnail(data, column.feature, px))
            return _Medium.of(*media.make_thumbnail(data, px))

        return self._medium(request, ("thumb", px), make)

    def image(self, request: Request) -> Response:
        """An image as it is stored, if browsers show its format."""

        def make(value: Any, column: ColumnInfo, given: Parameters) -> _Medium:
            if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
                return _Medium.of(*media.array_thumbnail(value, max(value.shape[:2])))
            return _Medium.of(*media.get_original(get_bytes(value, column.name, given.integer("item", 0))))

        return self._medium(request, ("image",), make)

    def mask(self, request: Request) -> Response:
        """The class ids of a mask, or of its nearest pixels in a smaller size."""
        px = Parameters(request).integer("px", 0, most=1 << 16)
        is_compressed = "gzip" in request.headers.get("accept-encoding", "")

        def make(value: Any, column: ColumnInfo, given: Parameters) -> _Medium:
            data = get_bytes(value, column.name, given.integer("item", 0))
            release = self._send_budget.take(media.measure_mask(data))
            try:
                ids = media.read_mask(data, column.feature)
                pieces = media.encode_mask(media.shrink_mask(ids, px) if px else ids)
                if is_compressed:
                    packer = zlib.compressobj(1, wbits=31)
                    pieces = [*map(packer.compress, pieces), packer.flush()]
                made = _Medium(pieces, "application/octet-stream", is_compressed, release)
            except BaseException:
                release()
                raise
            if made.n_bytes <= _SMALL_BODY_BYTES:
                release()
            return made

        return self._medium(request, ("mask", px, is_compressed), make)

    def tensor(self, request: Request) -> Response:
        """A slice of a tensor as a grid."""
        given, side, split = self._place(request)
        with self._reading(split):
            value, _ = self._value(given, side, split)
            grid = details.make_grid(
                value, given.integer("slice", 0), given.integer("rows", 64), given.integer("columns", 64)
            )
        return json_response(grid)

    def audio(self, request: Request) -> Response:
        """Audio as it is stored."""
        return self._stored(request, containers.sniff_audio, containers.AUDIO_TYPES)

    def video(self, request: Request) -> Response:
        """A video as it is stored."""
        return self._stored(request, containers.sniff_video, containers.VIDEO_TYPES)

    def peaks(self, request: Request) -> Response:
        """The waveform of audio."""
        given, side, split = self._place(request)
        with self._reading(split):
            data = self._value_bytes(given, side, split)
            if containers.sniff_audio(data) is None:
                raise media.UnsafeType
            bins = given.integer("bins", 1000, least=1, most=10_000)
            return json_response(containers.compute_peaks(data, bins, given.text("feature")))

    def frame(self, request: Request) -> Response:
        """A frame of a video."""
        number = Parameters(request).integer("frame", 0)

        def make(value: Any, column: ColumnInfo, given: Parameters) -> _Medium:
            data = get_bytes(value, column.name, given.integer("item", 0))
            if containers.sniff_video(data) is None:
                raise media.UnsafeType
            return _Medium.of(media.encode_jpeg(containers.decode_frame(data, number, column.name)), "image/jpeg")

        return self._medium(request, ("frame", number), make)

    def mosaic(self, request: Request) -> Response:
        """A sheet of tiles."""
        given, side, split = self._place(request)
        chosen = self.sets.resolve(side, split, given.record_set)
        columns = side.columns
        images = [one.name for one in columns if one.view in ("image", "mask") and not one.is_step]
        feature = given.text("feature") or next(iter(images), "")
        details.schema_column(side.schema, feature)
        label = given.text("label") or next((one.name for one in columns if one.view == "class"), None)
        count = given.integer("count", 512, most=mosaic.MAX_TILES_PER_SHEET)
        px = given.integer("px", 32, least=mosaic.MIN_PX, most=mosaic.MAX_PX)
        release = self._send_budget.take(3 * count * px * px)
        try:
            sheet = mosaic.make_sheet(
                side, chosen, feature=feature, label=label, first=given.integer("first", 0), count=count, px=px
            )
        except BaseException:
            release()
            raise
        return self._send(sheet, {"content-type": "application/octet-stream"}, release)

    # Facets and queries.

    def facets(self, request: Request) -> Response:
        """Bars and histograms."""
        given, side, split = self._place(request)
        query = given.record_set
        table = self.sets.facets(side, split)
        table.wait(FACET_SECONDS)
        return json_response(table.to_dict(query.filters, self.sets.within(side, split, query)))

    def cube(self, request: Request) -> Response:
        """Cumulative counts for brushing."""
        given, side, split = self._place(request)
        query = given.record_set
        table = self.sets.facets(side, split)
        table.wait(FACET_SECONDS)
        return json_response(table.cube(given.text("active"), query.filters, self.sets.within(side, split, query)))

    def sql(self, body: Mapping[str, Any]) -> Response:
        """The result of a query."""
        sql, limit = body.get("query"), body.get("limit", 1000)
        if not isinstance(sql, str) or not sql.strip():
            raise error(
                "U680", expected="a query", found="nothing", do="select label, count(*) from records group by 1"
            )
        if not isinstance(limit, int) or isinstance(limit, bool):
            raise error("U605", "`limit` is not a number", expected="an integer", found=repr(limit)[:60])
        side = self._side_of(body)
        split = body.get("split")
        name = str(body.get("id") or "")[:100]
        rows = self.sets.queries.run(side, split if isinstance(split, str) else None, sql, limit=limit, name=name)
        return Response(rows, media_type="application/json")

    def cancel(self, body: Mapping[str, Any]) -> Response:
        """Stop a query."""
        return json_response({"cancelled": self.sets.queries.cancel(str(body.get("id") or "")[:100])})

    # Findings, comparison, predictions.

    def start_check(self, body: Mapping[str, Any]) -> Response:
        """Start the check."""
        check = self.check(self._side_of(body))
        check.start()
        return json_response(check.status())

    def findings(self, request: Request) -> Response:
        """Findings, each with its records."""
        given = Parameters(request)
        check = self.check(self.session.get_side(given.integer("side", 0)))
        return json_response(check.to_dict(given.integer("first", 0), given.integer("count", 100, most=1000)))

    def pairs(self, request: Request) -> Response:
        """Pairs of equal records."""
        given = Parameters(request)
        check = self.check(self.session.get_side(given.integer("side", 0)))
        kind = given.text("kind") or None
        return json_response(check.pairs(kind, given.integer("first", 0), given.integer("count", 100, most=1000)))

    def compare(self, request: Request) -> Response:
        """The records of two sides by key."""
        from rekord.viewer.compare import STATUSES, KeyComparison, list_key_candidates

        given = Parameters(request)
        if len(self.session.sides) < 2:
            raise error("U606", "only one dataset is open", expected="two datasets", do="rekord view A B")
        keys = list_key_candidates(self.session)
        key = given.text("key") or next(iter(keys), "")
        if not key:
            raise error(
                "U646",
                "no column identifies the records of both datasets",
                expected="a column of both with one integer or text per record",
                found="none",
            )
        made: KeyComparison = self.session.part(("compare", key), lambda: KeyComparison(self.session, key))
        only = given.text("only", "differs")
        return json_response(
            made.to_dict(
                only if only in (*STATUSES, "all") else "differs",
                given.integer("first", 0),
                given.integer("count", 100, most=MAX_PAGE_ROWS),
            )
        )

    def predictions(self, request: Request) -> Response:
        """The confusion matrix."""
        return json_response(self.sets.predictions.to_dict())

    def cell(self, request: Request) -> Response:
        """The records of a cell of the confusion matrix."""
        given = Parameters(request)
        first, count = given.integer("first", 0), given.integer("count", 100, most=1000)
        shown = self.sets.predictions
        return json_response(shown.describe_cell(given.integer("truth"), given.integer("prediction"), first, count))

    # Selections and edits.

    def tags(self, request: Request) -> Response:
        """The selected records and their tags."""
        given = Parameters(request)
        side = self.session.get_side(given.integer("side", 0))
        curation = self._curation(side)
        document = curation.tags()
        if given.text("records"):
            document["records"] = [list(one) for one in curation.records(given.text("tag") or None)[:MAX_IDS]]
        return json_response(document)

    def change_tags(self, body: Mapping[str, Any]) -> Response:
        """Tag records."""
        return json_response(self._curation(self._side_of(body)).change(body))

    def curate(self, body: Mapping[str, Any]) -> Response:
        """How to do an edit."""
        return json_response(self._curation(self._side_of(body)).plan(body).to_dict())

    def run(self, body: Mapping[str, Any]) -> Response:
        """Do an edit."""
        if not self.access.edit:
            return json_response(_plain_error("edits are switched off", do="rekord view PATH --edit"), 403)
        curation = self._curation(self._side_of(body))
        status = curation.run(body, seconds=_EDIT_SECONDS)
        if status.get("error") is not None:
            return json_response({"error": status["error"]}, 400)
        return json_response(status)

    def run_status(self, request: Request) -> Response:
        """How far the edit is."""
        side = self.session.get_side(Parameters(request).integer("side", 0))
        return json_response(self._curation(side).status())

    def _curation(self, side: Side) -> Curation:
        from rekord.viewer.tags import get_curation

        return get_curation(self.session, side)

    # Shared parts.

    def _place(self, request: Request) -> tuple[Parameters, Side, SplitRecords]:
        given = Parameters(request)
        side = self.session.get_side(given.integer("side", 0))
        return given, side, side.get_split(given.text("split") or None)

    def _side_of(self, body: Mapping[str, Any]) -> Side:
        number = body.get("side") or 0
        if not isinstance(number, int):
            raise error("U605", "`side` is not a number", expected="0 or 1", found=repr(number)[:60])
        return self.session.get_side(number)

    @contextmanager
    def _reading(self, split: SplitRecords) -> Iterator[None]:
        """Few requests read long records at the same time."""
        longest = max([file.longest_bytes for file in split.files], default=0)
        with self._read_budget.admit(_BYTES_PER_PAYLOAD_BYTE * longest):
            yield

    def _iter_records(self, split: SplitRecords, numbers: list[int]) -> Any:
        with self._reading(split):
            yield from split.iter_records(numbers)

    def _send(
        self, pieces: Sequence[Buffer], headers: Mapping[str, str], release: Callable[[], None] | None = None
    ) -> Response:
        """A body that waits for its share of the memory, unless it has it already."""
        return PieceResponse(pieces, 200, headers, release or self._send_budget.take(sum(map(len, pieces))))

    def _value(self, given: Parameters, side: Side, split: SplitRecords) -> tuple[Any, ColumnInfo]:
        number = given.integer("record")
        raw = split.read([number])[0][1]
        check_whole(raw)
        return details.get_value(raw, side.schema, given.text("feature"), given.optional_step)

    def _value_bytes(self, given: Parameters, side: Side, split: SplitRecords) -> bytes:
        value, column = self._value(given, side, split)
        return get_bytes(value, column.name, given.integer("item", 0))

    def _medium(
        self, request: Request, kind: tuple[Any, ...], make: Callable[[Any, ColumnInfo, Parameters], _Medium]
    ) -> Response:
        given, side, split = self._place(request)
        names = ("record", "feature", "step", "item")
        key = (*kind, side.number, split.name, id(side.schema), *(given.text(name) for name in names))
        found: _Medium | None = self._media.get(key)
        if found is None:
            with self._reading(split):
                value, column = self._value(given, side, split)
                if value is None:
                    raise error("U606", f"the record has no `{column.name[:60]}`", expected="a record that has it")
                found = make(value, column, given)
            if found.n_bytes <= _SMALL_BODY_BYTES:
                self._media.put(key, found, found.n_bytes)
        headers = {"content-type": found.type}
        if found.is_compressed:
            headers["content-encoding"] = "gzip"
        if given.text("v") == self.session.stamp:
            headers["cache-control"] = "private, max-age=3600, immutable"
        if found.n_bytes <= _SMALL_BODY_BYTES:
            return Response(b"".join(found.pieces), headers=headers)
        return self._send(found.pieces, headers, found.release)

    def _stored(self, request: Request, sniff: Callable[[bytes], str | None], types: Mapping[str, str]) -> Response:
        given, side, split = self._place(request)
        with self._reading(split):
            data = self._value_bytes(given, side, split)
            kind = sniff(data)
            if kind is None:
                raise media.UnsafeType
            return self._send_range(data, types[kind], request.headers.get("range", ""))

    def _send_range(self, data: bytes, type: str, wanted: str) -> Response:
        """All of some bytes, or the beginning of the one range that is asked for: players ask for the rest later."""
        headers = {"content-type": type, "accept-ranges": "bytes"}
        unit, _, extent = wanted.partition("=")
        low, dash, high = extent.partition("-")
        if unit.strip() != "bytes" or not dash or "," in extent or not (low + high).isdigit() or len(low + high) > 30:
            return self._send([data], headers)
        first = int(low) if low else max(len(data) - int(high), 0)
        last = min(int(high), len(data) - 1) if high and low else len(data) - 1
        if first > last:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{len(data)}"})
        last = min(last, first + _MAX_RANGE_BYTES - 1)
        headers["content-range"] = f"bytes {first}-{last}/{len(data)}"
        return Response(data[first : last + 1], 206, headers)


def check_whole(raw: RawRecord) -> None:
    """Raise unless all of a record is there."""
    if raw.state == "too_large":
        raise media.TooLarge(
            error(
                "D409",
                "record is too large to be shown",
                expected=f"at most {MAX_RECORD_BYTES >> 20} MiB, and {MAX_DECODED_BYTES >> 20} MiB once decoded",
                found=f"{raw.payload_bytes:,} bytes",
            )
        )
    if raw.error is not None:
        raise raw.error


def build_app(session: Session, access: Access) -> AccessMiddleware:
    """The application: every address, behind the guard."""
    api = Api(session, access)
    reads: dict[str, Callable[[Request], Response]] = {
        "session": api.describe_session, "status": api.status, "rows": api.rows, "ids": api.ids,
        "record": api.record, "hex": api.hex, "thumb": api.thumb, "image": api.image, "mask": api.mask,
        "tensor": api.tensor, "audio": api.audio, "video": api.video, "peaks": api.peaks, "frame": api.frame,
        "mosaic": api.mosaic, "facets": api.facets, "cube": api.cube, "findings": api.findings, "pairs": api.pairs,
        "compare": api.compare, "predictions": api.predictions, "predictions/cell": api.cell, "tags": api.tags,
        "run": api.run_status,
    }  # fmt: skip
    changes: dict[str, Callable[[Mapping[str, Any]], Response]] = {
        "sql": api.sql, "cancel": api.cancel, "check": api.start_check, "tags": api.change_tags,
        "curate": api.curate, "run": api.run,
    }  # fmt: skip
    routes = [
        Route("/", _answer(api.shell), methods=["GET"]),
        Route("/static/{name}", _answer(api.static), methods=["GET"]),
        *(Route(f"/api/{name}", _answer(read), methods=["GET"]) for name, read in reads.items()),
        *(Route(f"/api/{name}", _accept(change), methods=["POST"]) for name, change in changes.items()),
        Route("/{rest:path}", _answer(lambda request: json_response(_plain_error("no such address"), 404))),
    ]
    return AccessMiddleware(Starlette(routes=routes), access)


def _answer(read: Callable[[Request], Response]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(_try, lambda: read(request))

    return endpoint


def _accept(change: Callable[[Mapping[str, Any]], Response]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body())
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ClientDisconnect):
            body = None
        if not isinstance(body, dict):
            return json_response(_plain_error("body is not a JSON object"), 400)
        return await run_in_threadpool(_try, lambda: change(body))

    return endpoint


def _try(answer: Callable[[], Response]) -> Response:
    try:
        return answer()
    except Exception as failure:
        return to_response(failure)

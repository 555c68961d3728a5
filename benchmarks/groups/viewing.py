"""The viewer: how long a person waits for what the page asks. Times are those of requests, without a browser."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
from environments import NotInstallableError, python_of
from floors import OURS
from measure import Result, Sample, Settings
from results import Table
from workloads import DATA, fill_once

from groups.compare import Measure

_MILLION = 1_000_000
_TEN_GIGABYTES = 10_000_000_000
_IMAGES, _SIDE = 600, 512
_THUMBNAILS = 60
_CLASSES = 10
_CONNECTIONS = 6  # as many as a browser opens
_MASK_SIDE = 2048
_TICK_SECONDS = 1 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_SCRIPT = Path(__file__).parents[1] / "peers" / "viewer_page.py"


def _write_numbers(folder: Path, records: int) -> None:
    """A file of small records, from a dataset whose index is not kept."""
    import pyarrow as pa

    import rekord as rk

    number = np.arange(records)
    schema = rk.Schema({"number": rk.Int64(), "label": rk.Label(_CLASSES), "width": rk.Float32()})
    columns = {"number": number, "label": number * 7 % _CLASSES, "width": (number * 13 % 1000).astype(np.float32)}
    rk.write(pa.table(columns), folder / "dataset", schema=schema, shards=1, shuffle=False, progress=False)
    [shard] = (folder / "dataset").glob("*.tfrecord")
    os.link(shard, folder / "numbers.tfrecord")


def _write_images(folder: Path) -> None:
    from PIL import Image

    import rekord as rk

    def rows() -> Iterator[dict[str, object]]:
        rng = np.random.default_rng(0)
        for i in range(_IMAGES):
            light = np.zeros((_SIDE, _SIDE, 3), np.float32)
            for cells, weight in ((4, 0.5), (16, 0.25), (64, 0.15)):
                grid = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
                light += weight * np.asarray(grid.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))
            file = BytesIO()
            Image.fromarray(light.clip(0, 255).astype(np.uint8)).save(file, "jpeg", quality=85)
            yield {"image": file.getvalue(), "label": i % _CLASSES}

    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(_CLASSES)})
    rk.write(rows(), folder / "dataset", schema=schema, shuffle=False, progress=False)


def _write_mask(folder: Path) -> None:
    from PIL import Image

    import rekord as rk

    y, x = np.mgrid[:_MASK_SIDE, :_MASK_SIDE]
    file = BytesIO()
    Image.fromarray((np.hypot(x - 1000, y - 900) // 64 % 12).astype(np.uint8)).save(file, "png")
    image = np.stack([x // 8, y // 8, (x + y) // 16], axis=-1).astype(np.uint8)
    schema = rk.Schema({"image": rk.Image(format="png"), "mask": rk.Mask(classes=12)})
    rk.write([{"image": image, "mask": file.getvalue()}], folder / "dataset", schema=schema, progress=False)


def _write_large(folder: Path, size_bytes: int) -> None:
    """A sparse file of records of a megabyte, of which only the first 64 were ever written in full."""
    from rekord.testing import example_bytes, frame

    whole = frame(example_bytes({"number": [1], "blob": [bytes(1_000_000)]}))
    count = size_bytes // len(whole)
    with open(folder / "large.tfrecord", "wb") as file:
        for record in range(count):
            file.seek(record * len(whole))
            file.write(whole if record < 64 else whole[:64])
        file.truncate(count * len(whole))


class _Page:
    """Asks a viewer over connections that are kept open, as a browser does."""

    def __init__(self, url: str, process: int) -> None:
        self.url, self._process = url, process
        parts = urlsplit(url)
        self._host, self._port, self._base = str(parts.hostname), parts.port, parts.path
        self._connection = self.connect()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=300)

    def get(self, place: str, connection: http.client.HTTPConnection | None = None) -> bytes:
        used = connection or self._connection
        used.request("GET", self._base + place)
        answer = used.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{place}: {answer.status} {body[:200]!r}")
        return body

    def time(self, call: Callable[[], object], units: float = 1) -> Sample:
        """How long a person waits, and what the server computes meanwhile."""
        begin, begin_cpu = time.perf_counter(), self.cpu_seconds()
        call()
        seconds = time.perf_counter() - begin
        return Sample(units, seconds, max(self.cpu_seconds() - begin_cpu, _TICK_SECONDS))

    def cpu_seconds(self) -> float:
        """The CPU time of the server so far, in ticks of the system."""
        try:
            fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.perf_counter()
        return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS

    def get_all(self, places: list[str]) -> None:
        """Several at the same time."""

        def run(some: list[str]) -> None:
            connection = self.connect()
            for place in some:
                self.get(place, connection)
            connection.close()

        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(run, [places[i::_CONNECTIONS] for i in range(_CONNECTIONS)]))

    def wait(self) -> None:
        while not all(one["complete"] for one in json.loads(self.get("api/status"))["sides"][0]["splits"]):
            time.sleep(0.02)


@contextmanager
def _viewer(path: Path, cache: str) -> Iterator[tuple[_Page, float]]:
    """A viewer in a process of its own, and when it was started."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "rekord", "view", str(path), "--no-browser", "-q"]
    environment = os.environ | {"REKORD_CACHE": cache}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield _Page(process.stdout.readline().strip(), process.pid), begin
        finally:
            process.terminate()


def start(settings: Settings) -> Iterator[Table]:
    folder = DATA / f"view-large-{settings.shrink}"
    fill_once(folder, lambda place: _write_large(place, _TEN_GIGABYTES // settings.shrink))
    address, first = Result(label="address printed"), Result(label="first rows")
    for _ in range(settings.repeats):
        with tempfile.TemporaryDirectory() as cache, _viewer(folder / "large.tfrecord", cache) as (page, begin):
            seconds = time.perf_counter() - begin
            address.samples.append(Sample(1, seconds, page.cpu_seconds()))
            rows = json.loads(page.get("api/rows?count=20"))["rows"]
            seconds = time.perf_counter() - begin
            if not rows:
                first.failure = "no rows"
            first.samples.append(Sample(1, seconds, page.cpu_seconds()))
    note = (
        f"A file of {_TEN_GIGABYTES // settings.shrink / 1e9:g} GB without an index, from the start of the command."
    )
    yield Table(title="View, first rows", unit="seconds", results=[address, first], note=note)


def jump(settings: Settings) -> Iterator[Table]:
    records = _MILLION // settings.shrink
    folder = DATA / f"view-numbers-{settings.shrink}"
    fill_once(folder, lambda place: _write_numbers(place, records))
    found, facet = Result(label="jump to a record"), Result(label="facets under a filter")
    with tempfile.TemporaryDirectory() as cache, _viewer(folder / "numbers.tfrecord", cache) as (page, _):
        page.wait()
        for turn in range(settings.repeats + 1):
            number = records - 1 - turn * 7919 % records
            sample = page.time(lambda number=number: page.get(f"api/record?record={number}"))
            if turn:
                found.samples.append(sample)
    with tempfile.TemporaryDirectory() as cache, _viewer(folder / "dataset", cache) as (page, _):
        page.wait()
        while not json.loads(page.get("api/facets"))["complete"]:
            time.sleep(0.05)
        for turn in range(settings.repeats + 1):
            filters = quote(json.dumps({"label": {"in": [turn % _CLASSES]}}))
            sample = page.time(lambda filters=filters: page.get(f"api/facets?filter={filters}"))
            if turn:
                facet.samples.append(sample)
    note = f"{records:,} records in one file; each request asks for another record, or another class."
    yield Table(title="View, a million records", unit="seconds", results=[found, facet], note=note)


def images(settings: Settings) -> Iterator[Table]:
    folder = DATA / "view-images"
    fill_once(folder, _write_images)
    cold, cached, tiles = Result(label="cold"), Result(label="cached"), Result(label=OURS)
    for _ in range(settings.repeats):
        with tempfile.TemporaryDirectory() as cache, _viewer(folder / "dataset", cache) as (page, _):
            page.wait()
            places = [f"api/thumb?record={i}&feature=image&px=160" for i in range(_THUMBNAILS)]
            page.get("api/thumb?record=599&feature=image&px=160")  # what it imports is not what is measured
            cold.samples.append(page.time(lambda page=page, places=places: page.get_all(places)))
            cached.samples.append(page.time(lambda page=page, places=places: page.get_all(places)))
            page.get("api/mosaic?count=64&px=32&feature=image")
            sheet = f"api/mosaic?count={_IMAGES}&px=32&feature=image"
            tiles.samples.append(page.time(lambda page=page, sheet=sheet: page.get(sheet), _IMAGES))
    size = f"JPEGs of {_SIDE} × {_SIDE} pixels"
    note = f"{_THUMBNAILS} thumbnails of {size}, over {_CONNECTIONS} connections."
    yield Table(title="View, thumbnails", unit="seconds", results=[cold, cached], note=note)
    note = f"One sheet of {_IMAGES} tiles of 32 × 32 pixels, from {size}."
    yield Table(title="View, mosaic", unit="tiles/s", results=[tiles], note=note)


def in_page(settings: Settings) -> Iterator[Table]:
    """What needs no request: timed in the page itself."""
    records = _MILLION // settings.shrink
    masks, numbers = DATA / "view-mask", DATA / f"view-numbers-{settings.shrink}"
    fill_once(masks, _write_mask)
    fill_once(numbers, lambda place: _write_numbers(place, records))
    places = {
        "mask": ("masks off or on", masks / "dataset"),
        "class": ("one class of a mask off or on", masks / "dataset"),
        "brush": ("a step of a brush", numbers / "dataset"),
    }
    results = []
    for action, (label, path) in places.items():
        result = Result(label=label)
        results.append(result)
        try:
            with tempfile.TemporaryDirectory() as cache, _viewer(path, cache) as (page, _):
                page.wait()
                command = [python_of("browser"), str(_SCRIPT), action, page.url, str(settings.repeats)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        except NotInstallableError as failure:
            result.failure = str(failure)
            continue
        if done.returncode:
            result.failure = done.stderr.strip().rpartition("\n")[2][:60]
            continue
        result.samples = [Sample(1, seconds, seconds) for seconds in json.loads(done.stdout)]
    note = f"A mask of {_MASK_SIDE} × {_MASK_SIDE} pixels with 12 classes; three facets of {records:,} records."
    yield Table(title="View, without a request", unit="seconds", results=results, note=note)


def view(settings: Settings) -> Iterator[Table]:
    yield from start(settings)
    yield from jump(settings)
    yield from images(settings)
    yield from in_page(settings)


GROUPS: dict[str, Measure] = {"view": view}

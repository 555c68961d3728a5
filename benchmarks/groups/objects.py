"""Object storage, on a server on loopback in a process of its own: scattered ranges, file order, and writing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import obstore
from floors import OBSTORE, OURS, S3FS
from measure import Settings
from obstore.store import S3Store
from peers.object_ranges import BUCKET, OBJECT, PIECE_BYTES
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_rates, contender

_SERVER = Path(__file__).parents[2] / "tests" / "support" / "object_server.py"
_SIZE_BYTES = 1 << 30
_MAX_PASS_SECONDS = 200.0


@contextmanager
def _serving(size_bytes: int) -> Iterator[None]:
    """A server with one object, to which the environment leads all contenders."""
    command = [sys.executable, str(_SERVER), BUCKET]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.environ |= {
            "AWS_ENDPOINT_URL": process.stdout.readline().strip(),
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
        }
        piece = random.Random(0).randbytes(PIECE_BYTES)
        store = S3Store(BUCKET, client_options={"allow_http": True})
        obstore.put(store, OBJECT, (piece for _ in range(size_bytes // PIECE_BYTES)), use_multipart=True)
        try:
            yield
        finally:
            process.stdin.close()


def objects(settings: Settings) -> Iterator[Table]:
    size_bytes = _SIZE_BYTES // settings.shrink
    settings = replace(settings, min_seconds=1e-9, max_seconds=_MAX_PASS_SECONDS)  # one whole pass each
    workload = WORKLOADS["tabular"]  # not read: the object is not made of records
    size = f"{size_bytes / 1e9:.2g} GB"
    with _serving(size_bytes):
        yield compare_rates(
            "Objects, ranges",
            workload,
            [
                contender("obstore_peer", OURS, "ranges", size_bytes=size_bytes),
                contender("obstore_peer", OBSTORE, "obstore_ranges", size_bytes=size_bytes),
                contender("s3fs_peer", S3FS, "ranges", environment="s3fs", size_bytes=size_bytes),
            ],
            settings,
            reference=S3FS,
            unit="GB/s",
            note=f"1,000 ranges of 1 MB of an object of {size}, 100 at a time.",
        )
        yield compare_rates(
            "Objects, file order",
            workload,
            [
                contender("obstore_peer", OURS, "read", size_bytes=size_bytes),
                contender("obstore_peer", OBSTORE, "obstore_read", size_bytes=size_bytes),
            ],
            settings,
            reference=OBSTORE,
            unit="GB/s",
            note=f"An object of {size}; obstore downloads it as one stream.",
        )
        yield compare_rates(
            "Objects, write",
            workload,
            [
                contender("obstore_peer", OURS, "write", size_bytes=size_bytes),
                contender("obstore_peer", OBSTORE, "obstore_write", size_bytes=size_bytes),
            ],
            settings,
            reference=OBSTORE,
            unit="GB/s",
            note=f"An object of {size}, as a multipart upload.",
        )


GROUPS: dict[str, Measure] = {"objects": objects}

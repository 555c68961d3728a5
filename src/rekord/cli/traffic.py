"""What a command asked of remote storage, for `--stats`."""

from __future__ import annotations

from rekord.cli import console
from rekord.storage.traffic import Traffic, measure_traffic

_begun: Traffic | None = None


def begin_counting() -> None:
    """Count from now on, for `report_traffic`."""
    global _begun
    _begun = measure_traffic()


def report_traffic() -> None:
    """Print what was counted, if that was asked for, and stop."""
    global _begun
    if _begun is None:
        return
    used = measure_traffic() - _begun
    _begun = None
    kinds = {"read": used.reads, "write": used.writes, "list": used.lists, "delete": used.deletes}
    shown = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    console.print_message(
        f"remote storage: {used.requests:,} requests{f' ({shown})' if shown else ''}, "
        f"{used.read_bytes:,} bytes read, {used.written_bytes:,} bytes written"
    )

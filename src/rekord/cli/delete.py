"""`rekord delete`: a dataset without some of its records."""

from __future__ import annotations

from typing import Annotated

import typer

from rekord.cli import edited
from rekord.cli import shared_options as shared
from rekord.cli.write_options import names


def delete(
    path: edited.In,
    out: edited.Out = None,
    where: Annotated[
        str,
        typer.Option(
            "--where", metavar="SQL", help="Which records: a condition over columns.", show_default=False
        ),
    ] = ...,  # type: ignore[assignment]
    split: shared.OnlySplits = None,
    replace: edited.Replace = False,
    workers: edited.Workers = None,
    fresh: shared.Fresh = False,
    as_json: shared.AsJson = False,
) -> int:
    """Make a dataset without some records. Shards that have none of them are linked, not copied.

    Records of which the condition is NULL stay. Nothing of a deleted record is in the new dataset.
    """
    from rekord.verbs.delete import deleted

    target = edited.target("delete", out, replace=replace, workers=workers, fresh=fresh)
    chosen = None if split is None else list(names(split))
    return edited.run(lambda: deleted(path, target, where=where, split=chosen), "deleted", as_json=as_json)

"""`rekord delete`: a dataset without some of its records."""

from __future__ import annotations

from rekord.cli import edited
from rekord.cli import shared_options as shared
from rekord.cli.write_options import names
from rekord.errors import error


def delete(
    path: edited.In,
    out: edited.Out = None,
    where: edited.WhereRecords = None,
    records: edited.RecordsFile = None,
    split: shared.OnlySplits = None,
    replace: edited.Replace = False,
    workers: edited.Workers = None,
    fresh: shared.Fresh = False,
    as_json: shared.AsJson = False,
) -> int:
    """Make a dataset without some records. Shards that have none of them are linked, not copied.

    Records are those that --where says, or those that --records lists. Records of which the condition is NULL stay.
    Nothing of a deleted record is in the new dataset.
    """
    from rekord.verbs.delete import deleted

    target = edited.target("delete", out, replace=replace, workers=workers, fresh=fresh)
    chosen = None if split is None else list(names(split))
    if (where is None) == (records is None):
        what = "needs --where or --records" if where is None else "takes --where or --records, not both"
        raise error("U601", f"`rekord delete` {what}", do="rekord delete --help")
    return edited.run(
        lambda: deleted(path, target, where=where, records=records, split=chosen),
        "deleted",
        as_json=as_json,
    )

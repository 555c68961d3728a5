"""Selected records of a session and their tags, and edits of them: between the page and `curation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rekord.errors import RekordError, error
from rekord.viewer.curation import EditPlan, EditRun, plan_edit
from rekord.viewer.selections import Record, Selection, SelectionStore, identify_dataset, identify_files
from rekord.viewer.session import Session, Side

MAX_RECORDS = 100_000


class Curation:
    """The selection of one side, and the edit that runs on it."""

    def __init__(self, side: Side) -> None:
        self._side = side
        if side.dataset is None:
            name = identify_files([file.path for file in side.files])
        else:
            name = identify_dataset(side.dataset)
        self.store = SelectionStore(name)
        self._run: EditRun | None = None

    def tags(self) -> dict[str, Any]:
        """The selected records, and the number of records of each tag."""
        selection = self.store.read()
        return {"selected": len(selection.records), "tags": selection.count_tags()}

    def records(self, tag: str | None) -> list[Record]:
        """The records with a tag; all selected ones without one."""
        return self.store.read().with_tag(tag)

    def change(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Select or deselect records, or add or remove a tag."""
        tag, records = body.get("tag"), self._parse(body.get("records"))
        changed: Selection
        if body.get("clear"):
            changed = self.store.clear()
        elif body.get("remove"):
            changed = self.store.deselect(records) if tag is None else self.store.untag(records, [tag])
        else:
            changed = self.store.select(records, tags=[] if tag is None else [tag])
        return {"selected": len(changed.records), "tags": changed.count_tags()}

    def plan(self, body: Mapping[str, Any]) -> EditPlan:
        """How to do an edit of the files that are shown."""
        if self._side.problem is not None and self._side.dataset is None:
            raise self._side.problem
        action = body.get("action")
        out = body.get("out")
        if out is not None and (not isinstance(out, str) or not out.strip()):
            raise error("U605", "`out` is not a path", expected="a path where nothing exists", found=repr(out)[:60])
        return plan_edit(
            action,  # type: ignore[arg-type]  # checked there
            self._side.path,
            self._parse(body.get("records")),
            column=body.get("column"),
            label=body.get("label"),
            out=out or None,
            digests=self._side.digests,
        )

    def run(self, body: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """Run an edit, which writes a new dataset; returns when it is done, or after some seconds."""
        if self._run is not None and self._run.status()["state"] == "running":
            raise error("U651", "an edit is running", expected="one edit at a time", found="another one")
        self._run = EditRun(self.plan(body)).start()
        self._run.wait(seconds)
        return self.status()

    def status(self) -> dict[str, Any]:
        """How far the edit is."""
        run = self._run
        return {"state": "idle"} if run is None else {**run.status(), "records": len(run.plan.records)}

    def _parse(self, given: Any) -> list[Record]:
        if given is None:
            return []
        if not isinstance(given, list) or len(given) > MAX_RECORDS:
            raise _records_error(given)
        found = []
        for one in given:
            if not isinstance(one, list) or len(one) != 2 or not isinstance(one[0], str):
                raise _records_error(one)
            split = self._side.get_split(one[0])
            if not isinstance(one[1], int) or isinstance(one[1], bool) or not 0 <= one[1] < len(split):
                raise _records_error(one)
            found.append((one[0], one[1]))
        return found


def _records_error(given: Any) -> RekordError:
    return error(
        "U605",
        "`records` does not list records of this dataset",
        expected='pairs such as ["train", 3], at most 100,000',
        found=repr(given)[:60],
    )


def get_curation(session: Session, side: Side) -> Curation:
    """The curation of a side."""
    made: Curation = session.part(("curation", side.number), lambda: Curation(side))
    return made


def tagged_records(session: Session, side: Side, tag: str) -> list[Record]:
    """The records with a tag."""
    return get_curation(session, side).records(tag)

// The records that are selected: for tags, deletion and relabelling. Kept in the tab, per viewer.

import { sideIndex } from "./api.js";
import { makeEvent } from "./dom.js";
import { keep, recall } from "./preferences.js";

const KEY = `rekord.selection.${location.pathname}`;
/** @type {Set<string>} */
const selected = new Set(recall(() => sessionStorage, KEY, []));
const changes = makeEvent();
export const onSelection = changes.on;

const name = (split, record) => `${sideIndex()}\n${split}\n${record}`;

export const isSelected = (split, record) => selected.has(name(split, record));

/** @type {selectedRecords} */
export function selectedRecords() {
	return [...selected]
		.map((one) => one.split("\n"))
		.filter(([side]) => Number(side) === sideIndex())
		.map(([, split, record]) => /** @type {RecordKey} */ ([split, Number(record)]))
		.sort((a, b) => a[0].localeCompare(b[0]) || a[1] - b[1]);
}

/** @type {select} */
export function select(split, record, on = !isSelected(split, record)) {
	selectMany([[split, record]], on);
	return on;
}

/** @type {selectMany} */
export function selectMany(records, on) {
	for (const [split, record] of records) {
		if (on) selected.add(name(split, record));
		else selected.delete(name(split, record));
	}
	changed();
}

export function clearSelection() {
	selected.clear();
	changed();
}

function changed() {
	keep(() => sessionStorage, KEY, [...selected]);
	changes.emit();
}

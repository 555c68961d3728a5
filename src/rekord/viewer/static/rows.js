// Rows of the records shown, fetched by pages where they become visible.

import { get, recordSet } from "./api.js";

const PAGE = 60;

/** @type {makeRows} */
export function makeRows(until, { onPage, onTotal, onError }) {
	const query = recordSet();
	const known = new Map();
	/** @type {Map<number, AbortController>} */
	const loading = new Map();
	const pageOf = (index) => Math.floor(index / PAGE);
	/** @type {Rows} */
	const rows = {
		total: 0, complete: false, isLoaded: false, columns: [], want, fetchAgain, grow,
		at: (index) => known.get(index),
		cell: (row, column) => row.cells[rows.columns.indexOf(column ?? "")] ?? null,
		isLoading: () => loading.size > 0,
		load: (index) => loadPage(pageOf(index)),
	};

	function want(start, end) {
		const [first, last] = [pageOf(start), pageOf(Math.max(end - 1, start))];
		for (const [page, controller] of loading) if (page < first - 1 || page > last + 1) controller.abort();
		for (let page = first; page <= last; page += 1) if (!known.has(Math.max(start, page * PAGE))) void loadPage(page);
	}

	async function loadPage(page) {
		if (loading.has(page)) return;
		const controller = new AbortController();
		loading.set(page, controller);
		try {
			const signal = AbortSignal.any([controller.signal, until]);
			const { first, total, complete, columns, rows: found } = await get("rows", { ...query, first: page * PAGE, count: PAGE }, signal);
			rows.columns = columns;
			found.forEach((row, i) => known.set(first + i, row));
			const isNew = !rows.isLoaded || total > rows.total || complete !== rows.complete;
			rows.isLoaded = true;
			// Records are only ever added; the status may have told of more since.
			rows.total = Math.max(total, rows.total);
			rows.complete ||= complete;
			if (isNew) onTotal();
			onPage(first, first + found.length);
		} catch (error) {
			if (!controller.signal.aborted && !until.aborted) onError(error);
		} finally {
			loading.delete(page);
		}
	}

	function fetchAgain(start, end) {
		for (const index of known.keys()) if (index < start || index >= end) known.delete(index);
		for (let page = pageOf(start); page * PAGE < end; page += 1) void loadPage(page);
	}

	function grow(total, complete) {
		if (total <= rows.total && complete === rows.complete) return;
		rows.total = Math.max(total, rows.total);
		rows.complete = complete;
		onTotal();
	}

	return rows;
}

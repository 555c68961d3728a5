// @ts-check
// Rows of the records shown, fetched by pages where they become visible.

import { get, recordSet } from "./api.js";

export const PAGE = 60;

export class Rows {
	/** @param {AbortSignal} until @param {RowListeners} listeners */
	constructor(until, listeners) {
		this.until = until;
		this.listeners = listeners;
		this.query = recordSet();
		this.total = 0;
		this.complete = false;
		this.isLoaded = false;
		/** @type {string[]} */
		this.columns = [];
		/** @type {Map<number, Row>} */
		this.rows = new Map();
		/** @type {Map<number, AbortController>} */
		this.loading = new Map();
	}

	at(index) {
		return this.rows.get(index);
	}

	/** Fetch what is missing of a range, and give up what was asked for elsewhere. @param {number} start @param {number} end */
	want(start, end) {
		const [first, last] = [Math.floor(start / PAGE), Math.floor(Math.max(end - 1, start) / PAGE)];
		for (const [page, controller] of this.loading) if (page < first - 1 || page > last + 1) controller.abort();
		for (let page = first; page <= last; page += 1) {
			if (!this.loading.has(page) && !this.rows.has(Math.max(start, page * PAGE))) void this.load(page);
		}
	}

	async load(page) {
		const controller = new AbortController();
		this.loading.set(page, controller);
		try {
			const signal = AbortSignal.any([controller.signal, this.until]);
			const answer = await get("rows", { ...this.query, first: page * PAGE, count: PAGE }, signal);
			this.columns = answer.columns;
			answer.rows.forEach((row, i) => this.rows.set(answer.first + i, row));
			const isNew = !this.isLoaded || answer.total > this.total || answer.complete !== this.complete;
			this.isLoaded = true;
			// Records are only ever added; the status may have told of more since.
			this.total = Math.max(answer.total, this.total);
			this.complete ||= answer.complete;
			if (isNew) this.listeners.onTotal();
			this.listeners.onPage(answer.first, answer.first + answer.rows.length);
		} catch (error) {
			if (!controller.signal.aborted && !this.until.aborted) this.listeners.onError(error);
		} finally {
			this.loading.delete(page);
		}
	}

	/** Fetch rows that have changed. @param {number} start @param {number} end */
	fetchAgain(start, end) {
		for (const index of this.rows.keys()) if (index < start || index >= end) this.rows.delete(index);
		for (let page = Math.floor(start / PAGE); page * PAGE < end; page += 1) if (!this.loading.has(page)) void this.load(page);
	}

	/** More records were found since. @param {number} total @param {boolean} complete */
	grow(total, complete) {
		if (total <= this.total && complete === this.complete) return;
		this.total = Math.max(total, this.total);
		this.complete = complete;
		this.listeners.onTotal();
	}

	cell(row, column) {
		return row.cells[this.columns.indexOf(column)] ?? null;
	}
}

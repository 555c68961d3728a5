// @ts-check
// A list of any length of which only the visible part exists.
//
// Browsers limit the height of an element (Firefox to 17,895,697 px), so the scroll range of a long list is scaled:
// dragging the scroll bar covers the whole list, while the wheel still moves by pixels.

import { clamp, h, onceAFrame } from "./dom.js";

const MAX_HEIGHT = 12_000_000;
const OVERSCAN_ROWS = 2;

export class Scroller {
	constructor({ host, list, render, onRange }) {
		this.host = host;
		this.list = list;
		this.renderItem = render;
		this.onRange = onRange;
		this.total = 0;
		this.rowHeight = 100;
		this.columns = 1;
		this.position = 0; // in pixels of the whole list, unscaled
		this.lastTop = 0;
		this.start = 0;
		this.end = 0;
		/** @type {Map<number, HTMLElement>} */
		this.items = new Map();
		this.spacer = h("div.spacer");
		host.append(this.spacer, list);
		list.classList.add("window");
		this.settle = 0;
		this.draw = onceAFrame(() => this.update());
		host.addEventListener("scroll", () => this.scrolled(), { passive: true });
	}

	resize(total, rowHeight, columns) {
		const first = this.firstVisible();
		const moved = columns !== this.columns || rowHeight !== this.rowHeight;
		this.total = total;
		this.rowHeight = rowHeight;
		this.columns = Math.max(columns, 1);
		this.spacer.style.height = `${Math.min(this.fullHeight(), MAX_HEIGHT)}px`;
		this.list.style.gridTemplateColumns = `repeat(${this.columns}, minmax(0, 1fr))`;
		this.list.style.gridAutoRows = `${rowHeight}px`;
		if (moved) this.scrollTo(first);
		else this.update();
	}

	/** Render the visible items again. */
	refresh() {
		for (const item of this.items.values()) item.remove();
		this.items.clear();
		this.update();
	}

	/** Render one item again, if it is visible. @param {number} index */
	replace(index) {
		const old = this.items.get(index);
		if (!old) return;
		const fresh = this.renderItem(index);
		this.items.set(index, fresh);
		old.replaceWith(fresh);
	}

	firstVisible() {
		return Math.floor((this.position + 1) / this.rowHeight) * this.columns;
	}

	visibleRows() {
		return Math.max(Math.floor(this.host.clientHeight / this.rowHeight), 1);
	}

	/** Put the row of an item at the top. @param {number} index */
	scrollTo(index) {
		this.moveTo(Math.floor(index / this.columns) * this.rowHeight);
	}

	/** Scroll as little as is needed to show an item. @param {number} index */
	reveal(index) {
		const top = Math.floor(index / this.columns) * this.rowHeight;
		const room = this.host.clientHeight;
		if (top < this.position) this.moveTo(top);
		else if (top + this.rowHeight > this.position + room) this.moveTo(top + this.rowHeight - room);
	}

	fullHeight() {
		return Math.ceil(this.total / this.columns) * this.rowHeight;
	}

	moveTo(position) {
		this.position = clamp(position, 0, Math.max(this.range(), 0));
		this.alignBar();
		this.update();
	}

	/** How far the list can be scrolled, in its own pixels. */
	range() {
		return this.fullHeight() - this.host.clientHeight;
	}

	/** How far the scroll bar can move. */
	barRange() {
		return this.spacer.offsetHeight - this.host.clientHeight;
	}

	// The scroll bar shows where in the whole list the window is.
	alignBar() {
		const range = this.range();
		this.host.scrollTop = range > 0 ? (this.position / range) * this.barRange() : 0;
		this.lastTop = this.host.scrollTop;
	}

	scrolled() {
		const top = this.host.scrollTop;
		const delta = top - this.lastTop;
		if (delta === 0) return;
		this.lastTop = top;
		const [range, barRange] = [this.range(), this.barRange()];
		if (this.fullHeight() <= MAX_HEIGHT) this.position = top;
		else if (Math.abs(delta) > this.host.clientHeight || top <= 0 || top >= barRange - 1) {
			this.position = (top / barRange) * range;
		} else {
			this.position = clamp(this.position + delta, 0, range);
			clearTimeout(this.settle);
			this.settle = setTimeout(() => (this.alignBar(), this.update()), 150);
		}
		this.draw();
	}

	update() {
		const firstRow = Math.max(Math.floor(this.position / this.rowHeight) - OVERSCAN_ROWS, 0);
		const lastRow = Math.ceil((this.position + this.host.clientHeight) / this.rowHeight) + OVERSCAN_ROWS;
		this.start = Math.min(firstRow * this.columns, this.total);
		this.end = Math.min(lastRow * this.columns, this.total);
		for (const [index, item] of this.items) {
			if (index < this.start || index >= this.end) {
				item.remove();
				this.items.delete(index);
			}
		}
		// In the order of the list, for screen readers; an item that stays is not touched, so that it keeps the focus.
		let next = this.list.firstElementChild;
		for (let index = this.start; index < this.end; index += 1) {
			let item = /** @type {HTMLElement} */ (this.items.get(index));
			if (!item) {
				item = this.renderItem(index);
				this.items.set(index, item);
				this.list.insertBefore(item, next);
			} else next = item.nextElementSibling;
		}
		const offset = this.host.scrollTop + firstRow * this.rowHeight - this.position;
		this.list.style.transform = `translateY(${offset}px)`;
		this.onRange(this.start, this.end);
	}
}

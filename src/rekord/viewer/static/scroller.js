// A list of any length of which only the visible part exists.
//
// Browsers limit the height of an element (Firefox to 17,895,697 px), so the scroll range of a long list is scaled:
// dragging the scroll bar covers the whole list, while the wheel still moves by pixels.

import { clamp, h, onceAFrame } from "./dom.js";

const MAX_HEIGHT = 12_000_000;
const OVERSCAN_ROWS = 2;

/** @type {makeScroller} */
export function makeScroller({ host, list, render, onRange }) {
	let [total, rowHeight, columns] = [0, 100, 1];
	let position = 0; // in pixels of the whole list, unscaled
	let lastTop = 0;
	let [start, end] = [0, 0];
	let settle = 0;
	/** @type {Map<number, HTMLElement>} */
	const items = new Map();
	const spacer = h("div.spacer");
	host.append(spacer, list);
	list.classList.add("window");

	function resize(newTotal, newHeight, newColumns) {
		const first = firstVisible();
		const moved = newColumns !== columns || newHeight !== rowHeight;
		[total, rowHeight, columns] = [newTotal, newHeight, newColumns];
		spacer.style.height = `${Math.min(fullHeight(), MAX_HEIGHT)}px`;
		list.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
		list.style.gridAutoRows = `${rowHeight}px`;
		if (moved) scrollTo(first);
		else update();
	}

	function refresh() {
		for (const item of items.values()) item.remove();
		items.clear();
		update();
	}

	function replace(index) {
		const old = items.get(index);
		if (!old) return;
		const fresh = render(index);
		items.set(index, fresh);
		old.replaceWith(fresh);
	}

	const topOf = (index) => Math.floor(index / columns) * rowHeight;
	const firstVisible = () => Math.floor((position + 1) / rowHeight) * columns;
	const visibleRows = () => Math.max(Math.floor(host.clientHeight / rowHeight), 1);
	const fullHeight = () => Math.ceil(total / columns) * rowHeight;
	const range = () => fullHeight() - host.clientHeight;
	const barRange = () => spacer.offsetHeight - host.clientHeight;
	const scrollTo = (index) => moveTo(topOf(index));

	function reveal(index) {
		const top = topOf(index);
		const room = host.clientHeight;
		if (top < position) moveTo(top);
		else if (top + rowHeight > position + room) moveTo(top + rowHeight - room);
	}

	function moveTo(to) {
		position = clamp(to, 0, Math.max(range(), 0));
		alignBar();
		update();
	}

	// The scroll bar shows where in the whole list the window is.
	function alignBar() {
		host.scrollTop = range() > 0 ? (position / range()) * barRange() : 0;
		lastTop = host.scrollTop;
	}

	const draw = onceAFrame(update);
	const onscroll = () => {
		const top = host.scrollTop;
		const delta = top - lastTop;
		if (delta === 0) return;
		lastTop = top;
		if (fullHeight() <= MAX_HEIGHT) position = top;
		else if (Math.abs(delta) > host.clientHeight || top <= 0 || top >= barRange() - 1) {
			position = (top / barRange()) * range();
		} else {
			position = clamp(position + delta, 0, range());
			clearTimeout(settle);
			settle = setTimeout(() => (alignBar(), update()), 150);
		}
		draw();
	};
	host.addEventListener("scroll", onscroll, { passive: true });

	function update() {
		const firstRow = Math.max(Math.floor(position / rowHeight) - OVERSCAN_ROWS, 0);
		const lastRow = Math.ceil((position + host.clientHeight) / rowHeight) + OVERSCAN_ROWS;
		start = Math.min(firstRow * columns, total);
		end = Math.min(lastRow * columns, total);
		for (const [index, item] of items) {
			if (index < start || index >= end) {
				item.remove();
				items.delete(index);
			}
		}
		// In the order of the list, for screen readers; an item that stays is not touched, so that it keeps the focus.
		let next = list.firstElementChild;
		for (let index = start; index < end; index += 1) {
			let item = /** @type {HTMLElement} */ (items.get(index));
			if (!item) {
				item = render(index);
				items.set(index, item);
				list.insertBefore(item, next);
			} else next = item.nextElementSibling;
		}
		list.style.transform = `translateY(${host.scrollTop + firstRow * rowHeight - position}px)`;
		onRange(start, end);
	}

	return { items, resize, refresh, replace, scrollTo, reveal, firstVisible, visibleRows, columns: () => columns, shown: () => [start, end] };
}

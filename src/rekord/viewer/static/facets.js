// Facets: bars of classes and histograms of numbers. Brushing computes the other charts from cumulative counts.

import { ApiError, get, recordSet } from "./api.js";
import { announce, bdi, clamp, count, h, onceAFrame, plural, printable, show, svg } from "./dom.js";
import { foldedTable, makeRange } from "./parts.js";
import { go, state } from "./state.js";

const MOST_CLASSES = 12;

const filterOf = (column) => state().filters.find((one) => one.feature === column);

/** @type {mountFacets} */
export function mountFacets(host, until) {
	const body = h("div.facet-list");
	const total = h("p.facet-total", { role: "status" });
	show(host, h("h2.hidden-visually", "Filters"), total, body);
	/** @type {Facets | null} */
	let shown = null;
	let charts = new Map();
	const cubes = new Map();
	/** @type {Cube | null} */
	let cube = null;
	let isBrushing = false;
	let builtShape = "";
	let timer = 0;
	let loading = new AbortController();

	async function load() {
		clearTimeout(timer);
		loading.abort();
		const { signal } = (loading = new AbortController());
		cubes.clear();
		cube = null;
		try {
			const answer = /** @type {Facets} */ (await get("facets", { ...recordSet(), order: null }, AbortSignal.any([signal, until])));
			if (isBrushing) return;
			const shape = JSON.stringify([answer.facets.map(({ column, counts, codes, edges }) => [column, counts, codes, edges]), state().filters]);
			shown = answer;
			// The charts stay where they are if only their counts changed, so that none loses the focus.
			if (shape === builtShape) for (const facet of answer.facets) charts.get(facet.column)?.draw(facet.selected);
			else build(answer);
			builtShape = shape;
			tell(answer.selected);
			if (!answer.complete && !answer.error) timer = setTimeout(load, 1000);
		} catch (error) {
			if (signal.aborted || until.aborted) return;
			show(body, h("p.soft", error instanceof ApiError ? printable(error.told.what) : "No answer."));
		}
	}

	function tell(selected) {
		if (!shown) return;
		const isPart = !shown.complete ? `, ${count(shown.records)} counted so far` : "";
		show(total, h("b", count(selected)), ` of ${plural(shown.records, "record")}${isPart}`);
	}

	function build(answer) {
		const focused = document.activeElement;
		const column = focused?.closest(".facet")?.getAttribute("data-column") ?? null;
		const among = () => [...body.querySelectorAll(`[data-column="${CSS.escape(column ?? "")}"] :is(button, input):not([hidden])`)];
		// Counted from the end: the button that clears the filter comes and goes at the beginning.
		const at = column === null ? 0 : among().reverse().findIndex((one) => one === focused);
		const { facets } = answer;
		const listed = (kind) => facets.filter((one) => one.listed?.as === kind);
		charts = new Map(facets.filter((one) => !one.listed).map((facet) => [facet.column, facet.type === "number" ? makeHistogram(facet, brush) : makeBars(facet)]));
		show(body,
			charts.size || listed("same").length ? [...charts.values()].map((chart) => chart.element) : h("p.soft", "No column has few enough values for a filter."),
			listColumns("Same in every record", listed("same")),
			listColumns("Different in every record", listed("unique")),
		);
		// The control that was used is drawn again too: the focus goes to the new one.
		if (column !== null) /** @type {any} */ (among().at(-1 - Math.max(at, 0)))?.focus();
	}

	/** @type {Brush} */
	const brush = {
		async prepare(column) {
			if (!cubes.has(column)) cubes.set(column, get("cube", { ...recordSet(), order: null, active: column }, until).catch(() => null));
			cube = await cubes.get(column);
		},
		move(column, first, end) {
			isBrushing = true;
			if (cube?.active !== column) return;
			tell(cube.totals[end] - cube.totals[first]);
			for (const [name, { bins, cumulative }] of Object.entries(cube.cubes)) {
				if (name !== column) charts.get(name)?.draw(Array.from({ length: bins }, (_, j) => cumulative[end * bins + j] - cumulative[first * bins + j]));
			}
		},
		commit(column, range) {
			isBrushing = false;
			setFilter(column, range && { feature: column, range }, filterOf(column) !== undefined);
		},
	};

	until.addEventListener("abort", () => clearTimeout(timer));
	void load();
	return { reload: load };
}

function listColumns(title, columns) {
	if (!columns.length) return null;
	return h("section.facet", h("header", h("h3", title)), h("dl.small", columns.flatMap(({ column, listed }) => [h("dt", bdi(column, 80)), h("dd", bdi(listed.text, 80))])));
}

function setFilter(column, filter, replace = false) {
	const others = state().filters.filter((one) => one.feature !== column);
	go({ filters: filter ? [...others, filter] : others, at: 0 }, { replace });
}

function makeFacet({ column, missing, other }, ...children) {
	const clear = h("button.link", { hidden: !filterOf(column), label: `Clear the filter on ${column}`, onclick: () => setFilter(column, null) }, "clear");
	const notes = [missing && `${count(missing)} missing`, other && `${count(other)} others`].filter(Boolean);
	return h("section.facet", { "data-column": column }, h("header", h("h3", printable(column, 80)), clear), ...children, notes.length && h("p.soft.small", notes.join(", ")));
}

function makeBars(facet) {
	const { column, names, counts } = facet;
	const chosen = new Set(filterOf(column)?.values ?? []);
	const codeOf = (i) => String(facet.type === "text" ? names[i] : facet.codes[i]);
	const most = Math.max(...counts, 1);
	const widthOf = (value) => `${(100 * value) / most}%`;
	const parts = new Map();
	let last = facet.selected;

	function makeBar(i) {
		const fill = h("i.fill");
		const value = h("span.count");
		const name = printable(names[i] === "" ? "(empty)" : names[i], 80);
		const all = h("i.all", { style: { width: widthOf(counts[i]) } });
		const button = h("button.bar-button",
			{ "aria-pressed": String(chosen.has(codeOf(i))), onclick: () => toggle(codeOf(i), name) },
			h("span.name", h("bdi", name)),
			value,
			h("span.track", { "aria-hidden": "true" }, all, fill),
		);
		parts.set(i, { fill, value, button });
		return h("li", button);
	}

	function toggle(code, name) {
		const isOn = !chosen.delete(code);
		if (isOn) chosen.add(code);
		announce(`${column}: ${name} ${isOn ? "selected" : "not selected"}`);
		setFilter(column, chosen.size ? { feature: column, values: [...chosen] } : null);
	}

	function draw(selected) {
		last = selected;
		for (const [i, { fill, value }] of parts) {
			fill.style.width = widthOf(selected[i] ?? 0);
			value.textContent = count(selected[i] ?? 0);
		}
	}

	const order = names.map((_, i) => i).sort((a, b) => counts[b] - counts[a]);
	const isVisible = (i) => order.indexOf(i) < MOST_CLASSES || chosen.has(codeOf(i));
	const list = h("ul.bars", { label: column }, order.filter(isVisible).map(makeBar));
	const rest = order.filter((i) => !isVisible(i));
	const onclick = () => {
		list.append(...rest.map(makeBar));
		draw(last);
		more.hidden = true;
		parts.get(rest[0]).button.focus();
	};
	const more = h("button.link", { hidden: rest.length === 0, onclick }, `${count(rest.length)} more`);
	draw(last);
	return { element: makeFacet(facet, list, more), draw };
}

const WIDTH = 240;
const HEIGHT = 64;

// A histogram with a brush; two sliders do the same by keyboard.
function makeHistogram(facet, brush) {
	const { edges, lows, highs, column, counts } = facet;
	const bins = counts.length;
	const active = filterOf(column)?.range;
	let [first, end] = active ? toBins(edges, active) : [0, bins];
	const most = Math.max(...counts, 1);
	const step = WIDTH / bins;
	const makeBar = (style) => counts.map((_, i) => svg("rect", { x: i * step, width: Math.max(step - (step > 4 ? 1 : 0), 0.5), class: style }));
	const [behind, bars] = [makeBar("all"), makeBar("fill")];
	const shade = svg("rect", { class: "shade", y: 0, height: HEIGHT });
	const area = h("div.brush", svg("svg", { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, shade, behind, bars));
	const words = h("output.small");
	const makeSlider = (name, at, move) => makeRange(`${column} ${name}`, 0, bins, 1, at, { onfocus: prepare, oninput: (event) => (move(Number(event.target.value)), moved()), onchange: commit });
	const low = makeSlider("from", first, (at) => (first = Math.min(at, end - 1)));
	const high = makeSlider("to", end, (at) => (end = Math.max(at, first + 1)));
	const isWhole = () => first === 0 && end === bins;

	function label() {
		const [from, to] = [lows[first], highs[end]];
		words.textContent = `${from} – ${to}${isWhole() ? "" : " selected"}`;
		low.value = String(first);
		high.value = String(end);
		low.setAttribute("aria-valuetext", from);
		high.setAttribute("aria-valuetext", to);
		shade.setAttribute("x", String(first * step));
		shade.setAttribute("width", String((end - first) * step));
		bars.forEach((bar, i) => bar.classList.toggle("out", i < first || i >= end));
		element.classList.toggle("is-brushed", !isWhole());
	}

	const moved = onceAFrame(() => {
		label();
		brush.move(column, first, end);
	});

	function prepare() {
		void brush.prepare(column);
	}

	function commit() {
		brush.commit(column, isWhole() ? null : [edges[first], edges[end]]);
	}

	const drawBars = (rects, values) =>
		rects.forEach((rect, i) => {
			const tall = (HEIGHT * (values[i] ?? 0)) / most;
			rect.setAttribute("y", String(HEIGHT - tall));
			rect.setAttribute("height", String(tall));
		});

	let origin = null;
	const binAt = (event) => {
		const box = area.getBoundingClientRect();
		return clamp(((event.clientX - box.left) / box.width) * bins, 0, bins);
	};
	const setRange = (from, to) => {
		first = Math.min(Math.floor(from), bins - 1);
		end = Math.max(Math.ceil(to), first + 1);
	};
	area.addEventListener("pointerenter", prepare);
	area.addEventListener("pointerdown", (event) => {
		origin = binAt(event);
		area.setPointerCapture(event.pointerId);
		prepare();
	});
	area.addEventListener("pointermove", (event) => {
		if (origin === null) return;
		const at = binAt(event);
		setRange(Math.min(origin, at), Math.max(origin, at));
		moved();
	});
	area.addEventListener("pointerup", (event) => {
		if (origin === null) return;
		const at = binAt(event);
		const isClick = Math.abs(at - origin) * (area.clientWidth / bins) < 3;
		origin = null;
		if (isClick) isWhole() ? setRange(at, at) : setRange(0, bins);
		label();
		commit();
	});
	const rows = () => counts.map((all, i) => [`${lows[i]} – ${highs[i + 1]}`, all]);
	const element = makeFacet(facet, area, words, h("div.sliders", low, high), foldedTable(column, ["range", "records"], rows));
	label();
	drawBars(behind, counts);
	drawBars(bars, facet.selected);
	return { element, draw: (selected) => drawBars(bars, selected) };
}

/** @returns {[number, number]} */
function toBins(edges, [low, high]) {
	const bins = edges.length - 1;
	let first = 0;
	while (first < bins - 1 && edges[first + 1] <= low) first += 1;
	let end = bins;
	while (end > first + 1 && edges[end - 1] >= high) end -= 1;
	return [first, end];
}

// @ts-check
// Facets: bars of classes and histograms of numbers. Brushing computes the other charts from cumulative counts.

import { ApiError, get, onStatus, recordSet } from "./api.js";
import { count, h, number, onceAFrame, plural, printable, show, svg } from "./dom.js";
import { go, state } from "./state.js";
import { announce } from "./status.js";

const MOST_CLASSES = 12;

/** The panel of facets. @type {mountFacets} */
export function mountFacets(host, until) {
	const body = h("div.facet-list");
	const total = h("p.facet-total", { role: "status" });
	show(host, h("h2.hidden-visually", "Filters"), total, body);
	let shown = null;
	let charts = new Map();
	const cubes = new Map();
	let cube = null;
	let isBrushing = false;
	let builtShape = "";
	let timer = 0;
	let loading = null;

	async function load() {
		loading?.abort();
		const controller = (loading = new AbortController());
		cubes.clear();
		cube = null;
		const { order: _, ...query } = recordSet();
		try {
			const answer = /** @type {Facets} */ (await get("facets", query, controller.signal));
			if (until.aborted || controller.signal.aborted || isBrushing) return;
			const isSame = shape(answer) === builtShape;
			builtShape = shape(answer);
			shown = answer;
			// The charts stay where they are if only their counts changed, so that none loses the focus.
			if (!isSame) build();
			else for (const facet of answer.facets) charts.get(facet.column)?.draw(facet.selected);
			tell(answer.selected);
			if (!answer.complete && !answer.error) timer = setTimeout(load, 1000);
		} catch (error) {
			if (controller.signal.aborted || until.aborted) return;
			if (error instanceof ApiError && error.status === 503) timer = setTimeout(load, 1000);
			else show(body, h("p.soft", error instanceof ApiError ? printable(error.told.what) : "No answer."));
		}
	}

	function shape(facets) {
		const charts = facets.facets.map(({ column, counts, codes, edges }) => [column, counts, codes, edges]);
		return JSON.stringify([charts, state().filters]);
	}

	function tell(selected) {
		if (!shown) return;
		const all = shown.records;
		const isPart = !shown.complete ? `, ${count(all)} counted so far` : "";
		show(total, h("b", count(selected)), ` of ${plural(all, "record")}${isPart}`);
	}

	function build() {
		if (!shown) return;
		const focused = document.activeElement;
		const column = focused?.closest(".facet")?.getAttribute("data-column") ?? null;
		const among = () => [...body.querySelectorAll(`[data-column="${CSS.escape(column ?? "")}"] :is(button, input):not([hidden])`)];
		// Counted from the end: the button that clears the filter comes and goes at the beginning.
		const at = column === null ? 0 : among().reverse().findIndex((one) => one === focused);
		charts = new Map();
		const { charted, same, unique } = sortFacets(shown);
		const parts = charted.map((facet) => {
			const chart = facet.type === "number" ? makeHistogram(facet, brush) : makeBars(facet, until);
			charts.set(facet.column, chart);
			return chart.element;
		});
		show(
			body,
			parts.length || same.length ? parts : h("p.soft", "No column has few enough values for a filter."),
			listColumns("Same in every record", same.map((facet) => [facet.column, facet.names?.[0] ?? number(facet.edges[0])])),
			listColumns("Different in every record", unique.map((facet) => [facet.column, `${count(facet.names.length)} values`])),
		);
		// The control that was used is drawn again too: the focus goes to the new one.
		if (column !== null) /** @type {HTMLElement | undefined} */ (among().at(-1 - Math.max(at, 0)))?.focus();
	}

	// The joint counts of a facet and all others; fetched once, before the first move.
	function fetchCube(column) {
		let promise = cubes.get(column);
		if (!promise) {
			const { order: _, ...query } = recordSet();
			promise = get("cube", { ...query, active: column }, until).catch(() => null);
			cubes.set(column, promise);
		}
		return promise;
	}

	const brush = {
		async prepare(column) {
			const ready = await fetchCube(column);
			cube = ready;
		},
		move(column, first, end) {
			isBrushing = true;
			if (cube?.active !== column) return;
			tell(cube.totals[end] - cube.totals[first]);
			for (const [name, { bins, cumulative }] of Object.entries(cube.cubes)) {
				const chart = charts.get(name);
				if (!chart || name === column) continue;
				const counts = new Array(bins);
				for (let j = 0; j < bins; j += 1) counts[j] = cumulative[end * bins + j] - cumulative[first * bins + j];
				chart.draw(counts);
			}
		},
		commit(column, range) {
			isBrushing = false;
			const hadRange = state().filters.some((one) => one.feature === column);
			setFilter(column, range && { feature: column, range }, hadRange);
		},
	};

	onStatus(() => {
		if (shown && !shown.complete && !loading) void load();
	}, until);
	until.addEventListener("abort", () => {
		clearTimeout(timer);
		loading?.abort();
	});
	void load();
	return { reload: load };
}

const RANKS = { class: 0, text: 1, number: 2 };

// Facets by what a filter on them is worth: those with one value, or as many as records, are only named.
function sortFacets({ facets, complete }) {
	const isFiltered = (facet) => state().filters.some((one) => one.feature === facet.column);
	const isSame = (facet) => complete && facet.counts.length === 1 && !facet.missing && !facet.other && !isFiltered(facet);
	const isUnique = (facet) => complete && facet.type === "text" && facet.names.length > 3 && Math.max(...facet.counts) <= 1 && !isFiltered(facet);
	const charted = facets.filter((one) => !isSame(one) && !isUnique(one)).sort((a, b) => RANKS[a.type] - RANKS[b.type]);
	return { charted, same: facets.filter(isSame), unique: facets.filter(isUnique) };
}

function listColumns(title, columns) {
	if (!columns.length) return null;
	return h("section.facet", h("header", h("h3", title)), h("dl.small", columns.flatMap(([name, value]) => [h("dt", h("bdi", printable(name, 80))), h("dd", h("bdi", printable(value, 80)))])));
}

/** @type {setFilter} */
export function setFilter(column, filter, replace = false) {
	const others = state().filters.filter((one) => one.feature !== column);
	go({ filters: filter ? [...others, filter] : others, at: 0 }, { replace });
}

function header(facet, isOn) {
	const clear = h("button.link", { hidden: !isOn, onclick: () => setFilter(facet.column, null) }, "clear");
	clear.setAttribute("aria-label", `Clear the filter on ${facet.column}`);
	return h("header", h("h3", printable(facet.column, 80)), clear);
}

// Bars of classes: each is a switch.
function makeBars(facet, until) {
	const active = state().filters.find((one) => one.feature === facet.column);
	const chosen = new Set(active?.values ?? []);
	const codeOf = (i) => String(facet.type === "text" ? facet.names[i] : facet.codes[i]);
	const most = Math.max(...facet.counts, 1);
	const order = facet.names.map((_, i) => i).sort((a, b) => facet.counts[b] - facet.counts[a]);
	const list = h("ul.bars", { "aria-label": facet.column });
	const parts = new Map();

	function makeBar(i) {
		const code = codeOf(i);
		const bar = h("i.fill");
		const all = h("i.all");
		all.style.width = `${(100 * facet.counts[i]) / most}%`;
		const value = h("span.count");
		const name = printable(facet.names[i] === "" ? "(empty)" : facet.names[i], 80);
		const button = h(
			"button.bar-button",
			{ "aria-pressed": String(chosen.has(code)), onclick: () => toggle(code, name) },
			h("span.name", h("bdi", name)),
			value,
			h("span.track", { "aria-hidden": "true" }, all, bar),
		);
		parts.set(i, { bar, value, button });
		return h("li", button);
	}

	function toggle(code, name) {
		const isOn = !chosen.delete(code);
		if (isOn) chosen.add(code);
		announce(`${facet.column}: ${name} ${isOn ? "selected" : "not selected"}`);
		setFilter(facet.column, chosen.size ? { feature: facet.column, values: [...chosen] } : null);
	}

	function draw(selected) {
		for (const [i, { bar, value }] of parts) {
			bar.style.width = `${(100 * (selected[i] ?? 0)) / most}%`;
			value.textContent = count(selected[i] ?? 0);
		}
	}

	let last = facet.selected;
	const isVisible = (i, rank) => rank < MOST_CLASSES || chosen.has(codeOf(i));
	const rest = order.filter((i, rank) => !isVisible(i, rank));
	show(list, order.filter(isVisible).map(makeBar));
	const more = h(
		"button.link",
		{
			hidden: rest.length === 0,
			onclick: () => {
				list.append(...rest.map(makeBar));
				draw(last);
				more.hidden = true;
				parts.get(rest[0])?.button.focus();
			},
		},
		`${count(rest.length)} more`,
	);
	const notes = [facet.missing && `${count(facet.missing)} missing`, facet.other && `${count(facet.other)} others`].filter(Boolean);
	const element = h(
		"section.facet",
		{ "data-column": facet.column },
		header(facet, chosen.size > 0),
		list,
		more,
		notes.length ? h("p.soft.small", notes.join(", ")) : null,
	);
	draw(facet.selected);
	return { element, draw: (selected) => draw((last = selected)) };
}

const WIDTH = 240;
const HEIGHT = 64;

// A histogram with a brush; two sliders do the same by keyboard.
function makeHistogram(facet, brush) {
	const bins = facet.counts.length;
	const { edges, column } = facet;
	const active = state().filters.find((one) => one.feature === column)?.range;
	let [first, end] = active ? toBins(edges, active) : [0, bins];
	const most = Math.max(...facet.counts, 1);
	const step = WIDTH / bins;
	const behind = [];
	const bars = [];
	for (let i = 0; i < bins; i += 1) {
		const tall = (HEIGHT * facet.counts[i]) / most;
		const at = { x: i * step, width: Math.max(step - (step > 4 ? 1 : 0), 0.5) };
		behind.push(svg("rect", { ...at, class: "all", y: HEIGHT - tall, height: tall }));
		bars.push(svg("rect", { ...at, class: "fill" }));
	}
	const shade = svg("rect", { class: "shade", y: 0, height: HEIGHT });
	const chart = svg(
		"svg",
		{ class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
		shade,
		behind,
		bars,
	);
	const words = h("output.small");
	const low = makeSlider("from", first);
	const high = makeSlider("to", end);

	function makeSlider(name, at) {
		const slider = h("input", { type: "range", min: 0, max: bins, step: 1, value: at, "aria-label": `${column} ${name}` });
		slider.addEventListener("focus", () => void brush.prepare(column));
		slider.addEventListener("input", () => {
			if (name === "from") first = Math.min(Number(slider.value), end - 1);
			else end = Math.max(Number(slider.value), first + 1);
			moved();
		});
		slider.addEventListener("change", commit);
		return slider;
	}

	function label() {
		const isWhole = first === 0 && end === bins;
		const [from, to] = [edgeText(facet, first, true), edgeText(facet, end, false)];
		words.textContent = isWhole ? `${from} – ${to}` : `${from} – ${to} selected`;
		low.value = String(first);
		high.value = String(end);
		low.setAttribute("aria-valuetext", from);
		high.setAttribute("aria-valuetext", to);
		shade.setAttribute("x", String(first * step));
		shade.setAttribute("width", String((end - first) * step));
		bars.forEach((bar, i) => bar.classList.toggle("out", i < first || i >= end));
		element.classList.toggle("is-brushed", !isWhole);
	}

	const moved = onceAFrame(() => {
		label();
		brush.move(column, first, end);
	});

	function commit() {
		const isWhole = first === 0 && end === bins;
		brush.commit(column, isWhole ? null : [edges[first], edges[end]]);
	}

	function draw(selected) {
		bars.forEach((bar, i) => {
			const tall = (HEIGHT * (selected[i] ?? 0)) / most;
			bar.setAttribute("y", String(HEIGHT - tall));
			bar.setAttribute("height", String(tall));
		});
	}

	let origin = null;
	const area = h("div.brush", chart);
	const binAt = (event) => {
		const box = area.getBoundingClientRect();
		return Math.max(0, Math.min(((event.clientX - box.left) / box.width) * bins, bins));
	};
	area.addEventListener("pointerenter", () => void brush.prepare(column));
	area.addEventListener("pointerdown", (event) => {
		origin = binAt(event);
		area.setPointerCapture(event.pointerId);
		void brush.prepare(column);
	});
	area.addEventListener("pointermove", (event) => {
		if (origin === null) return;
		const at = binAt(event);
		first = Math.min(Math.floor(Math.min(origin, at)), bins - 1);
		end = Math.max(Math.ceil(Math.max(origin, at)), first + 1);
		moved();
	});
	area.addEventListener("pointerup", (event) => {
		if (origin === null) return;
		const isClick = Math.abs(binAt(event) - origin) * (area.clientWidth / bins) < 3;
		origin = null;
		if (isClick) [first, end] = first === 0 && end === bins ? [Math.min(Math.floor(binAt(event)), bins - 1), Math.min(Math.floor(binAt(event)), bins - 1) + 1] : [0, bins];
		label();
		commit();
	});
	const rows = () =>
		facet.counts.map((all, i) =>
			h("tr", h("th", { scope: "row" }, `${edgeText(facet, i, true)} – ${edgeText(facet, i + 1, false)}`), h("td.n", count(all))),
		);
	const table = h("tbody");
	const numbers = h(
		"details",
		{ ontoggle: () => table.childElementCount || show(table, rows()) },
		h("summary", "Table"),
		h("table.small-table", h("caption.hidden-visually", column), h("thead", h("tr", h("th", { scope: "col" }, "range"), h("th.n", { scope: "col" }, "records"))), table),
	);
	const missing = facet.missing ? h("p.soft.small", `${count(facet.missing)} missing`) : null;
	const element = h("section.facet", { "data-column": column }, header(facet, active !== undefined), area, words, h("div.sliders", low, high), missing, numbers);
	label();
	draw(facet.selected);
	return { element, draw };
}

function toBins(edges, [low, high]) {
	const bins = edges.length - 1;
	let first = 0;
	while (first < bins - 1 && edges[first + 1] <= low) first += 1;
	let end = bins;
	while (end > first + 1 && edges[end - 1] >= high) end -= 1;
	return [first, end];
}

// Edges of integers lie between them: the range names the integers.
function edgeText(facet, at, isLow) {
	const edge = facet.edges[at];
	if (facet.integer) return number(isLow ? Math.ceil(edge) : Math.ceil(edge) - 1);
	return number(edge);
}

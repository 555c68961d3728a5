// @ts-check
// The confusion matrix of a training run: a cell opens its records.

import { get } from "./api.js";
import { count, h, printable, show } from "./dom.js";
import { emptyState, makeScrollable, mountTitled, showAnswer } from "./parts.js";
import { link } from "./state.js";

/** @type {Mount} */
export function mountConfusion(host, until) {
	const body = h("div");
	const handle = mountTitled(host, "Predictions", body);
	void showAnswer(body, until, get("predictions", {}, until), (answer) => show(body, ...draw(answer)));
	return handle;
}

function draw({ classes, splits, matrix, records, note }) {
	if (!matrix.length) return [emptyState("No classes", h("p", "These predictions are numbers, not classes."))];
	const right = matrix.reduce((sum, row, i) => sum + row[i], 0);
	const name = (i) => printable(classes[i], 40);
	const cells = matrix.map((row, truth) => {
		const all = row.reduce((sum, one) => sum + one, 0);
		return h("tr", h("th", { scope: "row" }, h("bdi", name(truth))), row.map((times, prediction) => {
			const isRight = truth === prediction;
			if (!times) return h("td.none", h("span.soft", "0"));
			const cell = h("td", { class: isRight ? "right" : "wrong" }, h("a", { href: link({ view: "gallery", split: splits.length === 1 ? splits[0] : null, record: null, at: 0, filters: [], where: "", more: { cell: `${truth},${prediction}` } }), "aria-label": `${count(times)} of ${name(truth)} predicted as ${name(prediction)}` }, count(times)));
			cell.style.setProperty("--share", `${Math.round((70 * times) / Math.max(all, 1))}%`);
			return cell;
		}), h("td.n.soft", all ? `${((100 * row[truth]) / all).toFixed(1)} %` : ""));
	});
	return [
		note ? h("p.notice", note) : "",
		h("p.soft", `${count(right)} of ${count(records)} right (${((100 * right) / Math.max(records, 1)).toFixed(1)} %). Rows are the truth, columns the prediction; a number opens its records.`),
		makeScrollable("Confusion matrix", h("table.heat", h("caption.hidden-visually", "Confusion matrix"), h("thead", h("tr", h("th", { scope: "col" }, "truth"), classes.map((_, i) => h("th", { scope: "col" }, h("bdi", name(i)))), h("th", { scope: "col" }, "recall"))), h("tbody", cells))),
	];
}

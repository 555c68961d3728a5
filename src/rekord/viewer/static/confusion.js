// The confusion matrix of a training run: a cell opens its records.

import { get } from "./api.js";
import { bdi, count, h, printable, show } from "./dom.js";
import { emptyState, makeScrollable, makeTable, mountTitled, showAnswer } from "./parts.js";
import { link, setState } from "./state.js";

/** @type {Mount} */
export function mountConfusion(host, until) {
	const body = h("div");
	const handle = mountTitled(host, "Predictions", body);
	void showAnswer(body, until, get("predictions", {}, until), (answer) => show(body, ...draw(answer)));
	return handle;
}

function draw({ classes, splits, matrix, records, note }) {
	if (!matrix.length) return [emptyState("no-classes")];
	const right = matrix.reduce((sum, row, i) => sum + row[i], 0);
	const percent = (part, all) => `${((100 * part) / Math.max(all, 1)).toFixed(1)} %`;
	const name = (i) => printable(classes[i], 40);
	const rows = matrix.map((row, truth) => {
		const all = row.reduce((sum, one) => sum + one, 0);
		const cells = row.map((times, prediction) => {
			if (!times) return h("td", h("span.soft", "0"));
			const href = link({ ...setState({ cell: `${truth},${prediction}` }), split: splits.length === 1 ? splits[0] : null });
			const label = `${count(times)} of ${name(truth)} predicted as ${name(prediction)}`;
			return h("td", { class: truth === prediction ? "right" : "wrong", style: { "--share": `${Math.round((70 * times) / all)}%` } }, h("a", { href, label }, count(times)));
		});
		return [bdi(name(truth)), ...cells, h("td.n.soft", all ? percent(row[truth], all) : "")];
	});
	return [
		note && h("p.notice", note),
		h("p.soft", `${count(right)} of ${count(records)} right (${percent(right, records)}). Rows are the truth, columns the prediction; a number opens its records.`),
		makeScrollable("Confusion matrix", makeTable("Confusion matrix", ["truth", ...classes.map((_, i) => bdi(name(i))), "recall"], rows, "heat")),
	];
}

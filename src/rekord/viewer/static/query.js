// @ts-check
// SQL over the records, read-only.

import { getSession, post, sideIndex, splitName } from "./api.js";
import { h, number, plural, printable, show } from "./dom.js";
import { errorPanel, makeScrollable, makeTable, mountTitled, recordLink } from "./parts.js";
import { goMore, state } from "./state.js";
import { announce } from "./status.js";

/** @type {Mount} */
export function mountQuery(host, until) {
	const body = h("div");
	const area = h("textarea.code", { rows: 4, spellcheck: "false", "aria-label": "SQL query", placeholder: "SELECT label, count(*) FROM records GROUP BY label" });
	area.value = state().more.query ?? "";
	const cancel = h("button", { hidden: true, onclick: () => void post("cancel", { id: running }) }, "Cancel");
	let running = "";
	const form = h("form", { onsubmit: (event) => {
		event.preventDefault();
		goMore({ query: area.value }, { quiet: true });
		void run();
	} }, area, h("p.buttons", h("button", { type: "submit" }, "Run"), cancel, h("span.soft.small", "Ctrl + Enter. Read-only; 10 seconds and 1,000 rows at most.")));
	area.addEventListener("keydown", (event) => {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
	});
	const handle = mountTitled(host, "SQL", form, body);
	if (!getSession().sql) show(body, h("div.notice", "SQL needs DuckDB: ", h("code", "pip install 'rekord[sql]'")));

	async function run() {
		running = `q${performance.now()}`;
		cancel.hidden = false;
		show(body, h("p.soft", { role: "status" }, "Running…"));
		try {
			const answer = await post("sql", { query: area.value, side: sideIndex(), split: splitName(), limit: 1000, id: running }, until);
			const cell = (value) => (value === null ? h("span.soft", "null") : typeof value === "number" ? number(value) : typeof value === "object" ? printable("hex" in value ? `${value.bytes} bytes ${value.hex}` : JSON.stringify(value), 200) : h("bdi", printable(value, 200)));
			const heads = answer.columns.map((one) => h("span", { title: one.type }, printable(one.name, 60)));
			const rows = answer.rows.map((row, i) => [...(answer.records ? [recordLink(answer.records[i][0], answer.records[i][1], null, sideIndex())] : []), ...row.map(cell)]);
			const text = `${plural(answer.rows.length, "row")}${answer.more ? " (more exist)" : ""}, ${answer.seconds.toFixed(2)} s`;
			announce(text);
			show(body, h("p.soft", text), makeScrollable("Result", makeTable("Result", [...(answer.records ? ["record"] : []), ...heads], rows), ".panel"));
		} catch (error) {
			if (!until.aborted) show(body, errorPanel(error, "The query failed"));
		} finally {
			cancel.hidden = true;
		}
	}

	if (area.value) void run();
	return { ...handle, focus: () => area.focus() };
}


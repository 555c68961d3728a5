// SQL over the records, read-only.

import { getSession, post, sideIndex, splitName } from "./api.js";
import { announce, bdi, h, number, plural, printable, show } from "./dom.js";
import { clone, cloneForm, errorPanel, makeScrollable, makeTable, mountTitled, recordLink } from "./parts.js";
import { goMore, state } from "./state.js";

/** @type {Mount} */
export function mountQuery(host, until) {
	const body = h("div");
	let running = "";
	const [form, { query: area, cancel }] = cloneForm("sql-form", () => {
		goMore({ query: area.value }, { quiet: true });
		void run();
	});
	area.value = state().more.query ?? "";
	cancel.onclick = () => void post("cancel", { id: running });
	area.addEventListener("keydown", (event) => {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
	});
	const handle = mountTitled(host, "SQL", form, body);
	if (!getSession().sql) show(body, clone("no-sql"));

	async function run() {
		running = `q${performance.now()}`;
		cancel.hidden = false;
		show(body, h("p.soft", { role: "status" }, "Running…"));
		try {
			const { columns, rows, records, more, seconds } = await post("sql", { query: area.value, side: sideIndex(), split: splitName(), limit: 1000, id: running }, until);
			const heads = columns.map((one) => h("span", { title: one.type }, printable(one.name, 60)));
			const link = (i) => (records ? [recordLink(records[i][0], records[i][1], null, sideIndex())] : []);
			const text = `${plural(rows.length, "row")}${more ? " (more exist)" : ""}, ${seconds.toFixed(2)} s`;
			announce(text);
			show(body, h("p.soft", text), makeScrollable("Result", makeTable("Result", [...(records ? ["record"] : []), ...heads], rows.map((row, i) => [...link(i), ...row.map(renderValue)])), ".panel"));
		} catch (error) {
			if (!until.aborted) show(body, errorPanel(error, "The query failed"));
		} finally {
			cancel.hidden = true;
		}
	}

	if (area.value) void run();
	return { ...handle, focus: () => area.focus() };
}

function renderValue(value) {
	if (value === null) return h("span.soft", "null");
	if (typeof value === "number") return number(value);
	if (typeof value !== "object") return bdi(value, 200);
	return printable("hex" in value ? `${value.bytes} bytes ${value.hex}` : JSON.stringify(value), 200);
}

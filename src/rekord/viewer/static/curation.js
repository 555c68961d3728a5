// @ts-check
// What to do with selected records: tags; and the file, command and Python that delete or relabel them.

import { get, getSession, isNarrowed, post, recordSet, side, sideIndex } from "./api.js";
import { count, h, plural, printable, show } from "./dom.js";
import { copyButton, errorPanel, faultPanel, makeOptions } from "./parts.js";
import { clearSelection, onSelection, selectedRecords, selectMany } from "./selection.js";
import { go } from "./state.js";
import { announce, notify } from "./status.js";

const MOST = 10_000;

/** The bar below the page while records are selected. @param {HTMLElement} host */
export function mountSelectionBar(host) {
	function draw() {
		const records = selectedRecords();
		host.hidden = records.length === 0;
		document.body.classList.toggle("has-selection", records.length > 0);
		if (!records.length) return show(host);
		announce(`${plural(records.length, "record")} selected`);
		show(
			host,
			h("b", `${count(records.length)} selected`),
			h("button", { onclick: () => openTags(records) }, "Tag…"),
			h("button", { onclick: () => openCuration("delete", records) }, "Delete…"),
			h("button", { onclick: () => openCuration("relabel", records) }, "Relabel…"),
			isNarrowed() ? h("button", { onclick: () => void selectAll() }, "Select all that match") : null,
			h("button.link", { onclick: clearSelection }, "Clear"),
		);
	}
	onSelection(draw);
	draw();
}

/** Every record that the filters leave. */
export async function selectAll() {
	const { total, records } = await get("ids", { ...recordSet(), most: MOST });
	selectMany(records, true);
	if (total > records.length) notify(`The first ${count(records.length)} of ${count(total)} records are selected.`);
}

/** A dialog; Esc closes it, and the focus returns. @type {openDialog} */
export function openDialog(title, ...children) {
	const before = document.activeElement;
	const dialog = h("dialog.dialog", { "aria-labelledby": "dialog-title" }, h("header", h("h2", { id: "dialog-title" }, title), h("button.icon", { "aria-label": "Close", onclick: () => dialog.close() }, "×")), ...children.filter((one) => one !== null));
	dialog.addEventListener("close", () => {
		dialog.remove();
		if (before instanceof HTMLElement) before.focus();
	});
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}

function openTags(records) {
	const input = h("input", { type: "text", required: true, maxlength: 100, autocomplete: "off", list: "known-tags", id: "tag-name" });
	const known = h("datalist", { id: "known-tags" });
	const existing = h("div");
	const send = async (remove) => {
		try {
			await post("tags", { tag: input.value, records, remove, side: sideIndex() });
			notify(`${plural(records.length, "record")} ${remove ? "no longer tagged" : "tagged"} ${printable(input.value, 60)}.`);
			dialog.close();
		} catch (error) {
			show(existing, errorPanel(error));
		}
	};
	const form = h("form", { onsubmit: (event) => (event.preventDefault(), void send(false)) }, h("p", h("label", { for: "tag-name" }, "Tag "), input, known), h("p.soft.small", "Tags are kept in your cache folder; the data does not change."), h("p.buttons", h("button.primary", { type: "submit" }, "Add tag"), h("button", { onclick: () => input.reportValidity() && void send(true) }, "Remove tag")));
	const dialog = openDialog(`Tag ${plural(records.length, "record")}`, form, existing);
	get("tags", { side: sideIndex() || null })
		.then(({ tags }) => {
			const names = Object.keys(tags);
			show(known, names.map((name) => h("option", { value: name })));
			if (names.length) show(existing, h("h3", "Show tagged records"), h("ul.tag-list", names.map((name) => h("li", h("button.link", { onclick: () => (dialog.close(), go({ view: "gallery", record: null, at: 0, more: { tag: name } })) }, printable(name, 60)), ` ${count(tags[name])}`))));
		})
		.catch((error) => show(existing, errorPanel(error)));
	input.focus();
}

function openCuration(action, records) {
	const classes = side().columns.filter((one) => one.view === "class");
	const out = h("input", { type: "text", id: "curate-out", autocomplete: "off" });
	const column = h("select", { id: "curate-column" }, makeOptions(classes.map((one) => one.name)));
	const label = h("input", { type: "text", id: "curate-label", required: true, list: "curate-classes", autocomplete: "off" });
	const names = h("datalist", { id: "curate-classes" });
	const result = h("div", { "aria-live": "polite" });
	const request = () => ({ action, records, side: sideIndex(), out: out.value || null, ...(action === "relabel" ? { column: column.value, label: label.value } : {}) });
	const fillNames = () => show(names, (classes.find((one) => one.name === column.value)?.classes ?? []).map((name) => h("option", { value: name })));
	if (side().label) column.value = side().label ?? "";
	fillNames();
	const submit = getSession().edit && h("button.primary", { type: "submit" }, action === "delete" ? "Write without these records" : "Write with the new class");
	let run = 0;

	async function preview() {
		const mine = (run += 1);
		if (action === "relabel" && !label.value) return show(result, h("p.soft", "Choose the right class."));
		try {
			const answer = await post("curate", request());
			if (mine !== run) return;
			if (!out.value) out.placeholder = answer.out;
			if (answer.error) return show(result, faultPanel(answer.error, "This cannot be done"));
			const ways = [answer, ...answer.others].flatMap(({ command, python, note }, i) => [
				i ? h("h3", "Or") : null,
				note ? h("p.soft.small", printable(note)) : null,
				block("Command", command, i ? "command-2" : "command"),
				block("Python", python, i ? "python-2" : "python"),
			]);
			show(result, ...ways, block(`Records: ${answer.csv_name}`, answer.csv, "csv", answer.csv_name));
			if (submit) submit.disabled = !answer.can_run;
		} catch (error) {
			if (mine === run) show(result, errorPanel(error, "This cannot be done"));
		}
	}

	function block(title, text, kind, file) {
		const save = file && h("a.small-button", { download: file, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) }, "Save");
		return h("section.code-block", h("header", h("h3", title), copyButton(text, `Copy ${kind}`), save || null), h("pre", { "data-kind": kind, tabindex: "0", "aria-label": title }, text.length > 20_000 ? `${text.slice(0, 20_000)}…` : text));
	}

	async function execute(submit) {
		try {
			submit.disabled = true;
			let answer = await post("run", request());
			while (answer.state === "running") {
				const bar = h("progress", { max: 1, "aria-label": "Written" });
				if (answer.share !== null) bar.value = answer.share;
				show(result, h("p.soft", { role: "status" }, bar, ` ${printable(answer.progress ?? "")}`));
				await new Promise((done) => setTimeout(done, 500));
				answer = await get("run", { side: sideIndex() || null });
			}
			if (answer.error) return show(result, faultPanel(answer.error, "This was not done"));
			show(result, h("div.good", `Written: ${printable(answer.out)} (${plural(answer.records, "record")}).`));
			announce("Written.");
		} catch (error) {
			show(result, errorPanel(error, "This was not done"));
		} finally {
			submit.disabled = false;
		}
	}

	const form = h(
		"form",
		{ onsubmit: (event) => (event.preventDefault(), submit ? void execute(submit) : void preview()), oninput: () => void preview() },
		h("p.fields", action === "relabel" && [h("label", { for: "curate-column" }, "Column"), column, h("label", { for: "curate-label" }, "New class"), label], h("label", { for: "curate-out" }, "Write to"), out, names),
		h("p.soft.small", "The result is a new dataset; the one that is open does not change."),
		submit ? h("p.buttons", submit) : h("p.soft.small", "To run it from this page, start ", h("code", "rekord view --edit"), "."),
		result,
	);
	column.addEventListener("change", fillNames);
	openDialog(`${action === "delete" ? "Delete" : "Relabel"} ${plural(records.length, "record")}`, form);
	void preview();
}

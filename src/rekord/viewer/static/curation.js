// What to do with selected records: tags; and the file, command and Python that delete or relabel them.

import { findColumn, get, getSession, isNarrowed, post, recordSet, side, sideIndex } from "./api.js";
import { announce, count, h, notify, plural, printable, show } from "./dom.js";
import { cloneForm, copyButton, errorPanel, faultPanel, makeOptions } from "./parts.js";
import { clearSelection, onSelection, selectedRecords, selectMany } from "./selection.js";
import { go, setState } from "./state.js";

const MOST = 10_000;
const SHOWN_CHARACTERS = 20_000;

/** @type {mountSelectionBar} */
export function mountSelectionBar(host) {
	function draw() {
		const records = selectedRecords();
		host.hidden = records.length === 0;
		document.body.classList.toggle("has-selection", !host.hidden);
		if (host.hidden) return show(host);
		announce(`${plural(records.length, "record")} selected`);
		show(host,
			h("b", `${count(records.length)} selected`),
			h("button", { onclick: () => openTags(records) }, "Tag…"),
			h("button", { onclick: () => openCuration("delete", records) }, "Delete…"),
			h("button", { onclick: () => openCuration("relabel", records) }, "Relabel…"),
			isNarrowed() && h("button", { onclick: selectAll }, "Select all that match"),
			h("button.link", { onclick: clearSelection }, "Clear"),
		);
	}
	onSelection(draw);
	draw();
}

export async function selectAll() {
	const { total, records } = await get("ids", { ...recordSet(), most: MOST });
	selectMany(records, true);
	if (total > records.length) notify(`The first ${count(records.length)} of ${count(total)} records are selected.`);
}

/** @type {openDialog} */
export function openDialog(title, ...children) {
	const before = document.activeElement;
	const onclose = () => {
		dialog.remove();
		if (before instanceof HTMLElement) before.focus();
	};
	const dialog = h("dialog.dialog", { "aria-labelledby": "dialog-title", onclose }, h("header", h("h2", { id: "dialog-title" }, title), h("button.icon", { label: "Close", onclick: () => dialog.close() }, "×")), children);
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}

function openTags(records) {
	const existing = h("div");
	const send = async (remove = false) => {
		try {
			await post("tags", { tag: input.value, records, remove, side: sideIndex() });
			notify(`${plural(records.length, "record")} ${remove ? "no longer tagged" : "tagged"} ${printable(input.value, 60)}.`);
			dialog.close();
		} catch (error) {
			show(existing, errorPanel(error));
		}
	};
	const [form, { tag: input, untag }] = cloneForm("tag-form", send);
	untag.onclick = () => input.reportValidity() && void send(true);
	const dialog = openDialog(`Tag ${plural(records.length, "record")}`, form, existing);
	const showTag = (tag) => {
		dialog.close();
		go(setState({ tag }));
	};
	get("tags", { side: sideIndex() })
		.then(({ tags }) => {
			const names = Object.keys(tags);
			show(form.children[0], makeOptions(names));
			if (names.length) show(existing, h("h3", "Show tagged records"), h("ul", names.map((name) => h("li", h("button.link", { onclick: () => showTag(name) }, printable(name, 60)), ` ${count(tags[name])}`))));
		})
		.catch((error) => show(existing, errorPanel(error)));
	input.focus();
}

function openCuration(action, records) {
	const isRelabel = action === "relabel";
	const failure = "This cannot be done";
	const classes = side().columns.filter((one) => one.view === "class").map((one) => one.name);
	const fillNames = () => show(names, makeOptions(findColumn(column.value)?.classes ?? []));
	const [form, { out, column, label, write }] = cloneForm("curate-form", execute);
	const names = form.children[0];
	const result = h("div", { "aria-live": "polite" });
	const request = () => ({ action, records, side: sideIndex(), out: out.value || null, ...(isRelabel ? { column: column.value, label: label.value } : {}) });
	let run = 0;

	async function preview() {
		const mine = (run += 1);
		if (isRelabel && !label.value) return show(result, h("p.soft", "Choose the right class."));
		try {
			const answer = await post("curate", request());
			if (mine !== run) return;
			if (!out.value) out.placeholder = answer.out;
			if (answer.error) return show(result, faultPanel(answer.error, failure));
			const ways = [answer, ...answer.others].flatMap(({ command, python, note }, i) => [
				i && h("h3", "Or"),
				note && h("p.soft.small", printable(note)),
				block("Command", command, i ? "command-2" : "command"),
				block("Python", python, i ? "python-2" : "python"),
			]);
			show(result, ways, block(`Records: ${answer.csv_name}`, answer.csv, "csv", answer.csv_name));
			write.disabled = !answer.can_run;
		} catch (error) {
			if (mine === run) show(result, errorPanel(error, failure));
		}
	}

	function block(title, text, kind, file = "") {
		const save = file && h("a.button.small-button", { download: file, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) }, "Save");
		const shown = text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
		return h("section.code-block", h("header", h("h3", title), copyButton(text, `Copy ${kind}`), save), h("pre", { "data-kind": kind, tabindex: "0", label: title }, shown));
	}

	async function execute() {
		if (!getSession().edit) return preview();
		const title = "This was not done";
		try {
			write.disabled = true;
			let answer = await post("run", request());
			while (answer.state === "running") {
				const bar = h("progress", { max: 1, label: "Written" });
				if (answer.share !== null) bar.value = answer.share;
				show(result, h("p.soft", { role: "status" }, bar, ` ${printable(answer.progress ?? "")}`));
				await new Promise((done) => setTimeout(done, 500));
				answer = await get("run", { side: sideIndex() });
			}
			if (answer.error) return show(result, faultPanel(answer.error, title));
			show(result, h("div.good", `Written: ${printable(answer.out)} (${plural(answer.records, "record")}).`));
			announce("Written.");
		} catch (error) {
			show(result, errorPanel(error, title));
		} finally {
			write.disabled = false;
		}
	}

	const remove = (selector) => form.querySelectorAll(selector).forEach((one) => one.remove());
	if (!isRelabel) remove(".of-relabel");
	remove(getSession().edit ? ".of-view" : ".of-edit");
	write.textContent = isRelabel ? "Write with the new class" : "Write without these records";
	show(column, makeOptions(classes));
	column.value = side().label ?? classes[0] ?? "";
	column.onchange = fillNames;
	form.oninput = preview;
	form.append(result);
	fillNames();
	openDialog(`${isRelabel ? "Relabel" : "Delete"} ${plural(records.length, "record")}`, form);
	void preview();
}

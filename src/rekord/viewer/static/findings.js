// What check found, each finding with what to do and links to its records; and pairs of equal records.

import { get, getStatus, mediaAddress, onStatus, pollSoon, post, sideIndex } from "./api.js";
import { bdi, breakable, count, h, plural, printable, show } from "./dom.js";
import { makeStage, makeZoom } from "./images.js";
import { clone, doLine, emptyState, errorPanel, listFacts, makePairList, makeSubtabs, makeTable, mountTitled, pager, PAIRS, recordLink, showAnswer } from "./parts.js";
import { link, setState, state } from "./state.js";

const PAGE = 50;
const FIRST_LINKS = 12;
const MOST_FEATURES = 40;

/** @type {Mount} */
export function mountFindings(host, until) {
	const progress = h("p.soft", { role: "status" });
	const body = h("div");
	const handle = mountTitled(host, "Findings", progress, body);
	const first = Number(state().more.first) || 0;
	let known = -1;

	function tell() {
		const check = getStatus()?.check;
		if (!check) return;
		const isWaiting = ["idle", "skipped"].includes(check.state);
		show(progress, check.text, isWaiting && [" ", h("button", { onclick: () => void post("check", {}, until).then(pollSoon) }, "Check now")]);
		const now = check.findings * 10 + (check.state === "done" ? 1 : 0);
		if (now !== known) load();
		known = now;
	}

	const load = () =>
		void showAnswer(body, until, get("findings", { first, count: PAGE, side: sideIndex() }, until), ({ total, findings, state: condition }) => {
			if (total === 0) return show(body, condition === "done" && emptyState("no-findings"));
			show(body, h("ul.findings", findings.map(renderFinding)), pager(first, PAGE, total));
			const opened = state().more.open;
			if (opened) body.querySelector(`#finding-${CSS.escape(opened)}`)?.scrollIntoView();
		});

	onStatus(tell, until);
	tell();
	if (known === -1) load();
	return handle;
}

function renderFinding(finding) {
	const { number, severity, code, title, message, where, expected, found, likely, more, side } = finding;
	/** @type {RecordKey[]} */
	const all = finding.records ?? [];
	const rest = all.slice(FIRST_LINKS);
	const links = h("p.record-links");
	const append = (keys, isLast) => links.append(...keys.flatMap(([split, one]) => [recordLink(split, one, null, side), " "]), isLast && more ? h("span.soft", `and ${count(more)} more`) : "");
	append(all.slice(0, FIRST_LINKS), !rest.length);
	const showRest = () => {
		button.remove();
		append(rest, true);
	};
	const button = h("button.link", { onclick: showRest }, `all ${count(all.length)}`);
	if (rest.length) links.append(button);
	return h("li.panel.finding",
		{ id: `finding-${number}` },
		h("header", h("span", { class: `pill severity ${severity}` }, severity), h("code", code), h("h3", printable(title)), finding.count > 1 && h("span.soft", `${count(finding.count)} times`)),
		message === title ? null : h("p", bdi(message)),
		h("p.soft.small", printable(where)),
		listFacts({ expected, found, likely }),
		doLine(finding.do),
		all.length && h("div.finding-records", links, h("a", { href: link({ ...setState({ finding: String(number) }), split: all[0][0] }) }, all.length === 1 ? "Show it in the gallery" : "Show them in the gallery")),
	);
}

/** @type {Mount} */
export function mountPairs(host, until) {
	const { more } = state();
	const isLeak = more.kind === "leak";
	const first = Number(more.first) || 0;
	const body = h("div");
	const tabs = makeSubtabs("Kinds of duplicates", [["Within a split", link({ more: {} }), !isLeak], ["Leaks between splits", link({ more: { kind: "leak" } }), isLeak]]);
	const handle = mountTitled(host, "Duplicates", tabs, body);
	let drawn = "";
	let known = "";

	const load = () =>
		void showAnswer(body, until, get("pairs", { kind: isLeak ? "leak" : "duplicate", first, count: PAIRS, side: sideIndex() }, until), (answer) => {
			const { pairs, total } = answer;
			const isDone = getStatus()?.check.state === "done";
			const text = JSON.stringify(total ? [pairs, total] : isDone);
			if (text === drawn) return; // what is shown keeps its zoom and focus
			drawn = text;
			if (!total) return show(body, emptyState(isLeak ? "no-leaks" : "no-duplicates", !isDone && h("p", "The check is not done yet.")));
			const chosen = Math.min(Number(more.pair) || 0, pairs.length - 1);
			const items = pairs.map(({ a, b }) => `${a[0]} ${count(a[1])} = ${b[0]} ${count(b[1])}`);
			const twins = h("div");
			show(body, h("p.soft", plural(total, "pair")), makePairList(items, chosen, first, total, twins));
			void mountTwins(twins, [pairs[chosen].a, pairs[chosen].b].map((key) => ({ key, side: sideIndex() })), until, []);
		});

	onStatus((status) => {
		const now = `${status?.check.state} ${status?.check.findings}`;
		if (now !== known) load();
		known = now;
	}, until);
	load();
	return handle;
}

/** @type {mountTwins} */
export async function mountTwins(host, twins, until, differing) {
	const zoom = makeZoom();
	const renderTwin = async (twin) => {
		if (!twin) return h("div.twin", h("p.gone", "not there"));
		const [split, record] = twin.key;
		const query = { side: twin.side, split, record };
		const title = h("h3", recordLink(split, record, `${split} ${count(record)}`, twin.side));
		try {
			const { features, file } = await get("record", query, until);
			const image = features.find((one) => one.view === "image" && one.value?.image?.state === "ok");
			const stage = image && makeStage({ ...image.value.image, src: mediaAddress("image", { ...query, feature: image.name }), alt: `${printable(image.name, 60)} of ${split} ${record}`, zoom, until });
			const rows = features.slice(0, MOST_FEATURES).map(({ name, value, error }) => [breakable(name), [bdi(value?.name ?? value?.text ?? error?.what ?? "", 100), differing.includes(name) && h("span.pill.alert", "differs")]]);
			const table = makeTable(`Features of ${split} ${record}`, [], rows, "small-table");
			table.querySelectorAll("tr").forEach((row, i) => row.classList.toggle("differs", differing.includes(features[i].name)));
			return h("div.twin", title, h("p.soft.small.file", printable(file ?? "")), stage?.element, table);
		} catch (error) {
			return h("div.twin", title, errorPanel(error));
		}
	};
	const shown = await Promise.all(twins.map(renderTwin));
	if (!until.aborted) show(host, clone("zoom-together"), h("div.twins", shown));
}

// @ts-check
// What check found, each finding with what to do and links to its records; and pairs of equal records.

import { get, getStatus, mediaAddress, onStatus, pollSoon, post, sideIndex } from "./api.js";
import { breakable, count, h, plural, printable, show } from "./dom.js";
import { doLine, emptyState, errorPanel, makePairList, mountTitled, pager, PAIRS, recordLink, showAnswer } from "./parts.js";
import { Stage, Zoom } from "./stage.js";
import { goMore, link, state } from "./state.js";

const PAGE = 50;
const FIRST_LINKS = 12;

/** @type {Mount} */
export function mountFindings(host, until) {
	const progress = h("p.soft", { role: "status" });
	const body = h("div");
	const handle = mountTitled(host, "Findings", progress, body);
	let known = -1;

	function tell() {
		const check = getStatus()?.check;
		if (!check) return;
		const words = {
			idle: "The data was not checked yet.",
			running: `Checking: ${count(check.files)} of ${plural(check.of, "file")}…`,
			done: `${plural(check.errors, "error")}, ${plural(check.warnings, "warning")}.`,
			failed: "The check failed.",
			skipped: "The data is large: it was not checked by itself.",
		};
		show(progress, Reflect.get(words, check.state) ?? "");
		if (check.state === "idle" || check.state === "skipped") {
			progress.append(" ", h("button", { onclick: () => void post("check", {}, until).then(pollSoon) }, "Check now"));
		}
		const now = check.findings * 10 + (check.state === "done" ? 1 : 0);
		if (now !== known) {
			known = now;
			load(Number(state().more.first ?? 0));
		}
	}

	const load = (first) =>
		void showAnswer(body, until, get("findings", { first, count: PAGE, side: sideIndex() || null }, until), (answer) => {
			const turn = (to) => goMore({ first: String(to) });
			if (answer.total === 0) {
				return show(body, answer.state === "done" ? emptyState("No findings", h("p", "Every frame is intact, and every record matches the schema.")) : null);
			}
			show(body, h("ul.findings", answer.findings.map(renderFinding)), pager(first, PAGE, answer.total, turn));
			const opened = state().more.open;
			if (opened) body.querySelector(`#finding-${CSS.escape(opened)}`)?.scrollIntoView();
		});

	onStatus(tell, until);
	tell();
	if (known === -1) load(Number(state().more.first ?? 0));
	return handle;
}

function renderFinding(finding) {
	const all = /** @type {RecordKey[]} */ (finding.records ?? []);
	const links = h("p.record-links");
	const append = (keys) => links.append(...keys.flatMap(([split, record]) => [recordLink(split, record, null, finding.side), " "]));
	append(all.slice(0, FIRST_LINKS));
	if (all.length > FIRST_LINKS) {
		const rest = all.slice(FIRST_LINKS);
		links.append(
			h("button.link", { onclick: (event) => {
				/** @type {Element} */ (event.target).remove();
				append(rest);
				if (finding.more) links.append(h("span.soft", `and ${count(finding.more)} more`));
			} }, `all ${count(all.length)}`),
		);
	} else if (finding.more) links.append(h("span.soft", `and ${count(finding.more)} more`));
	const facts = [["expected", finding.expected], ["found", finding.found], ["likely", finding.likely]].filter(([, value]) => value);
	return h(
		"li.panel.finding",
		{ id: `finding-${finding.number}` },
		h("header", h("span", { class: `pill severity ${finding.severity}` }, finding.severity), h("code", finding.code), h("h3", printable(finding.title)), finding.count > 1 ? h("span.soft", `${count(finding.count)} times`) : null),
		finding.message === finding.title ? null : h("p", h("bdi", printable(finding.message))),
		h("p.soft.small", [finding.path, finding.record !== null && finding.record !== undefined ? `record ${count(finding.record)}` : null, finding.offset !== null && finding.offset !== undefined ? `byte ${count(finding.offset)}` : null, finding.feature].filter(Boolean).map((part) => printable(part)).join(", ")),
		facts.length ? h("dl", facts.flatMap(([name, value]) => [h("dt", name), h("dd", printable(value))])) : null,
		finding.do ? doLine(finding.do) : null,
		all.length ? h("div.finding-records", links, h("a", { href: link({ view: "gallery", split: all[0][0], record: null, filters: [], where: "", at: 0, more: { finding: String(finding.number) } }) }, all.length === 1 ? "Show it in the gallery" : "Show them in the gallery")) : null,
	);
}

/** Records that are equal, in one split or in two. @type {Mount} */
export function mountPairs(host, until) {
	const kind = state().more.kind === "leak" ? "leak" : "duplicate";
	const first = Number(state().more.first ?? 0) || 0;
	const body = h("div");
	const tab = (name, text) => h("a", { href: link({ more: name === "leak" ? { kind: name } : {} }), "aria-current": kind === name ? "true" : null }, text);
	const handle = mountTitled(host, "Duplicates", h("nav.subtabs", { "aria-label": "Kinds of duplicates" }, tab("duplicate", "Within a split"), tab("leak", "Leaks between splits")), body);

	let drawn = "";

	const load = () =>
		void showAnswer(body, until, get("pairs", { kind, first, count: PAIRS, side: sideIndex() || null }, until), (answer) => {
			const text = JSON.stringify([answer, getStatus()?.check.state === "done"]);
			if (text === drawn) return; // what is shown keeps its zoom and focus
			drawn = text;
			if (answer.total === 0) {
				const check = getStatus()?.check.state;
				show(body, emptyState(check === "done" ? "None" : "None so far", h("p", kind === "leak" ? "No record of one split is also in another one." : "No record is there twice.")));
				return;
			}
			const chosen = Math.min(Number(state().more.pair ?? 0) || 0, answer.pairs.length - 1);
			const items = answer.pairs.map(({ a, b }) => `${a[0]} ${count(a[1])} = ${b[0]} ${count(b[1])}`);
			const twin = h("div");
			show(body, h("p.soft", plural(answer.total, "pair")), h("div.pair-columns", makePairList(items, chosen, first, answer.total), twin));
			const pair = answer.pairs[chosen];
			mountTwins(twin, [{ key: pair.a, side: sideIndex() }, { key: pair.b, side: sideIndex() }], until, []);
		});

	let known = "";
	onStatus((status) => {
		const now = `${status?.check.state} ${status?.check.findings}`;
		if (now !== known) {
			known = now;
			load();
		}
	}, until);
	load();
	return handle;
}

/** Two records next to each other; their images zoom together. @type {mountTwins} */
export async function mountTwins(host, twins, until, differing) {
	const zoom = new Zoom();
	const differs = new Set(differing);
	const sides = await Promise.all(
		twins.map(async (twin) => {
			if (!twin) return h("div.twin", h("p.gone", "not there"));
			const [split, record] = twin.key;
			const query = { side: twin.side || null, split, record };
			const title = h("h3", recordLink(split, record, `${split} ${count(record)}`, twin.side));
			try {
				const answer = await get("record", query, until);
				const image = answer.features.find((one) => one.view === "image" && one.value?.image?.state === "ok");
				const facts = image?.value.image;
				const stage = image && new Stage({ src: mediaAddress("image", { ...query, feature: image.name }), alt: `${printable(image.name, 60)} of ${split} ${record}`, width: facts.width, height: facts.height, orientation: facts.orientation, zoom, until });
				const rows = answer.features.slice(0, 40).map((one) => h("tr", { class: differs.has(one.name) ? "differs" : null }, h("th", { scope: "row" }, breakable(one.name)), h("td", h("bdi", printable(one.value?.name ?? one.value?.text ?? one.error?.what ?? "", 100)), differs.has(one.name) ? h("span.pill.alert", "differs") : null)));
				return h("div.twin", title, h("p.soft.small.file", printable(answer.file ?? "")), stage?.element ?? null, h("table.small-table", h("caption.hidden-visually", `Features of ${split} ${record}`), h("tbody", rows)));
			} catch (error) {
				return h("div.twin", title, errorPanel(error));
			}
		}),
	);
	if (!until.aborted) show(host, h("p.soft.small", "Images zoom together: wheel with Ctrl, or + and − on a focused image."), h("div.twins", sides));
}


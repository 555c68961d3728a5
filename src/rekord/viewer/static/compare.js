// Two datasets by key: what is the same, what changed, and what only one of them has.

import { get, getSession } from "./api.js";
import { bdi, count, h, printable, show } from "./dom.js";
import { mountTwins } from "./findings.js";
import { emptyState, faultPanel, makePairList, makeSelect, makeSubtabs, mountTitled, PAIRS, showAnswer } from "./parts.js";
import { goMore, linkMore, state } from "./state.js";

const KINDS = { changed: "Changed", left: "Only in A", right: "Only in B", all: "All" };
const STATUS = { left: "only in A", right: "only in B" };
const FROM_START = { first: "0", pair: "0" };

/** @type {Mount} */
export function mountCompare(host, until) {
	const { key, only = "changed", first = "0", pair = "0" } = state().more;
	const body = h("div", { "aria-live": "polite" });
	const [a, b] = getSession().sides;
	const handle = mountTitled(host, "Compare", b && h("p.soft", h("b", "A "), printable(a.path), h("b", "  B "), printable(b.path)), body);
	if (!b) {
		show(body, emptyState("one-dataset"));
		return handle;
	}

	const load = () =>
		void showAnswer(body, until, get("compare", { key, first, count: PAIRS, only }, until), (answer) => {
			if (answer.error) return show(body, faultPanel(answer.error));
			if (answer.state !== "running") return draw(answer);
			show(body, h("p.soft", "Comparing…"));
			setTimeout(() => until.aborted || load(), 500);
		});

	function draw({ keys, key: used, counts, pairs, total }) {
		const all = Object.values(counts).reduce((sum, one) => sum + Number(one), 0);
		const tabs = Object.entries(KINDS).map(([kind, text]) => [`${text} ${count((kind === "all" ? all : counts[kind]) ?? 0)}`, linkMore({ only: kind, ...FROM_START }), only === kind]);
		const chosen = Math.min(Number(pair) || 0, Math.max(pairs.length - 1, 0));
		const twins = h("div");
		const items = pairs.map((one) => [
			bdi(one.key, 80),
			" ",
			h("span", { class: one.status === "same" ? "pill" : "pill alert" }, STATUS[one.status] ?? one.status),
			one.features?.length && h("span.soft.small", ` ${printable(one.features.join(", "), 80)}`),
		]);
		show(body,
			h("div.compare-tools",
				keys?.length && h("label", "Key ", makeSelect(keys, key ?? used?.[0] ?? "", (chosen) => goMore({ key: chosen, ...FROM_START }))),
				makeSubtabs("Kinds of differences", tabs),
				h("span.soft", `${count(counts.same ?? 0)} the same`)),
			pairs.length ? makePairList(items, chosen, Number(first), total, twins) : emptyState("no-pair"),
		);
		const one = pairs[chosen];
		if (one) void mountTwins(twins, [one.a && { key: one.a, side: 0 }, one.b && { key: one.b, side: 1 }], until, one.features ?? []);
	}

	load();
	return handle;
}

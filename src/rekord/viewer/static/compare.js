// @ts-check
// Two datasets by key: what is the same, what changed, and what only one of them has.

import { get, getSession } from "./api.js";
import { count, h, printable, show } from "./dom.js";
import { mountTwins } from "./findings.js";
import { emptyState, faultPanel, makeOptions, makePairList, mountTitled, PAIRS, showAnswer } from "./parts.js";
import { goMore, linkMore, state } from "./state.js";

const KINDS = /** @type {const} */ ([["changed", "Changed"], ["left", "Only in A"], ["right", "Only in B"], ["all", "All"]]);

/** @type {Mount} */
export function mountCompare(host, until) {
	const { key, only = "changed", first = "0", pair = "0" } = state().more;
	const body = h("div", { "aria-live": "polite" });
	const [a, b] = getSession().sides;
	const handle = mountTitled(host, "Compare", b ? h("p.soft", h("b", "A "), printable(a.path), h("b", "  B "), printable(b.path)) : null, body);
	if (!b) {
		show(body, emptyState("One dataset is open", h("p", "Open two to compare them: ", h("code", "rekord view A B"))));
		return handle;
	}

	const load = () =>
		void showAnswer(body, until, get("compare", { key, first, count: PAIRS, only }, until), (answer) => {
			if (answer.error) return show(body, faultPanel(answer.error));
			if (answer.state !== "running") return draw(answer);
			show(body, h("p.soft", "Comparing…"));
			setTimeout(() => until.aborted || load(), 500);
		});

	function draw(answer) {
		const keys = h("select", { onchange: () => goMore({ key: keys.value, first: "0", pair: "0" }) }, makeOptions(answer.keys ?? []));
		keys.value = key ?? answer.key?.[0] ?? "";
		const tabs = KINDS.map(([kind, text]) => {
			const times = kind === "all" ? Object.values(answer.counts).reduce((sum, one) => sum + Number(one), 0) : answer.counts[kind];
			return h("a", { href: linkMore({ only: kind, first: "0", pair: "0" }), "aria-current": only === kind ? "true" : null }, `${text} ${count(times ?? 0)}`);
		});
		const chosen = Math.min(Number(pair) || 0, Math.max(answer.pairs.length - 1, 0));
		const twins = h("div");
		const items = answer.pairs.map((one) => [h("bdi", printable(one.key, 80)), " ", h("span", { class: `pill ${one.status === "same" ? "" : "alert"}` }, { left: "only in A", right: "only in B" }[/** @type {string} */ (one.status)] ?? one.status), one.features?.length ? h("span.soft.small", ` ${printable(one.features.join(", "), 80)}`) : null]);
		show(
			body,
			h("div.compare-tools", answer.keys?.length ? h("label", "Key ", keys) : null, h("nav.subtabs", { "aria-label": "Kinds of differences" }, tabs), h("span.soft", `${count(answer.counts.same ?? 0)} the same`)),
			answer.pairs.length ? h("div.pair-columns", makePairList(items, chosen, Number(first), answer.total), twins) : emptyState("None", h("p", "No pair of this kind.")),
		);
		const one = answer.pairs[chosen];
		if (one) void mountTwins(twins, [one.a && { key: one.a, side: 0 }, one.b && { key: one.b, side: 1 }], until, one.features ?? []);
	}

	load();
	return handle;
}

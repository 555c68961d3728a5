// @ts-check
// Two datasets by key: what is the same, what changed, and what only one of them has.

import { get, getSession } from "./api.js";
import { count, h, printable, show } from "./dom.js";
import { mountTwins } from "./findings.js";
import { emptyState, errorPanel, faultPanel, pager } from "./parts.js";
import { go, link, state } from "./state.js";

const PAGE = 100;
const KINDS = /** @type {const} */ ([["changed", "Changed"], ["left", "Only in A"], ["right", "Only in B"], ["all", "All"]]);

/** @param {HTMLElement} host @param {AbortSignal} until */
export function mountCompare(host, until) {
  const { key, only = "changed", first = "0", pair = "0" } = state().more;
  const body = h("div", { "aria-live": "polite" });
  const [a, b] = getSession().sides;
  show(host, h("h2", { tabindex: "-1", class: "view-title" }, "Compare"), b ? h("p", { class: "soft" }, h("b", {}, "A "), printable(a.path), h("b", {}, "  B "), printable(b.path)) : null, body);
  const handle = { focus: () => /** @type {HTMLElement | null} */ (host.querySelector(".view-title"))?.focus(), current: () => null, jump() {}, total: () => null };
  if (!b) {
    show(body, emptyState("One dataset is open", h("p", {}, "Open two to compare them: ", h("code", {}, "rekord view A B"))));
    return handle;
  }

  async function load() {
    try {
      const answer = await get("compare", { key, first, count: PAGE, only }, until);
      if (answer.error) return show(body, faultPanel(answer.error));
      if (answer.state === "running") {
        show(body, h("p", { class: "soft" }, "Comparing…"));
        setTimeout(() => until.aborted || void load(), 500);
        return;
      }
      draw(answer);
    } catch (error) {
      if (!until.aborted) show(body, errorPanel(error));
    }
  }

  function draw(answer) {
    const keys = h("select", { onchange: () => go({ more: { ...state().more, key: keys.value, first: "0", pair: "0" } }) }, (answer.keys ?? []).map((name) => h("option", { value: name }, printable(name, 60))));
    keys.value = key ?? answer.key?.[0] ?? "";
    const tabs = KINDS.map(([kind, text]) => {
      const times = kind === "all" ? Object.values(answer.counts).reduce((sum, one) => sum + Number(one), 0) : answer.counts[kind];
      return h("a", { href: link({ more: { ...state().more, only: kind, first: "0", pair: "0" } }), "aria-current": only === kind ? "true" : null }, `${text} ${count(times ?? 0)}`);
    });
    const chosen = Math.min(Number(pair) || 0, Math.max(answer.pairs.length - 1, 0));
    const twins = h("div", {});
    const list = h("ul", { class: "pair-list" }, answer.pairs.map((one, i) => h("li", {}, h("a", { href: link({ more: { ...state().more, pair: String(i) } }), "aria-current": i === chosen ? "true" : null }, h("bdi", {}, printable(one.key, 80)), " ", h("span", { class: `pill ${one.status === "same" ? "" : "alert"}` }, { left: "only in A", right: "only in B" }[/** @type {string} */ (one.status)] ?? one.status), one.features?.length ? h("span", { class: "soft small" }, ` ${printable(one.features.join(", "), 80)}`) : null))));
    show(
      body,
      h("div", { class: "compare-tools" }, answer.keys?.length ? h("label", {}, "Key ", keys) : null, h("nav", { class: "subtabs", "aria-label": "Kinds of differences" }, tabs), h("span", { class: "soft" }, `${count(answer.counts.same ?? 0)} the same`)),
      answer.pairs.length ? h("div", { class: "pair-columns" }, h("div", {}, list, pager(Number(first), PAGE, answer.total, (to) => go({ more: { ...state().more, first: String(to), pair: "0" } }))), twins) : emptyState("None", h("p", {}, "No pair of this kind.")),
    );
    const one = answer.pairs[chosen];
    if (one) void mountTwins(twins, [one.a && { key: one.a, side: 0 }, one.b && { key: one.b, side: 1 }], until, one.features ?? []);
  }

  void load();
  return handle;
}

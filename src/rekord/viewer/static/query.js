// @ts-check
// SQL over the records, read-only.

import { getSession, post, sideIndex, splitName } from "./api.js";
import { h, number, plural, printable, show } from "./dom.js";
import { errorPanel, makeTable, recordLink } from "./parts.js";
import { go, state } from "./state.js";
import { announce } from "./status.js";

/** @param {HTMLElement} host @param {AbortSignal} until */
export function mountQuery(host, until) {
  const body = h("div", {});
  const area = h("textarea", { rows: 4, spellcheck: "false", class: "code", "aria-label": "SQL query", placeholder: "SELECT label, count(*) FROM records GROUP BY label" });
  area.value = state().more.query ?? "";
  const cancel = h("button", { type: "button", hidden: true, onclick: () => void post("cancel", { id: running }) }, "Cancel");
  let running = "";
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    go({ more: { ...state().more, query: area.value } }, { quiet: true });
    void run();
  } }, area, h("p", { class: "buttons" }, h("button", { type: "submit" }, "Run"), cancel, h("span", { class: "soft small" }, "Ctrl + Enter. Read-only; 10 seconds and 1,000 rows at most.")));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  show(host, h("h2", { tabindex: "-1", class: "view-title" }, "SQL"), form, body);
  if (!getSession().sql) show(body, h("div", { class: "notice" }, "SQL needs DuckDB: ", h("code", {}, "pip install 'rekord[sql]'")));

  async function run() {
    running = `q${performance.now()}`;
    cancel.hidden = false;
    show(body, h("p", { class: "soft", role: "status" }, "Running…"));
    try {
      const answer = await post("sql", { query: area.value, side: sideIndex(), split: splitName(), limit: 1000, id: running }, until);
      const cell = (value) => (value === null ? h("span", { class: "soft" }, "null") : typeof value === "number" ? number(value) : typeof value === "object" ? printable("hex" in value ? `${value.bytes} bytes ${value.hex}` : JSON.stringify(value), 200) : h("bdi", {}, printable(value, 200)));
      const heads = answer.columns.map((one) => h("span", { title: one.type }, printable(one.name, 60)));
      const rows = answer.rows.map((row, i) => [...(answer.records ? [recordLink(answer.records[i][0], answer.records[i][1], null, sideIndex())] : []), ...row.map(cell)]);
      const text = `${plural(answer.rows.length, "row")}${answer.more ? " (more exist)" : ""}, ${answer.seconds.toFixed(2)} s`;
      announce(text);
      show(body, h("p", { class: "soft" }, text), h("div", { class: "scroll-x panel", tabindex: "0", role: "region", "aria-label": "Result" }, makeTable("Result", [...(answer.records ? ["record"] : []), ...heads], rows)));
    } catch (error) {
      if (!until.aborted) show(body, errorPanel(error, "The query failed"));
    } finally {
      cancel.hidden = true;
    }
  }

  if (area.value) void run();
  return { focus: () => area.focus(), current: () => null, jump() {}, total: () => null };
}


// What waits, why, and what to do about it: one row each.

import { $, el, reconcile, say } from "./dom.js";
import { announce } from "./announce.js";
import { count } from "./format.js";
import { shorten } from "./layout.js";

const FEW = 6; // agents that are named one by one

export function startWaits(store, select) {
  let known = null;
  store.subscribe(["waits", "summary"], (view) => {
    const waits = Object.entries(view.waits);
    const panel = $("waits-panel");
    panel.classList.toggle("calm", waits.length === 0);
    panel.classList.toggle("patient", !waits.some(([, wait]) => wait.fix)); // nothing to do but wait
    panel.classList.toggle("bad", view.summary.state === "failed");
    $("waits-empty").hidden = waits.length > 0;
    $("waits").hidden = waits.length === 0;
    say($("waits-count"), waits.length ? count(waits.length) : "");
    reconcile(
      $("waits"),
      waits,
      ([id]) => id,
      () =>
        el(
          "li",
          {},
          el("h3"),
          el("p", { class: "why" }),
          el("p", { class: "fix" }, el("b", { text: "What to do" }), el("span")),
          el("p", { class: "chips" }),
        ),
      (node, [, wait]) => row(node, wait, select),
    );
    const fresh = waits.filter(([id]) => known !== null && !known.has(id));
    if (fresh.length) {
      const [[, first]] = fresh;
      const others = fresh.length > 1 ? ` And ${count(fresh.length - 1)} more.` : "";
      announce("waits", `Waiting: ${first.what} ${first.why}${others}`);
    }
    known = new Set(waits.map(([id]) => id));
  });
}

function row(node, wait, select) {
  say(node.querySelector("h3"), wait.what);
  say(node.querySelector(".why"), wait.why);
  const fix = node.querySelector(".fix");
  fix.hidden = !wait.fix;
  say(fix.querySelector("span"), wait.fix ?? "");
  const agents = wait.agents ?? [];
  const chips = node.querySelector(".chips");
  chips.hidden = agents.length === 0;
  const shown = agents.slice(0, FEW).map((name) => ({ name }));
  const more = agents.length - shown.length + (wait.more ?? 0);
  if (more) shown.push({ more });
  reconcile(
    chips,
    shown,
    ({ name, more }) => (name === undefined ? `+${more}` : `:${name}`),
    ({ name, more }) =>
      name === undefined
        ? el("span", { class: "more", text: `and ${count(more)} more` })
        : chip(name, select),
  );
}

function chip(name, select) {
  const props = { type: "button", class: "chip", text: shorten(name, 24), title: name };
  return el("button", { ...props, "aria-label": name, on: { click: () => select(name) } });
}

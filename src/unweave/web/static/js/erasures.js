// The list of erasures: how far each is, its certificate, what changed.

import { $, el, reconcile, say } from "./dom.js";
import { announce } from "./announce.js";
import { certificatePath } from "./api.js";
import { count, setTime, signed } from "./format.js";

const PAGE = 3;

// "exact_before_noise" → "exact before noise". The sentence of the erasure says what it means.
export const kindName = (kind) => kind.replaceAll("_", " ");

// The steps that an erasure takes, and how many of them are done.
export function steps(erasure) {
  const names =
    erasure.state === "voting" ? ["Voting", "Removed", "Certified"] : ["Asked", "Removed", "Certified"];
  const done = { waiting: 0, voting: 0, asked: 1, removed: 2, certified: 3 }[erasure.state];
  return names.map((name, index) => ({
    name: erasure.state === "waiting" && index === 0 ? "Waiting" : name,
    state: index < done ? "done" : index === done ? "now" : "later",
  }));
}

export function renderSteps(list, erasure) {
  reconcile(
    list,
    steps(erasure),
    ({ name }) => name,
    ({ name }) => el("li", {}, el("i", { "aria-hidden": "true" }), el("span", { text: name }), el("span", { class: "unseen" })),
    (node, { state }) => {
      node.dataset.state = state;
      say(node.querySelector(".unseen"), { done: ", done", now: ", next", later: "" }[state]);
    },
  );
}

export function startErasures(store, openErase) {
  const more = $("erasures-more");
  let known = null; // requests that were certified
  let shown = PAGE;
  $("erase-open").addEventListener("click", () => openErase(null));
  more.addEventListener("click", () => {
    shown += PAGE;
    render(store.view);
  });
  store.subscribe(["erasures", "may_erase", "posterior"], (view) => {
    render(view);
    tell(view);
  });

  function render(view) {
    const all = Object.entries(view.erasures).reverse();
    $("erase-open").hidden = view.may_erase.length === 0;
    $("erasures-empty").hidden = all.length > 0;
    say($("erasures-count"), all.length ? count(all.length) : "");
    more.hidden = all.length <= shown;
    say(more, `Show older (${count(all.length - shown)})`);
    reconcile(
      $("erasures"),
      all.slice(0, shown),
      ([request]) => `:${request}`,
      ([request]) => create(request),
      (node, [, erasure]) => update(node, erasure, view.posterior.total),
    );
  }

  function tell(view) {
    const certified = Object.entries(view.erasures).filter(([, { state }]) => state === "certified");
    const fresh = certified.filter(([request]) => known !== null && !known.has(request));
    known = new Set(certified.map(([request]) => request));
    if (!fresh.length) return;
    const [[, { agent, scope }]] = fresh;
    const others = fresh.length > 1 ? ` And ${count(fresh.length - 1)} more.` : "";
    announce("erasures", `The erasure of ${scope} of ${agent} is certified.${others}`);
  }
}

function create(request) {
  return el(
    "li",
    {},
    el("div", { class: "erasure-head" }, el("h3"), el("time")),
    el("div", { class: "progress" }, el("ol", { class: "steps" }), el("p", { class: "kind" })),
    el("p", { class: "words" }),
    el("table", { class: "change" }),
    el("p", { class: "footnote", hidden: true }),
    el("a", { class: "button small", href: certificatePath(request), download: true, text: "Download certificate" }),
  );
}

function update(node, erasure, total) {
  say(node.querySelector("h3"), `${erasure.agent} – ${erasure.scope}`);
  setTime(node.querySelector("time"), erasure.done_at ?? erasure.asked_at);
  renderSteps(node.querySelector(".steps"), erasure);
  say(node.querySelector(".words"), erasure.text);
  const kind = node.querySelector(".kind");
  kind.hidden = !erasure.kind;
  say(kind, kindName(erasure.kind ?? ""));
  const link = node.querySelector("a");
  link.hidden = !erasure.certificate;
  link.setAttribute("aria-label", `Download the certificate of ${erasure.agent}, ${erasure.scope}`);
  const change = erasure.change ?? [];
  const table = node.querySelector(".change");
  table.hidden = change.length === 0;
  const rest = node.querySelector(".footnote");
  rest.hidden = table.hidden || !(total > change.length);
  if (!rest.hidden) say(rest, `${count(change.length)} of ${count(total)} parameters.`);
  if (table.rows.length === change.length + 1 || !change.length) return;
  const cell = (tag, text, scope) => el(tag, { text, scope });
  table.replaceChildren(
    el("caption", { class: "unseen", text: "Change of the posterior" }),
    el("thead", {}, el("tr", {}, cell("th", "Change of", "col"), cell("th", "mean", "col"), cell("th", "sd", "col"))),
    el(
      "tbody",
      {},
      change.map(([name, mean, sd]) =>
        el("tr", {}, cell("th", name, "row"), cell("td", signed(mean)), cell("td", signed(sd))),
      ),
    ),
  );
}

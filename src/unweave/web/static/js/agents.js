// The table beside the picture: every agent, searched, sorted and paged.

import { $, el, reconcile, say } from "./dom.js";
import { count, plural, setTime } from "./format.js";
import { ORDER, STATES, symbol } from "./shapes.js";

const PAGE = 25;
// What needs attention comes first.
const URGENCY = ["down", "pending", "solving", "in", "erased", "departed"];

export function startAgents(store, select) {
  const [search, filter] = [$("agents-search"), $("agents-state")];
  let page = 0;
  let sort = { by: "name", up: true };
  const names = new Intl.Collator("en", { numeric: true });

  for (const state of ORDER) {
    filter.append(el("option", { value: state, text: STATES[state].label }));
  }

  // Names are compared once: two thousand of them take a while.
  let places = new Map();
  function index(view) {
    if (places.size === Object.keys(view.agents).length) return;
    const sorted = Object.keys(view.agents).sort(names.compare);
    places = new Map(sorted.map((name, place) => [name, place]));
  }

  const keys = {
    name: (a, b) => places.get(a[0]) - places.get(b[0]),
    state: (a, b) => URGENCY.indexOf(a[1].state) - URGENCY.indexOf(b[1].state),
    posterior: (a, b) => (b[1].posterior_at ?? -1) - (a[1].posterior_at ?? -1),
  };

  function render(view) {
    index(view);
    const wanted = search.value.trim().toLowerCase();
    const found = Object.entries(view.agents).filter(
      ([name, agent]) =>
        (filter.value === "all" || agent.state === filter.value) &&
        (!wanted || name.toLowerCase().includes(wanted)),
    );
    const order = (a, b) => (keys[sort.by](a, b) || keys.name(a, b)) * (sort.up ? 1 : -1);
    found.sort(order);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(page, pages - 1);
    const rows = found.slice(page * PAGE, (page + 1) * PAGE);
    // A column of which nothing is known on this page is left out.
    const known = (key) => rows.some(([, agent]) => agent[key] !== undefined);
    const columns = $("agents-table").classList;
    columns.toggle("no-revision", !known("revision"));
    columns.toggle("no-version", !known("posterior"));
    columns.toggle("no-attested", view.kind === "paper"); // its walks have no audit
    reconcile($("agents"), rows, ([name]) => `:${name}`, ([name]) => create(name), update);
    const total = Object.keys(view.agents).length;
    const empty = $("agents-empty");
    empty.hidden = found.length > 0;
    say(empty, total ? "No agent matches." : "No agent is known yet.");
    $("agents-table").hidden = found.length === 0;
    $("agents-tools").hidden = total <= 8;
    $("agents-pager").hidden = pages === 1;
    say($("agents-page"), `${plural(found.length, "agent")}, page ${count(page + 1)} of ${count(pages)}`);
    $("agents-previous").disabled = page === 0;
    $("agents-next").disabled = page === pages - 1;
  }

  function create(name) {
    const button = el("button", { type: "button", class: "link", text: name, title: name });
    button.addEventListener("click", () => select(name));
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, button, el("span", { class: "why" })),
      el("td", { class: "state" }),
      el("td", { class: "attested" }),
      el("td", { class: "version" }),
      el("td", { class: "age" }, el("time")),
      el("td", { class: "revision" }),
    );
  }

  function update(row, [, agent]) {
    const why = row.querySelector(".why");
    why.hidden = !agent.why;
    say(why, agent.why ?? "");
    const state = row.querySelector(".state");
    if (state.dataset.state !== agent.state) {
      state.dataset.state = agent.state;
      state.replaceChildren(symbol(agent.state), el("span", { text: STATES[agent.state].label }));
    }
    say(row.querySelector(".attested"), agent.attested ? "Yes" : "No");
    say(row.querySelector(".version"), agent.posterior ?? "–");
    setTime(row.querySelector("time"), agent.posterior_at);
    say(row.querySelector(".revision"), agent.revision === undefined ? "–" : count(agent.revision));
  }

  const again = () => store.view && render(store.view);
  const anew = () => {
    page = 0;
    again();
  };
  search.addEventListener("input", anew);
  filter.addEventListener("change", anew);
  $("agents-previous").addEventListener("click", () => {
    page -= 1;
    again();
  });
  $("agents-next").addEventListener("click", () => {
    page += 1;
    again();
  });
  for (const button of document.querySelectorAll("#agents-table [data-sort]")) {
    button.addEventListener("click", () => {
      const by = button.dataset.sort;
      sort = { by, up: sort.by === by ? !sort.up : true };
      for (const head of document.querySelectorAll("#agents-table thead th")) {
        const mine = head.contains(button);
        if (mine) head.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
      anew();
    });
  }
  store.subscribe(["agents"], (view, change) => {
    if (change.fresh) places = new Map();
    if (change.fresh || visible(change.agents)) render(view);
  });

  // Rows that are not on the screen need no work, unless their state decides where they are.
  function visible(changed) {
    if (filter.value !== "all" || sort.by !== "name") return true;
    if (changed.size > PAGE) return true;
    const shown = new Set([...$("agents").children].map((row) => row.dataset.key));
    return [...changed].some((name) => shown.has(`:${name}`)) || shown.size < PAGE;
  }
}

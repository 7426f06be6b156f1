// The top of the page: title, state in one sentence, key figures, connection.

import { $, el, reconcile, say, svg } from "./dom.js";
import { announce } from "./announce.js";
import { count, setClock } from "./format.js";
import { shorten } from "./layout.js";

// Each state has a shape of its own, too.
const MARKS = {
  starting: "M-8,0a8,8 0 1,1 8,8",
  learning: "M-8,3L-3,-4L2,3L8,-5",
  rest: "M-7,0L-2,5.5L7.5,-5.5",
  done: "M-7,0L-2,5.5L7.5,-5.5",
  waiting: "M-4,-7V7M4,-7V7",
  failed: "M-6,-6L6,6M-6,6L6,-6",
  down: "M-7,0H7",
};
const TONES = {
  starting: "quiet",
  learning: "busy",
  rest: "good",
  done: "good",
  waiting: "warn",
  failed: "bad",
  down: "bad",
};
const LABELS = {
  starting: "Starting",
  learning: "Learning",
  rest: "At rest",
  done: "Done",
  waiting: "Waiting",
  failed: "Failed",
  down: "Down",
};
const KINDS = { network: "Live network", simulation: "Simulation", paper: "The paper" };

let lostAt = null;

export function startHeader(store) {
  let last = null;
  store.subscribe(
    ["title", "kind", "clock", "model", "settings", "privacy", "summary", "token", "posterior"],
    (view, change) => {
      if (change.fresh || change.keys.has("clock")) setClock(view, store.clockAt);
      document.title = `${view.title} · unweave`;
      say($("title"), view.title);
      say($("kind"), KINDS[view.kind] ?? "");
      // The walks of the paper have neither certificates nor a report.
      for (const id of ["verify-open", "verify-hint", "report"]) $(id).hidden = view.kind === "paper";
      const { state, text } = view.summary;
      const mark = $("mark");
      if (mark.dataset.state !== state) {
        mark.dataset.state = state;
        mark.dataset.tone = TONES[state];
        const path = svg("path", { d: MARKS[state] });
        mark.replaceChildren(svg("svg", { viewBox: "-12 -12 24 24", "aria-hidden": "true" }, path));
      }
      say($("state-label"), LABELS[state]);
      say($("summary"), text);
      if (last !== null && last !== state) announce("state", text);
      last = state;
      figures(view);
      if (change.fresh || change.keys.has("settings") || change.keys.has("model")) settings(view);
    },
  );
}

// A live network numbers its hops within an epoch; a simulation counts all of them.
function walked(view, hops, epoch) {
  const note = epoch === undefined ? "" : `epoch ${count(epoch)}`;
  const { hop } = view.token;
  if (view.kind !== "network" || hop === undefined) return { label: "Hops", value: count(hops), note };
  return { label: "Hop", value: count(hop), note };
}

function figures(view) {
  const { agents, hops, epoch, attested } = view.summary;
  const total = view.graph.names.length;
  const gone = (agents.erased ?? 0) + (agents.departed ?? 0);
  const inside = view.summary.inside ?? (agents.in ?? 0) + (agents.solving ?? 0);
  const name = view.token.at === undefined ? null : view.graph.names[view.token.at];
  const items = [
    { label: "Agents in", value: count(inside), note: `of ${count(total - gone)}` },
    {
      label: "Token",
      value: name === null ? "–" : shorten(name, 22),
      title: name,
      note: name === null ? "" : view.token.state,
    },
    walked(view, hops, epoch),
  ];
  if (attested !== undefined) {
    // Who is erased still attests; who has departed does not.
    const voices = total - (agents.departed ?? 0);
    items.push({ label: "Attested", value: count(attested), note: `of ${count(voices)}` });
  }
  const { posterior } = view;
  items.push({
    label: "Posterior",
    value: { none: "None", incomplete: "Incomplete", unconfirmed: "Unconfirmed", complete: "Complete" }[
      posterior.state
    ],
    note: posterior.version ?? "",
    at: posterior.at,
  });
  items.push({
    label: "Privacy",
    value: view.privacy === "masked" ? "Masked" : "Plain",
    note: view.privacy === "masked" ? "only sums are visible" : "neighbours see factors",
  });
  if (gone) items.splice(1, 0, leavers(agents));
  reconcile(
    $("figures"),
    items,
    (item) => item.label,
    (item) =>
      el(
        "div",
        { class: "figure" },
        el("dt", { text: item.label }),
        el("dd", {}, el("span", { class: "big" }), el("span", { class: "note" })),
      ),
    (node, item) => {
      const [big, note] = [node.querySelector(".big"), node.querySelector(".note")];
      say(big, item.value);
      if (item.title) big.title = item.title;
      say(note, item.note ?? "");
    },
  );
}

function leavers({ erased = 0, departed = 0 }) {
  if (!departed) return { label: "Erased", value: count(erased) };
  if (!erased) return { label: "Departed", value: count(departed) };
  const note = `${count(erased)} erased, ${count(departed)} departed`;
  return { label: "Gone", value: count(erased + departed), note };
}

function settings(view) {
  const rows = [["Model", view.model], ...Object.entries(view.settings)].filter(([, text]) => text);
  reconcile(
    $("settings"),
    rows,
    ([label]) => label,
    ([label]) => el("div", {}, el("dt", { text: label }), el("dd")),
    (node, [, text]) => say(node.querySelector("dd"), text),
  );
}

const CONNECTIONS = { live: "Live", lost: "Connection lost", locked: "Access code needed" };
const LOST = {
  lost: "The connection to the server is lost. The page tries again.",
  locked: "The server wants the access code.",
};

// "live", "lost", or "locked": the server wants the access code.
export function showConnection(status) {
  const badge = $("connection");
  const banner = $("lost");
  const before = badge.dataset.state;
  badge.dataset.state = status;
  say($("connection-text"), CONNECTIONS[status]);
  if (status === "live") {
    if (!banner.hidden) announce("connection", "The connection is back.");
    lostAt = null;
    banner.hidden = true;
    return;
  }
  lostAt ??= Date.now();
  if (before === status) return;
  const since = lostAt;
  const tell = () => {
    if (lostAt !== since || badge.dataset.state !== status) return; // it came back
    const time = new Date(since).toLocaleTimeString("en-GB");
    const shown = document.body.classList.contains("ready") ? ` You see the state of ${time}.` : "";
    say($("lost-text"), LOST[status] + shown);
    $("lost-code").hidden = status !== "locked";
    banner.hidden = false;
    announce("connection", $("lost-text").textContent);
  };
  if (status === "lost") setTimeout(tell, 1500); // a short gap is no news
  else tell();
}

// When the person wants to enter the code after all.
export const pressed = () =>
  new Promise((done) => $("lost-code").addEventListener("click", done, { once: true }));


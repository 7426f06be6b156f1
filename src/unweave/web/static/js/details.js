// One agent: facts, influence or why it is not shown, receipts.

import { $, el, reconcile, say, throttle } from "./dom.js";
import { ApiError, agent as fetchAgent } from "./api.js";
import { openDialog, showError } from "./dialogs.js";
import { number, setTime } from "./format.js";
import { STATES, symbol } from "./shapes.js";
import { entryRow, updateRow } from "./timeline.js";

const EVERY = 3000; // milliseconds between two requests for details

export function startDetails(store, actions) {
  const dialog = $("details");
  let shown = null;
  let asked = 0;

  function head(view) {
    const agent = view.agents[shown] ?? { state: "pending", attested: false, why: "Nothing is known of it yet." };
    say($("details-name"), shown);
    const state = $("details-state");
    if (state.dataset.state !== agent.state) {
      state.dataset.state = agent.state;
      state.replaceChildren(symbol(agent.state), el("span"));
    }
    const { label, text } = STATES[agent.state];
    say(state.querySelector("span"), `${label}: ${text}`);
    say($("details-why"), agent.why ?? "");
    $("details-why").hidden = !agent.why;
    say($("details-version"), agent.posterior ?? "none yet");
    setTime($("details-age"), agent.posterior_at);
    if (agent.posterior && agent.posterior_at === undefined) say($("details-age"), "time not known");
    say($("details-attested"), agent.attested ? "Yes" : "No");
    $("details-remote").hidden = !agent.remote;
    $("details-erase").hidden = agent.state === "erased" || !view.may_erase.includes(shown);
    $("details-faults").hidden = !view.controls || !Object.keys(view.controls.faults).length;
  }

  async function load() {
    const turn = ++asked;
    const name = shown;
    try {
      const details = await fetchAgent(name);
      if (turn === asked) body(details);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (turn === asked) showError($("details-error"), error);
    }
  }

  // A busy network changes an agent many times a second.
  const reload = throttle(() => dialog.open && load(), EVERY);

  function body(details) {
    showError($("details-error"), null);
    reconcile(
      $("details-facts"),
      Object.entries(details.facts),
      ([label]) => label,
      ([label]) => el("div", {}, el("dt", { text: label }), el("dd")),
      (node, [, text]) => say(node.querySelector("dd"), text),
    );
    const value = $("details-influence");
    value.hidden = details.influence === undefined;
    say(value, details.influence === undefined ? "" : number(details.influence));
    say($("details-influence-text"), details.influence_text);
    const receipts = details.receipts;
    $("details-no-receipts").hidden = receipts.length > 0;
    say($("details-no-receipts"), details.waiting ? "…" : "Nothing yet.");
    reconcile(
      $("details-receipts"),
      receipts.map((entry, index) => [index, entry]),
      ([index]) => index,
      ([, entry]) => entryRow(entry),
      (node, [, entry]) => {
        updateRow(node, entry);
        node.querySelector("time").hidden = entry.at === 0; // a receipt has a hop, not always a time
      },
    );
  }

  function open(name) {
    shown = name;
    head(store.view);
    body({ waiting: true, facts: {}, receipts: [], influence_text: "…" });
    openDialog(dialog);
    load();
  }

  $("details-erase").addEventListener("click", () => {
    dialog.close();
    actions.erase(shown);
  });
  $("details-faults").addEventListener("click", () => {
    dialog.close();
    actions.aim(shown);
  });
  store.subscribe(["agents", "may_erase", "controls"], (view, change) => {
    if (!dialog.open) return;
    head(view);
    if (change.agents.has(shown)) reload();
  });
  return open;
}

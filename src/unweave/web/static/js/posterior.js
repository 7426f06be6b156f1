// The panel "Posterior": densities or intervals of chosen parameters, against the prior and, in
// simulations, against earlier moments.

import { $, el, reconcile, say, throttle } from "./dom.js";
import { ApiError, curves as fetchCurves } from "./api.js";
import { Chart } from "./chart.js";
import { align } from "./density.js";
import { showError } from "./dialogs.js";
import { count, setTime } from "./format.js";
import { renderIntervals, sentence } from "./intervals.js";

const MOST = 12; // densities at once: the server's limit
const FIRST = 4; // densities before anybody has chosen
const ROWS = 60; // intervals at once
// The posterior and the prior, then moments; dashes differ, so colour is not needed.
const LINES = {
  posterior: { colour: "accent", width: 2.2, fill: "accent-wash" },
  prior: { colour: "muted", width: 1.4, dash: [3, 4] },
};
const MOMENTS = [
  { colour: "token", width: 1.8, dash: [9, 4] },
  { colour: "state-erased", width: 1.8, dash: [2, 3] },
];

export function startPosterior(store) {
  const charts = new Map();
  let mode = null; // "densities" | "intervals", once chosen
  let chosen = null; // names, once chosen
  let moment = null; // id, once chosen
  let shownKey = ""; // what the densities on the screen answer
  let asking = false;

  const parameters = () => store.view?.posterior.parameters ?? [];
  const names = () => {
    const all = parameters().map(({ name }) => name);
    const wanted = chosen?.filter((name) => all.includes(name)) ?? [];
    return (wanted.length ? wanted : all.slice(0, all.length <= FIRST ? FIRST : 1)).slice(0, MOST);
  };
  const currentMode = () => mode ?? (parameters().length > FIRST ? "intervals" : "densities");
  const currentMoment = () => {
    const all = store.view.posterior.moments ?? [];
    if (moment === "") return null;
    if (moment !== null) return all.find(({ id }) => id === moment) ?? null;
    // Before an erasure says more than some hop.
    return all.findLast(({ label }) => label.startsWith("before ")) ?? all.at(-1) ?? null;
  };

  // ------------------------------------------------------------------------- densities

  const refresh = throttle(() => load(), 400);

  async function load() {
    const view = store.view;
    const wanted = names();
    const compared = currentMoment();
    const key = JSON.stringify([view.posterior.version, wanted, compared?.id]);
    if (asking || !wanted.length || currentMode() !== "densities" || key === shownKey) return;
    asking = true;
    try {
      const answer = await fetchCurves(wanted, compared ? [compared.id] : []);
      showError($("posterior-error"), null);
      shownKey = key;
      densities(answer.curves, wanted);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showError($("posterior-error"), error);
    } finally {
      asking = false;
    }
    refresh(); // the version may have changed meanwhile
  }

  function densities(curves, wanted) {
    const list = $("densities");
    list.dataset.count = Math.min(wanted.length, 3);
    reconcile(
      list,
      wanted.filter((name) => curves[name]),
      (name) => `:${name}`,
      (name) =>
        el(
          "li",
          {},
          el("h3", { text: name, title: name }),
          el("p", { class: "numbers" }),
          el("div", { class: "plot", role: "img" }),
        ),
      (node, name) => density(node, name, curves[name]),
    );
    for (const [name, { chart, node }] of charts) {
      if (node.isConnected) continue;
      chart.remove();
      charts.delete(name);
    }
    const labels = [...new Set(Object.values(curves).flatMap((all) => all.map(({ label }) => label)))];
    const keys = labels.map((label) => [label, lineOf(label, labels)]);
    reconcile(
      $("posterior-legend"),
      keys,
      ([label]) => label,
      ([label]) => el("li", {}, el("i", { class: "stroke" }), el("span", { text: label })),
      (node, [, line]) => {
        const stroke = node.querySelector(".stroke");
        stroke.dataset.colour = line.colour;
        stroke.classList.toggle("dashed", Boolean(line.dash));
      },
    );
  }

  function density(node, name, curves) {
    const { window, data, densities: drawn } = align(curves);
    const plot = node.querySelector(".plot");
    plot.hidden = drawn.length === 0;
    const parameter = parameters().find((one) => one.name === name) ?? {};
    const words = sentence(parameter);
    say(node.querySelector(".numbers"), words);
    plot.setAttribute("aria-label", `Density of ${name}: ${words}`);
    const labels = drawn.map(({ label }) => label);
    const form = JSON.stringify([labels, window]);
    const known = charts.get(name);
    if (known?.form === form && known.node === node) {
      known.chart.set(data);
      return;
    }
    known?.chart.remove();
    charts.delete(name);
    if (!drawn.length) return;
    const lines = labels.map((label) => lineOf(label, labels));
    const chart = new Chart(plot, lines, { xRange: window, yZero: true }, data);
    charts.set(name, { chart, node, form });
  }

  function lineOf(label, labels) {
    if (label in LINES) return LINES[label];
    const others = labels.filter((one) => !(one in LINES));
    return MOMENTS[others.indexOf(label) % MOMENTS.length];
  }

  // --------------------------------------------------------------------------- choosing

  function chooser() {
    const wanted = $("parameter-search").value.trim().toLowerCase();
    const all = parameters();
    const found = all.filter(({ name }) => name.toLowerCase().includes(wanted));
    const selected = new Set(names());
    reconcile(
      $("parameters"),
      found,
      ({ name }) => `:${name}`,
      ({ name }) => {
        const box = el("input", { type: "checkbox", value: name });
        box.addEventListener("change", () => choose(name, box.checked));
        return el("li", {}, el("label", {}, box, el("span", { text: name })));
      },
      (node, { name }) => {
        const box = node.querySelector("input");
        box.checked = selected.has(name);
        box.disabled = !box.checked && selected.size >= MOST;
      },
    );
    say($("parameters-count"), `${count(selected.size)} of ${count(all.length)}`);
  }

  function choose(name, on) {
    const now = names().filter((one) => one !== name);
    chosen = on ? [...now, name] : now;
    mode = mode ?? "densities";
    render(store.view);
  }

  // -------------------------------------------------------------------------- the panel

  function render(view) {
    const { posterior } = view;
    const all = parameters();
    const empty = all.length === 0;
    say($("posterior-version"), posterior.version ?? "");
    setTime($("posterior-at"), posterior.at);
    $("posterior-at").hidden = posterior.at === undefined;
    const note = $("posterior-why");
    note.hidden = !posterior.why;
    note.classList.toggle("empty", empty);
    say(note, posterior.why ?? "");
    $("posterior-tools").hidden = empty;
    $("posterior-body").hidden = empty;
    if (empty) {
      if (!posterior.why) {
        note.hidden = false;
        say(note, "No posterior yet.");
      }
      return;
    }
    const now = currentMode();
    for (const radio of document.querySelectorAll("input[name=posterior-mode]")) {
      radio.checked = radio.value === now;
    }
    const densitiesShown = now === "densities";
    $("densities").hidden = !densitiesShown;
    $("posterior-legend").hidden = !densitiesShown;
    $("intervals-box").hidden = densitiesShown;
    $("chooser").hidden = all.length <= 1;
    moments(posterior.moments ?? [], densitiesShown);
    chooser();
    if (densitiesShown) refresh();
    else intervals(all, posterior.total ?? all.length);
  }

  function intervals(all, total) {
    const wanted = $("parameter-search").value.trim().toLowerCase();
    const found = all.filter(
      ({ name }) => (chosen === null || chosen.includes(name)) && name.toLowerCase().includes(wanted),
    );
    renderIntervals($("intervals"), found.slice(0, ROWS));
    const note = $("intervals-note");
    const hidden = total - Math.min(found.length, ROWS);
    note.hidden = hidden <= 0 || chosen !== null;
    say(note, `${count(hidden)} more parameters: search above, or see unweave posterior.`);
  }

  function moments(all, shown) {
    $("compare").hidden = all.length === 0 || !shown;
    const select = $("compare-with");
    reconcile(
      select,
      [{ id: "", label: "the prior only" }, ...[...all].reverse()],
      ({ id }) => `:${id}`,
      ({ id, label }) => el("option", { value: id, text: label }),
    );
    select.value = currentMoment()?.id ?? "";
  }

  for (const radio of document.querySelectorAll("input[name=posterior-mode]")) {
    radio.addEventListener("change", () => {
      mode = radio.value;
      render(store.view);
    });
  }
  $("compare-with").addEventListener("change", (event) => {
    moment = event.target.value;
    render(store.view);
  });
  $("parameter-search").addEventListener("input", () => render(store.view));
  store.subscribe(["posterior"], (view, change) => {
    if (change.fresh) shownKey = "";
    render(view);
  });
}

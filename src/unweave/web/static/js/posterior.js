// The panel "Posterior": densities or intervals of chosen parameters, against the prior and, in
// simulations, against earlier moments.

import { $, el, reconcile, say, throttle } from "./dom.js";
import { ApiError, curves as fetchCurves, moment as fetchMoment } from "./api.js";
import { Chart } from "./chart.js";
import { align } from "./density.js";
import { showError } from "./dialogs.js";
import { count, plural, setTime } from "./format.js";
import { renderIntervals, sayNumbers, sentence } from "./intervals.js";

const MOST = 12; // densities at once: the server's limit
const FIRST = 4; // densities before anybody has chosen
const ROWS = 60; // intervals at once
const FIRST_PAUSE = 1000; // milliseconds after the server has refused densities
const LAST_PAUSE = 30_000;
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
  let shownKey = ""; // what the densities or the intervals on the screen answer
  let earlier = null; // the intervals of the moment that is compared, or null
  let refusedKey = ""; // what the server has refused: not asked again
  let pause = FIRST_PAUSE;
  let paused = null; // the timer of a pause
  let asking = false;

  const parameters = () => store.view?.posterior.parameters ?? [];
  const currentMode = () => mode ?? (parameters().length > FIRST ? "intervals" : "densities");
  const most = () => (currentMode() === "densities" ? MOST : ROWS);
  // What is shown is what is ticked, in either mode.
  const names = () => {
    const all = parameters().map(({ name }) => name);
    if (chosen === null) return all.slice(0, currentMode() === "densities" ? FIRST : ROWS);
    return all.filter((name) => chosen.has(name)).slice(0, most());
  };
  const currentMoment = () => {
    const all = store.view.posterior.moments ?? [];
    if (moment === "") return null;
    if (moment !== null) return all.find(({ id }) => id === moment) ?? null;
    // Before an erasure says more than some hop.
    return all.findLast(({ label }) => label.startsWith("before ")) ?? all.at(-1) ?? null;
  };

  // ------------------------------------------------------------------ what is not in the view

  const refresh = throttle(() => load(), 400);

  async function load() {
    const view = store.view;
    const wanted = names();
    const compared = currentMoment();
    const drawn = currentMode() === "densities";
    const of = drawn ? wanted : "intervals";
    const key = JSON.stringify([view.posterior.version, of, compared?.id]);
    if (asking || paused !== null || key === shownKey || key === refusedKey) return;
    asking = true;
    try {
      if (!drawn) {
        earlier = compared && (await fetchMoment(compared.id));
      } else if (wanted.length) {
        densities((await fetchCurves(wanted, compared ? [compared.id] : [])).curves, wanted);
      } else {
        densities({}, []);
      }
      showError($("posterior-error"), null);
      shownKey = key;
      pause = FIRST_PAUSE;
      if (!drawn) render(store.view);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showError($("posterior-error"), error);
      refusedKey = key;
      paused = setTimeout(() => {
        paused = null;
        refresh();
      }, pause);
      pause = Math.min(2 * pause, LAST_PAUSE);
    } finally {
      asking = false;
    }
    refresh(); // the version may have changed meanwhile
  }

  // A person who chooses something else does not wait.
  function askAnew() {
    clearTimeout(paused);
    paused = null;
    pause = FIRST_PAUSE;
    refusedKey = "";
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
    sayNumbers(node.querySelector(".numbers"), parameter);
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
        box.disabled = !box.checked && selected.size >= most();
      },
    );
    const total = store.view.posterior.total ?? all.length;
    say($("parameters-count"), `${count(selected.size)} of ${count(total)}`);
    $("parameters-all").disabled = selected.size === Math.min(all.length, most());
    $("parameters-none").disabled = selected.size === 0;
  }

  function choose(name, on) {
    const now = new Set(names());
    if (on) now.add(name);
    else now.delete(name);
    chosen = now;
    render(store.view, true);
  }

  // -------------------------------------------------------------------------- the panel

  // `asked`: a person has chosen something.
  function render(view, asked = false) {
    if (asked) askAnew();
    const { posterior } = view;
    const all = parameters();
    const empty = all.length === 0;
    say($("posterior-version"), posterior.version ?? "");
    setTime($("posterior-at"), posterior.at);
    // The clock of the paper's walks counts hops, as their version does.
    $("posterior-at").hidden = posterior.at === undefined || view.kind === "paper";
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
    $("chooser").hidden = all.length <= 1;
    moments(posterior.moments ?? []);
    chooser();
    const shown = new Set(names());
    $("posterior-none").hidden = shown.size > 0;
    $("posterior-legend").hidden = !densitiesShown || shown.size === 0;
    $("intervals-box").hidden = densitiesShown || shown.size === 0;
    if (!densitiesShown) intervals(all.filter(({ name }) => shown.has(name)));
    refresh();
    const hidden = (posterior.total ?? all.length) - shown.size;
    const more = $("posterior-note");
    more.hidden = hidden <= 0 || shown.size < most();
    say(more, `${plural(hidden, "more parameter")}: choose them above, or see unweave posterior.`);
  }

  function intervals(parameters) {
    const compared = currentMoment();
    const before = compared && earlier?.label === compared.label ? earlier : null;
    $("intervals-before").hidden = before === null;
    say($("intervals-label"), before?.label ?? "");
    $("intervals-zero").hidden = !renderIntervals($("intervals"), parameters, before);
  }

  function moments(all) {
    $("compare").hidden = all.length === 0;
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
      render(store.view, true);
    });
  }
  $("compare-with").addEventListener("change", (event) => {
    moment = event.target.value;
    render(store.view, true);
  });
  $("parameters-all").addEventListener("click", () => {
    chosen = new Set(parameters().map(({ name }) => name));
    render(store.view, true);
  });
  $("parameters-none").addEventListener("click", () => {
    chosen = new Set();
    render(store.view, true);
  });
  $("parameter-search").addEventListener("input", chooser);
  store.subscribe(["posterior"], (view, change) => {
    if (change.fresh) shownKey = refusedKey = "";
    render(view);
  });
}

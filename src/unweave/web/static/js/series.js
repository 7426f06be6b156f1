// Charts over time or hops: progress, residual, hops per second.

import { $, el, reconcile, say } from "./dom.js";
import { Chart } from "./chart.js";
import { count, exactly, number } from "./format.js";
import { drawing, grouped, isBand } from "./lines.js";

const charts = new Map();

export function startSeries(store) {
  store.subscribe(["series"], (view) => {
    const groups = grouped(view.series);
    reconcile($("series"), groups, ([name]) => name, create, (node, [name, all]) => update(node, name, all));
    const names = new Set(groups.map(([name]) => name));
    for (const name of charts.keys()) if (!names.has(name)) drop(name);
    $("series-empty").hidden = groups.length > 0;
  });
}

function create() {
  return el(
    "div",
    { class: "series" },
    el("div", { class: "series-head" }, el("h3"), el("p", { class: "value" })),
    el("ul", { class: "keys" }),
    el("div", { class: "plot", role: "img" }),
    el("p", { class: "empty" }),
  );
}

function drop(name) {
  charts.get(name)?.chart.remove();
  charts.delete(name);
}

const xText = (series, x) => (series.x === "time" ? exactly(x) : `hop ${count(x)}`);

function update(node, name, all) {
  const [main] = all;
  const [plot, empty, value] = [".plot", ".empty", ".value"].map((one) => node.querySelector(one));
  say(node.querySelector("h3"), main.title);
  const filled = all.some(({ points }) => points.length);
  empty.hidden = filled;
  plot.hidden = !filled;
  if (!filled) {
    say(empty, main.empty);
    say(value, "");
    drop(name);
    return;
  }
  const unit = main.unit ? ` ${main.unit}` : "";
  const { data, looks, band } = drawing(all);
  const show = (index) => {
    const [x, y] = index === null ? (main.points.at(-1) ?? []) : [data[0][index], data[1][index]];
    if (y === undefined || y === null) return;
    say(value, `${number(y)}${unit}`);
    value.title = xText(main, x);
  };
  show(null);
  plot.setAttribute("aria-label", `${main.title}: ${value.textContent}, ${value.title}`);
  keys(node.querySelector(".keys"), all, looks);

  // Dates on the axis only where the clock is the world's.
  const time = main.x === "time" && data[0][0] > 1e9;
  const form = JSON.stringify([time, main.log, all.map(({ title, part }) => [title, part])]);
  const known = charts.get(name);
  if (known?.form === form) {
    known.show = show;
    known.chart.set(data);
    return;
  }
  drop(name);
  const lines = looks.map((look, index) =>
    index === 0 && !main.log && all.length === 1 ? { ...look, fill: "accent-wash" } : look,
  );
  const entry = { form, show };
  const positive = all.every(({ points }) => points.every(([, y]) => y >= 0));
  const options = {
    log: main.log,
    time,
    band,
    yZero: !main.log && positive,
    onCursor: (index) => entry.show(index ?? null),
  };
  entry.chart = new Chart(plot, lines, options, data);
  charts.set(name, entry);
}

// Which line is which, where there are several.
function keys(list, all, looks) {
  const named = all.map((one, index) => [one, looks[index]]).filter(([{ part }]) => part !== "low");
  list.hidden = named.length < 2;
  reconcile(
    list,
    named.length < 2 ? [] : named,
    ([{ title }]) => title,
    ([{ title }]) => el("li", {}, el("i", { class: "stroke" }), el("span", { text: title })),
    (node, [one, look]) => {
      const stroke = node.querySelector(".stroke");
      stroke.dataset.colour = isBand(one) ? "band" : look.colour;
      stroke.classList.toggle("dashed", Boolean(look.dash));
    },
  );
}

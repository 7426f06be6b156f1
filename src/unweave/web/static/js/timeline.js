// What happened, in plain sentences: the newest first, with a filter.

import { $, el, reconcile, say, svg } from "./dom.js";
import { count, exactly, setTime } from "./format.js";

const PAGE = 12; // entries at first
const MORE = 40; // and each time that older ones are wanted
const MARKS = {
  info: "M-2.5,0a2.5,2.5 0 1,0 5,0a2.5,2.5 0 1,0 -5,0z",
  good: "M-5,0L-1.5,4L5.5,-4.5",
  warning: "M0,-6L6.5,5.5H-6.5z",
  failure: "M-4.5,-4.5L4.5,4.5M-4.5,4.5L4.5,-4.5",
};
const SPOKEN = { info: "", good: "Good: ", warning: "Warning: ", failure: "Failure: " };

export function entryRow(entry) {
  const mark = svg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, svg("path"));
  return el(
    "li",
    { class: "entry" },
    mark,
    el("p", { class: "sentence" }, el("span", { class: "unseen" }), el("span", { class: "words" }), el("span", { class: "times" })),
    el("time"),
  );
}

export function updateRow(node, entry) {
  node.dataset.level = entry.level;
  node.querySelector("path").setAttribute("d", MARKS[entry.level]);
  say(node.querySelector(".unseen"), SPOKEN[entry.level]);
  say(node.querySelector(".words"), entry.text);
  const times = node.querySelector(".times");
  const folded = (entry.times ?? 1) > 1;
  say(times, folded ? `${count(entry.times)} times` : "");
  times.hidden = !folded;
  const time = node.querySelector("time");
  setTime(time, entry.until ?? entry.at);
  if (entry.until > entry.at) time.title = `${exactly(entry.at)} to ${exactly(entry.until ?? entry.at)}`;
}

export function startTimeline(store) {
  const [search, level, more] = [$("timeline-search"), $("timeline-level"), $("timeline-more")];
  let shown = PAGE;

  function render(view) {
    const wanted = search.value.trim().toLowerCase();
    // A folded entry is where it happened last.
    const last = ([number, { at, until }]) => [until ?? at, Number(number)];
    const newest = (a, b) => last(b)[0] - last(a)[0] || last(b)[1] - last(a)[1];
    const all = Object.entries(view.timeline).sort(newest);
    const found = all.filter(
      ([, entry]) =>
        (level.value === "all" ||
          entry.level === "failure" ||
          (level.value === "notable" && entry.level !== "info")) &&
        (!wanted || `${entry.text} ${entry.agent ?? ""}`.toLowerCase().includes(wanted)),
    );
    reconcile(
      $("timeline"),
      found.slice(0, shown),
      ([number]) => number,
      ([, entry]) => entryRow(entry),
      (node, [, entry]) => updateRow(node, entry),
    );
    const empty = $("timeline-empty");
    empty.hidden = found.length > 0;
    say(empty, all.length ? "No entry matches the filter." : "Nothing has happened yet.");
    more.hidden = found.length <= shown;
    say(more, `Show older (${count(found.length - shown)})`);
    $("timeline-tools").hidden = all.length === 0;
  }

  const again = () => {
    shown = PAGE;
    if (store.view) render(store.view);
  };
  search.addEventListener("input", again);
  level.addEventListener("change", again);
  more.addEventListener("click", () => {
    shown += MORE;
    render(store.view);
  });
  store.subscribe(["timeline"], render);
}


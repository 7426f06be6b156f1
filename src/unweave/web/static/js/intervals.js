// Intervals of many parameters: one row each, the posterior against the prior and an earlier moment.

import { el, reconcile, say } from "./dom.js";
import { at } from "./format.js";

const known = (value) => value !== undefined && Number.isFinite(value);

// One axis for all rows where that shows something, else an axis per row.
function axes(parameters, before) {
  const shown = [...parameters, ...parameters.map(({ name }) => before.get(name) ?? {})];
  const ranges = shown
    .filter(({ low, high }) => known(low) && known(high))
    .map(({ low, high }) => [low, high]);
  if (!ranges.length) return () => null;
  const low = Math.min(...ranges.map(([start]) => start), 0);
  const high = Math.max(...ranges.map(([, end]) => end), 0);
  const narrowest = Math.min(...ranges.map(([start, end]) => end - start));
  if (narrowest > (high - low) / 60) {
    const margin = (high - low) * 0.04;
    return () => [low - margin, high + margin];
  }
  return ({ name, low: start, high: end, prior_low, prior_high }) => {
    if (!known(start) || !known(end)) return null;
    const width = end - start || 1;
    const left = Math.max(known(prior_low) ? prior_low : start, start - 4 * width);
    const right = Math.min(known(prior_high) ? prior_high : end, end + 4 * width);
    const earlier = before.get(name) ?? {};
    const ends = [left, right, start, end, earlier.low, earlier.high].filter(known);
    const [first, last] = [Math.min(...ends), Math.max(...ends)];
    return [first - 0.05 * (last - first), last + 0.05 * (last - first)];
  };
}

function bar(node, axis, low, high) {
  const shown = axis !== null && known(low) && known(high);
  node.hidden = !shown;
  if (!shown) return;
  const share = (value) => (100 * (value - axis[0])) / (axis[1] - axis[0]);
  const [left, right] = [Math.max(0, share(low)), Math.min(100, share(high))];
  node.classList.toggle("open-left", share(low) < 0);
  node.classList.toggle("open-right", share(high) > 100);
  node.style.left = `${left}%`;
  node.style.width = `${Math.max(0.6, right - left)}%`;
}

function parts({ mean, sd, low, high }) {
  const found = [];
  if (known(mean)) found.push(known(sd) ? `${at(mean, sd)} ± ${at(sd, sd)}` : at(mean, 0));
  if (known(low) && known(high)) {
    const width = known(sd) ? sd : (high - low) / 4;
    found.push(`95%: ${at(low, width)} to ${at(high, width)}`);
  }
  return found.length ? found : ["no moments"];
}

export const sentence = (parameter) => parts(parameter).join(", ");

// A line breaks between the parts only.
export function sayNumbers(node, parameter) {
  const words = sentence(parameter);
  if (node.textContent === words) return;
  const pieces = parts(parameter).map((text, index, { length }) =>
    el("span", { class: "part", text: index < length - 1 ? `${text},` : text }),
  );
  node.replaceChildren(...pieces.flatMap((piece, index) => (index ? [" ", piece] : [piece])));
}

// `earlier`: the answer about a moment, or null. Returns whether a row shows zero.
export function renderIntervals(list, parameters, earlier = null) {
  const before = new Map((earlier?.parameters ?? []).map((one) => [one.name, one]));
  const axis = axes(parameters, before);
  let zeros = 0; // rows that show where zero is
  reconcile(
    list,
    parameters,
    ({ name }) => `:${name}`,
    ({ name }) =>
      el(
        "li",
        {},
        el("span", { class: "name", text: name, title: name }),
        el("span", { class: "numbers" }),
        el("span", { class: "numbers earlier", hidden: true }),
        el(
          "span",
          { class: "track", "aria-hidden": "true" },
          el("span", { class: "zero" }),
          el("span", { class: "prior" }),
          el("span", { class: "before" }),
          el("span", { class: "interval" }),
          el("span", { class: "mean" }),
        ),
      ),
    (node, parameter) => {
      const range = axis(parameter);
      const zero = node.querySelector(".zero");
      const crossed = range !== null && range[0] < 0 && range[1] > 0;
      zeros += crossed;
      bar(zero, crossed ? range : null, 0, 0);
      bar(node.querySelector(".prior"), range, parameter.prior_low, parameter.prior_high);
      bar(node.querySelector(".interval"), range, parameter.low, parameter.high);
      bar(node.querySelector(".mean"), range, parameter.mean, parameter.mean);
      sayNumbers(node.querySelector(".numbers"), parameter);
      const old = before.get(parameter.name);
      bar(node.querySelector(".before"), old ? range : null, old?.low, old?.high);
      const words = node.querySelector(".earlier");
      words.hidden = !old;
      say(words, old ? `${earlier.label}: ${sentence(old)}` : "");
    },
  );
  return zeros > 0;
}

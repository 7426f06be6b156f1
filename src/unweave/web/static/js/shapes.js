// How the state of an agent looks: a shape of its own for each, so that colour is never needed.

import { svg } from "./dom.js";

const circle = (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`;

// Paths in a square of −12 … 12. `line`: the width of the outline, 0 if the shape is filled.
export const STATES = {
  in: { label: "In", d: circle(9.5), line: 0, colour: "state-in", text: "its factor is in the sum" },
  solving: {
    label: "Solving",
    d: circle(10) + circle(7) + circle(4),
    line: 0,
    colour: "state-in",
    text: "it computes its factor now",
  },
  pending: {
    label: "Pending",
    d: circle(8.5),
    line: 2.2,
    colour: "state-quiet",
    text: "its factor is not in the sum yet",
  },
  down: {
    label: "Down",
    d: "M0,-11.5L11.5,0L0,11.5L-11.5,0z",
    line: 0,
    colour: "state-down",
    text: "it does not answer",
  },
  erased: {
    label: "Erased",
    d: circle(8.5),
    line: 2.2,
    dash: [4.2, 3.2],
    colour: "state-erased",
    text: "all its data are forgotten",
  },
  departed: {
    label: "Departed",
    d: "M-7,-7L7,7M-7,7L7,-7",
    line: 2.6,
    colour: "state-quiet",
    text: "it was voted out",
  },
};

export const ORDER = Object.keys(STATES);

export function paint(path, state) {
  const { d, line, dash } = STATES[state];
  path.setAttribute("d", d);
  path.setAttribute("class", `shape ${state} ${line ? "outlined" : "filled"}`);
  if (line) path.setAttribute("stroke-width", line);
  else path.removeAttribute("stroke-width");
  if (dash) path.setAttribute("stroke-dasharray", dash.join(" "));
  else path.removeAttribute("stroke-dasharray");
}

export function symbol(state) {
  const path = svg("path", { "fill-rule": "evenodd" });
  paint(path, state);
  const props = { class: "symbol", viewBox: "-13 -13 26 26", "aria-hidden": "true" };
  return svg("svg", props, path);
}

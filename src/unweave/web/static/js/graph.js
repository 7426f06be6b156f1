// The panel "Network": the graph, the token above it, a tip at the pointer, the legend with counts.

import { $, el, reconcile, say } from "./dom.js";
import { count, when } from "./format.js";
import { CanvasGraph } from "./graph-canvas.js";
import { SvgGraph } from "./graph-svg.js";
import { project } from "./layout.js";
import { ORDER, STATES, symbol } from "./shapes.js";
import { onTheme } from "./theme.js";
import { Token } from "./token.js";

const MOST_SVG = 100;

export function startGraph(store, select) {
  const stage = $("stage");
  const tip = $("tip");
  const token = new Token($("token"));
  let picture = null;
  let points = [];
  let drawn = null; // the graph value that is on the screen

  const on = {
    select,
    point: (index) => showTip(index),
  };

  function showTip(index) {
    const view = store.view;
    tip.hidden = index === null;
    if (index === null) return;
    const name = view.graph.names[index];
    const agent = view.agents[name];
    const state = agent ? describe(agent) : "Nothing is known of it yet.";
    const lines = [el("strong", { text: name }), el("span", { text: state })];
    if (agent?.why) lines.push(el("span", { text: agent.why }));
    tip.replaceChildren(el("div", { class: "bubble" }, lines));
    const { x, y } = points[index];
    tip.classList.toggle("flip", x > stage.clientWidth / 2);
    tip.classList.toggle("up", y > stage.clientHeight / 2);
    tip.style.transform = `translate(${x}px, ${y}px)`;
  }

  function draw() {
    const view = store.view;
    if (!view || !stage.clientWidth) return;
    const box = { width: stage.clientWidth, height: stage.clientHeight };
    const many = view.graph.names.length > MOST_SVG;
    const Kind = many ? CanvasGraph : SvgGraph;
    if (!(picture instanceof Kind)) {
      picture?.remove();
      picture = new Kind(stage, on);
    }
    const side = many ? 18 : Math.min(110, box.width * 0.13);
    points = project(view.graph.places, box, { x: side, top: many ? 18 : 40, bottom: many ? 18 : 40 });
    picture.draw(view, points, box);
    token.layout(points, picture.radius);
    tip.hidden = true;
  }

  new ResizeObserver(draw).observe(stage);
  onTheme(draw);

  store.subscribe(["graph", "agents", "token", "summary"], (view, change) => {
    if (change.fresh) token.forget();
    if (change.fresh || drawn !== view.graph.edges) {
      drawn = view.graph.edges; // the places may stay the same: a ring and a complete graph
      draw();
    } else {
      for (const name of change.agents) picture?.update(view, name);
    }
    token.update(view.token);
    say($("token-text"), tokenText(view));
    legend(view);
    say($("seen"), view.seen);
  });
}

function describe(agent) {
  const parts = [STATES[agent.state].label];
  if (agent.attested) parts.push("attested");
  if (agent.posterior_at !== undefined) parts.push(`posterior of ${when(agent.posterior_at)}`);
  return parts.join(" · ");
}

function tokenText(view) {
  const { state, at, epoch, hop } = view.token;
  const name = at === undefined ? null : view.graph.names[at];
  const place = name === null ? "" : ` at ${name}`;
  const stamp = epoch === undefined ? "" : ` · epoch ${count(epoch)}, hop ${count(hop ?? 0)}`;
  if (state === "none") return view.summary.state === "down" ? "" : "There is no token yet.";
  if (state === "parked") return `The token is parked${place}${stamp}`;
  if (state === "solving") return `${name ?? "An agent"} holds the token and solves${stamp}`;
  return `The token is${place}${stamp}`;
}

function legend(view) {
  const counts = view.summary.agents;
  reconcile(
    $("legend"),
    ORDER,
    (state) => state,
    (state) =>
      el(
        "li",
        { title: `${STATES[state].label}: ${STATES[state].text}` },
        symbol(state),
        el("span", { text: STATES[state].label }),
        el("b"),
      ),
    (item, state) => {
      say(item.querySelector("b"), count(counts[state] ?? 0));
      item.classList.toggle("zero", !counts[state]);
    },
  );
}

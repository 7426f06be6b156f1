// The graph of up to 100 agents as SVG. A node is repainted only when its state changes.

import { svg } from "./dom.js";
import { placeLabels, shorten } from "./layout.js";
import { paint, STATES } from "./shapes.js";

const ruler = document.createElement("canvas").getContext("2d");

const ARROWS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export class SvgGraph {
  constructor(box, on) {
    this.on = on;
    this.root = svg("svg", { class: "graph", role: "group", "aria-label": "Graph of the agents" });
    this.root.addEventListener("keydown", (event) => this.key(event));
    box.prepend(this.root);
    this.nodes = [];
  }

  remove() {
    this.root.remove();
  }

  // Everything anew: another graph, or another size.
  draw(view, points, box) {
    const { names, edges } = view.graph;
    this.names = names;
    this.points = points;
    this.radius = names.length <= 16 ? 12 : names.length <= 40 ? 9 : 7;
    const font = names.length <= 40 ? 13 : 11.5;
    ruler.font = `500 ${font}px ${getComputedStyle(document.body).fontFamily}`;
    const longest = names.length > 12 || box.width < 480 ? 14 : 22;
    const texts = names.map((name) => shorten(name, longest));
    const widths = texts.map((text) => ruler.measureText(text).width + 4);
    const labels = placeLabels(points, widths, edges, this.radius, font + 5, box);

    this.root.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    this.root.setAttribute("width", box.width);
    this.root.setAttribute("height", box.height);
    // One path: thousands of elements would take longer than all else.
    const lines = edges.map(([a, b]) => `M${points[a].x},${points[a].y}L${points[b].x},${points[b].y}`);
    const focused = this.nodes.findIndex((node) => node.group === document.activeElement);
    this.nodes = names.map((name, index) => this.node(name, index, texts[index], labels[index], font));
    this.root.replaceChildren(
      svg("path", { class: "edges", d: lines.join("") }),
      svg("g", { class: "nodes" }, this.nodes.map((node) => node.group)),
    );
    for (const name of names) this.update(view, name);
    this.nodes[0]?.group.setAttribute("tabindex", "0");
    if (focused >= 0) this.focus(focused);
  }

  node(name, index, text, label, font) {
    const { x, y } = this.points[index];
    const path = svg("path", { "fill-rule": "evenodd" });
    const shape = svg("g", { transform: `scale(${this.radius / 10})` }, path);
    const halo = svg("circle", { class: "halo", r: this.radius + 4 });
    const words = svg("text", {
      class: label ? "label" : "label crowded",
      x: label ? label.x - x : 0,
      y: label ? label.y - y : this.radius + 14,
      "text-anchor": label ? label.anchor : "middle",
      "font-size": font,
      text,
    });
    const group = svg(
      "g",
      {
        class: "node",
        transform: `translate(${x},${y})`,
        role: "button",
        tabindex: "-1",
        on: {
          click: () => this.on.select(name),
          pointerenter: () => this.on.point(index),
          pointerleave: () => this.on.point(null),
          focus: () => this.on.point(index),
          blur: () => this.on.point(null),
        },
      },
      halo,
      shape,
      words,
    );
    paint(path, "pending"); // until something is known of the agent
    group.setAttribute("aria-label", `${name}: not known yet`);
    return { group, path, state: null, name };
  }

  update(view, name) {
    const agent = view.agents[name];
    const node = agent && this.nodes[agent.index];
    if (!node) return;
    if (node.state !== agent.state) {
      node.state = agent.state;
      paint(node.path, agent.state);
    }
    const attested = agent.attested ? ", attested" : "";
    const label = `${name}: ${STATES[agent.state].label.toLowerCase()}${attested}`;
    node.group.setAttribute("aria-label", label);
  }

  // One tab stop for the whole picture; arrows go to the next agent in their direction.
  key(event) {
    const here = this.nodes.findIndex((node) => node.group === document.activeElement);
    if (here < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.on.select(this.nodes[here].name);
      return;
    }
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const from = this.points[here];
    let [best, least] = [null, Infinity];
    this.points.forEach((point, index) => {
      const [dx, dy] = [point.x - from.x, point.y - from.y];
      const along = dx * arrow[0] + dy * arrow[1];
      const across = Math.abs(dx * arrow[1] + dy * arrow[0]);
      if (index === here || along <= 0.5) return;
      const cost = along + 2 * across;
      if (cost < least) [best, least] = [index, cost];
    });
    if (best !== null) this.focus(best);
  }

  focus(index) {
    for (const node of this.nodes) node.group.setAttribute("tabindex", "-1");
    this.nodes[index].group.setAttribute("tabindex", "0");
    this.nodes[index].group.focus();
  }
}

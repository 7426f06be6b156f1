// The graph of more than 100 agents: dots on a canvas above a canvas with the edges.
// Edges are drawn once per size and theme, dots at most four times a second.

import { el, throttle } from "./dom.js";
import { ORDER, STATES } from "./shapes.js";
import { colour } from "./theme.js";

const REACH = 14; // pixels around the pointer

export class CanvasGraph {
  constructor(box, on) {
    this.on = on;
    this.lines = el("canvas", { class: "graph", "aria-hidden": "true" });
    this.dots = el("canvas", { class: "graph", role: "img" });
    this.dots.addEventListener("pointermove", (event) => this.on.point(this.nearest(event)));
    this.dots.addEventListener("pointerleave", () => this.on.point(null));
    this.dots.addEventListener("click", (event) => {
      const index = this.nearest(event);
      if (index !== null) this.on.select(this.names[index]);
    });
    box.prepend(this.lines, this.dots);
    this.repaint = throttle(() => this.paint(), 250);
  }

  remove() {
    this.lines.remove();
    this.dots.remove();
  }

  draw(view, points, box) {
    this.view = view;
    this.names = view.graph.names;
    this.points = points;
    this.box = box;
    const spacing = Math.sqrt((box.width * box.height) / points.length);
    this.radius = Math.max(2, Math.min(6, spacing / 4.5));
    const scale = Math.min(devicePixelRatio || 1, 2);
    this.scale = scale;
    for (const canvas of [this.lines, this.dots]) {
      canvas.width = Math.round(box.width * scale);
      canvas.height = Math.round(box.height * scale);
      canvas.style.width = `${box.width}px`;
      canvas.style.height = `${box.height}px`;
    }
    const pen = this.lines.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.strokeStyle = colour("edge");
    pen.lineWidth = points.length > 500 ? 0.5 : 0.8;
    pen.beginPath();
    for (const [a, b] of view.graph.edges) {
      pen.moveTo(points[a].x, points[a].y);
      pen.lineTo(points[b].x, points[b].y);
    }
    pen.stroke();
    this.sprites = Object.fromEntries(ORDER.map((state) => [state, this.sprite(state)]));
    this.paint();
  }

  sprite(state) {
    const { d, line, dash, colour: name } = STATES[state];
    // Shapes keep apart even when small: what needs attention is drawn larger.
    const radius = state === "down" ? 2 * this.radius : this.radius;
    const size = Math.ceil(2 * (radius * 1.3 + 1) * this.scale);
    const canvas = el("canvas", { width: size, height: size });
    const pen = canvas.getContext("2d");
    const zoom = (radius / 10) * this.scale;
    pen.setTransform(zoom, 0, 0, zoom, size / 2, size / 2);
    const path = new Path2D(d);
    if (line) {
      pen.strokeStyle = colour(name);
      pen.lineWidth = Math.max(line, 10 / this.radius);
      pen.setLineDash(dash ?? []);
      pen.stroke(path);
    } else {
      pen.fillStyle = colour(name);
      pen.fill(path, "evenodd");
    }
    return canvas;
  }

  update() {
    this.repaint();
  }

  paint() {
    if (!this.view) return;
    const pen = this.dots.getContext("2d");
    pen.clearRect(0, 0, this.dots.width, this.dots.height);
    const { agents } = this.view;
    const attention = [];
    for (let index = 0; index < this.names.length; index += 1) {
      const state = agents[this.names[index]]?.state ?? "pending";
      if (state === "in" || state === "pending") this.stamp(pen, index, state);
      else attention.push([index, state]);
    }
    for (const [index, state] of attention) this.stamp(pen, index, state);
    const { agents: counts } = this.view.summary;
    const parts = ORDER.filter((state) => counts[state]).map(
      (state) => `${counts[state]} ${STATES[state].label.toLowerCase()}`,
    );
    const label = `Graph of ${this.names.length} agents: ${parts.join(", ")}. The table lists them.`;
    this.dots.setAttribute("aria-label", label);
  }

  stamp(pen, index, state) {
    const sprite = this.sprites[state];
    const { x, y } = this.points[index];
    pen.drawImage(
      sprite,
      Math.round(x * this.scale - sprite.width / 2),
      Math.round(y * this.scale - sprite.height / 2),
    );
  }

  nearest(event) {
    if (!this.points) return null;
    let [best, least] = [null, REACH * REACH];
    for (let index = 0; index < this.points.length; index += 1) {
      const dx = this.points[index].x - event.offsetX;
      const dy = this.points[index].y - event.offsetY;
      const distance = dx * dx + dy * dy;
      if (distance < least) [best, least] = [index, distance];
    }
    return best;
  }
}

// The token: one element above the drawing, moved by `transform`. The graph is never redrawn for it.

const HOP = 420; // milliseconds of one hop when the page is not behind
const BATCH = 900; // and of a whole batch when it is

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Token {
  constructor(node) {
    this.node = node;
    this.points = [];
    this.queue = [];
    this.last = null; // the newest visit that was queued
    this.here = null; // the agent where the element is
    this.moving = null;
  }

  // Another graph or size: the element goes to its agent at once.
  layout(points, radius) {
    this.points = points;
    this.node.style.setProperty("--size", `${2 * radius + 14}px`);
    this.moving?.cancel();
    this.moving = null;
    if (this.queue.length) this.here = this.queue.at(-1);
    this.queue = [];
    this.rest();
  }

  forget() {
    this.last = null;
    this.here = null;
    this.queue = [];
  }

  update(token) {
    this.node.dataset.state = token.state;
    const visits = token.visits ?? [];
    const first = this.last === null;
    for (const visit of this.fresh(visits)) this.queue.push(visit[0]);
    if (visits.length) this.last = visits.at(-1);
    const end = this.queue.length ? this.queue.at(-1) : this.here;
    if (token.at !== undefined && token.at !== end) this.queue.push(token.at);
    if (first || still.matches) {
      if (this.queue.length) this.here = this.queue.at(-1);
      this.queue = [];
      if (!this.moving) this.rest();
      return;
    }
    if (!this.moving) this.move();
  }

  fresh(visits) {
    if (this.last === null) return visits;
    const [agent, at] = this.last;
    const known = visits.findLastIndex((visit) => visit[0] === agent && visit[1] === at);
    return visits.slice(known + 1);
  }

  rest() {
    const place = this.points[this.here];
    this.node.hidden = !place;
    if (place) this.node.style.transform = translate(place);
  }

  // All hops that are due, in order, as one animation: a page that is behind catches up.
  move() {
    if (!this.queue.length) return;
    const path = [this.here, ...this.queue].filter((index) => this.points[index]);
    const hops = path.length - 1;
    this.here = this.queue.at(-1);
    this.queue = [];
    this.rest();
    if (hops < 1) return;
    const easing = hops <= 3 ? "cubic-bezier(0.45, 0, 0.2, 1)" : "linear";
    const frames = path.map((index) => ({ transform: translate(this.points[index]), easing }));
    const duration = Math.min(hops * HOP, Math.max(BATCH, HOP));
    const animation = this.node.animate(frames, { duration });
    this.moving = animation;
    animation.finished.then(
      () => {
        this.moving = null;
        this.move();
      },
      () => {}, // cancelled by a new layout
    );
  }
}

const translate = ({ x, y }) => `translate(${x}px, ${y}px) translate(-50%, -50%)`;

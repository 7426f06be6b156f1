// The view of the server, kept up to date by merge patches (RFC 7396), and who is told of a change.

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Objects have no prototype: a name such as "__proto__" is a key like any other.
export function merge(target, patch) {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? target : Object.create(null);
  for (const key of Object.keys(patch)) {
    if (patch[key] === null) delete result[key];
    else result[key] = merge(result[key], patch[key]);
  }
  return result;
}

const KEPT_POINTS = 2000; // of one series; the server keeps as many

const BUDGET = 12; // milliseconds of one task

export class Store {
  constructor() {
    this.view = null;
    this.clockAt = 0; // when the view's clock came; a hidden page may be told of it much later
    this.listeners = [];
    this.touched = new Set();
    this.agents = new Set();
    this.fresh = false;
    this.scheduled = false;
  }

  // `handler(view, change)` runs before the next frame if one of `keys` was touched.
  // `change.fresh`: everything is new. `change.agents`: names of the agents that changed.
  subscribe(keys, handler) {
    this.listeners.push({ keys, handler });
  }

  replace(view) {
    this.view = merge(null, view);
    this.clockAt = Date.now();
    this.fresh = true;
    this.schedule();
  }

  change(patch) {
    if (!this.view) return;
    merge(this.view, patch);
    if ("clock" in patch) this.clockAt = Date.now();
    for (const key of Object.keys(patch)) this.touched.add(key);
    for (const name of Object.keys(patch.agents ?? {})) this.agents.add(name);
    this.schedule();
  }

  points(added) {
    for (const [name, points] of Object.entries(added)) {
      const series = this.view?.series?.[name];
      if (!series) continue;
      series.points = series.points.concat(points).slice(-KEPT_POINTS);
    }
    this.touched.add("series");
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    // A hidden page gets no frames; it catches up with one update when it is shown again.
    requestAnimationFrame(() => this.tell());
  }

  async tell() {
    const change = { fresh: this.fresh, keys: this.touched, agents: this.agents };
    this.fresh = false;
    this.touched = new Set();
    this.agents = new Set();
    let start = performance.now();
    for (const { keys, handler } of this.listeners) {
      if (!change.fresh && !keys.some((key) => change.keys.has(key))) continue;
      // Many agents are much to draw: between two panels a person's key or click gets its turn.
      if (performance.now() - start > BUDGET) {
        await new Promise((done) => setTimeout(done));
        start = performance.now();
      }
      try {
        handler(this.view, change);
      } catch (error) {
        reportError(error); // one panel must not stop the others, nor the next update
      }
    }
    this.scheduled = false;
    if (this.fresh || this.touched.size) this.schedule();
  }
}

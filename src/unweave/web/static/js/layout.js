// Where things are in the picture: places of agents in pixels, and labels that do not collide.

// `places` in the unit square, stretched to a box, but never to more than 1.7 times its height.
export function project(places, box, pad) {
  const xs = places.map(([x]) => x);
  const ys = places.map(([, y]) => y);
  const [left, right] = bounds(xs);
  const [low, high] = bounds(ys);
  const room = { width: box.width - 2 * pad.x, height: box.height - pad.top - pad.bottom };
  const width = Math.min(room.width, 1.7 * room.height);
  const height = Math.min(room.height, 1.7 * room.width);
  const x0 = (box.width - width) / 2;
  const y0 = pad.top + (room.height - height) / 2;
  const tenths = (value) => Math.round(10 * value) / 10;
  return places.map(([x, y]) => ({
    x: tenths(x0 + (right > left ? (x - left) / (right - left) : 0.5) * width),
    y: tenths(y0 + (high > low ? (y - low) / (high - low) : 0.5) * height),
  }));
}

function bounds(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

// Names often differ at their end, so the middle is left out.
export function shorten(name, length) {
  const letters = [...name];
  if (letters.length <= length) return name;
  const tail = Math.floor((length - 1) / 2);
  return `${letters.slice(0, length - 1 - tail).join("")}…${letters.slice(-tail).join("")}`;
}

const overlap = (a, b) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

// Does the segment meet the box? It does not if a side of the box, or the segment's own line,
// separates them. (Asked for every label and edge: it makes no objects.)
function crosses(from, to, { x, y, width, height }) {
  const right = x + width;
  const bottom = y + height;
  if ((from.x < x && to.x < x) || (from.x > right && to.x > right)) return false;
  if ((from.y < y && to.y < y) || (from.y > bottom && to.y > bottom)) return false;
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const side = (px, py) => dx * (py - from.y) - dy * (px - from.x) > 0;
  const first = side(x, y);
  return first !== side(right, y) || first !== side(x, bottom) || first !== side(right, bottom);
}

const MANY = 600; // edges, beyond which every place of a label lies on some

// A place for every label, or null where there is none: { x, y, anchor } of the text's middle line.
export function placeLabels(points, widths, edges, radius, height, box) {
  const gap = radius + 9; // the token's ring fits in between
  const nodes = points.map(({ x, y }) => ({
    x: x - radius,
    y: y - radius,
    width: 2 * radius,
    height: 2 * radius,
  }));
  const lines = edges.length > MANY ? [] : edges;
  const taken = [];
  const middle = { x: box.width / 2, y: box.height / 2 };
  return points.map((point, index) => {
    const width = widths[index];
    const below = { x: point.x - width / 2, y: point.y + gap, anchor: "middle" };
    const above = { x: point.x - width / 2, y: point.y - gap - height, anchor: "middle" };
    const right = { x: point.x + gap, y: point.y - height / 2, anchor: "start" };
    const left = { x: point.x - gap - width, y: point.y - height / 2, anchor: "end" };
    // Away from the middle first: fewer edges are there.
    const vertical = point.y < middle.y ? [above, below] : [below, above];
    const sideways = point.x < middle.x ? [left, right] : [right, left];
    let best = null;
    let least = Infinity;
    for (const [order, candidate] of [...vertical, ...sideways].entries()) {
      const area = { ...candidate, width, height };
      if (area.x < 0 || area.x + width > box.width) continue;
      if (area.y < 0 || area.y + height > box.height) continue;
      if (taken.some((other) => overlap(area, other))) continue;
      if (nodes.some((node, other) => other !== index && overlap(area, node))) continue;
      const cost = 4 * lines.filter(([a, b]) => crosses(points[a], points[b], area)).length + order;
      if (cost < least) [best, least] = [area, cost];
    }
    if (!best) return null;
    taken.push(best);
    const x = { start: best.x, middle: best.x + width / 2, end: best.x + width }[best.anchor];
    return { x, y: best.y + height / 2, anchor: best.anchor };
  });
}

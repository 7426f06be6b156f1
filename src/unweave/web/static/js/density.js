// Curves with grids of their own on one axis: what a chart needs.

const isDensity = ({ x, y }) => x.length > 2 && y.length === x.length;

// All densities on the union of their grids, inside the window that shows the posterior well.
export function align(curves) {
  const densities = curves.filter(isDensity).map(withoutStairs);
  const window = frame(densities);
  const grid = new Set(window);
  for (const { x } of densities) {
    for (const value of x) if (value >= window[0] && value <= window[1]) grid.add(value);
  }
  const xs = [...grid].sort((a, b) => a - b);
  return { window, data: [xs, ...densities.map((curve) => interpolate(curve, xs))], densities };
}

// Heights of a live network are multiples of 1% of the highest. The middle of each stair is where
// the height is right; a line through the middles shows the density without the stairs.
function withoutStairs({ label, x, y }) {
  const longest = x.length / 6; // a longer stair is flat in truth, as a uniform prior is
  const kept = { label, x: [], y: [] };
  const keep = (place, height) => {
    kept.x.push(place);
    kept.y.push(height);
  };
  for (let start = 0; start < x.length; ) {
    let end = start;
    while (end + 1 < x.length && y[end + 1] === y[start]) end += 1;
    const atEdge = start === 0 || end === x.length - 1;
    if (!atEdge && y[start] > 0 && end - start < longest) {
      keep((x[start] + x[end]) / 2, y[start]);
    } else {
      keep(x[start], y[start]);
      if (end > start) keep(x[end], y[end]);
    }
    start = end + 1;
  }
  return kept;
}

function interpolate({ x, y }, xs) {
  let place = 0;
  return xs.map((value) => {
    if (value < x[0] || value > x.at(-1)) return null;
    while (place < x.length - 2 && x[place + 1] < value) place += 1;
    const width = x[place + 1] - x[place];
    const part = width > 0 ? (value - x[place]) / width : 0;
    return y[place] + part * (y[place + 1] - y[place]);
  });
}

// Everything, unless the posterior would be a needle in it.
function frame(densities) {
  let [low, high] = [Infinity, -Infinity];
  for (const { x } of densities) {
    low = Math.min(low, x[0]);
    high = Math.max(high, x.at(-1));
  }
  let [left, right] = [Infinity, -Infinity];
  for (const curve of densities) {
    if (curve.label === "prior") continue;
    const [start, end] = core(curve);
    left = Math.min(left, start);
    right = Math.max(right, end);
  }
  if (!(right > left) || right - left > (high - low) / 12) return [low, high];
  const margin = 1.2 * (right - left);
  return [Math.max(low, left - margin), Math.min(high, right + margin)];
}

// Where a density is more than a thousandth of its peak.
function core({ x, y }) {
  const peak = Math.max(...y);
  const first = y.findIndex((value) => value > peak / 1000);
  const last = y.findLastIndex((value) => value > peak / 1000);
  return first < 0 ? [x[0], x.at(-1)] : [x[first], x[last]];
}

// Series that share a chart: their points on one x-axis, and how each is drawn.

const LOOKS = [
  { colour: "accent", width: 1.8 },
  { colour: "token", width: 1.8, dash: [7, 4] },
  { colour: "state-erased", width: 1.8, dash: [2, 3] },
  { colour: "good", width: 1.8, dash: [10, 3, 2, 3] },
  { colour: "muted", width: 1.4 },
];
const EDGE = { colour: "band-edge", width: 0 };

// [[key, [first series, others …]]]: a series without `chart` has a chart of its own.
export function grouped(series) {
  const charts = new Map();
  for (const [name, one] of Object.entries(series)) {
    const home = one.chart !== undefined && one.chart in series ? one.chart : name;
    if (!charts.has(home)) charts.set(home, []);
    if (home === name) charts.get(home).unshift(one);
    else charts.get(home).push(one);
  }
  return [...charts];
}

export const isBand = ({ part }) => part === "low" || part === "high";

// uPlot's data for these series, their looks, and the pair of indices that holds a band.
export function drawing(all) {
  const log = Boolean(all[0].log);
  const xs = [...new Set(all.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const floor = log ? lowerEdge(all) : 0;
  const columns = all.map(({ points }) => {
    const values = new Map(points);
    return xs.map((x) => {
      const y = values.get(x);
      if (y === undefined) return null;
      return log ? Math.max(y, floor) : y;
    });
  });
  let next = 0;
  const looks = all.map((one) => (isBand(one) ? EDGE : LOOKS[next++ % LOOKS.length]));
  const low = all.findIndex(({ part }) => part === "low");
  const high = all.findIndex(({ part }) => part === "high");
  return { data: [xs, ...columns], looks, band: low >= 0 && high >= 0 ? [high + 1, low + 1] : null };
}

// A logarithmic axis has no zero: an exact 0 lies on its lower edge.
function lowerEdge(all) {
  let least = Infinity;
  for (const { points } of all) for (const [, y] of points) if (y > 0) least = Math.min(least, y);
  return Number.isFinite(least) ? 10 ** Math.floor(Math.log10(least) - 0.5) : 1e-12;
}

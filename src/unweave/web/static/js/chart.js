// uPlot with this page's look: quiet axes, colours of the theme, no legend, sizes that follow.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { number, power } from "./format.js";
import { colour, onTheme } from "./theme.js";

const charts = new Set();

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    for (const chart of charts) if (chart.box === target) chart.fit();
  }
});

onTheme(() => {
  for (const chart of charts) chart.rebuild();
});

const plainTick = (value) => number(value, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
const logTick = (value) => (value < 0.01 || value > 9999 ? power(value) : plainTick(value));
const FONT = '11px Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

// `lines`: [{ colour, width, dash, fill, points }], names of CSS variables for colours.
// `options`: { log, time, xRange, yZero, band, onCursor }.
export class Chart {
  constructor(box, lines, options, data) {
    this.box = box;
    this.lines = lines;
    this.options = options;
    this.data = data;
    charts.add(this);
    observer.observe(box);
    this.rebuild();
  }

  set(data) {
    this.data = data;
    this.plot?.setData(data);
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!width || !height) return;
    if (!this.plot) this.rebuild();
    else if (this.plot.width !== width || this.plot.height !== height) {
      this.plot.setSize({ width, height });
    }
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!width || !height) return;
    const { log, time, xRange, yZero, band } = this.options;
    const axis = {
      stroke: colour("muted"),
      font: FONT,
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
    };
    const plotOptions = {
      width,
      height,
      legend: { show: false },
      cursor: {
        drag: { x: false, y: false, setScale: false },
        y: false,
        points: { size: 7 },
      },
      padding: [8, time ? 26 : 14, 0, 0], // half of the last label of the x-axis
      scales: {
        x: { time: Boolean(time), range: xRange ? () => xRange : spread },
        y: log ? { distr: 3 } : { range: yZero ? fromZero : undefined },
      },
      axes: [
        {
          ...axis,
          space: 64,
          size: 26,
          gap: 4,
          grid: { show: false },
          values: time ? clock : (_, values) => values.map(plainTick),
        },
        {
          ...axis,
          space: 34,
          gap: 4,
          ...(log ? { filter: powers, grid: { ...axis.grid, filter: powers } } : {}),
          size: (plot, values) => axisSize(plot, values),
          values: (_, values) => values.map((value) => (value === null ? "" : log ? logTick(value) : plainTick(value))),
        },
      ],
      series: [
        {},
        ...this.lines.map((line) => ({
          stroke: colour(line.colour),
          width: line.width ?? 2,
          dash: line.dash,
          fill: line.fill ? colour(line.fill) : undefined,
          points: { show: few, size: 6 },
          spanGaps: true,
        })),
      ],
      bands: band ? [{ series: band, fill: colour("band") }] : [],
      hooks: this.options.onCursor
        ? { setCursor: [(plot) => this.options.onCursor(plot.cursor.idx)] }
        : {},
    };
    this.plot = new uPlot(plotOptions, this.data, this.box);
  }

  remove() {
    charts.delete(this);
    observer.unobserve(this.box);
    this.plot?.destroy();
  }
}

// A line needs two points; until then the point itself is shown.
const few = (plot) => plot.data[0].length < 2;

const pad = (value) => String(value).padStart(2, "0");

// Times of day; dates where a step is a day or more.
function clock(_, values, axis, space, step) {
  return values.map((value) => {
    const at = new Date(value * 1000);
    if (step >= 86400) return `${at.getDate()}.${at.getMonth() + 1}.`;
    const time = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
    return step < 60 ? `${time}:${pad(at.getSeconds())}` : time;
  });
}

// Of a logarithmic axis: powers of ten, and every n-th of many.
function powers(_, values) {
  const isPower = (value) => Math.abs(Math.log10(value) % 1) < 1e-9 || Math.abs(Math.log10(value) % 1) > 1 - 1e-9;
  const all = values.filter((value) => value > 0 && isPower(value));
  const every = Math.ceil(all.length / 4);
  const shown = new Set(all.filter((_value, index) => index % every === 0));
  return values.map((value) => (shown.has(value) ? value : null));
}

const ruler = document.createElement("canvas").getContext("2d");

function axisSize(plot, values) {
  ruler.font = FONT;
  const widths = (values ?? []).map((value) => ruler.measureText(value).width);
  return Math.ceil(Math.max(24, ...widths)) + 10;
}

function fromZero(_, low, high) {
  return [Math.min(0, low ?? 0), high > 0 ? 1.08 * high : 1];
}

// From the first to the last point; a single point still needs a width.
function spread(plot) {
  const [xs] = plot.data;
  if (!xs.length) return [0, 1];
  const [low, high] = [xs[0], xs[xs.length - 1]];
  return low < high ? [low, high] : [low - 1, high + 1];
}

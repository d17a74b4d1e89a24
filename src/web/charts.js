// Line charts over time, drawn by Chart.js. Each also has a summary in words and a table of values.
import {bytes, clock, el, moment, rate, seconds, setText, stamp} from './text.js';
import {colour} from './theme.js';

const ROWS = 12; // of the table of values
const LABEL_PX = 80; // for the label of a time

const TIME_STEPS =
  [10, 30, 60, 120, 180, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800].map((s) => s * 1000);

// If the CPU reaches the memory itself, no bytes are copied, and a flat zero would look like a measurement.
function noCopies(devices, lines) {
  const nothing = lines.every((line) => line.points.every((p) => !p.y));
  const all = devices.length > 1 ? 'these devices' : 'this device';
  return devices.length && nothing && devices.every((d) => d.cpu_access)
    ? `No copies on ${all}: the CPU accesses the memory directly.`
    : '';
}

const SPECS = [
  {id: 'devices', title: 'Memory of devices', show: bytes, binary: true},
  {
    id: 'pools',
    title: 'Memory of pools',
    show: bytes,
    binary: true,
    series: [['reserved', 'reserved', 2], ['used', 'used', 1]],
    fill: true
  },
  {
    id: 'rates',
    title: 'Transfers',
    show: rate,
    binary: true,
    series: [['upload', 'uploads', 1], ['download', 'downloads', 3]]
  },
  {
    id: 'split',
    title: 'Copying and waiting, per second',
    show: seconds,
    series: [['copying', 'copying', 1], ['waiting', 'queued', 4]],
    stacked: true,
    fill: true,
    none: noCopies
  },
];

// Axis limits that are round in the displayed unit.
function roundStep(max, binary) {
  const rough = max / 4;
  if (binary) return 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((n) => n * power >= rough);
}

// Ticks at round times instead of the ends of the range.
function roundTimes(axis) {
  const wanted = (axis.max - axis.min) / Math.min(6, Math.max(2, Math.floor(axis.chart.width / LABEL_PX)));
  const whole = TIME_STEPS.find((s) => s >= wanted) || TIME_STEPS.at(-1);
  axis.ticks = [];
  for (let at = Math.ceil(axis.min / whole) * whole; at <= axis.max; at += whole) axis.ticks.push({value: at});
}

const restartLines = {
  id: 'restarts',
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea, scales} = chart;
    ctx.save();
    ctx.strokeStyle = colour('bad');
    ctx.setLineDash([2, 3]);
    for (const at of chart.options.restarts || []) {
      const x = scales.x.getPixelForValue(at);
      if (x < chartArea.left || x > chartArea.right) continue;
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
    }
    ctx.restore();
  },
};

function optionsOf(spec) {
  return {
    animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false, restarts: [],
    interaction: {mode: 'nearest', axis: 'x', intersect: false},
    scales: {
      x: {type: 'linear', ticks: {maxRotation: 0, autoSkip: true}, grid: {display: false}, afterBuildTicks: roundTimes},
      y: {min: 0, stacked: Boolean(spec.stacked), ticks: {callback: (v) => spec.show(v).replace(/\.0+ /, ' ')}},
    },
    plugins: {
      legend: {align: 'end', labels: {boxWidth: 8, boxHeight: 8, padding: 8}},
      tooltip: {callbacks: {
        title: (items) => (items.length ? clock(items[0].parsed.x) : ''),
        label: (item) => ` ${item.dataset.label} ${spec.show(item.parsed.y)}`,
      }},
    },
  };
}

export class Plot {
  constructor(parent, spec) {
    this.spec = spec;
    this.canvas = el('canvas', {role: 'img', id: `chart-${spec.id}`});
    this.summary = el('p', {class: 'quiet summary'});
    this.values = el('div', {class: 'scroll'});
    this.details = el('details', {}, el('summary', {}, 'Values'), this.values);
    this.details.addEventListener('toggle', () => this.write());
    this.plot = el('div', {class: 'plot'}, this.canvas);
    this.none = el('p', {class: 'none quiet', hidden: true});
    parent.append(el(
      'figure', {}, el('figcaption', {}, el('h3', {}, spec.title), this.summary), this.plot, this.none, this.details));
    this.lines = [];
    if (window.Chart) {
      this.chart = new window.Chart(
        this.canvas, {type: 'line', data: {datasets: []}, options: optionsOf(spec), plugins: [restartLines]});
    }
  }

  // lines: [{label, colour, points}]; none: the reason why there are no points, or ''
  set(lines, range_s, restarts, none) {
    this.lines = lines;
    this.range = range_s;
    setText(this.none, none);
    this.none.hidden = !none;
    for (const part of [this.summary, this.details]) part.hidden = Boolean(none);
    this.plot.hidden = Boolean(none) || !this.chart;
    this.describe();
    this.write();
    if (this.plot.hidden) return;
    const {chart, spec} = this;
    const now = Date.now();
    const tops = lines.map((line) => line.points.reduce((most, p) => Math.max(most, p.y ?? 0), 0));
    const top = spec.stacked ? tops.reduce((a, b) => a + b, 0) : Math.max(0, ...tops);
    const step = roundStep(top || (spec.binary ? 1024 : 0.001), spec.binary);
    this.style();
    chart.data.datasets = lines.map((line) => ({
      label: line.label,
      data: line.points,
      borderColor: colour(line.colour),
      backgroundColor: `${colour(line.colour)}33`,
      borderWidth: 1.5,
      pointRadius: 0,
      pointHitRadius: 8,
      fill: spec.stacked ? 'stack' : Boolean(spec.fill),
      spanGaps: false,
    }));
    chart.options.restarts = restarts;
    Object.assign(chart.options.scales.x, {min: now - range_s * 1000, max: now});
    chart.options.scales.x.ticks.callback = (v) => moment(v, range_s);
    Object.assign(chart.options.scales.y, {max: step * Math.ceil(((top || step) * 1.02) / step)});
    chart.options.scales.y.ticks.stepSize = step;
    chart.update('none');
  }

  style() {
    const {scales, plugins} = this.chart.options;
    for (const axis of [scales.x, scales.y]) {
      axis.ticks.color = colour('quiet');
      axis.grid.color = colour('line');
      axis.grid.borderColor = colour('line');
    }
    plugins.legend.labels.color = colour('text');
    plugins.legend.display = this.lines.length > 0 && this.lines.length < 9;
  }

  describe() {
    const parts = this.lines.map((line) => {
      const known = line.points.filter((p) => p.y !== null && p.y !== undefined);
      if (!known.length) return `${line.label}: no values yet`;
      const now = line.points.now ?? known.at(-1).y;
      const most = known.reduce((a, p) => Math.max(a, p.most ?? p.y), now);
      return `${line.label} ${this.spec.show(now)}, at most ${this.spec.show(most)}`;
    });
    const text = parts.join('; ');
    setText(this.summary, text.replace(/(\d) (?=[KMGTP]?i?B|µs|ms|s\b)/g, '$1\u00a0'));
    this.canvas.setAttribute('aria-label', `${this.spec.title}, line chart. Now: ${text}`);
  }

  write() {
    if (!this.details.open) return;
    const times = this.lines.length ? this.lines[0].points : [];
    const every = Math.max(1, Math.ceil(times.length / ROWS));
    const picked = times.map((_, i) => i).filter((i) => (times.length - 1 - i) % every === 0).reverse();
    const heads = ['Time', ...this.lines.map((line) => line.label)].map(
      (text, i) => el('th', {scope: 'col', class: i ? 'number' : null}, text));
    const cell = (point) => el('td', {class: 'number'}, point ? this.spec.show(point.y) : '–');
    const rows = picked.map((i) => el('tr', {}, el('th', {scope: 'row'}, stamp(times[i].x, this.range)),
      ...this.lines.map((line) => cell(line.points[i]))));
    this.values.replaceChildren(el('table', {}, el('caption', {}, `${this.spec.title}: values of the range`),
      el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows)));
  }
}

export class Charts {
  constructor(parent, history) {
    this.history = history;
    if (window.Chart) {
      window.Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
      window.Chart.defaults.font.size = 11;
    }
    this.plots = SPECS.map((spec) => new Plot(parent, spec));
  }

  linesOf(spec) {
    if (spec.series)
      return spec.series.map(([name, label, n]) => ({label, colour: `series-${n}`, points: this.history.series(name)}));
    return this.history.watch.devices.map((d) => ({
      label: `GPU ${d.index}`.replace('GPU', d.compute_capability ? 'GPU' : 'device'),
      colour: `series-${(d.index % 8) + 1}`,
      points: this.history.device(d.index)
    }));
  }

  draw() {
    for (const plot of this.plots) {
      const lines = this.linesOf(plot.spec);
      plot.set(
        lines, this.history.shown, this.history.restarts, plot.spec.none?.(this.history.watch.devices, lines) ?? '');
    }
  }
}

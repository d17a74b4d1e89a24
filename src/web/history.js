// The history: the daemon's samples from before this page was opened, followed by the page's own.
import {Gone, Refused, get} from './ask.js';
import {WINDOW_MS, speed, thinned} from './rates.js';

export const RANGES = [
  [300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [21600, '6 hours'], [86400, '24 hours'],
  [604800, '7 days'], [2592000, '30 days']
];

const REREAD_S = 30; // meanwhile the page adds its own samples
const UNKEPT_S = 5; // between two points if the daemon keeps no history

const gauge = (name) => (item) => (item[name] ? item[name].mean ?? item[name].last : null);
const most = (name) => (item) => item[name]?.max;
const perSecond = (name) => (item) => (item[name] ? item[name].rate_per_s : null);

const level = (name) => ({past: gauge(name), most: most(name), live: (samples, i) => samples[i][name]});
const flow = (name) =>
  ({past: perSecond(name), live: (samples, i, step_ms) => speed(samples, i, name, Math.max(WINDOW_MS, step_ms))});

// name: {past(item), most(item), live(samples, i, step_ms)}; most: the maximum within a step, if the value has one
export const SERIES = {
  used: level('used_bytes'),
  reserved: level('reserved_bytes'),
  upload: flow('upload_bytes'),
  download: flow('download_bytes'),
  copying: flow('copy_seconds'),
  waiting: flow('queue_seconds'),
};

function nameOf(range) {
  return RANGES.find(([s]) => s === range)?.[1] ?? `${range} s`;
}

export class History {
  constructor(watch) {
    this.watch = watch;
    this.range = 300; // the chosen range
    this.shown = 300; // the part of it with data
    this.begin = null; // start of all known data, if it was seen
    this.past = {all: [], devices: new Map()};
    this.restarts = [];
    this.step = UNKEPT_S;
    this.note = '';
    this.due = 0;
    this.reading = null;
  }

  choose(range) {
    this.range = range;
    this.shown = range;
    this.begin = null;
    this.past = {all: [], devices: new Map()};
    this.due = 0;
  }

  // Reads again if there may be new samples; returns true if it did.
  async refresh() {
    if (this.reading || Date.now() < this.due) return false;
    const range = this.range;
    this.reading = this.readAll();
    try {
      const past = await this.reading;
      if (range !== this.range) return false;
      Object.assign(this, past);
      this.due = Date.now() + 1000 * Math.min(60, Math.max(REREAD_S, past.step));
      this.note = past.shown < range ? `The last ${nameOf(past.shown)}: no older data` : '';
    } catch (error) {
      this.due = Date.now() + 10000;
      if (error instanceof Refused && (error.status === 400 || error.status === 404)) {
        this.due = Infinity;
        this.note = 'This daemon keeps no history: the charts show what this page has recorded';
      } else if (!(error instanceof Gone || error instanceof Refused)) throw error;
    } finally {
      this.reading = null;
    }
    return true;
  }

  // The shortest range that has all known data.
  needed() {
    const age_s = this.begin === null ? Infinity : (Date.now() - this.begin) / 1000;
    return RANGES.map(([s]) => s).find((s) => s >= Math.min(age_s, this.range)) ?? this.range;
  }

  // If only one of thirty days has data, its line would fill just the end of the axis: then that day is read again, in
  // finer steps.
  async readRange() {
    const {range} = this;
    for (;;) {
      const shown = this.needed();
      const {value} = await get(`/v1/stats?since=-${shown}`);
      if (range !== this.range) return {shown, value}; // outdated, and not the start of that range
      const first = value.items?.length ? Date.parse(value.items[0].at) : NaN;
      if (first - 1000 * value.step_s > Date.parse(value.since)) this.begin = first;
      if (this.needed() >= shown) return {shown, value};
    }
  }

  async readAll() {
    const {shown, value} = await this.readRange();
    const query = `since=-${shown}`;
    const devices = new Map();
    for (const device of this.watch.devices) {
      devices.set(device.index, (await get(`/v1/devices/${device.index}/stats?${query}`)).value.items || []);
    }
    const restarts = (value.restarts || []).map((at) => Date.parse(at));
    return {past: {all: value.items || [], devices}, restarts, shown, step: value.step_s || 1};
  }

  // The first step may have begun before the daemon did.
  born(at, step_ms) {
    return [...this.restarts, Date.parse(this.watch.started)].find((began) => began > at && began < at + step_ms) ?? at;
  }

  // [{x, y, most}] with x in milliseconds; y null breaks the line; most: the maximum within the step, if known.
  points(items, {past, most: top, live}) {
    const from = Date.now() - this.shown * 1000;
    const step_ms = 1000 * this.step;
    const points = [];
    let last = from;
    for (const [i, item] of items.entries()) {
      const x = i === 0 ? this.born(Date.parse(item.at), step_ms) : Date.parse(item.at);
      if (x < from) continue;
      points.push({x, y: past(item), most: top?.(item)});
      last = x;
    }
    const {samples} = this.watch;
    for (const {i, sample} of thinned(samples, last, step_ms)) {
      const y = sample && live(samples, i, step_ms);
      if (!sample && points.length) points.push({x: points.at(-1).x + 1, y: null});
      else if (sample && y !== null && y !== undefined) points.push({x: sample.at, y});
    }
    // The newest sample joins the line at its step, but is the present value at once.
    if (samples.at(-1)) points.now = live(samples, samples.length - 1, step_ms);
    return points;
  }

  series(name) {
    return this.points(this.past.all, SERIES[name]);
  }

  device(index) {
    const items = this.past.devices.get(index) || [];
    return this.points(
      items, {past: gauge('used_bytes'), most: most('used_bytes'), live: (samples, i) => samples[i].devices[index]});
  }
}

// What was before this page was opened: the daemon's samples, with those of this page after them.
import {Gone, Refused, get} from './ask.js';

export const RANGES = [[300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [21600, '6 hours'], [86400, '24 hours'],
  [604800, '7 days'], [2592000, '30 days']];

const gauge = (name) => (item) => (item[name] ? item[name].mean ?? item[name].last : null);
const most = (name) => (item) => item[name]?.max;
const perSecond = (name) => (item) => (item[name] ? item[name].rate_per_s : null);

// name: {past(item), most(item), live(sample, before)}; most: where a step has more than one value that tells it
export const SERIES = {
  used: {past: gauge('used_bytes'), most: most('used_bytes'), live: (s) => s.used_bytes},
  reserved: {past: gauge('reserved_bytes'), most: most('reserved_bytes'), live: (s) => s.reserved_bytes},
  upload: {past: perSecond('upload_bytes'), live: (s, b) => b && speed(s, b, 'upload_bytes')},
  download: {past: perSecond('download_bytes'), live: (s, b) => b && speed(s, b, 'download_bytes')},
  copying: {past: perSecond('copy_seconds'), live: (s, b) => b && speed(s, b, 'copy_seconds')},
  waiting: {past: perSecond('queue_seconds'), live: (s, b) => b && speed(s, b, 'queue_seconds')},
};

function speed(sample, before, name) {
  const apart = (sample.at - before.at) / 1000;
  return apart > 0 ? Math.max(0, sample[name] - before[name]) / apart : null;
}

export class History {
  constructor(watch) {
    this.watch = watch;
    this.range = 300;
    this.past = {all: [], devices: new Map()};
    this.restarts = [];
    this.note = '';
    this.due = 0;
    this.reading = null;
  }

  choose(range) {
    this.range = range;
    this.past = {all: [], devices: new Map()};
    this.due = 0;
  }

  // Reads again when there may be something new; true when it did.
  async refresh() {
    if (this.reading || Date.now() < this.due) return false;
    const range = this.range;
    this.reading = this.readAll(range);
    try {
      const past = await this.reading;
      if (range !== this.range) return false;
      Object.assign(this, past);
      this.due = Date.now() + 1000 * Math.min(60, Math.max(5, past.step));
      this.note = '';
    } catch (error) {
      this.due = Date.now() + 10000;
      if (error instanceof Refused && (error.status === 400 || error.status === 404)) {
        this.due = Infinity;
        this.note = 'This daemon keeps no history: shown is what this page has seen';
      } else if (!(error instanceof Gone || error instanceof Refused)) throw error;
    } finally {
      this.reading = null;
    }
    return true;
  }

  async readAll(range) {
    const query = `since=-${range}`;
    const {value} = await get(`/v1/stats?${query}`);
    const devices = new Map();
    for (const device of this.watch.devices) {
      devices.set(device.index, (await get(`/v1/devices/${device.index}/stats?${query}`)).value.items || []);
    }
    const restarts = (value.restarts || []).map((at) => Date.parse(at));
    return {past: {all: value.items || [], devices}, restarts, step: value.step_s || 1};
  }

  // [{x, y, most}] in milliseconds; y null breaks the line; most: within the step, where that is known.
  points(items, {past, most: top, live}) {
    const from = Date.now() - this.range * 1000;
    const points = [];
    let last = from;
    for (const item of items) {
      const x = Date.parse(item.at);
      if (x < from) continue;
      points.push({x, y: past(item), most: top?.(item)});
      last = x;
    }
    let before = null;
    for (const sample of this.watch.samples) {
      if (sample && sample.at > last) {
        const y = live(sample, before);
        if (y !== null && y !== undefined) points.push({x: sample.at, y});
      } else if (!sample && points.length) {
        points.push({x: points[points.length - 1].x + 1, y: null});
      }
      before = sample;
    }
    return points;
  }

  series(name) {
    return this.points(this.past.all, SERIES[name]);
  }

  device(index) {
    const items = this.past.devices.get(index) || [];
    return this.points(items, {past: gauge('used_bytes'), most: most('used_bytes'), live: (s) => s.devices[index]});
  }
}

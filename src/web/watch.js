// Follows the daemon's numbers by long polls, which return only when a value has changed.
import {Gone, Refused, forget, get} from './ask.js';
import {Lists} from './lists.js';

const EVERY_MS = 1000; // the shortest time between two requests
const SELDOM_MS = 10000; // the page is hidden, or has no valid token
const LEAST_MS = 30; // delay that combines several requests for an update
const WAIT_S = 10; // the longest time of a long poll
const SETTLE = 3; // rounds after a change that do not wait: memory is free only when its stream has reached the free
const DEVICES_MS = 2000; // the shortest time between two readings of devices
const SAMPLES_MAX = 2400; // at least twenty minutes of the page's own samples

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Events: 'state' after each reply, 'tick' each second, 'lists' after sessions, pools and buffers were read again.
export class Watch extends EventTarget {
  constructor() {
    super();
    this.connection = 'connecting'; // connected, gone, token, forbidden, failed
    this.why = '';
    this.since = Date.now();
    this.samples = [];
    this.sequence = -1;
    this.settling = SETTLE; // remaining rounds that do not wait
    this.devices = [];
    this.devicesAt = 0;
    this.reader = new Lists(() => this.dispatchEvent(new Event('lists')));
    this.pools = []; // the present rates of devices
    this.hurried = false;
    this.hurry = () => {};
    this.stop = new AbortController();
    document.addEventListener('visibilitychange', () => document.hidden || this.soon());
  }

  get lists() {
    return {...this.reader.lists, pools: [...this.pools, ...this.reader.lists.pools]};
  }

  start() {
    this.run();
    setInterval(() => this.tick(), EVERY_MS);
  }

  // Runs a round now, or right after the present one; a waiting round ends.
  soon() {
    this.settling = Math.max(this.settling, 1);
    this.hurried = true;
    this.stop.abort();
    this.hurry();
  }

  // Starts again, for another token or another daemon.
  restart() {
    forget();
    this.reset();
    this.soon();
  }

  reset() {
    this.sequence = -1;
    this.root = null;
    this.devicesAt = 0;
    this.reader.all();
  }

  // An event of the feed: marks the lists that it concerns as outdated.
  heard(event) {
    this.reader.heard(event);
  }

  follows(following) {
    this.reader.following = following;
  }

  say(connection, why = '') {
    if (connection !== this.connection) {
      // Another daemon process may have taken the place of the known one.
      if (connection === 'connected') this.reader.all();
      else this.root = null;
      this.since = Date.now();
      this.connection = connection;
    }
    this.why = why;
  }

  failed(error) {
    if (error instanceof Gone) this.say('gone', error.message);
    else if (error instanceof Refused && error.status === 401) this.say('token', error.message);
    else if (error instanceof Refused && error.status === 403) this.say('forbidden', error.message);
    else this.say('failed', error.message);
  }

  async run() {
    for (;;) {
      const begun = Date.now();
      this.hurried = false;
      try {
        await this.read();
        this.reader.soon();
        if (this.reader.error) throw this.reader.error;
        this.say('connected');
      } catch (error) {
        if (error.name !== 'AbortError') this.failed(error);
      }
      this.dispatchEvent(new Event('state'));
      const every = document.hidden || ['token', 'forbidden'].includes(this.connection) ? SELDOM_MS : EVERY_MS;
      await this.rest(every - (Date.now() - begun));
    }
  }

  async rest(ms) {
    const hurry = new Promise((done) => { this.hurry = done; });
    if (!this.hurried) await Promise.race([pause(ms), hurry]);
    await pause(LEAST_MS);
  }

  async read() {
    if (!this.root) {
      const root = (await get('/v1')).value;
      if (this.started && this.started !== root.started_at) {
        this.samples.push(null); // rates do not span a restart
        this.reset();
      }
      this.started = root.started_at;
      this.root = root;
    }
    await this.readDevices();
    await this.readStats();
  }

  async readDevices() {
    if (Date.now() - this.devicesAt < DEVICES_MS) return;
    this.devicesAt = Date.now();
    this.devices = (await get('/v1/devices')).value.items;
  }

  async readStats() {
    const patient = this.settling === 0 && this.connection === 'connected' && !document.hidden;
    this.stop = new AbortController();
    const timer = setTimeout(() => this.stop.abort(new Gone('no answer')), 1000 * (WAIT_S + 5));
    let stats;
    try {
      stats = (await get('/v1/stats', {wait_s: patient ? WAIT_S : 0, signal: this.stop.signal})).value;
    } finally {
      clearTimeout(timer);
    }
    if (this.settling > 0) this.settling--;
    const {running} = stats;
    if (stats.sequence !== this.sequence || running.uploads + running.downloads + running.writes > 0)
      this.settling = SETTLE;
    if (stats.sequence !== this.sequence) this.reader.changed();
    this.sequence = stats.sequence;
    this.stats = stats;
    this.pools = stats.pools.filter((p) => p.session === undefined).map((p) => ({...p, session: ''}));
    if (stats.started_at !== this.started) this.root = null;
    else this.sample();
  }

  // While a long poll waits, the numbers are unchanged.
  tick() {
    if (this.connection === 'connected' && this.stats && Date.now() - (this.samples.at(-1)?.at ?? 0) >= 0.9 * EVERY_MS)
      this.sample();
    this.dispatchEvent(new Event('tick'));
  }

  sample() {
    const {stats, devices, lists} = this;
    const moved = stats.transfers;
    const sum = (what) => lists.pools.reduce((n, p) => n + p[what], 0);
    this.samples.push({
      at: Date.now(),
      used_bytes: sum('used_bytes'),
      reserved_bytes: sum('reserved_bytes'),
      buffer_bytes: stats.buffers.bytes,
      upload_bytes: moved.upload.bytes,
      download_bytes: moved.download.bytes,
      copy_seconds: moved.upload.seconds_copying + moved.download.seconds_copying,
      queue_seconds: moved.upload.seconds_queued + moved.download.seconds_queued,
      devices: devices.map((d) => d.total_bytes - d.free_bytes),
    });
    if (this.samples.length > SAMPLES_MAX) this.samples.splice(0, this.samples.length - SAMPLES_MAX);
  }
}

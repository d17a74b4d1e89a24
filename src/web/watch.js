// Asks the daemon again and again, and tells who shows what it said.
import {Gone, Refused, forget, get, list, sessionPath} from './ask.js';

const EVERY_MS = 1000;
const SELDOM_MS = 10000; // hidden, or without a token that the daemon takes
const SETTLE = 3; // rounds after a change in which lists are read: memory is free only when its stream has come so far
const REFRESH_MS = 15000; // lists, also without a change
const SAMPLES_MAX = 1200; // twenty minutes of what this page saw itself
const SESSIONS_MAX = 1000;
const BUFFERS_MAX = 5000; // rows read in all; a page is no place for more
const POOLS_OF_MAX = 100; // sessions whose pools are asked for

// Events: 'state' after each round, 'lists' when sessions, pools and buffers were read again.
export class Watch extends EventTarget {
  constructor() {
    super();
    this.connection = 'connecting'; // connected, gone, token, forbidden, failed
    this.why = '';
    this.since = Date.now();
    this.samples = [];
    this.sequence = -1;
    this.lists = {sessions: [], pools: [], buffers: [], note: {}};
    this.devices = [];
    this.next = 0; // lists are not read before
    this.stale = 0; // how often they are to be read
    this.timer = 0;
    this.running = false;
    this.again = false;
    document.addEventListener('visibilitychange', () => document.hidden || this.soon());
  }

  // A round now, or right after the one that runs.
  soon() {
    if (this.running) {
      this.again = true;
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.round(), 30);
  }

  // Everything anew: another token, another daemon.
  restart() {
    forget();
    this.sequence = -1;
    this.next = 0;
    this.soon();
  }

  say(connection, why = '') {
    if (connection !== this.connection) {
      // Another process may have taken the place of the one that was known.
      if (connection === 'connected') this.sequence = -1;
      this.since = Date.now();
      this.connection = connection;
    }
    this.why = why;
  }

  async round() {
    this.running = true;
    this.again = false;
    try {
      await this.read();
      this.say('connected');
    } catch (error) {
      this.failed(error);
    }
    this.running = false;
    this.dispatchEvent(new Event('state'));
    if (this.again) this.soon();
    else this.timer = setTimeout(() => this.round(), document.hidden || ['token', 'forbidden'].includes(this.connection) ? SELDOM_MS : EVERY_MS);
  }

  failed(error) {
    if (error instanceof Gone) this.say('gone', error.message);
    else if (error instanceof Refused && error.status === 401) this.say('token', error.message);
    else if (error instanceof Refused && error.status === 403) this.say('forbidden', error.message);
    else this.say('failed', error.message);
  }

  async read() {
    const root = (await get('/v1')).value;
    if (this.root && this.root.started_at !== root.started_at) {
      this.sequence = -1;
      this.samples.push(null); // rates do not reach across a restart
    }
    this.root = root;
    const {value: stats} = await get('/v1/stats');
    this.stats = stats;
    this.devices = (await get('/v1/devices')).value.items;
    const others = this.lists.pools.filter((p) => p.session);
    this.lists.pools = [...stats.pools.map((p) => ({...p, session: ''})), ...others];
    if (stats.sequence !== this.sequence) this.stale = SETTLE;
    else if (Date.now() >= this.next + REFRESH_MS) this.stale = 1;
    if (this.stale > 0 && Date.now() >= this.next) await this.readLists(stats);
    this.sample();
  }

  sample() {
    const {stats, devices} = this;
    const moved = stats.transfers;
    const sample = {
      at: Date.now(),
      used_bytes: stats.pools.reduce((sum, p) => sum + p.used_bytes, 0) + this.ownPools('used_bytes'),
      reserved_bytes: stats.pools.reduce((sum, p) => sum + p.reserved_bytes, 0) + this.ownPools('reserved_bytes'),
      buffer_bytes: stats.buffers.bytes,
      upload_bytes: moved.upload.bytes,
      download_bytes: moved.download.bytes,
      copy_seconds: moved.upload.seconds_copying + moved.download.seconds_copying,
      queue_seconds: moved.upload.seconds_queued + moved.download.seconds_queued,
      devices: devices.map((d) => d.total_bytes - d.free_bytes),
    };
    this.samples.push(sample);
    if (this.samples.length > SAMPLES_MAX) this.samples.splice(0, this.samples.length - SAMPLES_MAX);
  }

  // Of pools that sessions made; /v1/stats has those of the devices.
  ownPools(what) {
    return this.lists.pools.reduce((sum, p) => sum + (p.session ? p[what] : 0), 0);
  }

  async readLists(stats) {
    const begun = performance.now();
    const sequence = stats.sequence;
    const note = {};
    const sessions = await list('/v1/sessions', SESSIONS_MAX);
    if (sessions.more) note.sessions = `the first ${SESSIONS_MAX} of ${stats.sessions.count} were read`;
    const pools = stats.pools.map((p) => ({...p, session: ''}));
    const buffers = [];
    for (const [i, s] of sessions.items.entries()) {
      if (i < POOLS_OF_MAX) pools.push(...await this.ofSession(s, 'pools', 1000));
      if (s.buffers > 0 && buffers.length < BUFFERS_MAX) buffers.push(...await this.ofSession(s, 'buffers', BUFFERS_MAX - buffers.length));
    }
    if (buffers.length < stats.buffers.count && buffers.length >= BUFFERS_MAX) note.buffers = `the first ${BUFFERS_MAX} of ${stats.buffers.count} were read`;
    if (sessions.items.length > POOLS_OF_MAX) note.pools = `of the first ${POOLS_OF_MAX} sessions`;
    this.lists = {sessions: sessions.items, pools, buffers, note};
    this.sequence = sequence;
    this.stale--;
    // What takes long is done the less often.
    this.next = Date.now() + 4 * (performance.now() - begun);
    this.dispatchEvent(new Event('lists'));
  }

  async ofSession(session, what, limit) {
    try {
      const {items} = await list(`${sessionPath(session.name)}/${what}`, limit);
      // The device's own pool is in every session's list.
      return items.filter((x) => what !== 'pools' || x.name !== 'default').map((x) => ({...x, session: session.name}));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return []; // removed meanwhile
      throw error;
    }
  }
}

// Sessions, their pools and their buffers. Only those that the feed names are read again.
import {Refused, list, sessionPath} from './ask.js';

const APART_MS = 1500; // two readings
const UNTOLD_MS = 5000; // after a change that is not in the feed
const REFRESH_MS = 30000; // all, also without a change
const SESSIONS_MAX = 1000;
const BUFFERS_MAX = 5000; // the most rows that the page reads
const POOLS_OF_MAX = 100; // the most sessions whose pools are read

export class Lists {
  // shown() is called after each reading.
  constructor(shown) {
    this.shown = shown;
    this.error = null; // of the last reading
    this.lists = {sessions: [], pools: [], buffers: [], note: {}};
    this.of = new Map(); // session: {pools, buffers}
    this.following = false; // the feed is connected
    this.next = 0; // no reading before this time
    this.allAt = 0; // time of the next reading of all
    this.due = 0; // time of the next reading
    this.dirty = new Set();
    this.pooled = new Set(); // of those, the sessions whose pools changed
    this.settling = new Set(); // to read once more: memory of pools is free only when its stream has reached the free
    this.timer = 0;
    this.running = false;
  }

  // Reads all sessions as soon as permitted.
  all() {
    this.error = null;
    this.allAt = 0;
    this.due = 0;
  }

  // The daemon acknowledged a change. If the feed is connected, it names the change.
  changed() {
    if (!this.following) this.all();
    else this.due = Math.min(this.due, Date.now() + UNTOLD_MS);
  }

  heard(event) {
    if (/gap|started/.test(event.type)) this.all();
    else if (/^(session|pool|buffer|lease|quota)\./.test(event.type)) {
      if (event.session) this.dirty.add(event.session);
      if (event.session && event.type.startsWith('pool.')) this.pooled.add(event.session);
      this.due = 0;
    } else {
      return;
    }
    this.soon();
  }

  // Reads if it is time.
  soon() {
    clearTimeout(this.timer);
    if (this.running || document.hidden) return;
    this.timer =
      setTimeout(() => this.read(), Math.max(0, Math.max(this.next, Math.min(this.due, this.allAt)) - Date.now()));
  }

  async read() {
    this.running = true;
    const begun = Date.now();
    try {
      await this.readNow();
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.running = false;
    // The slower a reading is, the less often it runs.
    this.next = Math.max(begun + APART_MS, Date.now() + 4 * (Date.now() - begun));
    if (!this.error) this.soon();
    this.shown();
  }

  async readNow() {
    const {dirty, pooled} = this;
    const all = Date.now() >= this.allAt;
    this.dirty = new Set();
    this.pooled = new Set();
    this.due = Infinity;
    const note = {};
    try {
      const sessions = await list('/v1/sessions', SESSIONS_MAX);
      if (sessions.more) note.sessions = `the first ${SESSIONS_MAX} were read`;
      await this.readSessions(sessions.items, (s) => all || dirty.has(s.name), (s) => all || pooled.has(s.name), note);
      if (all) this.allAt = Date.now() + REFRESH_MS;
    } catch (error) {
      this.allAt = 0; // the reading failed
      throw error;
    }
  }

  async readSessions(sessions, wanted, poolsWanted, note) {
    const of = new Map();
    let rows = 0;
    for (const [i, s] of sessions.entries()) {
      const before = this.of.get(s.name);
      const same = before && JSON.stringify(before.session) === JSON.stringify(s);
      let own = before;
      if (!same || wanted(s)) {
        own = {session: s, pools: before?.pools ?? [], buffers: []};
        if (i < POOLS_OF_MAX && (!before || own.pools.length || poolsWanted(s)))
          own.pools = await this.ofSession(s, 'pools', 1000);
        if (s.buffers > 0 && rows < BUFFERS_MAX) own.buffers = await this.ofSession(s, 'buffers', BUFFERS_MAX - rows);
        this.settle(s.name, own.pools.length > 0);
      }
      of.set(s.name, own);
      rows += own.buffers.length;
    }
    const held = sessions.reduce((n, s) => n + s.buffers, 0);
    if (rows < held && rows >= BUFFERS_MAX) note.buffers = `the first ${BUFFERS_MAX} of ${held} were read`;
    if (sessions.length > POOLS_OF_MAX) note.pools = `of the first ${POOLS_OF_MAX} sessions`;
    this.of = of;
    const own = [...of.values()];
    this.lists = {sessions, pools: own.flatMap((o) => o.pools), buffers: own.flatMap((o) => o.buffers), note};
  }

  settle(name, pools) {
    if (!pools || this.settling.delete(name)) return;
    this.settling.add(name);
    this.dirty.add(name);
    this.due = 0;
  }

  async ofSession(session, what, limit) {
    try {
      const {items} = await list(`${sessionPath(session.name)}/${what}`, limit);
      // The device's own pool is in every session's list.
      return items.filter((x) => what !== 'pools' || x.name !== 'default').map((x) => ({...x, session: session.name}));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return []; // the session was removed meanwhile
      throw error;
    }
  }
}

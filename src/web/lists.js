// Sessions, their pools and their buffers: read again when the feed tells of them, and of those alone.
import {Refused, list, sessionPath} from './ask.js';

const APART_MS = 1500; // two readings
const UNTOLD_MS = 5000; // after a change of which the feed says nothing
const REFRESH_MS = 30000; // all, also without a change
const SESSIONS_MAX = 1000;
const BUFFERS_MAX = 5000; // rows read in all; a page is no place for more
const POOLS_OF_MAX = 100; // sessions whose pools are asked for

export class Lists {
  // shown() is called after each reading.
  constructor(shown) {
    this.shown = shown;
    this.error = null; // of the last reading
    this.lists = {sessions: [], pools: [], buffers: [], note: {}};
    this.of = new Map(); // session: {pools, buffers}
    this.following = false; // the feed tells what changes
    this.next = 0; // nothing is read before
    this.allAt = 0; // all are read then
    this.due = 0; // something is to be read then
    this.dirty = new Set();
    this.pooled = new Set(); // of those, the ones whose pools are others
    this.settling = new Set(); // read once more: memory of pools is free only when its stream has come so far
    this.timer = 0;
    this.running = false;
  }

  // All of them, as soon as may be.
  all() {
    this.error = null;
    this.allAt = 0;
    this.due = 0;
  }

  // The daemon acknowledged something. The feed, if there is one, says what, if it is of interest.
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

  // Reads when it is time.
  soon() {
    clearTimeout(this.timer);
    if (this.running || document.hidden) return;
    this.timer = setTimeout(() => this.read(), Math.max(0, Math.max(this.next, Math.min(this.due, this.allAt)) - Date.now()));
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
    // What takes long is done the less often.
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
      this.allAt = 0; // what was to be read was not
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
        if (i < POOLS_OF_MAX && (!before || own.pools.length || poolsWanted(s))) own.pools = await this.ofSession(s, 'pools', 1000);
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
      if (error instanceof Refused && error.status === 404) return []; // removed meanwhile
      throw error;
    }
  }
}

// A session: its numbers, its history, its pools and its buffers.
import {byId, bytes, count, dated, el, rate, setText, span} from './text.js';
import {Gone, Refused, get, sessionPath} from './ask.js';
import {Plot} from './charts.js';
import {RANGES} from './history.js';
import {bufferTable, poolTable} from './views.js';

const EVERY_MS = 10000; // two readings of the history

const PLOTS = [
  {
    id: 'session-bytes',
    title: 'Memory of its buffers',
    show: bytes,
    binary: true,
    fill: true,
    lines: [{
      label: 'in buffers',
      colour: 'series-1',
      of: (item) => item.buffer_bytes?.mean,
      most: (item) => item.buffer_bytes?.max
    }]
  },
  {
    id: 'session-rates',
    title: 'Its transfers',
    show: rate,
    binary: true,
    lines: [
      {label: 'uploads', colour: 'series-1', of: (item) => item.upload_bytes?.rate_per_s},
      {label: 'downloads', colour: 'series-3', of: (item) => item.download_bytes?.rate_per_s}
    ]
  },
];

const limit = (n, show) => (n === null || n === undefined ? 'no limit' : `of ${show(n)}`);

function aboutOf(s) {
  const labels = Object.entries(s.labels).map(([key, value]) => `${key}=${value}`).join(' ');
  return [
    labels, `durability ${s.durability}`, `spill ${s.spill}`, `priority ${s.priority}`,
    s.pool !== 'default' && `pool ${s.pool}`,
    s.idle_ttl_s ? `deleted when idle for ${span(s.idle_ttl_s)}` : 'stays when idle',
    s.fleet && `registered, epoch ${s.fleet.epoch}`, `made ${dated(s.created_at)}`, `changed ${dated(s.updated_at)}`
  ].filter(Boolean).join(' · ');
}

function numbersOf(s, stats) {
  const {transfers, allocations, buffers, sharing} = stats;
  return [
    ['In buffers', `${bytes(s.used_bytes)} ${limit(s.quota.bytes, bytes)}`],
    ['Buffers', `${count(s.buffers)} ${limit(s.quota.buffers, count)}`],
    ['Pinned', `${bytes(s.used_pinned_bytes)} ${limit(s.quota.pinned_bytes, bytes)}`],
    ['On disk', `${bytes(s.used_stored_bytes)} ${limit(s.quota.stored_bytes, bytes)}`],
    ['Uploaded', bytes(transfers.upload.bytes)],
    ['Downloaded', bytes(transfers.download.bytes)],
    ['Peak', bytes(allocations.peak_bytes)],
    ['Leases', count(sharing.leases)],
    ['Lost buffers', count(buffers.lost)],
    ['Failed allocations', count(allocations.failures)],
  ];
}

export class SessionView {
  // look(session, buffer) opens a buffer; range() is the chosen range in seconds.
  constructor(watch, look, range) {
    Object.assign(this, {watch, range, name: '', due: 0, dialog: byId('session')});
    this.pools = poolTable(byId('session-pools'), watch);
    this.buffers = bufferTable(byId('session-buffers'), look, 'Buffers: none');
    this.plots = PLOTS.map((spec) => new Plot(byId('session-charts'), spec));
    byId('session-close').addEventListener('click', () => this.dialog.close());
    this.tables();
  }

  open(name) {
    if (this.name === name && this.dialog.open) return;
    this.name = name;
    setText(byId('h-session'), `Session ${name}`);
    for (const id of ['session-about', 'session-said']) setText(byId(id), '');
    byId('session-numbers').replaceChildren();
    byId('session-charts').hidden = true;
    if (!this.dialog.open) this.dialog.showModal();
    this.update();
  }

  close() {
    this.name = '';
    if (this.dialog.open) this.dialog.close();
  }

  // The lists were read again.
  update() {
    if (!this.dialog.open) return;
    this.tables();
    this.read();
  }

  tick() {
    if (this.dialog.open && Date.now() >= this.due) this.read();
  }

  tables() {
    const {lists} = this.watch;
    const own = (rows) => rows.filter((row) => row.session === this.name);
    this.pools.set(own(lists.pools), lists.note.pools);
    this.buffers.set(own(lists.buffers), lists.note.buffers);
  }

  say(text) {
    setText(byId('session-said'), text);
  }

  async read() {
    const {name} = this;
    this.due = Date.now() + EVERY_MS;
    try {
      const session = (await get(sessionPath(name))).value;
      const stats = (await get(`${sessionPath(name)}/stats`)).value;
      if (name !== this.name) return;
      setText(byId('session-about'), aboutOf(session));
      const term = ([k, v]) => el('div', {}, el('dt', {}, k), el('dd', {}, v));
      byId('session-numbers').replaceChildren(...numbersOf(session, stats).map(term));
      this.say('');
      await this.readHistory(name, (Date.now() - Date.parse(session.created_at)) / 1000);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Gone)) throw error;
      if (name === this.name) this.say(error.message);
    }
  }

  // No more than the session's age, so that its line is not just the end of an axis.
  async readHistory(name, age_s) {
    const range_s = RANGES.map(([s]) => s).find((s) => s >= Math.min(age_s, this.range())) ?? this.range();
    const {items = [], restarts = []} = (await get(`${sessionPath(name)}/stats?since=-${range_s}`)).value;
    if (name !== this.name) return;
    byId('session-charts').hidden = false;
    PLOTS.forEach((spec, i) => {
      const lines = spec.lines.map(({label, colour, of, most}) => ({label, colour,
        points: items.map((item) => ({x: Date.parse(item.at), y: of(item) ?? null, most: most?.(item)}))}));
      this.plots[i].set(lines, range_s, restarts.map((at) => Date.parse(at)), '');
    });
  }
}

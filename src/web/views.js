// The present numbers, and the tables of pools, sessions and buffers.
import {byId, bytes, count, dated, el, places, placesOfSessions, rate, setText, shape, sums} from './text.js';
import {speed} from './rates.js';
import {Table} from './table.js';

const latest = (w, name) => rate(speed(w.samples, w.samples.length - 1, name));

const TILES = [
  ['used', 'In use', (w) => bytes(w.samples.at(-1)?.used_bytes)],
  ['reserved', 'Reserved', (w) => bytes(w.samples.at(-1)?.reserved_bytes)],
  ['buffers', 'Buffers', (w) => count(w.stats.buffers.count)],
  ['buffer-bytes', 'In buffers', (w) => bytes(w.stats.buffers.bytes)],
  ['session-count', 'Sessions', (w) => count(w.stats.sessions.count)],
  ['up', 'Uploading', (w) => latest(w, 'upload_bytes')],
  ['down', 'Downloading', (w) => latest(w, 'download_bytes')],
  ['running', 'Transfers under way', (w) => count(w.stats.running.uploads + w.stats.running.downloads)],
  ['leases', 'Leases', (w) => count(w.stats.sharing.leases)],
  ['failures', 'Failed allocations in total', (w) => count(w.stats.allocations.failures)],
];

export class Tiles {
  constructor() {
    this.values = TILES.map(([id, label]) => {
      const value = el('dd', {id: `now-${id}`}, '–');
      byId('tiles').append(el('div', {}, el('dt', {}, label), value));
      return value;
    });
  }

  show(watch) {
    TILES.forEach(([, , text], i) => setText(this.values[i], text(watch)));
  }
}

// A bar of used and reserved bytes and the peak, relative to the limit; the cells beside it have the numbers.
export function bar(cell, {used, reserved, peak, total}) {
  if (!cell.firstChild) {
    cell.append(el('div', {class: 'bar', 'aria-hidden': 'true'}, el('span', {class: 'reserved'}),
      el('span', {class: 'used'}), el('span', {class: 'peak'})));
  }
  const part = (n) => `${Math.min(100, total > 0 ? (100 * n) / total : 0).toFixed(2)}%`;
  const [r, u, p] = cell.firstChild.children;
  r.style.width = part(reserved);
  u.style.width = part(used);
  p.style.left = part(peak);
  p.hidden = !(peak > 0);
}

function state(cell, text) {
  setText(cell, text);
  cell.classList.toggle('bad', !['ready', 'stored'].includes(text));
}

const sized = (key, label, show = bytes) =>
  ({key, label, number: true, value: (x) => x[key], text: (x) => show(x[key])});
const named = (key, label) => ({key, label, value: (x) => x[key] || '', text: (x) => x[key] || '', class: 'name'});

function limitOf(pool, watch) {
  return pool.max_bytes ?? watch.devices.find((d) => d.index === pool.device.index)?.total_bytes ?? 0;
}

export function poolTable(parent, watch) {
  return new Table(parent, {
    caption: 'Pools',
    sort: 'used_bytes',
    id: (p) => `${p.session}/${p.name}/${p.device.index}`,
    columns: [
      {...named('name', 'Pool'), text: (p) => (p.session ? p.name : `${p.name} of device ${p.device.index}`)},
      {key: 'session', label: 'Session', value: (p) => p.session, text: (p) => p.session || 'all', class: 'name'},
      {key: 'device', label: 'Device', number: true, value: (p) => p.device.index, text: (p) => p.device.index},
      {
        key: 'share',
        label: 'Of its limit',
        value: (p) => p.used_bytes / (limitOf(p, watch) || 1),
        class: 'share',
        text: () => '',
        fill: (cell, p) =>
          bar(cell, {used: p.used_bytes, reserved: p.reserved_bytes, peak: p.used_peak_bytes, total: limitOf(p, watch)})
      },
      sized('used_bytes', 'Used'),
      sized('used_peak_bytes', 'Peak'),
      sized('reserved_bytes', 'Reserved'),
      {...sized('max_bytes', 'Limit'), text: (p) => (p.max_bytes === null ? 'none' : bytes(p.max_bytes))},
      {...sized('kept_bytes', 'Kept'), text: (p) => (p.exported ? bytes(p.kept_bytes) : '')},
      sized('buffers', 'Buffers', count),
      sized('failures', 'Failures', count),
      {
        key: 'state',
        label: 'State',
        value: (p) => p.state,
        text: (p) => p.state,
        fill: (cell, p) => state(cell, p.state)
      },
    ],
  });
}

// Of its quota, or without one of all its bytes if some have left memory; the light part is those.
function sessionBar(cell, s) {
  const left = s.places?.left || 0;
  bar(cell, {
    used: s.used_bytes,
    reserved: left && s.used_bytes + left,
    peak: 0,
    total: s.quota.bytes ?? (left && s.used_bytes + left)
  });
}

// open(session)
function sessionTable(open) {
  return new Table(byId('sessions'), {
    caption: 'Sessions',
    sort: 'used_bytes',
    id: (s) => s.name,
    open: (s) => open(s.name),
    hint: (s) => `Open the session ${s.name}`,
    columns: [
      named('name', 'Session'),
      {
        key: 'share',
        label: 'Of its quota',
        value: (s) => s.used_bytes / (s.quota.bytes || Infinity),
        class: 'share',
        text: () => '',
        fill: sessionBar
      },
      sized('used_bytes', 'Size'),
      {
        key: 'quota',
        label: 'Quota',
        number: true,
        value: (s) => s.quota.bytes ?? Infinity,
        text: (s) => (s.quota.bytes === null ? 'none' : bytes(s.quota.bytes))
      },
      sized('buffers', 'Buffers', count),
      sized('used_pinned_bytes', 'Pinned'),
      {key: 'places', label: 'Bytes in', value: (s) => s.places?.left || 0, text: (s) => sums(s.places)},
      {key: 'changed', label: 'Changed', value: (s) => s.updated_at, text: (s) => dated(s.updated_at)},
    ],
  });
}

// look(session, name)
export function bufferTable(parent, look, empty) {
  return new Table(parent, {
    caption: 'Buffers',
    sort: 'bytes',
    id: (b) => `${b.session}/${b.name}`,
    empty,
    open: (b) => look(b.session, b.name),
    hint: (b) => `Look at ${b.session}/${b.name}`,
    columns: [
      named('name', 'Buffer'),
      named('session', 'Session'),
      sized('bytes', 'Size'),
      named('dtype', 'Type'),
      {
        key: 'shape',
        label: 'Shape',
        value: (b) => b.shape.reduce((n, x) => n * x, 1),
        text: (b) => shape(b.shape),
        class: 'name'
      },
      {
        key: 'kind',
        label: 'Kind',
        value: (b) => b.kind,
        text: (b) => [
          b.kind, b.mirrored && 'mirrored', b.sealed && 'sealed', b.link && `link to ${b.link}`
        ].filter(Boolean).join(', ')
      },
      {key: 'head', label: 'Head', value: (b) => b.head || '', text: (b) => b.head || '–'},
      sized('generation', 'Generation', count),
      sized('leases', 'Leases', count),
      {key: 'changed', label: 'Changed', value: (b) => b.updated_at, text: (b) => dated(b.updated_at)},
      {
        key: 'state',
        label: 'State',
        value: (b) => b.state,
        text: (b) => b.state,
        fill: (cell, b) => state(cell, b.state)
      },
      {key: 'places', label: 'Bytes in', value: places, text: places},
      named('durability', 'Durability'),
    ],
  });
}

export class Tables {
  constructor(watch, open, look) {
    this.watch = watch;
    this.pools = poolTable(byId('pools'), watch);
    this.sessions = sessionTable(open);
    this.buffers = bufferTable(byId('buffers'), look, 'No buffers yet: drop a .npy file here, or press Upload');
  }

  showPools() {
    const {lists} = this.watch;
    this.pools.set(lists.pools, lists.note.pools);
  }

  show() {
    const {lists} = this.watch;
    const where = placesOfSessions(lists);
    this.sessions.set(lists.sessions.map((s) => ({...s, places: where?.get(s.name)})), lists.note.sessions);
    this.buffers.set(lists.buffers, lists.note.buffers);
  }

  filter(words) {
    for (const table of [this.pools, this.sessions, this.buffers]) table.filter(words);
  }
}

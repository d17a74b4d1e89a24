// The page at /fleet: the nodes of the fleet and the sessions that are registered, as the node that serves the page
// knows them.
import {Gone, Refused, forget, get, list} from './ask.js';
import * as address from './address.js';
import {byId, bytes, count, el, setText, span} from './text.js';
import {Table} from './table.js';
import * as theme from './theme.js';
import * as tokens from './token.js';
import {bar} from './views.js';

const EVERY_MS = 3000;
const SELDOM_MS = 15000; // the page is hidden
const SESSIONS_MAX = 2000;

const SAID = {
  connecting: 'Connecting', connected: 'Connected', gone: 'The node does not answer', token: 'A token is needed',
  forbidden: 'Not permitted', failed: 'The node reports an error',
};

const labelsText = (labels) => Object.entries(labels || {}).map(([key, value]) => `${key}=${value}`).join(' ');
const sum = (node, what) => (node.devices || []).reduce((n, d) => n + (d[what] || 0), 0);
const known = (node, what) => (node.alive ? sum(node, what) : null); // by those that are alive alone
const stateOf = (node) => (!node.alive ? 'absent' : node.draining ? 'draining' : 'ready');
const named = (key, label) => ({key, label, value: (x) => x[key] || '', text: (x) => x[key] || '', class: 'name'});
const sized = (key, label, of) => ({key, label, number: true, value: of, text: (x) => bytes(of(x))});

let sessionsOf = new Map(); // number of sessions of each node
let own = {}; // the URLs of this node, by networks
let absent = new Set(); // names of nodes

// The node's address in the network in which the reader has reached this one.
function urlOf(node) {
  const network = Object.keys(own).find((name) => own[name].replace(/\/+$/, '') === location.origin);
  const url = node.urls?.[network] || node.urls?.default || Object.values(node.urls || {})[0] || '';
  return /^https?:\/\//.test(url) ? url : '';
}

const nodes = new Table(byId('nodes'), {
  caption: 'Nodes',
  sort: 'name',
  ascending: true,
  limit: 1000,
  id: (n) => n.name,
  empty: 'No node is registered',
  columns: [
    {
      ...named('name', 'Node'),
      fill: (cell, n) => {
        if (!cell.firstChild) cell.append(el('a', {rel: 'noreferrer'}));
        const link = cell.firstChild;
        setText(link, n.name);
        if (urlOf(n))
          link.href = `${urlOf(n).replace(/\/+$/, '')}/fleet`;
        else
          link.removeAttribute('href');
      }
    },
    {
      key: 'state',
      label: 'State',
      value: stateOf,
      text: stateOf,
      fill: (cell, n) => {
        setText(cell, stateOf(n));
        cell.classList.toggle('bad', !n.alive);
      }
    },
    {
      key: 'share',
      label: 'Memory in use',
      value: (n) => (n.alive ? 1 - sum(n, 'free_bytes') / (sum(n, 'bytes') || 1) : -1),
      class: 'share',
      text: () => '',
      fill: (cell, n) => bar(cell, {
        used: n.alive ? sum(n, 'bytes') - sum(n, 'free_bytes') : 0,
        reserved: 0,
        peak: known(n, 'committed_bytes') || 0,
        total: sum(n, 'bytes')
      })
    },
    sized('free', 'Free', (n) => known(n, 'free_bytes')),
    sized('committed', 'Committed', (n) => known(n, 'committed_bytes')),
    sized('memory', 'Memory', (n) => sum(n, 'bytes')),
    {
      key: 'devices',
      label: 'Devices',
      number: true,
      value: (n) => n.devices?.length || 0,
      text: (n) => count(n.devices?.length || 0)
    },
    {
      key: 'sessions',
      label: 'Sessions',
      number: true,
      value: (n) => sessionsOf.get(n.name) || 0,
      text: (n) => count(sessionsOf.get(n.name) || 0)
    },
    {
      key: 'labels',
      label: 'Labels',
      value: (n) => labelsText(n.labels),
      text: (n) => labelsText(n.labels),
      class: 'name'
    },
    named('version', 'Version'),
  ],
});

const sessions = new Table(byId('sessions'), {
  caption: 'Sessions',
  sort: 'name',
  ascending: true,
  limit: 500,
  id: (s) => s.name,
  empty: 'No session is registered',
  columns: [
    named('name', 'Session'),
    named('node', 'Node'),
    {key: 'epoch', label: 'Epoch', number: true, value: (s) => s.epoch, text: (s) => count(s.epoch)},
    {
      key: 'quota',
      label: 'Quota',
      number: true,
      value: (s) => s.quota?.bytes ?? Infinity,
      text: (s) => (s.quota?.bytes === null || s.quota?.bytes === undefined ? 'none' : bytes(s.quota.bytes))
    },
    {
      key: 'copies',
      label: 'Copies at',
      value: (s) => s.holders?.length || 0,
      text: copiesOf,
      class: 'name',
      fill: (cell, s) => {
        setText(cell, copiesOf(s));
        cell.classList.toggle(
          'bad', (s.holders || []).some((name) => absent.has(name)) || (s.replicas || 0) > (s.holders || []).length);
      }
    },
    named('on_partition', 'When cut off'),
    {
      key: 'labels',
      label: 'Labels',
      value: (s) => labelsText(s.labels),
      text: (s) => labelsText(s.labels),
      class: 'name'
    },
  ],
});

// The nodes that have copies of a session's sealed buffers, or are about to; how many more there are to be.
function copiesOf({holders = [], replicas = 0}) {
  const at = holders.map((name) => (absent.has(name) ? `${name} (absent)` : name)).join(', ');
  const lacking = Math.max(0, replicas - holders.length);
  return [at, lacking && `${count(lacking)} wanted`].filter(Boolean).join(', ');
}

function say(connection, alarm) {
  document.body.dataset.connection = connection;
  setText(byId('connection-text'), SAID[connection]);
  byId('alarm').hidden = !alarm;
  setText(byId('alarm'), alarm);
}

function alarmOf(fleet, list) {
  if (fleet.state === 'none') return 'This daemon is in no fleet: it was started without --fleet.';
  const parts = [];
  if (fleet.state !== 'joined') {
    const s = fleet.since ? ` for ${span((Date.now() - Date.parse(fleet.since)) / 1000)}` : '';
    parts.push(`This node is ${fleet.state}${s}${fleet.why ? `: ${fleet.why}` : ''}. It serves its own sessions.`);
  }
  const absent = list.filter((n) => !n.alive).map((n) => n.name);
  if (absent.length) parts.push(`Absent: ${absent.join(', ')}.`);
  return parts.join(' ');
}

async function read() {
  const {value: fleet} = await get('/v1/fleet');
  own = fleet.urls || {};
  if (fleet.state === 'none') {
    setText(byId('about'), location.host);
    return say('connected', alarmOf(fleet, []));
  }
  setText(byId('about'), `${fleet.fleet} · node ${fleet.node} · ${fleet.state}${fleet.draining ? ', draining' : ''}`);
  let listed = [];
  let why = '';
  try {
    listed = (await get('/v1/fleet/nodes')).value.items;
    absent = new Set(listed.filter((n) => !n.alive).map((n) => n.name));
    const registered = await list('/v1/fleet/sessions', SESSIONS_MAX);
    sessionsOf = registered.items.reduce((of, s) => of.set(s.node, (of.get(s.node) || 0) + 1), new Map());
    nodes.set(listed);
    sessions.set(registered.items, registered.more ? `the first ${SESSIONS_MAX} were read` : '');
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 503) throw error;
    why = ` ${error.message}. The tables are outdated.`; // the directory is silent; the node is not
  }
  return say('connected', `${alarmOf(fleet, listed)}${why}`.trim());
}

function failed(error) {
  if (error instanceof Gone) say('gone', 'The node has not answered. The values shown are outdated.');
  else if (error instanceof Refused && error.status === 401) say('token', 'The daemon requires a token: press Token.');
  else if (error instanceof Refused && error.status === 403)
    say('forbidden', `This token may not read the fleet: ${error.message}`);
  else if (error instanceof Refused) say('failed', `The node has reported an error: ${error.message}`);
  else throw error;
}

let timer = 0;

async function round() {
  clearTimeout(timer);
  try {
    await read();
  } catch (error) {
    failed(error);
  } finally {
    clearTimeout(timer);
    timer = setTimeout(round, document.hidden ? SELDOM_MS : EVERY_MS);
  }
}

byId('filter').addEventListener('input', (event) => {
  [nodes, sessions].forEach((table) => table.filter(event.target.value));
  address.change({filter: event.target.value});
});
address.start((shown) => {
  byId('filter').value = shown.filter;
  [nodes, sessions].forEach((table) => table.filter(shown.filter));
});
document.title = `${location.host} · gpubufd fleet`;
document.addEventListener('visibilitychange', () => document.hidden || round());
theme.start(() => {});
tokens.start(() => {
  forget();
  round();
});
round();

// The page at /: creates and connects its parts.
import {byId, count, el, setText, span} from './text.js';
import * as address from './address.js';
import {Gone, Refused, get} from './ask.js';
import * as foot from './foot.js';
import * as theme from './theme.js';
import * as tokens from './token.js';
import {Charts} from './charts.js';
import {Devices} from './devices.js';
import {Feed} from './feed.js';
import {History, RANGES} from './history.js';
import {Look} from './look.js';
import {warnings} from './room.js';
import {SessionView} from './session.js';
import {Tables, Tiles} from './views.js';
import {Upload} from './upload.js';
import {Watch} from './watch.js';

const watch = new Watch();
const history = new History(watch);
const charts = new Charts(byId('charts'), history);
const tiles = new Tiles();
const devices = new Devices();
const look = new Look(() => watch.soon());
const session = new SessionView(watch, openBuffer, () => history.range);
const tables = new Tables(watch, openSession, openBuffer);
const feed = new Feed(
  (event) => watch.heard(event), (following) => watch.follows(following), (group) => address.change({feed: group}));
new Upload(watch, () => watch.soon());

const SAID = {
  connecting: 'Connecting', connected: 'Connected', gone: 'The daemon does not answer', token: 'A token is needed',
  forbidden: 'Not permitted', failed: 'The daemon reports an error',
};

// The warning to show, else ''. Two texts: the duration is shown between them.
function alarm() {
  if (watch.connection === 'gone')
    return ['The daemon has not answered for ', '. The values shown are outdated; they update again once it answers.'];
  if (watch.connection === 'failed')
    return ['The daemon has reported an error for ', `: ${watch.why}. The values shown are outdated.`];
  if (watch.connection === 'forbidden') return `This token may not read the daemon's numbers: ${watch.why}`;
  if (watch.connection === 'token') return 'The daemon requires a token: press Token.';
  const lost = watch.stats?.buffers.lost || 0;
  const pools = watch.lists.pools.filter((p) => p.state === 'lost');
  const parts = [];
  const poolName = (p) => (p.session ? `${p.session}/${p.name}` : `device ${p.device.index}`);
  if (lost === 1) parts.push('1 buffer has lost its bytes');
  else if (lost) parts.push(`${count(lost)} buffers have lost their bytes`);
  if (pools.length) parts.push(`${pools.map(poolName).join(', ')}: pool lost`);
  return parts.length ? `Memory is lost: ${parts.join('; ')}.` : '';
}

// A reader of the screen hears it again only when it has changed.
function showRoom(sentences) {
  const room = byId('room');
  room.hidden = !sentences.length;
  if (room.textContent !== sentences.join('')) room.replaceChildren(...sentences.map((s) => el('p', {}, s)));
}

function showState() {
  const {root} = watch;
  document.body.dataset.connection = watch.connection;
  setText(byId('connection-text'), SAID[watch.connection]);
  const text = alarm();
  const [before, after] = Array.isArray(text) ? text : [text, ''];
  byId('alarm').hidden = !text;
  setText(byId('alarm-before'), before);
  setText(byId('alarm-for'), after && span((Date.now() - watch.since) / 1000));
  setText(byId('alarm-after'), after);
  if (root) {
    const up = span((Date.now() - Date.parse(root.started_at)) / 1000);
    setText(byId('about'), `${root.version} · ${location.host} · ${root.backend.name} · up ${up}`);
  }
  const known = watch.stats && watch.connection === 'connected';
  showRoom(known ? warnings(watch) : []);
  if (!known) return;
  tables.showPools();
  tiles.show(watch);
  devices.show(watch);
}

async function showCharts() {
  charts.draw();
  if (watch.connection === 'connected' && await history.refresh()) {
    setText(byId('history-note'), history.note);
    charts.draw();
  }
}

// Shows something else, until the back button.
function go(parts) {
  address.change(parts, {step: true});
  apply(address.shown());
}

function openSession(name) {
  go({session: name});
}

function openBuffer(of, name) {
  go({buffer: `${of}/${name}`});
}

// A dialog was closed, by its reader or because the address no longer has it.
function closed(part) {
  if (address.shown()[part]) go({[part]: ''});
}

// Times are shown in another zone.
function showTimes() {
  feed.retime();
  tables.show();
  session.update();
  charts.draw();
}

// Shows what the address says.
function apply(shown) {
  const range = RANGES.some(([s]) => String(s) === shown.range) ? Number(shown.range) : RANGES[0][0];
  if (range !== history.range) {
    history.choose(range);
    showCharts();
  }
  byId('range').value = range;
  byId('filter').value = shown.filter;
  tables.filter(shown.filter);
  feed.choose(shown.feed);
  if (byId('time').value !== shown.time) {
    foot.showZone(shown.time);
    showTimes();
  }
  if (shown.session) session.open(shown.session);
  else session.close();
  const [of, name] = shown.buffer.split('/');
  if (of && name) look.open(of, name);
  else look.close();
  document.title = [shown.buffer || shown.session, location.host, 'gpubufd'].filter(Boolean).join(' · ');
}

// The link to the nodes of the fleet, if the daemon is in one.
async function showFleet() {
  try {
    byId('fleet').hidden = (await get('/v1/fleet')).value.state === 'none';
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Gone)) throw error;
  }
}

let connected = false;
watch.addEventListener('state', () => {
  showState();
  const now = watch.connection === 'connected';
  if (now && !connected) {
    history.due = 0;
    feed.start();
    showFleet();
  }
  if (now !== connected) showCharts();
  connected = now;
});
watch.addEventListener('tick', () => {
  if (document.hidden) return;
  showState();
  showCharts();
  session.tick();
});
watch.addEventListener('lists', () => {
  tables.show();
  tables.showPools();
  session.update();
});

byId('range').append(...RANGES.map(([s, label]) => el('option', {value: s}, label)));
byId('range').addEventListener(
  'change', (event) => go({range: event.target.value === String(RANGES[0][0]) ? '' : event.target.value}));
byId('filter').addEventListener('input', (event) => {
  tables.filter(event.target.value);
  address.change({filter: event.target.value});
});
for (const [id, part] of [['session', 'session'], ['look', 'buffer']]) {
  byId(id).addEventListener('close', () => byId(id).open || closed(part));
}
byId('no-charts').hidden = Boolean(window.Chart);
theme.start(() => {
  charts.draw();
  session.update();
});
foot.start((time) => {
  address.change({time});
  showTimes();
});
tokens.start(() => {
  connected = false;
  history.due = 0;
  watch.restart();
  look.again();
});
address.start(apply);
watch.start();

// The page at /: creates and connects its parts.
import {byId, count, el, setText, span} from './text.js';
import {Gone, Refused, get} from './ask.js';
import * as theme from './theme.js';
import * as tokens from './token.js';
import {Charts} from './charts.js';
import {Devices} from './devices.js';
import {Feed} from './feed.js';
import {History, RANGES} from './history.js';
import {Look} from './look.js';
import {Tables, Tiles} from './views.js';
import {Upload} from './upload.js';
import {Watch} from './watch.js';

const watch = new Watch();
const history = new History(watch);
const charts = new Charts(byId('charts'), history);
const tiles = new Tiles();
const devices = new Devices();
const look = new Look();
const tables = new Tables(watch, (session, name) => look.open(session, name));
const feed = new Feed((event) => watch.heard(event), (following) => watch.follows(following));
new Upload(watch, () => watch.soon());

const SAID = {
  connecting: 'Connecting', connected: 'Connected', gone: 'The daemon does not answer', token: 'A token is needed',
  forbidden: 'Not permitted', failed: 'The daemon reports an error',
};

// The warning to show, else ''. Two texts: the duration is shown between them.
function alarm() {
  if (watch.connection === 'gone') return ['The daemon has not answered for ', '. The values shown are outdated; they update again once it answers.'];
  if (watch.connection === 'failed') return ['The daemon has reported an error for ', `: ${watch.why}. The values shown are outdated.`];
  if (watch.connection === 'forbidden') return `This token may not read the daemon's numbers: ${watch.why}`;
  if (watch.connection === 'token') return 'The daemon requires a token: press Token.';
  const lost = watch.stats?.buffers.lost || 0;
  const pools = watch.lists.pools.filter((p) => p.state === 'lost');
  const parts = [];
  if (lost) parts.push(`${count(lost)} ${lost === 1 ? 'buffer has' : 'buffers have'} lost ${lost === 1 ? 'its' : 'their'} bytes`);
  if (pools.length) parts.push(`${pools.map((p) => (p.session ? `${p.session}/${p.name}` : `device ${p.device.index}`)).join(', ')}: pool lost`);
  return parts.length ? `Memory is lost: ${parts.join('; ')}.` : '';
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
  if (root) setText(byId('about'), `${root.version} · ${location.host} · ${root.backend.name} · up ${span((Date.now() - Date.parse(root.started_at)) / 1000)}`);
  if (!watch.stats || watch.connection !== 'connected') return;
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

function chooseRange() {
  history.choose(Number(byId('range').value));
  showCharts();
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
});
watch.addEventListener('lists', () => {
  tables.show();
  tables.showPools();
});

byId('range').append(...RANGES.map(([s, label]) => el('option', {value: s}, label)));
byId('range').addEventListener('change', chooseRange);
byId('filter').addEventListener('input', (event) => tables.filter(event.target.value));
byId('no-charts').hidden = Boolean(window.Chart);
theme.start(() => charts.draw());
tokens.start(() => {
  connected = false;
  history.due = 0;
  watch.restart();
});
watch.start();

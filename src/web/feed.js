// Follows /v1/feed. EventSource sends no Authorization, so the stream is read by fetch.
import {byId, bytes, clock, el, setText} from './text.js';
import {Gone, Refused, ask} from './ask.js';

const KEEP = 200;
const AGAIN_MS = 2000;
const BEFORE = 50; // events from before the page was opened
const GROUPS = ['all', 'session', 'pool', 'buffer', 'memory', 'quota', 'lease', 'device', 'daemon', 'storage'];
const BAD = /lost|exhausted|exceeded|failed|health|gap|damaged|rolled_back|storage.full/;

// Cuts a text stream into server-sent events: feed(text) calls event({id, type, data}) for each whole one.
export class Parser {
  constructor(event) {
    this.event = event;
    this.rest = '';
    this.clear();
  }

  clear() {
    this.type = 'message';
    this.data = [];
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === '') {
      if (this.data.length) this.event({id: this.id, type: this.type, data: this.data.join('\n')});
      this.clear();
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return; // a heartbeat
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.type = value;
    else if (field === 'id') this.id = value;
  }
}

function sentence(event) {
  const what = [event.session, event.buffer || event.pool].filter((x) => typeof x === 'string' && x).join('/');
  const parts = [what];
  if (event.buffer && event.pool && event.pool !== 'default') parts.push(`pool ${event.pool}`);
  const device = event.device?.index ?? event.device;
  if (Number.isInteger(device)) parts.push(`device ${device}`);
  if (Number.isFinite(event.bytes)) parts.push(bytes(event.bytes));
  if (typeof event.head === 'string') parts.push(`head ${event.head}`);
  for (const key of ['reason', 'detail', 'missed']) {
    if (['string', 'number'].includes(typeof event[key]))
      parts.push(`${key === 'detail' ? '' : `${key} `}${event[key]}`);
  }
  return parts.filter(Boolean).join(' · ');
}

function timeOf(at) {
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? '' : clock(ms);
}

export class Feed {
  // heard(event) is called with every event; followed(connected) when the feed connects and when it disconnects;
  // chosen(group) when the reader wants other events.
  constructor(heard, followed, chosen) {
    Object.assign(this, {heard, followed});
    this.last = '';
    this.paused = false;
    this.waiting = [];
    this.stop = null;
    this.log = byId('feed');
    byId('feed-type').append(...GROUPS.map((g) => el('option', {value: g}, g)));
    byId('feed-type').addEventListener('change', () => {
      chosen(this.group === GROUPS[0] ? '' : this.group);
      this.filter();
    });
    byId('feed-pause').addEventListener('click', () => this.pause());
  }

  pause() {
    this.paused = !this.paused;
    byId('feed-pause').setAttribute('aria-pressed', String(this.paused));
    setText(byId('feed-pause'), this.paused ? 'Resume' : 'Pause');
    if (!this.paused) this.waiting.splice(0).forEach((event) => this.add(event));
    this.say();
  }

  say(text = this.said) {
    this.said = text;
    setText(byId('feed-state'), this.paused ? `Paused; ${this.waiting.length} new` : text || '');
  }

  get group() {
    return byId('feed-type').value;
  }

  choose(group) {
    byId('feed-type').value = GROUPS.includes(group) ? group : GROUPS[0];
    this.filter();
  }

  // The zone of times is another one.
  retime() {
    for (const item of this.log.children) setText(item.firstChild, timeOf(item.firstChild.dateTime));
  }

  shown(item) {
    const {group} = this;
    return group === GROUPS[0] || item.dataset.type.startsWith(`${group}.`);
  }

  filter() {
    for (const item of this.log.children) item.hidden = !this.shown(item);
  }

  add(event) {
    const item =
      el('li', {'data-type': event.type, 'data-id': event.id ?? null, class: BAD.test(event.type) ? 'bad' : null},
        el('time', {datetime: event.at}, timeOf(event.at)), ' ', el('b', {}, event.type), ' ', sentence(event));
    item.hidden = !this.shown(item);
    this.log.prepend(item);
    while (this.log.children.length > KEEP) this.log.lastChild.remove();
  }

  take({id, type, data}) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      return;
    }
    if (id) this.last = id;
    event.type = event.type || type;
    if (this.paused) {
      this.waiting.push(event);
      this.waiting.splice(0, this.waiting.length - KEEP);
      this.say();
    } else {
      this.add(event);
    }
    this.heard(event);
  }

  // Connects or reconnects; an old connection ends.
  start() {
    this.stop?.abort();
    this.stop = new AbortController();
    this.run(this.stop.signal);
  }

  async run(signal) {
    while (!signal.aborted) {
      try {
        await this.follow(signal);
        this.say('The feed ended; connecting again');
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status !== 503 && error.status !== 429) {
          this.say(error.status === 404 ? 'This daemon has no feed' : `No feed: ${error.message}`);
          return;
        }
        const gone = 'The daemon does not answer; the feed resumes once it does';
        this.say(error instanceof Gone ? gone : `No feed: ${error.message}`);
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }

  // Start a few events back, so that recent ones are shown, too.
  async begin(signal) {
    const {last_id: last} = await (await ask('/v1/feed?limit=1', {more: {Accept: 'application/json'}, signal})).json();
    if (Number.isInteger(last)) this.last = String(Math.max(0, last - BEFORE));
  }

  async follow(signal) {
    const more = {Accept: 'text/event-stream'};
    if (!this.last) await this.begin(signal);
    if (this.last) more['Last-Event-ID'] = this.last;
    const response = await ask('/v1/feed', {more, signal});
    this.say('Following');
    this.followed(true);
    const parser = new Parser((event) => this.take(event));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        parser.feed(value);
      }
    } finally {
      if (!signal.aborted) this.followed(false);
    }
  }
}

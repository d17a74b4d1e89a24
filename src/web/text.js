// Elements and texts. Text of the daemon is inserted as text nodes, never as markup.

export function byId(id) {
  return document.getElementById(id);
}

// el('td', {class: 'number'}, 'text', child)
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Follows a link, as to a download or another tab.
export function follow(attributes) {
  el('a', attributes).click();
}

// The same to bytes that the page holds, which the browser has taken within a minute.
export function followHeld(blob, attributes) {
  const href = URL.createObjectURL(blob);
  follow({...attributes, href});
  setTimeout(() => URL.revokeObjectURL(href), 60000);
}

// Writes only differences, so that screen readers do not repeat text and the layout stays.
export function setText(element, text) {
  const s = String(text);
  if (element.textContent !== s) element.textContent = s;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return '–';
  let unit = 0;
  let value = Math.abs(n);
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const shown = unit === 0 ? String(Math.round(value)) : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
  return `${n < 0 ? '-' : ''}${shown} ${UNITS[unit]}`;
}

export function rate(n) {
  return n === null || n === undefined ? '–' : `${bytes(n)}/s`;
}

export function count(n) {
  return n === null || n === undefined ? '–' : Number(n).toLocaleString('en').replaceAll(',', '\u202f');
}

export function shape(axes) {
  return axes.map(count).join(' × ') || 'scalar';
}

// Where a buffer's bytes are: in memory of the device or of the host, on the daemon's disk, or both.
export function places(buffer) {
  const at = buffer.tier ?? '–';
  if (buffer.tier === null || at === 'disk' || buffer.stored_generation === null) return at;
  if (buffer.stored_generation === buffer.generation) return `${at}, disk`;
  return `${at}; disk has generation ${buffer.stored_generation}`;
}

// The bytes of each session's buffers by where they are, and of them those that have left their memory. null: not all
// buffers are listed.
export function placesOfSessions({buffers, note}) {
  if (note.buffers) return null;
  const sums = new Map();
  for (const b of buffers) {
    const sum = sums.get(b.session) || {device: 0, host: 0, disk: 0, left: 0};
    if (b.tier) sum[b.tier] += b.bytes;
    if (b.state === 'stored') sum.left += b.bytes;
    sums.set(b.session, sum);
  }
  return sums;
}

export function sums(places) {
  return places
    ? ['device', 'host', 'disk'].filter((at) => places[at] > 0).map((at) => `${at} ${bytes(places[at])}`).join(', ')
    : '';
}

// A number of a tensor: enough digits to distinguish it from its neighbours.
export function value(x) {
  if (typeof x !== 'number') return '–';
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'nan' : x > 0 ? 'inf' : '-inf';
  return Number.isInteger(x) && Math.abs(x) < 1e15 ? String(x) : String(Number(x.toPrecision(6)));
}

// The edge of a bin: enough digits to distinguish it from the next.
export function edge(x, step) {
  if (!(step > 0) || !Number.isFinite(x)) return value(x);
  const unit = 10 ** (Math.floor(Math.log10(step)) - 1);
  return value(Math.round(x / unit) * unit + 0);
}

export function seconds(s) {
  if (s === null || s === undefined) return '–';
  if (s < 1e-3) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(3))} ms`;
  return s < 120 ? `${s.toFixed(1)} s` : span(s);
}

export function span(s) {
  const whole = Math.max(0, Math.floor(s));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
}

function two(n) {
  return String(n).padStart(2, '0');
}

let utc = false;

export function setZone(name) {
  utc = name === 'utc';
}

// As in 'UTC+02:00': of the times that the page shows now, or at that moment.
export function zone(ms = Date.now()) {
  const minutes = utc ? 0 : -new Date(ms).getTimezoneOffset();
  const size = Math.abs(minutes);
  return minutes ? `UTC${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}` : 'UTC';
}

// [year, month, day, hours, minutes, seconds] in the chosen zone, each of two digits but the year.
function parts(ms) {
  const at = new Date(utc ? ms : ms - 60000 * new Date(ms).getTimezoneOffset());
  const [day, time] = at.toISOString().split('T');
  return [...day.split('-'), ...time.slice(0, 8).split(':')];
}

export function clock(ms) {
  return parts(ms).slice(3).join(':');
}

// As 2026-11-22 13:20:00, of what the daemon says in UTC.
export function dated(at) {
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? '' : `${parts(ms).slice(0, 3).join('-')} ${clock(ms)}`;
}

// The time in a table of values; rows of one range always differ.
export function stamp(ms, range_s) {
  const [, month, day, hours, minutes] = parts(ms);
  return range_s > 2 * 86400 ? `${month}-${day} ${hours}:${minutes}` : moment(ms, range_s);
}

// The time on an axis of the given length in seconds.
export function moment(ms, range_s) {
  const [, month, day, hours, minutes] = parts(ms);
  if (range_s > 2 * 86400) return `${month}-${day} ${hours}h`;
  return range_s > 7200 ? `${hours}:${minutes}` : clock(ms);
}

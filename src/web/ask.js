// Requests to the daemon, and the token that they carry.

const KEY = 'gpubufd-token';
const PATIENCE_MS = 15000;

let needed = () => {};

// What a reader of the page can do, where the daemon's own words do not say it.
const REMEDIES = {
  unauthenticated: 'Press Token to give one',
  forbidden: 'Press Token to give one that permits it',
  precondition_failed: 'It has changed since it was shown: close it and open it again',
  mapped: 'It can be done when no process maps it for writing',
  content_lost: 'Upload it again, or delete it',
  content_damaged: 'Upload it again, or delete it',
  owner_absent: 'The page /fleet shows which nodes are there',
};

function sentenceOf(status, problem) {
  const said = problem.detail || problem.title || `the daemon answered ${status}`;
  const wait_s = problem.limit?.retry_after_s;
  const later = problem.retryable ? 'Trying again later may help' : '';
  const remedy = REMEDIES[problem.code] || (wait_s ? `Wait ${wait_s} s` : later);
  return remedy ? `${said.replace(/\.$/, '')}. ${remedy}` : said;
}

// An error reply of the daemon. The message has its remedy.
export class Refused extends Error {
  constructor(status, problem) {
    super(sentenceOf(status, problem));
    this.status = status;
    this.code = problem.code || '';
  }
}

// The daemon did not answer.
export class Gone extends Error {}

export function token() {
  return sessionStorage.getItem(KEY) || '';
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// f(detail) is called when the daemon requires a token, or a different one.
export function onTokenNeeded(f) {
  needed = f;
}

export function headers(more = {}) {
  const all = {...more};
  if (token()) all.Authorization = `Bearer ${token()}`;
  return all;
}

export function tokenRefused(detail) {
  needed(detail);
}

async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return {};
  }
}

// The response, whatever its body; Refused or Gone. 304 is a response.
export async function ask(path, {method = 'GET', more = {}, signal} = {}) {
  const sent = token();
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: headers(more),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: signal || AbortSignal.timeout(PATIENCE_MS)
    });
  } catch (error) {
    throw signal?.aborted ? error : new Gone(error.message);
  }
  if (response.ok || response.status === 304) return response;
  const problem = await problemOf(response);
  // The reply belongs to a token that was changed meanwhile, so it does not concern the new one.
  if (response.status === 401 && sent === token()) needed(problem.detail);
  throw new Refused(response.status, problem);
}

const held = new Map();

// {value, changed, etag}: JSON at that path, requested with the entity tag of the last value. wait_s: the longest time
// that the daemon may hold the reply while the value is unchanged.
export async function get(path, {wait_s = 0, signal} = {}) {
  const before = held.get(path);
  const more = before ? {'If-None-Match': before.etag} : {};
  if (before && wait_s) more.Prefer = `wait=${wait_s}`;
  const response = await ask(path, {more, signal});
  if (response.status === 304 && before) return {value: before.value, changed: false, etag: before.etag};
  let value;
  try {
    value = await response.json();
  } catch (error) {
    throw signal?.aborted ? error : new Gone(error.message);
  }
  const etag = response.headers.get('ETag');
  if (etag) held.set(path, {etag, value});
  return {value, changed: true, etag};
}

export function forget() {
  held.clear();
}

// All items of a list, at most `limit` of them, and whether there are more.
export async function list(path, limit) {
  const items = [];
  let cursor = '';
  do {
    const query =
      `limit=${Math.min(1000, limit - items.length)}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`;
    const {value} = await get(`${path}?${query}`);
    items.push(...value.items);
    cursor = value.next_cursor;
  } while (cursor && items.length < limit);
  return {items, more: Boolean(cursor)};
}

export function sessionPath(session) {
  return `/v1/sessions/${encodeURIComponent(session)}`;
}

export function bufferPath(session, buffer) {
  return `${sessionPath(session)}/buffers/${encodeURIComponent(buffer)}`;
}

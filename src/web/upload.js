// Uploads a .npy file, dropped anywhere or chosen, into a buffer. XMLHttpRequest is used because fetch does not report
// upload progress.
import {byId, bytes, el, rate, setText, shape} from './text.js';
import {bufferPath, headers, tokenRefused} from './ask.js';

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

function nameOf(file) {
  const name =
    file.name.replace(/\.npy$/i, '').replace(/[^A-Za-z0-9._-]+/g, '_').replace(/^[^A-Za-z0-9]+/, '').slice(0, 128);
  return name || 'tensor';
}

export class Upload {
  constructor(watch, done) {
    Object.assign(this, {watch, done, file: null, request: null, dialog: byId('upload')});
    byId('upload-open').addEventListener('click', () => this.open());
    byId('upload-close').addEventListener('click', () => this.dialog.close());
    byId('upload-file').addEventListener('change', (event) => this.choose(event.target.files[0]));
    byId('upload-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    this.dialog.addEventListener('close', () => this.request?.abort());
    this.drops();
  }

  drops() {
    const veil = byId('drop');
    const files = (event) => event.dataTransfer && [...event.dataTransfer.types].includes('Files');
    addEventListener('dragover', (event) => {
      if (!files(event)) return;
      event.preventDefault();
      veil.hidden = false;
    });
    addEventListener('dragleave', (event) => {
      if (!event.relatedTarget) veil.hidden = true;
    });
    addEventListener('drop', (event) => {
      veil.hidden = true;
      if (!files(event)) return;
      event.preventDefault();
      if (this.request) return;
      this.open();
      byId('upload-file').value = '';
      this.choose(event.dataTransfer.files[0]);
    });
  }

  open() {
    const select = byId('upload-session');
    const chosen = select.value || 'default';
    select.replaceChildren(...this.watch.lists.sessions.map((s) => el('option', {value: s.name}, s.name)));
    select.value = chosen;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    this.say(this.file ? `${this.file.name}, ${bytes(this.file.size)}` : '');
    byId('upload-progress').hidden = true;
    if (!this.dialog.open) this.dialog.showModal();
  }

  choose(file) {
    this.file = file || null;
    if (!file) return;
    byId('upload-name').value = nameOf(file);
    this.say(`${file.name}, ${bytes(file.size)}`);
  }

  say(text, bad = false) {
    setText(byId('upload-state'), text);
    byId('upload-state').classList.toggle('bad', bad);
  }

  busy(request) {
    this.request = request;
    byId('upload-go').disabled = Boolean(request);
    byId('upload-progress').hidden = !request;
    setText(byId('upload-close'), request ? 'Cancel' : 'Close');
  }

  send() {
    const session = byId('upload-session').value;
    const name = byId('upload-name').value;
    if (this.request) return;
    if (!this.file) {
      this.say('Choose a file first', true);
      return;
    }
    if (!NAME.test(name) || !session) {
      this.say('A name has letters, digits, points, underscores and hyphens', true);
      return;
    }
    const request = new XMLHttpRequest();
    request.open('PUT', `${bufferPath(session, name)}/data?format=npy`);
    const more = {'Content-Type': 'application/x-npy'};
    if (!byId('upload-replace').checked) more['If-None-Match'] = '*';
    for (const [header, value] of Object.entries(headers(more))) request.setRequestHeader(header, value);
    this.follow(request, session, name);
    this.busy(request);
    request.send(this.file);
  }

  follow(request, session, name) {
    const begun = performance.now();
    const total = this.file.size;
    request.upload.addEventListener('progress', (event) => {
      byId('upload-progress').value = total ? event.loaded / total : 1;
      this.say(
        `${bytes(event.loaded)} of ${bytes(total)}, ${rate(event.loaded / ((performance.now() - begun) / 1000))}`);
    });
    request.addEventListener(
      'load', () => this.ended(request, session, name, total / ((performance.now() - begun) / 1000)));
    request.addEventListener('error', () => this.failed('The daemon did not answer; no buffer has changed'));
    request.addEventListener('abort', () => this.failed('Cancelled; no buffer has changed'));
  }

  failed(text) {
    this.busy(null);
    this.say(text, true);
    this.done();
  }

  ended(request, session, name, speed) {
    let reply = {};
    try {
      reply = JSON.parse(request.responseText);
    } catch {
      // reported below by its status
    }
    if (request.status === 412 && !byId('upload-replace').checked) {
      this.failed(`${session}/${name} exists already: mark “Replace”, or choose another name`);
    } else if (request.status >= 300) {
      this.failed(reply.detail || `the daemon answered ${request.status}`);
      if (request.status === 401) tokenRefused(reply.detail);
    } else {
      this.busy(null);
      this.say(`${session}/${name}: ${reply.dtype} ${shape(reply.shape || [])}, ${bytes(reply.bytes)}, `
        + `generation ${reply.generation}, ${rate(speed)}`);
      this.done();
    }
  }
}

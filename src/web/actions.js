// What a reader can do with a buffer: download, seal, delete, and take the line that reads it elsewhere.
import {byId, bytes, count, el, follow, followHeld, setText} from './text.js';
import {Refused, ask, bufferPath, token} from './ask.js';
import {sure} from './sure.js';

const IN_MEMORY_MAX = 1 << 30; // bytes of a download with a token, which the browser keeps until it is whole

// [label, line]: how a program reads the buffer from this address. The token has a place in it and never stands there
// itself.
export function linesOf(session, name) {
  const url = location.origin;
  const curl = ['curl --fail-with-body -sS', `-o ${name}.npy`, `'${url}${bufferPath(session, name)}/data?format=npy'`];
  const python = [`"${url}"`, `session="${session}"`];
  if (token()) {
    curl.splice(1, 0, '-H "Authorization: Bearer $GPUBUF_TOKEN"');
    python.push('token=os.environ["GPUBUF_TOKEN"]');
  }
  return [
    ['curl', curl.join(' ')],
    ['Python', `import gpubuf${token() ? ', os' : ''}; x = gpubuf.Client(${python.join(', ')}).get("${name}")`]
  ];
}

// The browser gives the clipboard to pages over https or of this machine; others can still select the line.
async function copy(field) {
  field.focus();
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    return document.execCommand('copy');
  }
}

export class Actions {
  // changed(): the buffer has changed; gone(): it was deleted.
  constructor({changed, gone}) {
    Object.assign(this, {changed, gone, buffer: null});
    const does = (id, work) => byId(id).addEventListener('click', () => this.run(work));
    does('look-download', () => this.download());
    does('look-seal', () => this.seal());
    does('look-delete', () => this.remove());
  }

  // buffer: as the daemon described it, with that description's entity tag, so that no other content is sealed or
  // deleted; null: none.
  show(buffer, etag) {
    Object.assign(this, {buffer, etag});
    byId('look-actions').hidden = !buffer;
    byId('look-lines').hidden = !buffer || buffer.state === 'lost';
    if (!buffer) return;
    this.enable();
    const lines = linesOf(buffer.session, buffer.name).map(([label, line]) => this.line(label, line));
    byId('look-line-list').replaceChildren(...lines);
  }

  enable(busy = false) {
    const {state, sealed} = this.buffer;
    byId('look-download').disabled = busy || state === 'lost';
    byId('look-seal').disabled = busy || sealed || state === 'lost';
    byId('look-delete').disabled = busy;
    setText(byId('look-seal'), sealed ? 'Sealed' : 'Seal');
  }

  line(label, text) {
    const field = el('input', {readonly: true, value: text, spellcheck: 'false', 'data-line': label});
    const button = el('button', {type: 'button', 'aria-label': `Copy the ${label} line`}, 'Copy');
    button.addEventListener('click', async () => {
      const copied = await copy(field);
      this.say(copied ? `The ${label} line was copied` : 'The browser does not permit copying: the line is selected');
    });
    return el('div', {class: 'line'}, el('label', {}, label, field), button);
  }

  say(text, bad = false) {
    setText(byId('look-said'), text);
    byId('look-said').classList.toggle('bad', bad);
  }

  // One at a time; what goes wrong is said.
  async run(work) {
    this.enable(true);
    const {session, name} = this.buffer;
    let said;
    try {
      said = [await work() || ''];
    } catch (error) {
      said = [error.message, true];
    }
    if (this.buffer?.session !== session || this.buffer.name !== name) return; // another one is shown meanwhile
    this.say(...said);
    this.enable();
  }

  get path() {
    return bufferPath(this.buffer.session, this.buffer.name);
  }

  get same() {
    return this.etag ? {'If-Match': this.etag} : {};
  }

  // Without a token the browser writes to its folder as the bytes come. With one, the page has to hold them first.
  async download() {
    const {name, bytes: size} = this.buffer;
    const data = `${this.path}/data?format=npy`;
    const file = `${name}.npy`;
    if (token() && size > IN_MEMORY_MAX)
      throw new Error(`With a token the page downloads ${bytes(IN_MEMORY_MAX)} at most: use the curl line below`);
    if (!token()) {
      await this.ready(data);
      follow({href: data, download: file});
      return `${file} goes to the browser's downloads`;
    }
    this.say(`Downloading ${bytes(size)}`);
    const response = await ask(data, {signal: new AbortController().signal});
    followHeld(await response.blob(), {download: file});
    return `${file} is in the browser's downloads`;
  }

  // Refused, with the daemon's words, if it would not send the bytes. A reply to HEAD has no words.
  async ready(data) {
    try {
      await ask(data, {method: 'HEAD'});
    } catch (error) {
      if (error instanceof Refused) await ask(data);
      throw error;
    }
  }

  async seal() {
    const {session, name} = this.buffer;
    const text =
      'Its bytes can then never be changed or mapped for writing; it can still be deleted. There is no way back.';
    if (!await sure({title: `Seal ${session}/${name}?`, text}, 'Seal')) return '';
    await ask(`${this.path}/seal`, {method: 'POST', more: this.same});
    await this.changed();
    return 'Sealed';
  }

  async remove() {
    const {session, name, bytes: size, generation, leases} = this.buffer;
    const mapped = leases ? ` ${count(leases)} ${leases === 1 ? 'process maps' : 'processes map'} them.` : '';
    const text = `Its ${bytes(size)} of generation ${generation} are lost.${mapped} There is no way back.`;
    if (!await sure({title: `Delete ${session}/${name}?`, text}, 'Delete')) return '';
    await ask(this.path, {method: 'DELETE', more: this.same});
    this.gone();
    return '';
  }
}

// A tensor as a picture and a histogram: a buffer's own, or one of the many that it holds. Of a large tensor the page
// reads only a slice, which the device gathers.
import {byId, bytes, count, dated, edge, el, places, setText, shape as axes, value as shown} from './text.js';
import {Actions} from './actions.js';
import {ask, bufferPath, get, list} from './ask.js';
import {decode, histogram, summary, width} from './decode.js';
import {coloured, layout, proportion, suggest} from './geometry.js';
import {paint} from './picture.js';
import {colour} from './theme.js';

const READ_MAX = 8 << 20; // bytes
const NAMES_MAX = 1000;   // of tensors that are offered; others are typed

function aboutOf(b) {
  return [
    `${b.dtype} ${axes(b.shape)}`, bytes(b.bytes), b.kind, b.mirrored && `head ${b.head}`, `generation ${b.generation}`,
    b.link && `link to ${b.link}`, b.sealed && 'sealed', b.state, `in ${places(b)}`, `durability ${b.durability}`,
    b.spill !== 'never' && `spill ${b.spill}`, b.resident && 'resident', `changed ${dated(b.updated_at)}`
  ].filter(Boolean).join(' · ');
}

export class Look {
  // changed() is called when the reader has changed the buffer or deleted it.
  constructor(changed) {
    this.dialog = byId('look');
    this.actions = new Actions({
      changed: async () => {
        changed();
        await this.describe();
      },
      gone: () => {
        changed();
        this.dialog.close();
      },
    });
    this.canvas = byId('look-picture');
    this.at = [0, 0];
    byId('look-close').addEventListener('click', () => this.dialog.close());
    byId('look-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.read();
    });
    byId('look-tensor').addEventListener('change', () => this.choose());
    byId('look-mode').addEventListener('change', () => this.draw());
    byId('look-bins').addEventListener('change', () => this.draw());
    this.canvas.tabIndex = 0;
    this.canvas.addEventListener('pointermove', (event) => this.pointed(event));
    this.canvas.addEventListener('keydown', (event) => this.moved(event));
  }

  async open(session, name) {
    if (this.session === session && this.name === name && this.dialog.open) return;
    Object.assign(this, {session, name, values: null, buffer: null, tensor: null, tensors: new Map()});
    setText(byId('h-look'), `${session}/${name}`);
    for (const id of ['look-about', 'look-read']) setText(byId(id), '');
    this.blank();
    this.actions.show(null);
    this.actions.say('');
    byId('look-form').hidden = true;
    if (!this.dialog.open) this.dialog.showModal();
    try {
      await this.describe();
    } catch (error) {
      this.say(error.message, true);
      return;
    }
    const b = this.buffer;
    if (!b) return;
    if (b.state === 'lost') {
      this.say('Its bytes are lost. Upload them again, or delete the buffer.', true);
      return;
    }
    byId('look-form').hidden = false;
    byId('look-table').hidden = b.dtype !== 'tensors';
    try {
      if (b.dtype === 'tensors') await this.offer();
    } catch (error) {
      this.say(error.message, true);
      return;
    }
    if (b.dtype === 'tensors') await this.choose();
    else await this.show(b);
  }

  // The names of the tensors that the buffer holds; the first one is chosen.
  async offer() {
    const {session, name} = this;
    const {items} = await list(`${bufferPath(session, name)}/tensors`, NAMES_MAX);
    if (session !== this.session || name !== this.name) return;
    this.tensors = new Map(items.map((t) => [t.name, t]));
    const option = (t) => el('option', {value: t.name}, `${t.dtype} ${axes(t.shape)}`);
    byId('look-tensors').replaceChildren(...items.map(option));
    byId('look-tensor').value = items.length ? items[0].name : '';
  }

  // Shows the tensor that is named. One that was not offered is asked for.
  async choose() {
    const {session, name} = this;
    const wanted = byId('look-tensor').value;
    let tensor = this.tensors.get(wanted);
    try {
      if (!tensor && wanted) {
        const path = `${bufferPath(session, name)}/tensors`;
        const {value} = await get(`${path}?limit=1&prefix=${encodeURIComponent(wanted)}`);
        tensor = value.items.find((t) => t.name === wanted);
      }
    } catch (error) {
      this.say(error.message, true);
      return;
    }
    if (session !== this.session || name !== this.name || wanted !== byId('look-tensor').value) return;
    this.blank();
    if (tensor) await this.show(tensor);
    else if (wanted) this.say(`The buffer holds no tensor named ${wanted}`, true);
    else this.say('The buffer holds no tensor');
  }

  // tensor: its dtype, shape and bytes.
  async show(tensor) {
    this.tensor = tensor;
    byId('look-slice').value = suggest(tensor.shape, tensor.dtype);
    if (coloured(tensor.shape) && tensor.dtype === 'uint8') byId('look-mode').value = 'rgb';
    else if (byId('look-mode').value === 'rgb') byId('look-mode').value = 'viridis';
    await this.read();
  }

  // Requests carry another token: what could not be read is tried once more.
  again() {
    const {session, name} = this;
    if (!this.dialog.open || this.buffer) return;
    this.name = '';
    this.open(session, name);
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  // Reads what the daemon says of the buffer.
  async describe() {
    const {session, name} = this;
    const {value, etag} = await get(bufferPath(session, name));
    if (session !== this.session || name !== this.name) return;
    this.buffer = value;
    setText(byId('look-about'), aboutOf(value));
    this.actions.show(value, value.adopted || value.escaped ? null : etag); // theirs is not stable
  }

  say(text, bad = false) {
    setText(byId('look-read'), text);
    byId('look-read').classList.toggle('bad', bad);
  }

  blank() {
    this.values = null;
    byId('look-shown').hidden = true;
    setText(byId('look-point'), 'Point at an element, or move with the arrow keys');
    this.canvas.width = 1;
    this.canvas.height = 1;
    this.canvas.setAttribute('aria-label', 'No data');
    byId('look-numbers').replaceChildren();
    byId('look-counts').replaceChildren();
    this.chart?.destroy();
    this.chart = null;
  }

  // The slice's bytes; the download is aborted if it exceeds the expected size.
  async bytesOf(slice) {
    const of = this.buffer.dtype === 'tensors' ? `&tensor=${encodeURIComponent(this.tensor.name)}` : '';
    const query = `?format=raw${of}${slice ? `&slice=${encodeURIComponent(slice)}` : ''}`;
    const stop = new AbortController();
    const response = await ask(`${bufferPath(this.session, this.name)}/data${query}`,
      {more: {Accept: 'application/octet-stream'}, signal: stop.signal});
    const n = Number(response.headers.get('Content-Length'));
    if (n > READ_MAX) {
      stop.abort();
      throw new Error(`This slice has ${bytes(n)}; at most ${bytes(READ_MAX)} are read. `
        + 'Choose a larger step, such as ::8, or a part, such as 0:512');
    }
    const shape = response.headers.get('Gpubuf-Shape');
    return {
      data: await response.arrayBuffer(),
      shape: shape ? shape.split(',').map(Number) : [],
      generation: response.headers.get('Gpubuf-Generation')
    };
  }

  async read() {
    const {tensor} = this;
    const slice = byId('look-slice').value.trim();
    if (!tensor) return;
    if (!width(tensor.dtype)) {
      this.say(`The page cannot show ${tensor.dtype}`, true);
      return;
    }
    this.say('Reading');
    try {
      const {data, shape, generation} = await this.bytesOf(slice);
      if (tensor !== this.tensor) return;
      Object.assign(this, {values: decode(tensor.dtype, data), shape, slice});
      this.numbers = summary(this.values);
      this.total = tensor.shape.reduce((n, x) => n * x, 1);
      const n = this.values.length;
      const part = n < this.total;
      const which = part ? `${this.which(slice)}${count(n)} of ${count(this.total)}` : `all ${count(n)}`;
      const size = `${bytes(data.byteLength)} of ${bytes(tensor.bytes)}`;
      this.say(`Read ${which} elements (${axes(shape)}), ${size}, of generation ${generation}.`
        + (part ? ' Minimum, maximum, mean and counts are of this part only.' : ''));
      this.draw();
    } catch (error) {
      this.blank();
      this.say(error.message, true);
    }
  }

  which(slice) {
    return /^0?:\d+$/.test(slice) ? 'the first ' : '';
  }

  draw() {
    if (!this.values) return;
    const s = this.numbers;
    const rows = [['min', shown(s.min)], ['max', shown(s.max)], ['mean', shown(s.mean)], ['elements', count(s.count)]];
    if (s.nans) rows.push(['nan', count(s.nans)]);
    if (s.infinities) rows.push(['infinite', count(s.infinities)]);
    const of = s.count < this.total ? ' of this part' : '';
    byId('look-shown').hidden = false;
    const term = ([k, v]) => el('div', {}, el('dt', {}, k + of), el('dd', {id: `look-${k}`}, v));
    byId('look-numbers').replaceChildren(...rows.map(term));
    this.drawPicture();
    this.drawHistogram();
  }

  drawPicture() {
    let mode = byId('look-mode').value;
    if (mode === 'rgb' && !coloured(this.shape)) mode = 'grey';
    const [rows, columns, depth] = layout(this.shape, mode);
    Object.assign(this, {rows, columns, depth: mode === 'rgb' ? depth : 1});
    if (!rows || !columns) return;
    const pixels = paint(this.values,
      {rows, columns, depth, mode, min: this.numbers.min, max: this.numbers.max, bytes: this.tensor.dtype === 'uint8'});
    this.canvas.width = columns;
    this.canvas.height = rows;
    this.canvas.getContext('2d').putImageData(new ImageData(pixels, columns, rows), 0, 0);
    const {ratio, stretched} = proportion(this.shape, this.slice, this.tensor.shape.length, mode);
    this.canvas.style.setProperty('--ratio', ratio);
    byId('look-stretched').hidden = !stretched;
    const {min, max} = this.numbers;
    this.canvas.setAttribute('aria-label', `Picture of ${rows} by ${columns} elements, from ${shown(min)} to `
      + `${shown(max)}. Arrow keys select single elements.`);
  }

  drawHistogram() {
    const wanted = Math.min(256, Math.max(2, Number(byId('look-bins').value) || 32));
    const bins = histogram(this.values, this.numbers, wanted);
    const label = (b) => (b.whole ? shown(b.from) : `${edge(b.from, b.to - b.from)} … ${edge(b.to, b.to - b.from)}`);
    const head = el('thead', {},
      el('tr', {}, el('th', {scope: 'col'}, 'Values'), el('th', {scope: 'col', class: 'number'}, 'Count')));
    const body =
      bins.map((b) => el('tr', {}, el('th', {scope: 'row'}, label(b)), el('td', {class: 'number'}, count(b.count))));
    const caption = el('caption', {}, 'Number of elements by value');
    byId('look-counts').replaceChildren(el('table', {}, caption, head, el('tbody', {}, ...body)));
    const most = bins.reduce((a, b) => (b.count > a.count ? b : a), {count: 0});
    const said = most.count
      ? `Histogram of ${bins.length} bins, most of them (${count(most.count)}) at ${label(most)}`
      : 'Histogram without values';
    byId('look-histogram').setAttribute('aria-label', said);
    this.chart?.destroy();
    this.chart = null;
    if (!window.Chart || !bins.length) return;
    const axis = {
      ticks: {color: colour('quiet'), maxRotation: 0, autoSkip: true, autoSkipPadding: 12},
      grid: {color: colour('line'), display: false}
    };
    this.chart = new window.Chart(byId('look-histogram'), {
      type: 'bar',
      data: {
        labels: bins.map((b) => (b.whole ? shown(b.from) : edge(b.from, b.to - b.from))),
        datasets: [{
          data: bins.map((b) => b.count),
          backgroundColor: colour('series-1'),
          categoryPercentage: 1,
          barPercentage: 0.95
        }]
      },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        scales: {x: axis, y: {...axis, ticks: {...axis.ticks, callback: count, precision: 0}, beginAtZero: true}},
        plugins: {legend: {display: false}}
      },
    });
  }

  tell(row, column) {
    if (!this.values || row < 0 || column < 0 || row >= this.rows || column >= this.columns) return;
    this.at = [row, column];
    const from = (row * this.columns + column) * this.depth;
    const values = [...this.values.slice(from, from + this.depth)].map(shown).join(', ');
    setText(byId('look-point'), values ? `[${row}, ${column}] = ${values}` : '');
  }

  pointed(event) {
    const box = this.canvas.getBoundingClientRect();
    this.tell(Math.floor(((event.clientY - box.top) / box.height) * this.rows),
      Math.floor(((event.clientX - box.left) / box.width) * this.columns));
  }

  moved(event) {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step) return;
    event.preventDefault();
    byId('look-point').setAttribute('aria-live', 'polite');
    this.tell(this.at[0] + step[0], this.at[1] + step[1]);
  }
}

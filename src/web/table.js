// A table with sorting and filtering. Rows keep their elements, so that the focus stays while numbers change.
import {el, setText} from './text.js';

// columns: {key, label, value(row), text(row), number, fill(cell, row), wide}; id(row) identifies a row. open(row): the
// row leads somewhere; its first cell is a button, described by hint(row).
export class Table {
  constructor(parent, {caption, columns, id, sort, ascending = false, limit = 100, empty, open, hint}) {
    Object.assign(this, {columns, id, sort, ascending, limit, empty, open, hint, rows: [], words: [], kept: new Map()});
    this.caption = el('caption', {});
    this.title = caption;
    this.body = el('tbody');
    this.heads = columns.map((column) => this.head(column));
    parent.append(el('table', {}, this.caption, el('thead', {}, el('tr', {}, ...this.heads)), this.body));
  }

  head(column) {
    const button = el('button', {type: 'button'}, column.label);
    button.addEventListener('click', () => {
      this.ascending = this.sort === column.key ? !this.ascending : !column.number;
      this.sort = column.key;
      this.draw();
    });
    return el('th', {scope: 'col', class: column.number ? 'number' : null}, column.fixed ? column.label : button);
  }

  set(rows, note = '') {
    this.rows = rows;
    this.note = note;
    this.draw();
  }

  filter(words) {
    this.words = words.toLowerCase().split(/\s+/).filter(Boolean);
    this.draw();
  }

  chosen() {
    const column = this.columns.find((c) => c.key === this.sort);
    const up = this.ascending ? 1 : -1;
    const order = (a, b) => {
      const x = column.value(a);
      const y = column.value(b);
      const less = typeof x === 'string' ? x.localeCompare(y, 'en', {numeric: true}) : (x ?? -1) - (y ?? -1);
      return less ? less * up : this.id(a) < this.id(b) ? -1 : 1;
    };
    const said = (row) => this.columns.map((c) => (c.text ? c.text(row) : '')).join(' ').toLowerCase();
    const rows = this.words.length ? this.rows.filter((row) => {
      const s = said(row);
      return this.words.every((word) => s.includes(word));
    }) : [...this.rows];
    return rows.sort(order);
  }

  row(item) {
    const key = this.id(item);
    let kept = this.kept.get(key);
    if (!kept) {
      const cells = this.columns.map(
        (c, i) =>
          el(i === 0 ? 'th' : 'td', {class: c.class || (c.number ? 'number' : null), scope: i === 0 ? 'row' : null}));
      kept = {tr: el('tr', {class: this.open ? 'opens' : null}, ...cells), cells};
      if (this.open) kept.tr.addEventListener('click', () => this.clicked(kept.item));
      this.kept.set(key, kept);
    }
    kept.item = item;
    this.columns.forEach((c, i) => {
      if (i === 0 && this.open) this.lead(kept.cells[i], c.text(item), this.hint(item));
      else if (c.fill) c.fill(kept.cells[i], item);
      else setText(kept.cells[i], c.text(item));
    });
    return kept.tr;
  }

  lead(cell, text, title) {
    if (!cell.firstChild) cell.append(el('button', {type: 'button', class: 'link'}));
    setText(cell.firstChild, text);
    cell.firstChild.title = title;
  }

  // A click that ends a selection of text opens nothing.
  clicked(item) {
    if (getSelection().isCollapsed) this.open(item);
  }

  draw() {
    const all = this.chosen();
    const shown = all.slice(0, this.limit);
    this.heads.forEach((th, i) => {
      const own = this.columns[i].key === this.sort;
      if (own) th.setAttribute('aria-sort', this.ascending ? 'ascending' : 'descending');
      else th.removeAttribute('aria-sort');
    });
    const keys = new Set(shown.map(this.id));
    for (const [key, kept] of this.kept) {
      if (!keys.has(key)) {
        kept.tr.remove();
        this.kept.delete(key);
      }
    }
    shown.forEach((item, i) => {
      const tr = this.row(item);
      // Moving an element would remove the focus from it.
      if (this.body.children[i] !== tr) this.body.insertBefore(tr, this.body.children[i] || null);
    });
    this.describe(all.length, shown.length);
  }

  describe(found, shown) {
    let text = `${this.title}: ${shown}`;
    if (this.words.length) text += ` of ${this.rows.length} that match the filter`;
    else if (shown < found) text += ` of ${found}`;
    if (this.rows.length === 0) text = this.empty || `${this.title}: none`;
    setText(this.caption, this.note ? `${text}; ${this.note}` : text);
  }
}

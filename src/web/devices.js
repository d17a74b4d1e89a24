// A card for each device: its memory, and its health if the daemon knows it.
import {byId, bytes, el, setText} from './text.js';
import {bar} from './views.js';

function percent(x) {
  return `${Math.round(100 * x)} %`;
}

// The device's health in words; empty if it is unknown.
function healthText(h) {
  if (!h || h.source === 'none') return h?.reason ? `Health unknown: ${h.reason}` : '';
  const parts = [];
  const add = (x, text) => x !== null && x !== undefined && parts.push(text(x));
  add(h.gpu_utilization, (x) => `busy ${percent(x)}`);
  add(h.memory_utilization, (x) => `memory busy ${percent(x)}`);
  add(h.temperature_c, (x) => `${x} °C`);
  add(h.power_w, (x) => `${Math.round(x)} W${h.power_limit_w ? ` of ${Math.round(h.power_limit_w)}` : ''}`);
  add(h.clocks?.sm_mhz, (x) => `SM ${x} MHz`);
  if (h.ecc?.uncorrected) parts.push(`ECC: ${h.ecc.uncorrected} uncorrected`);
  if (h.clocks?.reasons?.length) parts.push(`clocks held by ${h.clocks.reasons.join(', ')}`);
  if (h.processes?.length) parts.push(`${h.processes.length} ${h.processes.length === 1 ? 'process' : 'processes'}`);
  return parts.join(' · ');
}

export class Devices {
  constructor() {
    this.cards = new Map();
  }

  card(device) {
    const parts = {
      title: el('h3'),
      share: el('div'),
      memory: el('p'),
      health: el('p', {class: 'quiet'}),
      id: el('p', {class: 'quiet small'})
    };
    const node = el('article', {}, parts.title, parts.share, parts.memory, parts.health, parts.id);
    byId('devices').append(node);
    this.cards.set(device.index, {node, ...parts});
    return this.cards.get(device.index);
  }

  show(watch) {
    for (const d of watch.devices) {
      const card = this.cards.get(d.index) || this.card(d);
      const own = watch.lists.pools.filter((p) => p.device.index === d.index);
      const sum = (what) => own.reduce((n, p) => n + p[what], 0);
      const used = d.total_bytes - d.free_bytes;
      setText(card.title, `${d.index}  ${d.name}`);
      const kept = sum('kept_bytes') ? `, ${bytes(sum('kept_bytes'))} kept for importers` : '';
      const ours = `${bytes(sum('reserved_bytes'))} reserved, ${bytes(sum('used_bytes'))} used${kept}`;
      setText(card.memory, `${bytes(used)} of ${bytes(d.total_bytes)} in use; gpubufd: ${ours}`);
      setText(card.health, healthText(d.health));
      setText(card.id, d.uuid);
      bar(card.share, {used: sum('used_bytes'), reserved: used, peak: 0, total: d.total_bytes});
    }
    for (const [index, card] of this.cards) {
      if (!watch.devices.some((d) => d.index === index)) {
        card.node.remove();
        this.cards.delete(index);
      }
    }
  }
}

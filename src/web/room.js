// A warning before memory ends: of devices, pools and sessions that have used most of what they may.
import {bytes} from './text.js';

const NEARLY = 0.9; // of the memory, before the daemon's own --evict-high (0.95)
const NAMED = 3; // of each kind

const percent = (x) => `${Math.floor(100 * x)} %`;
const listed = (all) =>
  `${all.slice(0, NAMED).join(', ')}${all.length > NAMED ? ` and ${all.length - NAMED} more` : ''}`;

// The part of a device's memory that no new buffer of any session gets. What its own pool has reserved and does not use
// is at hand.
function taken(device, pools) {
  const own = pools.filter((p) => p.device.index === device.index && !p.session);
  const atHand = own.reduce((n, p) => n + p.reserved_bytes - p.used_bytes, 0);
  return (device.total_bytes - device.free_bytes - atHand) / (device.total_bytes || 1);
}

function ofDevices({devices, lists}) {
  const full = devices.map((d) => [d, taken(d, lists.pools)]).filter(([, part]) => part >= NEARLY);
  if (!full.length) return [];
  const largest = lists.sessions.filter((s) => s.used_bytes > 0).sort((a, b) => b.used_bytes - a.used_bytes);
  const sessions = listed(largest.map((s) => `${s.name} (${bytes(s.used_bytes)})`));
  return full.map(([d, part]) => `Device ${d.index} is nearly full: ${percent(part)} of `
    + `${bytes(d.total_bytes)} are taken. ${largest.length ? `The largest sessions are ${sessions}. ` : ''}`
    + 'Delete what is not needed, put sessions to sleep (gpubuf sessions evict NAME), or let buffers leave memory '
    + '(gpubuf set NAME --spill disk); what finds no room is refused with 507.');
}

function ofPools({lists}) {
  const full = lists.pools.filter((p) => p.session && p.max_bytes && p.used_bytes >= NEARLY * p.max_bytes)
    .map((p) => `${p.session}/${p.name} (${percent(p.used_bytes / p.max_bytes)} of ${bytes(p.max_bytes)})`);
  if (!full.length) return [];
  return [`Pools are nearly at their limit: ${listed(full)}. Delete buffers in them, or make a larger pool: the limit `
    + 'of one is fixed.'];
}

function ofSessions({lists}) {
  const full = lists.sessions.filter((s) => s.quota.bytes && s.used_bytes >= NEARLY * s.quota.bytes)
    .map((s) => `${s.name} (${percent(s.used_bytes / s.quota.bytes)} of ${bytes(s.quota.bytes)})`);
  if (!full.length) return [];
  return [`Sessions are nearly at their quota: ${listed(full)}. Delete buffers in them, or raise the quota `
    + '(gpubuf sessions set NAME --max-bytes).'];
}

// Sentences; none while there is room.
export function warnings(watch) {
  return [...ofDevices(watch), ...ofPools(watch), ...ofSessions(watch)];
}

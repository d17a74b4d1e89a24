// Rates of the daemon's counters. Transfers come in bursts, so a rate is meaningful over some seconds, but not between
// two samples.

export const WINDOW_MS = 10000;
const LEAST_MS = 5000; // no rate before this time has passed

// The rate up to samples[i], since the newest sample that is as old as the window, or since the first after a break
// (null). null: too soon.
export function speed(samples, i, name, window_ms = WINDOW_MS) {
  const now = samples[i];
  if (!now) return null;
  let from = now;
  for (let j = i - 1; j >= 0 && samples[j] && now.at - from.at < window_ms; j--) from = samples[j];
  const apart = now.at - from.at;
  return apart >= LEAST_MS ? (1000 * Math.max(0, now[name] - from[name])) / apart : null;
}

// The page's samples for a chart with the given step: the first in each step. [{i, sample}], sample null: a break.
export function thinned(samples, after, step_ms) {
  const picked = [];
  let slot = Math.floor(after / step_ms);
  samples.forEach((sample, i) => {
    if (!sample) {
      if (picked.length) picked.push({i, sample});
      return;
    }
    const own = Math.floor(sample.at / step_ms);
    if (own <= slot) return;
    slot = own;
    picked.push({i, sample});
  });
  return picked;
}

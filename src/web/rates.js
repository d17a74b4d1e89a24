// How fast what the daemon counts rises. Transfers come in bursts: between two looks there is no speed, over some seconds there is.

export const WINDOW_MS = 10000;
const LEAST_MS = 5000; // what was watched for less time has no speed yet

// Per second up to samples[i], since the newest sample that is as old as the window, or since the first after a break (null). null: too soon.
export function speed(samples, i, name, window_ms = WINDOW_MS) {
  const now = samples[i];
  if (!now) return null;
  let from = now;
  for (let j = i - 1; j >= 0 && samples[j] && now.at - from.at < window_ms; j--) from = samples[j];
  const apart = now.at - from.at;
  return apart >= LEAST_MS ? (1000 * Math.max(0, now[name] - from[name])) / apart : null;
}

// Of what this page saw, the samples that belong into a chart with so wide a step: the first in each step. [{i, sample}], sample null: a break.
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

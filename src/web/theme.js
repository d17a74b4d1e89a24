// The theme: light, dark, or the system's.
import {byId, setText} from './text.js';

const KEY = 'gpubufd-theme';
const ORDER = ['auto', 'light', 'dark'];

function show(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  setText(byId('theme'), `Theme: ${theme}`);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// changed() is called when the colours have changed.
export function start(changed) {
  let theme = localStorage.getItem(KEY);
  if (!ORDER.includes(theme)) theme = 'auto';
  show(theme);
  byId('theme').addEventListener('click', () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    show(theme);
    changed();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
}

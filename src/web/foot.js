// The foot of a page: the zone of its times, and links to what programs and people read.
import {byId, setText, setZone, zone} from './text.js';
import {ask, token} from './ask.js';

// A link sends no token. With one, the text is read here and opened from memory.
async function openText(link) {
  const shown = URL.createObjectURL(new Blob([await (await ask(link.getAttribute('href'))).text()], {type: 'text/plain;charset=utf-8'}));
  const way = document.createElement('a');
  Object.assign(way, {href: shown, target: '_blank', rel: 'noopener'});
  way.click();
  setTimeout(() => URL.revokeObjectURL(shown), 60000);
}

export function showZone(name) {
  setZone(name);
  byId('time').value = name === 'utc' ? 'utc' : '';
}

// changed(name) is called when the reader has chosen another zone.
export function start(changed) {
  setText(byId('time').options[0], `local time (${zone()})`);
  byId('time').addEventListener('change', () => {
    showZone(byId('time').value);
    changed(byId('time').value);
  });
  for (const link of document.querySelectorAll('a[data-token]')) {
    link.addEventListener('click', (event) => {
      if (!token()) return;
      event.preventDefault();
      openText(link).then(() => setText(byId('foot-said'), ''), (error) => setText(byId('foot-said'), `${link.textContent}: ${error.message}`));
    });
  }
}

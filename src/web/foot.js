// The foot of a page: the zone of its times, and links to what programs and people read.
import {byId, followHeld, setText, setZone, zone} from './text.js';
import {ask, token} from './ask.js';

// A link sends no token. With one, the text is read here and opened from memory.
async function openText(link) {
  const text = await (await ask(link.getAttribute('href'))).text();
  followHeld(new Blob([text], {type: 'text/plain;charset=utf-8'}), {target: '_blank', rel: 'noopener'});
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
      openText(link).then(() => setText(byId('foot-said'), ''),
        (error) => setText(byId('foot-said'), `${link.textContent}: ${error.message}`));
    });
  }
}

// The dialog that asks for a token.
import {byId, setText} from './text.js';
import {onTokenNeeded, setToken, token} from './ask.js';

// changed() is called when requests carry another token from now on.
export function start(changed) {
  const dialog = byId('token');
  let declined = false;

  function open(why) {
    if (dialog.open) return;
    setText(byId('h-token'), why ? 'A token is needed' : 'Token');
    setText(byId('token-why'), why || (token() ? 'Requests carry a token.' : 'Requests carry no token.'));
    byId('token-value').value = '';
    byId('token-forget').hidden = !token();
    dialog.showModal();
    byId('token-value').focus();
  }

  function close(value) {
    dialog.close();
    if (value !== undefined) {
      setToken(value);
      declined = false;
      changed();
    }
  }

  onTokenNeeded((detail) => {
    if (!declined) open(token() ? `The token is not taken: ${detail || ''}` : 'This daemon gives its numbers to those who have a token.');
  });
  byId('token-open').addEventListener('click', () => open());
  byId('token-form').addEventListener('submit', (event) => {
    event.preventDefault();
    close(byId('token-value').value.trim());
  });
  byId('token-forget').addEventListener('click', () => close(''));
  byId('token-cancel').addEventListener('click', () => dialog.close());
  // However it is closed without an answer: nobody is asked again before the button is pressed.
  dialog.addEventListener('close', () => {
    declined = byId('token-value').value === '';
  });
}

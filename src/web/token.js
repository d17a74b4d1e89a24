// The dialog that asks for a token.
import {byId, setText} from './text.js';
import {onTokenNeeded, setToken, token} from './ask.js';

// changed() is called when later requests carry another token.
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
    if (!declined) open(token() ? `The token was refused: ${detail || ''}` : 'This daemon requires a token.');
  });
  byId('token-open').addEventListener('click', () => open());
  byId('token-form').addEventListener('submit', (event) => {
    event.preventDefault();
    close(byId('token-value').value.trim());
  });
  byId('token-forget').addEventListener('click', () => close(''));
  byId('token-cancel').addEventListener('click', () => dialog.close());
  // If the dialog is closed without a token, it stays closed until the button is pressed.
  dialog.addEventListener('close', () => {
    declined = byId('token-value').value === '';
    byId('token-value').value = '';
  });
}

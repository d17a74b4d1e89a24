// Asks before something that cannot be undone.
import {byId, setText} from './text.js';

// Resolves to whether the reader agrees. verb: the text of the button that does it.
export function sure(question, verb) {
  const dialog = byId('sure');
  setText(byId('h-sure'), question.title);
  setText(byId('sure-text'), question.text);
  setText(byId('sure-yes'), verb);
  return new Promise((done) => {
    let answer = false;
    byId('sure-yes').onclick = () => {
      answer = true;
      dialog.close();
    };
    byId('sure-no').onclick = () => dialog.close();
    dialog.onclose = () => done(answer);
    dialog.showModal();
    byId('sure-no').focus();
  });
}

// What the page shows, in the fragment of its address: a reload, a copied link and the back button keep it. No request
// has a fragment.
const KEYS = ['session', 'buffer', 'range', 'filter', 'feed', 'time'];

// {session, buffer, range, ...}: texts, '' where the address does not say.
export function shown() {
  const said = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.map((key) => [key, said.get(key) || '']));
}

// Changes parts of it; '' leaves a part out. step: the back button undoes the change.
export function change(parts, {step = false} = {}) {
  const next = {...shown(), ...parts};
  const said = new URLSearchParams(KEYS.filter((key) => next[key]).map((key) => [key, next[key]])).toString();
  const to = location.pathname + location.search + (said && `#${said}`);
  if (to === location.pathname + location.search + location.hash) return;
  window.history[step ? 'pushState' : 'replaceState'](null, '', to);
}

// apply(shown()) is called now, and whenever the reader goes back, forward, or to another fragment.
export function start(apply) {
  addEventListener('popstate', () => apply(shown()));
  // The link that skips the head must not replace the fragment.
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    document.getElementById('main').focus();
  });
  apply(shown());
}

'use strict';
// The server sends parts of the page when they change. What has the focus, and what was opened, stays.
const told = document.getElementById('told');
let token = sessionStorage.getItem('token') || '';

function show(part, html) {
  const place = document.querySelector('[data-part="' + CSS.escape(part) + '"]');
  if (!place) return;
  const active = place.contains(document.activeElement) ? mark(document.activeElement) : null;
  const open = new Set([...place.querySelectorAll('details[open]')].map(d => d.dataset.keep));
  place.innerHTML = html;
  for (const d of place.querySelectorAll('details')) if (open.has(d.dataset.keep)) d.open = true;
  if (active) for (const e of place.querySelectorAll('button, summary, [tabindex]')) if (mark(e) === active) { e.focus(); break; }
}

function mark(e) {
  const details = e.closest('details');
  return [e.tagName, e.dataset.action, e.dataset.words, e.getAttribute('aria-label'), details && details.dataset.keep].join(' ');
}

function listen() {
  const events = new EventSource('/events');
  events.onmessage = e => { const m = JSON.parse(e.data); show(m.part, m.html); };
  events.onopen = () => { told.textContent = ''; };
  events.onerror = () => {
    told.textContent = document.body.dataset.lost;
    if (events.readyState === EventSource.CLOSED) refused(); // else the browser tries again by itself
  };
}

// refused shows why, which an EventSource does not tell, and tries again later.
async function refused() {
  setTimeout(listen, 10000);
  const asked = new AbortController();
  try {
    const answer = await fetch('/events', { signal: asked.signal });
    if (!answer.ok) told.textContent = (await answer.json()).error;
  } catch { // the server is gone, which the page says already
  }
  asked.abort();
}

listen();

function unlock() { document.body.classList.toggle('open', token !== ''); }

const key = document.getElementById('key');
if (key) {
  unlock();
  key.addEventListener('submit', e => {
    e.preventDefault();
    token = key.elements.token.value;
    sessionStorage.setItem('token', token);
    key.reset();
    unlock();
  });
  document.addEventListener('click', async e => {
    const button = e.target.closest('button[data-action]');
    if (!button || !confirm(button.textContent + '?')) return;
    const answer = await fetch('/api/' + button.dataset.action, {
      method: 'POST',
      headers: { 'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json' },
      body: JSON.stringify({ arguments: [button.dataset.words] }),
    });
    const text = await answer.json();
    told.textContent = answer.ok ? document.body.dataset.done : text.error;
    if (answer.status === 401) { token = ''; sessionStorage.removeItem('token'); unlock(); }
  });
}

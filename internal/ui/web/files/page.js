'use strict';
// The server sends parts of the page when they change. Only what differs is changed, so that a selection, the focus and
// the place in a list stay.
const $ = id => document.getElementById(id);
const told = $('told'), tip = $('tip');
let events, retry;

// morph makes a place look like what was sent, node by node.
function morph(from, to) {
  for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== 'open' && name !== 'data-live') from.removeAttribute(name);
  children(from, to);
}

// keyOf names a node that may have moved.
function keyOf(n) { return n.nodeType === 1 ? n.id || n.dataset.key || '' : ''; }

function children(from, to) {
  const keyed = new Map();
  for (const n of from.childNodes) if (keyOf(n)) keyed.set(keyOf(n), n);
  let at = from.firstChild;
  for (const want of [...to.childNodes]) {
    const key = keyOf(want);
    while (at && at.nodeType === 1 && at.hasAttribute('data-live')) at = at.nextSibling; // made here, not by the server
    let have = key ? keyed.get(key) : at;
    if (have && (have.nodeName !== want.nodeName || !key && keyOf(have))) have = null;
    if (!have) { from.insertBefore(want, at); continue; }
    if (have !== at) from.insertBefore(have, at); else at = at.nextSibling;
    if (have.nodeType !== 1) { if (have.data !== want.data) have.data = want.data; continue; }
    if (have.dataset.part && !want.firstChild) continue; // a part of its own
    if (!have.isEqualNode(want)) morph(have, want);
  }
  while (at) { const next = at.nextSibling; if (!(at.nodeType === 1 && at.hasAttribute('data-live'))) at.remove(); at = next; }
}

function show(part, html) {
  const place = document.querySelector('[data-part="' + CSS.escape(part) + '"]');
  if (!place) return;
  const made = document.createElement('template');
  made.innerHTML = html;
  children(place, made.content);
  if (part === 'head') head();
  if (part === 'detail') place.hidden = !place.firstChild;
  if (part === 'services') ports();
}

// head is what the tab says of the page.
function head() {
  const p = document.querySelector('.glance'), icon = document.querySelector('link[rel=icon]');
  if (!p) return;
  document.title = p.dataset.title;
  if (icon.getAttribute('href') !== p.dataset.icon) icon.href = p.dataset.icon;
}

function listen() {
  clearTimeout(retry);
  if (events) events.close();
  events = new EventSource('/events' + location.search);
  events.onmessage = e => { for (const m of JSON.parse(e.data)) show(m.part, m.html); };
  events.onopen = () => { told.textContent = ''; };
  events.onerror = () => {
    told.textContent = document.body.dataset.lost;
    if (events.readyState === EventSource.CLOSED) refused(); // else the browser tries again by itself
  };
}

// refused shows why, which an EventSource does not tell, and tries again later.
async function refused() {
  retry = setTimeout(listen, 10000);
  const asked = new AbortController();
  try {
    const answer = await fetch('/events' + location.search, { signal: asked.signal });
    if (!answer.ok) told.textContent = (await answer.json()).error;
  } catch { // the server is gone, which the page says already
  }
  asked.abort();
}

listen();

// Another device or period is another address, of which the sections are sent.
let wanted = '';
document.addEventListener('click', e => {
  const link = e.target.closest('a[data-choose]');
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  const closing = link.classList.contains('close') || link.getAttribute('aria-expanded') === 'true';
  const row = closing ? document.querySelector('.gpu.chosen .name') : link;
  history.pushState(null, '', link.getAttribute('href'));
  wanted = closing ? '' : 'detail';
  listen();
  if (closing && row) row.focus();
});
addEventListener('popstate', listen);
new MutationObserver(() => {
  const title = $('detail-title');
  if (!title || wanted !== 'detail') return;
  wanted = '';
  title.focus({ preventScroll: true });
  const box = $('detail').getBoundingClientRect();
  if (box.top > innerHeight - 120 || box.top < 0) $('detail').scrollIntoView({ block: 'start' });
}).observe($('detail'), { childList: true });
addEventListener('keydown', e => { if (e.key === 'Escape' && !document.querySelector('dialog[open]')) { const close = document.querySelector('#detail .close'); if (close) close.click(); } });

// What is under the pointer, has the focus or was touched in a band says what it is.
function explain(e) {
  const about = e && e.closest && e.closest('.band [aria-label]');
  tip.hidden = !about;
  if (!about) return;
  tip.textContent = about.getAttribute('aria-label');
  const box = about.getBoundingClientRect(), width = tip.offsetWidth, height = tip.offsetHeight;
  const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), document.documentElement.clientWidth - width - 8);
  const above = box.top - height - 8;
  tip.style.left = left + scrollX + 'px';
  tip.style.top = (above < 8 ? box.bottom + 8 : above) + scrollY + 'px';
}
document.addEventListener('pointerover', e => { if (e.target.closest('.band') || !tip.contains(document.activeElement)) explain(e.target); });
document.addEventListener('focusin', e => explain(e.target));
document.addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });

// A band is one stop of the Tab key; arrows go through what is in it.
document.addEventListener('keydown', e => {
  const band = e.target.closest && e.target.closest('svg.band');
  const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[e.key];
  if (!band || !step) return;
  const all = [...band.querySelectorAll('[aria-label]')].sort((a, b) => a.getBoundingClientRect().left - b.getBoundingClientRect().left);
  if (!all.length) return;
  const now = all.indexOf(document.activeElement);
  const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + step, 0), all.length - 1);
  all[step === Infinity ? all.length - 1 : step === -Infinity ? 0 : next].focus();
  e.preventDefault();
});

// copy puts a text on the clipboard, also where the browser gives that only to encrypted pages.
async function copy(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'hidden';
  const active = document.activeElement;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  if (active) active.focus();
}

document.addEventListener('click', async e => {
  const button = e.target.closest('button[data-copy]');
  if (!button) return;
  await copy(button.dataset.copy);
  say(button, document.body.dataset.copied, 1500);
});

// say puts an answer beside a button, and says it to a screen reader.
function say(button, text, gone, more) {
  const place = button.closest('.acts') || button.parentElement;
  let note = place && place.querySelector('.answer');
  if (!note) {
    note = document.createElement('span');
    note.className = 'answer';
    note.setAttribute('data-live', '');
    if (place && place.isConnected) place.append(note);
  }
  note.textContent = text;
  if (more) note.append(' ', more);
  $('said').textContent = text;
  clearTimeout(note.timer);
  note.timer = setTimeout(() => { note.remove(); if ($('said').textContent === text) $('said').textContent = ''; }, gone);
}

// ports makes the links of services lead to the host that this page is read from.
function ports() {
  for (const a of document.querySelectorAll('a[data-port]')) a.href = 'http://' + location.hostname + ':' + a.dataset.port + '/';
}
ports();

// Actions ask before, and say what became of them at their row. The token is asked for when it is needed first.
const ask = $('ask');
let token = sessionStorage.getItem('token') || '';

async function act(button, action, words, undo) {
  const answer = await fetch('/api/' + action, {
    method: 'POST',
    headers: { 'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json' },
    body: JSON.stringify({ arguments: words }),
  });
  const text = await answer.json();
  if (answer.status === 401) { token = ''; sessionStorage.removeItem('token'); } else sessionStorage.setItem('token', token);
  let again;
  if (answer.ok && undo) {
    again = document.createElement('button');
    again.type = 'button';
    again.textContent = document.body.dataset.undo;
    again.addEventListener('click', () => act(button, undo, words));
  }
  say(button, answer.ok ? document.body.dataset.done : text.error, 15000, again);
}

if (ask) {
  let asked;
  document.addEventListener('click', e => {
    const button = e.target.closest('button[data-action]');
    if (!button) return;
    asked = button;
    $('ask-text').textContent = button.dataset.ask;
    $('ask-yes').textContent = button.textContent;
    $('ask-key').hidden = $('ask-hint').hidden = token !== '';
    ask.returnValue = '';
    ask.showModal();
    if (!token) ask.querySelector('input').focus();
  });
  ask.querySelector('form').addEventListener('submit', e => {
    const key = ask.querySelector('input');
    if (e.submitter && e.submitter.value === 'yes' && !token) {
      if (!key.value) { e.preventDefault(); key.focus(); return; }
      token = key.value;
    }
    key.value = '';
  });
  ask.addEventListener('close', () => {
    if (ask.returnValue === 'yes') act(asked, asked.dataset.action, asked.dataset.words.split(' '), asked.dataset.undo);
    if (asked.isConnected) asked.focus();
  });
}

// The chat page: wires the store, one connection per conversation, and the view together.

import {Connection} from './connection.js';
import {element as node} from './format.js';
import {renderMarkdown} from './markdown.js';
import {kDefaults, Store} from './store.js';
import {renderStrip} from './strip.js';
import {TiersView} from './tiers.js';

const $ = (id) => document.getElementById(id);
const running = new Map();      // conversation id -> {connection, message}
const store = new Store((id) => running.has(id));
const connections = new Map();  // conversation id -> Connection
let current = store.conversations[0] ?? store.create();
let modelName = '';
const tiers = new TiersView($('pool'), $('tiers'));
let looking = false;       // a look at the cache is under way
let lookedAt = 0;
let movedAt = -Infinity;   // when pages were last seen to move, or an answer ended
const kLivelyMs = 10_000;  // from then on, how long to look once a second
const kCalmLookMs = 5_000; // after that, how often while the picture is open

const kStarters = ['What is a spillway?', 'Write a haiku about rivers',
                   'Explain recursion to a child', 'A Python function that reverses a list'];

// ---- view ----

function button(className, text, onClick, label) {
  const made = node('button', className, text);
  made.type = 'button';
  if (label) made.setAttribute('aria-label', label);
  made.addEventListener('click', onClick);
  return made;
}

function showConversations() {
  const items = store.conversations.filter((c) => c.messages.length > 0 || c === current);
  $('conversations').replaceChildren(...items.map((conversation) => {
    const name = conversation.title || 'New conversation';
    const item = node('div', 'chat-item',
      button('name', name, () => select(conversation)),
      button('remove', '×', () => remove(conversation), `Delete ${name}`));
    item.classList.toggle('busy', running.has(conversation.id));
    if (conversation === current) item.setAttribute('aria-current', 'true');
    return item;
  }));
}

function showEmpty() {
  const starters = node('div', 'starters', ...kStarters.map((text) =>
    button('', text, () => {
      $('prompt').value = text;
      send();
    })));
  $('messages').replaceChildren(node('div', 'empty',
    node('h2', '', 'Nothing is computed twice'),
    node('p', '', 'Each answer shows how much of its prompt came from the cache. ' +
      'Ask a second question and watch the first one’s pages come back.'),
    starters));
}

function showMessages() {
  $('chat-title').textContent = current.title || 'New conversation';
  document.title = current.title ? `${current.title} · Spillway` : 'Spillway';
  if (current.messages.length === 0) {
    showEmpty();
  } else {
    $('messages').replaceChildren(...current.messages.map(messageNode));
    scrollToEnd(true);
  }
  showBusy();
}

function messageNode(message) {
  const text = node('div', 'text');
  const made = node('article', `message ${message.role}`, text);
  made.setAttribute('aria-label', message.role === 'user' ? 'You' : 'Answer');
  fillMessage(made, message);
  return made;
}

function fillMessage(made, message) {
  const text = made.querySelector('.text');
  if (message.role === 'user') {
    text.textContent = message.text;
    return;
  }
  text.replaceChildren(renderMarkdown(message.text));
  const isRunning = running.get(current.id)?.message === message;
  made.classList.toggle('streaming', isRunning);
  made.querySelectorAll('.strip, .note, .tools').forEach((old) => old.remove());
  if (message.error) made.append(node('p', 'note', message.error));
  if (message.cost) {
    const strip = node('div', 'strip');
    renderStrip(strip, message.cost);
    made.append(strip);
  }
  if (!isRunning) {
    const tools = node('div', 'tools', button('', 'Copy', (event) => copy(event, message.text)));
    if (message === current.messages.at(-1)) {
      tools.append(button('', 'Try again', () => retry()));
    }
    made.append(tools);
  }
}

function showLast() {
  const made = $('messages').lastElementChild;
  const nearEnd = isNearEnd();
  if (made) fillMessage(made, current.messages.at(-1));
  scrollToEnd(nearEnd);
}

function isNearEnd() {
  const box = $('messages');
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
}

function scrollToEnd(wanted) {
  if (wanted) $('messages').scrollTop = $('messages').scrollHeight;
}

function showBusy() {
  const busy = running.has(current.id);
  document.body.classList.toggle('busy-now', busy);
  $('send').setAttribute('aria-label', busy ? 'Stop' : 'Send');
  $('send').disabled = !busy && $('prompt').value.trim() === '';
}

async function copy(event, text) {
  const target = event.currentTarget;
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = 'Copied';
  } catch {
    target.textContent = 'Could not copy';
  }
  setTimeout(() => { target.textContent = 'Copy'; }, 1500);
}

// ---- conversations ----

function select(conversation) {
  current = conversation;
  openSidebar(false);
  showConversations();
  showMessages();
  $('prompt').focus();
}

function newChat() {
  const empty = store.conversations.find((c) => c.messages.length === 0);
  select(empty ?? store.create());
}

function remove(conversation) {
  stop(conversation);
  connections.get(conversation.id)?.stop();
  connections.delete(conversation.id);
  store.remove(conversation.id);
  if (conversation === current) {
    select(store.conversations[0] ?? store.create());
  } else {
    showConversations();
  }
}

// Another tab of this browser wrote something.
function followOtherTabs() {
  for (const id of running.keys()) {
    const gone = !store.conversations.some((c) => c.id === id);
    if (!gone) continue;
    running.get(id).connection.stop();
    running.delete(id);
    connections.delete(id);
  }
  if (current.messages.length > 0 && !store.conversations.includes(current)) {
    select(store.conversations[0] ?? store.create());
  } else {
    showConversations();
    if (!running.has(current.id)) showMessages();
  }
}

// ---- answers ----

function send() {
  const text = $('prompt').value.trim();
  if (text === '' || running.has(current.id)) return;
  $('prompt').value = '';
  fitPrompt();
  if (current.title === '') current.title = text.replace(/\s+/g, ' ').slice(0, 60);
  current.messages.push({role: 'user', text});
  answer();
}

function retry() {
  if (running.has(current.id)) return;
  if (current.messages.at(-1)?.role === 'assistant') current.messages.pop();
  answer();
}

function requestOf(conversation) {
  const s = store.settings;
  // An answer that never came leaves two questions in a row; templates may insist on turns.
  const input = [];
  for (const {role, text} of conversation.messages) {
    if (role === 'assistant' && text === '') continue;
    if (input.at(-1)?.role === role) {
      input.at(-1).content += '\n\n' + text;
    } else {
      input.push({type: 'message', role, content: text});
    }
  }
  const request = {model: modelName, input, return_progress: true, temperature: s.temperature, top_p: s.top_p,
                   max_output_tokens: s.max_output_tokens};
  if (s.instructions) request.instructions = s.instructions;
  if (s.top_k > 0) request.top_k = s.top_k;
  if (s.min_p > 0) request.min_p = s.min_p;
  if (s.seed !== null) request.seed = s.seed;
  return request;
}

function answer() {
  const conversation = current;
  const request = requestOf(conversation);
  const message = {role: 'assistant', text: ''};
  conversation.messages.push(message);
  const connection = connections.get(conversation.id) ?? new Connection();
  connections.set(conversation.id, connection);
  running.set(conversation.id, {connection, message});
  const started = performance.now();
  let first = null;
  let deltas = 0;
  let drawn = false;
  const show = () => {
    if (drawn || conversation !== current) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      if (conversation === current) showLast();
    });
  };
  const end = () => {
    store.save(conversation);
    if (running.get(conversation.id)?.message === message) running.delete(conversation.id);
    showConversations();
    if (conversation === current) {
      showLast();
      showBusy();
      $('announce').textContent = message.error ?? 'The answer is complete.';
    }
    movedAt = performance.now();  // what it leaves goes down now
    lookAtCache();
  };
  connection.answer(request, store.settings.api_key, {
    onText(delta) {
      message.text += delta;
      const now = performance.now();
      first ??= now;
      message.cost = {...message.cost, ttftMs: first - started, output: ++deltas,
                      seconds: (now - first) / 1000};
      show();
    },
    onWaiting(event) {
      message.cost = {waiting: event};
      show();
    },
    onPrefill(prompt, cached) {
      message.cost = {prompt, cached};
      show();
    },
    onDone(response) {
      const usage = response.usage;
      const now = performance.now();
      message.cost = {
        prompt: usage.input_tokens,
        cached: usage.input_tokens_details.cached_tokens,
        output: usage.output_tokens,
        ttftMs: (first ?? now) - started,
        seconds: (now - (first ?? now)) / 1000,
        receipt: usage.spillway,
      };
      end();
    },
    onError(text) {
      message.error = text;
      end();
    },
  });
  store.save(conversation);
  showConversations();
  showMessages();
}

function stop(conversation) {
  const entry = running.get(conversation.id);
  if (!entry) return;
  entry.connection.stop();
  if (entry.message.text === '') entry.message.error = 'Stopped before the first word.';
  store.save(conversation);
  running.delete(conversation.id);
  showConversations();
  if (conversation === current) {
    showLast();
    showBusy();
  }
}

// ---- server ----

function headers() {
  const key = store.settings.api_key;
  return key ? {Authorization: `Bearer ${key}`} : {};
}

async function loadModel() {
  try {
    const reply = await fetch('/v1/models', {headers: headers()});
    if (reply.status === 401) {
      $('model').textContent = 'the server asks for an API key: see Settings';
      return;
    }
    const list = await reply.json();
    modelName = list.data[0].id;
    $('model').textContent = modelName;
  } catch {
    $('model').textContent = 'waiting for the server …';
    setTimeout(loadModel, 1500);
  }
}

async function lookAtCache() {
  if (looking) return;
  looking = true;
  lookedAt = performance.now();
  try {
    const reply = await fetch('/debug/cache', {headers: headers()});
    if (reply.ok && tiers.render(await reply.json())) movedAt = performance.now();
  } catch {
    // The server is away; the next look may find it again.
  }
  looking = false;
}

function lookIfLively() {
  if (document.hidden) return;
  const now = performance.now();
  const lively = running.size > 0 || now - movedAt < kLivelyMs;
  if (lively || (tiers.isOpen() && now - lookedAt >= kCalmLookMs)) lookAtCache();
}

// ---- settings, theme, keys ----

function fillSettings(settings) {
  const form = $('settings').querySelector('form');
  for (const name of Object.keys(kDefaults)) form.elements[name].value = settings[name] ?? '';
}

function openSettings() {
  fillSettings(store.settings);
  $('settings').showModal();
}

function takeSettings() {
  const form = $('settings').querySelector('form');
  const settings = {...kDefaults};
  for (const name of Object.keys(kDefaults)) {
    const raw = form.elements[name].value.trim();
    if (form.elements[name].type === 'number') {
      const number = Number(raw);
      if (raw !== '' && form.elements[name].validity.valid) settings[name] = number;
    } else {
      settings[name] = raw;
    }
  }
  if (settings.api_key !== store.settings.api_key) {
    for (const [id, connection] of connections) if (!running.has(id)) connection.stop();
  }
  store.saveSettings(settings);
  loadModel();
  lookAtCache();
}

function readTheme() {
  try {
    return localStorage.getItem('spillway.theme');
  } catch {
    return null;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function openSidebar(open) {
  document.body.classList.toggle('sidebar-open', open);
  $('shade').hidden = !open;
  $('open-sidebar').setAttribute('aria-expanded', String(open));
}

function fitPrompt() {
  const box = $('prompt');
  box.style.setProperty('height', 'auto');
  box.style.setProperty('height', box.scrollHeight + 'px');
  showBusy();
}

function wire() {
  const wish = readTheme();
  const dark = matchMedia('(prefers-color-scheme: dark)');
  setTheme(wish ?? (dark.matches ? 'dark' : 'light'));
  dark.addEventListener('change', () => {
    if (!readTheme()) setTheme(dark.matches ? 'dark' : 'light');
  });
  $('theme').addEventListener('click', () => {
    const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    setTheme(theme);
    try {
      localStorage.setItem('spillway.theme', theme);
    } catch {
      // Storage is switched off: the choice lasts as long as the page.
    }
  });
  $('new-chat').addEventListener('click', newChat);
  $('open-sidebar').addEventListener('click', () =>
    openSidebar(!document.body.classList.contains('sidebar-open')));
  $('shade').addEventListener('click', () => openSidebar(false));
  $('open-settings').addEventListener('click', openSettings);
  // Only Done takes them: Esc and Cancel close the dialog without.
  $('settings').querySelector('form').addEventListener('submit', takeSettings);
  $('cancel-settings').addEventListener('click', () => $('settings').close());
  $('reset-settings').addEventListener('click', () => fillSettings(kDefaults));
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (running.has(current.id)) stop(current); else send();
  });
  $('prompt').addEventListener('input', () => {
    fitPrompt();
    connections.get(current.id)?.near();
  });
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !$('settings').open) {
      if (document.body.classList.contains('sidebar-open')) openSidebar(false);
      else stop(current);
    }
    if (event.altKey && event.key.toLowerCase() === 'n') {
      event.preventDefault();
      newChat();
    }
  });
  // The end stays in view when the box changes its size: the picture opens, a phone turns.
  let atEnd = true;
  $('messages').addEventListener('scroll', () => { atEnd = isNearEnd(); });
  new ResizeObserver(() => scrollToEnd(atEnd && current.messages.length > 0))
    .observe($('messages'));
  $('messages').addEventListener('click', (event) => {
    const target = event.target.closest('.copy-code');
    if (target) copy({currentTarget: target}, target.closest('.code').querySelector('pre').textContent);
  });
}

wire();
store.watch(followOtherTabs);
showConversations();
showMessages();
fitPrompt();
loadModel();
lookAtCache();
setInterval(lookIfLively, 1000);

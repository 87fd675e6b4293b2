// What an answer cost: its receipt, where each token of the prompt came from, and the time it took.

import {element, formatCount, formatMs} from './format.js';

const kSources = {
  device: ['from device', 'Was still in the device’s memory: nothing to do'],
  host: ['from host', 'Came up from host memory'],
  nvme: ['from NVMe', 'Came up from the disk'],
  cached: ['from the cache', 'Was in the cache'],
  computed: ['computed', 'Had to be computed'],
};

function counted(source, count) {
  const [word, title] = kSources[source];
  const made = element('span', 'count', element('i', `swatch from-${source}`),
                       element('b', '', formatCount(count)), ' ' + word);
  made.dataset.from = source;
  made.title = title;
  return made;
}

// [[source, tokens]]: what is known of them. While an answer runs that is the sum of the tiers.
function sourcesOf(cost) {
  if (!cost.receipt) {
    return [['cached', cost.cached], ['computed', cost.prompt - cost.cached]];
  }
  const {device, host, nvme, computed} = cost.receipt.tokens;
  const lower = [['host', host], ['nvme', nvme]].filter(([, tokens]) => tokens > 0);
  return [['device', device], ...lower, ['computed', computed]];
}

function barOf(sources) {
  const bar = element('span', 'bar');
  for (const [source, tokens] of sources) {
    if (tokens === 0) continue;
    const part = element('i', `from-${source}`);
    part.style.setProperty('flex-grow', String(tokens));
    bar.append(part);
  }
  bar.setAttribute('aria-hidden', 'true');
  return bar;
}

function timesOf(cost) {
  const times = [];
  const loadMs = cost.receipt?.wait_ms.load ?? 0;
  if (loadMs > 0) {
    const shown = loadMs < 1 ? 'less than 1 ms' : formatMs(loadMs);
    times.push(element('span', '', `waited ${shown} for pages`));
    times[0].title = 'Had nothing to do but wait until pages came up from host memory or NVMe';
  }
  if (cost.ttftMs !== undefined) {
    times.push(element('span', '', `first token after ${formatMs(cost.ttftMs)}`));
  }
  if (cost.output > 1 && cost.seconds > 0) {
    times.push(element('span', '', `${((cost.output - 1) / cost.seconds).toFixed(1)} tokens/s`));
  }
  return times;
}

// While nothing has come yet: where the request stands.
function waitingOf(event) {
  if (event.state === 'queued') {
    const {before} = event;
    return before > 0 ? `waiting: ${formatCount(before)} before it` : 'waiting: next in the queue';
  }
  const {host, nvme} = event.loading;
  if (event.state === 'loading') {
    const parts = [];
    if (nvme > 0) parts.push(`${formatCount(nvme)} tokens from NVMe`);
    if (host > 0) parts.push(`${formatCount(host)} tokens from host`);
    return `loading ${parts.join(' and ') || 'pages'}`;
  }
  const there = Object.values(event.tokens).reduce((sum, tokens) => sum + tokens, 0);
  return `computing: ${formatCount(there)} of ${formatCount(event.prompt_tokens)} prompt tokens`;
}

// cost: {waiting} and then {prompt, cached, output, ttftMs, seconds, receipt}; any may be missing while it streams.
// receipt: `usage.spillway`.
export function renderStrip(strip, cost) {
  strip.replaceChildren();
  if (cost.waiting && cost.prompt === undefined) {
    const line = element('span', 'waiting', waitingOf(cost.waiting));
    line.dataset.state = cost.waiting.state;
    strip.append(line);
  }
  if (cost.prompt !== undefined) {
    const sources = sourcesOf(cost);
    strip.append(element('span', 'prompt-size', barOf(sources),
                         `${formatCount(cost.prompt)} prompt tokens:`),
                 ...sources.map(([source, tokens]) => counted(source, tokens)));
  }
  const times = timesOf(cost);
  if (times.length > 0) strip.append(element('span', 'times', ...times));
  const divergence = cost.receipt?.first_divergence ?? null;
  if (divergence !== null && cost.receipt.tokens.computed > 0) {
    const line = element('span', 'divergence',
                         `differs from what is cached at token ${formatCount(divergence)}`);
    line.title = 'The cache knew the prompt up to there. If that is near its start, look for ' +
        'something that changes each time, such as a date.';
    strip.append(line);
  }
}

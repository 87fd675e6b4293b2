// How full the cache is: the gauge in the head, and below it the live picture of the tiers. Both
// show what /debug/cache says; it holds no text of any prompt.

import {element, formatBytes, formatCount} from './format.js';

const kNames = {device: 'Device', host: 'Host', nvme: 'NVMe'};
const kKey = 'spillway.tiers';  // 'open' or 'closed', once somebody chose
const kWide = '(min-width: 761px)';

// The bytes and pages of the device, over the groups of layers.
function deviceOf(pools) {
  const device = {capacity: 0, used: 0, kept: 0, pages: 0};
  for (const pool of pools) {
    const used = pool.writable + pool.filling + pool.orphaned + pool.pinned;
    const kept = pool.sealed - pool.pinned;
    device.capacity += pool.capacity * pool.page_bytes;
    device.used += used * pool.page_bytes;
    device.kept += kept * pool.page_bytes;
    device.pages += used + kept;
  }
  return device;
}

function warningsOf(tiers) {
  const warnings = [];
  for (const tier of ['host', 'nvme']) {
    if (tiers[tier]?.set_aside) {
      warnings.push(`${kNames[tier]} is set aside: reading failed or was too slow. Prompts are ` +
                    'computed meanwhile; it is tried again now and then.');
    }
  }
  if (tiers.nvme?.read_only) {
    warnings.push('NVMe is read-only: the disk takes no new pages.');
  } else if (tiers.nvme?.writes_set_aside) {
    warnings.push('Nothing is written to NVMe: writing failed or was too slow. It is tried again ' +
                  'now and then.');
  }
  return warnings;
}

function percent(part, whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// One arrow with the pages that went its way since the last look.
function arrow(direction, pages) {
  const made = element('span', direction, element('span', 'sign', direction === 'up' ? '↑' : '↓'),
                       ' ' + formatCount(pages), element('span', 'sr-only', ` pages ${direction}`));
  made.querySelector('.sign').setAttribute('aria-hidden', 'true');
  made.classList.toggle('moving', pages > 0);
  made.dataset.pages = String(pages);
  return made;
}

function movesOf(now, before) {
  const since = (name) => Math.max(0, now[name] - (before?.[name] ?? now[name]));
  return {up: since('reads'), down: since('writes')};
}

export class TiersView {
  // gauge: the button that opens and closes `picture`.
  constructor(gauge, picture) {
    this.gauge = gauge;
    this.picture = picture;
    this.before = {};      // what the tiers had counted at the last look
    this.drawn = '';       // which tiers the picture has cells for
    this.wish = readWish();
    this.rendered = false;
    this.gauge.addEventListener('click', () => {
      this.wish = this.picture.hidden ? 'open' : 'closed';
      writeWish(this.wish);
      this.open(this.wish === 'open');
    });
  }

  isOpen() { return !this.picture.hidden; }

  open(wanted) {
    this.picture.hidden = !wanted;
    this.gauge.setAttribute('aria-expanded', String(wanted));
  }

  // state: the body of /debug/cache. True: pages have moved since the last look.
  render(state) {
    const device = deviceOf(state.pools);
    const lower = ['host', 'nvme'].filter((tier) => state.tiers?.[tier]?.capacity_bytes > 0);
    const warnings = warningsOf(state.tiers ?? {});
    this.renderGauge(device, warnings);
    if (!this.rendered) {
      this.open(this.wish ? this.wish === 'open' : lower.length > 0 && matchMedia(kWide).matches);
      this.rendered = true;
    }
    this.makeCells(['device', ...lower]);
    this.fillCell('device', {used: device.used + device.kept, capacity: device.capacity,
                             pages: device.pages, running: state.running});
    let moved = false;
    for (const tier of lower) {
      const now = state.tiers[tier];
      const moves = movesOf(now, this.before[tier]);
      this.before[tier] = now;
      moved ||= moves.up + moves.down > 0;
      this.fillCell(tier, {used: now.used_bytes, capacity: now.capacity_bytes, pages: now.pages,
                           moves, warned: now.set_aside || now.read_only || now.writes_set_aside});
    }
    this.renderHits(state);
    this.renderWarnings(warnings);
    return moved;
  }

  renderGauge(device, warnings) {
    const {gauge} = this;
    gauge.querySelector('.used').style.setProperty('width',
                                                   percent(device.used, device.capacity) + '%');
    gauge.querySelector('.kept').style.setProperty('width',
                                                   percent(device.kept, device.capacity) + '%');
    const text = `${formatBytes(device.used + device.kept)} of ${formatBytes(device.capacity)}`;
    gauge.querySelector('.pool-text').textContent = (warnings.length > 0 ? '⚠ ' : '') + text;
    const title = [`Cache ${text}: ${formatBytes(device.used)} in use by running answers, ` +
                   `${formatBytes(device.kept)} kept for what comes again`, ...warnings].join('. ');
    gauge.title = title;
    gauge.setAttribute('aria-label', title);
  }

  makeCells(tiers) {
    if (this.drawn === tiers.join()) return;
    this.drawn = tiers.join();
    this.picture.querySelector('.tier-cells').replaceChildren(...tiers.map((tier) => {
      const fill = element('i', `fill from-${tier}`);
      const bar = element('span', 'tier-bar', fill);
      bar.setAttribute('aria-hidden', 'true');
      const cell = element('li', 'tier', element('span', 'tier-name', kNames[tier]),
                           element('span', 'moves'), bar, element('span', 'tier-size'),
                           element('span', 'tier-pages'));
      cell.dataset.tier = tier;
      return cell;
    }));
  }

  fillCell(tier, {used, capacity, pages, running, moves, warned}) {
    const cell = this.picture.querySelector(`[data-tier="${tier}"]`);
    cell.classList.toggle('warned', Boolean(warned));
    cell.querySelector('.fill').style.setProperty('width', percent(used, capacity) + '%');
    cell.querySelector('.tier-size').textContent =
        `${formatBytes(used)} of ${formatBytes(capacity)}`;
    cell.querySelector('.tier-pages').textContent =
        `${formatCount(pages)} ${pages === 1 ? 'page' : 'pages'}`;
    const line = cell.querySelector('.moves');
    if (moves) {
      line.replaceChildren(arrow('up', moves.up), arrow('down', moves.down));
      line.title = 'Pages that came up from here, and went down to here, since the last look';
    } else {
      line.textContent = running > 0 ? `${formatCount(running)} running` : 'nothing running';
    }
  }

  renderHits(state) {
    const share = percent(state.cached_tokens, state.prompt_tokens);
    this.picture.querySelector('.hit-share').textContent =
        state.prompt_tokens > 0 ? `${Math.round(share)}%` : '–';
  }

  renderWarnings(warnings) {
    const box = this.picture.querySelector('.tier-warnings');
    const text = warnings.join('\n');
    if (box.dataset.text === text) return;  // a screen reader says it once
    box.dataset.text = text;
    box.replaceChildren(...warnings.map((warning) => element('p', '', '⚠ ' + warning)));
  }
}

function readWish() {
  try {
    return localStorage.getItem(kKey);
  } catch {
    return null;
  }
}

function writeWish(wish) {
  try {
    localStorage.setItem(kKey, wish);
  } catch {
    // Storage is switched off: the choice lasts as long as the page.
  }
}

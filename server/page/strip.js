// What an answer cost, and how full the cache is.

const kNumber = new Intl.NumberFormat('en');

function span(className, ...children) {
  const node = document.createElement('span');
  node.className = className;
  node.append(...children);
  return node;
}

function counted(className, count, word) {
  const dot = span('dot');
  const number = document.createElement('b');
  number.textContent = kNumber.format(count);
  return span(className, dot, number, ' ' + word);
}

// cost: {prompt, cached, output, ttftMs, seconds}; any may be missing while it streams.
export function renderStrip(strip, cost) {
  strip.replaceChildren();
  if (cost.prompt !== undefined) {
    const bar = span('bar');
    for (const [name, count] of [['cached', cost.cached], ['computed', cost.prompt - cost.cached]]) {
      const part = span(name);
      part.style.setProperty('flex-grow', String(count));
      bar.append(part);
    }
    bar.setAttribute('aria-hidden', 'true');
    strip.append(bar, counted('cached', cost.cached, 'prompt tokens from the cache'),
                 counted('computed', cost.prompt - cost.cached, 'computed'));
  }
  if (cost.ttftMs !== undefined) {
    strip.append(span('', `first token after ${formatMs(cost.ttftMs)}`));
  }
  if (cost.output > 1 && cost.seconds > 0) {
    strip.append(span('', `${((cost.output - 1) / cost.seconds).toFixed(1)} tokens/s`));
  }
}

function formatMs(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    ++unit;
  }
  return `${bytes < 10 && unit > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

// pools: [{capacity, free, writable, sealed, pinned, page_bytes}] as /debug/cache gives them.
export function renderPool(node, pools) {
  let capacity = 0, used = 0, kept = 0;
  for (const pool of pools) {
    capacity += pool.capacity * pool.page_bytes;
    used += (pool.writable + pool.filling + pool.orphaned + pool.pinned) * pool.page_bytes;
    kept += (pool.sealed - pool.pinned) * pool.page_bytes;
  }
  const percent = (bytes) => capacity > 0 ? 100 * bytes / capacity : 0;
  node.querySelector('.used').style.setProperty('width', percent(used) + '%');
  node.querySelector('.kept').style.setProperty('width', percent(kept) + '%');
  const text = `cache ${formatBytes(used + kept)} of ${formatBytes(capacity)}`;
  node.querySelector('.pool-text').textContent = text.replace('cache ', '');
  const title = `${text}: ${formatBytes(used)} in use by running answers, ` +
      `${formatBytes(kept)} kept for what comes again`;
  node.title = title;
  node.setAttribute('aria-label', title);
}

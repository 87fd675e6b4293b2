// Markdown to DOM nodes. Only nodes are made, never HTML from text, so a model's answer cannot
// inject markup. Covers what models write: headings, lists, quotes, tables, code, links, emphasis.

export function renderMarkdown(source) {
  const fragment = document.createDocumentFragment();
  renderBlocks(source.replace(/\r\n?/g, '\n').split('\n'), fragment);
  return fragment;
}

const kBullet = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kHeading = /^(#{1,6})\s+(.*?)\s*#*$/;
const kFence = /^(\s*)(```+|~~~+)\s*([\w+#.-]*)[^`]*$/;
const kRule = /^\s*([-*_])(\s*\1){2,}\s*$/;

function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function renderBlocks(lines, parent) {
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(kFence);
    if (fence) {
      at = renderFence(lines, at, fence, parent);
    } else if (line.trim() === '') {
      ++at;
    } else if (kRule.test(line)) {
      parent.append(element('hr'));
      ++at;
    } else if (kHeading.test(line)) {
      const [, marks, text] = line.match(kHeading);
      parent.append(element('h' + Math.min(4, marks.length), ...inline(text)));
      ++at;
    } else if (/^\s*>/.test(line)) {
      const quoted = [];
      while (at < lines.length && /^\s*>/.test(lines[at])) {
        quoted.push(lines[at++].replace(/^\s*> ?/, ''));
      }
      const quote = element('blockquote');
      renderBlocks(quoted, quote);
      parent.append(quote);
    } else if (kBullet.test(line)) {
      at = renderList(lines, at, parent);
    } else if (isTable(lines, at)) {
      at = renderTable(lines, at, parent);
    } else {
      at = renderParagraph(lines, at, parent);
    }
  }
}

function renderFence(lines, at, [, indent, mark, language], parent) {
  const body = [];
  let end = at + 1;
  for (; end < lines.length; ++end) {
    const closing = lines[end].trim();
    if (closing.startsWith(mark) && closing.replaceAll(mark[0], '') === '') break;
    body.push(lines[end].startsWith(indent) ? lines[end].slice(indent.length) : lines[end]);
  }
  const copy = element('button', 'Copy');
  copy.type = 'button';
  copy.className = 'copy-code';
  const bar = element('div', element('span', language || 'text'), copy);
  bar.className = 'bar';
  const block = element('div', bar, element('pre', element('code', body.join('\n'))));
  block.className = 'code';
  parent.append(block);
  return end + 1;
}

function renderList(lines, at, parent) {
  const [, indent, mark] = lines[at].match(kBullet);
  const ordered = /\d/.test(mark);
  const list = element(ordered ? 'ol' : 'ul');
  if (ordered && parseInt(mark, 10) !== 1) list.start = parseInt(mark, 10);
  while (at < lines.length) {
    const item = lines[at].match(kBullet);
    if (!item || item[1].length !== indent.length || /\d/.test(item[2]) !== ordered) break;
    // What is indented below an item belongs to it; one blank line may stand between.
    const body = [item[3]];
    for (++at; at < lines.length; ++at) {
      const deeper = lines[at].match(/^\s*/)[0].length > indent.length;
      const blank = lines[at].trim() === '';
      const next = lines[at + 1] ?? '';
      if (blank && (next.match(/^\s*/)[0].length <= indent.length || next.trim() === '')) break;
      if (!blank && !deeper && (kBullet.test(lines[at]) || startsBlock(lines[at]))) break;
      body.push(lines[at].slice(Math.min(indent.length + 2, lines[at].match(/^\s*/)[0].length)));
    }
    while (at < lines.length && lines[at].trim() === '' && kBullet.test(lines[at + 1] ?? '')) ++at;
    const node = element('li');
    renderBlocks(body, node);
    if (node.children.length === 1 && node.firstChild.tagName === 'P') {
      node.replaceChildren(...node.firstChild.childNodes);
    }
    list.append(node);
  }
  parent.append(list);
  return at;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((c) => c.trim());
}

function isTable(lines, at) {
  return lines[at].includes('|') && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? '')
      && lines[at + 1].includes('-');
}

function renderTable(lines, at, parent) {
  const row = (line, name) =>
    element('tr', ...cells(line).map((c) => element(name, ...inline(c))));
  const table = element('table', element('thead', row(lines[at], 'th')));
  const body = element('tbody');
  for (at += 2; at < lines.length && lines[at].includes('|'); ++at) body.append(row(lines[at], 'td'));
  table.append(body);
  parent.append(table);
  return at;
}

function startsBlock(line) {
  return kHeading.test(line) || kFence.test(line) || /^\s*>/.test(line) || kRule.test(line);
}

function renderParagraph(lines, at, parent) {
  const body = [lines[at++]];
  while (at < lines.length && lines[at].trim() !== '' && !startsBlock(lines[at]) &&
         !kBullet.test(lines[at]) && !isTable(lines, at)) {
    body.push(lines[at++]);
  }
  const paragraph = element('p');
  body.forEach((line, i) => {
    if (i > 0) paragraph.append(/ {2,}$/.test(body[i - 1]) ? element('br') : '\n');
    paragraph.append(...inline(line.trimEnd()));
  });
  parent.append(paragraph);
  return at;
}

const kInline = [
  [/^(`+)([^]*?[^`])\1(?!`)/, (m) => element('code', m[2].replace(/^ (.*) $/, '$1'))],
  [/^\*\*(?=\S)([^]*?\S)\*\*/, (m) => element('strong', ...inline(m[1]))],
  [/^__(?=\S)([^]*?\S)__(?!\w)/, (m) => element('strong', ...inline(m[1]))],
  [/^~~(?=\S)([^]*?\S)~~/, (m) => element('del', ...inline(m[1]))],
  [/^\*(?=[^\s*])([^]*?[^\s*])\*(?!\*)/, (m) => element('em', ...inline(m[1]))],
  [/^_(?=[^\s_])([^]*?[^\s_])_(?!\w)/, (m) => element('em', ...inline(m[1]))],
  [/^\[([^\]\n]+)\]\((https?:\/\/[^\s)]+|mailto:[^\s)]+)\)/, (m) => link(m[2], inline(m[1]))],
  [/^https?:\/\/[^\s<>"')\]]+[^\s<>"')\].,;:!?]/, (m) => link(m[0], [m[0]])],
];

function link(target, children) {
  const node = element('a', ...children);
  node.href = target;
  node.target = '_blank';
  node.rel = 'noopener noreferrer';
  return node;
}

function inline(text) {
  const nodes = [];
  let plain = '';
  let at = 0;
  const marks = '`*_~[h\\';
  while (at < text.length) {
    const c = text[at];
    if (marks.includes(c)) {
      if (c === '\\' && /[\\`*_~[\]#>|!-]/.test(text[at + 1] ?? '')) {
        plain += text[at + 1];
        at += 2;
        continue;
      }
      const inWord = c === '_' && /\w/.test(text[at - 1] ?? '');
      const rest = text.slice(at);
      const rule = inWord ? undefined : kInline.find(([pattern]) => pattern.test(rest));
      if (rule) {
        const match = rest.match(rule[0]);
        if (plain) nodes.push(plain);
        plain = '';
        nodes.push(rule[1](match));
        at += match[0].length;
        continue;
      }
    }
    plain += c;
    ++at;
  }
  if (plain) nodes.push(plain);
  return nodes;
}

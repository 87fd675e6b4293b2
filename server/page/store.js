// Conversations and settings, kept in this browser's local storage. Several tabs share it: each
// writes only after merging with what is there, conversation by conversation, the newer one wins,
// and takes over what other tabs wrote when the browser tells of it.

const kConversations = 'spillway.conversations';
const kDeleted = 'spillway.deleted';  // id -> when; so that a merge does not bring them back
const kDeletedMax = 500;
const kSettings = 'spillway.settings';

export const kDefaults = {
  instructions: '', temperature: 0.7, top_p: 0.95, top_k: 0, min_p: 0, max_output_tokens: 1024,
  seed: null, api_key: '',
};

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;  // storage full or switched off: the page goes on without
  }
}

export class Store {
  // isBusy(id): this tab is changing that conversation now, so its own copy stays.
  constructor(isBusy) {
    this.isBusy = isBusy;
    this.conversations = [];
    this.settings = {};
    this.load();
  }

  create() {
    const conversation = {id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()),
                          title: '', messages: [], created: Date.now(), updated: 0};
    this.conversations.unshift(conversation);
    return conversation;
  }

  // Takes over what is stored. Objects stay the same ones.
  load() {
    this.settings = {...kDefaults, ...read(kSettings, {})};
    this.merge(read(kConversations, []), read(kDeleted, {}));
  }

  // Keeps `changed`. Conversations without a message are dropped, so that opening the page leaves
  // nothing behind.
  save(changed) {
    changed.updated = Math.max(Date.now(), (changed.updated ?? 0) + 1);
    this.load();
    this.write();
  }

  remove(id) {
    const deleted = Object.entries({...read(kDeleted, {}), [id]: Date.now()});
    deleted.sort((a, b) => b[1] - a[1]);
    write(kDeleted, Object.fromEntries(deleted.slice(0, kDeletedMax)));
    this.load();
    this.write();
  }

  saveSettings(settings) {
    this.settings = settings;
    write(kSettings, settings);
  }

  // onChange() is called after another tab changed something.
  watch(onChange) {
    addEventListener('storage', (event) => {
      if (event.key === null) this.conversations = [];  // the browser's data was cleared
      if (event.key !== null && ![kConversations, kDeleted, kSettings].includes(event.key)) return;
      this.load();
      onChange();
    });
  }

  merge(stored, deleted) {
    const mine = new Map(this.conversations.map((c) => [c.id, c]));
    for (const theirs of stored) {
      if (!Array.isArray(theirs?.messages)) continue;
      const own = mine.get(theirs.id);
      if (!own) {
        mine.set(theirs.id, theirs);
      } else if ((theirs.updated ?? 0) > (own.updated ?? 0) && !this.isBusy(own.id)) {
        Object.assign(own, theirs);
      }
    }
    this.conversations = [...mine.values()].filter((c) => !deleted[c.id]);
    this.conversations.sort((a, b) => (b.created ?? 0) - (a.created ?? 0));
  }

  write() {
    const kept = this.conversations.filter((c) => c.messages.length > 0);
    // When full, the oldest conversations go first.
    while (!write(kConversations, kept) && kept.length > 1) kept.pop();
  }
}

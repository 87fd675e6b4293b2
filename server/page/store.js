// Conversations and settings, kept in this browser's local storage.

const kConversations = 'spillway.conversations';
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
  constructor() {
    this.conversations = read(kConversations, []).filter((c) => Array.isArray(c?.messages));
    this.settings = {...kDefaults, ...read(kSettings, {})};
  }

  create() {
    const conversation = {id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()),
                          title: '', messages: []};
    this.conversations.unshift(conversation);
    return conversation;
  }

  // Drops empty ones, so that opening the page leaves nothing behind.
  save() {
    const kept = this.conversations.filter((c) => c.messages.length > 0);
    // When full, the oldest conversations go first.
    while (!write(kConversations, kept) && kept.length > 1) kept.pop();
  }

  remove(id) {
    this.conversations = this.conversations.filter((c) => c.id !== id);
    this.save();
  }

  saveSettings(settings) {
    this.settings = settings;
    write(kSettings, settings);
  }
}

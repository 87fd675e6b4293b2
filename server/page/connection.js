// One conversation's WebSocket to /v1/responses. Closing it cancels what runs, which is how Stop
// works; the next answer opens it again.

const kNearEveryMs = 3000;

export class Connection {
  constructor() {
    this.socket = null;
    this.handlers = null;
    this.nearAt = -Infinity;
  }

  // Runs one answer. handlers: onWaiting(event), onPrefill(prompt, cached),
  // onText(delta), onDone(response), onError(message). One at a time.
  async answer(request, apiKey, handlers) {
    this.handlers = handlers;
    try {
      await this.open(apiKey);
    } catch (error) {
      if (this.handlers === handlers) this.fail(error.message);
      return;
    }
    if (this.handlers !== handlers) return;  // stopped meanwhile
    this.socket.send(JSON.stringify({type: 'response.create', store: false, ...request}));
  }

  // The user types: what the server keeps of this conversation may come up meanwhile.
  near() {
    const now = performance.now();
    if (this.socket?.readyState !== WebSocket.OPEN || this.handlers) return;
    if (now - this.nearAt < kNearEveryMs) return;
    this.nearAt = now;
    this.socket.send(JSON.stringify({type: 'spillway:prefetch'}));
  }

  stop() {
    this.handlers = null;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  open(apiKey) {
    if (this.socket?.readyState === WebSocket.OPEN) return Promise.resolve();
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    // A browser cannot set headers on a WebSocket; a key travels as a subprotocol.
    const protocols = apiKey ? ['realtime', `openai-insecure-api-key.${apiKey}`] : [];
    const socket = new WebSocket(`${scheme}//${location.host}/v1/responses`, protocols);
    this.socket = socket;
    socket.onmessage = (event) => {
      if (this.socket === socket) this.receive(JSON.parse(event.data));
    };
    return new Promise((resolve, reject) => {
      let opened = false;
      socket.onopen = () => {
        opened = true;
        resolve();
      };
      socket.onclose = () => {
        const mine = this.socket === socket;
        if (mine) this.socket = null;
        if (!opened) {
          reject(new Error('The server did not open the connection. Is it running, and does it ' +
                           'ask for an API key (Settings)?'));
        } else if (mine) {
          this.fail('The connection to the server was lost.');
        }
      };
    });
  }

  receive(event) {
    const handlers = this.handlers;
    if (!handlers) return;
    switch (event.type) {
      case 'spillway:waiting':
        handlers.onWaiting(event);
        break;
      case 'spillway:prefill_progress':
        handlers.onPrefill(event.prompt_tokens, event.cached_tokens);
        break;
      case 'response.output_text.delta':
        handlers.onText(event.delta);
        break;
      case 'response.completed':
      case 'response.incomplete':
        this.handlers = null;
        handlers.onDone(event.response);
        break;
      case 'response.failed':
        this.fail(event.response?.error?.message ?? 'The answer failed.');
        break;
      case 'error':
        this.fail(event.error?.message ?? event.message ?? 'The server reported an error.');
        break;
    }
  }

  fail(message) {
    const handlers = this.handlers;
    this.handlers = null;
    handlers?.onError(message);
  }
}

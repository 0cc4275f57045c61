// The questions to the server, and the connection that tells when to ask again. In a file that was saved, answers are
// in the file.

const RETRY_FIRST = 500;
const RETRY_MOST = 5000;

export class Refused extends Error {}

// The answers that a saved file carries, or null when there is a server.
export function embedded() {
  const data = document.getElementById('bayplan-data');
  return data ? JSON.parse(data.textContent) : null;
}

async function answerOf(response) {
  if (response.ok) return response.json();
  const text = (await response.text()).trim();
  throw new Refused(text || `the server answers ${response.status}`);
}

export async function ask(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(parameters).toString();
  return answerOf(await fetch(`/api/${path}${query ? `?${query}` : ''}`, { cache: 'no-store', signal }));
}

export async function send(path, body) {
  const headers = { 'content-type': 'application/json' };
  return answerOf(await fetch(`/api/${path}`, { method: 'POST', cache: 'no-store', headers, body: JSON.stringify(body) }));
}

const pause = (millis) => new Promise((resume) => { setTimeout(resume, millis); });

// Waits for changes for as long as the page is open. `on.changed` is awaited: the next wait begins after it.
export async function follow(on) {
  let [seen, connected, retry] = [null, false, RETRY_FIRST];
  for (;;) {
    try {
      // The first question of a connection returns at once: what was missed is asked for again.
      const now = await ask('events', connected && seen ? { seen } : {});
      retry = RETRY_FIRST;
      if (!connected) on.connected();
      if (!connected || now.seen !== seen) await on.changed(now);
      [seen, connected] = [now.seen, true];
    } catch (error) {
      if (connected) on.disconnected(error);
      else on.waiting(error);
      connected = false;
      await pause(retry);
      retry = Math.min(RETRY_MOST, retry * 1.6);
    }
  }
}

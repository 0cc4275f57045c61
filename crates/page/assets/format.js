// Numbers, quantities and times as a person reads them.

const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];

export function count(number) {
  return number.toLocaleString('en-US');
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function cpu(milli) {
  if (milli % 1000 === 0 || Math.abs(milli) >= 10000) return count(Math.round(milli / 100) / 10);
  return `${count(milli)}m`;
}

export function memory(bytes) {
  let [value, unit] = [bytes, 0];
  while (Math.abs(value) >= 1024 && unit < BINARY.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value >= 100 ? Math.round(value) : Math.round(value * 10) / 10}${BINARY[unit]}`;
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function clock(millis) {
  const time = new Date(millis);
  const two = (number) => String(number).padStart(2, '0');
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

export function dayAndClock(millis) {
  const time = new Date(millis);
  const two = (number) => String(number).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(millis)}`;
}

export function podName(pod) {
  return `${pod.namespace}/${pod.name}`;
}

// A pod is given by name, or as an object with one.
export function nameOf(pod) {
  return typeof pod === 'string' ? pod : podName(pod);
}

const VERDICTS = {
  Placed: 'placed',
  WillPlace: 'fits now',
  NotYet: 'not yet',
  Never: 'never as specified',
  Gated: 'gated',
};

export function verdictText(verdict) {
  return VERDICTS[verdict] ?? verdict ?? 'unknown';
}

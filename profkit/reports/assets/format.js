// Numbers with units, as the tables of the page show them.

const FIXED = '\u00a0';
const NARROW = '\u202f';
const MINUS = '\u2212';

export function duration(ns) {
  if (ns === null || ns === undefined) return 'unknown';
  for (const [size, unit] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) {
    const value = ns / size;
    if (Math.abs(value) >= 1) return digits(value).replace('-', MINUS) + FIXED + unit;
  }
  return String(Math.round(ns)).replace('-', MINUS) + FIXED + 'ns';
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.05) return `< 0.1${FIXED}%`;
  return (value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)) + FIXED + '%';
}

export function count(value) {
  const text = Number.isInteger(value) ? String(value) : value.toFixed(1);
  return text.replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, NARROW);
}

// Three figures, or all before the point.
export function figures(value) {
  return value >= 100 ? count(Math.round(value)) : String(Number(value.toPrecision(3)));
}

export function amount(value, unit) { return figures(value) + FIXED + unit; }

// Black or white, whichever is easier to read on a '#rrggbb' colour.
export function inkOn(colour) {
  return luminance(colour) > 0.3 ? '#14181f' : '#ffffff';
}

function luminance(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const c = parseInt(colour.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// A '#rrggbb' colour that stands out from a dark `ground` by a contrast of 3 to 1, as pale as that takes.
export function seenOn(ground, colour) {
  const [behind, start] = [luminance(ground), luminance(colour)];
  if (behind > 0.2) return colour;
  let share = 0;
  let shown = colour;
  for (let light = start; light + 0.05 < 3 * (behind + 0.05) && share < 1; light = luminance(shown)) {
    share += 0.05;
    shown = mix(colour, '#ffffff', share);
  }
  return shown;
}

// A mix of two '#rrggbb' colours; `share` is how much of the second there is.
export function mix(one, two, share) {
  const parts = [1, 3, 5].map((at) => {
    const a = parseInt(one.slice(at, at + 2), 16);
    const b = parseInt(two.slice(at, at + 2), 16);
    return Math.round(a + (b - a) * share).toString(16).padStart(2, '0');
  });
  return '#' + parts.join('');
}

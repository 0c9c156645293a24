// What of a timeline is to be drawn, and what lies under the pointer. Pure functions over columns.

// For each item, the latest end among it and those before it in [first, last): lets a search skip what is over.
export function reachOf(start, length, first, last) {
  const reach = new Float64Array(last - first);
  let latest = -Infinity;
  for (let at = first; at < last; at++) {
    latest = Math.max(latest, start[at] + length[at]);
    reach[at - first] = latest;
  }
  return reach;
}

// The first position whose value is greater than `value`; `values` must ascend.
export function above(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The view [from, to) after zooming by `factor` around `centre`, kept within [0, span] and above `least`.
export function zoomed([from, to], factor, centre, span, least = 200) {
  const width = Math.min(Math.max((to - from) * factor, Math.min(least, span)), span);
  return panned([centre - ((centre - from) / (to - from)) * width, 0], width, span);
}

function panned([from], width, span) {
  const start = Math.min(Math.max(from, 0), span - width);
  return [start, start + width];
}

// The view moved by `by`, kept within [0, span].
export function moved([from, to], by, span) {
  return panned([from + by, 0], to - from, span);
}

// Round times to label an axis with, about one for each `room` pixels.
export function ticks([from, to], width, room = 110) {
  const rough = ((to - from) / Math.max(width, 1)) * room;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const times = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) times.push(time);
  return { step, times };
}

// Boxes of the items [first, last) of one lane in a view of `width` pixels.
//
// An item that is a pixel wide or more is one box. Narrower ones share a box for each pixel and row: it stands for
// the longest of them, and `cover` is how much of the pixel they fill.
export function boxes(columns, first, last, reach, [from, to], width, visit) {
  const { start, length, row } = columns;
  const scale = width / (to - from);
  const open = new Map();
  const flush = (key) => {
    const box = open.get(key);
    if (box) visit(box.item, box.x, 1, Math.min(box.cover, 1), row[box.item]);
    open.delete(key);
  };
  for (let at = first + above(reach, from); at < last && start[at] < to; at++) {
    const end = start[at] + length[at];
    if (end <= from) continue;
    const x = (start[at] - from) * scale;
    const wide = length[at] * scale;
    if (wide >= 1) {
      flush(row[at]);
      const left = Math.max(x, -1);
      visit(at, left, Math.min(x + wide, width + 1) - left, 1, row[at]);
      continue;
    }
    const pixel = Math.floor(x);
    const box = open.get(row[at]);
    if (box && box.x === pixel) {
      box.cover += wide;
      if (length[at] > length[box.item]) box.item = at;
    } else {
      flush(row[at]);
      open.set(row[at], { item: at, x: pixel, cover: wide });
    }
  }
  for (const key of [...open.keys()]) flush(key);
}

// The item of row `wanted` at `time`, or the nearest within `slack`; -1 where there is none.
export function itemAt(columns, first, last, reach, time, wanted, slack) {
  const { start, length, row } = columns;
  let best = -1;
  let nearest = slack;
  for (let at = first + above(reach, time - slack); at < last && start[at] <= time + slack; at++) {
    if (row[at] !== wanted) continue;
    const away = Math.max(start[at] - time, time - start[at] - length[at], 0);
    if (away <= nearest) {
      best = at;
      nearest = away;
    }
  }
  return best;
}

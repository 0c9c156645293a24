// Where the frames of a flame graph lie, and which of them a search finds. Pure functions over columns.

// Children of each frame, widest first.
export function childrenOf(flame) {
  const children = flame.parent.map(() => []);
  flame.parent.forEach((parent, frame) => { if (parent >= 0) children[parent].push(frame); });
  for (const list of children) list.sort((a, b) => flame.total[b] - flame.total[a] || a - b);
  return children;
}

// Frames from the root down to `frame`, both included.
export function pathTo(flame, frame) {
  const path = [];
  for (let at = frame; at >= 0; at = flame.parent[at]) path.push(at);
  return path.reverse();
}

// Frames to draw with `zoom` at full width: {frame, x, width, depth}, x and width as shares of the whole.
export function layout(flame, children, zoom, narrowest) {
  const ancestors = pathTo(flame, zoom);
  const frames = ancestors.slice(0, -1).map((frame, depth) => ({ frame, x: 0, width: 1, depth }));
  const whole = flame.total[zoom];
  if (!(whole > 0)) return frames;
  const stack = [{ frame: zoom, x: 0, width: 1, depth: ancestors.length - 1 }];
  while (stack.length) {
    const placed = stack.pop();
    frames.push(placed);
    let x = placed.x;
    for (const frame of children[placed.frame]) {
      const width = flame.total[frame] / whole;
      if (width >= narrowest) stack.push({ frame, x, width, depth: placed.depth + 1 });
      x += width;
    }
  }
  return frames;
}

// Frames whose label or full name contains `text`, and their share of all time, nested matches counted once.
export function search(flame, text) {
  const wanted = text.trim().toLowerCase();
  const matches = new Set();
  let time = 0;
  if (wanted) {
    const hit = flame.strings.map((string) => string.toLowerCase().includes(wanted));
    const covered = new Uint8Array(flame.parent.length);
    flame.parent.forEach((parent, frame) => {
      const found = frame > 0 && (hit[flame.label[frame]] || hit[flame.name[frame]]);
      const inside = parent >= 0 && covered[parent] === 1;
      if (found) matches.add(frame);
      if (found && !inside) time += flame.total[frame];
      covered[frame] = found || inside ? 1 : 0;
    });
  }
  return { matches, share: flame.total[0] ? time / flame.total[0] : 0 };
}

// The neighbour of `frame` that an arrow key leads to, or the frame itself.
export function neighbour(flame, children, frame, key) {
  const parent = flame.parent[frame];
  if (key === 'ArrowUp') return parent >= 0 ? parent : frame;
  if (key === 'ArrowDown') return children[frame][0] ?? frame;
  if (parent < 0) return frame;
  const siblings = children[parent];
  const place = siblings.indexOf(frame) + (key === 'ArrowRight' ? 1 : -1);
  return siblings[Math.min(Math.max(place, 0), siblings.length - 1)];
}

import { FlameView } from './flame_view.js';
import { count, duration, mix, percent } from './format.js';

export const SLOWER = '#c5352b';
export const FASTER = '#2b62c5';
const SAME = '#dcdfe5';

// A duration with its sign, as changes are written.
export function signed(ns) {
  return (ns > 0 ? '+' : ns < 0 ? '−' : '') + duration(Math.abs(ns));
}

// How a frame that takes `a` in A and `b` in B is coloured: red longer, blue shorter, full colour at twice or half.
export function changeColour(a, b) {
  const most = Math.max(a, b);
  if (!most) return SAME;
  const change = (b - a) / most;
  return mix(SAME, change > 0 ? SLOWER : FASTER, Math.min(1, Math.abs(change) * 2));
}

// The columns of a flame graph whose widths are those of `side`: 'a' or 'b'.
export function widthsOf(flame, side) {
  return { ...flame, total: flame[side], count: flame[`${side}_count`], steps: 1 };
}

// A differential flame graph: the width is a frame's time in A or in B, the colour its change.
export class DiffFlameView extends FlameView {
  colourAll() {
    const { flame } = this;
    return flame.parent.map((_, frame) => changeColour(flame.a[frame], flame.b[frame]));
  }

  amount(frame) {
    const { flame } = this;
    return `${duration(flame.a[frame])} in A, ${duration(flame.b[frame])} in B`;
  }

  hover(event) {
    const frame = this.frameOf(event.target);
    if (frame === undefined) { this.tip.hide(); return; }
    const { flame, palette } = this;
    const [a, b] = [flame.a[frame], flame.b[frame]];
    this.tip.show(event, flame.strings[flame.name[frame]], [
      ['level', palette.words.levels[flame.level[frame]]],
      ['in A', `${duration(a)} in ${count(Math.round(10 * flame.a_count[frame]) / 10)} ops`],
      ['in B', `${duration(b)} in ${count(Math.round(10 * flame.b_count[frame]) / 10)} ops`],
      ['change', a ? `${signed(b - a)} (${b < a ? '−' : '+'}${percent(Math.abs(b - a) / a)})` : `${signed(b - a)}, new`],
    ]);
  }
}

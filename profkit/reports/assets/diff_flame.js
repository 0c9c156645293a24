import { FlameView } from './flame_view.js';
import { count, duration, mix, percent } from './format.js';

export const SLOWER = '#c5352b';
export const FASTER = '#2b62c5';
const SAME = '#dcdfe5';

// A duration with its sign, as changes are written.
export function signed(ns) {
  return (ns > 0 ? '+' : ns < 0 ? '−' : '') + duration(Math.abs(ns));
}

// A change as a share of what A has: '−50 %', '21.7 times' from ten times A's own on, 'new' or 'gone'.
export function relative(a, b) {
  if (!a || !b) return b ? 'new' : a ? 'gone' : '';
  if (b - a >= 10 * a) return `${(b / a).toFixed(b >= 100 * a ? 0 : 1)} times`;
  return (b < a ? '−' : '+') + percent(Math.abs(b - a) / a);
}

// How a frame that takes `a` in A and `b` in B is coloured: red longer, blue shorter, full colour at twice or half; grey
// where only one of them has it.
export function changeColour(a, b) {
  if (!a || !b) return SAME;
  const change = (b - a) / Math.max(a, b);
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
    return flame.parent.map((_, frame) => (
      flame.only[frame] ? SAME : changeColour(flame.a[frame], flame.b[frame])
    ));
  }

  element(placed) {
    const box = super.element(placed);
    if (this.flame.only[placed.frame]) {
      box.style.background = '';
      box.classList.add('one-sided');
    }
    return box;
  }

  amount(frame) {
    const { flame } = this;
    const { only } = flame;
    if (only[frame]) return `${duration(flame[only[frame]][frame])}, only in ${only[frame].toUpperCase()}`;
    return `${duration(flame.a[frame])} in A, ${duration(flame.b[frame])} in B`;
  }

  hover(event) {
    const frame = this.frameOf(event.target);
    if (frame === undefined) { this.tip.hide(); return; }
    const { flame, palette } = this;
    const side = (name) => (flame.only[frame] && flame.only[frame] !== name ? 'nothing' : (
      `${duration(flame[name][frame])} in ${count(Math.round(10 * flame[`${name}_count`][frame]) / 10)} ops`
    ));
    const [a, b] = [flame.a[frame], flame.b[frame]];
    this.tip.show(event, flame.strings[flame.name[frame]], [
      ['level', palette.words.levels[flame.level[frame]]],
      ['in A', side('a')],
      ['in B', side('b')],
      ['change', flame.only[frame] ? '' : `${signed(b - a)} (${relative(a, b)})`],
    ]);
  }
}

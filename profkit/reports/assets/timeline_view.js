import { duration, inkOn, seenOn } from './format.js';
import { boxes, itemAt, moved, reachOf, ticks, zoomed } from './timeline.js';
import { TRACK, drawAxis, drawTrack, valuesAt } from './timeline_tracks.js';

const GUTTER = 124;
const RULER = 26;
const HEAD = 24;
const HEIGHTS = { ranges: 17, api: 13, stream: 18, collective: 18, gap: 14 };
const DEEPEST = 8;
const SPACE = 3;
const API = ['#aab2bf', '#5f7391', '#6A0F4E'];
const OTHER = '#9aa3b1';
const CALLS = ['CUDA call', 'launch', 'blocking call'];

// A canvas with the lanes of all ranks. The wheel zooms, dragging selects, shift and dragging moves.
export class TimelineView {
  constructor(canvas, tip, palette) {
    Object.assign(this, { canvas, tip, palette, by: 'phase', hovered: -1, drag: null, lastScroll: 0 });
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.down(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    canvas.addEventListener('pointerup', (event) => this.up(event));
    canvas.addEventListener('pointerleave', () => { this.hovered = -1; tip.hide(); this.draw(); });
    canvas.addEventListener('dblclick', () => this.reset());
    canvas.addEventListener('keydown', (event) => this.key(event));
    // A page that is being scrolled keeps scrolling when the timeline comes under the pointer.
    addEventListener('scroll', () => { this.lastScroll = performance.now(); }, { passive: true });
    new ResizeObserver(() => { if (canvas.clientWidth !== this.width) this.draw(); }).observe(canvas);
  }

  show(data, style) {
    Object.assign(this, { data, style, hovered: -1 });
    this.canvas.hidden = !data;
    if (!data) return;
    this.view = [0, data.span];
    this.lanes = [];
    this.tracks = [];
    let y = RULER;
    let top = y;
    data.lanes.forEach((lane, at) => {
      if (!at || data.lanes[at - 1].rank !== lane.rank) {
        y += HEAD;
        top = y;
        for (const track of data.tracks.filter((one) => one.device === lane.device)) {
          this.tracks.push({ ...track, rank: lane.rank, y });
          y += TRACK + SPACE + 3;
        }
      }
      const [first, last] = [data.first[at], data.first[at + 1]];
      const height = HEIGHTS[lane.kind] * Math.min(lane.rows, DEEPEST);
      this.lanes.push({ ...lane, first, last, top, y, height, reach: reachOf(data.start, data.length, first, last) });
      y += height + SPACE;
    });
    this.height = y + 6;
    this.draw();
  }

  get plot() { return Math.max(this.width - GUTTER - 8, 10); }

  timeAt(x) { return this.view[0] + ((x - GUTTER) / this.plot) * (this.view[1] - this.view[0]); }

  xAt(time) { return GUTTER + ((time - this.view[0]) / (this.view[1] - this.view[0])) * this.plot; }

  setView(view) { this.view = view; this.draw(); }

  reset() { this.setView([0, this.data.span]); }

  zoomBy(factor, centre = (this.view[0] + this.view[1]) / 2) {
    this.setView(zoomed(this.view, factor, centre, this.data.span));
  }

  wheel(event) {
    if (!event.ctrlKey && performance.now() - this.lastScroll < 250) return;
    event.preventDefault();
    const width = this.view[1] - this.view[0];
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.setView(moved(this.view, (event.deltaX / this.plot) * width, this.data.span));
    } else this.zoomBy(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.timeAt(event.offsetX));
  }

  down(event) {
    if (event.button) return;
    this.drag = { x: event.offsetX, to: event.offsetX, view: this.view, moves: event.shiftKey };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.drag) {
      this.drag.to = event.offsetX;
      if (this.drag.moves) {
        const width = this.drag.view[1] - this.drag.view[0];
        this.view = moved(this.drag.view, ((this.drag.x - event.offsetX) / this.plot) * width, this.data.span);
      }
      this.tip.hide();
      this.draw();
      return;
    }
    const track = this.tracks.find((one) => event.offsetY >= one.y && event.offsetY < one.y + TRACK);
    const values = track && event.offsetX >= GUTTER ? valuesAt(track, this.timeAt(event.offsetX)) : [];
    const found = this.find(event.offsetX, event.offsetY);
    if (found !== this.hovered) { this.hovered = found; this.draw(); }
    if (values.length) this.tip.show(event, `${track.title}, measured`, [['rank', String(track.rank)], ...values]);
    else if (found < 0) this.tip.hide();
    else this.tip.show(event, this.nameOf(found), this.describe(found));
  }

  up(event) {
    const { drag } = this;
    this.drag = null;
    if (drag && !drag.moves && Math.abs(event.offsetX - drag.x) > 4) {
      const [from, to] = [drag.x, event.offsetX].sort((a, b) => a - b).map((x) => this.timeAt(x));
      const { span } = this.data;
      this.setView(zoomed([Math.max(from, 0), Math.min(to, span)], 1, (from + to) / 2, span));
    } else this.draw();
  }

  key(event) {
    const width = this.view[1] - this.view[0];
    const actions = {
      '+': () => this.zoomBy(0.7), '=': () => this.zoomBy(0.7), '-': () => this.zoomBy(1 / 0.7),
      ArrowLeft: () => this.setView(moved(this.view, -width / 6, this.data.span)),
      ArrowRight: () => this.setView(moved(this.view, width / 6, this.data.span)),
      0: () => this.reset(), Home: () => this.reset(), Escape: () => this.reset(),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    actions[event.key]();
    event.preventDefault();
  }

  laneOf(item) { return this.lanes.find((lane) => item >= lane.first && item < lane.last); }

  find(x, y) {
    const lane = this.lanes.find((one) => y >= one.y - 1 && y < one.y + one.height + 2);
    if (!lane || x < GUTTER) return -1;
    const row = Math.max(0, Math.min(Math.floor((y - lane.y) / HEIGHTS[lane.kind]), lane.rows - 1));
    const slack = (3 * (this.view[1] - this.view[0])) / this.plot;
    return itemAt(this.data, lane.first, lane.last, lane.reach, this.timeAt(x), row, slack);
  }

  nameOf(item) {
    const { data, palette } = this;
    if (this.laneOf(item).kind === 'gap') return palette.titles[palette.words.parts[data.code[item]]];
    return data.strings[data.name[item]];
  }

  describe(item) {
    const { data, palette } = this;
    const { words } = palette;
    const lane = this.laneOf(item);
    const phase = data.phase[item] >= 0 ? words.phases[data.phase[item]] + (this.inferred ? ' (inferred)' : '') : '';
    const call = data.launch[item];
    const rows = [['rank', `${lane.rank}, ${lane.label}`], ['length', duration(data.length[item])],
      ['starts at', duration(data.start[item])], ['phase', phase]];
    if (lane.kind === 'api') rows.push(['call', CALLS[data.code[item]]]);
    if (lane.kind === 'stream') rows.push(['class', words.classes[data.code[item]]]);
    if (lane.kind === 'gap') rows.unshift(['', palette.meanings[words.parts[data.code[item]]]]);
    if (lane.kind === 'collective' && data.split[item] >= 0) {
      rows.push(['skew', `${duration(data.split[item])} waiting for the last rank`]);
      rows.push(['transfer', duration(data.length[item] - data.split[item])]);
    }
    if (call >= 0) {
      rows.push(['launched', `${duration(Math.max(0, data.start[item] - data.start[call]))} before, by ${
        data.strings[data.label[call]]}`]);
    }
    return rows;
  }

  colourOf(lane, item) {
    const { data, palette } = this;
    const { words } = palette;
    if (lane.kind === 'gap') return palette.parts[words.parts[data.code[item]]];
    if (lane.kind === 'api') return API[data.code[item]];
    if (lane.kind === 'collective') return palette.parts.collective;
    const phase = words.phases[data.phase[item]];
    if (lane.kind === 'ranges') return phase === 'step_other' ? OTHER : palette.phases[phase] ?? OTHER;
    if (this.by === 'phase') return palette.phases[phase];
    return palette.classes[words.classes[data.code[item]]];
  }

  draw() {
    if (!this.data) return;
    const { canvas, style } = this;
    this.width = canvas.clientWidth;
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${this.height}px`;
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.textBaseline = 'middle';
    this.drawGrid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, this.plot + 1, this.height);
    pen.clip();
    for (const track of this.tracks) drawTrack(pen, track, this.view, { left: GUTTER, plot: this.plot, ...style });
    for (const lane of this.lanes) this.drawLane(pen, lane);
    this.drawMarks(pen);
    this.drawHover(pen);
    if (this.drag && !this.drag.moves) {
      pen.fillStyle = style.select;
      pen.fillRect(this.drag.x, RULER, this.drag.to - this.drag.x, this.height);
    }
    pen.restore();
  }

  drawGrid(pen) {
    const { style, lanes } = this;
    const { step, times } = ticks(this.view, this.plot);
    pen.font = `11px ${style.font}`;
    pen.textAlign = 'center';
    for (const time of times) {
      const x = Math.round(this.xAt(time)) + 0.5;
      pen.fillStyle = style.line;
      pen.fillRect(x, RULER - 6, 1, this.height);
      pen.fillStyle = style.muted;
      if (x > GUTTER + 14 && x < this.width - 26) pen.fillText(label(time, step, this.data.span), x, 10);
    }
    lanes.forEach((lane, at) => {
      if (!at || lanes[at - 1].rank !== lane.rank) {
        pen.textAlign = 'left';
        pen.font = `600 12px ${style.font}`;
        pen.fillStyle = style.ink;
        pen.fillText(`rank ${lane.rank}`, 0, lane.top - HEAD / 2 + 1);
        pen.font = `11px ${style.font}`;
        const nearby = this.data.nvml[lane.device];
        if (nearby) drawText(pen, nearby, GUTTER, lane.top - HEAD / 2 + 1, this.plot, style.muted);
        pen.fillStyle = style.line;
        pen.fillRect(0, lane.top - HEAD + 2, this.width, 1);
      }
      pen.textAlign = 'right';
      pen.font = `11px ${style.font}`;
      pen.fillStyle = style.muted;
      pen.fillText(lane.label, GUTTER - 10, lane.y + Math.min(lane.height, HEIGHTS[lane.kind]) / 2);
      pen.fillStyle = style.lane;
      pen.fillRect(GUTTER, lane.y, this.plot, lane.height);
    });
    for (const track of this.tracks) drawAxis(pen, track, style, GUTTER, this.plot);
    pen.textAlign = 'left';
  }

  drawLane(pen, lane) {
    const high = HEIGHTS[lane.kind];
    pen.font = `10.5px ${this.style.font}`;
    boxes(this.data, lane.first, lane.last, lane.reach, this.view, this.plot, (item, x, width, cover, row) => {
      if (row >= DEEPEST) return;
      const [left, top] = [GUTTER + x, lane.y + row * high];
      const colour = seenOn(this.style.lane, this.colourOf(lane, item));
      const gap = width > 3 ? 0.5 : 0;
      pen.globalAlpha = cover >= 1 ? 1 : Math.max(this.style.faintest, cover);
      pen.fillStyle = colour;
      pen.fillRect(left, top, width - gap, high - 1);
      pen.globalAlpha = 1;
      if (lane.kind === 'collective') this.drawSkew(pen, item, left, top, width, high);
      if (width > 34) drawText(pen, this.labelOf(lane, item), left + 4, top + high / 2, width - 8, inkOn(colour));
    });
  }

  labelOf(lane, item) {
    return lane.kind === 'gap' ? this.nameOf(item).replace('gap: ', '') : this.data.strings[this.data.label[item]];
  }

  // The part of a collective that waits for the last rank is paler.
  drawSkew(pen, item, left, top, width, high) {
    const { split, length, start } = this.data;
    if (split[item] <= 0 || width < 2) return;
    const until = Math.min(this.xAt(start[item] + split[item]), left + width);
    if (until <= left) return;
    pen.fillStyle = this.palette.skew;
    pen.fillRect(left, top, until - left, high - 1);
    if (length[item] > split[item]) { pen.fillStyle = '#B86E00'; pen.fillRect(until - 0.5, top, 1, high - 1); }
  }

  // Where the step's GPU work begins and ends on each rank.
  drawMarks(pen) {
    pen.setLineDash([4, 3]);
    pen.strokeStyle = this.style.ink;
    pen.lineWidth = 1;
    for (const [device, ...edges] of this.data.marks) {
      const own = this.lanes.filter((lane) => lane.device === device);
      if (!own.length) continue;
      for (const edge of edges) {
        const x = Math.round(this.xAt(edge)) + 0.5;
        pen.beginPath();
        pen.moveTo(x, own[0].top - 6);
        pen.lineTo(x, own.at(-1).y + own.at(-1).height + 3);
        pen.stroke();
      }
    }
    pen.setLineDash([]);
  }

  // The hovered item, and a line from the call that launched it.
  drawHover(pen) {
    const { data, hovered, style } = this;
    if (hovered < 0) return;
    const place = (item) => {
      const lane = this.laneOf(item);
      const x = this.xAt(data.start[item]);
      return { x, y: lane.y + Math.min(data.row[item], DEEPEST) * HEIGHTS[lane.kind], high: HEIGHTS[lane.kind],
        width: Math.max(this.xAt(data.start[item] + data.length[item]) - x, 2) };
    };
    const box = place(hovered);
    pen.strokeStyle = style.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(box.x, box.y, box.width, box.high - 1);
    const call = data.launch[hovered];
    if (call < 0) return;
    const from = place(call);
    pen.strokeRect(from.x, from.y, from.width, from.high - 1);
    pen.beginPath();
    pen.moveTo(from.x, from.y + from.high);
    pen.bezierCurveTo(from.x, from.y + from.high + 24, box.x, box.y - 24, box.x, box.y);
    pen.stroke();
  }
}

function label(time, step, span) {
  const [size, unit] = span >= 1e6 ? [1e6, 'ms'] : [1e3, 'µs'];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(time / size).toFixed(digits)} ${unit}`;
}

function drawText(pen, text, x, y, room, colour) {
  let shown = text;
  if (pen.measureText(shown).width > room) {
    const fits = Math.floor(room / 5.6) - 1;
    if (fits < 3) return;
    shown = `${shown.slice(0, fits)}…`;
    while (shown.length > 3 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  }
  pen.fillStyle = colour;
  pen.fillText(shown, x, y + 0.5);
}

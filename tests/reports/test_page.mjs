// The pure functions of the page: node --test tests/reports/test_page.mjs
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const assets = new URL('../../profkit/reports/assets/', import.meta.url);
const load = (name) => import(new URL(name, assets));
const { amount, count, duration, inkOn, mix, percent, seenOn } = await load('format.js');
const { childrenOf, layout, neighbour, pathTo, search } = await load('flame.js');
const { above, boxes, itemAt, moved, reachOf, ticks, zoomed } = await load('timeline.js');
const { sampleAt, stretches, valuesAt } = await load('timeline_tracks.js');
const { sortedOrder } = await load('tables.js');
const { unpack } = await load('payload.js');
const { themed } = await load('charts.js');

const plain = (text) => text.replace(/[\u00a0\u202f]/g, ' ');

test('numbers have units and three figures', () => {
  const cases = { 7421000: '7.42 ms', 102700000: '103 ms', 345200: '345 µs', 12340: '12.3 µs', 65: '65 ns', 0: '0 ns', '-85000': '−85.0 µs', 1240000000: '1.24 s' };
  for (const [ns, text] of Object.entries(cases)) assert.equal(plain(duration(Number(ns))), text);
  assert.equal(duration(null), 'unknown');
  assert.deepEqual([0.8123, 0.0421, 0.0003, 0].map((share) => plain(percent(share))), ['81 %', '4.2 %', '< 0.1 %', '0 %']);
  assert.deepEqual([1071, 1234567, 5.25].map((n) => plain(count(n))), ['1 071', '1 234 567', '5.3']);
});

test('text on a colour can be read, and colours mix', () => {
  assert.equal(inkOn('#0E5A33'), '#ffffff');
  assert.equal(inkOn('#E69F00'), '#14181f');
  assert.equal(mix('#000000', '#ffffff', 0.5), '#808080');
});

// all(10) -> a(6) -> c(2) d(4);  all -> b(4) -> moe a(1)
const flame = {
  parent: [-1, 0, 0, 1, 1, 2],
  label: [0, 1, 2, 3, 4, 5],
  name: [0, 1, 2, 3, 4, 6],
  total: [10, 6, 4, 2, 4, 1],
  strings: ['all', 'alpha', 'beta', 'gemm', 'delta', 'moe', 'void moe_alpha<int>'],
};
const children = childrenOf(flame);

test('dark colours are made paler on a dark ground, and on no other', () => {
  assert.equal(seenOn('#f1f3f6', '#6A0F4E'), '#6A0F4E');
  assert.equal(seenOn('#212831', '#E69F00'), '#E69F00');
  for (const colour of ['#6A0F4E', '#2A4DC0', '#000000']) {
    const shown = seenOn('#212831', colour);
    assert.notEqual(shown, colour);
    assert.equal(seenOn('#212831', shown), shown);
  }
});

test('children are ordered by width', () => {
  assert.deepEqual(children, [[1, 2], [4, 3], [5], [], [], []]);
  assert.deepEqual(pathTo(flame, 5), [0, 2, 5]);
});

test('a layout fills the width from left to right', () => {
  const frames = Object.fromEntries(layout(flame, children, 0, 0).map((f) => [f.frame, [f.x, f.width, f.depth]]));
  assert.deepEqual(frames[2], [0.6, 0.4, 1]);
  assert.deepEqual(frames[4], [0, 0.4, 2]);
  assert.deepEqual(frames[3], [0.4, 0.2, 2]);
});

test('zooming widens a frame under its ancestors', () => {
  const frames = layout(flame, children, 2, 0);
  assert.deepEqual(frames.map((f) => [f.frame, f.width, f.depth]), [[0, 1, 0], [2, 1, 1], [5, 0.25, 2]]);
});

test('frames too narrow to see are left out, and their place stays empty', () => {
  const frames = layout(flame, children, 0, 0.3).map((f) => f.frame).sort();
  assert.deepEqual(frames, [0, 1, 2, 4]);
  assert.deepEqual(layout({ ...flame, total: [0, 0, 0, 0, 0, 0] }, children, 0, 0), []);
});

test('a search reads labels and full names and counts nested matches once', () => {
  const found = search(flame, ' ALPHA ');
  assert.deepEqual([...found.matches], [1, 5]);
  assert.equal(found.share, 0.7);
  assert.equal(search(flame, 'a').share, 1);
  assert.equal(search(flame, '').matches.size, 0);
});

test('arrow keys walk the tree', () => {
  const walk = (frame, key) => neighbour(flame, children, frame, key);
  assert.equal(walk(0, 'ArrowDown'), 1);
  assert.equal(walk(1, 'ArrowRight'), 2);
  assert.equal(walk(2, 'ArrowRight'), 2);
  assert.equal(walk(4, 'ArrowRight'), 3);
  assert.equal(walk(5, 'ArrowUp'), 2);
  assert.equal(walk(0, 'ArrowUp'), 0);
  assert.equal(walk(3, 'ArrowDown'), 3);
});

const lane = { start: [0, 10, 12, 50, 90], length: [40, 2, 5, 10, 10], row: [0, 1, 1, 0, 0] };
const reach = reachOf(lane.start, lane.length, 0, 5);

test('positions are found by halving', () => {
  assert.deepEqual([...reach], [40, 40, 40, 60, 100]);
  assert.equal(above([1, 3, 3, 7], 3), 3);
  assert.equal(above([1, 3, 3, 7], 0), 0);
  assert.equal(above([1, 3, 3, 7], 9), 4);
});

const draw = (columns, last, view, width) => {
  const drawn = [];
  boxes(columns, 0, last, reachOf(columns.start, columns.length, 0, last), view, width, (...box) => drawn.push(box));
  return drawn;
};

test('only what is in the view becomes a box', () => {
  assert.deepEqual(draw(lane, 5, [45, 95], 50), [[3, 5, 10, 1, 0], [4, 45, 6, 1, 0]]);
  assert.deepEqual(draw(lane, 5, [20, 30], 100).map((box) => box[0]), [0]);
});

test('items narrower than a pixel share one, which knows how full it is', () => {
  const many = { start: [], length: [], row: [] };
  for (let at = 0; at < 50_000; at++) { many.start.push(at * 10); many.length.push(at === 7 ? 9 : 5); many.row.push(0); }
  const drawn = draw(many, 50_000, [0, 500_000], 500);
  assert.equal(drawn.length, 500);
  assert.equal(drawn[0][0], 7);
  assert.ok(Math.abs(drawn[1][3] - 0.5) < 1e-9);
  assert.ok(drawn.every(([, , width]) => width === 1));
});

test('the item under the pointer, or the nearest within reach', () => {
  const at = (time, row, slack) => itemAt(lane, 0, 5, reach, time, row, slack);
  assert.equal(at(11, 0, 0), 0);
  assert.equal(at(11, 1, 0), 1);
  assert.equal(at(45, 0, 2), -1);
  assert.equal(at(45, 0, 5), 3);
});

test('a view stays within the step', () => {
  assert.deepEqual(zoomed([0, 1000], 0.5, 250, 1000), [125, 625]);
  assert.deepEqual(zoomed([0, 1000], 2, 10, 1000), [0, 1000]);
  assert.deepEqual(zoomed([0, 1000], 0.001, 1000, 1000), [800, 1000]);
  assert.deepEqual(moved([0, 100], -50, 1000), [0, 100]);
  assert.deepEqual(moved([850, 950], 200, 1000), [900, 1000]);
});

test('axis times are round', () => {
  assert.deepEqual(ticks([0, 1000], 1000), { step: 200, times: [0, 200, 400, 600, 800, 1000] });
  assert.equal(ticks([0, 7_421_000], 900).step, 1_000_000);
});

test('tables sort numbers by size, texts by letters, and what is empty last', () => {
  assert.deepEqual(sortedOrder(['10', '9', '', '100'], true), [3, 0, 1, 2]);
  assert.deepEqual(sortedOrder(['10', '9', '', '100'], false), [1, 0, 3, 2]);
  assert.deepEqual(sortedOrder(['moe', 'attention', 'gemm'], false), [1, 2, 0]);
});

test('embedded data unpacks', async () => {
  assert.equal(await unpack('{"a":1}', 'json'), '{"a":1}');
  assert.equal(await unpack(`\n${gzipSync('µ {}').toString('base64')}`, 'gzip+base64'), 'µ {}');
});

test('charts take the colours of the page and keep their own axes', () => {
  const layout = themed({ xaxis: { title: { text: 'ms' } }, annotations: [{ text: 'a' }] }, { ink: '#123456', line: '#222222' });
  assert.equal(layout.xaxis.title.text, 'ms');
  assert.equal(layout.xaxis.gridcolor, '#222222');
  assert.equal(layout.annotations[0].font.color, '#123456');
});

// Two samples, a hole from 200 to 300, and one more.
const counter = { name: 'reads', start: [0, 100, 300], length: [100, 100, 100], mean: [1, 2.5, 4], low: null, high: null };

test('a counter is drawn in stretches without its holes', () => {
  assert.deepEqual(stretches(counter, [0, 400], 400), [
    [{ at: 0, from: 0, to: 100 }, { at: 1, from: 100, to: 200 }],
    [{ at: 2, from: 300, to: 400 }],
  ]);
  assert.deepEqual(stretches(counter, [150, 250], 100), [[{ at: 1, from: -1, to: 50 }]]);
  assert.deepEqual(stretches(counter, [210, 290], 100), []);
});

test('what a counter is at a time, and nothing where no sample lies', () => {
  assert.deepEqual([-1, 0, 99, 100, 250, 399, 400].map((time) => sampleAt(counter, time)), [-1, 0, 0, 1, -1, 2, -1]);
  const track = { lines: [counter, { ...counter, name: 'writes', low: [0, 1, 2], high: [9, 8, 7] }], unit: 'GB/s', limit: 63.008 };
  const said = valuesAt(track, 120).map(([word, value]) => [word, plain(value)]);
  assert.deepEqual(said, [['reads', '2.5 GB/s'], ['writes', '2.5 GB/s (1 to 8 GB/s)'], ['mean over', '100 ns'], ['limit', '63 GB/s']]);
  assert.deepEqual(valuesAt(track, 250), []);
  assert.equal(plain(amount(4814.3, 'GB/s')), '4 814 GB/s');
});

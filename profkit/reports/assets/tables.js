// Tables that sort by a click on a column's heading.

// The order of `values`: numbers by size, texts by letters, what is empty last.
export function sortedOrder(values, descending) {
  const order = values.map((_, at) => at);
  const sign = descending ? -1 : 1;
  order.sort((a, b) => {
    const [one, two] = [values[a], values[b]];
    if (one === '' || two === '') return (one === '') - (two === '') || a - b;
    const [x, y] = [Number(one), Number(two)];
    const by = Number.isNaN(x) || Number.isNaN(y) ? one.localeCompare(two) : x - y;
    return sign * by || a - b;
  });
  return order;
}

export function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector('button');
    button?.addEventListener('click', () => {
      const numeric = head.classList.contains('num');
      const now = head.getAttribute('aria-sort');
      const descending = now ? now === 'ascending' : numeric;
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      const body = table.tBodies[0];
      const rows = [...body.rows];
      const values = rows.map((row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim());
      body.append(...sortedOrder(values, descending).map((at) => rows[at]));
    });
  });
}

"use strict";

// A click on a table's head sorts by that column, another one the other way round. Empty entries stay last.
const text = new Intl.Collator("en", { numeric: true });

for (const head of document.querySelectorAll("th")) {
  head.firstElementChild.addEventListener("click", () => {
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const other of head.parentElement.cells) other.ariaSort = null;
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    const rows = head.closest("table").tBodies[0];
    const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent.trim();
    const order = (x, y) => (x === "") - (y === "") || sign * (x - y || text.compare(x, y));
    rows.append(...[...rows.rows].sort((a, b) => order(key(a), key(b))));
  });
}

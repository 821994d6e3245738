// Sorting and filtering of tables, and the search. Without it every table is whole and plain.
"use strict";
(() => {
  const chinese = document.documentElement.lang.startsWith("zh");
  const say = (en, zh) => (chinese ? zh : en);

  const number = (text) => {
    const found = /^[\s]*(-?[\d,]+(\.\d+)?)/.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) : NaN;
  };

  function sortable(table) {
    const body = table.tBodies[0];
    table.tHead.rows[0].dataset.sort = say("Sort by", "排序");
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "mb-sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("thead th").forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [row.cells[column].textContent.trim(), row]);
        rows.sort(([a], [b]) => {
          const [x, y] = [number(a), number(b)];
          return (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y) * (up ? 1 : -1);
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  function filterable(form, table) {
    form.hidden = false;
    const value = (name) => form.querySelector(`[data-filter="${name}"]`).value.trim();
    const tags = [...table.tHead.rows[0].cells].slice(2).map((cell) => cell.textContent.trim());
    const apply = () => {
      const [kind, state, revision, words] = ["kind", "state", "revision", "words"].map(value);
      const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const cells = [...row.cells].slice(2).filter((_, n) => !revision || tags[n] === revision);
        const fits = (!kind || row.dataset.kind === kind)
          && (state ? cells.some((cell) => cell.dataset.state.split(" ").includes(state))
            : !revision || cells.some((cell) => !cell.dataset.state.startsWith("absent")))
          && wanted.every((word) => row.textContent.toLowerCase().includes(word));
        row.hidden = !fits;
        shown += fits;
      }
      for (const row of table.rows) [...row.cells].slice(2).forEach((cell, n) => { cell.hidden = Boolean(revision) && tags[n] !== revision; });
      form.querySelector("output").textContent = say(`${shown} entries`, `${shown} 条`);
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // Entries that hold most of what was typed, rare parts counting more: for messages with a run's own numbers in them.
  function nearest(text) {
    const runs = text.match(/[a-z_][\w.]+|[\u4e00-\u9fff]+/g) || [];
    const pairs = (run) => (run.length > 2 && run > "\u4e00" ? [...run].slice(1).map((sign, n) => run[n] + sign) : [run]);
    const score = new Map();
    let all = 0;
    for (const part of new Set(runs.flatMap(pairs))) {
      const having = MB_INDEX.filter((entry) => `${entry.name} ${entry.title} ${entry.text}`.toLowerCase().includes(part));
      const weight = Math.log(MB_INDEX.length / Math.max(having.length, 1));
      all += weight;
      for (const entry of having) score.set(entry, (score.get(entry) || 0) + weight);
    }
    return [...score].filter(([, value]) => value > all / 2).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([entry]) => entry);
  }

  function search(input, list, count) {
    const parameters = new URLSearchParams(location.search);
    const run = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      list.replaceChildren();
      count.textContent = "";
      if (!words.length) return;
      const found = [];
      for (const entry of MB_INDEX) {
        const name = `${entry.name} ${entry.title}`.toLowerCase();
        const all = `${name} ${entry.text}`;
        if (!words.every((word) => all.includes(word))) continue;
        // What is indexed of a term begins with its name and its field.
        const own = entry.kind === "term" ? entry.text.split(" ", 2) : [entry.name.toLowerCase()];
        found.push([own.includes(input.value.trim().toLowerCase()) ? 0 : words.every((word) => name.includes(word)) ? 1 : 2, entry]);
      }
      found.sort((a, b) => a[0] - b[0]);
      const near = found.length ? [] : nearest(input.value.toLowerCase());
      count.textContent = near.length
        ? say(`None has all of it; ${near.length} come near`, `没有完全匹配，最接近的 ${near.length} 项`)
        : say(`${found.length} found`, `找到 ${found.length} 项`);
      for (const entry of [...found.map(([, entry]) => entry).slice(0, 100), ...near]) {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = entry.url;
        link.textContent = entry.title ? `${entry.name}: ${entry.title}` : entry.name;
        item.append(link);
        list.append(item);
      }
    };
    input.value = parameters.get("q") || "";
    input.addEventListener("input", run);
    input.form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
    run();
  }

  // The theme doesn't name these.
  const name = (part, en, zh) => document.querySelectorAll(part).forEach((found) => found.setAttribute("aria-label", say(en, zh)));
  name(".sidebar-drawer", "Site", "本站");
  name(".toc-drawer", "This page", "本页");

  // The other language at the same place: a question to the search, and anchors that both languages have.
  const other = document.querySelector(".mb-language a");
  if (other) other.addEventListener("click", () => {
    other.search = location.search;
    other.hash = /^#(mb-|audit-)/.test(location.hash) ? location.hash : "";
  });

  // Regions that scroll must be reachable by keyboard.
  document.querySelectorAll(".table-wrapper, div.highlight pre, .mb-figure, .mb-formula").forEach((region) => { region.tabIndex = 0; });
  document.querySelectorAll("table.mb-sortable").forEach(sortable);
  const matrix = document.getElementById("matrix");
  if (matrix) filterable(document.querySelector(".mb-filters"), matrix);
  const query = document.getElementById("mb-query");
  const start = () => search(query, document.getElementById("mb-results"), document.getElementById("mb-count"));
  if (query) (document.readyState === "complete" ? start() : addEventListener("load", start));
})();

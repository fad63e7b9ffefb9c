// Charts of usage. The tables below them have the same figures and need no script.
"use strict";
(() => {
  const raw = document.getElementById("usage-data");
  if (!raw || !window.Plot) return;
  const data = JSON.parse(raw.textContent);
  const CLASSES = ["cache_read_tokens", "cache_write_tokens", "input_tokens", "output_tokens"];
  const label = (name) => name.replace("_tokens", "").replace("_", " ");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const usd = (value) => value === null ? "cost unknown" : `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: value < 1 ? 4 : 2 })}`;
  const count = (value) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
  const short = (kind, key) => kind === "project" ? key.replace(/\/+$/, "").split(/[/\\]/).at(-1) || "?" : kind === "model" ? key.replace(/^claude-/, "").replace(/-20\d{6}$/, "") : key;
  const colors = () => ({ cache_read_tokens: css("--line-strong"), cache_write_tokens: css("--look"), input_tokens: css("--live"), output_tokens: css("--accent") });

  // Plot adds a style element, which the page's policy forbids; the stylesheet has its rules.
  const appendChart = (holder, title, chart) => {
    chart.querySelectorAll("style").forEach((style) => style.remove());
    chart.querySelectorAll("[aria-label]").forEach((part) => part.removeAttribute("aria-label"));
    const part = document.createElement("div");
    part.append(Object.assign(document.createElement("h3"), { textContent: title }), chart);
    holder.append(part);
  };
  const swatches = (scale) => {
    const key = Object.assign(document.createElement("div"), { className: "swatches" });
    for (const name of CLASSES) {
      const item = document.createElement("span");
      const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const square = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [attribute, value] of [["width", "100%"], ["height", "100%"], ["fill", scale[name]]]) square.setAttribute(attribute, value);
      box.append(square);
      item.append(box, label(name));
      key.append(item);
    }
    return key;
  };
  // A bar is never thinner than this, so that none disappears between two pixels.
  const BAR_MIN = 5;
  const sums = (rows, key) => d3.rollups(rows, (group) => Object.fromEntries(["cost_usd", ...CLASSES].map((name) => [name, d3.sum(group, (row) => row[name])])), key).map(([at, values]) => ({ at, ...values }));
  // Days become weeks or months where there are too many; blocks are shown side by side, the last ones if need be.
  const binned = (kind, rows, width) => {
    const room = Math.floor((width - 70) / BAR_MIN);
    if (kind === "block") {
      const shown = rows.slice(-room);
      return { bars: shown.map((row, at) => ({ ...row, at, name: row.key.replace("T", " ").slice(0, 16) })), note: shown.length < rows.length ? `the last ${shown.length} of ${rows.length} blocks` : "" };
    }
    const days = rows.filter((row) => row.key).map((row) => ({ ...row, day: new Date(`${row.key}T00:00:00`) }));
    const [first, last] = d3.extent(days, (row) => row.day);
    const units = [["day", d3.timeDay, "%Y-%m-%d"], ["week", d3.timeMonday, "week of %Y-%m-%d"], ["month", d3.timeMonth, "%Y-%m"], ["year", d3.timeYear, "%Y"]];
    const [unit, interval, form] = units.find(([, each]) => each.count(first, last) + 1 <= room) ?? units.at(-1);
    const found = new Map(sums(days, (row) => +interval.floor(row.day)).map((row) => [row.at, row]));
    // At least 14 units, so that a single day is a narrow bar; a unit without usage is a gap.
    const begin = d3.min([interval.floor(first), interval.offset(interval.floor(last), -13)]);
    const range = interval.range(begin, interval.offset(interval.floor(last), 1));
    return { bars: range.map((date, at) => ({ cost_usd: 0, ...Object.fromEntries(CLASSES.map((name) => [name, 0])), ...found.get(+date), at, name: d3.timeFormat(form)(date) })), note: unit === "day" ? "" : `by ${unit}` };
  };
  const overTime = (kind, rows, width) => {
    const { bars, note } = binned(kind, rows, width);
    const scale = colors();
    const every = Math.ceil(bars.length / Math.max(Math.floor((width - 70) / 90), 1));
    const ticks = bars.filter((_, at) => at % every === 0).map((bar) => bar.at);
    const common = { width, height: 190, marginLeft: 58, x: { label: null, type: "band", domain: bars.map((bar) => bar.at), ticks, tickFormat: (at) => bars[at].name.replace("week of ", "").slice(kind === "block" ? 5 : 0), tickSize: 3, padding: 0.15 } };
    const tokens = bars.flatMap((row) => CLASSES.map((name) => ({ at: row.at, key: row.name, name, value: row[name] })));
    return [note,
      Plot.plot({ ...common, y: { label: null, tickFormat: usd, ticks: 4, grid: true }, marks: [Plot.barY(bars, { x: "at", y: (row) => row.cost_usd ?? 0, fill: css("--accent"), title: (row) => `${row.name}\n${row.cost ?? usd(row.cost_usd)}`, tip: true }), Plot.ruleY([0])] }),
      Plot.plot({ ...common, color: { domain: CLASSES, range: CLASSES.map((name) => scale[name]) }, y: { label: null, tickFormat: count, ticks: 4, grid: true }, marks: [Plot.barY(tokens, { x: "at", y: "value", fill: "name", order: CLASSES, title: (row) => `${row.key}\n${label(row.name)}: ${count(row.value)} tokens`, tip: true }), Plot.ruleY([0])] }),
    ];
  };
  const ranked = (kind, rows, width) => {
    const best = [...rows].sort((a, b) => (b.cost_usd ?? 0) - (a.cost_usd ?? 0)).slice(0, 12);
    const fits = Math.floor((width * 0.38 - 14) / 6.6);
    const names = best.map((row) => short(kind, row.key)).map((name) => name.length > fits ? `${name.slice(0, fits - 1)}…` : name);
    const scale = colors();
    const labelWidth = Math.max(...names.map((name) => name.length), 4) * 6.6 + 14;
    const common = { width, height: best.length * 30 + 44, marginLeft: labelWidth, marginRight: 62, y: { label: null, domain: names.map((_, at) => at), tickFormat: (at) => names[at], tickSize: 0 } };
    const tokens = best.flatMap((row, at) => CLASSES.map((name) => ({ at, name, value: row[name] })));
    const totals = best.map((row, at) => ({ at, value: d3.sum(CLASSES, (name) => row[name]) }));
    return ["",
      Plot.plot({ ...common, x: { label: null, tickFormat: usd, ticks: 3, grid: true }, marks: [Plot.barX(best, { y: (_, at) => at, x: (row) => row.cost_usd ?? 0, fill: css("--accent"), insetTop: 3, insetBottom: 3 }), Plot.text(best, { y: (_, at) => at, x: (row) => row.cost_usd ?? 0, text: (row) => row.cost, textAnchor: "start", dx: 6, fill: "currentColor" }), Plot.ruleX([0])] }),
      Plot.plot({ ...common, color: { domain: CLASSES, range: CLASSES.map((name) => scale[name]) }, x: { label: null, tickFormat: count, ticks: 3, grid: true }, marks: [Plot.barX(tokens, { y: "at", x: "value", fill: "name", order: CLASSES, insetTop: 3, insetBottom: 3 }), Plot.text(totals, { y: "at", x: "value", text: (row) => count(row.value), textAnchor: "start", dx: 6, fill: "currentColor" }), Plot.ruleX([0])] }),
    ];
  };
  const draw = () => {
    for (const holder of document.querySelectorAll("[data-chart]")) {
      const kind = holder.dataset.chart;
      const rows = data[kind] ?? [];
      if (!rows.length) continue;
      const wide = holder.parentElement.clientWidth;
      const width = Math.max(Math.min(wide > 900 ? wide / 2 - 20 : wide, 900), 280);
      holder.replaceChildren();
      holder.classList.add("charts-two");
      const [note, cost, tokens] = kind === "day" || kind === "block" ? overTime(kind, rows, width) : ranked(kind, rows, width);
      if (rows.some((row) => row.cost_usd)) appendChart(holder, `Cost, US dollars${note && ` (${note})`}`, cost);
      else holder.append(Object.assign(document.createElement("p"), { className: "soft", textContent: "No cost is known." }));
      appendChart(holder, `Tokens${note && ` (${note})`}`, tokens);
      holder.lastElementChild.querySelector("h3").after(swatches(colors()));
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(draw, 150); });
})();

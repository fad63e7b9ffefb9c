// The timeline: chunks of rows are loaded when they are near and removed when they are far, so that
// sessions of any length scroll smoothly. The strip, the keys and the address select a row.
"use strict";
(() => {
  const scrub = document.getElementById("scrub");
  const timeline = document.getElementById("timeline");
  if (!scrub || !timeline) return;
  const { session, subagent, show } = scrub.dataset;
  const size = Number(scrub.dataset.chunk);
  const base = `${document.documentElement.dataset.root}/sessions/${encodeURIComponent(session)}`;
  const query = `?${new URLSearchParams({ ...(subagent && { subagent }), ...(show && { show }) })}`;
  const FAR = 6; // rows farther away than this many screens are removed
  let rowHeight = 130; // pixels; adjusted by the first chunks shown
  let measured = 0;
  let current = null;
  let steering = false;
  let finding = -1; // the last one visited

  const chunks = () => [...timeline.querySelectorAll(":scope > .chunk")];
  const chunkAt = (number) => timeline.querySelector(`:scope > .chunk[data-chunk="${number}"]`);
  const rowsIn = (root) => [...root.querySelectorAll(":scope > .row")];
  const rows = () => [...timeline.querySelectorAll(":scope > .chunk > .row")];
  const total = () => Number(timeline.dataset.total);

  const reserve = (chunk) => { chunk.style.blockSize = chunk.hasAttribute("data-away") ? `${Math.round(Number(chunk.dataset.rows) * rowHeight)}px` : ""; };
  const fill = (chunk, html) => {
    const made = document.createElement("template");
    made.innerHTML = html;
    chunk.replaceChildren(made.content);
    chunk.removeAttribute("data-away");
    chunk.style.blockSize = "";
    chunk.querySelectorAll("[hx-get]").forEach((each) => window.htmx?.process(each));
    if (measured > 5) return; // measuring forces a layout, so only the first chunks are measured
    measured += 1;
    const shown = chunk.getBoundingClientRect().height;
    if (shown) rowHeight = 0.8 * rowHeight + 0.2 * (shown / Math.max(Number(chunk.dataset.rows), 1));
  };
  // Insert one chunk per frame, so that several that arrive together do not block a frame.
  const arrived = [];
  const next = () => {
    const item = arrived.shift();
    if (!item) return;
    if (item.chunk.hasAttribute("data-away")) fill(item.chunk, item.html);
    item.done();
    if (arrived.length) requestAnimationFrame(next);
  };
  const put = (chunk, html) => new Promise((done) => {
    arrived.push({ chunk, html, done });
    if (document.hidden) next();
    else if (arrived.length === 1) requestAnimationFrame(next);
  });
  const loading = new Map();
  const load = (chunk) => {
    const number = chunk.dataset.chunk;
    if (!chunk.hasAttribute("data-away")) return Promise.resolve();
    if (!loading.has(number)) {
      const request = fetch(`${base}/rows/${number}${query}`).then(async (response) => {
        if (response.ok) await put(chunk, await response.text());
      }).finally(() => loading.delete(number));
      loading.set(number, request);
    }
    return loading.get(number);
  };
  const unload = (chunk) => {
    if (chunk.hasAttribute("data-away") || chunk.contains(document.activeElement) || chunk.querySelector("details[open]")) return;
    const height = chunk.getBoundingClientRect().height;
    chunk.setAttribute("data-away", "");
    chunk.style.blockSize = `${Math.round(height)}px`;
    chunk.replaceChildren();
  };
  const near = new IntersectionObserver((entries) => { for (const entry of entries) if (entry.isIntersecting) load(entry.target); }, { rootMargin: "150% 0px" });
  const far = new IntersectionObserver((entries) => { for (const entry of entries) if (!entry.isIntersecting) unload(entry.target); }, { rootMargin: `${FAR * 100}% 0px` });
  const adopt = (chunk) => { reserve(chunk); near.observe(chunk); far.observe(chunk); };
  // The page has the first rows only, with links to others for a browser without scripts.
  const sent = new Map(chunks().map((chunk) => [Number(chunk.dataset.chunk), chunk]));
  timeline.querySelectorAll(":scope > .away").forEach((link) => link.remove());
  const parts = Array.from({ length: Math.ceil(total() / size) }, (_, number) => {
    const chunk = sent.get(number) ?? document.createElement("section");
    if (!sent.has(number)) {
      chunk.className = "chunk";
      chunk.setAttribute("data-away", "");
      Object.assign(chunk.dataset, { chunk: number, rows: Math.min(size, total() - number * size) });
    }
    return chunk;
  });
  const [head, tail] = [Math.min(...sent.keys()), Math.max(...sent.keys())];
  sent.get(head)?.before(...parts.slice(0, head));
  sent.get(tail)?.after(...parts.slice(tail + 1));
  parts.forEach(adopt);

  // The current row, and how to move to another.
  const mark = (row, { focus = true } = {}) => {
    current?.classList.remove("here");
    current = row;
    if (!row) return;
    row.classList.add("here");
    if (focus) row.focus({ preventScroll: true });
    tell(row);
  };
  const indexOf = (row) => Number(row.parentElement.dataset.chunk) * size + rowsIn(row.parentElement).indexOf(row);
  const tell = (row) => {
    const slider = document.getElementById("scrubber");
    const at = indexOf(row);
    if (!steering) slider.value = at;
    const when = row.querySelector("time")?.textContent ?? "";
    const cost = row.querySelector(".figures .cost")?.textContent ?? "";
    document.getElementById("scrub-at").textContent = [`row ${(at + 1).toLocaleString("en")} of ${total().toLocaleString("en")}`, row.id, when, cost].filter(Boolean).join(" · ");
    const turn = row.id.split(".")[0];
    document.querySelector(".outline [aria-current]")?.removeAttribute("aria-current");
    document.querySelector(`.outline [data-jump="${CSS.escape(turn)}"]`)?.setAttribute("aria-current", "true");
  };
  const goTo = async (index, { focus = true, block = "start" } = {}) => {
    const place = Math.min(Math.max(index, 0), total() - 1);
    const chunk = chunkAt(Math.floor(place / size));
    if (!chunk) return null;
    await load(chunk);
    const row = rowsIn(chunk)[place % size];
    if (!row) return null;
    row.scrollIntoView({ block });
    mark(row, { focus });
    return row;
  };
  const goToId = (id) => {
    const row = document.getElementById(id);
    if (row?.classList.contains("row")) {
      row.scrollIntoView({ block: "start" });
      mark(row);
      history.replaceState(null, "", `?${subagent ? `subagent=${encodeURIComponent(subagent)}&` : ""}${show ? `show=${encodeURIComponent(show)}&` : ""}at=${id}#${id}`);
    } else location.assign(`${base}?${subagent ? `subagent=${encodeURIComponent(subagent)}&` : ""}at=${encodeURIComponent(id)}#${encodeURIComponent(id)}`);
  };
  const visible = () => {
    const top = scrub.getBoundingClientRect().bottom + 8;
    const box = timeline.getBoundingClientRect();
    const seen = document.elementFromPoint(box.left + Math.min(box.width / 2, 200), Math.max(top, box.top + 1))?.closest(".chunk > .row");
    return seen ?? rows().find((row) => row.getBoundingClientRect().bottom > top) ?? null;
  };
  const from = () => (current?.isConnected ? indexOf(current) : visible() ? indexOf(visible()) - 1 : -1);
  const step = (by) => goTo(from() + by, { block: "start" });
  const seek = (wanted, by) => {
    const all = rows();
    const at = current?.isConnected ? all.indexOf(current) : -1;
    const rest = by > 0 ? all.slice(at + 1) : all.slice(0, Math.max(at, 0)).reverse();
    const found = rest.find((row) => row.matches(wanted));
    if (found) { found.scrollIntoView({ block: "start" }); mark(found); } else step(by * size);
  };
  Object.assign(window.flightlog.keys, {
    j: () => step(1),
    k: () => step(-1),
    J: () => seek(".turn", 1),
    K: () => seek(".turn", -1),
    e: () => seek("[data-failed]", 1),
    // A digit shows one kind of rows: 1 is everything, 2 the next button.
    ...Object.fromEntries([..."123456789"].map((digit) => [digit, () => document.querySelectorAll(".chips .chip")[digit - 1]?.click()])),
    c: () => {
      if (!current) return;
      navigator.clipboard?.writeText(new URL(current.querySelector(".at").href).href);
      document.getElementById("scrub-at").textContent = `Link to ${current.id} copied`;
    },
    n: () => document.querySelectorAll(".findings [data-jump]")[(finding += 1) % (document.querySelectorAll(".findings [data-jump]").length || 1)]?.click(),
    g: () => goTo(0),
    G: () => goTo(total() - 1, { block: "end" }),
    o: () => {
      const folded = [...(current?.querySelectorAll("details") ?? [])];
      const open = folded.some((each) => !each.open);
      folded.forEach((each) => { each.open = open; });
      if (open) current?.querySelectorAll(".call > .all, .diff > .all").forEach((each) => each.click());
    },
  });
  window.flightlog.keys.Enter = () => { if (document.activeElement === current) window.flightlog.keys.o(); else document.activeElement?.click?.(); };

  scrub.addEventListener("input", (event) => {
    if (event.target.id !== "scrubber") return;
    steering = true;
    goTo(Number(event.target.value), { focus: false }).then(() => { steering = false; });
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-jump], .row .at");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.closest(".subagent-rows")) return;
    event.preventDefault();
    goToId(link.dataset.jump ?? link.closest(".row").id);
  });
  let timer = 0;
  addEventListener("scroll", () => {
    if (steering || timer) return;
    timer = setTimeout(() => {
      timer = 0;
      const row = visible();
      if (row && !(current?.isConnected && current === document.activeElement)) tell(row);
    }, 80);
  }, { passive: true });

  const start = decodeURIComponent(location.hash.slice(1));
  if (start && document.getElementById(start)) goToId(start);
  window.flightlog.timeline = { adopt, chunkAt, chunks, fill, goTo, reserve, rowsIn, total, current: () => current, mark };
})();

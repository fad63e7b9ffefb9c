"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const ROW = 32;

  // Foreign text is inserted as text nodes only.
  const make = (name, text, attributes = {}) => {
    const node = document.createElement(name);
    if (text) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const draw = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    return node;
  };
  const titled = (shape, text) => { shape.append(draw("title", {}, text)); return shape; };
  const day = (ms) => (ms ? new Date(ms).toISOString().slice(0, 10) : "");

  const figure = (name, title, width, height) => {
    const box = make("figure", "", { id: "chart-" + name });
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    box.append(make("h3", title), svg);
    return [box, svg];
  };

  const bars = (name, title, values, labels) => {
    const [box, svg] = figure(name, title, 480, 160);
    const most = Math.max(1, ...values);
    const wide = 470 / Math.max(1, values.length);
    values.forEach((value, at) => {
      const tall = (value / most) * 125;
      svg.append(titled(draw("rect", { class: "bar", x: 5 + at * wide, y: 135 - tall, width: Math.max(0.7, wide - 1), height: tall }),
        `${labels[at]}: ${value}`));
    });
    const step = Math.max(1, Math.ceil(labels.length / 6));
    labels.forEach((label, at) => { if (at % step === 0) svg.append(draw("text", { x: 5 + at * wide, y: 152 }, label)); });
    return box;
  };

  const heatmap = () => {
    const [box, svg] = figure("heatmap", "Prompts by weekday and hour", 480, 165);
    const most = Math.max(1, ...data.heatmap.map((cell) => cell.count));
    DAYS.forEach((name, at) => svg.append(draw("text", { x: 0, y: 20 + at * 20 }, name)));
    for (let hour = 0; hour < 24; hour += 3) svg.append(draw("text", { x: 30 + hour * 18.5, y: 160 }, `${hour}:00`));
    for (const cell of data.heatmap) {
      svg.append(titled(draw("rect", { class: "bar", x: 30 + cell.hour * 18.5, y: 7 + cell.day * 20, width: 17, height: 18, rx: 2,
        "fill-opacity": 0.12 + 0.88 * cell.count / most }), `${DAYS[cell.day]} ${cell.hour}:00: ${cell.count}`));
    }
    return box;
  };

  const money = () => {
    const edges = data.costs.edges;
    const labels = data.costs.bins.map((_, at) => (at === 0 ? `<${edges[0]}` : `${edges[at - 1]}+`));
    const box = bars("costs", "Cost of sessions, USD", data.costs.bins, labels);
    box.append(make("figcaption", `${data.costs.total} USD in all`));
    return box;
  };

  const lengths = () => {
    const box = bars("lengths", "Messages in a conversation", data.lengths.bins.map((bin) => bin.count),
      data.lengths.bins.map((bin) => `${bin.from}–${bin.from + 4}`));
    const stats = data.lengths.stats;
    box.append(make("figcaption", `median ${stats.median}, mean ${stats.mean}, longest ${stats.max}`));
    return box;
  };

  const timeline = () => bars("timeline", "Prompts by day", data.timeline.map((bin) => bin.count), data.timeline.map((bin) => bin.date));

  // The artifact's name separates its notes and ratings from those of other artifacts.
  const key = (kind) => `flightlog:${kind}:${data.name}`;
  const read = (kind) => { try { return JSON.parse(localStorage.getItem(key(kind)) || "{}"); } catch { return {}; } };
  const write = (kind, value) => { try { localStorage.setItem(key(kind), JSON.stringify(value)); } catch { /* private window */ } };
  const notes = read("notes");
  const ratings = read("ratings");

  const recommendation = (one, at) => {
    const box = make("details", "", { class: "finding" });
    if (at === 0) box.open = true;
    const head = make("summary");
    head.append(make("b", one.label), ` ${one.detail}`);
    box.append(head);
    if (one.trend) box.append(make("p", one.trend, { class: "facts" }));
    if (one.diff) box.append(make("pre", one.diff));
    const next = make("p");
    next.append(make("code", one.next));
    const list = make("ul");
    for (const [address, text] of one.evidence) {
      const item = make("li");
      item.append(make("code", address), ` ${text}`);
      list.append(item);
    }
    const choose = make("select", "", { "aria-label": `Rate ${one.label}` });
    for (const number of ["", 1, 2, 3, 4, 5]) choose.append(make("option", number === "" ? "not rated" : String(number), { value: number }));
    choose.value = ratings[one.id] || "";
    choose.addEventListener("change", () => {
      if (choose.value) ratings[one.id] = Number(choose.value); else delete ratings[one.id];
      write("ratings", ratings);
    });
    box.append(next, list, choose);
    return box;
  };

  let shown = data.chats;
  const lower = data.chats.map((chat) => chat[1].toLowerCase());
  const paint = () => {
    const list = get("list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const rows = get("rows");
    rows.style.setProperty("top", `${first * ROW}px`);
    rows.replaceChildren(...shown.slice(first, first + 40).map((chat) => {
      const item = make("li");
      const open = make("button", "", { type: "button" });
      open.append(make("span", day(chat[2]), { class: "when" }), make("span", chat[1] || "untitled", { class: "title" }),
        make("span", `${chat[3]} messages`, { class: "size" }));
      open.addEventListener("click", () => detail(chat));
      item.append(open);
      return item;
    }));
  };
  const filter = () => {
    const words = get("search").value.toLowerCase();
    const [from, to] = [get("from").value, get("to").value];
    shown = data.chats.filter((chat, at) => lower[at].includes(words) && (!from || day(chat[2]) >= from)
      && (!to || day(chat[2]) <= to));
    get("count").textContent = `${shown.length} of ${data.chats.length}`;
    get("tall").style.setProperty("height", `${shown.length * ROW}px`);
    get("list").scrollTop = 0;
    paint();
  };

  let current = "";
  const detail = (chat) => {
    current = chat[0];
    get("detail-head").textContent = chat[1] || "untitled";
    const about = [day(chat[2]), `${chat[3]} messages`, chat[4], chat[5] ? `${chat[5].toFixed(2)} USD` : "", `flightlog retro show ${chat[0]}`];
    get("detail-facts").textContent = about.filter(Boolean).join(" · ");
    get("note").value = notes[current] || "";
    get("detail").showModal();
  };

  const meta = data.meta;
  get("about").textContent = `${meta.conversation_count} conversations${meta.date_range ? `, ${meta.date_range.join(" to ")}` : ""} · ${meta.last_updated.slice(0, 10)}`;
  get("summary").textContent = data.summary.join(" ");
  const charts = { timeline, heatmap, lengths, costs: money };
  const filled = { timeline: data.timeline.length, heatmap: data.heatmap.length, lengths: data.lengths.bins.length, costs: data.costs.total };
  const names = Object.keys(charts).filter((name) => filled[name]).sort((a, b) => (b === data.first_chart) - (a === data.first_chart));
  get("charts").append(...names.map((name) => charts[name]()));
  get("pictures").hidden = names.length === 0;
  get("recommendations").append(...data.recommendations.map(recommendation));
  get("applied").append(...data.applied.map((line) => make("li", line)));
  get("advice").hidden = data.recommendations.length + data.applied.length === 0;
  let waiting = 0;
  get("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 200); });
  for (const id of ["from", "to"]) get(id).addEventListener("change", filter);
  get("list").addEventListener("scroll", paint);
  get("close").addEventListener("click", () => get("detail").close());
  get("note").addEventListener("input", () => { notes[current] = get("note").value; write("notes", notes); });
  get("save").addEventListener("click", () => {
    const link = make("a", "", { download: "feedback.json",
      href: "data:application/json," + encodeURIComponent(JSON.stringify({ ratings })) });
    link.click();
    get("saved").textContent = "saved; import it with: chat-retro feedback import feedback.json";
  });
  filter();
})();

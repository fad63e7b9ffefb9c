// Keyboard shortcuts of every page, and a session list that keeps its selection when it refreshes.
"use strict";
(() => {
  const field = (node) => node && (node.matches("input:not([type=range]):not([type=checkbox]), select, textarea") || node.isContentEditable);
  const { root } = document.documentElement.dataset;
  const help = document.getElementById("help");
  const lists = () => [...document.querySelectorAll("[data-list] > .session > a")];
  let here = null; // address of the selected session; survives a refresh of the list

  const choose = (link) => {
    document.querySelector(".session.here")?.classList.remove("here");
    if (!link) return;
    here = link.getAttribute("href");
    link.parentElement.classList.add("here");
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: "nearest" });
  };
  const move = (by) => {
    const links = lists();
    if (!links.length) return;
    const at = links.findIndex((link) => link.getAttribute("href") === here);
    choose(links[Math.min(Math.max(at + by, 0), links.length - 1)]);
  };
  const keys = {
    "/": () => (document.getElementById("find") ?? document.getElementById("q"))?.focus(),
    "?": () => help.showModal(),
    f: () => {
      const follow = document.getElementById("follow");
      if (follow) follow.click();
      else document.getElementById("project")?.focus();
    },
    s: () => location.assign(`${root}/search`),
    t: () => {
      const session = document.getElementById("scrub")?.dataset;
      const row = document.querySelector(".row.here")?.id ?? "";
      if (!session) return;
      const subagent = session.subagent ? `@${session.subagent}` : "";
      location.assign(`${root}/trace?address=${encodeURIComponent(`${session.session}${subagent}${/^\d+([.]\d+)?$/.test(row) ? `#${row}` : ""}`)}`);
    },
    u: () => { if (!document.getElementById("filters")) location.assign(`${root}/`); },
    j: () => move(1),
    k: () => move(-1),
    g: () => choose(lists()[0]),
    G: () => choose(lists().at(-1)),
    o: () => { if (here && lists().length) location.assign(here); },
  };
  // The timeline overrides j, k, o and others here.
  window.flightlog = { keys, field };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && field(document.activeElement)) document.activeElement.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || field(document.activeElement) || help?.open) return;
    const act = window.flightlog.keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  document.getElementById("help-open")?.addEventListener("click", () => help.showModal());

  // A refresh must not remove rows that were loaded by scrolling.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const from = event.target;
    if (from.matches?.("[data-poll]") && (document.hidden || lists().length > 100)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", () => {
    const current = lists().find((link) => link.getAttribute("href") === here);
    if (current) current.parentElement.classList.add("here");
  });
  // Put the filters into the address, so that a reload or a bookmark shows the same list.
  document.getElementById("filters")?.addEventListener("htmx:afterRequest", () => {
    const query = new URLSearchParams(new FormData(document.getElementById("filters")));
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    history.replaceState(null, "", `${root}/${query.size ? `?${query}` : ""}`);
  });
})();

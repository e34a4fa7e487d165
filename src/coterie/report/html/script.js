"use strict";
// The browser of conversations. Whatever a model said is shown through textContent and nothing else, so it can only ever be text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const CHUNK = 25; // conversations drawn at once; more as the reader comes near the end
  const ALL = "";

  const FILTERS = {
    stage: (one) => one.stage,
    arm: (one) => one.arm,
    seed: (one) => (one.seed === null ? "untrained" : String(one.seed)),
    outcome: (one) => one.outcome,
    task: (one) => data.tasks[one.task].id,
  };

  function make(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function withParts(parent, parts, titled) {
    for (const [text, kind] of parts) {
      if (kind === "sent" || kind === "used") {
        const mark = make("span", kind, text);
        if (titled) mark.title = kind === "sent" ? "a private number, sent" : "another seat's private number, used";
        parent.append(mark);
      } else {
        parent.append(text);
      }
    }
    return parent;
  }

  function message(one) {
    const notes = [one.player === "policy" ? "" : one.player, one.final ? "final" : "", one.cut ? "cut by its cap" : ""];
    const who = make("div", "who", one.seat);
    const said = notes.filter(Boolean).join(", ");
    if (said) who.append(" ", make("small", "", said));
    return [who, withParts(make("div", one.final ? "text final" : "text"), one.parts, true)];
  }

  function conversation(one) {
    const task = data.tasks[one.task];
    const made = make("article", "talk");
    const head = make("h4");
    const sign = { right: "✓", wrong: "✗" }[one.outcome];
    const reward = one.reward === null || sign ? "" : ` (${one.reward.toFixed(2)})`;
    head.append(make("span", `outcome ${sign ? one.outcome : "other"}`, `${sign || "◐"} ${one.outcome}${reward}`));
    head.append(make("span", "", one.seed === null ? one.arm : `${one.arm}, seed ${one.seed}`), make("span", "", one.stage));
    if (one.node) head.append(make("span", "", one.node));
    head.append(make("small", "", task.id + (one.episode ? `, episode ${one.episode}` : "")));
    made.append(head);
    if (task.ask) made.append(make("p", "ask", task.ask));
    for (const [seat, parts] of task.facts) made.append(withParts(make("p", "facts-of", `${seat} knows: `), parts));
    const said = make("div", "said");
    for (const each of one.messages) said.append(...message(each));
    made.append(said);
    if (task.answer) made.append(make("p", "ask", `The answer is ${task.answer}.`));
    for (const error of one.errors) made.append(make("p", "ask", error));
    return made;
  }

  function browse() {
    const list = byId("list"), form = byId("filters"), text = byId("by-text");
    const selects = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, byId(`by-${name}`)]));
    const words = data.items.map((one) => one.messages.map((m) => m.parts.map((p) => p[0]).join("")).join("\n").toLowerCase());
    let found = [], drawn = 0;

    for (const [name, select] of Object.entries(selects)) {
      const values = [...new Set(data.items.map(FILTERS[name]))];
      if (name !== "task") values.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      select.append(new Option("all", ALL), ...values.map((value) => new Option(value, value)));
    }

    function drawMore() {
      const next = found.slice(drawn, drawn + CHUNK);
      list.append(...next.map((index) => conversation(data.items[index])));
      drawn += next.length;
    }

    function fill() {
      const chosen = Object.entries(selects).filter(([, select]) => select.value !== ALL);
      const wanted = text.value.trim().toLowerCase();
      found = [];
      data.items.forEach((one, index) => {
        const fits = chosen.every(([name, select]) => FILTERS[name](one) === select.value);
        if (fits && (!wanted || words[index].includes(wanted))) found.push(index);
      });
      const right = found.filter((index) => data.items[index].outcome === "right").length;
      const [some, all, good] = [found.length, data.items.length, right].map((count) => count.toLocaleString("en"));
      byId("count").textContent = `${some} of ${all} conversations, ${good} of them right`;
      list.replaceChildren();
      drawn = 0;
      drawMore();
    }

    function remember() {
      const kept = new URLSearchParams();
      for (const [name, select] of Object.entries(selects)) if (select.value !== ALL) kept.set(name, select.value);
      if (text.value) kept.set("says", text.value);
      const hash = kept.toString();
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    }

    const given = new URLSearchParams(location.hash.slice(1));
    for (const [name, select] of Object.entries(selects)) if (given.has(name)) select.value = given.get(name);
    for (const select of Object.values(selects)) if (select.selectedIndex < 0) select.value = ALL;
    text.value = given.get("says") || "";
    form.addEventListener("input", () => { fill(); remember(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => { fill(); remember(); }));
    fill();
    new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) drawMore();
    }, { rootMargin: "2500px" }).observe(byId("more"));
  }

  if (data.items.length) browse();

  // Of a page that is watched: whether the records are still those that it was made from. A reader who types or has marked
  // something is not disturbed.
  const { stamp, every } = document.body.dataset;
  if (stamp) {
    const since = performance.now();
    const busy = () => !getSelection().isCollapsed || document.activeElement?.matches("input, select");
    setInterval(async () => {
      try {
        const now = await (await fetch("stamp", { cache: "no-store" })).text();
        if (now !== stamp && !busy() && performance.now() - since > 1000 * Number(every)) location.reload();
      } catch {
        // the server has ended; the page stays as it is
      }
    }, 3000);
  }
})();

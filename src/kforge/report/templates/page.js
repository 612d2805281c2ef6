// The table and the stories of a report. Text is put into the page as text; only stories, which the templates escaped, are HTML.
"use strict";
(() => {
  const CHUNK = 200; // rows that are drawn at once: a screen shows about 20, and thousands would take a second
  const byId = (id) => document.getElementById(id);
  const data = (id) => { const found = byId(id); return found ? JSON.parse(found.textContent) : null; };
  const state = { rows: data("rows") || [], stories: data("stories") || {}, sort: "", down: false, chosen: new Set(), shown: CHUNK, found: [] };

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const clock = (s) => s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  const value = (row, path) => {
    const [name, part] = path.split(".");
    if (!part) return row[name];
    const found = row[name][part];
    return found && !found.doubt ? found.median : undefined; // what is not measured is last, whatever was seen
  };

  // --- the table -----------------------------------------------------------------------------------------

  const speedup = (found) => {
    const cell = element("td", undefined, "number");
    if (!found) return cell;
    if (found.doubt) {
      cell.append(element("span", `${found.median.toFixed(2)}× seen`, "doubt"));
      cell.title = found.doubt;
    } else {
      cell.append(`${found.median.toFixed(2)}×`, element("small", `${found.low.toFixed(2)} to ${found.high.toFixed(2)}`));
    }
    return cell;
  };
  const labelled = (cell, label) => { if (cell.textContent) cell.dataset.label = label; return cell; };
  const drawn = (row) => {
    const line = element("tr"), name = element("td"), result = element("td");
    const href = row.href || (row.story ? `#${row.key}` : "");
    if (/^[#/]/.test(href)) {
      const link = element("a", row.name);
      link.href = href;
      name.append(link);
    } else name.append(row.name);
    if (state.sources > 1) name.append(element("small", row.source));
    result.append(element("span", row.finding, `chip c-${row.colour}`));
    if (row.reason) result.append(element("small", row.reason.length > 160 ? `${row.reason.slice(0, 160)}…` : row.reason));
    line.append(name, result);
    for (const baseline of state.baselines) line.append(labelled(speedup(row.speedups[baseline]), baseline === "compile" ? "over torch.compile" : `over ${baseline}`));
    const number = (text, label) => line.append(labelled(element("td", text, "number"), label));
    number(row.roofline === undefined ? "" : `${Math.round(100 * row.roofline)} %`, "roofline");
    number(row.attempts ? String(row.attempts) : "", "attempts");
    number(row.tokens ? row.tokens.toLocaleString("en") : "", "tokens");
    number(row.seconds ? clock(row.seconds) : "", "time");
    return line;
  };
  const matches = (row, words) => words.every((word) => row.searched.includes(word));
  const compare = (one, other) => {
    const a = value(one, state.sort), b = value(other, state.sort);
    if (a === undefined || a === "") return b === undefined || b === "" ? 0 : 1; // without a value: last in both directions
    if (b === undefined || b === "") return -1;
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return state.down ? -order : order;
  };
  const find = () => {
    const words = (byId("filter")?.value || "").toLowerCase().split(/\s+/).filter(Boolean);
    state.found = state.rows.filter((row) => (!state.chosen.size || state.chosen.has(row.finding)) && matches(row, words));
    if (state.sort) state.found.sort(compare);
  };
  const draw = () => {
    const body = document.querySelector("#table tbody");
    if (!body) return;
    find();
    body.replaceChildren(...state.found.slice(0, state.shown).map(drawn));
    const more = byId("more"), left = state.found.length - state.shown;
    more.hidden = left <= 0;
    more.textContent = `Show ${Math.min(left, CHUNK)} more of ${left}`;
    byId("count").textContent = state.found.length === state.rows.length ? `${state.rows.length} problems` : `${state.found.length} of ${state.rows.length} problems`;
    for (const head of document.querySelectorAll("#table th[aria-sort]")) {
      const own = head.querySelector("button").dataset.sort === state.sort;
      head.setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
    }
  };
  const findings = () => {
    const counts = new Map();
    for (const row of state.rows) counts.set(row.finding, [(counts.get(row.finding)?.[0] || 0) + 1, row.colour]);
    const chips = [...counts].sort((a, b) => b[1][0] - a[1][0]).map(([name, [count, colour]]) => {
      const button = element("button", undefined, `c-${colour}`);
      button.type = "button";
      button.dataset.finding = name;
      button.setAttribute("aria-pressed", String(state.chosen.has(name)));
      button.append(element("i"), `${name} ${count}`);
      return button;
    });
    byId("findings").replaceChildren(...chips);
  };
  const update = (rows) => { // the dashboard calls this when a problem has changed
    const known = new Map(state.rows.map((row, place) => [row.key, place]));
    for (const row of rows) {
      row.searched = [row.name, row.family, row.source, row.finding, row.reason].join(" ").toLowerCase();
      if (known.has(row.key)) state.rows[known.get(row.key)] = row;
      else state.rows.push(row);
    }
    state.sources = new Set(state.rows.map((row) => row.source)).size;
    if (byId("findings")) findings();
    draw();
  };

  // --- stories ---------------------------------------------------------------------------------------------

  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const navigation = (key) => {
    const bar = element("nav", undefined, "nav"), keys = state.found.filter((row) => row.story).map((row) => row.key), at = keys.indexOf(key);
    const link = (target, text) => { const made = element("a", text); made.href = `#${target}`; bar.append(made); };
    link("problems", "← All problems");
    if (at > 0) link(keys[at - 1], "Previous");
    if (at >= 0 && at < keys.length - 1) link(keys[at + 1], "Next");
    return bar;
  };
  let place = 0;
  const route = async () => {
    const story = byId("story"), key = decodeURIComponent(location.hash.slice(1));
    if (!story) return;
    if (!Object.hasOwn(state.stories, key)) {
      if (!story.hidden) {
        story.hidden = true;
        byId("overview").hidden = false;
        story.replaceChildren();
        scrollTo(0, place);
        document.querySelector(`#table a[href="#${story.dataset.key}"]`)?.focus({ preventScroll: true });
      }
      return;
    }
    if (story.hidden) place = scrollY;
    const holder = element("div");
    holder.innerHTML = await unpacked(state.stories[key]);
    story.replaceChildren(navigation(key), holder);
    story.dataset.key = key;
    byId("overview").hidden = true;
    story.hidden = false;
    scrollTo(0, 0);
    story.querySelector("h1")?.focus({ preventScroll: true });
  };

  // --- events ----------------------------------------------------------------------------------------------

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.sort) {
      // numbers begin with the largest, names with the first
      state.down = state.sort === button.dataset.sort ? !state.down : !["name", "finding"].includes(button.dataset.sort);
      state.sort = button.dataset.sort;
      draw();
    } else if (button.dataset.finding) {
      const name = button.dataset.finding, on = !state.chosen.has(name);
      if (on) state.chosen.add(name); else state.chosen.delete(name);
      button.setAttribute("aria-pressed", String(on));
      state.shown = CHUNK;
      draw();
    } else if (button.id === "more") {
      state.shown += CHUNK;
      draw();
    }
  });
  document.addEventListener("input", (event) => {
    if (event.target.id === "filter") { state.shown = CHUNK; draw(); }
  });
  document.addEventListener("keydown", (event) => {
    const filter = byId("filter"), story = byId("story");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && filter && !/^(input|textarea|select)$/i.test(event.target.tagName)) {
      event.preventDefault();
      const enter = () => { filter.focus(); filter.select(); };
      if (story && !story.hidden) { location.hash = "problems"; setTimeout(enter); } else enter();
    } else if (event.key === "Escape" && event.target === filter) {
      filter.value = "";
      draw();
    } else if (event.key === "Escape" && story && !story.hidden) {
      location.hash = "problems";
    }
  });
  addEventListener("hashchange", route);

  state.baselines = [...document.querySelectorAll("#table button[data-sort^='speedups.']")].map((button) => button.dataset.sort.split(".")[1]);
  window.kforge = { update };
  update(state.rows);
  route();
})();

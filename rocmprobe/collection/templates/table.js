"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // The columns of a cell, as page.py packs them.
  const CHIP = 0, STACK = 1, SETTING = 2, CALLER = 3, CHECK = 4, DTYPE = 5, DIRECTION = 6, STATES = 7,
    MACHINES = 8, RUNS = 9, UNSTEADY = 10, PARTIAL = 11, WHY = 12, LAST = 13;
  const PAGE = 30;
  const form = document.querySelector(".filter"), shown = document.getElementById("shown");
  const more = document.getElementById("more"), output = form.querySelector("output");
  const columns = { chip: CHIP, stack: STACK, setting: SETTING, check: CHECK, dtype: DTYPE };
  const names = { chip: data.chips, stack: data.stacks, setting: data.words.setting, check: data.words.check,
    dtype: data.words.dtype, state: data.states.map((state) => state[0]) };
  let found = [], drawn = 0, dtypes = [];

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const present = (name) => {
    const seen = new Set();
    for (const cell of data.cells) {
      if (name === "state") for (let i = 0; i < cell[STATES].length; i += 2) seen.add(cell[STATES][i]);
      else seen.add(cell[columns[name]]);
    }
    return [...seen].sort((a, b) => a - b);
  };

  const fill = (name) => {
    const select = form.elements[name];
    select.append(new Option("all", ""));
    for (const number of present(name)) select.append(new Option(names[name][number] || "none", number));
    if (name === "state") {
      select.add(new Option("machines disagree", "differ"), 1);
      select.add(new Option("anything that fails", "fails"), 2);
    }
  };

  const hasState = (cell, wanted) => {
    const states = cell[STATES];
    if (wanted === "differ") return states.length > 2;
    for (let i = 0; i < states.length; i += 2) {
      if (wanted === "fails" ? data.states[states[i]][2] === "bad" : states[i] === Number(wanted)) return true;
    }
    return false;
  };

  // One row of the page: what one setting does in one check, on one chip and stack.
  const choose = () => {
    const wanted = Object.keys(columns).filter((name) => form.elements[name].value !== "")
      .map((name) => [columns[name], Number(form.elements[name].value)]);
    const state = form.elements.state.value;
    const rows = new Map(), kinds = new Set();
    let cells = 0;
    for (const cell of data.cells) {
      if (wanted.some(([column, value]) => cell[column] !== value) || (state && !hasState(cell, state))) continue;
      const key = cell.slice(CHIP, DTYPE).join(" ");
      if (!rows.has(key)) rows.set(key, []);
      rows.get(key).push(cell);
      kinds.add(cell[DTYPE]);
      cells += 1;
    }
    found = [...rows.values()];
    dtypes = [...kinds].sort((a, b) => a - b);
    output.textContent = cells === data.cells.length ? `${cells} cells` : `${cells} of ${data.cells.length} cells`;
  };

  const answer = (cell) => {
    const direction = data.words.direction[cell[DIRECTION]];
    const line = make("div", direction ? "answer" : "answer whole");
    if (direction) line.append(make("span", "direction", direction));
    const states = make("span", "states");
    for (let i = 0; i < cell[STATES].length; i += 2) {
      const [name, symbol, tone, meaning] = data.states[cell[STATES][i]];
      const badge = make("span", `state ${tone}`);
      const sign = make("span", "symbol", symbol);
      sign.setAttribute("aria-hidden", "true");
      badge.append(sign, ` ${name} ${cell[STATES][i + 1]}`);
      const why = cell[WHY] ? `; ${cell[WHY]}` : "";
      badge.title = `${meaning}; ${cell[MACHINES]} machines, ${cell[RUNS]} runs, latest ${cell[LAST] || "without a date"}${why}`;
      states.append(badge);
    }
    const notes = [cell[UNSTEADY] ? `not steady on ${cell[UNSTEADY]}` : "", cell[PARTIAL] ? `${cell[PARTIAL]} partial` : ""];
    for (const note of notes.filter(Boolean)) states.append(make("span", "note", note));
    line.append(states);
    return line;
  };

  const draw = () => {
    const end = Math.min(drawn + PAGE, found.length);
    const table = drawn ? shown.querySelector("table") : make("table");
    let body = table.tBodies[table.tBodies.length - 1];
    if (!drawn) {
      const head = table.createTHead().insertRow();
      for (const title of ["Setting", "Check", ...dtypes.map((each) => data.words.dtype[each])]) {
        const cell = make("th", "", title);
        cell.scope = "col";
        head.append(cell);
      }
    }
    for (; drawn < end; drawn += 1) {
      const cells = found[drawn], first = cells[0], before = drawn ? found[drawn - 1][0] : [];
      if (first[CHIP] !== before[CHIP] || first[STACK] !== before[STACK]) {
        body = table.appendChild(make("tbody"));
        const place = make("th", "place");
        place.colSpan = 2 + dtypes.length;
        place.scope = "rowgroup";
        place.append(make("strong", "", data.chips[first[CHIP]]), make("br"), make("span", "muted", data.stacks[first[STACK]]));
        body.insertRow().append(place);
      }
      const row = body.insertRow();
      const setting = make("th", "", data.words.setting[first[SETTING]]);
      setting.scope = "row";
      const caller = data.words.caller[first[CALLER]];
      row.append(setting, make("td", "", data.words.check[first[CHECK]] + (caller && caller !== "torch" ? ` (${caller})` : "")));
      for (const dtype of dtypes) {
        const box = make("td");
        box.dataset.label = data.words.dtype[dtype];
        for (const cell of cells) if (cell[DTYPE] === dtype) box.append(answer(cell));
        row.append(box);
      }
    }
    if (!table.isConnected) {
      const scroll = make("div", "scroll");
      scroll.append(table);
      shown.replaceChildren(found.length ? scroll : make("p", "", "Nothing has all of that; reset the filter."));
    }
    more.hidden = drawn >= found.length;
    more.textContent = `Show more (${found.length - drawn} rows left)`;
  };

  const filter = () => {
    drawn = 0;
    choose();
    draw();
  };

  for (const name of Object.keys(names)) fill(name);
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  more.addEventListener("click", draw);
  filter();
  form.hidden = shown.hidden = false;
  document.getElementById("static").hidden = true;
})();

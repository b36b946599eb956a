"use strict";
// Any two parameters as axes: a point is a run, with an index of each parameter's value; -1 is at all of them.
(() => {
  const { parameters, figures, places, measured } = JSON.parse(document.getElementById("data").textContent);
  const NONE = -1, MEAN = -1, COLOURS = 8, SEED = "seed";
  const at = (id) => document.getElementById(id);
  const others = new Map();  // parameter -> its select

  const fill = (select, options, chosen) => {
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
  };
  const node = (tag, attributes = {}, text = null, space = "http://www.w3.org/1999/xhtml") => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text;
    return made;
  };
  const svg = (tag, attributes, text = null) => node(tag, attributes, text, "http://www.w3.org/2000/svg");
  const said = (x, digits = 4) => Number.isInteger(x) || Math.abs(x) >= 10 ** (digits - 1)
    ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(digits));

  // --- what is asked, and what there is of it

  const asked = () => ({
    figure: +at("figure").value, across: +at("across").value, down: +at("down").value, look: at("look").value,
  });
  const showOthers = () => {
    const { across, down } = asked();
    const kept = new Map([...others].map(([i, select]) => [i, +select.value]));
    others.clear();
    const labels = [];
    parameters.forEach((parameter, i) => {
      if (i === across || i === down || parameter.values.length < 2) return;
      const label = node("label", {}, parameter.name), select = node("select", { "data-parameter": parameter.name });
      const first = parameter.name === SEED ? MEAN : 0;
      fill(select, [[MEAN, "mean of all"], ...parameter.values.map((value, j) => [j, value])], kept.get(i) ?? first);
      select.addEventListener("change", draw);
      label.append(select);
      labels.push(label);
      others.set(i, select);
    });
    at("others").replaceChildren(...labels);
  };
  const spread = (across, x, down, y, figure) => {
    const wanted = [...others].map(([i, select]) => [i, +select.value]).filter(([, value]) => value !== MEAN);
    wanted.push([across, x]);
    if (down !== NONE) wanted.push([down, y]);
    const values = [];
    places.forEach((place, p) => {
      const isThere = wanted.every(([i, value]) => place[i] === value || place[i] === -1);
      if (isThere && measured[p][figure] !== null) values.push(measured[p][figure]);
    });
    if (!values.length) return null;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const squares = values.reduce((a, b) => a + (b - mean) ** 2, 0);
    return { mean, deviation: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : null, num: values.length };
  };
  const told = (of) => `${said(of.mean)}${of.deviation === null ? "" : ` ± ${said(of.deviation, 2)}`}, of ${of.num}`;

  // --- the two looks

  const heat = (columns, rows, grid, across, down) => {
    const means = grid.flat().filter(Boolean).map((of) => of.mean);
    const low = Math.min(...means), high = Math.max(...means);
    const table = node("table", { class: "heat" }), head = node("tr");
    head.append(node("th", { class: "of" }, down === NONE ? parameters[across].name
      : `${parameters[down].name} \\ ${parameters[across].name}`));
    columns.forEach((name) => head.append(node("th", {}, name)));
    table.append(head);
    rows.forEach((name, y) => {
      const row = node("tr");
      row.append(node("th", {}, name));
      grid[y].forEach((of, x) => {
        if (of === null) { row.append(node("td", { class: "nothing" }, "-")); return; }
        const share = high > low ? 6 + 48 * (of.mean - low) / (high - low) : 20;
        const cell = node("td", {
          style: `background: color-mix(in srgb, var(--one) ${share.toFixed(0)}%, var(--card))`,
          title: `${name}${name && ", "}${columns[x]}: ${told(of)}`,
        }, said(of.mean));
        if (of.deviation !== null) cell.append(node("small", {}, `± ${said(of.deviation, 2)}`));
        row.append(cell);
      });
      table.append(row);
    });
    at("plot").replaceChildren(table);
    at("legend").replaceChildren();
  };
  const ticks = (low, high) => {
    const rough = (high - low) / 4 || Math.abs(high) || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let i = Math.floor(low / step + 1e-9); i <= Math.ceil(high / step - 1e-9); i++) found.push(+(i * step).toPrecision(12));
    return found.length > 1 ? found : [found[0], found[0] + step];
  };
  const lines = (columns, rows, grid, down) => {
    const all = grid.flat().filter(Boolean);
    const lows = all.map((of) => of.mean - (of.deviation ?? 0)), highs = all.map((of) => of.mean + (of.deviation ?? 0));
    const high = Math.max(...highs);
    let low = Math.min(...lows);
    if (low > 0 && low < high / 2) low = 0;  // near enough to say how many times as much
    const marks = ticks(low, high), bottom = marks[0], top = marks[marks.length - 1];
    const width = Math.max(280, at("plot").clientWidth), height = 300, left = 64, right = 16, up = 12, under = 30;
    const x = (i) => left + (width - left - right) * (columns.length > 1 ? 0.03 + 0.94 * i / (columns.length - 1) : 0.5);
    const y = (value) => up + (1 - (value - bottom) / (top - bottom)) * (height - up - under);
    const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figures[asked().figure] });
    marks.forEach((mark) => {
      plot.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
      plot.append(svg("text", { class: "tick", x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, said(mark)));
    });
    let end = 0;
    columns.forEach((name, i) => {
      const half = name.length * 3.6, middle = Math.min(Math.max(x(i), half), width - half);
      if (middle - half < end) return;  // no room
      end = middle + half + 7;
      plot.append(svg("text", { class: "tick", x: middle, y: height - 9, "text-anchor": "middle" }, name));
    });
    rows.forEach((name, r) => {
      const colour = `var(--s${r % COLOURS})`, dash = r < COLOURS ? "none" : "5 4";
      const known = grid[r].map((of, i) => [of, i]).filter(([of]) => of !== null);
      const points = known.map(([of, i]) => `${x(i)},${y(of.mean)}`).join(" ");
      plot.append(svg("polyline", { class: "line", points, style: `stroke: ${colour}; stroke-dasharray: ${dash}` }));
      known.forEach(([of, i]) => {
        if (of.deviation) {
          const path = `M${x(i) + 3 * (r - (rows.length - 1) / 2)} ${y(of.mean - of.deviation)}V${y(of.mean + of.deviation)}`;
          plot.append(svg("path", { class: "dev", d: path, style: `stroke: ${colour}` }));
        }
        const dot = svg("circle", { cx: x(i), cy: y(of.mean), r: 3.5, style: `fill: ${colour}` });
        dot.append(svg("title", {}, `${name}${name && ", "}${columns[i]}: ${told(of)}`));
        plot.append(dot);
      });
    });
    at("plot").replaceChildren(plot);
    at("legend").replaceChildren(...rows.filter(Boolean).map((name, r) => {
      const span = node("span");
      span.append(node("i", { style: `background: var(--s${r % COLOURS})` }), `${parameters[down].name} ${name}`);
      return span;
    }));
  };

  const draw = () => {
    const { figure, across, down, look } = asked();
    const columns = parameters[across].values, rows = down === NONE ? [""] : parameters[down].values;
    const grid = rows.map((_, y) => columns.map((_, x) => spread(across, x, down, y, figure)));
    if (!grid.flat().some(Boolean)) {
      at("plot").replaceChildren(node("p", { class: "nothing" }, "Nothing was measured here."));
      at("legend").replaceChildren();
    } else if (look === "lines") lines(columns, rows, grid, down);
    else heat(columns, rows, grid, across, down);
    at("said").textContent = `${figures[figure]} by ${parameters[across].name}`
      + (down === NONE ? "" : ` and ${parameters[down].name}`)
      + [...others].map(([i, s]) => `; ${parameters[i].name}: ${s.selectedOptions[0].textContent}`).join("");
  };

  // --- what is shown at first: the first two parameters that vary, the seed aside

  const names = parameters.map((parameter, i) => [i, parameter.name]);
  const varied = names.filter(([i, name]) => parameters[i].values.length > 1 && name !== SEED).map(([i]) => i);
  const across = varied[1] ?? varied[0] ?? 0, down = varied.length > 1 ? varied[0] : NONE;
  fill(at("figure"), figures.map((name, i) => [i, name]), 0);
  fill(at("across"), names, across);
  fill(at("down"), [[NONE, "nothing"], ...names], down);
  fill(at("look"), [["table", "a table"], ["lines", "lines"]], "table");
  const changed = (event) => {
    const { across, down } = asked();
    if (across === down && event.target.id === "across") at("down").value = NONE;
    if (across === down && event.target.id === "down") {
      const other = names.find(([i]) => i !== down);
      if (other === undefined) at("down").value = NONE; else at("across").value = other[0];
    }
    showOthers();
    draw();
  };
  for (const id of ["figure", "across", "down", "look"]) at(id).addEventListener("change", changed);
  window.addEventListener("resize", draw);
  showOthers();
  draw();
})();

// --- curves. A chart is an image with a summary in words, and a table of its numbers.
const svgSpace = "http://www.w3.org/2000/svg";

function draw(tag, attributes, text) {
  const element = document.createElementNS(svgSpace, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Round numbers between two bounds, about so many, `least` apart or more.
function ticks(low, high, most, least = 0) {
  const rough = Math.max((high - low) / most, least), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough * (1 - 1e-9));
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; ++at) found.push(+(at * step).toPrecision(12));
  return found;
}

// Extent of the values, wider than nothing; from zero where `fromZero`.
function extent(values, fromZero) {
  let low = Math.min(...values), high = Math.max(...values);
  if (fromZero) low = Math.min(0, low);
  if (high - low < 1e-12) {
    high += Math.abs(high) * 0.1 || 1;
    if (!fromZero) low -= Math.abs(low) * 0.1;
  }
  return [low, high];
}

const chartStyles = ["first", "second"];

// At most so many points of a series, evenly chosen, with its last.
function thin(points, most) {
  if (points.length <= most) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, at) => points[Math.round(at * step)]);
}

// chart: {title, x: name, series: [{name, points: [[x, y], ...]}], fromZero, unit, left: text of an x}
function showChart(place, chart) {
  const series = chart.series.filter(each => each.points.length > 0);
  const open = place.querySelector("details")?.open;
  place.classList.add("chart");
  place.replaceChildren(make("h4", "", chart.title));
  if (!series.length) {
    place.append(make("p", "soft", "No numbers yet."));
    return;
  }
  const summary = chart.title + ": " + series.map(each => `${each.name} ${short(each.points[each.points.length - 1][1])}${chart.unit || ""}` +
    (each.points.length > 1 ? `, from ${short(each.points[0][1])}` : "")).join("; ");
  place.append(chartImage(chart, series, summary), legendOf(series, chart), tableOf(series, chart, open));
}

function chartImage(chart, series, summary) {
  const width = 720, height = 240, left = 56, right = 12, top = 10, bottom = 28;
  const [lowX, highX] = extent(series.flatMap(each => [each.points[0][0], each.points[each.points.length - 1][0]]), false);
  const [lowY, highY] = extent(series.flatMap(each => each.points.map(point => point[1])), chart.fromZero);
  const atX = x => left + (width - left - right) * (x - lowX) / (highX - lowX);
  const atY = y => top + (height - top - bottom) * (1 - (y - lowY) / (highY - lowY));
  const image = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary });
  for (const y of ticks(lowY, highY, 5)) {
    image.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: atY(y), y2: atY(y) }),
      draw("text", { x: left - 6, y: atY(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(lowX, highX, 6, 1)) image.append(draw("text", { x: atX(x), y: height - 8, "text-anchor": "middle" }, chart.left ? chart.left(x) : short(x)));
  series.forEach((each, at) => {
    const points = thin(each.points, 600);
    image.append(draw("polyline", { class: "line " + chartStyles[at], points: points.map(([x, y]) => `${atX(x).toFixed(1)},${atY(y).toFixed(1)}`).join(" ") }));
    if (points.length < 40) for (const [x, y] of points) image.append(draw("circle", { class: "point " + chartStyles[at], cx: atX(x), cy: atY(y), r: 2.5 }));
  });
  return image;
}

function legendOf(series, chart) {
  const legend = make("ul", "legend");
  series.forEach((each, at) => {
    const item = make("li"), image = draw("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" });
    image.append(draw("line", { class: "line " + chartStyles[at], x1: 0, x2: 28, y1: 4, y2: 4 }));
    item.append(image, `${each.name}: ${short(each.points[each.points.length - 1][1])}${chart.unit || ""}`);
    legend.append(item);
  });
  return legend;
}

function tableOf(series, chart, open) {
  const details = make("details"), table = make("table"), head = make("tr"), scroll = make("div", "scroll");
  details.open = Boolean(open);
  for (const name of [chart.x, ...series.map(each => each.name)]) {
    const cell = make("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  table.append(head);
  const values = series.map(each => new Map(each.points));
  const all = [...new Set(series.flatMap(each => thin(each.points, 50).map(point => point[0])))].sort((a, b) => a - b);
  for (const x of all) {
    const row = make("tr");
    row.append(make("td", "", chart.left ? chart.left(x) : short(x)), ...values.map(each => make("td", "", each.has(x) ? short(each.get(x)) : "")));
    table.append(row);
  }
  scroll.append(table);
  details.append(make("summary", "", "Numbers"), scroll);
  return details;
}

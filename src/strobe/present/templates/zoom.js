document.querySelectorAll("script.zoom").forEach(function (held) {
  var found = JSON.parse(held.textContent), box = document.createElement("details"), chart;
  var steps = found.steps || found.rates.map(function (_, place) { return found.first + place; });
  var colour = function (name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); };
  var level = function (value) { return steps.map(function () { return value; }); };
  var chosen = function (places) {
    var column = level(null);
    places.forEach(function (place) { column[place] = found.rates[place]; });
    return column;
  };
  var told = function (_, value) { return value == null ? "" : value.toPrecision(4); };
  function draw() {
    var axis = { stroke: colour("soft"), grid: { stroke: colour("hair"), width: 1 }, ticks: { stroke: colour("hair"), width: 1 } };
    var series = [{ label: "step" }, { label: found.unit, stroke: colour("accent"), width: 1, value: told }];
    var columns = [steps, found.rates];
    Object.keys(found.marked).forEach(function (kind) {
      var ink = colour(kind === "profiled" ? "callbacks" : "soft");
      series.push({ label: kind, stroke: ink, paths: function () {}, points: { show: true, size: 6, fill: colour("paper") }, value: told });
      columns.push(chosen(found.marked[kind]));
    });
    [["run", "ink", []], ["ceiling", "data_wait", [6, 4]]].forEach(function (line) {
      if (found[line[0]] == null) return;
      series.push({ label: line[0], stroke: colour(line[1]), width: 1.25, dash: line[2], points: { show: false }, value: told });
      columns.push(level(found[line[0]]));
    });
    if (chart) chart.destroy();
    chart = new uPlot({
      width: box.clientWidth, height: 280, series: series, axes: [axis, axis],
      scales: { x: { time: false }, y: { range: function (_, low, high) { return [0, Math.min(1.1 * high, Math.max(found.top, low)) || 1]; } } },
    }, columns, box);
  }
  box.innerHTML = "<summary>Each step, to zoom into: drag; a double click shows all again</summary>";
  held.parentNode.append(box);
  box.addEventListener("toggle", function () { if (!chart) draw(); });
  addEventListener("resize", function () { if (chart) chart.setSize({ width: box.clientWidth, height: 280 }); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { if (chart) draw(); });
});

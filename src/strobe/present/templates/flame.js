document.querySelectorAll("script.flame").forEach(function (held) {
  var graphs = JSON.parse(held.textContent), box = held.parentNode, choice = document.createElement("select");
  var plot = document.createElement("div"), bar = document.createElement("div"), told = document.createElement("output");
  var back = document.createElement("button"), ROW = 20, graph, from, to, chosen;
  function duration(value) {
    return value < 999.5 ? value.toPrecision(3) + " µs" : value < 999500 ? (value / 1e3).toPrecision(3) + " ms" : (value / 1e6).toPrecision(3) + " s";
  }
  function share(value) { return (100 * value / graph.total).toFixed(1) + "%"; }
  function tell(rect) {
    told.textContent = rect ? graph.names[rect[3]] + ": " + duration(rect[2]) + ", " + share(rect[2]) : "";
  }
  function colour(name) {
    var sum = 0;
    for (var place = 0; place < name.length; place++) sum = (31 * sum + name.charCodeAt(place)) % 9973;
    return "s" + (1 + sum % 6);
  }
  function draw() {
    var width = plot.clientWidth || 600, scale = width / (to - from), rows = 0;
    plot.textContent = "";
    graph.boxes.forEach(function (rect) {
      var left = Math.max(0, (rect[1] - from) * scale), right = Math.min(width, (rect[1] + rect[2] - from) * scale);
      rows = Math.max(rows, rect[0] + 1);
      if (right - left < 0.6) return;
      var one = document.createElement("button"), name = graph.names[rect[3]];
      one.type = "button";
      one.tabIndex = -1;
      one.className = colour(name);
      one.style.cssText = "left:" + left + "px;width:" + Math.max(1, right - left - 0.5) + "px;top:" + (rect[0] + lanes(rect[0])) * ROW + "px";
      if (right - left > 24) one.textContent = name;
      one.setAttribute("aria-label", name + ", " + duration(rect[2]) + ", " + share(rect[2]));
      one.title = name + "\n" + duration(rect[2]) + ", " + share(rect[2]);
      one.rect = rect;
      plot.append(one);
    });
    graph.lanes.forEach(function (lane, place) {
      var title = document.createElement("small");
      title.textContent = lane[1];
      title.style.top = (lane[0] + place) * ROW + "px";
      plot.append(title);
    });
    plot.style.height = (rows + graph.lanes.length) * ROW + "px";
    back.hidden = from === 0 && to === graph.total;
  }
  function lanes(depth) { return graph.lanes.filter(function (lane) { return lane[0] <= depth; }).length; }
  function zoom(start, end) { from = start; to = end; draw(); }
  function select(rect) {
    chosen = rect;
    tell(rect);
    var one = Array.from(plot.children).find(function (child) { return child.rect === rect; });
    if (one) one.focus();
  }
  function show() { graph = graphs[choice.selectedIndex]; chosen = null; tell(); zoom(0, graph.total); }
  function near(depth, middle) {
    var best, distance = Infinity;
    graph.boxes.forEach(function (rect) {
      var away = Math.max(rect[1] - middle, middle - rect[1] - rect[2], 0);
      if (rect[0] === depth && away < distance && rect[1] < to && rect[1] + rect[2] > from) { best = rect; distance = away; }
    });
    return best;
  }
  bar.className = "search";
  choice.setAttribute("aria-label", "Which flame graph");
  graphs.forEach(function (one) { choice.append(new Option(one.title)); });
  back.type = "button";
  back.textContent = "Show all";
  back.addEventListener("click", function () { zoom(0, graph.total); });
  told.setAttribute("aria-live", "polite");
  bar.append(choice, back, told);
  plot.className = "plot-flame";
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", "Flame graph: arrow keys move, Enter zooms, Escape shows all");
  choice.addEventListener("change", show);
  plot.addEventListener("click", function (event) {
    var rect = event.target.rect;
    if (rect) { zoom(rect[1], rect[1] + rect[2]); select(rect); }
  });
  plot.addEventListener("pointerover", function (event) { if (event.target.rect) tell(event.target.rect); });
  plot.addEventListener("keydown", function (event) {
    var moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }, move = moves[event.key], next;
    if (event.key === "Escape") zoom(0, graph.total);
    else if (event.key === "Enter" && chosen) zoom(chosen[1], chosen[1] + chosen[2]);
    else if (move) {
      if (!chosen) next = graph.boxes[0];
      else if (move[0]) next = near(chosen[0] + move[0], chosen[1] + chosen[2] / 2);
      else {
        graph.boxes.forEach(function (rect) {
          var ahead = (rect[1] - chosen[1]) * move[1];
          if (rect[0] === chosen[0] && ahead > 0 && (!next || ahead < (next[1] - chosen[1]) * move[1])) next = rect;
        });
      }
    } else return;
    event.preventDefault();
    select(next || chosen);
  });
  box.append(bar, plot);
  addEventListener("resize", draw);
  show();
});

document.querySelectorAll("table[data-search]").forEach(function (table) {
  var body = table.tBodies[0], rows = Array.from(body.rows), heads = Array.from(table.tHead.rows[0].cells);
  var bar = document.createElement("div"), input = document.createElement("input"), said = document.createElement("output");
  var kinds = Array.from(new Set(rows.map(function (row) { return row.dataset.kind || ""; }))).filter(Boolean), kind = "";
  var texts = rows.map(function (row) { return row.cells[0].textContent.toLowerCase(); });
  bar.className = "search";
  input.type = "search";
  input.placeholder = "Search " + table.dataset.search + " ( / )";
  input.setAttribute("aria-label", "Search " + table.dataset.search);
  said.setAttribute("aria-live", "polite");
  bar.append(input);
  function show() {
    var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
    rows.forEach(function (row, place) {
      var hit = (!kind || row.dataset.kind === kind) && words.every(function (word) { return texts[place].includes(word); });
      row.hidden = !hit;
      count += hit;
    });
    said.textContent = count === rows.length ? "" : count + " of " + rows.length;
  }
  if (kinds.length > 1) {
    var choice = document.createElement("select");
    choice.setAttribute("aria-label", "Which " + table.dataset.search);
    [""].concat(kinds).forEach(function (name) { choice.append(new Option(name || "all", name)); });
    choice.addEventListener("change", function () { kind = choice.value; show(); });
    bar.append(choice);
  }
  bar.append(said);
  table.closest(".scroll").before(bar);
  input.addEventListener("input", show);
  input.addEventListener("keydown", function (event) { if (event.key === "Escape") { input.value = ""; show(); } });
  function value(row, column) {
    var cell = row.cells[column], told = cell.dataset.value;
    return told === undefined ? cell.textContent.trim().toLowerCase() : Number(told);
  }
  heads.forEach(function (head, column) {
    if (!head.textContent.trim()) return;
    var button = document.createElement("button");
    button.type = "button";
    button.append.apply(button, head.childNodes);
    head.append(button);
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : column > 0;
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.map(function (row) { return [value(row, column), row]; }).sort(function (a, b) {
        return (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (down ? -1 : 1);
      }).forEach(function (pair) { body.append(pair[1]); });
    });
  });
});
addEventListener("keydown", function (event) {
  if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  var inputs = Array.from(document.querySelectorAll(".search input"));
  var next = inputs.find(function (one) { return one.getBoundingClientRect().bottom > 0; }) || inputs[0];
  if (next) { event.preventDefault(); next.focus(); }
});

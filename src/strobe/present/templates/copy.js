document.querySelectorAll(".command").forEach(function (box) {
  var button = box.querySelector("button"), code = box.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", function () {
    var range = document.createRange(), chosen = getSelection();
    range.selectNodeContents(code);
    chosen.removeAllRanges();
    chosen.addRange(range);
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
    setTimeout(function () { button.textContent = "Copy"; }, 1600);
  });
});

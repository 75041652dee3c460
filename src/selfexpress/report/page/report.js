"use strict";
const byId = (id) => document.getElementById(id);
const darkSystem = matchMedia("(prefers-color-scheme: dark)");

// Light or dark: as the system says until the reader chooses.
{
  const root = document.documentElement;
  const button = byId("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  darkSystem.addEventListener("change", show);
  show();
}

// The link of the first section in view is marked in the navigation.
{
  const links = [...document.querySelectorAll("nav a")];
  const seen = new Set();
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) seen.add(`#${target.id}`);
        else seen.delete(`#${target.id}`);
      }
      const current = links.find((link) => seen.has(link.hash));
      for (const link of links) link.removeAttribute("aria-current");
      current?.setAttribute("aria-current", "true");
    },
    { rootMargin: "-15% 0px -70% 0px" },
  );
  for (const link of links) watcher.observe(document.querySelector(link.hash));
}

// The scatter of the spectral embedding: points are drawn straight into the pixels of a
// canvas, so that tens of thousands move smoothly without a graphics library.
{
  const data = JSON.parse(byId("map-data").textContent);
  const stage = byId("map-stage");
  const canvas = byId("map-canvas");
  const overlay = byId("map-overlay");
  const tooltip = byId("map-tooltip");
  const context = canvas.getContext("2d", { alpha: false });
  const marks = overlay.getContext("2d");
  const SPAN = 65535;
  const MAX_ZOOM = 200;
  const PICK_PIXELS = 16;
  const PICTURE_ZOOM = 5;
  const MOST_PICTURES = 160;

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const wide = (text) => new Uint16Array(bytes(text).buffer);
  const long = (text) => new Uint32Array(bytes(text).buffer);
  const plane = wide(data.plane);
  const x = plane.filter((_, k) => k % 2 === 0);
  const y = plane.filter((_, k) => k % 2 === 1);
  const index = long(data.index);
  const label = wide(data.labels);
  const truth = data.truth ? wide(data.truth) : null;
  const margin = bytes(data.margins);
  const n = label.length;
  const placeOf = new Map();
  index.forEach((sample, i) => placeOf.set(sample, i));

  // Pictures of some samples, by the place of their point.
  const tileOf = new Map();
  const sheet = new Image();
  if (data.pictures) {
    long(data.pictures.index).forEach((sample, tile) => {
      if (placeOf.has(sample)) tileOf.set(placeOf.get(sample), tile);
    });
    sheet.onload = () => refresh();
    sheet.src = data.pictures.sheet;
  }
  function drawTile(target, i, left, top, factor) {
    const { width: w, height: h, columns } = data.pictures;
    const column = (tileOf.get(i) % columns) * w;
    const row = Math.floor(tileOf.get(i) / columns) * h;
    target.drawImage(sheet, column, row, w, h, left, top, w * factor, h * factor);
  }

  const view = { x: SPAN / 2, y: SPAN / 2, zoom: 1 };
  let width = 0;
  let height = 0;
  let ratio = 1;
  let pixels = null;
  let words = null;
  let chosen = -1;
  let hovered = -1;
  let isPending = false;
  let mode = "cluster";
  const selected = new Set();

  const scale = () => (Math.min(width, height) * 0.94 * view.zoom) / SPAN;
  const toScreen = (i) => [
    (x[i] - view.x) * scale() + width / 2,
    (y[i] - view.y) * scale() + height / 2,
  ];
  const toPlane = (sx, sy) => [
    view.x + (sx - width / 2) / scale(),
    view.y + (sy - height / 2) / scale(),
  ];

  // ---- colours -------------------------------------------------------------------
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const colours = {};
  for (const [name, hexes] of Object.entries(data.colours)) colours[name] = hexes.map(rgb);
  const isWrong = (i) => data.matched[label[i]] !== truth[i];
  const groupOf = {
    cluster: (i) => label[i],
    class: (i) => truth[i],
    agreement: (i) => (isWrong(i) ? 1 : 0),
    margin: (i) => (margin[i] * colours.margin.length) >> 8,
  };
  const isShown = (i) => selected.size === 0 || selected.has(groupOf[mode](i));
  // Pixels are words of alpha, blue, green, red.
  const word = (r, g, b) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

  // ---- drawing -------------------------------------------------------------------
  function resize() {
    ratio = Math.min(window.devicePixelRatio || 1, 2);
    width = Math.max(1, stage.clientWidth);
    height = Math.max(1, stage.clientHeight);
    for (const layer of [canvas, overlay]) {
      layer.width = Math.round(width * ratio);
      layer.height = Math.round(height * ratio);
    }
    pixels = context.createImageData(canvas.width, canvas.height);
    words = new Uint32Array(pixels.data.buffer);
    // At once: what was resized is empty.
    draw();
  }

  // Steps to the pixels of a dot, and how much of each it covers.
  function stamp(radius) {
    const reach = Math.ceil(radius);
    const steps = [];
    const weights = [];
    for (let v = -reach; v <= reach; v += 1) {
      for (let u = -reach; u <= reach; u += 1) {
        const cover = Math.min(1, radius + 0.5 - Math.hypot(u, v));
        if (cover <= 0.05) continue;
        steps.push(v * canvas.width + u);
        weights.push(Math.round(cover * 218));
      }
    }
    return { reach, steps, weights };
  }

  function blend(at, c, weight) {
    const old = words[at];
    const r = old & 255;
    const g = (old >> 8) & 255;
    const b = (old >> 16) & 255;
    const mix = (low, high) => low + (((high - low) * weight) >> 8);
    words[at] = word(mix(r, c[0]), mix(g, c[1]), mix(b, c[2]));
  }

  function drawPoints() {
    const ground = getComputedStyle(stage).backgroundColor.match(/\d+/g).map(Number);
    words.fill(word(...ground));
    const size = 1.5 * Math.sqrt(6000 / n) * view.zoom ** 0.6;
    const { reach, steps, weights } = stamp(Math.min(5, Math.max(0.8, size)) * ratio);
    const s = scale() * ratio;
    const { width: W, height: H } = canvas;
    const left = W / 2 - view.x * s;
    const top = H / 2 - view.y * s;
    let drawn = 0;
    // What is singled out lies on top of the rest.
    for (let pass = selected.size > 0 ? 0 : 1; pass < 2; pass += 1) {
      for (let i = 0; i < n; i += 1) {
        const px = (x[i] * s + left) | 0;
        const py = (y[i] * s + top) | 0;
        if (px < reach || py < reach || px >= W - reach || py >= H - reach) continue;
        if (isShown(i) !== (pass === 1)) continue;
        const colour = colours[mode][groupOf[mode](i)];
        const faint = pass === 0 ? 3 : 0;
        const at = py * W + px;
        for (let k = 0; k < steps.length; k += 1) blend(at + steps[k], colour, weights[k] >> faint);
        drawn += 1;
      }
    }
    context.putImageData(pixels, 0, 0);
    return drawn;
  }

  function drawPictures() {
    if (!data.pictures || !sheet.complete || view.zoom < PICTURE_ZOOM) return;
    const { width: w, height: h } = data.pictures;
    const side = 26 * ratio * Math.min(1.6, view.zoom / PICTURE_ZOOM);
    const factor = side / Math.max(w, h);
    const rim = 2 * ratio;
    context.imageSmoothingEnabled = false;
    let count = 0;
    for (const i of tileOf.keys()) {
      const [sx, sy] = toScreen(i).map((value) => value * ratio);
      const isInside = sx > -side && sy > -side && sx < canvas.width + side && sy < canvas.height + side;
      if (!isInside || !isShown(i)) continue;
      const left = Math.round(sx - (w * factor) / 2);
      const top = Math.round(sy - (h * factor) / 2);
      context.fillStyle = `rgb(${colours[mode][groupOf[mode](i)].join(" ")})`;
      context.fillRect(left - rim, top - rim, w * factor + 2 * rim, h * factor + 2 * rim);
      drawTile(context, i, left, top, factor);
      count += 1;
      if (count === MOST_PICTURES) break;
    }
  }

  function ring(i, radius, line) {
    const [sx, sy] = toScreen(i);
    marks.beginPath();
    marks.arc(sx * ratio, sy * ratio, radius * ratio, 0, 2 * Math.PI);
    marks.lineWidth = line * ratio;
    marks.strokeStyle = getComputedStyle(stage).color;
    marks.stroke();
  }

  function drawMarks() {
    marks.clearRect(0, 0, overlay.width, overlay.height);
    if (chosen >= 0) ring(chosen, 11, 3);
    if (hovered >= 0 && hovered !== chosen) ring(hovered, 8, 2);
    placeTooltip();
  }

  function draw() {
    isPending = false;
    const drawn = drawPoints();
    drawPictures();
    drawMarks();
    Object.assign(stage.dataset, {
      zoom: view.zoom.toFixed(3),
      centre: `${Math.round(view.x)} ${Math.round(view.y)}`,
      drawn,
      opened: stage.dataset.opened || performance.now().toFixed(0),
      ready: true,
    });
    // One finger scrolls the page until the reader has zoomed in, then it moves the map.
    stage.style.touchAction = view.zoom > 1.01 ? "none" : "pan-y";
    const times = view.zoom.toFixed(view.zoom < 10 ? 1 : 0);
    byId("map-status").textContent = `${drawn.toLocaleString("en")} points in view, zoom ${times}×`;
  }

  function refresh() {
    if (isPending || !words) return;
    isPending = true;
    requestAnimationFrame(draw);
  }

  // ---- moving --------------------------------------------------------------------
  function move(to) {
    Object.assign(view, to);
    const half = SPAN / 2 / view.zoom;
    for (const axis of ["x", "y"]) {
      view[axis] = Math.min(SPAN - half * 0.5, Math.max(half * 0.5, view[axis]));
      if (view.zoom === 1) view[axis] = SPAN / 2;
    }
    refresh();
  }

  function zoomAt(factor, sx = width / 2, sy = height / 2) {
    const [fixedX, fixedY] = toPlane(sx, sy);
    view.zoom = Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor));
    const [movedX, movedY] = toPlane(sx, sy);
    move({ x: view.x + fixedX - movedX, y: view.y + fixedY - movedY });
  }

  const pan = (dx, dy) => move({ x: view.x - dx / scale(), y: view.y - dy / scale() });

  function reset() {
    chosen = -1;
    hovered = -1;
    move({ zoom: 1 });
  }

  // ---- picking -------------------------------------------------------------------
  function nearest(sx, sy, reach = PICK_PIXELS) {
    const [wantX, wantY] = toPlane(sx, sy);
    let best = -1;
    let least = (reach / scale()) ** 2;
    for (let i = 0; i < n; i += 1) {
      const distance = (x[i] - wantX) ** 2 + (y[i] - wantY) ** 2;
      if (distance < least && isShown(i)) {
        least = distance;
        best = i;
      }
    }
    return best;
  }

  function lines(i) {
    const text = [`Sample ${index[i].toLocaleString("en")}`, `cluster ${label[i]}`];
    if (truth) {
      const verdict = isWrong(i) ? "not the cluster's class" : "the cluster's class";
      text.push(`class ${data.class_names[truth[i]]}, ${verdict}`);
    }
    const share = margin[i] / 255;
    const kind = share < 0.2 ? "doubtful" : share < 0.6 ? "fair" : "clear";
    text.push(`margin ${share.toFixed(2)}, ${kind}`);
    return text;
  }

  function fillTooltip(i) {
    tooltip.replaceChildren();
    if (tileOf.has(i) && sheet.complete) {
      const picture = document.createElement("canvas");
      picture.width = data.pictures.width;
      picture.height = data.pictures.height;
      drawTile(picture.getContext("2d"), i, 0, 0, 1);
      tooltip.append(picture);
    }
    const list = document.createElement("div");
    lines(i).forEach((text, at) => {
      const line = document.createElement(at ? "div" : "strong");
      line.textContent = text;
      list.append(line);
    });
    tooltip.append(list);
  }

  function placeTooltip() {
    const i = hovered >= 0 ? hovered : chosen;
    const [sx, sy] = i >= 0 ? toScreen(i) : [-1, -1];
    tooltip.hidden = sx < 0 || sy < 0 || sx > width || sy > height;
    if (tooltip.hidden) return;
    if (tooltip.dataset.point !== String(i)) {
      tooltip.dataset.point = i;
      fillTooltip(i);
    }
    const box = tooltip.getBoundingClientRect();
    const left = sx + 16 + box.width > width ? sx - 16 - box.width : sx + 16;
    const top = Math.min(height - box.height - 4, Math.max(4, sy - box.height / 2));
    tooltip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  function hover(i) {
    if (i === hovered) return;
    hovered = i;
    drawMarks();
  }

  function choose(i, otherwise = "No point here") {
    chosen = i;
    hovered = -1;
    drawMarks();
    byId("map-spoken").textContent = i >= 0 ? lines(i).join(", ") : otherwise;
  }

  // ---- pointer, wheel, keys --------------------------------------------------------
  const fingers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = stage.getBoundingClientRect();
    return [
      event.clientX - box.left - stage.clientLeft,
      event.clientY - box.top - stage.clientTop,
    ];
  };
  // The middle of all fingers, and how far two of them are apart.
  const grip = () => {
    const [a, b = a] = [...fingers.values()];
    return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2, Math.hypot(a[0] - b[0], a[1] - b[1])];
  };
  stage.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    moved = 0;
    if (event.pointerType !== "touch" || view.zoom > 1.01 || fingers.size > 1) {
      stage.setPointerCapture(event.pointerId);
    }
  });
  stage.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) {
      hover(nearest(...at(event)));
      return;
    }
    const [oldX, oldY, oldApart] = grip();
    fingers.set(event.pointerId, at(event));
    const [newX, newY, apart] = grip();
    // The first pixels tell a press from a drag; two fingers are never a press.
    moved += fingers.size > 1 ? 10 : Math.hypot(newX - oldX, newY - oldY);
    if (moved > 3) pan(newX - oldX, newY - oldY);
    if (oldApart > 0) zoomAt(apart / oldApart, newX, newY);
  });
  const release = (event) => {
    const isTap = event.type === "pointerup" && moved <= 6 && fingers.size === 1;
    fingers.delete(event.pointerId);
    if (isTap) choose(nearest(...at(event), PICK_PIXELS * 1.5));
  };
  stage.addEventListener("pointerup", release);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener("pointerleave", () => hover(-1));
  stage.addEventListener("dblclick", (event) => zoomAt(2, ...at(event)));
  stage.addEventListener(
    "wheel",
    (event) => {
      // Fully zoomed out, a wheel that turns further down scrolls the page.
      if (view.zoom <= 1 && event.deltaY > 0) return;
      event.preventDefault();
      const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      zoomAt(Math.exp(-Math.max(-240, Math.min(240, step)) * 0.0022), ...at(event));
    },
    { passive: false },
  );

  const actions = { "zoom-in": () => zoomAt(1.6), "zoom-out": () => zoomAt(1 / 1.6), reset };
  const keys = {
    "+": actions["zoom-in"],
    "=": actions["zoom-in"],
    "-": actions["zoom-out"],
    0: reset,
    ArrowLeft: () => pan(60, 0),
    ArrowRight: () => pan(-60, 0),
    ArrowUp: () => pan(0, 60),
    ArrowDown: () => pan(0, -60),
    Enter: () => choose(nearest(width / 2, height / 2, Infinity)),
    Escape: () => choose(-1, ""),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of document.querySelectorAll("[data-map-action]")) {
    button.addEventListener("click", actions[button.dataset.mapAction]);
  }

  // ---- colours and groups chosen by the reader ---------------------------------------
  const groups = document.querySelectorAll("[data-group]");
  function showMode() {
    mode = byId("map-colour").value;
    selected.clear();
    for (const button of groups) button.setAttribute("aria-pressed", "false");
    for (const legend of document.querySelectorAll("[data-legend]")) {
      legend.hidden = legend.dataset.legend !== mode;
    }
    refresh();
  }
  byId("map-colour").addEventListener("change", showMode);
  for (const button of groups) {
    button.addEventListener("click", () => {
      const group = Number(button.dataset.group);
      if (!selected.delete(group)) selected.add(group);
      button.setAttribute("aria-pressed", String(selected.has(group)));
      hovered = -1;
      refresh();
    });
  }

  // ---- members of the gallery show where they lie ------------------------------------
  for (const button of document.querySelectorAll("[data-sample]")) {
    const place = placeOf.get(Number(button.dataset.sample));
    button.addEventListener("click", () => {
      move({ x: x[place], y: y[place], zoom: Math.max(view.zoom, 4) });
      choose(place);
      const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      stage.scrollIntoView({ block: "center", behavior: isCalm ? "auto" : "smooth" });
      stage.focus({ preventScroll: true });
    });
  }

  document.addEventListener("themechange", refresh);
  darkSystem.addEventListener("change", refresh);
  new ResizeObserver(resize).observe(stage);
  showMode();
  resize();
}

"use strict";
// Light or dark: as the system says until the reader chooses.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function show() {
    button.setAttribute("aria-pressed", String(isDark()));
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  system.addEventListener("change", show);
  show();
})();

// The link of the section in view is marked in the navigation.
(() => {
  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) {
    links.set(link.getAttribute("href").slice(1), link);
  }
  const seen = new Set();
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) seen.add(entry.target.id);
        else seen.delete(entry.target.id);
      }
      let isFirst = true;
      for (const [name, link] of links) {
        const isCurrent = seen.has(name) && isFirst;
        if (isCurrent) isFirst = false;
        if (isCurrent) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-15% 0px -70% 0px" },
  );
  for (const name of links.keys()) watcher.observe(document.getElementById(name));
})();

// The scatter of the spectral embedding: points are drawn straight into the pixels of a
// canvas, so that tens of thousands move smoothly without a graphics library.
(() => {
  const stage = document.getElementById("map-stage");
  if (!stage) return;
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const canvas = document.getElementById("map-canvas");
  const overlay = document.getElementById("map-overlay");
  const tooltip = document.getElementById("map-tooltip");
  const status = document.getElementById("map-status");
  const spoken = document.getElementById("map-spoken");
  const context = canvas.getContext("2d", { alpha: false });
  const marks = overlay.getContext("2d");
  const SPAN = 65535;
  const MAX_ZOOM = 200;
  const PICK_PIXELS = 16;
  const PICTURE_ZOOM = 5;
  const MOST_PICTURES = 160;

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const wide = (text) => new Uint16Array(bytes(text).buffer);
  const plane = wide(data.plane);
  const index = new Uint32Array(bytes(data.index).buffer);
  const label = wide(data.labels);
  const truth = data.truth ? wide(data.truth) : null;
  const margin = bytes(data.margins);
  const n = label.length;
  const x = new Uint16Array(n);
  const y = new Uint16Array(n);
  for (let i = 0; i < n; i += 1) {
    x[i] = plane[2 * i];
    y[i] = plane[2 * i + 1];
  }
  const placeOf = new Map();
  for (let i = 0; i < n; i += 1) placeOf.set(index[i], i);

  // Pictures of some samples, by the place of their point.
  const tileOf = new Map();
  let sheet = null;
  if (data.pictures) {
    const tiles = new Uint32Array(bytes(data.pictures.index).buffer);
    tiles.forEach((sample, tile) => {
      if (placeOf.has(sample)) tileOf.set(placeOf.get(sample), tile);
    });
    sheet = new Image();
    sheet.onload = () => refresh();
    sheet.src = data.pictures.sheet;
  }

  // A grid of cells finds the point under a pointer without visiting all of them.
  const CELLS = 128;
  const cellOf = (i) => ((y[i] * CELLS) >> 16) * CELLS + ((x[i] * CELLS) >> 16);
  const starts = new Uint32Array(CELLS * CELLS + 1);
  for (let i = 0; i < n; i += 1) starts[cellOf(i) + 1] += 1;
  for (let c = 0; c < CELLS * CELLS; c += 1) starts[c + 1] += starts[c];
  const members = new Uint32Array(n);
  const filled = starts.slice(0, -1);
  for (let i = 0; i < n; i += 1) members[filled[cellOf(i)]++] = i;

  const view = { x: SPAN / 2, y: SPAN / 2, zoom: 1 };
  let width = 0;
  let height = 0;
  let ratio = 1;
  let pixels = null;
  let words = null;
  let chosen = -1;
  let hovered = -1;
  let isPending = false;
  const selected = new Set();
  let mode = "cluster";

  const scale = () => (Math.min(width, height) * 0.94 * view.zoom) / SPAN;
  const toScreen = (i) => [
    (x[i] - view.x) * scale() + width / 2,
    (y[i] - view.y) * scale() + height / 2,
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
  const background = () => {
    const text = getComputedStyle(stage).backgroundColor;
    return text.match(/\d+/g).slice(0, 3).map(Number);
  };
  // Pixels are words of alpha, blue, green, red.
  const word = (c) => ((255 << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;

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
    refresh();
  }

  function stamp(radius) {
    const reach = Math.ceil(radius);
    const cells = [];
    for (let v = -reach; v <= reach; v += 1) {
      for (let u = -reach; u <= reach; u += 1) {
        const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(u, v)));
        if (cover > 0.05) cells.push([v * canvas.width + u, Math.round(cover * 218)]);
      }
    }
    return {
      reach,
      steps: Int32Array.from(cells, ([step]) => step),
      weights: Int32Array.from(cells, ([, weight]) => weight),
      faint: Int32Array.from(cells, ([, weight]) => weight >> 3),
    };
  }

  function blend(at, c, weight) {
    const old = words[at];
    const r = old & 255;
    const g = (old >> 8) & 255;
    const b = (old >> 16) & 255;
    words[at] =
      (0xff000000 |
        ((b + (((c[2] - b) * weight) >> 8)) << 16) |
        ((g + (((c[1] - g) * weight) >> 8)) << 8) |
        (r + (((c[0] - r) * weight) >> 8))) >>>
      0;
  }

  function drawPoints() {
    const ground = background();
    words.fill(word(ground));
    const group = groupOf[mode];
    const palette = colours[mode];
    const size = Math.min(5, Math.max(0.8, 1.5 * Math.sqrt(6000 / n) * view.zoom ** 0.6));
    const dot = stamp(Math.max(0.7, Math.min(size, 5) * ratio));
    const s = scale() * ratio;
    const left = canvas.width / 2 - view.x * s;
    const top = canvas.height / 2 - view.y * s;
    const W = canvas.width;
    const H = canvas.height;
    let drawn = 0;
    const { steps, reach } = dot;
    // What is singled out lies on top of the rest.
    for (let pass = selected.size > 0 ? 0 : 1; pass < 2; pass += 1) {
      for (let i = 0; i < n; i += 1) {
        const isFaint = selected.size > 0 && !selected.has(group(i));
        if (isFaint !== (pass === 0)) continue;
        const px = (x[i] * s + left) | 0;
        const py = (y[i] * s + top) | 0;
        if (px < reach || py < reach || px >= W - reach || py >= H - reach) continue;
        const c = palette[group(i)];
        drawn += 1;
        const weights = isFaint ? dot.faint : dot.weights;
        const at = py * W + px;
        for (let k = 0; k < steps.length; k += 1) blend(at + steps[k], c, weights[k]);
      }
    }
    context.putImageData(pixels, 0, 0);
    return drawn;
  }

  function drawPictures() {
    if (!sheet || !sheet.complete || view.zoom < PICTURE_ZOOM) return;
    const { width: w, height: h, columns } = data.pictures;
    const side = 26 * ratio * Math.min(1.6, view.zoom / PICTURE_ZOOM);
    const factor = side / Math.max(w, h);
    context.imageSmoothingEnabled = false;
    let count = 0;
    for (const [i, tile] of tileOf) {
      if (count >= MOST_PICTURES) break;
      if (selected.size > 0 && !selected.has(groupOf[mode](i))) continue;
      const [sx, sy] = toScreen(i).map((value) => value * ratio);
      if (sx < -side || sy < -side) continue;
      if (sx > canvas.width + side || sy > canvas.height + side) continue;
      count += 1;
      const left = Math.round(sx - (w * factor) / 2);
      const top = Math.round(sy - (h * factor) / 2);
      const c = colours[mode][groupOf[mode](i)];
      context.fillStyle = `rgb(${c[0]} ${c[1]} ${c[2]})`;
      const rim = 2 * ratio;
      context.fillRect(left - rim, top - rim, w * factor + 2 * rim, h * factor + 2 * rim);
      const column = (tile % columns) * w;
      const row = Math.floor(tile / columns) * h;
      context.drawImage(sheet, column, row, w, h, left, top, w * factor, h * factor);
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
  }

  function draw() {
    isPending = false;
    const drawn = drawPoints();
    drawPictures();
    drawMarks();
    stage.dataset.zoom = view.zoom.toFixed(3);
    stage.dataset.centre = `${Math.round(view.x)} ${Math.round(view.y)}`;
    stage.dataset.drawn = String(drawn);
    if (!stage.dataset.ready) {
      stage.dataset.opened = performance.now().toFixed(0);
      stage.dataset.ready = "true";
    }
    // One finger scrolls the page until the reader has zoomed in, then it moves the map.
    stage.style.touchAction = view.zoom > 1.01 ? "none" : "pan-y";
    const times = view.zoom < 10 ? view.zoom.toFixed(1) : view.zoom.toFixed(0);
    status.textContent = `${drawn.toLocaleString("en")} points in view, zoom ${times}×`;
    placeTooltip();
  }

  function refresh() {
    if (isPending || !words) return;
    isPending = true;
    requestAnimationFrame(draw);
  }

  // ---- moving --------------------------------------------------------------------
  function limit() {
    view.zoom = Math.min(MAX_ZOOM, Math.max(1, view.zoom));
    const half = SPAN / 2 / view.zoom;
    for (const axis of ["x", "y"]) {
      view[axis] = Math.min(SPAN - half * 0.5, Math.max(half * 0.5, view[axis]));
      if (view.zoom === 1) view[axis] = SPAN / 2;
    }
  }

  function zoomAt(factor, sx = width / 2, sy = height / 2) {
    const before = scale();
    const fixedX = view.x + (sx - width / 2) / before;
    const fixedY = view.y + (sy - height / 2) / before;
    view.zoom = Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor));
    view.x = fixedX - (sx - width / 2) / scale();
    view.y = fixedY - (sy - height / 2) / scale();
    limit();
    refresh();
  }

  function pan(dx, dy) {
    view.x -= dx / scale();
    view.y -= dy / scale();
    limit();
    refresh();
  }

  function reset() {
    Object.assign(view, { x: SPAN / 2, y: SPAN / 2, zoom: 1 });
    chosen = -1;
    hovered = -1;
    refresh();
  }

  // ---- picking -------------------------------------------------------------------
  function nearest(sx, sy, reach) {
    const s = scale();
    const wantX = view.x + (sx - width / 2) / s;
    const wantY = view.y + (sy - height / 2) / s;
    const far = reach / s;
    const cell = (value) =>
      Math.min(CELLS - 1, Math.max(0, Math.floor((value * CELLS) / 65536)));
    let best = -1;
    let bestDistance = far * far;
    for (let cy = cell(wantY - far); cy <= cell(wantY + far); cy += 1) {
      for (let cx = cell(wantX - far); cx <= cell(wantX + far); cx += 1) {
        const c = cy * CELLS + cx;
        for (let at = starts[c]; at < starts[c + 1]; at += 1) {
          const i = members[at];
          if (selected.size > 0 && !selected.has(groupOf[mode](i))) continue;
          const distance = (x[i] - wantX) ** 2 + (y[i] - wantY) ** 2;
          if (distance < bestDistance) {
            bestDistance = distance;
            best = i;
          }
        }
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
    const word = share < 0.2 ? "doubtful" : share < 0.6 ? "fair" : "clear";
    text.push(`margin ${share.toFixed(2)}, ${word}`);
    return text;
  }

  function fillTooltip(i) {
    tooltip.replaceChildren();
    if (tileOf.has(i) && sheet.complete) {
      const { width: w, height: h, columns } = data.pictures;
      const picture = document.createElement("canvas");
      picture.width = w;
      picture.height = h;
      const tile = tileOf.get(i);
      const column = (tile % columns) * w;
      const row = Math.floor(tile / columns) * h;
      picture.getContext("2d").drawImage(sheet, column, row, w, h, 0, 0, w, h);
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
    if (tooltip.dataset.point !== String(index[i])) {
      tooltip.dataset.point = String(index[i]);
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
    placeTooltip();
  }

  function choose(i, speak) {
    chosen = i;
    hovered = -1;
    drawMarks();
    placeTooltip();
    if (speak) spoken.textContent = i >= 0 ? lines(i).join(", ") : "No point here";
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
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return {
      distance: Math.hypot(a[0] - b[0], a[1] - b[1]),
      middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2],
    };
  };
  stage.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    moved = 0;
    if (event.pointerType !== "touch" || view.zoom > 1.01 || fingers.size > 1) {
      stage.setPointerCapture(event.pointerId);
    }
  });
  stage.addEventListener("pointermove", (event) => {
    const here = at(event);
    if (!fingers.has(event.pointerId)) {
      hover(nearest(here[0], here[1], PICK_PIXELS));
      return;
    }
    const before = fingers.get(event.pointerId);
    const old = fingers.size === 2 ? spread() : null;
    fingers.set(event.pointerId, here);
    if (old) {
      const now = spread();
      moved += 10;
      pan(now.middle[0] - old.middle[0], now.middle[1] - old.middle[1]);
      if (old.distance > 0) zoomAt(now.distance / old.distance, ...now.middle);
      return;
    }
    moved += Math.hypot(here[0] - before[0], here[1] - before[1]);
    if (moved > 3) pan(here[0] - before[0], here[1] - before[1]);
  });
  const release = (event) => {
    const isTap = event.type === "pointerup" && moved <= 6 && fingers.size === 1;
    fingers.delete(event.pointerId);
    if (isTap) choose(nearest(...at(event), PICK_PIXELS * 1.5), true);
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

  const actions = {
    "zoom-in": () => zoomAt(1.6),
    "zoom-out": () => zoomAt(1 / 1.6),
    reset,
  };
  const keys = {
    "+": actions["zoom-in"],
    "=": actions["zoom-in"],
    "-": actions["zoom-out"],
    0: reset,
    ArrowLeft: () => pan(60, 0),
    ArrowRight: () => pan(-60, 0),
    ArrowUp: () => pan(0, 60),
    ArrowDown: () => pan(0, -60),
    Enter: () => choose(nearest(width / 2, height / 2, Math.hypot(width, height)), true),
    Escape: () => choose(-1, false),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of document.querySelectorAll("[data-map-action]")) {
    button.addEventListener("click", () => actions[button.dataset.mapAction]());
  }

  // ---- colours and groups chosen by the reader ---------------------------------------
  const legends = document.querySelectorAll("[data-legend]");
  function showLegend() {
    for (const legend of legends) legend.hidden = legend.dataset.legend !== mode;
  }
  document.getElementById("map-colour")?.addEventListener("change", (event) => {
    mode = event.target.value;
    selected.clear();
    for (const button of document.querySelectorAll("[data-group]")) {
      button.setAttribute("aria-pressed", "false");
    }
    showLegend();
    refresh();
  });
  for (const button of document.querySelectorAll("[data-group]")) {
    button.addEventListener("click", () => {
      const group = Number(button.dataset.group);
      if (selected.has(group)) selected.delete(group);
      else selected.add(group);
      button.setAttribute("aria-pressed", String(selected.has(group)));
      hovered = -1;
      refresh();
    });
  }

  // ---- members of the gallery show where they lie ------------------------------------
  for (const button of document.querySelectorAll("[data-sample]")) {
    const place = placeOf.get(Number(button.dataset.sample));
    if (place === undefined) continue;
    button.addEventListener("click", () => {
      view.zoom = Math.max(view.zoom, 4);
      view.x = x[place];
      view.y = y[place];
      limit();
      choose(place, true);
      refresh();
      const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      stage.scrollIntoView({ block: "center", behavior: isCalm ? "auto" : "smooth" });
      stage.focus({ preventScroll: true });
    });
  }

  document.addEventListener("themechange", refresh);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  new ResizeObserver(resize).observe(stage);
  showLegend();
  resize();
})();

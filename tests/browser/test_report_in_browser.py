"""Reports as people meet them: opened, read, moved about, on a desktop and a phone."""

from __future__ import annotations

import numpy as np
import pytest

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}
SCREENS = pytest.mark.parametrize(
    "screen", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True
)
SECTIONS = [
    "At a glance", "What to know", "Map of the samples", "Typical and doubtful members",
    "Cluster sizes", "Clusters and true classes", "Coefficients", "Affinity graph",
    "Training", "Time", "Settings",
]  # fmt: skip
STAGE = "#map-stage"


@pytest.fixture
def screen(request):
    return getattr(request, "param", DESKTOP)


@pytest.fixture
def open_page(browser, screen):
    """Open a file; at the end nothing may have been fetched or complained about."""
    contexts, requested, said, opened = [], [], [], set()

    def open_file(path, **options):
        # Without motion a page that was scrolled is at rest.
        context = browser.new_context(**screen, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        opened.add(path.as_uri())
        page.goto(path.as_uri())
        page.wait_for_selector(f"{STAGE}[data-ready=true]", state="attached")
        return page

    yield open_file
    for context in contexts:
        context.close()
    outside = {url for url in requested if not url.startswith("data:")}
    assert outside == opened
    assert said == []


def stage_data(page, name):
    return page.eval_on_selector(STAGE, f"stage => stage.dataset.{name}")


def settle(page):
    """Wait until the next frames are drawn, however busy the machine is."""
    page.evaluate(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def wait_until(page, holds):
    """Wait for a condition; the report's own policy forbids ``wait_for_function``."""
    for _ in range(100):
        if holds():
            return
        page.wait_for_timeout(50)
    assert holds()


def zoom_of(page):
    settle(page)
    return float(stage_data(page, "zoom"))


def inner_box(page):
    """Return place and size of the stage inside its border."""
    return page.eval_on_selector(
        STAGE,
        """stage => ({
          x: stage.getBoundingClientRect().left + stage.clientLeft,
          y: stage.getBoundingClientRect().top + stage.clientTop,
          width: stage.clientWidth, height: stage.clientHeight,
        })""",
    )


def screen_places(page, run):
    """Where the points are on the stage, from its size and its view alone."""
    box = inner_box(page)
    centre = np.array(stage_data(page, "centre").split(), dtype=float)
    scale = min(box["width"], box["height"]) * 0.94 * zoom_of(page) / 65535
    middle = np.array([box["width"], box["height"]]) / 2
    return (run.points.plane - centre) * scale + middle, box


def aim(page, run):
    """Return the point farthest from all others, its place and the stage's corner."""
    page.locator(STAGE).scroll_into_view_if_needed()
    places, box = screen_places(page, run)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    point = int(distance.min(axis=1).argmax())
    return point, places[point], np.array([box["x"], box["y"]])


@SCREENS
def test_every_section_shows(open_page, report):
    page = open_page(report)
    headings = page.locator("main h2")
    assert headings.all_inner_texts() == SECTIONS
    for place in range(headings.count()):
        assert headings.nth(place).is_visible()
    assert page.locator("h1").inner_text() == "400 handwritten digits"
    assert "<angle brackets> & more." in page.locator("#notes").inner_text()
    loaded = page.eval_on_selector_all(
        "main img",
        "images => images.map(image => image.complete && image.naturalWidth)",
    )
    assert len(loaded) > 50
    assert all(loaded)


@SCREENS
def test_all_points_are_drawn_quickly_and_none_outside(open_page, report, run, screen):
    page = open_page(report)
    assert float(stage_data(page, "opened")) < 2000
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= screen["viewport"]["width"]
    assert stage_data(page, "drawn") == str(len(run.labels))
    n_colours = page.eval_on_selector(
        "#map-canvas",
        """canvas => {
          const { data } = canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }""",
    )
    assert n_colours > 10


def test_hovering_names_the_point(open_page, report, run):
    page = open_page(report)
    point, place, corner = aim(page, run)
    page.mouse.move(*(corner + place))
    tooltip = page.locator("#map-tooltip")
    tooltip.wait_for(state="visible")
    text = tooltip.inner_text()
    assert f"Sample {run.points.index[point]}" in text
    assert f"cluster {run.labels[point]}" in text
    assert f"class {run.class_names[run.truth[point]]}" in text
    assert f"margin {max(0, run.points.margins[point]):.2f}" in text
    page.mouse.move(*(corner + 3))
    tooltip.wait_for(state="hidden")


def test_the_wheel_zooms_about_the_pointer(open_page, report, run):
    page = open_page(report)
    point, place, corner = aim(page, run)
    pointer = np.round(place + corner) - corner
    page.mouse.move(*(pointer + corner))
    for _ in range(4):
        page.mouse.wheel(0, -200)
    # Four turns of 200 steps of 0.22 % each.
    wait_until(page, lambda: zoom_of(page) == pytest.approx(np.exp(1.76), rel=1e-3))
    zoom = zoom_of(page)
    moved, _ = screen_places(page, run)
    # The pointer stays where it is on the map; distances from it grow.
    expected = pointer + zoom * (place - pointer)
    np.testing.assert_allclose(moved[point], expected, atol=0.5)
    assert f"Sample {run.points.index[point]}" in page.inner_text("#map-tooltip")
    assert int(stage_data(page, "drawn")) < len(run.labels)


def test_fully_zoomed_out_the_wheel_scrolls_the_page(open_page, report):
    page = open_page(report)
    page.locator(STAGE).scroll_into_view_if_needed()
    box = inner_box(page)
    before = page.evaluate("scrollY")
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.wheel(0, 300)
    wait_until(page, lambda: page.evaluate("scrollY") > before)
    assert zoom_of(page) == 1


def test_dragging_moves_the_map(open_page, report, run):
    page = open_page(report)
    page.locator(STAGE).scroll_into_view_if_needed()
    page.click("[data-map-action=zoom-in]")
    page.click("[data-map-action=zoom-in]")
    before, box = screen_places(page, run)
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1] - 40, steps=5)
    page.mouse.up()
    after, _ = screen_places(page, run)
    shift = (after - before).mean(axis=0)
    # The first three pixels tell a press from a drag.
    np.testing.assert_allclose(shift, [80, -40], atol=20)


def test_the_map_obeys_buttons_and_keys(open_page, report, run):
    page = open_page(report)
    page.click("[data-map-action=zoom-in]")
    assert zoom_of(page) == pytest.approx(1.6)
    page.click("[data-map-action=reset]")
    assert zoom_of(page) == 1
    page.focus(STAGE)
    for key in ("+", "+", "ArrowLeft"):
        page.keyboard.press(key)
    assert zoom_of(page) == pytest.approx(2.56)
    x, y = map(float, stage_data(page, "centre").split())
    assert x < 32767
    assert y == pytest.approx(32767.5, abs=1)
    page.keyboard.press("Enter")
    spoken = page.locator("#map-spoken").inner_text()
    places, box = screen_places(page, run)
    middle = [box["width"] / 2, box["height"] / 2]
    nearest = int(np.linalg.norm(places - middle, axis=1).argmin())
    assert spoken.startswith(f"Sample {run.points.index[nearest]}, cluster")
    page.keyboard.press("0")
    assert zoom_of(page) == 1


@pytest.mark.parametrize("screen", [PHONE], ids=["phone"], indirect=True)
def test_two_fingers_zoom_on_a_phone(open_page, report):
    page = open_page(report)
    page.locator(STAGE).scroll_into_view_if_needed()
    box = inner_box(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touches = page.context.new_cdp_session(page)

    def touch(kind, reach):
        points = [{"x": x - reach, "y": y, "id": 1}, {"x": x + reach, "y": y, "id": 2}]
        touches.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [] if kind == "touchEnd" else points},
        )

    touch("touchStart", 20)
    for reach in range(24, 64, 4):
        touch("touchMove", reach)
    touch("touchEnd", 0)
    assert zoom_of(page) == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("screen", [PHONE], ids=["phone"], indirect=True)
def test_a_tap_names_the_point_on_a_phone(open_page, report, run):
    page = open_page(report)
    point, place, corner = aim(page, run)
    page.touchscreen.tap(*(corner + place))
    tooltip = page.locator("#map-tooltip")
    tooltip.wait_for(state="visible")
    assert f"Sample {run.points.index[point]}" in tooltip.inner_text()


@SCREENS
def test_colours_and_groups_can_be_chosen(open_page, report, run):
    page = open_page(report)
    legend = page.locator("[data-legend]:visible")
    assert legend.get_attribute("data-legend") == "cluster"
    first = legend.locator("button").first
    before = page.eval_on_selector("#map-canvas", "canvas => canvas.toDataURL()")
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    settle(page)
    after = page.eval_on_selector("#map-canvas", "canvas => canvas.toDataURL()")
    assert before != after
    for mode in ("class", "agreement", "margin"):
        page.select_option("#map-colour", mode)
        assert legend.get_attribute("data-legend") == mode
        counts = legend.locator(".count").all_inner_texts()
        assert sum(int(count.replace(",", "")) for count in counts) == len(run.labels)
    page.select_option("#map-colour", "agreement")
    agrees = legend.locator(".count").first.inner_text()
    assert int(agrees) == round(run.scores["accuracy"] * len(run.labels))


@SCREENS
def test_a_member_of_the_gallery_is_found_on_the_map(open_page, report):
    page = open_page(report)
    member = page.locator("#gallery .member").nth(3)
    sample = member.get_attribute("data-sample")
    member.click()
    tooltip = page.locator("#map-tooltip")
    tooltip.wait_for(state="visible")
    assert f"Sample {int(sample):,}" in tooltip.inner_text()
    assert zoom_of(page) >= 4
    assert page.evaluate("document.activeElement.id") == "map-stage"


@SCREENS
def test_light_and_dark_follow_the_system_until_chosen(open_page, report):
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = open_page(report, color_scheme="dark")
    night = dark.evaluate(colour)
    light = open_page(report, color_scheme="light")
    day = light.evaluate(colour)
    assert night != day
    light.click("#theme")
    assert light.get_attribute("#theme", "aria-pressed") == "true"
    assert light.evaluate(colour) == night


def test_the_first_stop_of_the_keyboard_skips_to_the_report(open_page, report):
    page = open_page(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"


@SCREENS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_accessibility_check_finds_nothing_serious(open_page, report, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(report, color_scheme=scheme)
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    found = axe.Axe().run(page).response["violations"]
    serious = {
        violation["id"]: [node["html"][:200] for node in violation["nodes"]][:3]
        for violation in found
        if violation["impact"] in ("serious", "critical")
    }
    assert serious == {}


@SCREENS
def test_rows_without_truth_are_shown_too(open_page, plain_report):
    page = open_page(plain_report)
    assert page.locator("#confusion").count() == 0
    assert page.locator("#gallery svg.sparkline").count() >= 30
    assert "The true classes are not known" in page.locator("#overview").inner_text()


@pytest.mark.slow
@SCREENS
def test_seventy_thousand_points_are_small_and_quick(open_page, large_report):
    path, seconds = large_report
    assert seconds < 30
    assert path.stat().st_size < 8e6
    page = open_page(path)
    assert stage_data(page, "drawn") == "70000"
    assert float(stage_data(page, "opened")) < 2000

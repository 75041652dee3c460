"""Sections of a report about the samples: map, sizes, gallery, confusion."""

from __future__ import annotations

import numpy as np

from selfexpress.report.charts import sparkline
from selfexpress.report.markup import Child, Markup, element, join, json_script, number
from selfexpress.report.palette import blend, group_colours
from selfexpress.report.png import base64_text, png_address, sprite_sheet
from selfexpress.report.record import Integers, Run
from selfexpress.report.sections import details, scrolling, section, share_bar, table

_N_CLEAR_STEPS = 8
_SHEET_COLUMNS = 40
_MOST_CLUSTERS_SHOWN = 60
_MOST_IN_CONFUSION = 40
_SHORT_NAME = 5


def scatter(run: Run) -> Markup:
    """Return the map of the spectral embedding with its controls."""
    shown, total = len(run.points.index), len(run.labels)
    which = "all" if shown == total else f"{number(shown)} of"
    intro = (
        f"Each point is a sample, {which} {number(total)}, placed by its spectral "
        "embedding. Who is next to whom means much; sizes of groups and distances "
        "between them mean little."
    )
    return section(
        "map",
        "Map of the samples",
        element("p", intro, class_="hint"),
        element("div", _stage(run, intro),
                element("div", _controls(run), class_="side"), class_="map"),
        json_script("map-data", map_data(run)),
    )  # fmt: skip


def _stage(run: Run, intro: str) -> Markup:
    tools = [
        ("zoom-in", "Zoom in", "+"),
        ("zoom-out", "Zoom out", "−"),
        ("reset", "Show everything", "⤢"),
    ]
    buttons = [
        element("button", sign, type="button", data_map_action=action,
                aria_label=name, title=name)
        for action, name, sign in tools
    ]  # fmt: skip
    keys = (
        "Arrow keys move, plus and minus zoom, 0 shows everything, Enter reads the "
        "point in the middle."
    )
    return element(
        "div",
        element(
            "div",
            element("canvas", id="map-canvas", aria_hidden="true"),
            element("canvas", id="map-overlay", aria_hidden="true"),
            element("div", id="map-tooltip", hidden=True),
            id="map-stage", tabindex=0, role="application", aria_describedby="map-keys",
            aria_label=f"Scatter plot of {number(len(run.points.index))} samples in "
            f"{run.n_clusters} clusters. {intro}",
        ),
        element("noscript", element("p", "The map needs scripts; all else does not.")),
        element("div", *buttons, class_="tools", role="group", aria_label="Zoom"),
        element("p", id="map-status", class_="hint"),
        element("p", keys, id="map-keys", class_="hint"),
        element("p", id="map-spoken", class_="unseen", aria_live="polite"),
        class_="map-box",
    )  # fmt: skip


def _controls(run: Run) -> list[Markup]:
    choices = [("cluster", "Cluster")]
    legends = [_legend("cluster", [
        (f"{cluster}", colour, number(size))
        for cluster, (colour, size) in enumerate(
            zip(group_colours(run.n_clusters), run.sizes, strict=True))
    ])]  # fmt: skip
    if run.has_truth:
        choices += [("class", "True class"), ("agreement", "Agreement with the truth")]
        legends += [_class_legend(run), _agreement_legend(run)]
    choices.append(("margin", "How clear"))
    legends.append(_margin_legend(run))
    options = [element("option", text, value=value) for value, text in choices]
    select = element("select", *options, id="map-colour")
    label = element("label", "Colour by ", select, class_="choice")
    hint = element("p", "Press a group to single it out.", class_="hint")
    return [label, hint, *legends]


def _legend(mode: str, groups: list[tuple[str, str, str]]) -> Markup:
    buttons = [
        element("li", element(
            "button",
            element("span", class_="swatch", style=f"background:{colour}"),
            element("span", name, class_="name"),
            element("span", count, class_="count"),
            type="button", aria_pressed="false", data_group=place,
        ))
        for place, (name, colour, count) in enumerate(groups)
    ]  # fmt: skip
    return element("ul", *buttons, class_="legend", data_legend=mode,
                   hidden=mode != "cluster")  # fmt: skip


def _class_legend(run: Run) -> Markup:
    sizes = np.bincount(run.truth, minlength=len(run.class_names))
    colours = group_colours(len(run.class_names))
    return _legend("class", [
        (name, colour, number(size))
        for name, colour, size in zip(run.class_names, colours, sizes, strict=True)
    ])  # fmt: skip


def _agreement_legend(run: Run) -> Markup:
    is_wrong = run.matched[run.labels] != run.truth
    n_wrong = int(is_wrong.sum())
    return _legend("agreement", [
        ("agrees", "#3f8fd2", number(len(run.labels) - n_wrong)),
        ("differs", "#e0482f", number(n_wrong)),
    ])  # fmt: skip


def _margin_legend(run: Run) -> Markup:
    step = _margin_bytes(run).astype(np.int64) * _N_CLEAR_STEPS >> 8
    counts = np.bincount(step, minlength=_N_CLEAR_STEPS)
    limits = [f"{k / _N_CLEAR_STEPS:.2f} to {(k + 1) / _N_CLEAR_STEPS:.2f}"
              for k in range(_N_CLEAR_STEPS)]  # fmt: skip
    return _legend("margin", [
        (limit, colour, number(count))
        for limit, colour, count in zip(limits, _clear_colours(), counts, strict=True)
    ])  # fmt: skip


def _clear_colours() -> list[str]:
    """Return colours from doubtful, orange, to clear, blue."""
    return blend(45, 260, _N_CLEAR_STEPS)


def _margin_bytes(run: Run) -> Integers:
    return np.round(255 * np.clip(run.points.margins, 0, 1)).astype(np.uint8)


def map_data(run: Run) -> dict[str, object]:
    """Return what the script of the map draws."""
    index = run.points.index
    data: dict[str, object] = {
        "plane": base64_text(run.points.plane.astype(np.uint16)),
        "index": base64_text(index.astype(np.uint32)),
        "labels": base64_text(run.labels[index].astype(np.uint16)),
        "margins": base64_text(_margin_bytes(run)),
        "colours": group_colours(run.n_clusters),
        "class_colours": group_colours(len(run.class_names)),
        "clear_ramp": _clear_colours(),
        "class_names": list(run.class_names),
    }
    if run.has_truth:
        data["truth"] = base64_text(run.truth[index].astype(np.uint16))
        data["matched"] = run.matched.tolist()
    if run.gallery.has_pictures and len(run.gallery.samples):
        pictures = run.gallery.samples
        data["pictures"] = {
            "sheet": png_address(sprite_sheet(pictures, _SHEET_COLUMNS)),
            "index": base64_text(run.gallery.sample_index.astype(np.uint32)),
            "columns": _SHEET_COLUMNS,
            "height": pictures.shape[1],
            "width": pictures.shape[2],
        }
    return data


def sizes(run: Run) -> Markup:
    """Return the clusters' sizes as bars."""
    colours = group_colours(run.n_clusters)
    total = len(run.labels)
    rows = [
        [f"{cluster}", number(size), share_bar(size / total, colour=colours[cluster])]
        for cluster, size in enumerate(run.sizes)
    ]
    text = (
        f"The smallest cluster has {number(int(run.sizes.min()))} samples, the largest "
        f"{number(int(run.sizes.max()))}; an even split would be "
        f"{number(total / run.n_clusters)}."
    )
    body = table(["cluster", "samples", "share"], rows, caption="Cluster sizes")
    shown = body if run.n_clusters <= 20 else details("All sizes", body)
    return section("sizes", "Cluster sizes", element("p", text, class_="hint"), shown)


def gallery(run: Run) -> Markup:
    """Return the most central and the most doubtful members of each cluster."""
    rule = (
        "Central members lie nearest to the mean of their cluster in the spectral "
        "embedding. Doubtful ones have the smallest margin: the difference of their "
        "distances to the nearest other mean and to their own, over the sum of the "
        "two, where it is below 0.9. Press one to find it on the map."
    )
    clusters = [
        _cluster(run, cluster)
        for cluster in range(min(run.n_clusters, _MOST_CLUSTERS_SHOWN))
        if run.sizes[cluster]
    ]
    more = run.n_clusters - _MOST_CLUSTERS_SHOWN
    rest = [element("p", f"{more} further clusters are not shown.")] if more > 0 else []
    return section(
        "gallery",
        "Typical and doubtful members",
        element("p", rule, class_="hint"),
        element("div", *clusters, class_="gallery"),
        *rest,
    )


def _cluster(run: Run, cluster: int) -> Markup:
    colour = group_colours(run.n_clusters)[cluster]
    title = [
        element("span", class_="swatch", style=f"background:{colour}"),
        f"Cluster {cluster}",
    ]
    doubtful = _members(run, run.gallery.doubtful[cluster])
    longest = max((len(name) for name in run.class_names), default=0)
    kind = "members wide" if longest > _SHORT_NAME else "members"
    about = f"{number(run.sizes[cluster])} samples{_majority(run, cluster)}"
    return element(
        "article",
        element("h3", *title),
        element("p", about, class_="hint"),
        element("h4", "Most central"),
        element("ul", *_members(run, run.gallery.central[cluster]), class_=kind),
        element("h4", "Most doubtful"),
        element("ul", *doubtful, class_=kind)
        if doubtful
        else element("p", "Every member is clear.", class_="hint"),
    )


def _majority(run: Run, cluster: int) -> str:
    if not run.has_truth:
        return ""
    counts = run.confusion[cluster]
    best = int(counts.argmax())
    share = counts[best] / max(1, counts.sum())
    return f", {share:.1%} of class {run.class_names[best]}"


def _members(run: Run, members: Integers) -> list[Markup]:
    return [
        element("li", _member(run, int(sample))) for sample in members if sample >= 0
    ]


def _member(run: Run, sample: int) -> Markup:
    gallery = run.gallery
    place = int(np.searchsorted(gallery.sample_index, sample))
    has_data = place < len(gallery.sample_index)
    has_data = has_data and int(gallery.sample_index[place]) == sample
    text = f"Sample {number(sample)}"
    is_odd = False
    if run.has_truth:
        found = int(run.truth[sample])
        text += f", class {run.class_names[found]}"
        is_odd = found != int(run.confusion[run.labels[sample]].argmax())
    point = int(np.searchsorted(run.points.index, sample))
    text += f", margin {float(run.points.margins[point]):.2f}"
    picture: Child = Markup("")
    if has_data and gallery.has_pictures:
        address = png_address(gallery.samples[place])
        picture = element("img", src=address, alt="", width=gallery.samples.shape[2],
                          height=gallery.samples.shape[1])  # fmt: skip
    elif has_data:
        picture = sparkline(gallery.samples[place])
    shown = f"{number(sample)}" if not run.has_truth else run.class_names[found]
    return element(
        "button",
        picture,
        element("span", shown, class_="tag", aria_hidden="true"),
        element("span", text, class_="unseen"),
        type="button", title=text, data_sample=sample,
        class_="member odd" if is_odd else "member",
    )  # fmt: skip


def confusion(run: Run) -> Markup:
    """Return clusters against classes, the matched ones on the diagonal."""
    counts, order, names = ordered_confusion(run)
    kept = counts[:_MOST_IN_CONFUSION, :_MOST_IN_CONFUSION]
    head = element(
        "tr",
        element("th", "cluster", scope="col"),
        *(element("th", name, scope="col") for name in names[:_MOST_IN_CONFUSION]),
    )
    largest = kept.max() or 1
    body = [
        element("tr", element("th", str(cluster), scope="row"),
                *(_cell(int(value), largest, is_match=place == column)
                  for column, value in enumerate(line)))
        for place, (cluster, line) in enumerate(zip(order, kept, strict=False))
    ]  # fmt: skip
    caption = "Samples by cluster (rows) and true class (columns)"
    matched = int(np.trace(counts))
    text = (
        f"{number(matched)} of {number(len(run.labels))} samples lie on the diagonal, "
        "where clusters are matched with classes."
    )
    is_cut = max(counts.shape) > _MOST_IN_CONFUSION
    cut = f" Only the first {_MOST_IN_CONFUSION} of each are shown." if is_cut else ""
    content = element("table", element("caption", caption), element("thead", head),
                      element("tbody", *body), class_="confusion")  # fmt: skip
    return section(
        "confusion",
        "Clusters and true classes",
        element("p", text + cut, class_="hint"),
        element(
            "div",
            scrolling(content, label=caption),
            element("div", _mistakes(run)),
            class_="beside",
        ),
    )


def _cell(value: int, largest: int, *, is_match: bool) -> Markup:
    share = (value / largest) ** 0.5 if value else 0
    # Light text needs a strong ground; the style sheet turns the share into colour.
    name = "match" if is_match else None if not value else "miss"
    return element("td", number(value) if value else "·", class_=name,
                   style=f"--share:{share:.3f}" if value else None)  # fmt: skip


def _mistakes(run: Run) -> Markup:
    """Return the largest confusions as sentences, for those who read no matrix."""
    counts, order, names = ordered_confusion(run)
    off = counts.copy()
    np.fill_diagonal(off, 0)
    largest = np.argsort(off, axis=None)[::-1][:5]
    entries = []
    for flat in largest:
        row, column = divmod(int(flat), off.shape[1])
        count = int(off[row, column])
        if count:
            text = f"{number(count)} of class {names[column]} are in cluster "
            entries.append(element("li", text, str(order[row])))
    if not entries:
        return element("p", "No sample lies off the diagonal.")
    return join([element("h3", "Largest disagreements"), element("ul", *entries)])


def ordered_confusion(run: Run) -> tuple[Integers, list[int], list[str]]:
    """Return counts, clusters and classes, matched pairs first."""
    counts = run.confusion
    pairs = sorted((int(c), k) for k, c in enumerate(run.matched) if c >= 0)
    rows = [k for _, k in pairs]
    columns = [c for c, _ in pairs]
    rows += [k for k in range(counts.shape[0]) if k not in set(rows)]
    columns += [c for c in range(counts.shape[1]) if c not in set(columns)]
    names = [run.class_names[c] for c in columns]
    return counts[np.ix_(rows, columns)], rows, names

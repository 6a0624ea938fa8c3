"""Draws all plots of the benchmarks and of the recorded incidents, as SVG files that are the same in each run.

    plot.py night DATA OUT SCENARIO     plots the recording of bad-night.pl
    plot.py bench DIRECTORY OUT BEFORE  plots the data of report.pl; a transaction is open from second BEFORE on
    plot.py scaling DATA OUT            plots the figures of scaling.sh

The colours are those of Okabe and Ito, which colour-blind readers can distinguish. A system has the same colour in all
plots. Only lock_election has a thick line. The text is readable if the plot is as wide as a phone. On a dark page, the
plots are dark, too.
"""

import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

BLUE, SKY, GREEN, ORANGE = "#0072b2", "#56b4e9", "#009e73", "#e69f00"
RED, PURPLE, BLACK, GREY = "#d55e00", "#cc79a7", "#000000", "#888888"
# Colour, dashes and marker of each system.
SYSTEMS = {
    "lock_election": (BLUE, "-", "o"),
    "lock_election-async": (SKY, "-", "o"),
    "portable": (BLUE, "--", "o"),
    "table": (ORANGE, "-", "s"),
    "etcd": (RED, "-", "^"),
    "zookeeper": (GREEN, "-", "v"),
    "redis": (PURPLE, "-", "D"),
    "valkey": (BLACK, "-", "P"),
    "redis-everysec": (PURPLE, "--", "D"),
    "redis-memory": (PURPLE, ":", "D"),
    "advisory": (GREY, "-", "X"),
    "select1": (GREY, ":", "X"),
}
OTHERS = [(BLUE, "-", "o"), (RED, "-", "^"), (GREEN, "-", "s"), (PURPLE, "-", "D"), (ORANGE, "-", "v"), (BLACK, "-", "P")]
WIDTH, HEIGHT = 800, 720  # units of the view box, in which the text is 24 high
DARK = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }</style>"

matplotlib.rcParams.update({
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
    "font.family": "sans-serif",
    "font.size": 24,
    "axes.titlesize": 24,
    "axes.titlelocation": "left",
    "xtick.major.pad": 14,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 2.5,
    "lines.markersize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "lock_election",
})


def figure(rows=1, height=HEIGHT):
    return plt.subplots(rows, figsize=(WIDTH / 72, height / 72), sharex=True, squeeze=False)


def is_shown(text, fig):
    """Whether the text is visible. A label of a tick outside of the range of its axis is not."""
    if not text.get_text() or not text.get_visible():
        return False
    for axes in fig.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                if text in (tick.label1, tick.label2):
                    low, high = sorted(axis.get_view_interval())
                    return low <= tick.get_loc() <= high
    return True


def save(fig, path):
    """Writes the plot, with the rule for dark pages, and without data that differ from run to run.

    Prints an error for texts that overlap or are cut off.
    """
    fig.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in fig.findobj(Text) if is_shown(text, fig)]
    for number, (one, box) in enumerate(boxes):
        if not (fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 and fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1):
            print(f"{path}: {one} is cut off", file=sys.stderr)
        for other, second in boxes[:number]:
            if box.overlaps(second):
                print(f"{path}: {one} and {other} overlap", file=sys.stderr)
    fig.savefig(path, format="svg", metadata={"Date": None})
    plt.close(fig)
    text = pathlib.Path(path).read_text(encoding="utf-8")
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    start = text.index(">", text.index("<svg")) + 1
    pathlib.Path(path).write_text(f"{text[:start]}\n {DARK}{text[start:]}", encoding="utf-8")


def plain(value, _=None):
    """Returns the label of a tick: 10000000 as 10M, 20000 as 20k, 2000 as 2,000, and 0.01 as it is."""
    for unit, letter in ((1e6, "M"), (1e4, "k")):
        if value >= unit:
            return f"{value / (1e6 if letter == 'M' else 1e3):g}{letter}"
    return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}"


def logarithmic(axis, base=10):
    axis.axes.set_xscale("log", base=base) if axis.axis_name == "x" else axis.axes.set_yscale("log", base=base)
    axis.set_major_locator(LogLocator(base, numticks=12))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def style(title, number=None):
    """Returns the style of a series: by system if its title is "system" or "system, workload", otherwise by number."""
    system, _, what = title.partition(", ")
    colour, dashes, marker = SYSTEMS.get(system) or OTHERS[number % len(OTHERS)]
    ours = system in ("lock_election", "lock_election-async")
    return {"color": colour, "linestyle": "--" if what == "hot lock" else dashes, "marker": marker,
            "linewidth": 6 if ours else 2.5, "zorder": 3 if ours else 2}


def curves(path, series, title="", xlabel="", ylabel="", xbase=None, ylog=False):
    """Draws curves. series: for each title its points (x, y, minimum, maximum)."""
    fig, ((axes,),) = figure()
    for number, (name, points) in enumerate(series.items()):
        xs, ys, low, high = zip(*points)
        spread = [[y - l for y, l in zip(ys, low)], [h - y for y, h in zip(ys, high)]]
        axes.errorbar(xs, ys, yerr=spread, label=name, capsize=4, elinewidth=1.5, **style(name, number))
    if xbase:
        logarithmic(axes.xaxis, xbase)
    else:
        axes.set_xticks(xs)
    if ylog:
        logarithmic(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
    finish(fig, axes, title, xlabel, ylabel)
    save(fig, path)


def finish(fig, axes, title, xlabel, ylabel):
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    names = axes.get_legend_handles_labels()[1]
    columns = 2 if max(map(len, names)) <= 26 else 1
    rows = -(-len(names) // columns)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=columns, handlelength=2.2, columnspacing=1.5)
    fig.set_figheight((HEIGHT + 34 * rows) / 72)


# --- the recorded night -----------------------------------------------------------------------------------------------

COLUMNS = ("second", "up", "held", "waiting", "oldest wait, s", "grants/s", "leader changes", "p50", "p99")
# For each scenario its panels, which show one or two columns each, and its events: second, side of the text, text.
NIGHT = {
    "hung-holder": (["waiting", "oldest wait, s", "grants/s"], [(15, "left", "a holder hangs"), (45, "left", "it is ended")]),
    "herd": (["waiting", "oldest wait, s", "grants/s", "wait, s: p50 and p99"], [(15, "left", "300 start")]),
    "failover": (["up", "oldest wait, s", "grants/s"], [(20, "right", "the primary dies "), (28, "left", "promoted")]),
}


def night(data, out, scenario):
    panels, events = NIGHT[scenario]
    rows = [[float(cell) for cell in line.split("\t")] for line in pathlib.Path(data).read_text().splitlines()]
    column = dict(zip(COLUMNS, zip(*rows)))
    fig, grid = figure(len(panels), 300 * len(panels))
    for (axes,), title in zip(grid, panels):
        names = [name for name in ("p50", "p99") if name in title] or [title]
        for name, (colour, dashes, _) in zip(names, OTHERS):
            axes.plot(column["second"], column[name], color=colour, linestyle=dashes, linewidth=3,
                      drawstyle="steps-post" if name == "up" else "default", label=name)
        axes.set_title(title)
        axes.set_xlim(0, 60)
        if len(names) > 1:
            logarithmic(axes.yaxis)
            axes.legend(loc="center right")
        else:
            axes.locator_params(axis="y", integer=True, nbins=5)
            axes.set_ylim(bottom=0)
        if title == "up":
            axes.set(yticks=[0, 1], ylim=(-0.1, 1.2))
        for second, _, _ in events:
            axes.axvline(second, color=GREY, linestyle="--", linewidth=2)
    top = grid[0][0]
    top.set_title(panels[0], pad=44)
    for second, side, text in events:
        top.annotate(text, (second, 1), xycoords=("data", "axes fraction"), xytext=(0, 8), textcoords="offset points",
                     ha=side, color="#666666")
    grid[-1][0].set_xlabel("seconds")
    save(fig, out)


# --- beside peers -----------------------------------------------------------------------------------------------------


def blocks(path):
    """Returns the blocks of a file, as a dict from each title, which is in quotes, to the lines of numbers below it."""
    series, points = {}, []
    for line in path.read_text().splitlines():
        if line.startswith('"'):
            series[line.strip('"')] = points = []
        elif line:
            points.append(tuple(map(float, line.split())))
    return series


def snapshot(path, out, before):
    fig, ((axes,),) = figure()
    for number, (name, points) in enumerate(blocks(path).items()):
        axes.plot(*zip(*points), label=name, **{**style(name, number), "marker": None})
    axes.axvline(before, color=GREY, linestyle="--", linewidth=2)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    finish(fig, axes, f"A transaction is open from second {before:g} on", "seconds", "operations/s")
    save(fig, out)


def latencies(path, out, title):
    rows = [line.rsplit(" ", 2) for line in path.read_text().splitlines()]
    fig, ((axes,),) = figure()
    p50, p99 = ([float(row[column]) for row in rows] for column in (1, 2))
    axes.hlines(range(len(rows)), p50, p99, color=GREY, linewidth=3, zorder=1)
    axes.scatter(p50, range(len(rows)), s=200, color=BLUE, label="p50")
    axes.scatter(p99, range(len(rows)), s=200, color=ORANGE, marker="D", label="p99")
    axes.set_yticks(range(len(rows)), [row[0].strip('"') for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    logarithmic(axes.xaxis)
    finish(fig, axes, title, "milliseconds", "")
    save(fig, out)


def bench(data, out, before):
    data, out = pathlib.Path(data), pathlib.Path(out)
    clients = {"xlabel": "clients", "xbase": 2, "ylog": True}
    names = {
        "pairs": ("pairs", "Acquire and release of random names", "pairs/s"),
        "hot-p50": ("hand-off-p50", "Hand-off of one hot lock, p50", "microseconds"),
        "hot-p99": ("hand-off-p99", "Hand-off of one hot lock, p99", "microseconds"),
    }
    for name, (picture, title, ylabel) in names.items():
        if (data / name).exists():
            curves(out / f"{picture}.svg", blocks(data / name), title, ylabel=ylabel, **clients)
    if (data / "snapshot").exists():
        snapshot(data / "snapshot", out / "snapshot.svg", float(before))
    for name, picture, title in (
        ("crash-8", "failover-crash", "The leader dies: end of its TTL to the next"),
        ("resign-2", "failover-resign", "The leader resigns: until the next"),
    ):
        if (data / name).exists():
            latencies(data / name, out / f"{picture}.svg", title)


# --- scaling ----------------------------------------------------------------------------------------------------------

SCALING = {
    "clients": {"xlabel": "clients", "ylabel": "a second", "xbase": 2},
    "names": {"xlabel": "names", "ylabel": "pairs a second", "xbase": 10},
    "holders": {"xlabel": "locks that are held", "xbase": 10, "ylog": True},
    "shared": {"xlabel": "shared holders of the name", "ylabel": "pairs a second", "xbase": 10},
    "databases": {"xlabel": "databases", "ylabel": "pairs a second"},
    "clusters": {"xlabel": "clusters", "ylabel": "pairs a second"},
}


def scaling(data, out):
    rounds = {}
    for line in pathlib.Path(data).read_text().splitlines():
        section, series, x, y = line.split("\t")
        rounds.setdefault(section, {}).setdefault(series, {}).setdefault(float(x), []).append(float(y))
    for section, series in rounds.items():
        points = {
            name: [(x, statistics.median(ys), min(ys), max(ys)) for x, ys in sorted(by_x.items())]
            for name, by_x in sorted(series.items())
        }
        curves(pathlib.Path(out) / f"scaling-{section}.svg", points, **SCALING[section])


{"night": night, "bench": bench, "scaling": scaling}[sys.argv[1]](*sys.argv[2:])

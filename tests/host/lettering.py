"""What is written on a figure, measured: for tests of pictures."""

from matplotlib.text import Text


def texts(figure):
    """Every text with its box in pixels, ticks included."""
    figure.canvas.draw()
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


def faults(figure):
    """Texts that leave the figure, and pairs that meet."""
    found = []
    written = texts(figure)
    for number, (text, box) in enumerate(written):
        if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.width or box.y1 > figure.bbox.height:
            found.append((text, "leaves the figure"))
        found += [
            (text, other)
            for other, there in written[number + 1 :]
            if box.x0 < there.x1 and there.x0 < box.x1 and box.y0 < there.y1 and there.y0 < box.y1
        ]
    return found

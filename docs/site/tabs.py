"""On the site, the sections of a page between the comments "tabs" and "/tabs" are tabs."""

import re


def on_page_markdown(markdown, **_):
    return re.sub(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->\n", lambda found: tabs(found[1]), markdown, flags=re.M | re.S)


def tabs(text):
    """The same text, in the syntax of pymdownx.tabbed."""
    lines = []
    for line in text.splitlines():
        if line.startswith("## "):
            lines += [f'=== "{line[3:]}"', ""]
        else:
            lines.append("    " + line if line else "")
    return "\n".join(lines) + "\n"

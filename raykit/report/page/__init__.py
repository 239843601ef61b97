"""An experiment as one self-contained page of HTML.

render    the page, from what `raykit.read.page` has gathered
summary   its top: what is asked, how it stands, what it has cost
lines     its charts; `chart` has their shapes
grid      its grid of examinations
searching its search: the table of trials, their charts, the pick
sets      its synthetic sets, with `images` for their pictures
timeline  what took time
evidence  what its numbers rest on; `tables` has their cells
words     how it says numbers, times and names
"""

from raykit.report.page.render import Need, Told, needs, render

__all__ = ["Need", "Told", "needs", "render"]

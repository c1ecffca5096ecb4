"""The directive ``schematic`` of PyTerrier's site: draws the pipeline in the last line of its content."""

import ast
import os
import tempfile

import pyterrier as pt
from docutils import nodes
from docutils.parsers.rst import Directive


class Schematic(Directive):
    """Runs its content, in a folder of its own, and leaves the picture alone on the page."""

    has_content = True

    def run(self):
        """Returns the picture as HTML."""
        *steps, last = ast.parse("\n".join(self.content)).body
        # As on that site, the names are local, so a comprehension does not see them.
        names, here = ({"pt": pt}, {}), os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                exec(compile(ast.Module(steps, []), "schematic", "exec"), *names)
                drawn = pt.schematic.draw(eval(compile(ast.Expression(last.value), "schematic", "eval"), *names))
            except Exception as error:
                raise self.severe(f"no schematic: {error!r}") from error
            finally:
                os.chdir(here)
        # A drawing that is wider than a phone scrolls in place of being cut.
        inner = f'<div style="min-width: max-content">{drawn}</div>'
        return [nodes.raw("", f'<div style="overflow-x: auto">{inner}</div>', format="html")]


def setup(app):
    """Adds the directive."""
    app.add_directive("schematic", Schematic)
    return {"parallel_read_safe": False}

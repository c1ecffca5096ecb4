"""Builds the pages of the package as PyTerrier's site does, without a network: ``sphinx -W -b html docs OUT``."""

import re
import shutil
import sys
from importlib import resources
from pathlib import Path

from sphinx.util import inspect

import pyterrier_cascade

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# PyTerrier's site copies the pages of a plugin beside its own.
pages = HERE / "pages"
shutil.rmtree(pages, ignore_errors=True)
shutil.copytree(resources.files("pyterrier_cascade") / "pt_docs", pages)

project = "pyterrier_cascade"
version = release = pyterrier_cascade.__version__
extensions = ["schematic", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_static_path, html_css_files = ["static"], ["pages.css"]
html_title = f"{project} {version}"
autodoc_member_order = "bysource"
maximum_signature_line_length = 100
# A reference to anything of this package must lead somewhere; the others' pages are not here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!pyterrier_cascade\b).*")]


# The codes of the papers' statements, in prose, outside of literals and roles.
CODE = re.compile(r"``.*?``|:\w+:`.*?`|\b((?:CT|TA|DC|HR|X)-\d+)\b")


def linked(app, what, name, obj, options, lines):
    """Links the codes in a docstring to the page ``readings``, as ``:term:`` does on the pages."""
    lines[:] = [CODE.sub(lambda found: f":term:`{found[1]}`" if found[1] else found[0], line) for line in lines]


def of_init(app, what, name, obj, options, signature, returns):
    """Gives a class the arguments of its ``__init__``: the ``__new__`` of PyTerrier's transformers takes anything."""
    if what == "class" and signature == "(*args, **kwargs)":
        found = inspect.signature(obj.__init__, bound_method=True)
        return inspect.stringify_signature(found, show_return_annotation=False, unqualified_typehints=True), None


def setup(app):
    """Listens to autodoc."""
    app.connect("autodoc-process-docstring", linked)
    app.connect("autodoc-process-signature", of_init)

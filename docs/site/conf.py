"""Sphinx's configuration for `make docs` (scripts/docs.sh). The source folder is the repository's root."""

import ast
import pathlib
import re

root = pathlib.Path(__file__).parents[2]
project = "smelt"
author = copyright = "the smelt developers"
release = re.search(r"version: '([\d.]+)'", (root / "meson.build").read_text())[1]
extensions = ["autoapi.extension", "breathe", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/*.md", "docs/site/*.md", "bench/*.md", "bench/log/*.md", "bench/peers/*.md"]
html_theme = "furo"
html_title = f"smelt {release}"
html_copy_source = False
copybutton_exclude = ".linenos, .go"
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]  # the man page has definition lists

breathe_projects = {"smelt": str(root / "build/docs/doxygen/xml")}
breathe_default_project = "smelt"
breathe_default_members = ("members",)
breathe_domain_by_extension = {"h": "c"}

# Read, not imported: documents need neither PyTorch nor a build.
autoapi_dirs = [str(root / "python/smelt_kernels")]
autoapi_generate_api_docs = False
suppress_warnings = ["autoapi.python_import_resolution"]  # smelt_kernels._native, which is compiled

functions = {
    node.name: node
    for path in (root / "python/smelt_kernels").glob("_*.py")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef)
}


def as_written(_app, what, name, _object, _options, _signature, _returns):
    """The signature in the source: autoapi's is that of the first overload, with private modules' names."""
    if what == "apifunction":
        node = functions[name.rpartition(".")[2]]  # the last of several is not an overload
        return f"({ast.unparse(node.args)})", ast.unparse(node.returns)


def setup(app):
    app.connect("autodoc-process-signature", as_written)

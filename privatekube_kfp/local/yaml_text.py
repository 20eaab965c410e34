"""YAML the way Kubernetes reads it: a time is text, and an error has a line."""

from __future__ import annotations

from typing import Any


class NotYaml(Exception):
    """A text that is not YAML: where, and why."""


def read_documents(text: str) -> list[Any]:
    """The documents of a YAML text, empty ones left out."""
    # Here, since most commands read none.
    import yaml

    class Loader(yaml.SafeLoader):
        """Leaves times alone: YAML would make them objects of Python."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).replace("\n", " ")
        raise NotYaml(f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except RecursionError:
        raise NotYaml("it is nested too deeply") from None

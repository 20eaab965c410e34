"""Every command, option and reason is documented."""

import re
from pathlib import Path

import click
import pytest

from privatekube_kfp.cli.app import cli
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.stream import BlockPhase

DOCS = Path(__file__).resolve().parents[2] / "docs"
_EVERYWHERE = {"--ledger", "--json", "--help"}


def commands(group=cli, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield pytest.param(" ".join((*path, name)), command, id=" ".join((*path, name)))


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_commands_and_options(name, command):
    sections = dict(
        re.findall(r"^### `([^`]+)`\n(.*?)(?=^##|\Z)", (DOCS / "cli.md").read_text(), re.S | re.M)
    )
    assert name in sections
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.opts[0] not in _EVERYWHERE:
            assert re.search(rf"{parameter.opts[0]}\b", sections[name]), parameter.opts[0]


@pytest.mark.parametrize("word", [*Reason, *Phase, *BlockPhase])
def test_reasons_and_phases(word):
    assert f"`{word}`" in (DOCS / "concepts.md").read_text()

"""The command line that scripts rely on: what is here may grow, but not change."""

from __future__ import annotations

import inspect
import re

import pytest
import typer

from selfexpress import SENet
from selfexpress.cli.app import app

# Sub-command: arguments, then options without the leading dashes.
FLAGS = {
    "": "version log install-completion show-completion",
    "data": "",
    "data fetch": "NAME root json",
    "data list": "root json",
    "data where": "NAME root json",
    "demo": "output/o seed quiet json",
    "features": (
        "DATA output/o scattering whiten project projection paper resize image-shape "
        "scales angles center split name block-size device quiet json"
    ),
    "fit": (
        "DATA n-clusters/k output/o name labels coefficients log-csv log-tensorboard "
        "run truth images refine center gamma gamma-scale l1-ratio max-iter "
        "n-train-samples batch-size hidden-sizes n-embedding learning-rate schedule "
        "optimizer start algorithm affinity n-neighbors n-nonzero n-eigenvectors "
        "n-init n-references n-cluster-samples block-size precision device "
        "checkpoint seed config show-config quiet json"
    ),
    "predict": "MODEL DATA output/o probabilities name device quiet json",
    "report": "RUN output/o json",
    "score": "LABELS TRUTH truth-name coefficients affinity json",
}


def commands():
    """Return every command by the words that call it."""
    found = {}

    def walk(command, words):
        found[" ".join(words)] = command
        for name, child in getattr(command, "commands", {}).items():
            walk(child, [*words, name])

    walk(typer.main.get_command(app), [])
    return found


COMMANDS = commands()


def flag(parameter):
    if not any(word.startswith("-") for word in parameter.opts):
        return parameter.name.upper()
    return "/".join(word.lstrip("-") for word in parameter.opts)


def test_the_commands_are_these():
    assert set(COMMANDS) == set(FLAGS)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words or "selfexpress")
def test_the_flags_are_these(words):
    flags = [flag(parameter) for parameter in COMMANDS[words].params]
    assert sorted({*flags} - {"help"}) == sorted(FLAGS[words].split())


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words or "selfexpress")
def test_help_explains_itself_with_an_example_that_names_real_options(words):
    text = COMMANDS[words].help
    (example,) = re.findall(r"Example: (selfexpress [^\n]*(?:\n[^\n]+)*)", text)
    assert example.startswith(f"selfexpress {words}".strip())
    known = {word for each in COMMANDS.values() for p in each.params for word in p.opts}
    assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", example)) <= known


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words or "selfexpress")
def test_every_option_says_what_it_does(words):
    for parameter in COMMANDS[words].params:
        assert getattr(parameter, "help", None), parameter.name


def test_the_defaults_that_help_shows_are_those_of_senet():
    defaults = inspect.signature(SENet).parameters
    shown = {
        parameter.name: parameter.show_default
        for parameter in COMMANDS["fit"].params
        if isinstance(getattr(parameter, "show_default", None), str)
    }
    assert len(shown) > 10
    assert shown == {name: str(defaults[name].default) for name in shown}

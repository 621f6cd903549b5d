"""Completion scripts, made from the parser itself: what it accepts is what they offer.

Where nothing is known about an argument, shells offer files.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.core.codes import load_codes


@dataclass(frozen=True, slots=True)
class OptionWords:
    """One option of a command: its spellings, and the words its value may be."""

    names: tuple[str, ...]
    takes_value: bool
    values: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command: its options, and the words its arguments may be (none: files)."""

    name: str
    help: str
    options: tuple[OptionWords, ...]
    values: tuple[str, ...]


def describe(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """What the parser accepts, as plain data."""
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    return [
        _command(name, helps.get(name, ""), sub._actions) for name, sub in commands.choices.items()
    ]


def _command(name: str, text: str, actions: Sequence[argparse.Action]) -> CommandWords:
    options = tuple(
        OptionWords(
            tuple(a.option_strings), a.nargs != 0, tuple(map(str, a.choices or ())), a.help or ""
        )
        for a in actions
        if a.option_strings
    )
    values = [str(c) for a in actions if not a.option_strings for c in a.choices or ()]
    if name == "explain":
        values = list(load_codes())
    return CommandWords(name, text, options, tuple(values))


def _spaced(values: Sequence[str]) -> str:
    return " ".join(value.replace(" ", "\\ ") for value in values)


# ------------------------------------------------------------------------------- bash

BASH = """# bash completion for treadle; source this file
_treadle() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ "${{COMP_WORDS[i]}}" != -* ]]; then command="${{COMP_WORDS[i]}}"; break; fi
  done
  case "$command $prev" in
{values}
  esac
  if [[ -z "$words" ]]; then
    case "$command" in
      "") words="{commands} --help --version" ;;
{commands_cases}
    esac
  fi
  local IFS=$'\\n'  # one candidate a line: some hold spaces
  COMPREPLY=($(IFS=$' \\t\\n'; compgen -W "$words" -- "$cur"))
}}
complete -o default -o bashdefault -F _treadle treadle
"""


def bash(commands: Sequence[CommandWords]) -> str:
    """The script for bash."""
    values = [
        f'    "{c.name} {name}") {_bash_values(o)} ;;'
        for c in commands
        for o in c.options
        if o.takes_value
        for name in o.names
    ]
    cases = []
    for c in commands:
        names = " ".join(name for o in c.options for name in o.names)
        # Without a dash options would hide the files that are meant far more often.
        plain = " ".join(c.values)
        cases.append(
            f'      {c.name}) if [[ "$cur" == -* ]]; then words="{names}";'
            f' else words="{plain}"; fi ;;'
        )
    return BASH.format(
        values="\n".join(values),
        commands=" ".join(c.name for c in commands),
        commands_cases="\n".join(cases),
    )


def _bash_values(option: OptionWords) -> str:
    # Quoted twice: compgen takes one layer off, the line on which the word lands the other.
    words = [value.replace(" ", r"\\\ ") for value in option.values]
    return f"words={shlex.quote(' '.join(words))}" if words else "return"


# ------------------------------------------------------------------------------- zsh

ZSH = """#compdef treadle
# zsh completion for treadle; put this file into a folder of $fpath as _treadle, or source it
_treadle() {{
  local -a commands
  commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{cases}
  esac
}}
if [[ "$funcstack[1]" = _treadle ]]; then _treadle "$@"; else compdef _treadle treadle; fi
"""


def zsh(commands: Sequence[CommandWords]) -> str:
    """The script for zsh."""
    rows = [f"    {shlex.quote(f'{c.name}:{c.help}')}" for c in commands]
    cases = []
    for c in commands:
        specs = [_zsh_option(name, o) for o in c.options for name in o.names]
        specs.append(f"*:value:({_spaced(c.values)})" if c.values else "*:file:_files")
        cases.append(f"    {c.name}) _arguments {' '.join(map(shlex.quote, specs))} ;;")
    return ZSH.format(commands="\n".join(rows), cases="\n".join(cases))


def _zsh_option(name: str, option: OptionWords) -> str:
    text = f"{name}[{_zsh_text(option.help)}]"
    if not option.takes_value:
        return text
    return f"{text}:value:({_spaced(option.values)})" if option.values else f"{text}:value:_files"


def _zsh_text(text: str) -> str:
    return "".join(f"\\{c}" if c in "[]:\\" else c for c in text)


# ------------------------------------------------------------------------------- fish


def fish(commands: Sequence[CommandWords]) -> str:
    """The script for fish."""
    lines = ["# fish completion for treadle; source this file"]
    for c in commands:
        lines.append(
            f"complete -c treadle -f -n __fish_use_subcommand -a {c.name} -d {_fish_text(c.help)}"
        )
        seen = f"complete -c treadle -n '__fish_seen_subcommand_from {c.name}'"
        if c.values:
            lines.append(f"{seen} -f -a {_fish_text(_spaced(c.values))}")
        for option in c.options:
            names = " ".join(_fish_name(name) for name in option.names)
            value = " -r" if option.takes_value else ""
            if option.values:
                value = f" -x -a {_fish_text(_spaced(option.values))}"
            lines.append(f"{seen} {names}{value} -d {_fish_text(option.help)}")
    return "\n".join(lines) + "\n"


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _fish_text(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


SCRIPTS: Mapping[str, Callable[[Sequence[CommandWords]], str]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}

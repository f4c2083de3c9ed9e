"""Every command as data, for scripts and assistants: `barnabas --help-json` prints one JSON object a command."""

import inspect
from collections.abc import Iterator

import click

from barnabas.cli.output import Row
from barnabas.status import STATUS_FAILED, STATUS_INTERRUPTED, STATUS_MISUSED

STATUSES = {
    "0": "done",
    str(STATUS_FAILED): "something was not done; with several names, the others were",
    str(STATUS_MISUSED): "the command was wrong, or something is missing that it needs, such as --yes",
    str(STATUS_INTERRUPTED): "ended by Ctrl-C",
}


def described(command: click.Command, context: click.Context) -> Iterator[Row]:
    """A command, or each command of a group and of the groups in it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{name} is listed, and does not exist"
            yield from described(below, click.Context(below, parent=context, info_name=name))
        return
    parameters = [each for each in command.get_params(context) if not (isinstance(each, click.Option) and each.hidden)]
    yield {
        "command": context.command_path,
        "help": inspect.cleandoc(command.help or ""),
        "arguments": [_argument(each) for each in parameters if isinstance(each, click.Argument)],
        "options": [_option(each, context) for each in parameters if isinstance(each, click.Option)],
        "statuses": STATUSES,
    }


def _argument(argument: click.Argument) -> Row:
    return {
        "name": argument.human_readable_name,
        "required": argument.required,
        "several": argument.nargs == -1,
        **_type(argument),
    }


def _option(option: click.Option, context: click.Context) -> Row:
    default = option.get_default(context, call=False)
    return {
        "names": [*option.opts, *option.secondary_opts],
        "help": option.help,
        "flag": option.is_flag,
        "required": option.required,
        "several": option.multiple,
        "metavar": option.metavar,
        # The default of a flag, and of an option that may be given several times, is nothing.
        "default": default if isinstance(default, str | int | float) and not option.is_flag else None,
        **_type(option),
    }


def _type(parameter: click.Parameter) -> Row:
    kind = parameter.type
    choices = list(kind.choices) if isinstance(kind, click.Choice) else None
    return {"type": kind.name, **({"choices": choices} if choices else {})}

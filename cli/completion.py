"""`barnabas completion bash|zsh|fish`: what a shell needs to complete the commands and their options."""

import click

SHELLS = ("bash", "zsh", "fish")
# Where each shell finds the completion of a program by itself.
PLACES = {
    "bash": "~/.local/share/bash-completion/completions/barnabas",
    "zsh": "a folder of $fpath, as _barnabas",
    "fish": "~/.config/fish/completions/barnabas.fish",
}


@click.command(
    help="Print the completion for SHELL.\n\nSHELL finds it by itself in this place:\n\n\b\n"
    + "\n".join(f"{shell}: {place}" for shell, place in PLACES.items())
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion for a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = ctx.find_root().command
    click.echo(found(root, {}, "barnabas", "_BARNABAS_COMPLETE").source())

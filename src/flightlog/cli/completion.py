"""`flightlog completion`: what a shell needs to complete commands, options and ids."""

import click

from flightlog.cli.output import json_option

NAMES = {
    "flightlog": "",
    "ralph-runtime": "loop",
    "harness": "lab",
    "chat-retro": "retro",
    "issue-workflow": "issue",
    "ml-data-collector": "dataset",
}
WHERE = {
    "bash": 'eval "$(flightlog completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(flightlog completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "flightlog completion fish > ~/.config/fish/completions/flightlog.fish",
}


@click.command(epilog='Example: eval "$(flightlog completion bash)"')
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option("Print the script and where it belongs as JSON.")
def completion(shell: str, *, as_json: bool) -> None:
    """Print what a shell needs to complete commands and ids.

    It serves flightlog and its other names. Put it where your shell reads it:

    \b
    bash  eval "$(flightlog completion bash)"      in ~/.bashrc
    zsh   eval "$(flightlog completion zsh)"       in ~/.zshrc, after compinit
    fish  flightlog completion fish > ~/.config/fish/completions/flightlog.fish
    """  # noqa: D301 - the mark is click's, for lines that stay as they are
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows the three shells"
    parts = []
    for name in NAMES:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        one = made(click.Command(name), {}, name, variable)
        parts.append(one.source_template % one.source_vars())
    script = "\n".join(parts)
    if as_json:
        from flightlog.cli.output import print_json

        print_json({"shell": shell, "script": script, "install": WHERE[shell]})
    else:
        click.echo(script)

"""``proximo completion``: the script that lets a shell complete verbs, flags, settings, environments and runs."""

from __future__ import annotations

from proximo.cli import Parser

BASH = r"""# Completion of proximo for bash: eval "$(proximo completion bash)", in ~/.bashrc
_proximo() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
        else
            COMPREPLY+=("$line")
        fi
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o nosort -F _proximo proximo 2>/dev/null || complete -F _proximo proximo
"""

ZSH = r"""#compdef proximo
# Completion of proximo for zsh: eval "$(proximo completion zsh)", in ~/.zshrc behind compinit; or as _proximo in your $fpath
_proximo() {
    local line
    local -a names shown
    for line in "${(@f)$("${~words[1]}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == ":files" ]]; then
            _files
        elif [[ -n $line ]]; then
            names+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  -- }")
        fi
    done
    (( ${#names} )) && compadd -l -d shown -a names
}
if [[ "${funcstack[1]}" == "_proximo" ]]; then _proximo "$@"; else compdef _proximo proximo; fi
"""

FISH = r"""# Completion of proximo for fish: proximo completion fish > ~/.config/fish/completions/proximo.fish
function __proximo_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for line in ($before[1] __complete fish $before[2..-1] "$current" 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path "$current"
        else
            printf '%s\n' $line
        end
    end
end
complete -c proximo -f -a '(__proximo_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo completion",
        description="Print the script that lets a shell complete proximo's verbs, flags, settings, environments and runs.",
        epilog='As in ~/.bashrc: eval "$(proximo completion bash)". `proximo envs` makes all environments known to it.',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    return parser


def run(arguments: list[str]) -> int:
    """Print the script of a shell."""
    options = make_parser().parse_args(arguments)
    print(SCRIPTS[options.shell], end="")
    return 0

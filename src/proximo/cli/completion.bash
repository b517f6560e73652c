# Follows the script of shtab. bash also splits words at ":", "=" and "@", which are parts of proximo's names.
# The function joins them again before it calls shtab's function, and removes from each reply the prefix that
# bash keeps, up to the last of these characters.
_proximo() {
    local line="${COMP_LINE:0:COMP_POINT}" last="${COMP_WORDS[COMP_CWORD]}" COMP_CWORD word
    local -a COMP_WORDS
    [[ ${line##*[[:space:]]} == --*=* ]] && line="${line%=*} ${line##*=}"
    read -ra COMP_WORDS <<< "$line"
    [[ -z $line || $line == *[[:space:]] ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    word="${COMP_WORDS[COMP_CWORD]}"
    [[ $last == [:=] ]] && last=""
    _shtab_proximo
    [[ $word == *"$last" ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"$last"}"}")
}
complete -o bashdefault -F _proximo proximo

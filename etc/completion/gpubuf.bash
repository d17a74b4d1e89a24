# bash completion of gpubuf(1). The program itself knows its commands, options and the daemon's names.
_gpubuf() {
    local word=${COMP_WORDS[COMP_CWORD]} line files=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = :file ]; then
            files=yes
        else
            COMPREPLY+=("$line")
        fi
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -n "$files" ]; then
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
    fi
}
complete -F _gpubuf gpubuf

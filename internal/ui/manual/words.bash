# What the bash-completion package would do: the words up to the cursor, joined again where bash broke them at = and :
__gpuard_init_completion()
{
    COMPREPLY=()
    words=() cword=-1
    local rest=${COMP_LINE:0:COMP_POINT} i word blanks
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${rest%%[![:space:]]*}
        rest=${rest#"$blanks"}
        word=${COMP_WORDS[i]}
        ((i == COMP_CWORD)) && word=$rest
        rest=${rest#"$word"}
        if [[ -z $blanks && $i -gt 0 && ( $word == [=:]* || ${words[cword]} == *[=:] ) ]]; then
            words[cword]+=$word
        else
            words[++cword]=$word
        fi
    done
    cur=${words[cword]}
    prev=
    ((cword == 0)) || prev=${words[cword-1]}
}

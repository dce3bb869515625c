if [[ -o interactive ]]; then
  __gpuard_complete() { # the real one, at the first Tab
    unset '_comps[gpuard]'
    eval "$(@PROGRAM@ completion zsh 2>/dev/null)"
    (( $+functions[_gpuard] )) && _gpuard "$@"
  }
  __gpuard_compdef() { # compinit may come later
    (( $+functions[compdef] )) && [[ -z ${_comps[gpuard]-} ]] && compdef __gpuard_complete gpuard
    return 0
  }
  autoload -Uz add-zsh-hook && add-zsh-hook precmd __gpuard_compdef
fi

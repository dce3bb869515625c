if [[ $- == *i* ]]; then
  __gpuard_complete() { # the real one, at the first Tab
    complete -r gpuard
    eval "$(@PROGRAM@ completion bash 2>/dev/null)"
    complete -p gpuard >/dev/null 2>&1 && return 124
  }
  complete -F __gpuard_complete gpuard
fi

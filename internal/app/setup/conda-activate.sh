# Written by gpuard setup conda, which takes it away again with --remove.
if test -x @PROGRAM@ && @CHOICE@; then
  eval "$_gpuard"
elif test -x @PROGRAM@ && _gpuard="$(@NONE@)"; then
  printf '%s\n' @AGAIN@ >&2
  eval "$_gpuard"
else
  printf '%s\n' @LOST@ >&2
  if test -z "${@WAS@+x}"; then
    export @WAS@=
    for _gpuard in @NAMES@; do
      eval "if test -n \"\${$_gpuard+x}\"; then export @WAS@_$_gpuard=\"\$$_gpuard\"; fi"
    done
  fi
  export @SET@
  unset @UNSET@
fi
unset _gpuard

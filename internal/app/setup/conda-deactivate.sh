# Written by gpuard setup conda, which takes it away again with --remove.
if test -n "${@WAS@+x}"; then
  unset @WAS@
  for _gpuard in @NAMES@; do
    eval "unset $_gpuard; if test -n \"\${@WAS@_$_gpuard+x}\"; then export $_gpuard=\"\$@WAS@_$_gpuard\"; unset @WAS@_$_gpuard; fi"
  done
elif test -n "${GPUARD_SAVED+x}"; then
  if _gpuard="$(@RESTORE@)"; then eval "$_gpuard"; else printf '%s\n' 'gpuard: cannot put back the variables that were set before this environment; open a new shell' >&2; fi
fi
unset _gpuard

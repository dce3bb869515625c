if [[ -o interactive ]]; then
  __gpuard_prompt() { # the lease, before whatever the prompt is by now
    emulate -L zsh
    local part= list= value
    if [[ -n ${GPUARD_GPUS-} ]]; then
      for value in "${CUDA_VISIBLE_DEVICES-}" "${ROCR_VISIBLE_DEVICES-}" "${ZE_AFFINITY_MASK-}" "${ASCEND_RT_VISIBLE_DEVICES-}"; do
        [[ -z $value || $value == *[^0-9,]* || $value == 65535 ]] || list=${list:+$list+}$value
      done
      [[ -n $list ]] || list=${${GPUARD_GPUS%%,*}[1,12]}…
      part="[gpu ${list//[^A-Za-z0-9,+…-]/}${GPUARD_LEASE:+ ${GPUARD_LEASE//[^a-z0-9]/}}] "
    elif (( $+GPUARD_GPUS )); then
      part='[no gpu] '
    fi
    PROMPT=${PROMPT/$__gpuard_shown/} # wherever it is by now: conda puts its own part before it
    [[ $PROMPT == '[gpu '*'] '* || $PROMPT == '[no gpu] '* ]] && PROMPT=${PROMPT#*'] '}
    __gpuard_shown=$part PROMPT=$part$PROMPT
    # behind those that make the prompt anew
    [[ ${precmd_functions[-1]} == __gpuard_prompt ]] || precmd_functions=(${precmd_functions:#__gpuard_prompt} __gpuard_prompt)
  }
  __gpuard_prompt
fi

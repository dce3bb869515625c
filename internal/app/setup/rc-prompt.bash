if [[ $- == *i* ]]; then
  __gpuard_prompt() { # the lease, before whatever the prompt is by now
    local status=$? part= list= value
    if [[ -n ${GPUARD_GPUS-} ]]; then
      for value in "${CUDA_VISIBLE_DEVICES-}" "${ROCR_VISIBLE_DEVICES-}" "${ZE_AFFINITY_MASK-}" "${ASCEND_RT_VISIBLE_DEVICES-}"; do
        [[ -z $value || $value == *[!0-9,]* || $value == 65535 ]] || list=${list:+$list+}$value
      done
      [[ -n $list ]] || list=${GPUARD_GPUS%%,*} list=${list:0:12}…
      part="[gpu ${list//[!A-Za-z0-9,+…-]/}${GPUARD_LEASE:+ ${GPUARD_LEASE//[!a-z0-9]/}}] "
    elif [[ -n ${GPUARD_GPUS+set} ]]; then
      part='[no gpu] '
    fi
    PS1=${PS1-} PS1=${PS1/"${__gpuard_shown-}"/} # wherever it is by now: conda puts its own part before it
    [[ $PS1 == '[gpu '*'] '* || $PS1 == '[no gpu] '* ]] && PS1=${PS1#*'] '}
    __gpuard_shown=$part PS1=$part$PS1
    : "${PROMPT_COMMAND=}"
    if [[ ${PROMPT_COMMAND[*]} != *__gpuard_prompt ]]; then # behind those that make the prompt anew
      if [[ -n ${PROMPT_COMMAND[1]+set} ]]; then PROMPT_COMMAND+=(__gpuard_prompt)
      else PROMPT_COMMAND=${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__gpuard_prompt; fi
    fi
    return $status
  }
  __gpuard_prompt || :
fi

if status is-interactive
    function __gpuard_part
        set -l list
        if set -q GPUARD_GPUS[1]; and test -n "$GPUARD_GPUS"
            for value in "$CUDA_VISIBLE_DEVICES" "$ROCR_VISIBLE_DEVICES" "$ZE_AFFINITY_MASK" "$ASCEND_RT_VISIBLE_DEVICES"
                if string match -qr '^[0-9,]+$' -- $value; and test "$value" != 65535
                    set -a list $value
                end
            end
            set -q list[1]; or set list (string sub -l 12 -- $GPUARD_GPUS)…
            set -l lease (string replace -ra '[^a-z0-9]' '' -- "$GPUARD_LEASE")
            string join '' '[gpu ' (string replace -ra '[^A-Za-z0-9,+…-]' '' -- (string join + $list)) (test -n "$lease"; and echo " $lease") '] '
        else if set -q GPUARD_GPUS
            echo '[no gpu] '
        end
    end
    # Around whatever the prompt is by now: the lease goes before it.
    function __gpuard_prompt --on-event fish_prompt
        if not functions -q fish_prompt; or functions fish_prompt | string match -q '*__gpuard_around_*'
            return
        end
        set -q __gpuard_around; or set -g __gpuard_around 0
        set -g __gpuard_around (math $__gpuard_around + 1)
        functions -c fish_prompt __gpuard_around_$__gpuard_around
        echo "function fish_prompt
            set -l was \$status
            set -q __gpuard_inside; or echo -n (__gpuard_part)
            set -lx __gpuard_inside yes
            __gpuard_status \$was
            __gpuard_around_$__gpuard_around
        end" | source
    end
    function __gpuard_status
        return $argv[1]
    end
end

# Written by gpuard setup conda, which takes it away again with --remove.
begin
    set -l ended 127
    if test -x @PROGRAM@
        @CHOICE@ | source
        set ended $pipestatus
        if test $ended[1] != 0
            @NONE@ | source
            set ended $pipestatus
            test $ended[1] = 0; and echo @AGAIN@ >&2
        end
    end
    if test $ended[1] != 0
        echo @LOST@ >&2
        if not set -q @WAS@
            set -gx @WAS@ ''
            for name in @NAMES@
                set -q $name; and set -gx @WAS@_$name "$$name"
            end
        end
        for name in @SET@
            set -gx (string split -m 1 = $name)
        end
        set -e @UNSET@
    end
end
true

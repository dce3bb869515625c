# Written by gpuard setup conda, which takes it away again with --remove.
if set -q @WAS@
    set -e @WAS@
    for name in @NAMES@
        set -l was @WAS@_$name
        set -e $name
        set -q $was; and set -gx $name "$$was"
        set -e $was
    end
else if set -q GPUARD_SAVED
    set -l ended 127
    if test -x @PROGRAM@
        @RESTORE@ | source
        set ended $pipestatus
    end
    test $ended[1] = 0; or echo 'gpuard: cannot put back the variables that were set before this environment; open a new shell' >&2
end
true

package jobflags

import (
	"fmt"

	"gpuard/internal/app/machine"
	"gpuard/internal/ui/flagset"
)

// CheckWritable is an error where the file of a flag, which its owner calls name, could not be written.
func CheckWritable(flag, path, name string) error {
	if err := machine.CheckWritable(path); err != nil {
		return fmt.Errorf("cannot write --%s %s: %w; name a file in a folder of yours, such as %s", flag, name, err, flagset.FlagExample(flag))
	}
	return nil
}

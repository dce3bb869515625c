package machine

import (
	"context"
	"errors"
	"slices"

	"gpuard/internal/core/gpu"
)

// WithFallback reads through library and, when that cannot be used at all, through tool. When both fail the library's
// reason is the one to mend. A driver that does not answer is not asked a second time: the tool would hang too.
func WithFallback(library, tool Reader) Reader {
	return func(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
		m, err := library(ctx, query)
		var why *gpu.Unavailable
		if err == nil || !errors.As(err, &why) || !slices.Contains([]gpu.Cause{gpu.LibraryMissing, gpu.LibraryUnloadable, gpu.LibraryCrashed, gpu.DriverError}, why.Cause) {
			return m, err
		}

		// It takes its time, and has a deadline of its own.
		other, toolErr := tool(context.WithoutCancel(ctx), query)
		var said *gpu.Unavailable
		if errors.As(toolErr, &said) && !slices.Contains([]gpu.Cause{gpu.LibraryMissing, gpu.DriverNotLoaded}, said.Cause) && why.Cause == gpu.LibraryMissing {
			// It is there, and says what is wrong.
			return m, &gpu.Unavailable{Cause: said.Cause, Text: said.Text + "; " + why.Text, Remedy: said.Remedy}
		}
		if toolErr != nil {
			return m, err
		}

		other.Problems = append(other.Problems, "read through nvidia-smi, which is slower: "+why.Text)

		return other, nil
	}
}

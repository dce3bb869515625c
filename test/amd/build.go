package amd

import (
	"testing"

	"gpuard/test/compile"
	"gpuard/test/preload"
)

// buildDriver returns the folder of driver.so, which is preloaded in place of the kernel's drivers, and of the program ask.
func buildDriver(t testing.TB) string {
	t.Helper()
	return compile.Once(t, "", func(work string) {
		compile.C(t, work, "-shared", "-fPIC", "-o", "driver.so", "c/load.c", "c/files.c", "c/machine.c", "c/kfd.c", "c/render.c")
		compile.C(t, work, "-o", "ask", "c/ask.c")
	}, sources, preload.Sources)
}

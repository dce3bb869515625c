package nvidia

import (
	"testing"

	"gpuard/test/compile"
	"gpuard/test/preload"
)

// buildDriver returns the folder of driver.so, which is preloaded in place of the kernel's driver, and of the program ask.
func buildDriver(t testing.TB) string {
	t.Helper()
	return compile.Once(t, "", func(work string) {
		compile.C(t, work, "-shared", "-fPIC", "-o", "driver.so", "c/load.c", "c/files.c", "c/machine.c", "c/manager.c", "c/controls.c", "c/control_machine.c", "c/control_gpu.c", "c/control_mig.c")
		compile.C(t, work, "-o", "ask", "c/ask.c")
	}, sources, preload.Sources)
}

// Package executable writes programs for tests. A process that another goroutine forks while the file is open for writing has it
// open too until it becomes its own program, and whoever starts the file meanwhile is told "text file busy" (golang/go issue 22315).
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write makes a file that everybody may start, a script or a binary, while no process is forked.
func Write(t testing.TB, name string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(name, text, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

// Package executable writes programs for tests. A process that another goroutine forks while the file is open for
// writing has it open too until its exec, and starting the file meanwhile fails with "text file busy" (golang/go issue
// 22315).
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write makes a file that all users may execute, a script or a binary, while no process is forked.
func Write(t testing.TB, name string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(name, text, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

package executable

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestWrite: the file can be executed immediately, whatever else is started at the same time.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 50 { // without the lock one of a hundred is busy
				name := filepath.Join(dir, fmt.Sprint(worker, "-", i))
				Write(t, name, []byte("#!/bin/sh\nexit 0\n"))
				if err := exec.Command(name).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

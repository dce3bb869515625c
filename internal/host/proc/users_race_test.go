package proc

import (
	"sync"
	"testing"
	"time"
)

// TestUserWhileNamesGrowOld: names are read again while others look them up.
func TestUserWhileNamesGrowOld(t *testing.T) {
	f := tree(t, map[string]string{"passwd": "bob:x:7:7::/:/bin/sh\n"})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				if got := f.User(7); got != "bob" {
					t.Errorf("User(7) = %q", got)
				}
				f.names.mu.Lock()
				f.names.read = time.Now().Add(-nameCacheTime)
				f.names.mu.Unlock()
			}
		})
	}
	group.Wait()
}

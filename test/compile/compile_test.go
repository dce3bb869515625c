package compile

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"gpuard/internal/gate"
)

// TestTwoBuildersAtOnce: what is built is the same for both, and is built again only from other sources.
func TestTwoBuildersAtOnce(t *testing.T) {
	t.Parallel()
	gate.Need(t, "cc") // here: in a goroutine it would not end the test
	sources := fstest.MapFS{"a.c": {Data: []byte("int main(void) { return 0; } // " + t.TempDir())}}
	var begun, done sync.WaitGroup
	begun.Add(2)
	found := make([]string, 2)
	for i := range found {
		done.Go(func() {
			found[i] = Once(t, "", func(work string) {
				begun.Done()
				begun.Wait()
				Run(t, work, "cc", "-o", "a", "a.c")
			}, sources)
		})
	}
	done.Wait()
	t.Cleanup(func() { _ = os.RemoveAll(found[0]) })
	if _, err := os.Stat(filepath.Join(found[0], "a")); err != nil || found[0] != found[1] {
		t.Errorf("%v: two builds of the same are %q", err, found)
	}
	again := Once(t, "", func(string) { t.Error("it is built again") }, sources)
	if again != found[0] {
		t.Errorf("later it is %q, not %q", again, found[0])
	}
	other := Once(t, "other", func(string) {}, sources)
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	if other == again {
		t.Error("another variant is the same")
	}
}

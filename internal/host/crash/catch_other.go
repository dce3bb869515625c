//go:build !amd64 && !arm64

package crash

// Catcher catches nothing on this architecture.
type Catcher struct{}

// Catch does nothing.
func Catch(_, _ string, _ bool) (*Catcher, error) { return &Catcher{}, nil }

// Park does nothing.
func (*Catcher) Park() {}

// Hangs does nothing.
func (*Catcher) Hangs() {}

// Enter does nothing.
func (*Catcher) Enter(string) int { return -1 }

// Leave does nothing.
func (*Catcher) Leave(int) {}

//go:build !amd64 && !arm64

package crash

// Catcher catches nothing on this architecture.
type Catcher struct{}

// CatchCrashes does nothing.
func CatchCrashes(_, _ string, _ bool) (*Catcher, error) { return &Catcher{}, nil }

// ParkOnCrash does nothing.
func (*Catcher) ParkOnCrash() {}

// NoteHang does nothing.
func (*Catcher) NoteHang() {}

// EnterCall does nothing.
func (*Catcher) EnterCall(string) int { return -1 }

// LeaveCall does nothing.
func (*Catcher) LeaveCall(int) {}

package service

// Do is what has to be done about an instance.
type Do string

// What can be done.
const (
	Start Do = "start" // a keeper is missing: one that finds processes of the instance adopts them
	End   Do = "end"
)

// Action is one step towards what is wanted.
type Action struct {
	Do       Do
	Instance string
}

// Next returns what can be done now so that what is wanted comes about, at most one Start. It is asked again after every change
// of what is seen; a keeper that was just started and has not written anything counts as seen with Kept and no State.
func Next(wanted []Instance, seen map[string]Seen) []Action { return nil }

// Held says why instances that are wanted are not started: "waits for db-0 to be ready". Others have no entry.
func Held(wanted []Instance, seen map[string]Seen) map[string]string { return nil }

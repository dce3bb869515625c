package gpu

// Cause is why a vendor's devices cannot be read.
type Cause string

// Causes, in the order in which they are found on the way to a reading.
const (
	LibraryMissing    Cause = "library-missing"
	LibraryUnloadable Cause = "library-unloadable"
	LibraryCrashed    Cause = "library-crashed"
	DriverNotLoaded   Cause = "driver-not-loaded"
	VersionMismatch   Cause = "version-mismatch"
	NoPermission      Cause = "no-permission"
	NoDevice          Cause = "no-device"
	NoAnswer          Cause = "no-answer"
	DriverError       Cause = "driver-error"
)

// Unavailable says why a vendor's devices cannot be read at all. It is an error, so that a failure is never a silent
// empty list.
type Unavailable struct {
	Cause Cause
	// "cannot …", with the loader's or driver's own words.
	Text   string
	Remedy string // what to do next
}

// Error is only the text; the caller that shows it adds the remedy.
func (u *Unavailable) Error() string { return u.Text }

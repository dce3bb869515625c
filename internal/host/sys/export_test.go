package sys

// What the tests need of this package's own: they are outside of it, because gate imports packages that import it.

func OpenAtParts(dirFD int, path string, flags int) (int, error) {
	return openAtParts(dirFD, path, flags)
}

func (d *Dir) Fresh() error { return d.checkFresh() }

func (s *StagedFolder) Unplaced() string { return s.name }

// HasAlone is isPrivateIn for tests.
var HasAlone = isPrivateIn

// LinkAll pretends until the test ends that all users can link all files.
func LinkAll(t interface{ Cleanup(func()) }) {
	before := linksProtected
	linksProtected = func() bool { return false }
	t.Cleanup(func() { linksProtected = before })
}

// SetOpenat exchanges openat(2), as an automounter would act on it, until the test ends.
func SetOpenat(t interface{ Cleanup(func()) }, f func(at int, name string, flags int, mode uint32) (int, error)) {
	before := openat
	openat = f
	t.Cleanup(func() { openat = before })
}

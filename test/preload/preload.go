// Package preload has the C sources of a library that is preloaded in place of a kernel driver: the calls of libc through
// which a vendor's own library reaches its kernel (files.c) and the file that describes the invented machine (load.c). A
// vendor's package adds what the driver answers; preload.h lists that.
package preload

import (
	"embed"
	"os"
	"path/filepath"
	"testing"
)

// Sources is the folder c, beside which a vendor's own is put.
//
//go:embed c preload.go
var Sources embed.FS

// WriteFile writes a file of an invented machine, below its root, in one step: a program may be reading it.
func WriteFile(t testing.TB, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatalf("cannot make the invented machine: %v", err)
	}
}

package pyenv

import (
	"debug/elf"
	"errors"
	"io"
	"path/filepath"
	"strings"
)

// maxELFSize is how much is read of one library, in bytes: its tables, not its code.
const maxELFSize = 32 << 20

// librariesIn lists the shared libraries in a folder, and the names of those that they load; nil where it has none.
func (w SearchScope) librariesIn(folder string) []string {
	var all []string
	names, _ := w.listNames(folder)
	for _, name := range names {
		if strings.Contains(name, ".so") {
			all = append(append(all, name), w.neededBy(filepath.Join(folder, name))...)
		}
	}

	return all
}

// neededBy lists the names of the libraries that a shared library loads (DT_NEEDED); none where it cannot be read.
func (w SearchScope) neededBy(path string) []string {
	f := w.openFile(path)
	if f == nil {
		return nil
	}

	defer f.Close()

	library, err := elf.NewFile(&limitedReader{f, maxELFSize})
	if err != nil {
		return nil
	}

	names, _ := library.ImportedLibraries()

	return names
}

// limitedReader ends reading after so many bytes: a broken library may name tables of any size.
type limitedReader struct {
	file io.ReaderAt
	left int
}

func (l *limitedReader) ReadAt(p []byte, at int64) (int, error) {
	l.left -= len(p)
	if l.left < 0 {
		return 0, errors.New("its tables are too large")
	}
	return l.file.ReadAt(p, at)
}

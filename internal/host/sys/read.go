package sys

import (
	"io"
	"os"
)

// ReadSome reads the first bytes of a file, at most limit.
func ReadSome(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read only

	return io.ReadAll(io.LimitReader(file, limit))
}

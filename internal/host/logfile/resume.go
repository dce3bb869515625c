package logfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// ResumeCopy appends to a log what a source prints that always begins again with its first byte, such as the log of a
// pod: what the file has of it already is left out. Which source that is, and where in the file it begins, is kept
// beside the file. While another process does the same, everything is left out.
func ResumeCopy(path, source string) (io.WriteCloser, error) {
	file, err := sys.OpenFile(path, unix.O_CREAT|unix.O_RDWR|unix.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write the log: %w", err)
	}

	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return discardWriter{}, file.Close()
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the log: %w", err), file.Close())
	}

	var from struct {
		Source string `json:"source"`
		Start  int64  `json:"start"`
	}

	info, err := file.Stat()
	if err == nil {
		if text, rerr := os.ReadFile(path + ".from"); rerr == nil {
			// A damaged one is another source.
			_ = json.Unmarshal(text, &from)
		}
		if from.Source != source {
			from.Source, from.Start = source, info.Size()

			// text and a number.
			text, _ := json.Marshal(from)
			err = writeSource(path+".from", text)
		}
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the log: %w", err), file.Close())
	}

	return &skippingWriter{file, max(0, info.Size()-from.Start)}, nil
}

func writeSource(path string, text []byte) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it

	return dir.Replace(filepath.Base(path), text, 0o600)
}

// skippingWriter leaves out what it knows.
type skippingWriter struct {
	file  *os.File
	known int64
}

func (r *skippingWriter) Write(p []byte) (int, error) {
	skip := min(r.known, int64(len(p)))
	r.known -= skip
	if skip == int64(len(p)) {
		return len(p), nil
	}

	n, err := r.file.Write(p[skip:])

	return n + int(skip), err
}

func (r *skippingWriter) Close() error { return r.file.Close() }

// discardWriter leaves everything out.
type discardWriter struct{}

func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (discardWriter) Close() error                { return nil }
